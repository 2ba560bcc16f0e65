"""Queries for series, not samples: their existence, labels and metadata.

The `series` table answers them; it has a row for each series and day. Days are a filter only where
the client gives a range: without one, all days are searched, as in Prometheus. The table's
resolution is a day, so a series is found on the whole of a day on which it was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from api.base.limits import EXEMPLARS_FOUND_MAX, FEDERATED_SERIES_MAX, SERIES_FOUND_MAX
from api.data.export import ask, check_bound
from api.data.selectors import STORE_MS_MAX, Condition, Selector
from api.data.store.rollups import STALE_BITS
from api.data.store.store import Store
from api.promql.aliases import strands_of
from api.promql.find import read_labels
from api.promql.values import Floats, Ints, Labels, label_order
from collector.contract.catalog import Catalog, Kind, load_catalog
from collector.contract.identity import METRIC_LABEL, metric_id

_WHOLE = f"""mapSort(mapConcat(
    map('{METRIC_LABEL}', CAST(metric_name, 'String')), CAST(labels, 'Map(String, String)')))"""
"""The whole label set, sorted by name; as an array of pairs it sorts as Prometheus sorts series."""


class Scope(msgspec.Struct, frozen=True):
    """Series that meet any selector (none: all) in a range of time; an end that is None is open."""

    selectors: Sequence[Selector] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    catalog: Catalog | None = None
    """With it, selectors on the catalog's names also find other exporters' aliases."""

    def table(self, condition: Condition) -> tuple[str, str]:
        """The table itself where no alias is concerned, so that no other column is read."""
        strands = [s for one in self.selectors for s in strands_of(one, self.catalog)]
        if all(strand.alias is None for strand in strands):
            return "series", self.where(condition)
        days = self._days(condition)
        return f"({' UNION ALL '.join(s.rows(condition, days) for s in strands)})", "1"

    def _days(self, condition: Condition) -> str:
        if self.start_ms is None and self.end_ms is None:
            return "1"
        first = min(max(self.start_ms or 0, 0), STORE_MS_MAX)
        last = STORE_MS_MAX if self.end_ms is None else min(max(self.end_ms, 0), STORE_MS_MAX)
        return condition.days(first, last)

    def where(self, condition: Condition) -> str:
        parts = [self._days(condition)]
        if self.selectors:
            matches = (f"({condition.matches(selector)})" for selector in self.selectors)
            parts.append(f"({' OR '.join(matches)})")
        return " AND ".join(parts)

    def chosen(self, condition: Condition) -> str:
        """The condition on a row of another table, that it is of one of these series."""
        return f"series IN (SELECT series FROM series WHERE {self.where(condition)})"  # noqa: S608 - placeholders only


class Found(msgspec.Struct, frozen=True):
    """A sorted list, and whether a limit has cut it."""

    items: list[str]
    cut: bool


def bounded(rows: pa.ChunkedArray, limit: int) -> Found:
    """The rows without the extra one that was read to see whether there are more."""
    return Found(rows.slice(0, limit).to_pylist(), len(rows) > limit)


def bound_of(limit: int) -> int:
    """The smaller of the client's limit (0: none) and SERIES_FOUND_MAX."""
    return min(limit or SERIES_FOUND_MAX, SERIES_FOUND_MAX)


def label_names(store: Store, scope: Scope, limit: int = 0) -> Found:
    condition, most = Condition(), bound_of(limit)
    table, where = scope.table(condition)
    # labels.keys: the values, most of the column's bytes, are not read.
    rows = ask(
        store,
        f"""
        SELECT name FROM (
            SELECT DISTINCT arrayJoin(labels.keys) AS name FROM {table} WHERE {where}
            UNION DISTINCT
            (SELECT '{METRIC_LABEL}' AS name FROM {table} WHERE {where} LIMIT 1)
        ) ORDER BY name LIMIT {most + 1}
        """,  # noqa: S608 - placeholders only
        condition.parameters,
    )
    return bounded(rows["name"], most)


def label_values(store: Store, label: str, scope: Scope, limit: int = 0) -> Found:
    condition, most = Condition(), bound_of(limit)
    table, where = scope.table(condition)
    subject = "metric_name"
    if label != METRIC_LABEL:
        subject = f"labels[{condition.bind(label, 'String')}]"
    rows = ask(
        store,
        f"SELECT DISTINCT CAST({subject}, 'String') AS value FROM {table} "  # noqa: S608 - placeholders only
        f"WHERE {where} AND value != '' ORDER BY value LIMIT {most + 1}",
        condition.parameters,
    )
    return bounded(rows["value"], most)


