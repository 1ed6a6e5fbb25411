#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All products of a host, as a fact."""

from __future__ import annotations

DOCUMENTATION = r"""
module: products_info
short_description: Tell all products of a host, and which of them are on trial, as a fact
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Asks the agent for all products of the host, the agent itself among them, and sets the fact C(slotward.products), a dictionary by
    product.
  - Whoever restarts or reconfigures a daemon should ask first, in the handler itself, for a fact from the beginning of a play may be
    older than a trial.
  - On a host without an agent there are no products and it does not fail. When the agent gives no answer it fails, since nobody knows
    then whether something is on trial.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.info_module
  - slotward.fleet.attributes.facts
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
attributes:
  platform:
    support: full
    platforms: linux
options:
  product:
    description:
      - A product that must be among them. Where it is not configured, it is told as C(configured=false) and not on trial, so that a
        handler can ask for it on every host.
    type: str
    default: slotward
seealso:
  - module: slotward.fleet.node_info
  - module: slotward.fleet.product
"""

EXAMPLES = r"""
- name: Which products are there?
  slotward.fleet.products_info:

- name: Show those on trial
  ansible.builtin.debug:
    msg: "{{ ansible_facts['slotward'].products | dict2items | selectattr('value.trial_pending') | map(attribute='key') | list }}"

# As handlers; both run when "restart redis" is notified, the first one first.
- name: Ask whether redis is on trial
  slotward.fleet.products_info:
    product: redis
  listen: restart redis

- name: Restart redis
  ansible.builtin.systemd_service:
    name: redis-server.service
    state: restarted
  when: not ansible_facts['slotward'].products.redis.trial_pending
  listen: restart redis
"""

RETURN = r"""
installed:
  description: An agent is there and answered.
  returned: always
  type: bool
  sample: true
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
ansible_facts:
  description: What is kept of it for the play.
  returned: success
  type: dict
  contains:
    slotward:
      description: What is known of the host.
      type: dict
      contains:
        products:
          description:
            - By product, C(name), C(unit), C(version), C(state), C(code), C(trial_pending), C(held) and C(configured).
          type: dict
          sample:
            redis:
              name: redis
              unit: redis-server.service
              version: 7.0.15
              state: idle
              code: ok
              trial_pending: false
              held: false
              configured: true
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

KEYS = ("name", "unit", "version", "state", "code", "trial_pending", "held")


def known(answer: ansible_glue.Answer) -> Dict[str, Dict[str, Any]]:
    """The products by name; one that is not said to be at rest counts as on trial."""
    found = {}
    for entry in answer.data.get("products") or []:
        product = {key: entry.get(key) for key in KEYS}
        product.update(
            trial_pending=entry.get("trial_pending") is not False, held=bool(entry.get("held")), configured=True
        )
        found[entry["name"]] = product
    return found


def absent(name: str) -> Dict[str, Any]:
    """A product that the host does not have."""
    product: Dict[str, Any] = dict.fromkeys(KEYS)
    product.update(name=name, state="absent", code=codes.UNKNOWN_PRODUCT)
    product.update(trial_pending=False, held=False, configured=False)
    return product


def main() -> None:
    """Ask, and set the fact."""
    module = AnsibleModule(argument_spec=dict(ansible_glue.NODE_OPTIONS), supports_check_mode=True)
    params = module.params
    there = ansible_glue.installed(params)
    # the list is of all products, whichever is asked for
    line = dict(params, product=ansible_glue.PRODUCT)
    answer = ansible_glue.ask(module, ["products"], params=line) if there else ansible_glue.Answer(0, {"products": []})
    products = known(answer)
    products.setdefault(params["product"], absent(params["product"]))
    result: Dict[str, Any] = {
        "installed": there,
        "code": answer.code,
        "reason": None if answer.code == codes.OK else answer.data.get("message"),
        "changed": False,
    }
    if answer.failed:
        module.fail_json(msg="nobody knows what is on trial: %s" % answer.data.get("message"), **result)
    module.exit_json(ansible_facts={"slotward": {"products": products}}, **result)


if __name__ == "__main__":
    main()
