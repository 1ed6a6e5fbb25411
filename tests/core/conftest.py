# SPDX-License-Identifier: GPL-3.0-or-later
"""The host of the crash tests; and tests marked slow run only when they are asked for: `pytest -m slow tests/core`.

Nothing of ours is imported before a test asks for it: `make mutants` replaces modules before they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, List

import pytest

if TYPE_CHECKING:
    from core.crash import walk


NOT_MEASURED = ("test_crash_", "test_damaged_records", "test_layers", "test_races", "test_trial_machine")
"""A line that only these reach, walking through thousands of states and running the guard, has no test of its own: coverage is
of the others' alone, and these are not slowed down by it."""


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Leave slow tests out of a run that does not name the mark; and mark what coverage does not count."""
    for item in items:
        if item.path.name.startswith(NOT_MEASURED) and "core" in item.path.parts:
            item.add_marker(pytest.mark.no_cover)
    if "slow" in str(config.getoption("-m")):
        return
    left_out = pytest.mark.skip(reason="slow: run with -m slow")
    for item in items:
        if "slow" in item.keywords and "core" in item.path.parts:
            item.add_marker(left_out)


@pytest.fixture(scope="module", params=["alone", "helped"])
def walker(request: pytest.FixtureRequest) -> Iterator[walk.Walker]:
    """One host for all crashes of a module, of a daemon alone and of one with a helper; every state is put in place anew."""
    from core.crash import walk
    from core.crash.host import Host

    host = Host(helped=request.param == "helped")
    yield walk.Walker(host)
    host.remove()
