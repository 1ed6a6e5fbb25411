#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the agent's configuration."""

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_config
short_description: Write the agent's configuration strictly and keep what others wrote in it
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Sets the top-level keys and the section C([update]) of the agent's configuration, and when asked to the sections C([helper]) and
    C([start]), which say who does root's part of an update. Every other section stays byte for byte as it is.
  - The file is root's, with mode 0600. Where the daemon runs as an account that is there, its group may read the file (0640), in a directory
    that is root's and that group's (0750) where it is C(/etc/slotward). Before there is that account the file is root's alone;
    M(slotward.fleet.agent_setup) makes the account and opens the file. It closes the file again when the daemon is to be root's.
  - The whole file is checked before the old one is replaced. A file with a problem is refused, with its file, line and key.
  - An option that is not given, or an empty string or list, means that the key is not in the file and the agent's default counts.
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
  path:
    description:
      - The configuration on the host.
    type: path
    default: /etc/slotward/config.toml
  top:
    description:
      - The keys before the first section.
    type: dict
    default: {}
    suboptions:
      data_dir:
        description: What the daemon keeps.
        type: str
      socket_path:
        description: The status socket.
        type: str
      log_level:
        description: The least important messages that are logged.
        type: str
  update:
    description:
      - The section C([update]).
    type: dict
    default: {}
    suboptions:
      release_pins:
        description: The pins of the release keys, C(sha256/<base64>). Without any, every update is refused.
        type: list
        elements: str
      release_threshold:
        description: How many distinct pinned keys must have signed.
        type: int
      release_sequence:
        description: A floor that this host starts from.
        type: int
      slots_dir:
        description: Where the slots and their records are.
        type: str
      entrypoint:
        description: What systemd starts.
        type: str
      trial_length_s:
        description: Seconds that a new release has to be confirmed.
        type: int
      settle_s:
        description: Seconds that the new main process must have been up before a confirmation counts.
        type: int
      max_boots:
        description: Reboots that a trial survives.
        type: int
      confirm_sources:
        description: Who must confirm; all must agree.
        type: list
        elements: str
      smoke_test:
        description: Run the release's own version command before the switch.
        type: bool
      adopt:
        description: Consent to adopt a plain file found at the entrypoint.
        type: bool
      allow_http:
        description: Take C(http) downloads; for tests only.
        type: bool
      ca_file:
        description: PEM file of the authorities that a download's server may have.
        type: str
      proxy:
        description: Proxy for downloads.
        type: str
      enabled:
        description: Take updates at all. With V(false) every update is refused, and a trial that is pending still ends as it would.
        type: bool
      allowed_channels:
        description: The channels whose releases the host takes, 1 to 8.
        type: list
        elements: str
      min_version:
        description: The oldest version that the host takes.
        type: str
      rollback_grace:
        description: How many minor versions below the running one the host goes back, 0 to 100.
        type: int
      same_major:
        description: Take only releases of the running major version.
        type: bool
      strict_sequence:
        description: Take only releases whose sequence is above the host's floor.
        type: bool
      mirrors:
        description: Where else the files of a release are, tried in order, as C(<base>/<product>/<version>/<file>).
        type: list
        elements: str
  mode:
    description:
      - Who does root's part of an update, by which of the sections C([helper]) and C([start]) the file has - V(root) for neither, V(helper)
        and V(start) for the one of that name. The other one is removed.
      - When it is not given, the file keeps the sections that it has.
    type: str
    choices: [root, helper, start]
  helper:
    description:
      - The section C([helper]). When it is not given, the section stays as it is.
      - It cannot be given together with another O(mode) than V(helper).
    type: dict
    suboptions:
      socket:
        description: Where the helper is asked.
        type: str
      user:
        description: The account that the daemon runs as.
        type: str
  start:
    description:
      - The section C([start]). When it is not given, the section stays as it is.
      - It cannot be given together with another O(mode) than V(start).
    type: dict
    suboptions:
      user:
        description: The account that the daemon runs as.
        type: str
seealso:
  - module: slotward.fleet.agent_setup
"""

EXAMPLES = r"""
- name: Pin three release keys, two of which must sign
  slotward.fleet.agent_config:
    update:
      release_pins: "{{ release_pins }}"
      release_threshold: 2
      trial_length_s: 300

