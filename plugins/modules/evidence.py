#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host keeps of releases that failed there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence
short_description: Fetch what a host kept of a release that failed there
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - When a trial ends without confirmation, the host keeps what it saw of the release, outside both slots. That is its lines in the journal,
    its starts and how they ended, what the product's checks said, and what the host was like. The newest four trials are kept.
  - Without O(id) it fetches the newest; RV(kept) lists all of them either way. A host that keeps none is no failure, unless O(id) asks for one.
  - A journal may hold secrets. Use C(no_log) on the task where its output is kept.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.info_module
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
attributes:
  platform:
    support: full
    platforms: linux
options:
  id:
    description:
      - The trial, as RV(slotward.fleet.upgrade#module:trial_id) and the events name it. Without it, the newest that is kept.
    type: str
  list_only:
    description:
      - List what is kept, and fetch nothing.
    type: bool
    default: false
seealso:
  - module: slotward.fleet.events
  - module: slotward.fleet.failed_versions
"""

EXAMPLES = r"""
- name: Why did it go back?
  slotward.fleet.evidence:
    product: redis
  register: redis

- name: Show how its starts ended, and its last words
  ansible.builtin.debug:
    msg: "{{ redis.evidence.starts + redis.evidence.journal[-20:] }}"
  when: redis.evidence is not none

- name: Keep all of it on the controller
  ansible.builtin.copy:
    content: "{{ redis.evidence | to_nice_json }}"
    dest: "./{{ inventory_hostname }}-{{ redis.evidence.trial_id }}.json"
    mode: "0600"
  delegate_to: localhost
  when: redis.evidence is not none
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
  description: Why it failed, as a stable code; V(ok) when all is well, V(no-evidence) when nothing is kept of that trial.
  returned: always
  type: str
  sample: ok
reason:
  description: Why, as a sentence; also what lies there and cannot be read. Null when all is well.
  returned: always
  type: str
  sample: null
kept:
  description: What is kept, the newest first, each with C(id) (of the trial), C(from), C(to), C(code), C(at) (seconds since 1970) and C(truncated).
  returned: always
  type: list
  elements: dict
  sample: [{"id": "9f8a6c1e22d04b57", "from": "7.0.15", "to": "7.2.4", "code": "crash-loop", "at": 1795000000, "truncated": false}]
evidence:
  description: One of them whole; null when none is kept, or with O(list_only).
  returned: always
  type: dict
  sample: null
  contains:
    trial_id:
      description: The trial.
      type: str
      returned: success
    product:
      description: The product.
      type: str
      returned: success
    from:
      description: The version that the host went back to.
      type: str
      returned: success
    to:
      description: The version that failed.
      type: str
      returned: success
    code:
      description: Why, as a stable code.
      type: str
      returned: success
    why:
      description: Why, as a sentence.
      type: str
      returned: success
    at:
      description: When it was recorded, in seconds since 1970 by the host's clock.
      type: int
      returned: success
    journal:
      description: The lines of its units and of the guard, each with the seconds since the switch.
      type: list
      elements: str
      returned: success
    starts:
      description: Its starts, C(at) seconds after the switch, and in C(exit) how each ended; null for one that did not end by itself.
      type: list
      elements: dict
      returned: success
    checks:
      description: What the product's probes said last; null when they had no say.
      type: dict
      returned: success
    environment:
      description: What the host and its units were like when this was gathered.
      type: dict
      returned: success
    missing:
      description: What could not be gathered, and why.
      type: list
      elements: str
      returned: success
    truncated:
      description: Something was too long and is cut.
      type: bool
      returned: success
"""

from typing import Any, Dict, List

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

OPTIONS = dict(ansible_glue.NODE_OPTIONS, id={"type": "str"}, list_only={"type": "bool", "default": False})


def main() -> None:
    """List, fetch one, and hand on; reading alone, so check mode is the same."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True, mutually_exclusive=[["id", "list_only"]])
    answer = ansible_glue.ask(module, ["evidence"])
    kept: List[Dict[str, Any]] = answer.data.get("kept") or []
    wanted = module.params["id"] or (kept[0]["id"] if kept and not module.params["list_only"] else None)
    found = None
    if wanted and not answer.failed:
        answer = ansible_glue.ask(module, ["evidence", wanted])
        found = answer.data.get("evidence")
        if answer.code == codes.NO_EVIDENCE and not module.params["id"]:  # a newer one has just taken its place
            answer = ansible_glue.ask(module, ["evidence"])
            kept = answer.data.get("kept") or []
    result = dict(ansible_glue.told(module.params, answer), kept=kept, evidence=found)
    result["reason"] = answer.data.get("message") or None
    ansible_glue.finish(module, answer, result, False)


if __name__ == "__main__":
    main()
