#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Publish a release, or the notice of its withdrawal."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_publish
short_description: Publish a signed release, or its withdrawal, where hosts fetch it
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Verifies a release and its artifacts, writes C(<base>/<product>/<version>/), and makes the catalogue
    C(<base>/<product>/releases.json) anew from what is there.
  - A version appears whole or not at all. Other bytes are never overwritten; signatures are added to those that are there. The same
    again changes nothing.
  - A signed withdrawal goes beside its release as C(withdrawn.json), and the catalogue is marked.
  - Runs where the base is, as a rule with C(delegate_to).
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
  source:
    description:
      - The release's directory, with C(manifest.json), the artifacts and perhaps C(withdrawn.json), or the file of a signed withdrawal.
    type: path
    required: true
  base:
    description:
      - The base of all published releases.
    type: path
    required: true
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
requirements:
  - The Python library cryptography 3.3 or later where the module runs.
seealso:
  - module: slotward.fleet.catalogue_info
  - module: slotward.fleet.release
  - module: slotward.fleet.release_document
"""

EXAMPLES = r"""
- name: Publish what two of three people have signed
  slotward.fleet.release_publish:
    source: build/releases/slotward/1.2.0
    base: /srv/releases
    pins: "{{ release_pins }}"
    threshold: 2
  delegate_to: localhost
  run_once: true

- name: Publish the notice that it is withdrawn
  slotward.fleet.release_publish:
    source: build/withdrawn-1.2.0.json
    base: /srv/releases
    pins: "{{ release_pins }}"
    threshold: 2
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
code:
  description: V(ok), or why nothing was published.
  returned: always
  type: str
  sample: ok
directory:
  description: The directory of the published version.
  returned: always
  type: str
  sample: /srv/releases/slotward/1.2.0
written:
  description: The files that were written, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["/srv/releases/slotward/1.2.0/manifest.json", "/srv/releases/slotward/releases.json"]
document:
  description: What was published, as C(slotward release inspect --json) describes it.
  returned: always
  type: dict
  sample: {"kind": "release manifest", "version": "1.2.0", "sequence": 3, "signatures": 2}
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import release_publisher
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, describing, documents

OPTIONS = {
    "source": {"type": "path", "required": True},
    "base": {"type": "path", "required": True},
    "pins": {"type": "list", "elements": "str", "required": True},
    "threshold": {"type": "int", "default": 1},
}


def main() -> None:
    """Verify, plan, write, and say which files."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    result: Dict[str, Any] = {"changed": False, "code": codes.OK, "directory": None, "written": [], "document": None}
    try:
        done = release_publisher.publish(module.params, module.check_mode)
    except (codes.Refused, codes.Retryable) as error:
        result["code"] = error.code
        module.fail_json(msg=error.text, **result)
    for text in done.ignored:
        module.warn("not in the catalogue: %s" % text)
    result.update(
        changed=bool(done.written),
        directory=done.directory,
        written=done.written,
        document=describing.describe(done.parts),
        diff={"before": "", "after": "".join("%s\n" % path for path in done.written)},
    )
    result["msg"] = "%s of %s, %d files" % (done.parts.kind.name, documents.named(done.parts.body), len(done.written))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
