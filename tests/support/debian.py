# SPDX-License-Identifier: GPL-3.0-or-later
"""Third-party daemons from Debian: packages to install on a test host, programs out of other suites' packages, and builds of sources.

- Everything is fetched once, by this machine's own apt with a state of its own for each suite, and kept beside the base trees.
- What is there is used without a look at the network; what is made appears by one rename, so a killed run leaves nothing half.
- A program is built in a tree of the suite that it is for, at the lowest priority and one at a time on a machine.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from hosts import base, errors, process, recipe, records, settings, tree

SIGNED = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
NEXT = {"bullseye": "bookworm", "bookworm": "trixie", "trixie": "forky"}
FETCH_TIMEOUT_S = 1200.0
BUILD_TIMEOUT_S = 3600.0


class Build(NamedTuple):
    """How a program is made of a source package."""

    source: str
    """The source package."""
    needs: Sequence[str]
    """Packages that the tree needs besides a compiler."""
    script: str
    """What sh runs in the unpacked source; it leaves the program at /out/program."""
    tree: str = ""
    """The suite whose tree it is built in, when that is not the suite it is for."""
    source_suite: str = ""
    """The suite whose source it is, when that is not the next one's."""


def cache() -> pathlib.Path:
    """Where all of it is kept."""
    return settings.cache_dir() / "third-party"


def packages(suite: str, names: Sequence[str]) -> pathlib.Path:
    """A directory with these packages and all that a base tree of the suite lacks for them."""
    target = cache() / "debs" / suite / "+".join(names)
    if target.is_dir():
        return target
    status = base.ensure(suite) / "var/lib/dpkg/status"
    with _one_at_a_time():
        if not target.is_dir():
            fresh = _fresh(target)
            words = ("--download-only", "-y", "--no-install-recommends", "install", *names)
            (fresh / "partial").mkdir()
            _apt(suite, "get", *words, options=[f"Dir::State::status={status}", f"Dir::Cache::archives={fresh}"])
            for left in ("partial", "lock"):
                process.tool("rm", "-rf", str(fresh / left))
            os.rename(fresh, target)
    return target


def unpacked(suite: str, package: str) -> pathlib.Path:
    """The files of one package of a suite, which need not be one that hosts can have."""
    target = cache() / "unpacked" / suite / package
    if target.is_dir():
        return target
    with _one_at_a_time():
        if not target.is_dir():
            fresh = _fresh(target)
            _apt(suite, "get", "download", package, cwd=fresh)
            (found,) = fresh.glob("*.deb")
            process.tool("dpkg-deb", "-x", str(found), str(fresh))
            found.unlink()
            os.rename(fresh, target)
    return target


def built(suite: str, build: Build) -> pathlib.Path:
    """The program that a later suite's source package makes, built to run in `suite`."""
    target = cache() / "built" / suite / build.source
    if target.is_dir():
        return target / "program"
    with _one_at_a_time():
        if not target.is_dir():
            print(f"hosts: building {build.source} for {suite} (minutes)", file=sys.stderr)
            fresh = _fresh(target)
            try:
                _build(build.tree or suite, build.source_suite or NEXT[suite], build, fresh)
            finally:
                tree.remove(fresh / "tree")
            os.rename(fresh, target)
    return target / "program"


def _build(suite: str, source_suite: str, build: Build, fresh: pathlib.Path) -> None:
    """Make a tree, put the source there, run the script."""
    root = fresh / "tree"
    # what upstream published, as Debian has it: a mirror that lacks the newest changes of Debian's is no obstacle
    _apt(source_suite, "get", "--download-only", "--tar-only", "source", build.source, cwd=fresh)
    options = recipe.apt_options(process.tool("apt-config", "dump"))
    log = cache() / f"{build.source}-{suite}.log"
    command = [
        "mmdebstrap",
        "--variant=apt",
        "--quiet",
        f"--include={','.join(('build-essential', 'mount', *build.needs))}",
        *(f"--dpkgopt={option}" for option in recipe.DPKG_OPTIONS),
        *(f"--aptopt={option}" for option in options),
        suite,
        str(root),
        _mirror(),
    ]
    _logged(command, log, "w")
    source = root / "source"
    source.mkdir()
    (root / "out").mkdir()
    for file in fresh.iterdir():
        if file.is_file():
            file.rename(source / file.name)
    unpack = "mkdir unpacked; tar -xf *.tar.* -C unpacked --strip-components=1"
    script = f"set -eu; mount -t proc proc /proc; export HOME=/out LC_ALL=C; cd /source; {unpack}; cd unpacked; {build.script}"
    _logged(["nice", "-n", "15", "chroot", str(root), "/bin/sh", "-c", script], log, "a")
    process.tool("cp", str(root / "out/program"), str(fresh / "program"))


def _logged(command: Sequence[str], log: pathlib.Path, mode: str) -> None:
    """Run a command that dies with us, its words and its output in a log."""
    with log.open(mode, encoding="utf-8") as output:
        output.write(shlex.join(command) + "\n")
        output.flush()
        argv = [*process.ALL_WITH_US, *command]
        try:
            status = process.run_group(argv, None, BUILD_TIMEOUT_S, output).returncode
        except subprocess.TimeoutExpired:
            status = -1
    if status != 0:
        raise errors.HostError(f"{command[0]} ended with status {status}: see {log}")


def _fresh(target: pathlib.Path) -> pathlib.Path:
    """An empty directory that becomes `target` when all is well."""
    fresh = target.with_name(f".{target.name}.making")
    if fresh.exists():
        tree.remove(fresh)
    fresh.mkdir(parents=True)
    return fresh


def _one_at_a_time() -> contextlib.AbstractContextManager[None]:
    """The lock of all that is fetched or built."""
    cache().mkdir(parents=True, exist_ok=True)
    return records.locked(cache() / "lock", BUILD_TIMEOUT_S)


def _mirror() -> str:
    """The mirror that base trees come from."""
    return base.mirrors()[0]


def _apt(suite: str, tool: str, *words: str, options: Sequence[str] = (), cwd: pathlib.Path | None = None) -> str:
    """Run apt with a state of its own for the suite, which is fetched when there is none."""
    home = cache() / "apt" / suite
    sources = home / "sources.list"
    common = [
        f"Dir::Etc={home}",
        f"Dir::Etc::sourcelist={sources}",
        "Dir::Etc::sourceparts=/dev/null",
        f"Dir::State::lists={home}/lists",
        f"Dir::Cache={home}/cache",
        f"Dir::State::status={home}/status",
        "APT::Sandbox::User=root",
        "APT::Get::AllowUnauthenticated=false",
    ]
    flags = [word for option in (*common, *options) for word in ("-o", option)]
    if not (home / "updated").exists():
        for directory in ("lists/partial", "cache/archives/partial", "preferences.d", "apt.conf.d"):
            (home / directory).mkdir(parents=True, exist_ok=True)
        (home / "status").touch()
        lines = [f"{kind} {SIGNED} {_mirror()} {suite} main\n" for kind in ("deb", "deb-src")]
        sources.write_text("".join(lines), encoding="ascii")
        process.tool("apt-get", "-qq", *flags, "update", timeout_s=FETCH_TIMEOUT_S)
        (home / "updated").touch()
    done = subprocess.run(
        [*process.WITH_US, f"apt-{tool}", "-qq", *flags, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise errors.HostError(f"apt-{tool} {shlex.join(words)} of {suite}: {done.stderr.strip()}")
    return done.stdout
