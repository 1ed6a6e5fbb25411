# SPDX-License-Identifier: GPL-3.0-or-later
"""Root's part of start mode on real directories: what an honest daemon asked for, once; and what any enemy may leave there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import stat
import threading
import time
from typing import Callable, Dict, Iterator, Tuple

import pytest
from agent.starts import ID, UID, Shop, Signed, Start
from support import faults as points

from agent import accounts, starts
from slotcore import asked, codes, recording, records
from slotward import answers, applying, cmd_apply, faults, handed, lock, manager

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root's part, and files of another account's")

ELSE = "ffeeddccbbaa9988"
FAR = 4_102_444_800
"""The year 2100, when every release here has expired."""


@pytest.fixture(name="shop", scope="module")
def _shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Keys and releases."""
    return Shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(name="v110", scope="module")
def _v110(shop: Shop) -> Signed:
    """The next release."""
    return shop.release("1.1.0", 2)


@pytest.fixture(name="v120", scope="module")
def _v120(shop: Shop) -> Signed:
    """The one after that."""
    return shop.release("1.2.0", 3)


@pytest.fixture(name="start")
def _start(tmp_path: pathlib.Path, systemctl: None, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A host whose daemon is about to be started again."""
    tmp_path.chmod(0o755)
    return Start(tmp_path, shop, monkeypatch)


def on_trial(start: Start, trial_id: str = ID) -> None:
    """What holds once a request was carried out."""
    assert (start.link("current"), start.link("good"), start.link("back")) == ("b", "a", "a")
    assert start.on_trial() == trial_id
    start.runnable()


def at_rest(start: Start) -> None:
    """What holds when nothing was switched."""
    assert (start.link("current"), start.link("good")) == ("a", "a")
    assert start.on_trial() == ""
    assert not (start.slots / "trial").exists()
    start.runnable()


# -- an honest daemon --------------------------------------------------------------------------------------------------------


def test_a_request_becomes_a_trial_and_nobody_is_restarted(start: Start, v110: Signed) -> None:
    """The start that waits for it is the restart; the watchdog was armed before `current` moved (I4)."""
    data, before = start.stage(v110), start.outside()
    answer = start.apply()
    assert (answer.exit, answer.json["state"], answer.json["id"], answer.json["to"]) == (0, "trial", ID, "1.1.0")
    on_trial(start)
    said = start.asked()
    assert said is not None
    assert (said["id"], said["sha256"]) == (ID, hashlib.sha256(data).hexdigest())
    assert (said["state"], said["code"]) == ("trial", "not-confirmed")
    assert start.events() == ["started", "accepted", "swapped"]
    assert start.outside() == before
    calls = start.calls()
    assert not [call for call in calls if "restart" in call]
    assert f"start -- {starts.TIMER}" in calls
    assert calls[-4:] == [
        "reset-failed -- slotward-confirm.service",
        "--no-block start -- slotward-confirm.path",
        "reset-failed -- slotward-giveup.service",
        "--no-block start -- slotward-giveup.path",
    ]


def test_the_same_start_again_changes_nothing(start: Start, v110: Signed) -> None:
    """I9: the daemon crashes in its trial, or is killed before it removed its request: it is told by its id."""
    start.stage(v110)
    start.apply()
    said, trial = start.asked(), (start.slots / "trial").read_bytes()
    answer = start.apply()
    assert (answer.exit, answer.json["changed"]) == (0, False)
    assert "carried out before: trial (not-confirmed)" in answer.lines[0]
    (start.slots / "asked.json").unlink()
    assert start.apply().lines == ["what was asked for was carried out before"]
    assert (start.asked(), (start.slots / "trial").read_bytes()) == (None, trial)
    assert said is not None
    on_trial(start)


def test_a_host_without_a_request_is_left_alone(start: Start) -> None:
    """Most starts: nothing is settled, nothing is written, systemd is not asked."""
    names = {path.name for path in start.slots.iterdir()} | {"lock"}
    for _again in range(2):
        answer = start.apply()
        assert (answer.exit, answer.json["changed"], answer.lines) == (0, False, ["nothing was asked for"])
    assert {path.name for path in start.slots.iterdir()} == names
    assert (start.root / "calls").read_text() == ""


def test_a_release_that_runs_already_is_no_work(start: Start, v110: Signed) -> None:
    """S14: by digest and version; the answer is for good."""
    start.stage(v110)
    start.apply()
    manager.confirm(start.setup.product, manager.look(start.setup.product))
    start.stage(v110, ELSE)
    assert start.applied() == (0, "current", "ok")
    assert (start.link("current"), start.link("good")) == ("b", "b")
    said = start.asked()
    assert said is not None
    assert (said["id"], said["state"]) == (ELSE, "current")
    assert start.apply().json["message"] == "what was asked for was carried out before: current (ok)"


def test_bytes_that_the_other_slot_holds_need_not_be_staged(start: Start, v110: Signed) -> None:
    """An operator had cleared the version that went back: only the request and the target are read."""
    start.stage(v110)
    start.apply()
    manager.go_back(start.setup.product, manager.look(start.setup.product), "", codes.GAVE_UP)
    start.write(recording.UPDATE, records.render_update(start.state().update._replace(failed=())))
    (start.staging / "slotward-1.1.0").unlink()
    start.stage(v110, ELSE)
    (start.staging / "slotward-1.1.0").unlink()
    assert start.applied() == (0, "trial", "not-confirmed")
    on_trial(start, ELSE)


def test_run_by_hand_it_leaves_the_request_to_the_next_start(start: Start, v110: Signed) -> None:
    """While the daemon runs nothing is switched under it; a job that is to start it is enough."""
    start.stage(v110)
    start.shows(state="active", sub="running")
    assert start.apply().lines == ["slotward.service is not being started: what was asked for waits for its next start"]
    start.shows(state="inactive", sub="dead")
    assert start.applied()[1] == "idle"
    at_rest(start)
    assert start.asked() is None
    start.shows(state="inactive", sub="dead", job=77)
    assert start.applied()[1] == "trial"


def test_a_unit_that_is_not_enabled_is_not_updated(start: Start, v110: Signed) -> None:
    """Consent to start what would not come back after a reboot is an operator's, never the daemon's."""
    start.stage(v110)
    start.shows(enabled="disabled")
    assert start.applied() == (3, "refused", "unit-not-running")
    at_rest(start)


def test_only_start_mode_carries_out_requests(start: Start, v110: Signed) -> None:
    """A host that left start mode finishes what is in flight, and reads nothing of the account's."""
    start.stage(v110)
    start.configure(section="")
    assert start.applied() == (3, "refused", "not-allowed")
    start.configure(section=f'[helper]\nuser = "{accounts.ACCOUNT}"\n')
    assert start.applied() == (3, "refused", "not-allowed")
    start.configure(section=f'[helper]\nuser = "{accounts.ACCOUNT}"\n[start]\n')
    assert start.applied() == (5, "refused", "bad-config")
    at_rest(start)
    assert start.asked() is None


def test_without_slots_there_is_nothing_to_do(start: Start) -> None:
    """Before setup."""
    start.configure(slots_dir=str(start.root / "nowhere"))
    assert start.applied() == (0, "idle", "ok")


# -- root judges by its own configuration ------------------------------------------------------------------------------------


REFUSALS = {
    "forged": "too-few-signatures",
    "expired": "expired",
    "below-floor": "below-floor",
    "failed-before": "failed-before",
    "other bytes": "digest-mismatch",
    "too short": "size-mismatch",
    "no bytes": "cannot-read",
    "no target": "cannot-read",
    "no permit": "cannot-read",
    "no account": "no-account",
    "torn target": "bad-target",
    "another product": "wrong-product",
    "bad configuration": "bad-config",
    "switched off": "updates-disabled",
    "channel": "channel-not-allowed",
}


def with_signatures(v110: Signed, count: int) -> bytes:
    """The target, with so many of its signatures."""
    target = json.loads(v110.target)
    published = json.loads(target["signature"])
    published["signatures"] = published["signatures"][:count]
    return json.dumps({**target, "signature": json.dumps(published)}).encode()


def failed_before(v110: Signed) -> bytes:
    """The record of a host on which it failed."""
    sha256 = hashlib.sha256(v110.program).hexdigest()
    failure = records.Failed("1.1.0", "crash-loop", "it kept exiting", 2, sha256, 1)
    return records.render_update(records.Update(floor=1, failed=(failure,)))


SPOIL: Dict[str, Callable[[Start, Signed], object]] = {
    "forged": lambda start, v110: start.file(f"{ID}.target", with_signatures(v110, 1)),
    "expired": lambda start, _v110: start.request(serverTime=FAR),
    "below-floor": lambda start, _v110: start.write(recording.UPDATE, records.render_update(records.Update(floor=3))),
    "failed-before": lambda start, v110: start.write(recording.UPDATE, failed_before(v110)),
    "other bytes": lambda start, v110: start.file("slotward-1.1.0", v110.program[:-1] + b"!"),
    "too short": lambda start, v110: start.file("slotward-1.1.0", v110.program[:-1]),
    "no bytes": lambda start, _v110: (start.staging / "slotward-1.1.0").unlink(),
    "no target": lambda start, _v110: (start.staging / f"{ID}.target").unlink(),
    "no permit": lambda start, _v110: start.request(permit=f"{ID}.permit"),
    "no account": lambda start, _v110: start.configure(section='[start]\nuser = "nobody-of-this-name"\n'),
    "torn target": lambda start, v110: start.file(f"{ID}.target", v110.target[:-1]),
    "another product": lambda start, v110: start.file(
        f"{ID}.target", json.dumps({**json.loads(v110.target), "product": "other"}).encode()
    ),
    "bad configuration": lambda start, _v110: start.configure(colour="blue"),
    "switched off": lambda start, _v110: start.configure(enabled=False),
    "channel": lambda start, _v110: start.configure(allowed_channels="lts"),
}
"""What is made wrong with what is staged, or with root's view of it."""


@pytest.mark.parametrize(("what", "code"), REFUSALS.items())
def test_what_root_would_refuse_is_refused_once_and_for_good(start: Start, v110: Signed, what: str, code: str) -> None:
    """I6, I8: the account's word counts for nothing; it is told once, and the next start does not try again."""
    start.stage(v110)
    SPOIL[what](start, v110)
    before = start.outside()
    answer = start.apply()
    assert (answer.exit in (3, 5), answer.json["state"], answer.json["code"]) == (True, "refused", code)
    at_rest(start)
    assert start.outside() == before
    said = start.asked()
    if what == "no account":
        assert said is not None
        assert said["id"] == ""
    else:
        assert said is not None
        assert (said["id"], said["state"], said["code"], said["message"]) == (
            ID, "refused", code, answer.json["message"],
        )  # fmt: skip
    noted = start.events().count("refused")
    assert start.apply().exit == 0
    assert start.asked() == said
    assert start.events().count("refused") == noted == 1


def test_a_bad_program_is_remembered_and_not_started(start: Start, shop: Shop) -> None:
    """L3: it is smoke-tested before the switch, as in every upgrade."""
    mute = shop.release("1.3.0", 4, program="#!/bin/sh\nexit 9\n")
    start.stage(mute)
    answer = start.apply()
    assert (answer.exit, answer.json["state"], answer.json["code"]) == (3, "refused", "smoke-test-failed")
    assert answer.json["retry"] == "slotward update --clear-failed 1.3.0"
    assert answer.lines[-1] == "to allow it again: slotward update --clear-failed 1.3.0"
    at_rest(start)
    assert [failure.code for failure in start.state().update.failed] == ["smoke-test-failed"]
    start.stage(mute, ELSE)
    assert start.applied() == (3, "refused", "failed-before")


def test_what_may_pass_is_tried_again_at_the_next_start(start: Start, v110: Signed) -> None:
    """A timer that does not start, a trial that is pending, a lock that is held: the request stays."""
    start.stage(v110)
    with lock.held(start.setup.product, "another"):
        began = time.monotonic()
        assert start.applied() == (4, "failed", "in-progress")
        assert time.monotonic() - began < cmd_apply.LOCK_S + 2
    said = start.asked()
    assert said is not None
    assert (said["id"], said["state"], said["code"]) == (ID, "failed", "in-progress")
    assert "already in progress: another" in said["message"], "whoever asked is told who holds the lock"
    start.file("slotward-1.1.0", v110.program).chmod(0o600)
    (start.root / "fail-show").write_text("1")
    assert start.applied() == (4, "failed", "systemd-failed")
    (start.root / "fail-show").unlink()
    assert start.applied() == (0, "trial", "not-confirmed")


def test_a_held_lock_takes_no_final_answer_back(start: Start, v110: Signed) -> None:
    """A request that was refused stays refused, and its id used, whoever holds the lock at the next start."""
    start.stage(v110._replace(target=b"{}"))
    refused = start.applied()
    assert refused[1] == "refused"
    before = start.asked()
    with lock.held(start.setup.product, "another"):
        assert start.applied() == (4, "failed", "in-progress")
    assert start.asked() == before


def test_a_second_request_waits_for_the_end_of_the_first_one_s_trial(start: Start, v110: Signed, v120: Signed) -> None:
    """It is said why, and carried out at the first start after the trial."""
    start.stage(v110)
    start.apply()
    start.stage(v120, ELSE)
    assert start.applied() == (4, "failed", "trial-pending")
    said = start.asked()
    assert said is not None
    assert (said["id"], said["state"], said["code"]) == (ELSE, "failed", "trial-pending")
    on_trial(start)
    manager.confirm(start.setup.product, manager.look(start.setup.product))
    assert start.applied() == (0, "trial", "not-confirmed")
    assert (start.link("current"), start.link("good"), start.on_trial()) == ("a", "b", ELSE)


def test_a_watchdog_that_cannot_be_armed_switches_nothing(start: Start, v110: Signed) -> None:
    """I4: what was written is undone; the request's trial was abandoned, so another id is needed."""
    (start.root / "timer").write_text("ActiveState=failed\n")
    start.stage(v110)
    assert start.applied() == (3, "refused", "watchdog-not-armed")
    at_rest(start)
    assert start.events()[-1] == "abandoned" or "abandoned" in start.events()
    (start.root / "timer").write_text("ActiveState=active\n")
    assert start.applied()[1] == "idle"
    start.stage(v110, ELSE)
    assert start.applied()[1] == "trial"


@pytest.mark.parametrize("point", points.swap_points(restart=False)[11:16])
def test_a_trial_that_is_over_before_the_switch_lets_the_good_release_start(
    start: Start, v110: Signed, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """This start was held up, and the guard has ended the trial: what waits for it is the release that is good."""
    start.stage(v110)

    def hit(where: str) -> None:
        if where == point:
            os.rename(start.slots / "trial", start.slots / "trial.revert")
            with open(start.slots / "trial.revert", "ab") as file:
                file.write(b"REASON=never-started\n")

    monkeypatch.setattr(faults, "hit", hit)
    assert start.applied() == (answers.RETRY, "failed", "cancelled")
    monkeypatch.setattr(faults, "hit", lambda _point: None)
    assert (start.link("current"), start.link("good"), start.on_trial()) == ("a", "a", "")
    state = start.state()
    assert (state.revert, state.update.last.state, state.update.last.trial_id) == (None, "abandoned", ID)
    assert not any("restart" in call for call in start.calls())
    assert (start.asked() or {})["state"] == "failed"
    assert start.applied()[0] == answers.DONE  # its id is used up: the next start is no second try
    assert start.link("current") == "a"
    start.stage(v110, "00112233445566bb")
    assert start.applied() == (answers.DONE, "trial", "not-confirmed")
    start.runnable()


def test_too_slow_is_for_good_and_stopped_is_not(start: Start, v110: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    """I8: what systemd stops because it takes too long would hold up every start; a shutdown may stop it any time."""

    def stopped(*_arguments: object) -> None:
        raise codes.Retryable(codes.CANCELLED, "stopped")

    start.stage(v110)
    monkeypatch.setattr(handed, "open_artifact", stopped)
    assert start.applied() == (4, "failed", "cancelled")
    said = start.asked()
    assert said is not None
    assert said["state"] == "failed"
    monkeypatch.setattr(applying, "PATIENCE_S", -1.0)
    assert start.applied()[2] == "cancelled"
    said = start.asked()
    assert said is not None
    assert said["state"] == "refused"


def test_I3_a_permit_that_the_account_hands_over_lets_this_host_below_its_floor_once(
    start: Start, shop: Shop, v110: Signed
) -> None:
    """It is root that reads and judges it: another host's, or another release's, is worth nothing; a used one too."""
    start.write(recording.UPDATE, records.render_update(records.Update(floor=3)))
    for trial_id, permit, code in (
        ("0" * 16, shop.permit("1.2.0", 2), "not-permitted"),
        ("1" * 16, b"{}", "bad-document"),
    ):
        start.stage(v110, trial_id, permit=f"{trial_id}.permit")
        start.file(f"{trial_id}.permit", permit)
        assert start.applied() == (3, "refused", code)
    at_rest(start)
    start.stage(v110, permit=f"{ID}.permit")
    start.file(f"{ID}.permit", shop.permit("1.1.0", 2))
    assert start.applied()[1] == "trial"
    on_trial(start)
    assert start.events()[-3:] == ["accepted", "permitted", "swapped"]
    manager.go_back(start.setup.product, manager.look(start.setup.product), "", codes.GAVE_UP)
    assert start.state().update.floor == 3
    start.write(recording.UPDATE, records.render_update(start.state().update._replace(failed=())))
    start.write(recording.SLOTS, records.render_slots({"a": starts.OLD}))
    start.stage(v110, ELSE, permit=f"{ELSE}.permit")
    start.file(f"{ELSE}.permit", shop.permit("1.1.0", 2))
    assert start.applied() == (3, "refused", "permit-used")


# -- once --------------------------------------------------------------------------------------------------------------------


def test_another_request_under_a_used_id_is_refused(start: Start, v110: Signed, v120: Signed) -> None:
    """An id is one request's; root says so once, and carries neither out again."""
    start.stage(v110, serverTime=FAR)
    assert start.applied()[2] == "expired"
    start.stage(v120)
    assert start.applied() == (3, "refused", "id-reused")
    assert start.applied() == (0, "idle", "ok")
    start.stage(v110, serverTime=FAR)
    assert start.applied() == (3, "refused", "id-reused")
    at_rest(start)
    start.stage(v120, ELSE)
    assert start.applied()[1] == "trial"


def test_a_request_that_is_replayed_after_its_trial_is_passed_over(start: Start, v110: Signed) -> None:
    """Whatever became of the trial, and whether or not root remembers its answer."""
    start.stage(v110)
    start.apply()
    manager.go_back(start.setup.product, manager.look(start.setup.product), "", codes.GAVE_UP)
    for _again in range(2):
        assert start.applied() == (0, "idle", "ok")
        (start.slots / "asked.json").unlink(missing_ok=True)
    at_rest(start)
    assert start.events().count("accepted") == 1


@pytest.mark.parametrize("data", [b"", b"{", b'{"spec":1}', b"\0" * 70_000, b'{"spec":2,"id":""}'])
def test_a_torn_answer_is_no_answer(start: Start, v110: Signed, data: bytes) -> None:
    """I8: root's own record may be lost or torn: then the request is judged anew, and the record written again."""
    start.write("asked.json", data)
    start.stage(v110)
    assert start.applied()[1] == "trial"
    said = start.asked()
    assert said is not None
    assert said["id"] == ID


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "foreign"])
def test_a_strange_answer_is_neither_read_nor_followed(
    start: Start, v110: Signed, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """I8: whatever lies at its place, nobody waits and the trial begins; a link's target is not written."""
    path, outside = start.slots / "asked.json", start.root / "outside"
    outside.write_bytes(b"mine")
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(outside)
    else:
        path.write_bytes(asked.render(asked.Asked(ID, "0" * 64, "refused", "expired", "forged", 1)))
        os.chown(path, UID, UID)
    start.stage(v110)
    assert start.applied()[1] == "trial"
    assert outside.read_bytes() == b"mine"
    assert "what became of the last request is not known" in capsys.readouterr().err
    if kind != "directory":
        assert start.asked() is not None


# -- an enemy with the account -----------------------------------------------------------------------------------------------


KINDS = ("link", "dangling", "loop", "hard-link", "fifo", "socket", "directory", "device", "foreign", "root's")


def plant(start: Start, name: str, kind: str, content: bytes) -> None:
    """Put something of that kind where a file of the account's should be."""
    path, outside = start.staging / name, start.root / "secret"
    path.unlink(missing_ok=True)
    outside.write_bytes(content)
    os.chown(outside, UID, UID)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "dangling":
        path.symlink_to(start.root / "nothing")
    elif kind == "loop":
        path.symlink_to(name)
    elif kind == "hard-link":
        os.link(outside, path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    else:
        path.write_bytes(content)
    if kind not in ("root's", "hard-link", "foreign"):
        os.chown(path, UID, UID, follow_symlinks=False)
    if kind == "foreign":
        os.chown(path, UID + 1, UID + 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["apply", f"{ID}.target", f"{ID}.permit", "slotward-1.1.0"])
def test_I6_what_is_no_plain_file_of_the_account_s_is_never_read(
    start: Start, v110: Signed, name: str, kind: str
) -> None:
    """I6: it is refused by name, in time, and nothing there or outside changes."""
    start.stage(v110, permit=f"{ID}.permit")
    start.file(f"{ID}.permit", b"{}")
    good = (start.staging / name).read_bytes()
    plant(start, name, kind, good)
    before, secret = start.outside(), (start.root / "secret").read_bytes()
    if name == "slotward-1.1.0":
        start.request(permit=None)
        before = start.outside()
    began = time.monotonic()
    assert start.applied() == (3, "refused", "staged-unsafe")
    assert time.monotonic() - began < 5
    at_rest(start)
    assert (start.outside(), (start.root / "secret").read_bytes()) == (before, secret)
    assert start.apply().exit == 0
    assert start.events().count("refused") == 1


@pytest.mark.parametrize("kind", ["link", "file", "fifo", "missing"])
def test_I6_a_staging_directory_that_is_none(start: Start, v110: Signed, kind: str) -> None:
    """I6: it is not reached through a link; what is not there asks for nothing."""
    start.stage(v110)
    elsewhere = start.root / "elsewhere"
    start.staging.rename(elsewhere)
    if kind == "link":
        start.staging.symlink_to(elsewhere)
    elif kind == "file":
        start.staging.write_bytes(b"")
    elif kind == "fifo":
        os.mkfifo(start.staging)
    expected = (3, "refused", "staged-unsafe") if kind == "link" else (0, "idle", "ok")
    assert start.applied() == expected
    at_rest(start)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "bad-request"),
        (b"{", "bad-request"),
        (b"\xff\xfe", "bad-request"),
        (b"[" * 100_000, "bad-request"),
        (b'{"protocol":1}' + b" " * 5000, "bad-request"),
        (b'{"protocol":9,"id":"00112233445566aa","op":"update.swap","target":"x"}', "protocol-mismatch"),
        (b'{"protocol":1,"id":"00112233445566aa","op":"update.settle"}', "bad-request"),
        (b'{"protocol":1,"id":"00112233445566aa","op":"update.confirm","trial":"00112233445566aa"}', "bad-request"),
        (b'{"protocol":1,"id":"00112233445566aa","op":"update.swap","target":"../../etc/passwd"}', "bad-request"),
        (b'{"protocol":1,"id":"00112233445566aa","op":"update.swap","target":"/etc/passwd"}', "bad-request"),
        (b'{"protocol":1,"id":"00112233445566aa","op":"update.swap","target":".."}', "bad-request"),
        (b'{"protocol":1,"id":"00112233445566AA","op":"update.swap","target":"x"}', "bad-request"),
        (b'{"protocol":1,"id":"00112233445566aa","op":"update.swap","target":"x","adopt":true}', "bad-request"),
        (b'{"protocol":1,"id":"00112233445566aa","id":"ff112233445566aa","op":"update.swap","target":"x"}', "bad-request"),
    ],
)  # fmt: skip
def test_I6_a_request_that_is_none(start: Start, data: bytes, code: str) -> None:
    """Torn, huge, doubled, of another version, with more than a request may have: refused once, by its bytes."""
    start.file("apply", data)
    assert start.applied() == (3, "refused", code)
    said = start.asked()
    assert said is not None
    assert (said["id"], said["state"], said["code"]) == ("", "refused", code)
    assert said["sha256"] == hashlib.sha256(data[:4097]).hexdigest()
    assert start.apply().exit == 0
    assert start.events().count("refused") == 1
    at_rest(start)


