# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of status.yml."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture(scope="module")
def table() -> Any:
    """The filter."""
    module = importlib.import_module("ansible_collections.slotward.fleet.plugins.filter.node_table")
    return module.FilterModule().filters()["node_table"]


def test_every_host_has_a_line(table: Any) -> None:
    """Healthy, on trial, failed before, absent and unreachable."""
    well = {
        "version": "1.1.0",
        "mode": "helper",
        "state": "confirmed",
        "floor": 2,
        "trial": None,
        "failed_versions": [],
        "health": {"ok": True, "why": None},
    }
    pending = dict(well, state="trial", trial={"to": "1.2.0", "left_s": 40}, failed_versions=[{"version": "1.1.5"}])
    absent = dict(well, version=None, mode=None, state="absent", floor=None, health={"ok": False, "why": "no agent"})
    lines = table(
        {
            "web1": well,
            "web2": pending,
            "db": absent,
            "gone": {"unreachable": True, "msg": "timed out\nmore"},
            "odd": {"msg": "boom"},
        }
    )
    assert [line.split() for line in lines] == [
        ["host", "version", "mode", "state", "floor", "trial", "failed", "health", "notices"],
        ["web1", "1.1.0", "helper", "confirmed", "2", "-", "-", "ok", "-"],
        ["web2", "1.1.0", "helper", "trial", "2", "1.2.0,", "40", "s", "left", "1.1.5", "ok", "-"],
        ["db", "-", "-", "absent", "-", "-", "-", "no", "agent", "-"],
        ["gone", "-", "-", "unreachable", "-", "-", "-", "timed", "out", "-"],
        ["odd", "-", "-", "unknown", "-", "-", "-", "boom", "-"],
    ]
    assert len({line.index("1.1.0") for line in lines[1:3]}) == 1


def test_L6_a_host_with_updates_disabled_says_so(table: Any) -> None:
    """Beside its state, whatever that is; it is no error."""
    node = {"version": "1.1.0", "state": "idle", "floor": 2, "trial": None, "failed_versions": []}
    node["health"] = {"ok": True, "why": None}
    held, open_ = dict(node, policy={"enabled": False}), dict(node, policy={"enabled": True})
    lines = table({"a": held, "b": open_, "c": dict(node, policy=None)})
    assert "idle, updates disabled  2" in lines[1]
    assert "disabled" not in lines[2] + lines[3]


def test_a_host_that_refuses_updates_is_not_ok(table: Any) -> None:
    """Its daemon runs on; that its updates are refused, why, and what to run stand in its line, and no floor that nobody knows."""
    node = {"version": "1.1.0", "state": "confirmed", "floor": 0, "trial": None, "failed_versions": []}
    node["health"] = {"ok": True, "why": None}
    record = dict(node, code="record-broken", reason="/s/update.json: it is torn")
    record["broken"] = {"file": "/s/update.json", "run": "slotward update --repair"}
    link = dict(record, reason="/s/good: it names no slot", broken={"file": "/s/good", "run": "x"}, floor=3)
    log = dict(node, code="audit-broken", reason="the end of the audit log cannot be read", broken=None)
    config = dict(node, code="bad-config", reason="toyd.toml: 3: unknown key", health={"ok": False, "why": "x is down"})
    lines = table({"a": record, "b": link, "c": log, "d": config, "e": dict(node, code="crash-loop", reason="back")})
    assert [line.split()[3] for line in lines[1:]] == ["confirmed"] * 5
    assert [line.split()[4] for line in lines[1:]] == ["-", "3", "0", "0", "0"]
    said = "updates are refused (record-broken): /s/update.json: it is torn, run `slotward update --repair`"
    assert said in lines[1]
    assert "updates are refused (record-broken): /s/good: it names no slot, run `x`" in lines[2]
    assert "updates are refused (audit-broken): the end of the audit log cannot be read" in lines[3]
    assert "x is down; updates are refused (bad-config): toyd.toml: 3: unknown key" in lines[4]
    assert [" ok " in line for line in lines[1:]] == [False, False, False, False, True]


def test_something_else_is_an_error_that_says_so(table: Any) -> None:
    """No traceback for a list."""
    errors = importlib.import_module("ansible.errors")
    with pytest.raises(errors.AnsibleFilterError, match="list"):
        table([])


def test_N16_what_runs_out_stands_in_the_last_column(table: Any) -> None:
    """With its level; several in one line."""
    node = {"version": "1.1.0", "state": "idle", "floor": 2, "trial": None, "failed_versions": []}
    node["health"] = {"ok": True, "why": None}
    notices = [{"level": "critical", "text": "key set 2 expires in 3 days"}, {"level": "notice", "text": "more"}]
    (_heads, line) = table({"a": dict(node, notices=notices)})
    assert line.endswith("ok      critical: key set 2 expires in 3 days; notice: more")
