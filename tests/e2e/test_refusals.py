# SPDX-License-Identifier: GPL-3.0-or-later
"""Seed 000's refusal table from the real command: each row's sentence and code, before a single request is made.

One host of each suite is installed once for this module: a refusal changes nothing, and that is asserted for each.
"""

from __future__ import annotations

import base64
import json
import pathlib
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import hosts
import pytest
from support import node as nodes
from support import releases, server

from slotcore import keys, manifest, signatures

ARTIFACT = f"slotward_{{version}}_linux_{releases.ARCH}"
LOOK = f"cd {nodes.SLOTS}; cat [!p]*.json; ls -lI lock -I audit.log -I progress.json --time-style=full-iso"


class Target(NamedTuple):
    """What a row sends: a target, or bytes that are none; and the settings of the host that differ."""

    body: dict[str, str] | bytes
    settings: Mapping[str, object] = MappingProxyType({})


class Bench:
    """A host with 1.0.0 and a server that counts; makes the releases that the rows need."""

    def __init__(self, node: nodes.Node, files: server.FileServer) -> None:
        self.node = node
        self.shop = node.shop
        self.files = files

    def release(self, version: str, sequence: int, *more: str, **how: Any) -> releases.Release:
        """A release, made once for all suites."""
        return self.shop.release(version, sequence, more=more, **how)

    def target(self, release: releases.Release, **fields: str) -> dict[str, str]:
        """Its target, with `fields` in place of its own."""
        return {**self.shop.target(release, self.files.url(release.artifact)), **fields}

    def signed(self, body: bytes, count: int = 2) -> str:
        """`body` published with signatures of `count` of our keys, whatever it says."""
        found = []
        for key in self.shop.keys[:count]:
            private = keys.load_private(key.path.read_bytes())
            sig = base64.b64encode(private.sign(signatures.signed_bytes(body))).decode("ascii")
            found.append({"kid": key.kid, "sig": sig})
        return json.dumps({"manifest": base64.b64encode(body).decode("ascii"), "signatures": found})

    def body_of(self, release: releases.Release) -> bytes:
        """The canonical body of a release's manifest."""
        return manifest.parse_published(release.manifest.read_bytes()).body

    def ask(self, target: Target, *flags: str) -> nodes.Answer:
        """Upgrade to what the row sends, by download."""
        path = f"{nodes.BOX}/row.json"
        body = target.body if isinstance(target.body, bytes) else json.dumps(target.body).encode()
        self.node.host.write(path, body)
        self.node.configure(**{"allow_http": True, **target.settings})
        return self.node.slotward("upgrade", "--target", path, "--no-wait", *flags)


@pytest.fixture(scope="module", params=hosts.SUITES)
def bench(
    request: pytest.FixtureRequest, machines: nodes.Machines, shop: releases.Workshop, v100: releases.Release
) -> Iterator[Bench]:
    """The host and the server of this module."""
    node = nodes.Node(machines.of(request.param), shop)
    node.wipe()
    node.fresh(v100, allow_http=True)
    with server.FileServer(node.host.controller_address) as files:
        yield Bench(node, files)


def not_a_release(bench: Bench) -> Target:
    """A version that is none."""
    return Target(bench.target(bench.release("1.1.0", 2), version="1.1"))


def bad_digest(bench: Bench) -> Target:
    """A digest of another length."""
    return Target(bench.target(bench.release("1.1.0", 2), sha256="abcdef"))


def no_pins(bench: Bench) -> Target:
    """A host that trusts nobody."""
    return Target(bench.target(bench.release("1.1.0", 2)), {"release_pins": None, "release_threshold": None})


def no_manifest(bench: Bench) -> Target:
    """A control side that says so without a signature."""
    return Target(bench.target(bench.release("1.1.0", 2), signature=""))


def bad_manifest(bench: Bench) -> Target:
    """A manifest of another shape, although signed."""
    value = json.loads(bench.body_of(bench.release("1.1.0", 2)))
    value["surprise"] = 1
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return Target(bench.target(bench.release("1.1.0", 2), signature=bench.signed(body)))


def too_few_signatures(bench: Bench) -> Target:
    """One of three keys signed, two are asked for."""
    published = json.loads(bench.release("1.1.0", 2).manifest.read_text(encoding="utf-8"))
    published["signatures"] = published["signatures"][:1]
    return Target(bench.target(bench.release("1.1.0", 2), signature=json.dumps(published)))


def tampered(bench: Bench) -> Target:
    """The body was changed after it had been signed."""
    release = bench.release("1.1.0", 2)
    published = json.loads(release.manifest.read_text(encoding="utf-8"))
    body = bench.body_of(release).replace(b'"sequence":2', b'"sequence":9')
    published["manifest"] = base64.b64encode(body).decode("ascii")
    return Target(bench.target(release, signature=json.dumps(published)))


