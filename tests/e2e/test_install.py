# SPDX-License-Identifier: GPL-3.0-or-later
"""Install, update and adoption on real hosts (item 1 of the main path), and doctor's findings."""

from __future__ import annotations

import pytest
from support import modes, releases
from support import node as nodes

pytestmark = pytest.mark.every_mode


def all_ok(node: nodes.Node) -> None:
    """Doctor has nothing to say, but that older Debian lets the group staff write in /usr/local."""
    found = node.doctor()
    if node.sh("stat -c %A /usr/local/lib")[5] == "w":
        found.pop("directories", None)
    assert {name: state for name, (state, _said, _run) in found.items() if state != "ok"} == {}


@pytest.mark.host
@pytest.mark.quick_modes
def test_two_updates_each_end_confirmed(node: nodes.Node, v110: releases.Release, v120: releases.Release) -> None:
    """Each update is on trial first, then confirmed; the floor rises and nothing of a trial is left."""
    before = node.unit().main_pid
    for release, floor, slot in ((v110, 2, "b"), (v120, 3, "a")):
        trial = node.on_trial(release)
        state = node.update()
        assert (state["state"], state["trial"]["to"], state["floor"]) == ("trial", release.version, floor - 1)
        assert node.doctor()["pending update"][0] == "warn"
        answer = node.confirm(trial)
        assert (answer.exit, answer.json["state"], answer.json["floor"]) == (0, "confirmed", floor), answer
        assert (node.link("current"), node.link("good")) == (slot, slot)
        state = node.update()
        assert (state["version"], state["sequence"], state["floor"]) == (release.version, release.sequence, floor)
        assert (state["last"]["state"], state["last"]["code"], state["last"]["id"]) == ("confirmed", "ok", trial)
        node.at_rest()
        node.runnable()
    assert node.running() == "1.2.0"
    assert node.unit().main_pid != before
    all_ok(node)


@pytest.mark.host
def test_i9_everything_may_be_repeated(node: nodes.Node, v100: releases.Release, v110: releases.Release) -> None:
    """A second setup, upgrade, confirmation and rollback of the same thing changes nothing and says so."""
    assert node.setup(v100).json["changed"] is False
    assert node.slotward("setup", "--check").json["changes"] == []
    trial = node.on_trial(v110)
    assert node.confirm(trial).json["changed"] is True
    before = node.sh(f"cat {nodes.SLOTS}/*.json; ls -l {nodes.SLOTS}"), node.unit()
    again = node.confirm(trial)
    assert (again.exit, again.json["state"], again.json["changed"]) == (0, "confirmed", False)
    there = node.begin(v110)
    assert (there.exit, there.json["state"], there.json["changed"]) == (0, "current", False)
    back = node.slotward("rollback")
    assert (back.exit, back.code) == (3, "no-trial")
    assert node.slotward("setup").json["changed"] is False
    after = node.sh(f"cat {nodes.SLOTS}/*.json; ls -l {nodes.SLOTS}"), node.unit()
    assert after[1] == before[1]
    all_ok(node)


@pytest.mark.host
def test_a_first_run_of_setup_tells_all_that_it_would_do(bare: nodes.Node, v100: releases.Release) -> None:
    """`setup --check` on a bare host names every file and changes nothing; the real run then does exactly that."""
    bare.configure()
    told = bare.setup(v100, "--check").json
    assert told["changed"] is True
    assert bare.sh(f"ls {nodes.SLOTS} {nodes.ENTRYPOINT} 2>/dev/null", check=False) == ""
    done = bare.setup(v100).json
    assert done["changes"] == told["changes"]
    bare.enable()
    all_ok(bare)


@pytest.mark.host
@pytest.mark.only_modes(modes.ROOT)
def test_a_hand_made_install_is_adopted_by_its_first_update(
    bare: nodes.Node, v100: releases.Release, v110: releases.Release
) -> None:
    """A plain file at the entrypoint runs on as it is; the first update takes it into a slot, but only with consent."""
    bare.configure()
    bare.host.put(v100.artifact, nodes.ENTRYPOINT, 0o755)
    answer = bare.slotward("setup", *bare.setup_flags)
    assert (answer.exit, answer.json["installed"]) == (0, "later"), answer
    bare.enable()
    assert bare.running() == "1.0.0"
    state = bare.update()
    assert (state["slots"]["in_use"], state["version"], state["floor"]) == (False, "1.0.0", 1)
    assert "adopts /usr/local/bin/slotward" in bare.doctor()["entrypoint"][1]
    before = bare.unit()

    refused = bare.begin(v110)
    assert (refused.exit, refused.code) == (3, "adopt-needs-consent")
    assert refused.message.endswith("agree with --adopt or [update] adopt = true")
    assert bare.unit() == before
    assert bare.sh(f"test -L {nodes.ENTRYPOINT}; echo $?") == "1"

    trial = bare.on_trial(v110, "--adopt")
    assert bare.sh(f"readlink {nodes.ENTRYPOINT}") == f"{nodes.SLOTS}/current"
    state = bare.update()
    assert (state["slots"]["a"]["version"], state["slots"]["b"]["version"]) == ("1.0.0", "1.1.0")
    assert state["floor"] == 1
    assert bare.confirm(trial).json["floor"] == 2
    bare.runnable()
    all_ok(bare)


