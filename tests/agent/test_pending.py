# SPDX-License-Identifier: GPL-3.0-or-later
"""`confirm --pending` and `rollback --pending`: what the units behind the triggers run, about whatever is on trial."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from agent.starts import ID, Shop, Signed, Start

from slotcore import audit
from slotward import answers, cli_parse, cmd_trial, manager, units

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root's part")

UNITS = pathlib.Path(units.__file__).parent / "resources" / "units"


@pytest.fixture(name="shop", scope="module")
def _shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Keys and releases."""
    return Shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(name="v110", scope="module")
def _v110(shop: Shop) -> Signed:
    """The next release."""
    return shop.release("1.1.0", 2)


@pytest.fixture(name="start")
def _start(tmp_path: pathlib.Path, systemctl: None, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A host in start mode that the gateway confirms."""
    tmp_path.chmod(0o755)
    start = Start(tmp_path, shop, monkeypatch)
    start.configure(confirm_sources="gateway", settle_s=0)
    return start


@pytest.fixture(name="trial")
def _trial(start: Start, v110: Signed) -> Iterator[Start]:
    """The same on trial, with a main process that has the slot's bytes open."""
    start.stage(v110)
    assert start.applied()[1] == "trial"
    with open(start.slots / "b", "rb") as slot:
        running = subprocess.Popen(["sleep", "600"], stdin=slot)
    (start.root / "show").write_text(f"ActiveState=active\nMainPID={running.pid}\n")
    try:
        yield start
    finally:
        running.kill()
        running.wait()


def run(start: Start, *words: str) -> answers.Answer:
    """The command line that a unit has, as its program reads it."""
    args: argparse.Namespace = cli_parse.parse([*words, "--config", str(start.config)], "/nowhere")
    try:
        return cmd_trial.run(args)
    except answers.CODED as error:
        return answers.of_error("slotward", error)


def exec_line(unit: str) -> List[str]:
    """What the unit runs, after its program and without its configuration."""
    text = (UNITS / unit).read_text()
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    words = line.partition("=")[2].split()
    assert (words[0], words[-2:]) == ("@SLOTS@/good", ["--config", "@CONFIG@"])
    return words[1:-2]


CONFIRM, GIVE_UP = exec_line("slotward-confirm.service"), exec_line("slotward-giveup.service")


def told(answer: answers.Answer) -> Tuple[int, str, str, bool]:
    """Exit status, state, code, whether something was changed."""
    return answer.exit, answer.json["state"], answer.json["code"], answer.json["changed"]


def test_the_word_about_whatever_is_on_trial(trial: Start) -> None:
    """With the proof it is confirmed; the same again finds no trial, which is no error (I9)."""
    assert told(run(trial, *CONFIRM)) == (0, "confirmed", "ok", True)
    assert (trial.link("good"), trial.state().update.floor) == ("b", 2)
    for words in (CONFIRM, GIVE_UP):
        answer = run(trial, *words)
        assert told(answer) == (0, "idle", "ok", False)
        assert answer.lines == ["no trial of slotward is pending: nothing to do"]
    assert trial.link("current") == "b"


def test_no_proof_no_confirmation(trial: Start) -> None:
    """I11: the account's word alone confirms nothing; the trial goes on."""
    (trial.root / "show").write_text(f"ActiveState=active\nMainPID={os.getpid()}\n")
    words = [*CONFIRM[:-1], "0.3"]
    assert CONFIRM[-2] == "--wait"
    assert told(run(trial, *words)) == (6, "trial", "not-proven", False)
    assert trial.on_trial() == ID


def test_a_host_that_wants_another_source_is_not_confirmed(trial: Start) -> None:
    """I6: whom root's configuration does not name has no say."""
    trial.configure(settle_s=0)
    assert told(run(trial, *CONFIRM)) == (3, "refused", "wrong-source", False)
    assert trial.on_trial() == ID


def test_a_configuration_with_problems_confirms_nothing_and_gives_up(trial: Start) -> None:
    """Who must confirm would be a default's word; going back is always safe."""
    trial.configure(colour="blue")
    assert told(run(trial, *CONFIRM))[:3] == (5, "refused", "bad-config")
    assert told(run(trial, *GIVE_UP))[3] is True
    assert trial.link("current") == "a"


def test_giving_up_is_the_release_s_own_word(trial: Start) -> None:
    """Remembered as such, not as an operator's; the log says which unit did it."""
    answer = run(trial, *GIVE_UP)
    assert (answer.exit, answer.json["code"], answer.json["changed"]) == (0, "gave-up", True)
    last = trial.state().update.last
    assert (last.trial_id, last.state, last.code) == (ID, "rolled-back", "gave-up")
    assert last.why == "slotward 1.1.0 itself asked to go back"
    assert [failure.code for failure in trial.state().update.failed] == ["gave-up"]
    lines = (trial.slots / "audit.log").read_bytes().splitlines()
    event = audit.parse(lines[-1]).event
    assert (event.event, event.code, event.who) == ("rolled-back", "gave-up", "test")
    assert (trial.link("current"), trial.on_trial()) == ("a", "")


def test_an_operator_s_rollback_is_still_an_operator_s(trial: Start) -> None:
    """The other way to the same end."""
    assert run(trial, "rollback", "--why", "I say so").json["code"] == "operator"


def test_a_trial_whose_end_was_cut_is_finished_and_the_next_one_is_not_touched(trial: Start) -> None:
    """What is read first is whose trial it is: a word is never about the one after it."""
    (trial.slots / "trial").rename(trial.slots / "trial.confirm")
    assert told(run(trial, *GIVE_UP)) == (0, "idle", "ok", False)
    assert (trial.link("good"), trial.state().update.last.state) == ("b", "confirmed")


def test_a_word_that_comes_late_is_about_no_other_trial(
    trial: Start, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the act the trial ended and another began: that one stays."""
    v130 = shop.release("1.3.0", 4)
    act = cmd_trial.rollback

    def late(*arguments: Any) -> answers.Answer:
        manager.confirm(trial.setup.product, manager.look(trial.setup.product))
        trial.shows()
        trial.stage(v130, "ffeeddccbbaa9988")
        assert trial.applied()[1] == "trial"
        return act(*arguments)

    monkeypatch.setattr(cmd_trial, "rollback", late)
    assert told(run(trial, *GIVE_UP))[:3] == (3, "refused", "wrong-trial")
    assert trial.on_trial() == "ffeeddccbbaa9988"


@pytest.mark.parametrize("command", ["confirm", "rollback"])
def test_an_id_and_pending_together_are_no_command_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One of the two; confirm needs one of them."""
    with pytest.raises(SystemExit) as caught:
        cli_parse.parse([command, "--id", ID, "--pending"], "/nowhere")
    assert caught.value.code == 2
    if command == "confirm":
        with pytest.raises(SystemExit):
            cli_parse.parse([command], "/nowhere")
    assert "--pending" in capsys.readouterr().err


# -- the units themselves ----------------------------------------------------------------------------------------------------


def settings(name: str) -> Dict[str, List[str]]:
    """The settings of a template."""
    found: Dict[str, List[str]] = {}
    for line in (UNITS / name).read_text().splitlines():
        match = re.fullmatch(r"([A-Za-z]+)=(.*)", line)
        if match:
            found.setdefault(match.group(1), []).append(match.group(2))
    return found


@pytest.mark.parametrize("name", ["slotward-apply", "slotward-confirm", "slotward-giveup"])
def test_I6_root_s_units_take_nothing_from_the_account(name: str) -> None:
    """I6: a clean environment, the good release's program, a time limit; the daemon's own unit runs nothing as root."""
    found = settings(f"{name}.service")
    assert not {"EnvironmentFile", "PassEnvironment", "ExecStartPre", "User", "WorkingDirectory"} & set(found)
    assert found["ExecStart"][0].startswith("@SLOTS@/good ")
    assert len(found["ExecStart"]) == 1
    assert found["Type"] == ["oneshot"]
    assert int(found["TimeoutStartSec"][0].rstrip("s")) <= 90
    assert "@HARDENING@" in (UNITS / f"{name}.service").read_text().splitlines()
    assert all("/staging" not in value for key, values in found.items() if key != "ExecCondition" for value in values)
    daemon = (UNITS / "slotward.service").read_text() + (UNITS / "unprivileged-start.conf").read_text()
    assert "ExecStartPre" not in daemon
    assert not re.search(r"^Exec\w+=[^/@\n]*[+!]", daemon, re.MULTILINE)


def test_root_s_part_comes_after_the_guard_and_before_the_daemon() -> None:
    """privilege.md, section 6: what the guard decides at a start is settled before the daemon runs; no start limit."""
    found = settings("slotward-apply.service")
    assert found["After"] == ["slotward-guard@@PRODUCT@.service"]
    assert found["Before"] == ["@UNIT@"]
    assert found["StartLimitIntervalSec"] == ["0"]
    assert "ConditionPathExists" not in found


@pytest.mark.parametrize(("name", "file"), [("slotward-confirm", "confirm"), ("slotward-giveup", "give-up")])
def test_who_triggers_too_often_is_refused(name: str, file: str) -> None:
    """The files are in a directory of root's, and are the account's."""
    assert settings(f"{name}.path")["PathChanged"] == [f"/run/slotward-start/{file}"]
    limits = settings(f"{name}.service")
    assert (limits["StartLimitIntervalSec"], limits["StartLimitBurst"]) == (["60s"], ["10"])
    lines = (UNITS / "slotward-start.conf").read_text().splitlines()
    assert "d /run/slotward-start 0755 root root -" in lines
    assert f"f /run/slotward-start/{file} 0600 @USER@ root -" in lines


@pytest.mark.parametrize("flag", ["--check", "--start", "--no-wait", "--accept-one-way"])
def test_a_flag_of_going_back_after_confirmation_ends_no_trial(start: Start, flag: str) -> None:
    """Without --to such a line means something else than it would do, so it does nothing: a check changes nothing."""
    answer = run(start, "rollback", flag)
    assert (answer.exit, answer.json["changed"]) == (answers.USAGE, False)
    assert "--to" in answer.lines[0]


@pytest.mark.parametrize(
    "words",
    [
        ("confirm", "--pending", "--source", "gateway"),
        ("confirm", "--id", ID, "--source", "gateway"),
        ("rollback", "--pending"),
        ("rollback",),
        ("rollback", "--id", ID),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("claimed", [False, True])
def test_a_trial_in_slots_that_the_configuration_names_no_more_is_told(
    trial: Start, words: Tuple[str, ...], claimed: bool
) -> None:
    """Nobody is told that there is nothing to do while the guard has a trial in hand; with the slots back it goes on."""
    facts = trial.root / "guard" / "guard.d" / "slotward.env"
    facts.write_text(f"UNIT=slotward.service\nSLOTS={trial.slots}\n")
    if claimed:
        os.rename(trial.slots / "trial", trial.slots / "trial.revert")
    trial.configure(confirm_sources="gateway", settle_s=0, slots_dir=str(trial.root / "others"))
    for made in (False, True):
        if made:
            (trial.root / "others").mkdir()
        answer = run(trial, *words)
        assert (answer.exit, answer.json["code"]) == (answers.RETRY, "trial-pending"), answer.lines
        for said in (str(facts), f"{trial.root}/others", str(trial.slots), ID):
            assert said in answer.json["message"]
    assert (trial.slots / "current").readlink().name == "b"
    trial.configure(confirm_sources="gateway", settle_s=0)
    assert run(trial, "rollback", "--id", ID).json["state"] == "rolled-back"


def test_slots_that_were_left_without_a_trial_say_nothing(start: Start) -> None:
    """There is nothing to do, and that is said."""
    (start.root / "guard" / "guard.d" / "slotward.env").write_text(f"UNIT=slotward.service\nSLOTS={start.slots}\n")
    start.configure(confirm_sources="gateway", slots_dir=str(start.root / "others"))
    (start.root / "others").mkdir()
    assert run(start, "rollback", "--pending").json["code"] == "ok"
