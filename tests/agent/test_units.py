# SPDX-License-Identifier: GPL-3.0-or-later
"""The system files that setup writes: which, in what order, with what in them, and what differs on a host."""

from __future__ import annotations

import itertools
import pathlib
import re
import shlex
import shutil
import subprocess
from typing import Dict, List, Optional, Tuple

import pytest

from slotcore import codes, settle
from slotcore import product as products
from slotward import unit_files, units, units_modes

DEMO = products.Product("demo", "demo.service", "/usr/local/bin/demo", "/srv/slots/demo")
SELF = products.Product("slotward", "slotward.service", "/usr/local/bin/slotward", "/opt/slotward/slotward")
AGENT = units.Agent("/etc/slotward/config.toml")
MODES = {
    mode: AGENT._replace(mode=mode, user="slotward" if mode != "root" else "root", group="keepers")
    for mode in ("root", "helper", "start")
}
HELPED = SELF._replace(helper_unit="slotward-helper.service")


def by_path(files: Tuple[units.SystemFile, ...]) -> Dict[str, units.SystemFile]:
    """The files by their path, each once."""
    found = {file.path: file for file in files}
    assert len(found) == len(files)
    return found


def keys(text: str) -> List[Tuple[str, str]]:
    """The settings of a unit file."""
    lines = (line.strip() for line in text.splitlines())
    return [
        (line.split("=", 1)[0], line.split("=", 1)[1]) for line in lines if "=" in line and not line.startswith("#")
    ]


def test_the_files_of_another_product() -> None:
    """DESIGN 4: guard, facts, units and the drop-in; the product's own unit is not among them."""
    files = by_path(units.render(DEMO, 252))
    assert list(files) == [
        "/usr/local/lib/slotward/guard",
        "/usr/local/lib/slotward/guard.d/demo.env",
        "/etc/systemd/system/slotward-guard@.service",
        "/etc/systemd/system/slotward-rollback@.service",
        "/etc/systemd/system/slotward-deadline@.service",
        "/etc/systemd/system/slotward-deadline@.timer",
        "/etc/systemd/system/slotward-guard@demo.service.d/50-slots.conf",
        "/etc/systemd/system/slotward-rollback@demo.service.d/50-slots.conf",
        "/etc/systemd/system/slotward-deadline@demo.service.d/50-slots.conf",
        "/etc/systemd/system/slotward-deadline@demo.timer.d/50-slots.conf",
        "/etc/systemd/system/demo.service.d/50-slotward-rollback.conf",
    ]
    assert files["/usr/local/lib/slotward/guard.d/demo.env"].text == "UNIT=demo.service\nSLOTS=/srv/slots/demo\n"
    assert [path for path, file in files.items() if file.mode != 0o644] == ["/usr/local/lib/slotward/guard"]
    assert files["/usr/local/lib/slotward/guard"].mode == 0o755


def test_the_drop_in_adds_and_takes_nothing_away() -> None:
    """DESIGN 4: Wants= and After=, never ExecStartPre=; the product's restart policy and limits stay as they are."""
    text = by_path(units.render(DEMO, 257))["/etc/systemd/system/demo.service.d/50-slotward-rollback.conf"].text
    assert keys(text) == [
        ("Wants", "slotward-guard@demo.service"),
        ("After", "slotward-guard@demo.service"),
        ("OnFailure", "slotward-rollback@demo.service"),
    ]


