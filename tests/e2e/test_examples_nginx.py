# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's nginx: a configuration that the new program does not take is refused before the switch, and a reload proves nothing (I11)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support import examples, load
from support import node as nodes

pytestmark = pytest.mark.hosts
MODULE = "/etc/nginx/modules-enabled/50-mod-http-echo.conf"


@pytest.fixture
def nginx(node: nodes.Node) -> Iterator[examples.Nginx]:
    """An nginx with a page, adopted."""
    made = examples.Nginx(node)
    made.clear()
    made.install()
    made.example()
    made.done("setup", "--adopt", "--divert")
    yield made
    made.clear()


def test_a_configuration_that_the_new_program_does_not_take(nginx: examples.Nginx) -> None:
    """A module that was built for the old version: nginx's own words, nothing switched; without it the same release goes through."""
    node = nginx.node
    node.sh(f"ln -s /usr/share/nginx/modules-available/mod-http-echo.conf {MODULE}; systemctl restart {nginx.unit}")
    pid = nginx.pid()
    answer = nginx.begin(nginx.good())
    assert (answer.exit, answer.json["state"]) == (3, "refused"), answer
    assert "version" in answer.message, answer
    assert "instead of" in answer.message, answer
    assert (nginx.link("current"), nginx.pid()) == ("a", pid)
    node.sh(f"rm {MODULE}; systemctl restart {nginx.unit}")
    if nginx.update()["failed"]:
        nginx.done("update", "--clear-failed")
    nginx.upgraded(nginx.good(), 90)
    assert nginx.runs(nginx.versions[1])


def test_I11_a_reload_is_no_confirmation(nginx: examples.Nginx) -> None:
    """Probes are green all the time, for the old master serves; the new program never ran, so the trial goes back, and nobody noticed."""
    nginx.example(('method = "restart"', 'method = "reload"'), ("trial_length_s = 120", "trial_length_s = 30"))
    pid = nginx.pid()
    with load.running(*nginx.clients()) as seen:
        time.sleep(1)
        began = time.monotonic()
        trial = nginx.on_trial(nginx.good())
        time.sleep(15)
        assert nginx.pid() == pid
        assert seen.gap(began, time.monotonic()) < 1.0
        answer = nginx.slotward("confirm", "--id", trial, "--wait", "1", "--source", "probe")
        assert answer.exit != 0, answer
        state = nginx.ends(60)
    assert (state["version"], state["last"]["state"]) == (nginx.versions[0], "rolled-back"), state
    assert nginx.runs(nginx.versions[0])
