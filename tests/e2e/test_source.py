# SPDX-License-Identifier: GPL-3.0-or-later
"""A product by version and channel from a server, and by a digest alone, on real hosts (docs/design/products.md, section 8)."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterator

import pytest
from support import node as nodes
from support import releases, server, toys

pytestmark = pytest.mark.hosts


@pytest.fixture
def toy(node: nodes.Node, shop: releases.Workshop) -> Iterator[toys.Toy]:
    """A toy that is adopted on a host with the agent."""
    with toys.running(node, shop.release("1.0.0", 1)) as made:
        yield made


@pytest.fixture
def files(node: nodes.Node) -> Iterator[server.FileServer]:
    """A server on the controller."""
    with server.FileServer(node.host.controller_address) as found:
        yield found


def artifact_of(release: pathlib.Path) -> pathlib.Path:
    """The program of a release."""
    return release / f"toy_{release.name}_linux_{releases.ARCH}"


def sha256_of(release: pathlib.Path) -> str:
    """Its digest."""
    return hashlib.sha256(artifact_of(release).read_bytes()).hexdigest()


def by_source(toy: toys.Toy, files: server.FileServer, *lying: pathlib.Path) -> None:
    """Lay releases where the product's file will say that they lie."""
    for release in lying:
        for file in (release / "manifest.json", artifact_of(release)):
            files.files[f"/pub/v{release.name}/{file.name}"] = file
    base = files.url(lying[0] / "manifest.json").rpartition("/")[0]
    toy.describe(f'[source]\nurl = "{base}/pub/v{{version}}"\n', allow_http=True)
    files.requests.clear()


def handed(toy: toys.Toy, release: pathlib.Path, url: str = "", sha256: str = "") -> str:
    """A target without a signature, on the host."""
    fields = {"product": "toy", "version": release.name, "url": url, "sha256": sha256 or sha256_of(release)}
    toy.node.host.write(f"{nodes.BOX}/digest.json", json.dumps({**fields, "signature": ""}))
    return f"{nodes.BOX}/digest.json"


def confirmed(toy: toys.Toy, answer: nodes.Answer) -> None:
    """Confirm the trial that an upgrade has begun."""
    assert (answer.exit, answer.json["state"]) == (0, "trial"), answer
    done = toy.slotward("confirm", "--id", str(answer.json["trial"]["id"]), "--wait", "15")
    assert (done.exit, done.json["state"]) == (0, "confirmed"), done


def named(toy: toys.Toy, *words: str) -> list[str]:
    """The events since the beginning, in short."""
    return [event["event"].partition("-")[2] for event in toy.slotward("events", *words).json["events"]]


@pytest.mark.host
def test_by_version_from_start_to_end_with_its_events(toy: toys.Toy, files: server.FileServer) -> None:
    """Seed 002's request: a version and a channel, no address; what it did is told, and asking again is no work."""
    good, bad = toy.release("1.1.0", 2), toy.release("1.2.0", 3, "exit 1")
    by_source(toy, files, good, bad)
    address = files.url(artifact_of(good))
    toy.node.host.write(
        f"{nodes.BOX}/told.json", json.dumps({**json.loads(toy.node.sh(f"cat {toy.target(good)[0]}")), "url": address})
    )
    told = toy.slotward("upgrade", "--target", f"{nodes.BOX}/told.json", "--no-wait")
    assert (told.exit, told.code) == (3, "source-decides"), told
    refused = toy.slotward("upgrade", "--version", "1.1.0", "--channel", "nightly")
    assert (refused.code, files.requests) == ("channel-not-allowed", [])
    planned = toy.slotward("prepare", "--version", "1.1.0", "--channel", "stable")
    assert (planned.exit, planned.json["artifact"]["name"]) == (0, artifact_of(good).name), planned
    answer = toy.slotward("upgrade", "--version", "1.1.0", "--channel", "stable", "--no-wait")
    assert answer.exit == 0, answer
    asked = [f"/pub/v1.1.0/{name}" for name in ("manifest.json", "withdrawn.json", artifact_of(good).name)]
    assert files.requests[-3:] == asked
    assert toy.update()["progress"]["phase"] == "trial"
    confirmed(toy, answer)
    assert (toy.update()["version"], toy.update()["progress"]) == ("1.1.0", None)
    cursor = toy.slotward("events").json["cursor"]
    assert named(toy) == ["started", "downloaded", "staged", "completed"]

    count = len(files.requests)
    again = toy.slotward("upgrade", "--version", "1.1.0")
    assert (again.exit, again.json["state"], again.json["changed"], len(files.requests)) == (0, "current", False, count)

    assert toy.slotward("upgrade", "--version", "1.2.0", "--no-wait").json["state"] == "trial"
    toy.goes_back(["crash-loop"], 15)
    back = toy.slotward("events", "--since", str(cursor)).json["events"]
    assert [event["event"] for event in back][-1] == "upgrade-rolled-back"
    assert (back[-1]["severity"], back[-1]["code"]) == ("critical", "crash-loop")
    progress = toy.update()["progress"]
    assert (progress["failed_in"], progress["code"], progress["to"]) == ("trial", "crash-loop", "1.2.0")


