# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what our actions have in common: one remote call, and a connection that may be gone.

Rules:

* A host that cannot be reached is a failed host: ``max_fail_percentage`` does not count unreachable ones.
* What came back is judged by its ``state``; a result without one is no answer.
"""

from __future__ import annotations

import os
import shlex
from typing import Any, Dict, NamedTuple, Optional

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes
from ansible_collections.slotward.fleet.plugins.plugin_utils import bounded, releases

COLLECTION = "slotward.fleet."
RESET_BOUND_S = 20.0
CONTACT_BOUND_S = 60.0


class Lost(Exception):
    """Nothing came back: the connection is gone, or was never there."""


class Contact(NamedTuple):
    """Who answered: the host's platform as a release names it, and whether the path asked for is a link to a file."""

    platform: str
    linked: bool = False


class RemoteAction(ActionBase):  # type: ignore[misc]  # ansible has no types
    """An action that asks one host through modules of this collection."""

    _supports_check_mode = True
    _supports_async = False
    _supports_diff = True

    def ask(self, module: str, args: Dict[str, Any], bound_s: Optional[float] = None) -> Dict[str, Any]:
        """One remote execution of a module; raises Lost when no answer came back."""
        call = {"module_name": COLLECTION + module, "module_args": args, "task_vars": self._vars}
        try:
            if bound_s is None:
                result: Dict[str, Any] = self._execute_module(**call)
            else:
                with bounded.within(bound_s):
                    result = self._execute_module(**call)
        except AnsibleConnectionFailure as error:
            raise Lost(str(error)) from error
        except bounded.TooLong:
            raise Lost("no answer within %d s" % bound_s) from None
        if result.get("unreachable"):
            raise Lost(str(result.get("msg")))
        return result

    def contact(self, link: str = "") -> Contact:
        """The first word with the host, so that a later silence means that the connection was lost."""
        bounded.keep_alive(self._connection)
        command = "uname -sm"
        if link:
            command += "; if [ -L %(path)s ] && [ -f %(path)s ]; then echo linked; fi" % {"path": shlex.quote(link)}
        try:
            with bounded.within(CONTACT_BOUND_S):
                said = self._low_level_execute_command(command, sudoable=False)
        except AnsibleConnectionFailure as error:
            raise Lost(str(error)) from error
        except bounded.TooLong:
            raise Lost("no answer within %d s" % CONTACT_BOUND_S) from None
        words = said["stdout"].split()
        if len(words) < 2:
            raise Lost("uname -sm said nothing: %s" % (said.get("stderr") or said["stdout"]).strip())
        machine = ansible_glue.MACHINES.get(words[1], words[1])
        return Contact("%s-%s" % (words[0].lower(), machine), words[2:] == ["linked"])

    def reconnect(self) -> None:
        """Drop the connection, so that the next call makes a new one."""
        try:
            with bounded.within(RESET_BOUND_S):
                self._connection.reset()
        except (AnsibleConnectionFailure, NotImplementedError, AttributeError, bounded.TooLong):
            self._connection.close()
        self._connection._shell.tmpdir = None  # a host that rebooted has lost it

    def push(self, path: str, name: str) -> str:
        """Copy a file from the controller into the task's own directory on the host; its path there."""
        shell = self._connection._shell
        if not shell.tmpdir:
            self._make_tmp_path()
        there: str = shell.join_path(shell.tmpdir, name)
        self._transfer_file(path, there)
        self._fixup_perms2((shell.tmpdir, there), execute=False)
        return there

    def push_artifact(self, target: Dict[str, Any], platform: str) -> str:
        """Copy the artifact for this platform to the host, checked just before."""
        entry = ansible_glue.artifact_for(target, platform)
        directory = target.get("directory")
        if not directory:
            raise releases.refuse(
                codes.CANNOT_READ,
                "the release lies at a URL; push needs a directory on the controller, or let the hosts download it",
            )
        return self.push(releases.local_artifact(directory, entry), os.path.basename(entry["name"]))


def failure(product: str, state: str, code: str, message: str, **known: Any) -> Dict[str, Any]:
    """A failed result with every key, made on the controller."""
    answer = ansible_glue.broken(code, message, state)
    result = ansible_glue.shape({"product": product}, answer, **known)
    result.update(failed=True, changed=False, msg=ansible_glue.sentence(result, message))
    return result
