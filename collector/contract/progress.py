"""How far a long thing is: a line that is redrawn on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

CLEAR = "\r\x1b[2K"
TERMINAL_SECONDS = 0.5
LOG_SECONDS = 10.0
LINE_CHARS_MAX = 100
MIB = 1 << 20


class Progress:
    """Says things at most every so often; `end` leaves the line to others."""

    def __init__(
        self, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file or sys.stderr
        self._is_terminal = self._file.isatty()
        self._clock = clock
        self._every_s = TERMINAL_SECONDS if self._is_terminal else LOG_SECONDS
        self._said_s = clock()
        """The first second is silent."""

    def say(self, text: str) -> None:
        now_s = self._clock()
        if now_s - self._said_s < self._every_s:
            return
        self._said_s = now_s
        line = text[:LINE_CHARS_MAX]
        self._file.write(f"{CLEAR}{line}" if self._is_terminal else f"{line}\n")
        self._file.flush()

    def end(self) -> None:
        if self._is_terminal:
            self._file.write(CLEAR)
            self._file.flush()


def of_bytes(done: int, total: int) -> str:
    """How many bytes of how many.

    >>> of_bytes(3 << 20, 10 << 20), of_bytes(3 << 20, 0)
    ('3 of 10 MiB', '3 MiB')
    """
    return f"{done / MIB:.0f} of {total / MIB:.0f} MiB" if total else f"{done / MIB:.0f} MiB"
