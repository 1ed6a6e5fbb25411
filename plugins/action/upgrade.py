# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's half of ``upgrade``: switch, connect anew, confirm by the trial's id.

Rules:

* What happened is read from the host after connecting anew, never from whether a call came back (field case S8).
* The trial's id is chosen here, so that a lost answer does not lose the trial.
* Success is `confirmed` or `current`. Every other end says its code, its reason and the way out, and within a bound.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional

from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, upgrade_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import flow, releases, remote

SWAP_BOUND_S = 120.0
ASK_MARGIN_S = 30.0
HOST_OPTIONS = ("product", "executable", "config", "src", "stage_only", "adopt", "smoke")


class ActionModule(remote.RemoteAction):
    """One host's way to a release."""

    TRANSFERS_FILES = False  # a directory is made when there is a file to push, not before the first word

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Stage, or switch and confirm; answer where the host ended and why."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        self._vars = task_vars or {}
        args = self.validate_argument_spec(
            argument_spec=upgrade_options.UPGRADE_OPTIONS,
            mutually_exclusive=[["release", "target"], ["push", "src"]],
            required_one_of=[["release", "target"]],
        )[1]
        product = (args["target"] or {}).get("product") or args["product"]
        try:
            target = self._target(args)
            product = target["product"]
            call = dict({key: args[key] for key in HOST_OPTIONS}, target=target, product=product)
            platform = self.contact().platform
            result.update(self._upgrade(args, call, platform))
        except (codes.Refused, codes.Retryable) as error:
            state = "refused" if isinstance(error, codes.Refused) else "failed"
            result.update(remote.failure(product, state, error.code, error.text))
        except remote.Lost as error:
            text = "the host cannot be reached, nothing was changed: %s" % error
            result.update(remote.failure(product, "unknown", ansible_glue.UNREACHABLE, text))
        return result

    def _target(self, args: Dict[str, Any]) -> Dict[str, Any]:
        """The target to send, read from the release when it was not given."""
        if args["target"]:
            target: Dict[str, Any] = dict(args["target"])
            if args["version"] and target["version"] != args["version"]:
                text = "the target is %s %s, not %s" % (target["product"], target["version"], args["version"])
                raise releases.refuse(codes.WRONG_VERSION, text)
            return flow.from_url(target, args["url"]) if args["url"] else target
        product = args["product"] if "product" in self._task.args else None
        release = releases.read(args["release"], args["pins"] or (), args["threshold"], product, args["version"])
        return releases.target(release, args["url"])

    def _upgrade(self, args: Dict[str, Any], call: Dict[str, Any], platform: str) -> Dict[str, Any]:
        target = call["target"]
        if args["push"] and not self._task.check_mode:
            plan = self.ask("upgrade", dict(call, plan_only=True, target=flow.for_host(target, platform)))
            if plan.get("failed") and plan.get("code") != codes.TRIAL_PENDING:
                return plan
            if plan.get("artifact"):
                call["src"] = self.push_artifact(target, platform)
        call["target"] = flow.for_host(target, platform)
        if self._task.check_mode or args["stage_only"]:
            return self.ask("upgrade", call)
        return self._switch(args, call)

    def _switch(self, args: Dict[str, Any], call: Dict[str, Any]) -> Dict[str, Any]:
        """Begin the trial, or find the one that an interrupted run began, and see it through."""
        target = call["target"]
        trial_id = args["id"] or os.urandom(8).hex()
        try:
            begun = self.ask("upgrade", dict(call, id=trial_id), SWAP_BOUND_S)
        except remote.Lost as error:
            begun = flow.lost(target, trial_id, str(error))
        if begun.get("code") == codes.TRIAL_PENDING:
            begun = self._pending(call, begun)
        if begun.get("state") != "trial" and not flow.is_lost(begun):
            return begun
        if not args["confirm"]:
            return begun if not flow.is_lost(begun) else flow.merged(begun, begun, 0)
        return self._see_through(call, begun, args["reconnect_s"])

    def _pending(self, call: Dict[str, Any], refused: Dict[str, Any]) -> Dict[str, Any]:
        """A trial is pending already: ours to go on with when it is of the same release, else somebody else's."""
        node = self.ask("node_info", self._asked(call))
        trial = node.get("trial")
        if not trial or trial["to"] != call["target"]["version"]:
            return refused
        return flow.resumed(refused, node)

    def _asked(self, call: Dict[str, Any]) -> Dict[str, Any]:
        return {key: call[key] for key in ("product", "executable", "config")}

    def _see_through(self, call: Dict[str, Any], begun: Dict[str, Any], reconnect_s: Optional[int]) -> Dict[str, Any]:
        """Connect anew and confirm, until the trial has ended or the time is over."""
        since = time.monotonic()
        watch = flow.Watch(begun, reconnect_s, since)
        while True:
            self.reconnect()
            try:
                asked = dict(self._asked(call), id=begun["trial_id"], wait_s=watch.wait_s(time.monotonic()))
                answer = self.ask("confirm", asked, asked["wait_s"] + ASK_MARGIN_S)
                if answer.get("code") == codes.NO_TRIAL and flow.is_lost(begun):
                    answer = self._not_begun(call, answer)
            except remote.Lost as error:
                answer = flow.lost(call["target"], begun["trial_id"], str(error))
            step = watch.judge(answer, time.monotonic())
            if step.done:
                return flow.merged(begun, answer, time.monotonic() - since)
            time.sleep(step.pause_s)

    def _not_begun(self, call: Dict[str, Any], answer: Dict[str, Any]) -> Dict[str, Any]:
        """The connection was lost and no trial is known: somebody may still be at it, which only the lock tells."""
        node = self.ask("node_info", self._asked(call))
        return flow.busy(answer, node) if node.get("lock") else answer
