# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's policy on a real host: one gate before every way to a release, at once and without a restart, and no other effect."""

from __future__ import annotations

import json
import pathlib

import pytest
from support import broken, releases
from support import node as nodes

SCRIPT = (
    "import json,socket; s=socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect('/run/slotward/status.sock');"
    "print(json.dumps(json.loads(s.makefile().read())['policy']))"
)
LOOK = (
    f"cd {nodes.SLOTS}; sha256sum a b slots.json update.json; readlink current good; ls -A {nodes.STAGING} 2>&1 || true"
)
DISABLED = "updates of slotward are disabled on this host ([update] enabled = false)"

pytestmark = pytest.mark.hosts


def prepare(node: nodes.Node, release: releases.Release, *flags: str, **fields: str) -> nodes.Answer:
    """What prepare answers for a release whose file was pushed."""
    return node.slotward(
        "prepare", "--target", node.target(release, **fields), "--src", node.put(release.artifact), *flags
    )


@pytest.mark.host
def test_a_changed_policy_counts_at_once_and_without_a_restart(installed: nodes.Node, v110: releases.Release) -> None:
    """The running daemon's status has the new one, the next command goes by it, and the process is the same."""
    before = installed.unit()
    assert json.loads(installed.sh(f'python3 -c "{SCRIPT}"'))["enabled"] is True
    assert prepare(installed, v110).exit == 0
    installed.configure(enabled=False, allowed_channels="lts", rollback_grace=3)
    installed.waits(
        lambda: (
            json.loads(installed.sh(f'python3 -c "{SCRIPT}"'))
            == {
                "enabled": False,
                "allowed_channels": ["lts"],
                "min_version": None,
                "rollback_grace": 3,
                "same_major": False,
                "strict_sequence": False,
            }
        ),
        3,
        "the daemon's status has the new policy",
    )
    answer = prepare(installed, v110)
    assert (answer.exit, answer.code, answer.message) == (3, "updates-disabled", DISABLED)
    installed.configure(allowed_channels="lts")
    assert prepare(installed, v110).code == "channel-not-allowed"
    installed.configure()
    assert installed.upgraded(v110).json["to"] == "1.1.0"
    assert before.restarts == 0


def test_L6_a_hold_is_shown_as_such(installed: nodes.Node) -> None:
    """In update, its lines and doctor; no state, code or exit status calls it an error."""
    installed.configure(enabled=False)
    state = installed.update()
    assert (state["state"], state["code"], state["policy"]["enabled"]) == ("idle", "ok", False)
    assert "updates are disabled on this host ([update] enabled = false)" in installed.sh("slotward update")
    assert installed.doctor()["policy"][0] == "warn"
    assert installed.sh("slotward doctor >/dev/null; echo $?") == "0"


def test_C10_every_way_to_a_release_is_behind_one_gate(
    installed: nodes.Node, v110: releases.Release, v100: releases.Release
) -> None:
    """Prepare, upgrade, staging alone, the other slot, and setup with another program: refused alike, nothing changed."""
    trial = installed.on_trial(v110)
    installed.slotward("rollback", "--id", trial)
    installed.slotward("update", "--clear-failed")
    target, program = installed.target(v110), installed.put(v110.artifact, 0o755)
    installed.configure(enabled=False)
    before = installed.sh(LOOK), installed.unit()
    for words in (
        ("prepare", "--target", target),
        ("prepare", "--target", target, "--src", program),
        ("upgrade", "--target", target, "--no-wait"),
        ("upgrade", "--target", target, "--src", program, "--no-wait"),
        ("upgrade", "--target", target, "--src", program, "--stage-only"),
    ):
        answer = installed.slotward(*words)
        assert (answer.exit, answer.code, answer.message) == (3, "updates-disabled", DISABLED), words
    assert (installed.sh(LOOK), installed.unit()) == before
    there = prepare(installed, v100)
    assert (there.exit, there.json["state"], there.code) == (0, "current", "ok")
    manifest = installed.put(v110.manifest, name="1.1.0.manifest.json")
    installed.sh(f"rm {nodes.SLOTS}/a")
    mended = installed.command([program, "setup", "--from", program, "--manifest", manifest])
    assert (mended.exit, mended.code) == (3, "updates-disabled"), mended
    assert installed.setup(v100).json["installed"] == "install", "the very version that was there is no update"


@pytest.mark.host
@pytest.mark.parametrize("end", ["confirm", "rollback", "guard"])
def test_a_hold_never_touches_a_pending_trial(installed: nodes.Node, v110: releases.Release, end: str) -> None:
    """It ends as it would have: confirmed, taken back, or ended by the guard; settling leaves it waiting."""
    if end == "guard":
        kind = broken.named("exit1")
        installed.on_trial(installed.shop.release("1.16.0", 16, kind), "--no-smoke")
        installed.configure(enabled=False)
        installed.goes_back(("crash-loop", "deadline-passed"), within=40)
        return
    trial = installed.on_trial(v110)
    installed.configure(enabled=False)
    other = prepare(installed, installed.shop.release("1.2.0", 3))
    assert (other.exit, other.code) == (4, "trial-pending")
    assert installed.slotward("settle").exit == 0
    assert installed.update()["trial"]["id"] == trial
    if end == "rollback":
        answer = installed.slotward("rollback", "--id", trial)
        assert (answer.exit, answer.json["state"]) == (0, "rolled-back")
    else:
        answer = installed.confirm(trial)
        assert (answer.exit, answer.json["state"], answer.json["floor"]) == (0, "confirmed", 2), answer
    assert installed.update()["policy"]["enabled"] is False


