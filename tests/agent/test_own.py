# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent as its own product: which sequence of which program is a floor of this host."""

from __future__ import annotations

import pathlib
import sys

import pytest

from slotcore import config
from slotcore import product as products
from slotward import build_info, own


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> config.Config:
    """A configuration with slots of its own, and a program that was built as release 7."""
    monkeypatch.setattr(build_info, "SEQUENCE", 7)
    slots = tmp_path / "slots"
    slots.mkdir()
    for slot in ("a", "b"):
        (slots / slot).write_bytes(b"program")
    return config.load(None, "none")[0]._replace(slots_dir=str(slots), release_sequence=2)


def floor(settings: config.Config, monkeypatch: pytest.MonkeyPatch, program: pathlib.Path) -> int:
    """The floor when `program` runs."""
    monkeypatch.setattr(sys, "argv", [str(program)])
    return own.product_of(settings).base_floor


def test_before_the_slots_are_in_use_the_program_s_own_sequence_is_the_floor(
    settings: config.Config, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh install refuses what is older than itself."""
    assert floor(settings, monkeypatch, tmp_path / "elsewhere") == 7


@pytest.mark.parametrize(
    ("program", "expected"), [("a", 7), ("b", 2), ("../elsewhere", 2), ("current", 2), ("good", 7)]
)
def test_in_use_only_the_good_release_counts(
    settings: config.Config, monkeypatch: pytest.MonkeyPatch, program: str, expected: int
) -> None:
    """Neither a release on trial nor a program from elsewhere raises what this host was confirmed at."""
    slots = pathlib.Path(settings.slots_dir)
    (slots / "current").symlink_to("b")
    (slots / "good").symlink_to("a")
    assert floor(settings, monkeypatch, slots / program) == expected


def test_the_policy_and_the_mirrors_come_from_the_configuration() -> None:
    """Each key of the policy reaches the product, and what is not set has the key's default."""
    text = (
        '[update]\nenabled = false\nallowed_channels = "beta,lts"\nmin_version = "1.2.0"\nrollback_grace = 4\n'
        'same_major = true\nstrict_sequence = true\nmirrors = "https://x.example/a"\n'
    )
    product = own.product_of(config.check(text, "f"))
    assert product.policy == products.Policy(False, ("beta", "lts"), "1.2.0", 4, True, True)
    assert product.mirrors == ("https://x.example/a",)
    assert own.product_of(config.load(None, "f")[0]).policy == products.Policy()
