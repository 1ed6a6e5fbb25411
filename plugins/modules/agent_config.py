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

import os
import stat
import tempfile
from typing import Any, Dict, Optional, Tuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils.ansible_glue import CONFIG
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, config, toml, toml_edit

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
}
OPTIONS = {
    "path": {"type": "path", "default": CONFIG},
    "top": {"type": "dict", "default": {}, "options": TOP_OPTIONS},
    "update": {"type": "dict", "default": {}, "options": UPDATE_OPTIONS},
}
HEADER = (
    "Written by the role slotward.fleet.agent: the keys before the first section and the section [update].\n"
    "Other sections are yours; they are kept as they are. The agent's documentation has every key."
)
MODE = 0o600
MODE_DIRECTORY = 0o755


def wanted(values: Dict[str, Any]) -> Dict[str, Any]:
    """The values as they stand in the file; None where the key is not to be there."""
    texts = {key: ",".join(value) if isinstance(value, list) else value for key, value in values.items()}
    return {key: None if value == "" else value for key, value in texts.items()}


def read(path: str) -> Tuple[Optional[bytes], int]:
    """The file's bytes and permissions; no bytes when there is no file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None, MODE
    if not stat.S_ISREG(found.st_mode):
        raise codes.BadConfig(["%s is not a plain file: remove it or set another path" % path])
    with open(path, "rb") as file:
        return file.read(toml.MAX_BYTES + 1), stat.S_IMODE(found.st_mode)


def plan(params: Dict[str, Any], old: Optional[bytes]) -> str:
    """The file as it should be; raises BadConfig when it, or the old one, has a problem."""
    sections = {toml.TOP: wanted(params["top"]), config.UPDATE: wanted(params["update"])}
    path = params["path"]
    if old is None:
        sections = {
            name: {key: value for key, value in values.items() if value is not None}
            for name, values in sections.items()
        }
        text = toml_edit.render(sections, HEADER)
    else:
        text = toml_edit.replace_sections(toml.parse(old, path).text, sections, path)
    config.check(text, path)
    return text


def write(module: AnsibleModule, path: str, data: bytes) -> None:
    """Replace the file in one step, its bytes on the disk first."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        os.makedirs(directory)
        os.chmod(directory, MODE_DIRECTORY)
    descriptor, temporary = tempfile.mkstemp(prefix=".config-", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        module.atomic_move(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    os.chmod(path, MODE)
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory_fd)
    finally:
        os.close(directory_fd)


def main() -> None:
    """Plan the file, show the difference, write it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    path = module.params["path"]
    result: Dict[str, Any] = {"path": path, "code": codes.OK, "problems": []}
    try:
        old, mode = read(path)
        data = plan(module.params, old).encode("utf-8")
    except codes.BadConfig as error:
        result.update(code=error.code, problems=list(error.problems), changed=False)
        module.fail_json(msg="%s is not written: %s" % (path, error.text), **result)
    except OSError as error:
        result.update(code=codes.CANNOT_READ, changed=False)
        module.fail_json(msg="%s cannot be read: %s" % (path, error.strerror), **result)
    result["changed"] = data != old or mode != MODE
    before = "" if old is None else old.decode("utf-8")
    result["diff"] = [
        {"before_header": path, "after_header": path, "before": before, "after": data.decode("utf-8")},
        {
            "before_header": path,
            "after_header": path,
            "before": "" if old is None else "mode %04o\n" % mode,
            "after": "mode %04o\n" % MODE,
        },
    ]
    if result["changed"] and not module.check_mode:
        try:
            write(module, path, data)
        except OSError as error:
            result.update(code=codes.CANNOT_WRITE, changed=False)
            module.fail_json(msg="%s cannot be written: %s" % (path, error), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
