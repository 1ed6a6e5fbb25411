# SPDX-License-Identifier: GPL-3.0-or-later
"""Doctor's checks of what a start runs: the entrypoint, the links, the slot that starts, and an update in flight.

Rules:
- The agent cannot be asked to mend itself by a name that leads nowhere: then the command names a slot, or the release's file.
- A command is one that this host would carry out as it stands; going back is not said where there is nothing to go back to.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List

from slotward import build_info, looking, slots
from slotward import doctor_states as states

if TYPE_CHECKING:
    from slotward import doctor

Finding = states.Finding
ITS_FILE = "the release's own file, from where it was published"


def _is_agent(answer: Dict[str, Any]) -> bool:
    return bool(answer["product"] == build_info.NAME)


def reinstall(is_agent: bool) -> str:
    """What installs a release anew by its published file; the agent's own is the program that does it."""
    words = "setup --from FILE --manifest MANIFEST"
    return f"{ITS_FILE}: chmod +x FILE && FILE {words}" if is_agent else f"slotward {words} (FILE: {ITS_FILE})"


def entrypoint(seen: doctor.Seen) -> List[Finding]:
    """Whether what is in the slots is what starts."""
    slot, is_agent = seen.answer["slots"], _is_agent(seen.answer)
    if seen.entrypoint_kind == "ours":
        if slot["in_use"]:
            return [Finding("entrypoint", "ok", f"{seen.entrypoint} links to {seen.program}")]
        text = f"{seen.entrypoint} links to {seen.program}, which is not there: nothing starts"
        repair = f"{os.path.dirname(seen.current)}/good update --repair" if is_agent else looking.REPAIR
        run = f"{repair}; or {reinstall(is_agent)}" if slot["good"] else reinstall(is_agent)
        return [Finding("entrypoint", "fail", text, run, states.NOTHING_STARTS)]
    if not slot["in_use"]:
        return [Finding("entrypoint", "ok", f"slots not in use yet: the first update adopts {seen.entrypoint}")]
    text = f"{seen.entrypoint} does not link to {seen.program} ({seen.entrypoint_kind}): what is in the slots is not what starts"
    if seen.entrypoint_kind == "missing":
        run = f"{seen.current if is_agent else 'slotward'} setup --adopt"
        return [Finding("entrypoint", "fail", text, run, states.ENTRYPOINT_MISSING)]
    file = seen.entrypoint_kind == "file"
    run = "slotward setup --adopt" if file else f"set [update] entrypoint in {seen.config_path}"
    return [Finding("entrypoint", "fail", text, run, states.ENTRYPOINT_ELSEWHERE)]


def links(seen: doctor.Seen) -> List[Finding]:
    """Where `current` and `good` lead, and the slot that starts."""
    slot, trial = seen.answer["slots"], seen.answer["trial"]
    if slot["in_use"] and not slot["current"]:
        return [Finding("slots", "fail", f"{seen.current} names no slot", looking.REPAIR, states.LINK_CURRENT)]
    if slot["in_use"] and not slot["good"]:
        link = f"{os.path.dirname(seen.current)}/good"
        home = trial["from_slot"] if trial is not None else slot["current"]
        text = f"{link} names no slot: updates are refused; where nothing proves what was confirmed last, `ln -sfn {home} {link}`"
        return [Finding("slots", "fail", f"{text} says that slot {home} was", looking.REPAIR, states.LINK_GOOD)]
    if seen.exposed is not None and (not seen.damage or seen.damage.endswith(slots.NOT_EXECUTABLE)):
        return [Finding("slots", "fail", *seen.exposed, states.SLOT_DAMAGED)]
    if seen.damage:
        run = f"{looking.REPAIR} --slots; or {reinstall(_is_agent(seen.answer))}"
        return [Finding("slots", "fail", seen.damage, run, states.SLOT_DAMAGED)]
    return [Finding("slots", "ok", f"current {slot['current'] or '-'}, good {slot['good'] or '-'}")]


def pending(seen: doctor.Seen) -> List[Finding]:
    """A trial, or an update that nobody is at."""
    trial = seen.answer["trial"]
    if trial is not None:
        text = f"{trial['from']} -> {trial['to']} is on trial, {trial['left_s']} s left, waiting for {', '.join(trial['missing'])}"
        stuck = any((one.entry, one.state) == (states.OTHER_SLOT_DAMAGED, "fail") for one in seen.mode)
        run = f"slotward confirm --id {trial['id']} --wait 60" + ("" if stuck else ", or slotward rollback")
        return [Finding("pending update", "warn", text, run, states.ON_TRIAL)]
    if seen.answer["pending"] != "none":
        text = f"an update is in flight: {seen.answer['pending']}"
        return [Finding("pending update", "warn", text, looking.SETTLE, states.UNSETTLED)]
    return [Finding("pending update", "ok", "none")]
