# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade's life as events: which lines they are, their fields, and reading on from a cursor."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, List

from hypothesis import given
from hypothesis import strategies as st

from slotcore import audit, audit_chain, codes, events

ID, OTHER = "9f8a6c1e22d04b57", "0" * 16
SHA = "ab" * 32
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "operator" / "audit.md"


def line(event: str, at: int = 0, trial_id: str = ID, **more: Any) -> audit.Event:
    """One line about an upgrade to 1.1.0."""
    found = audit.Event(event, "toy", at, from_version="1.0.0", to_version="1.1.0", trial_id=trial_id)
    return found._replace(sequence=2, sha256=SHA, **more)


def chain(*made: audit.Event) -> List[bytes]:
    """The lines of a log of these events."""
    lines: List[bytes] = []
    for event in made:
        lines.append(audit.append(lines[-1] if lines else None, event))
    return lines


LIFE = (
    line("adopted", 1, ""),
    line("started", 10),
    line("downloaded", 20, why=events.size_text(1234)),
    line("accepted", 30),
    line("swapped", 31),
    line("confirmed", 75),
    line("started", 100, OTHER),
    line("refused", 105, OTHER, code=codes.DIGEST_MISMATCH),
    line("staged", 110, OTHER),
    line("swapped", 120, OTHER),
    line("rolled-back", 130, OTHER, code=codes.CRASH_LOOP, why="it kept exiting"),
    line("rollback-failed", 140, OTHER, code=codes.CRASH_LOOP, why="the old one does not run"),
    line("cleared", 150, ""),
)


def names(found: events.Read) -> List[str]:
    """The events' names."""
    return [event["event"] for event in found.events]


def test_a_life_from_start_to_end() -> None:
    """What runs on is info, what went back is critical, and nothing else is an event."""
    found = events.read(chain(*LIFE), 0)
    assert [(event["n"], event["event"], event["severity"]) for event in found.events] == [
        (2, "upgrade-started", "info"),
        (3, "upgrade-downloaded", "info"),
        (5, "upgrade-staged", "info"),
        (6, "upgrade-completed", "info"),
        (7, "upgrade-started", "info"),
        (9, "upgrade-staged", "info"),
        (10, "upgrade-staged", "info"),
        (11, "upgrade-rolled-back", "critical"),
        (12, "upgrade-rolled-back", "critical"),
    ]
    assert (found.cursor, found.left_out, found.restarted) == (13, 0, False)


def test_each_event_has_the_fields_of_its_kind() -> None:
    """As the page lists them; a field of another kind is not there."""
    page = PAGE.read_text(encoding="utf-8")
    common = re.search(r"beside ((?:`[a-z0-9]+`,? ?)+)\|", page)
    assert common is not None
    shared = set(re.findall(r"`([a-z0-9]+)`", common.group(1))) | {"event", "severity"}
    rows = re.findall(r"^\| `(upgrade-[a-z-]+)` \| (\w+) \| ([^|]*) \|([^|]*)\|$", page, re.MULTILINE)
    by_name: Dict[str, Dict[str, Any]] = {}
    for event in events.read(chain(*LIFE), 0).events:
        by_name.setdefault(event["event"], event)
    assert [row[0] for row in rows] == list(dict.fromkeys(name for name, _severity in events.OF_LINES.values()))
    for name, severity, from_lines, fields in rows:
        own = {"size", "swapped", "healthy_s", "code", "why", "failed"} & set(re.findall(r"`([a-z_]+)`", fields))
        assert set(by_name[name]) == shared | own, name
        assert by_name[name]["severity"] == severity
        assert set(re.findall(r"`([a-z-]+)`", from_lines)) == {
            key for key, value in events.OF_LINES.items() if value[0] == name
        }
    found = events.read(chain(*LIFE), 0).events
    assert found[1]["size"] == 1234
    assert [found[number]["swapped"] for number in (2, 5, 6)] == [True, False, True]
    assert found[3]["healthy_s"] == 44
    assert [(one["code"], one["failed"]) for one in found[7:]] == [("crash-loop", False), ("crash-loop", True)]
    assert found[7]["why"] == "it kept exiting"


