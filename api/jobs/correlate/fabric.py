"""How all links of a fabric fared, moment by moment: use, errors, pause, up or down.

A moment is a stretch of time, from the one before to its own end. Counters are rates from the last
reading of one to the last reading of the next, so that nothing that happened in between is lost
(PromQL's `rate` does not see what is counted between two of its windows); of the state the lowest
value counts. Both ends of a cable are read, each of which sees its own side: what one sends the
other receives, and the receiver counts damaged frames.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alerts.window.columns import Floats, Ints
from alerts.window.model import Grid, Ports
from api.data.store.store import Store
from api.fabric.model import Link, Topology
from api.jobs.correlate.readings import SAMPLES_SETTINGS, Choice, GridReader, Samples, Target
from api.jobs.correlate.things import NIC, PORT, read_ports
from api.promql.fetch import decimal_seconds, read_grid
from collector.contract.identity import metric_id
from collector.contract.units import NS, NS_PER_MS

FRAME_NS_MIN = NS
"""A moment is no shorter: no agent reads these counters more often."""
RATE_MS_MIN = 30_000
"""A rate is over no less: switches are polled every 10 or 30 seconds, and it needs two readings."""
STALE_MS = 60_000
"""How old the last reading of a moment may be."""
PAUSE_BITS = 65_535 * 512
"""The longest time that a pause frame stops a port, in bits at its rate (IEEE 802.3, 31B)."""
ACTIVE = 4.0
"""`fabric_port_state` from which on a port carries traffic."""
NO_ERROR = 255
"""In the place of a kind of error, where there is none."""

Codes = npt.NDArray[np.uint8]

ERRORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "symbol_errors": (("symbol_errors_total", "phy_receive_symbol_errors_total"),),
    "damaged_packets": (
        ("receive_errors_total", "receive_crc_errors_total", "phy_receive_crc_errors_total"),
    ),
    "uncorrectable_blocks": (("phy_receive_fec_uncorrectable_blocks_total",),),
    "discarded_packets": (
        ("transmit_discards_total", "phy_transmit_discards_total", "queue_discarded_packets_total"),
        ("receive_discards_total", "phy_receive_discards_total"),
    ),
}
"""Kinds of errors, and their counters. Counters in one bracket count the same, or include one
another: the highest counts. Brackets are added up."""
KINDS = tuple(ERRORS)

SUMMED = (
    "transmit_bytes_total", "receive_bytes_total", "symbol_errors_total", "receive_errors_total",
    "receive_crc_errors_total", "transmit_discards_total", "receive_discards_total",
)  # fmt: skip
PAUSED = "receive_pause_seconds_total"
CREDITLESS = "transmit_wait_seconds_total"
PAUSE_FRAMES = "receive_pause_frames_total"
STATE, UP = "state", "up"

LINK_PORTS = Target(
    (
        *(Choice(PORT + name, name) for name in (*SUMMED, "queue_discarded_packets_total")),
        # Priorities are paused at the same time: the longest counts.
        *(
            Choice(PORT + name, name, is_max=True)
            for name in (PAUSED, CREDITLESS, PAUSE_FRAMES, STATE, "rate_bits_per_second")
        ),
    ),
    ("host", "device", "port"),
)
LINK_NICS = Target(
    (
        *(Choice(NIC + name, name) for name in ("transmit_bytes_total", "receive_bytes_total")),
        *(
            Choice(NIC + name, name)
            for name in (
                "receive_errors_total",
                "phy_receive_symbol_errors_total",
                "phy_receive_crc_errors_total",
                "phy_receive_fec_uncorrectable_blocks_total",
                "phy_transmit_discards_total",
                "phy_receive_discards_total",
            )
        ),
        *(
            Choice(NIC + name, name, is_max=True)
            for name in (PAUSED, PAUSE_FRAMES, UP, "speed_bits_per_second")
        ),
    ),
    ("host", "device"),
)
TARGETS = (LINK_PORTS, LINK_NICS)

COUNTERS_SQL = """
    SELECT metric, series, toUnixTimestamp64Milli(max(time)) AS last_ms,
           timeSeriesLastToGrid(fromUnixTimestamp64Milli({first_ms:Int64}),
                                fromUnixTimestamp64Milli({to_ms:Int64}),
                                {step:Decimal64(3)}, {window:Decimal64(3)})(time, value) AS cells,
           timeSeriesLastToGrid(fromUnixTimestamp64Milli({first_ms:Int64}),
                                fromUnixTimestamp64Milli({to_ms:Int64}),
                                {step:Decimal64(3)}, {window:Decimal64(3)})(
               time, toFloat64(toUnixTimestamp64Milli(time))) AS times
    FROM samples
    WHERE metric IN {metrics:Array(UInt32)}
      AND time > fromUnixTimestamp64Milli({from_ms:Int64})
      AND time <= fromUnixTimestamp64Milli({to_ms:Int64}) AND isFinite(value)
    GROUP BY metric, series