- name: Let a helper do root's part
  slotward.fleet.agent_config:
    update:
      release_pins: "{{ release_pins }}"
    mode: helper
    helper:
      user: slotward
"""

RETURN = r"""
path:
  description: The configuration on the host.
  returned: always
  type: str
  sample: /etc/slotward/config.toml
code:
  description: V(ok), or V(bad-config) when a problem keeps the file from being written.
  returned: always
  type: str
  sample: ok
problems:
  description: What is wrong, each with file, line and key.
  returned: always
  type: list
  elements: str
  sample: []
agent_mode:
  description: The mode that the file says, V(root), V(helper) or V(start); null when it is not written.
  returned: always
  type: str
  sample: helper
agent_user:
  description: The account that the daemon runs as by it; null when it is not written.
  returned: always
  type: str
  sample: slotward
planned:
  description:
    - The file as it would be, without what may be a secret, for O(slotward.fleet.agent_setup#module:planned_config); null when it is
      that already.
  returned: always
  type: str
  sample: null
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import config_file
from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import CONFIG
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

TOP_OPTIONS = {"data_dir": {"type": "str"}, "socket_path": {"type": "str"}, "log_level": {"type": "str"}}
UPDATE_OPTIONS: Dict[str, Dict[str, Any]] = {
    "release_pins": {"type": "list", "elements": "str"},
    "release_threshold": {"type": "int"},
    "release_sequence": {"type": "int"},
    "slots_dir": {"type": "str"},
    "entrypoint": {"type": "str"},
    "trial_length_s": {"type": "int"},
    "settle_s": {"type": "int"},
    "max_boots": {"type": "int"},
    "confirm_sources": {"type": "list", "elements": "str"},
    "smoke_test": {"type": "bool"},
    "adopt": {"type": "bool"},
    "allow_http": {"type": "bool"},
    "ca_file": {"type": "str"},
    "proxy": {"type": "str", "no_log": True},  # it may hold a password
    "enabled": {"type": "bool"},
    "allowed_channels": {"type": "list", "elements": "str"},
    "min_version": {"type": "str"},
    "rollback_grace": {"type": "int"},
    "same_major": {"type": "bool"},
    "strict_sequence": {"type": "bool"},
    "mirrors": {"type": "list", "elements": "str"},
}
HELPER_OPTIONS: Dict[str, Dict[str, Any]] = {"socket": {"type": "str"}, "user": {"type": "str"}}
START_OPTIONS: Dict[str, Dict[str, Any]] = {"user": {"type": "str"}}
OPTIONS = {
    "path": {"type": "path", "default": CONFIG},
    "top": {"type": "dict", "default": {}, "options": TOP_OPTIONS},
    "update": {"type": "dict", "default": {}, "options": UPDATE_OPTIONS},
    "mode": {"type": "str", "choices": list(config_file.MODES)},
    "helper": {"type": "dict", "options": HELPER_OPTIONS},
    "start": {"type": "dict", "options": START_OPTIONS},
}


def main() -> None:
    """Plan the file, show the difference, write it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    path = module.params["path"]
    result: Dict[str, Any] = {"path": path, "code": codes.OK, "problems": [], "planned": None}
    result.update(agent_mode=None, agent_user=None)
    try:
        found = config_file.read(path)
        module.no_log_values.update(config_file.secrets(found.data, path))
        planned = config_file.plan(module.params, found)
    except codes.BadConfig as error:
        result.update(code=error.code, problems=list(error.problems), changed=False)
        module.fail_json(msg="%s is not written: %s" % (path, error.text), **result)
    except OSError as error:
        result.update(code=codes.CANNOT_READ, changed=False)
        module.fail_json(msg="%s cannot be read: %s" % (path, error.strerror), **result)
    result.update(changed=planned.differs(found), agent_mode=planned.mode, agent_user=planned.user)
    result["diff"] = config_file.difference(path, found, planned)
    if result["changed"]:
        result["planned"] = config_file.public(planned.text, path)
    if result["changed"] and not module.check_mode:
        try:
            config_file.write(path, planned, module.atomic_move)
        except OSError as error:
            result.update(code=codes.CANNOT_WRITE, changed=False)
            module.fail_json(msg="%s cannot be written: %s" % (path, error), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
