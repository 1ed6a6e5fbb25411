#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host says of itself."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Tell a host's version, mode, slots, floor, trial, failed versions and health
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Asks the agent on a host for its state and looks whether the product's process runs the bytes of its slot.
  - It works on a host without an agent too, and on one whose records or configuration are broken. Then it says so and does not fail.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.info_module
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
attributes:
  platform:
    support: full
    platforms: linux
options:
  requirements:
    description:
      - Look also for what the agent needs on the host (RV(host)). It takes a tenth of a second.
    type: bool
    default: false
  wait_s:
    description:
      - How many seconds to wait on the host for RV(health.ok).
    type: int
    default: 0
seealso:
  - module: slotward.fleet.upgrade
"""

EXAMPLES = r"""
- name: Look at the host
  slotward.fleet.node_info:
  register: node

- name: Leave a host on trial alone
  ansible.builtin.debug:
    msg: "{{ node.trial.to }} is on trial for another {{ node.trial.left_s }} s"
  when: node.pending

- name: Look at another product
  slotward.fleet.node_info:
    product: prometheus-node-exporter
"""

RETURN = r"""
installed:
  description: An agent is there and answered.
  returned: always
  type: bool
  sample: true
product:
  description: The product.
  returned: always
  type: str
  sample: slotward
state:
  description:
    - V(idle), V(trial), or how the last trial ended (V(confirmed), V(rolled-back), V(rollback-failed), V(abandoned)).
    - V(absent) when nothing is installed, V(failed) when the agent does not answer.
  returned: always
  type: str
  sample: confirmed
code:
  description:
    - Why, as a stable code; V(ok) when all is well. With V(record-broken), V(audit-broken) and V(bad-config) updates are refused, and the
      daemon runs on (RV(health)).
  returned: always
  type: str
  sample: ok
reason:
  description: Why, as a sentence; null when all is well.
  returned: always
  type: str
  sample: null
version:
  description: The version that runs, or would.
  returned: always
  type: str
  sample: 1.1.0
sequence:
  description: Its sequence.
  returned: always
  type: int
  sample: 2
floor:
  description: The lowest sequence that the host takes.
  returned: always
  type: int
  sample: 2
pins:
  description: How many release keys the host's configuration pins.
  returned: always
  type: int
  sample: 3
threshold:
  description: How many of them must have signed.
  returned: always
  type: int
  sample: 2
policy:
  description:
    - Which updates the host's own configuration lets it take, C(enabled), C(allowed_channels), C(min_version), C(rollback_grace),
      C(same_major), C(strict_sequence). With C(enabled=false) it refuses every update, which is no error.
    - Null when there is no agent, or one that says none.
  returned: always
  type: dict
  sample: {"enabled": true, "allowed_channels": ["stable"], "min_version": null, "rollback_grace": 1, "same_major": false, "strict_sequence": false}
slots:
  description: The slots, C(in_use), C(current), C(good), C(other), and for C(a) and C(b) what is in them.
  returned: always
  type: dict
  sample: {"in_use": true, "current": "b", "good": "b", "other": "a"}
pending:
  description: A release is on trial; nothing may restart, reconfigure or reinstall the product.
  returned: always
  type: bool
  sample: false
trial:
  description: The trial, or null. C(id), C(from), C(to), C(left_s), C(length_s), C(boots_left), C(missing) and more.
  returned: always
  type: dict
  sample: null
failed_versions:
  description: The versions that failed on this host and are not tried again, each with C(version), C(code) and C(why).
  returned: always
  type: list
  elements: dict
  sample: []
last:
  description: How the last trial ended, or null.
  returned: always
  type: dict
  sample: {"id": "9f8a6c1e22d04b57", "from": "1.0.0", "to": "1.1.0", "state": "confirmed", "code": "ok", "why": "", "at": 1795000000}
lock:
  description:
    - Who works on the product right now, C(pid), C(age_s), C(what), or null.
    - Another program that holds the lock is told as the kernel knows it, with C(pid) V(0) where that does not.
  returned: always
  type: dict
  sample: null
broken:
  description:
    - The record that is broken, C(file) and C(why), what of its copy in C(copy), and in C(run) the command that mends it; or null.
    - Updates are refused meanwhile.
  returned: always
  type: dict
  sample: null
