# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's redis-server with the hooks of examples/: nothing that was acknowledged is lost, whichever way an update ends.

Clients count every INCR and every SET that was answered, over the whole of a test; at its end all of it has to be there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support import examples, load
from support import node as nodes

pytestmark = pytest.mark.hosts
WRITES_S = 2.0
FIGURES = "redis-benchmark -q -t set,incr,lpush,hset -n 20000 -c 20 -r 1000"


@pytest.fixture
def redis(node: nodes.Node) -> Iterator[examples.Redis]:
    """A redis-server with an append-only file, adopted."""
    made = examples.Redis(node)
    made.clear()
    made.install()
    made.example()
    made.done("setup", "--adopt", "--divert")
    yield made
    made.clear()


def version(redis: examples.Redis) -> str:
    """What the server itself says."""
    return redis.node.sh("redis-cli info server | sed -n 's/^redis_version://p' | tr -d '\\r'")


def nothing_lost(counters: list[load.Counter]) -> None:
    """All that was acknowledged is there."""
    for counter in counters:
        assert counter.set > 0
        assert counter.missing() == []
        counter.close()


def test_nothing_acknowledged_is_lost_over_a_rollback(redis: examples.Redis) -> None:
    """The new version writes for a while, is taken back, and the old one has what both acknowledged; under redis-benchmark too."""
    old, new = redis.versions
    counters = redis.counters()
    with load.running(*counters) as seen:
        time.sleep(WRITES_S)
        redis.example(("passes = 3", "passes = 100"))
        trial = redis.on_trial(redis.good())
        redis.node.waits(lambda: version(redis) == new, 20, "the new version answers")
        began = time.monotonic()
        assert "requests per second" in redis.node.sh(FIGURES, timeout=120)
        redis.node.sh(
            "redis-cli set expires soon EX 100000; redis-cli rpush list a b c; redis-cli eval \"redis.call('set','by','script')\" 0"
        )
        assert seen.between(began, time.monotonic())[-1].good
        size = int(redis.node.sh("redis-cli dbsize"))
        redis.done("rollback", "--id", trial, timeout=180)
        redis.node.waits(lambda: version(redis) == old, 60, "the old version answers")
        time.sleep(WRITES_S)
    assert int(redis.node.sh("redis-cli dbsize")) >= size
    assert 99000 < int(redis.node.sh("redis-cli ttl expires")) <= 100000
    assert redis.node.sh("redis-cli lrange list 0 -1; redis-cli get by") == "a\nb\nc\nscript"
    nothing_lost(counters)
    assert redis.node.sh(f"ls {redis.slots}/snapshot", check=False) == ""
    assert redis.update()["last"]["state"] == "rolled-back"


@pytest.mark.parametrize("body", [examples.EXITS, examples.HANGS], ids=["exits", "hangs"])
def test_nothing_is_lost_over_a_release_that_never_serves(redis: examples.Redis, body: str) -> None:
    """The guard ends it; the data are those that were kept."""
    redis.example(("trial_length_s = 300", "trial_length_s = 25"))
    counters = redis.counters()
    with load.running(*counters):
        time.sleep(WRITES_S)
        redis.on_trial(redis.broken("9.1.0" if body == examples.EXITS else "9.2.0", 9, body))
        state = redis.ends(90)
        assert state["last"]["state"] == "rolled-back", (state, redis.story())
        redis.node.waits(lambda: version(redis) == redis.versions[0], 30, "the old version answers")
        time.sleep(WRITES_S)
    nothing_lost(counters)


def test_nothing_is_lost_forth_and_back_after_a_confirmation(redis: examples.Redis) -> None:
    """Confirmed by its probes, then taken back by the operator: the old version is told all data before it starts."""
    old, new = redis.versions
    counters = redis.counters()
    with load.running(*counters):
        time.sleep(WRITES_S)
        redis.upgraded(redis.good(), 90)
        assert version(redis) == new
        time.sleep(WRITES_S)
        redis.done("rollback", "--to", "previous", "--why", "the test says so", timeout=180)
        state = redis.ends(90)
        assert (state["version"], state["last"]["state"]) == (old, "confirmed"), (state, redis.story())
        assert version(redis) == old
        time.sleep(WRITES_S)
        redis.done("unhold")
        redis.upgraded(redis.good(), 90)
        assert version(redis) == new
        time.sleep(WRITES_S)
    nothing_lost(counters)


def test_a_rewrite_in_a_trial_keeps_the_old_version_down_and_the_data_whole(redis: examples.Redis) -> None:
    """The commands of the trial are not there any more: it is said, nothing is overwritten, and an operator has both versions' data."""
    counters = redis.counters(1)
    redis.example(("passes = 3", "passes = 100"))
    with load.running(*counters):
        time.sleep(WRITES_S)
        trial = redis.on_trial(redis.good())
        redis.node.waits(lambda: version(redis) == redis.versions[1], 20, "the new version answers")
        redis.node.sh("redis-cli bgrewriteaof; sleep 2")
    redis.slotward("rollback", "--id", trial, timeout=180)
    redis.node.waits(lambda: redis.update()["code"] == "restore-failed", 60, "it is said")
    assert redis.node.unit(redis.unit).active != "active"
    kept = redis.node.sh(f"ls {redis.slots}/snapshots/{trial}").split()
    assert {"older", "newer"} <= set(kept)
    # the way out that the message names: the new version once more, on its own data
    redis.node.sh(f"systemctl stop {redis.unit}; rm -f {redis.slots}/snapshot")


@pytest.mark.parametrize("moment", [0.02, 0.1, 0.3, 0.6])
def test_hooks_that_are_cut_short_are_run_again(redis: examples.Redis, moment: float) -> None:
    """SIGKILL of everything in the restore, then the host's next start of the unit: nothing is lost."""
    old, new = redis.versions
    counters = redis.counters()
    redis.example(("passes = 3", "passes = 100"))
    with load.running(*counters):
        time.sleep(WRITES_S)
        trial = redis.on_trial(redis.good())
        redis.node.waits(lambda: version(redis) == new, 20, "the new version answers")
        redis.node.sh(FIGURES, timeout=120)
    node = redis.node
    node.sh(
        f"(while ! pgrep -f 'redis_data.py restore' >/dev/null; do sleep 0.01; done; sleep {moment};"
        f" systemctl kill -s KILL slotward-data@{redis.name}.service) >/dev/null 2>&1 &"
    )
    redis.slotward("rollback", "--id", trial, timeout=180)
    node.waits(
        lambda: node.unit(redis.unit).active == "active" and version(redis) == old, 60, "the old version answers"
    )
    nothing_lost(counters)
