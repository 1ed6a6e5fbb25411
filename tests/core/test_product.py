# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine knows of a daemon."""

from __future__ import annotations

import pytest

from slotcore import product as products


def test_names_are_joined_to_the_slots_directory() -> None:
    """A path is the slots directory, a slash and the name."""
    probe = products.Product("probe", "probe.service", "/usr/local/bin/probe", "/opt/slotward/probe")
    assert probe.path("current") == "/opt/slotward/probe/current"


def test_a_slot_of_layout_versions_is_a_link_to_a_tree_with_the_program_at_its_top() -> None:
    """Products.md, section 3; with layout `ab` the slot itself is the program."""
    probe = products.Product("probe", "probe.service", "/usr/local/bin/probe", "/s", program="probed")
    assert (probe.program_path("a"), probe.program_path("current")) == ("/s/a", "/s/current")
    trees = probe._replace(layout=products.VERSIONS)
    assert (trees.program_path("a"), trees.program_path("current")) == ("/s/a/probed", "/s/current/probed")
    assert (trees.tree("1.0.0"), products.tree_of("1.0.0")) == ("/s/versions/1.0.0", "versions/1.0.0")


@pytest.mark.parametrize("slot", products.SLOTS)
def test_the_other_slot_is_the_one_that_this_is_not(slot: str) -> None:
    """There are two slots, and each is the other one's other."""
    other = products.other_slot(slot)
    assert other in products.SLOTS
    assert other != slot
    assert products.other_slot(other) == slot


def test_the_defaults_are_those_of_the_page() -> None:
    """Node.md, section 7: 120 s of trial, 10 s of settling, three boots, one signature, the controller confirms."""
    probe = products.Product("probe", "probe.service", "/usr/local/bin/probe", "/opt/slotward/probe")
    assert (probe.trial_length_s, probe.settle_s, probe.max_boots, probe.threshold) == (120, 10, 3, 1)
    assert probe.confirm_sources == ("controller",)
    assert (probe.adopt, probe.pins, probe.base_floor) == (False, (), 0)
