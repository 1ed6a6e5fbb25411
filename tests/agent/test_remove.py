# SPDX-License-Identifier: GPL-3.0-or-later
"""What `slotward remove` and `setup` refuse, so that they take nothing away but what is the product's (products.md, section 2)."""

from __future__ import annotations

import os
import pathlib
from typing import Dict, Sequence

import pytest

from agent import places
from slotcore import codes, trial
from slotward import cli_parse, cmd_audit, cmd_remove, host, manager, own, product_files, systemd, unfinished, units

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="remove is root's")

FACTS: Dict[str, str] = {}
SNAPSHOT = b"ID=00112233445566aa\nTO_SLOT=b\nFROM_VERSION=1.0.0\nTO_VERSION=1.1.0\n"


@pytest.fixture(name="place")
def _place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> places.Place:
    """The product `probe`, set up and at rest, its file, and what systemd says of its unit."""
    place = places.Place(tmp_path, tmp_path / "slots")
    (tmp_path / "products.d").mkdir()
    describe(place)
    (tmp_path / "probe").symlink_to(place.slots / "current")

    def show(unit: str, properties: Sequence[str]) -> Dict[str, str]:
        assert unit == "probe.service"
        return {key: FACTS.get(key, "") for key in properties}

    monkeypatch.setattr(systemd, "show", show)
    started(f"{tmp_path}/probe")
    return place


def describe(place: places.Place, name: str = "probe", slots: str = "slots", more: str = "") -> None:
    """Write a product's file."""
    text = f'unit = "{name}.service"\nentrypoint = "{place.root}/{name}"\nslots_dir = "{place.root}/{slots}"\n{more}'
    file = place.root / "products.d" / f"{name}.toml"
    file.write_text(text)
    file.chmod(0o600)


def started(*words: str) -> None:
    """Have the unit start that."""
    FACTS.update(ExecStart=f"{{ path={words[0]} ; argv[]={' '.join(words)} ; ignore_errors=no ; }}", FragmentPath="")


def remove(place: places.Place, *words: str) -> None:
    """Ask what it would do."""
    config = str(place.root / "config.toml")
    cmd_remove.run(cli_parse.parse(["remove", "--product", "probe", "--config", config, "--check", *words], config))


def test_nothing_is_removed_while_data_is_to_be_restored(place: places.Place) -> None:
    """The only copy of the data lies in the slots, and what keeps the old daemon from newer data is what would go."""
    place.write("snapshot", SNAPSHOT)
    with pytest.raises(codes.Retryable, match="still to be restored") as refused:
        remove(place)
    assert refused.value.code == codes.RESTORE_PENDING


def test_nothing_is_removed_by_a_file_with_a_problem(place: places.Place) -> None:
    """A part that is left out for it would lead nowhere afterwards."""
    describe(place, more='layout = "versions"\n[part-unit]\nfrom = "demo.service"\npath = "etc"\n')
    with pytest.raises(codes.BadConfig, match="part-unit"):
        remove(place, "--purge")


@pytest.mark.parametrize(("name", "mode"), [("other", None), ("tool", 0o755)])
def test_purge_takes_no_directory_with_something_of_others(place: places.Place, name: str, mode: int | None) -> None:
    """/opt, /usr/local/bin and their kind are no slots, whatever the product's file says."""
    foreign = place.slots / name
    if mode is None:
        foreign.mkdir()
    else:
        foreign.write_text("#!/bin/sh\n")
        foreign.chmod(mode)
    with pytest.raises(codes.Refused, match=f"not of probe .{name}.") as refused:
        remove(place, "--purge")
    assert refused.value.code == codes.DIRECTORY_UNSAFE


def test_purge_takes_nothing_that_the_unit_still_starts(place: places.Place) -> None:
    """I1: the entrypoint was changed in the product's file, and the unit starts the one before."""
    (place.root / "before").symlink_to(place.slots / "current")
    started(f"{place.root}/before", "--all")
    with pytest.raises(codes.Refused, match=r"still needs .*/before") as refused:
        remove(place, "--purge")
    assert refused.value.code == codes.ENTRYPOINT_ELSEWHERE
    started("/bin/sh", "/etc/passwd")
    FACTS["FragmentPath"] = f"{place.slots}/b"
    with pytest.raises(codes.Refused, match=r"still needs .*/slots/b"):
        remove(place, "--purge")


def test_purge_takes_what_slots_have(place: places.Place) -> None:
    """Trees, copies of data, what is staged, logs that were set aside; and a slot may be run."""
    for name in (*cmd_remove.DIRECTORIES, f"{cmd_audit.ASIDE}1800000000"):
        (place.slots / name).mkdir()
    for name in ("a", "b.tmp"):
        (place.slots / name).touch()
        (place.slots / name).chmod(0o755)
    setup = product_files.load(str(place.root / "config.toml"), "probe")
    cmd_remove.demand_own(setup.product, manager.look(setup.product))


def ask_setup(place: places.Place) -> None:
    """What setup looks at before it changes anything."""
    product = product_files.load(str(place.root / "config.toml"), "probe").product
    unfinished.refuse(product, manager.look(product))


def test_setup_leaves_data_that_is_to_be_restored_to_the_hooks(place: places.Place) -> None:
    """A file without them would let the old daemon start on newer data; with others, what failed can be mended."""
    place.write("snapshot", SNAPSHOT)
    with pytest.raises(codes.Retryable, match="still to be restored"):
        ask_setup(place)
    describe(place, more='[hook-snapshot]\ncommand = "/bin/true"\n[hook-restore]\ncommand = "/bin/true"\n')
    ask_setup(place)


@pytest.mark.parametrize("what", ["trial", "snapshot", "confirm"])
def test_neither_leaves_a_trial_behind_in_other_slots(
    place: places.Place, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """I2: the file names other slots in a trial, and the guard would look there."""
    facts = place.root / "guard.d"
    facts.mkdir()
    (facts / "probe.env").write_text(f"UNIT=probe.service\nSLOTS={place.slots}\n")
    monkeypatch.setattr(units, "GUARD_DIR", str(place.root))
    describe(place, slots="others")
    ask_setup(place)
    if what == "snapshot":
        place.write("snapshot", SNAPSHOT)
    else:
        clock = host.clock()
        until = int(clock.uptime_s) + 60
        pending = places.TRIAL._replace(boot_id=clock.boot_id, length_s=60, deadline_s=until, boots_left=3)
        place.on_trial(trial.render_trial(pending))
        if what == "confirm":
            (place.slots / "trial").rename(place.slots / "trial.confirm")
    with pytest.raises(codes.Retryable):
        ask_setup(place)
    with pytest.raises(codes.Retryable):
        remove(place)


@pytest.mark.parametrize(("mine", "theirs"), [("slots", "slots/more"), ("slots/more", "slots"), ("slots", "slots")])
def test_slots_within_slots_are_a_conflict(place: places.Place, mine: str, theirs: str) -> None:
    """C4: one product's `remove --purge` would take the other's away."""
    describe(place, slots=mine)
    describe(place, "other", theirs)
    config = str(place.root / "config.toml")
    said = product_files.conflicts(config, product_files.load(config, "probe"))
    assert len(said) == 1
    assert "other's" in said[0]


def test_slots_beside_one_another_are_none(place: places.Place) -> None:
    """Names that begin alike are not within one another."""
    describe(place, "other", "slots-more")
    config = str(place.root / "config.toml")
    assert product_files.conflicts(config, product_files.load(config, "probe")) == ()
    assert product_files.conflicts(config, own.load(config)) == (), "the agent is no other product than itself"
