"""Readings of ports, GPUs and hosts as data, each with the PromQL that gives the same. Pure."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from alerts.window.columns import Floats, Ints
from alerts.window.model import Grid, Ports, Readings, Things, Window
from api.base.limits import EXPLAIN_THINGS_MAX, EXPLAIN_VALUES_MAX
from api.oncall.explain.answer import (
    GridExplained,
    LeftOut,
    Number,
    PeersExplained,
    SeriesExplained,
    ThingExplained,
)
from collector.contract.catalog import Kind, Metric, load_catalog
from collector.contract.records import ABSENT
from collector.contract.units import NS

RATE_CELLS = 4
"""Cells that a rate's range covers in PromQL: switches are read every other cell, and a range needs
two readings also when one was lost."""

PORT, SWITCH_PORT, GPU, HOST = "port", "switch_port", "gpu", "host"


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a window's tables are shown."""

    ports: Sequence[int] = ()
    gpus: Sequence[int] = ()
    hosts: Sequence[int] = ()


class Shown(msgspec.Struct, kw_only=True):
    """What is gathered while things are shown."""

    things: list[ThingExplained] = []
    left: list[LeftOut] = []
    values: int = 0
    used: dict[tuple[str, str], None] = {}
    """Kinds and readings that were shown: their peers are shown too."""


def explain_things(
    window: Window, rows: Rows
) -> tuple[list[ThingExplained], list[PeersExplained], list[LeftOut]]:
    shown = Shown()
    waiting = [
        *((window.hosts, HOST, row) for row in rows.hosts),
        *((window.gpus, GPU, row) for row in rows.gpus),
        *((window.ports, port_kind(window, row), row) for row in rows.ports),
    ]
    for place, (things, kind, row) in enumerate(waiting):
        if place >= EXPLAIN_THINGS_MAX or shown.values >= EXPLAIN_VALUES_MAX:
            is_full = place >= EXPLAIN_THINGS_MAX
            rule = "EXPLAIN_THINGS_MAX" if is_full else "EXPLAIN_VALUES_MAX"
            hint = "ask for one link= or a shorter time"
            shown.left.append(
                LeftOut(what="things", count=len(waiting) - place, rule=rule, hint=hint)
            )
            break
        show_thing(window, things, kind, row, shown)
    return shown.things, peers_of(window, shown.used), shown.left


def port_kind(window: Window, row: int) -> str:
    return SWITCH_PORT if window.ports.is_switch[row] else PORT


def show_thing(window: Window, things: Things, kind: str, row: int, shown: Shown) -> None:
    """One thing with all of its readings; counters that did not move are only named."""
    readings: list[SeriesExplained] = []
    still: list[str] = []
    for name in sorted(things.readings):
        found = things.readings[name]
        values = values_of(found, row)
        if values is None or np.isnan(values).all():
            continue
        called = found.metric_of(row)
        metric = metric_of(called, name, kind)
        is_rate = metric is not None and metric.kind is Kind.COUNTER
        if is_rate and not np.nan_to_num(values).any():
            still.append(called)
            continue
        own = labels_of(window, kind, row, called)
        if found.label and ":" in name:
            own |= split_label(metric, name.partition(":")[2])
        readings.append(
            SeriesExplained(
                metric=called,
                labels=own,
                query=query_of(metric, own, is_rate=is_rate, grid=things.grid),
                is_rate=is_rate,
                values=numbers(values),
            )
        )
        shown.values += len(values)
        shown.used[kind, name] = None
    seen_ns = int(things.seen_ns[row])
    shown.things.append(
        ThingExplained(
            kind=kind,
            name=name_of(window, kind, row),
            other_end=other_end_of(window, kind, row),
            seen_ns=None if seen_ns == ABSENT else seen_ns,
            rate_bits_per_second=rate_of(window, kind, row),
            readings=readings,
            still=still,
        )
    )


def values_of(found: Readings, row: int) -> Floats | None:
    place = int(np.searchsorted(found.row, row))
    if place >= len(found.row) or found.row[place] != row:
        # The code that makes windows sorts rows; a notebook may not.
        places = np.flatnonzero(found.row == row)
        if not len(places):
            return None
        place = int(places[0])
    line: Floats = found.values[place]
    return line