def strangers(bench: Bench) -> Target:
    """Signed by keys that the manifest lists and this host does not pin."""
    release = bench.release("1.1.0", 2)
    pins = bench.shop.keys[2].pin
    return Target(bench.target(release), {"release_pins": pins, "release_threshold": 1})


def not_canonical(bench: Bench) -> Target:
    """Signed, but with white space in it."""
    value = json.loads(bench.body_of(bench.release("1.1.0", 2)))
    body = json.dumps(value, sort_keys=True).encode()
    return Target(bench.target(bench.release("1.1.0", 2), signature=bench.signed(body)))


def wrong_product(bench: Bench) -> Target:
    """A release of something else, by the same keys."""
    value = json.loads(bench.body_of(bench.release("1.1.0", 2)))
    value["product"] = "otherd"
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return Target(bench.target(bench.release("1.1.0", 2), signature=bench.signed(body)))


def wrong_version(bench: Bench) -> Target:
    """The manifest of one release for the version of another."""
    return Target(bench.target(bench.release("1.1.0", 2), version="1.1.5"))


def below_floor(bench: Bench) -> Target:
    """Older than what the host was installed at, whatever its version says."""
    return Target(bench.target(bench.release("1.1.0", 2)), {"release_sequence": 5})


def expired(bench: Bench) -> Target:
    """A release of last year that was good for a day."""
    release = bench.release("1.3.0", 4, "--issued-at", "2025-01-01T00:00:00Z", "--expires-days", "1")
    return Target(bench.target(release))


def no_artifact(bench: Bench) -> Target:
    """Another file than the manifest lists."""
    return Target(bench.target(bench.release("1.1.0", 2), sha256="0" * 64))


def other_platform(bench: Bench) -> Target:
    """A release that has nothing for this kind of machine."""
    value = json.loads(bench.body_of(bench.release("1.1.0", 2)))
    for one in value["artifacts"]:
        one["platform"], one["name"] = "linux-riscv64", one["name"].replace(releases.ARCH, "riscv64")
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return Target(bench.target(bench.release("1.1.0", 2), signature=bench.signed(body)))


def artifact_too_large(bench: Bench) -> Target:
    """A file of one byte more than is taken."""
    value = json.loads(bench.body_of(bench.release("1.1.0", 2)))
    value["artifacts"][0]["size"] = (512 << 20) + 1
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return Target(bench.target(bench.release("1.1.0", 2), signature=bench.signed(body)))


def channel_not_allowed(bench: Bench) -> Target:
    """A release of a channel that this host does not follow."""
    return Target(bench.target(bench.release("1.4.0", 5, "--channel", "beta")))


def below_min_from(bench: Bench) -> Target:
    """A release that asks for a stepping stone first."""
    return Target(bench.target(bench.release("1.5.0", 6, "--min-from", "1.0.5")))


def bad_target(_bench: Bench) -> Target:
    """A file that is no target."""
    return Target(b'{"product": "slotward"}')


def bad_url(bench: Bench) -> Target:
    """A plain http address on a host whose configuration does not allow it."""
    return Target(bench.target(bench.release("1.1.0", 2)), {"allow_http": None})


NAME = re.escape(ARTIFACT.format(version="1.1.0"))
ROWS: dict[Callable[[Bench], Target], tuple[str, str]] = {
    not_a_release: ("not-a-release", r'"1\.1" is not a release version, such as 1\.2\.0'),
    bad_digest: ("bad-digest", "the release sha256 must be 32 bytes"),
    no_pins: (
        "no-pins",
        r"no release keys are pinned \(\[update\] release_pins\): slotward takes no binary on the control plane's word",
    ),
    no_manifest: ("no-manifest", "no signed release manifest"),
    bad_manifest: ("bad-manifest", "the release manifest is malformed: .*surprise.*"),
    too_few_signatures: (
        "too-few-signatures",
        r"the release manifest has 1 of the 2 signatures by pinned keys that it needs \(of slotward 1\.1\.0; signed by .*\)",
    ),
    tampered: (
        "too-few-signatures",
        r"the release manifest has 0 of the 2 signatures by pinned keys that it needs \(.*it does not verify.*\)",
    ),
    strangers: (
        "too-few-signatures",
        r"the release manifest has 0 of the 1 signatures by pinned keys that it needs \(.*its key is not pinned.*\)",
    ),
    not_canonical: ("not-canonical", "the release manifest is not canonical JSON: .*"),
    wrong_product: ("wrong-product", "the manifest releases otherd, not slotward"),
    wrong_version: ("wrong-version", r"the manifest releases slotward 1\.1\.0, not 1\.1\.5"),
    below_floor: (
        "below-floor",
        r"release sequence 2 is older than 5, which this node ran or was installed at \(rollback\)",
    ),
    expired: (
        "expired",
        (
            r"the release manifest expired at 2025-01-02T00:00:00Z: this host's clock says [-0-9]+T[:0-9]+Z, and nobody said"
            r" another time: set it if it is wrong"
        ),
    ),
    no_artifact: ("no-artifact", f"the manifest lists no {NAME} with the release sha256"),
    other_platform: ("no-artifact", f"the manifest lists no {NAME} with the release sha256"),
    artifact_too_large: ("artifact-too-large", "the binary is 536870913 bytes; at most 536870912 are taken"),
    channel_not_allowed: ("channel-not-allowed", "the manifest is on channel beta; this host takes stable"),
    below_min_from: (
        "below-min-from",
        r"slotward 1\.5\.0 takes over from 1\.0\.5 or later, not from 1\.0\.0: go to a release in between first",
    ),
    bad_target: ("bad-target", "the target is malformed: .*"),
    bad_url: ("bad-url", ".*http://.*"),
}


