# SPDX-License-Identifier: GPL-3.0-or-later
"""The two files by which the daemon of start mode has root confirm, or give up, whatever is on trial (privilege.md, section 6).

Rules:
- A trigger carries nothing: the file is opened and closed again, and that is what systemd sees. It needs no space.
- Who triggers in a loop is refused by systemd; a switch makes root listen again, since another release speaks then.
"""

from __future__ import annotations

import os

from slotcore import codes
from slotward import answers, audit

DIRECTORY = "/run/slotward-start"
CONFIRM, GIVE_UP = "confirm", "give-up"
UNITS = ("slotward-confirm", "slotward-giveup")


def pull(name: str, directory: str = DIRECTORY) -> None:
    """Have root's unit for `name` started; raises Retryable when the file that triggers it is not there."""
    path = os.path.join(directory, name)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise codes.Retryable(
            codes.SYSTEMD_FAILED, f"cannot trigger by {path}: {error.strerror}; run `slotward setup`"
        ) from error


def let_speak() -> None:
    """Forget how often was triggered before, and listen; a failure is a warning, since the deadline stands anyhow."""
    from slotward import systemd

    for base in UNITS:
        try:
            systemd.reset_failed(f"{base}.service")
            systemd.start_no_block(f"{base}.path")
        except answers.CODED as error:
            audit.warn(f"{base}.path does not run, so the trial may end without its word: {error}")