@pytest.mark.hosts
@pytest.mark.only_modes(modes.HELPER, modes.START)
def test_a_hand_made_install_is_adopted_by_setup_where_root_starts_from_the_slots(
    bare: nodes.Node, v100: releases.Release, v110: releases.Release
) -> None:
    """Root's part starts from a slot, so setup wants the consent at once, and changes nothing without it; then all is as ever."""
    bare.configure()
    bare.host.put(v100.artifact, nodes.ENTRYPOINT, 0o755)
    refused = bare.slotward("setup", *bare.setup_flags)
    assert (refused.exit, refused.code) == (3, "adopt-needs-consent"), refused
    assert bare.sh(f"ls {nodes.SLOTS}/[abc]* 2>/dev/null; id {modes.ACCOUNT} 2>/dev/null", check=False) == (
        f"{nodes.SLOTS}/audit.log"  # which has the refusal
    )
    assert bare.slotward("setup", "--adopt", *bare.setup_flags).exit == 0
    bare.enable()
    assert (bare.running(), bare.link("good")) == ("1.0.0", "a")
    bare.upgraded(v110)
    bare.runnable()
    all_ok(bare)


@pytest.mark.hosts
def test_an_adopted_program_is_what_a_bad_release_goes_back_to(
    bare: nodes.Node, v100: releases.Release, v110: releases.Release
) -> None:
    """The bytes found at the entrypoint are good from their adoption on."""
    bare.configure(adopt=True, trial_length_s=5)
    bare.host.put(v100.artifact, nodes.ENTRYPOINT, 0o755)
    bare.slotward("setup", *bare.setup_flags)  # with consent in the configuration, setup itself adopts
    bare.enable()
    assert bare.update()["slots"]["current"] == "a"
    bare.on_trial(v110)
    bare.goes_back(("deadline-passed",), 15)
    bare.runnable()


@pytest.mark.hosts
def test_a_file_put_over_the_link_is_found_and_adopted_again(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """A package or a script that replaced the link: doctor says so, and the next update starts from that file."""
    node.upgraded(v110)
    node.host.put(v110.artifact, nodes.ENTRYPOINT, 0o755)
    state, said, run = node.doctor()["entrypoint"]
    assert (state, run) == ("fail", "slotward setup --adopt")
    assert "what is in the slots is not what starts" in said
    refused = node.begin(v120)
    assert (refused.exit, refused.code) == (3, "adopt-needs-consent")
    trial = node.on_trial(v120, "--adopt")
    assert node.confirm(trial).json["floor"] == 3
    all_ok(node)


@pytest.mark.hosts
def test_without_pins_doctor_warns_and_every_update_is_refused(
    bare: nodes.Node, v100: releases.Release, v110: releases.Release
) -> None:
    """Seed 000: no pins, no updates; the daemon runs all the same."""
    bare.configure(release_pins=None, release_threshold=None)
    assert bare.command([bare.put(v100.artifact, 0o755), "setup", *bare.setup_flags]).exit == 0
    bare.enable()
    state, said, run = bare.doctor()["release keys"]
    assert (state, said) == ("warn", "no release keys are pinned: every update is refused")
    assert "release_pins" in run
    assert bare.begin(v110).code == "no-pins"
    assert bare.running() == "1.0.0"


@pytest.mark.host
def test_doctor_names_every_guard_file_that_is_missing_or_changed(node: nodes.Node, v110: releases.Release) -> None:
    """A damaged watchdog is found by doctor, refuses an update (I4), and `slotward setup` mends it."""
    node.sh("rm /etc/systemd/system/slotward.service.d/50-slotward-rollback.conf && systemctl daemon-reload")
    node.sh("echo '# changed' >>/usr/local/lib/slotward/guard; systemctl disable -q slotward-deadline@slotward.timer")
    answer = node.slotward("doctor")
    assert answer.exit == 1
    said = " ".join(check["message"] for check in answer.json["checks"] if check["name"] == "guard")
    for part in (
        "50-slotward-rollback.conf",
        "/usr/local/lib/slotward/guard",
        "is not loaded and enabled",
        "OnFailure=",
    ):
        assert part in said
    before = node.unit()
    refused = node.begin(v110)
    assert (refused.exit, refused.code) == (3, "guard-not-installed")
    assert refused.message.endswith("run `slotward setup`")
    if node.mode.name == modes.START:  # what it asks of root is judged at a start
        node.waits(lambda: node.unit().active == "active", 20, "the daemon runs again")
    else:
        assert node.unit() == before
    mended = node.slotward("setup").json
    assert {change["path"] for change in mended["changes"]} == {
        "/etc/systemd/system/slotward.service.d/50-slotward-rollback.conf",
        "/usr/local/lib/slotward/guard",
        nodes.TIMER,
    }
    all_ok(node)
    node.upgraded(v110)
