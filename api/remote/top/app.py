"""The live view: draws what `Watch` knows, and handles keys."""

from __future__ import annotations

import signal
import time

from rich.console import Console
from rich.text import Text

from api.remote.client import Target
from api.remote.top.screen import Screen
from api.remote.top.terminal import Terminal
from api.remote.top.views import Stage, draw
from api.remote.top.watch import Watch

TICK_SECONDS = 1.0
"""Between two drawings if nothing happens: ages go on."""
EXIT_SIGNALLED = 128
"""Plus the signal, as shells do."""


def run_live(target: Target, console: Console, interval_s: float, screen: Screen) -> int:
    terminal = Terminal(console)
    watch = Watch(target, interval_s=interval_s, notify=terminal.wake)
    watch.want(screen.wanted)
    with terminal.taken():
        watch.start()
        try:
            while not screen.is_done and terminal.stopped_by is None:
                terminal.show(picture_of(screen, watch, console))
                for key in terminal.keys(TICK_SECONDS):
                    screen.press(key, watch.latest.picture)
                if screen.wants_answer:
                    screen.wants_answer = False
                    watch.hurry()
                watch.want(screen.wanted)
        finally:
            watch.stop()
    if terminal.stopped_by is None:
        return 0
    return EXIT_SIGNALLED + signal.Signals(terminal.stopped_by).value


def picture_of(screen: Screen, watch: Watch, console: Console) -> list[Text]:
    latest = watch.latest
    width, height = console.size
    stage = Stage(
        width=width,
        height=height,
        url=watch.url,
        now_s=time.time() + latest.skew_s,
        monotonic_s=time.monotonic(),
    )
    return draw(screen, latest, stage)
