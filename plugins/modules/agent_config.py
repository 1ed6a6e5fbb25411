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
  - Sets the top-level keys and the section C([update]) of the agent's configuration. Every other section stays byte for byte as it is.
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
"""

EXAMPLES = r"""
- name: Pin three release keys, two of which must sign
  slotward.fleet.agent_config:
    update:
      release_pins: "{{ release_pins }}"
      release_threshold: 2
      trial_length_s: 300
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
OPTIONS = {
    "path": {"type": "path", "default": CONFIG},
    "top": {"type": "dict", "default": {}, "options": TOP_OPTIONS},
    "update": {"type": "dict", "default": {}, "options": UPDATE_OPTIONS},
}


def main() -> None:
    """Plan the file, show the difference, write it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    path = module.params["path"]
    result: Dict[str, Any] = {"path": path, "code": codes.OK, "problems": []}
    try:
        old, mode = config_file.read(path)
        data = config_file.plan(module.params, old).encode("utf-8")
    except codes.BadConfig as error:
        result.update(code=error.code, problems=list(error.problems), changed=False)
        module.fail_json(msg="%s is not written: %s" % (path, error.text), **result)
    except OSError as error:
        result.update(code=codes.CANNOT_READ, changed=False)
        module.fail_json(msg="%s cannot be read: %s" % (path, error.strerror), **result)
    result["changed"] = data != old or mode != config_file.MODE
    before = "" if old is None else old.decode("utf-8")
    result["diff"] = [
        {"before_header": path, "after_header": path, "before": before, "after": data.decode("utf-8")},
        {
            "before_header": path,
            "after_header": path,
            "before": "" if old is None else "mode %04o\n" % mode,
            "after": "mode %04o\n" % config_file.MODE,
        },
    ]
    if result["changed"] and not module.check_mode:
        try:
            config_file.write(path, data, module.atomic_move)
        except OSError as error:
            result.update(code=codes.CANNOT_WRITE, changed=False)
            module.fail_json(msg="%s cannot be written: %s" % (path, error), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
