# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests marked slow run only when they are asked for: `pytest -m slow tests/core`."""

from __future__ import annotations

from typing import List

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leave slow tests out of a run that does not name the mark."""
    if "slow" in str(config.getoption("-m")):
        return
    left_out = pytest.mark.skip(reason="slow: run with -m slow")
    for item in items:
        if "slow" in item.keywords and "core" in item.path.parts:
            item.add_marker(left_out)
