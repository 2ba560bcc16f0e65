"""How all links of a fabric fared, moment by moment: use, errors, pause, up or down.

A moment is a stretch of time, from the one before to its own end. Counters are rates from the last
reading of one to the last reading of the next, so that nothing that happened in between is lost
(PromQL's `rate` does not see what is counted between two of its windows); of the state the lowest
value counts. Both ends of a cable are read, each of which sees its own side: what one sends the
other receives, and the receiver counts damaged frames.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alerts.window.columns import Floats, Ints
from alerts.window.model import Grid, Ports
from api.base.kept import Kept
from api.data.store.rings import Held
from api.data.store.store import Store
from api.fabric.model import Link, Topology
from api.jobs.correlate.meanings import Choice, Target
from api.jobs.correlate.readings import SAMPLES_SETTINGS, GridReader, Samples
from api.jobs.correlate.things import NIC, PORT, read_ports
from api.promql.fetch import decimal_seconds, read_grid
from collector.contract.identity import PortId, metric_id
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

FRAMES_BYTES_MAX = 64 << 20
"""Of moments that are kept: half an hour of 1,024 links takes 1.3 MB. Least recently used go."""
METRICS_AT_ONCE = 4
"""Metrics that one question to the store is about, of half an hour or longer; of less time more.
Of all at once the engine would hold half an hour of 64 hosts in 800 MB."""
HALF_HOUR_MS = 1_800_000
MATRICES = ("a_to_b", "b_to_a", "errors", "worst", "paused", "paused_at_most", "up")

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
PAUSING = "transmit_pause_seconds_total"
"""How long a port stopped the one at the other end of its cable: that one's pause."""
CREDITLESS = "transmit_wait_seconds_total"
PAUSE_FRAMES = "receive_pause_frames_total"
STATE, UP = "state", "up"

