#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of ``trust_info``; the action plugin of this name does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: trust_info
short_description: Tell whom a host trusts, and whether it still trusts only an old key set
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Reads which release keys a host trusts, what runs out when, and how it stands to a key set on the controller.
  - Sign no release with new keys alone while RV(only_old) is true for a host that is to take it.
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
  key_set:
    description:
      - A published key set on the controller to compare with.
    type: path
seealso:
  - module: slotward.fleet.trust
  - module: slotward.fleet.node_info
"""

EXAMPLES = r"""
- name: Compare with the newest key set
  slotward.fleet.trust_info:
    key_set: /srv/releases/slotward/keys/3.json
  register: trusted

- name: Name the hosts that trust only the old keys
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | map('extract', hostvars) | selectattr('trusted.only_old') | map(attribute='inventory_hostname') }}"
  run_once: true
"""

RETURN = r"""
product:
  description: The product.
  returned: always
  type: str
  sample: slotward
state:
  description: V(idle) when the host answered; V(refused), V(failed), or V(unknown) when it could not be asked.
  returned: always
  type: str
  sample: idle
code:
  description: Why, as a stable code; V(ok) when all is well.
  returned: always
  type: str
  sample: ok
reason:
  description: Why, as a sentence; null when all is well.
  returned: always
  type: str
  sample: null
trust:
  description:
    - Whom the host trusts, C(source) (V(configuration), V(key-set), or V(unknown) when the record is lost), C(sequence), C(pins),
      C(threshold), C(expires_at), C(withdrawn) (it runs a release that was withdrawn) and C(machine_id), by which a permit names it.
  returned: always
  type: dict
  sample: {"source": "key-set", "sequence": 3, "pins": ["sha256/9f2c..."], "threshold": 2, "expires_at": 1811894400, "withdrawn": false}
notices:
  description: What runs out, or was mended, each with C(level), C(what), C(text) and C(days).
  returned: always
  type: list
  elements: dict
  sample: []
withdrawals:
  description: The withdrawn releases that the host knows of.
  returned: always
  type: list
  elements: dict
  sample: []
permits:
  description: The permits that were used up on the host.
  returned: always
  type: list
  elements: dict
  sample: []
floor:
  description: The lowest sequence that the host takes.
  returned: always
  type: int
  sample: 2
key_set:
  description: The key set that was compared with, C(product), C(sequence) and C(sha256); null without O(key_set).
  returned: always
  type: dict
  sample: {"product": "slotward", "sequence": 3, "sha256": "9f2c..."}
standing:
  description:
    - V(in-force) when the host trusts exactly this key set, V(old) when it trusts only what was in force before it, V(newer) when it
      has a later one, V(unknown) when its record is lost or it has another key set of the same sequence. Null without O(key_set).
  returned: always
  type: str
  sample: in-force
only_old:
  description: The host trusts only what was in force before O(key_set); null when nothing was compared.
  returned: always
  type: bool
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import trust_options


def main() -> None:
    """Say that this must not be called: the action plugin answers in its place."""
    module = AnsibleModule(argument_spec=trust_options.INFO_OPTIONS, supports_check_mode=True)
    module.fail_json(msg="trust_info runs as an action plugin on the controller; it cannot be called as a module")


if __name__ == "__main__":
    main()
