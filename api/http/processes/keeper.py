"""Keeps the processes of a service: starts them in order, again when they end, and ends them.

The keeper itself has no threads of its own and opens no database, so that it can fork: a process
starts in milliseconds, with the modules that all share. Where one ends it is started again, after a
pause that grows; where one ends again and again the whole service stops, with a status that makes
systemd or Kubernetes act. If the keeper itself is killed the kernel tells its processes to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from api.base.process_limits import (
    DRAIN_SECONDS,
    RESTART_QUIET_SECONDS,
    RESTART_WAIT_SECONDS_MAX,
    RESTARTS_MAX,
    START_SECONDS_MAX,
)
from api.http.processes.plan import Kind, Planned
from collector.contract.errors import FabricscopeError, SettingsError

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
REFUSED_STATUS: Final = 78
"""Of a process that cannot work with these settings (EX_CONFIG): to start it again is no use."""
BROKEN_STATUS: Final = 1
HEARD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
END_STORE: Final = signal.SIGUSR1
"""What ends the process that owns the store. It does not hear SIGTERM, which systemd and terminals
send to all processes at once: the others still have to store what they have taken."""
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
NAME_BYTES_MAX: Final = 15
PROCESSES_FILE: Final = "processes.json"

Ready = Callable[[], None]
Body = Callable[[Planned, Ready], int]
"""What a process does; it calls the second when it is ready, and returns its exit status."""


class Shown(msgspec.Struct, frozen=True):
    """A process in PROCESSES_FILE, for operators."""

    name: str
    pid: int
    state: str
    starts: int


class Kept:
    """One process, through all its lives."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.pid = 0
        """0: it does not run."""
        self.ready_fd = -1
        """From which its word comes that it is ready; -1: it came, or it does not run."""
        self.is_ready = False
        self.starts = 0
        self.quick_ends = 0
        """How often in a row it ended soon after its start."""
        self.started_s = 0.0
        self.due_s = 0.0
        """When it is started again."""

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def state(self) -> str:
        if not self.pid:
            return "waits for its start"
        return "ready" if self.is_ready else "starts"

    def ended(self, now_s: float) -> None:
        is_quick = now_s - self.started_s < RESTART_QUIET_SECONDS
        self.quick_ends = self.quick_ends + 1 if is_quick else 1
        self.pid = 0
        self.is_ready = False
        self.close_ready()
        pause_s = 2.0 ** (self.quick_ends - 2) if self.quick_ends > 1 else 0.0
        self.due_s = now_s + min(pause_s, RESTART_WAIT_SECONDS_MAX)

    def close_ready(self) -> None:
        if self.ready_fd >= 0:
            os.close(self.ready_fd)
        self.ready_fd = -1


