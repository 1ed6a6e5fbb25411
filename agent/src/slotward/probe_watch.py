# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches one product's trial by its probes, and the version before it after going back (products.md, section 5).

Rules:
- No lock is held while probing; whoever ends the trial meanwhile has ended it (I12).
- Confirming takes the way of every source, with its proof (I11); going back is one claim as any other.
- What cannot be done now is tried again after the next round: the rounds that were counted stand.
- The counts live in this process. A reboot, or a restart of this process, begins anew (field case H5).
- After going back, by whomever, nothing is switched again: what is found of the old version is recorded (H6).
"""

from __future__ import annotations

import os
import time
from typing import Callable, NamedTuple, Optional, Tuple

from slotcore import codes, probing, proof, records, settle, status
from slotcore import probe_files as files
from slotcore import trial as trials
from slotward import (
    answers,
    audit,
    cmd_settle,
    cmd_trial,
    host,
    lock,
    manager,
    notifying,
    own,
    probe_journal,
    probe_store,
    probes,
    process,
    systemd,
)

IDLE_S = 1.0


class _Shown(NamedTuple):
    """What `probes.json` says, for saying it again with another end."""

    report: files.Report
    counted: probing.Count
    rules: probing.Rules
    found: probing.Round
    baseline: Optional[files.Baseline]


class Watch:
    """One process's eyes on one product."""

    def __init__(self, load: Callable[[], own.Setup]) -> None:
        self._load = load
        self._product = load().product
        self._watched = ""
        """The trial that was looked at last."""
        self._said = ""
        self._shown: Optional[_Shown] = None

    def run(self) -> None:
        """Look until no trial is pending and nothing is left to be said of the last one."""
        while True:
            setup = self._load()
            self._product = setup.product
            seen = manager.look(self._product)
            pending = seen.settlement.on_trial
            if pending is None and seen.settlement.action is settle.Action.NONE:
                if not self._ended(seen):
                    return
            elif pending is None or pending.boot_id != seen.clock.boot_id:
                # somebody has won the end and not finished it; the guard gives the length anew
                cmd_settle.if_free(self._product, "probe")
                time.sleep(IDLE_S)
            elif setup.problems or not probe_store.is_asked(self._product):
                why = "; ".join(setup.problems) or f"confirm_sources of {self._product.name} does not name probe"
                self._say(notifying.WARNING, f"the trial is not judged: {why}")
                time.sleep(IDLE_S)
            else:
                self._trial(pending)

    # --- one trial ---

    def _trial(self, pending: trials.Trial) -> None:
        """Look at the release on trial, round by round, until that trial is not pending any more."""
        product, began_s = self._product, pending.deadline_s - pending.length_s
        self._watched = pending.trial_id
        baseline = probe_store.baseline_of(product, pending.trial_id)
        green = baseline.green() if baseline is not None else {}
        rules = probing.Rules(
            product.confirming, probing.deciding(product.probes, green), product.health_window_s, float(began_s)
        )
        runner = probes.Runner(product, self._since(pending, baseline))
        count = probing.Count()
        while True:
            found = self._round(runner, pending.to_slot, pending.to_sha256, began_s)
            count = probing.count(rules, count, found)
            decision = probing.decide(rules, count, host.uptime_s())
            verdict, code, why = self._act(pending, decision)
            report = files.Report(pending.trial_id, files.TRIAL, verdict, code, why, 0)
            self._show(_Shown(report, count, rules, found, baseline))
            if not self._is_pending(pending.trial_id):
                return
            time.sleep(product.confirming.interval_s)

    def _since(self, pending: trials.Trial, baseline: Optional[files.Baseline]) -> probe_journal.Since:
        """From when on the journal counts: the baseline, or in another boot, or without one, the trial's beginning in this boot."""
        if baseline is not None and baseline.boot_id == pending.boot_id:
            return probe_store.since(self._product, baseline)
        return probe_journal.Since(_monotonic_us_at(pending.deadline_s - pending.length_s))

    def _round(self, runner: Optional[probes.Runner], slot: str, sha256: str, swapped_s: int) -> probing.Round:
        began_s, main_pid, waits_for = host.uptime_s(), 0, ""
        try:
            proven = cmd_trial.prove(self._product, slot, sha256, swapped_s)
            if isinstance(proven, proof.Proof):
                main_pid = proven.main_pid
            else:
                waits_for = proven.why
        except (codes.Retryable, codes.Refused) as error:
            waits_for = error.text
        except OSError as error:
            waits_for = f"{error.filename or 'the slot'}: {error.strerror or error}"
        seen = runner.round() if runner is not None else ()
        return probing.Round(began_s, host.uptime_s(), seen, main_pid, waits_for)

    def _act(self, pending: trials.Trial, decision: probing.Decision) -> Tuple[str, str, str]:
        """Carry the decision out; what to show of it."""
        try:
            if decision.verdict is probing.Verdict.GO_BACK:
                self._go_back(pending, decision)
                return files.GONE_BACK, decision.code, decision.why
            if decision.verdict is probing.Verdict.CONFIRM:
                return self._confirm(pending, decision)
        except answers.CODED as error:
            said = getattr(error, "text", None) or str(error)
            return files.WAIT, error.code, f"{decision.why}; {said}"
        return files.WAIT, decision.code, decision.why

    def _confirm(self, pending: trials.Trial, decision: probing.Decision) -> Tuple[str, str, str]:
        answer = cmd_trial.confirm(self._product, pending.trial_id, probing.SOURCE, 0.0).json
        if answer["state"] == "confirmed":
            return files.CONFIRMED, codes.OK, decision.why
        missing = [one for one in answer.get("missing", ()) if one != probing.SOURCE]
        if answer["code"] == codes.NOT_CONFIRMED and missing:
            return files.CONFIRMED, codes.NOT_CONFIRMED, f"{decision.why}; still missing: {', '.join(missing)}"
        return files.WAIT, answer["code"], answer["message"]

    def _go_back(self, pending: trials.Trial, decision: probing.Decision) -> None:
        why = f"{self._product.name} {pending.to_version}: {decision.why}"
        with lock.held(self._product, "probe"):
            seen = manager.settle_now(self._product)[0]
            found = seen.settlement.on_trial
            if found is not None and found.trial_id == pending.trial_id:
                manager.go_back(self._product, seen, why, decision.code)

    def _is_pending(self, trial_id: str) -> bool:
        pending = manager.look(self._product).settlement.on_trial
        return pending is not None and pending.trial_id == trial_id

    # --- after it ---

    def _ended(self, seen: manager.Look) -> bool:
        """What is to be said once no trial is pending; whether to look again at once."""
        baseline, last = probe_store.baseline(self._product), seen.state.update.last
        watched = self._watched or (baseline.trial_id if baseline is not None else "")
        judged = last is not None and last.trial_id == watched and last.state == "rolled-back"
        if judged and last is not None and probe_store.is_asked(self._product):
            if not self._after(last, baseline):
                return True
        elif last is not None and last.trial_id == watched:
            self._end_report(last)
        return not self._forget()

    def _forget(self) -> bool:
        """Have the baseline go, and be done; not while somebody is about to begin a trial with it."""
        if not probe_store.has_baseline(self._product):
            return True
        try:
            with lock.held(self._product, "probe"):
                seen = manager.settle_now(self._product)[0]
                if seen.settlement.on_trial is None:
                    probe_store.drop_baseline(self._product)
                    return True
        except codes.Retryable:
            time.sleep(IDLE_S)
        return False

    def _after(self, last: records.Last, baseline: Optional[files.Baseline]) -> bool:
        """Look at the version that a trial went back to; False when another trial has begun meanwhile."""
        product, began_s = self._product, host.uptime_s()
        green = baseline.green() if baseline is not None and baseline.trial_id == last.trial_id else {}
        rules = probing.Rules(product.confirming, probing.deciding(product.probes, green), 0, began_s)
        runner: Optional[probes.Runner] = None
        count = probing.Count()
        while True:
            seen = manager.look(product)
            now = seen.state.update.last
            if seen.settlement.action is not settle.Action.NONE or now is None or now.trial_id != last.trial_id:
                return False
            entry = seen.state.slots.get(seen.state.good or "")
            found = self._round(runner, seen.state.good or "", entry.sha256 if entry is not None else "", 0)
            if runner is None and found.main_pid:  # what the version before it said while it was ended is not its own
                began = process.started_s(found.main_pid) or host.uptime_s()
                runner = probes.Runner(product, probe_journal.Since(_monotonic_us_at(began)))
                continue
            count = probing.count(rules, count, found)
            decision = probing.decide_after(rules, count, host.uptime_s(), product.trial_length_s)
            verdict, why = self._judged(last, decision)
            report = files.Report(last.trial_id, files.AFTER, verdict, last.code, why, 0)
            self._show(_Shown(report, count, rules, found, baseline))
            if verdict != files.WAIT:
                return True
            time.sleep(product.confirming.interval_s)

    def _judged(self, last: records.Last, decision: probing.Decision) -> Tuple[str, str]:
        """What the old version is said to be, and recorded as."""
        if decision.verdict is probing.Verdict.CONFIRM:
            return files.HEALTHY, f"{last.from_version} is healthy again: {decision.why}"
        try:
            if status.was_stopped(systemd.show(self._product.unit, status.STOP_PROPERTIES)):
                return files.UNKNOWN, f"{self._product.unit} was stopped by an operator: nobody knows"
            if decision.verdict is probing.Verdict.GO_BACK:
                why = f"{last.from_version} is not healthy after going back to it: {decision.why}"
                with lock.held(self._product, "probe"):
                    probe_store.note_unhealthy(self._product, last, why)
                return files.UNHEALTHY, why
        except answers.CODED as error:
            return files.WAIT, f"{decision.why}; {getattr(error, 'text', None) or error}"
        return files.WAIT, decision.why

    # --- what is shown ---

    def _show(self, shown: _Shown) -> None:
        self._shown = shown._replace(report=shown.report._replace(at=int(time.time())))
        report, count, rules, found, baseline = self._shown
        data = files.render_report(report, count, rules, self._product.probes, found.seen, baseline)
        problem = probe_store.write_report(self._product, data)
        text = f"{report.verdict}: {report.why}"
        self._say(notifying.NOTICE, f"{text} (cannot be shown: {problem})" if problem else text)

    def _end_report(self, last: records.Last) -> None:
        """Somebody else than the probes ended the trial."""
        shown = self._shown
        if shown is not None and shown.report.verdict == files.WAIT:
            ended = shown.report._replace(verdict=files.ENDED, code=last.code, why=f"{last.state}: {last.why}")
            self._show(shown._replace(report=ended))

    def _say(self, level: str, text: str) -> None:
        """A line in the journal, when it is another one than the last."""
        if text != self._said:
            self._said = text
            notifying.log(level, answers.plain(text))


def _monotonic_us_at(uptime_s: float) -> int:
    """A moment of /proc/uptime as the journal counts; a host that slept since then says too early, and looks at more."""
    return max(0, probe_store.monotonic_us() - int((host.uptime_s() - uptime_s) * 1_000_000))


def watch(load: Callable[[], own.Setup]) -> None:
    """Look at a product's trial until it has ended, and at what came back after it; `load` reads its configuration."""
    os.environ.setdefault(audit.WHO, probing.SOURCE)
    Watch(load).run()
