# SPDX-License-Identifier: GPL-3.0-or-later
"""By which time an expiry is judged, and what a refusal says of clocks that do not agree on it.

Rules:

* The latest of the host's clock, the server's time and the newest ``issuedAt`` of any manifest verified on this host:
  whoever gives a time can make the check only stricter, and a clock set back brings nothing back to life (N11).
* Never a host clock of earlier: one that was wrong once would be believed for ever.
* Where the clocks do not agree, the sentence says what each of them says, so that a wrong one is seen (N9).
* So it does where nothing but the host's clock says that the time is over, and long over: it may be years ahead.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from . import rfc3339

FAR_S = 180 * 86400
"""By so much after the end nobody asks for a release any more, but where a clock is ahead."""


class Clocks(NamedTuple):
    """The times that are known, as seconds since 1970; 0 for one that nobody gave."""

    host_s: int
    newest_issued: int = 0
    server_s: int = 0

    @property
    def judged_s(self) -> int:
        """The time that counts."""
        return max(self)


def expired(clocks: Clocks, expires_at: int, what: str) -> Optional[str]:
    """The sentence that `what` has expired, or nothing."""
    if clocks.judged_s < expires_at:
        return None
    return "%s expired at %s%s" % (what, shown(expires_at), _disagreement(clocks, expires_at))


def _disagreement(clocks: Clocks, expires_at: int) -> str:
    host = ": this host's clock says %s" % shown(clocks.host_s)
    if clocks.server_s <= 0 and clocks.newest_issued < expires_at <= clocks.host_s - FAR_S:
        return "%s, and nobody said another time: set it if it is wrong" % host
    if clocks.host_s >= expires_at and not 0 < clocks.server_s < expires_at:
        return ""
    if (clocks.host_s >= expires_at) != (clocks.server_s >= expires_at):
        return "%s and whoever asks says %s: set the one that is wrong" % (host, shown(clocks.server_s))
    said = "a release that was issued at %s was verified here, so the clock is behind: set it"
    return "%s, but %s" % (host, said % shown(clocks.newest_issued))


def shown(seconds: int) -> str:
    """A time for a sentence, whatever a clock makes of it."""
    return rfc3339.render(min(max(seconds, rfc3339.FIRST), rfc3339.LAST))
