#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draft and sign a withdrawal, a key set or a permit."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_document
short_description: Draft and sign a withdrawal, a key set or a downgrade permit
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Writes one of the signed documents beside a release's manifest, unsigned or signed with the keys at hand. Signatures that others
    made are kept, so several people can sign one after the other, each on a machine of their own.
  - A V(withdrawal) makes new installs refuse a release. A V(key_set) replaces all pins that hosts trust. A V(permit) lets hosts go
    below their floor once.
  - The same contents again change nothing, whatever the time is; other contents in the same file are refused.
extends_documentation_fragment:
  - slotward.fleet.attributes
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
  kind:
    description:
      - The kind of document.
    type: str
    choices: [withdrawal, key_set, permit]
    required: true
  output:
    description:
      - The file of the document.
    type: path
    required: true
  product:
    description:
      - The product that it is about.
    type: str
    default: slotward
  version:
    description:
      - The version that is withdrawn or permitted.
    type: str
  sequence:
    description:
      - The sequence of the release that is withdrawn or permitted, or the key set's own, which grows.
    type: int
    required: true
  why:
    description:
      - Why the release is withdrawn, one line of at most 500 characters.
    type: str
  hosts:
    description:
      - The hosts that are permitted, by the content of their C(/etc/machine-id).
    type: list
    elements: str
  pins:
    description:
      - The pins of the new key set, C(sha256/<base64>).
    type: list
    elements: str
  threshold:
    description:
      - How many of the new key set's keys must sign.
    type: int
  previous:
    description:
      - The signed key set that hosts have now. The new one must be issued before it expires, and O(keys) must be able to meet its
        threshold.
    type: path
  old_pins:
    description:
      - For the first key set, the pins of the hosts' configuration.
    type: list
    elements: str
  old_threshold:
    description:
      - The threshold of O(old_pins).
    type: int
    default: 1
  accept_gap:
    description:
      - Make the key set although O(previous) has expired.
    type: bool
    default: false
  keys:
    description:
      - Files of the public keys that may sign, PEM or DER. Those in O(sign_with) may anyway. A private key here is refused.
    type: list
    elements: path
    default: []
  sign_with:
    description:
      - Files of the private keys to sign with now, as OpenSSL writes them.
    type: list
    elements: path
    default: []
  passphrase:
    description:
      - What the encrypted ones of the private keys are encrypted with.
    type: str
  expires_days:
    description:
      - After how many days hosts no longer take it, by default 365 for a key set and 7 for a permit. A withdrawal does not expire.
    type: int
requirements:
  - The Python library cryptography 3.3 or later where the module runs.
seealso:
  - module: slotward.fleet.release
  - module: slotward.fleet.release_publish
"""

EXAMPLES = r"""
- name: Withdraw a release
  slotward.fleet.release_document:
    kind: withdrawal
    output: build/withdrawn-1.2.0.json
    version: 1.2.0
    sequence: 3
    why: loses mail when the disk is full
    keys: [keys/a.pub.pem, keys/b.pub.pem, keys/c.pub.pem]
    sign_with: [keys/a.pem]
    passphrase: "{{ vault_passphrase }}"
  delegate_to: localhost
  run_once: true

- name: Draft the first key set, for people to sign
  slotward.fleet.release_document:
    kind: key_set
    output: build/key-set-1.json
    sequence: 1
    pins: "{{ new_pins }}"
    threshold: 2
    old_pins: "{{ release_pins }}"
    old_threshold: 2
    keys: [keys/a.pub.pem, keys/b.pub.pem, keys/c.pub.pem]
    expires_days: 730
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
code:
  description: V(ok), or why there is no document.
  returned: always
  type: str
  sample: ok
output:
  description: The document's file.
  returned: always
  type: str
  sample: build/withdrawn-1.2.0.json
document:
  description: What it says and who signed, as C(slotward release inspect --json) describes it.
  returned: always
  type: dict
  sample: {"kind": "withdrawal", "version": "1.2.0", "sequence": 3, "signatures": 1}
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import release_documents, release_store
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, describing, documents, signing

OPTIONS = {
    "kind": {"type": "str", "choices": ["withdrawal", "key_set", "permit"], "required": True},
    "output": {"type": "path", "required": True},
    "product": {"type": "str", "default": "slotward"},
    "version": {"type": "str"},
    "sequence": {"type": "int", "required": True},
    "why": {"type": "str"},
    "hosts": {"type": "list", "elements": "str"},
    "pins": {"type": "list", "elements": "str"},
    "threshold": {"type": "int"},
    "previous": {"type": "path"},
    "old_pins": {"type": "list", "elements": "str"},
    "old_threshold": {"type": "int", "default": 1},
    "accept_gap": {"type": "bool", "default": False},
    "keys": {"type": "list", "elements": "path", "default": [], "no_log": False},
    "sign_with": {"type": "list", "elements": "path", "default": []},
    "passphrase": {"type": "str", "no_log": True},
    "expires_days": {"type": "int"},
}
NEEDS = [
    ("kind", "withdrawal", ("version", "why")),
    ("kind", "permit", ("version", "hosts")),
    ("kind", "key_set", ("pins", "threshold")),
    ("kind", "key_set", ("previous", "old_pins"), True),
]


def main() -> None:
    """Draft, sign, show the difference, write."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        required_if=NEEDS,
        mutually_exclusive=[("previous", "old_pins")],
        supports_check_mode=True,
    )
    path = module.params["output"]
    result: Dict[str, Any] = {"changed": False, "code": codes.OK, "output": path, "document": None}
    try:
        made = release_documents.make(module.params, module.check_mode)
        parts = signing.read(made.published)
        before = describing.lines(signing.read(made.before)) if made.before else None
    except (codes.Refused, codes.Retryable) as error:
        result["code"] = error.code
        module.fail_json(msg=error.text, **result)
    result.update(
        changed=made.changed,
        document=describing.describe(parts),
        diff=release_store.described(path, before, describing.lines(parts)),
    )
    result["msg"] = "%s of %s" % (parts.kind.name, documents.named(parts.body))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
