# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a host trusts at this moment, and what it says about that in `update` (trust.md, sections 2 and 6).

Rules:
- A record of trust that is lost is no licence for the configuration's pins: then nobody is trusted (I3).
- Warnings stop nothing; none is given where the time is not known.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from . import product as products
from . import settle as settles

WARNED_S = 90 * 86400
"""How long before an expiry anything is said."""


class InForce(NamedTuple):
    """Whose signatures count on this host: the configuration's pins, or those of the key set that it took last."""

    source: str
    """`configuration`, `key-set`, `digest` (no signature counts, a digest does), or `unknown` when the record of it is
    lost: then nobody's count."""
    sequence: int
    pins: Tuple[str, ...]
    threshold: int
    expires_at: int
    """Seconds since 1970; 0 for pins of the configuration, which do not expire."""


def in_force(product: products.Product, state: settles.State) -> InForce:
    """Whom this host trusts now."""
    if not state.trust_known:
        return InForce("unknown", 0, (), 0, 0)
    keys = state.trust.keys if state.trust is not None else None
    if keys is None and product.trust == products.DIGEST and not product.pins:
        return InForce(products.DIGEST, 0, (), 0, 0)
    if keys is None:
        return InForce("configuration", 0, product.pins, product.threshold, 0)
    return InForce("key-set", keys.sequence, keys.pins, keys.threshold, keys.expires_at)


def as_json(trusted: InForce, state: settles.State, version: str, sequence: int, machine_id: str) -> Dict[str, Any]:
    """The answer's `trust`: whom, and whether the release that runs was withdrawn."""
    withdrawn = state.trust is not None and state.trust.withdrawal_of(version, sequence) is not None
    return dict(trusted._asdict(), pins=list(trusted.pins), withdrawn=withdrawn, machine_id=machine_id)


def warnings(trusted: InForce, state: settles.State, version: str, now_s: int) -> List[Dict[str, Any]]:
    """The answer's `warnings`: keys, and the manifest of the release that runs, when their expiry is near."""
    entry = state.slots.get(state.current or "")
    expires_at = entry.expires_at if entry is not None else 0
    if not now_s or not any(0 < at <= now_s + WARNED_S for at in (trusted.expires_at, expires_at)):
        return []
    from . import expiry  # only when it is time: every start pays for what it imports

    found = (
        expiry.of_keys(trusted.sequence, trusted.expires_at, now_s) if trusted.expires_at else None,
        expiry.of_manifest(version, expires_at, now_s) if expires_at else None,
    )
    return [warned._asdict() for warned in found if warned is not None]


def kept(aside: Sequence[str]) -> List[Dict[str, Any]]:
    """The warnings about damaged records that were set aside: a copy had to be used, or nothing could be."""
    text = "a damaged record was set aside as %s: the audit log says why; remove the file when that is looked into"
    return [{"level": "warning", "what": "set-aside", "text": text % name, "days": 0} for name in aside]


def floor_and_pins(answer: Dict[str, Any]) -> str:
    """What the line of the version says of floor and pins; a broken record says nothing of either, which is not zero (I3)."""
    lost = answer["broken"]["file"].rpartition("/")[2] if answer["broken"] is not None else ""
    floor = f"release floor {answer['floor']}"
    if lost == "update.json":
        floor = "release floor not known" + (f", at least {answer['floor']}" if answer["floor"] else "")
    pins = answer["pins"]
    if answer["trust"]["source"] == "unknown":
        return f"{floor}, release pins not known"
    counted = f"{pins} release pin{'' if pins == 1 else 's'} (threshold {answer['threshold']})"
    return f"{floor}, {counted}{of_key_set(answer)}"


def of_key_set(answer: Dict[str, Any]) -> str:
    """What that line says more about the pins that it counts."""
    trust = answer["trust"]
    if trust["source"] == products.DIGEST:
        return "; releases are taken by their digest, and there is no floor"
    return f" of key set {trust['sequence']}" if trust["source"] == "key-set" else ""


def lines(answer: Dict[str, Any]) -> List[str]:
    """The lines for people that say more than that all is well."""
    said = [f"{warned['level']}: {warned['text']}" for warned in answer["warnings"]]
    if answer["trust"]["withdrawn"]:
        said.insert(0, f"withdrawn: {answer['version']} was withdrawn by whoever signs releases: go to another one")
    return said
