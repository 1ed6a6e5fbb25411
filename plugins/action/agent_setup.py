# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's half of ``agent_setup``: copies the program to a host that has none yet."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, setup_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import flow, remote


class ActionModule(remote.RemoteAction):
    """One host set up."""

    TRANSFERS_FILES = False  # a directory is made when there is a file to push, not before the first word

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Push the program when the host needs it, then let the host do the rest."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        self._vars = task_vars or {}
        args = self.validate_argument_spec(argument_spec=setup_options.SETUP_OPTIONS)[1]
        product = args["target"]["product"]
        try:
            seen = self.contact(link=args["executable"])
            if args["delivery"] == "push" and not args["src"] and not seen.linked:
                args["src"] = self.push_artifact(args["target"], seen.platform)
            call = dict(args, target=flow.for_host(args["target"], seen.platform))
            result.update(self.ask("agent_setup", call))
        except (codes.Refused, codes.Retryable) as error:
            state = "refused" if isinstance(error, codes.Refused) else "failed"
            result.update(remote.failure(product, state, error.code, error.text))
        except remote.Lost as error:
            result.update(
                remote.failure(product, "unknown", ansible_glue.UNREACHABLE, "the host cannot be reached: %s" % error)
            )
        return result
