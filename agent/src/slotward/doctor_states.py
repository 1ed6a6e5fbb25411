# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of a host that doctor can name; each is an entry of docs/runbook.md, and each entry is one of these (a test).

Rules:
- A finding that is not `ok` names its entry: what one sees, why, what to run, and how to see that it worked.
- A name has one meaning and is never used again for another; programs look at it, sentences may become clearer.
"""

from __future__ import annotations

from typing import NamedTuple

from slotward import build_info


class Finding(NamedTuple):
    """One check's result; `run` is the command that mends it, `entry` the state's name: both "" when all is well."""

    name: str
    state: str
    message: str
    run: str = ""
    entry: str = ""


def variable(product: str, name: str) -> str:
    """The role's variable that sets a key, as a hint; the agent and other products have a role each."""
    role = "agent" if product == build_info.NAME else "product"
    return f"(role {role}: {role}_{name})"


BAD_CONFIG = "bad-config"
UPDATES_DISABLED = "updates-disabled"
NO_RELEASE_KEYS = "no-release-keys"
KEYS_LOST = "keys-lost"
TRUST_DIGEST = "trust-digest"
EXPIRY = "expiry"
WITHDRAWN = "withdrawn"
HELD = "held"
STAGED = "staged"
NO_ZONE = "no-zone"
FROZEN = "frozen"
NO_WINDOW = "no-window"
FREEZES_STALE = "freezes-stale"

RECORD_BROKEN = "record-broken"
RECORD_OLDER = "record-older"
RECORD_SET_ASIDE = "record-set-aside"
AUDIT_BROKEN = "audit-broken"
ENTRYPOINT_MISSING = "entrypoint-missing"
ENTRYPOINT_ELSEWHERE = "entrypoint-elsewhere"
NOTHING_STARTS = "nothing-starts"
LINK_CURRENT = "link-current"
LINK_GOOD = "link-good"
SLOT_DAMAGED = "slot-damaged"
OTHER_SLOT_DAMAGED = "other-slot-damaged"
SLOT_UNPROVEN = "slot-unproven"
ON_TRIAL = "on-trial"
UNSETTLED = "unsettled"
LEFTOVERS = "leftovers"
FAILED_VERSION = "failed-version"
EVIDENCE_MISSING = "evidence-missing"
EVIDENCE_ODD = "evidence-odd"
RESTORE_PENDING = "restore-pending"
LOCK_HELD = "lock-held"
LOCK_ODD = "lock-odd"

GUARD_MISSING = "guard-missing"
GUARD_MASKED = "guard-masked"
UNIT_DOWN = "unit-down"
UNIT_LOOPS = "unit-loops"
UNIT_DISABLED = "unit-disabled"
MODE = "mode"
NO_ACCOUNT = "no-account"
OWNERSHIP = "ownership"
DIRECTORY_UNSAFE = "directory-unsafe"
HELPER_DOWN = "helper-down"
HELPER_BEHIND = "helper-behind"
SANDBOX = "sandbox"

NO_SPACE = "no-space"
READ_ONLY = "read-only"
NOEXEC = "noexec"
VOLATILE = "volatile"
RUN_FULL = "run-full"
CLOCK_BEHIND = "clock-behind"
CLOCK_UNSET = "clock-unset"
PACKAGE_OWNS = "package-owns"
PRODUCT_CONFLICT = "product-conflict"
PACKAGES_BUSY = "packages-busy"
REBOOT_PENDING = "reboot-pending"