@pytest.mark.host
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_row_is_refused_before_anything_is_downloaded(bench: Bench, row: Callable[[Bench], Target]) -> None:
    """Exit status 3, the row's code and sentence; prepare says the same; nothing on the host has changed."""
    code, sentence = ROWS[row]
    target = row(bench)
    before = bench.node.unit(), bench.node.sh(LOOK)
    answer = bench.ask(target)
    assert (answer.exit, answer.code, answer.json["state"]) == (3, code, "refused"), answer
    assert re.fullmatch(sentence, answer.message), answer.message
    prepared = bench.node.slotward("prepare", "--target", f"{nodes.BOX}/row.json")
    assert (prepared.exit, prepared.code) == (3, code)
    clock = re.compile(r"clock says \S+,")  # which goes on meanwhile
    assert clock.sub("", prepared.message) == clock.sub("", answer.message)
    assert bench.files.requests == []
    assert (bench.node.unit(), bench.node.sh(LOOK)) == before
    assert bench.node.sh(f"ls -A {nodes.STAGING} 2>/dev/null", check=False) == ""


@pytest.mark.host
def test_a_target_that_is_good_is_downloaded(bench: Bench, tmp_path: pathlib.Path) -> None:
    """The other tests of this module can fail: without a fault in it the same target makes requests."""
    good = Target(bench.target(bench.release("1.1.0", 2)))
    answer = bench.ask(good, "--stage-only")
    assert (answer.exit, answer.json["state"]) == (0, "staged"), answer
    assert bench.files.requests == [f"/{ARTIFACT.format(version='1.1.0')}"]
    bench.files.requests.clear()
    bench.node.sh(f"rm -rf {nodes.STAGING}")


@pytest.mark.host
def test_a_failed_version_is_refused_with_why_it_failed(node: nodes.Node, v110: releases.Release) -> None:
    """Row 2: what an operator took back is not tried again, and an archive of the same version is not fetched."""
    trial = node.on_trial(v110)
    taken = node.slotward("rollback", "--id", trial, "--why", "it smells")
    assert (taken.exit, taken.json["state"], taken.json["retry"]) == (
        0,
        "rolled-back",
        "slotward update --clear-failed 1.1.0",
    )
    answer = node.begin(v110)
    assert (answer.exit, answer.code) == (3, "failed-before")
    assert answer.message == "slotward 1.1.0 failed here: it smells; running 1.0.0"


@pytest.mark.host
def test_without_any_floor_an_older_version_is_refused(
    bare: nodes.Node, shop: releases.Workshop, v100: releases.Release, tmp_path: pathlib.Path
) -> None:
    """Row 9: a development build carries no sequence, so its version is all there is to compare with."""
    program = tmp_path / "slotward"
    with zipfile.ZipFile(v100.artifact) as built, zipfile.ZipFile(program, "w") as made:
        for name in built.namelist():
            data = built.read(name)
            if name == "slotward/_build.py":
                data = data.replace(b"SEQUENCE = 1\n", b"SEQUENCE = 0\n")
            if name == "slotward-build.json":
                data = data.replace(b'"sequence":1,', b'"sequence":0,')
            made.writestr(name, data)
    program.write_bytes(b"#!/usr/bin/python3 -I\n" + program.read_bytes())
    bare.configure()
    bare.host.put(program, nodes.ENTRYPOINT, 0o755)
    assert bare.slotward("setup").exit == 0
    bare.enable()
    assert bare.update()["floor"] == 0
    older = shop.release("1.0.0-rc.9", 3)
    answer = bare.begin(older, "--adopt")
    assert (answer.exit, answer.code) == (3, "older-than-running"), answer
    assert answer.message == "slotward 1.0.0-rc.9 is older than the running 1.0.0 (rollback)"
