# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent notes of trials, refusals and cleared versions: each decision once, whatever was cut in between."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from agent.resting import BOOT, ID, RECORD

from agent import resting
from slotcore import audit as audits
from slotcore import codes, records, settle, trial
from slotcore import product as products
from slotward import audit, audit_read, cli, faults, host, manager

CLOCK = settle.Clock(90, BOOT)


@pytest.fixture
def product(tmp_path: pathlib.Path) -> products.Product:
    """A product in use and at rest, in a directory of its own."""
    return resting.product(tmp_path)


def lines(product: products.Product) -> List[audits.Event]:
    """The log's events, whose chain must hold."""
    report = audit_read.read(product.slots_dir)
    assert report.fault is None
    return [audits.parse(line).event for line in report.lines]


def won(product: products.Product) -> None:
    """A confirmation that was won and not finished."""
    place = pathlib.Path(product.slots_dir)
    (place / "current").unlink()
    (place / "current").symlink_to("b")
    (place / "back").symlink_to("a")
    (place / "trial.log").write_bytes(trial.LOG_HEADER)
    (place / "trial.confirm").write_bytes(RECORD)


def lost(product: products.Product) -> None:
    """A going back that the guard has won and carried out, and nobody has written down."""
    place = pathlib.Path(product.slots_dir)
    (place / "trial.log").write_bytes(trial.LOG_HEADER + b"start 100\n")
    (place / "trial.revert").write_bytes(RECORD + b"REASON=crash-loop\n")


def unstarted(product: products.Product) -> None:
    """An update that was cut before the switch."""
    place = pathlib.Path(product.slots_dir)
    (place / "trial").write_bytes(RECORD)
    (place / "trial.log").write_bytes(trial.LOG_HEADER)
    (place / "back").symlink_to("a")


ENDS: Dict[str, Tuple[Any, List[str]]] = {
    "confirmed": (won, ["swapped", "confirmed"]),
    "rolled back": (lost, ["swapped", "rolled-back"]),
    "abandoned": (unstarted, ["abandoned"]),
}


class Cut(BaseException):
    """The power goes here."""


def cut_after(left: Iterator[int], _point: str) -> None:
    """The power goes once nothing is left of `left`."""
    if next(left, None) is None:
        raise Cut


