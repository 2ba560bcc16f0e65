"""The sampler's process: reads counters on a fixed grid, sends a summary a second.

Started by `collector.bursts.process` with a plan on its standard input. It writes JSON lines to its
standard output and takes requests from its standard input; when that ends, the agent is gone, and
this process ends a moment later.

Between two ticks there is a millisecond. So nothing here is done all at once: one counter's samples
are worked through at each tick, one piece of a capture is sent, and nothing ever waits for the
other end: what the pipe does not take is dropped and counted.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from collector.bursts.capture import Captures
from collector.bursts.detect import Burst
from collector.bursts.plan import NS_PER_SECOND, Plan, reads_every
from collector.bursts.ring import Ring, ring_length
from collector.bursts.track import Track

TEXT_BYTES_MAX = 32
"""A counter has 21 at most; what follows is no number."""
PLAN_BYTES_MAX = 1 << 20
MEASURED_READS = 7
"""Of each file, before the first tick: the median of so many is what a read takes."""
AMBIGUOUS_READS = 4
"""Times its usual duration: a read that took longer was interrupted, and it is unknown by how much
its number is older than its time. It is dropped; the next one includes its count."""
AMBIGUOUS_SHARE = 4
"""A quarter of the period: what a read may take at least before it counts as interrupted."""
DIGEST_TICKS = 32
"""Samples are handed over and worked through once in so many ticks: a burst is known that soon,
and more samples at a time cost less each."""
REPORT_NS = NS_PER_SECOND
COMMAND_NS = 50_000_000
"""How often requests are looked for."""
REOPEN_NS = 30 * NS_PER_SECOND
"""How often a file that failed is tried again. Some functions make the kernel log an error at every
attempt; a device that was reset is back within this time."""
REPORTS_WAITING_MAX = 8
"""Reports that wait for the agent to read; the oldest goes, and is counted."""
BURSTS_PER_REPORT_MAX = 100
"""Burst events a second, of all counters; a port that has more is simply busy, and its summary
shows it. The rest is counted."""
COMMAND_BYTES_MAX = 64 << 10


def open_file(path: str) -> int:
    """A descriptor that is read again and again."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


_pread = os.pread


class Sweep(NamedTuple):
    """The files that are read at every tick, and what they held since it was last handed over."""

    places: list[int]
    handles: list[int]
    limit_ns: int
    """A sweep that took longer was interrupted."""
    times: list[int]
    rows: list[list[bytes]]


