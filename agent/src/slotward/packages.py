# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a package at a product's entrypoint: whose it is, and how it is kept out of the way (products.md, section 2).

Rules:
- dpkg and rpm are asked; a host without either has no packages.
- A diversion sends what the package brings later to `<path>.distrib`. The file at the path stays where it is: a program
  that a start needs is never missing, not for a moment (I1).
- rpm knows no diversions: its next update writes over the path, and that is said.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import List, NamedTuple, Optional

from slotcore import codes

SUFFIX = ".distrib"
LIMIT_S = 30.0


class Owner(NamedTuple):
    """The package that owns a path, and who manages it: `dpkg` or `rpm`."""

    package: str
    manager: str

    @property
    def diverts(self) -> bool:
        """Whether what the package brings later can be sent elsewhere."""
        return self.manager == "dpkg"


def _run(argv: List[str]) -> Optional[subprocess.CompletedProcess[str]]:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise codes.Retryable(codes.OS_ERROR, f"cannot ask `{' '.join(argv)}`: {error}") from error


def _names(path: str) -> List[str]:
    """The path, and as it was before /bin and its kind became links: dpkg knows a file by the name that its package has."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    found = [path, real]
    found += [name[4:] for name in found if name.startswith("/usr/")]
    return list(dict.fromkeys(found))


def owner(path: str) -> Optional[Owner]:
    """The package that a path belongs to; None when it belongs to none."""
    for name in _names(path):
        done = _run(["dpkg-query", "--search", "--", name])
        if done is not None and done.returncode == 0:
            for line in done.stdout.splitlines():
                package, _colon, owned = line.partition(": ")
                if owned == name and not package.startswith("diversion "):
                    return Owner(package, "dpkg")
    done = _run(["rpm", "--query", "--file", "--queryformat", "%{NAME}", path])
    if done is not None and done.returncode == 0 and done.stdout.strip():
        return Owner(done.stdout.strip(), "rpm")
    return None


def agreed(path: str, divert: bool) -> Optional[Owner]:
    """The package whose path is to be diverted, or written over later; None where it has none, or is diverted already.

    Raises Refused `package-owns-path` where nobody agreed.
    """
    found = owner(path)
    if found is None or (found.diverts and is_diverted(path)):
        return None
    if not divert:
        how = "is diverted to .distrib" if found.diverts else "writes over it, for rpm knows no diversions"
        raise codes.refused(
            codes.PACKAGE_OWNS_PATH,
            f"{path} belongs to the package {found.package} ({found.manager}); agree with --divert, and what its next update brings {how}",
        )
    return found


def is_diverted(path: str) -> bool:
    """Whether our own diversion of a path is in force."""
    done = _run(["dpkg-divert", "--truename", path])
    listed = _run(["dpkg-divert", "--listpackage", path])
    if done is None or listed is None or done.returncode:
        return False
    return done.stdout.strip() == path + SUFFIX and listed.stdout.strip() == "LOCAL"


def _divert(words: List[str], path: str) -> None:
    argv = ["dpkg-divert", "--local", "--no-rename", *words]
    done = _run(argv)
    if done is None or done.returncode:
        said = "it is not there" if done is None else " ".join((done.stderr or done.stdout).split())[-300:]
        raise codes.Retryable(codes.OS_ERROR, f"cannot divert {path}: `{' '.join(argv)}`: {said}")


def divert(path: str) -> None:
    """Send what the package brings for `path` to `<path>.distrib` from now on; the file now there gets that name too."""
    aside = path + SUFFIX
    if not os.path.lexists(aside):
        os.link(path, aside, follow_symlinks=False)
    try:
        _divert(["--divert", aside, "--add", path], path)
    except codes.Retryable:
        os.unlink(aside)
        raise


def undivert(path: str) -> bool:
    """Take the diversion back; the package's own file gets its place again. Whether it was there."""
    aside = path + SUFFIX
    back = os.path.lexists(aside)
    if back:
        os.rename(aside, path)  # never a moment without a program
    _divert(["--remove", path], path)
    return back


def forget_copy(path: str) -> None:
    """Remove the second name of a file that an adoption could not complete."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + SUFFIX)
