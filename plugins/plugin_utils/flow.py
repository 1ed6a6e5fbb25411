# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what the controller does next after a switch, decided on answers and times alone.

Rules:

* Only `confirmed` ends well. A trial that is pending, a busy host and one that gives no answer are asked again until the time is over.
* Of the agent's own release it is the release on trial that is asked: one that crashes at once gives no answer until the host is back.
* The time is what the trial has left and a little for the host to go back; nobody waits for ever.
* That no trial is known is believed at the third time after a lost answer: what began on the host may not have got to its lock yet.
* What silence leaves is said as it is: not confirmed, and what the host does by itself.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, steps

CONFIRMED = "confirmed"
TRIAL = "trial"
UNKNOWN = "unknown"
PLANNED = "planned"
WELL = (CONFIRMED, "current", "ahead")
HELD = "held"
STAGED = "staged"
BACK = ("rolled-back", "rollback-failed")

GRACE_S = 15.0
DEFAULT_S = 120.0
MARGIN_S = 8.0
LAST_MARGIN_S = 30.0
PAUSE_S = 1.0
LONGEST_PAUSE_S = 3.0
BELIEVE_NO_TRIAL = 3

Result = Dict[str, Any]


class Step(NamedTuple):
    """Ask again after a pause, or be done."""

    done: bool
    pause_s: float = 0.0


def from_url(target: Dict[str, Any], url: str) -> Dict[str, Any]:
    """The target with the artifacts at another address: a mirror near this host."""
    base = url.rstrip("/")
    moved = {name: dict(entry, url="%s/%s" % (base, entry["name"])) for name, entry in target["artifacts"].items()}
    return dict(target, artifacts=moved)


def named(product: str, version: Optional[str]) -> Dict[str, Any]:
    """A release that is known by its version alone, and none by what is staged on the host."""
    return {"product": product, "version": version, "sequence": None, "artifacts": {}, "manifest": None}


def is_named(target: Dict[str, Any]) -> bool:
    """True for what `named` made: a target has a manifest, or an empty one."""
    return target["manifest"] is None


def words(params: Dict[str, Any], which: Sequence[str] = ("--target", "-")) -> List[str]:
    """The agent's command to take a release, which one being told by `which`, without how far to go."""
    line = ["upgrade", *which]
    line += ["--src", params["src"]] if params["src"] else []
    line += ["--adopt"] if params["adopt"] else []
    line += ["--start"] if params["start"] else []
    line += ["--force"] if params["force"] else []
    line += ["--accept-one-way"] if params["accept_one_way"] else []
    line += [] if params["smoke"] else ["--no-smoke"]
    return line


def _shaped(params: Dict[str, Any], target: Dict[str, Any], answer: ansible_glue.Answer) -> Result:
    result = ansible_glue.shape(params, answer, to=target["version"], sequence=target["sequence"])
    result.update({key: answer.data.get(key) for key in ("artifact", "command")})
    result.update({key: bool(answer.data.get(key)) for key in ("reuse", "adopt")})
    result.update(steps=[], hold=answer.data.get("hold"), next_at=answer.data.get("next_at"))
    result["msg"] = ansible_glue.sentence(result, str(answer.data.get("message") or ""))
    result.update(failed=answer.failed, changed=bool(answer.data.get("changed")))
    return put_off(result)


def put_off(result: Result) -> Result:
    """What an operator of the host wants so is no failure: a hold, and a release that is staged and waits for a word (C9)."""
    if result["code"] == codes.HELD:
        result.update(state=HELD, failed=False)
    elif result["code"] == codes.STAGED_MANUAL:
        result.update(state=STAGED, failed=False)
    return result


def planned(params: Dict[str, Any], target: Dict[str, Any], answer: ansible_glue.Answer) -> Result:
    """What check mode answers: what prepare does, and as changed whether an upgrade would change the host."""
    result = _shaped(params, target, answer)
    # with no release named and none staged there is nowhere to go
    result["changed"] = not answer.failed and result["state"] not in (*WELL, HELD) and result["to"] is not None
    after = result["to"] if result["changed"] else result["from"]
    result["diff"] = ansible_glue.before_after(result["product"], result["from"], after)
    return result


def staged(params: Dict[str, Any], target: Dict[str, Any], answer: ansible_glue.Answer) -> Result:
    """What staging answers: the same version runs before and after."""
    result = _shaped(params, target, answer)
    result["diff"] = ansible_glue.before_after(result["product"], result["from"], result["from"])
    return result


def begun(params: Dict[str, Any], target: Dict[str, Any], answer: ansible_glue.Answer) -> Result:
    """What the switch answers: a trial, or why there is none."""
    result = _shaped(params, target, answer)
    after = result["to"] if result["state"] == TRIAL else result["from"]
    result["diff"] = ansible_glue.before_after(result["product"], result["from"], after)
    return result


def asked(params: Dict[str, Any], answer: ansible_glue.Answer) -> Result:
    """What a confirmation answers."""
    result = ansible_glue.shape(params, answer)
    result["msg"] = ansible_glue.sentence(result, str(answer.data.get("message") or ""))
    result["changed"] = bool(answer.data.get("changed"))
    return result


