# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers what is known of a release that failed, after the host has gone back (faults.md, section 7; H10).

Rules:
- Whoever finishes a trial only asks systemd for a unit that gathers, and waits for nothing of it: going back, the lock
  and a start never wait for evidence.
- The unit is idle in every respect and bounded in time and memory. It takes no lock and changes no record.
- What cannot be gathered is said in what is kept; where nothing can be kept the journal says why.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from slotcore import codes, evidence, ops, records, trial
from slotcore import product as products
from slotward import (
    advice,
    audit,
    build_info,
    effects,
    evidence_file,
    evidence_journal,
    host,
    journal,
    opening,
    systemd,
    trial_ids,
)

ASK_S = 2.0
MOST_LOG = 8 * 1024
LIMITS = (
    "Nice=19",
    "IOSchedulingClass=idle",
    "CPUWeight=1",
    "MemoryMax=192M",
    "TasksMax=16",
    "RuntimeMaxSec=60",
    "TimeoutStopSec=2",
    "KillSignal=SIGKILL",
    "OOMScoreAdjust=900",
)
PROPERTIES = (
    "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus", "NRestarts", "Type", "Restart", "User", "MemoryMax",
    "MemoryCurrent", "TasksCurrent", "LimitNOFILE", "FragmentPath", "DropInPaths",
)  # fmt: skip
GUARDS = ("guard", "rollback", "deadline", "data")


class Known(NamedTuple):
    """What only whoever finished the trial still knows, and the gathering unit is told."""

    product: products.Product
    last: records.Last
    pending: Optional[trial.Trial] = None
    log: bytes = b""
    ended_s: int = 0
    """When it was finished, by the clock of the boot."""


def begin(product: products.Product, ended: ops.Gather) -> None:
    """Have evidence gathered of the trial that has just ended; never waits for more than systemd's yes, and never raises."""
    if not sys.path[0].startswith("/proc/self/fd/"):
        return  # a source tree is no program that a unit could start
    last = ended.last
    known = Known(product, last, ended.trial, ended.log[:MOST_LOG], host.clock().uptime_s)
    argv = [build_info.program_path(), "evidence", "--product", product.name, "--gather", _packed(known)]
    unit = f"slotward-evidence-{product.name}-{last.trial_id}"
    try:
        # else it is the whole command line
        said = f"Description=Slotward: evidence of {product.name} {last.to_version}"
        systemd.run_detached(argv, unit, (said, *LIMITS), ASK_S)
    except (codes.Refused, codes.Retryable, OSError) as error:
        if _gathers(unit):
            return  # whoever was cut here has asked for it
        run = advice.named("slotward evidence --gather", product.name)
        audit.warn(f"no evidence of {last.to_version} was gathered: {error}; `{run}` does it now")


def _gathers(unit: str) -> bool:
    try:
        shown = systemd.show(f"{unit}.service", ("ActiveState", "Transient"))
    except (codes.Refused, codes.Retryable, OSError):
        return False
    return shown.get("Transient") == "yes" and shown.get("ActiveState") in ("active", "activating")


def _packed(known: Known) -> str:
    product, pending = known.product, known.pending
    told = {
        "slots_dir": product.slots_dir,
        "units": list(effects.units_of(product)),
        "last": list(known.last),
        "trial": trial.render_trial(pending).decode("ascii") if pending is not None else "",
        "log": base64.b64encode(known.log).decode("ascii"),
        "ended_s": known.ended_s,
    }
    return base64.b64encode(json.dumps(told).encode("ascii")).decode("ascii")


def unpacked(name: str, text: str) -> Known:
    """What `begin` has packed. Raises ValueError for anything else."""
    told = json.loads(base64.b64decode(text, validate=True))
    try:
        unit, *helper = (str(one) for one in told["units"])
        product = products.Product(name, unit, "", str(told["slots_dir"]), helper_unit="".join(helper))
        *words, at = told["last"]
        trial_id, state, code, why, from_version, to_version = map(str, words)
        last = records.Last(trial_ids.demand(trial_id), state, code, why, from_version, to_version, int(at))
        pending = trial.parse_trial(str(told["trial"]).encode("ascii"))
        return Known(product, last, pending, base64.b64decode(told["log"]), int(told["ended_s"]))
    except (KeyError, TypeError, IndexError, codes.Refused) as error:
        raise ValueError(f"what is to be gathered cannot be read: {error!r}") from None


def gather(known: Known) -> str:
    """Keep the evidence of a trial; answers why it is not kept, "" when it is, also by an earlier run (I9)."""
    product, last = known.product, known.last
    if evidence_file.is_kept(product, last.trial_id):
        return ""
    try:
        short = evidence_file.make_room(product)
        if short:
            return _told(known, f"{evidence_file.place_of(product)} has too little space: {short}")
        evidence_file.write(product, last.trial_id, evidence.render(_gathered(known)))
    except (OSError, codes.Refused) as error:
        return _told(known, str(error))
    return ""