class Keeper:
    """Runs the processes until a signal. ``body`` runs in each of them, after the fork."""

    def __init__(self, processes: Sequence[Planned], body: Body, folder: Path) -> None:
        """``folder``: where PROCESSES_FILE is written."""
        self._kept = [Kept(one) for one in processes]
        self._body = body
        self._file = folder / PROCESSES_FILE
        self._signals: set[int] = set()
        self._pipe = (-1, -1)
        self._status = 0
        self._is_ending = False
        self._is_whole = False
        """Whether all processes have been ready at once."""

    def run(self) -> int:
        """Keep them until SIGTERM or SIGINT (0), or until one cannot be kept (another status)."""
        with self._hearing():
            try:
                while not self._is_over():
                    self._start_due()
                    self._wait(TICK_SECONDS)
                    self._look()
            finally:
                self._end_all()
        return self._status

    def _is_over(self) -> bool:
        return bool(self._status or self._signals & {signal.SIGTERM, signal.SIGINT})

    # --- signals -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _hearing(self) -> Iterator[None]:
        """Signals become bytes in a pipe: libraries' threads may be the ones that get them."""
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = [signal.signal(number, lambda *_: None) for number in HEARD]
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in zip(HEARD, before, strict=True):
                signal.signal(number, handler)
            for end in self._pipe:
                os.close(end)

    def _wait(self, seconds: float) -> None:
        """Until a signal comes, a process says that it is ready, or the time is up."""
        words = {one.ready_fd: one for one in self._kept if one.ready_fd >= 0}
        # Not select(), which knows no descriptor past 1,023.
        ends = select.poll()
        for end in (self._pipe[0], *words):
            ends.register(end, select.POLLIN)
        for end, _ in ends.poll(max(0.0, seconds) * 1e3):
            if end == self._pipe[0]:
                with contextlib.suppress(BlockingIOError):
                    self._signals.update(os.read(end, 4096))
            else:  # nothing: it ended, and a signal says the rest
                words[end].is_ready = bool(os.read(end, 1))
                words[end].close_ready()
                self._show()

    # --- starting ------------------------------------------------------------------------------

    def _start_due(self) -> None:
        """Start what is due, in order: what comes later needs what comes before it."""
        now_s = time.monotonic()
        for one in self._kept:
            if not one.pid and now_s >= one.due_s:
                self._start(one)
            if one.planned.kind is Kind.STORE and not (one.is_ready or self._is_whole):
                return

    def _start(self, one: Kept) -> None:
        ready_end, word_end = os.pipe2(os.O_CLOEXEC)
        # A signal that comes right after the fork must meet the process' own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            os.close(ready_end)
            self._become(one, parent, word_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        os.close(word_end)
        one.pid, one.ready_fd = pid, ready_end
        one.starts += 1
        one.started_s = time.monotonic()
        log.info("%s is process %d%s", one.name, pid, " again" if one.starts > 1 else "")
        self._show()

    def _become(self, one: Kept, parent: int, word_end: int) -> NoReturn:
        """In the new process: do its work, and leave without what belongs to the keeper."""
        status = BROKEN_STATUS
        try:
            signal.set_wakeup_fd(-1)
            for number in HEARD:
                signal.signal(number, signal.SIG_DFL)
            ends_by = END_STORE if one.planned.kind is Kind.STORE else signal.SIGTERM
            name_process(one.name)
            end_with_parent(ends_by, parent)
            if one.planned.kind is Kind.STORE:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            for end in (*self._pipe, *(other.ready_fd for other in self._kept)):
                if end >= 0:
                    os.close(end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
            gc.freeze()
            status = self._body(one.planned, lambda: say_ready(word_end))
        except SettingsError as error:
            log.critical("%s: %s", one.name, error)
            status = REFUSED_STATUS
        except FabricscopeError as error:
            log.critical("%s: %s", one.name, error)
        except Exception:
            log.critical("%s broke", one.name, exc_info=True)
        finally:
            logging.shutdown()
            os._exit(status)

    # --- looking -------------------------------------------------------------------------------

    def _look(self) -> None:
        self._reap()
        now_s = time.monotonic()
        for one in self._kept:
            if one.ready_fd >= 0 and now_s - one.started_s > START_SECONDS_MAX:
                log.critical(
                    "%s was not ready in START_SECONDS_MAX = %g s", one.name, START_SECONDS_MAX
                )
                self._status = BROKEN_STATUS
        if not self._is_whole and all(one.is_ready for one in self._kept):
            self._is_whole = True
            log.info("all %d processes are ready", len(self._kept))

    def _reap(self) -> None:
        for one in [one for one in self._kept if one.pid]:
            pid, status = os.waitpid(one.pid, os.WNOHANG)
            if pid:
                self._note_end(one, os.waitstatus_to_exitcode(status))

    def _note_end(self, one: Kept, status: int) -> None:
        one.ended(time.monotonic())
        if self._is_ending:
            return
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        log.error("%s %s; it starts again", one.name, how)
        if status == REFUSED_STATUS:
            log.critical("%s cannot work with these settings: the service stops", one.name)
            self._status = REFUSED_STATUS
        elif one.quick_ends > RESTARTS_MAX:
            log.critical(
                "%s ended %d times in a row, each within %g s of its start: the service stops",
                one.name,
                one.quick_ends,
                RESTART_QUIET_SECONDS,
            )
            self._status = BROKEN_STATUS
        self._show()

    def _show(self) -> None:
        shown = [Shown(one.name, one.pid, one.state, one.starts) for one in self._kept]
        part = self._file.with_suffix(".part")
        with contextlib.suppress(OSError):  # a full disk: it is for operators alone
            part.write_bytes(msgspec.json.format(msgspec.json.encode(shown)) + b"\n")
            part.replace(self._file)

    # --- ending --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        """Those that take requests first, then the evaluator, then the store."""
        self._is_ending = True
        for kind in reversed(Kind):
            self._end([one for one in self._kept if one.planned.kind is kind and one.pid])

    def _end(self, some: Iterable[Kept]) -> None:
        some = list(some)
        for one in some:
            os.kill(one.pid, END_STORE if one.planned.kind is Kind.STORE else signal.SIGTERM)
        deadline = time.monotonic() + DRAIN_SECONDS
        self._signals.clear()
        while any(one.pid for one in some):
            self._reap()
            is_hurried = bool(self._signals & {signal.SIGTERM, signal.SIGINT})
            if is_hurried or time.monotonic() > deadline:
                for one in [one for one in some if one.pid]:
                    log.error("%s did not end in time: it is killed", one.name)
                    os.kill(one.pid, signal.SIGKILL)
                    os.waitpid(one.pid, 0)
                    one.pid = 0
            if any(one.pid for one in some):
                self._wait(min(TICK_SECONDS, deadline - time.monotonic()))


def say_ready(word_end: int) -> None:
    with contextlib.suppress(OSError):
        os.write(word_end, b"1")
        os.close(word_end)


def end_with_parent(number: int, parent: int) -> None:
    """Have the kernel send this signal when the parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died meanwhile
        os._exit(BROKEN_STATUS)


def name_process(name: str) -> None:
    """What `ps -e` and `top` show."""
    shown = f"fs-{name}".encode()[:NAME_BYTES_MAX]
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NAME, shown, 0, 0, 0)
