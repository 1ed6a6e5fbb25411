#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of ``release_info``; the action plugin of this name does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_info
short_description: Verify and describe a published release
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Reads the signed manifest of a release from a directory on the controller or from a URL, checks it against pins, and says what is
    in it.
  - It always runs on the controller, whatever the task's host is. It needs no delegation and no C(become). With C(run_once) the
    release is read once for all hosts.
  - With O(pins), fewer good signatures than O(threshold) are an error, and so is an expired manifest. Without O(pins) nothing is
    verified and RV(verified) says so.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.info_module
attributes:
  platform:
    support: full
    platforms: linux
options:
  release:
    description:
      - The release's directory, C(<base>/<product>/<version>), as a path on the controller or as an C(https) URL.
    type: str
    required: true
  pins:
    description:
      - The pins of the release keys, C(sha256/<base64>).
    type: list
    elements: str
  threshold:
    description:
      - How many distinct pinned keys must have signed.
    type: int
    default: 1
  sha256:
    description:
      - For each architecture, V(amd64) and V(arm64), the SHA-256 of its artifact, instead of O(pins). A manifest in the directory must
        have the same digests. Behind a URL no manifest is read, and O(version) is needed.
      - A digest is enough to install. Hosts take an upgrade from a signed manifest only.
    type: dict
  product:
    description:
      - The product that is expected. Another one is an error.
    type: str
  version:
    description:
      - The version that is expected. Another one is an error.
    type: str
  url:
    description:
      - Where hosts download the artifacts from, as the URL of the release's directory. Without it they use O(release), when that is a
        URL.
    type: str
  allow_http:
    description:
      - Read the manifest from an C(http) URL too. For tests only.
    type: bool
    default: false
  ca_file:
    description:
      - PEM file, on the controller, of the authorities that the server's certificate may come from.
    type: path
requirements:
  - The Python library cryptography on the controller; ansible-core needs it too.
seealso:
  - module: slotward.fleet.release
  - module: slotward.fleet.upgrade
"""

EXAMPLES = r"""
- name: Verify a release in a directory
  slotward.fleet.release_info:
    release: /srv/releases/slotward/1.1.0
    pins: "{{ release_pins }}"
    threshold: 2
    url: https://releases.example.com/slotward/1.1.0
  register: release
  run_once: true

- name: Verify a release behind a URL
  slotward.fleet.release_info:
    release: https://releases.example.com/slotward/1.1.0
    pins: "{{ release_pins }}"
    version: 1.1.0
"""

RETURN = r"""
code:
  description: V(ok), or why the release cannot be trusted or read.
  returned: always
  type: str
  sample: ok
product:
  description: The product.
  returned: always
  type: str
  sample: slotward
version:
  description: The version.
  returned: always
  type: str
  sample: 1.1.0
sequence:
  description: The sequence; it grows with every release.
  returned: always
  type: int
  sample: 2
channel:
  description: The channel.
  returned: always
  type: str
  sample: stable
epoch:
  description: The format of the product's data, V(0) when the manifest has none.
  returned: always
  type: int
  sample: 0
min_from:
  description: The lowest version that may go to this one directly, or null.
  returned: always
  type: str
  sample: null
issued_at:
  description: When the manifest was made.
  returned: always
  type: str
  sample: "2026-11-01T08:00:00Z"
expires_at:
  description: Until when hosts take it.
  returned: always
  type: str
  sample: "2027-11-01T08:00:00Z"
expired:
  description: That time has passed on the controller.
  returned: always
  type: bool
  sample: false
release_keys:
  description: The keys that may sign, each with C(kid), C(alg) and C(pin).
  returned: always
  type: list
  elements: dict
  sample: [{"kid": "5Lz1", "alg": "ES256", "pin": "sha256/..."}]
signers:
  description: The pins of the keys that signed and were asked for.
  returned: always
  type: list
  elements: str
  sample: ["sha256/...", "sha256/..."]
verified:
  description: The signatures were checked and were enough.
  returned: always
  type: bool
  sample: true
artifacts:
  description: The files, each with C(name), C(platform), C(sha256), C(size), C(kind) and C(variant).
  returned: always
  type: list
  elements: dict
  sample: [{"name": "slotward_1.1.0_linux_amd64", "platform": "linux-amd64", "size": 120000}]
target:
  description: What M(slotward.fleet.upgrade) takes as its target.
  returned: always
  type: dict
  sample: {"product": "slotward", "version": "1.1.0", "sequence": 2}
stones:
  description:
    - The releases beside this one that a host below RV(min_from) may have to pass first, each as RV(target), the newest first. Each is
      checked as this one is; one that does not pass or was withdrawn is left out. Empty for a release without C(minFrom).
    - Behind a URL they are looked for in the catalogue, C(<base>/<product>/releases.json), which is not trusted for anything else.
  returned: always
  type: list
  elements: dict
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils.release_options import INFO_OPTIONS


def main() -> None:
    """Say that this must not be called: the action plugin answers in its place."""
    module = AnsibleModule(
        argument_spec=INFO_OPTIONS, mutually_exclusive=[["pins", "sha256"]], supports_check_mode=True
    )
    module.fail_json(msg="release_info runs as an action plugin on the controller; it cannot be called as a module")


if __name__ == "__main__":
    main()