def test_who_is_confirmed_by_probes_has_a_unit_that_looks() -> None:
    """It is wanted by each start, runs the agent and never the product, and leaves the boot id of a container to be seen."""
    probed = DEMO._replace(confirm_sources=("controller", "probe"))
    command = unit_files.Command("/usr/local/bin/agent", "/etc/other/config.toml")
    files, plain = by_path(units.render(probed, 252, None, command)), by_path(units.render(DEMO, 252))
    path = "/etc/systemd/system/slotward-probe@demo.service"
    assert set(files) - set(plain) == {path}
    wanted = keys(files["/etc/systemd/system/demo.service.d/50-slotward-rollback.conf"].text)
    assert ("Wants", "slotward-probe@demo.service") in wanted
    found = keys(files[path].text)
    start = "/usr/local/bin/agent --config /etc/other/config.toml --product demo probe --watch"
    assert [value for key, value in found if key == "ExecStart"] == [start]
    conditions = [value for key, value in found if key == "ConditionPathExists"]
    assert conditions == ["|/srv/slots/demo/trial", "|/srv/slots/demo/baseline.json"]
    assert {("After", "demo.service"), ("Restart", "on-failure"), ("ReadWritePaths", "/srv/slots/demo")} <= set(found)
    assert not {"ProtectKernelTunables", "ProtectControlGroups", "PrivateNetwork"} & {key for key, _value in found}
    assert re.search(r"@[A-Z_]+@", files[path].text) is None
    agent = by_path(units.render(SELF._replace(confirm_sources=("probe",)), 252, AGENT, unit_files.Command("/x/good")))
    assert "ExecStart=/x/good --config" in agent["/etc/systemd/system/slotward-probe@slotward.service"].text


def test_the_shared_files_are_the_same_for_every_product() -> None:
    """Two products write the same guard and the same templates, so neither undoes the other's."""
    mine, other = by_path(units.render(SELF, 252, AGENT)), by_path(units.render(DEMO, 252))
    common = set(mine) & set(other)
    assert common == {"/usr/local/lib/slotward/guard"} | {f"/etc/systemd/system/{name}" for name in units.SHARED_UNITS}
    assert all(mine[path] == other[path] for path in common)


def test_w9_no_mark_is_left_and_no_line_is_odd() -> None:
    """W9: every line of every unit is a comment, a section or a setting, and every mark was filled."""
    for version, agent in itertools.product((247, 252, 254, 257), MODES.values()):
        for file in units.render(SELF, version, agent):
            assert re.search(r"@[A-Z_]+@", file.text) is None, file.path
            assert file.text.endswith("\n")
            if file.path.startswith(units.UNIT_DIR):
                for line in file.text.splitlines():
                    assert re.fullmatch(r"|#.*|\[[A-Z][a-z]+\]|[A-Za-z0-9]+=.*", line), (file.path, line)


@pytest.mark.parametrize(
    ("version", "expected"), [(247, []), (252, []), (253, []), (254, ["direct"]), (257, ["direct"])]
)
def test_w1_restart_mode_only_where_systemd_knows_it(version: int, expected: List[str]) -> None:
    """W1: RestartMode=direct exists from 254 on; older ones would warn of it."""
    files = by_path(units.render(SELF, version, AGENT))
    found = keys(files["/etc/systemd/system/slotward.service"].text)
    assert [value for key, value in found if key == "RestartMode"] == expected
    assert all(
        "RestartMode" not in dict(keys(file.text)) for path, file in files.items() if "slotward.service" not in path
    )


def test_the_agent_s_own_unit() -> None:
    """Seed 001's hardening, and what DESIGN 4 asks of it."""
    text = by_path(units.render(SELF, 252, AGENT))["/etc/systemd/system/slotward.service"].text
    found = dict(keys(text))
    assert found["ExecStart"] == "/usr/local/bin/slotward node --config /etc/slotward/config.toml"
    assert (found["Type"], found["NotifyAccess"]) == ("notify", "main")
    assert (found["Restart"], found["RestartSec"], found["StartLimitIntervalSec"]) == ("always", "1s", "0")
    assert (found["ProtectSystem"], found["NoNewPrivileges"], found["CapabilityBoundingSet"]) == ("strict", "yes", "")
    assert found["ReadWritePaths"] == "-/var/lib/slotward"
    assert "StateDirectory" not in found
    assert "Environment" not in text


