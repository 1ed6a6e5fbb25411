# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""``trust_info`` on one host: whom it trusts, and how it stands to a key set on the controller."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible_collections.slotward.fleet.plugins.module_utils import trust_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import remote, trusting

BOUND_S = 60.0


class ActionModule(remote.RemoteAction):
    """One host's trust, only looked at."""

    TRANSFERS_FILES = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Ask the agent; compare when there is a key set to compare with."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        args = self.validate_argument_spec(argument_spec=trust_options.INFO_OPTIONS)[1]
        result.update(key_set=None, standing=None, only_old=None)
        try:
            wanted = trusting.read_key_set(args["key_set"]) if args["key_set"] else None
            if wanted and wanted.product != args["product"]:
                text = "%s is a key set of %s, not of %s" % (args["key_set"], wanted.product, args["product"])
                raise codes.refused(codes.WRONG_PRODUCT, text)
            result.update(trusting.shaped(args, self.agent(args, ["trust"], bound_s=BOUND_S)))
        except codes.Refused as error:
            result.update(trusting.failure(args, "refused", error.code, error.text))
            return result
        except remote.Lost as error:
            text = "the host cannot be reached: %s" % error
            result.update(trusting.failure(args, "unknown", codes.UNREACHABLE, text))
            return result
        if wanted:
            stands = trusting.standing(result["trust"] or {}, wanted)
            result.update(key_set=dict(wanted._asdict()), standing=stands, only_old=stands == trusting.OLD)
        return result
