#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Confirm a trial by hand."""

from __future__ import annotations

DOCUMENTATION = r"""
module: confirm
short_description: Confirm a trial on a host
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Tells the agent that the controller can still reach the host while the release is on trial. The trial is named by its id, so a
    late confirmation never counts for another one.
  - The agent asks for proof that the product's main process runs the new release before it believes anybody.
  - M(slotward.fleet.upgrade) does this by itself. Use the module after an upgrade with C(confirm=false).
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
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
  id:
    description:
      - The trial's id, as RV(slotward.fleet.upgrade#module:trial_id) has it.
    type: str
    required: true
  source:
    description:
      - On whose behalf the confirmation comes.
    type: str
    default: controller
    choices: [controller, gateway, probe]
  wait_s:
    description:
      - How many seconds the host waits for the new process to have settled and for the other sources, before it answers. Not given,
        it answers at once.
      - An agent that gives no answer, as one on trial that crashes, is asked again for so long; when the host has gone back, it tells how
        the trial ended.
    type: int
seealso:
  - module: slotward.fleet.upgrade
  - module: slotward.fleet.rollback
"""

EXAMPLES = r"""
- name: Switch without confirming
  slotward.fleet.upgrade:
    release: https://releases.example.com/slotward/1.1.0
    confirm: false
  register: switched

- name: Confirm when our own checks have passed
  slotward.fleet.confirm:
    id: "{{ switched.trial_id }}"
    wait_s: 60
"""

RETURN = r"""
product:
  description: The product.
  returned: always
  type: str
  sample: slotward
state:
  description:
    - V(confirmed) when the trial is over and has passed, V(trial) while a source is missing, else how it ended.
  returned: always
  type: str
  sample: confirmed
code:
  description: Why, as a stable code; V(ok) when all is well.
  returned: always
  type: str
  sample: ok
reason:
  description: Why, as a sentence; null when all is well.
  returned: always
  type: str
  sample: slotward 1.2.0 kept exiting by itself during its trial
from:
  description: The version before.
  returned: always
  type: str
  sample: 1.0.0
to:
  description: The version after.
  returned: always
  type: str
  sample: 1.1.0
sequence:
  description: The sequence of the release on trial, when the agent says it.
  returned: always
  type: int
  sample: 2
floor:
  description: The lowest sequence that the host still takes, once it is known.
  returned: always
  type: int
  sample: 2
digests:
  description: SHA-256 of the two versions' bytes, C(from) and C(to), as far as they are known.
  returned: always
  type: dict
  sample: {"from": "d2a8...", "to": "9f2c..."}
trial_id:
  description: The trial's id.
  returned: always
  type: str
  sample: 9f8a6c1e22d04b57
deadline_s:
  description: Seconds left to confirm; null when no trial is pending.
  returned: always
  type: int
  sample: 112
boots_left:
  description: Reboots that the trial still survives; null when no trial is pending.
  returned: always
  type: int
  sample: 3
missing:
  description: The sources that have not confirmed yet.
  returned: always
  type: list
  elements: str
  sample: [controller]
retry:
  description: After a rollback, the exact command that allows the version again on the host.
  returned: always
  type: str
  sample: slotward update --clear-failed 1.2.0
evidence:
  description:
    - The command that shows, on the host, what is kept of a release that failed there; null where none failed.
    - M(slotward.fleet.evidence) fetches it.
  returned: always
  type: str
  sample: slotward evidence 9f8a6c1e22d04b57
proof:
  description: What proves that the new release runs, in the agent's words.
  returned: always
  type: raw
  sample: null
"""

import time
from typing import List

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

OPTIONS = dict(
    ansible_glue.NODE_OPTIONS,
    id={"type": "str", "required": True},
    source={"type": "str", "default": "controller", "choices": ["controller", "gateway", "probe"]},
    wait_s={"type": "int"},
)


def look(module: AnsibleModule) -> ansible_glue.Answer:
    """What a confirmation would meet: the trial of this id, or how it ended."""
    answer = ansible_glue.ask(module, ["update"])
    return answer if answer.failed else ansible_glue.trial_by_id(answer, module.params["id"])


def confirm(module: AnsibleModule, words: List[str]) -> ansible_glue.Answer:
    """The agent's answer; the agent on trial may crash instead of one, and the good one answers when the host has gone back."""
    ends = time.monotonic() + (module.params["wait_s"] or 0)
    while True:
        answer = ansible_glue.ask(module, words)
        if answer.code != codes.BAD_ANSWER or time.monotonic() >= ends:
            return answer
        time.sleep(1)


def main() -> None:
    """Confirm, or in check mode look whether there is something to confirm."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    params = module.params
    if module.check_mode:
        answer = look(module)
        changed = not answer.failed and answer.data["state"] == "trial"
    else:
        words = ["confirm", "--id", params["id"], "--source", params["source"]]
        words += ["--wait", str(params["wait_s"])] if params["wait_s"] is not None else []
        answer = confirm(module, words)
        changed = bool(answer.data.get("changed"))
    result = ansible_glue.shape(params, answer, trial_id=params["id"])
    result["proof"] = answer.data.get("proof")
    result["diff"] = {
        "before": "%s trial %s\n" % (result["product"], params["id"]) if changed else "",
        "after": "%s %s confirmed\n" % (result["product"], result["to"]) if changed else "",
    }
    ansible_glue.finish(module, answer, result, changed)


if __name__ == "__main__":
    main()
