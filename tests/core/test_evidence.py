# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of a failed release: its bounds, what goes, and what counts as evidence at all (H10)."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotcore import evidence, strictjson

ID = "00112233445566aa"
KEPT = evidence.Evidence(ID, "redis", "1.0.0", "1.1.0", "crash-loop", "it kept exiting", 1795000000)


def said(kept: evidence.Evidence) -> Dict[str, Any]:
    """What comes back of it."""
    data = evidence.render(kept)
    assert len(data) <= evidence.MAX_BYTES
    return evidence.parse(data)


def test_H10_all_of_it_comes_back() -> None:
    """Each field, as the design names it."""
    full = KEPT._replace(
        journal=("+0.1 probe[7]: boom",),
        starts=(evidence.Start(0, "exited 1"), evidence.Start(2, None)),
        checks={"probes": []},
        environment={"kernel": "6.1"},
        missing=("x",),
    )
    assert said(full) == {
        "spec": 1,
        "trial_id": ID,
        "product": "redis",
        "from": "1.0.0",
        "to": "1.1.0",
        "code": "crash-loop",
        "why": "it kept exiting",
        "at": 1795000000,
        "journal": ["+0.1 probe[7]: boom"],
        "starts": [{"at": 0, "exit": "exited 1"}, {"at": 2, "exit": None}],
        "checks": {"probes": []},
        "environment": {"kernel": "6.1"},
        "missing": ["x"],
        "truncated": False,
    }


WORDS = st.tuples(st.sampled_from(["x", "é", "\n", "\\", "\U0001f600"]), st.integers(0, 3000)).map(
    lambda one: one[0] * one[1]
)


@given(st.lists(WORDS, max_size=60), WORDS, st.lists(WORDS, max_size=12), st.integers(0, 300_000))
@settings(max_examples=12)
def test_it_never_grows_beyond_its_bound(lines: List[str], why: str, missing: List[str], long: int) -> None:
    """Whatever a release writes, and whatever its probes say."""
    starts = (evidence.Start(1, "x" * 900),) * 100
    found = said(
        KEPT._replace(
            journal=tuple(lines), why=why * 3, missing=tuple(missing), starts=starts, checks={"probes": "é" * long}
        )
    )
    assert len(found["starts"]) == evidence.MAX_STARTS
    assert found["truncated"] or found["journal"] == lines


def test_of_a_long_journal_the_beginning_and_the_end_are_kept() -> None:
    """What lies between is counted, and the whole says that it is cut."""
    lines = tuple(f"+{number} probe[7]: {'é' * 50}" for number in range(3000))
    found = said(KEPT._replace(journal=lines))
    journal = found["journal"]
    assert (journal[0], journal[-1], found["truncated"]) == (lines[0], lines[-1], True)
    (mark,) = [line for line in journal if line.startswith("[")]
    assert mark == f"[{3000 - len(journal) + 1} lines are left out here]"
    assert journal.index(mark) < len(journal) / 2
    long = said(KEPT._replace(journal=("x" * 5000,)))
    assert (len(long["journal"][0]), long["truncated"]) == (evidence.MAX_LINE, True)


def test_checks_that_are_too_long_are_left_out_and_it_says_so() -> None:
    """The journal is worth more."""
    found = said(KEPT._replace(journal=("one",), checks={"x": "y" * 200_000}))
    assert (found["checks"], found["journal"], found["truncated"]) == (None, ["one"], True)
    assert found["missing"] == ["the checks are too long to be kept"]


@pytest.mark.parametrize(
    ("log", "exits", "wanted"),
    [
        (b"", [], ()),
        (b"log 1###\nunit due\nstart 100\n", [], ((0, None),)),
        (b"start 100\ncrash 101 5-1\nstart 102.5\n", [(100.9, "exited 1")], ((0, "exited 1"), (2, None))),
        (b"start 100\ncrash 101 5-1\nstart 102\n", [], ((0, evidence.UNTOLD), (2, None))),
        (b"start 100\nstart 110\n", [(50.0, "exited 9"), (111.0, "killed KILL")], ((0, None), (10, "killed KILL"))),
        (b"crash 99 1-1\nstart 90\n", [], ((0, None),)),
        (b"start 100\nhelper start 101\nstart 1", [], ((0, None),)),
    ],
)
def test_each_start_has_its_exit(log: bytes, exits: List[Any], wanted: object) -> None:
    """By the journal where that tells it; what was before the trial, torn, or of the helper is none."""
    assert evidence.starts_of(log, 100, exits) == wanted


def test_the_oldest_and_what_was_cut_go() -> None:
    """Never more than the bound; what is not of this is left alone."""
    names = [evidence.name_of(f"{number:016x}") for number in range(6)]
    more = [names[0] + evidence.PARTIAL, "README", "x.json"]
    assert evidence.surplus([*names, *more]) == (*names[4:], more[0])
    assert evidence.surplus(names[:2]) == ()
    assert [evidence.id_of(name) for name in (names[1], "README", "a.json.partial")] == [f"{1:016x}", None, None]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: [found],
        lambda found: {**found, "spec": 2},
        lambda found: {**found, "to": 5},
        lambda found: {**found, "at": "x"},
        lambda found: {**found, "journal": None},
    ],
)
def test_what_has_another_form_is_no_evidence(spoil: Any) -> None:
    """It is damage and that is all."""
    data = json.dumps(spoil(said(KEPT))).encode()
    with pytest.raises(strictjson.NotJson):
        evidence.parse(data)


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_damage(data: bytes) -> None:
    """Nobody writes there but root; all the same nothing but NotJson comes of it."""
    with pytest.raises(strictjson.NotJson):
        evidence.parse(data)


def test_a_list_shows_heads_and_people_all() -> None:
    """Also where parts are of another form than ours."""
    found = said(KEPT._replace(starts=(evidence.Start(3, "exited 1"), evidence.Start(9, None)), journal=("one",)))
    assert evidence.head_of(found) == {
        "id": ID, "from": "1.0.0", "to": "1.1.0", "code": "crash-loop", "at": 1795000000, "truncated": False,
    }  # fmt: skip
    found.update(
        checks={
            "probes": [
                {"name": "web", "ok": False, "why": "no answer"},
                {"name": "tcp", "ok": True},
                {"name": "up", "ok": None},
                "odd",
            ]
        },
        environment={"kernel": "6.1"},
        missing=["x"],
    )
    found["starts"].append("odd")
    lines = evidence.lines_of(found, "2026-11-18")
    assert lines[2:] == [
        "running since: 1.0.0",
        "start at +3 s: exited 1",
        "start at +9 s: did not end by itself",
        "start at +odd s: did not end by itself",
        "check web: failed: no answer",
        "check tcp: passed",
        "check up: too early to say",
        "kernel: 6.1",
        "not gathered: x",
        "journal:",
        "  one",
    ]
    assert "check" not in "".join(evidence.lines_of({**found, "checks": {"probes": 5}}, "x")[:6])
