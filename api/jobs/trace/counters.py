"""Readings of a job's ports and GPUs as counter tracks, some series at a time.

Series are found by the catalog's names and by other exporters' aliases. A counter is drawn as its
increase a second from one reading to the next; after a reset or a long gap between readings the
track has no point, and viewers go on drawing the value before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from alerts.window.columns import Floats, Ints
from api.base.host_names import HOST_LABELS
from api.data.store.shards import INSTANCE_SQL
from api.data.store.store import Store
from api.jobs.correlate.meanings import Choice, Name, all_names
from api.jobs.correlate.readings import GAP_SECONDS
from api.jobs.trace.event import Event, Frame, clean, level
from api.jobs.trace.stream import Account
from api.jobs.trace.subject import Ahead, Machines
from api.jobs.trace.tracks import Tracks
from collector.contract.identity import PortId, metric_id
from collector.contract.units import NS, NS_PER_MS

TRACE_COUNTERS_MAX = 2_000
"""Counter tracks of one trace, those of culprits first: more than a person scrolls through. The
others are counted."""
SERIES_LOOKED_AT_MAX = 100_000
"""Series that are searched for them: thirty of each of 3,000 ports."""
SERIES_AT_ONCE = 50
"""Series whose samples are in memory at once: with POINTS_MAX each, 8 MB."""
POINTS_MAX = 5_000
"""Points of one track: more than a second's readings over an hour. Of more, the last of each of so
many equal stretches of time."""


class Shown(NamedTuple):
    """A metric that is drawn: under which title and unit, and whether also if it never moves."""

    metric: str
    title: str
    unit: str
    factor: float = 1.0
    is_always: bool = False


def of(target: str, *shown: Shown) -> tuple[Shown, ...]:
    return tuple(one._replace(metric=target + one.metric) for one in shown)


BYTES = (
    Shown("transmit_bytes_total", "sent", "Gb/s", 8e-9, is_always=True),
    Shown("receive_bytes_total", "received", "Gb/s", 8e-9, is_always=True),
)
PAUSE = (
    Shown("receive_pause_seconds_total", "is paused", "% of time", 100.0),
    Shown("transmit_pause_seconds_total", "pauses others", "% of time", 100.0),
    Shown("receive_pause_frames_total", "pause frames received", "/s"),
    Shown("transmit_pause_frames_total", "pause frames sent", "/s"),
)
PORT_SHOWN = of(
    "fabric_port_",
    *BYTES,
    *PAUSE,
    Shown("transmit_wait_seconds_total", "waits for credit", "% of time", 100.0),
    Shown("symbol_errors_total", "symbol errors", "/s"),
    Shown("receive_errors_total", "receive errors", "/s"),
    Shown("receive_crc_errors_total", "CRC errors", "/s"),
    Shown("link_downed_total", "link downs", "/s"),
    Shown("transmit_discards_total", "packets discarded", "/s"),
    Shown("queue_discarded_packets_total", "packets discarded in queues", "/s"),
    Shown("retransmit_packets_total", "packets sent again", "/s"),
    Shown("ack_timeouts_total", "acknowledgements missed", "/s"),
    Shown("receive_out_of_sequence_total", "packets out of sequence", "/s"),
    Shown("sequence_naks_total", "packets asked for again", "/s"),
    Shown("adaptive_retransmits_total", "adaptive retransmits", "/s"),
    Shown("tcp_retransmit_segments_total", "TCP segments sent again", "/s"),
    Shown("receive_ecn_marked_packets_total", "packets marked (ECN)", "/s"),
    Shown("cnp_sent_total", "congestion notices sent", "/s"),
    Shown("queue_depth_bytes", "queue", "bytes"),
    Shown("rate_bits_per_second", "rate", "Gb/s", 1e-9),
)
NIC_SHOWN = of(
    "fabric_nic_",
    *BYTES,
    *PAUSE,
    Shown("receive_errors_total", "receive errors", "/s"),
    Shown("phy_receive_crc_errors_total", "CRC errors", "/s"),
    Shown("phy_receive_symbol_errors_total", "symbol errors", "/s"),
    Shown("phy_transmit_discards_total", "packets discarded", "/s"),
    Shown("receive_out_of_buffer_total", "out of buffers", "/s"),
    Shown("pcie_read_stalled_ratio", "PCIe reads stalled", "% of time", 100.0),
    Shown("pcie_write_stalled_ratio", "PCIe writes stalled", "% of time", 100.0),
    Shown("speed_bits_per_second", "rate", "Gb/s", 1e-9),
)
GPU_SHOWN = of(
    "fabric_gpu_",
    Shown("sm_clock_hertz", "clock", "MHz", 1e-6, is_always=True),
    Shown("power_watts", "power", "W", is_always=True),
    Shown("utilization_ratio", "busy", "%", 100.0, is_always=True),
    Shown("temperature_celsius", "temperature", "°C", is_always=True),
    Shown("clock_event_reasons", "clock event reasons", "bits"),
    Shown("power_violation_seconds_total", "held back by power", "% of time", 100.0),
    Shown("thermal_violation_seconds_total", "held back by heat", "% of time", 100.0),
    Shown("hardware_thermal_slowdown_seconds_total", "slowed down by heat", "% of time", 100.0),
    Shown("power_brake_slowdown_seconds_total", "slowed down by power brake", "% of time", 100.0),
    Shown("ecc_uncorrected_errors_total", "uncorrected ECC errors", "/s"),
    Shown("xid_errors_total", "XID errors", "/s"),
)


class Kind(NamedTuple):
    """A kind of thing: what is drawn of it, and the labels that name one."""

    shown: tuple[Shown, ...]
    keys: tuple[str, ...]


PORTS = Kind(PORT_SHOWN, ("host", "device", "port"))
NICS = Kind(NIC_SHOWN, ("host", "device"))
GPUS = Kind(GPU_SHOWN, ("host", "gpu"))
KINDS = (PORTS, NICS, GPUS)

NAMED = tuple(f"labels['{name}']" for name in HOST_LABELS)
NAMES_SQL = f"""
    SELECT series, any(metric_name) AS name, any(labels) AS words FROM series
    WHERE metric_name IN {{names:Array(String)}}
      AND day >= toDate({{from_s:Int64}}) AND day <= toDate({{to_s:Int64}})
      AND hasAny({{hosts:Array(String)}}, [{", ".join([*NAMED, INSTANCE_SQL])}])
    GROUP BY series ORDER BY series LIMIT {SERIES_LOOKED_AT_MAX + 1}
