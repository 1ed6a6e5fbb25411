# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of probes in, a decision out (products.md, section 5; field cases H1, H2, H3, H5, H6, W15)."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, probing
from slotcore import product as products

HOW = products.Confirming(interval_s=2, passes=3, failures=3)
RULES = probing.Rules(HOW, ("web", "db"), 0, 1000.0)
WAIT, CONFIRM, GO_BACK = probing.Verdict.WAIT, probing.Verdict.CONFIRM, probing.Verdict.GO_BACK


def looked(began_s: float, passed: bool, pid: int = 7, waits_for: str = "", db: Optional[bool] = True) -> probing.Round:
    """One round of a second in which `web` and `db` are as said."""
    seen = (
        probing.Seen("web", passed, "" if passed else "answered 429, expected 200"),
        probing.Seen("db", db, "" if db else "up 3.0 s of 10 s"),
    )
    return probing.Round(began_s, began_s + 1, seen, pid, waits_for)


def play(said: str, rules: probing.Rules = RULES) -> Tuple[List[probing.Decision], probing.Count]:
    """Rounds one interval apart: `.` passes, `x` fails, `w` does not count yet, `p` passes in a new process.

    In `e` it is too early for `db` to say; in `E` too, and `web` fails.
    """
    count, at_s, pid = probing.Count(), 1000.0, 7
    decisions = []
    for letter in said:
        pid += letter == "p"
        waits = "main process 7 is up 3.0 s of 10 s" if letter == "w" else ""
        count = probing.count(rules, count, looked(at_s, letter in ".pe", pid, waits, None if letter in "eE" else True))
        decisions.append(probing.decide(rules, count, at_s + 1))
        at_s += 1 + rules.confirming.interval_s
    return decisions, count


def verdicts(said: str, rules: probing.Rules = RULES) -> List[probing.Verdict]:
    """What was decided after each of these rounds."""
    return [decision.verdict for decision in play(said, rules)[0]]


@pytest.mark.parametrize(
    ("said", "last"),
    [
        pytest.param("..", WAIT, id="two passes are not three"),
        pytest.param("...", CONFIRM, id="three in a row"),
        pytest.param("xx", WAIT, id="W15: two failures are not three"),
        pytest.param("xxx", GO_BACK, id="three failures in a row"),
        pytest.param("xx.xx.", WAIT, id="failures that are not in a row"),
        pytest.param("wwwww", WAIT, id="nothing counts before the release is proven to run"),
        pytest.param("xwwxwx", GO_BACK, id="what does not count lies between, and failures still add up"),
        pytest.param("eeeee", WAIT, id="what is too early to say is no failure"),
        pytest.param("eee...", CONFIRM, id="and stands in the way of nothing later"),
        pytest.param("xEx", GO_BACK, id="what fails beside it is one"),
        pytest.param("..p", WAIT, id="a new main process passes anew"),
        pytest.param("..p..", CONFIRM, id="and then three times"),
    ],
)
def test_what_rounds_decide(said: str, last: probing.Verdict) -> None:
    """Nothing is decided before the last round, and this by it."""
    found = verdicts(said)
    assert found[-1] is last
    assert set(found[:-1]) <= {WAIT}


def test_H1_one_429_in_between_ends_no_trial() -> None:
    """A round that failed sets the passes back to nothing, and no more than that."""
    decisions, count = play("..x...")
    assert [one.verdict for one in decisions] == [WAIT, WAIT, WAIT, WAIT, WAIT, CONFIRM]
    assert decisions[2].why == "1 of 3 rounds in a row failed: web: answered 429, expected 200"
    assert count.changes == 1


def test_H11_going_back_names_the_probe_and_what_it_saw() -> None:
    """The sentence of the decision is what the end of the trial remembers."""
    decision = play("xxx")[0][-1]
    assert decision.code == codes.PROBE_FAILED
    assert decision.why == "3 rounds of probes in a row failed: web: answered 429, expected 200"


def test_flapping_goes_back_and_says_so() -> None:
    """Three changes from passing to failing are no health, though never three failures in a row."""
    decisions, _count = play("..x..x..x")
    assert [one.verdict for one in decisions[:-1]] == [WAIT] * 8
    assert decisions[-1].verdict is GO_BACK
    assert decisions[-1].code == codes.PROBE_FLAPPING
    assert "3 times; the last time web: answered 429" in decisions[-1].why


def test_a_long_stretch_of_passes_forgives_flapping() -> None:
    """In a long health window three rounds that failed, far from each other, are three times one round."""
    rules = RULES._replace(window_s=3000)
    good = "." * (HOW.passes * HOW.failures)
    assert GO_BACK not in verdicts(good + "x" + good + "x" + good + "x" + good, rules)
    assert verdicts(good + "x" + good[1:] + "x" + good[1:] + "x", rules)[-1] is GO_BACK


def test_H2_a_wanted_probe_decides_nothing() -> None:
    """It is told, and the trial is confirmed all the same."""
    probes = (products.Probe("web", "http"), products.Probe("nice", "tcp", required=False))
    assert probing.deciding(probes, {}) == ("web",)
    rules = RULES._replace(deciding=probing.deciding(probes, {}))
    seen = (probing.Seen("web", True), probing.Seen("nice", False, "refused"))
    assert probing.failed(rules, probing.Round(0, 1, seen)) == ()