def failure(product: str, state: str, code: str, message: str, **known: Any) -> Result:
    """A failed result with every key, made on the controller."""
    answer = ansible_glue.broken(code, message, state)
    result = ansible_glue.shape({"product": product}, answer, **known)
    result.update(artifact=None, command=None, reuse=False, adopt=False, steps=[], hold=None, next_at=None)
    result.update(failed=True, changed=False, msg=ansible_glue.sentence(result, message))
    return result


def lost(target: Dict[str, Any], trial_id: str, why: str) -> Result:
    """A result in the host's stead, when nothing came back."""
    known = {"to": target["version"], "sequence": target["sequence"], "trial_id": trial_id}
    return failure(target["product"], UNKNOWN, codes.NOT_CONFIRMED, "no answer came back: %s" % why, **known)


def is_lost(result: Result) -> bool:
    """True for what `lost` made."""
    return result.get("state") == UNKNOWN


def resumed(refused: Result, node: Dict[str, Any], target: Dict[str, Any]) -> Result:
    """The trial that an earlier run began, when it is of the same release; else the refusal, for it is somebody else's."""
    trial = node.get("trial")
    if not trial or trial["to"] != target["version"]:
        return refused
    data = {"state": TRIAL, "code": codes.NOT_CONFIRMED, "trial": trial, "message": "an earlier run began this trial"}
    data.update({"from": trial["from"], "to": trial["to"], "sequence": trial["sequence"], "floor": node.get("floor")})
    return begun({"product": refused["product"]}, target, ansible_glue.Answer(0, data))


def way(
    node: Dict[str, Any], target: Dict[str, Any], stones: Sequence[Dict[str, Any]]
) -> Union[List[Dict[str, Any]], codes.Refusal]:
    """The targets to go through on this host, the wanted one last, or why there is no way."""
    by_step = {_step(one): one for one in [*stones, target]}
    running = str(node.get("version") or UNKNOWN)
    found = steps.plan(running, int(node.get("floor") or 0), _step(target), [_step(one) for one in stones])
    return found if isinstance(found, codes.Refusal) else [by_step[step] for step in found]


def must_push(target: Dict[str, Any], platform: str) -> bool:
    """Whether a step's program can only come from the controller: it has no address, and nobody has staged it."""
    artifact = target["artifacts"].get(platform) or {}
    return bool(target.get("directory")) and not artifact.get("url")


def _step(target: Dict[str, Any]) -> steps.Step:
    return steps.Step(target["version"], int(target.get("sequence") or 0), target.get("min_from"))


def step_of(target: Dict[str, Any], state: str, trial_id: Optional[str] = None) -> Dict[str, Any]:
    """One step of the way, as the result tells it."""
    return {"version": target["version"], "state": state, "trial_id": trial_id}


def planned_way(refused: Result, targets: Sequence[Dict[str, Any]], running: Optional[str]) -> Result:
    """What check mode answers of a host that has to pass stepping stones: the refusal of the direct way is none then."""
    result = dict(refused, failed=False, changed=True, state="idle", code=codes.OK, reason=None)
    result["from"] = result["from"] or running
    result["steps"] = [step_of(one, PLANNED) for one in targets]
    result["msg"] = "by way of %s" % ", ".join(one["version"] for one in targets)
    result["diff"] = ansible_glue.before_after(result["product"], result["from"], None)
    result["diff"]["after"] = "".join("%s %s\n" % (result["product"], one["version"]) for one in targets)
    return result


def walked(refused: Result, last: Result, walk: List[Dict[str, Any]]) -> Result:
    """The end of the way: what the last step answered, as one way from what ran before the first."""
    moved = any(step["state"] == CONFIRMED for step in walk)
    result = dict(last, steps=walk, changed=bool(last["changed"] or moved))
    if moved:
        before = refused["from"] or last["from"]
        after = last["to"] if last["state"] in WELL else last["from"]
        result["from"] = before
        result["diff"] = ansible_glue.before_after(result["product"], before, after)
    return result


def busy(answer: Result, node: Dict[str, Any]) -> Result:
    """The answer that no trial is known, unless somebody holds the lock."""
    lock = node.get("lock")
    return dict(answer, code=codes.IN_PROGRESS, msg="%s holds the lock" % lock["what"]) if lock else answer


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

    def bound_s(self, now: float) -> float:
        """How long to wait for that answer: of one that hangs until the deadline, the host is asked again when it is back."""
        wait_s = self.wait_s(now)
        return wait_s + (MARGIN_S if wait_s else LAST_MARGIN_S)

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
        result["msg"] = answer["msg"]
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
        text = "not confirmed: the host gave no answer for %d s, so whether %s is on trial is not known" % (
            waited_s,
            begun["to"] or "a release",
        )
        state, left = UNKNOWN, None
    else:
        text = "not confirmed: %s is on trial and the host gave no answer for %d s" % (begun["to"], waited_s)
        state, left = TRIAL, max(0, int(known - waited_s)) if known is not None else None
    text += (
        "; it goes back by itself unless somebody confirms trial %s in time, and the next run tells how it ended (%s)"
        % (begun["trial_id"], answer["reason"])
    )
    return {"state": state, "code": codes.NOT_CONFIRMED, "reason": text, "msg": text, "deadline_s": left}