def test_D8_directories_of_one_s_own_are_writable() -> None:
    """D8: data_dir and the socket's directory elsewhere are let through ProtectSystem=strict, and may be missing."""
    agent = units.Agent("/etc/slotward/config.toml", "/srv/slotward", "/run/other/status.sock")
    text = by_path(units.render(SELF, 252, agent))["/etc/systemd/system/slotward.service"].text
    assert [value for key, value in keys(text) if key == "ReadWritePaths"] == ["-/srv/slotward", "-/run/other"]
    for mode in ("helper", "start"):
        files = by_path(units.render(SELF, 252, agent._replace(mode=mode, user="u", group="g")))
        assert "ReadWritePaths=/" not in files[units_modes.DROPIN].text


BESIDE = {
    "root": [],
    "helper": ["slotward-helper.service", "slotward-helper.service.d/50-slotward-rollback.conf"],
    "start": [
        "slotward-apply.service",
        "slotward-confirm.service",
        "slotward-giveup.service",
        "slotward-confirm.path",
        "slotward-giveup.path",
    ],
}


@pytest.mark.parametrize("mode", MODES)
def test_the_files_of_each_mode(mode: str) -> None:
    """privilege.md: the daemon's own unit is the same; a mode is a drop-in and what stands beside, written before it."""
    product = HELPED if mode == "helper" else SELF
    files, root = by_path(units.render(product, 252, MODES[mode])), by_path(units.render(SELF, 252, AGENT))
    timer = f"{units.UNIT_DIR}/slotward-deadline@slotward.timer.d/50-slots.conf"
    kept = "slotward.service slotward-helper.service" if mode == "helper" else "slotward.service"
    assert dict(keys(files[timer].text))["PropagatesReloadTo"] == kept
    assert {
        path: file for path, file in files.items() if path in root and not path.endswith(".env") and path != timer
    } == {path: file for path, file in root.items() if not path.endswith(".env") and path != timer}
    added = [path for path in files if path not in root]
    expected = [f"{units.UNIT_DIR}/{name}" for name in BESIDE[mode]]
    if mode != "root":
        expected.append(units_modes.DROPIN)
    assert [path for path in added if path != units_modes.TMPFILES] == expected
    assert (units_modes.TMPFILES in added) == (mode == "start")
    facts = files[f"{units.GUARD_DIR}/guard.d/slotward.env"].text
    assert ("HELPER=slotward-helper.service\n" in facts) == (mode == "helper")
    assert set(added) == set(units_modes.paths_of(mode))
    assert set(units_modes.stale_paths(mode)).isdisjoint(files)
    assert set(units_modes.stale_paths(mode)) | set(added) == {
        path for other in MODES for path in units_modes.paths_of(other)
    }
    if mode != "root":
        assert units_modes.mode_of(files[units_modes.DROPIN].text) == (mode, "slotward")


def test_the_mode_of_what_is_no_drop_in_of_ours() -> None:
    """A file that somebody wrote or emptied is root mode's: nothing of root's part is there then."""
    assert units_modes.mode_of("") == ("root", "root")
    assert units_modes.mode_of("[Service]\nUser=games\n") == ("root", "games")


@pytest.mark.parametrize("mode", ["helper", "start"])
def test_the_daemon_wants_root_s_part_and_never_requires_it(mode: str) -> None:
    """DESIGN 9: with Requires= a crash-looping helper takes the daemon down; the account is the configuration's."""
    found = keys(by_path(units.render(HELPED, 252, MODES[mode]))[units_modes.DROPIN].text)
    part = {"helper": "slotward-helper.service", "start": "slotward-apply.service"}[mode]
    assert ("Wants", part) in found
    assert ("After", part) in found
    assert {"Requires", "BindsTo", "Requisite", "StateDirectory", "ProcSubset"}.isdisjoint(dict(found))
    assert (dict(found)["User"], dict(found)["Group"]) == ("slotward", "keepers")