def test_channels_asked_for_and_offered(installed: nodes.Node, v110: releases.Release) -> None:
    """What is asked for must be taken, what is offered must be it, and the other slot is asked too."""
    beta = installed.shop.release("1.17.0", 17, more=("--channel", "beta"))
    asked = prepare(installed, v110, channel="beta")
    assert (asked.code, asked.message) == ("channel-not-allowed", "channel beta is asked for; this host takes stable")
    installed.configure(allowed_channels="beta,stable")
    assert prepare(installed, v110, channel="stable").exit == 0
    other = prepare(installed, v110, channel="beta")
    assert (other.code, other.message) == ("wrong-channel", "the manifest is on channel stable, asked for is beta")
    trial = installed.on_trial(beta)
    installed.slotward("rollback", "--id", trial)
    installed.slotward("update", "--clear-failed")
    assert prepare(installed, beta).json["reuse"] is True
    installed.configure()
    closed = prepare(installed, beta)
    assert (closed.exit, closed.code) == (3, "channel-not-allowed"), closed
    assert closed.message == "the manifest is on channel beta; this host takes stable"


def test_how_far_back_and_which_major(installed: nodes.Node) -> None:
    """A lower version with a higher sequence is taken as far as the host goes back, and no further."""
    shop = installed.shop
    installed.upgraded(shop.release("1.21.0", 21))
    near, far, next_major = shop.release("1.20.0", 22), shop.release("1.19.0", 23), shop.release("2.0.0", 24)
    assert prepare(installed, near).exit == 0
    assert prepare(installed, far).code == "too-far-back"
    installed.configure(rollback_grace=2, min_version="1.20.0")
    assert prepare(installed, far).code == "below-min-version"
    installed.configure(rollback_grace=2, same_major=True)
    assert prepare(installed, far).exit == 0
    assert prepare(installed, next_major).code == "other-major"
    installed.configure(strict_sequence=True, release_sequence=22)
    same = prepare(installed, near)
    assert (same.code, same.message) == (
        "sequence-not-newer",
        "release sequence 22 is not above the floor 22 ([update] strict_sequence)",
    )


def test_i8_a_policy_out_of_its_bounds_refuses_updates_and_nothing_else(
    installed: nodes.Node, v110: releases.Release
) -> None:
    """The daemon runs on through a restart, and config check names the place."""
    installed.configure(rollback_grace=101)
    installed.sh(f"systemctl restart {nodes.UNIT}")
    answer = prepare(installed, v110)
    assert (answer.exit, answer.code) == (5, "bad-config")
    checked = installed.slotward("config", "check")
    assert (checked.exit, checked.code, len(checked.json["problems"])) == (5, "bad-config", 1)
    assert "rollback_grace: expected an integer from 0 to 100, found 101" in checked.json["problems"][0]
    assert installed.unit().active == "active"
    assert installed.running() == "1.0.0"


def test_N9_a_release_that_expired_by_the_controller_s_clock(installed: nodes.Node, v110: releases.Release) -> None:
    """It is refused whatever the host's clock says, and the sentence has both; a time that is none is a wrong command line."""
    answer = prepare(installed, v110, "--server-time", "2999-01-01T00:00:00Z")
    assert (answer.exit, answer.code) == (3, "expired")
    assert ": this host's clock says 20" in answer.message
    assert answer.message.endswith(" and whoever asks says 2999-01-01T00:00:00Z: set the one that is wrong")
    path = installed.target(v110)
    upgraded = installed.slotward("upgrade", "--target", path, "--no-wait", "--server-time", "2999-01-01T00:00:00Z")
    assert (upgraded.exit, upgraded.code) == (3, "expired")
    assert prepare(installed, v110, "--server-time", "1999-01-01T00:00:00Z").exit == 0
    assert installed.sh(f"slotward prepare --target {path} --server-time noon 2>&1; echo $?").endswith("\n2")


def overlay(path: pathlib.Path, name: str, old: str, new: str) -> pathlib.Path:
    """What is laid over a build: one file of this tree with a change in it."""
    source = (
        releases.ROOT / "plugins/module_utils" if name.startswith("slotcore") else releases.ROOT / "agent/src"
    ) / name
    text = source.read_text(encoding="utf-8")
    assert text.count(old) == 1
    made = path / name
    made.parent.mkdir(parents=True)
    made.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_the_staged_release_judges_the_configuration_before_the_switch(
    installed: nodes.Node, tmp_path: pathlib.Path
) -> None:
    """What it would not take is told and nothing is switched; with the file mended the same upgrade goes through."""
    bounds = '1, "minor versions below the running one that may be taken", 0, 100'
    extra = overlay(tmp_path, "slotcore/config.py", bounds, bounds.replace("0, 100", "0, 2"))
    strict = installed.shop.release("1.25.0", 25, extra=extra)
    installed.configure(rollback_grace=7)
    before = installed.unit()
    answer = installed.begin(strict)
    assert (answer.exit, answer.code, answer.json["state"]) == (5, "bad-config", "refused"), answer
    assert "slotward 1.25.0 does not take this configuration: /etc/slotward/config.toml:" in answer.message
    assert "rollback_grace: expected an integer from 0 to 2, found 7" in answer.message
    assert (installed.unit(), installed.link("current"), installed.update()["failed"]) == (before, "a", [])
    installed.configure(rollback_grace=2)
    installed.upgraded(strict)
    installed.at_rest()


def test_a_release_without_that_command_is_taken(installed: nodes.Node, tmp_path: pathlib.Path) -> None:
    """It ends with status 2, as for any word that it does not know."""
    extra = overlay(tmp_path, "slotward/cli_flags.py", '        "config",\n', '        "configuration",\n')
    installed.upgraded(installed.shop.release("1.26.0", 26, extra=extra))
