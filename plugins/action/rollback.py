# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's half of ``rollback``: back to a confirmed release is a trial like any other, and is seen through from here.

Rules:

* Taking a pending trial back is the host's own work: the module of this name does it there, in one call.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from ansible_collections.slotward.fleet.plugins.module_utils import upgrade_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import flow, remote, trials

PREVIOUS = "previous"
OF_UPGRADE = ("artifact", "command", "reuse", "adopt", "steps")
"""What a way forward has in its result and a way back has not."""


class ActionModule(trials.TrialAction):
    """One host's way back."""

    TRANSFERS_FILES = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Go back, and answer where the host ended and why."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        self._vars = task_vars or {}
        args = self.validate_argument_spec(argument_spec=upgrade_options.ROLLBACK_OPTIONS)[1]
        self._params = args
        product, to = args["product"], args["to"]
        try:
            if to is None:
                result.update(self.ask("rollback", self._task.args))
            else:
                self.contact()
                result.update(self._to(flow.named(product, None if to == PREVIOUS else to)))
        except remote.Lost as error:
            text = "the host cannot be reached, or was lost before it answered: %s" % error
            result.update(flow.failure(product, "unknown", codes.UNREACHABLE, text))
        for key in OF_UPGRADE:
            result.pop(key, None)
        return result

    def _to(self, target: Dict[str, Any]) -> Dict[str, Any]:
        words = ["rollback", "--to", self._params["to"]]
        words += ["--why", self._params["why"]] if self._params["why"] else []
        words += ["--start"] if self._params["start"] else []
        words += ["--accept-one-way"] if self._params["accept_one_way"] else []
        if self._task.check_mode:
            return flow.planned(self._params, target, self.agent(self._params, [*words, "--check"]))
        return self.switch(target, [*words, "--no-wait"], "", self._params["id"] or os.urandom(8).hex())
