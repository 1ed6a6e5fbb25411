# SPDX-License-Identifier: GPL-3.0-or-later
"""What the daemon's account hands over to root: names in its staging directory, read as if an enemy had put them there (I6).

Rules:
- Only a plain file with one link that belongs to that account is read, opened beneath a directory that is no link.
- Nothing is read beyond its bound; what was opened is what is read, whatever happens to its name.
- Root changes nothing there. An artifact is a descriptor, and is compared with the release while it is copied.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from slotcore import checks, codes, protocol
from slotcore import manifest as manifests
from slotward import effects, own, prepare, staging


class Handed(NamedTuple):
    """What a request is about: the target, and the permit when it has one."""

    target: checks.Target
    permit: Optional[bytes]


def account_id(setup: own.Setup) -> int:
    """The uid of the account that the daemon runs as; raises Refused `no-account`."""
    import pwd

    try:
        return pwd.getpwnam(setup.config.user).pw_uid
    except KeyError:
        raise codes.refused(
            codes.NO_ACCOUNT, f"there is no account {setup.config.user} on this host: run `slotward setup`"
        ) from None


def open_file(setup: own.Setup, name: str) -> int:
    """A descriptor of what the account has staged under this name.

    Raises:
        FileNotFoundError: it is not there.
        Refused: `staged-unsafe`, or `no-account`.

    """
    return staging.open_staged(setup.inbox, name, account_id(setup))


def read(setup: own.Setup, name: str, most: int) -> bytes:
    """The file's bytes, at most `most` + 1 of them; raises as `open_file`."""
    descriptor = open_file(setup, name)
    with open(descriptor, "rb") as file:
        return file.read(most + 1)


def read_named(setup: own.Setup, name: str, most: int) -> bytes:
    """As `read`, for what a request names; what is missing or cannot be read is Refused `cannot-read`."""
    try:
        return read(setup, name, most)
    except OSError as error:
        text = f"cannot read {os.path.join(setup.inbox, name)}, which the request names: {error.strerror}"
        raise codes.refused(codes.CANNOT_READ, text) from error


def documents(setup: own.Setup, request: protocol.Request) -> Handed:
    """The target and the permit that a request of `update.prepare` or `update.swap` names."""
    target = checks.parse_target(read_named(setup, str(request.target), checks.MAX_TARGET))
    named = request.permit
    return Handed(target, None if named is None else read_named(setup, named, manifests.MAX_PUBLISHED))


def open_artifact(setup: own.Setup, prepared: prepare.Prepared) -> Optional[int]:
    """A descriptor of the release's bytes as the account has staged them; None when the other slot holds them."""
    if prepared.reuse:
        return None
    name = f"{setup.product.name}-{prepared.target.version}"
    try:
        return open_file(setup, name)
    except FileNotFoundError:
        path = os.path.join(setup.inbox, name)
        raise codes.refused(codes.CANNOT_READ, f"there is no {path}: its bytes were not staged") from None
    except OSError as error:
        raise effects.as_retryable(error, f"open the staged {prepared.target.version}") from error
