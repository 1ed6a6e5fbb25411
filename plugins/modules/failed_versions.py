#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions that failed on a host: tell them, or allow them once more."""

from __future__ import annotations

DOCUMENTATION = r"""
module: failed_versions
short_description: Tell which versions failed on a host, or allow them to be tried again
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - A host remembers a version that it went back from, with the reason, and refuses to try it again (V(failed-before)).
  - With O(state=absent) it forgets. That is an operator's decision; no target or gateway can do it.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
options:
  state:
    description:
      - With V(listed) nothing is changed. With V(absent) the versions are forgotten.
    type: str
    default: listed
    choices: [listed, absent]
  versions:
    description:
      - Which versions are forgotten. Empty, all are.
    type: list
    elements: str
    default: []
seealso:
  - module: slotward.fleet.upgrade
  - module: slotward.fleet.node_info
"""

EXAMPLES = r"""
- name: What failed here?
  slotward.fleet.failed_versions:
    product: redis
  register: failed

- name: Let 7.2.5 be tried once more
  slotward.fleet.failed_versions:
    product: redis
    state: absent
    versions: [7.2.5]
"""

RETURN = r"""
product:
  description: The product.
  returned: always
  type: str
  sample: redis
state:
  description: The product's state, as M(slotward.fleet.node_info) has it.
  returned: always
  type: str
  sample: idle
code:
  description: Why it failed, as a stable code; V(ok) when all is well.
  returned: always
  type: str
  sample: ok
reason:
  description: Why, as a sentence; null when all is well.
  returned: always
  type: str
  sample: null
failed_versions:
  description: The versions that count as failed after it, each with C(version), C(code), C(why), C(at), C(sequence) and C(sha256).
  returned: always
  type: list
  elements: dict
  sample: [{"version": "7.2.5", "code": "probe-failed", "why": "probe ping: connection refused"}]
cleared:
  description: The versions that were forgotten, or would be.
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue

OPTIONS = dict(
    ansible_glue.NODE_OPTIONS,
    state={"type": "str", "default": "listed", "choices": ["listed", "absent"]},
    versions={"type": "list", "elements": "str", "default": []},
)


def main() -> None:
    """Look; forget what is to be forgotten and is there."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    params = module.params
    answer = ansible_glue.ask(module, ["update"])
    seen = answer
    before = list(answer.data.get("failed") or [])
    due = [
        entry["version"]
        for entry in before
        if params["state"] == "absent" and entry["version"] in (params["versions"] or [entry["version"]])
    ]
    cleared = due if module.check_mode else []
    for version in [] if module.check_mode else due:
        answer = ansible_glue.ask(module, ["update", "--clear-failed", version])
        if answer.failed:
            break
        cleared.append(version)
    after = [entry for entry in before if entry["version"] not in cleared]
    shown = ["".join("%(version)s %(code)s\n" % entry for entry in entries) for entries in (before, after)]
    result = dict(
        ansible_glue.told(params, answer, seen),
        failed_versions=after,
        cleared=cleared,
        diff={"before": shown[0], "after": shown[1]},
    )
    ansible_glue.finish(module, answer, result, bool(cleared))


if __name__ == "__main__":
    main()
