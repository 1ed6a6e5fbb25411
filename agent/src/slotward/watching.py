# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper's watchdog: a trial that should have ended is ended, whatever the daemon does (privilege.md, section 4).

Rules:
- It looks when something may have changed, and at one moment: so long after the trial's deadline on CLOCK_BOOTTIME (I10).
- From then on it has settling done again and again, until nothing is left to settle. At rest it has no timer.
- Settling needs a new unit, which systemd cannot make with `/run` full. So what did not help the first time is asked of the
  guard too, whose unit is there already.
- It decides nothing: settling does, under the lock, by the records.
"""

from __future__ import annotations

from typing import Callable, Optional

from slotcore import settle
from slotward import host, looping, notifying, own

AFTER_DEADLINE_S = 30.0
AGAIN_S = 10.0


def next_look(state: settle.State, clock: settle.Clock, moment: float) -> Optional[float]:
    """When to settle next, on the clock that says `moment` now; None when nothing is in flight."""
    found = settle.decide(state, clock)
    if found.on_trial is not None:
        return moment + settle.left_s(found.on_trial, clock) + AFTER_DEADLINE_S
    return None if found.action is settle.Action.NONE else moment + AGAIN_S


class Watchdog:
    """Watches over one product's trials."""

    def __init__(
        self, loop: looping.Loop, config_path: str, settling: Callable[[], None], guarding: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._config_path = config_path
        self._settling = settling
        self._guarding = guarding
        self._tries = 0
        self.due: Optional[float] = None
        """When it will have settling done, on CLOCK_BOOTTIME; None at rest."""

    def look(self) -> None:
        """Look at the records, and be there when they say."""
        moment = looping.now()
        try:
            state = host.read_state(own.load(self._config_path).product)
            self.due = next_look(state, host.clock(), moment)
        except OSError as error:
            notifying.log(notifying.WARNING, f"cannot read the slots: {error}; looking again in {AGAIN_S:g} s")
            self.due = moment + AGAIN_S
        if self.due is None:
            self._tries = 0
            self._loop.cancel(self)
        else:
            self._loop.at(self, self.due, self._settle)

    def _settle(self) -> None:
        notifying.log(notifying.NOTICE, "an update should have ended by now: settling it")
        self._loop.at(self, looping.now() + AGAIN_S, self._settle)  # should nobody call `look` afterwards
        self._tries += 1
        if self._tries > 1:
            self._guarding()
        self._settling()
