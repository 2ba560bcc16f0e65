"""Microbursts: byte counters of fabric ports, sampled every few milliseconds.

A link that is a tenth full on average may be full for five milliseconds in every fifty, and it is
those that fill a switch's buffer. A process of its own does the sampling (`collector.bursts`); this
source chooses what it samples and turns its messages into readings: one a second for each counter,
an event for each burst, and raw samples where a client requested them.

It runs only where there are RDMA ports, or where interfaces are named: elsewhere it costs nothing.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from collector.bursts.plan import (
    COUNTERS_MAX,
    NS_PER_MS,
    NS_PER_SECOND,
    RECEIVE,
    TRANSMIT,
    CounterPlan,
    Plan,
)
from collector.bursts.process import FastSampler, Message
from collector.bursts.readings import CounterSeries, SamplerSeries, burst_event
from collector.contract.errors import HostError
from collector.contract.measurement import MeasurementKind, kind_requested
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import WORD_BYTES
from collector.contract.wire import CaptureRequest
from collector.doors.host import Host
from collector.reading.captures import CaptureQueue, capture_event
from collector.reading.sysfs import list_or_nothing, read_label
from collector.sources import SourceSettings

RDMA_CLASS = "sys/class/infiniband"
NET_CLASS = "sys/class/net"

DISCOVER_SECONDS = 60
"""How long the choice of counters is believed. Another choice needs another sampler, and its ring
is lost: a port that flaps must not cause that, so a line rate is only ever corrected upwards."""
STALE_NS = 3 * NS_PER_SECOND
"""How long the last summary is shown when a read comes between two of them."""
CAPTURE_SECONDS_MAX = 300.0
"""After its last sample, what a capture may take to arrive here; then it is reported as lost. Half
a million samples take twenty seconds."""
LIFESPAN_MS_MAX = 60_000
"""Of hw_counters; more is a mistake in the file."""

HARDWARE = ((RECEIVE, "rx_bytes"), (TRANSMIT, "tx_bytes"))
"""In hw_counters of efa, bnxt_re and others; all of them are fetched in one go."""
CLASSIC = ((RECEIVE, "port_rcv_data"), (TRANSMIT, "port_xmit_data"))
"""In counters: one firmware command each."""

_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec")


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `bursts`."""

    interval_seconds: float = 1.0
    devices: tuple[str, ...] = ("*",)
    """RDMA devices whose ports are sampled, as shell patterns."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces that are sampled as well, as shell patterns. RDMA traffic is not in their
    counters."""
    period_seconds: Annotated[float, Meta(ge=0.001, le=1.0)] = 0.001
    """From one read to the next; a counter that does not allow it is read less often."""
    threshold: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.5
    """Share of the line rate above which a burst begins. Half is what the literature takes (Zhang
    and others, IMC 2017)."""
    release: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.25
    """Share of the line rate below which a burst ends."""
    windows_min: Annotated[int, Meta(ge=1, le=1000)] = 2
    """Windows above the threshold that make a burst. One alone may be a driver that hands over its
    numbers late."""
    line_rates: dict[str, float] = field(default_factory=dict)
    """Bits per second by device, for devices that report none or a wrong one (virtual ones)."""
    ring_seconds: Annotated[float, Meta(gt=0.0, le=300.0)] = 30.0
    """How far back raw samples can be asked for."""
    cpu: int = -1
    """The processor that the sampler stays on; -1: the last one that the agent may use."""
    priority: Annotated[int, Meta(ge=0, le=99)] = 0
    """Of SCHED_FIFO, if the agent may; 0: an ordinary process."""