def find_series(store: Store, scope: Scope, limit: int = 0) -> Found:
    """The label sets of the series, each as a JSON object, sorted by their labels.

    The store writes the JSON: 100,000 label sets never become Python objects. LIMIT 1 BY is six
    times faster here than GROUP BY, which keeps a state for each map.
    """
    condition, most = Condition(), bound_of(limit)
    table, where = scope.table(condition)
    rows = ask(
        store,
        f"""
        SELECT toJSONString(whole) AS labels FROM (
            SELECT {_WHOLE} AS whole FROM {table} WHERE {where} LIMIT 1 BY series
        ) ORDER BY CAST(whole, 'Array(Tuple(String, String))') LIMIT {most + 1}
        """,  # noqa: S608 - placeholders only
        condition.parameters,
    )
    # One thing that two exporters measure is one series; sorted, they stand side by side.
    return bounded(pa.chunked_array([rows["labels"].unique()]), most)


def labels_by_series(store: Store, scope: Scope, bound: int, rule: str) -> dict[int, Labels]:
    """The label sets by series id, sorted as Prometheus sorts; a Problem if over ``bound``."""
    condition = Condition()
    rows = ask(
        store,
        f"SELECT series, metric_name AS name, labels FROM series "  # noqa: S608 - placeholders only
        f"WHERE {scope.where(condition)} LIMIT 1 BY series LIMIT {bound + 1}",
        condition.parameters,
    )
    check_bound(rows.num_rows, bound, rule, "series match")
    found = zip(rows["series"].to_pylist(), read_labels(rows), strict=True)
    return dict(sorted(found, key=lambda pair: label_order(pair[1])))


# --- exemplars ---------------------------------------------------------------------------------


class Exemplar(msgspec.Struct, frozen=True):
    """A sample that stands for many, with the labels of the trace behind it."""

    labels: dict[str, str]
    time_ms: int
    value: float


def find_exemplars(store: Store, scope: Scope) -> list[tuple[Labels, list[Exemplar]]]:
    """By series, in order of time; unlike series, filtered by the range exactly."""
    condition = Condition()
    parts = [scope.chosen(condition)]
    for operator, moment in ((">=", scope.start_ms), ("<=", scope.end_ms)):
        if moment is not None:
            bound = condition.bind(min(max(moment, 0), STORE_MS_MAX), "Int64")
            parts.append(f"time {operator} fromUnixTimestamp64Milli({bound})")
    rows = ask(
        store,
        f"SELECT series, toUnixTimestamp64Milli(time) AS time_ms, value, labels "  # noqa: S608 - placeholders only
        f"FROM exemplars FINAL WHERE {' AND '.join(parts)} "
        f"ORDER BY series, time LIMIT {EXEMPLARS_FOUND_MAX + 1}",
        condition.parameters,
    )
    check_bound(rows.num_rows, EXEMPLARS_FOUND_MAX, "EXEMPLARS_FOUND_MAX", "exemplars match")
    if not rows.num_rows:
        return []
    found: dict[int, list[Exemplar]] = {}
    for row in rows.to_pylist():
        exemplar = Exemplar(dict(row["labels"]), row["time_ms"], row["value"])
        found.setdefault(row["series"], []).append(exemplar)
    labels = labels_by_series(store, scope, SERIES_FOUND_MAX, "SERIES_FOUND_MAX")
    return [(labels[series], found[series]) for series in labels if series in found]


# --- metadata ----------------------------------------------------------------------------------


class Metadata(msgspec.Struct, frozen=True):
    """A metric's type, help and unit, in Prometheus' terms."""

    type: str
    help: str
    unit: str


def find_metadata(store: Store, metric: str, limit: int) -> dict[str, list[Metadata]]:
    """Metadata by metric name: of one, or (empty name) of all, ``limit`` at most.

    From the catalog for the metrics that it defines, from remote-write senders for all others. A
    negative limit is none.
    """
    condition = Condition()
    where = f"metric_name = {condition.bind(metric, 'String')}" if metric else "1"
    rows = store.query(
        f"SELECT metric_name, type, help, unit FROM metadata FINAL WHERE {where}",  # noqa: S608 - placeholders only
        condition.parameters,
    )
    found = {
        row["metric_name"]: [Metadata(row["type"], row["help"], row["unit"])]
        for row in rows.to_pylist()
    }
    for known in load_catalog().metrics:
        if metric in {"", known.name}:
            # As exporters expose it: in the text format, an info metric is a gauge.
            kind = "gauge" if known.kind is Kind.INFO else known.kind.value
            found[known.name] = [Metadata(kind, known.help, known.unit.value)]
    names = sorted(found)
    return {name: found[name] for name in (names if limit < 0 else names[:limit])}


