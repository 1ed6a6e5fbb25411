# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a release on a host: adopted, linked, judged before the switch, proven; and a switch whose unit file is not read."""

from __future__ import annotations

import os
import pathlib
from typing import Tuple

import pytest
from agent.growing import Grove, archive

from slotcore import codes, records, settle, trial
from slotcore import product as products
from slotward import executor, faults, host, manager, parts, reversing, trees, trial_ids, undoing

PROGRAM = b"#!/bin/sh\nexec sleep 60\n"


@pytest.fixture
def grove(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Grove:
    """A product with a companion file and a unit file, both plain files still; its program is adopted."""
    (tmp_path / "calls").touch()
    (tmp_path / "show").write_text("ActiveState=active\n")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    monkeypatch.setenv("PATH", f"{pathlib.Path(__file__).parent / 'fakes'}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "nice", lambda _step: 0)
    found = Grove(tmp_path)
    (tmp_path / "etc").mkdir(mode=0o755)
    (tmp_path / "etc/app.service").write_bytes(b"[Service]\nExecStart=/bin/true\n")
    (tmp_path / "etc/schema").write_bytes(b"1")
    companion = products.Part("schema", "share/schema", str(tmp_path / "etc/schema"))
    unit = products.Part("unit", "app.service", str(tmp_path / "etc/app.service"), unit=True)
    found.product = found.product._replace(parts=(companion, unit))
    found.adopt()
    return found


def todo(grove: Grove, consent: bool = True) -> Tuple[parts.Todo, ...]:
    """What setup would do."""
    return parts.work(grove.product, consent, divert=False, comes=False)


def test_plain_files_are_adopted_with_consent_and_become_links(grove: Grove) -> None:
    """The tree has them and proves itself with them; a second run has nothing to do."""
    with pytest.raises(codes.Refused, match="agree with --adopt"):
        todo(grove, consent=False)
    work = todo(grove)
    assert [one["what"].split()[0] for one in parts.changes(grove.product, work)] == ["adopt", "link"] * 2
    parts.bring(grove.product, work)
    assert [parts.kind(grove.product, part) for part in grove.product.parts] == ["ours", "ours"]
    assert grove.files("1.0.0") == {
        "app": PROGRAM,
        "app.service": b"[Service]\nExecStart=/bin/true\n",
        "share/schema": b"1",
    }
    assert {entry.path for entry in trees.examine(grove.product, "1.0.0").entries} == {
        "app",
        "app.service",
        "share",
        "share/schema",
    }
    assert (todo(grove), parts.not_linked(grove.product)) == ((), [])
    calls = (grove.root / "calls").read_text().splitlines()
    assert [call for call in calls if not call.startswith("show")] == ["daemon-reload"]


@pytest.mark.parametrize("after", range(8))
def test_P7_an_adoption_that_was_cut_is_completed_by_the_next(
    grove: Grove, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stopped, the file is still there to be adopted, and a second run makes the tree prove itself."""
    real, left = executor.Executor.apply, [after]

    def apply(self: executor.Executor, plan: Tuple[object, ...], name: str) -> None:
        for operation in plan:
            if name == "adopt-part":
                left[0] -= 1
                if left[0] < 0:
                    raise InterruptedError
            real(self, (operation,), name)  # type: ignore[arg-type]

    monkeypatch.setattr(executor.Executor, "apply", apply)
    with pytest.raises(InterruptedError):
        parts.bring(grove.product, todo(grove))
    monkeypatch.setattr(executor.Executor, "apply", real)
    assert (grove.root / "etc/schema").read_bytes() == b"1"
    parts.bring(grove.product, todo(grove))
    trees.examine(grove.product, "1.0.0")
    assert todo(grove) == ()


@pytest.mark.parametrize("what", ["missing", "elsewhere"])
def test_a_place_that_cannot_be_taken_is_refused(grove: Grove, what: str) -> None:
    """Nothing to adopt, or somebody's own link."""
    path = grove.root / "etc/schema"
    path.unlink()
    if what == "elsewhere":
        path.symlink_to("/dev/null")
    with pytest.raises(codes.Refused) as caught:
        todo(grove)
    assert caught.value.code == (codes.PART_MISSING if what == "missing" else codes.ENTRYPOINT_ELSEWHERE)


def test_a_release_must_have_every_part(grove: Grove) -> None:
    """Before the switch, by name and place."""
    parts.bring(grove.product, todo(grove))
    whole = archive(PROGRAM, **{"app.service": b"[Service]\nExecStart=/bin/true\n", "share_schema": b"2"})
    grove.stage("1.1.0", whole, 2)
    with pytest.raises(codes.Refused) as caught:
        grove.stage("1.2.0", archive(PROGRAM, share_schema=b"2"), 3)
    assert (caught.value.code, "no file app.service" in caught.value.text) == (codes.PART_MISSING, True)


def test_a_unit_file_is_judged_under_its_real_name(grove: Grove, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the tree has it under another; nothing of that stays."""
    parts.bring(grove.product, todo(grove))
    shown = grove.root / "analyzed"
    tool = grove.root / "systemd-analyze"
    tool.write_text(f'#!/bin/sh\necho "$3" >>{shown}\necho "$3: no ExecStart=" >&2\nexit 1\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{grove.root}:{os.environ['PATH']}")
    unit = grove.product.parts[1]._replace(source="share/schema")
    product = grove.product._replace(parts=(unit,))
    with pytest.raises(codes.Refused) as caught:
        parts.demand(product, product.path("current"))
    assert (caught.value.code, "no ExecStart=" in caught.value.text) == (codes.BAD_UNIT, True)
    assert os.path.basename(shown.read_text().strip()) == "app.service"
    assert not os.path.exists(product.path("verify"))


def _release(grove: Grove, version: str = "1.1.0", sequence: int = 2) -> manager.Release:
    content = {"app.service": b"[Service]\nExecStart=/bin/true\n", "share_schema": b"2"}
    return grove.stage(version, archive(PROGRAM, **content), sequence)


def test_a_part_that_leads_elsewhere_proves_nothing(grove: Grove) -> None:
    """X4: it is named; so is a unit file that systemd has not read."""
    parts.bring(grove.product, todo(grove))
    manager.begin_trial(grove.product, manager.look(grove.product), _release(grove))
    state = host.read_state(grove.product)
    assert parts.unproven(grove.product, state, str(state.current)) == ""
    unread = state._replace(log=trial.LOG_HEADER + trial.UNIT_DUE)
    assert "systemd has not read the unit file" in parts.unproven(grove.product, unread, str(state.current))
    assert "does not lead to" in parts.unproven(grove.product, state, str(state.good))
    path = grove.root / "etc/schema"
    path.unlink()
    path.write_bytes(b"mine")
    assert str(path) in parts.unproven(grove.product, state, str(state.current))
    assert parts.not_linked(grove.product)


def test_W1_a_unit_file_that_systemd_refuses_to_read_undoes_the_switch(grove: Grove) -> None:
    """The link goes home before anything was restarted: an abandoned update, free to be tried again."""
    parts.bring(grove.product, todo(grove))
    release = _release(grove)
    (grove.root / "calls").write_text("")
    (grove.root / "fail-daemon-reload").write_text("1")
    with pytest.raises(codes.Retryable) as caught:
        manager.begin_trial(grove.product, manager.look(grove.product), release)
    assert caught.value.code == codes.SYSTEMD_FAILED
    state = host.read_state(grove.product)
    assert (state.current == state.good, state.trial) == (True, None)
    assert state.update.last is not None
    assert (state.update.last.state, state.update.failed) == ("abandoned", ())
    assert "restart" not in (grove.root / "calls").read_text()
    (grove.root / "fail-daemon-reload").unlink()
    again = release._replace(trial_id=trial_ids.new())
    manager.begin_trial(grove.product, manager.look(grove.product), again)
    assert trial.is_unit_read(host.read_state(grove.product).log)


def test_a_trial_that_is_over_before_its_unit_file_is_read_goes_home(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host was held up; systemd is told that the old release's unit file is what counts, and nothing is restarted."""
    parts.bring(grove.product, todo(grove))
    release = _release(grove)
    (grove.root / "calls").write_text("")

    def hit(point: str) -> None:
        if point.endswith(".Demand"):
            (grove.slots / "trial").rename(grove.slots / "trial.revert")
            with open(grove.slots / "trial.revert", "ab") as file:
                file.write(b"REASON=never-started\n")

    monkeypatch.setattr(faults, "hit", hit)
    with pytest.raises(codes.Retryable):
        manager.begin_trial(grove.product, manager.look(grove.product), release)
    state = host.read_state(grove.product)
    assert (state.current == state.good, state.revert, state.update.failed) == (True, None, ())
    assert state.update.last is not None
    assert state.update.last.state == "abandoned"
    calls = (grove.root / "calls").read_text()
    assert ("daemon-reload" in calls, "restart" in calls) == (True, False)


def test_a_switch_that_is_undone_after_a_start_has_failed(grove: Grove) -> None:
    """systemd started the new program by the old file meanwhile: that trial has failed, and what runs is restarted."""
    parts.bring(grove.product, todo(grove))
    release = _release(grove)
    (grove.root / "fail-daemon-reload").write_text("1")
    hook = f'[ -e {grove.slots}/trial ] && echo "start 9" >>{grove.slots}/trial.log\n'
    (grove.root / "hook-daemon-reload").write_text(hook)
    with pytest.raises(codes.Retryable):
        manager.begin_trial(grove.product, manager.look(grove.product), release)
    state = host.read_state(grove.product)
    assert state.update.last is not None
    assert (state.update.last.state, state.update.last.code) == ("rolled-back", codes.DID_NOT_START)
    assert "restart" in (grove.root / "calls").read_text()


def test_W1_going_back_waits_for_no_unit_file_and_does_not_forget_it(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2: links and restart first; the claim stays until systemd has read the file, and then what runs is restarted by it."""
    monkeypatch.setattr(manager, "RELOAD_WAIT_S", 0.1)
    parts.bring(grove.product, todo(grove))
    manager.begin_trial(grove.product, manager.look(grove.product), _release(grove))
    (grove.root / "fail-daemon-reload").write_text("1")
    (grove.root / "calls").write_text("")
    with pytest.raises(codes.Retryable):
        manager.go_back(grove.product, manager.look(grove.product), "by hand")
    state = host.read_state(grove.product)
    assert (state.current == state.good, trial.is_unread(state.log)) == (True, True)
    assert (grove.root / "calls").read_text().count("restart") == 1
    with pytest.raises(codes.Retryable):
        manager.settle_now(grove.product)
    assert (grove.root / "calls").read_text().count("restart") == 1
    (grove.root / "fail-daemon-reload").unlink()
    manager.settle_now(grove.product)
    assert (grove.root / "calls").read_text().count("restart") == 2
    state = host.read_state(grove.product)
    assert state.update.last is not None
    assert (state.update.last.state, state.revert) == ("rolled-back", None)


def test_nothing_is_undone_that_was_not_begun(grove: Grove) -> None:
    """At rest there is no way home to go."""
    seen = manager.look(grove.product)
    assert undoing.home(grove.product, seen) == seen


@pytest.mark.parametrize("how", ["writable", "missing", "not executable"])
def test_a_hook_that_others_could_write_is_not_run_by_root(tmp_path: pathlib.Path, how: str) -> None:
    """Prepare says which, and why."""
    path = tmp_path / "hook"
    if how != "missing":
        path.write_text("#!/bin/sh\n")
        path.chmod(0o777 if how == "writable" else 0o644)
    product = products.Product(
        "app", "app.service", "/usr/bin/app", str(tmp_path), hooks=(products.Hook("snapshot", (str(path),)),)
    )
    with pytest.raises(codes.Refused) as caught:
        reversing.demand(product, settle.State(), records.SlotRecord("1.1.0", 2, "", 0), "1.0.0", accepted=False)
    assert (caught.value.code, "[hook-snapshot] of app" in caught.value.text) == (codes.DIRECTORY_UNSAFE, True)