def _told(known: Known, why: str) -> str:
    """Nobody waits for this process, so the journal is where it is said."""
    last = known.last
    journal.send(
        {
            "MESSAGE": f"{known.product.name}: no evidence of {last.to_version} (trial {last.trial_id}) is kept: {why}",
            "PRIORITY": "4",
            "SYSLOG_IDENTIFIER": "slotward",
            "UNIT": known.product.unit,
            "OBJECT_SYSTEMD_UNIT": known.product.unit,
            "SLOTWARD_EVENT": "evidence-not-kept",
            "SLOTWARD_PRODUCT": known.product.name,
            "SLOTWARD_TRIAL": last.trial_id,
        }
    )
    return why


def _gathered(known: Known) -> evidence.Evidence:
    product, last, missing = known.product, known.last, []
    window, ahead_s = _window(known)
    guards = tuple(f"slotward-{kind}@{product.name}.service" for kind in GUARDS)
    found = evidence_journal.read(effects.units_of(product), guards, window)
    missing += [found.problem] if found.problem else []
    if known.pending is None:
        missing.append(
            "the trial's record and its log were gone: starts are not known, and the journal is told by the wall clock"
        )
    environment, problem = _environment(known)
    missing += [problem] if problem else []
    exits = [(at + ahead_s, how) for at, how in found.exits]
    return evidence.Evidence(
        trial_id=last.trial_id,
        product=product.name,
        from_version=last.from_version,
        to_version=last.to_version,
        code=last.code,
        why=last.why,
        at=last.at,
        journal=found.lines,
        starts=evidence.starts_of(known.log, int(window.begun_s + ahead_s), exits),
        checks=_checks(known),
        environment=environment,
        missing=tuple(missing),
    )


def _window(known: Known) -> Tuple[evidence_journal.Window, float]:
    """When the trial was, and how far the log's clock, which counts a suspended machine's time, is ahead of the journal's."""
    clock, now, last = host.clock(), int(time.time()), known.last
    ahead_s = max(0.0, host.uptime_s() - time.monotonic())
    pending = known.pending
    if pending is None:
        begun = last.at - products.MAX_TRIAL_LENGTH_S
        return evidence_journal.Window("", 0.0, 0.0, begun, last.at), ahead_s
    boot, begun_s = pending.boot_id.replace("-", ""), pending.deadline_s - pending.length_s
    if pending.boot_id != clock.boot_id:  # how far apart its clocks were nobody knows any more
        begun = last.at - pending.length_s - evidence_journal.SPARE_S
        return evidence_journal.Window(boot, begun_s, float("inf"), begun, last.at, later=True), 0.0
    begun = now - (clock.uptime_s - begun_s) - evidence_journal.SPARE_S
    ended_s = _ended_s(known, pending)
    ended = now - (clock.uptime_s - ended_s)
    return evidence_journal.Window(boot, max(0.0, begun_s - ahead_s), ended_s, begun, ended), ahead_s


def _ended_s(known: Known, pending: trial.Trial) -> int:
    """When the host went back: by the guard's own word, else the latest that it can have been."""
    owed = [line.split(b" ")[1] for line in known.log.split(b"\n")[:-1] if line.startswith(b"owed ") and b" " in line]
    told = [int(word.split(b".")[0]) for word in owed if word.split(b".")[0].isdigit()]
    return min([*told[:1], known.ended_s, pending.deadline_s + evidence_journal.SPARE_S])


def _checks(known: Known) -> Optional[Dict[str, Any]]:
    """What the probes said, where they had a say in this trial."""
    from slotward import probe_store

    found = probe_store.report(known.product)
    return found if found is not None and found.get("trial") == known.last.trial_id else None


def _environment(known: Known) -> Tuple[Dict[str, str], str]:
    """What the host and the units are like; and why systemd says nothing."""
    found = dict(_host(known), agent=build_info.VERSION)
    try:
        units = effects.units_of(known.product)
        for unit, shown in zip(units, systemd.show_each(units, PROPERTIES)):
            found.update({f"{unit} {key}": value for key, value in shown.items() if value})
    except (codes.Refused, codes.Retryable) as error:
        return found, f"systemd says nothing of the units: {error.text}"
    return found, ""


def _host(known: Known) -> Dict[str, str]:
    clock, name = host.clock(), os.uname()
    found = {
        "boot": clock.boot_id,
        "uptime_s": str(clock.uptime_s),
        "gathered_at": str(int(time.time())),
        "kernel": f"{name.release} {name.machine}",
        "load": " ".join(f"{one:.2f}" for one in os.getloadavg()),
    }
    for line in _lines("/proc/meminfo"):
        key, _colon, value = line.partition(":")
        if key in ("MemTotal", "MemAvailable", "SwapFree"):
            found[key] = value.strip()
    for path in (known.product.slots_dir, "/run", "/tmp", "/var/log"):  # noqa: S108 (looked at alone)
        try:
            space = os.statvfs(path)
        except OSError:
            continue
        found[f"free {path}"] = f"{space.f_bavail * space.f_frsize >> 20} MiB, {space.f_favail} inodes"
    return found


def _lines(path: str) -> List[str]:
    try:
        with open(os.open(path, opening.READ), encoding="ascii", errors="replace") as file:
            return file.read(65536).splitlines()
    except OSError:
        return []
