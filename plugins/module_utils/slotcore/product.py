# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine must know of a daemon to replace it.

Rules:
- Nothing in this package knows the name of a product; every function takes a Product.
- Paths are absolute strings, joined with "/"; this package never touches them.
- A slot is a file named by its slot beside the links (node.md, section 2).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

SLOTS = ("a", "b")

DEFAULT_TRIAL_LENGTH_S = 120
MIN_TRIAL_LENGTH_S = 5
MAX_TRIAL_LENGTH_S = 3600


class Policy(NamedTuple):
    """Which releases root's configuration lets this product go to, beyond whom it trusts (releases.md, section 3)."""

    enabled: bool = True
    allowed_channels: Tuple[str, ...] = ("stable",)
    min_version: Optional[str] = None
    rollback_grace: int = 1
    """Minor versions below the running one that may be taken."""
    same_major: bool = False
    strict_sequence: bool = False


class Product(NamedTuple):
    """One daemon under our care, as root's configuration describes it (DESIGN 1)."""

    name: str
    unit: str
    entrypoint: str
    slots_dir: str
    pins: Tuple[str, ...] = ()
    threshold: int = 1
    base_floor: int = 0
    """The highest of the configured and the embedded sequence: the floor before any record."""
    least_floor: int = 0
    """The configured sequence, below which no permit takes the floor (I3)."""
    confirm_sources: Tuple[str, ...] = ("controller",)
    trial_length_s: int = DEFAULT_TRIAL_LENGTH_S
    settle_s: int = 10
    max_boots: int = 3
    smoke_argv: Tuple[str, ...] = ()
    """Arguments of the smoke test; empty: none is run."""
    config_argv: Tuple[str, ...] = ()
    """Arguments with which a staged release judges this host's configuration; empty: it is not asked."""
    adopt: bool = False
    status_socket: str = ""
    """A socket that answers with the daemon's own digest, or "" when it has none (I11)."""
    helper_unit: str = ""
    """The unit of its helper, which starts `<slots>/helper` and is part of its trials; "" when it has none."""
    helper_socket: str = ""
    """Where that helper answers with its own digest."""
    policy: Policy = Policy()
    mirrors: Tuple[str, ...] = ()
    """Bases where else a release's files are: `<base>/<product>/<version>/<file>`."""

    def path(self, name: str) -> str:
        """The path of a link, slot or record in the slots directory."""
        return self.slots_dir + "/" + name


def other_slot(slot: str) -> str:
    """The slot that `slot` is not."""
    return "b" if slot == "a" else "a"
