"""When sources are read, how late or broken reads are handled, and each read's self-metrics.

One thread per source: a slow source delays no other. A source writes none of this; it yields
readings, and everything else is here: interval, phase, timeout, missed ticks, self-metrics.

Ticks stand on a fixed grid. A read that is still running when a tick comes makes that tick missed:
it is counted and never made up for, because a burst of late reads would load the device that is
slow already. Each host and source has its own phase on the grid, always the same, so that ten
thousand agents neither read nor send at once.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

import msgspec

from collector.agent.meter import Meter
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.probes import ProbeTarget
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.contract.wire import CaptureRequest
from collector.doors.host import Host
from collector.sources import Source, SourceSettings

FAILURE_LOG_SECONDS = 300
"""A source that breaks at every tick writes one trace in so many seconds; the count is a metric."""
WATCH_FRACTION = 4
"""The watchdog checks so many times within the shortest timeout: an overrun is seen at most a
quarter late, for a handful of wake-ups a second at worst."""
WATCH_SECONDS_MIN = 0.01

STATE_SECONDS = 5
"""What a source remembers is taken no more often: a counter that wraps takes far longer to do it
twice, and a source that reads ten times a second should not pack its state as often."""

UP = "fabric_agent_source_up"

log = logging.getLogger(__name__)


# --- pure: the grid ------------------------------------------------------------------------------


def phase_ns(host_name: str, source: str, interval_ns: int) -> int:
    """Where on the grid this source of this host reads: stable, and spread evenly over hosts."""
    digest = blake2b(f"{host_name}/{source}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % interval_ns


def first_tick_ns(now_ns: int, *, interval_ns: int, phase: int) -> int:
    """The first tick that is not in the past.

    >>> first_tick_ns(12, interval_ns=10, phase=3)
    13
    """
    return now_ns + (phase - now_ns) % interval_ns


def next_tick_ns(tick_ns: int, now_ns: int, interval_ns: int) -> tuple[int, int]:
    """The next tick after the one at ``tick_ns``, and how many passed unused until now.

    >>> next_tick_ns(100, 104, 10), next_tick_ns(100, 110, 10), next_tick_ns(100, 135, 10)
    ((110, 0), (120, 1), (140, 3))
    """
    missed = max(0, now_ns - tick_ns) // interval_ns
    return tick_ns + (missed + 1) * interval_ns, missed


# --- one source --------------------------------------------------------------------------------


@runtime_checkable
class Remembers(Protocol):
    """A source that wants to go on counting after a restart of the agent, but not of the host."""

    def save_state(self) -> dict[str, Any]:
        """What to keep: anything that msgpack can hold."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `save_state` returned before a restart."""


@runtime_checkable
class Looks(Protocol):
    """A source that polls for events between its reads.

    A look must be cheap: it runs several times a second, and what it yields besides events is sent
    but not shown on `/metrics`, which shows the last read.
    """

    look_seconds: float

    def look(self, host: Host) -> Iterable[Reading]:
        """What happened since the last look or read; mostly nothing."""


@runtime_checkable
class Captures(Protocol):
    """A source that can send more than it usually does, around a moment."""

    def capture(self, request: CaptureRequest) -> None:
        """Take a request; called from another thread, and again for the same request."""


@runtime_checkable
class TakesTargets(Protocol):
    """A source that probes what the service names, if its settings allow that."""

    @property
    def takes_targets(self) -> bool: ...

    def take_targets(self, targets: Sequence[ProbeTarget]) -> None:
        """Take a list in place of the one before; called from another thread."""


@runtime_checkable
class Closes(Protocol):
    """A source that holds a resource to release when the agent ends or reloads."""

    def close(self) -> None:
        """Release it; no read runs any more."""


class Report(msgspec.Struct, frozen=True):
    """What is known of one read: all its readings so far; those from ``fresh`` on are new."""

    source: str
    readings: list[Reading]
    fresh: int
    time_ns: int
    monotonic_ns: int
    is_look: bool = False
    """It is of a look between two reads: what the last read showed still holds."""