def test_I6_a_target_that_is_changed_between_the_look_and_the_copy(
    start: Start, v110: Signed, v120: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are compared with the release whose target was judged, not with what lies there by then."""
    start.stage(v110)
    opened = handed.open_artifact

    def swapped(*arguments: object) -> object:
        start.file(f"{ID}.target", v120.target)
        start.file("slotward-1.1.0", v120.program)
        return opened(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(handed, "open_artifact", swapped)
    assert start.applied()[2] in ("digest-mismatch", "size-mismatch")
    at_rest(start)


@contextlib.contextmanager
def meanwhile(act: Callable[[int], None]) -> Iterator[None]:
    """Have something done again and again by another thread."""
    over = threading.Event()

    def loop() -> None:
        number = 0
        while not over.is_set():
            act(number)
            number += 1

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("kind", ["link", "hard-link", "fifo", "other bytes", "foreign"])
def test_I6_names_that_are_swapped_all_the_time(start: Start, v110: Signed, kind: str) -> None:
    """I6: the right bytes become a trial or something is refused; nothing else ever starts, and root writes nothing there."""
    name = "slotward-1.1.0"
    start.stage(v110)
    evil, good, secret = start.staging / ".evil", start.staging / ".good", start.root / "secret"
    secret.write_bytes(b"secret")
    os.chown(secret, UID, UID)
    seen = set()

    def swap(_number: int) -> None:
        with contextlib.suppress(OSError):
            for path in (evil, good):
                path.unlink(missing_ok=True)
            if kind == "link":
                evil.symlink_to(secret)
            elif kind == "hard-link":
                os.link(secret, evil)
            elif kind == "fifo":
                os.mkfifo(evil)
            else:
                evil.write_bytes(b"#!/bin/sh\necho slotward 1.1.0 evil\n")
                os.chown(evil, UID, UID) if kind == "other bytes" else None
            good.write_bytes(v110.program)
            os.chown(good, UID, UID)
            os.rename(evil, start.staging / name)
            os.rename(good, start.staging / name)

    with meanwhile(swap):
        for number in range(25):
            trial_id = f"{number:016x}"
            start.file(f"{trial_id}.target", v110.target)
            start.request(trial_id)
            _exit, state, code = start.applied()
            seen.add((state, code))
            start.runnable()
            if state == "trial":
                assert (start.slots / start.link("current")).read_bytes() == v110.program
                manager.go_back(start.setup.product, manager.look(start.setup.product), "")
                start.write(recording.UPDATE, records.render_update(start.state().update._replace(failed=())))
                start.write(recording.SLOTS, records.render_slots({"a": starts.OLD}))
    codes_seen = {code for _state, code in seen}
    assert codes_seen <= {
        "not-confirmed", "staged-unsafe", "cannot-read", "digest-mismatch", "size-mismatch",
    }, seen  # fmt: skip
    assert secret.read_bytes() == b"secret"


# -- cuts --------------------------------------------------------------------------------------------------------------------


def test_a_process_that_is_killed_anywhere_leaves_a_host_that_starts(start: Start, v110: Signed, shop: Shop) -> None:
    """I1, I9: after each kill what starts is complete; the next start begins the trial, or says that it was abandoned."""
    fresh = {path.name: path for path in start.slots.iterdir()}
    first = {name: (os.readlink(path) if path.is_symlink() else path.read_bytes()) for name, path in fresh.items()}
    points, ends = [], set()
    for number in range(1, 200):
        for path in start.slots.iterdir():
            path.unlink()
        for name, held in first.items():
            if isinstance(held, str):
                (start.slots / name).symlink_to(held)
            else:
                start.write(name, held)
        (start.slots / "a").chmod(0o755)
        start.stage(v110)
        before = start.outside()
        point = start.cut(number, starts.kill)
        start.runnable()
        assert start.outside() == before
        if point is None:
            break
        points.append(point)
        state = start.applied()[1]
        start.runnable()
        assert start.outside() == before
        last = start.state().update.last
        if start.on_trial():
            on_trial(start)
            ends.add("trial")
        else:
            assert last is not None, point
            assert (last.trial_id, last.state) == (ID, "abandoned"), point
            assert state == "idle", point
            at_rest(start)
            ends.add("abandoned")
        assert start.applied()[1] == "idle", "a second start changes nothing"
        told = start.events()
        assert len(set(told)) == len(told), (point, told)
    assert ends == {"trial", "abandoned"}
    plans = {point.partition(".")[0] for point in points}
    assert {"stage", "check", "swap", "asked"} <= plans, plans
    assert start.on_trial() == ID


def test_no_room_for_the_bytes_is_told_and_tried_again(
    tmp_path: pathlib.Path, systemctl: None, shop: Shop, v110: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC: nothing was switched, the daemon starts, and there may be room at its next start."""
    start = Start(tmp_path, shop, monkeypatch)
    tmp_path.chmod(0o755)
    start.stage(v110)

    def full(*_arguments: object) -> Tuple[()]:
        raise OSError(28, "No space left on device", str(start.slots / "b.tmp"))

    monkeypatch.setattr("slotward.staging.copy_verified", full)
    assert start.applied() == (4, "failed", "no-space")
    at_rest(start)
    monkeypatch.undo()


def test_no_room_for_the_answer_is_a_warning(
    start: Start, v110: Signed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ENOSPC: the trial has begun; that it has, the next start sees by its id."""
    whole = manager.apply

    def full(product: object, plan: object, name: str) -> None:
        if name == "asked":
            raise OSError(28, "No space left on device")
        whole(product, plan, name)  # type: ignore[arg-type]

    start.stage(v110)
    monkeypatch.setattr(manager, "apply", full)
    assert start.applied()[1] == "trial"
    assert "cannot write" in capsys.readouterr().err
    assert start.asked() is None
    assert start.applied()[1] == "idle"
    on_trial(start)
