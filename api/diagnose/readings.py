"""Counters and gauges beside the collectives: NIC rates and GPU readings as lines over time.

Series are found by the catalog's names and by other exporters' names, so that an
OpenMetrics file of node_exporter or dcgm-exporter needs no translation.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from alerts.window.columns import Floats
from api.data.store.store import Store
from api.diagnose.analyse import Window
from collector.contract.catalog import load_catalog
from collector.contract.identity import metric_id

BUCKETS = 400
"""Points of a line: a plot has some 1,000 pixels."""
LINES_MAX = 64
"""Lines of a plot. More are a carpet: the liveliest are drawn, and the plot notes it."""
SERIES_MAX = 20_000
"""Series that are read for one plot: two ports of each of 10,000 hosts."""
HOST_LABELS = ("host", "instance", "Hostname", "hostname", "node")
"""What exporters call the host."""
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


class Panel(msgspec.Struct, frozen=True):
    """A plot: which metrics it shows, as a rate or as they are, and in what unit."""

    title: str
    metrics: tuple[str, ...]
    is_rate: bool
    unit: str
    factor: float = 1.0


PANELS = (
    Panel(
        "Network, sent",
        ("fabric_port_transmit_bytes_total", "fabric_nic_transmit_bytes_total"),
        is_rate=True,
        unit="Gb/s",
        factor=8e-9,
    ),
    Panel(
        "Network, received",
        ("fabric_port_receive_bytes_total", "fabric_nic_receive_bytes_total"),
        is_rate=True,
        unit="Gb/s",
        factor=8e-9,
    ),
    Panel(
        "GPU, share of time busy",
        ("fabric_gpu_utilization_ratio",),
        is_rate=False,
        unit="%",
        factor=100,
    ),
    Panel("GPU, power", ("fabric_gpu_power_watts",), is_rate=False, unit="W"),
    Panel("GPU, SM clock", ("fabric_gpu_sm_clock_hertz",), is_rate=False, unit="MHz", factor=1e-6),
    Panel("GPU, temperature", ("fabric_gpu_temperature_celsius",), is_rate=False, unit="°C"),
)


class Line(msgspec.Struct, frozen=True):
    """One series: times in nanoseconds since 1970, and values in the panel's unit."""

    name: str
    host: str
    time_ns: Floats
    value: Floats


class Readings(msgspec.Struct, frozen=True):
    """The lines of one panel; ``left_out`` counts those that were too many."""

    panel: Panel
    lines: list[Line]
    left_out: int = 0


def read_panels(store: Store, window: Window) -> list[Readings]:
    """Every panel that has any readings in this time."""
    found = (read_panel(store, panel, window) for panel in PANELS)
    return [readings for readings in found if readings.lines]


def read_panel(store: Store, panel: Panel, window: Window) -> Readings:
    """The lines of one panel, the liveliest of them if there are too many."""
    factors = foreign_names(panel)
    named = store.query(SERIES_SQL, {"names": sorted(factors)}).to_pylist()
    if not named:
        return Readings(panel, [])
    from_ms, to_ms = window.from_ns // 1_000_000, window.to_ns // 1_000_000
    rows = store.query(
        SAMPLES_SQL,
        {
            "from_ms": from_ms,
            "to_ms": to_ms,
            "width_ms": max(1, (to_ms - from_ms) // BUCKETS),
            "metrics": sorted(metric_id(name) for name in factors),
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
        factor = panel.factor * factors[row["name"]]
        if line := to_line(row, panel, times[own], values[own] * factor):
            lines.append(line)
    if panel.is_rate:
        lines = [line for line in lines if is_alive(line)]
    lively = sorted(lines, key=lambda line: -float(np.nanmax(line.value)))[:LINES_MAX]
    kept = sorted(lively, key=lambda line: (line.host, line.name))
    return Readings(panel, kept, len(lines) - len(kept))


def foreign_names(panel: Panel) -> dict[str, float]:
    """Every name under which an exporter publishes the panel's metrics, and its factor to ours."""
    catalog = load_catalog()
    names: dict[str, float] = {}
    for ours in panel.metrics:
        names[ours] = 1.0
        metric = catalog.metric(ours)
        for alias in metric.aliases if metric is not None else ():
            if not alias.match:
                names[alias.name] = alias.factor
    return names


def to_line(row: dict[str, Any], panel: Panel, time_ns: Floats, value: Floats) -> Line | None:
    """A series as a line; of a counter its rate, with a gap where it was reset."""
    if panel.is_rate:
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.diff(value) / np.diff(time_ns) * 1e9
        time_ns, value = time_ns[1:], np.where(change >= 0, change, np.nan)
    if not len(value) or not np.isfinite(value).any():
        return None
    labels = dict(row["labels"])
    host = next((labels[name] for name in HOST_LABELS if labels.get(name)), "")
    things = [word + labels[name] for name, word in THING_LABELS if labels.get(name)]
    return Line(" ".join([host, *things]).strip() or row["name"], host, time_ns, value)


def is_alive(line: Line) -> bool:
    """Whether it was ever above zero: hosts have many unused ports."""
    return bool(np.nanmax(line.value) > 0)
