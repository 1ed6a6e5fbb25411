# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward helper`: root's part of updates for a daemon that is not root (privilege.md, section 4).

Rules:
- It serves its socket, watches over trials, and does nothing itself: what changes the host is done by commands of their own
  units, which a restart of the helper does not end.
- It starts only where nobody but root can change what root relies on, and says everything that is in the way.
- At rest it has no timer, and it imports nothing that verifies, fetches or unpacks.
- With a configuration that has problems it goes on: then it refuses what is new, and still ends a trial (I8).
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, List, Tuple

from slotcore import codes, config_table, protocol
from slotward import (
    answers,
    binding,
    build_info,
    caller,
    host,
    looping,
    notifying,
    operations,
    own,
    process,
    seqpacket,
    transient,
    watching,
    ways,
)

if TYPE_CHECKING:
    import argparse

GUARD = "/usr/local/lib/slotward/guard.d"
NOTES = 20
"""How many refused callers are told of at once; then one a second."""
QUICK_S = 10.0
NO_DIGEST = "0" * 64
"""What a source tree says of itself: no release has this digest."""


def places(setup: own.Setup) -> Tuple[str, ...]:
    """What root relies on: every directory on the way to each of them must be root's alone."""
    product, config = setup.product, setup.config
    names = (config.helper_socket, product.entrypoint, os.path.abspath(setup.config_path))
    return (product.slots_dir, GUARD, *(os.path.dirname(one) for one in names), os.path.realpath(setup.config_path))


def check(setup: own.Setup) -> None:
    """Raise `directory-unsafe` with everything that others than root may change."""
    risks = list(ways.at_risk(places(setup)))
    path = setup.config_path
    try:
        problem = host.owner_problem(os.stat(path))
    except OSError:
        problem = ""
    if problem:
        risks.append(ways.Risk(path, problem, f"chown root {path} && chmod go-w {path}"))
    if risks:
        raise ways.refusal(risks)


def ready(setup: own.Setup) -> caller.Account:
    """The account that is served, once everything is as it must be."""
    check(setup)
    if setup.config.mode != config_table.HELPER and not setup.problems:
        text = (
            f"{setup.config_path} has no [helper]: in {setup.config.mode} mode there is no helper; run `slotward setup`"
        )
        raise codes.BadConfig([text])
    account = caller.account_of(setup.config.user)
    _alone(setup.config.helper_socket)
    return account


def _alone(path: str) -> None:
    """Raise Retryable where a helper listens already: one started by hand would take its socket away."""
    pid = process.listen_to_helper(path).pid
    if pid is not None:
        text = f"process {pid} serves {path} already: slotward-helper.service runs the helper, see `systemctl status slotward-helper`"
        raise codes.Retryable(codes.IN_PROGRESS, text)


class Helper:
    """The running helper."""

    def __init__(self, setup: own.Setup, account: caller.Account) -> None:
        self._setup = setup
        self._account = account
        self._digest = build_info.running_digest() or NO_DIGEST
        self._notes = seqpacket.Bucket(NOTES)
        self._loop = looping.Loop()
        self._operations = operations.Operations(
            os.path.abspath(setup.config_path),
            account.name,
            lambda argv, content, limit_s, done: transient.Child(self._loop, argv, content, limit_s, done),
            self._ended,
        )
        self._watchdog = watching.Watchdog(self._loop, setup.config_path, self._operations.settle, self._ask_guard)

    def run(self) -> int:
        """Serve until told to stop."""
        for problem in self._setup.problems:
            notifying.log(
                notifying.WARNING, f"{problem}; updates are refused until it is mended, see `slotward doctor`"
            )
        self._loop.on_signals((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._signalled)
        path = self._setup.config.helper_socket
        with binding.listen(path, 0o660, self._account.gid, seqpacket.BACKLOG) as listener:
            server = seqpacket.Server(self._loop, listener, self._service())
            self._tell("READY=1")
            notifying.log(notifying.INFO, f"slotward {build_info.VERSION} helper serves {self._account.name} at {path}")
            self._operations.settle()
            self._loop.run()
            notifying.notify("STOPPING=1")
            server.close()
        return answers.DONE

    def _service(self) -> seqpacket.Service:
        return seqpacket.Service(
            hello=self._hello,
            door=caller.Door(self._account, caller.group_of(build_info.UNIT)),
            operations=protocol.HELPER_OPERATIONS,
            serve=self._operations.serve,
            note=self._note,
        )

    def _hello(self, nonce: str) -> protocol.Hello:
        return protocol.Hello(build_info.NAME, protocol.VERSIONS, nonce, build_info.VERSION, self._digest)

    def _note(self, text: str) -> None:
        if self._notes.takes():
            notifying.log(notifying.WARNING, f"not served: {text}")

    def _ended(self) -> None:
        self._watchdog.look()
        self._tell()

    def _ask_guard(self) -> None:
        """Have the guard look, by a unit that is there: it ends a trial with no space and no memory left either (I2)."""
        words = ["systemctl", "--no-block", "start", f"slotward-deadline@{self._setup.product.name}.service"]
        try:
            transient.Child(self._loop, words, b"", QUICK_S, lambda _ended: None)
        except OSError as error:
            notifying.log(notifying.WARNING, f"cannot run {words[0]}: {error.strerror}")

    def _tell(self, *more: str) -> None:
        due = self._watchdog.due
        until = "" if due is None else f", settling at the latest at {due:.0f} s of uptime"
        notifying.notify(*more, f"STATUS=version {build_info.VERSION}, serves {self._account.name}{until}")

    def _signalled(self, numbers: List[int]) -> None:
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._loop.stop()


def run(args: argparse.Namespace) -> answers.Answer:
    """Run the helper until it is told to stop; with `--do` be one of its commands."""
    if os.geteuid() != 0:
        raise codes.refused(codes.NOT_ROOT, "the helper is root's: slotward-helper.service runs it")
    setup = own.load(args.config)
    if args.do:
        from slotward import helper_work

        return helper_work.run(setup)
    name = setup.product.name
    try:
        account = ready(setup)
    except codes.Refused as error:
        refused = answers.of_error(
            name, error
        )  # trying again mends nothing: the unit does not restart after this status
        return refused._replace(exit=answers.BROKEN)
    return answers.Answer(Helper(setup, account).run(), answers.base(name, "idle"), [])
