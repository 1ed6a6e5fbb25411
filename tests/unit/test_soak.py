# SPDX-License-Identifier: GPL-3.0-or-later
"""What judges a soak sees each kind of leak, and nothing where there is none: each is made here and has to be told."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hosts"))

from soak import look, run, verdict

MIB = 1 << 20
UNIT = "slotward.service"


def one(number: int, boot: int = 0, **numbers: int) -> verdict.Look:
    """A look at a host on which nothing was left behind; the memory goes up and down a little."""
    counts = {
        "processes": {"/system.slice/slotward.service python#": 1},
        "files": {"/opt/slotward/slotward/a": 1, "/run/slotward/status.sock": 1},
    }
    usual = {
        f"memory of {UNIT}": 12000 + number % 3 * 90,
        "disk /opt/slotward": 3 * MIB,
        "disk /var/lib/slotward": 4096,
        "disk /run": 60000,
        "audit files": 1,
        "audit largest": number * 700,
        "evidence files": min(number, 4),
        "evidence largest": 2000,
    }
    return verdict.Look(boot, counts, {**usual, **{name.replace("_", " "): value for name, value in numbers.items()}})


def series(of: Callable[[int], verdict.Look], length: int = 80) -> list[verdict.Look]:
    """So many looks."""
    return [of(number) for number in range(length)]


def with_thing(look: verdict.Look, kind: str, name: str, count: int) -> verdict.Look:
    """The look with more of something."""
    counts = {key: dict(value) for key, value in look.counts.items()}
    counts.setdefault(kind, {})[name] = count
    return look._replace(counts=counts)


def test_a_host_on_which_nothing_is_left_behind() -> None:
    """No violation, with boots in between, and with things that were there once."""
    looks = series(lambda number: one(number, number // 20))
    looks[30] = with_thing(looks[30], "processes", "cron", 1)
    looks[-1] = with_thing(looks[-1], "processes", "logrotate", 1)
    assert verdict.judge(looks, MIB) == []


@pytest.mark.parametrize("kind", ["processes", "units", "files", "mounts", "descriptors of init"])
@pytest.mark.parametrize("grows", [lambda n: n // 2, lambda n: int(n > 25)], ids=["always", "once"])
def test_what_is_left_behind_is_named(kind: str, grows: Callable[[int], int]) -> None:
    """One with every second upgrade, or one that came once and stayed."""
    found = verdict.judge(series(lambda number: with_thing(one(number), kind, "left", grows(number))), MIB)
    assert [line.split(":")[0] for line in found] == [f"in all, {kind}", f"in boot 0, {kind}"]
    assert all("left" in line for line in found)


def test_a_leak_that_each_boot_takes_away_is_seen_within_a_boot() -> None:
    """Units in memory, files in /run: the last looks after a boot see few of them again."""
    looks = series(lambda number: with_thing(one(number, number // 20), "units", "run-#.scope loaded", number % 20))
    found = verdict.judge(looks, MIB)
    assert [line.partition(",")[0] for line in found] == [f"in boot {number}" for number in range(4)]


@pytest.mark.parametrize(("name", "bound"), [("/opt/s/audit.log.#", 16), ("/opt/s/evidence/#.json", 4)])
@pytest.mark.parametrize("more", [0, 1])
def test_what_is_bounded_may_come_up_to_its_bound(name: str, bound: int, more: int) -> None:
    """Closed logs and evidence come with time; one more than there may be is told."""
    looks = series(lambda number: with_thing(one(number), "files", name, min(number, bound + more)), 80)
    assert len(verdict.judge(looks, MIB)) == more


@pytest.mark.parametrize("step", [40, 100])
def test_memory_that_grows_is_told(step: int) -> None:
    """A few KiB with each upgrade are seen over eighty of them."""
    found = verdict.judge(series(lambda number: one(number, **{f"memory of {UNIT}": 12000 + step * number})), MIB)
    assert found
    assert all(f"memory of {UNIT}" in line for line in found)


@pytest.mark.parametrize(("name", "leaks"), [("memory", False), ("own memory", True)])
def test_what_the_journal_maps_is_no_memory_of_its_own(name: str, leaks: bool) -> None:
    """Its files grow up to a bound of their own; journald's own memory must not."""
    grows = f"{name} of systemd-journald.service"
    found = verdict.judge(series(lambda number: one(number, **{grows: 6000 + 40 * number})), MIB)
    assert bool(found) is leaks, found


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("disk /opt/slotward", lambda n: 4 * MIB + (n == 30) * 10 * MIB),
        ("disk /var/lib/slotward", lambda n: n * 40_000),
        ("disk /run", lambda n: n * 40_000),
        ("audit files", lambda n: 18),
        ("audit largest", lambda n: MIB + 1),
        ("evidence files", lambda n: 5),
        ("evidence largest", lambda n: MIB),
    ],
)
def test_disk_beyond_its_bound_is_told(name: str, of: Callable[[int], int]) -> None:
    """Slots hold two releases, staging one; logs and evidence have their own bounds."""
    found = verdict.judge(series(lambda number: one(number, **{name: of(number)})), MIB)
    assert found
    assert all(name in line for line in found)


