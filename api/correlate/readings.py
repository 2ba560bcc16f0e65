"""Samples of the store as matrices on a grid of time: what `alerts.window` calls readings.

One question for each kind of thing. A counter that did not move comes back as one row, whatever the
number of its samples: of a thousand ports' error counters hardly any moves, so that what is sent
is what happened. Names of series are looked up once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from alerts.columns import Flags, Floats, Ints
from alerts.window import Grid, Readings
from api.store.store import Store
from collector.contract.catalog import Alias, Kind, load_catalog
from collector.contract.errors import ContractError
from collector.contract.identity import metric_id
from collector.contract.records import ABSENT

GAP_SECONDS = 60
"""Two readings of a counter that are further apart say nothing about the time between: an agent
was away. Pollers read every ten to thirty seconds."""
STALE_SECONDS = 30
"""How long a gauge's value stands without being read again."""
SERIES_KEPT_MAX = 4_000_000
"""Names of series that are remembered: 40,000 ports with a hundred counters. Past it all are
forgotten, and looked up again."""

HOST_LABELS = ("host", "instance", "Hostname", "hostname", "node")
"""What exporters call the host, in the order in which they are believed."""

SAMPLES_SQL = """
    SELECT metric, series, min(time_ms) AS first_ms, max(time_ms) AS last_ms,
           argMin(value, time_ms) AS first_value,
           if(min(value) = max(value) OR count() = 1, [],
              arraySort(point -> point.1, groupArray((time_ms, value)))) AS points
    FROM (
        SELECT metric, series, toUnixTimestamp64Milli(time) AS time_ms, value AS value FROM samples
        WHERE metric IN {metrics:Array(UInt32)}
          AND time > fromUnixTimestamp64Milli({from_ms:Int64})
          AND time <= fromUnixTimestamp64Milli({to_ms:Int64})
    )
    WHERE isFinite(value)
    GROUP BY metric, series ORDER BY metric, series
"""
NAMES_SQL = """
    SELECT series, any(metric_name) AS name, any(labels) AS words FROM series
    WHERE metric_name IN {names:Array(String)} AND day >= toDate({from_s:Int64})
      AND day <= toDate({to_s:Int64})
    GROUP BY series
"""


class Choice(msgspec.Struct, frozen=True):
    """A metric that windows have, and under which name.

    ``split`` is the label whose values become readings of their own (`cpu_seconds_total:steal`);
    without it lines that differ in other labels are added up (``is_max``: the largest counts).
    """

    metric: str
    reading: str
    split: str = ""
    is_max: bool = False


class Line(msgspec.Struct, frozen=True):
    """One thing's values of one reading."""

    reading: str
    metric: str
    key: tuple[str, ...]
    """The thing: host and the labels that name it on its host."""
    values: Floats
    last_ns: int
    is_max: bool
    label: str


class Name(msgspec.Struct, frozen=True):
    """A metric as somebody calls it: the choice that it is, and by whose words."""

    choice: Choice
    is_counter: bool
    alias: Alias | None = None

    @property
    def factor(self) -> float:
        """What makes their numbers ours."""
        return 1.0 if self.alias is None else self.alias.factor

    def key(self, labels: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...] | None:
        """The thing that a series is of; None if the labels say that it is something else."""
        theirs: Mapping[str, str] = {}
        if self.alias is not None:
            theirs = self.alias.labels
            if any(labels.get(name) != value for name, value in self.alias.match.items()):
                return None
        key = [labels.get(theirs.get(name, name), "") for name in keys]
        if not key[0]:
            key[0] = next((labels[name] for name in HOST_LABELS if labels.get(name)), "")
        return tuple(key)


