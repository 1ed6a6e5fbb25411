# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts, releases and a fresh agent for the tests of this directory.

Each suite's host is made when the first test asks for it and shared by all; every test starts from a fresh install.
In which mode (docs/design/privilege.md): root, but for tests marked `every_mode` or `quick_modes` (tests/support/modes.py).
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Generator, Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hosts"))

import hosts
from support import broken, faults, modes, releases
from support import node as nodes

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test itself failed, for what its fixtures do afterwards."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


def _cut_at_points(metafunc: pytest.Metafunc, plan: str, *only: str) -> None:
    """A host of each suite in each mode, cut at each point of the mode's own plan; `only` some modes, the quick points whatever is chosen."""
    found = []
    fixture = "bare" if "bare" in metafunc.fixturenames else "node"
    for mode in only or modes.chosen():
        for point in faults.chosen(plan, mode):
            is_quick = point in faults.quick(mode)
            if not is_quick and mode not in modes.chosen():
                continue
            for suite in hosts.SUITES:
                name = f"{nodes.name_of(suite, mode)}-{point}"
                mark = pytest.mark.host if is_quick else pytest.mark.hosts
                found.append(pytest.param((suite, mode), point, id=name, marks=mark))
    metafunc.parametrize((fixture, "point"), found, indirect=[fixture])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A host of each suite for `node` and `bare`, in each mode that the test is for; root mode is not named in an id."""
    definition = metafunc.definition
    cut_in = definition.get_closest_marker("cut_in")
    if cut_in is not None:
        _cut_at_points(metafunc, *cut_in.args)
        return
    wanted: tuple[str, ...] = (modes.ROOT,)
    if definition.get_closest_marker("quick_modes"):
        wanted = modes.MODES
    elif definition.get_closest_marker("every_mode"):
        wanted = modes.chosen()
    only = definition.get_closest_marker("only_modes")
    if only is not None:
        wanted = tuple(mode for mode in wanted if mode in only.args)
    for fixture in ("node", "bare"):
        if fixture in metafunc.fixturenames:
            pairs = [(suite, mode) for mode in wanted for suite in hosts.SUITES]
            ids = [nodes.name_of(*pair) for pair in pairs]
            metafunc.parametrize(fixture, pairs, ids=ids, indirect=True)


@pytest.fixture(scope="session")
def machines() -> Iterator[nodes.Machines]:
    """Hosts that are gone after the session."""
    if os.geteuid() != 0:
        pytest.skip("real test hosts need root")
    with hosts.Run() as run:
        yield nodes.Machines(run)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> releases.Workshop:
    """Keys and releases; what a test makes under a version is there for the others."""
    return releases.Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def v100(shop: releases.Workshop) -> releases.Release:
    """The release that hosts are installed with."""
    return shop.release("1.0.0", 1)


@pytest.fixture(scope="session")
def v110(shop: releases.Workshop) -> releases.Release:
    """The next one."""
    return shop.release("1.1.0", 2)


@pytest.fixture(scope="session")
def crashing(shop: releases.Workshop) -> releases.Release:
    """One whose daemon exits with status 1 at each start, although its smoke test passes."""
    return shop.broken(broken.named("crash-at-start"))


@pytest.fixture(scope="session")
def v120(shop: releases.Workshop) -> releases.Release:
    """The one after that."""
    return shop.release("1.2.0", 3)


@pytest.fixture(scope="session")
def stranger(shop: releases.Workshop) -> releases.Release:
    """A 1.1.0 that others signed, whose keys no host pins."""
    return releases.Workshop(shop.directory / "stranger").release("1.1.0", 2)


def looked_after(node: nodes.Node, request: pytest.FixtureRequest) -> Iterator[nodes.Node]:
    """Lend a node to a test. After one that passed nothing of a trial may be left; one that failed tells its story."""
    yield node
    node.close()
    if request.node.stash.get(FAILED, True):
        node.host.boot()
        print(node.story())
    elif not node.damaged:
        node.at_rest()


@pytest.fixture
def bare(request: pytest.FixtureRequest, machines: nodes.Machines, shop: releases.Workshop) -> Iterator[nodes.Node]:
    """A host of each suite with nothing of ours on it."""
    suite, mode = request.param
    node = nodes.Node(machines.of(suite), shop, mode)
    node.wipe()
    yield from looked_after(node, request)


@pytest.fixture
def node(
    request: pytest.FixtureRequest, machines: nodes.Machines, shop: releases.Workshop, v100: releases.Release
) -> Iterator[nodes.Node]:
    """A host of each suite on which 1.0.0 was installed by hand and runs."""
    suite, mode = request.param
    node = nodes.Node(machines.of(suite), shop, mode)
    node.fresh(v100)
    yield from looked_after(node, request)


@pytest.fixture
def installed(machines: nodes.Machines, shop: releases.Workshop, v100: releases.Release) -> nodes.Node:
    """A bookworm host with 1.0.0, fresh."""
    node = nodes.Node(machines.of("bookworm"), shop)
    node.wipe()
    node.fresh(v100)
    return node