"""  # noqa: S608 - our words
SAMPLES_SQL = """
    SELECT series, toUnixTimestamp64Milli(max(time)) AS time_ms, argMax(value, time) AS last_value
    FROM samples
    WHERE metric IN {metrics:Array(UInt32)} AND series IN {series:Array(UInt64)}
      AND time BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
                   AND fromUnixTimestamp64Milli({to_ms:Int64})
      AND isFinite(value)
    GROUP BY series,
             intDiv(toUnixTimestamp64Milli(time) - {from_ms:Int64}, {width_ms:Int64})
    ORDER BY series, time_ms
"""


class Line(NamedTuple):
    """A series that is drawn. Sorted: whose turn it is, then as it is read from top to bottom."""

    turn: int
    host: str
    thing: str
    order: int
    name: str
    series: int
    metric: int
    shown: Shown
    factor: float
    is_counter: bool


def tell_counters(
    store: Store, machines: Machines, frame: Frame, ahead: Ahead, tracks: Tracks, account: Account
) -> Iterator[Event]:
    lines = find_lines(store, machines, frame, account)
    for start in range(0, len(lines), SERIES_AT_ONCE):
        some = lines[start : start + SERIES_AT_ONCE]
        samples = read_samples(store, some, frame)
        for line in some:
            time_ns, value = samples.get(line.series, (None, None))
            if time_ns is None or value is None:
                continue
            moments, values = drawn(line, ahead.corrected(line.host, time_ns), value)
            name = line.host or machines.unnamed
            if name and (line.shown.is_always or (len(values) and values.any())):
                process = tracks.process(name)
                yield from tracks.news()
                yield from levels(process, line, frame, moments, values)


def levels(
    process: int, line: Line, frame: Frame, moments: Ints, values: Floats
) -> Iterator[Event]:
    before = None
    for time_ns, value in zip(moments.tolist(), values.tolist(), strict=True):
        if value != before and frame.holds(time_ns):
            yield level(process, line.name, frame.at(time_ns), line.shown.unit, value)
            before = value


def drawn(line: Line, time_ns: Ints, value: Floats) -> tuple[Ints, Floats]:
    """The track's points: of a counter what it grew by a second, from each reading to the next."""
    factor = line.factor * line.shown.factor
    if not line.is_counter:
        return time_ns, value * factor
    seconds = np.diff(time_ns) / NS
    grown = np.diff(value)
    known = (grown >= 0) & (seconds > 0) & (seconds <= GAP_SECONDS)
    return time_ns[:-1][known], grown[known] / seconds[known] * factor


