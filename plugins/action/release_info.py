# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read, check and describe a release, always on the controller: no delegation, no privilege, no remote execution."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase
from ansible_collections.slotward.fleet.plugins.module_utils import release_options
from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import PRODUCT
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import releases
from ansible_collections.slotward.fleet.plugins.plugin_utils import stones as stepping


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible has no types
    """The action behind ``release_info``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Answer what the release says, or why it cannot be trusted."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        args = self.validate_argument_spec(
            argument_spec=release_options.INFO_OPTIONS, mutually_exclusive=[["pins", "sha256"]]
        )[1]
        result.update(dict.fromkeys(release_options.INFO_KEYS), changed=False, code=codes.OK)
        try:
            result.update(self._info(args))
        except (codes.Refused, codes.Retryable) as error:
            result.update(failed=True, code=error.code, msg=error.text)
            return result
        result["msg"] = "%s %s" % (result["product"], result["version"])
        return result

    def _info(self, args: Dict[str, Any]) -> Dict[str, Any]:
        product = args["product"]
        if args["sha256"] is not None:
            found = releases.by_digest(
                args["release"], args["sha256"], product or PRODUCT, args["version"], args["url"]
            )
            return dict(found, stones=[])
        release = releases.read(
            args["release"],
            pins=args["pins"] or (),
            threshold=args["threshold"],
            product=product,
            version=args["version"],
            allow_http=args["allow_http"],
            ca_file=args["ca_file"],
        )
        beside = stepping.find(release, args["pins"] or (), args["threshold"], args["allow_http"], args["ca_file"])
        stones = [stepping.target(release, one, args["url"]) for one in beside]
        return dict(releases.describe(release, args["url"]), stones=stones)
