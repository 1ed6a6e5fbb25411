# SPDX-License-Identifier: GPL-3.0-or-later
"""What is as large and as much work as the limits let in, through each parser: one line each, or Find."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import string
import sys
from typing import Dict, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("plugins/module_utils", "agent/src", "tests")]

from fuzz import targets

from slotcore import canonical, codes, config, signatures, strictjson, toml, trial

MIB = 1 << 20


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


def main() -> int:
    """Measure each."""
    for name, (one, data) in WORST.items():
        seconds, grown = targets.watched(one, data)
        print("%s: %.2f s, %d KiB" % (name, seconds, grown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