class Sampler:
    """Files, schedule and reports."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._handles: list[int] = [-1] * len(plan.counters)
        self._seen_ns: list[int] = [0] * len(plan.counters)
        self._reads: list[int] = [0] * len(plan.counters)
        self._sweep = Sweep([], [], 0, [], [])
        self._seldom: list[int] = []
        self._limits_ns: list[int] = []
        self._every: list[int] = []
        self._tracks: list[Track] = []
        self._lateness: list[int] = []
        self._bursts: list[tuple[int, Burst]] = []
        self._missed = self._dropped_bursts = self._dropped_reports = self._interrupted = 0
        self._reports: deque[bytes] = deque()
        self._summaries: list[str] = []
        self._is_telling = False
        self._elapsed_ns = 0
        self._out = b""
        self._in = b""
        self._reopen_ns = 0
        self._reported_ns = 0
        self._prepare()
        self._captures = Captures(self._tracks)
        self._round = max(DIGEST_TICKS, len(plan.counters))

    # --- the files -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        plan = self._plan
        length = ring_length(plan.ring_seconds, plan.period_ns, len(plan.counters))
        for place, counter in enumerate(plan.counters):
            self._handles[place], trouble = self._open(counter.path)
            read_ns = self._measure(self._handles[place])
            every = reads_every(counter, read_ns, len(plan.counters), plan.period_ns)
            track = Track(counter, plan, every=every, ring=Ring(length))
            track.trouble, track.read_ns = trouble, read_ns
            self._tracks.append(track)
            self._every.append(every)
            period_ns = every * plan.period_ns
            limit_ns = max(period_ns // AMBIGUOUS_SHARE, AMBIGUOUS_READS * read_ns)
            self._limits_ns.append(limit_ns)
        self._choose()

    @staticmethod
    def _open(path: str) -> tuple[int, str]:
        """The file, tried once; a descriptor or -1, and the trouble."""
        try:
            handle = open_file(path)
            try:
                os.pread(handle, TEXT_BYTES_MAX, 0)
            except OSError:
                os.close(handle)
                raise
        except OSError as error:
            return -1, error.strerror or str(error)
        return handle, ""

    @staticmethod
    def _measure(handle: int) -> int:
        taken = []
        for _ in range(MEASURED_READS if handle >= 0 else 0):
            started_ns = time.monotonic_ns()
            with suppress(OSError):
                os.pread(handle, TEXT_BYTES_MAX, 0)
            taken.append(time.monotonic_ns() - started_ns)
        return sorted(taken)[len(taken) // 2] if taken else 0

    def _let_go(self, place: int, error: OSError) -> None:
        os.close(self._handles[place])
        self._handles[place] = -1
        self._tracks[place].trouble = error.strerror or str(error)

    def _reopen(self, now_ns: int) -> None:
        if now_ns < self._reopen_ns or -1 not in self._handles:
            return
        self._reopen_ns = now_ns + REOPEN_NS
        for place, handle in enumerate(self._handles):
            if handle < 0:
                track = self._tracks[place]
                self._handles[place], track.trouble = self._open(track.counter.path)
                # What it shows now is no step from what it showed before it went.
                track.lose()
                self._seen_ns[place] = 0
        self._choose()

    # --- the loop ------------------------------------------------------------------------------

    def run(self) -> None:
        """Tick until the agent is gone."""
        period_ns, clock = self._plan.period_ns, time.monotonic_ns
        due_ns = clock() + period_ns
        self._reported_ns = self._reopen_ns = due_ns
        commands_ns = due_ns
        tick = handed = place = 0
        while True:
            left_ns = due_ns - clock()
            if left_ns > 0:
                time.sleep(left_ns / NS_PER_SECOND)
            now_ns = clock()
            self._lateness.append(now_ns - due_ns)
            self._read(tick)
            if tick >= handed + self._round:
                handed = tick
                self._hand_over()
                place = 0
            if place < len(self._tracks):
                self._digest(place)
                place += 1
            self._report(now_ns)
            if now_ns >= commands_ns:
                commands_ns = now_ns + COMMAND_NS
                if not self._take_commands(now_ns):
                    return
            if not self._send(now_ns):
                return
            tick, due_ns = tick + 1, due_ns + period_ns
            late_ns = clock() - due_ns
            if late_ns >= period_ns:  # ticks that have passed are not made up for
                skipped = late_ns // period_ns
                self._missed += skipped
                tick, due_ns = tick + skipped, due_ns + skipped * period_ns

    def _read(self, tick: int) -> None:
        """Read every file that is due.

        Cheap files are read in one sweep with one time: how far into the sweep a file comes is
        the same at every tick, so the time between two of its readings is right.
        """
        sweep, clock = self._sweep, time.monotonic_ns
        before_ns = clock()
        try:
            texts = [_pread(handle, TEXT_BYTES_MAX, 0) for handle in sweep.handles]
        except OSError:
            self._find_broken()
        else:
            now_ns = clock()
            if now_ns - before_ns > sweep.limit_ns:
                self._interrupted += 1
            else:
                sweep.times.append(now_ns)
                sweep.rows.append(texts)
        for place in self._seldom:
            # They take turns, so that no tick has them all.
            if not (tick + place) % self._every[place]:
                self._read_one(place)

    def _read_one(self, place: int) -> None:
        """Read a file that is read seldom: a firmware's, or one that changes seldom."""
        before_ns = time.monotonic_ns()
        try:
            text = _pread(self._handles[place], TEXT_BYTES_MAX, 0)
        except OSError as error:
            self._let_go(place, error)
            self._choose()
            return
        now_ns = time.monotonic_ns()
        if now_ns - before_ns > self._limits_ns[place]:
            self._interrupted += 1
            return
        befores, times, texts = self._tracks[place].pending
        befores.append(self._seen_ns[place])
        times.append(now_ns)
        texts.append(text)
        self._seen_ns[place] = now_ns
        self._reads[place] += 1

    def _find_broken(self) -> None:
        """A file of the sweep failed; close each that fails, and lose this tick."""
        for place in self._sweep.places:
            try:
                _pread(self._handles[place], TEXT_BYTES_MAX, 0)
            except OSError as error:
                self._let_go(place, error)
        self._choose()

    def _choose(self) -> None:
        """Put every file that can be read where it belongs: into the sweep, or beside it."""
        self._hand_over()
        able = [place for place, handle in enumerate(self._handles) if handle >= 0]
        places = [place for place in able if self._every[place] == 1]
        self._seldom = [place for place in able if self._every[place] > 1]
        limit_ns = max((self._limits_ns[place] for place in places), default=0)
        limit_ns = max(limit_ns, AMBIGUOUS_READS * sum(self._tracks[p].read_ns for p in places))
        self._sweep = Sweep(places, [self._handles[place] for place in places], limit_ns, [], [])

    def _hand_over(self) -> None:
        sweep = self._sweep
        if not sweep.times:
            return
        befores = [0, *sweep.times[:-1]]
        for place, column in zip(sweep.places, zip(*sweep.rows, strict=True), strict=True):
            pending = self._tracks[place].pending
            befores[0] = self._seen_ns[place]
            pending.befores.extend(befores)
            pending.times.extend(sweep.times)
            pending.texts.extend(column)
            self._seen_ns[place] = sweep.times[-1]
            self._reads[place] += len(sweep.times)
        sweep.times.clear()
        sweep.rows.clear()

    def _digest(self, place: int) -> None:
        for burst in self._tracks[place].digest(self._seen_ns[place]):
            if len(self._bursts) < BURSTS_PER_REPORT_MAX:
                self._bursts.append((place, burst))
            else:
                self._dropped_bursts += 1

    # --- reports ---------------------------------------------------------------------------------

    def _report(self, now_ns: int) -> None:
        """Report the last second; one counter at a time, because all would take a tick."""
        if not self._is_telling:
            if now_ns - self._reported_ns < REPORT_NS:
                return
            self._is_telling = True
            self._elapsed_ns, self._reported_ns = now_ns - self._reported_ns, now_ns
            self._reopen(now_ns)
        if (place := len(self._summaries)) < len(self._tracks):
            read_every_ns = self._elapsed_ns / max(1, self._reads[place])
            self._reads[place] = 0
            self._summaries.append(json.dumps(self._tracks[place].summary(read_every_ns)))
            return
        self._finish_report(now_ns)

    def _finish_report(self, now_ns: int) -> None:
        late = sorted(self._lateness)
        report = {
            "time": time.time_ns(),
            "monotonic": now_ns,
            "ticks": len(late),
            "late": [late[len(late) // 2], late[len(late) * 99 // 100], late[-1]],
            "missed": self._missed,
            "interrupted": self._interrupted,
            "cpu": time.process_time(),
            "dropped": self._dropped_bursts,
            "dropped_reports": self._dropped_reports,
            "bursts": self._bursts,
        }
        head = json.dumps(report).removesuffix("}")
        line = f'{head}, "counters": [{", ".join(self._summaries)}]}}\n'
        self._lateness, self._bursts, self._summaries = [], [], []
        self._is_telling = False
        if len(self._reports) >= REPORTS_WAITING_MAX:
            self._reports.popleft()
            self._dropped_reports += 1
        self._reports.append(line.encode())

    def _send(self, now_ns: int) -> bool:
        """Write what the pipe takes; False when its reader is gone."""
        if not self._out:
            if self._reports:
                self._out = self._reports.popleft()
            elif (piece := self._captures.step(now_ns)) is not None:
                piece["offset"] = time.time_ns() - time.monotonic_ns()
                self._out = json.dumps(piece).encode() + b"\n"
            else:
                return True
        try:
            written = os.write(sys.stdout.fileno(), self._out)
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        self._out = self._out[written:]
        return True

    def _take_commands(self, now_ns: int) -> bool:
        """Take requests; False when the input has ended."""
        try:
            data = os.read(sys.stdin.fileno(), COMMAND_BYTES_MAX)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self._in = (self._in + data).split(b"\n")
        self._in = self._in[-COMMAND_BYTES_MAX:]
        for line in lines:
            request: dict[str, Any] = json.loads(line)
            self._captures.ask(request, now_ns)
        return True


def settle_down(plan: Plan) -> None:
    """Choose processor and priority to keep the grid; skips what is not permitted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the agent, which closes the input
    allowed = sorted(os.sched_getaffinity(0))
    with suppress(OSError):
        os.sched_setaffinity(0, {allowed[-1] if plan.cpu < 0 else plan.cpu})
    if plan.priority:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(plan.priority))
    # The kernel rounds sleeps up by 50 microseconds to save power.
    with suppress(OSError):
        slack = os.open("/proc/self/timerslack_ns", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(slack, b"1")
        finally:
            os.close(slack)
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a collection takes longer than a tick


def read_plan() -> Plan:
    """The plan: the first line of the standard input."""
    data = b""
    while not data.endswith(b"\n") and len(data) < PLAN_BYTES_MAX:
        # A byte at a time: what comes after the line is for later.
        piece = os.read(sys.stdin.fileno(), 1)
        if not piece:
            raise SystemExit(0)
        data += piece
    return Plan.decode(data.decode())


def main() -> None:
    plan = read_plan()
    settle_down(plan)
    sampler = Sampler(plan)
    for file in (sys.stdin, sys.stdout):
        os.set_blocking(file.fileno(), False)
    sampler.run()
