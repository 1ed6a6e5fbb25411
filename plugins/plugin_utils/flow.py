# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what the controller does next after a switch, decided on answers and times alone.

Rules:

* Only `confirmed` ends well. A trial that is pending, a busy host and a lost connection are asked again until the time is over.
* The time is what the trial has left and a little for the host to go back; nobody waits for ever.
* That no trial is known is believed at the third time after a lost answer: what began on the host may not have got to its lock yet.
* What a lost connection leaves is said as it is: not confirmed, and what the host does by itself.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

CONFIRMED = "confirmed"
TRIAL = "trial"
UNKNOWN = "unknown"
WELL = (CONFIRMED, "current", "ahead")

GRACE_S = 15.0
DEFAULT_S = 120.0
PAUSE_S = 1.0
LONGEST_PAUSE_S = 3.0
BELIEVE_NO_TRIAL = 3

Result = Dict[str, Any]


class Step(NamedTuple):
    """Ask again after a pause, or be done."""

    done: bool
    pause_s: float = 0.0


def for_host(target: Dict[str, Any], platform: str) -> Dict[str, Any]:
    """The target without what this host does not need; all platforms when it has none, so that the refusal can name them."""
    own = {name: entry for name, entry in target["artifacts"].items() if name == platform}
    return dict(
        {key: value for key, value in target.items() if key != "directory"}, artifacts=own or target["artifacts"]
    )


def from_url(target: Dict[str, Any], url: str) -> Dict[str, Any]:
    """The target with the artifacts at another address: a mirror near this host."""
    base = url.rstrip("/")
    moved = {name: dict(entry, url="%s/%s" % (base, entry["name"])) for name, entry in target["artifacts"].items()}
    return dict(target, artifacts=moved)


def lost(target: Dict[str, Any], trial_id: str, why: str) -> Result:
    """A result in the host's stead, when nothing came back."""
    answer = ansible_glue.broken(codes.NOT_CONFIRMED, "the connection was lost: %s" % why, UNKNOWN)
    known = {"to": target["version"], "sequence": target["sequence"], "trial_id": trial_id}
    result = ansible_glue.shape({"product": target["product"]}, answer, **known)
    result.update(changed=False, artifact=None, command=None, reuse=False, adopt=False)
    return result


def is_lost(result: Result) -> bool:
    """True for what `lost` made."""
    return result.get("state") == UNKNOWN


def resumed(refused: Result, node: Result) -> Result:
    """The result of a switch that an earlier run made, from what the host says of its trial."""
    trial = node["trial"]
    data = {"state": TRIAL, "code": codes.NOT_CONFIRMED, "trial": trial, "message": "an earlier run began this trial"}
    data.update({"from": trial["from"], "to": trial["to"], "sequence": trial["sequence"], "floor": node.get("floor")})
    shaped = ansible_glue.shape({"product": refused["product"]}, ansible_glue.Answer(0, data))
    kept = {key: value for key, value in refused.items() if key not in ("failed", "msg")}
    return dict(kept, changed=False, **shaped)


def busy(answer: Result, node: Result) -> Result:
    """The answer that no trial is known, while somebody holds the lock."""
    return dict(answer, code=codes.IN_PROGRESS, msg="%s holds the lock" % node["lock"]["what"])


class Watch:
    """How long to go on asking about one trial."""

    def __init__(self, begun: Result, limit_s: Optional[int], now: float) -> None:
        left = begun.get("deadline_s")
        self._deadline = None if left is None else now + float(left)
        lasts = DEFAULT_S if left is None else float(left) + GRACE_S
        self._ends = now + (lasts if limit_s is None else min(lasts, float(limit_s)))
        self._unknown = 0
        self._silences = 0
        self._begun_lost = is_lost(begun)

    def wait_s(self, now: float) -> int:
        """How long the host should wait for proof before it answers."""
        last = self._ends if self._deadline is None else min(self._ends, self._deadline)
        return max(0, int(last - now))

    def judge(self, answer: Result, now: float) -> Step:
        """What to do after this answer."""
        if answer.get("state") == CONFIRMED:
            return Step(True)
        if is_lost(answer):
            self._silences += 1
            return self._again(now, min(PAUSE_S * self._silences, LONGEST_PAUSE_S))
        self._silences = 0
        if answer.get("code") == codes.NO_TRIAL and self._begun_lost:
            self._unknown += 1
            return Step(True) if self._unknown >= BELIEVE_NO_TRIAL else self._again(now, PAUSE_S)
        if answer.get("state") == TRIAL or answer.get("code") == codes.IN_PROGRESS:
            return self._again(now, PAUSE_S)
        return Step(True)

    def _again(self, now: float, pause_s: float) -> Step:
        return Step(True) if now + pause_s >= self._ends else Step(False, pause_s)


def merged(begun: Result, answer: Result, waited_s: float) -> Result:
    """The end of the task: what the switch said, overlaid with what the host said last."""
    result = dict(begun)
    if is_lost(answer):
        result.update(_unheard(begun, answer, waited_s))
    else:
        result.update({key: answer[key] for key, _unknown in ansible_glue.ANSWER_KEYS if answer.get(key) is not None})
        result.update(
            {key: answer.get(key) for key in ("code", "reason", "deadline_s", "boots_left", "missing", "retry")}
        )
        result["digests"] = {
            side: (begun.get("digests") or {}).get(side) or (answer.get("digests") or {}).get(side)
            for side in ("from", "to")
        }
        result["msg"] = answer.get("msg") or result["state"]
    return ended(result, bool(begun.get("changed") or answer.get("changed")))


def ended(result: Result, changed: bool) -> Result:
    """A result that says failed unless it ended well, with its difference."""
    well = result["state"] in WELL
    result.update(failed=not well, changed=changed)
    if not well and result["code"] == codes.OK:
        result["code"] = codes.NOT_CONFIRMED
    after = result["to"] if result["state"] == CONFIRMED else result["from"]
    result["diff"] = ansible_glue.before_after(result["product"], result["from"], after)
    return result


def _unheard(begun: Result, answer: Result, waited_s: float) -> Result:
    """Nothing was heard after the switch, or not even of the switch."""
    known = begun.get("deadline_s")
    if is_lost(begun):
        text = "not confirmed: the host was not heard of for %d s, so whether %s is on trial is not known" % (
            waited_s,
            begun["to"],
        )
        state, left = UNKNOWN, None
    else:
        text = "not confirmed: %s is on trial and the host was not heard of for %d s" % (begun["to"], waited_s)
        state, left = TRIAL, max(0, int(known - waited_s)) if known is not None else None
    text += (
        "; it goes back by itself unless somebody confirms trial %s in time, and the next run tells how it ended (%s)"
        % (begun["trial_id"], answer["reason"])
    )
    return {"state": state, "code": codes.NOT_CONFIRMED, "reason": text, "msg": text, "deadline_s": left}
