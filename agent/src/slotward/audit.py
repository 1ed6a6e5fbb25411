# SPDX-License-Identifier: GPL-3.0-or-later
"""Noting decisions: a line of the audit log and an entry of the journal for each (trust.md, section 5).

Rules:
- `accepted`, `permitted`, `keys-changed` and `repaired` are durable before what they tell of, or it is not done.
- Everything else is noted after it happened (`swapped` before the restart: no fsync while the daemon is down), and
  nothing fails because of it: a log that cannot be written is a warning on standard error, and the journal is told.
- The end of a trial, and its switch, are noted from the records that settling leaves, once for each trial: whoever
  settles next writes what a crash or a full disk kept out.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Iterator, Optional, Sequence, Tuple

from slotcore import audit as audits
from slotcore import audit_chain, codes, records, settle
from slotcore import product as products
from slotward import advice, answers, audit_file, clearable, effects, journal

if TYPE_CHECKING:
    from slotcore import trial as trials

WHO = "SLOTWARD_WHO"
UNSET_LOGIN = 2**32 - 1
GUARD = "guard"
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._@:/+-]")
_ENDS = {
    "confirmed": audits.CONFIRMED,
    "rolled-back": audits.ROLLED_BACK,
    "rollback-failed": audits.ROLLBACK_FAILED,
    "abandoned": audits.ABANDONED,
}


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("_", text[: audits.MAX_WHO])


def who() -> str:
    """Who has this done: what the caller says by variable, with the sudo or login user; else the unit, or root."""
    said, user = _name(os.environ.get(WHO, "")), _name(os.environ.get("SUDO_USER", "")) or _name(_login())
    if said and user not in ("", "root"):
        return _name(f"{said}:{user}")
    return said or user or _name(_unit()) or "root"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def _login() -> str:
    number = _read("/proc/self/loginuid")
    if not number.isdigit() or int(number) == UNSET_LOGIN:
        return ""
    import pwd

    try:
        return pwd.getpwuid(int(number)).pw_name
    except KeyError:
        return f"uid:{number}"


def _unit() -> str:
    for line in _read("/proc/self/cgroup").split("\n"):
        last = line.rpartition("/")[2]
        if last.endswith(".service"):
            return last
    return ""


def warn(text: str) -> None:
    """One line for whoever ran the command; nobody there is no error."""
    with contextlib.suppress(OSError, ValueError):
        print(answers.plain(f"warning: {text}"), file=sys.stderr, flush=True)


def _tell_journal(product: products.Product, event: audits.Event, line: Optional[bytes]) -> None:
    kind = audits.EVENTS[event.event]
    versions = " -> ".join(version for version in (event.from_version, event.to_version) if version)
    message = f"{event.product}: {event.event} {versions}".rstrip()
    message += f": {event.why}" if event.why else ""
    if event.event in (audits.ROLLED_BACK, audits.ROLLBACK_FAILED) and event.trial_id:
        message += f" ({advice.named(clearable.evidence(event.trial_id), product.name)})"
    number, digest = audits.head_of(line) if line is not None else ("", "")
    journal.send(
        {
            "MESSAGE": message,
            "MESSAGE_ID": kind.message_id,
            "PRIORITY": str(kind.priority),
            "SYSLOG_IDENTIFIER": "slotward",
            "UNIT": product.unit,
            "OBJECT_SYSTEMD_UNIT": product.unit,  # `journalctl -u` shows what root says of a unit
            "SLOTWARD_EVENT": event.event,
            "SLOTWARD_CODE": event.code,
            "SLOTWARD_PRODUCT": event.product,
            "SLOTWARD_FROM": event.from_version,
            "SLOTWARD_TO": event.to_version,
            "SLOTWARD_TRIAL": event.trial_id,
            "SLOTWARD_SEQUENCE": str(event.sequence),
            "SLOTWARD_SHA256": event.sha256,
            "SLOTWARD_WHO": event.who,
            "SLOTWARD_N": str(number),
            "SLOTWARD_HASH": digest,
        }
    )


def _note(product: products.Product, event: audits.Event, once: bool = False, anyhow: bool = True) -> None:
    """Write one event and tell the journal, also (`anyhow`) of one that could not be written.

    Raises only for an event that must be durable first.
    """
    lines: Tuple[bytes, ...] = ()
    failure: Optional[Exception] = None
    try:
        lines = audit_file.append(product.slots_dir, event, once)
        if not lines:
            return
    except OSError as error:
        failure = effects.as_retryable(error, f"write {event.event} into {audit_file.path_of(product.slots_dir)}")
    except (codes.Retryable, codes.BrokenAudit) as error:
        failure = error
    if failure is not None:
        if audits.EVENTS[event.event].first:
            raise failure
        warn(advice.named(f"the audit log lacks {event.event} {event.to_version}: {failure}", product.name))
        if anyhow:
            _tell_journal(product, event, None)
    for line in lines:
        tell(product, line)


def tell(product: products.Product, line: bytes) -> None:
    """Tell the journal of a line that was written."""
    _tell_journal(product, audits.parse(line).event, line)


def note(
    product: products.Product,
    event: str,
    *,
    code: str = codes.OK,
    why: str = "",
    from_version: str = "",
    to_version: str = "",
    trial_id: str = "",
    sequence: int = 0,
    sha256: str = "",
) -> None:
    """Note one decision, an event of `slotcore.audit`; `sequence` and `sha256` are those of the release it is about.

    Raises Retryable or BrokenAudit for an event that must be durable first (`audits.EVENTS[event].first`): then what it
    tells of must not be done. Never raises for another event.
    """
    found = audits.Event(
        event, product.name, int(time.time()), code, from_version, to_version, trial_id, sequence, sha256, who(), why
    )
    _note(product, audits.fit(found))


def facts(product: products.Product) -> audit_chain.Facts:
    """What the log proves to a repair."""
    from slotward import audit_read

    return audit_read.facts(product.slots_dir)


def check(product: products.Product) -> None:
    """Raise BrokenAudit when the log is such that no update may be accepted."""
    audit_file.check(product.slots_dir)


# -- trials ------------------------------------------------------------------------------------------------------------


def _of_trial(name: str, event: str, trial: trials.Trial) -> audits.Event:
    found = audits.Event(event, name, int(time.time()), who=who(), trial_id=trial.trial_id)
    found = found._replace(from_version=trial.from_version, to_version=trial.to_version)
    return audits.fit(found._replace(sequence=trial.sequence, sha256=trial.to_sha256))


def started(product: products.Product, trial_id: str, from_version: str, release: records.SlotRecord) -> None:
    """Every check has passed, and what is fetched or staged next is for this; once for each trial, as `accepted`."""
    event = audits.Event(audits.STARTED, product.name, int(time.time()), who=who(), trial_id=trial_id)
    event = event._replace(from_version=from_version, to_version=release.version)
    _note(product, audits.fit(event._replace(sequence=release.sequence, sha256=release.sha256)), once=True)


def accepted(product: products.Product, trial: trials.Trial) -> None:
    """Every check has passed and the switch comes next; raises when that cannot be written down first.

    Once for each trial: start mode carries a request out again that was cut before it left a trace but this one.
    """
    _note(product, _of_trial(product.name, audits.ACCEPTED, trial), once=True)


def permitted(product: products.Product, trial: trials.Trial, permit_id: str) -> None:
    """A permit lets this release below the floor; raises when that cannot be written down first."""
    event = _of_trial(product.name, audits.PERMITTED, trial)
    _note(product, event._replace(why=f"downgrade permit {permit_id}"))


def one_way(product: products.Product, trial: trials.Trial, why: str) -> None:
    """The release changes the data and nothing restores it; raises when that cannot be written down first."""
    _note(product, _of_trial(product.name, audits.ONE_WAY, trial)._replace(why=audits.fitting(why)))


def swapped(product: products.Product, trial: trials.Trial, again: bool = False) -> None:
    """`current` names the new release, and the restart comes next; once for each trial."""
    _note(product, _of_trial(product.name, audits.SWAPPED, trial), once=True, anyhow=not again)


def _of_last(name: str, event: str, last: records.Last) -> audits.Event:
    """How the last trial ended. What nobody asked for was done by the guard, whoever comes to write it down."""
    by = who() if last.code in (codes.OK, codes.OPERATOR, codes.GAVE_UP) else GUARD
    found = audits.Event(event, name, last.at, last.code, trial_id=last.trial_id, who=by, why=last.why)
    return audits.fit(found._replace(from_version=last.from_version, to_version=last.to_version))


def _release_of(state: settle.State, last: records.Last) -> Tuple[int, str]:
    """Sequence and digest of the release that the last trial was about, where a record still has them."""
    failure = state.update.failure_of(last.to_version)
    if last.state == "rolled-back" and failure is not None:
        return failure.sequence, failure.sha256
    for entry in state.slots.values():
        if entry.version == last.to_version:
            return entry.sequence, entry.sha256
    return 0, ""


def settled(
    product: products.Product, state: settle.State, pending: Optional[trials.Trial], again: bool = False
) -> None:
    """Note what the records say happened and the log does not have yet: a switch, the end of the last trial.

    `again`: it did not happen just now, so the journal was told of it when it did.
    """
    last = state.update.last
    if pending is not None:
        swapped(product, pending, again)
    elif last is not None and last.state in _ENDS:
        end = _of_last(product.name, _ENDS[last.state], last)
        sequence, sha256 = _release_of(state, last)
        end = end._replace(sequence=sequence, sha256=sha256)
        if last.state != "abandoned" and last.trial_id:
            _note(product, end._replace(event=audits.SWAPPED, code=codes.OK, why=""), once=True, anyhow=False)
        _note(product, end, once=True, anyhow=not again)


def rollback_failed(product: products.Product, last: records.Last) -> None:
    """The good version was not seen to run after a going back; once for each trial."""
    if os.geteuid() == 0:
        why = f"{product.unit} does not run after going back to {last.from_version}: {last.why}"
        end = _of_last(product.name, audits.ROLLBACK_FAILED, last._replace(at=int(time.time()), why=why))
        _note(product, end, once=True)


@contextlib.contextmanager
def refusals(product: products.Product, asked: Sequence[str] = ()) -> Iterator[None]:
    """Note a refusal that leaves this block; `asked` holds version and digest of what was asked for, once known."""
    try:
        yield
    except (codes.Refused, codes.BrokenRecord, codes.BadConfig) as error:
        version, sha256 = asked or ("", "")
        if os.path.isdir(product.slots_dir):
            note(
                product,
                audits.REFUSED,
                code=error.code,
                why=error.text,
                from_version=_current(product),
                to_version=version,
                sha256=sha256,
            )
        raise


def _current(product: products.Product) -> str:
    from slotward import host

    with contextlib.suppress(OSError):
        state = host.read_state(product)
        entry = state.slots.get(state.current or "")
        return entry.version if entry is not None else ""
    return ""
