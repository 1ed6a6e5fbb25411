# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor names each state of a file system that prepare would refuse the next release for, and what ends it."""

from __future__ import annotations

import os
import pathlib

import pytest

from slotward import doctor_places, preflight

MIB = 1 << 20
SLOTS = preflight.Filesystem("/opt/s", 1, "ext4", 500 * MIB, 10_000, False, False)
DATA = SLOTS._replace(path="/var/d", device=2)
WELL = preflight.Facts(SLOTS, DATA, None)


def test_a_host_with_room_has_nothing_to_do() -> None:
    """One line that is ok, with the places in it."""
    assert doctor_places.judged(WELL, 3 * MIB) == [
        ("places", "ok", f"/opt/s and /var/d take another release of {3 * MIB} bytes", "")
    ]


@pytest.mark.parametrize(
    ("facts", "said", "run"),
    [
        (
            WELL._replace(slots=SLOTS._replace(read_only=True)),
            "/opt/s is on a read-only filesystem",
            'mount -o remount,rw "$(findmnt -nro TARGET -T /opt/s)"',
        ),
        (
            WELL._replace(staging=DATA._replace(read_only=True)),
            "/var/d is on a read-only filesystem",
            'mount -o remount,rw "$(findmnt -nro TARGET -T /var/d)"',
        ),
        (
            WELL._replace(slots=SLOTS._replace(noexec=True)),
            "mounted noexec",
            'mount -o remount,exec "$(findmnt -nro TARGET -T /opt/s)"',
        ),
        (
            WELL._replace(slots=SLOTS._replace(kind="overlay")),
            "is on overlay, which a reboot may empty",
            "set [update] slots_dir, then slotward setup",
        ),
        (
            WELL._replace(slots=SLOTS._replace(free=MIB)),
            "/opt/s needs 35.0 MiB free and has 1.0 MiB",
            "df -h /opt/s /var/d; df -i /opt/s /var/d",
        ),
        (
            WELL._replace(staging=DATA._replace(inodes=3)),
            "/var/d has 3 free inodes",
            "df -h /opt/s /var/d; df -i /opt/s /var/d",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_ends_it(facts: preflight.Facts, said: str, run: str) -> None:
    """One finding, which fails: the next release would be refused."""
    ((name, state, message, command),) = doctor_places.judged(facts, 3 * MIB)
    assert (name, state, command) == ("places", "fail", run)
    assert said in message


def test_a_look_without_a_try_writes_nothing(tmp_path: pathlib.Path) -> None:
    """Doctor only looks: a disk that is at its end is not written to for it."""
    before = os.stat(tmp_path).st_mtime_ns
    facts = preflight.look(str(tmp_path), str(tmp_path), probing=False)
    assert (facts.probe, os.stat(tmp_path).st_mtime_ns) == (None, before)
    assert preflight.look(str(tmp_path), str(tmp_path)).probe is not None
    assert os.stat(tmp_path).st_mtime_ns != before
