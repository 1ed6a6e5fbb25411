# SPDX-License-Identifier: GPL-3.0-or-later
"""A daemon whose new version rewrites its data: kept before that, restored with the old version (products.md, section 6)."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator

import pytest
from support import node as nodes
from support import releases, toys

pytestmark = pytest.mark.hosts
STORE = "/var/lib/toy/store"
HOOK = "/usr/local/sbin/toy-{name}"
SNAPSHOT = f'cp {STORE} "$SLOTWARD_SNAPSHOT/store.new" && sync "$SLOTWARD_SNAPSHOT/store.new" && mv "$SLOTWARD_SNAPSHOT/store.new" "$SLOTWARD_SNAPSHOT/store"'
RESTORE = f'cp "$SLOTWARD_SNAPSHOT/store" {STORE}.old && mv {STORE}.old {STORE}'
SECTIONS = "".join(
    f'[hook-{name}]\ncommand = "{HOOK.format(name=name)}"\ntimeout_s = 20\n' for name in ("snapshot", "restore")
)


def daemon(form: str, converts: bool = False, then: str = "") -> str:
    """A daemon that counts in its store, in its own form, and reads no other unless it converts it."""
    other = f'[ "$form" = {form} ] || exit 9' if not converts else ""
    return (
        f"s={STORE}\n[ -e $s ] || echo {form} 0 >$s\nread -r form n <$s\n{other}\n"
        f"echo {form} $n >$s.tmp; mv $s.tmp $s\n{then}\n"
        f"while :; do n=$((n + 1)); echo {form} $n >$s.tmp; mv $s.tmp $s; sleep 0.1; done\n"
    )


class Store(toys.Toy):
    """A toy with data."""

    def hook(self, name: str, script: str) -> None:
        """Make that hook; each run of it leaves a line."""
        text = f"#!/bin/sh\necho {name} $SLOTWARD_FROM $SLOTWARD_TO >>/var/lib/toy/hooks\n{script}\n"
        self.node.host.write(HOOK.format(name=name), text, 0o755)

    def hooks(self) -> list[str]:
        """Which hooks ran."""
        return self.node.sh("cat /var/lib/toy/hooks 2>/dev/null; true").splitlines()

    def store(self) -> tuple[str, int]:
        """The form of the data, and how far it has counted."""
        form, number = self.node.sh(f"cat {STORE}").split()
        return form, int(number)

    def newer(self, version: str = "1.1.0", sequence: int = 2, then: str = "") -> pathlib.Path:
        """A release whose data has another form."""
        return self.release(version, sequence, daemon("v2", True, then), more=("--epoch", "1"))

    def kept(self) -> bool:
        """Whether the slots say that data is kept which may have to be restored."""
        return self.node.sh(f"test -e {self.slots}/snapshot && echo yes; true") == "yes"

    def clear(self) -> None:
        """Remove it, its data and its hooks."""
        super().clear()
        self.node.sh(
            f"rm -rf /var/lib/toy {HOOK.format(name='*')} /etc/systemd/system/slotward-data@{self.name}.service.d"
        )


@pytest.fixture
def toy(node: nodes.Node, shop: releases.Workshop) -> Iterator[Store]:
    """A toy with data and hooks, adopted."""
    node.fresh(shop.release("1.0.0", 1))
    made = Store(node)
    made.clear()
    node.sh("mkdir -p /var/lib/toy")
    made.hook("snapshot", SNAPSHOT)
    made.hook("restore", RESTORE)
    made.install("1.0.0", daemon("v1"))
    made.describe(SECTIONS, trial_length_s=8)
    answer = made.slotward("setup", "--adopt")
    assert answer.exit == 0, answer
    yield made
    made.clear()


@pytest.mark.host
def test_X5_data_goes_back_with_the_version(toy: Store) -> None:
    """Kept before the first start of the new version, restored before the old one's: what was written before the switch is there."""
    form, before = toy.store()
    assert form == "v1"
    toy.on_trial(toy.newer())
    toy.node.waits(lambda: toy.store()[0] == "v2", 5, "the new version has changed the data")
    assert toy.kept()
    assert toy.goes_back(["deadline-passed"], 20)["to"] == "1.1.0"
    form, after = toy.store()
    assert (form, after >= before) == ("v1", True)
    assert toy.hooks() == ["snapshot 1.0.0 1.1.0", "restore 1.0.0 1.1.0"]
    assert not toy.kept()
    assert toy.update()["state"] == "rolled-back"


