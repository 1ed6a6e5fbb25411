# SPDX-License-Identifier: GPL-3.0-or-later
"""PRIVATE to the collection: what our actions have in common: one remote call, and a connection that may be gone.

Rules:

* A host that cannot be reached is a failed host: ``max_fail_percentage`` does not count unreachable ones.
* What came back is judged by its ``state``; a result without one is no answer.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.slotward.fleet.plugins.module_utils import ansible_glue
from ansible_collections.slotward.fleet.plugins.module_utils.slotcore import codes, rfc3339
from ansible_collections.slotward.fleet.plugins.plugin_utils import bounded, releases

COLLECTION = "slotward.fleet."
RESET_BOUND_S = 20.0
CONTACT_BOUND_S = 60.0
NOT_THERE = (126, 127)  # what a shell says when it cannot start a program


class Lost(Exception):
    """Nothing came back: the connection is gone, or was never there."""


class Contact(NamedTuple):
    """Who answered: the host's platform as a release names it, and whether the path asked for is a link to a file."""

    platform: str
    linked: bool = False


def server_time() -> List[str]:
    """The controller's clock as the agent takes it: a release that has expired by it is refused, whatever the host's says."""
    return ["--server-time", rfc3339.render(int(time.time()))]


class RemoteAction(ActionBase):  # type: ignore[misc]  # ansible has no types
    """An action that asks one host through modules of this collection."""

    _supports_check_mode = True
    _supports_async = False
    _supports_diff = True

    def ask(self, module: str, args: Dict[str, Any]) -> Dict[str, Any]:
        """One remote execution of a module of ours; raises Lost when no answer came back."""
        try:
            result: Dict[str, Any] = self._execute_module(
                module_name=COLLECTION + module, module_args=args, task_vars=self._vars
            )
        except AnsibleConnectionFailure as error:
            raise Lost(str(error)) from error
        if result.get("unreachable"):
            raise Lost(str(result.get("msg")))
        return result

    def agent(
        self, params: Dict[str, Any], words: Sequence[str], stdin: str = "", bound_s: Optional[float] = None
    ) -> ansible_glue.Answer:
        """One command of the agent over the connection itself: no module to build, send, start and remove.

        Raises:
            Lost: no answer came back within the bound.

        """
        line = ansible_glue.command(params, words)
        caller = ["%s=%s" % (name, shlex.quote(value)) for name, value in ansible_glue.CALLER.items()]
        command = " ".join([*caller, *(shlex.quote(word) for word in line)])
        # with data on its standard input a command gets no terminal, which would mix progress into the answer
        said = self._say(command, True, bound_s, (stdin or "\n").encode("utf-8"))
        if said["rc"] in NOT_THERE and not said["stdout"].strip():
            return ansible_glue.not_installed(line[0])
        return ansible_glue.parse(said["rc"], said["stdout"], said.get("stderr") or "", line)

    def _say(
        self, command: str, privileged: bool, bound_s: Optional[float], data: Optional[bytes] = None
    ) -> Dict[str, Any]:
        try:
            with bounded.within(bound_s) if bound_s else contextlib.nullcontext():
                said: Dict[str, Any] = self._low_level_execute_command(command, sudoable=privileged, in_data=data)
        except AnsibleConnectionFailure as error:
            raise Lost(str(error)) from error
        except bounded.TooLong:
            raise Lost("no answer within %d s" % (bound_s or 0)) from None
        return said

    def contact(self, link: str = "") -> Contact:
        """The first word with the host, so that a later silence means that the connection was lost."""
        bounded.keep_alive(self._connection)
        command = "uname -sm"
        if link:
            command += "; if [ -L %(path)s ] && [ -f %(path)s ]; then echo linked; fi" % {"path": shlex.quote(link)}
        said = self._say(command, False, CONTACT_BOUND_S)
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
            raise codes.refused(
                codes.CANNOT_READ,
                "the release lies at a URL; push needs a directory on the controller, or let the hosts download it",
            )
        return self.push(releases.local_artifact(directory, entry), os.path.basename(entry["name"]))
