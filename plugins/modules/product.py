#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Put a daemon under the agent's care, or take it out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: product
short_description: Put a daemon of a host under the agent's care, or take it out again
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Describes a daemon in C(products.d/<name>.toml) beside the agent's configuration and lets the agent set it up - the program that is
    there is taken into a slot, the entrypoint becomes a link, guard and drop-ins are written. The daemon runs on; nothing is restarted.
  - Nothing is written before the agent has judged the whole description and has said what it would do. A refusal leaves what was there.
  - The file is the module's as a whole. What has its default is not in it. Options that are not given are at the agent's defaults.
  - A product on trial is left alone (V(trial-pending)).
  - It installs no release over what is there; that is what M(slotward.fleet.upgrade) is for.
extends_documentation_fragment:
  - slotward.fleet.attributes
  - slotward.fleet.attributes.actiongroup_node
  - slotward.fleet.node
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
  product:
    description:
      - The product's name, a small letter and at most 63 small letters, digits and dashes. The agent itself, V(slotward), is none.
    type: str
    required: true
  state:
    description:
      - With V(absent) the program that runs is put at the entrypoint as a plain file again, a diverted package's file comes back, and
        the description, the guard's files and the drop-ins go. The daemon runs on.
    type: str
    default: present
    choices: [present, absent]
  adopt:
    description:
      - Consent to take the plain file at O(entrypoint), and those at the paths of O(parts), into the slots.
    type: bool
    default: false
  divert:
    description:
      - Consent to divert the file of a package. With dpkg the package's updates go to C(<path>.distrib) from then on. Without it, a
        package's file is refused (V(package-owns-path)).
    type: bool
    default: false
  version:
    description:
      - The version of the program that is adopted. Not given, the program is asked for it.
    type: str
  src:
    description:
      - A file on the host to install first, where nothing is at O(entrypoint).
    type: path
  manifest:
    description:
      - The signed manifest on the host of O(src). Needed where release keys are pinned.
    type: path
  purge:
    description:
      - With O(state=absent), remove the slots and records too, the floor and the failed versions with them.
    type: bool
    default: false
  unit:
    description:
      - The daemon's unit, as C(redis-server.service) or C(worker@1.service). Needed with O(state=present).
    type: str
  entrypoint:
    description:
      - The path that the unit's C(ExecStart=) names. Needed with O(state=present).
    type: str
  slots_dir:
    description:
      - Where the slots and their records are. Not given, C(/opt/slotward/<product>).
    type: str
  layout:
    description:
      - V(ab) when a slot is one file, V(versions) when it is a tree from a C(tar.gz).
    type: str
    choices: [ab, versions]
  program:
    description:
      - With O(layout=versions), the program's name at the top of the tree. Not given, the product's name.
    type: str
  keep:
    description:
      - With O(layout=versions), how many trees are kept beside those that are live, 0 to 50.
    type: int
  platform:
    description:
      - Which artifact of a release is this host's, as V(linux-amd64). Not given, by the host's own platform.
    type: str
  variant:
    description:
      - Which variant of the artifact is this host's.
    type: str
  user:
    description:
      - The account that smoke tests, configuration checks and probes run as. Not given, the unit's own.
    type: str
  update:
    description:
      - The section C([update]), whom the host trusts for this product and how an update goes.
    type: dict
    suboptions:
      release_pins:
        description: The pins of the release keys.
        type: list
        elements: str
      release_threshold:
        description: How many distinct pinned keys must have signed.
        type: int
      release_sequence:
        description: A release floor to start from.
        type: int
      trial_length_s:
        description: Seconds that a new release has to be confirmed, 5 to 3600.
        type: int
      settle_s:
        description: Seconds that the new main process must have been up before a confirmation counts.
        type: int
      max_boots:
        description: Reboots that a trial survives, 0 to 9.
        type: int
      confirm_sources:
        description: Who must confirm, out of V(controller), V(gateway) and V(probe).
        type: list
        elements: str
      smoke_test:
        description: Run the release's program with O(smoke.arguments) before the switch.
        type: bool
      adopt:
        description: Standing consent to adopt a plain file found at the entrypoint.
        type: bool
      allow_http:
        description: Take C(http) addresses too. For tests only.
        type: bool
      ca_file:
        description: PEM file on the host of the authorities for downloads.
        type: str
      proxy:
        description: Proxy for downloads.
        type: str
      enabled:
        description: Take updates at all.
        type: bool
      allowed_channels:
        description: The channels whose releases are taken, 1 to 8.
        type: list
        elements: str
      min_version:
        description: The oldest version that is taken.
        type: str
      rollback_grace:
        description: How many minor versions below the running one may be taken, 0 to 100.
        type: int
      same_major:
        description: Take only releases of the running major version.
        type: bool
      strict_sequence:
        description: Take only releases whose sequence is above the floor.
        type: bool
      mirrors:
        description: Where else the files of a release are, tried in order.
        type: list
        elements: str
      trust:
        description:
          - V(pins) for signed manifests. With V(digest) the SHA-256 that an operator with root hands over is enough, and there is no floor.
        type: str
        choices: [pins, digest]
      floor:
        description:
          - With V(previous) the floor rises to the release confirmed before, so that one step back stays open.
        type: str
        choices: [current, previous]
      manual:
        description: An upgrade stages the release and stops; it is applied by O(slotward.fleet.upgrade#module:apply).
        type: bool
      max_starts:
        description: How many starts a trial may have, 1 to 10; 0 for no such limit.
        type: int
      health_window_s:
        description: With V(probe) among the sources, seconds that the product must have been healthy since the trial began.
        type: int
  source:
    description:
      - The section C([source]). With it a version is asked for and never an address.
    type: dict
    suboptions:
      url:
        description: The base of a release, with C({version}) in it.
        type: str
      hosts:
        description: The exact hosts that an address may name. Not given, the one in O(source.url).
        type: list
        elements: str
      redirect_hosts:
        description: Hosts and C(*.suffix) that a redirect may lead to besides.
        type: list
        elements: str
  smoke:
    description:
      - The section C([smoke]), how a staged program shows that it is what it should be.
    type: dict
    suboptions:
      arguments:
        description: Words after the program, with one blank between them.
        type: str
      expect:
        description: What its output must have; C({version}) stands for the version.
        type: str
      config_arguments:
        description: Words with which the new program judges the daemon's configuration.
        type: str
  restart:
    description:
      - The section C([restart]).
    type: dict
    suboptions:
      method:
        description: V(reload) for a daemon that replaces its own main process. Going back always restarts.
        type: str
        choices: [restart, reload]
      drain_s:
        description: Seconds between the switch and the restart, 0 to 600.
        type: int
  confirm:
    description:
      - The section C([confirm]), how probes decide.
    type: dict
    suboptions:
      interval_s:
        description: Seconds between two rounds, 1 to 300.
        type: int
      passes:
        description: Consecutive rounds that must pass, 1 to 100.
        type: int
      failures:
        description: Consecutive rounds that fail before the host goes back, 1 to 100.
        type: int
  probes:
    description:
      - The sections C([probe-<name>]), what is looked at during a trial.
    type: list
    elements: dict
    suboptions:
      name:
        description: The probe's name.
        type: str
        required: true
      kind:
        description: What is looked at.
        type: str
        required: true
        choices: [command, http, tcp, unit, file, journal]
      need:
        description: A V(wanted) probe is told and decides nothing.
        type: str
        choices: [required, wanted]
      timeout_s:
        description: Seconds that it may take, 1 to 120.
        type: int
      command:
        description: For V(command), what must end with 0; an absolute path and words, no shell.
        type: str
      user:
        description: For V(command), who runs it.
        type: str
      url:
        description: For V(http), the address.
        type: str
      status:
        description: For V(http), the statuses and ranges that are good, as V(200-299).
        type: list
        elements: str
      body:
        description: For V(http), a text that the answer must have.
        type: str
      ca_file:
        description: For V(http), PEM file of the authorities.
        type: str
      address:
        description: For V(tcp), C(host:port).
        type: str
      unit:
        description: For V(unit) and V(journal), the unit. Not given, the product's.
        type: str
      for_s:
        description: For V(unit), seconds that it must have been active with one main process.
        type: int
      path:
        description: For V(file), the file.
        type: str
      fresh_s:
        description: For V(file), it was changed within so many seconds.
        type: int
      pattern:
        description: For V(journal), what no line since the trial began may match.
        type: str
  hooks:
    description:
      - The sections C([hook-<name>]), commands at fixed places of an update.
    type: list
    elements: dict
    suboptions:
      name:
        description: Which place.
        type: str
        required: true
        choices: [snapshot, restore, veto, drain]
      command:
        description: An absolute path and words, no shell.
        type: str
        required: true
      timeout_s:
        description: Seconds that it may take, 1 to 3600.
        type: int
      user:
        description: Who runs it. Not given, root.
        type: str
      when:
        description: For V(snapshot), V(always) instead of only where the data's epoch changes.
        type: str
        choices: [epoch, always]
  parts:
    description:
      - The sections C([part-<name>]), what else of the tree the host links to. Only with O(layout=versions).
    type: list
    elements: dict
    suboptions:
      name:
        description: The part's name.
        type: str
        required: true
      from:
        description: Its path in the tree.
        type: str
        required: true
      path:
        description: The place on the host that links to it.
        type: str
        required: true
      kind:
        description: V(unit) for a unit file, which systemd must read anew.
        type: str
        choices: [file, unit]
  windows:
    description:
      - The sections C([window-<name>]). Outside of all, an update is put off (V(outside-window)).
    type: list
    elements: dict
    suboptions:
      name:
        description: The window's name.
        type: str
        required: true
      days:
        description: Days and ranges, as V(mon-fri). Not given, every day.
        type: list
        elements: str
      from:
        description: When it opens, as V(22:00). Write it in quotes; YAML takes C(22:00) without them for a number.
        type: str
        required: true
      to:
        description: When it closes; before O(windows[].from) it is on the next day.
        type: str
        required: true
      zone:
        description: The time zone, as V(Europe/Berlin).
        type: str
        required: true
  freezes:
    description:
      - The sections C([freeze-<name>]). From the first to the last day no update begins (V(frozen)).
    type: list
    elements: dict
    suboptions:
      name:
        description: The freeze's name.
        type: str
        required: true
      from:
        description: Its first day, as V(2026-12-20).
        type: str
        required: true
      to:
        description: Its last day.
        type: str
        required: true
      zone:
        description: The time zone, as V(Europe/Berlin).
        type: str
        required: true
      why:
        description: What who asks is told.
        type: str
seealso:
  - module: slotward.fleet.upgrade
  - module: slotward.fleet.products_info
  - module: slotward.fleet.hold
"""

EXAMPLES = r"""
- name: Put the node exporter of a Debian package under care
  slotward.fleet.product:
    product: prometheus-node-exporter
    unit: prometheus-node-exporter.service
    entrypoint: /usr/bin/prometheus-node-exporter
    adopt: true
    divert: true
    update:
      release_pins: "{{ release_pins }}"
      release_threshold: 2
      confirm_sources: [controller, probe]
    smoke:
      arguments: --version
    probes:
      - name: metrics
        kind: http
        url: http://127.0.0.1:9100/metrics
        body: node_exporter_build_info

- name: Only at night, and not at the end of the year
  slotward.fleet.product:
    product: worker
    unit: worker.service
    entrypoint: /usr/local/bin/worker
    update:
      release_pins: "{{ release_pins }}"
    windows:
      - name: night
        days: [mon-fri]
        from: "22:00"
        to: "05:00"
        zone: Europe/Berlin
    freezes:
      - name: christmas
        from: "2026-12-20"
        to: "2027-01-03"
        zone: Europe/Berlin
        why: nobody is here

- name: Take it out again
  slotward.fleet.product:
    product: worker
    state: absent
    purge: true
"""

RETURN = r"""
product:
  description: The product.
  returned: always
  type: str
  sample: prometheus-node-exporter
state:
  description: The product's state after it; V(absent) when it is not there any more.
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
file:
  description: The product's file on the host; null when the name is none.
  returned: always
  type: str
  sample: /etc/slotward/products.d/prometheus-node-exporter.toml
problems:
  description: With V(bad-config), what is wrong with the description, each with line and key.
  returned: always
  type: list
  elements: str
  sample: []
changes:
  description: What was changed, or would be, each with C(path) and C(what).
  returned: always
  type: list
  elements: dict
  sample: [{"path": "/etc/slotward/products.d/prometheus-node-exporter.toml", "what": "create"}]
left:
  description: What was left as it is for a reason, each as a sentence.
  returned: always
  type: list
  elements: str
  sample: []
version:
  description: The version that is in the current slot; null when the agent did not say.
  returned: always
  type: str
  sample: 1.5.0
"""

from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.slotward.fleet.plugins.module_utils import (
    ansible_glue,
    config_file,
    product_file,
    product_options,
    product_work,
)
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes


def run(module: AnsibleModule, path: str) -> product_work.Outcome:
    """Do what is asked; what keeps the module itself from it becomes an answer too."""
    try:
        module.no_log_values.update(config_file.secrets(config_file.read(path).data, path))
        wanted = product_work.present if module.params["state"] == "present" else product_work.absent
        return wanted(module, path)
    except codes.BadConfig as error:
        data = {"state": "failed", "code": error.code, "message": error.text, "problems": list(error.problems)}
        return product_work.Outcome(ansible_glue.Answer(5, data), [], [])
    except OSError as error:
        text = "%s: %s" % (error.filename or path, error.strerror or error)
        return product_work.Outcome(ansible_glue.broken(codes.OS_ERROR, text), [], [])


def main() -> None:
    """Describe and set up, or remove."""
    module = AnsibleModule(
        argument_spec=product_options.PRODUCT_OPTIONS,
        required_if=product_options.REQUIRED_IF,
        supports_check_mode=True,
    )
    result: Dict[str, Any] = {"product": module.params["product"], "file": None, "retry": None}
    try:
        result["file"] = product_file.path_of(module.params)
        answer, changes, diff = run(module, result["file"])
    except codes.Refused as error:
        answer, changes, diff = ansible_glue.broken(error.code, error.text, "refused", 3), [], []
    data = answer.data
    removed = module.params["state"] == "absent" and not answer.failed and not module.check_mode
    result.update(
        state="absent" if removed else data.get("state") or "failed",
        code=answer.code,
        reason=None if answer.code == codes.OK else data.get("message"),
        problems=list(data.get("problems") or []),
        changes=changes,
        left=list(data.get("left") or []),
        version=data.get("version"),
        diff=[*diff, {"before": "", "after": "".join("%s: %s\n" % (one["path"], one["what"]) for one in changes)}],
    )
    ansible_glue.finish(module, answer, result, bool(changes))


if __name__ == "__main__":
    main()
