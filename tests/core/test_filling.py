# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of layout `versions` (products.md, section 3): the tree, its listing, the slot's link, the record last."""

from __future__ import annotations

from typing import List

from core.crash import values

from slotcore import filling, listings, ops, plans, settle
from slotcore import product as products

TREES = values.PRODUCT._replace(layout=products.VERSIONS, program="probe")
RECORD = values.record("1.1.0")
KEPT = listings.Listing(RECORD, (listings.Entry("probe", listings.FILE, 0o755, 3, "ab" * 32),))
LINK = ops.link_durably("/slots/b", "versions/1.1.0")


def renamed(plan: ops.Plan) -> List[str]:
    """The names that the plan gives, in order."""
    return [operation.path for operation in plan if isinstance(operation, ops.Rename)]


def part(plan: ops.Plan) -> ops.Plan:
    """What lies between clearing the slot's record and writing it."""
    return plan[8:-8]


def test_staging_unpacks_then_links_the_free_slot_then_records() -> None:
    """Nothing that starts is touched, and the record says nothing before the tree is whole."""
    plan = plans.plan_stage(TREES, values.state("a", "a"), RECORD, 0, filling.Source(plans.STAGED, "tar.gz"))
    assert part(plan) == ops.unpack_durably("/slots/versions/1.1.0", plans.STAGED, RECORD, "tar.gz") + LINK
    assert renamed(plan)[:2] == renamed(plan)[-2:] == ["/slots/slots.json.copy", "/slots/slots.json"]


def test_a_program_alone_becomes_a_tree_too() -> None:
    """Kind `binary` is the default."""
    plan = plans.plan_stage(TREES, values.state("a", "a"), RECORD, 0)
    assert ops.Unpack("/slots/versions/1.1.0", plans.STAGED, RECORD, "binary") in plan


def test_a_tree_that_is_there_is_linked_alone() -> None:
    """It has proven itself, so nothing of it is written."""
    plan = plans.plan_stage(TREES, values.state("a", "a"), RECORD, 0, filling.Source(plans.STAGED, "tar.gz", KEPT))
    assert part(plan) == LINK


def test_a_newer_record_of_the_same_bytes_goes_into_the_listing() -> None:
    """Else an operator who goes back to that tree would be told its old sequence."""
    newer = RECORD._replace(sequence=7)
    plan = plans.plan_stage(TREES, values.state("a", "a"), newer, 0, filling.Source(plans.STAGED, "tar.gz", KEPT))
    listing = listings.render(KEPT._replace(record=newer))
    assert part(plan) == ops.write_durably("/slots/versions/1.1.0.json", listing) + LINK


def test_adopting_makes_a_tree_of_the_file_and_links_the_entrypoint_to_the_program() -> None:
    """The entrypoint moves last, as with two files."""
    plan = plans.plan_adopt(TREES, settle.State(), RECORD)
    assert plan[8:13] == ops.unpack_durably("/slots/versions/1.1.0", plans.ENTRYPOINT, RECORD, "binary")
    assert plan[-3:] == ops.link_durably("/bin/probe", "/slots/current/probe")
    kept = plans.plan_adopt(TREES, settle.State(), RECORD, filling.Source(plans.ENTRYPOINT, kept=KEPT))
    assert not [operation for operation in kept if isinstance(operation, (ops.Discard, ops.Unpack))]


def test_first_bytes_tell_an_archive_from_a_program() -> None:
    """Where no manifest says the kind; a file that is too short is no archive."""
    assert filling.kind_by(b"\x1f\x8b\x08") == ops.ARCHIVE
    assert [filling.kind_by(head) for head in (b"\x7fELF", b"#!/bin/sh", b"\x1f", b"")] == [ops.BINARY] * 4


def test_two_files_are_filled_as_ever() -> None:
    """Layout `ab` knows nothing of trees."""
    plan = plans.plan_stage(
        values.PRODUCT, values.state("a", "a"), RECORD, 0, filling.Source(plans.STAGED, "tar.gz", KEPT)
    )
    assert part(plan) == ops.copy_durably("/slots/b", plans.STAGED, RECORD.sha256, RECORD.size)
