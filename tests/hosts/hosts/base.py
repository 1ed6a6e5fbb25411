# SPDX-License-Identifier: GPL-3.0-or-later
"""Base trees: built once for each suite and recipe, then only read.

- A tree appears in the cache by one rename, so a killed build leaves none.
- One build of a suite runs at a time on a machine; the others wait for it and use its tree.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys

from hosts import errors, process, recipe, records, settings, tree


def path_of(suite: str) -> pathlib.Path:
    """Where the tree of a suite is, or will be."""
    if suite not in settings.SUITES:
        raise errors.HostError(f"{suite!r} is no suite: use one of {', '.join(settings.SUITES)}")
    return settings.cache_dir() / recipe.tree_name(suite)


def ensure(suite: str) -> pathlib.Path:
    """Return the base tree of a suite, building it first when the cache has none."""
    target = path_of(suite)
    if target.is_dir():
        return target
    with records.locked(settings.cache_dir() / f"{suite}.lock", settings.BUILD_TIMEOUT_S):
        if not target.is_dir():
            _build(suite, target)
    return target


def _build(suite: str, target: pathlib.Path) -> None:
    print(f"hosts: building the {suite} base tree (about half a minute)", file=sys.stderr)
    fresh = target.with_name(f".{suite}.building")
    log = target.with_name(f"{suite}.log")
    options = recipe.apt_options(process.tool("apt-config", "dump"))
    for mirror in mirrors():
        tree.remove(fresh)
        if _built(recipe.build_command(suite, str(fresh), mirror, options), log):
            finish(fresh)
            os.rename(fresh, target)
            return
    tree.remove(fresh)
    tried = " and ".join(mirrors())
    raise errors.HostError(
        f"cannot build {suite} from {tried}: see {log}, or set SLOTWARD_HOSTS_MIRROR to a mirror that has it"
    )


def _built(command: list[str], log: pathlib.Path) -> bool:
    """Run a build with its output in a log."""
    with log.open("w", encoding="utf-8") as output:
        output.write(shlex.join(command) + "\n")
        output.flush()
        try:
            return (
                process.run_group([*process.ALL_WITH_US, *command], None, settings.BUILD_TIMEOUT_S, output).returncode
                == 0
            )
        except subprocess.TimeoutExpired:
            return False


def mirrors() -> list[str]:
    """Where trees come from: what was chosen, or what this machine's apt uses and then the archive."""
    chosen = os.environ.get("SLOTWARD_HOSTS_MIRROR")
    if chosen:
        return [chosen]
    apt = pathlib.Path("/etc/apt")
    files = [
        apt / "sources.list",
        *sorted(apt.glob("sources.list.d/*.list")),
        *sorted(apt.glob("sources.list.d/*.sources")),
    ]
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())
    return [recipe.mirror_of(text), recipe.ARCHIVE]


def finish(root: pathlib.Path) -> None:
    """Turn a fresh Debian tree into a base: no keys, no identity, quiet units, sshd for keys only."""
    for name in recipe.REMOVED:
        (root / name).unlink(missing_ok=True)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/resolv.conf").write_text("", encoding="ascii")
    (root / "etc/ssh/sshd_config.d/slotward-hosts.conf").write_text(recipe.SSHD, encoding="ascii")
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    for unit in recipe.MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")


def remove_unused() -> list[str]:
    """Remove the base trees that no host stands on, and return their paths."""
    removed = []
    for suite in settings.SUITES:
        with records.locked(settings.cache_dir() / f"{suite}.lock", settings.BUILD_TIMEOUT_S):
            used = records.used_bases()
            for cached in [*settings.cache_dir().glob(f"{suite}-*"), *settings.cache_dir().glob(f".{suite}.*")]:
                if str(cached) not in used:
                    tree.remove(cached)
                    removed.append(str(cached))
    return removed
