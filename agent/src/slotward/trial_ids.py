# SPDX-License-Identifier: GPL-3.0-or-later
"""The ids of trials and of requests: 16 hexadecimal digits, chosen by whoever asks or by chance."""

from __future__ import annotations

import os

from slotcore import codes, protocol


def new() -> str:
    """16 random hexadecimal digits."""
    return os.urandom(8).hex()


def demand(trial_id: str) -> str:
    """The id as it is; raises Refused `wrong-trial` for what cannot be a trial's."""
    if protocol.ID.fullmatch(trial_id) is None:
        raise codes.refused(codes.WRONG_TRIAL, f"a trial's id is 16 hexadecimal digits, not {trial_id!r}")
    return trial_id