Publish = Callable[[Report], None]


class _Read:
    """A running read: the source's thread appends, the watchdog may look."""

    def __init__(self, started_ns: int) -> None:
        self.started_ns = started_ns
        self.readings: list[Reading] = []
        self.published = 0
        self.is_late = False


class Runner:
    """One source and everything reported about it. `tick` is for its own thread only."""

    def __init__(
        self,
        source: Source,
        settings: SourceSettings,
        *,
        host: Host,
        meter: Meter,
        publish: Publish,
        state: bytes | None = None,
    ) -> None:
        self.name = source.name
        self.settings = settings
        self.interval_ns = int(settings.interval_seconds * NS)
        self._timeout_ns = int(settings.timeout_seconds * NS)
        self._source = source
        self._host = host
        self._meter = meter
        self._publish = publish
        self._remembers = source if isinstance(source, Remembers) else None
        self._looks = source if isinstance(source, Looks) else None
        self.look_ns = int(self._looks.look_seconds * NS) if self._looks else None
        """From one look to the next; None for a source that is only read."""
        self._state_to_load = state
        self._state = state
        self._state_saved_ns: int | None = None
        self._lock = threading.Lock()
        self._read: _Read | None = None
        self._last_success_ns: int | None = None
        self._failure_logged_ns: int | None = None
        self._is_introduced = False
        self._reasons: set[str] = set()
        self._up_series = Series(UP, {"source": self.name})
        meter.ask(
            "fabric_agent_source_last_success_age_seconds", self._success_age, source=self.name
        )
        meter.add("fabric_agent_source_ticks_missed_total", 0, source=self.name)

    @property
    def state(self) -> bytes | None:
        """What the source wanted kept after its last read, as msgpack."""
        return self._state

    def tick(self) -> None:
        """Read once. Whatever the source does, this returns, and its readings so far are kept."""
        read = _Read(self._host.monotonic_ns())
        with self._lock:
            self._read = read
        failure = self._collect(read, lambda host: self._read_source(host, read.started_ns))
        with self._lock:
            self._read = None
            self._finish(read, failure)

    def look(self) -> None:
        """Poll for events once. Always returns, as `tick`; without events it reports nothing."""
        if self._looks is None:
            return
        look = _Read(self._host.monotonic_ns())
        failure = self._collect(look, self._looks.look)
        if failure is not None:
            self._meter.add(
                "fabric_agent_source_reads_total",
                source=self.name,
                result=UnreadReason.FAILED.value,
            )
        if look.readings:
            self._send(look, is_look=True)

    def _read_source(self, host: Host, started_ns: int) -> Iterable[Reading]:
        self._load_state()
        yield from self._source.read(host)
        self._save_state(started_ns)

    def _collect(self, read: _Read, ask: Callable[[Host], Iterable[Reading]]) -> str | None:
        """Append what the source yields; what broke it, if something did."""
        try:
            append = read.readings.append
            for reading in ask(self._host):
                append(reading)
        except Exception as error:  # noqa: BLE001 - a broken source must not stop the others
            self._log_failure(error)
            return f"{type(error).__name__}: {error}"
        return None

    def capture(self, request: CaptureRequest) -> None:
        """Pass a request on, if this source serves such requests; for any thread."""
        if isinstance(self._source, Captures):
            self._source.capture(request)

    @property
    def takes_targets(self) -> bool:
        return isinstance(self._source, TakesTargets) and self._source.takes_targets

    def take_targets(self, targets: Sequence[ProbeTarget]) -> None:
        """Pass a list on, if this source probes what is in it; for any thread."""
        if isinstance(self._source, TakesTargets):
            self._source.take_targets(targets)

    def close(self) -> None:
        if isinstance(self._source, Closes):
            self._source.close()

    def watch(self) -> None:
        """Report a read that has passed its timeout, once. For the watchdog's thread."""
        with self._lock:
            read = self._read
            if read is None or read.is_late:
                return
            late_ns = self._host.monotonic_ns() - read.started_ns
            if late_ns < self._timeout_ns:
                return
            read.is_late = True
            log.warning(
                "source %s: a read passed its timeout of %g s; no other starts until it ends",
                self.name,
                self.settings.timeout_seconds,
            )
            detail = f"not finished after {self.settings.timeout_seconds:g} s"
            self._conclude(read, UnreadReason.TIMEOUT, detail, late_ns)

    def count_missed(self, ticks: int) -> None:
        if ticks:
            self._meter.add("fabric_agent_source_ticks_missed_total", ticks, source=self.name)

    # --- the end of a read -------------------------------------------------------------------

    def _finish(self, read: _Read, failure: str | None) -> None:
        now_ns = self._host.monotonic_ns()
        duration_ns = now_ns - read.started_ns
        if read.is_late:
            # It was counted when it passed its timeout. What it brought after that is still true.
            self._meter.set(
                "fabric_agent_source_duration_seconds", duration_ns / 1e9, source=self.name
            )
            self._send(read)
        elif failure is not None:
            self._conclude(read, UnreadReason.FAILED, failure, duration_ns)
        elif duration_ns > self._timeout_ns:
            # The watchdog looks from time to time; this read ended between two looks.
            self._conclude(
                read, UnreadReason.TIMEOUT, f"took {duration_ns / 1e9:.3f} s", duration_ns
            )
        else:
            self._last_success_ns = now_ns
            self._conclude(read, None, "", duration_ns)
        if not self._is_introduced:
            self._is_introduced = True
            log.info("source %s: %s", self.name, describe(read.readings, self.settings))

    def _conclude(
        self, read: _Read, reason: UnreadReason | None, detail: str, duration_ns: int
    ) -> None:
        """Set the source's own metrics and hand its readings on."""
        name, meter = self.name, self._meter
        if reason is not None:
            read.readings.append(Missing(self._up_series, reason, detail))
        missing = Counter(
            [reading.reason.value for reading in read.readings if isinstance(reading, Missing)]
        )
        self._reasons.update(missing)
        meter.set(UP, 0 if reason else 1, source=name)
        meter.set("fabric_agent_source_duration_seconds", duration_ns / 1e9, source=name)
        meter.set("fabric_agent_source_readings", len(read.readings) - missing.total(), source=name)
        for each in self._reasons:
            meter.set("fabric_agent_source_missing", missing[each], source=name, reason=each)
        result = reason.value if reason else "ok"
        meter.add("fabric_agent_source_reads_total", source=name, result=result)
        self._send(read)

    def _send(self, read: _Read, *, is_look: bool = False) -> None:
        # A copy: a late read goes on appending while others look at the report.
        readings = list(read.readings)
        fresh, read.published = read.published, len(readings)
        now_ns, monotonic_ns = self._host.now_ns(), self._host.monotonic_ns()
        self._publish(Report(self.name, readings, fresh, now_ns, monotonic_ns, is_look))

    def _load_state(self) -> None:
        state, self._state_to_load = self._state_to_load, None
        if state is not None and self._remembers is not None:
            self._remembers.load_state(msgspec.msgpack.decode(state))

    def _save_state(self, now_ns: int) -> None:
        if self._remembers is None:
            return
        last_ns = self._state_saved_ns
        if last_ns is None or now_ns - last_ns >= STATE_SECONDS * NS:
            self._state_saved_ns = now_ns
            self._state = msgspec.msgpack.encode(self._remembers.save_state())

    def _success_age(self) -> float | None:
        if self._last_success_ns is None:
            return None
        return (self._host.monotonic_ns() - self._last_success_ns) / 1e9

    def _log_failure(self, error: Exception) -> None:
        now_ns, last_ns = self._host.monotonic_ns(), self._failure_logged_ns
        if last_ns is None or now_ns - last_ns >= FAILURE_LOG_SECONDS * NS:
            self._failure_logged_ns = now_ns
            log.error(
                "source %s broke; this is a bug of ours, please report it with this trace",
                self.name,
                exc_info=error,
            )


