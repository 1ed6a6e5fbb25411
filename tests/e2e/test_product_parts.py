# SPDX-License-Identifier: GPL-3.0-or-later
"""A release of several parts: program, unit file and a companion file move together, forth and back (products.md, section 4).

The daemon writes down at each start which version it is, which its unit file is of, and which its companion file is of.
"""

from __future__ import annotations

import gzip
import pathlib
from collections.abc import Iterator, Sequence

import pytest
from support import node as nodes
from support import releases, tars, toys

pytestmark = pytest.mark.hosts
SCHEMA = "/usr/local/share/toy/schema"
PARTS = f"""\
[part-unit]
kind = "unit"
from = "toy.service"
path = "/etc/systemd/system/toy.service"
[part-schema]
from = "share/schema"
path = "{SCHEMA}"
"""
ROOM = "mount -o remount,size=$(( $(df -k --output=used /run | tail -1) + {free} ))k /run"


def unit_of(version: str, entrypoint: str) -> str:
    """A unit file of that version."""
    return toys.UNIT.format(entrypoint=entrypoint).replace("[Service]\n", f"[Service]\nEnvironment=UNIT_OF={version}\n")


def says(version: str, then: str = toys.STAYS) -> str:
    """The daemon of that version."""
    return f'echo "{version} $UNIT_OF $(cat {SCHEMA})" >>/var/lib/toy/starts\n{then}'


class Parted(toys.Toy):
    """A toy whose releases have three parts."""

    def archive(
        self, version: str, sequence: int, then: str = toys.STAYS, unit: str | None = None, without: Sequence[str] = ()
    ) -> pathlib.Path:
        """A release with all of them, or some."""
        members = {
            self.name: self.program(version, says(version, then)).encode(),
            "toy.service": (unit_of(version, self.entrypoint) if unit is None else unit).encode(),
            "share/schema": version.encode(),
        }
        blocks = b"".join(
            tars.member(name.encode(), data, mode=b"0000755\0" if name == self.name else b"0000644\0")
            for name, data in members.items()
            if name not in without
        )
        return self.release_of(version, sequence, gzip.compress(blocks + tars.END, mtime=0), ".tar.gz")

    def starts(self) -> list[list[str]]:
        """Of each start, the versions of program, unit file and companion."""
        return [line.split() for line in self.node.sh("cat /var/lib/toy/starts").splitlines()]

    def never_mixed(self) -> list[str]:
        """The versions that were started, after asserting that none was a mix."""
        starts = self.starts()
        assert all(len(set(found)) == 1 and len(found) == 3 for found in starts), starts
        return [found[0] for found in starts]

    def clear(self) -> None:
        """Remove it and its companion."""
        super().clear()
        self.node.sh("rm -rf /var/lib/toy /usr/local/share/toy; mount -o remount,size=50% /run")


@pytest.fixture
def toy(node: nodes.Node, shop: releases.Workshop) -> Iterator[Parted]:
    """A toy of three files as an operator has placed them, described, not adopted."""
    node.fresh(shop.release("1.0.0", 1))
    made = Parted(node)
    made.clear()
    node.sh("mkdir -p /var/lib/toy /usr/local/share/toy")
    node.host.write(made.entrypoint, made.program("1.0.0", says("1.0.0")), 0o755)
    node.host.write("/etc/systemd/system/toy.service", unit_of("1.0.0", made.entrypoint), 0o644)
    node.host.write(SCHEMA, "1.0.0", 0o644)
    node.sh("systemctl daemon-reload; systemctl enable -q --now toy.service")
    made.describe(PARTS, 'layout = "versions"', trial_length_s=20)
    yield made
    made.clear()


@pytest.fixture
def adopted(toy: Parted) -> Parted:
    """The same, adopted."""
    answer = toy.slotward("setup", "--adopt")
    assert answer.exit == 0, answer
    return toy


@pytest.mark.host
def test_all_parts_go_forth_and_back_together(toy: Parted) -> None:
    """Adopted with consent, upgraded, brought back from a crash loop, and given back as plain files; no start is ever a mix."""
    node = toy.node
    pid = node.unit(toy.unit).main_pid
    assert toy.slotward("setup").code == "adopt-needs-consent"
    planned = toy.slotward("setup", "--adopt", "--check")
    done = toy.slotward("setup", "--adopt")
    assert done.exit == 0, done
    assert done.json["changes"] == planned.json["changes"]
    assert toy.slotward("setup").json["changed"] is False
    assert node.unit(toy.unit).main_pid == pid
    assert node.sh(f"readlink {SCHEMA}") == f"{toy.slots}/current/share/schema"
    toy.upgraded(toy.archive("1.1.0", 2))
    toy.on_trial(toy.archive("1.2.0", 3, "exit 1"))
    assert toy.goes_back(["crash-loop"], 25)["to"] == "1.2.0"
    starts = toy.never_mixed()
    assert starts[:6] == ["1.0.0", "1.1.0", *["1.2.0"] * 4]
    # whoever asks at the moment when the guard goes back, in a start, may move the link first, and then restarts
    assert starts[6:] in (["1.1.0"], ["1.1.0"] * 2), starts
    assert toy.slotward("remove", "--purge").exit == 0
    node.sh("systemctl restart toy.service")
    assert toy.never_mixed()[-1] == "1.1.0"
    assert node.sh(f"test -L {SCHEMA} || test -L /etc/systemd/system/toy.service || echo plain") == "plain"
    assert node.sh("stat -c %a /etc/systemd/system/toy.service") == "644"


