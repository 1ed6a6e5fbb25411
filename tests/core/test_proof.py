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


HELPER = proof.Helper("probe-helper.service", GOOD._replace(main_pid=78), proof.Greeting(SHA, 78))


def check_both(facts: proof.Facts = GOOD, helper: proof.Helper = HELPER) -> object:
    """The proof of a product with a helper, for the same swap."""
    return proof.check_both("probe.service", facts, helper, 1000, 10, SHA)


def test_of_a_product_with_a_helper_both_must_prove_it() -> None:
    """Each by its own main process; an answer names both, and only that of a product that has a helper."""
    found = check_both()
    assert found == proof.Proof("exe", 77, ("exe", 78))
    assert isinstance(found, proof.Proof)
    assert proof.as_json(found) == {"how": "exe", "main_pid": 77, "helper": {"how": "exe", "main_pid": 78}}
    assert proof.as_json(found._replace(helper=None)) == {"how": "exe", "main_pid": 77}


@pytest.mark.parametrize(
    ("facts", "helper", "why"),
    [
        ({"main_pid": 0}, {}, "probe.service: the unit has no main process"),
        ({"now_s": 1001.0}, {"active": "failed"}, "probe.service: main process 77 is up 0.8 s of 10 s"),
        ({}, {"active": "activating"}, "probe-helper.service: the unit is activating, not active"),
        (
            {},
            {"started_s": 999.0},
            "probe-helper.service: main process 78 is older than the swap: the unit was not restarted",
        ),
        (
            {},
            {"exe_is_slot": False},
            "probe-helper.service: main process 78 does not run the new slot's bytes (ExecStart= of the unit?)",
        ),
        ({}, {"now_s": 1005.25}, "probe-helper.service: main process 78 is up 5.0 s of 10 s"),
    ],
)
def test_what_is_missing_names_the_unit(facts: Dict[str, Any], helper: Dict[str, Any], why: str) -> None:
    """The same demands of each; the product's first."""
    other = HELPER._replace(facts=HELPER.facts._replace(**helper))
    assert check_both(GOOD._replace(**facts), other) == proof.Missing(why)


@pytest.mark.parametrize(
    ("heard", "why"),
    [
        (
            proof.Greeting(why="/run/helper.sock: Connection refused"),
            "main process 78 does not answer on its socket: /run/helper.sock: Connection refused",
        ),
        (proof.Greeting(SHA, 79), "process 79 answers on its socket, not main process 78"),
        (
            proof.Greeting("cd" * 32, 78),
            f"main process 78 says that it runs {'cd' * 32}, not the new slot's {SHA}",
        ),
    ],
)
def test_a_helper_that_does_not_serve_with_the_new_bytes_is_no_proof(heard: proof.Greeting, why: str) -> None:
    """It must answer by itself and say the slot's digest."""
    assert check_both(helper=HELPER._replace(greeting=heard)) == proof.Missing(f"probe-helper.service: {why}")


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