def _has_something_to_do(slots: pathlib.Path, data: pathlib.Path) -> bool:
    """Whether the unit of start mode would run, by the very line that systemd runs."""
    agent = MODES["start"]._replace(data_dir=str(data))
    files = by_path(units.render(SELF._replace(slots_dir=str(slots)), 252, agent))
    line = dict(keys(files[f"{units.UNIT_DIR}/slotward-apply.service"].text))["ExecCondition"]
    assert not re.search(r"(?<!\$)\$(?!\$)", line), "systemd would take it for a variable of its own"
    return subprocess.run(shlex.split(line.replace("$$", "$")), check=False).returncode == 0


@pytest.mark.parametrize("how", ["file", "link to nothing"])
def test_whatever_a_cut_leaves_is_settled_before_a_start_of_start_mode(tmp_path: pathlib.Path, how: str) -> None:
    """node.md, row 5: the next start clears the leftovers; a trial and a request are carried on; at rest nothing runs."""
    slots, data = tmp_path / "slots", tmp_path / "data"
    slots.mkdir()
    (data / "staging").mkdir(parents=True)
    for name in ("a", "b", "slots.json", "update.json.copy", "asked.json", "trial.broken-1", "lock"):
        (slots / name).touch()
    for name in ("current", "good"):
        (slots / name).symlink_to("a")
    assert not _has_something_to_do(slots, data)
    names = [*settle.WAYS_BACK, *settle.TRIAL_NAMES, "back.tmp", "slots.json.copy.tmp", ".trial.Xy12"]
    assert settle.leftovers(settle.State("a", "a", in_use=True), names) == tuple(sorted(names))
    wanted = [slots / name for name in (*names, "trial", "trial.revert", "trial.confirm")]
    for path in [*wanted, data / "staging" / "apply"]:
        path.touch() if how == "file" else path.symlink_to("nothing")
        assert _has_something_to_do(slots, data), path
        path.unlink()
    assert not _has_something_to_do(slots, data)


def test_a_pending_trial_s_further_starts_wait_for_nothing_in_start_mode(tmp_path: pathlib.Path) -> None:
    """The guard counts them; root's part runs once a claim, a request, or links that went back give it something to do."""
    slots, data = tmp_path / "slots", tmp_path / "data"
    slots.mkdir()
    (data / "staging").mkdir(parents=True)
    for name in ("a", "b", "trial", "trial.log", "trial.sources"):
        (slots / name).touch()
    for name, slot in (("current", "b"), ("good", "a"), ("back", "a")):
        (slots / name).symlink_to(slot)
    assert not _has_something_to_do(slots, data)
    for path in (slots / "trial.revert", slots / "trial.confirm", data / "staging" / "apply"):
        path.touch()
        assert _has_something_to_do(slots, data), path
        path.unlink()
    (slots / "current").unlink()
    assert _has_something_to_do(slots, data), "a link is gone"
    (slots / "current").symlink_to("a")
    assert _has_something_to_do(slots, data), "the guard has gone back"


def test_the_helper_s_unit() -> None:
    """privilege.md 4: it starts its own link, is ready when it says so, is not restarted after it refused to start."""
    files = by_path(units.render(HELPED, 252, MODES["helper"]))
    found = dict(keys(files[f"{units.UNIT_DIR}/slotward-helper.service"].text))
    assert found["ExecStart"] == "/opt/slotward/slotward/helper helper --config /etc/slotward/config.toml"
    assert (found["Type"], found["Restart"], found["RestartSec"]) == ("notify", "always", "1s")
    assert (found["RestartPreventExitStatus"], found["StartLimitIntervalSec"]) == ("5", "0")
    assert (found["RuntimeDirectory"], found["RuntimeDirectoryMode"]) == ("slotward-helper", "0755")
    assert "RestartMode" not in dict(
        keys(by_path(units.render(HELPED, 257, MODES["helper"]))[f"{units.UNIT_DIR}/slotward-helper.service"].text)
    )
    assert (found["SupplementaryGroups"], found["RequiresMountsFor"]) == ("keepers", "/opt/slotward/slotward")
    guarded = dict(keys(files[f"{units.UNIT_DIR}/slotward-helper.service.d/50-slotward-rollback.conf"].text))
    assert guarded == {
        "Wants": "slotward-guard@slotward.service",
        "After": "slotward-guard@slotward.service",
        "OnFailure": "slotward-rollback@slotward.service",
    }


