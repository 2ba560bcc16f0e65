"""A program in a terminal of its own: a pseudo-terminal, keys, another size, and what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.stands.environment import clean_environment
from tests.stands.service import ROOT, eventually

ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
HOME = b"\x1b[H"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")
_START = (
    "import sys, fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "from collector.cli import main; sys.exit(main(sys.argv[1:]))"
)


class TerminalProgram:
    """`fabricscope WORDS` as the only program of a terminal of this size."""

    def __init__(self, words: list[str], columns: int, lines: int, **variables: str) -> None:
        self._ours, self._theirs = os.openpty()
        self._size(columns, lines)
        self.before = self.mode()
        self.output = b""
        environment = {**clean_environment(), "TERM": "xterm-256color", **variables}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            if name not in variables:
                environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, *words],
            cwd=ROOT,
            env=environment,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 1 << 16):
                self.output += data

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def mode(self) -> list[Any]:
        """How the terminal is set."""
        return termios.tcgetattr(self._theirs)

    def resize(self, columns: int, lines: int) -> None:
        """Another size; the kernel tells the program."""
        self._size(columns, lines)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    @property
    def screen(self) -> str:
        """What is to be seen now: what was drawn last, as text."""
        return _ESCAPES.sub("", self.output.split(HOME)[-1].decode("utf-8", "replace"))

    def shows(self, text: str) -> None:
        """Wait until a text is to be seen."""

        def is_seen() -> bool:
            assert self.process.poll() is None or text in self.screen, self.screen
            return text in self.screen

        try:
            eventually(is_seen, f"{text!r} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{self.screen}") from error

    def end(self) -> int:
        """Wait for the program's end; its exit status."""
        return self.process.wait(60)

    def close(self) -> None:
        """End the program, if it has not ended, and the terminal."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._theirs)
        self._reader.join(60)
        os.close(self._ours)


@contextlib.contextmanager
def in_terminal(
    *words: str, columns: int = 80, lines: int = 24, **variables: str
) -> Iterator[TerminalProgram]:
    """`fabricscope WORDS` in a terminal, ended with the block."""
    program = TerminalProgram(list(words), columns, lines, **variables)
    try:
        yield program
    finally:
        program.close()


def golden_path(name: str) -> Path:
    """Where a picture of a screen is kept."""
    return ROOT / "tests" / "fixtures" / "top" / f"{name}.txt"
