"""Threads that count the CPU time of what they do, by the work that it is for.

Most background work and most answers share one pool of threads, so the kernel cannot tell them
apart. Here each call is measured where it runs (tens of nanoseconds), under the name of the pool,
or of the work that the calling task does (`WORK`).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")

OTHER = "other"
"""What no work has a name for: starting, and threads that are not ours."""
LOOP, ANSWERS, ENGINE = "loop", "answers", "engine"
"""The event loop's own thread; answers to HTTP requests in threads; the engine's own threads."""
WORK: ContextVar[str] = ContextVar("work", default=OTHER)
"""The work that the current task does."""

_lock = threading.Lock()
_spent: defaultdict[str, float] = defaultdict(float)
_running: dict[int, tuple[str, float]] = {}
"""By thread: the work of the call that runs there, and the thread's CPU time when it began."""
_loops: dict[int, threading.Thread] = {}


class Threads(ThreadPoolExecutor):
    """A pool of one work, or of whatever the callers do. ``count`` None: Python's default."""

    def __init__(self, count: int | None = None, *, work: str = "") -> None:
        super().__init__(count, thread_name_prefix=work or "shared")
        self._work = work

    def submit(
        self, call: Callable[Given, Made], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Made]:
        return super().submit(measured, self._work or WORK.get(), call, args, kwargs)


def measured(
    work: str,
    call: Callable[..., Made],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> Made:
    before = WORK.set(work)  # for the calls that it hands on to other pools
    ident, began = threading.get_ident(), time.thread_time()
    with _lock:
        _running[ident] = work, began
    try:
        return call(*args, **kwargs)
    finally:
        WORK.reset(before)
        with _lock:
            del _running[ident]
            _spent[work] += time.thread_time() - began


def note_loop() -> None:
    """Count this thread as one that runs an event loop."""
    thread = threading.current_thread()
    _loops[threading.get_ident()] = thread


def cpu_seconds() -> Iterator[tuple[str, float]]:
    """CPU time of this process so far by work; what is left over is the engine's."""
    with _lock:
        # Under the lock: a thread that runs a call is alive, and the clock of one that has ended
        # must not be asked for.
        spent = defaultdict(float, _spent)
        for ident, (work, began) in _running.items():
            spent[work] += thread_seconds(ident) - began
    alive = [ident for ident, thread in _loops.items() if thread.is_alive()]
    spent[LOOP] = sum(map(thread_seconds, alive))
    yield from spent.items()
    yield ENGINE, max(0.0, time.process_time() - sum(spent.values()))


def thread_seconds(ident: int) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(ident))
