"""What is done right now, on a terminal: a bar while files are read, a line after that."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from api.diagnose.find import Found
from collector.contract.identity import printable

CLEAR = "\r\x1b[2K"
LINE_CHARS_MAX = 78


TICK_SECONDS = 1.0
"""How often a phase says for how long it has worked: it must not look like one that hangs."""


class Phases:
    """Names what is being done and for how long, in one line of a terminal; nothing elsewhere."""

    def __init__(
        self, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file or sys.stderr
        self._is_shown = self._file.isatty()
        self._clock = clock
        self._lock = threading.Lock()
        self._phase = ""
        self._began = 0.0
        self._ended = threading.Event()
        self._ticking: threading.Thread | None = None

    def say(self, text: str) -> None:
        """Until the next one, or `clear`."""
        if not self._is_shown:
            return
        with self._lock:
            self._phase, self._began = printable(text), self._clock()
            self._draw()
        if self._ticking is None:
            self._ended.clear()
            self._ticking = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._ticking.start()

    def clear(self) -> None:
        """Leave the line to others: a bar, or the report."""
        if self._ticking is not None:
            self._ended.set()
            self._ticking.join()
            self._ticking = None
        if self._is_shown:
            self._file.write(CLEAR)
            self._file.flush()

    def _tick(self) -> None:
        while not self._ended.wait(TICK_SECONDS):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        passed = int(self._clock() - self._began)
        took = f", {passed} s" if passed else ""
        self._file.write(f"{CLEAR}{self._phase[: LINE_CHARS_MAX - len(took)]}{took}")
        self._file.flush()


@contextlib.contextmanager
def reading(total_bytes: int) -> Iterator[tuple[Callable[[Found], None], Callable[[int], None]]]:
    """Callbacks for each file and each piece of it: a progress bar, or nothing."""
    if not sys.stderr.isatty():
        yield (lambda _: None), (lambda _: None)
        return
    from rich.console import Console  # noqa: PLC0415 - without a terminal it is not needed
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[file]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("reading", total=total_bytes or None, file="")
        yield (
            lambda found: bar.update(task, file=printable(Path(found.path).name)[:40]),
            lambda count: bar.advance(task, count),
        )