trust:
  description:
    - Whom the host trusts, C(source) (V(configuration), V(key-set), or V(unknown) when the record is lost), C(sequence), C(pins),
      C(threshold), C(expires_at), C(withdrawn) (it runs a release that was withdrawn) and C(machine_id), by which a permit names it.
    - Null when there is no agent, or one that says nothing of it.
  returned: always
  type: dict
  sample: {"source": "key-set", "sequence": 3, "pins": ["sha256/9f2c..."], "threshold": 2, "expires_at": 1811894400, "withdrawn": false}
notices:
  description:
    - What an operator should know before it is late, each with C(level) (V(notice) from 90 days on, V(warning) from 30, V(critical)
      from 7), C(what), C(text) and C(days) - keys or the manifest of what runs expire, a withdrawn release runs, a record was mended.
  returned: always
  type: list
  elements: dict
  sample: []
audit:
  description:
    - The head of the host's audit log, C(n) (its last line's number) and C(hash); null when the log is damaged.
    - Remember it on the control machine. C(slotward audit --head HASH) on the host finds a log that was cut since.
  returned: always
  type: dict
  sample: {"n": 12, "hash": "2f6f0a1f..."}
hold:
  description: The hold on the product, C(why), C(owner), C(until) (seconds since 1970, or null) and C(at); null when there is none.
  returned: always
  type: dict
  sample: null
staged:
  description:
    - What is staged and waits for an operator's word, C(version), C(sequence), C(sha256) and C(at), or null.
  returned: always
  type: dict
  sample: null
progress:
  description:
    - How far an update is, C(phase), C(percent), C(rate), C(retry) (C(why), C(next_at), C(until)), or in C(failed_in) and C(code) where it failed;
      null when none is on its way.
  returned: always
  type: dict
  sample: {"phase": "fetch", "to": "1.1.0", "percent": 40, "rate": 1048576, "retry": null, "failed_in": "", "code": "ok", "at": 1795000000, "pid": 812}
windows:
  description:
    - When updates may begin, C(open), C(windows), C(frozen), C(next_at) (seconds since 1970) and C(problem); null for a product without
      windows and freezes.
  returned: always
  type: dict
  sample: null
probes:
  description:
    - The last round of the product's probes, the counts, and each probe's reason; null when there was none.
  returned: always
  type: dict
  sample: null
config_problems:
  description: What is wrong with the host's configuration. Updates are refused meanwhile.
  returned: always
  type: list
  elements: str
  sample: []
unit:
  description: The product's unit, C(name), C(active), C(sub), C(main_pid), C(restarts).
  returned: always
  type: dict
  sample: {"name": "slotward.service", "active": "active", "sub": "running", "main_pid": 812, "restarts": 0}
