# SPDX-License-Identifier: GPL-3.0-or-later
"""`baseline.json` and `probes.json`: what is whole is read, what is not is nothing (products.md, section 5)."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import probe_files, probing
from slotcore import product as products

PROBES = (
    products.Probe("web", "http"),
    products.Probe("db", "tcp"),
    products.Probe("nice", "command", required=False),
    products.Probe("new", "unit"),
)
SEEN = (
    probing.Seen("web", False, "answered 500, expected 200"),
    probing.Seen("db", False, "refused"),
    probing.Seen("nice", False),
)
BASELINE = probe_files.Baseline(
    "9f8a6c1e22d04b57", "4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10", 12_345_678, 1_700_000_000, {
        "web": probing.Seen("web", True, "answered 200"), "db": probing.Seen("db", False, "refused")
    }, "ab" * 16,
)  # fmt: skip
RULES = probing.Rules(products.Confirming(), ("web", "new"), 0, 1000.0)
COUNT = probing.Count(rounds=5, passes=0, failures=1, changes=1, passed=False)
REPORT = probe_files.Report(BASELINE.trial_id, "trial", "wait", "trial-pending", "1 of 3 rounds in a row failed", 7)
SHOWN = probe_files.render_report(REPORT, COUNT, RULES, PROBES, SEEN, BASELINE)


def test_a_baseline_reads_as_it_was_written() -> None:
    """What was green decides; and nothing is a baseline that is not there."""
    assert probe_files.parse_baseline(probe_files.render_baseline(BASELINE)) == BASELINE
    assert BASELINE.green() == {"web": True, "db": False}
    assert probe_files.parse_baseline(None) is None


@given(st.integers(0, 600))
def test_a_torn_baseline_counts_as_none(length: int) -> None:
    """However much of it is there."""
    whole = probe_files.render_baseline(BASELINE)
    found = probe_files.parse_baseline(whole[:length])
    assert found is None or (found == BASELINE and length >= len(whole) - 1)


def changed(whole: bytes, change: Callable[[Dict[str, Any]], Any]) -> bytes:
    """A file in which one thing is other."""
    value = json.loads(whole)
    change(value)
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda value: value.update(spec=2), id="another spec"),
        pytest.param(lambda value: value.update(more=1), id="another field"),
        pytest.param(lambda value: value.update(trial=1), id="an id that is none"),
        pytest.param(lambda value: value.update(at=-1), id="a time that is none"),
        pytest.param(lambda value: value.update(probes={}), id="no list"),
        pytest.param(lambda value: value.update(probes=value["probes"] * 17), id="more than 32 probes"),
        pytest.param(lambda value: value["probes"][0].update(ok="yes"), id="neither green nor red"),
        pytest.param(lambda value: value["probes"][0].update(name=None), id="a probe without a name"),
        pytest.param(lambda value: value.update(invocation="x" * 70_000), id="more than is read"),
    ],
)
def test_an_odd_baseline_counts_as_none(change: Callable[[Dict[str, Any]], Any]) -> None:
    """Exactly its fields, or nothing."""
    assert probe_files.parse_baseline(changed(probe_files.render_baseline(BASELINE), change)) is None


def test_what_is_shown_has_every_probe_with_its_weight() -> None:
    """Red before the swap, wanted, not looked at yet: each is told."""
    shown = probe_files.parse_report(SHOWN)
    assert shown is not None
    assert shown["needed"] == {"passes": 3, "failures": 3}
    assert [(one["name"], one["need"], one["decides"], one["baseline"], one["ok"]) for one in shown["probes"]] == [
        ("web", "required", True, True, False),
        ("db", "required", False, False, False),
        ("nice", "wanted", False, None, False),
        ("new", "required", True, None, None),
    ]
    assert probe_files.lines(shown) == [
        "probes (trial): wait, 0 of 3 passes, 1 of 3 failures in a row: 1 of 3 rounds in a row failed",
        "probe web (decides): answered 500, expected 200",
        "probe db (red before the swap): refused",
        "probe nice (wanted): failed",
    ]


def test_after_going_back_it_says_so_and_needs_no_baseline() -> None:
    """The old version's probes are those of the same names."""
    report = REPORT._replace(phase="after", verdict="healthy")
    shown = probe_files.parse_report(probe_files.render_report(report, COUNT, RULES, PROBES, (), None))
    assert shown is not None
    assert probe_files.lines(shown) == [
        "probes (after going back): healthy, 0 of 3 passes, 1 of 3 failures in a row: 1 of 3 rounds in a row failed"
    ]
    assert {one["baseline"] for one in shown["probes"]} == {None}


def test_it_stays_readable_however_much_is_said() -> None:
    """As many probes as there may be, each as long as it may be."""
    many = tuple(products.Probe(f"{number:032d}", "command") for number in range(40))
    seen = [probing.Seen(one.name, False, "ü" * 1000) for one in many]
    data = probe_files.render_report(REPORT._replace(why="ü" * 9000), COUNT, RULES, many, seen, None)
    shown = probe_files.parse_report(data)
    assert shown is not None
    assert len(shown["probes"]) == probe_files.MAX_PROBES


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda value: value.update(spec=2), id="another spec"),
        pytest.param(lambda value: value.update(phase=["trial"]), id="a phase that is none"),
        pytest.param(lambda value: value.update(verdict="healthy"), id="a verdict of another phase"),
        pytest.param(lambda value: value.update(verdict="fine"), id="a verdict that is none"),
        pytest.param(lambda value: value.update(why=1), id="a reason that is none"),
        pytest.param(lambda value: value.update(rounds=-1), id="a count that is none"),
        pytest.param(lambda value: value["needed"].update(passes="3"), id="a need that is none"),
        pytest.param(lambda value: value["needed"].update(more=3), id="another need"),
        pytest.param(lambda value: value.update(probes=None), id="no list"),
        pytest.param(lambda value: value["probes"][0].update(ok=1), id="neither green nor red"),
        pytest.param(lambda value: value["probes"][0].update(kind={}), id="a kind that is none"),
        pytest.param(lambda value: value["probes"][0].pop("why"), id="a field less"),
        pytest.param(lambda value: value.update(why="x" * 70_000), id="more than is read"),
    ],
)
def test_an_odd_report_is_not_shown(change: Callable[[Dict[str, Any]], Any]) -> None:
    """Status says nothing of what it cannot believe."""
    assert probe_files.parse_report(changed(SHOWN, change)) is None


@given(st.binary(max_size=200) | st.integers(0, 900).map(lambda length: SHOWN[:length]))
def test_what_lies_there_never_raises(data: bytes) -> None:
    """Whatever the bytes, they are read or they are not."""
    shown = probe_files.parse_report(data)
    assert shown is None or probe_files.lines(shown)
    assert probe_files.parse_report(None) is None
    probe_files.parse_baseline(data)
