# SPDX-License-Identifier: GPL-3.0-or-later
"""Download, verify and stage one file with the agent's own code: stage_once.py URL SIZE SHA256 DIRECTORY.

The file ends as a slot would: verified twice, durable, executable.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "agent" / "src"), str(ROOT / "plugins" / "module_utils")]

from slotward import download, executor, staging


def main() -> None:
    """Stage once and clean up."""
    url, size, sha256, place = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    staging.make_directory(place)
    part = os.path.join(place, "big.part")
    download.fetch(url, part, size, sha256, download.Transport(allow_http=True), download.progress_to(None, "big"))
    os.rename(part, os.path.join(place, "big"))
    executor.sync_path(place)
    descriptor = staging.open_staged(place, "big")
    slot = os.path.join(place, "slot.tmp")
    staging.copy_verified(descriptor, slot, size, sha256)
    executor.sync_path(slot)
    os.rename(slot, os.path.join(place, "slot"))
    executor.sync_path(place)
    shutil.rmtree(place)


main()
