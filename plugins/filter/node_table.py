# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One table of many hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_table
short_description: Show what hosts say of themselves as one table
version_added: 0.1.0
author:
  - The Slotward maintainers (@slotward)
description:
  - Takes the results of M(slotward.fleet.node_info) by host and answers the lines of a table, one for each host, in the hosts' order.
  - A host that refuses updates because its records, its audit log or its configuration are broken says so beside its health. A floor
    whose record is broken is not known.
  - The last column has what should be known before it is late, such as keys that expire.
  - A host that could not be asked has a line too. One whose configuration has updates disabled says so beside its state.
positional: _input
options:
  _input:
    description:
      - For each host, what M(slotward.fleet.node_info) returned.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show all hosts
  ansible.builtin.debug:
    msg: "{{ nodes | slotward.fleet.node_table }}"
"""

RETURN = r"""
_value:
  description: The lines of the table, the heads first.
  type: list
  elements: str
"""

from typing import Any, Dict, List, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes

UNKNOWN_FLOOR = ("update.json", "trust.json")
"""With one of these named as broken the floor's own record may be: the last of several is named."""
HEADS = ("host", "version", "mode", "state", "floor", "trial", "failed", "health", "notices")


def refusing(node: Dict[str, Any]) -> str:
    """Why this host refuses every update although its daemon may be well; "" when nothing is broken."""
    code = str(node.get("code"))
    if code not in codes.CODES or codes.CODES[code].kind != codes.BROKEN:
        return ""
    run = (node.get("broken") or {}).get("run")
    return "updates are refused (%s): %s%s" % (code, node.get("reason"), ", run `%s`" % run if run else "")


def health_of(node: Dict[str, Any]) -> str:
    """Whether the daemon is well, and whether its host takes updates."""
    well, refused = node["health"]["ok"], refusing(node)
    said = [] if well else [str(node["health"]["why"])]
    return "; ".join([*said, refused] if refused else said) or "ok"


def floor_of(node: Dict[str, Any]) -> str:
    """The floor, where it is known."""
    file = str((node.get("broken") or {}).get("file"))
    return "-" if node["floor"] is None or file.rpartition("/")[2] in UNKNOWN_FLOOR else str(node["floor"])


def row(host: str, node: Dict[str, Any]) -> Sequence[str]:
    """One host's cells."""
    if "health" not in node:
        why = str(node.get("msg") or "no answer").strip().partition("\n")[0]
        return (host, "-", "-", "unreachable" if node.get("unreachable") else "unknown", "-", "-", "-", why[:100], "-")
    trial = node.get("trial")
    pending = "%s, %s s left" % (trial["to"], trial["left_s"]) if trial else "-"
    failed = ", ".join(entry["version"] for entry in node["failed_versions"]) or "-"
    state = node["state"] + ("" if (node.get("policy") or {}).get("enabled", True) else ", updates disabled")
    notices = "; ".join("%s: %s" % (one["level"], one["text"]) for one in node.get("notices") or []) or "-"
    return (
        host,
        str(node["version"] or "-"),
        str(node.get("mode") or "-"),
        state,
        floor_of(node),
        pending,
        failed,
        health_of(node),
        notices,
    )


def node_table(nodes: Dict[str, Dict[str, Any]]) -> List[str]:
    """The table's lines, each column as wide as its widest cell."""
    if not isinstance(nodes, dict):
        raise AnsibleFilterError(
            "node_table takes a dictionary of node_info results by host, not %s" % type(nodes).__name__
        )
    rows = [HEADS] + [row(host, node) for host, node in nodes.items()]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip() for cells in rows]


class FilterModule:
    """The filter by its name."""

    def filters(self) -> Dict[str, Any]:
        """Ansible's interface."""
        return {"node_table": node_table}
