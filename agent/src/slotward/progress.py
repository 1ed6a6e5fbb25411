# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a long piece of work is, for people (standard error): one line on a terminal, a few quiet ones elsewhere.

Rules:
- On a terminal one line is written again and again, with bytes, rate and time left, at most ten times a second.
- Elsewhere a line for each quarter and, when it is slow, one each ten seconds: a log stays short.
- What cannot be written (a closed pipe) is not an error of the work.
- Whoever else looks on is told of each step and each wait, and decides itself what that is worth (`progress_file`).
"""

from __future__ import annotations

import time
from typing import Callable, Optional, Sequence, TextIO

QUIET_S = 10.0
REDRAW_S = 0.1
_UNITS = ("B", "KiB", "MiB", "GiB")


def bytes_text(count: float) -> str:
    """A number of bytes in the largest unit that leaves something before the point."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return "%d %s" % (count, _UNITS[unit]) if unit == 0 else "%.1f %s" % (count, _UNITS[unit])


def time_text(seconds: float) -> str:
    """A time in minutes and seconds."""
    return "%d:%02d" % divmod(int(seconds), 60)


Moved = Callable[[int, int, float], None]
"""Done, in all, and bytes a second."""
Waits = Callable[[str, float, float], None]
"""Why, the seconds until the next try, and those until there is none any more."""


class Progress:
    """Tells how far `label` is; call it with what is done and what there is to do."""

    def __init__(
        self,
        stream: Optional[TextIO],
        label: str,
        now: Callable[[], float] = time.monotonic,
        width: int = 79,
        moved: Optional[Moved] = None,
        waits: Optional[Waits] = None,
    ) -> None:
        self._stream = stream
        self._label = label
        self._now = now
        self._width = width
        self._moved = moved
        self._waits = waits
        self._terminal = stream is not None and stream.isatty()
        self._start: Optional[float] = None
        self._start_done = 0
        self._last = 0.0
        self._quarter = 0
        self._open_line = False

    def __call__(self, done: int, total: int) -> None:
        """So much is done; the first call is where the work begins (a resumed download begins in the middle)."""
        now = self._now()
        if self._moved is not None:
            self._moved(done, total, self._rate(done, now - self._start if self._start is not None else 0.0))
        if self._start is None:
            self._start, self._start_done, self._last = now, done, now
            self._quarter = done * 4 // max(total, 1)
            return
        if done == self._start_done:
            return
        quarter = done * 4 // max(total, 1)
        if self._terminal:
            if now - self._last < REDRAW_S and done < total:
                return
        elif quarter <= self._quarter and now - self._last < QUIET_S:
            return
        self._last, self._quarter = now, quarter
        self._write(self._line(done, total, now - self._start), done >= total)

    def wait(self, why: Sequence[str], wait_s: float, left_s: float) -> None:
        """Another attempt comes in `wait_s`, and none any more in `left_s`."""
        for one in why:
            self.note("%s; next attempt in %.1f s" % (one, wait_s))
        if self._waits is not None:
            self._waits("; ".join(why), wait_s, left_s)

    def note(self, text: str) -> None:
        """Something that happened on the way, such as a wait before another attempt."""
        if self._open_line:
            self._write_raw("\n")
        self._open_line = False
        self._write_raw("%s: %s\n" % (self._label, text))

    def close(self) -> None:
        """End the line on a terminal, whatever became of the work."""
        if self._open_line:
            self._write_raw("\n")
        self._open_line = False

    def _rate(self, done: int, elapsed_s: float) -> float:
        return (done - self._start_done) / elapsed_s if elapsed_s > 0 else 0.0

    def _line(self, done: int, total: int, elapsed_s: float) -> str:
        rate = self._rate(done, elapsed_s)
        end = "" if done >= total or rate <= 0 else ", %s left" % time_text((total - done) / rate)
        percent = done * 100 // max(total, 1)
        return "%s: %s of %s (%d %%), %s/s%s" % (
            self._label,
            bytes_text(done),
            bytes_text(total),
            percent,
            bytes_text(rate),
            end,
        )

    def _write(self, line: str, last: bool) -> None:
        if not self._terminal:
            self._write_raw(line + "\n")
            return
        self._write_raw("\r" + line[: self._width].ljust(self._width) + ("\n" if last else ""))
        self._open_line = not last

    def _write_raw(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
