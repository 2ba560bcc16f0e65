"""What is done right now, on a terminal: a bar while files are read, a line after that."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from api.diagnose.find import Found
from collector.contract.identity import printable

CLEAR = "\r\x1b[2K"
LINE_CHARS_MAX = 78


class Phases:
    """Names what is being done, in one line of a terminal; says nothing elsewhere."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._is_shown = self._file.isatty()

    def say(self, text: str) -> None:
        """Until the next one, or `clear`."""
        if self._is_shown:
            self._file.write(f"{CLEAR}{printable(text)[:LINE_CHARS_MAX]}")
            self._file.flush()

    def clear(self) -> None:
        if self._is_shown:
            self._file.write(CLEAR)
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
