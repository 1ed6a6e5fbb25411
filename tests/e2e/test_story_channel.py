# SPDX-License-Identifier: GPL-3.0-or-later
"""An edge node's upgrade, step by step: a version and a channel are asked for, everything else is the node's own to find.

The names of the steps are those of the seed; the product is the example `tally`, whose releases are archives.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator

import pytest
from support import examples, load, products, server
from support import node as nodes

pytestmark = pytest.mark.hosts
WINDOW_S = 12


class Shelf:
    """Releases on an https server, each below /v<version>/."""

    def __init__(self, files: server.FileServer, base: str) -> None:
        self.files = files
        self.base = base

    def lay(self, release: products.Release) -> None:
        """Lay a release there."""
        for file in (release.manifest, release.artifact):
            self.files.files[f"/v{release.version}/{file.name}"] = file

    def asked(self) -> list[str]:
        """What was asked for since the last time, withdrawals apart."""
        found = [path for path in self.files.requests if not path.endswith("/withdrawn.json")]
        self.files.requests.clear()
        return found


@pytest.fixture
def edge(node: nodes.Node) -> Iterator[examples.Tally]:
    """The daemon as an installer leaves it."""
    made = examples.Tally(node)
    made.clear()
    made.install()
    yield made
    made.clear()


@pytest.fixture
def shelf(edge: examples.Tally, tmp_path: pathlib.Path) -> Iterator[Shelf]:
    """An https server with an authority of its own, and the node's file that names it."""
    address = edge.node.host.controller_address
    authority = server.make_authority(tmp_path, [address])
    with server.FileServer(address, authority) as files:
        base = files.url(authority.ca).rpartition("/")[0]
        files.files.clear()
        edge.node.host.put(authority.ca, "/etc/ssl/certs/edge-ca.pem", 0o644)
        yield Shelf(files, base)


def turn_on(edge: examples.Tally, shelf: Shelf, *more: tuple[str, str]) -> None:
    """The node's block of settings: on, stable alone, healthy for a window and at most three starts."""
    policy = (
        'enabled = true\nallowed_channels = "stable"\nrollback_grace = 1\nsame_major = true\nmax_starts = 3\n'
        f'health_window_s = {WINDOW_S}\nca_file = "/etc/ssl/certs/edge-ca.pem"\n'
    )
    source = f'[source]\nurl = "{shelf.base}/v{{version}}"\n\n[restart]\ndrain_s = 1\n\n[smoke]\n'
    edge.example(('floor = "previous"\n', f'floor = "previous"\n{policy}'), ("[smoke]\n", source))
    text = edge.node.host.read(edge.file)
    for old, new in more:
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    edge.describe(text)


def ask(edge: examples.Tally, version: str, channel: str = "stable") -> nodes.Answer:
    """What the manager sends: a version and a channel."""
    words = ("upgrade", "--version", version, "--channel", channel, "--no-wait", "--id", nodes.trial_id())
    return edge.slotward(*words)


def told(edge: examples.Tally, since: int) -> list[tuple[str, str]]:
    """Names and severities of the events after a cursor."""
    return [(event["event"], event["severity"]) for event in edge.done("events", "--since", str(since))["events"]]


def cursor(edge: examples.Tally) -> int:
    """Where the events stand."""
    found = edge.done("events")["events"]
    return int(found[-1]["n"]) if found else 0


def test_the_channel_and_version_request_with_tarball_watchdog_and_manual_rollback(
    edge: examples.Tally, shelf: Shelf
) -> None:
    """Steps 1 to 7, a build that crashes, and the way back by hand."""
    good = products.released(edge.node.shop, edge.name, "1.1.0", 2, edge.packed("1.1.0"))
    turn_on(edge, shelf)
    edge.done("setup", "--adopt")
    shelf.lay(good)
    refused_before_the_bytes(edge, shelf, good)
    staged_and_proven(edge, shelf, good)
    taken_back_by_the_watchdog(edge, shelf)
    rolled_back_by_hand(edge)