def test_a_probe_that_was_red_before_the_swap_decides_nothing() -> None:
    """What the update found red it need not mend; without any probe left, what is proven to run is enough."""
    probes = (products.Probe("web", "http"), products.Probe("db", "tcp"))
    assert probing.deciding(probes, {"web": False, "db": True}) == ("db",)
    assert probing.deciding(probes, {}) == ("web", "db")
    decisions, _count = play("xxx", RULES._replace(deciding=()))
    assert decisions[-1].verdict is CONFIRM
    assert decisions[-1].why == "3 rounds of probes in a row passed, none of which decides"


def test_a_probe_without_an_answer_has_not_passed() -> None:
    """A round that lacks a probe is no round in which it was green."""
    found = probing.failed(RULES, probing.Round(0, 1, (probing.Seen("web", True),)))
    assert found == (probing.Seen("db", False, "it was not looked at"),)


def test_the_health_window_must_be_over_and_the_last_round_be_fresh() -> None:
    """Freshness is measured on every round: healthy for two minutes needs no new session (seed 002's defect)."""
    rules = RULES._replace(window_s=120)
    found = verdicts("." * 41, rules)
    assert found == [WAIT] * 40 + [CONFIRM]
    decisions, count = play("." * 10, rules)
    assert decisions[-1].why == "healthy, 28 s of 120 s since the trial began"
    stale = probing.decide(rules, count, 1000.0 + 120)
    assert (stale.verdict, stale.why) == (WAIT, "the last round is 92 s old: it is looked at again")
    failing = verdicts("." * 50 + "x", rules._replace(window_s=200))
    assert failing[-1] is WAIT


def test_a_gap_begins_the_passes_anew() -> None:
    """A host that slept between two rounds has not been seen to be healthy meanwhile."""
    count = probing.count(RULES, probing.Count(), looked(1000, True))
    assert probing.count(RULES, count, looked(1005, True)).passes == 2
    assert probing.count(RULES, count, looked(1005.1, True)).passes == 1


def test_H5_what_waits_says_why() -> None:
    """After a reboot everything begins anew, and a round that does not count yet says what it waits for."""
    decisions, count = play("ww")
    assert decisions[-1].why == "main process 7 is up 3.0 s of 10 s"
    assert count.rounds == 0
    assert probing.decide(RULES, probing.Count(), 1000).why == "no round of probes has counted yet"
    assert play("w.")[0][-1].why == "1 of 3 rounds in a row passed"


@pytest.mark.parametrize(
    ("said", "now_s", "verdict", "why"),
    [
        ("...", 1010, CONFIRM, "3 rounds of probes in a row passed"),
        ("..", 1010, WAIT, "2 of 3 rounds in a row passed"),
        ("xxx", 1010, GO_BACK, "3 rounds of probes in a row failed: web: answered 429, expected 200"),
        ("", 1119.9, WAIT, "no round of probes has counted yet"),
        ("w", 1120, GO_BACK, "not healthy within 120 s: main process 7 is up 3.0 s of 10 s"),
        (".x.x.", 1120, GO_BACK, "not healthy within 120 s: 1 of 3 rounds in a row passed"),
    ],
)
def test_H6_what_is_said_of_the_old_version(said: str, now_s: float, verdict: probing.Verdict, why: str) -> None:
    """It is healthy, or it is not, and at the latest after so long one of both is said."""
    found = probing.decide_after(RULES, play(said)[1], now_s, 120)
    assert (found.verdict, found.why) == (verdict, why)


def test_a_probe_that_failed_without_a_word_is_named() -> None:
    """Its name is what there is to say."""
    assert probing.named((probing.Seen("web", False),)) == "web: it failed"


HOWS = st.builds(products.Confirming, st.integers(1, 5), st.integers(1, 6), st.integers(1, 6))


def _longest(said: Sequence[str], letter: str) -> int:
    """The longest run of a letter."""
    return max((len(run) for run in "".join(said).replace("x" if letter == "." else ".", " ").split()), default=0)


@given(HOWS, st.text(".x", max_size=60))
def test_nothing_is_confirmed_without_its_passes_nor_taken_back_without_its_failures(
    how: products.Confirming, said: str
) -> None:
    """Whatever comes, a confirmation has just seen so many passes in a row; who goes back saw so many failures, or changes."""
    decisions, _count = play(said, RULES._replace(confirming=how))
    for number, decision in enumerate(decisions, 1):
        so_far = said[:number]
        if decision.verdict is CONFIRM:
            assert so_far.endswith("." * how.passes)
        if decision.verdict is GO_BACK and decision.code == codes.PROBE_FAILED:
            assert so_far.endswith("x" * how.failures)
        if decision.verdict is GO_BACK and decision.code == codes.PROBE_FLAPPING:
            assert so_far.endswith("x") or so_far.count(".x") >= how.failures
            assert so_far.count(".x") >= how.failures
        assert decision.why


@given(HOWS, st.text(".x", min_size=1, max_size=60))
def test_what_must_be_decided_is_decided(how: products.Confirming, said: str) -> None:
    """Rounds that have the failures in a row have gone back by then, those that have the passes have been decided."""
    found = verdicts(said, RULES._replace(confirming=how))
    if _longest(said, "x") >= how.failures:
        assert GO_BACK in found
    if _longest(said, ".") >= how.passes:
        assert set(found) != {WAIT}


@given(st.text(".xwp", max_size=40), st.integers(0, 3500))
def test_a_window_only_ever_delays(said: str, window_s: int) -> None:
    """What is taken back is taken back with or without one; nothing is confirmed before it is over."""
    plain, delayed = verdicts(said), verdicts(said, RULES._replace(window_s=window_s))
    for number, (one, other) in enumerate(zip(plain, delayed)):
        assert one is other or (one is CONFIRM and other is WAIT and number * 3 + 1 < window_s)
