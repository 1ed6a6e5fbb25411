# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward events` over real audit logs: what an upgrade leaves there, and reading on from a cursor."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Dict, Tuple

import pytest

from slotcore import audit as audits
from slotcore import codes, events
from slotcore import product as products
from slotward import audit, audit_read, cli


class Host:
    """A slots directory with a log, and the command that reads it."""

    def __init__(self, place: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.slots = place / "slots"
        self.slots.mkdir()
        self.config = place / "config.toml"
        self.config.write_text(
            f'data_dir = "{place}/data"\n[update]\nslots_dir = "{self.slots}"\nentrypoint = "{place}/probe"\n'
        )
        self.product = products.Product("slotward", "probe.service", f"{place}/probe", str(self.slots))
        self._capsys = capsys

    def note(self, event: str, **more: Any) -> None:
        """Note one line about 1.1.0."""
        audit.note(self.product, event, **{"to_version": "1.1.0", "trial_id": "ab" * 8, "sha256": "cd" * 32, **more})

    def events(self, *words: str) -> Tuple[int, Dict[str, Any]]:
        """`slotward events --json`."""
        self._capsys.readouterr()
        status = cli.main(["events", "--config", str(self.config), "--json", *words])
        answer: Dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return status, answer

    def said(self, *words: str) -> str:
        """The same for people."""
        self._capsys.readouterr()
        cli.main(["events", "--config", str(self.config), *words])
        return self._capsys.readouterr().out


@pytest.fixture
def here(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Host:
    """A host on which an upgrade passed, and one that went back."""
    found = Host(tmp_path, capsys)
    found.note(audits.STARTED)
    found.note(audits.DOWNLOADED, why=events.size_text(99))
    found.note(audits.SWAPPED)
    found.note(audits.CONFIRMED)
    found.note(audits.STARTED, to_version="1.2.0")
    found.note(audits.ROLLED_BACK, to_version="1.2.0", code=codes.CRASH_LOOP, why="it kept exiting")
    return found


def test_every_event_is_told_once(here: Host) -> None:
    """From nothing, and then from the cursor of each answer."""
    status, answer = here.events()
    assert status == 0
    assert [event["event"].partition("-")[2] for event in answer["events"]] == [
        "started", "downloaded", "staged", "completed", "started", "rolled-back",
    ]  # fmt: skip
    assert (answer["cursor"], answer["left_out"], answer["broken"], answer["changed"]) == (6, 0, None, False)
    status, part = here.events("--since", "1", "--limit", "2")
    assert ([event["n"] for event in part["events"]], part["cursor"], part["left_out"]) == ([2, 3], 3, 3)
    assert here.events("--since", "6")[1]["events"] == []
    here.note(audits.STARTED, to_version="1.3.0")
    assert [event["to"] for event in here.events("--since", "6")[1]["events"]] == ["1.3.0"]


def test_H11_what_went_back_says_why(here: Host) -> None:
    """Critical, with the code and the sentence."""
    last = here.events()[1]["events"][-1]
    assert (last["severity"], last["code"], last["why"]) == ("critical", "crash-loop", "it kept exiting")


def test_people_get_lines(here: Host) -> None:
    """And are told what was left out, or that there is nothing new."""
    assert "critical  upgrade-rolled-back" in here.said()
    assert "4 more: `slotward events --since 2`" in here.said("--limit", "2")
    assert here.said("--since", "6") == "no events since 6\n"
    assert "the log was begun anew after line 60" in here.said("--since", "60")


def test_damage_is_told_and_what_stands_after_it_is_no_event(here: Host) -> None:
    """A line that somebody changed ends what is believed."""
    log = here.slots / "audit.log"
    log.write_bytes(log.read_bytes().replace(b'"why":"99 bytes"', b'"why":"11 bytes"'))
    status, answer = here.events()
    assert (status, [event["n"] for event in answer["events"]]) == (0, [1, 2])
    assert "audit.log" in answer["broken"]["file"]
    assert "damaged" in answer["message"]
    assert "the chain is broken" in here.said()


def test_a_host_without_a_log_has_no_events(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing happened yet."""
    assert Host(tmp_path, capsys).events()[1]["events"] == []


def test_only_root_reads_them(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is root's."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert here.events()[1]["code"] == codes.NOT_ROOT


def test_L1_what_is_asked_for_again_and_again_does_not_fill_the_log(here: Host) -> None:
    """A hundred tries that fail the same way leave one start and one refusal."""
    for _number in range(100):
        here.note(audits.STARTED, to_version="2.0.0", trial_id=os.urandom(8).hex())
        here.note(audits.REFUSED, to_version="2.0.0", code=codes.DOWNLOAD_REFUSED, why="404")
    report = audit_read.read(str(here.slots))
    assert report.fault is None
    assert report.chain.head.number == 8
