#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Go back: end a trial, or take a confirmed release back; the half that runs on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollback
short_description: Take a release on trial back, or go back to a release that is kept
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Ends a pending trial now, without waiting for its deadline, and starts the version that was confirmed last.
  - Refused with V(digest-mismatch) in RV(code) where the slot to go back to does not hold what was verified there. Confirm the release
    on trial when it is well, or see RV(reason) for the command that goes back all the same, on the host.
  - The version that was taken back counts as failed on this host until an operator allows it again with the command in RV(retry).
  - With O(to), goes back after a confirmation, to a release that the host still keeps and that is not below its floor, by an ordinary
    trial that is seen through and confirmed from here. The product is put on hold first, so that nothing moves it forward again
    (M(slotward.fleet.hold)). Unless the product's C(floor) is C(previous), confirming closes that way; then sign a newer release and
    roll it forward.
  - This is an action plugin over a module.
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
      - The trial's id. When it is given, no other trial is taken back. With O(to), the id of the trial that begins.
    type: str
  why:
    description:
      - The operator's reason. It is kept with the failed version, or with the hold, and shown by the host.
    type: str
  to:
    description:
      - V(previous), or the version to go back to.
    type: str
  start:
    description:
      - With O(to), agree that the switch starts a unit that is stopped, not enabled or has failed. Without it such a host refuses
        (V(unit-not-running)).
    type: bool
    default: false
  accept_one_way:
    description:
      - With O(to), agree to a release of another data format than the one that runs (V(cannot-be-undone)).
    type: bool
    default: false
  confirm:
    description:
      - With O(to), confirm the trial after connecting anew, as M(slotward.fleet.upgrade) does.
    type: bool
    default: true
  reconnect_s:
    description:
      - With O(to), how many seconds to try to connect again and confirm. Without it, and at most, as long as the trial has left and a few
        seconds more.
    type: int
seealso:
  - module: slotward.fleet.upgrade
  - module: slotward.fleet.hold
  - module: slotward.fleet.confirm
"""

EXAMPLES = r"""
- name: Take a release back that is still on trial
  slotward.fleet.rollback:
    why: error rate doubled on the canary

- name: Go back to the release before, which was confirmed
  slotward.fleet.rollback:
    product: redis
    to: previous
    why: memory grows since the upgrade
"""

RETURN = r"""
product:
  description: The product.
  returned: always
  type: str
  sample: slotward
state:
  description:
    - V(rolled-back) when the trial was taken back and the good version runs, V(rollback-failed) when it does not.
    - With O(to), V(confirmed) or V(current) when the host is there, V(trial) while it is not confirmed.
    - V(idle) and the like when no trial was pending.
  returned: always
  type: str
  sample: rolled-back
code:
  description: Why, as a stable code; V(ok) when all is well.
  returned: always
  type: str
  sample: ok
reason:
  description: Why, as a sentence; null when all is well.
  returned: always
  type: str
  sample: an operator took slotward 1.1.0 back
from:
  description: The version before.
  returned: always
  type: str
  sample: 1.1.0
to:
  description: The version after.
  returned: always
  type: str
  sample: 1.0.0
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
hold:
  description: With O(to), the hold that was set, where the agent says it.
  returned: always
  type: dict
  sample: null
next_at:
  description: When to try again (seconds since 1970), where it is not the time for it; else null.
  returned: always
  type: int
  sample: null
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue, upgrade_options


def look(module: AnsibleModule) -> ansible_glue.Answer:
    """What a rollback would meet, turned round: it goes from the release on trial to the good one."""
    answer = ansible_glue.ask(module, ["update"])
    trial = answer.data.get("trial")
    if answer.failed or not trial or module.params["id"] in (None, trial["id"]):
        pending = dict(answer.data, **{"from": trial["to"], "to": trial["from"]}) if trial else answer.data
        return answer._replace(data=pending)
    return ansible_glue.trial_by_id(answer, module.params["id"])


def main() -> None:
    """Go back, or in check mode look whether there is something to go back from."""
    module = AnsibleModule(argument_spec=upgrade_options.ROLLBACK_OPTIONS, supports_check_mode=True)
    params = module.params
    if params["to"] is not None:
        module.fail_json(
            msg="rollback with `to` runs as an action plugin on the controller; it cannot be called as a module"
        )
    if module.check_mode:
        answer = look(module)
        changed = not answer.failed and answer.data["state"] == "trial"
    else:
        words = ["rollback"]
        words += ["--id", params["id"]] if params["id"] else []
        words += ["--why", params["why"]] if params["why"] else []
        answer = ansible_glue.ask(module, words)
        changed = bool(answer.data.get("changed"))
    result = ansible_glue.shape(params, answer)
    result.update(hold=answer.data.get("hold"), next_at=None)
    result["diff"] = ansible_glue.before_after(
        result["product"], result["from"], result["to"] if changed else result["from"]
    )
    ansible_glue.finish(module, answer, result, changed)


if __name__ == "__main__":
    main()