def describe(readings: Iterable[Reading], settings: SourceSettings) -> str:
    """What a source found, for the line that the agent writes when it starts."""
    counts: Counter[str] = Counter()
    ports: set[tuple[str, str]] = set()
    for reading in readings:
        if isinstance(reading, Sample):
            counts["sample"] += 1
            labels = dict(reading.series.labels)
            if "device" in labels:
                ports.add((labels["device"], labels.get("port", "")))
        elif isinstance(reading, Missing):
            counts["missing"] += 1
        else:
            counts["record"] += 1
    things = [("port", len(ports)), ("sample", counts["sample"]), ("record", counts["record"])]
    found = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in things if count]
    found += [f"{counts['missing']} missing"] if counts["missing"] else []
    return f"found {', '.join(found) or 'nothing'}; read every {settings.interval_seconds:g} s"


# --- all sources -------------------------------------------------------------------------------


def run_ticks(
    runner: Runner, *, phase: int, monotonic_ns: Callable[[], int], wait: Callable[[float], bool]
) -> None:
    """Tick on the grid, and look between, until ``wait(seconds)`` returns True (stop)."""
    now_ns = monotonic_ns()
    tick_ns = first_tick_ns(now_ns, interval_ns=runner.interval_ns, phase=phase)
    look_ns = tick_ns if runner.look_ns is None else now_ns
    while not wait(max(0, min(tick_ns, look_ns) - now_ns) / NS):
        if look_ns < tick_ns and runner.look_ns is not None:
            runner.look()
            now_ns = monotonic_ns()
            # Looks that passed unused are no loss: the next one sees what they would have seen.
            look_ns, _ = next_tick_ns(look_ns, now_ns, runner.look_ns)
            continue
        runner.tick()
        now_ns = monotonic_ns()
        tick_ns, missed = next_tick_ns(tick_ns, now_ns, runner.interval_ns)
        runner.count_missed(missed)
        look_ns = tick_ns if runner.look_ns is None else now_ns + runner.look_ns