class SeriesNames:
    """What series ids mean; asked of the store once for each metric and when a new one comes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, tuple[str, dict[str, str]]] = {}

    def of(
        self, series: Sequence[int], metrics: Sequence[str], from_s: int, to_s: int
    ) -> dict[int, tuple[str, dict[str, str]]]:
        """Metric and labels of these series, as far as they are known."""
        if any(one not in self._known for one in series):
            if len(self._known) > SERIES_KEPT_MAX:
                self._known.clear()
            parameters = {"names": list(metrics), "from_s": from_s, "to_s": to_s}
            for row in self._store.query(NAMES_SQL, parameters).to_pylist():
                self._known[row["series"]] = row["name"], dict(row["words"])
        return {one: self._known[one] for one in series if one in self._known}


class GridReader:
    """Reads chosen metrics of things onto a grid. One a service: it remembers names of series.

    A metric is also found by what other exporters call it (the catalog's aliases).
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = SeriesNames(store)

    def read(self, choices: Sequence[Choice], keys: Sequence[str], grid: Grid) -> list[Line]:
        """A line for each series; ``keys`` are the labels that name a thing, the host first.

        Samples from a GAP before the grid are read too, so that the first cells have a rate. Lines
        of one thing and reading that other labels tell apart are not yet put together.
        """
        known = all_names(choices)
        by_id = {metric_id(name): name for name in known}
        from_ms = grid.start_ns // 1_000_000 - GAP_SECONDS * 1000
        to_ms = grid.end_ns // 1_000_000
        parameters = {"metrics": list(by_id), "from_ms": from_ms, "to_ms": to_ms}
        table = self._store.query(SAMPLES_SQL, parameters)
        if not len(table):
            return []
        own = [known[by_id[one]] for one in table["metric"].to_pylist()]
        values = on_grid(table, np.array([name.is_counter for name in own], dtype=bool), grid)
        series = table["series"].to_pylist()
        names = self._names.of(series, list(known), from_ms // 1000, to_ms // 1000)
        last_ns = table["last_ms"].to_numpy().astype(np.int64) * 1_000_000
        lines = []
        for place, (one, name) in enumerate(zip(series, own, strict=True)):
            labels = names[one][1] if one in names else None
            key = name.key(labels, keys) if labels is not None else None
            if labels is None or key is None:
                continue
            choice = name.choice
            extra = labels.get(choice.split, "") if choice.split else ""
            lines.append(
                Line(
                    reading=f"{choice.reading}:{extra}" if choice.split else choice.reading,
                    metric=names[one][0],
                    key=key,
                    values=values[place] * name.factor,
                    last_ns=int(last_ns[place]),
                    is_max=choice.is_max,
                    label=extra,
                )
            )
        return lines


def all_names(choices: Sequence[Choice]) -> dict[str, Name]:
    """Every name under which the chosen metrics may be stored."""
    catalog = load_catalog()
    found: dict[str, Name] = {}
    for choice in choices:
        metric = catalog.metric(choice.metric)
        if metric is None:
            raise ContractError(
                f"{choice.metric}: a window asks for what the catalog does not have"
            )
        is_counter = metric.kind is Kind.COUNTER
        found[choice.metric] = Name(choice, is_counter)
        for alias in metric.aliases:
            found.setdefault(alias.name, Name(choice, is_counter, alias))
    return found


# From samples to cells ---------------------------------------------------------------------------


def on_grid(table: Any, is_counter: Flags, grid: Grid) -> Floats:  # noqa: ANN401 - pyarrow's table
    """[series, cells] of the answer to SAMPLES_SQL."""
    first_ms = table["first_ms"].to_numpy().astype(np.int64)
    last_ms = table["last_ms"].to_numpy().astype(np.int64)
    first_value = table["first_value"].to_numpy().astype(np.float64)
    values = np.full((len(first_ms), grid.cells), np.nan)
    owner, time_ms, value = flattened(table["points"])
    moved = np.zeros(len(first_ms), dtype=bool)
    moved[owner] = True
    fill_still(values, ~moved, (first_ms, last_ms), np.where(is_counter, 0.0, first_value), grid)
    moving = is_counter[owner]
    fill_rates(values, owner[moving], time_ms[moving], value[moving], grid)
    fill_levels(values, owner[~moving], time_ms[~moving], value[~moving], grid)
    # A single reading of a counter is no rate.
    values[is_counter & (first_ms == last_ms)] = np.nan
    return values


def flattened(points: Any) -> tuple[Ints, Ints, Floats]:  # noqa: ANN401 - pyarrow's column
    """For each point of the lists: the list's number, its time and its value."""
    whole = points.combine_chunks()
    if hasattr(whole, "chunks"):
        whole = whole.chunk(0) if whole.num_chunks else None
    if whole is None or not len(whole):
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, np.zeros(0)
    counts = np.diff(whole.offsets.to_numpy().astype(np.int64))
    fields = whole.flatten()
    time_ms = fields.field(0).to_numpy(zero_copy_only=False).astype(np.int64)
    value = fields.field(1).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts), time_ms, value


def fill_still(
    values: Floats, rows: Flags, span_ms: tuple[Ints, Ints], level: Floats, grid: Grid
) -> None:
    """What never moved has one value in every cell that its samples cover."""
    edges_ms = grid.edges_ns // 1_000_000
    first, last = span_ms
    reach = last + STALE_SECONDS * 1000
    covered = (edges_ms[None, 1:] > first[rows, None]) & (edges_ms[None, :-1] < reach[rows, None])
    values[rows] = np.where(covered, level[rows, None], np.nan)


def fill_rates(values: Floats, owner: Ints, time_ms: Ints, value: Floats, grid: Grid) -> None:
    """Increases a second between two readings, shared out over the cells that they span."""
    if len(owner) < 2:  # noqa: PLR2004 - a pair
        return
    same = owner[1:] == owner[:-1]
    took = np.diff(time_ms).astype(np.float64) / 1000
    grown = np.diff(value)
    good = same & (took > 0) & (took <= GAP_SECONDS) & (grown >= 0)
    row, rate = owner[1:][good], grown[good] / took[good]
    begin, end = time_ms[:-1][good], time_ms[1:][good]
    step_ms, start_ms = grid.step_ns / 1e6, grid.start_ns / 1e6
    first_cell = np.floor((begin - start_ms) / step_ms).astype(np.int64)
    last_cell = np.floor((end - start_ms) / step_ms).astype(np.int64)
    amount = np.zeros(values.shape)
    covered = np.zeros(values.shape)
    for shift in range(int((last_cell - first_cell).max(initial=-1)) + 1):
        cell = first_cell + shift
        inside = (cell <= last_cell) & (cell >= 0) & (cell < grid.cells)
        low = np.maximum(begin, start_ms + cell * step_ms)
        high = np.minimum(end, start_ms + (cell + 1) * step_ms)
        seconds = np.maximum(high - low, 0.0) / 1000
        place = (row[inside], cell[inside])
        np.add.at(amount, place, (rate * seconds)[inside])
        np.add.at(covered, place, seconds[inside])
    seen = covered > 0
    values[seen] = amount[seen] / covered[seen]


def fill_levels(values: Floats, owner: Ints, time_ms: Ints, value: Floats, grid: Grid) -> None:
    """The latest value at each cell's end, unless it is stale by then."""
    if not len(owner):
        return
    ends_ms = (grid.edges_ns[1:] // 1_000_000).astype(np.float64)
    rows, first = np.unique(owner, return_index=True)
    bounds = np.append(first, len(owner))
    for place, row in enumerate(rows.tolist()):
        own = slice(bounds[place], bounds[place + 1])
        before = np.searchsorted(time_ms[own], ends_ms, side="right") - 1
        found = np.maximum(before, 0)
        fresh = (before >= 0) & (ends_ms - time_ms[own][found] <= STALE_SECONDS * 1000)
        values[row] = np.where(fresh, value[own][found], np.nan)


# From lines to readings --------------------------------------------------------------------------


def gathered(
    lines: Sequence[Line], row_of: Mapping[tuple[str, ...], int], grid: Grid
) -> tuple[dict[str, Readings], Ints]:
    """Readings by name, and when each row was last read. Lines of unknown things are left out."""
    seen_ns = np.full(max(row_of.values(), default=-1) + 1, ABSENT, dtype=np.int64)
    by_reading: dict[str, list[Line]] = {}
    for line in lines:
        row = row_of.get(line.key)
        if row is not None:
            by_reading.setdefault(line.reading, []).append(line)
            seen_ns[row] = max(int(seen_ns[row]), line.last_ns)
    readings = {}
    for name, own in by_reading.items():
        rows = np.array([row_of[line.key] for line in own], dtype=np.int64)
        kept, place = np.unique(rows, return_inverse=True)
        values = np.full((len(kept), grid.cells), np.nan)
        for line, at in zip(own, place.tolist(), strict=True):
            join = np.fmax if line.is_max else nan_sum
            values[at] = join(values[at], line.values)
        readings[name] = Readings(
            metric=own[0].metric, row=kept.astype(np.int64), values=values, label=own[0].label
        )
    return readings, seen_ns


def nan_sum(one: Floats, other: Floats) -> Floats:
    """The sum; where only one of them is known, that one."""
    total: Floats = np.where(np.isnan(one), other, np.where(np.isnan(other), one, one + other))
    return total