def labels_of(window: Window, kind: str, row: int, metric: str) -> dict[str, str]:
    """The labels with which PromQL selects the metric's series of a thing."""
    if kind == HOST:
        return {"host": window.hosts.host[row]}
    if kind == GPU:
        return {"host": window.gpus.host[row], "gpu": str(window.gpus.gpu[row])}
    return window.ports.labels(row, metric)


def name_of(window: Window, kind: str, row: int) -> str:
    """As operators write it: host, host/gpu/3, host/device/port, switch/port."""
    if kind == HOST:
        return window.hosts.host[row]
    if kind == GPU:
        return f"{window.gpus.host[row]}/gpu/{window.gpus.gpu[row]}"
    ports = window.ports
    if kind == SWITCH_PORT:
        return f"{ports.host[row]}/{ports.port[row]}"
    return f"{ports.host[row]}/{ports.device[row]}/{ports.port[row]}"


def other_end_of(window: Window, kind: str, row: int) -> str:
    if kind in {HOST, GPU}:
        return ""
    far = int(window.ports.other_end[row])
    return name_of(window, port_kind(window, far), far) if far >= 0 else ""


def rate_of(window: Window, kind: str, row: int) -> Number:
    return None if kind in {HOST, GPU} else number(float(window.ports.rate_bits_per_second[row]))


def metric_of(called: str, name: str, kind: str) -> Metric | None:
    """The catalog's metric of a reading, also where another exporter's series were read."""
    catalog = load_catalog()
    own = catalog.metric(called)
    if own is not None:
        return own
    reading = name.partition(":")[0]
    prefixes = {HOST: ("fabric_host_",), GPU: ("fabric_gpu_",)}.get(
        kind, ("fabric_port_", Ports.NIC_METRICS)
    )
    known = (catalog.metric(prefix + reading) for prefix in prefixes)
    return next((metric for metric in known if metric is not None), None)


def split_label(metric: Metric | None, value: str) -> dict[str, str]:
    """The label that distinguishes this line from others of the metric: a mode, a phase."""
    names = metric.labels if metric is not None else ()
    for name in ("mode", "phase"):
        if name in names:
            return {name: value}
    return {}


def query_of(metric: Metric | None, labels: Mapping[str, str], *, is_rate: bool, grid: Grid) -> str:
    """PromQL for a reading: lines with other labels are aggregated as they are here."""
    if metric is None:
        return ""
    inside = ",".join(f"{name}={quoted(value)}" for name, value in labels.items())
    selector = f"{metric.name}{{{inside}}}"
    by = ",".join(labels)
    if not is_rate:
        return f"max by ({by}) ({selector})"
    seconds = max(1, RATE_CELLS * grid.step_ns // NS)
    return f"sum by ({by}) (rate({selector}[{seconds}s]))"


def quoted(value: str) -> str:
    r"""A label's value as PromQL writes it.

    >>> quoted('a"b')
    '"a\\"b"'
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def peers_of(window: Window, used: Iterable[tuple[str, str]]) -> list[PeersExplained]:
    found = []
    for kind, name in used:
        things: Things = {HOST: window.hosts, GPU: window.gpus}.get(kind, window.ports)
        lines = things.readings[name]
        values = lines.values
        if kind in {PORT, SWITCH_PORT}:
            values = values[window.ports.is_switch[lines.row] == (kind == SWITCH_PORT)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a cell without a reading
            median = np.nanmedian(values, axis=0) if len(values) else values.sum(axis=0)
        found.append(
            PeersExplained(
                kind=kind,
                metric=lines.metric + (f":{name.partition(':')[2]}" if ":" in name else ""),
                things=len(values),
                median=numbers(median),
            )
        )
    return found


def numbers(values: Floats | Ints) -> list[Number]:
    """As JSON has them: null where there is no reading."""
    return [number(value) for value in values.tolist()]


def number(value: float) -> Number:
    return value if abs(value) < float("inf") else None


def grid_of(grid: Grid) -> GridExplained:
    return GridExplained(start_ns=grid.start_ns, step_ns=grid.step_ns, cells=grid.cells)