@pytest.mark.parametrize(
    ("socket", "runtime", "writable", "made"),
    [
        ("/run/slotward-helper/helper.sock", "slotward-helper", None, ""),
        ("/run/a/b/helper.sock", "a/b", None, ""),
        ("/var/run/c/helper.sock", "c", None, ""),
        ("/run/helper.sock", None, "/run", ""),
        ("/srv/slotward-socket/helper.sock", None, "/srv/slotward-socket", "/srv/slotward-socket"),
    ],
)
def test_D8_the_socket_may_lie_elsewhere(
    socket: str, runtime: Optional[str], writable: Optional[str], made: str
) -> None:
    """D8: below /run systemd makes the directory, elsewhere setup does; the helper may write there and nowhere else."""
    agent = MODES["helper"]._replace(helper_socket=socket)
    files = by_path(units.render(HELPED, 252, agent))
    found = dict(keys(files[f"{units.UNIT_DIR}/slotward-helper.service"].text))
    assert (found.get("RuntimeDirectory"), found.get("ReadWritePaths")) == (runtime, writable)
    assert units_modes.socket_directory(agent)[1] == made


def test_the_timer_ticks_only_while_there_is_a_trial() -> None:
    """DESIGN 4: the condition names the product's own slots; it is there again after a power cut."""
    files = by_path(units.render(DEMO, 252))
    timer = dict(keys(files["/etc/systemd/system/slotward-deadline@demo.timer.d/50-slots.conf"].text))
    assert timer["ConditionPathExists"] == "/srv/slots/demo/trial"
    shared = dict(keys(files["/etc/systemd/system/slotward-deadline@.timer"].text))
    assert (shared["OnUnitInactiveSec"], shared["WantedBy"]) == ("2s", "timers.target")
    assert units.timer_of("demo") == "slotward-deadline@demo.timer"


@pytest.mark.parametrize("kind", ["guard", "rollback", "deadline"])
def test_w5_the_guard_s_units_stand_alone(kind: str) -> None:
    """W5, I6: a unit of its own, clean environment, short timeout, no start limit, no file of the product's side."""
    found = keys(by_path(units.render(DEMO, 252))[f"/etc/systemd/system/slotward-{kind}@.service"].text)
    names = [key for key, _value in found]
    assert dict(found)["StartLimitIntervalSec"] == "0"
    assert dict(found)["Type"] == "oneshot"
    assert dict(found)["TimeoutStartSec"] == {"guard": "40s"}.get(kind, "20s")
    assert "EnvironmentFile" not in names
    assert "LD_PRELOAD" in dict(found)["UnsetEnvironment"]
    assert "GUARD_PROC" in dict(found)["UnsetEnvironment"]