def refused_before_the_bytes(edge: examples.Tally, shelf: Shelf, good: products.Release) -> None:
    """Steps 1 to 3."""
    shop = edge.node.shop
    # step 1, policy gate: before the network
    turn_on(edge, shelf, ("enabled = true", "enabled = false"))
    assert ask(edge, "1.1.0").code == "updates-disabled"
    turn_on(edge, shelf)
    assert ask(edge, "1.1.0", "nightly").code == "channel-not-allowed"
    assert ask(edge, "0.9.0.1").code == "not-a-release"
    assert ask(edge, "2.0.0").code == "other-major"
    assert shelf.asked() == []

    # step 2, deterministic URL: an address is never taken from who asks
    target = edge.target(good, url=f"{shelf.base}/elsewhere", signature=good.manifest.read_text(encoding="utf-8"))
    assert edge.slotward("upgrade", "--target", target, "--no-wait").code == "source-decides"
    assert shelf.asked() == []

    # step 3, verify the manifest: one that is another release's, and one that lacks a signature
    other = products.released(shop, edge.name, "1.1.1", 3, edge.packed("1.1.1"))
    shelf.files.files["/v1.1.2/manifest.json"] = other.manifest
    assert ask(edge, "1.1.2").code == "wrong-version"
    bare = products.released(shop, edge.name, "1.1.3", 4, edge.packed("1.1.3"), signers=1)
    shelf.lay(bare)
    assert ask(edge, "1.1.3").code == "too-few-signatures"
    assert edge.link("current") == "a"
    shelf.asked()


def staged_and_proven(edge: examples.Tally, shelf: Shelf, good: products.Release) -> None:
    """Steps 4 to 7."""
    # step 4 to 6, download by verified hash, stage atomically, drain and restart
    before = cursor(edge)
    with load.running(*edge.clients()) as seen:
        began = time.monotonic()
        answer = ask(edge, "1.1.0")
        assert (answer.exit, answer.json["state"]) == (0, "trial"), (answer, edge.story())
        assert shelf.asked() == ["/v1.1.0/manifest.json", f"/v1.1.0/{good.artifact.name}"]
        assert set(edge.node.sh(f"ls {edge.slots}/versions").split()) >= {"1.0.0", "1.1.0"}
        assert ask(edge, "1.1.0").code == "trial-pending"

        # step 7, prove it works: healthy for the window, with a beat that is fresh
        state = edge.ends(WINDOW_S + 60)
        assert (state["last"]["state"], state["version"]) == ("confirmed", "1.1.0"), (state, edge.story())
        assert time.monotonic() - began >= WINDOW_S
        versions = {
            one.text.split('"program": "')[1].split('"')[0] for one in seen.between(began, time.monotonic()) if one.good
        }
        assert versions == {"1.0.0", "1.1.0"}
        for one in seen.between(began, time.monotonic()):  # program, unit file and companion are never of two versions
            assert not one.good or ("1.0.0" in one.text) != ("1.1.0" in one.text), one.text
    info = ["upgrade-started", "upgrade-downloaded", "upgrade-staged", "upgrade-completed"]
    assert told(edge, before) == [(name, "info") for name in info]
    again = ask(edge, "1.1.0")
    assert (again.exit, again.json["state"], again.json["changed"]) == (0, "current", False), again


def taken_back_by_the_watchdog(edge: examples.Tally, shelf: Shelf) -> None:
    """The boot watchdog."""
    # a build that keeps exiting is taken back, and says so
    before = cursor(edge)
    bad = edge.broken("1.2.0", 5, examples.EXITS)
    shelf.lay(bad)
    assert ask(edge, "1.2.0").json["state"] == "trial"
    state = edge.ends(60)
    assert (state["version"], state["last"]["state"]) == ("1.1.0", "rolled-back"), state
    assert state["last"]["code"] in ("too-many-starts", "crash-loop")
    assert edge.runs("1.1.0")
    assert told(edge, before)[-1] == ("upgrade-rolled-back", "critical")
    assert ask(edge, "1.2.0").code == "failed-before"


def rolled_back_by_hand(edge: examples.Tally) -> None:
    """Manual rollback."""
    # and the same version again afterwards, without a newer release
    edge.done("rollback", "--to", "previous", "--why", "the flows are wrong, not the process", timeout=180)
    state = edge.ends(WINDOW_S + 60)
    assert (state["version"], state["last"]["state"]) == ("1.0.0", "confirmed"), (state, edge.story())
    assert edge.runs("1.0.0")
    assert ask(edge, "1.1.0").code == "held"
    edge.done("unhold")
    answer = ask(edge, "1.1.0")
    assert (answer.exit, answer.json["state"]) == (0, "trial"), answer
    assert edge.ends(WINDOW_S + 60)["version"] == "1.1.0"
