# SPDX-License-Identifier: GPL-3.0-or-later
"""The SELinux label of a slot: given by the host's policy before anything starts from it (field case D14).

Rules:
- Where SELinux is off nothing is done; permissive counts as on, since it may be enforcing at the next boot.
- The policy decides (`restorecon -F`), and what it gave is read back: a label from which no service starts is no label.
- Where the policy gives none, the label of what starts today will do: it has shown that it does.
"""

from __future__ import annotations

import os

from slotcore import codes

SELINUXFS = "/sys/fs/selinux"
ATTRIBUTE = "security.selinux"
TIMEOUT_S = 30.0
STARTS_NOTHING = ("unlabeled_t", "file_t", "default_t", "tmp_t", "home_t")
"""Types, or ends of types, that files have which nobody labelled or that lie where users write."""


def is_on() -> bool:
    """Whether this host's kernel labels files."""
    return os.path.exists(SELINUXFS + "/enforce")


def type_of(path: str) -> str:
    """The type in a file's label; "" when it has none."""
    try:
        label = os.getxattr(path, ATTRIBUTE)
    except OSError:
        return ""
    parts = label.rstrip(b"\0").decode("utf-8", "replace").split(":")
    return parts[2] if len(parts) > 2 else ""


def give(path: str, like: str, tree: str = "") -> None:
    """Label the file at `path`, and all of the `tree` it lies in, as the policy says; or leave it be when it has the
    label of `like` anyhow.

    Raises Refused `no-label`: a service started from it would end in 203/EXEC.
    """
    if not is_on():
        return
    problem = _restore(*(("-R", tree) if tree else (path,)))
    found, wanted = type_of(path), type_of(like)
    if found and found == wanted:
        return
    if not problem and found and not found.endswith(STARTS_NOTHING):
        return
    text = f"{path} has the SELinux type {found or 'none'}, from which no service starts"
    if problem:
        text += f", and {problem}"
    raise codes.refused(
        codes.NO_LABEL,
        f"{text}: tell the policy with `semanage fcontext -a -t bin_t '{os.path.dirname(path)}(/.*)?'`, or install policycoreutils",
    )


def _restore(*words: str) -> str:
    """Run restorecon; what went wrong, "" when nothing did."""
    import subprocess

    try:
        done = subprocess.run(
            ["restorecon", "-F", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return "there is no restorecon"
    except subprocess.TimeoutExpired:
        return f"restorecon did not end within {TIMEOUT_S:g} s"
    except OSError as error:
        return f"restorecon cannot be run: {error.strerror}"
    said = " ".join((done.stderr or done.stdout).split())[-200:]
    return f"restorecon ended with status {done.returncode}: {said or 'no output'}" if done.returncode else ""
