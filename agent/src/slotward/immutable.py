# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose system directories cannot be written: told before setup writes its first file, with the way out (D9, D11).

Rules:
- Nothing is written below /usr but the guard and the entrypoint, both below /usr/local; the slots are elsewhere.
- What is looked at is the directory itself, or its nearest parent that is there, as the kernel says it is mounted.
"""

from __future__ import annotations

import os
from typing import Sequence

from slotcore import codes

ROOT = "/"
ADVICE = (
    ("etc/NIXOS", "this is NixOS, whose system directories come from its configuration: declare the unit, the drop-in and the guard there"),
    ("run/ostree-booted", "this host's system is an image (ostree): /usr/local must be a link to a directory under /var, and /etc writable"),
    ("run/transactional-update", "this host is updated by transactions: run `slotward setup` in one, or make /usr/local a subvolume of its own"),
)  # fmt: skip


def check(paths: Sequence[str]) -> None:
    """Raise Refused `read-only` for the first of these files or directories whose place is on a read-only filesystem."""
    from slotward import preflight

    for path in paths:
        place = preflight.existing(os.path.dirname(path))
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            text = f"cannot write {path}: {place} is on a read-only filesystem"
            raise codes.refused(codes.READ_ONLY, f"{text}; {_advice()}")


def _advice() -> str:
    for mark, text in ADVICE:
        if os.path.lexists(os.path.join(ROOT, mark)):
            return text
    return "mount it writable, or set [update] entrypoint and slots_dir to places that are"
