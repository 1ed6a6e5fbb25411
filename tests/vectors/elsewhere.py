# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures that nobody here made, against slotcore's verifier: elsewhere.py DIRECTORY, where the package cryptography_vectors lies.

- NIST's CAVP vectors of FIPS 186-3, ECDSA signature verification, P-256 with SHA-256 (15 signatures, good and bad ones).
- The 1,024 signatures of the Ed25519 authors' own ``sign.input``; each must also fail with one bit of it changed.

The package is downloaded for the run and never kept. One JSON line; exit status 1 when one is judged wrongly.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Dict, Iterator, List, NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "plugins", "module_utils"))

from slotcore import keys, manifest


class Case(NamedTuple):
    """One signature and whether it verifies."""

    name: str
    alg: str
    raw: bytes
    message: bytes
    sig: bytes
    verifies: bool


def nist(directory: str) -> Iterator[Case]:
    """The section [P-256,SHA-256] of SigVer.rsp."""
    with open(os.path.join(directory, "asymmetric", "ECDSA", "FIPS_186-3", "SigVer.rsp"), encoding="ascii") as file:
        section = file.read().partition("[P-256,SHA-256]")[2].partition("[")[0]
    for number, block in enumerate(re.split(r"\n\s*\n", section.strip())):
        said: Dict[str, str] = dict(line.split(" = ", 1) for line in block.splitlines() if " = " in line)
        raw, sig = (
            b"".join(bytes.fromhex(said[name].zfill(64)) for name in pair) for pair in (("Qx", "Qy"), ("R", "S"))
        )
        yield Case("nist-%d" % number, keys.ES256, raw, bytes.fromhex(said["Msg"]), sig, said["Result"].startswith("P"))


def ed25519(directory: str) -> Iterator[Case]:
    """Each line of sign.input: seed and key, key, message, signature and message."""
    with open(os.path.join(directory, "asymmetric", "Ed25519", "sign.input"), encoding="ascii") as file:
        for number, line in enumerate(file):
            _seed, raw, message, both, _end = line.split(":")
            sig = bytes.fromhex(both)[:64]
            yield Case("ed25519-%d" % number, keys.EDDSA, bytes.fromhex(raw), bytes.fromhex(message), sig, True)
            wrong = bytes([sig[0] ^ 1]) + sig[1:]
            yield Case(
                "ed25519-%d, one bit" % number, keys.EDDSA, bytes.fromhex(raw), bytes.fromhex(message), wrong, False
            )


def main(argv: List[str]) -> int:
    """Judge all of them."""
    cases = [*nist(argv[0]), *ed25519(argv[0])]
    wrong = [
        case.name
        for case in cases
        if keys.verify(case.alg, manifest.SPKI_SHAPES[case.alg][0] + case.raw, case.message, case.sig)
        is not case.verifies
    ]
    counts = {
        "nist": sum(case.name.startswith("nist") for case in cases),
        "ed25519": sum(case.alg == keys.EDDSA for case in cases),
    }
    print(json.dumps({"cases": counts, "failed": wrong}))
    return 1 if wrong or not all(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
