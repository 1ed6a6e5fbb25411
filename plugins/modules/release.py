#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build and sign a release."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release
short_description: Build and sign a release directory from artifacts and keys
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Writes C(<output>/<product>/<version>/manifest.json) and copies of the artifacts beside it, ready to be served by any web server or
    pushed from the controller.
  - Signs the manifest with every private key given. Signatures that others made are kept, so several people can sign one after the
    other, each on a machine of their own.
  - A release is made once. The same contents again change nothing; other contents under the same version are refused.
  - Runs where the artifacts and keys are, as a rule on the controller with C(delegate_to=localhost).
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
  output:
    description:
      - The base of all releases.
    type: path
    required: true
  product:
    description:
      - The product that is released.
    type: str
    default: slotward
  version:
    description:
      - The version, as semantic versioning 2.0.0 has it.
    type: str
    required: true
  sequence:
    description:
      - The release's sequence, a positive number that grows with every release of the product.
      - V(next) is one more than the highest of the manifests at O(previous) that verify by O(pins). A catalogue is never looked at.
    type: str
    required: true
  previous:
    description:
      - Manifests of earlier releases, or directories with them in the layout of releases. What is named and does not verify is an error;
        what lies in a directory and does not is left out, with a warning.
    type: list
    elements: path
    default: []
  pins:
    description:
      - Whose signatures count in O(previous), C(sha256/<base64>).
    type: list
    elements: str
    default: []
  threshold:
    description:
      - How many distinct pinned keys must have signed what O(previous) names.
    type: int
    default: 1
  artifacts:
    description:
      - The files to release, one for each platform.
      - A file whose name does not end in its platform, C(<product>_<version>_<os>_<arch>), is given as C(FILE:os-arch).
      - One of a variant of the build ends in C(_<variant>) besides, or is given as C(FILE:os-arch:variant).
      - A file must be a program for its platform, and its name must not be of another product or version. One whose name ends in
        C(.tar.gz) is an archive, which hosts must be able to unpack.
    type: list
    elements: str
    required: true
  program:
    description:
      - What the program in an archive is called, as the product's file on the hosts says it.
      - The product's own name by default.
    type: str
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
      - After how many days hosts no longer take the release.
    type: int
    default: 365
  channel:
    description:
      - The release's channel.
    type: str
    default: stable
  min_from:
    description:
      - The lowest version that may go to this one directly.
    type: str
  epoch:
    description:
      - The format of the product's data, V(0) to V(9007199254740991).
      - A host refuses a release of another epoch than the one that runs, unless its product keeps and restores its data.
      - With another value than V(0) the manifest has the specification 2, which agents older than this option refuse.
    type: int
    default: 0
requirements:
  - The Python library cryptography 3.3 or later where the module runs.
seealso:
  - module: slotward.fleet.release_document
  - module: slotward.fleet.release_info
  - module: slotward.fleet.release_publish
"""

EXAMPLES = r"""
- name: Build and sign with two of three keys
  slotward.fleet.release:
    output: /srv/releases
    version: 1.1.0
    sequence: 2
    artifacts:
      - build/slotward_1.1.0_linux_amd64
      - build/slotward_1.1.0_linux_arm64
    keys: [keys/a.pub.pem, keys/b.pub.pem, keys/c.pub.pem]
    sign_with: [keys/a.pem, keys/b.pem]
  delegate_to: localhost

- name: Build the next release, to be signed by people
  slotward.fleet.release:
    output: build/releases
    version: 1.2.0
    sequence: next
    previous: [/srv/releases/slotward]
    pins: "{{ release_pins }}"
    threshold: 2
    artifacts: [build/slotward_1.2.0_linux_amd64]
    keys: [keys/a.pub.pem, keys/b.pub.pem, keys/c.pub.pem]
  delegate_to: localhost
"""

RETURN = r"""
code:
  description: V(ok), or why there is no release.
  returned: always
  type: str
  sample: ok
manifest:
  description: The published manifest's path.
  returned: always
  type: str
  sample: /srv/releases/slotward/1.1.0/manifest.json
directory:
  description: The release's directory.
  returned: always
  type: str
  sample: /srv/releases/slotward/1.1.0
left_out:
  description: What lies in O(previous) and was not counted, with the reason; each is a warning too.
  returned: always
  type: list
  elements: str
  sample: []
counted:
  description: The manifest that the next sequence was counted from, or null.
  returned: always
  type: str
  sample: /srv/releases/slotward/1.1.0/manifest.json
release:
  description: What the manifest says, C(artifacts), C(keys) with who signed, C(sequence), C(issued_at), C(expires_at) and more.
  returned: always
  type: dict
  sample: {"version": "1.1.0", "sequence": 2, "signatures": 2}
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import release_store, release_writer
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, describing, documents, signing

OPTIONS = {
    "output": {"type": "path", "required": True},
    "product": {"type": "str", "default": "slotward"},
    "version": {"type": "str", "required": True},
    "sequence": {"type": "str", "required": True},
    "previous": {"type": "list", "elements": "path", "default": []},
    "pins": {"type": "list", "elements": "str", "default": []},
    "threshold": {"type": "int", "default": 1},
    "artifacts": {"type": "list", "elements": "str", "required": True},
    "keys": {"type": "list", "elements": "path", "default": [], "no_log": False},
    "sign_with": {"type": "list", "elements": "path", "default": []},
    "passphrase": {"type": "str", "no_log": True},
    "expires_days": {"type": "int", "default": 365},
    "channel": {"type": "str", "default": "stable"},
    "min_from": {"type": "str"},
    "program": {"type": "str"},
    "epoch": {"type": "int", "default": 0},
}


def main() -> None:
    """Plan the release, show the difference, write it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    result: Dict[str, Any] = {"changed": False, "code": codes.OK, "left_out": []}
    result.update(dict.fromkeys(("manifest", "directory", "counted", "release")))
    try:
        planned = release_writer.make(module.params, module.check_mode)
        parts = signing.read(planned.published)
        before = describing.lines(signing.read(planned.before)) if planned.before else None
    except (codes.Refused, codes.Retryable) as error:
        result["code"] = error.code
        module.fail_json(msg=error.text, **result)
    for text in planned.left_out:
        module.warn(text)
    result.update(
        changed=planned.changed,
        manifest=planned.manifest_path,
        directory=planned.directory,
        counted=planned.counted,
        left_out=list(planned.left_out),
        release=describing.describe(parts),
        diff=release_store.described(planned.manifest_path, before, describing.lines(parts)),
    )
    result["msg"] = "%s has %d signatures" % (documents.named(parts.body), result["release"]["signatures"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
