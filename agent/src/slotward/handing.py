# SPDX-License-Identifier: GPL-3.0-or-later
"""What travels with `node.upgrade`: the target and the permit as open descriptors, taken into staging (privilege.md, section 5).

Rules:
- Whoever asks may be able to read what the daemon may not, so a descriptor is handed over, not a name.
- Only plain files are read, from their beginning and bounded, and they must be what the request says by SHA-256: a file
  that changes meanwhile is refused, and the same request under the same id is about the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Dict, Sequence

from slotcore import checks, codes, protocol
from slotcore import manifest as manifests
from slotward import inbox, opening

LIMITS = {"target": checks.MAX_TARGET, "permit": manifests.MAX_PUBLISHED}
BLOCK = 1 << 18


def _read(descriptor: int, kind: str, sha256: str) -> bytes:
    found, most = os.fstat(descriptor), LIMITS[kind]
    if not stat.S_ISREG(found.st_mode):
        raise _bad(f"the descriptor of the {kind} is {opening.kind(found.st_mode)}, not a plain file")
    data = b""
    while len(data) <= most:
        block = os.pread(descriptor, min(BLOCK, most + 1 - len(data)), len(data))
        if not block:
            break
        data += block
    if len(data) > most:
        raise _bad(f"the {kind} has more than {most} bytes")
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise _bad(f"the {kind} has the SHA-256 {digest}, the request says {sha256}")
    return data


def _bad(text: str) -> codes.Refused:
    return codes.refused(codes.BAD_REQUEST, text)


def take(request: protocol.Request, files: Sequence[int], directory: str) -> Dict[str, str]:
    """Put what was handed over into staging, under the operation's id; the path of each kind.

    Raises:
        codes.Refused: `bad-request`, another number of descriptors, or one that is not what the request says.
        codes.Retryable: it cannot be read, or put there.

    """
    wanted = [(kind, sha256) for kind, sha256 in (("target", request.target), ("permit", request.permit)) if sha256]
    if len(files) != len(wanted):
        names = " and ".join(kind for kind, _sha256 in wanted)
        raise _bad(f"{len(files)} descriptors came with the request, {len(wanted)} were expected: {names}")
    try:
        found = {kind: _read(file, kind, sha256) for (kind, sha256), file in zip(wanted, files)}
    except OSError as error:
        raise codes.Retryable(codes.OS_ERROR, f"cannot read what was handed over: {error.strerror}") from error
    return {
        kind: os.path.join(directory, inbox.put(directory, f"{request.id}.{kind}", data))
        for kind, data in found.items()
    }
