# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""``upgrade`` on one host: stage; or switch, connect anew, confirm by the trial's id.

Rules:

* A release is named by itself, by a target, or for a product with a source by its version alone; then the host knows where it is.
* Success is `confirmed` or `current`. A hold, and a release that waits for an operator's word, are no failures. Every other end says
  its code, its reason and the way out, and within a bound.
* One step is one command of the agent: the fewer things between a switch and its confirmation, the shorter the trial.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, upgrade_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import flow, releases, remote, trials, trusting
from ansible_collections.slotward.fleet.plugins.plugin_utils import stones as stepping


class ActionModule(trials.TrialAction):
    """One host's way to a release."""

    TRANSFERS_FILES = False  # a directory is made when there is a file to push, not before the first word

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Stage, or switch and confirm; answer where the host ended and why."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        args = self.validate_argument_spec(
            argument_spec=upgrade_options.UPGRADE_OPTIONS,
            mutually_exclusive=upgrade_options.EXCLUSIVE,
            required_one_of=upgrade_options.ONE_OF,
            required_if=upgrade_options.REQUIRED_IF,
        )[1]
        product = (args["target"] or {}).get("product") or args["product"]
        try:
            target, stones = self._read_target(args)
            product = target["product"]
            if args["permit"]:
                trusting.read(args["permit"])  # what is no document stops here, before the host is touched
            self._params = dict(args, product=product)
            variant = "/" + args["variant"] if args["variant"] and not args["sha256"] else ""
            result.update(self._upgrade(target, stones, self.contact().platform + variant))
        except (codes.Refused, codes.Retryable) as error:
            state = "refused" if isinstance(error, codes.Refused) else "failed"
            result.update(flow.failure(product, state, error.code, error.text))
        except remote.Lost as error:
            text = "the host cannot be reached, nothing was changed: %s" % error
            result.update(flow.failure(product, "unknown", codes.UNREACHABLE, text))
        return result

    def _read_target(self, args: Dict[str, Any]) -> Tuple[Dict[str, Any], List[Dict[str, Any]]]:
        """The target to send and its stepping stones, read from the release when they were not given."""
        url = args["url"]
        if args["sha256"] and (args["release"] or args["version"]):
            found = releases.by_digest(args["release"], args["sha256"], args["product"], args["version"], url)
            return found["target"], []
        if args["release"]:
            product = args["product"] if "product" in self._task.args else None
            pins, threshold = args["pins"] or (), args["threshold"]
            release = releases.read(args["release"], pins, threshold, product, args["version"])
            beside = stepping.find(release, pins, threshold)
            return releases.target(release, url), [stepping.target(release, one, url) for one in beside]
        if not args["target"]:
            return flow.named(args["product"], args["version"]), []
        target: Dict[str, Any] = dict(args["target"])
        if args["version"] and target["version"] != args["version"]:
            text = "the target is %s %s, not %s" % (target["product"], target["version"], args["version"])
            raise codes.refused(codes.WRONG_VERSION, text)
        if not url:
            return target, args["stones"]
        places = [stepping.sibling(url, target["version"], one["version"]) for one in args["stones"]]
        stones = [flow.from_url(one, place) if place else one for one, place in zip(args["stones"], places)]
        return flow.from_url(target, url), stones

    def _upgrade(self, target: Dict[str, Any], stones: List[Dict[str, Any]], platform: str) -> Dict[str, Any]:
        """Straight to the target; or, for a host below its `minFrom`, over the stones, each confirmed before the next."""
        result = self._one(target, platform)
        if result["code"] != codes.BELOW_MIN_FROM or not stones:
            return result
        node = self.node()
        way = flow.way(node, target, stones)
        if isinstance(way, codes.Refusal):
            return dict(result, reason=way.text, msg=way.text)
        if self._task.check_mode:
            return flow.planned_way(result, way, node.get("version"))
        done: List[Dict[str, Any]] = []
        for one in way:
            last = one is way[-1]
            ended = self._one(one, platform, None if last else os.urandom(8).hex(), push=flow.must_push(one, platform))
            done.append(flow.step_of(one, ended["state"], ended["trial_id"]))
            if last or ended["state"] not in flow.WELL or not self._params["confirm"]:
                break
        rest = [flow.step_of(one, flow.PLANNED) for one in way[len(done) :]]
        return flow.walked(result, ended, done + rest)

    def _one(
        self, target: Dict[str, Any], platform: str, trial_id: Optional[str] = None, push: bool = False
    ) -> Dict[str, Any]:
        """One release: what would be done, staged, or switched to and seen through."""
        trial_id = trial_id or self._params["id"] or os.urandom(8).hex()
        if target["version"] is None:
            return self._apply(target, trial_id)
        which, word = self._which(target, platform)
        permit = ["--permit", self.push(self._params["permit"], "permit.json")] if self._params["permit"] else []
        if self._task.check_mode:
            return self._planned(target, which, word, permit)
        words = flow.words(self._params, which) + permit + remote.server_time()
        if self._params["push"] or push:
            plan = self._planned(target, which, word, permit)
            if plan["failed"] and plan["code"] != codes.TRIAL_PENDING:
                return plan
            if plan["artifact"]:
                words += ["--src", self.push_artifact(target, platform)]
        if self._params["stage_only"]:
            return flow.staged(self._params, target, self.agent(self._params, [*words, "--stage-only"], word))
        result = self.switch(target, [*words, "--no-wait"], word, trial_id)
        if result["code"] == codes.STAGED_MANUAL and self._params["apply"]:
            return self._apply(target, trial_id)
        return result

    def _which(self, target: Dict[str, Any], platform: str) -> Tuple[List[str], str]:
        """How the release is named on the command line, and what goes to its standard input."""
        if flow.is_named(target):
            return trials.directions(self._params), ""
        told = ansible_glue.word_for(target, platform)
        if self._params["push"]:
            told = dict(told, url="")  # what is pushed is looked for at no address, not even by prepare
        told.update({key: self._params[key] for key in ("channel", "variant") if self._params[key]})
        return ["--target", "-"], json.dumps(told)

    def _planned(self, target: Dict[str, Any], which: List[str], word: str, permit: List[str]) -> Dict[str, Any]:
        """What prepare answers."""
        words = ["prepare", *flow.words(dict(self._params, smoke=True), which)[1:], *permit, *remote.server_time()]
        return flow.planned(self._params, target, self.agent(self._params, words, word))

    def _apply(self, target: Dict[str, Any], trial_id: str) -> Dict[str, Any]:
        """The operator's word to what is staged on a host that waits for it."""
        words = ["apply"]
        words += ["--start"] if self._params["start"] else []
        words += ["--force"] if self._params["force"] else []
        words += ["--accept-one-way"] if self._params["accept_one_way"] else []
        if self._task.check_mode:
            return flow.planned(self._params, target, self.agent(self._params, [*words, "--check"]))
        return self.switch(target, [*words, "--no-wait"], "", trial_id)