def test_a_confirmed_release_keeps_its_data_and_one_copy(toy: Store) -> None:
    """Nothing is restored any more; the next copy takes the place of the one before."""
    toy.upgraded(toy.newer())
    assert not toy.kept()
    first = toy.node.sh(f"ls {toy.slots}/snapshots")
    toy.node.sh(f"systemctl restart {toy.unit}")
    assert toy.store()[0] == "v2"
    assert toy.hooks() == ["snapshot 1.0.0 1.1.0"]
    toy.upgraded(toy.release("1.2.0", 3, daemon("v3", True), more=("--epoch", "2")))
    second = toy.node.sh(f"ls {toy.slots}/snapshots")
    assert len(second.split()) == 1
    assert second != first
    toy.upgraded(toy.release("1.3.0", 4, daemon("v3"), more=("--epoch", "2")))
    assert len(toy.hooks()) == 2


def test_a_crash_loop_brings_the_data_back(toy: Store) -> None:
    """The new version converts the data and dies: kept once, restored once, before the old version's first start."""
    toy.on_trial(toy.newer(version="1.1.1", then="exit 3"))
    assert toy.goes_back(["crash-loop"], 20)["code"] == "crash-loop"
    assert toy.store()[0] == "v1"
    assert toy.hooks() == ["snapshot 1.0.0 1.1.1", "restore 1.0.0 1.1.1"]


def test_an_operator_takes_the_data_back(toy: Store) -> None:
    """The agent moves the links then, and the start of the unit restores all the same."""
    trial = toy.on_trial(toy.newer())
    toy.node.waits(lambda: toy.store()[0] == "v2", 5, "the new version has changed the data")
    assert toy.slotward("rollback", "--id", trial).json["state"] == "rolled-back"
    toy.node.waits(lambda: toy.store()[0] == "v1" and not toy.kept(), 10, "the data is restored")
    toy.node.waits(lambda: toy.node.unit(toy.unit).active == "active", 5, "the old version runs")


def test_data_that_cannot_be_kept_starts_nothing_new(toy: Store) -> None:
    """The trial ends before the new version has run, and the old one starts."""
    toy.hook("snapshot", "echo no room >&2; exit 1")
    toy.on_trial(toy.newer())
    assert toy.goes_back(["snapshot-failed"], 15)["state"] == "rolled-back"
    assert toy.store()[0] == "v1"
    assert not toy.kept()


def test_a_restore_that_fails_leaves_the_unit_down_until_it_is_mended(toy: Store) -> None:
    """Three tries, then it is said; nothing is swapped to; once the hook is mended a start restores and runs."""
    toy.hook("restore", "exit 5")
    toy.on_trial(toy.newer())
    toy.node.waits(lambda: toy.hooks().count("restore 1.0.0 1.1.0") == 3, 40, "three tries")
    time.sleep(5)
    assert toy.hooks().count("restore 1.0.0 1.1.0") == 3
    found = toy.update()
    assert (found["state"], found["code"], found["last"]["code"]) == (
        "rollback-failed",
        "restore-failed",
        "deadline-passed",
    )
    assert toy.node.unit(toy.unit).main_pid == 0
    assert toy.store()[0] == "v2"
    refused = toy.begin(toy.release("1.2.0", 3, daemon("v1")), "--start")
    assert (refused.exit, refused.code) == (4, "restore-pending"), refused
    toy.hook("restore", RESTORE)
    toy.node.sh(f"systemctl restart {toy.unit}")
    assert toy.store()[0] == "v1"
    assert toy.update()["state"] == "rolled-back"
    toy.upgraded(toy.release("1.2.0", 3, daemon("v1")))


