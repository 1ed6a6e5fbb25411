# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cut has left in the slots directory.

Rules:
- What a process that is still there tries in it is none of that: a look ahead (`preflight`) needs no lock.
"""

from __future__ import annotations

import os
from typing import Tuple

from slotcore import product as products
from slotcore import settle
from slotward import host


def names(product: products.Product) -> Tuple[str, ...]:
    """The names in the slots directory, among which a cut may have left some."""
    return tuple(name for name in host.names(product) if not _is_tried(name))


def _is_tried(name: str) -> bool:
    return name.startswith(settle.PROBE) and os.path.isdir("/proc/" + name[len(settle.PROBE) :])
