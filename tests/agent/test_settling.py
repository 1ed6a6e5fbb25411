# SPDX-License-Identifier: GPL-3.0-or-later
"""Settling on a real directory: a reason that is still being written is waited for, and what a cut left is removed."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
import time

import pytest
from agent.resting import RECORD

from agent import resting
from slotcore import codes, settle, trial
from slotcore import product as products
from slotward import host, manager


@pytest.fixture
def product(tmp_path: pathlib.Path) -> products.Product:
    """A product in use and at rest, in a directory of its own."""
    return resting.product(tmp_path)


def failures(product: products.Product) -> list[str]:
    """The codes of the failed versions on record."""
    text = pathlib.Path(product.path("update.json")).read_text(encoding="ascii")
    return [entry["code"] for entry in json.loads(text)["failed"]]


def test_a_reason_that_comes_right_after_the_claim_is_waited_for(product: products.Product) -> None:
    """The guard claims first and writes its reason then; a command that looks in between must not take it for lost."""
    revert = pathlib.Path(product.path("trial.revert"))
    revert.write_bytes(RECORD)

    def write_reason() -> None:
        with revert.open("ab") as file:
            file.write(b"REASON=deadline-passed\n")

    writer = threading.Timer(0.3, write_reason)
    writer.start()
    seen, done = manager.settle_now(product)
    writer.join()
    assert done == "finish-revert"
    assert failures(product) == ["deadline-passed"]
    assert seen.state.revert is None


def test_a_reason_that_never_comes_does_not_hold_up_for_long(product: products.Product) -> None:
    """A guard that was killed after its claim leaves no reason: then the version just did not start."""
    pathlib.Path(product.path("trial.revert")).write_bytes(RECORD)
    began = time.monotonic()
    manager.settle_now(product)
    assert manager.REASON_WAIT_S <= time.monotonic() - began < manager.REASON_WAIT_S + 3
    assert failures(product) == [codes.DID_NOT_START]


def test_what_a_cut_left_is_removed_and_the_rest_stays(product: products.Product) -> None:
    """Temporaries and the parts of a trial that was never recorded go; a second settling finds nothing to do (I9)."""
    before = set(host.names(product))
    for name in ("b.tmp", "current.tmp", "trial.log", ".trial.77"):
        pathlib.Path(product.path(name)).write_bytes(b"left")
    pathlib.Path(product.path("back")).symlink_to("a")
    assert manager.settle_now(product)[1] == "tidy"
    assert set(host.names(product)) == before
    assert manager.settle_now(product)[1] == "nothing"


def test_what_was_tried_in_the_directory_goes_unless_somebody_still_tries(product: products.Product) -> None:
    """A look ahead that was killed leaves its small program; one of a process that is there is in use, lock or no lock."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getpid()):
        pathlib.Path(product.path(f"{settle.PROBE}{pid}")).write_bytes(b"left")
    assert manager.settle_now(product)[1] == "tidy"
    names = [name for name in os.listdir(product.slots_dir) if name.startswith(settle.PROBE)]
    assert names == [f"{settle.PROBE}{os.getpid()}"]


def test_a_cut_before_the_switch_is_abandoned_and_leaves_nothing(product: products.Product) -> None:
    """The record and the link that was not moved yet go together."""
    pathlib.Path(product.path("trial")).write_bytes(RECORD)
    pathlib.Path(product.path("trial.log")).write_bytes(trial.LOG_HEADER)
    pathlib.Path(product.path("back")).symlink_to("a")
    pathlib.Path(product.path("current.tmp")).symlink_to("b")
    before = {"a", "b", "current", "good", "slots.json", "update.json", "update.json.copy", "audit.log"}
    assert manager.settle_now(product)[1] == "abandon"
    told = json.loads(pathlib.Path(product.path("progress.json")).read_bytes())
    assert (told["phase"], told["failed_in"], told["code"]) == ("go-back", "swap", "never-started")
    assert set(host.names(product)) == {*before, "progress.json"}
    assert failures(product) == []
