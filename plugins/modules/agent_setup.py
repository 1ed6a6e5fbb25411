#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Set the agent up on a host: the half that runs on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_setup
short_description: Install the agent's first release, its guard and its units
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - On a host without the agent, brings its program there, checks its digest, and lets it set the host up - the first slot, the records,
    the guard, the units and the drop-in.
  - On a host with the agent, lets the installed program write again what is missing or different. It installs no other release over
    it; that is what M(slotward.fleet.upgrade) is for.
  - On a host whose agent cannot be started, or not with the bytes that were verified - the link C(current) or its slot is gone, or the
    slot is damaged - brings the program there too, and lets it install itself, by the host's own pins and not below its floor. Nothing is
    on trial then, for there is nothing to go back to. Broken records are not mended by it (V(record-broken)).
  - Makes the host what its configuration says of the mode - the account, whose files are whose, and the units; what another mode left
    goes. Slots, floor and failed versions stay.
  - It starts and restarts nothing.
  - The role P(slotward.fleet.agent#role) uses it. This is an action plugin over a module.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
attributes:
  check_mode:
    support: full
    details:
      - On a host without an agent that can be started the program is brought to the task's own temporary place and asked what it would do.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
options:
  target:
    description:
      - The release to install first, as RV(slotward.fleet.release_info#module:target) has it.
    type: dict
    required: true
    suboptions:
      product:
        description: The product that is released.
        type: str
        required: true
      version:
        description: The version that is released.
        type: str
        required: true
      sequence:
        description: The release's sequence.
        type: int
      manifest:
        description: The published manifest, as text; empty when only digests are known.
        type: str
        required: true
      artifacts:
        description: For each platform the artifact's C(name), C(url), C(sha256) and C(size).
        type: dict
        required: true
      directory:
        description: Where the release lies on the controller, if it does.
        type: str
      min_from:
        description: The oldest version that the release takes over from, if it says.
        type: str
  delivery:
    description:
      - Whether the controller copies the program to the host or the host downloads it.
    type: str
    default: push
    choices: [push, download]
  src:
    description:
      - A file on the host that holds the program already.
    type: path
  adopt:
    description:
      - Consent to adopt a plain file found at the entrypoint.
    type: bool
    default: false
  verify:
    description:
      - Let the host check the release's signatures against its own configuration too.
    type: bool
    default: true
  allow_http:
    description:
      - Download from an C(http) URL too. For tests only.
    type: bool
    default: false
  ca_file:
    description:
      - PEM file, on the host, of the authorities that the server's certificate may come from.
    type: path
  proxy:
    description:
      - Proxy for the download.
    type: str
  fix_directories:
    description:
      - Close directories to others' writing, on the way to what root runs, where the daemon runs as an account. Without it, such a
        directory is an error (V(directory-unsafe)) that names it and the command to run.
    type: bool
    default: false
  planned_config:
    description:
      - In check mode, what the configuration will be, as RV(slotward.fleet.agent_config#module:planned) has it, so that what is told
        is what will be done with it.
    type: str
seealso:
  - module: slotward.fleet.agent_config
  - module: slotward.fleet.release_info
  - module: slotward.fleet.upgrade
"""

EXAMPLES = r"""
- name: Read and verify the release
  slotward.fleet.release_info:
    release: /srv/releases/slotward/1.0.0
    pins: "{{ release_pins }}"
    threshold: 2
  register: release
  run_once: true

- name: Set the agent up
  slotward.fleet.agent_setup:
    target: "{{ release.target }}"
"""

RETURN = r"""
product:
  description: The product.
  returned: always
  type: str
  sample: slotward
state:
  description: The agent's state after it.
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
retry:
  description: Always null; the other results of the collection have it.
  returned: always
  type: str
  sample: null
changes:
  description: What was changed, or would be, each with C(path) and C(what).
  returned: always
  type: list
  elements: dict
  sample: [{"path": "/usr/local/lib/slotward/guard", "what": "written"}]
mode:
  description: Who does root's part of an update on this host, V(root), V(helper) or V(start); null when the agent did not say.
  returned: always
  type: str
  sample: helper
user:
  description: The account that the daemon runs as; null when the agent did not say.
  returned: always
  type: str
  sample: slotward
left:
  description: What was left as it is for a reason, each as a sentence; files with a second link beneath what was handed to another account.
  returned: always
  type: list
  elements: str
  sample: []
unit_changed:
  description: A unit file is not what it was.
  returned: always
  type: bool
  sample: false
restart_needed:
  description: The running process does not have what was changed.
  returned: always
  type: bool
  sample: false
"""

import tempfile
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import agent_setup, ansible_glue, setup_options
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

CANNOT_START = (
    "%s cannot be started (%s), and no record can be read that says what it should be: run on the host, as root, the release's own "
    "program as `FILE update --repair`, and this again"
)


def run(module: AnsibleModule) -> ansible_glue.Answer:
    """The answer of the program that sets this host up."""
    if agent_setup.must_be_brought(module.params):
        text = "the release's program is needed on this host: give it as src, or let the host download it"
        answer = ansible_glue.broken(codes.CANNOT_READ, text, "failed")
        return answer._replace(data=dict(answer.data, **{setup_options.BRING: True}))
    with tempfile.TemporaryDirectory(prefix="slotward-setup-") as directory:
        try:
            line = agent_setup.command(module.params, directory, module.check_mode)
        except codes.Refused as error:
            return ansible_glue.broken(error.code, error.text, "refused", 3)
        except codes.Retryable as error:
            return ansible_glue.broken(error.code, error.text, "failed", 4)
        try:
            rc, out, err = module.run_command(line, handle_exceptions=False, environ_update=ansible_glue.CALLER)
        except OSError as error:
            return ansible_glue.broken(codes.BAD_ANSWER, CANNOT_START % (line[0], error.strerror), "failed")
        return ansible_glue.parse(rc, out, err, line)


def main() -> None:
    """Set up, or in check mode ask what would be done."""
    module = AnsibleModule(argument_spec=setup_options.SETUP_OPTIONS, supports_check_mode=True)
    answer = run(module)
    changes = answer.data.get("changes") or []
    result: Dict[str, Any] = dict(
        ansible_glue.told(module.params, answer),
        changes=changes,
        mode=answer.data.get("mode"),
        user=answer.data.get("user"),
        left=answer.data.get("left") or [],
        unit_changed=bool(answer.data.get("unit_changed")),
        restart_needed=bool(answer.data.get("restart_needed")),
        diff={"before": "", "after": "".join("%s: %s\n" % (change["path"], change["what"]) for change in changes)},
    )
    if answer.data.get(setup_options.BRING):
        result[setup_options.BRING] = True
    changed = bool(changes) if module.check_mode else bool(answer.data.get("changed"))
    ansible_glue.finish(module, answer, result, changed)


if __name__ == "__main__":
    main()
