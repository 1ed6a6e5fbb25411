# SPDX-License-Identifier: GPL-3.0-or-later
"""What root runs for a product is what root chose, whatever links lead there (products.md, section 1)."""

from __future__ import annotations

import os
import pathlib

import pytest

from slotcore import codes
from slotcore import product as products
from slotward import probe_kinds, reversing, root_run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="directories of another account")

OTHERS = 12345


@pytest.fixture(name="theirs")
def _theirs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory of another account, beside a program of root's."""
    tmp_path.chmod(0o755)
    (tmp_path / "program").write_text("#!/bin/sh\n")
    (tmp_path / "program").chmod(0o755)
    place = tmp_path / "theirs"
    place.mkdir()
    os.chown(place, OTHERS, OTHERS)
    return place


def test_i6_a_link_in_a_directory_of_others_is_not_run(theirs: pathlib.Path) -> None:
    """It leads to a program of root's now, and to any other a moment later."""
    link = theirs / "hook"
    link.symlink_to("../program")
    assert "link" in root_run.problem(str(link))
    assert str(theirs) in reversing.hook_problem(products.Hook("restore", (str(link),)))
    with pytest.raises(codes.Refused, match="would run as root"):
        probe_kinds.demand_root_s(str(link))


def test_i6_a_way_through_a_link_of_others_is_none(theirs: pathlib.Path) -> None:
    """Not the last name alone counts: a link of root's may lead to one of theirs, or through a directory that is one."""
    (theirs / "up").symlink_to("..")
    first = theirs.parent / "first"
    first.symlink_to(theirs / "up")
    assert str(theirs) in root_run.problem(f"{first}/program")


def test_i6_a_link_of_others_in_a_sticky_directory_is_none(theirs: pathlib.Path) -> None:
    """Its owner may replace it there."""
    sticky = theirs.parent / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "hook").symlink_to("../program")
    assert root_run.problem(str(sticky / "hook")) == ""
    os.chown(sticky / "hook", OTHERS, OTHERS, follow_symlinks=False)
    assert f"uid {OTHERS}" in root_run.problem(str(sticky / "hook"))


def test_links_of_root_s_are_as_good_as_the_program(theirs: pathlib.Path) -> None:
    """As /bin is on many hosts."""
    (theirs.parent / "link").symlink_to("./program")
    assert root_run.problem(str(theirs.parent / "link")) == ""
    assert root_run.problem("/bin/sh") == ""


def test_a_program_of_others_is_none(theirs: pathlib.Path) -> None:
    """Itself, and the directory that it lies in."""
    (theirs / "own").write_text("#!/bin/sh\n")
    assert f"lies in {theirs}" in root_run.problem(str(theirs / "own"))
    (theirs.parent / "program").chmod(0o777)
    assert "may be written by others" in root_run.problem(str(theirs.parent / "program"))


def test_links_that_lead_nowhere_end(theirs: pathlib.Path) -> None:
    """A circle is told, not walked for ever."""
    (theirs.parent / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        root_run.problem(str(theirs.parent / "circle"))
    assert "cannot be run" in reversing.hook_problem(products.Hook("restore", (str(theirs.parent / "circle"),)))
