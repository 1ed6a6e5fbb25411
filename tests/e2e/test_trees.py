# SPDX-License-Identifier: GPL-3.0-or-later
"""Layout `versions` on real hosts (docs/design/products.md, section 3): releases of several files, kept side by side."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from support import node as nodes
from support import releases, tars, toys

pytestmark = pytest.mark.hosts
BESIDE = '. "$(dirname "$(readlink -f "$0")")/lib/body"'
"""What the program does lies in a file beside it."""


class Tree(toys.Toy):
    """A toy whose releases are archives: the program, and a file beside it that says what it does."""

    def archive(self, version: str, sequence: int, body: str = toys.STAYS) -> pathlib.Path:
        """The directory of a signed release, packed below one directory as most releases are."""
        top = f"{self.name}-{version}/"
        program = self.program(version, BESIDE).encode()
        packed = tars.packed(
            tars.member(f"{top}{self.name}".encode(), program, mode=b"0000755\0"),
            tars.member(f"{top}lib/body".encode(), f"{body}\n".encode()),
        )
        return self.release_of(version, sequence, packed, ".tar.gz")

    def trees(self) -> list[str]:
        """The versions that have a tree; nothing but trees and their listings is there."""
        names = set(self.node.sh(f"ls -A {self.slots}/versions").split())
        found = sorted(name for name in names if not name.endswith(".json"))
        assert names == {*found, *(f"{name}.json" for name in found)}
        return found

    def link(self, name: str) -> str:
        """What a link in the slots directory names."""
        return self.node.sh(f"readlink {self.slots}/{name}")


@pytest.fixture
def tree(node: nodes.Node, shop: releases.Workshop) -> Iterator[Tree]:
    """A toy of layout `versions`, adopted."""
    node.fresh(shop.release("1.0.0", 1))
    made = Tree(node, "grove")
    made.clear()
    made.install("1.0.0")
    made.describe(top='layout = "versions"\nkeep = 1')
    adopted = made.slotward("setup", "--adopt")
    assert (adopted.exit, adopted.json["version"]) == (0, "1.0.0"), adopted
    yield made
    made.clear()


@pytest.mark.host
def test_a_release_of_several_files_goes_forth_and_back_with_one_link(tree: Tree) -> None:
    """Adopted into a tree, upgraded to an archive, and taken back by the guard, which knows links alone."""
    assert tree.node.sh(f"readlink {tree.entrypoint}") == f"{tree.slots}/current/grove"
    assert (tree.link("current"), tree.link("a")) == ("a", "versions/1.0.0")
    tree.upgraded(tree.archive("1.1.0", 2))
    found = tree.update()
    assert (found["version"], found["floor"], tree.link(tree.link("good"))) == ("1.1.0", 2, "versions/1.1.0")
    tree.on_trial(tree.archive("1.2.0", 3, "exit 1"))
    assert tree.goes_back(["crash-loop"], 15)["to"] == "1.2.0"
    assert tree.node.sh(f"{tree.entrypoint} version") == "grove 1.1.0"
    assert tree.update()["version"] == "1.1.0"


def test_trees_are_kept_swept_and_used_again(tree: Tree) -> None:
    """One is kept here besides the live ones; damage of what starts is seen; going to a tree that is there fetches nothing."""
    for minor in (1, 2, 3):
        tree.upgraded(tree.archive(f"1.{minor}.0", minor + 1))
    assert tree.trees() == ["1.1.0", "1.2.0", "1.3.0"]
    tree.upgraded(tree.archive("1.4.0", 5))
    assert tree.trees() == ["1.2.0", "1.3.0", "1.4.0"]
    tree.node.sh(f"mkdir {tree.slots}/versions/9.0.0.partial; rm {tree.slots}/versions/1.3.0/lib/body")
    tree.upgraded(tree.archive("1.5.0", 6))
    assert tree.trees() == ["1.3.0", "1.4.0", "1.5.0"]
    tree.node.sh(f"printf x >>{tree.slots}/versions/1.5.0/lib/body")
    answer = tree.slotward("doctor")
    damaged = [one for one in answer.json["checks"] if "'lib/body' is a file of" in one["message"]]
    assert [one["state"] for one in damaged] == ["fail"], answer
    for version, sequence in (("1.6.0", 7), ("1.7.0", 8)):
        trial = tree.on_trial(tree.archive(version, sequence))
        assert tree.slotward("rollback", "--id", trial).json["state"] == "rolled-back"
    assert tree.slotward("update", "--clear-failed", "1.6.0").exit == 0
    target, _pushed = tree.target(tree.archive("1.6.0", 7))
    prepared = tree.slotward("prepare", "--target", target)
    assert (prepared.exit, prepared.json["reuse"], prepared.json["artifact"]) == (0, True, None), prepared
    begun = tree.slotward("upgrade", "--target", target, "--no-wait")
    confirmed = tree.slotward("confirm", "--id", begun.json["trial"]["id"], "--wait", "15")
    assert (confirmed.json["state"], tree.update()["version"]) == ("confirmed", "1.6.0"), confirmed


def test_a_process_that_runs_from_an_old_tree_keeps_it(tree: Tree) -> None:
    """Somebody's own process, of a program in the tree of a release that nobody keeps any more."""
    tree.node.sh(
        f"cp /bin/sleep {tree.slots}/versions/1.0.0/other; systemd-run -q --unit grove-other {tree.slots}/versions/1.0.0/other 600"
    )
    try:
        for minor in (1, 2, 3):
            tree.upgraded(tree.archive(f"1.{minor}.0", minor + 1))
        assert tree.trees() == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]
    finally:
        tree.node.sh("systemctl stop grove-other")
    tree.upgraded(tree.archive("1.4.0", 5))
    assert tree.trees() == ["1.2.0", "1.3.0", "1.4.0"]


def test_an_archive_is_no_file_of_layout_ab(node: nodes.Node, shop: releases.Workshop) -> None:
    """`wrong-kind`, before a byte is fetched; and a bad archive is refused before the switch, where the layout takes one."""
    node.fresh(shop.release("1.0.0", 1))
    toy = Tree(node, "shrub")
    toy.clear()
    toy.install("1.0.0")
    toy.describe()
    try:
        assert toy.slotward("setup", "--adopt").exit == 0
        refused = toy.begin(toy.archive("1.1.0", 2))
        assert (refused.exit, refused.code) == (3, "wrong-kind"), refused
        assert "is of kind tar.gz; the slots of shrub take binary" in refused.message
    finally:
        toy.clear()


def test_a_host_without_the_daemon_gets_it_from_an_archive(node: nodes.Node, shop: releases.Workshop) -> None:
    """There is a unit and nothing at its entrypoint: setup installs the signed release, and the unit starts it."""
    node.fresh(shop.release("1.0.0", 1))
    made = Tree(node, "hedge")
    made.clear()
    try:
        made.install("1.0.0")
        node.sh(f"systemctl stop {made.unit}; rm {made.entrypoint}")
        made.describe(top='layout = "versions"')
        release = made.archive("1.1.0", 2)
        _target, artifact = made.target(release)
        manifest = node.put(release / "manifest.json")
        installed = made.slotward("setup", "--from", artifact, "--manifest", manifest, "--version", "1.1.0")
        assert (installed.exit, installed.json["version"]) == (0, "1.1.0"), installed
        node.sh(f"systemctl start {made.unit}")
        assert (node.sh(f"{made.entrypoint} version"), made.update()["floor"]) == ("hedge 1.1.0", 2)
    finally:
        made.clear()
