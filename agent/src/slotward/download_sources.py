# SPDX-License-Identifier: GPL-3.0-or-later
"""The places that one file may come from, and which is asked next: decisions only, the clock's time is given.

Rules:
- Places are asked in their order. What one cannot give now, the next is asked for at once; a wait comes only when
  each has been asked. What one gives is trusted no more than another's: the digest decides.
- A final failure takes a place out for this run, and so does a wish to come back later than anybody waits here.
- When all are out, or too many rounds brought nothing new, the end says what each of them answered.
- `Retry-After` of one place holds for that place.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

from slotcore import codes
from slotward import download_rules as rules


class Later(Exception):
    """A passing failure: another attempt may do, after `asked_s` if the server said so."""

    def __init__(self, why: str, asked_s: Optional[float] = None, code: str = codes.DOWNLOAD_FAILED) -> None:
        super().__init__(why)
        self.asked_s = asked_s
        self.code = code


class Source:
    """One place, and how it answered last."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.out = False
        self.not_before = 0.0
        self.refused: Optional[codes.Refused] = None
        self.said = ""
        self.code = codes.DOWNLOAD_FAILED

    @property
    def text(self) -> str:
        """What it answered, with its address."""
        if self.refused is not None:
            return self.refused.text
        return "%s: %s" % (rules.shown_url(self.url), self.said or "not asked yet")


class Sources:
    """All places of one file."""

    def __init__(self, urls: Sequence[str], attempts: int) -> None:
        self.all = [Source(url) for url in urls]
        self._attempts = attempts
        self._asked: List[Source] = []
        self._kept: Optional[Source] = None
        self.failures = 0
        self._moved = False

    def turn(self, now: float) -> Optional[Source]:
        """The next place of this round; None when each that may be asked has been."""
        for source in [self._kept] if self._kept is not None else self.all:
            if not source.out and source not in self._asked and source.not_before <= now:
                self._asked.append(source)
                return source
        return None

    def refuse(self, source: Source, error: codes.Refused) -> None:
        """A final answer of one place; raised when there is no other."""
        source.out, source.refused, self._kept = True, error, None
        if len(self.all) == 1:
            raise error

    def fail(self, source: Source, error: Later, now: float, moved: bool) -> None:
        """A passing failure of one place; `moved` when it brought bytes that were not there before."""
        source.said, source.code = str(error), error.code
        self._moved = self._moved or moved
        if error.asked_s is None:
            return
        source.not_before = now + error.asked_s
        if error.asked_s > rules.LONGEST_RETRY_AFTER_S:
            source.out = True
            source.said += ", and asks to come back in %d s" % error.asked_s

    def keep(self, source: Optional[Source]) -> None:
        """Ask no other place while this one goes on bringing bytes that must not be mixed; None ends that."""
        self._kept = source if source is not None and not source.out else None

    def alive(self) -> List[Source]:
        """The places that are not out."""
        return [source for source in self.all if not source.out]

    def end_round(self, now: float) -> Optional[float]:
        """Begin a new round; the seconds that a server of the only places left wants to be left alone, if they all do."""
        self._asked = []
        self.failures = 1 if self._moved else self.failures + 1
        self._moved = False
        if not self.alive() or self.failures >= self._attempts:
            raise self.end("%d attempts, nothing new came" % self.failures if self.alive() else "")
        waits = [max(0.0, source.not_before - now) for source in self.alive()]
        return min(waits) or None

    def end(self, why: str) -> Exception:
        """The error that the download ends in, with what each place answered."""
        refused = [source.refused for source in self.all if source.refused is not None]
        text = "; ".join(source.text for source in self.all)
        if len(refused) == len(self.all):
            found = {error.code for error in refused}
            code = found.pop() if len(found) == 1 else codes.DOWNLOAD_REFUSED
            return codes.refused(code, "no place has the file: %s" % text)
        more = " (%s)" % why if why else ""
        passing = {source.code for source in self.all if source.refused is None}
        code = passing.pop() if len(passing) == 1 else codes.DOWNLOAD_FAILED
        if len(self.all) == 1:
            return codes.Retryable(code, "cannot download %s%s" % (text, more))
        return codes.Retryable(
            code, "cannot download the file from any of %d places: %s%s" % (len(self.all), text, more)
        )