def test_P6_a_cut_in_the_middle_of_a_snapshot_makes_it_anew(toy: Store) -> None:
    """The new version has not run; at the next boot the data is kept from the beginning, and the trial goes on."""
    once = "[ -e /var/lib/toy/once ] || { touch /var/lib/toy/once; sleep 15; }"
    toy.hook("snapshot", f"echo half >$SLOTWARD_SNAPSHOT/half-$(cat {STORE} | cut -d' ' -f2); {once}\n{SNAPSHOT}")
    trial = toy.on_trial(toy.newer())
    toy.node.waits(lambda: "snapshot 1.0.0 1.1.0" in toy.hooks(), 10, "the copy has begun")
    assert toy.store()[0] == "v1"
    toy.node.host.cut()
    toy.node.host.boot()
    toy.node.waits(lambda: toy.store()[0] == "v2", 20, "the new version runs")
    assert toy.kept()
    assert len(toy.node.sh(f"ls {toy.slots}/snapshots/{trial}").split()) == 2
    assert toy.goes_back(["deadline-passed"], 25)["to"] == "1.1.0"
    assert toy.store()[0] == "v1"


def test_P6_a_cut_in_the_middle_of_a_restore_restores_at_the_next_boot(toy: Store) -> None:
    """What was half restored is restored in full before the old version starts."""
    toy.hook("restore", f"echo torn >{STORE}; [ -e /var/lib/toy/booted ] || sleep 15\n{RESTORE}")
    toy.on_trial(toy.newer())
    toy.node.waits(lambda: "restore 1.0.0 1.1.0" in toy.hooks(), 25, "the restore has begun")
    toy.node.sh("touch /var/lib/toy/booted; sync")
    toy.node.host.cut()
    toy.node.host.boot()
    toy.node.waits(lambda: toy.node.unit(toy.unit).active == "active", 20, "the old version runs")
    assert toy.store()[0] == "v1"
    assert not toy.kept()
    assert toy.update()["state"] == "rolled-back"


def test_a_release_that_cannot_be_undone_is_taken_at_an_operators_word_alone(toy: Store) -> None:
    """X5: without hooks it is refused at prepare; agreed to it is audited, and going back says what the old version meets."""
    toy.describe(trial_length_s=6)
    assert toy.slotward("setup", "--adopt").exit == 0
    refused = toy.begin(toy.newer())
    assert (refused.exit, refused.code) == (3, "cannot-be-undone"), refused
    assert "--accept-one-way" in refused.message
    toy.on_trial(toy.newer(), "--accept-one-way")
    toy.node.waits(lambda: toy.update()["trial"] is None, 20, "it goes back")
    last = toy.update()["last"]
    assert "data of epoch 1 stays, which 1.0.0 with epoch 0 may not read" in last["why"]
    assert toy.hooks() == []
    audited = toy.slotward("audit").json["lines"]
    assert [line["why"] for line in audited if line["event"] == "one-way"], audited


def test_more_starts_than_a_trial_may_have(toy: Store) -> None:
    """`max_starts`: by whomever they were asked for; the next start is the old version's."""
    toy.describe(SECTIONS, max_starts=2, trial_length_s=60)
    assert toy.slotward("setup", "--adopt").exit == 0
    toy.on_trial(toy.newer())
    toy.node.waits(lambda: toy.store()[0] == "v2", 5, "the new version runs")
    toy.node.sh(f"systemctl restart {toy.unit}; sleep 1; systemctl restart {toy.unit}")
    assert toy.goes_back(["too-many-starts"], 15)["to"] == "1.1.0"
    assert toy.store()[0] == "v1"
