# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at a product's probes, all of a round at once, none for longer than its time (products.md, section 5).

Rules:
- What a probe cannot do is an answer of that probe. It never ends the round, or the one who looks.
- One that has not answered in time has failed. It is not waited for, and not asked a second time beside itself.
- Nothing here decides: `slotcore.probing` does.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from slotcore import codes, probing
from slotcore import product as products
from slotward import bus, probe_journal, probe_kinds, waits

SPARE_S = 5.0
"""What a probe's own limit may need to take effect: systemd ends a command, a connection is cut."""


def _http(probe: products.Probe, product: products.Product) -> probe_kinds.Look:
    from slotward import probe_http  # http.client and ssl are large, and many products have no such probe

    return probe_http.http_answer(probe, product)


KINDS: Mapping[str, Callable[[products.Probe, products.Product], probe_kinds.Look]] = {
    "command": probe_kinds.command,
    "http": _http,
    "tcp": probe_kinds.tcp,
    "unit": probe_kinds.unit,
    "file": probe_kinds.file,
}


def look_of(probe: products.Probe, product: products.Product, since: probe_journal.Since) -> probe_kinds.Look:
    """What looks, as often as it is asked."""
    if probe.kind == "journal":
        return probe_journal.Reader(probe, product, since).look
    return KINDS[probe.kind](probe, product)


class _Try:
    """One look of one probe, in a thread of its own."""

    def __init__(self, look: probe_kinds.Look, limit_s: float) -> None:
        self._look = look
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s + SPARE_S
        self._said: Optional[probe_kinds.Said] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._said = self._look()
        except codes.Retryable as error:
            self._said = (None if bus.problem() else False, str(error))  # without a bus nothing is said of the release
        except codes.Refused as error:
            self._said = (False, str(error))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self._said = (False, f"{where}{error.strerror or error}")

    def runs(self) -> bool:
        """Whether it still has not come back."""
        return self._thread.is_alive()

    def answer(self) -> probe_kinds.Said:
        """What it said, waiting no longer than it may take."""
        waits.join(self._thread, self._until - time.monotonic())
        return self._said or (False, f"it gave no answer within {self._limit_s:g} s")


class Runner:
    """The probes of a product, from one moment on."""

    def __init__(self, product: products.Product, since: probe_journal.Since) -> None:
        self._probes = product.probes
        self._looks = {probe.name: look_of(probe, product, since) for probe in product.probes}
        self._tries: Dict[str, _Try] = {}

    def round(self) -> Tuple[probing.Seen, ...]:
        """Look at all of them once, beside one another."""
        held: List[str] = []
        for probe in self._probes:
            before = self._tries.get(probe.name)
            if before is not None and before.runs():
                held.append(probe.name)
            else:
                self._tries[probe.name] = _Try(self._looks[probe.name], probe.timeout_s)
        seen = []
        for probe in self._probes:
            ok, why = self._tries[probe.name].answer()
            if probe.name in held:
                ok, why = False, "it has still not come back from an earlier round"
            seen.append(probing.Seen(probe.name, ok, " ".join(why.split())[: probing.MAX_WHY]))
        return tuple(seen)
