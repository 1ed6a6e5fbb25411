# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets of `make fuzz` over their seeds and every earlier find, and each parser with the worst that its limits let in.

Coverage-guided runs are long; what they promise (docs of ``fuzz.targets``) is held to here on every run, in a second or two.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import string
import time
from typing import Dict, List, Tuple

import pytest
from fuzz import replay, seeds, targets

from slotcore import canonical, codes, config, manifest, signatures, strictjson, toml, trial

PLAYED = {name: [*good, *seeds.finds().get(name, [])] for name, good in seeds.plain().items()}
MIB = 1 << 20


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_seeds_and_finds_keep_every_promise(name: str) -> None:
    """Each target has seeds; whatever was found once does not come back."""
    assert PLAYED[name]
    for data in PLAYED[name]:
        replay.measure(targets.TARGETS[name], data)


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


def words(form: str) -> bytes:
    """As many lines with a name of their own as fit into a configuration."""
    letters = string.ascii_letters + string.digits + "-_"
    names = itertools.chain.from_iterable(itertools.product(letters, repeat=size) for size in (1, 2, 3))
    lines = "".join(form % "".join(name) for name in itertools.islice(names, 12_000))
    return lines[: lines.rindex("\n", 0, toml.MAX_BYTES) + 1].encode()


def read_json(data: bytes) -> None:
    """Read and write JSON; a refusal is fine."""
    with contextlib.suppress(strictjson.NotJson):
        canonical.encode(strictjson.parse(data))


def load(data: bytes) -> None:
    """Read a configuration."""
    config.load(data, "config.toml")


def revert(data: bytes) -> None:
    """Read a trial record."""
    trial.parse_revert(data)


def never_taken(data: bytes) -> None:
    """Judge a published manifest."""
    assert isinstance(signatures.verify_release(data, ("sha256/" + "A" * 43 + "=",), 1), codes.Refusal)


WORST: Dict[str, Tuple[targets.Target, bytes]] = {
    "numbers": (read_json, b"[" + b"1," * (MIB // 2 - 2) + b"1]"),
    "as many values as may be": (read_json, b"[" + b"1," * (strictjson.MAX_VALUES - 2) + b"1]"),
    "empty lists": (read_json, b"[" + b"[]," * (MIB // 3 - 2) + b"[]]"),
    "keys": (read_json, b"{" + b",".join(b'"%d":1' % number for number in range(65_000)) + b"}"),
    "escapes": (read_json, b'"' + b"\\n" * (MIB // 2 - 1) + b'"'),
    "escapes among characters": (read_json, b'"' + b"a\\n" * (MIB // 3 - 1) + b'"'),
    "long escapes": (read_json, b'"' + b"\\u00e9" * (MIB // 6 - 1) + b'"'),
    "a number of a megabyte": (read_json, b"9" * MIB),
    "depth": (read_json, b"[" * MIB),
    "signatures": (
        never_taken,
        json.dumps({"manifest": "QQ==", "signatures": [{"kid": "k", "sig": ""}] * 70_000}).encode(),
    ),
    "escapes in the published form": (never_taken, b'{"manifest":"' + b"\\n" * (MIB - 20) + b'"}'),
    "keys of a file": (load, words("%s=1\n")),
    "sections of a file": (load, words("[%s]\n")),
    "problems of a file": (load, b"x\n" * (toml.MAX_BYTES // 2)),
    "escapes of a file": (load, b'a="' + b"\\t" * 32_760 + b'"'),
    "a trial": (revert, b"REASON=" * 100_000),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_that_fits_costs_little(name: str) -> None:
    """A full body or file of nothing but work: under a second of this machine's time and 64 MiB."""
    targets.watched(*WORST[name])


def test_too_many_values_are_refused_both_ways() -> None:
    """65,536 are read and written, one more is neither."""
    most: List[object] = [0] * (strictjson.MAX_VALUES - 1)
    data = canonical.encode(most)
    assert canonical.decode(data) == most
    with pytest.raises(canonical.NotJson, match=r"^byte 131071: more than 65536 values$"):
        canonical.parse(b"[0," + data[1:])
    with pytest.raises(canonical.NotJson, match=r"^\$: 65537 values; at most 65536 are written$"):
        canonical.encode([*most, 0])
    with pytest.raises(canonical.NotJson, match="65538 values"):
        canonical.encode({"a": {"b": tuple(most)}})


def test_the_largest_manifest_has_few_enough_values() -> None:
    """A body at the limit of one mebibyte fits: its artifacts, four fields each, are what is many in it."""
    first = seeds.BODY["artifacts"]
    assert isinstance(first, list)
    count = manifest.MAX_BODY // len(seeds.canonical(first[0]))
    assert count * 5 < strictjson.MAX_VALUES * 0.6