@pytest.mark.parametrize("end", ENDS)
def test_P7_an_end_is_noted_once_wherever_it_is_cut(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """After every operation of finishing, and in the middle of noting it: the next settling writes what is missing, once."""
    prepare, wanted = ENDS[end]
    count = 0
    while True:
        place = tmp_path / f"cut{count}"
        shutil.copytree(product.slots_dir, place, symlinks=True)
        one = product._replace(slots_dir=str(place))
        prepare(one)
        with monkeypatch.context() as patch:
            patch.setattr(faults, "hit", functools.partial(cut_after, iter(range(count))))
            try:
                manager.settle_now(one)
                done = True
            except Cut:
                done = False
        for _again in range(2):
            manager.settle_now(one)
            assert [event.event for event in lines(one)] == wanted, count
        count += 1
        if done:
            break
    assert count > 8


def test_H11_what_an_end_says(product: products.Product) -> None:
    """Versions, trial, sequence, digest and reason; what nobody asked for was done by the guard."""
    lost(product)
    manager.settle_now(product)
    end = lines(product)[-1]
    assert (end.event, end.code, end.who) == ("rolled-back", "crash-loop", "guard")
    assert (end.from_version, end.to_version, end.trial_id) == ("1.0.0", "1.1.0", ID)
    assert (end.sequence, end.sha256) == (2, resting.NEW.sha256)
    assert "kept exiting" in end.why


def test_a_confirmed_trial_says_its_sequence_and_digest(product: products.Product) -> None:
    """A repair learns from it which floor was confirmed and what the bytes are."""
    won(product)
    manager.settle_now(product)
    facts = audit.facts(product)
    assert (facts.confirmed, facts.named[resting.NEW.sha256], facts.whole) == (2, ("1.1.0", 2), False)


def test_a_log_that_was_lost_for_a_while_is_made_up_for(
    product: products.Product, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end is recorded although nobody can write the log; once somebody can, it gets there."""
    blocked = pathlib.Path(product.path("audit.log"))
    blocked.mkdir()
    won(product)
    _seen, done = manager.settle_now(product)
    assert done == "finish-confirm"
    assert "lacks confirmed" in capsys.readouterr().err
    last = host.read_state(product).update.last
    assert last is not None
    assert last.state == "confirmed"
    blocked.rmdir()
    manager.settle_now(product)
    assert [event.event for event in lines(product)] == ["swapped", "confirmed"]


def test_a_pending_trial_was_switched_to(product: products.Product, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut between the restart and the line about it: the next command that settles writes it."""
    won(product)
    os.rename(product.path("trial.confirm"), product.path("trial"))
    monkeypatch.setattr(host, "clock", lambda: CLOCK)
    for _again in range(2):
        assert manager.settle_now(product)[1] == "nothing"
        assert [(event.event, event.trial_id) for event in lines(product)] == [("swapped", ID)]


def test_H6_a_rollback_that_failed_is_noted_once(product: products.Product) -> None:
    """Beside the going back itself: the good version was not seen to run."""
    last = records.Last(ID, "rolled-back", "crash-loop", "it kept exiting", "1.0.0", "1.1.0", 5)
    for _again in range(2):
        audit.rollback_failed(product, last)
    (event,) = lines(product)
    assert (event.event, event.trial_id) == ("rollback-failed", ID)
    assert "does not run after going back to 1.0.0" in event.why


def test_many_lines_later_an_end_is_still_known(product: products.Product) -> None:
    """Refusals in between, in several files: the end is found in the one where it is."""
    won(product)
    manager.settle_now(product)
    audit_log = pathlib.Path(product.path("audit.log"))
    audit_log.rename(product.path("audit.log.1"))
    for number in range(5):
        audit.note(product, audits.REFUSED, why=str(number))
    manager.settle_now(product)
    assert [event.event for event in lines(product)].count("confirmed") == 1


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def config(product: products.Product, tmp_path: pathlib.Path) -> str:
    """A configuration of the agent for these slots."""
    path = tmp_path / "config.toml"
    path.write_text(
        f'data_dir = "{tmp_path}/data"\n[update]\nslots_dir = "{product.slots_dir}"\nentrypoint = "{product.entrypoint}"\n'
    )
    return str(path)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> Tuple[int, Dict[str, Any]]:
    """Run a command of the agent in this process."""
    capsys.readouterr()
    status = cli.main([*words, "--json"])
    answer: Dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, answer


def target(tmp_path: pathlib.Path, **fields: str) -> str:
    """A target file that is refused."""
    path = tmp_path / "target.json"
    body = {"product": "slotward", "version": "1.2.0", "url": "", "sha256": "ab" * 32, "signature": "", **fields}
    path.write_text(json.dumps(body))
    return str(path)


def test_a_refused_upgrade_is_noted_and_a_dry_run_is_not(
    product: products.Product, config: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With version and digest of what was asked for; again the same makes no second line."""
    words = ("--config", config, "--target", target(tmp_path))
    assert command(capsys, "prepare", *words)[1]["code"] == "no-pins"
    assert lines(product) == []
    status, answer = command(capsys, "upgrade", "--here", *words)
    assert (status, answer["code"]) == (3, "no-pins")
    assert command(capsys, "upgrade", "--here", *words) == (status, answer)
    (event,) = lines(product)
    assert (event.event, event.code, event.why) == ("refused", "no-pins", answer["message"])
    assert (event.from_version, event.to_version, event.sha256) == ("1.0.0", "1.2.0", "ab" * 32)


def test_a_target_that_cannot_be_read_is_a_refusal_too(
    product: products.Product, config: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then nobody knows which version was meant."""
    path = tmp_path / "target.json"
    path.write_text("{}")
    assert command(capsys, "upgrade", "--here", "--config", config, "--target", str(path))[0] == 3
    (event,) = lines(product)
    assert (event.event, event.code, event.to_version) == ("refused", codes.BAD_TARGET, "")


def test_a_broken_configuration_refuses_and_is_noted(
    product: products.Product, config: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator looks into the log for why nothing is updated."""
    with pathlib.Path(config).open("a") as file:
        file.write("colour = 1\n")
    status, answer = command(capsys, "upgrade", "--here", "--config", config, "--target", target(tmp_path))
    assert (status, answer["code"]) == (5, "bad-config")
    assert lines(product)[0].code == "bad-config"


def test_a_damaged_log_refuses_updates_and_says_the_way_out(
    product: products.Product, config: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run says the same; what is not a new release goes on."""
    pathlib.Path(product.path("audit.log")).write_text("damage\n")
    for name in (("prepare",), ("upgrade", "--here")):
        status, answer = command(capsys, *name, "--config", config, "--target", target(tmp_path))
        assert (status, answer["code"]) == (5, "audit-broken")
        assert "--restart-chain" in answer["message"]
    assert command(capsys, "update", "--config", config)[1]["audit"] is None


def test_cleared_versions_are_noted(product: products.Product, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each version; nothing to clear is nothing to note."""
    lost(product)
    manager.settle_now(product)
    before = len(lines(product))
    assert command(capsys, "update", "--config", config, "--clear-failed")[1]["cleared"] == ["1.1.0"]
    event = lines(product)[-1]
    assert (event.event, event.to_version, event.sequence, event.sha256) == ("cleared", "1.1.0", 2, resting.NEW.sha256)
    assert event.code == "crash-loop"
    command(capsys, "update", "--config", config, "--clear-failed")
    assert len(lines(product)) == before + 1


def test_update_tells_the_head(product: products.Product, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A controller that remembers it sees a log that was cut."""
    assert command(capsys, "update", "--config", config)[1]["audit"] == {"n": 0, "hash": "0" * 64}
    audit.note(product, audits.CLEARED)
    head = audit_read.read(product.slots_dir).chain.head
    assert command(capsys, "update", "--config", config)[1]["audit"] == {"n": 1, "hash": head.hash}


def test_what_was_accepted_is_noted_once_for_each_release(product: products.Product) -> None:
    """The same request carried out again after a cut is one decision; another release under its id is another one."""
    again = resting.TRIAL._replace(to_version="1.2.0", to_sha256="2" * 64)
    for one in (resting.TRIAL, resting.TRIAL, again, again, resting.TRIAL):
        audit.accepted(product, one)
    assert [(event.event, event.to_version) for event in lines(product)] == [
        ("accepted", "1.1.0"),
        ("accepted", "1.2.0"),
    ]
