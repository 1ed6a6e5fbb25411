# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet's controlled push, step by step: a published version is chosen, pushed with its digest, staged, applied by root, converged.

The names of the steps are those of the seed; the product is the example `tally`, trusted by digest, staged first and applied by a word.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterator

import hosts
import pytest
from support import examples, releases
from support import node as nodes

pytestmark = pytest.mark.hosts


class Plane:
    """A control plane: the catalogue of what is published, what each host should have, and the push to those that answer."""

    def __init__(self, edge: examples.Tally, directory: pathlib.Path) -> None:
        self._edge = edge
        self._catalogue = directory / "releases.json"
        self._files: dict[str, pathlib.Path] = {}
        self.desired = ""

    def publish(self, version: str) -> None:
        """A release joins the catalogue."""
        self._files[version] = self._edge.packed(version)
        digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in self._files.items()}
        self._catalogue.write_text(json.dumps(digests), encoding="utf-8")

    def catalogue(self) -> dict[str, str]:
        """Versions and digests; clients never type a version."""
        found: dict[str, str] = json.loads(self._catalogue.read_text(encoding="utf-8"))
        return found

    def choose(self, version: str) -> None:
        """An operator chooses a published version."""
        assert version in self.catalogue()
        self.desired = version

    def push(self, digest: str = "") -> nodes.Answer | None:
        """Push what is desired, with its digest; None when the host does not answer."""
        edge, version = self._edge, self.desired
        target = {"product": edge.name, "version": version, "url": "", "signature": ""}
        target["sha256"] = digest or self.catalogue()[version]
        try:
            path = f"{nodes.BOX}/push-{version}.json"
            edge.node.host.write(path, json.dumps(target))
            pushed = edge.node.put(self._files[version], name=f"tally_{version}_linux_{releases.ARCH}.tar.gz")
            return edge.slotward("upgrade", "--target", path, "--src", pushed, "--no-wait", "--id", nodes.trial_id())
        except hosts.HostError:
            return None

    def converged(self) -> bool:
        """Whether the host reports the version that it should have."""
        return str(self._edge.update()["version"]) == self.desired


@pytest.fixture
def edge(node: nodes.Node) -> Iterator[examples.Tally]:
    """The daemon as a script leaves it, adopted; trusted by digest, staged first."""
    made = examples.Tally(node)
    made.clear()
    made.install()
    made.example(('floor = "previous"', 'trust = "digest"\nmanual = true'))
    text = node.host.read(made.file)
    kept = [line for line in text.splitlines() if not line.startswith("release_")]
    made.describe("\n".join(kept) + "\n")
    made.done("setup", "--adopt")
    yield made
    made.clear()


def test_the_catalogue_push_stage_apply_and_converge(edge: examples.Tally, tmp_path: pathlib.Path) -> None:
    """Steps 1 to 4, idempotent at every layer, and a host that was offline."""
    plane = Plane(edge, tmp_path)
    for version in ("1.1.0", "1.2.0"):
        plane.publish(version)

    # trigger: a published version is chosen and pushed
    plane.choose("1.1.0")
    pid = edge.pid()
    wrong = plane.push(digest=plane.catalogue()["1.2.0"])
    assert wrong is not None
    assert (wrong.exit, wrong.code) == (3, "digest-mismatch"), wrong

    # stage: verified and laid aside, nothing is switched
    staged = plane.push()
    assert staged is not None
    assert (staged.exit, staged.json["state"], staged.code) == (0, "staged", "staged-manual"), (staged, edge.story())
    assert (edge.link("current"), edge.pid()) == ("a", pid)
    again = plane.push()
    assert again is not None
    assert (again.json["state"], again.json["changed"]) == ("staged", False), again
    state = edge.update()
    assert (state["staged"]["version"], state["version"]) == ("1.1.0", "1.0.0")
    assert not plane.converged()

    # apply, as root: verified again, smoke-tested, swapped, restarted
    applied = edge.slotward("apply", timeout=180)
    assert (applied.exit, applied.json["state"]) in ((0, "trial"), (0, "confirmed")), (applied, edge.story())

    # converge: the host reports what it runs
    state = edge.ends(90)
    assert (state["last"]["state"], plane.converged(), edge.runs("1.1.0")) == ("confirmed", True, True), (
        state,
        edge.story(),
    )
    assert state["floor"] == 0
    assert edge.pid() != pid

    # a host that is on the target: nothing at any layer
    pid = edge.pid()
    noop = plane.push()
    assert noop is not None
    assert (noop.exit, noop.json["state"], noop.json["changed"]) == (0, "current", False), noop
    assert edge.slotward("apply").json["changed"] is False
    assert edge.pid() == pid

    # a host that is offline gets it when it is back
    plane.choose("1.2.0")
    edge.node.host.poweroff()
    assert plane.push() is None
    edge.node.host.boot()
    late = plane.push()
    assert late is not None
    assert (late.exit, late.code) == (0, "staged-manual"), late
    edge.slotward("apply", timeout=180)
    state = edge.ends(90)
    assert (plane.converged(), edge.runs("1.2.0")) == (True, True), (state, edge.story())