def find_lines(store: Store, machines: Machines, frame: Frame, account: Account) -> list[Line]:
    """The series of these machines that are drawn, in order; of too many the first."""
    turn = {host: place for place, host in enumerate(machines.hosts)}
    for port in machines.switch_ports:
        turn.setdefault(port.host, len(turn))
    lines: dict[tuple[str, str], Line] = {}
    for kind in KINDS:
        shown = {one.metric: (place, one) for place, one in enumerate(kind.shown)}
        names = all_names([Choice(one.metric, one.title) for one in kind.shown])
        rows = read_names(store, sorted(names), list(turn), frame, account)
        for row in rows:
            name = names[row["name"]]
            line = line_of(row, kind, name, shown[name.choice.metric], turn)
            if line is None or not is_wanted(line, kind, name, dict(row["words"]), machines):
                continue
            # The same by the catalog's name and by an exporter's: the catalog's is drawn.
            known = lines.get((line.host, line.name))
            if known is None or name.alias is None:
                lines[line.host, line.name] = line
    ordered = sorted(lines.values())
    account.leave_out("TRACE_COUNTERS_MAX", len(ordered) - TRACE_COUNTERS_MAX)
    return ordered[:TRACE_COUNTERS_MAX]


def read_names(
    store: Store, names: Sequence[str], hosts: Sequence[str], frame: Frame, account: Account
) -> list[dict[str, Any]]:
    parameters = {
        "names": list(names),
        "hosts": list(hosts),
        "from_s": frame.from_ns // NS,
        "to_s": frame.to_ns // NS,
    }
    rows: list[dict[str, Any]] = store.query(NAMES_SQL, parameters).to_pylist()
    account.leave_out("SERIES_LOOKED_AT_MAX", len(rows) - SERIES_LOOKED_AT_MAX)
    return rows[:SERIES_LOOKED_AT_MAX]


def line_of(
    row: Mapping[str, Any],
    kind: Kind,
    name: Name,
    shown: tuple[int, Shown],
    turn: Mapping[str, int],
) -> Line | None:
    labels = dict(row["words"])
    key = name.key(labels, kind.keys)
    if key is None or key[0] not in turn:
        return None
    if kind is GPUS:
        thing = f"GPU {key[1]}"
    elif kind is PORTS:
        thing = f"port {key[2]}" if key[1] == key[0] else f"{key[1]} port {key[2]}"
    else:
        thing = key[1]
    order, one = shown
    more = more_labels(labels, kind, name)
    return Line(
        turn=turn[key[0]],
        host=key[0],
        thing=thing,
        order=order,
        name=clean(" ".join([thing, one.title, *more])),
        series=int(row["series"]),
        metric=metric_id(row["name"]),
        shown=one,
        factor=name.factor,
        is_counter=name.is_counter,
    )


DISTINGUISHING = ("priority", "queue", "lane", "direction")
"""Labels by which series of one thing and metric differ."""


def more_labels(labels: Mapping[str, str], kind: Kind, name: Name) -> list[str]:
    theirs = name.alias.labels if name.alias is not None else {}
    used = {theirs.get(key, key) for key in kind.keys}
    return [f"{key} {labels[key]}" for key in DISTINGUISHING if key not in used and labels.get(key)]


def is_wanted(
    line: Line, kind: Kind, name: Name, labels: Mapping[str, str], machines: Machines
) -> bool:
    """Whether a series is of the job's own NICs, of a switch port on its ways, or of a GPU."""
    if kind is GPUS:
        return line.host in machines.hosts
    key = name.key(labels, kind.keys) or ("", "", "")
    device = key[1]
    if device == line.host:
        return PortId(line.host, device, key[-1]) in machines.switch_ports
    nics = machines.nics.get(line.host)
    return line.host in machines.hosts and (nics is None or device in nics)


def read_samples(
    store: Store, lines: Sequence[Line], frame: Frame
) -> dict[int, tuple[Ints, Floats]]:
    """In nanoseconds; a reading before the frame gives a counter's increase at its beginning."""
    from_ms, to_ms = frame.from_ns // NS_PER_MS, -(-frame.to_ns // NS_PER_MS)
    parameters = {
        "metrics": sorted({line.metric for line in lines}),
        "series": [line.series for line in lines],
        "from_ms": from_ms,
        "to_ms": to_ms,
        "width_ms": max(1, -(-(to_ms - from_ms) // POINTS_MAX)),
    }
    table = store.query(SAMPLES_SQL, parameters)
    series = table["series"].to_numpy()
    time_ns = table["time_ms"].to_numpy().astype(np.int64) * NS_PER_MS
    value = table["last_value"].to_numpy().astype(np.float64)
    found: dict[int, tuple[Ints, Floats]] = {}
    for line in lines:
        low, high = (
            int(np.searchsorted(series, np.uint64(line.series), side)) for side in ("left", "right")
        )
        if low < high:
            found[line.series] = (time_ns[low:high], value[low:high])
    return found
