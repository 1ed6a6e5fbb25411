# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the new release is what runs (I11)."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from slotcore import proof

SHA = "ab" * 32
GOOD = proof.Facts(
    active="active",
    main_pid=77,
    started_s=1000.25,
    now_s=1010.25,
    exe_is_slot=True,
    slot_is_open=False,
    status_sha256=None,
    status_pid=None,
)


def check(**changes: Any) -> object:
    """The proof for changed facts, for a swap at 1,000 s and a settle time of 10 s."""
    return proof.check(GOOD._replace(**changes), 1000, 10, SHA)


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        pytest.param({}, "exe", id="a native binary"),
        pytest.param({"exe_is_slot": False, "slot_is_open": True}, "open-file", id="a script"),
        pytest.param(
            {"exe_is_slot": False, "status_sha256": SHA, "status_pid": 77}, "status-socket", id="its own digest"
        ),
        pytest.param({"started_s": 1000.0, "now_s": 1010.0}, "exe", id="both bounds are inclusive"),
    ],
)
def test_a_process_of_the_new_bytes_is_proof(changes: Dict[str, Any], how: str) -> None:
    """Any one of the three ways is enough."""
    assert check(**changes) == proof.Proof(how, 77)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"active": "activating"}, "the unit is activating, not active"),
        ({"active": ""}, "the unit is unknown, not active"),
        ({"main_pid": 0}, "the unit has no main process"),
        ({"started_s": None}, "the unit has no main process"),
        ({"started_s": 999.99}, "main process 77 is older than the swap: the unit was not restarted"),
        ({"exe_is_slot": False}, "main process 77 does not run the new slot's bytes (ExecStart= of the unit?)"),
        ({"exe_is_slot": False, "status_sha256": SHA, "status_pid": 78}, "main process 77 does not run the new slot's"),
        ({"exe_is_slot": False, "status_sha256": "cd" * 32, "status_pid": 77}, "main process 77 does not run the new"),
        ({"now_s": 1010.24}, "main process 77 is up 10.0 s of 10 s"),
        ({"now_s": 1001.0}, "main process 77 is up 0.8 s of 10 s"),
    ],
)
def test_anything_less_is_no_proof_and_says_what_is_missing(changes: Dict[str, Any], why: str) -> None:
    """A reload that keeps the old process, a wrong ExecStart=, another process's word: none of it counts."""
    found = check(**changes)
    assert isinstance(found, proof.Missing)
    assert found.why.startswith(why)


def test_all_configured_sources_must_have_spoken_for_this_very_trial() -> None:
    """A line of another trial, a torn one and an unknown source count for nothing; the order is the configuration's."""
    wanted = ("controller", "gateway", "probe")
    mine = b"9f8a6c1e22d04b57"
    assert proof.missing_sources(wanted, b"", mine.decode()) == wanted
    assert proof.missing_sources(wanted, mine + b" gateway\n", mine.decode()) == ("controller", "probe")
    other = b"0000000000000000 controller\n" + mine + b" \xff\n" + mine + b" probe"
    assert proof.missing_sources(wanted, other, mine.decode()) == wanted
    all_of_them = b"".join(mine + b" " + source.encode() + b"\n" for source in reversed(wanted))
    assert proof.missing_sources(wanted, all_of_them, mine.decode()) == ()