def test_a_deadline_takes_all_parts_back(adopted: Parted) -> None:
    """The tick reads unit files again between the links and the restart."""
    adopted.describe(PARTS, 'layout = "versions"', trial_length_s=5)
    adopted.on_trial(adopted.archive("1.1.0", 2))
    adopted.goes_back(["deadline-passed"], 20)
    adopted.node.waits(lambda: adopted.never_mixed() == ["1.0.0", "1.1.0", "1.0.0"], 10, "the old version runs")


def test_P7_a_cut_in_a_trial_leaves_no_mix(adopted: Parted) -> None:
    """After the boot the release goes on with its own unit file; then nobody confirms."""
    adopted.on_trial(adopted.archive("1.1.0", 2))
    adopted.node.sh("sync")
    adopted.node.host.cut()
    adopted.node.host.boot()
    adopted.node.waits(lambda: adopted.never_mixed() == ["1.0.0", "1.1.0", "1.1.0"], 15, "the trial goes on")
    adopted.goes_back(["deadline-passed"], 40)
    adopted.node.waits(lambda: adopted.never_mixed()[-1] == "1.0.0", 10, "the old version runs")


def test_W1_with_run_nearly_full_nothing_is_swapped_to_and_going_back_happens(adopted: Parted) -> None:
    """systemd refuses to read unit files then: refused before the switch; in a trial the program goes back and the file follows."""
    node = adopted.node
    node.sh(ROOM.format(free=8192))
    refused = adopted.begin(adopted.archive("1.1.0", 2))
    assert (refused.exit, refused.code) == (4, "no-space"), refused
    assert "/run has" in refused.message
    node.sh(ROOM.format(free=65536))
    adopted.on_trial(adopted.archive("1.1.0", 2))
    node.sh(ROOM.format(free=8192))
    node.waits(
        lambda: adopted.update()["slots"]["current"] == adopted.update()["slots"]["good"], 40, "the links go back"
    )
    node.waits(lambda: adopted.starts()[-1][0] == "1.0.0", 10, "the old program runs")
    node.sh(ROOM.format(free=65536))
    adopted.slotward("settle")
    node.waits(lambda: set(adopted.starts()[-1]) == {"1.0.0"}, 20, "with its own unit file")
    assert adopted.update()["state"] == "rolled-back"


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ({"without": ("share/schema",)}, "part-missing", "has no file share/schema"),
        ({"unit": "[Service]\nType=simple\n"}, "bad-unit", "systemd does not take toy.service of the release"),
    ],
)
def test_a_release_whose_parts_are_wrong_is_refused_before_the_switch(
    adopted: Parted, how: dict[str, object], code: str, said: str
) -> None:
    """The old version runs on, and was not restarted."""
    number = 2 if "without" in how else 3
    answer = adopted.begin(adopted.archive(f"1.{number}.5", number, **how))  # type: ignore[arg-type]
    assert (answer.exit, answer.code) == (3, code), answer
    assert said in answer.message
    assert adopted.never_mixed() == ["1.0.0"]


def test_X4_a_part_that_leads_elsewhere_is_never_confirmed(adopted: Parted) -> None:
    """Somebody put a file of his own there in the trial: it is named, by confirm and by doctor; prepare refuses afterwards."""
    trial = adopted.on_trial(adopted.archive("1.1.0", 2))
    adopted.node.sh(f"rm {SCHEMA}; echo mine >{SCHEMA}")
    answer = adopted.slotward("confirm", "--id", trial, "--wait", "1")
    assert (answer.code, SCHEMA in answer.message) == ("not-proven", True), answer
    adopted.goes_back(["deadline-passed"], 40)
    refused = adopted.begin(adopted.archive("1.3.0", 4))
    assert (refused.code, SCHEMA in refused.message) == ("guard-not-installed", True), refused
    assert adopted.slotward("setup", "--adopt").exit == 0
    adopted.upgraded(adopted.archive("1.3.0", 4))
