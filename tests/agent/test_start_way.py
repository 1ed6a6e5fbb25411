# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's side of start mode: what the account stages as a process of its own, what it follows, and what it forgets."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import stat
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from agent.accounts import ACCOUNT
from agent.starts import ID, UID, Shop, Signed, Start

from agent import accounts
from slotcore import asked, codes, protocol, recording, records
from slotward import inbox, manager, start_way, triggers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes another account's place")

ELSE = "ffeeddccbbaa9988"


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
def _start(systemctl: None, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """A host in start mode that the account may walk to, and whose configuration it may read."""
    with accounts.place() as top:
        (top / "calls").touch()
        monkeypatch.setenv("FAKE_SYSTEMD", str(top))
        start = Start(top, shop, monkeypatch)
        start.config.chmod(0o644)
        yield start


@pytest.fixture(name="agent", scope="module")
def _agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[accounts.Accounts]:
    """The agent for any account."""
    with accounts.place() as top:
        yield accounts.Accounts(top, accounts.built(tmp_path_factory.mktemp("built")))


class Account:
    """The account, with a target and an artifact that somebody gave to it."""

    def __init__(self, start: Start, agent: accounts.Accounts) -> None:
        self._agent = agent
        self._start = start

    def run(self, *words: object) -> Tuple[int, Dict[str, Any]]:
        """A command of the agent as the account; exit status and answer."""
        done = self._agent.run(ACCOUNT, *words, "--config", self._start.config, "--json")
        assert done.stdout, done.stderr.decode()
        answer: Dict[str, Any] = json.loads(done.stdout)
        return done.returncode, answer

    def given(self, release: Signed) -> List[str]:
        """The flags for this release's target and artifact."""
        target, src = self._start.root / "target.json", self._start.root / "artifact"
        target.write_bytes(release.target)
        src.write_bytes(release.program)
        return ["--target", str(target), "--src", str(src)]

    def upgrade(self, release: Signed, *words: object) -> Tuple[int, Dict[str, Any]]:
        """Ask for an upgrade."""
        return self.run("upgrade", *self.given(release), *words)


@pytest.fixture(name="account")
def _account(start: Start, agent: accounts.Accounts) -> Account:
    """Who asks."""
    return Account(start, agent)


def staged(start: Start) -> List[str]:
    """What lies in staging."""
    return sorted(path.name for path in start.staging.iterdir())


def test_what_the_account_stages_root_carries_out(start: Start, account: Account, v110: Signed) -> None:
    """Both sides of the contract: the names, the modes, the request's bytes, and the trial under the id that was asked for."""
    status, answer = account.upgrade(v110, "--id", ID, "--server-time", "2026-01-02T03:04:05Z")
    assert (status, answer["state"], answer["code"], answer["id"], answer["to"]) == (0, "staged", "ok", ID, "1.1.0")
    assert staged(start) == [f"{ID}.target", "apply", "slotward-1.1.0"]
    for path in start.staging.iterdir():
        found = path.lstat()
        assert (stat.S_ISREG(found.st_mode), found.st_nlink, found.st_uid, found.st_mode & 0o022) == (True, 1, UID, 0)
    request = protocol.parse_request((start.staging / "apply").read_bytes())
    assert request == protocol.Request(protocol.SWAP, ID, target=f"{ID}.target", server_time=1_767_323_045)
    assert start.applied() == (0, "trial", "not-confirmed")
    assert start.on_trial() == ID


def test_nothing_is_switched_and_nothing_of_root_s_is_touched_by_staging(
    start: Start, account: Account, v110: Signed
) -> None:
    """The account has no part in it: the slots are as they were."""
    before = {path.name: path.lstat() for path in start.slots.iterdir()}
    account.upgrade(v110, "--id", ID)
    after = {path.name: path.lstat() for path in start.slots.iterdir()}
    assert {name: (found.st_ino, found.st_mtime_ns) for name, found in after.items()} == {
        name: (found.st_ino, found.st_mtime_ns) for name, found in before.items()
    }


def test_P7_the_request_is_there_when_all_that_it_names_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: a start between any two of the files finds none of it, or all."""
    left: List[str] = []
    monkeypatch.setattr(inbox, "put", lambda _directory, name, _content: left.append(name))
    start_way._leave(start.setup, ID, {"target": b"{}", "permit": b"{}"}, None)
    assert left == [f"{ID}.target", f"{ID}.permit", inbox.WAITING]


def test_asked_again_it_is_the_same_request(start: Start, account: Account, v110: Signed, v120: Signed) -> None:
    """I9: the same id and target leave the same bytes; another request takes the place of one that was not carried out."""
    account.upgrade(v110, "--id", ID)
    first = (start.staging / "apply").read_bytes()
    account.upgrade(v110, "--id", ID)
    assert (start.staging / "apply").read_bytes() == first
    account.upgrade(v120, "--id", ELSE)
    assert start.applied() == (0, "trial", "not-confirmed")
    assert start.on_trial() == ELSE


def test_staged_only_asks_for_nothing(start: Start, account: Account, v110: Signed) -> None:
    """The bytes wait for a later request."""
    status, answer = account.upgrade(v110, "--stage-only")
    assert (status, answer["state"]) == (0, "staged")
    assert staged(start) == ["slotward-1.1.0"]
    assert start.applied()[1] == "idle"


def test_prepare_says_what_it_can_judge(start: Start, account: Account, v110: Signed) -> None:
    """It changes nothing, staging included."""
    status, answer = account.run("prepare", *account.given(v110))
    assert (status, answer["from"], answer["to"], answer["sequence"]) == (0, "1.0.0", "1.1.0", 2)
    assert staged(start) == []


def refuse_floor(start: Start) -> None:
    """A floor that the release is below."""
    start.write(recording.UPDATE, records.render_update(records.Update(floor=9)))


def refuse_config(start: Start) -> None:
    """A configuration with a problem."""
    start.configure(colour="blue")
    start.config.chmod(0o644)


def refuse_used(start: Start) -> None:
    """The last trial had the id that is asked for."""
    last = records.Last(ID, "rolled-back", "gave-up", "it gave up", "1.0.0", "1.0.5", 1)
    start.write(recording.UPDATE, records.render_update(records.Update(floor=1, last=last)))


def refuse_broken(start: Start) -> None:
    """A record that nothing proves."""
    for name in ("update.json", "update.json.copy"):
        start.write(name, b"{")


@pytest.mark.parametrize(
    ("spoil", "status", "code"),
    [
        (refuse_floor, 3, "below-floor"),
        (refuse_config, 5, "bad-config"),
        (refuse_used, 3, "wrong-trial"),
        (refuse_broken, 5, "record-broken"),
    ],
)
def test_what_root_would_refuse_is_not_fetched(
    start: Start, account: Account, v110: Signed, spoil: Callable[[Start], None], status: int, code: str
) -> None:
    """Checks that need no root are made before anything is fetched, and nothing is left for the next start."""
    spoil(start)
    found, answer = account.upgrade(v110, "--id", ID)
    assert (found, answer["code"]) == (status, code), answer
    assert staged(start) == []


@pytest.mark.parametrize("command", ["upgrade", "prepare"])
def test_what_failed_before_is_refused_with_the_command_that_allows_it_again(
    start: Start, account: Account, v110: Signed, command: str
) -> None:
    """As in root mode: the exact command, in the answer of whoever is refused."""
    failed = records.Failed("1.1.0", "operator", "it smells", 2, hashlib.sha256(v110.program).hexdigest(), 1)
    start.write(recording.UPDATE, records.render_update(records.Update(floor=1, failed=(failed,))))
    status, answer = account.run(command, *account.given(v110))
    assert (status, answer["state"], answer["code"]) == (3, "refused", "failed-before"), answer
    assert answer["retry"] == "slotward update --clear-failed 1.1.0"
    assert staged(start) == []


def test_other_refusals_by_the_way_it_is_asked(start: Start, account: Account, v110: Signed) -> None:
    """An id that is none, no place to fetch from, a release that runs, a trial that is pending."""
    assert account.upgrade(v110, "--id", "1")[1]["code"] == "wrong-trial"
    target = start.root / "target.json"
    target.write_bytes(json.dumps({**json.loads(v110.target), "url": ""}).encode())
    assert account.run("upgrade", "--target", target)[1]["code"] == "bad-url"
    start.stage(v110)
    start.apply()
    status, answer = account.upgrade(v110, "--id", ELSE)
    assert (status, answer["code"]) == (4, "trial-pending")
    manager.confirm(start.setup.product, manager.look(start.setup.product))
    status, answer = account.upgrade(v110, "--id", ELSE)
    assert (status, answer["state"], answer["changed"]) == (0, "current", False)


def test_two_at_once_are_one_after_the_other(start: Start, account: Account, v110: Signed) -> None:
    """Somebody of the account's is at work there: in progress."""
    with inbox.alone(str(start.staging)):
        status, answer = account.upgrade(v110, "--id", ID)
    assert (status, answer["code"]) == (4, "in-progress")


def test_settling_is_not_the_account_s(account: Account) -> None:
    """It is done before each start: nothing to do, and no error."""
    status, answer = account.run("settle")
    assert (status, answer["changed"]) == (0, False)
    assert "slotward-apply.service" in answer["message"]


# -- confirming and giving up -----------------------------------------------------------------------------------------------


class Root:
    """Root's unit behind a trigger: what it does when it is pulled, and how often it was."""

    def __init__(self, patch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
        self.pulled: List[str] = []
        self._act = act
        patch.setattr(triggers, "pull", self._pull)

    def _pull(self, name: str) -> None:
        self.pulled.append(name)
        self._act(name)


def words(**given: Any) -> argparse.Namespace:
    """A command's flags."""
    return argparse.Namespace(**{"id": ID, "source": "gateway", "wait": 5.0, "why": "", "pending": False, **given})


@pytest.fixture(name="trial")
def _trial(start: Start, v110: Signed) -> Start:
    """A host on trial that the gateway confirms."""
    start.configure(confirm_sources="gateway")
    start.stage(v110)
    assert start.applied()[1] == "trial"
    return start


def test_confirming_follows_the_records(trial: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """I5: one pull, and `confirmed` is said when the records say so; the same again pulls nothing."""
    product = trial.setup.product
    root = Root(monkeypatch, lambda _name: manager.confirm(product, manager.look(product)))
    answer = start_way.confirm(trial.setup, words())
    assert (answer.exit, answer.json["state"], answer.json["code"]) == (0, "confirmed", "ok")
    assert (answer.json["floor"], answer.json["missing"]) == (2, [])
    assert (root.pulled, answer.json["changed"]) == ([triggers.CONFIRM], True)
    again = start_way.confirm(trial.setup, words())
    assert (again.exit, again.json["state"], root.pulled) == (0, "confirmed", [triggers.CONFIRM])
    assert again.json["changed"] is False, "I9: the same again changes nothing and says so"


def test_what_root_has_no_proof_of_is_not_confirmed(trial: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """I5, I11: the wait ends; root's unit may not have seen a pull while it was at work, so it is pulled again."""
    monkeypatch.setattr(start_way, "AGAIN_S", 0.3)
    root = Root(monkeypatch, lambda _name: None)
    answer = start_way.confirm(trial.setup, words(wait=1.0))
    assert (answer.exit, answer.json["state"], answer.json["code"]) == (6, "trial", "not-proven")
    assert 2 <= len(root.pulled) <= 5
    assert trial.on_trial() == ID


def test_every_source_must_agree(trial: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway has spoken, and another source has not."""
    trial.configure(confirm_sources="gateway,controller")
    product = trial.setup.product

    def speak(_name: str) -> None:
        manager.note_source(product, manager.look(product), "gateway")

    root = Root(monkeypatch, speak)
    answer = start_way.confirm(trial.setup, words())
    assert (answer.exit, answer.json["state"], answer.json["missing"]) == (6, "trial", ["controller"])
    assert root.pulled == [triggers.CONFIRM]


def test_giving_up_follows_the_records(trial: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back, and why; with no id it is about whatever is pending."""
    product = trial.setup.product
    root = Root(monkeypatch, lambda _name: manager.go_back(product, manager.look(product), "", codes.GAVE_UP))
    answer = start_way.rollback(trial.setup, words(id=None))
    assert (answer.exit, answer.json["state"], answer.json["code"], answer.json["id"]) == (
        0,
        "rolled-back",
        "gave-up",
        ID,
    )
    assert root.pulled == [triggers.GIVE_UP]
    again = start_way.rollback(trial.setup, words())
    assert (again.json["state"], again.json["changed"]) == ("rolled-back", False), "I9: it had ended before"
    assert root.pulled == [triggers.GIVE_UP]


def test_a_root_that_does_nothing_is_told(trial: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait has an end, and names the unit to look at."""
    monkeypatch.setattr(start_way, "GIVEN_UP_S", 0.5)
    Root(monkeypatch, lambda _name: None)
    with pytest.raises(codes.Retryable, match=r"slotward-giveup\.service") as caught:
        start_way.rollback(trial.setup, words())
    assert caught.value.code == codes.SYSTEMD_FAILED


@pytest.mark.parametrize(
    ("act", "given", "code"),
    [
        (start_way.confirm, {"id": ELSE}, "wrong-trial"),
        (start_way.rollback, {"id": ELSE}, "wrong-trial"),
        (start_way.confirm, {"source": "controller"}, "wrong-source"),
    ],
)
def test_only_the_trial_that_is_named(
    trial: Start, monkeypatch: pytest.MonkeyPatch, act: Any, given: Dict[str, Any], code: str
) -> None:
    """Nothing is triggered for another trial, or as another source."""
    root = Root(monkeypatch, lambda _name: None)
    with pytest.raises(codes.Refused) as caught:
        act(trial.setup, words(**given))
    assert (caught.value.code, root.pulled) == (code, [])


@pytest.mark.parametrize("act", [start_way.confirm, start_way.rollback])
def test_without_a_trial_nothing_is_triggered(start: Start, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """The id is not known here."""
    start.configure(confirm_sources="gateway")
    root = Root(monkeypatch, lambda _name: None)
    for trial_id in (ID, None):
        with pytest.raises(codes.Refused) as caught:
            act(start.setup, words(id=trial_id))
        assert (caught.value.code, root.pulled) == ("no-trial", [])


def test_the_gateway_must_be_asked_for(trial: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose configuration wants another source's word is not confirmed by this one."""
    trial.configure()
    root = Root(monkeypatch, lambda _name: None)
    with pytest.raises(codes.Refused, match="confirm_sources is controller") as caught:
        start_way.confirm(trial.setup, words())
    assert (caught.value.code, root.pulled) == ("wrong-source", [])


def test_a_file_that_triggers_is_opened_and_closed_and_no_more(tmp_path: pathlib.Path) -> None:
    """It needs no space, and a host that was not set up is told how."""
    file = tmp_path / "confirm"
    file.write_bytes(b"x")
    triggers.pull("confirm", str(tmp_path))
    assert file.read_bytes() == b"x"
    with pytest.raises(codes.Retryable, match="slotward setup"):
        triggers.pull("give-up", str(tmp_path))


# -- at the daemon's start ---------------------------------------------------------------------------------------------------


def answered(start: Start, data: bytes, state: str, code: str, trial_id: str = ID) -> None:
    """Root's answer to that request."""
    said = asked.Asked(trial_id, hashlib.sha256(data).hexdigest(), state, code, "a sentence", 1)
    start.write(asked.NAME, asked.render(said))


@pytest.mark.parametrize(
    ("state", "code", "gone"),
    [
        ("refused", "below-floor", True),
        ("current", "ok", True),
        ("trial", "not-confirmed", True),
        ("failed", "no-space", False),
        (None, "", False),
    ],
)
def test_what_is_done_with_is_forgotten(
    start: Start, v110: Signed, capsys: pytest.CaptureFixture[str], state: Optional[str], code: str, gone: bool
) -> None:
    """What root answered for good goes, and is told; what may pass is kept for the next start, as is what can be gone on with."""
    data = start.stage(v110)
    start.file("slotward-1.2.0.part", b"half")
    if state is not None:
        answered(start, data, state, code)
    everything = [f"{ID}.target", "apply", "slotward-1.1.0", "slotward-1.2.0.part"]
    for _again in range(2):
        start_way.forget(start.setup)
        assert staged(start) == (["slotward-1.2.0.part"] if gone else everything)
    said = capsys.readouterr().err
    assert said == (f"<5>what was asked for: {state} ({code}): a sentence\n" if gone else "")


def test_a_request_that_became_a_trial_is_told_by_its_id(
    start: Start, v110: Signed, capsys: pytest.CaptureFixture[str]
) -> None:
    """I8: root's answer may be lost: the records of the trial say it too, while it lasts and afterwards."""
    start.stage(v110)
    start.apply()
    (start.slots / "asked.json").unlink()
    start_way.forget(start.setup)
    assert (staged(start), capsys.readouterr().err) == ([], f"<5>what was asked for became trial {ID}\n")
    start.stage(v110)
    manager.go_back(start.setup.product, manager.look(start.setup.product), "")
    start_way.forget(start.setup)
    assert staged(start) == []


@pytest.mark.parametrize("kind", ["torn", "other", "foreign", "fifo", "directory"])
def test_an_answer_that_cannot_be_believed_is_none(start: Start, v110: Signed, kind: str) -> None:
    """I8: torn, about another request, somebody else's: the request stays, and nobody waits."""
    data = start.stage(v110)
    path = start.slots / asked.NAME
    answered(start, data, "refused", "expired")
    if kind == "torn":
        start.write(asked.NAME, path.read_bytes()[:-9])
    elif kind == "other":
        answered(start, data + b" ", "refused", "expired")
    elif kind == "foreign":
        os.chown(path, UID, UID)
    else:
        path.unlink()
        os.mkfifo(path) if kind == "fifo" else path.mkdir()
    start_way.forget(start.setup)
    assert "apply" in staged(start)


@pytest.mark.parametrize("kind", ["link", "fifo", "garbage"])
def test_a_strange_request_of_one_s_own_is_told_by_root_s_answer(start: Start, v110: Signed, kind: str) -> None:
    """What is no request has no id; root's answer to it is found by its bytes, and it goes."""
    start.stage(v110)
    path = start.staging / "apply"
    path.unlink()
    if kind == "link":
        path.symlink_to(start.config)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        start.file("apply", b"garbage")
    start_way.forget(start.setup)
    assert "apply" in staged(start)
    assert start.applied()[1] == "refused"
    start_way.forget(start.setup)
    assert staged(start) == []


def test_nothing_of_it_stops_the_daemon(start: Start, v110: Signed) -> None:
    """I8: no staging, no slots, somebody at work there: it is left for later."""
    data = start.stage(v110)
    answered(start, data, "refused", "expired")
    with inbox.alone(str(start.staging)):
        start_way.forget(start.setup)
    assert "apply" in staged(start)
    inbox.tidy(start.setup)
    assert staged(start) == []
    start.staging.rmdir()
    inbox.tidy(start.setup)
    start_way.forget(start.setup)
    assert start.link("current") == "a"
