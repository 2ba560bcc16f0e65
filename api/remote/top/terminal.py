"""The user's terminal: single keys, the alternate screen, and everything restored at the end.

Keys come one by one and without echo; Ctrl-C stays a signal. Whatever happens (a signal, a bug, a
terminal that is gone) the block's end restores the mode, the screen and the cursor.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType

from rich.console import Console, Group, ScreenContext
from rich.control import Control
from rich.text import Text

from api.remote.top.keys import Decoder

ESCAPE_SECONDS = 0.05
"""How long bytes may follow an Escape and belong to it: over a slow line they come together."""
READ_BYTES = 1_024
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NEWS = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
"""Another size; Ctrl-Z; and back again."""


class Terminal:
    """Reads keys and shows lines, within its block."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.stopped_by: int | None = None
        self._keyboard = sys.stdin.fileno()
        self._decoder = Decoder()
        self._is_suspended = False
        self._is_continued = False
        self._screen: ScreenContext | None = None
        self._usual: list[int | list[bytes | int]] | None = None
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)

    def wake(self) -> None:
        """Have `keys` return; from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            # Full: it will wake up anyway. Gone: no thread waits any more.
            os.write(self._wake_write, b"!")

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """The terminal is ours within the block."""
        before = {number: signal.signal(number, self._on_signal) for number in (*STOPS, *NEWS)}
        wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            self._take()
            yield
        finally:
            self._give_back()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)

    def keys(self, wait_s: float) -> list[str]:
        """Keys that were pressed; after ``wait_s`` none. A terminal that is gone is a hang-up."""
        if self._is_suspended:
            self._suspend()
        if self._is_continued:
            # Another process may have stopped us, and a shell has set its terminal's mode since.
            self._is_continued = False
            tty.setcbreak(self._keyboard, termios.TCSADRAIN)
        patience = ESCAPE_SECONDS if self._decoder.is_waiting else wait_s
        ready, _, _ = select.select([self._keyboard, self._wake_read], [], [], patience)
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, READ_BYTES)
        if self._keyboard not in ready:
            return self._decoder.flush() if not ready else []
        try:
            data = os.read(self._keyboard, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self.stopped_by = self.stopped_by or signal.SIGHUP
        return self._decoder.feed(data)

    def show(self, lines: Sequence[Text]) -> None:
        if self._screen is not None:
            # As one write, so that the screen never shows half of it.
            with self.console:
                self.console.control(Control.home())
                self._screen.update(Group(*lines))

    def _take(self) -> None:
        self._usual = termios.tcgetattr(self._keyboard)
        tty.setcbreak(self._keyboard, termios.TCSADRAIN)
        self._screen = self.console.screen(hide_cursor=True)
        self._screen.__enter__()

    def _give_back(self) -> None:
        """Never raises: there may be no terminal any more."""
        screen, self._screen = self._screen, None
        if screen is not None:
            with contextlib.suppress(OSError):
                screen.__exit__(None, None, None)
                self.console.file.flush()
        if self._usual is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._usual)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """Only records the signal: the wake-up descriptor makes `keys` return."""
        if number in STOPS:
            self.stopped_by = number
        elif number == signal.SIGTSTP:
            self._is_suspended = True
        elif number == signal.SIGCONT:
            self._is_continued = True

    def _suspend(self) -> None:
        """Ctrl-Z: the shell gets its terminal as it was, and we get ours when it wakes us."""
        self._is_suspended = False
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
