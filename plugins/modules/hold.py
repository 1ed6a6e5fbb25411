#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hold a product at what it runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hold
short_description: Hold a product at the version that it runs, or release the hold
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - A product on hold refuses every way to another release with V(held), whoever asks. That is no error. A trial that is pending still
    ends as it would, and going back from it works as ever.
  - A hold has a reason and an owner, is shown by the host, and may end by itself.
  - The agent itself can be held too; it is the default product.
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
      - With V(absent) the hold is released.
    type: str
    default: present
    choices: [present, absent]
  why:
    description:
      - The reason. Needed with O(state=present).
    type: str
  owner:
    description:
      - Who wants it so. Not given, whoever the agent takes the caller for.
      - Another owner's hold is not replaced (V(held)). With O(state=absent), only a hold in this name is released.
    type: str
  until:
    description:
      - When the hold ends by itself, as V(2026-12-24T18:00:00Z). Not given, it stays until it is released.
    type: str
seealso:
  - module: slotward.fleet.rollback
    description: Going back to an earlier version sets a hold by itself.
  - module: slotward.fleet.node_info
"""

EXAMPLES = r"""
- name: Hold redis until the incident is over
  slotward.fleet.hold:
    product: redis
    why: incident 4711
    owner: ana
    until: "2026-12-24T18:00:00Z"

- name: Go on
  slotward.fleet.hold:
    product: redis
    state: absent
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
hold:
  description:
    - The hold after it, C(why), C(owner), C(until) (seconds since 1970, or null), C(at) and C(damage) (why its record cannot be read; it
      counts as a hold then); null when there is none.
  returned: always
  type: dict
  sample: {"why": "incident 4711", "owner": "ana", "until": 1798135200, "at": 1797900000}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, holding
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

OPTIONS = dict(
    ansible_glue.NODE_OPTIONS,
    state={"type": "str", "default": "present", "choices": ["present", "absent"]},
    why={"type": "str"},
    owner={"type": "str"},
    until={"type": "str"},
)


def main() -> None:
    """Hold or release, when the host is not so already."""
    module = AnsibleModule(argument_spec=OPTIONS, required_if=[["state", "present", ["why"]]], supports_check_mode=True)
    product = module.params["product"]
    try:
        want = holding.wanted(module.params)
    except ValueError as error:
        module.fail_json(msg="until: %s" % error, product=product, state="refused", code="bad-request", hold=None)
    answer = ansible_glue.ask(module, ["update"])
    before = after = answer.data.get("hold")
    changed = not answer.failed and not holding.is_so(before, want)
    if changed and module.check_mode and holding.others(module.params, before):
        answer, changed = ansible_glue.broken(codes.HELD, "%(owner)s holds it: %(why)s" % before, "refused", 3), False
    elif changed:
        after = want
        if not module.check_mode:
            answer = ansible_glue.ask(module, holding.words(module.params))
            changed = bool(answer.data.get("changed"))
            after = before if answer.failed else answer.data.get("hold")
    diff = {"before": holding.shown(product, before), "after": holding.shown(product, after)}
    result = dict(ansible_glue.told(module.params, answer), hold=after, diff=diff)
    ansible_glue.finish(module, answer, result, changed)


if __name__ == "__main__":
    main()
