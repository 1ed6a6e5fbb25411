# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts as an Ansible inventory: one group of all, and one for each suite."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hosts.host import Host

GROUP = "slotward_hosts"
Entry = dict[str, str]


def entry(host: Host) -> Entry:
    """What Ansible has to know of one host."""
    return {
        "name": host.name,
        "suite": host.suite,
        "ansible_host": host.address,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(host.key),
        "ansible_ssh_common_args": shlex.join(["-F", "none", *host.ssh_options]),
        "ansible_python_interpreter": "/usr/bin/python3",
        "controller_address": host.controller_address,
    }


def render(entries: Sequence[Entry]) -> str:
    """Write the inventory as YAML; strings are quoted as in JSON, which YAML reads alike."""
    lines = ["---", f"{GROUP}:", "  children:" if entries else "  hosts: {}"]
    for suite in sorted({item["suite"] for item in entries}):
        lines += [f"    {suite}:", "      hosts:"]
        for item in (item for item in entries if item["suite"] == suite):
            lines.append(f"        {json.dumps(item['name'])}:")
            lines += [f"          {key}: {json.dumps(item[key])}" for key in item if key not in ("name", "suite")]
    return "\n".join(lines) + "\n"
