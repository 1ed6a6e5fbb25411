# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a module of this collection promises, and the options that modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes that every module documents."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and tell what would change without changing it.
  diff_mode:
    description: Tells in diff mode what has changed, or would change in check mode.
  idempotent:
    description: Running it again in the same state changes nothing and says so.
  platform:
    description: Where the module runs.
    platforms: posix
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This action does not change anything.
  diff_mode:
    support: N/A
    details:
      - This action does not change anything.
  idempotent:
    support: full
    details:
      - This action does not change anything.
"""

    FACTS = r"""
options: {}
attributes:
  facts:
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
    support: full
"""

    ACTIONGROUP_NODE = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/slotward.fleet.node) in C(module_defaults) to set the shared options once.
    support: full
    membership:
      - slotward.fleet.node
"""
