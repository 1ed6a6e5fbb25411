# SPDX-License-Identifier: GPL-3.0-or-later
"""Fuzz one target under atheris: one.py TARGET [LIBFUZZER-ARGUMENT…]; started by run.py in the environment that has it."""

from __future__ import annotations

import pathlib
import sys

import atheris  # type: ignore[import-untyped]

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("plugins/module_utils", "agent/src", "tests")]

with atheris.instrument_imports(include=["slotcore", "slotward"]):
    from fuzz import targets


def main() -> None:
    """Run until libFuzzer has enough."""
    one = targets.TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: targets.watched(one, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