# --- the newest samples ------------------------------------------------------------------------


class Newest(msgspec.Struct, frozen=True):
    """The newest sample of each series, sorted by label sets."""

    labels: list[Labels]
    times_ms: Ints
    values: Floats


def newest_samples(
    store: Store, selectors: Sequence[Selector], after_ms: int, until_ms: int
) -> Newest:
    """The newest sample of each series in a range of time; series that have ended are left out."""
    scope = Scope(selectors, after_ms, until_ms)
    labels = labels_by_series(store, scope, FEDERATED_SERIES_MAX, "FEDERATED_SERIES_MAX")
    condition = Condition()
    metrics = sorted({metric_id(one[METRIC_LABEL]) for one in labels.values()})
    parts = [
        f"metric IN {condition.bind(metrics, 'Array(UInt32)')}",
        scope.chosen(condition),
        f"time > fromUnixTimestamp64Milli({condition.bind(after_ms, 'Int64')})",
        f"time <= fromUnixTimestamp64Milli({condition.bind(until_ms, 'Int64')})",
    ]
    rows = ask(
        store,
        f"SELECT series, toUnixTimestamp64Milli(max(time)) AS time_ms, "  # noqa: S608 - placeholders only
        f"argMax(reinterpretAsUInt64(value), time) AS bits "
        f"FROM samples FINAL WHERE {' AND '.join(parts)} "
        f"GROUP BY series HAVING bits != {STALE_BITS}",
        condition.parameters,
    )
    place_of = {series: place for place, series in enumerate(rows["series"].to_pylist())}
    kept = [series for series in labels if series in place_of]
    places = np.array([place_of[series] for series in kept], dtype=np.int64)
    return Newest(
        [labels[series] for series in kept],
        rows["time_ms"].to_numpy().astype(np.int64)[places],
        rows["bits"].to_numpy().astype(np.uint64).view(np.float64)[places],
    )


# --- how much there is -------------------------------------------------------------------------


def head_stats(store: Store, most: int) -> dict[str, Any]:
    """Of the newest day with samples; ``most`` bounds each list. There are no chunks: 0.

    One pass over the series: of each label its most frequent values come with its numbers, and
    the most frequent pairs of all are among those.
    """
    by_label = store.query(
        f"""
        SELECT label AS name, count() AS distinct, sum(series * length(value)) AS bytes,
            sum(series) AS total,
            arraySlice(
                arraySort(pair -> (-pair.2, pair.1), groupArray((value, toInt64(series)))),
                1, {most}) AS most
        FROM (
            SELECT label, value, count() AS series FROM series FINAL
            ARRAY JOIN arrayConcat(labels.keys, ['{METRIC_LABEL}']) AS label,
                       arrayConcat(labels.values, [CAST(metric_name, 'String')]) AS value
            WHERE day = (SELECT toDate(max(time)) FROM samples) GROUP BY label, value
        ) GROUP BY name
        """  # noqa: S608 - no text of anybody
    ).to_pylist()

    pairs = [
        {"label": row["name"], "name": value, "series": series}
        for row in by_label
        for value, series in (tuple(pair.values()) for pair in row["most"])
    ]
    whole = [{**pair, "name": f"{pair['label']}={pair['name']}"} for pair in pairs]
    metrics = [pair for pair in pairs if pair["label"] == METRIC_LABEL]
    times = store.query(
        "SELECT toUnixTimestamp64Milli(min(time)) AS first, "
        "toUnixTimestamp64Milli(max(time)) AS last FROM samples"
    ).to_pylist()[0]
    return {
        "headStats": {
            "numSeries": sum(row["total"] for row in by_label if row["name"] == METRIC_LABEL),
            "numLabelPairs": sum(row["distinct"] for row in by_label),
            "chunkCount": 0,
            "minTime": times["first"],
            "maxTime": times["last"],
        },
        "seriesCountByMetricName": top(metrics, "series", most),
        "labelValueCountByLabelName": top(by_label, "distinct", most),
        "memoryInBytesByLabelName": top(by_label, "bytes", most),
        "seriesCountByLabelValuePair": top(whole, "series", most),
    }


def top(rows: list[dict[str, Any]], column: str, most: int) -> list[dict[str, Any]]:
    highest = sorted(rows, key=lambda row: (-row[column], row["name"]))[:most]
    return [{"name": row["name"], "value": row[column]} for row in highest]
