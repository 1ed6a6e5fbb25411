# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every test: Hypothesis measures no time (machines are shared) and keeps its examples in .build.

The profile `mutants` gives the same examples each time: what a test kills must not depend on luck.
"""

from __future__ import annotations

import pathlib

from hypothesis import Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / ".build" / "cache" / "hypothesis"

settings.register_profile("slotward", deadline=None, print_blob=True, database=DirectoryBasedExampleDatabase(EXAMPLES))
settings.register_profile(
    "mutants",
    settings.get_profile("slotward"),
    derandomize=True,
    database=None,
    print_blob=False,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("slotward")