"""
GAUGES_SQL = """
    SELECT metric, series, toUnixTimestamp64Milli(max(time)) AS last_ms,
           timeSeriesMinToGrid(fromUnixTimestamp64Milli({first_ms:Int64}),
                               fromUnixTimestamp64Milli({to_ms:Int64}),
                               {step:Decimal64(3)}, {window:Decimal64(3)})(time, value) AS cells
    FROM samples
    WHERE metric IN {metrics:Array(UInt32)}
      AND time > fromUnixTimestamp64Milli({from_ms:Int64})
      AND time <= fromUnixTimestamp64Milli({to_ms:Int64}) AND isFinite(value)
    GROUP BY metric, series
"""
ESTIMATE_SQL = """
    EXPLAIN ESTIMATE SELECT series FROM samples
    WHERE metric IN {metrics:Array(UInt32)}
      AND time > fromUnixTimestamp64Milli({from_ms:Int64})
      AND time <= fromUnixTimestamp64Milli({to_ms:Int64})
"""
"""Samples in the parts that would be read, from the index alone."""


class FabricState(msgspec.Struct, frozen=True, kw_only=True):
    """Matrices of [moments, links]; NaN where no agent read the counter."""

    grid: Grid
    a_to_b: Floats
    """Share of the link's rate that is sent from end ``a`` to end ``b``."""
    b_to_a: Floats
    errors: Floats
    """A second, of all kinds and both ends."""
    worst: Codes
    """The kind that most of them are, a place in KINDS; NO_ERROR where there are none."""
    paused: Floats
    """Share of time in which an end may not send: the longer of both."""
    up: Floats
    """1 if both ends were up at every reading, else 0."""