def test_what_the_log_no_longer_says_is_null() -> None:
    """The line of the switch is gone, or the clock went back: nothing is made up."""
    whole = chain(*LIFE)
    assert events.read(whole[5:6], 0).events[0]["healthy_s"] is None
    assert events.read(chain(line("swapped", 90), line("confirmed", 75)), 0).events[1]["healthy_s"] == 0
    assert events.read(chain(line("downloaded", why="many")), 0).events[0]["size"] is None
    assert events.read(chain(line("swapped", 5, ""), line("confirmed", 75, "")), 0).events[1]["healthy_s"] is None


@given(st.integers(0, 14), st.integers(0, 12))
def test_reading_on_from_the_cursor_tells_every_event_once(since: int, limit: int) -> None:
    """Whatever the limit, asking with each answer's cursor comes to the end with nothing missing and nothing twice."""
    lines = chain(*LIFE)
    wanted = [event["n"] for event in events.read(lines, 0).events if since > len(LIFE) or event["n"] > since]
    told: List[int] = []
    cursor, rounds = since, 0
    while True:
        found = events.read(lines, cursor, limit)
        assert len(found.events) <= (limit or 99)
        told += [event["n"] for event in found.events]
        assert found.left_out == len(wanted) - len(told)
        cursor, rounds = found.cursor, rounds + 1
        if not found.left_out:
            break
        assert rounds < 20
    assert told == wanted
    assert cursor == len(LIFE)
    assert events.read(lines, cursor, limit) == events.Read([], len(LIFE), 0, False)


def test_a_cursor_beyond_the_log_is_of_one_before_it() -> None:
    """A log that was begun anew is read from its beginning, and says so."""
    found = events.read(chain(*LIFE[:3]), 99)
    assert (names(found), found.cursor, found.restarted) == (["upgrade-started", "upgrade-downloaded"], 3, True)
    assert events.read([], 0) == events.Read([], 0, 0, False)
    assert events.read([], 7) == events.Read([], 0, 0, True)


def test_every_event_has_a_line_for_people() -> None:
    """The number, the time, how bad it is, what it was, and the one thing more to know."""
    said = [events.line_of(event, "T") for event in events.read(chain(*LIFE), 0).events]
    assert said[0] == "    2  T  info      upgrade-started      1.0.0 -> 1.1.0"
    assert said[1].endswith("1.0.0 -> 1.1.0  1234 bytes")
    assert said[2].endswith("on trial")
    assert said[3].endswith("after 44 s")
    assert said[5].endswith("waits for an operator's word")
    assert said[7] == "   11  T  critical  upgrade-rolled-back  1.0.0 -> 1.1.0  crash-loop: it kept exiting"


# -- steps in the log ------------------------------------------------------------------------------------------------


def test_L1_steps_of_an_update_that_is_tried_again_and_again_are_written_once() -> None:
    """A control side that asks every 30 seconds for what fails each time must not push older lines out of the log."""
    started, refused = line("started"), line("refused", code=codes.DOWNLOAD_REFUSED)
    for before in ([started], [started, refused], [started, line("downloaded"), refused]):
        assert audit.goes_on(chain(line("confirmed"), *before), started._replace(at=99, trial_id=OTHER))
    assert audit.goes_on(chain(started, started._replace(to_version="2.0.0"), refused), started)
    assert not audit.goes_on(chain(line("confirmed")), started)
    assert not audit.goes_on(chain(started, line("swapped")), started)
    assert not audit.goes_on(chain(started, line("cleared")), started)
    assert not audit.goes_on(chain(started._replace(sha256="cd" * 32), refused), started)
    assert not audit.goes_on(chain(started, refused), line("downloaded"))
    assert not audit.goes_on([], started)
    assert not audit.goes_on([b"the end of a line that was cut", chain(refused)[0]], started)


def test_steps_are_no_decisions() -> None:
    """A log that begins with them begins where this host began all the same, and they prove nothing of bytes."""
    adopted = line("adopted")
    assert audit_chain.facts(chain(line("started"), line("downloaded"), adopted)).whole
    assert not audit_chain.facts(chain(line("started"), line("confirmed"), adopted)).whole
    assert audit_chain.facts(chain(line("started"), line("downloaded"))).named == {}
