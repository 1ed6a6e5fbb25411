# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Look through what is published of a product, always on the controller: no delegation, no privilege, no remote execution."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase
from ansible_collections.slotward.fleet.plugins.module_utils import release_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import catalogues


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible has no types
    """The action behind ``catalogue_info``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Answer what is claimed and what verified, or why nothing can be said."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        args = self.validate_argument_spec(argument_spec=release_options.CATALOGUE_OPTIONS)[1]
        result.update(dict.fromkeys(release_options.CATALOGUE_KEYS), changed=False, code=codes.OK)
        location = "%s/%s" % (args["base"].rstrip("/"), args["product"])
        place = catalogues.Place(location, args["allow_http"], args["ca_file"])
        try:
            result.update(catalogues.look(place, args["product"], args["pins"], args["threshold"], args["limit"]))
        except (codes.Refused, codes.Retryable) as error:
            result.update(failed=True, code=error.code, msg=error.text)
            return result
        good = [one for one in result["releases"] if one["verified"]]
        newest = ", ".join("%s %s" % pair for pair in sorted(result["newest"].items())) or "none"
        result["msg"] = "%d of %d releases verified; newest: %s" % (len(good), len(result["releases"]), newest)
        return result
