#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of ``catalogue_info``; the action plugin of this name does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: catalogue_info
short_description: Tell what is published of a product, and what of it verifies
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Reads a product's catalogue C(<base>/<product>/releases.json), a hint that nobody signs, and verifies the manifest of each release
    and the notice of each withdrawal by pins. It downloads no artifact.
  - In a directory, versions that lie there and that the catalogue does not list are looked at too.
  - A release that does not verify is no error; RV(releases) has its code, and it counts for nothing. A catalogue behind a URL that
    cannot be fetched is an error.
  - It always runs on the controller, whatever the task's host is. It needs no delegation and no C(become). With C(run_once) it looks
    once for all hosts.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.info_module
attributes:
  platform:
    support: full
    platforms: linux
options:
  base:
    description:
      - The base of all published releases, as a path on the controller or as an C(https) URL.
    type: str
    required: true
  product:
    description:
      - The product.
    type: str
    default: slotward
  pins:
    description:
      - The pins of the release keys, C(sha256/<base64>).
    type: list
    elements: str
    required: true
  threshold:
    description:
      - How many distinct pinned keys must have signed.
    type: int
    default: 1
  limit:
    description:
      - How many releases to look at, in the catalogue's order. RV(left_out) says how many were not.
    type: int
    default: 50
  allow_http:
    description:
      - Read from an C(http) URL too. For tests only.
    type: bool
    default: false
  ca_file:
    description:
      - PEM file, on the controller, of the authorities that the server's certificate may come from.
    type: path
requirements:
  - The Python library cryptography on the controller; ansible-core needs it too.
seealso:
  - module: slotward.fleet.release_info
  - module: slotward.fleet.release_publish
"""

EXAMPLES = r"""
- name: Look for the newest release
  slotward.fleet.catalogue_info:
    base: https://releases.example.com
    pins: "{{ release_pins }}"
    threshold: 2
  register: catalogue
  run_once: true

- name: Verify it as a release
  slotward.fleet.release_info:
    release: https://releases.example.com/slotward/{{ catalogue.newest.stable }}
    pins: "{{ release_pins }}"
    threshold: 2
  run_once: true
"""

RETURN = r"""
code:
  description: V(ok), or why nothing can be said.
  returned: always
  type: str
  sample: ok
claimed:
  description: What the catalogue claims, the newest sequence first. Believe nothing of it.
  returned: always
  type: list
  elements: dict
  sample: [{"version": "1.2.0", "sequence": 3, "channel": "stable", "withdrawn": false}]
catalogue_error:
  description: What is wrong with the catalogue of a directory, or null.
  returned: always
  type: str
  sample: null
releases:
  description: What was found of each release, the highest verified sequence first.
  returned: always
  type: list
  elements: dict
  contains:
    version:
      description: The version.
      type: str
    code:
      description: V(ok), V(expired), V(withdrawn), or why it does not verify.
      type: str
    msg:
      description: The same in a sentence.
      type: str
    verified:
      description: Enough pinned keys signed the manifest, which is of this product and version. It may have expired.
      type: bool
    signers:
      description: The pins of the keys that signed.
      type: list
      elements: str
    sequence:
      description: The sequence, of a verified manifest.
      type: int
    channel:
      description: The channel, of a verified manifest.
      type: str
    min_from:
      description: The lowest version that may go to this one directly, or null.
      type: str
    issued_at:
      description: When the manifest was made.
      type: str
    expires_at:
      description: Until when hosts take it.
      type: str
    expired:
      description: That time has passed on the controller.
      type: bool
    withdrawn:
      description: A notice that verifies withdraws it.
      type: bool
    withdrawn_why:
      description: The reason in that notice, or null.
      type: str
    listed:
      description: The catalogue lists it.
      type: bool
    as_listed:
      description: The catalogue says of it what its manifest and notice say; null when it does not verify or is not listed.
      type: bool
  sample: [{"version": "1.2.0", "sequence": 3, "verified": true, "code": "ok"}]
newest:
  description: For each channel the version with the highest sequence that is verified, not expired and not withdrawn.
  returned: always
  type: dict
  sample: {"stable": "1.2.0", "beta": "1.3.0-rc.1"}
left_out:
  description: How many releases were not looked at.
  returned: always
  type: int
  sample: 0
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils.release_options import CATALOGUE_OPTIONS


def main() -> None:
    """Say that this must not be called: the action plugin answers in its place."""
    module = AnsibleModule(argument_spec=CATALOGUE_OPTIONS, supports_check_mode=True)
    module.fail_json(msg="catalogue_info runs as an action plugin on the controller; it cannot be called as a module")


if __name__ == "__main__":
    main()
