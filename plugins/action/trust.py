# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""``trust`` on one host: send signed documents and have the agent judge and take them, all or none."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from ansible_collections.slotward.fleet.plugins.module_utils import trust_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import remote, trusting

BOUND_S = 120.0


class ActionModule(remote.RemoteAction):
    """One host's trust."""

    TRANSFERS_FILES = False  # a directory is made when there is a file to push, not before the first word

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Send the documents, apply them, answer what the host trusts afterwards."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        args = self.validate_argument_spec(argument_spec=trust_options.TRUST_OPTIONS)[1]
        try:
            for path in args["documents"]:
                trusting.read(path)  # what is no document stops here, before any host is touched
            result.update(self._apply(args))
        except codes.Refused as error:
            result.update(trusting.failure(args, "refused", error.code, error.text))
        except remote.Lost as error:
            text = "the host cannot be reached, or was lost before it answered: %s" % error
            result.update(trusting.failure(args, "unknown", codes.UNREACHABLE, text))
        result.setdefault("applied", [])
        return result

    def _apply(self, args: Dict[str, Any]) -> Dict[str, Any]:
        self.contact()
        names = {self.push(path, "%d-document.json" % number): path for number, path in enumerate(args["documents"])}
        words: List[str] = ["trust", "apply", *names, *remote.server_time()]
        answer = self.agent(args, words + (["--check"] if self._task.check_mode else []), bound_s=BOUND_S)
        result = trusting.shaped(args, answer)
        applied = answer.data.get("applied") or []
        result["applied"] = [dict(one, file=names.get(one.get("file"), one.get("file"))) for one in applied]
        for there, here in names.items():
            result["msg"] = result["msg"].replace(there, here)
            result["reason"] = result["reason"] and result["reason"].replace(there, here)
        told = [one["text"] for one in result["applied"] if one.get("changed")]
        if not result["failed"]:
            result["msg"] = "; ".join(told) or "nothing to change"
            before, after = "", "".join("%s\n" % text for text in told)
            headers = [os.path.basename(path) for path in args["documents"]]
            result["diff"] = {"before": before, "after": after, "after_header": ", ".join(headers)}
        return result
