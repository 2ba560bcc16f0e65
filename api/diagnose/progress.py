"""What is done right now: on a terminal a bar and a line, elsewhere lines where they are wanted."""

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
from collector.contract.progress import Progress, of_bytes

CLEAR = "\r\x1b[2K"
LINE_CHARS_MAX = 78


TICK_SECONDS = 1.0
"""How often a phase says for how long it has worked: it must not look like one that hangs."""


class Phases:
    """Names what is being done and for how long, in one line of a terminal.

    Elsewhere it says nothing, or with ``in_lines`` a line for each phase, for the log of a CI job.
    """

    def __init__(
        self,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        in_lines: bool = False,
    ) -> None:
        self._file = file or sys.stderr
        self._is_shown = self._file.isatty()
        self._in_lines = in_lines and not self._is_shown
        self._clock = clock
        self._lock = threading.Lock()
        self._phase = ""
        self._began = 0.0
        self._ended = threading.Event()
        self._ticking: threading.Thread | None = None

    def say(self, text: str) -> None:
        """Until the next one, or `clear`."""
        if self._in_lines:
            self._file.write(f"{printable(text)}\n")
            self._file.flush()
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
def reading(
    total_bytes: int, *, in_lines: bool = False
) -> Iterator[tuple[Callable[[Found], None], Callable[[int], None]]]:
    """Callbacks for each file and each piece of it: a progress bar, or nothing, or lines."""
    if not sys.stderr.isatty():
        yield (lambda _: None), lines_of(total_bytes) if in_lines else (lambda _: None)
        return
    from rich.console import Console  # noqa: PLC0415 - without a terminal it is not needed
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    bar = Bar(
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


def lines_of(total_bytes: int) -> Callable[[int], None]:
    """Says every ten seconds how much has been read."""
    progress, done = Progress(), 0
    sys.stderr.write(f"reading {total_bytes:,} bytes\n")
    sys.stderr.flush()

    def on_read(count: int) -> None:
        nonlocal done
        done += count
        progress.say(f"reading: {of_bytes(done, total_bytes)}")

    return on_read
