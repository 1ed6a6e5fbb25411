# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's checks of whom this host trusts, of what expires soon, and of a release that was withdrawn.

Rules:
- `fail` only where what was there is lost: whom this host trusted, or keys that have expired. The daemon runs on (N12).
"""

from __future__ import annotations

import os
from typing import Any, Dict, List

from slotcore import codes, recording
from slotward import doctor_states as states
from slotward import looking

Answer = Dict[str, Any]
Found = states.Finding


def findings(answer: Answer, config_path: str) -> List[Found]:
    """What an answer of `update` says about trust."""
    return [*_pins(answer, config_path), *_expiry(answer), *_withdrawn(answer), *_set_aside(answer), *_left(answer)]


def older(answer: Answer, floor: int, keys: int, config_path: str) -> List[Found]:
    """Sound records that are behind what the audit log knows of: older ones were put in their place, or a write was cut."""
    found: List[Found] = []
    if answer["floor"] < floor:
        text = f"the release floor is {answer['floor']}, and the audit log tells of {floor}: an older record was put in its place"
        role = states.variable(answer["product"], "release_sequence")
        run = f"slotward audit, then set [update] release_sequence = {floor} in {config_path} {role}"
        found.append(Found("records", "fail", text, run, states.RECORD_OLDER))
    if answer["trust"]["sequence"] < keys:
        used = f"key set {answer['trust']['sequence']} is" if answer["trust"]["sequence"] else "no key set is"
        text = f"{used} in use, and the audit log tells of key set {keys}: an older record was put in its place, or taking it was cut short"
        run = "slotward trust apply FILE ... (the key sets up to that one)"
        found.append(Found("records", "fail", text, run, states.RECORD_OLDER))
    return found


def _unknown(broken: Dict[str, str]) -> Found:
    """Lost, or not known before another record is mended, as a host that never took a key set has no record of them."""
    if os.path.basename(broken["file"]) != recording.TRUST or broken["run"] == looking.SETTLE:
        text = f"whom this host trusts is not known before {broken['file']} is mended"
        return Found("release keys", "warn", text, broken["run"], states.RECORD_BROKEN)
    text = "the record of whom this host trusts is lost: nobody is, and the configuration's pins do not stand in for it"
    return Found("release keys", "fail", text, broken["run"], states.KEYS_LOST)


def _pins(answer: Answer, config_path: str) -> List[Found]:
    pins, threshold, trust = answer["pins"], answer["threshold"], answer["trust"]
    if trust["source"] == "unknown":
        return [_unknown(answer["broken"])]
    if trust["source"] == "digest":
        text = "releases are taken by their SHA-256 alone, whoever with root hands it over: no signature, no floor"
        run = f'set [update] trust = "pins" and release_pins in {config_path}'
        return [Found("release keys", "warn", text, run, states.TRUST_DIGEST)]
    if pins:
        whose = "of the configuration" if trust["source"] == "configuration" else f"of key set {trust['sequence']}"
        return [Found("release keys", "ok", f"{pins} {whose} count, {threshold} must have signed")]
    if answer["config_problems"]:
        text = "no release keys are known: the configuration, which pins them, is not understood in full"
        return [Found("release keys", "warn", text, f"mend {config_path} first", states.BAD_CONFIG)]
    return [
        Found(
            "release keys",
            "warn",
            "no release keys are pinned: every update is refused",
            f"set [update] release_pins and release_threshold in {config_path} {states.variable(answer['product'], 'release_pins')}",
            states.NO_RELEASE_KEYS,
        )
    ]


_RENEW = {
    "keys": "slotward trust apply FILE (the next key set, made by slotward release key-set)",
    "manifest": "slotward upgrade --target FILE (a newer release, or this one with a manifest that lasts longer)",
}


def _expiry(answer: Answer) -> List[Found]:
    found = [
        Found("expiry", _state_of(one), one["text"], _RENEW[one["what"]], states.EXPIRY)
        for one in answer["warnings"]
        if one["what"] in _RENEW
    ]
    return found or [Found("expiry", "ok", "neither keys nor manifest expire within 90 days")]


def _state_of(warning: Dict[str, Any]) -> str:
    return "fail" if warning["what"] == "keys" and warning["days"] < 0 else "warn"


def _set_aside(answer: Answer) -> List[Found]:
    run = "slotward audit, then remove the file"
    texts = [one["text"] for one in answer["warnings"] if one["what"] == "set-aside"]
    return [Found("set aside", "warn", text, run, states.RECORD_SET_ASIDE) for text in texts]


def _withdrawn(answer: Answer) -> List[Found]:
    if not answer["trust"]["withdrawn"]:
        return [Found("withdrawn", "ok", "the release that runs was not withdrawn")]
    text = f"{answer['version']}, which runs here, was withdrawn (slotward trust says why)"
    run = "slotward upgrade --target FILE (another release)"
    return [Found("withdrawn", "warn", text, run, states.WITHDRAWN)]


def _left(answer: Answer) -> List[Found]:
    """The guard left a slot that did not prove itself at boot, and no release of the floor's sequence has come since."""
    left = [one["version"] for one in answer["failed"] if one["code"] == codes.SLOT_UNPROVEN]
    if not left or answer["trial"] is not None or answer["sequence"] >= answer["floor"]:
        return []
    text = (
        f"{answer['version']}, sequence {answer['sequence']}, runs below the release floor {answer['floor']}: at boot the slot of"
        f" {', '.join(left)} no longer held the bytes that had been verified; look at the disk"
    )
    run = f"slotward update --clear-failed {left[-1]}, then slotward upgrade --target FILE (sequence {answer['floor']} or higher)"
    return [Found("slots", "warn", text, run, states.SLOT_UNPROVEN)]
