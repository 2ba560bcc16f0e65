"""A window's burst capture: raw byte counters of some NICs as rates of short cells.

Read only where an agent reported a finished capture in the window's time: hardly ever. Cells are
twice as long as the coarsest counter's resolution, as the samplers measured it: a counter that its
driver refreshes every ten milliseconds would look like bursts in shorter ones, and accuse the end
that is read more finely. Counters whose resolution no sampler reported are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from alerts.signals.smoothness import CELL_NS_MAX
from alerts.window.columns import Floats, Ints
from alerts.window.model import Captured, Grid, Ports
from api.data.store.store import Store
from collector.contract.identity import metric_id
from collector.contract.model import Event
from collector.contract.units import NS, NS_PER_MS

KIND, FINISHED = "capture", "finished"
CAPTURES_MAX = 16
"""Captures of one window, the latest: as many as the service has requested for a few verdicts."""
POINTS_MAX = 1_000_000
"""Raw samples of one window: 16 counters for a minute, 16 MB."""
CELL_MS_MIN = 2
"""Times are cut to milliseconds: a shorter cell would have one reading or two, by chance."""
CELLS_PER_RESOLUTION = 2
TOGETHER_NS = NS
"""What captures must have in common with the latest: agents learn of a request at different
times, and only the same seconds can be compared."""
RAW, RESOLUTION = "fabric_burst_raw_bytes_total", "fabric_burst_resolution_seconds"
DIRECTIONS = ("transmit", "receive")

RAW_SQL = f"""
    SELECT any(words) AS labels, groupArray(time_ms) AS times, groupArray(value) AS points
    FROM (
        SELECT series, toUnixTimestamp64Milli(time) AS time_ms, value AS value FROM samples
        WHERE metric = {{metric:UInt32}}
          AND time BETWEEN fromUnixTimestamp64Milli({{from_ms:Int64}})
                       AND fromUnixTimestamp64Milli({{to_ms:Int64}})
        ORDER BY time DESC LIMIT {POINTS_MAX}
    ) AS numbers
    INNER JOIN (
        SELECT DISTINCT series, labels AS words FROM series
        WHERE metric_name = {{name:String}} AND labels['capture'] IN {{captures:Array(String)}}
          AND day >= toDate({{from_s:Int64}}) AND day <= toDate({{to_s:Int64}})
    ) AS named USING series
    GROUP BY series
"""  # noqa: S608 - our words
RESOLUTION_SQL = """
    SELECT labels['host'] AS host, labels['device'] AS device, labels['port'] AS port,
           labels['direction'] AS direction, max(value) AS seconds
    FROM (
        SELECT series, value AS value FROM samples
        WHERE metric = {metric:UInt32}
          AND time BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
                       AND fromUnixTimestamp64Milli({to_ms:Int64})
    ) AS numbers
    INNER JOIN (
        SELECT DISTINCT series, labels FROM series
        WHERE metric_name = {name:String} AND labels['host'] IN {hosts:Array(String)}
          AND day >= toDate({from_s:Int64}) AND day <= toDate({to_s:Int64})
    ) AS named USING series
    GROUP BY host, device, port, direction
"""

Counter = tuple[str, str, str, str]
"""Host, device, port and direction."""


class Raw(msgspec.Struct, frozen=True):
    """One counter's readings, in order of time (unix milliseconds)."""

    row: int
    direction: str
    times: Ints
    values: Floats


def read_captured(
    store: Store, events: Sequence[Event], ports: Ports, from_ns: int, to_ns: int
) -> Captured | None:
    """The latest capture that an agent finished in this time; None where there is none."""
    names = [
        event.attributes.get("capture", "")
        for event in events
        if event.kind == KIND and event.attributes.get("result") == FINISHED
    ][-CAPTURES_MAX:]
    if not names:
        return None
    asked = {
        "from_ms": from_ns // NS_PER_MS,
        "to_ms": to_ns // NS_PER_MS,
        "from_s": from_ns // NS,
        "to_s": to_ns // NS,
    }
    raw_of = {**asked, "metric": metric_id(RAW), "name": RAW, "captures": names}
    rows = store.query(RAW_SQL, raw_of).to_pylist()
    hosts = sorted({dict(row["labels"]).get("host", "") for row in rows})
    resolution_of = {**asked, "metric": metric_id(RESOLUTION), "name": RESOLUTION, "hosts": hosts}
    known: dict[Counter, float] = {
        (row["host"], row["device"], row["port"], row["direction"]): row["seconds"]
        for row in (store.query(RESOLUTION_SQL, resolution_of).to_pylist() if rows else [])
    }
    found = list(counters_of(rows, known, ports))
    return gridded([one for one, _ in found], max((seconds for _, seconds in found), default=0.0))


def counters_of(
    rows: Sequence[dict[str, Any]], known: dict[Counter, float], ports: Ports
) -> Iterator[tuple[Raw, float]]:
    """Counters of the window's ports, each with its resolution in seconds."""
    for row in rows:
        labels = dict(row["labels"])
        host, device, port = (labels.get(name, "") for name in ("host", "device", "port"))
        direction = labels.get("direction", "")
        place = ports.row_of.get((host, device, port or "1"))
        place = ports.row_of_netdev.get((host, device)) if place is None else place
        seconds = known.get((host, device, port, direction))
        if place is None or seconds is None or direction not in DIRECTIONS:
            continue
        times = np.array(row["times"], dtype=np.int64)
        order = np.argsort(times, kind="stable")
        values = np.array(row["points"], dtype=np.float64)[order]
        yield Raw(place, direction, times[order], values), seconds


def gridded(counters: Sequence[Raw], resolution_s: float) -> Captured | None:
    """Rates in cells of the time that the counters have in common; None: too coarse, or no time."""
    cell_ms = max(CELL_MS_MIN, int(np.ceil(CELLS_PER_RESOLUTION * resolution_s * 1000)))
    if not counters or not cell_ms * NS_PER_MS <= CELL_NS_MAX:
        return None
    chosen: list[Raw] = []
    first, last = 0, 1 << 62
    for one in sorted(counters, key=lambda each: (-int(each.times[-1]), each.row, each.direction)):
        begin, end = max(first, int(one.times[0])), min(last, int(one.times[-1]))
        if (end - begin) * NS_PER_MS >= TOGETHER_NS:
            first, last = begin, end
            chosen.append(one)
    if not chosen:
        return None
    edges = np.arange(first, last + 1, cell_ms)
    rows = sorted({one.row for one in chosen})
    rates = {name: np.full((len(rows), len(edges) - 1), np.nan) for name in DIRECTIONS}
    for one in chosen:
        grown = np.diff(np.interp(edges, one.times, one.values)) * (1000.0 / cell_ms)
        # A counter that was reset, or wrapped, shows no rate there.
        rates[one.direction][rows.index(one.row)] = np.where(grown >= 0, grown, np.nan)
    return Captured(
        grid=Grid(first * NS_PER_MS, cell_ms * NS_PER_MS, len(edges) - 1),
        row=np.array(rows, dtype=np.int64),
        transmit=rates["transmit"],
        receive=rates["receive"],
    )