LINK_PORTS = Target(
    (
        *(Choice(PORT + name, name) for name in (*SUMMED, "queue_discarded_packets_total")),
        # Priorities are paused at the same time: the longest counts.
        *(
            Choice(PORT + name, name, is_max=True)
            for name in (PAUSED, PAUSING, CREDITLESS, PAUSE_FRAMES, STATE, "rate_bits_per_second")
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
            for name in (PAUSED, PAUSING, PAUSE_FRAMES, UP, "speed_bits_per_second")
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
STORED_SQL = """
    SELECT DISTINCT metric_name AS name FROM series
    WHERE metric_name IN {names:Array(String)} AND day >= toDate({from_s:Int64})
      AND day <= toDate({to_s:Int64})
"""
ESTIMATE_SQL = """
    EXPLAIN ESTIMATE SELECT series FROM {table}
    WHERE metric IN {{metrics:Array(UInt32)}}
      AND time > fromUnixTimestamp64Milli({{from_ms:Int64}})
      AND time <= fromUnixTimestamp64Milli({{to_ms:Int64}})
"""
"""Samples in the parts that would be read, from the index alone; of one shard."""


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
    """Share of time in which an end may not send, where time was counted: the longer of both."""
    paused_at_most: Floats
    """Longer than that where an end counted pause frames and no time; NaN: no longer."""
    up: Floats
    """1 if both ends were up at every reading, else 0."""


def frames_of(from_ns: int, to_ns: int, frames: int) -> Grid:
    """So many moments, or fewer where they would be too short; the last one ends with the time."""
    # Whole milliseconds, as samples have them.
    step_ns = -(-max((to_ns - from_ns) // frames, FRAME_NS_MIN) // 1_000_000) * 1_000_000
    count = max(1, min(frames, round((to_ns - from_ns) / step_ns)))
    return Grid(to_ns - count * step_ns, step_ns, count)


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One moment: a row of each matrix. ``number``: of the latest insert when it was read."""

    number: int
    rows: dict[str, npt.NDArray[Any]]

    @property
    def size(self) -> int:
        return sum(row.nbytes + 100 for row in self.rows.values())


class OnGrid(msgspec.Struct, frozen=True):
    """Series with a value at each moment."""

    metric: npt.NDArray[np.uint32]
    series: npt.NDArray[np.uint64]
    last_ms: Ints
    values: Floats


class FabricReader:
    """Reads the state of links; thread-safe, one at a time. Caches the meaning of series.

    A moment that is over does not change unless samples come late: its row is kept.
    """

    def __init__(self, store: Store, bytes_max: int = FRAMES_BYTES_MAX) -> None:
        self._store = store
        self._reader = GridReader(store)
        self._lock = threading.Lock()
        self.kept: Kept[Frame] = Kept(bytes_max)
        self._counters: list[int] = []
        self._gauges: list[int] = []
        self._names: dict[int, str] = {}
        for target in TARGETS:
            for name, meant in self._reader.known(target).names.items():
                (self._counters if meant.is_counter else self._gauges).append(metric_id(name))
                self._names[metric_id(name)] = name
        store.known.watch_samples([*self._counters, *self._gauges])

    def estimate(self, grid: Grid) -> int:
        """Upper estimate of the samples in this time; 0 if the store gives none."""
        parameters = {
            "metrics": [*self._counters, *self._gauges],
            "from_ms": grid.start_ns // NS_PER_MS,
            "to_ms": grid.end_ns // NS_PER_MS,
        }
        placement = self._store.placement
        sql = ESTIMATE_SQL.format(table=placement.local("samples"))
        rows = self._store.query(sql, parameters).to_pylist()
        # Hosts are spread evenly, so each shard has about as many.
        return sum(int(row["rows"]) for row in rows) * placement.shards

    def read(
        self,
        topology: Topology,
        links: Sequence[Link],
        grid: Grid,
        *,
        cables: Hashable = None,
        check: Callable[[Grid], None] = lambda _: None,
    ) -> FabricState:
        """``cables`` names the links, their rates and interfaces; None: no moment is kept.

        ``check`` is called before a time is read, and may raise.
        """
        touched = self._store.touched_samples
        is_kept = cables is not None and touched.is_complete
        with self._lock:
            # Before it is read: what is written meanwhile may not be in it.
            number = touched.number
            ends = range(grid.start_ns + grid.step_ns, grid.end_ns + 1, grid.step_ns)
            keys = [(cables, grid.step_ns, end) for end in ends]
            frames = [self._find(*key) if is_kept else None for key in keys]
            for first, last in runs_of(frames):
                part = Grid(grid.start_ns + first * grid.step_ns, grid.step_ns, last - first)
                check(part)
                for place, frame in enumerate(self._make(topology, links, part, number), first):
                    frames[place] = frame
                    if is_kept:
                        self.kept.put(keys[place], frame, frame.size)
                    self.kept.note("made")
        rows = [frame.rows for frame in frames if frame is not None]
        columns = {name: np.stack([each[name] for each in rows]) for name in MATRICES}
        return FabricState(grid=grid, **columns)

    def _find(self, cables: Hashable, step_ns: int, end_ns: int) -> Frame | None:
        touched = self._store.touched_samples
        begin_ns = end_ns - (back_of(step_ns) + 1) * step_ns - STALE_MS * NS_PER_MS
        frame = self.kept.get(
            (cables, step_ns, end_ns),
            lambda frame: touched.latest(begin_ns, end_ns) <= frame.number,
        )
        if frame is not None:
            self.kept.note("kept")
        return frame

    def _make(
        self, topology: Topology, links: Sequence[Link], grid: Grid, number: int
    ) -> list[Frame]:
        samples = put_together(self._read(grid), grid)
        ports = read_ports(self._reader, topology, grid, samples, TARGETS)
        state = state_of(ports, links, rates_by_moment(ports, topology))
        return [
            Frame(
                number=number,
                rows={name: single(getattr(state, name)[cell]) for name in MATRICES},
            )
            for cell in range(grid.cells)
        ]

    def _read(self, grid: Grid) -> list[OnGrid]:
        """From memory where it has all, else from the store, some metrics at a time."""
        step_ms, end_ms = grid.step_ns // NS_PER_MS, grid.end_ns // NS_PER_MS
        first_ms, back = grid.start_ns // NS_PER_MS + step_ms, back_of(grid.step_ns)
        moments = np.arange(first_ms, end_ms + 1, step_ms)
        before = np.arange(first_ms - back * step_ms, end_ms + 1, step_ms)
        window_ms = max(step_ms, STALE_MS)
        missing: list[int] = []
        after_ms = min(int(before[0]) - STALE_MS, first_ms - window_ms)
        counters = set(self._counters)
        found = []
        for held in self._store.recent.parts([*self._counters, *self._gauges], after_ms, missing):
            if int(held.metric[0]) in counters:
                values, times = last_of(held, before, STALE_MS)
                found.append(on_grid(held, end_ms, rates_between(values, times, back)))
            else:
                found.append(on_grid(held, end_ms, lowest_of(held, moments, window_ms)))
        stored = self._stored(missing, after_ms, end_ms)
        at_once = METRICS_AT_ONCE * max(1, HALF_HOUR_MS // (end_ms - after_ms))
        for metrics in batched([one for one in stored if one in counters], at_once):
            table = self._ask(COUNTERS_SQL, metrics, before, STALE_MS, step_ms)
            cells, times = (matrix_of(table[name], len(before)) for name in ("cells", "times"))
            found.append(of_table(table, rates_between(cells, times, back)))
        for metrics in batched([one for one in stored if one not in counters], at_once):
            table = self._ask(GAUGES_SQL, metrics, moments, window_ms, step_ms)
            found.append(of_table(table, matrix_of(table["cells"], len(moments))))
        return found

    def _stored(self, metrics: Sequence[int], from_ms: int, to_ms: int) -> list[int]:
        """Those that have series: most of the names that exporters use nobody sends."""
        if not metrics:
            return []
        names = [self._names[one] for one in metrics]
        asked = {"names": names, "from_s": from_ms // 1000, "to_s": to_ms // 1000}
        found = set(self._store.query(STORED_SQL, asked)["name"].to_pylist())
        return [one for one in metrics if self._names[one] in found]

    def _ask(
        self, sql: str, metrics: Sequence[int], moments: Ints, window_ms: int, step_ms: int
    ) -> pa.Table:
        """The series at each of these moments."""
        parameters = {
            "metrics": list(metrics),
            "from_ms": int(moments[0]) - window_ms,
            "first_ms": int(moments[0]),
            "to_ms": int(moments[-1]),
            "step": decimal_seconds(step_ms),
            "window": decimal_seconds(window_ms),
        }
        return self._store.query(sql, parameters, settings=SAMPLES_SETTINGS)


def back_of(step_ns: int) -> int:
    """Moments from one reading of a counter to the next, of which the rate is made."""
    return -(-RATE_MS_MIN * NS_PER_MS // step_ns)


def runs_of(frames: Sequence[Frame | None]) -> list[tuple[int, int]]:
    """The places without a frame that follow each other: the first, and where they end.

    >>> runs_of([None, None])
    [(0, 2)]
    """
    is_missing = np.array([False, *(frame is None for frame in frames), False])
    turns = np.flatnonzero(np.diff(is_missing.astype(np.int8))).tolist()
    return list(zip(turns[::2], turns[1::2], strict=True))


def batched(metrics: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    return (metrics[at : at + count] for at in range(0, len(metrics), count))


def single(row: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """As answers have it. A copy: a row of a matrix would hold all of it."""
    with np.errstate(over="ignore"):
        return row.astype(np.float32) if row.dtype == np.float64 else row.copy()


def last_of(held: Held, moments_ms: Ints, window_ms: int) -> tuple[Floats, Floats]:
    """[series, moments]: each series' last reading before each moment, and when that was."""
    values, times = np.full((2, len(held), len(moments_ms)), np.nan)
    rows = np.arange(len(held))
    is_finite = np.isfinite(held.value)
    for place, moment in enumerate(moments_ms.tolist()):
        inside = held.within(moment - window_ms, moment) & is_finite
        offset = np.where(inside, held.offset, 0)
        last = np.argmax(offset, axis=1)
        latest = offset[rows, last]
        seen = latest > 0
        values[seen, place] = held.value[rows, last][seen]
        times[seen, place] = latest[seen].astype(np.float64) + held.epoch_ms
    return values, times


def lowest_of(held: Held, moments_ms: Ints, window_ms: int) -> Floats:
    """[series, moments]: the lowest reading in the time before each moment."""
    found = np.full((len(held), len(moments_ms)), np.nan)
    is_finite = np.isfinite(held.value)
    for place, moment in enumerate(moments_ms.tolist()):
        inside = held.within(moment - window_ms, moment) & is_finite
        lowest = np.where(inside, held.value, np.inf).min(axis=1)
        found[:, place] = np.where(np.isinf(lowest), np.nan, lowest)
    return found


def on_grid(held: Held, end_ms: int, values: Floats) -> OnGrid:
    inside = held.within(0, end_ms)
    last_ms = np.where(inside, held.offset, 0).max(axis=1).astype(np.int64) + held.epoch_ms
    seen = ~np.isnan(values).all(axis=1)
    return OnGrid(held.metric[seen], held.series[seen], last_ms[seen], values[seen])


def of_table(table: pa.Table, values: Floats) -> OnGrid:
    metric, series, last_ms = (table[name].to_numpy() for name in ("metric", "series", "last_ms"))
    seen = ~np.isnan(values).all(axis=1)
    return OnGrid(
        metric.astype(np.uint32)[seen],
        series.astype(np.uint64)[seen],
        last_ms.astype(np.int64)[seen],
        values[seen],
    )


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


def put_together(parts: Sequence[OnGrid], grid: Grid) -> Samples:
    nobody = OnGrid(
        np.zeros(0, np.uint32),
        np.zeros(0, np.uint64),
        np.zeros(0, np.int64),
        np.zeros((0, grid.cells)),
    )
    metric, series, last_ms, values = (
        np.concatenate([getattr(part, name) for part in [nobody, *parts]])
        for name in OnGrid.__struct_fields__
    )
    order = np.lexsort((series, metric))
    nothing = np.zeros(0)
    last_ms = last_ms[order]
    return Samples(
        grid=grid,
        metric=metric[order],
        series=series[order],
        first_ms=last_ms,
        last_ms=last_ms,
        lowest=nothing,
        is_still=nothing.astype(bool),
        start=np.zeros(len(order) + 1, dtype=np.int64),
        time_ms=nothing.astype(np.int64),
        value=nothing,
        on_grid=values[order],
    )


# From ports to links ------------------------------------------------------------------------------


def rates_by_moment(ports: Ports, topology: Topology) -> Floats:
    """[ports, moments] of the rate that was read, or that is known of the port; NaN: unknown."""
    known = [topology.ports.get(PortId(*key)) for key in ports.row_of]
    told = [(port and port.rate_bits_per_second) or np.nan for port in known]
    rate = np.repeat(np.array(told, dtype=np.float64)[:, None], ports.grid.cells, axis=1)
    for name in ("rate_bits_per_second", "speed_bits_per_second"):
        found = ports.readings.get(name)
        if found is not None and found.values.size:
            read = np.where(found.values > 0, found.values, np.nan)
            rate[found.row] = np.fmax(rate[found.row], read)
    return rate


def state_of(ports: Ports, links: Sequence[Link], port_rate: Floats | None = None) -> FabricState:
    """``port_rate``: [ports, moments] where it is known by moment."""
    if port_rate is None:
        port_rate = np.repeat(ports.rate_bits_per_second[:, None], ports.grid.cells, axis=1)
    ends = [rows_of_ends(ports, links, end) for end in ("a", "b")]
    rate = rates_of(ports, links, ends, port_rate)
    sent, received = (
        [at_end(ports, ports.values(name), rows) for rows in ends]
        for name in ("transmit_bytes_total", "receive_bytes_total")
    )
    paused, at_most = paused_of(ports, ends, rate)
    errors, worst = errors_of(ports, ends)
    up = [at_end(ports, up_of(ports), rows) for rows in ends]
    return FabricState(
        grid=ports.grid,
        a_to_b=np.fmax(sent[0], received[1]) * 8 / rate,
        b_to_a=np.fmax(sent[1], received[0]) * 8 / rate,
        errors=errors,
        worst=worst,
        paused=paused,
        paused_at_most=at_most,
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


def rates_of(
    ports: Ports, links: Sequence[Link], ends: Sequence[Ints], port_rate: Floats
) -> Floats:
    """[moments, links] in bits a second: the lower of a link's ends. NaN: unknown."""
    reported = np.array([link.rate_bits_per_second or np.nan for link in links])
    lower = np.fmin(*(at_end(ports, port_rate, rows) for rows in ends))
    return np.where(np.isnan(lower), reported, lower)


def up_of(ports: Ports) -> Floats:
    """1 for a port that was up all the time, 0 for another."""
    state, interface = ports.values(STATE), ports.values(UP)
    by_state = np.where(np.isnan(state), np.nan, state >= ACTIVE)
    return np.where(np.isnan(by_state), interface, by_state)


def paused_of(ports: Ports, ends: Sequence[Ints], rate: Floats) -> tuple[Floats, Floats]:
    """[moments, links] of the share of time in which an end may not send, and of how much at most.

    An end is stopped for as long as it counts, without credit too, or as its other end says that it
    stops it. Frames alone tell the longest time that they can stop it for: each may be taken back
    at once. None of them is no pause.
    """
    own = np.fmax(ports.values(PAUSED), ports.values(CREDITLESS))
    shares, bounds = [], []
    for rows, others in (ends, ends[::-1]):
        counted = at_end(ports, own, rows)
        counted = np.where(np.isnan(counted), at_end(ports, ports.values(PAUSING), others), counted)
        bound = np.minimum(at_end(ports, ports.values(PAUSE_FRAMES), rows) * PAUSE_BITS / rate, 1.0)
        counted = np.where(np.isnan(counted) & (bound == 0.0), 0.0, counted)
        shares.append(np.minimum(counted, 1.0))
        bounds.append(np.where(np.isnan(counted), bound, np.nan))
    paused, at_most = np.fmax(*shares), np.fmax(*bounds)
    # Where nothing was counted, any bound says more than that.
    is_longer = at_most > np.nan_to_num(paused, nan=-1.0)
    return paused, np.where(is_longer, at_most, np.nan)


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
