# SPDX-License-Identifier: GPL-3.0-or-later
"""I4, before the first byte is fetched: the guard must be in force for every unit that a switch restarts, and they must run."""

from __future__ import annotations

import os
import pathlib
from typing import Dict, List, Optional, Tuple

import pytest

from agent import guarding, resting
from slotcore import codes
from slotcore import config as configs
from slotward import installed, lookahead, own, systemd, units

HELPER = "probe-helper.service"
GUARDED = {
    "LoadState": "loaded",
    "Wants": "network.target slotward-guard@probe.service",
    "After": "slotward-guard@probe.service basic.target",
    "OnFailure": "slotward-rollback@probe.service",
    "NeedDaemonReload": "no",
    "ActiveState": "active",
    "UnitFileState": "enabled",
    "User": "probe",
}
LOADED = {"LoadState": "loaded", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


class Here:
    """A host whose systemd says what it is told, in the order in which it is asked."""

    def __init__(self, root: pathlib.Path, helper: str) -> None:
        self.root = root
        product = resting.product(root)._replace(helper_unit=helper)
        self.setup = own.Setup(product, configs.load(b"", "/nowhere")[0], (), "/nowhere")
        self.shown: Dict[str, Dict[str, str]] = {
            name: dict(GUARDED) for name in (product.unit, *([helper] if helper else []))
        }
        self.shown["guard"], self.shown["timer"] = dict(LOADED), dict(LOADED)
        (root / "guard").write_text("#!/bin/sh\n")
        (root / "guard").chmod(0o755)
        (root / "guard.d").mkdir()
        self.facts = root / "guard.d" / "probe.env"
        self.facts.write_text(f"UNIT=probe.service\nSLOTS=/slots\n{'HELPER=' + helper if helper else ''}\n")

    def say(self) -> None:
        """Write down what systemd says."""
        blocks = ["\n".join(f"{key}={value}" for key, value in shown.items()) for shown in self.shown.values()]
        (self.root / "show").write_text("\n\n".join(blocks) + "\n")

    def missing(self) -> List[str]:
        """What is not in force."""
        self.say()
        return installed.not_in_force(self.setup.product)

    def refusal(self, may_start: bool = False) -> Optional[codes.Refusal]:
        """What prepare says of systemd and the units; the user of the product's unit must come from its own block."""
        self.say()
        try:
            user = lookahead._systemd(self.setup, may_start, False)
        except codes.Refused as error:
            return error.refusal
        assert user == "probe"
        return None


@pytest.fixture
def armed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where the guard lies on a host that is run by systemd."""
    monkeypatch.setenv("PATH", f"{guarding.FAKES}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    monkeypatch.setattr(units, "GUARD_DIR", str(tmp_path))
    monkeypatch.setattr(systemd, "booted", lambda: None)
    return tmp_path


@pytest.fixture
def here(armed: pathlib.Path) -> Here:
    """A host in order, of a product with a helper."""
    return Here(armed, HELPER)


@pytest.mark.parametrize(("helper", "ours"), [(HELPER, f"probe.service {HELPER}"), ("", "probe.service")])
def test_a_host_in_order_lacks_nothing(armed: pathlib.Path, helper: str, ours: str) -> None:
    """One call for all units, those of a product without a helper as ever."""
    found = Here(armed, helper)
    assert found.missing() == []
    (asked,) = (armed / "calls").read_text().splitlines()
    enders = "slotward-deadline@probe.service slotward-rollback@probe.service"
    assert asked.endswith(f"-- {ours} slotward-guard@probe.service slotward-deadline@probe.timer {enders}")
    assert found.refusal() is None


def test_without_a_helper_the_guard_need_not_know_of_one(armed: pathlib.Path) -> None:
    """The daemon must be guarded, run, and be enabled all the same."""
    found = Here(armed, "")
    found.shown["probe.service"]["OnFailure"] = ""
    assert found.missing() == ["systemd does not have slotward-rollback@probe.service in OnFailure= of probe.service"]
    found.shown["probe.service"] = dict(GUARDED, ActiveState="failed")
    refusal = found.refusal()
    assert refusal is not None
    assert refusal.code == codes.UNIT_NOT_RUNNING


LACKS: Tuple[Tuple[str, str], ...] = (
    ("Wants", "systemd does not have slotward-guard@probe.service in Wants= of"),
    ("After", "systemd does not have slotward-guard@probe.service in After= of"),
    ("OnFailure", "systemd does not have slotward-rollback@probe.service in OnFailure= of"),
)


@pytest.mark.parametrize("unit", ["probe.service", HELPER])
@pytest.mark.parametrize(("key", "said"), LACKS)
def test_I4_every_unit_of_the_product_must_have_the_guard(here: Here, unit: str, key: str, said: str) -> None:
    """In the helper's unit it is as dear as in the daemon's; the refusal names the unit."""
    here.shown[unit][key] = "network.target"
    assert here.missing() == [f"{said} {unit}"]
    refusal = here.refusal()
    assert refusal is not None
    assert (refusal.code, unit in refusal.text) == (codes.GUARD_NOT_INSTALLED, True)


@pytest.mark.parametrize("unit", ["probe.service", HELPER, "guard", "timer"])
def test_a_unit_file_that_systemd_has_not_read_is_not_in_force(here: Here, unit: str) -> None:
    """Of whichever unit."""
    here.shown[unit]["NeedDaemonReload"] = "yes"
    assert here.missing() == ["a unit file has changed since systemd read it (systemctl daemon-reload)"]


def test_I4_the_guard_must_know_of_the_helper(here: Here) -> None:
    """Otherwise going back would leave it at the release that failed."""
    here.facts.write_text("UNIT=probe.service\nSLOTS=/slots\nHELPER=other.service\n")
    assert here.missing() == [f"{here.facts} does not say HELPER={HELPER}"]
    here.facts.unlink()
    assert here.missing() == [f"{here.facts} is missing"]


def test_what_must_be_armed_is_armed_or_said(here: Here) -> None:
    """The guard's own unit and the timer."""
    here.shown["guard"]["LoadState"] = "not-found"
    here.shown["timer"]["UnitFileState"] = "disabled"
    (here.root / "guard").unlink()
    assert here.missing() == [
        f"{here.root}/guard is missing",
        "systemd has not loaded slotward-guard@probe.service",
        "slotward-deadline@probe.timer is not loaded and enabled",
    ]
    here.shown["timer"]["LoadState"] = "masked"
    assert here.missing()[-1] == "slotward-deadline@probe.timer is masked"


@pytest.mark.parametrize("name", ["guard", "deadline", "rollback"])
def test_what_is_masked_is_not_armed(here: Here, name: str) -> None:
    """I4: a timer that ticks for a masked service, or a unit whose failure calls one, ends no trial."""
    here.shown["deadline"], here.shown["rollback"] = dict(LOADED), dict(LOADED)
    assert here.missing() == []
    here.shown[name]["LoadState"] = "masked"
    assert here.missing() == [f"slotward-{name}@probe.service is masked"]


@pytest.mark.parametrize("unit", ["probe.service", HELPER])
@pytest.mark.parametrize("active", ["inactive", "failed", "activating"])
def test_a_unit_that_does_not_run_is_named(here: Here, unit: str, active: str) -> None:
    """Going back never starts what an operator had stopped, so it must run before; or be agreed to."""
    here.shown[unit]["ActiveState"] = active
    refusal = here.refusal()
    assert refusal is not None
    assert refusal.code == codes.UNIT_NOT_RUNNING
    assert refusal.text.startswith(f"{unit} is {active}")
    assert here.refusal(may_start=True) is None


def test_a_helper_need_not_be_enabled_since_the_daemon_pulls_it_in(here: Here) -> None:
    """The daemon must be."""
    here.shown[HELPER]["UnitFileState"] = "disabled"
    assert here.refusal() is None
    here.shown["probe.service"]["UnitFileState"] = "disabled"
    assert here.refusal() is not None


def test_a_file_of_the_guard_is_told_once_and_as_what_it_is(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, not executable, or somebody else's: what setup would do is the one line about it."""
    guard = here.root / "guard"
    wanted = (units.SystemFile(str(guard), 0o755, guard.read_text()),)
    monkeypatch.setattr(installed, "wanted", lambda _setup: wanted)
    monkeypatch.setattr(installed, "directories_at_risk", lambda _product: [])
    here.say()
    assert installed.differences(here.setup) == []
    other = f"{guard} has another owner or mode than this version gives it"
    guard.chmod(0o666)
    assert installed.differences(here.setup) == [other]
    assert here.missing() == [f"{guard} is not executable"]
    guard.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(guard, 65534, 65534)
        assert installed.differences(here.setup) == [other]
        assert units.plan(wanted, installed.read_file) == (units.Change(str(guard), "mode"),)
    guard.unlink()
    assert installed.differences(here.setup) == [f"{guard} is missing"]
