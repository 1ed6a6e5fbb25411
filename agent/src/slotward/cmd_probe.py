# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward probe`: one round of a product's probes, or with `--watch` the eyes on its trial (products.md, section 5)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Sequence

from slotcore import codes, probe_files, probing, settle
from slotward import answers, host, own, probe_journal, probe_store, probes

if TYPE_CHECKING:
    import argparse

    from slotcore import product as products


def run(args: argparse.Namespace) -> answers.Answer:
    """Look once and say what was seen, or watch."""
    if os.geteuid() != 0:
        raise codes.refused(
            codes.NOT_ROOT, "probes look at the host as root, and run commands as others: run it as root"
        )
    if args.watch:
        from slotward import probe_watch

        probe_watch.watch(lambda: own.asked(args))
        return answers.Answer(answers.DONE, answers.base(args.product, "idle"), [])
    setup = own.asked(args)
    if setup.problems:
        raise codes.BadConfig(setup.problems)
    return once(setup.product)


def once(product: products.Product) -> answers.Answer:
    """One round now, judged as a round of the trial would be."""
    pending = settle.decide(host.read_state(product), host.clock()).on_trial
    baseline = probe_store.baseline_of(product, pending.trial_id) if pending is not None else None
    length_s = product.trial_length_s if pending is None else pending.length_s
    since = probe_journal.Since(max(0, probe_store.monotonic_us() - length_s * 1_000_000))
    if baseline is not None:
        since = probe_store.since(product, baseline)
    seen = probes.Runner(product, since).round()
    deciding = probing.deciding(product.probes, baseline.green() if baseline is not None else {})
    wrong = [one for one in seen if not one.ok and one.name in deciding]
    said = probing.named(wrong)
    answer = answers.base(product.name, "trial" if pending is not None else "idle", message=said)
    answer["code"] = codes.PROBE_FAILED if wrong else codes.OK
    answer["probes"] = probe_files.probes_as_json(product.probes, deciding, seen, baseline)
    return answers.Answer(answers.FAILED if wrong else answers.DONE, answer, _lines(product, seen, deciding))


def _lines(product: products.Product, seen: Sequence[probing.Seen], deciding: Sequence[str]) -> List[str]:
    if not seen:
        return [f"{product.name} has no probes"]
    return [f"{_word(one, one.name in deciding)}: {one.name}: {one.why}" for one in seen]


def _word(one: probing.Seen, decides: bool) -> str:
    if one.ok is None:
        return "too early to say"
    return "ok" if one.ok else "FAILED" if decides else "failed, decides nothing"