mode:
  description:
    - Who does root's part of an update by the host's configuration, V(root) (the daemon is root's), V(helper) (a helper beside it)
      or V(start) (a program of root's before each start of the daemon). Null for another product, or without an agent.
  returned: always
  type: str
  sample: helper
user:
  description: The account that the daemon runs as by the host's configuration; null as RV(mode) is.
  returned: always
  type: str
  sample: slotward
helper:
  description: The helper beside the daemon; null unless RV(mode) is V(helper).
  returned: always
  type: dict
  contains:
    unit:
      description: Its unit.
      type: str
      sample: slotward-helper.service
    active:
      description: The unit's state, as systemd says it.
      type: str
      sample: active
    sub:
      description: The state below that.
      type: str
      sample: running
    main_pid:
      description: Its main process.
      type: int
      sample: 811
    restarts:
      description: How often systemd restarted it by itself.
      type: int
      sample: 0
    slot:
      description: The slot that its unit starts from; at rest the current one.
      type: str
      sample: b
    running_sha256:
      description: SHA-256 of what it runs, by its own word, or null.
      type: str
      sample: 9f2c...
    ok:
      description: It is active, answers, and runs the bytes of the current slot.
      type: bool
      sample: true
    stale:
      description: It runs other bytes than the current slot's, or is older than the configuration, its unit or a drop-in of that.
      type: bool
      sample: false
    why:
      description: What keeps it from being well, or null.
      type: str
      sample: null
health:
  description: Whether the product runs what it should, and in helper mode the helper too.
  returned: always
  type: dict
  contains:
    ok:
      description: The unit is active and its main process runs the bytes of the current slot; RV(helper.ok) where there is a helper.
      type: bool
      sample: true
    running_sha256:
      description: SHA-256 of what the main process runs, or null.
      type: str
      sample: 9f2c...
    slot_sha256:
      description: SHA-256 of the current slot, or of the file at the agent's path while the slots are not in use.
      type: str
      sample: 9f2c...
    stale:
      description:
        - The agent's configuration, the unit file or a drop-in of it was written after the main process had started, or the agent runs
          other bytes than its slot has. A restart mends it. Of another product than the agent only its unit counts.
      type: bool
      sample: false
    why:
      description: What keeps it from being well, or null.
      type: str
      sample: null
host:
  description: What the agent needs on the host.
  returned: always
  type: dict
  contains:
    platform:
      description: The host as a release names platforms.
      type: str
      sample: linux-amd64
    systemd:
      description: The host runs systemd.
      type: bool
      sample: true
    root:
      description: The module ran as root.
      type: bool
      sample: true
    missing:
      description: With O(requirements=true), what is missing of C(python3), C(cryptography), C(requests); else null.
      type: list
      elements: str
      sample: []
"""

import os
import time
from typing import Any, Dict, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, running
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

OPTIONS = dict(
    ansible_glue.NODE_OPTIONS,
    requirements={"type": "bool", "default": False},
    wait_s={"type": "int", "default": 0},
)

KEYS = ("version", "sequence", "floor", "pins", "threshold", "slots")
KEYS += ("trial", "last", "lock", "broken", "unit", "audit", "hold", "staged", "windows", "progress", "probes")


def host(module: AnsibleModule) -> Dict[str, Any]:
    """What can be said of the host without an agent."""
    return {
        "platform": ansible_glue.platform(),
        "systemd": os.path.isdir("/run/systemd/system"),
        "root": os.geteuid() == 0,
        "missing": running.missing(module.run_command) if module.params["requirements"] else None,
    }


def look(module: AnsibleModule) -> Dict[str, Any]:
    """One look at the agent's state, with every key whatever it is."""
    there = ansible_glue.installed(module.params)
    answer = (
        ansible_glue.ask(module, ["update"])
        if there
        else ansible_glue.broken(codes.NOT_INSTALLED, "no agent at %s" % module.params["executable"], "absent")
    )
    data = answer.data
    found: Dict[str, Any] = {key: data.get(key) for key in KEYS}
    found["policy"] = data.get("policy")
    found["trust"] = data.get("trust")
    found["notices"] = data.get("warnings") or []  # Ansible takes `warnings` for itself
    found["installed"] = there and "version" in data
    found["product"] = data.get("product") or module.params["product"]
    found["state"] = data.get("state") or "failed"
    found["code"] = answer.code
    found["reason"] = None if answer.code == codes.OK else data.get("message") or why(data)
    log = ansible_glue.audit_problem(module.params, data) if found["installed"] else None
    if log is not None:
        found.update(code=codes.AUDIT_BROKEN, reason=log)
    found["pending"] = bool(data.get("trial"))
    found["failed_versions"] = data.get("failed") or []
    found["config_problems"] = data.get("config_problems") or []
    found.update(running.privilege(found, module.params["config"], module.params["executable"], module.run_command))
    return found


def why(data: Dict[str, Any]) -> Optional[str]:
    """The sentence behind a code, from the part of the answer that the code is about."""
    broken, last = data.get("broken"), data.get("last")
    if broken:
        return "%s: %s" % (broken["file"], broken["why"])
    if data.get("config_problems"):
        return "; ".join(data["config_problems"])
    return last["why"] if last else None


def main() -> None:
    """Look, and look again until the product is well or the wait is over."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    ends = time.monotonic() + module.params["wait_s"]
    found = look(module)
    while not found["health"]["ok"] and time.monotonic() < ends:
        time.sleep(0.2)
        found = look(module)
    module.exit_json(changed=False, host=host(module), **found)


if __name__ == "__main__":
    main()
