# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the library in tests/hosts importable when these tests run without PYTHONPATH."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "hosts"))