def test_too_few_looks_are_no_proof() -> None:
    """A run that ended early is not called good."""
    assert "too few" in verdict.judge(series(one, 9), MIB)[0]
    assert verdict.judge(series(one, 10), MIB) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/opt/slotward/slotward/audit.log.120", "/opt/slotward/slotward/audit.log.#"),
        ("slotward-upgrade-slotward-00000000000000e1.service", "slotward-upgrade-slotward-#.service"),
        (
            "/tmp/systemd-private-4b3f6a526f0e-slotward.service-lMpWcB/tmp",
            "/tmp/systemd-private-#-slotward.service-#/tmp",
        ),
        ("slotward-guard@slotward.service", "slotward-guard@slotward.service"),
    ],
)
def test_things_named_at_random_have_one_name(text: str, name: str) -> None:
    """Else each would be a thing of its own that is there once."""
    assert look.named(text) == name


def test_the_look_sees_files_links_and_descriptors(tmp_path: pathlib.Path) -> None:
    """What a leak would be is counted: a file, a dangling link, a descriptor of a process."""
    (tmp_path / "one.12345678").write_text("x" * 5000)
    (tmp_path / "two").symlink_to("nowhere")
    found, _taken = look.files((str(tmp_path),))
    assert found[look.named(f"{tmp_path}/one.12345678")] == 1
    assert found[look.named(f"{tmp_path}/two")] == 1
    before = look.descriptors(str(os.getpid()))
    with (tmp_path / "two.open").open("w"):
        after = look.descriptors(str(os.getpid()))
    assert sum((after - before).values()) == 1
    pss, anonymous = look.memory(str(os.getpid()))
    assert pss > anonymous > 0


@pytest.mark.parametrize(
    ("argv", "said"), [(["--upgrades", "8"], "too few to judge"), (["--every", "7"], "no even number")]
)
def test_the_command_line_refuses_what_proves_nothing(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a host is made."""
    with pytest.raises(SystemExit):
        run.arguments(argv)
    assert said in capsys.readouterr().err


def test_two_hundred_upgrades_are_what_they_are_called() -> None:
    """Every second one is good, each way to end is among the others, and boots come at rest and in trials alike."""
    kinds = [run.kind_of(number) for number in range(1, 201)]
    assert kinds.count("good") == 100
    assert set(kinds) == {"good", *run.TURNS}
    boots = [run.reboot_of(number, 20) for number in range(1, 201)]
    assert (boots.count("at rest"), boots.count("in the trial")) == (5, 5)
    assert all(kind == "good" for kind, boot in zip(kinds, boots, strict=True) if boot == "in the trial")
