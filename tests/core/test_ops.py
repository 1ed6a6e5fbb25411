# SPDX-License-Identifier: GPL-3.0-or-later
"""The building blocks of plans: complete, synced, then renamed, then the directory synced (field case P1)."""

from __future__ import annotations

from slotcore import manifest, ops, records


def test_P1_a_record_is_written_synced_renamed_and_its_directory_synced_in_that_order() -> None:
    """A rename without the fsync before it, or without the one after it, is no durable write."""
    assert ops.write_durably("/s/x", b"1", 0o600) == (
        ops.Write("/s/x.tmp", b"1", 0o600),
        ops.Sync("/s/x.tmp"),
        ops.Rename("/s/x.tmp", "/s/x"),
        ops.SyncDir("/s"),
    )


def test_P1_a_copy_follows_the_same_order() -> None:
    """A slot's bytes are complete and durable before its name is."""
    assert ops.copy_durably("/s/b", "staged", "ab", 3) == (
        ops.Copy("/s/b.tmp", "staged", "ab", 3),
        ops.Sync("/s/b.tmp"),
        ops.Rename("/s/b.tmp", "/s/b"),
        ops.SyncDir("/s"),
    )


def test_P1_a_tree_gets_its_name_when_all_of_it_is_durable_and_its_listing_comes_last() -> None:
    """What lay there goes first; the operation that unpacks syncs what it writes."""
    record = records.SlotRecord("1.0.0", 1, "ab", 3)
    assert ops.unpack_durably("/s/versions/1.0.0", "staged", record, "tar.gz") == (
        ops.Discard("/s/versions/1.0.0"),
        ops.Unpack("/s/versions/1.0.0", "staged", record, "tar.gz"),
        ops.Rename("/s/versions/1.0.0.partial", "/s/versions/1.0.0"),
        ops.Rename("/s/versions/1.0.0.json.partial", "/s/versions/1.0.0.json"),
        ops.SyncDir("/s/versions"),
    )


def test_kinds_are_called_as_in_manifests() -> None:
    """One name for one thing."""
    assert (ops.BINARY, ops.ARCHIVE) == manifest.KINDS


def test_a_link_is_moved_by_a_rename() -> None:
    """A link is never removed and made again: there is no moment without one."""
    assert ops.link_durably("/s/current", "b") == (
        ops.Link("/s/current.tmp", "b"),
        ops.Rename("/s/current.tmp", "/s/current"),
        ops.SyncDir("/s"),
    )


def test_names_of_one_directory_go_with_one_sync() -> None:
    """Removing several names costs one fsync."""
    assert ops.unlink_durably("/s", "x", "y") == (ops.Unlink("/s/x"), ops.Unlink("/s/y"), ops.SyncDir("/s"))


def test_the_directory_of_a_name_at_the_root_is_the_root() -> None:
    """The entrypoint may be anywhere."""
    assert ops.directory_of("/probe") == "/"
    assert ops.directory_of("/usr/local/bin/probe") == "/usr/local/bin"


def test_files_are_readable_by_all_and_writable_by_root_unless_said_otherwise() -> None:
    """Records are 0644 (node.md, section 2)."""
    assert ops.Write("/s/x", b"").mode == 0o644
