# SPDX-License-Identifier: GPL-3.0-or-later
"""What setup writes for a product with unit files among its parts, with few starts, or with hooks for its data."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from slotcore import product as products
from slotward import units

DEMO = products.Product("demo", "demo.service", "/usr/local/bin/demo", "/srv/slots/demo")
HOOKS = (
    products.Hook("restore", ("/usr/local/sbin/back", "--all"), timeout_s=300, user="demo"),
    products.Hook("snapshot", ("/usr/local/sbin/keep", "*"), timeout_s=90),
    products.Hook("veto", ("/bin/true",)),
)
KEEPS = DEMO._replace(hooks=HOOKS)
UNIT = products.Part("unit", "demo.service", "/etc/systemd/system/demo.service", unit=True)
FACTS = "/usr/local/lib/slotward/guard.d/demo.env"
DROPIN = "/etc/systemd/system/demo.service.d/50-slotward-rollback.conf"
DATA = "/etc/systemd/system/slotward-data@.service"
INSTANCE = "/etc/systemd/system/slotward-data@demo.service.d/50-slots.conf"
TIMER = "/etc/systemd/system/slotward-deadline@demo.timer.d/50-slots.conf"


def texts(product: products.Product) -> dict[str, str]:
    """The files of a product, by path."""
    return {file.path: file.text for file in units.render(product, 252)}


def test_most_products_have_none_of_it() -> None:
    """Nothing waits for anything that is not there."""
    files = texts(DEMO)
    assert DATA not in files
    assert INSTANCE not in files
    assert "slotward-data" not in files[DROPIN]
    assert files[FACTS] == "UNIT=demo.service\nSLOTS=/srv/slots/demo\n"


def test_the_guard_is_told_of_unit_files_and_of_starts() -> None:
    """A companion file alone is nothing to systemd."""
    parted = DEMO._replace(parts=(UNIT,), max_starts=3)
    assert texts(parted)[FACTS].endswith("SLOTS=/srv/slots/demo\nRELOAD=yes\nSTARTS=3\n")
    assert "RELOAD" not in texts(DEMO._replace(parts=(UNIT._replace(unit=False),)))[FACTS]


def test_hooks_for_data_stand_in_the_facts_and_a_start_waits_for_them() -> None:
    """An old daemon never starts on newer data, so its unit requires what restores it."""
    files = texts(KEEPS)
    assert files[FACTS].endswith(
        "SNAPSHOT=90 root /usr/local/sbin/keep *\nRESTORE=300 demo /usr/local/sbin/back --all\n"
    )
    assert "Requires=slotward-data@demo.service\nAfter=slotward-data@demo.service\n" in files[DROPIN]
    assert "TimeoutStartSec=360s\n" in files[INSTANCE]
    assert "RequiresMountsFor=/srv/slots/demo\n" in files[INSTANCE]
    assert "ConditionPathExists=|/srv/slots/demo/trial\nConditionPathExists=|/srv/slots/demo/snapshot\n" in files[TIMER]
    assert list(files).index(DATA) < list(files).index(INSTANCE) < list(files).index(DROPIN)


def test_other_hooks_and_half_of_a_pair_hold_no_start_up() -> None:
    """A veto is the agent's to ask; a snapshot that nothing restores is no way back."""
    for hooks in (HOOKS[2:], HOOKS[:1], HOOKS[1:2]):
        files = texts(DEMO._replace(hooks=hooks))
        assert DATA not in files
        assert "SNAPSHOT" not in files[FACTS]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: pathlib.Path) -> None:
    """`systemd-analyze verify` has nothing against it (W9)."""
    files = texts(KEEPS)
    path = tmp_path / "slotward-data@demo.service"
    guard = tmp_path / "guard"
    guard.write_text("#!/bin/sh\n", encoding="ascii")
    guard.chmod(0o755)
    path.write_text(files[DATA].replace("/usr/local/lib/slotward", str(tmp_path)), encoding="utf-8")
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    assert [line for line in said.stderr.splitlines() if "slotward-data" in line] == []
