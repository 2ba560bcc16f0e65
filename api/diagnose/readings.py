"""NIC rates and GPU readings as lines over time, by the catalog's and other exporters' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from alerts.window.columns import Floats
from api.data.inventory.sightings import host_of
from api.data.store.store import Store
from api.diagnose.analyse import TimeRange
from collector.contract.catalog import Alias, load_catalog
from collector.contract.identity import metric_id

BUCKETS = 400
"""Points of a line: a plot has some 1,000 pixels."""
LINES_MAX = 64
"""Lines of a plot. More are a carpet: the liveliest are drawn, and the plot notes it."""
SERIES_MAX = 20_000
"""Series that are read for one plot: two ports of each of 10,000 hosts."""
THING_LABELS = (("device", ""), ("port", "port "), ("gpu", "GPU "))
"""Labels that name a part of the host, and their titles."""

SAMPLES_SQL = """
    SELECT series,
           intDiv(toUnixTimestamp64Milli(time) - {from_ms:Int64}, {width_ms:Int64}) AS place,
           argMax(value, time) AS last_value, toUnixTimestamp64Milli(max(time)) AS last_ms
    FROM samples FINAL
    WHERE metric IN {metrics:Array(UInt32)} AND series IN {series:Array(UInt64)}
      AND time BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
                   AND fromUnixTimestamp64Milli({to_ms:Int64})
    GROUP BY series, place ORDER BY series, place
"""
SERIES_SQL = f"""
    SELECT series, any(metric_name) AS name, any(labels) AS labels FROM series
    WHERE metric_name IN {{names:Array(String)}} GROUP BY series ORDER BY series LIMIT {SERIES_MAX}
"""  # noqa: S608 - our words


class Plot(msgspec.Struct, frozen=True):
    """A plot: which metrics it shows, as a rate or as they are, and in what unit."""

    title: str
    metrics: tuple[str, ...]
    is_rate: bool
    unit: str
    factor: float = 1.0


PLOTS = (
    Plot(
        "Network, sent",
        ("fabric_port_transmit_bytes_total", "fabric_nic_transmit_bytes_total"),
        is_rate=True,
        unit="Gb/s",
        factor=8e-9,
    ),
    Plot(
        "Network, received",
        ("fabric_port_receive_bytes_total", "fabric_nic_receive_bytes_total"),
        is_rate=True,
        unit="Gb/s",
        factor=8e-9,
    ),
    Plot(
        "GPU, share of time busy",
        ("fabric_gpu_utilization_ratio",),
        is_rate=False,
        unit="%",
        factor=100,
    ),
    Plot("GPU, power", ("fabric_gpu_power_watts",), is_rate=False, unit="W"),
    Plot("GPU, SM clock", ("fabric_gpu_sm_clock_hertz",), is_rate=False, unit="MHz", factor=1e-6),
    Plot("GPU, temperature", ("fabric_gpu_temperature_celsius",), is_rate=False, unit="°C"),
)


class Line(msgspec.Struct, frozen=True):
    """One series: times in nanoseconds since 1970, and values in the plot's unit."""

    name: str
    host: str
    time_ns: Floats
    value: Floats


class Readings(msgspec.Struct, frozen=True):
    """The lines of one plot; ``left_out`` counts those that were too many."""

    plot: Plot
    lines: list[Line]
    left_out: int = 0


def read_plots(store: Store, within: TimeRange) -> list[Readings]:
    """Every plot that has any readings in this time."""
    found = (read_plot(store, plot, within) for plot in PLOTS)
    return [readings for readings in found if readings.lines]


def read_plot(store: Store, plot: Plot, within: TimeRange) -> Readings:
    aliases = foreign_names(plot)
    named = store.query(SERIES_SQL, {"names": sorted(aliases)}).to_pylist()
    named = [row | {"labels": dict(row["labels"])} for row in named]
    named = [row for row in named if is_meant(aliases[row["name"]], row["labels"])]
    if not named:
        return Readings(plot, [])
    from_ms, to_ms = within.from_ns // 1_000_000, within.to_ns // 1_000_000
    rows = store.query(
        SAMPLES_SQL,
        {
            "from_ms": from_ms,
            "to_ms": to_ms,
            "width_ms": max(1, (to_ms - from_ms) // BUCKETS),
            "metrics": sorted(metric_id(name) for name in aliases),
            "series": [row["series"] for row in named],
        },
    )
    series = rows["series"].to_numpy()
    times, values = rows["last_ms"].to_numpy() * 1e6, rows["last_value"].to_numpy()
    lines = []
    for row in named:
        identity = np.uint64(row["series"])
        own = slice(
            int(np.searchsorted(series, identity, side="left")),
            int(np.searchsorted(series, identity, side="right")),
        )
        alias = aliases[row["name"]]
        factor = plot.factor * (1.0 if alias is None else alias.factor)
        host = host_of(row["labels"], alias.labels if alias is not None else {})
        if line := to_line(row, host, plot, times[own], values[own] * factor):
            lines.append(line)
    if plot.is_rate:
        lines = [line for line in lines if is_alive(line)]
    lively = sorted(lines, key=lambda line: -float(np.nanmax(line.value)))[:LINES_MAX]
    kept = sorted(lively, key=lambda line: (line.host, line.name))
    return Readings(plot, kept, len(lines) - len(kept))


def foreign_names(plot: Plot) -> dict[str, Alias | None]:
    """The names of a plot's metrics: ours, and those of other exporters with the alias."""
    catalog = load_catalog()
    names: dict[str, Alias | None] = {}
    for ours in plot.metrics:
        names[ours] = None
        metric = catalog.metric(ours)
        names |= {alias.name: alias for alias in (metric.aliases if metric is not None else ())}
    return names


def is_meant(alias: Alias | None, labels: Mapping[str, str]) -> bool:
    """Whether a series is of the plot: a part of a GPU has the name of the GPU."""
    return alias is None or alias.fits(labels)


def to_line(
    row: dict[str, Any], host: str, plot: Plot, time_ns: Floats, value: Floats
) -> Line | None:
    """A series as a line; of a counter its rate, with a gap where it was reset."""
    if plot.is_rate:
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.diff(value) / np.diff(time_ns) * 1e9
        time_ns, value = time_ns[1:], np.where(change >= 0, change, np.nan)
    if not len(value) or not np.isfinite(value).any():
        return None
    labels = row["labels"]
    things = [word + labels[name] for name, word in THING_LABELS if labels.get(name)]
    return Line(" ".join([host, *things]).strip() or row["name"], host, time_ns, value)


def is_alive(line: Line) -> bool:
    """Whether it was ever above zero: hosts have many unused ports."""
    return bool(np.nanmax(line.value) > 0)
