#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The documentation of ``upgrade``; the action plugin of this name does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: upgrade
short_description: Upgrade a product to a signed release and confirm the trial
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Takes a product on a host to a release. The agent on the host checks the release against the pins in its own configuration,
    downloads it, verifies it, switches to it on trial, and goes back by itself unless the trial is confirmed in time.
  - After the switch the controller drops its connection, connects anew, and confirms the trial by its id. So a release that cuts
    the host off is not confirmed, and the host goes back alone. Where the controller is no source of confirmation for the product, it
    watches how the host decides.
  - Success is reported only after the confirmation. A host that cannot be reached is a failed host, not an unreachable one, so
    that C(max_fail_percentage) counts it.
  - Success, but for a hold or a release that waits for an operator's word, which are no failures - then the state is V(held) or V(staged)
    and nothing was switched. Ask for RV(state).
  - With O(stage_only=true) the release is downloaded and verified and nothing is switched. Use it as a task of its own before
    the switch, so that a slow download on one host does not use up the time that its neighbours have to confirm.
  - This is an action plugin. It runs the agent's own commands over the connection, one for each step. What changes the host runs in a
    unit of its own there and survives a lost connection.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
  - slotward.fleet.node.product
attributes:
  check_mode:
    support: full
    details:
      - Answers what C(slotward prepare) would, refusals included, and downloads nothing.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    support: full
    platforms: linux