class Bursts:
    """The source; it keeps the sampler and the series of what it samples."""

    name: ClassVar[str] = "bursts"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._plan = self._make_plan(())
        self._left_out: list[Missing] = []
        self._rates: dict[tuple[str, str], float] = {}
        self._sampler: FastSampler | None = None
        self._counters: list[CounterSeries] = []
        self._own = SamplerSeries()
        self._discover_ns = 0
        self._restarts = 0
        self._latest: list[Reading] = []
        self._latest_ns = 0
        self._requests = CaptureQueue()
        self._running: dict[str, int] = {}
        self._raw: dict[tuple[str, int], Series] = {}

    # --- the seams -----------------------------------------------------------------------------

    def read(self, host: Host) -> Iterator[Reading]:
        """The sampler's messages since the last read; starts it where there is none."""
        if host.monotonic_ns() >= self._discover_ns:
            self._discover(host)
        yield from self._left_out
        if self._sampler is None and self._plan.counters:
            try:
                self._sampler = host.sampler(self._plan)
            except HostError as error:
                if error.reason is not UnreadReason.ABSENT:
                    raise
        if self._sampler is None:
            yield from self._refuse_requests(host)
            return
        yield from self._take(host, self._sampler)

    def capture(self, request: CaptureRequest) -> None:
        """Take a request for raw samples, from any thread; the same again changes nothing."""
        if kind_requested(request.devices) is MeasurementKind.BURST_CAPTURE:
            self._requests.put(request)

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._restarts += self._sampler.restarts
            self._sampler = None

    # --- the choice of counters ------------------------------------------------------------------

    def _make_plan(self, counters: tuple[CounterPlan, ...]) -> Plan:
        settings = self._settings
        return Plan(
            counters=counters,
            period_ns=round(settings.period_seconds * NS_PER_SECOND),
            cpu=settings.cpu,
            priority=settings.priority,
            threshold=settings.threshold,
            release=min(settings.release, settings.threshold),
            windows_min=settings.windows_min,
            ring_seconds=settings.ring_seconds,
        )

    def _discover(self, host: Host) -> None:
        """Choose the counters; another choice ends the sampler that runs."""
        self._discover_ns = host.monotonic_ns() + DISCOVER_SECONDS * NS_PER_SECOND
        found: list[CounterPlan] = []
        absent: list[Missing] = []
        for device in list_or_nothing(host, RDMA_CLASS):
            if any(fnmatch(device, pattern) for pattern in self._settings.devices):
                for port in list_or_nothing(host, f"{RDMA_CLASS}/{device}/ports"):
                    found += self._rdma_counters(host, device, port, absent)
        for interface in list_or_nothing(host, NET_CLASS):
            if any(fnmatch(interface, pattern) for pattern in self._settings.interfaces):
                found += self._interface_counters(host, interface)
        for counter in found[COUNTERS_MAX:]:
            detail = f"over COUNTERS_MAX = {COUNTERS_MAX} counters"
            absent.append(Missing(CounterSeries(counter).mean, UnreadReason.NOT_SUPPORTED, detail))
        plan = self._make_plan(tuple(found[:COUNTERS_MAX]))
        if absent != self._left_out:
            self._left_out = absent
        if plan != self._plan:
            self.close()
            self._plan = plan
            self._counters = [CounterSeries(counter) for counter in plan.counters]
            self._latest = []

    def _rdma_counters(
        self, host: Host, device: str, port: str, absent: list[Missing]
    ) -> list[CounterPlan]:
        """Both directions of a port, by whichever files it has."""
        path = f"{RDMA_CLASS}/{device}/ports/{port}"
        rate = self._line_rate(device, port, parse_rate(read_label(host, f"{path}/rate")))
        hardware = set(list_or_nothing(host, f"{path}/hw_counters"))
        classic = set(list_or_nothing(host, f"{path}/counters"))
        counters: list[CounterPlan] = []
        for (direction, in_hardware), (_, in_classic) in zip(HARDWARE, CLASSIC, strict=True):
            counter = CounterPlan("", device, port, direction, 1, 0, rate)
            if in_hardware in hardware:
                floor_ns = parse_lifespan(read_label(host, f"{path}/hw_counters/lifespan"))
                place = f"{path}/hw_counters/{in_hardware}"
                counters.append(counter._replace(path=place, floor_ns=floor_ns))
            elif in_classic in classic:
                place = f"{path}/counters/{in_classic}"
                counters.append(counter._replace(path=place, factor=WORD_BYTES))
            else:
                detail = f"neither {in_hardware} nor {in_classic} is there"
                absent.append(Missing(CounterSeries(counter).mean, UnreadReason.ABSENT, detail))
        return counters

    def _interface_counters(self, host: Host, interface: str) -> list[CounterPlan]:
        path = f"{NET_CLASS}/{interface}"
        rate = self._line_rate(interface, "", parse_speed(read_label(host, f"{path}/speed")))
        return [
            CounterPlan(f"{path}/statistics/{file}", interface, "", direction, 1, 0, rate)
            for direction, file in HARDWARE
        ]

    def _line_rate(self, device: str, port: str, reported: float) -> float:
        """Bytes per second: the setting, or the highest rate that the port has reported."""
        if (set_bits := self._settings.line_rates.get(device, 0.0)) > 0:
            return set_bits / 8
        rate = max(reported, self._rates.get((device, port), 0.0))
        self._rates[device, port] = rate
        return rate

    # --- messages of the sampler -----------------------------------------------------------------

    def _take(self, host: Host, sampler: FastSampler) -> Iterator[Reading]:
        yield from self._pass_requests(host, sampler)
        before = sampler.restarts
        messages = sampler.poll()
        now_ns = host.now_ns()
        yield Sample(self._own.up, float(sampler.is_up), now_ns)
        yield Sample(self._own.restarts, self._restarts + sampler.restarts, now_ns)
        reports = [message for message in messages if "counters" in message]
        for report in reports:
            self._latest = list(self._report(report))
            self._latest_ns = host.monotonic_ns()
            yield from self._latest
            yield from self._burst_events(report)
        if not reports and host.monotonic_ns() - self._latest_ns < STALE_NS:
            yield from self._latest  # the same readings, of the same moment
        for message in messages:
            if "capture" in message:
                yield from self._captured(message, now_ns)
        yield from self._lose_captures(host, has_restarted=sampler.restarts != before)

    def _report(self, report: Message) -> Iterator[Reading]:
        time_ns = int(report["time"])
        yield from self._own.readings(report, time_ns)
        for series, summary in zip(self._counters, report["counters"], strict=True):
            yield from series.readings(summary, time_ns)

    def _burst_events(self, report: Message) -> Iterator[Event]:
        offset_ns = int(report["time"]) - int(report["monotonic"])
        for place, burst in report["bursts"]:
            counter = self._plan.counters[place]
            yield burst_event(counter, burst, offset_ns, self._plan.threshold)

    # --- captures ------------------------------------------------------------------------------

    def _pass_requests(self, host: Host, sampler: FastSampler) -> Iterator[Reading]:
        for request in self._requests.take():
            asked = {
                "id": request.id,
                "before": request.seconds_before,
                "after": request.seconds_after,
                "devices": request.devices,
            }
            if sampler.capture(asked):
                patience = request.seconds_after + CAPTURE_SECONDS_MAX
                self._running[request.id] = host.monotonic_ns() + int(patience * NS_PER_SECOND)
            else:
                yield capture_event(request.id, host.now_ns(), "refused", "no sampler runs")

    def _refuse_requests(self, host: Host) -> Iterator[Reading]:
        for request in self._requests.take():
            yield capture_event(
                request.id, host.now_ns(), "refused", "this host has no counter that is sampled"
            )

    def _captured(self, message: Message, now_ns: int) -> Iterator[Reading]:
        capture = str(message["capture"])
        if not message.get("end"):
            yield from self._raw_samples(capture, message)
            return
        self._running.pop(capture, None)
        self._raw = {key: series for key, series in self._raw.items() if key[0] != capture}
        if refusal := message.get("refusal"):
            yield capture_event(capture, now_ns, "refused", str(refusal))
        else:
            yield capture_event(capture, now_ns, "finished", samples=int(message["samples"]))

    def _raw_samples(self, capture: str, piece: Mapping[str, Any]) -> Iterator[Sample]:
        """The samples of a piece; of each millisecond the last, because time is kept in those."""
        place, offset_ns = int(piece["counter"]), int(piece["offset"])
        key = capture, place
        if key not in self._raw:
            self._raw[key] = self._counters[place].raw(capture)
        times, values = array("q"), array("Q")
        times.frombytes(bytes.fromhex(piece["times"]))
        values.frombytes(bytes.fromhex(piece["values"]))
        last: dict[int, tuple[int, int]] = {}
        for time_ns, value in zip(times, values, strict=True):
            wall_ns = time_ns + offset_ns
            last[wall_ns // NS_PER_MS] = wall_ns, value
        for wall_ns, value in last.values():
            yield Sample(self._raw[key], value, wall_ns)

    def _lose_captures(self, host: Host, *, has_restarted: bool) -> Iterator[Event]:
        """Captures that will not come any more: their sampler has died, or they took too long."""
        now_ns = host.monotonic_ns()
        for capture, deadline_ns in list(self._running.items()):
            if has_restarted or now_ns > deadline_ns:
                del self._running[capture]
                why = "the sampler ended" if has_restarted else "it took too long"
                yield capture_event(capture, host.now_ns(), "lost", why)


SOURCE = Bursts


def parse_rate(text: str) -> float:
    """An RDMA port's rate in bytes per second; 0 if it reports none.

    >>> parse_rate("400 Gb/sec (4X NDR)"), parse_rate("")
    (50000000000.0, 0.0)
    """
    match = _RATE.match(text)
    return float(match[1]) * 1e9 / 8 if match else 0.0


def parse_speed(text: str) -> float:
    """An interface's speed in bytes per second; 0 if it reports none (-1).

    >>> parse_speed("100000"), parse_speed("-1")
    (12500000000.0, 0.0)
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= len("4294967295")
    return int(text) * 1e6 / 8 if is_number else 0.0


def parse_lifespan(text: str) -> int:
    """A lifespan in nanoseconds; the file holds milliseconds.

    >>> parse_lifespan("10"), parse_lifespan("soon")
    (10000000, 0)
    """
    is_number = text.isascii() and text.isdigit() and int(text[:9]) <= LIFESPAN_MS_MAX
    return int(text[:9]) * NS_PER_MS if is_number else 0
