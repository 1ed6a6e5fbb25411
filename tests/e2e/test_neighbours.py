# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever else is at work on a host while an update is: a package of the same path.

What stands elsewhere: two upgrades at once (test_two_at_once.py), a reboot in a trial and a package manager at work (X8, there),
restarts by hand that count for nothing (W3, test_crashes.py), a file put over the link at rest (test_install.py), a package's next version
beside a diverted file at rest (test_products.py), any umask (D13, test_umask.py), the states that doctor names (test_runbook.py).
"""

from __future__ import annotations

import pytest
from support import node as nodes
from support import releases, toys

pytestmark = pytest.mark.hosts


@pytest.mark.parametrize("restarts", [True, False], ids=["restarts", "stops"])
def test_a_package_of_the_same_path_is_upgraded_in_a_trial(
    node: nodes.Node, v100: releases.Release, restarts: bool
) -> None:
    """dpkg writes beside the diverted name, and what its scripts do to the unit is an operator's doing: neither ends the trial."""
    with toys.running(node, v100, adopted=False) as toy:
        box = "/var/tmp/toypkg"
        script = (
            f"systemctl restart {toy.unit}" if restarts else f"systemctl stop {toy.unit}; systemctl start {toy.unit}"
        )

        def package(version: str) -> None:
            node.sh(f"rm -rf {box}; mkdir -p {box}/DEBIAN {box}/usr/local/sbin")
            node.host.write(
                f"{box}/DEBIAN/control",
                f"Package: toypkg\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@x.example>\nDescription: toy\n",
            )
            node.host.write(f"{box}/DEBIAN/postinst", f"#!/bin/sh\n{script}\n", 0o755)
            node.host.write(f"{box}/usr/local/sbin/toy", toy.program(version), 0o755)
            node.sh(f"dpkg-deb --root-owner-group -b {box} {box}.deb >/dev/null && dpkg -i {box}.deb")

        try:
            package("1.0.0")
            adopted = toy.slotward("setup", "--adopt", "--divert")
            assert adopted.exit == 0, adopted
            trial = toy.on_trial(toy.release("1.1.0", 2))
            package("3.0.0")
            assert node.sh(f"{toy.entrypoint} version; {toy.entrypoint}.distrib version") == "toy 1.1.0\ntoy 3.0.0"
            assert toy.update()["trial"]["id"] == trial
            assert toy.slotward("confirm", "--id", trial, "--wait", "15").json["state"] == "confirmed"
            assert toy.slotward("doctor").exit == 0
        finally:
            node.sh(
                f"dpkg-divert --local --no-rename --remove {toy.entrypoint} >/dev/null 2>&1; "
                f"dpkg -r --force-all toypkg >/dev/null 2>&1; rm -rf {box}*"
            )
