# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what the actions that begin a trial have in common: begin it, connect anew, see it through.

Rules:

* What happened is read from the host after connecting anew, never from whether a call came back (field case S8).
* The trial's id is chosen here, so that a lost answer does not lose the trial.
* What is installed may be the release on trial: one that gives no answer is as silent as a lost connection, and is asked again.
* Where the controller is no source of confirmation (probes alone decide) it watches, and confirms nothing.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Sequence

from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import flow, remote

CONTROLLER = "controller"
SWAP_BOUND_S = 120.0
ASK_BOUND_S = 60.0


class TrialAction(remote.RemoteAction):
    """An action that begins a trial; ``_params`` are the task's arguments."""

    _params: Dict[str, Any]

    def node(self) -> Dict[str, Any]:
        """What the host says of its state."""
        return self.agent(self._params, ["update"], bound_s=ASK_BOUND_S).data

    def switch(self, target: Dict[str, Any], words: Sequence[str], word: str, trial_id: str) -> Dict[str, Any]:
        """Begin the trial, or find the one that an interrupted run began, and see it through."""
        try:
            answer = self.agent(self._params, [*words, "--id", trial_id], word, SWAP_BOUND_S)
            begun = flow.begun(self._params, target, answer)
        except remote.Lost as error:
            begun = flow.lost(target, trial_id, str(error))
        if begun["code"] == codes.TRIAL_PENDING:
            begun = flow.resumed(begun, self.node(), target)
        if begun["state"] != flow.TRIAL and not flow.is_lost(begun):
            return begun
        if not self._params["confirm"]:
            return flow.merged(begun, begun, 0) if flow.is_lost(begun) else begun
        return self._see_through(target, begun)

    def _see_through(self, target: Dict[str, Any], begun: Dict[str, Any]) -> Dict[str, Any]:
        """Connect anew and confirm, until the trial has ended or the time is over."""
        since = time.monotonic()
        watch = flow.Watch(begun, self._params["reconnect_s"], since)
        self._confirms = not begun["missing"] or CONTROLLER in begun["missing"]
        while True:
            self.reconnect()
            try:
                now = time.monotonic()
                answer = self._ask_on(begun, watch.wait_s(now), watch.bound_s(now))
            except remote.Lost as error:
                answer = flow.lost(target, begun["trial_id"], str(error))
            step = watch.judge(answer, time.monotonic())
            if step.done:
                return flow.merged(begun, answer, time.monotonic() - since)
            time.sleep(step.pause_s)

    def _ask_on(self, begun: Dict[str, Any], wait_s: int, bound_s: float) -> Dict[str, Any]:
        """One more word about the trial: confirm it, or where that is not for the controller, look; raises Lost."""
        if self._confirms:
            words = ["confirm", "--id", begun["trial_id"], "--wait", str(wait_s)]
            answer = flow.asked(self._params, self._heard(words, bound_s))
            self._confirms = answer["code"] != codes.WRONG_SOURCE
        if not self._confirms:
            answer = self._look(begun["trial_id"])
        if answer["code"] == codes.NO_TRIAL and (flow.is_lost(begun) or not self._confirms):
            # somebody may still be at it, which only the lock tells
            return flow.busy(answer, self.node())
        return answer

    def _heard(self, words: Sequence[str], bound_s: float) -> ansible_glue.Answer:
        """What the host answers; raises Lost where the program there gives no answer too."""
        answer = self.agent(self._params, words, bound_s=bound_s)
        if answer.code in ansible_glue.MUTE:
            raise remote.Lost(str(answer.data["message"]))
        return answer

    def _look(self, trial_id: str) -> Dict[str, Any]:
        """How the trial stands; one that has ended is settled first where nobody has done that yet."""
        for last in (False, True):
            seen = ansible_glue.trial_by_id(self._heard(["update"], ASK_BOUND_S), trial_id)
            if last or seen.code != codes.NO_TRIAL:
                break
            self._heard(["settle"], ASK_BOUND_S)
        answer = flow.asked(self._params, seen)
        if answer["state"] in flow.BACK:
            answer["retry"] = ansible_glue.clear_command(self._params, str(answer["to"]))
        return answer


def directions(params: Dict[str, Any]) -> List[str]:
    """The words for a release that is named by its version: the product's source knows where it is."""
    line = ["--version", params["version"]]
    line += ["--channel", params["channel"]] if params["channel"] else []
    return line + (["--variant", params["variant"]] if params["variant"] else [])
