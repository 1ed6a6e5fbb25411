# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the releases of a scenario and writes an inventory that says where they are and which keys signed them.

Usage: releases.py DIRECTORY INVENTORY VERSION:SEQUENCE[:KIND]…
"""

from __future__ import annotations

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests"))

from support import broken, releases


def main(directory: str, inventory: str, *wanted: str) -> int:
    """Make them all; the inventory's names are those of the role and of upgrade.yml."""
    shop = releases.Workshop(pathlib.Path(directory).resolve())
    kinds = {kind.name: kind for kind in broken.KINDS}
    made = {}
    for word in wanted:
        version, sequence, kind = f"{word}:".split(":")[:3]
        made[version] = str(shop.release(version, int(sequence), kinds[kind] if kind else None).directory)
    pins = [key.pin for key in shop.keys]
    names = {
        "made_releases": made,
        "agent_release_pins": pins,
        "agent_release_threshold": shop.threshold,
        "upgrade_pins": pins,
        "upgrade_threshold": shop.threshold,
    }
    pathlib.Path(inventory).write_text(json.dumps({"all": {"vars": names}}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
