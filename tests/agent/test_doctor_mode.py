# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says of the mode, of root's part and of the sandbox that systemd has in force (field case D8)."""

from __future__ import annotations

import os
import pathlib
from typing import Dict, List

import pytest
from agent.places import Place

from slotcore import config as configs
from slotward import accounts, doctor_mode, doctor_sandbox, own, ways

TAKE_OUT = "`systemctl cat {0}` shows where from: take it out, then systemctl restart {0}".format(
    "slotward-helper.service"
)
USER = accounts.Account("slotward", 999, 998, "slotward")
DAEMON = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "User": "slotward",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "ReadWritePaths": "-/var/lib/slotward",
    "RuntimeDirectory": "slotward",
}
HELPER = {**DAEMON, "User": "", "ReadWritePaths": "", "RuntimeDirectory": "slotward-helper"}
RISK = ways.Risk("/usr/local/lib", "mode 2775, group 50", "chmod go-w /usr/local/lib")
WELL = doctor_mode.Look(
    mode="helper",
    user="slotward",
    account=USER,
    runs_as=999,
    writes=("/var/lib/slotward", "/run/slotward"),
    helper_writes="/run/slotward-helper",
    slots="/opt/slotward/slotward",
    unreachable=(),
    risks=(),
    steps=(),
    refusal="",
    helper_runs="",
    units={"slotward.service": DAEMON, "slotward-helper.service": HELPER},
)
ROOT = WELL._replace(
    mode="root", user="root", account=accounts.ROOT, runs_as=0, units={"slotward.service": {**DAEMON, "User": ""}}
)
START = WELL._replace(mode="start", units={"slotward.service": DAEMON})


def bad(look: doctor_mode.Look) -> List[doctor_mode.Found]:
    """The findings that are not ok; each says what to run."""
    found = [one for one in doctor_mode.findings(look) if one[1] != "ok"]
    assert all(one[3] for one in found)
    return found


@pytest.mark.parametrize("look", [WELL, ROOT, START], ids=["helper", "root", "start"])
def test_a_host_in_its_mode_is_well(look: doctor_mode.Look) -> None:
    """Nothing but ok, and the mode is named."""
    assert bad(look) == []
    assert doctor_mode.findings(look)[0][2].startswith(f"{look.mode}: slotward.service runs as {look.user}")


def with_daemon(look: doctor_mode.Look, **more: str) -> doctor_mode.Look:
    """The same with other properties in force."""
    return look._replace(units={**look.units, "slotward.service": {**look.units["slotward.service"], **more}})


def with_helper(**more: str) -> doctor_mode.Look:
    """The same with other properties of the helper's unit."""
    return WELL._replace(units={**WELL.units, "slotward-helper.service": {**HELPER, **more}})


