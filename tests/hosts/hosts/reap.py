# SPDX-License-Identifier: GPL-3.0-or-later
"""Removing what runs leave behind: containers, links, mounts and trees.

- Only what a record names is touched.
- A leftover is a run whose owner is dead, or a host whose making was cut short.
"""

from __future__ import annotations

import shutil

from hosts import container, network, process, records, settings, tree

REAP_TIMEOUT_S = 600.0


def leftovers(everything: bool = False) -> list[str]:
    """Remove what dead runs left (or all runs), and return the names of what was removed."""
    removed = []
    with records.locked(settings.state_dir() / "reap.lock", REAP_TIMEOUT_S):
        for run_id in records.run_ids():
            with records.machine_lock():
                doomed = everything or records.is_leftover(records.read_run(run_id), process.ProcessId.alive)
            if doomed:
                remove_run(run_id)
                removed.append(run_id)
            else:
                removed += _half_made(run_id)
    return removed


def _half_made(run_id: str) -> list[str]:
    """Remove the hosts of a living run whose making was cut short."""
    removed = []
    for name in records.host_names(run_id):
        with records.machine_lock():
            half = records.is_half_made(records.read_host(run_id, name), process.ProcessId.alive)
        if half:
            remove_host(run_id, name)
            removed.append(f"{run_id}/{name}")
    return removed


def remove_host(run_id: str, name: str) -> None:
    """Remove a host, whatever is left of it."""
    record = records.read_host(run_id, name)
    if record is not None:
        link = network.Link(record.number)
        container.kill(record.keeper, link.machine)
        network.destroy(link)
    tree.remove_host(records.host_dir(run_id, name))


def remove_run(run_id: str) -> None:
    """Remove a run and all its hosts; the run's record goes last, so that a removal cut short is taken up again."""
    for name in records.host_names(run_id):
        remove_host(run_id, name)
    directory = records.run_dir(run_id)
    for file in sorted(directory.glob("*")):
        if file.name != "run.json" and file.is_file():
            file.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
