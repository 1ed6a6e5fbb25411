#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of ``trust``; the action plugin of this name does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: trust
short_description: Give a host new release keys, or tell it of withdrawn releases
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Sends signed key sets and withdrawals to a host, which judges each by the keys that it trusts and takes all of them or none.
  - A key set replaces all that was trusted before it. A host that was away takes the whole chain in one task; what it has already
    changes nothing.
  - The controller judges nothing but that the files are signed documents; no private key is needed or read.
  - While a trial is pending the host answers V(trial-pending) as RV(code). Let it end first.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
attributes:
  check_mode:
    support: full
    details:
      - The host judges the documents and says what it would take.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
options:
  documents:
    description:
      - The published documents on the controller, key sets in the order of their sequences.
    type: list
    elements: path
    required: true
seealso:
  - module: slotward.fleet.trust_info
  - module: slotward.fleet.node_info
"""

EXAMPLES = r"""
- name: Rotate the release keys
  slotward.fleet.trust:
    documents:
      - /srv/releases/slotward/keys/2.json
      - /srv/releases/slotward/keys/3.json

- name: Stop the installation of a bad release
  slotward.fleet.trust:
    documents: [/srv/releases/slotward/1.4.0/withdrawn.json]
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
applied:
  description: For each document C(file), C(changed), C(event), C(sequence) and C(text).
  returned: always
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import trust_options


def main() -> None:
    """Say that this must not be called: the action plugin answers in its place."""
    module = AnsibleModule(argument_spec=trust_options.TRUST_OPTIONS, supports_check_mode=True)
    module.fail_json(msg="trust runs as an action plugin on the controller; it cannot be called as a module")


if __name__ == "__main__":
    main()
