# SPDX-License-Identifier: GPL-3.0-or-later
"""Fifty products on one host: what is asked of one or of all is answered at once, and no product's trial touches another's."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

import pytest
from support import node as nodes
from support import releases, toys

pytestmark = pytest.mark.hosts
COUNT = 50
TIMES = 9
LIMIT_S = 0.3
FIGURES = releases.ROOT / "build" / "fifty.jsonl"
TIMED = """
import json, resource, subprocess, sys, time
def once(argv):
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
commands = json.loads(sys.argv[1])
rounds = [[once(argv) for argv in commands] for _ in range(int(sys.argv[2]))]
print(json.dumps(list(zip(*rounds))))
"""


@pytest.fixture
def fifty(node: nodes.Node) -> Iterator[list[toys.Toy]]:
    """Fifty daemons, all adopted."""
    made = [toys.Toy(node, f"p{number}", f"/usr/local/sbin/p{number}") for number in range(1, COUNT + 1)]
    for toy in made:
        node.host.write(toy.entrypoint, toy.program("1.0.0", toys.RUNS), 0o755)
        node.host.write(f"/etc/systemd/system/{toy.unit}", toys.UNIT.format(entrypoint=toy.entrypoint))
        toy.describe()
    names = [toy.name for toy in made]
    node.sh(f"systemctl daemon-reload; systemctl enable -q --now {' '.join(toy.unit for toy in made)}", timeout=120)
    node.sh(
        f"for name in {' '.join(names)}; do slotward --product $name setup --adopt >/dev/null || exit 1; done",
        timeout=580,
    )
    yield made
    slots = " ".join(
        f"{toy.slots} {toy.file} {toy.entrypoint} /usr/local/lib/slotward/guard.d/{toy.name}.env" for toy in made
    )
    units = " ".join(
        f"/etc/systemd/system/{toy.unit}* /etc/systemd/system/slotward-*@{toy.name}.* /etc/systemd/system/*.wants/slotward-*@{toy.name}.*"
        for toy in made
    )
    stop = " ".join(f"{toy.unit} slotward-deadline@{toy.name}.timer" for toy in made)
    node.sh(
        f"systemctl disable -q --now {stop}; rm -rf {slots} {units}; systemctl daemon-reload; systemctl reset-failed",
        check=False,
        timeout=300,
    )


def timed(node: nodes.Node, *commands: list[str]) -> list[list[tuple[float, float]]]:
    """How long each command took by the clock and of a processor, several times, in turn, so that all meet the same machine.

    They, and the systemd that answers them, go before everything else that the machine does: its neighbours are not measured.
    """
    argv = ["chrt", "--rr", "10", "python3", "-c", TIMED, json.dumps(commands), str(TIMES)]
    node.sh("chrt --rr --pid 10 1")
    try:
        found = json.loads(node.host.run(argv, timeout=300).stdout)
    finally:
        node.sh("chrt --other --pid 0 1")
    return [[(float(wall), float(used)) for wall, used in one] for one in found]


def test_fifty_products_on_one_host(fifty: list[toys.Toy]) -> None:
    """Told at once, one and all; and three trials at a time end as each of them would alone."""
    told_at_once(fifty)
    three_trials_at_a_time(fifty)


def told_at_once(fifty: list[toys.Toy]) -> None:
    """Under 300 ms each, by the clock; the start of a bare interpreter is kept beside them, to tell a slow machine."""
    node = fifty[0].node
    commands = {
        "one": ["slotward", "--product", "p17", "update", "--json"],
        "all": ["slotward", "products", "--json"],
        "bare": ["python3", "-I", "-c", "pass"],
    }
    shown = dict(zip(commands, timed(node, *commands.values()), strict=True))
    wall = {name: statistics.median(one[0] for one in found) for name, found in shown.items()}
    used = {name: statistics.median(one[1] for one in found) for name, found in shown.items()}
    least = {name: min(one[0] for one in found) for name, found in shown.items()}
    FIGURES.parent.mkdir(exist_ok=True)
    with FIGURES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"suite": node.host.suite, "wall": wall, "used": used, "least": least}) + "\n")
    listed = node.slotward("products").json["products"]
    assert {entry["name"] for entry in listed} == {"slotward"} | {toy.name for toy in fifty}
    assert [entry["version"] for entry in listed if entry["name"] != "slotward"] == ["1.0.0"] * COUNT
    assert wall["one"] < LIMIT_S, shown
    assert wall["all"] < LIMIT_S, shown


def three_trials_at_a_time(fifty: list[toys.Toy]) -> None:
    """One is confirmed, one taken back, one crashes; the others, and the processes of the rest, are as they were."""
    node = fifty[0].node
    good, back, crash = fifty[16], fifty[17], fifty[18]
    rest = " ".join(toy.unit for toy in fifty if toy not in (good, back, crash))
    pids = node.sh(f"systemctl show -p MainPID {rest}")
    others = f"cat {' '.join(f'{toy.slots}/*.json' for toy in fifty if toy not in (good, back, crash))} | sha256sum"
    before = node.sh(others)
    trials = [good.on_trial(good.release("1.1.0", 2)), back.on_trial(back.release("1.1.0", 2))]
    crash.on_trial(crash.release("1.1.0", 2, "exit 1"))
    locks = {node.sh(f"stat -c %i {toy.slots}/lock") for toy in (good, back, crash)}
    assert len(locks) == 3
    node.waits(lambda: crash.update()["trial"] is None, 30, "the one that crashes has gone back")
    pending = {entry["name"] for entry in node.slotward("products").json["products"] if entry["trial_pending"]}
    assert pending == {good.name, back.name}
    assert good.slotward("confirm", "--id", trials[0], "--wait", "15").json["state"] == "confirmed"
    assert back.slotward("rollback", "--id", trials[1]).json["state"] == "rolled-back"
    versions = [(toy.update()["version"], toy.update()["last"]["state"]) for toy in (good, back, crash)]
    assert versions == [("1.1.0", "confirmed"), ("1.0.0", "rolled-back"), ("1.0.0", "rolled-back")]
    assert (node.sh(f"systemctl show -p MainPID {rest}"), node.sh(others)) == (pids, before)
