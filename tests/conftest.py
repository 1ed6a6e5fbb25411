# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every test: Hypothesis measures no time (machines are shared) and keeps its examples in .build."""

from __future__ import annotations

import pathlib

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / ".build" / "cache" / "hypothesis"

settings.register_profile("slotward", deadline=None, print_blob=True, database=DirectoryBasedExampleDatabase(EXAMPLES))
settings.load_profile("slotward")
