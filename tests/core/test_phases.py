# SPDX-License-Identifier: GPL-3.0-or-later
"""How far an update is: what is written, what is believed of it, and what is told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotcore import codes, phases, settle

FETCHING = phases.Progress(phases.FETCH, "1.1.0", 1000, 77, 42, 4096)
WAITING = FETCHING._replace(retry=phases.Retry("the server answers 503", 1010, 1600), rate=None)
FAILED = phases.Progress(phases.FETCH, "1.1.0", 1000, 0, failed_in=phases.FETCH, code=codes.DOWNLOAD_FAILED)

NUMBERS = st.integers(0, phases.MAX_INT)
TEXTS = st.text(max_size=40)
FOUND = st.builds(
    phases.Progress,
    st.sampled_from(phases.PHASES),
    TEXTS,
    NUMBERS,
    NUMBERS,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.none() | st.builds(phases.Retry, TEXTS, NUMBERS, NUMBERS),
    st.sampled_from(("", *phases.PHASES)),
    TEXTS,
)


@given(FOUND)
def test_what_is_written_is_read_again(found: phases.Progress) -> None:
    """Every progress has its bytes."""
    assert phases.parse(phases.render(found)) == found


def test_a_long_reason_is_cut_so_that_the_file_can_be_read() -> None:
    """A server may say much."""
    long = WAITING._replace(retry=phases.Retry("x" * 5000, 1, 2))
    found = phases.parse(phases.render(long))
    assert found is not None
    assert found.retry == phases.Retry("x" * 1000, 1, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "sleep"},
        {"phase": None},
        {"failed_in": "sleep"},
        {"percent": -1},
        {"percent": True},
        {"at": 1.5},
        {"pid": None},
        {"to": "x" * 1001},
        {"more": 1},
        {"retry": []},
        {"retry": {"why": "x", "until": 1}},
        {"retry": {"why": 1, "until": 1, "next_at": 1}},
    ],
)
def test_what_is_never_written_says_nothing(change: object) -> None:
    """Not a record: nothing is guessed from what is odd."""
    value = phases.as_json(FETCHING)
    value.update(change)  # type: ignore[call-overload]
    assert phases.parse(json.dumps(value).encode("ascii")) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_progress_or_nothing(data: bytes) -> None:
    """Torn, empty, of another kind: never an error."""
    found = phases.parse(data)
    assert found is None or phases.parse(phases.render(found)) == found


def test_a_file_that_is_too_long_or_too_deep_says_nothing() -> None:
    """Bounded in every direction."""
    assert phases.parse(b" " * (phases.MAX_BYTES + 1)) is None
    assert phases.parse(b"[" * 8000) is None
    assert phases.parse(b"[]") is None


def test_work_is_told_while_its_process_is_there() -> None:
    """A process that is gone and did not fail has nothing to say."""
    assert phases.shown(FETCHING, True, "", "") == FETCHING
    assert phases.shown(FETCHING, False, "", "") is None
    assert phases.shown(None, False, "", "") is None


def test_S3_a_failure_is_told_with_its_phase_until_the_next_update() -> None:
    """Not updating for ever, and not silent either."""
    assert phases.shown(FAILED, False, "", "") == FAILED
    assert FAILED.failed_in == phases.FETCH


def test_a_trial_is_told_by_its_own_records() -> None:
    """Whatever the file says, or without one."""
    waiting = phases.Progress(phases.TRIAL, "1.1.0", 900, 77)
    assert phases.shown(waiting, True, phases.TRIAL, "1.1.0") == phases.Progress(phases.TRIAL, "1.1.0", 900, 0)
    assert phases.shown(FAILED, False, phases.TRIAL, "1.2.0") == phases.Progress(phases.TRIAL, "1.2.0", 0, 0)
    assert phases.shown(None, False, phases.CONFIRM, "") == phases.Progress(phases.CONFIRM, "", 0, 0)
    assert phases.shown(waiting, True, "", "") is None


def test_each_action_on_a_trial_has_its_phase() -> None:
    """The names are those of `settle`."""
    actions = {action.value for action in settle.Action}
    assert set(phases.OF_ACTIONS) <= actions
    assert actions - set(phases.OF_ACTIONS) == {"none", "abandoned"}


@pytest.mark.parametrize(("done", "total", "percent"), [(0, 0, 0), (1, 3, 33), (3, 3, 100), (4, 3, 100), (-1, 3, 0)])
def test_percent_stays_between_nothing_and_all(done: int, total: int, percent: int) -> None:
    """One byte too many is still all."""
    assert phases.percent_of(done, total) == percent


def test_it_can_be_said_in_a_line() -> None:
    """For people: the phase, how far, how fast, why again, or where it failed."""
    line = "progress: fetch of 1.1.0, 42 %, 4 KiB/s"
    assert phases.line(phases.as_json(FETCHING)) == line
    assert phases.line(phases.as_json(WAITING)) == (
        "progress: fetch of 1.1.0, 42 %, tried again: the server answers 503"
    )
    assert phases.line(phases.as_json(FAILED)) == "progress: fetch of 1.1.0, failed in fetch (download-failed)"
    assert phases.line(phases.as_json(phases.Progress(phases.PREPARE, "", 0, 0))) == "progress: prepare"
