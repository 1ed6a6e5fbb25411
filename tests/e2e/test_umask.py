# SPDX-License-Identifier: GPL-3.0-or-later
"""Field case D13 on a real host: what every command makes has the same mode, whatever the caller's umask."""

from __future__ import annotations

import re

import pytest
from support import node as nodes
from support import releases

PLACES = (
    "/opt/slotward /usr/local/lib/slotward /usr/local/bin/slotward /var/lib/slotward /etc/systemd/system/slotward* "
    "/run/slotward"
)


def listing(node: nodes.Node) -> list[str]:
    """Mode, owner and name of all that is ours; links have no mode of their own, and a trial's id is chance."""
    found = node.sh(f"find {PLACES} ! -type l -printf '%m %u %g %p\\n'")
    return sorted(re.sub(r"/[0-9a-f]{16}\b", "/ID", found).splitlines())


def as_umask(node: nodes.Node, umask: str, *argv: str) -> nodes.Answer:
    """Run a command of the agent under a umask, as a login shell or a cron job would."""
    return node.command(["sh", "-c", f'umask {umask}; exec "$@"', "sh", *argv])


def path_of(
    node: nodes.Node, umask: str, v100: releases.Release, v110: releases.Release, v120: releases.Release
) -> list[list[str]]:
    """Setup, staging, a trial, its confirmation and another one taken back, under one umask; the listing after each."""
    node.wipe()
    node.configure()
    seen = []
    program, manifest = node.put(v100.artifact, 0o755), node.put(v100.manifest, name="1.0.0.manifest.json")
    assert as_umask(node, umask, program, "setup", "--manifest", manifest).exit == 0
    node.enable()
    seen.append(listing(node))
    target, src = node.target(v110), node.put(v110.artifact)
    staged = as_umask(node, umask, "slotward", "upgrade", "--target", target, "--src", src, "--stage-only")
    assert (staged.exit, staged.json["state"]) == (0, "staged"), staged
    seen.append(listing(node))
    begun = as_umask(node, umask, "slotward", "upgrade", "--target", target, "--no-wait")
    assert begun.json["state"] == "trial", begun
    seen.append(listing(node))
    done = as_umask(node, umask, "slotward", "confirm", "--id", str(begun.json["trial"]["id"]), "--wait", "15")
    assert done.exit == 0, done
    next_one = ("--target", node.target(v120), "--src", node.put(v120.artifact))
    assert as_umask(node, umask, "slotward", "prepare", *next_one).exit == 0
    assert as_umask(node, umask, "slotward", "upgrade", *next_one, "--no-wait").json["state"] == "trial"
    assert as_umask(node, umask, "slotward", "rollback").json["state"] == "rolled-back"
    # evidence is gathered by a unit that nobody waits for
    node.waits(lambda: node.slotward("evidence").json["kept"] != [], 30, "evidence is kept")
    seen.append(listing(node))
    for words in (
        "update",
        "update --clear-failed",
        "update --repair",
        "settle",
        "audit --verify",
        "trust",
        "cancel",
        "doctor",
    ):
        assert as_umask(node, umask, "slotward", *words.split()).exit == 0, words
    assert as_umask(node, umask, "slotward", "setup").json["changed"] is False
    seen.append(listing(node))
    return seen


@pytest.mark.hosts
def test_D13_modes_are_the_same_under_any_umask(
    node: nodes.Node, v100: releases.Release, v110: releases.Release, v120: releases.Release
) -> None:
    """Directories that others must enter are 0755, programs 0755, records 0644, what is private stays so."""
    usual = path_of(node, "0022", v100, v110, v120)
    for name in ("/opt/slotward", "/opt/slotward/slotward", "/usr/local/lib/slotward/guard.d"):
        assert f"755 root root {name}" in usual[0]
    assert "700 root root /var/lib/slotward" in usual[0]
    staged = [line for line in usual[1] if "/staging" in line]
    assert staged == [
        "700 root root /var/lib/slotward/staging",
        "755 root root /var/lib/slotward/staging/slotward-1.1.0",
    ]
    for umask in ("0077", "0027", "0000", "0777"):
        assert path_of(node, umask, v100, v110, v120) == usual, umask