@pytest.mark.parametrize(
    ("look", "name", "said", "run"),
    [
        (with_daemon(WELL, User=""), "mode", "systemd has User=root", "slotward setup"),
        (with_daemon(ROOT, User="games"), "mode", "systemd has User=games", "slotward setup"),
        (
            with_daemon(ROOT, User="games")._replace(written="root"),
            "mode",
            "systemd has User=games",
            doctor_mode.TAKE_OUT,
        ),
        (
            with_daemon(WELL, User="")._replace(written="slotward"),
            "mode",
            "systemd has User=root",
            doctor_mode.TAKE_OUT,
        ),
        (WELL._replace(runs_as=0), "mode", "still runs as uid 0", "systemctl restart slotward.service"),
        (
            WELL._replace(account=None, runs_as=None),
            "account",
            "there is no account slotward",
            "slotward setup makes it; or correct [helper] user in the configuration",
        ),
        (
            WELL._replace(account=USER._replace(uid=0), runs_as=0),
            "account",
            "has uid 0",
            "set [helper] user to an account of its own, then slotward setup",
        ),
        (
            WELL._replace(steps=(("/etc/slotward/config.toml", "owner root:slotward 0640"),)),
            "ownership",
            "/etc/slotward/config.toml is not as helper mode needs it: owner root:slotward 0640",
            "slotward setup",
        ),
        (
            WELL._replace(refusal="data_dir /x is strange"),
            "ownership",
            "data_dir /x is strange",
            "slotward setup --check",
        ),
        (
            WELL._replace(risks=(RISK,)),
            "directories",
            "/usr/local/lib (mode 2775, group 50)",
            "chmod go-w /usr/local/lib",
        ),
        (
            with_helper(ActiveState="failed", ExecMainStatus="1"),
            "helper",
            "is failed (status 1): updates are refused",
            "systemctl enable --now slotward-helper.service, or journalctl -u slotward-helper.service -n 20",
        ),
        (
            with_helper(ActiveState="failed", ExecMainStatus="5"),
            "helper",
            "refuses to start: its last words are in the journal",
            "journalctl -u slotward-helper.service -n 20",
        ),
        (WELL._replace(helper_runs="helper names a, current b"), "helper", "helper names a", "slotward settle"),
        (
            WELL._replace(unreachable=(("slotward cannot start /x", "chmod o+x /y"),)),
            "sandbox",
            "slotward cannot start /x",
            "chmod o+x /y",
        ),
        (
            with_helper(RuntimeDirectory=""),
            "sandbox",
            "slotward-helper.service may not write in /run/slotward-helper, which it needs: ProtectSystem=strict",
            TAKE_OUT,
        ),
        (with_daemon(WELL, RootDirectory="/srv/x"), "sandbox", "has RootDirectory=", "systemctl cat slotward.service"),
    ],
)
def test_what_is_wrong_is_named_with_what_mends_it(look: doctor_mode.Look, name: str, said: str, run: str) -> None:
    """One thing wrong, one finding."""
    (found,) = bad(look)
    assert found[0] == name
    assert said in found[2]
    assert found[3] == run


def test_a_helper_that_refuses_to_start_says_why() -> None:
    """Exit 5, and a directory that others may write: the reason, and the command that ends it."""
    look = with_helper(ActiveState="failed", ExecMainStatus="5")._replace(risks=(RISK,))
    (found,) = [one for one in bad(look) if one[0] == "helper"]
    assert "refuses to start: others may change /usr/local/lib (mode 2775, group 50)" in found[2]
    assert found[3] == "chmod go-w /usr/local/lib && systemctl restart slotward-helper.service"


@pytest.mark.parametrize(
    ("more", "path", "why"),
    [
        ({}, "/var/lib/slotward", ""),
        ({"ReadWritePaths": ""}, "/var/lib/slotward", "ProtectSystem=strict, and no ReadWritePaths= has it"),
        ({"ReadWritePaths": "", "StateDirectory": "slotward"}, "/var/lib/slotward", ""),
        ({"ReadWritePaths": "/var"}, "/var/lib/slotward", ""),
        ({"ReadWritePaths": "/var/lib/slot"}, "/var/lib/slotward", "ProtectSystem=strict, and no ReadWritePaths= has it"),
        ({"ReadWritePaths": "", "ProtectSystem": "full"}, "/var/lib/slotward", ""),
        ({"ReadWritePaths": "", "ProtectSystem": "full"}, "/etc/slotward", "ProtectSystem=full, and no ReadWritePaths= has it"),
        ({"ReadWritePaths": "", "ProtectSystem": "no"}, "/usr/x", ""),
        ({"ReadOnlyPaths": "/var/lib/slotward"}, "/var/lib/slotward", "ReadOnlyPaths= has /var/lib/slotward"),
        ({"ReadOnlyPaths": "/var"}, "/var/lib/slotward", ""),
        ({"InaccessiblePaths": "-/var/lib/slotward/staging"}, "/var/lib/slotward/staging", "InaccessiblePaths= has /var/lib/slotward/staging"),
        ({"ReadWritePaths": "/home/x"}, "/home/x", ""),
        ({"ReadWritePaths": ""}, "/home/x", "ProtectHome=yes hides it"),
        ({"ReadWritePaths": "/tmp/x"}, "/tmp/x", "PrivateTmp=yes gives the unit another one"),
    ],
)  # fmt: skip
def test_D8_which_setting_keeps_a_unit_from_writing(more: Dict[str, str], path: str, why: str) -> None:
    """D8: as systemd has it in force, with every drop-in; of two settings the nearer one counts."""
    assert doctor_sandbox.why_not_writable({**DAEMON, **more}, path) == why


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"InaccessiblePaths": "/opt"}, "InaccessiblePaths= has it"),
        ({"NoExecPaths": "/"}, "NoExecPaths= has it"),
        ({"NoExecPaths": "/", "ExecPaths": "/usr /opt/slotward"}, ""),
    ],
)
def test_D8_which_setting_keeps_a_unit_from_its_program(more: Dict[str, str], why: str) -> None:
    """D8: the slots must be there to be started, in the daemon's sandbox and in the helper's."""
    assert doctor_sandbox.why_not_startable({**DAEMON, **more}, "/opt/slotward/slotward") == why
    found = bad(with_helper(**more))
    assert [one[2] for one in found] == (
        [f"slotward-helper.service may not start /opt/slotward/slotward, which it needs: {why}"] if why else []
    )


