#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What happened to a product since one looked last."""

from __future__ import annotations

DOCUMENTATION = r"""
module: events
short_description: Read a product's events on a host since a cursor
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Reads the upgrades of a product from the host's audit log, in their order. Keep RV(cursor) and give it as O(since) the next time;
    so every event is read once, also by who was away.
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
  since:
    description:
      - The cursor after which to read, RV(cursor) of the last time. With V(0), from the beginning.
    type: int
    default: 0
  limit:
    description:
      - At most so many events; V(0) for all. When there were more, the next call with RV(cursor) reads on.
    type: int
    default: 0
seealso:
  - module: slotward.fleet.node_info
"""

EXAMPLES = r"""
- name: What happened since the last run?
  slotward.fleet.events:
    product: redis
    since: "{{ redis_cursor | default(0) }}"
  register: redis

- name: Stop when something went back
  ansible.builtin.assert:
    that: redis.events | selectattr('severity', 'equalto', 'critical') | list | length == 0
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
events:
  description:
    - The events, each with C(n) (its number), C(at) (seconds since 1970), C(event), C(severity) and its own fields.
    - V(upgrade-started), V(upgrade-downloaded) (C(size)), V(upgrade-staged) and V(upgrade-completed) (C(healthy_s)) are V(info);
      V(upgrade-rolled-back) (C(why), C(code), and C(evidence), the command that shows what is kept) is V(critical).
  returned: always
  type: list
  elements: dict
  sample: [{"n": 12, "at": 1795000000, "event": "upgrade-completed", "severity": "info", "from": "7.0.15", "to": "7.2.4", "healthy_s": 30}]
cursor:
  description: What to give as O(since) the next time.
  returned: always
  type: int
  sample: 12
left_out:
  description: How many more there are after RV(cursor), because of O(limit).
  returned: always
  type: int
  sample: 0
restarted:
  description: The log was begun anew since O(since); the events are all of the new one.
  returned: always
  type: bool
  sample: false
broken:
  description: Where the audit log is damaged, C(file), C(line) and C(why); what stands after that is no event. Null when it holds.
  returned: always
  type: dict
  sample: null
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue

OPTIONS = dict(
    ansible_glue.NODE_OPTIONS,
    since={"type": "int", "default": 0},
    limit={"type": "int", "default": 0},
)


def main() -> None:
    """Ask and hand on."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    params = module.params
    words = ["events", "--since", str(params["since"]), "--limit", str(params["limit"])]
    answer = ansible_glue.ask(module, words)
    data = answer.data
    cursor = data.get("cursor")
    result = dict(
        ansible_glue.told(params, answer),
        events=data.get("events") or [],
        cursor=params["since"] if cursor is None else cursor,
        left_out=int(data.get("left_out") or 0),
        restarted=bool(data.get("restarted")),
        broken=data.get("broken"),
    )
    ansible_glue.finish(module, answer, result, False)


if __name__ == "__main__":
    main()