def frames_of(from_ns: int, to_ns: int, frames: int) -> Grid:
    """So many moments, or fewer where they would be too short; the last one ends with the time."""
    # Whole milliseconds, as samples have them.
    step_ns = -(-max((to_ns - from_ns) // frames, FRAME_NS_MIN) // 1_000_000) * 1_000_000
    count = max(1, min(frames, round((to_ns - from_ns) / step_ns)))
    return Grid(to_ns - count * step_ns, step_ns, count)


class FabricReader:
    """Reads the state of links; thread-safe, one at a time. Caches the meaning of series."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = GridReader(store)
        self._lock = threading.Lock()
        self._counters: list[int] = []
        self._gauges: list[int] = []
        for target in TARGETS:
            for name, meant in self._reader.known(target).names.items():
                (self._counters if meant.is_counter else self._gauges).append(metric_id(name))

    def estimate(self, grid: Grid) -> int:
        """Upper estimate of the samples in this time; 0 if the store gives none."""
        parameters = {
            "metrics": [*self._counters, *self._gauges],
            "from_ms": grid.start_ns // NS_PER_MS,
            "to_ms": grid.end_ns // NS_PER_MS,
        }
        rows = self._store.query(ESTIMATE_SQL, parameters).to_pylist()
        return sum(int(row["rows"]) for row in rows)

    def read(self, topology: Topology, links: Sequence[Link], grid: Grid) -> FabricState:
        with self._lock:
            samples = put_together([self._read_counters(grid), self._read_gauges(grid)], grid)
            ports = read_ports(self._reader, topology, grid, samples, TARGETS)
        return state_of(ports, links)

    def _read_counters(self, grid: Grid) -> tuple[pa.Table, Floats]:
        step_ms = grid.step_ns // NS_PER_MS
        back = -(-RATE_MS_MIN // step_ms)
        table = self._ask(COUNTERS_SQL, self._counters, grid, STALE_MS, back)
        steps = grid.cells + back
        return table, rates_between(
            matrix_of(table["cells"], steps), matrix_of(table["times"], steps), back
        )

    def _read_gauges(self, grid: Grid) -> tuple[pa.Table, Floats]:
        window_ms = max(grid.step_ns // NS_PER_MS, STALE_MS)
        table = self._ask(GAUGES_SQL, self._gauges, grid, window_ms, 0)
        return table, matrix_of(table["cells"], grid.cells)

    def _ask(
        self, sql: str, metrics: Sequence[int], grid: Grid, window_ms: int, back: int
    ) -> pa.Table:
        """The series at the end of each moment, and of ``back`` moments before the first."""
        step_ms = grid.step_ns // NS_PER_MS
        first_ms = grid.start_ns // NS_PER_MS + step_ms * (1 - back)
        parameters = {
            "metrics": metrics,
            "from_ms": first_ms - window_ms,
            "first_ms": first_ms,
            "to_ms": grid.end_ns // NS_PER_MS,
            "step": decimal_seconds(step_ms),
            "window": decimal_seconds(window_ms),
        }
        return self._store.query(sql, parameters, settings=SAMPLES_SETTINGS)


def matrix_of(column: pa.ChunkedArray, steps: int) -> Floats:
    """[series, steps] of a column of arrays; NaN where there is nothing."""
    if not len(column):
        return np.zeros((0, steps))
    values, is_there = read_grid(column, steps)
    return np.where(is_there, values, np.nan)


def rates_between(values: Floats, time_ms: Floats, back: int) -> Floats:
    """Increases a second from the reading ``back`` steps before to each; NaN without a new one."""
    seconds = (time_ms[:, back:] - time_ms[:, :-back]) / 1000
    grown = values[:, back:] - values[:, :-back]
    # A counter that was reset has grown by its value, at least.
    grown = np.where(grown < 0, values[:, back:], grown)
    rates: Floats = np.full(grown.shape, np.nan)
    np.divide(grown, seconds, out=rates, where=seconds > 0)
    return rates


def put_together(parts: Sequence[tuple[pa.Table, Floats]], grid: Grid) -> Samples:
    metric, series, last_ms = (
        np.concatenate([table[name].to_numpy() for table, _ in parts])
        for name in ("metric", "series", "last_ms")
    )
    order = np.lexsort((series, metric))
    nothing = np.zeros(0)
    last_ms = last_ms.astype(np.int64)[order]
    return Samples(
        grid=grid,
        metric=metric[order].astype(np.uint32),
        series=series[order].astype(np.uint64),
        first_ms=last_ms,
        last_ms=last_ms,
        lowest=nothing,
        is_still=nothing.astype(bool),
        start=np.zeros(len(order) + 1, dtype=np.int64),
        time_ms=nothing.astype(np.int64),
        value=nothing,
        on_grid=np.concatenate([values for _, values in parts])[order],
    )


# From ports to links ------------------------------------------------------------------------------


def state_of(ports: Ports, links: Sequence[Link]) -> FabricState:
    ends = [rows_of_ends(ports, links, end) for end in ("a", "b")]
    rate = rates_of(ports, links, ends)
    sent, received, paused = (
        [at_end(ports, values, rows) for rows in ends]
        for values in (
            ports.values("transmit_bytes_total"),
            ports.values("receive_bytes_total"),
            paused_of(ports),
        )
    )
    errors, worst = errors_of(ports, ends)
    up = [at_end(ports, up_of(ports), rows) for rows in ends]
    return FabricState(
        grid=ports.grid,
        a_to_b=np.fmax(sent[0], received[1]) * 8 / rate,
        b_to_a=np.fmax(sent[1], received[0]) * 8 / rate,
        errors=errors,
        worst=worst,
        paused=np.fmax(*paused),
        up=np.fmin(*up),
    )


def rows_of_ends(ports: Ports, links: Sequence[Link], end: str) -> Ints:
    """The row of one end of each link; -1 if the port is neither read nor cabled."""
    ids = [getattr(link.id, end) for link in links]
    rows = [ports.row_of.get((port.host, port.device, port.port), -1) for port in ids]
    return np.array(rows, dtype=np.int64)


def at_end(ports: Ports, values: Floats, rows: Ints) -> Floats:
    """[moments, links] of one end of each link, from [ports, moments]."""
    found = np.full((ports.grid.cells, len(rows)), np.nan)
    known = rows >= 0
    found[:, known] = values[rows[known]].T
    return found


def rates_of(ports: Ports, links: Sequence[Link], ends: Sequence[Ints]) -> Floats:
    """What each link can carry, in bits a second: the lower of its ends'. NaN: unknown."""
    reported = np.array([link.rate_bits_per_second or np.nan for link in links])
    rate = ports.rate_bits_per_second
    own = [np.where(rows >= 0, rate[rows] if len(rate) else np.nan, np.nan) for rows in ends]
    lower = np.fmin(*own)
    return np.where(np.isnan(lower), reported, lower)


def up_of(ports: Ports) -> Floats:
    """1 for a port that was up all the time, 0 for another."""
    state, interface = ports.values(STATE), ports.values(UP)
    by_state = np.where(np.isnan(state), np.nan, state >= ACTIVE)
    return np.where(np.isnan(by_state), interface, by_state)


def paused_of(ports: Ports) -> Floats:
    """By pause frames or lack of credit; from frames alone, the longest time they can take."""
    paused = np.fmax(ports.values(PAUSED), ports.values(CREDITLESS))
    frames = ports.values(PAUSE_FRAMES) * PAUSE_BITS / ports.rate_bits_per_second[:, None]
    return np.minimum(np.where(np.isnan(paused), frames, paused), 1.0)


def errors_of(ports: Ports, ends: Sequence[Ints]) -> tuple[Floats, Codes]:
    """[moments, links] of errors a second at both ends together, and which kind most are."""
    shape = (ports.grid.cells, len(ends[0]))
    total, most = np.full(shape, np.nan), np.zeros(shape)
    worst = np.full(shape, NO_ERROR, dtype=np.uint8)
    for code, brackets in enumerate(ERRORS.values()):
        found = np.full(shape, np.nan)
        for names in brackets:
            at_ports = np.fmax.reduce([ports.values(name) for name in names])
            for rows in ends:
                found = added(found, at_end(ports, at_ports, rows))
        is_most = np.nan_to_num(found) > most
        worst[is_most], most[is_most] = code, found[is_most]
        total = added(total, found)
    return total, worst


def added(one: Floats, other: Floats) -> Floats:
    """The sum; where only one is known, that one."""
    both = one + other
    return np.where(np.isnan(both), np.fmax(one, other), both)