def test_d8_a_home_that_is_hidden() -> None:
    """Slots below /home are hidden by ProtectHome=, but for reading only."""
    for value, why in (("yes", "ProtectHome=yes hides it"), ("tmpfs", "ProtectHome=tmpfs hides it"), ("read-only", "")):
        assert doctor_sandbox.why_not_startable({**DAEMON, "ProtectHome": value}, "/home/x/slots") == why


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_d8_what_the_account_cannot_reach(tmp_path: pathlib.Path) -> None:
    """D8: closed directories and files on the way of an account are named with what opens them."""
    account = accounts.Account("games", 5, 60, "games")
    for path in (tmp_path, *tmp_path.parents):
        if path.parts[:2] == ("/", "tmp") and len(path.parts) > 2:
            path.chmod(0o755)
    place = tmp_path / "opt"
    place.mkdir(0o755)
    program, config = place / "program", tmp_path / "config"
    for path, mode in ((program, 0o755), (config, 0o640)):
        path.touch()
        path.chmod(mode)
    os.chown(config, 0, account.gid)
    assert doctor_sandbox.unreachable(account, str(program), str(config)) == []
    os.chown(config, 0, 0)
    program.chmod(0o711)
    found = doctor_sandbox.unreachable(account, str(program), str(config))
    assert found == [
        (f"games cannot start {program}: its mode is 0711", "slotward setup"),
        (f"games cannot read {config}: its mode is 0640", "slotward setup"),
    ]
    place.chmod(0o700)
    config.chmod(0o644)
    found = doctor_sandbox.unreachable(account, str(program), str(config))
    assert found == [(f"games cannot start {program}: {place} is closed to it", f"chmod o+x {place}")]


@pytest.mark.parametrize(
    ("more", "state", "said"),
    [
        ("", "ok", "nothing keeps probe.service from its program"),
        ("InaccessiblePaths=-{0}\n", "fail", "probe.service may not start {0}/slots, which it needs: InaccessiblePaths= has it"),
        ("RootDirectory=/srv\n", "warn", "probe.service has RootDirectory=: what it can reach is not known here"),
    ],
)  # fmt: skip
def test_d8_the_sandbox_of_another_product_is_its_own_unit_s(place: Place, more: str, state: str, said: str) -> None:
    """Not the agent's; and what root stages there is nothing that another mode left."""
    (place.slots / "staging").mkdir(0o700)
    (place.root / "show").write_text("LoadState=loaded\n" + more.format(place.root))
    setup = own.Setup(place.product, configs.load(b"", "/nowhere")[0], (), "/etc/x.toml")
    found = doctor_mode.told(setup, place.state())
    assert {one.name for one in found} == {"sandbox"}
    assert (found[0].state, found[0].message) == (state, said.format(place.root))
    (place.root / "show").write_text("LoadState=not-found\n")
    assert doctor_mode.told(setup, place.state()) == []
