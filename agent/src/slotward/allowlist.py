# SPDX-License-Identifier: GPL-3.0-or-later
"""An allow-list of programs (fapolicyd) that would not let a new slot start (field case D15).

Rules:
- Nothing is added to anybody's allow-list: what may run on a host is its administrator's word, told with the commands.
- Whether it lets a slot run is not guessed: prepare's own probe in the slots directory, and the smoke test, show it.
"""

from __future__ import annotations

from typing import Optional

from slotcore import codes

UNIT = "fapolicyd.service"
EXIT_EXEC = 203
"""systemd's status for a program that could not be executed."""


def active() -> bool:
    """Whether the daemon of the allow-list runs; a host that cannot say has none."""
    from slotward import systemd

    try:
        return systemd.is_active(UNIT)
    except (codes.Retryable, codes.Refused):
        return False


def refusal(slots_dir: str, what: str) -> codes.Refusal:
    """Why a slot would not start, and the two ways out."""
    return codes.Refusal(
        codes.ALLOW_LIST,
        f"fapolicyd is active and does not let {what} run: allow the directory (`allow perm=execute all : dir={slots_dir}/` in "
        f"/etc/fapolicyd/rules.d), or trust what lies there (`fapolicyd-cli --file add {slots_dir}/ && fapolicyd-cli --update`)",
    )


def judge(slots_dir: str, what: str, status: int) -> Optional[codes.Refusal]:
    """The refusal when a program could not be executed and an allow-list is why; None otherwise."""
    return refusal(slots_dir, what) if status == EXIT_EXEC and active() else None