options:
  release:
    description:
      - The release's directory, C(<base>/<product>/<version>), as an absolute path on the controller or as an C(https) URL. It holds
        C(manifest.json) and the artifacts.
      - Give this, or O(target), or for a product with a source O(version) alone.
    type: str
  target:
    description:
      - A release that was read and checked already, as RV(slotward.fleet.release_info#module:target) has it. Reading it once for many
        hosts saves work on the controller.
    type: dict
    suboptions: &target
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
        description: The published manifest, as text.
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
  pins:
    description:
      - The pins of the release keys, C(sha256/<base64>). When they are given, the controller checks the manifest too, before any host
        is touched. The host always checks it against its own configuration.
    type: list
    elements: str
  threshold:
    description:
      - How many distinct pinned keys must have signed, for the check on the controller.
    type: int
    default: 1
  sha256:
    description:
      - For each architecture, C(amd64) and C(arm64), the SHA-256 of its artifact in O(release). For a product whose C(trust) is C(digest);
        no manifest is needed then, but O(version) without one.
      - Without O(release), the product's own source says where it is, or O(url).
    type: dict
  version:
    description:
      - The version that is expected. Another one in O(release) is an error.
      - Without O(release) and O(target), the version to go to; the product's own source says where it is.
    type: str
  channel:
    description:
      - The channel that is asked for. The host must take it, and the release must be on it.
    type: str
  variant:
    description:
      - The variant of the artifact. With O(version) alone it is only needed when it is not the one that the product's description names.
    type: str
  url:
    description:
      - Where this host downloads the artifacts from, as the URL of the release's directory. Without it, it uses what O(target) says, or
        O(release), when that is a URL. It may differ from host to host, such as a mirror for each site.
    type: str
  push:
    description:
      - Copy the artifact from O(release) on the controller to the host instead of downloading it there. For hosts with no way out.
    type: bool
    default: false
  src:
    description:
      - A file on the host that holds the artifact already. It is verified like a download.
    type: path
  stage_only:
    description:
      - Download and verify only.
    type: bool
    default: false
  apply:
    description:
      - An operator's word for a product whose C(manual) is set - what is staged there is switched to. A release that is named and not
        staged yet is staged first; with none named, it is whatever is staged.
    type: bool
  force:
    description:
      - Pass over windows, freezes and the workload's veto. The host's audit log says so. A hold is never passed over.
    type: bool
    default: false
  accept_one_way:
    description:
      - Agree to a release that changes the data for good (V(cannot-be-undone)); the version before may not read it after going back.
    type: bool
    default: false
  adopt:
    description:
      - Consent to adopt a plain file found at the product's entrypoint, for this run.
    type: bool
    default: false
  start:
    description:
      - Agree that the switch starts a unit that is stopped, not enabled or has failed, such as when the release that runs keeps failing
        although it is confirmed. Without it such a host refuses (V(unit-not-running)).
    type: bool
    default: false
  smoke:
    description:
      - Run the release's own version command before the switch.
    type: bool
    default: true
  confirm:
    description:
      - Confirm the trial after connecting anew. With V(false) the result's state is V(trial) and M(slotward.fleet.confirm) must be
        used before the deadline.
    type: bool
    default: true
  reconnect_s:
    description:
      - How many seconds to try to connect again and confirm after the switch. Without it, and at most, as long as the trial has left
        and a few seconds more for the host to go back.
    type: int
  id:
    description:
      - The trial's id, 16 hexadecimal digits. Made by the controller when it is not given. On a way over stepping stones it is the
        last one's.
    type: str
  permit:
    description:
      - A published downgrade permit on the controller, which lets the hosts that it names go to this one release below their floor, once.
    type: path
  stones:
    description:
      - Releases that may be passed on the way to O(target), as RV(slotward.fleet.release_info#module:stones) has them. A host that is
        below the release's C(minFrom) is taken over as few of them as possible, each of them confirmed before the next.
      - With O(stage_only=true) the first of them is staged. With O(release) they are looked for beside it.
    type: list
    elements: dict
    default: []
    suboptions: *target
seealso:
  - module: slotward.fleet.release_info
  - module: slotward.fleet.confirm
  - module: slotward.fleet.rollback
"""

EXAMPLES = r"""
- name: Read and verify the release once
  slotward.fleet.release_info:
    release: https://releases.example.com/slotward/1.1.0
    pins: "{{ release_pins }}"
    threshold: 2
  register: release
  run_once: true

- name: Download and verify on every host
  slotward.fleet.upgrade:
    target: "{{ release.target }}"
    stage_only: true

- name: Switch, connect anew, confirm
  slotward.fleet.upgrade:
    target: "{{ release.target }}"

- name: Upgrade a host that has no way out
  slotward.fleet.upgrade:
    release: /srv/releases/slotward/1.1.0
    push: true

- name: Replace a confirmed release whose unit has failed
  slotward.fleet.upgrade:
    product: edge
    release: /srv/releases/edge/2.4.1
    push: true
    start: true

- name: Go to a version of a product with a source
  slotward.fleet.upgrade:
    product: edge
    version: 2.4.0
    channel: stable

- name: Switch to what was staged on a host that waits for a word
  slotward.fleet.upgrade:
    product: edge
    apply: true

- name: Trust a digest
  slotward.fleet.upgrade:
    product: worker
    release: https://releases.example.com/worker/1.4.0
    version: 1.4.0
    sha256:
      amd64: 9f2c0de1a3c54a1d1f6f0b7e5a0c9be2f6ad1c0f6f1a2b3c4d5e6f708192a3b4
"""

RETURN = r"""
product:
  description: The product.
  returned: always
  type: str
  sample: slotward
state:
  description:
    - How it ended. V(confirmed) and V(current) are success; V(ahead) means that the host runs a newer release than asked.
    - V(held) means that an operator holds the product (RV(hold)), V(staged) that the release is staged, as with O(stage_only=true), or
      waits for an operator's word (V(staged-manual), O(apply=true)).
    - V(trial) is not success yet. V(unknown) means that the host could not be asked.
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
  description: The version that ran before.
  returned: always
  type: str
  sample: 1.0.0
to:
  description: The version that was asked for.
  returned: always
  type: str
  sample: 1.1.0
sequence:
  description: The release's sequence.
  returned: always
  type: int
  sample: 2
floor:
  description: The lowest sequence that the host still takes, once it is known.
  returned: always
  type: int
  sample: 2
digests:
  description: SHA-256 of the two versions' bytes, C(from) and C(to).
  returned: always
  type: dict
  sample: {"from": "d2a8...", "to": "9f2c..."}
trial_id:
  description: The trial's id.
  returned: always
  type: str
  sample: 9f8a6c1e22d04b57
deadline_s:
  description: Seconds left to confirm when the host was last asked; null without a trial.
  returned: always
  type: int
  sample: 112
boots_left:
  description: Reboots that the trial still survives; null without a trial.
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
  description: After a rollback, the exact command that allows this version again on the host.
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
artifact:
  description: What has to be downloaded, C(name), C(url), C(sha256), C(size); null when nothing has to.
  returned: always
  type: dict
  sample: null
reuse:
  description: The other slot holds the release already.
  returned: always
  type: bool
  sample: false
adopt:
  description: The upgrade adopts a plain file at the entrypoint.
  returned: always
  type: bool
  sample: false
steps:
  description:
    - The way over stepping stones, each with C(version), C(state) and C(trial_id); the state is V(planned) for what was not done. Empty
      when the host could go there directly.
  returned: always
  type: list
  elements: dict
  sample: []
hold:
  description: The hold that is in the way, C(why), C(owner), C(until) and C(at), or null.
  returned: always
  type: dict
  sample: null
next_at:
  description:
    - When to try again (seconds since 1970), where the time is in the way (V(outside-window), V(frozen)); else null.
  returned: always
  type: int
  sample: null
command:
  description: What the host would run for it.
  returned: always
  type: str
  sample: null
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import upgrade_options


def main() -> None:
    """Say that this must not be called: the action plugin answers in its place."""
    module = AnsibleModule(
        argument_spec=upgrade_options.UPGRADE_OPTIONS,
        mutually_exclusive=upgrade_options.EXCLUSIVE,
        required_one_of=upgrade_options.ONE_OF,
        required_if=upgrade_options.REQUIRED_IF,
        supports_check_mode=True,
    )
    module.fail_json(msg="upgrade runs as an action plugin on the controller; it cannot be called as a module")


if __name__ == "__main__":
    main()
