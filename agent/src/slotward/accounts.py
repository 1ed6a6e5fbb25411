# SPDX-License-Identifier: GPL-3.0-or-later
"""The account that the daemon runs as beside root's part: looked up, or made once (privilege.md, section 8).

Rules:
- An account that is there is taken as it is; one that is root's in all but name is a problem of the configuration.
- A new one is a system account with a group of its own, no home that is made, no shell. It is never removed.
"""

from __future__ import annotations

import os
import shutil
from typing import List, NamedTuple, Optional

from slotcore import codes

TIMEOUT_S = 60.0
NO_SHELL = ("/usr/sbin/nologin", "/sbin/nologin", "/bin/false")


class Account(NamedTuple):
    """An account of this host, with its own group."""

    name: str
    uid: int
    gid: int
    group: str


ROOT = Account("root", 0, 0, "root")


def find(name: str) -> Optional[Account]:
    """The account of that name, None when this host has none."""
    import grp
    import pwd

    if name == ROOT.name:
        return ROOT
    try:
        found = pwd.getpwnam(name)
        group = grp.getgrgid(found.pw_gid).gr_name
    except KeyError:
        return None
    return Account(name, found.pw_uid, found.pw_gid, group)


def problem(account: Optional[Account]) -> str:
    """Why the daemon must not run as this account, "" when it may; one that is not there yet can be made."""
    if account is None or account == ROOT or (account.uid and account.gid):
        return ""
    return f"{account.name!r} has uid {account.uid} and gid {account.gid}, and so is root's: name another account"


def _has_group(name: str) -> bool:
    import grp

    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def commands(name: str, home: str) -> List[List[str]]:
    """What makes the account here: the common tool, or busybox's; none when the host has neither."""
    shell = next((path for path in NO_SHELL if os.path.exists(path)), NO_SHELL[-1])
    if shutil.which("useradd"):
        group = ["--gid", name] if _has_group(name) else ["--user-group"]
        return [["useradd", "--system", *group, "--no-create-home", "--home-dir", home, "--shell", shell, name]]
    if shutil.which("adduser"):
        group = [] if _has_group(name) else ["addgroup", "-S", name]
        make = ["adduser", "-S", "-D", "-H", "-h", home, "-s", shell, "-G", name, name]
        return [group, make] if group else [make]
    return []


def make(name: str, home: str) -> Account:
    """Make the account, which is not there; raises Refused `no-account` when that cannot be done."""
    import subprocess

    todo = commands(name, home)
    said = "there is neither useradd nor adduser"
    for argv in todo:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = f"`{' '.join(argv)}`: {error}"
            break
        if done.returncode != 0:
            said = f"`{' '.join(argv)}` ended with status {done.returncode}: {' '.join(done.stderr.split())[-300:]}"
            break
    account = find(name)
    if account is None:
        raise codes.refused(codes.NO_ACCOUNT, f"cannot make the account {name}: {said}; make it, then run setup again")
    return account