class Scheduler:
    """The threads of all sources, and the watchdog over them."""

    def __init__(self, runners: list[Runner], host: Host, host_name: str) -> None:
        self._runners = runners
        self._host = host
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=run_ticks,
                args=(runner,),
                kwargs={
                    "phase": phase_ns(host_name, runner.name, runner.interval_ns),
                    "monotonic_ns": host.monotonic_ns,
                    "wait": self._stop.wait,
                },
                name=f"source-{runner.name}",
                daemon=True,  # a read that hangs in the kernel must not keep the agent from ending
            )
            for runner in runners
        ]
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        for thread in (*self._threads, self._watchdog):
            thread.start()

    def stop(self, seconds: float) -> list[str]:
        """Start no more reads and wait for those that run; the sources that did not end in time."""
        self._stop.set()
        deadline_ns = self._host.monotonic_ns() + int(seconds * NS)
        for thread in (*self._threads, self._watchdog):
            left_ns = deadline_ns - self._host.monotonic_ns()
            thread.join(max(0, left_ns) / NS)
        pairs = zip(self._runners, self._threads, strict=True)
        return [runner.name for runner, thread in pairs if thread.is_alive()]

    def states(self) -> dict[str, bytes]:
        """State that sources want kept over a restart, msgpack by source."""
        return {runner.name: runner.state for runner in self._runners if runner.state is not None}

    def _watch(self) -> None:
        shortest = min((runner.settings.timeout_seconds for runner in self._runners), default=1.0)
        while not self._stop.wait(max(WATCH_SECONDS_MIN, shortest / WATCH_FRACTION)):
            for runner in self._runners:
                runner.watch()
