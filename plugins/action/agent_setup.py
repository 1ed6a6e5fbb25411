# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's half of ``agent_setup``: copies the program to a host that has none yet, or a damaged one."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible_collections.slotward.fleet.plugins.module_utils import setup_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import remote

NOTHING_DONE = {
    "changed": False,
    "changes": [],
    "mode": None,
    "user": None,
    "left": [],
    "unit_changed": False,
    "restart_needed": False,
}


class ActionModule(remote.RemoteAction):
    """One host set up."""

    TRANSFERS_FILES = False  # a directory is made when there is a file to push, not before the first word

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Push the program when the host needs it, then let the host do the rest."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        self._vars = task_vars or {}
        args = self.validate_argument_spec(argument_spec=setup_options.SETUP_OPTIONS)[1]
        result.update(state="failed", code=codes.OK, reason=None, retry=None, **NOTHING_DONE)
        result["product"] = args["target"]["product"]
        try:
            seen = self.contact(link=args["executable"])
            if args["delivery"] == "push" and not args["src"] and not seen.linked:
                args["src"] = self.push_artifact(args["target"], seen.platform)
            answer = self.ask("agent_setup", args)
            if answer.pop(setup_options.BRING, False):
                args["src"] = self.push_artifact(args["target"], seen.platform)
                answer = self.ask("agent_setup", args)
            result.update(answer)
        except codes.Refused as error:
            result.update(failed=True, state="refused", code=error.code, reason=error.text, msg=error.text)
        except remote.Lost as error:
            text = "the host cannot be reached: %s" % error
            result.update(failed=True, state="unknown", code=codes.UNREACHABLE, reason=text, msg=text)
        return result
