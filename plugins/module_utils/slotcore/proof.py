# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the new release is what runs (I11).

Rules:
- The unit's main process must have started after the swap: a reload that keeps the old process is no proof.
- It must run the slot's bytes: its executable is the slot's file, or it has that file open (a script), or the daemon's
  status socket, answered by that very process, says the slot's digest.
- It must have been up, as one process, for as long as the product's configuration asks.
- Of a product with a helper, the helper's main process must prove the same, and greet on its socket with the slot's digest.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple, Union


class Facts(NamedTuple):
    """What the host says of the unit's main process; times are seconds of /proc/uptime."""

    active: str
    main_pid: int
    started_s: Optional[float]
    now_s: float
    exe_is_slot: bool
    slot_is_open: bool
    status_sha256: Optional[str]
    status_pid: Optional[int]


class Greeting(NamedTuple):
    """What was heard on the helper's socket: the digest and by which process, or why nothing."""

    sha256: Optional[str] = None
    pid: Optional[int] = None
    why: str = ""


class Helper(NamedTuple):
    """What the host says of the product's helper."""

    unit: str
    facts: Facts
    greeting: Greeting


class Proof(NamedTuple):
    """How it was proven, by which process; and for the helper, of a product that has one."""

    how: str
    main_pid: int
    helper: Optional[Tuple[str, int]] = None


class Missing(NamedTuple):
    """What is still missing, as a sentence."""

    why: str


def check(facts: Facts, swapped_s: int, settle_s: int, slot_sha256: str) -> Union[Proof, Missing]:
    """Whether the unit's main process is the new release, up for `settle_s` seconds."""
    if facts.active != "active":
        return Missing(f"the unit is {facts.active or 'unknown'}, not active")
    if facts.main_pid <= 0 or facts.started_s is None:
        return Missing("the unit has no main process")
    if facts.started_s < swapped_s:
        return Missing(f"main process {facts.main_pid} is older than the swap: the unit was not restarted")
    how = _bytes_proof(facts, slot_sha256)
    if how is None:
        return Missing(f"main process {facts.main_pid} does not run the new slot's bytes (ExecStart= of the unit?)")
    up_s = facts.now_s - facts.started_s
    if up_s < settle_s:
        return Missing(f"main process {facts.main_pid} is up {up_s:.1f} s of {settle_s} s")
    return Proof(how, facts.main_pid)


def check_both(
    unit: str, facts: Facts, helper: Helper, swapped_s: int, settle_s: int, slot_sha256: str
) -> Union[Proof, Missing]:
    """Whether both main processes are the new release; what is missing names the unit that it is missing of."""
    found = check(facts, swapped_s, settle_s, slot_sha256)
    if isinstance(found, Missing):
        return Missing(f"{unit}: {found.why}")
    other = check(helper.facts, swapped_s, settle_s, slot_sha256)
    why = other.why if isinstance(other, Missing) else _unheard(helper, slot_sha256)
    if isinstance(other, Missing) or why:
        return Missing(f"{helper.unit}: {why}")
    return found._replace(helper=(other.how, other.main_pid))


def _unheard(helper: Helper, slot_sha256: str) -> str:
    """What is wrong with what was heard on the helper's socket; "" when nothing is."""
    heard, main_pid = helper.greeting, helper.facts.main_pid
    if heard.sha256 is None:
        return f"main process {main_pid} does not answer on its socket: {heard.why}"
    if heard.pid != main_pid:
        return f"process {heard.pid} answers on its socket, not main process {main_pid}"
    if heard.sha256 != slot_sha256:
        return f"main process {main_pid} says that it runs {heard.sha256}, not the new slot's {slot_sha256}"
    return ""


def as_json(found: Proof) -> Dict[str, Any]:
    """The proof in an answer; a product without a helper says nothing of one."""
    shown: Dict[str, Any] = {"how": found.how, "main_pid": found.main_pid}
    if found.helper is not None:
        how, main_pid = found.helper
        shown["helper"] = {"how": how, "main_pid": main_pid}
    return shown


def _bytes_proof(facts: Facts, slot_sha256: str) -> Optional[str]:
    if facts.exe_is_slot:
        return "exe"
    if facts.slot_is_open:
        return "open-file"
    if facts.status_pid == facts.main_pid and facts.status_sha256 == slot_sha256:
        return "status-socket"
    return None


def missing_sources(wanted: Tuple[str, ...], recorded: bytes, trial_id: str) -> Tuple[str, ...]:
    """The confirmation sources that have not spoken for this trial, in the order of the configuration."""
    given = set()
    for line in recorded.split(b"\n")[:-1]:
        found, _blank, source = line.partition(b" ")
        if found == trial_id.encode("ascii"):
            given.add(source.decode("ascii", "replace"))
    return tuple(source for source in wanted if source not in given)