@pytest.mark.parametrize(
    ("product", "agent", "named"),
    [
        (DEMO._replace(slots_dir="/srv/my slots"), None, "slots_dir"),
        (DEMO._replace(slots_dir="srv"), None, "slots_dir"),
        (DEMO._replace(slots_dir="/srv/%i"), None, "slots_dir"),
        (DEMO._replace(slots_dir="/srv\nUNIT=x"), None, "slots_dir"),
        (DEMO._replace(unit="demo"), None, "unit"),
        (DEMO._replace(unit="../demo.service"), None, "unit"),
        (DEMO._replace(unit="-demo.service"), None, "unit"),
        (DEMO._replace(name="Demo"), None, "name"),
        (DEMO._replace(name="a" * 65), None, "name"),
        (DEMO._replace(entrypoint="/usr/local/bin/$x"), None, "entrypoint"),
        (SELF, AGENT._replace(config_path="/etc/a b"), "configuration"),
        (SELF, AGENT._replace(data_dir="/var/lib/'"), "data_dir"),
        (SELF, AGENT._replace(socket_path='/run/"'), "socket_path"),
        (SELF, MODES["helper"]._replace(user="a b"), "user"),
        (SELF, MODES["helper"]._replace(group="%i"), "group"),
        (SELF, MODES["helper"]._replace(helper_socket="/run/%t/x"), "helper's socket"),
    ],
)
def test_what_cannot_stand_in_a_unit_file_is_refused(
    product: products.Product, agent: Optional[units.Agent], named: str
) -> None:
    """Nothing from a configuration breaks out of a unit file: it is refused by name before anything is written."""
    with pytest.raises(codes.BadConfig) as caught:
        units.render(product, 252, agent)
    assert named in caught.value.text


def test_a_unit_of_a_template_is_a_unit() -> None:
    """Instances and escaped names are daemons too."""
    files = units.render(DEMO._replace(unit=r"demo@a\x2db.service"), 252)
    assert files[-1].path == r"/etc/systemd/system/demo@a\x2db.service.d/50-slotward-rollback.conf"


def test_a_second_setup_changes_nothing() -> None:
    """I9: the plan against what was written is empty; against an empty host it is everything."""
    files = units.render(SELF, 252, AGENT)
    host: Dict[str, Tuple[int, bytes]] = {}
    first = units.plan(files, host.get)
    assert [change.what for change in first] == ["create"] * len(files)
    assert units.needs_reload(first)
    host.update({file.path: (file.mode, file.text.encode("utf-8")) for file in files})
    assert units.plan(files, host.get) == ()
    assert not units.needs_reload(())


def test_what_differs_is_named() -> None:
    """An edited file, a lost mode, a missing file."""
    files = units.render(DEMO, 252)
    host = {file.path: (file.mode, file.text.encode("utf-8")) for file in files}
    guard, facts = files[0].path, files[1].path
    host[guard] = (0o644, host[guard][1])
    host[facts] = (0o644, b"UNIT=x\n")
    del host[files[-1].path]
    changes = units.plan(files, host.get)
    assert changes == (
        units.Change(guard, "mode"),
        units.Change(facts, "update"),
        units.Change(files[-1].path, "create"),
    )
    assert units.needs_reload(changes)
    assert not units.needs_reload(changes[:2])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("mode", MODES)
def test_w9_systemd_analyze_finds_nothing(tmp_path: pathlib.Path, mode: str) -> None:
    """W9: the units, as one set, verified by the systemd of this machine. Real hosts do the same for three versions."""
    version = int(subprocess.run(["systemd-analyze", "--version"], capture_output=True, check=True).stdout.split()[1])
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n", encoding="ascii")
    program.chmod(0o755)
    shown = []
    for name in ("good", "helper"):
        (tmp_path / name).symlink_to(program)
    product = HELPED._replace(entrypoint=str(program), slots_dir=str(tmp_path))
    for file in units.render(product, version, MODES[mode]._replace(user="games", group="games")):
        if file.path.startswith(units.UNIT_DIR):
            path = tmp_path / "units" / file.path[len(units.UNIT_DIR) + 1 :]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text.replace(units.GUARD_DIR + "/guard", str(program)), encoding="utf-8")
            if path.parent.name == "units":
                shown.append(str(path))
    templates = [name.replace("@.", "@slotward.") for name in shown]
    for source, name in zip(shown, templates):
        if source != name:
            pathlib.Path(name).write_bytes(pathlib.Path(source).read_bytes())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *templates],
        env={
            "PATH": "/usr/bin:/bin",
            "SYSTEMD_UNIT_PATH": f"{tmp_path}/units:/usr/lib/systemd/system:/lib/systemd/system",
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "slotward" in line] == []
    assert done.returncode == 0, done.stderr
