# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/design/sandbox.md and the units as they are written: each setting is as tight as systemd has it, or has a row there."""

from __future__ import annotations

import pathlib
import re
from typing import Dict, List, Mapping, Set, Tuple

import pytest

from slotcore import product as products
from slotward import units, units_modes

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "design" / "sandbox.md"
SELF = products.Product("slotward", "slotward.service", "/usr/local/bin/slotward", "/opt/slotward/slotward")
AGENT = units.Agent("/etc/slotward/config.toml", user="slotward", group="slotward")

YES = (
    "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateNetwork", "PrivateUsers", "ProtectKernelModules",
    "ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname",
    "RestrictSUIDSGID", "RestrictRealtime", "RestrictNamespaces", "LockPersonality", "MemoryDenyWriteExecute",
)  # fmt: skip
TIGHTEST: Mapping[str, str] = {
    **dict.fromkeys(YES, "yes"),
    "ProtectSystem": "strict",
    "DevicePolicy": "closed",
    "IPAddressDeny": "any",
    "ProtectProc": "invisible",
    "ProcSubset": "pid",
    "UMask": "0077",
    "CapabilityBoundingSet": "",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "SystemCallFilter": "@system-service ~@privileged @resources",
    "RestrictAddressFamilies": "none",
    "SupplementaryGroups": "",
    "RootDirectory": "a directory of its own",
    "User": "slotward",
}
"""What systemd could close further; the order is that of nothing."""
ONLY_AN_ACCOUNT_S = {"RemoveIPC": "yes"}
REPEATS = ("SystemCallFilter", "RestrictAddressFamilies")
"""Settings that add up over their lines, until an empty one."""


def merged(*texts: str) -> Dict[str, str]:
    """The settings of a unit and its drop-ins, as systemd puts them together."""
    found: Dict[str, str] = {}
    for text in texts:
        for line in text.splitlines():
            key, sign, value = line.partition("=")
            if not sign or line.startswith("#"):
                continue
            adds = key in REPEATS and value and found.get(key)
            found[key] = f"{found[key]} {value}" if adds else value
    return found


def rendered(mode: str) -> Dict[str, Dict[str, str]]:
    """The settings of the daemon and the helper in a mode; of what looks at the probes of a product."""
    product = SELF._replace(helper_unit="slotward-helper.service" if mode == "helper" else "")
    if mode == "product":
        probed = products.Product("demo", "demo.service", "/usr/bin/demo", "/srv/demo", confirm_sources=("probe",))
        unit = f"{units.UNIT_DIR}/slotward-probe@demo.service"
        return {"probe": merged(*(file.text for file in units.render(probed, 257) if file.path == unit))}
    files = {file.path: file.text for file in units.render(product, 257, AGENT._replace(mode=mode))}
    found = {"daemon": merged(files[f"{units.UNIT_DIR}/slotward.service"], files[units_modes.DROPIN])}
    if mode == "helper":
        found["helper"] = merged(files[f"{units.UNIT_DIR}/slotward-helper.service"])
    return found


def loose(found: Mapping[str, str], tightest: Mapping[str, str]) -> Set[str]:
    """The settings that are not what they could be."""
    return {
        key for key, value in tightest.items() if found.get(key, "" if key == "SupplementaryGroups" else None) != value
    }


def rows() -> List[Tuple[str, str, str]]:
    """The table of the page: unit, setting, reason."""
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("## 2. What is looser") :]
    return re.findall(r"^\| (daemon|helper|probe) \| `([A-Za-z]+)` \| (.+) \|$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("unit", "mode"), [("daemon", "helper"), ("daemon", "start"), ("helper", "helper"), ("probe", "product")]
)
def test_each_looser_line_has_its_row_and_each_row_is_true(unit: str, mode: str) -> None:
    """Section 7: what is looser without a reason fails, and so does a reason for what is as tight as it can be."""
    tightest = {**TIGHTEST, **(ONLY_AN_ACCOUNT_S if unit == "daemon" else {})}
    found = loose(rendered(mode)[unit], tightest)
    listed = [setting for name, setting, _why in rows() if name == unit]
    assert len(listed) == len(set(listed))
    assert found == set(listed)
    assert all(len(why) > 10 for _unit, _setting, why in rows())


def test_the_comparison_sees_what_is_looser() -> None:
    """The check itself can fail: a line taken out, made weaker, or let in again by a later one."""
    daemon = rendered("start")["daemon"]
    before = loose(daemon, TIGHTEST)
    assert loose({**daemon, "ProtectSystem": "full"}, TIGHTEST) - before == {"ProtectSystem"}
    assert loose({key: value for key, value in daemon.items() if key != "LockPersonality"}, TIGHTEST) - before == {
        "LockPersonality"
    }
    assert loose({**daemon, "CapabilityBoundingSet": "CAP_CHOWN"}, TIGHTEST) - before == {"CapabilityBoundingSet"}
    assert merged("A=1\nSystemCallFilter=x\n", "SystemCallFilter=y\n")["SystemCallFilter"] == "x y"
    assert merged("RestrictAddressFamilies=x\n", "RestrictAddressFamilies=\nRestrictAddressFamilies=y\n") == {
        "RestrictAddressFamilies": "y"
    }


def test_what_each_may_talk_is_what_the_page_says() -> None:
    """The families of addresses, and the one group of calls that is let in again."""
    daemon, helper = rendered("helper")["daemon"], rendered("helper")["helper"]
    assert daemon["RestrictAddressFamilies"].split() == ["AF_UNIX", "AF_INET", "AF_INET6"]
    assert helper["RestrictAddressFamilies"] == "AF_UNIX"
    assert helper["SystemCallFilter"] == TIGHTEST["SystemCallFilter"] + " @chown"
    for name, families in (("daemon", daemon), ("helper", helper)):
        (why,) = [row[2] for row in rows() if row[:2] == (name, "RestrictAddressFamilies")]
        assert all(f"`{one}`" in why for one in families["RestrictAddressFamilies"].split())


@pytest.mark.parametrize("mode", ["helper", "start", "product"])
def test_no_unit_has_what_would_hide_or_hand_over(mode: str) -> None:
    """DESIGN 9 and ADR 19: ProcSubset= hides the clock, StateDirectory= hands the tree over."""
    for found in rendered(mode).values():
        assert {"ProcSubset", "StateDirectory", "Requires", "EnvironmentFile"}.isdisjoint(found)
