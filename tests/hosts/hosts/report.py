# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts there are, for people and for programs."""

from __future__ import annotations

import json

from hosts import errors, records
from hosts.host import Host

COLUMNS = ("run", "name", "suite", "state", "address", "controller")
Row = dict[str, str]


def rows() -> list[Row]:
    """One row for each host of every run."""
    found = []
    for run_id in records.run_ids():
        for name in records.host_names(run_id):
            try:
                host = Host(run_id, name)
                state = "running" if host.running else "making" if host.record.maker else "down"
            except errors.HostError:
                continue
            values = (run_id, name, host.suite, state, host.address, host.controller_address)
            found.append(dict(zip(COLUMNS, values, strict=True)) | {"root": str(host.root)})
    return found


def as_json() -> str:
    """All hosts as a JSON list."""
    return json.dumps(rows(), indent=1) + "\n"


def as_table() -> str:
    """All hosts as a table."""
    lines = [dict(zip(COLUMNS, (name.upper() for name in COLUMNS), strict=True)), *rows()]
    widths = [max(len(line[column]) for line in lines) for column in COLUMNS]
    return "".join(
        "  ".join(line[column].ljust(width) for column, width in zip(COLUMNS, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )
