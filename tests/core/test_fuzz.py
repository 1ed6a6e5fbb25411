# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets of `make fuzz` over their seeds and every earlier find, and each parser with the worst that its limits let in.

Coverage-guided runs are long; what they promise (docs of ``fuzz.targets``) is held to here on every run, in a second or two.
"""

from __future__ import annotations

import gzip
import pathlib
import subprocess
import sys
import time

import pytest
from fuzz import replay, seeds, targets

from slotcore import (
    archive,
    audit_chain,
    catalogue,
    documents,
    manifest,
    protocol,
    records,
    reply,
    strictjson,
    target,
    toml,
    trial,
    trust_record,
)

PLAYED = {name: [*good, *seeds.finds().get(name, [])] for name, good in seeds.plain().items()}
MIB = 1 << 20


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_seeds_and_finds_keep_every_promise(name: str) -> None:
    """Each target has seeds; whatever was found once does not come back."""
    assert PLAYED[name]
    for data in PLAYED[name]:
        replay.measure(targets.TARGETS[name], data)


def test_the_seeds_are_good() -> None:
    """A seed that a newer reader refuses leads a fuzzer nowhere: each is what its target takes."""
    for data in seeds.plain()["body"]:
        manifest.parse_body(data)
    for data, kind in zip(seeds.plain()["documents"], documents.KINDS):
        assert documents.kind_of(data) is kind
        kind.parse(data)
    slots, update, trust = seeds.plain()["records"]
    assert records.parse_slots(slots, "slots.json")
    assert records.parse_update(update, "update.json").trust
    assert trust_record.parse(trust, "trust.json").keys
    assert catalogue.parse(seeds.plain()["catalogue"][0]).releases
    assert isinstance(audit_chain.verify(seeds.plain()["audit"][0].split(b"\n")), audit_chain.Chain)
    assert trial.parse_trial(seeds.plain()["trial"][0])
    assert target.parse(seeds.plain()["target"][0])
    hello, asked, filed, waiting, *answered = seeds.plain()["protocol"]
    assert protocol.parse_hello(hello).protocol == (1, 2)
    assert protocol.parse_request(asked, targets.NONCE).op == protocol.SWAP
    assert protocol.parse_request(filed).op == protocol.ROLLBACK
    assert protocol.parse_request(waiting, targets.NONCE).op == protocol.NODE_CONFIRM
    assert [reply.parse(one).retry for one in answered] == [False, True]
    for text in seeds.plain()["toml"]:
        assert toml.scan(text, "x")[1] == ()
    for data in seeds.plain()["archive"][:3]:
        assert archive.check([gzip.compress(data)])


def test_every_find_has_its_target() -> None:
    """A file whose name begins with no target's would never be played again."""
    assert set(seeds.finds()) <= set(targets.TARGETS)
    assert sorted(PLAYED) == sorted(targets.TARGETS)


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_bytes_near_a_seed_keep_every_promise(name: str) -> None:
    """One byte away from a good input, at forty places: also where no coverage-guided run is made."""
    for data in PLAYED[name]:
        for at in range(0, len(data), len(data) // 40 + 1):
            for change in (0x01, 0x20, 0x80):
                targets.TARGETS[name](data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
            targets.TARGETS[name](data[:at])


def test_a_broken_promise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too slow, too large, and an exception that is no refusal: each is a find, under atheris as here."""

    def large(_data: bytes) -> None:
        bytearray(65 * MIB)

    def wrong(_data: bytes) -> None:
        raise KeyError("x")

    for watch in (targets.watched, replay.measure):
        with pytest.raises(KeyError):
            watch(wrong, b"")
    with pytest.raises(targets.Find, match="of memory for 0 bytes"):
        replay.measure(large, b"")
    monkeypatch.setattr(targets, "MAX_SECONDS", 0.0)
    with pytest.raises(targets.Find, match=r"^0\.00 s for 1 bytes"):
        targets.watched(lambda _data: time.sleep(0), b"x")
    monkeypatch.setattr(strictjson, "MAX_INT", 10)
    with pytest.raises(targets.Find, match="the standard library"):
        targets.fuzz_json(b"[11]")


def test_the_worst_that_fits_costs_little() -> None:
    """A full body or file of nothing but work: each under a second of this machine's time and 64 MiB, in a process of its own."""
    program = [sys.executable, "-B", str(pathlib.Path(replay.__file__).with_name("worst.py"))]
    run = subprocess.run(
        program, capture_output=True, text=True, timeout=300, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert run.returncode == 0, run.stderr
    said = run.stdout.splitlines()
    assert len(said) > 12
    assert all(line.endswith(" KiB") for line in said)


def test_the_largest_manifest_has_few_enough_values() -> None:
    """A body at the limit of one mebibyte fits: its artifacts, four fields each, are what is many in it."""
    first = seeds.BODY["artifacts"]
    assert isinstance(first, list)
    count = manifest.MAX_BODY // len(seeds.canonical(first[0]))
    assert count * 5 < strictjson.MAX_VALUES * 0.6