def test_S3_progress_says_how_far_and_then_where_it_failed(toy: toys.Toy, files: server.FileServer) -> None:
    """While it is fetched: percent and process; ended before the switch: failed in fetch, cancelled, and free for a new try."""
    release = toy.release("1.1.0", 2)
    by_source(toy, files, release)
    files.stalling.add(f"/pub/v1.1.0/{artifact_of(release).name}")
    toy.node.sh("systemd-run --unit toy-upgrade slotward --product toy upgrade --version 1.1.0 --no-wait")

    def half() -> bool:
        progress = toy.update()["progress"] or {}
        return (progress.get("phase"), progress.get("percent")) in (("fetch", 49), ("fetch", 50))

    toy.node.waits(half, 30, "half of it is there")
    assert toy.update()["progress"]["pid"] == toy.update()["lock"]["pid"]
    assert toy.slotward("cancel").json["changed"] is True
    progress = toy.update()["progress"]
    assert (progress["failed_in"], progress["code"], progress["pid"]) == ("fetch", "cancelled", 0)
    files.stalling.clear()
    confirmed(toy, toy.slotward("upgrade", "--version", "1.1.0", "--no-wait"))
    assert named(toy) == ["started", "downloaded", "staged", "completed"]


def test_a_digest_that_root_hands_over(toy: toys.Toy, files: server.FileServer) -> None:
    """Seed 004's way: pushed or fetched, taken by its SHA-256; status and doctor say so, and keys would end it."""
    release, bad = toy.release("1.1.0", 2), toy.release("1.2.0", 3, "exit 1")
    by_digest: dict[str, object] = {
        "trust": "digest",
        "release_pins": None,
        "release_threshold": None,
        "allow_http": True,
    }
    toy.describe(**by_digest)  # type: ignore[arg-type]
    pushed = ("--src", toy.node.put(artifact_of(release)), "--no-wait")
    wrong = toy.slotward("upgrade", "--target", handed(toy, release, sha256=sha256_of(bad)), *pushed)
    assert wrong.code == "digest-mismatch", wrong
    answer = toy.slotward("upgrade", "--target", handed(toy, release), *pushed)
    assert answer.json["sequence"] == 0
    confirmed(toy, answer)
    found = toy.update()
    assert (found["version"], found["floor"], found["trust"]["source"]) == ("1.1.0", 0, "digest")
    doctor = {one["name"]: one["state"] for one in toy.slotward("doctor").json["checks"]}
    assert doctor["release keys"] == "warn"

    target = handed(toy, bad, files.url(artifact_of(bad)))
    begun = toy.slotward("upgrade", "--target", target, "--no-wait")
    assert begun.json["state"] == "trial", begun
    toy.goes_back(["crash-loop"], 15)
    assert toy.slotward("update", "--clear-failed").exit == 0
    toy.describe()
    assert toy.slotward("upgrade", "--target", target, "--no-wait").code == "no-manifest"
