"""Finds and caches the series of a selector: the labels of an id, their digest, never change."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from api.base.limits import QUERY_LABELS_CACHED_MAX, QUERY_SERIES_MAX
from api.base.memory import memory_bytes
from api.data.selectors import Condition, Selector, utc_day
from api.promql.aliases import Strand
from api.promql.arrange import Ids, Stored
from api.promql.errors import QueryError, failed
from api.promql.values import Floats, Ints, LabelRows, Labels, Vector, derive, label_key
from collector.contract.identity import METRIC_LABEL, metric_id

IDS_INLINE_MAX = 1_000
"""Up to this many series are listed in the SQL by id; more are matched by their labels again."""

LABEL_SET_BYTES = 1_200
"""A label set with what queries derive from it, about."""


def series_max(memory: int) -> int:
    """QUERY_SERIES_MAX with so many bytes of memory: a twelfth of it for one selector's labels."""
    return max(QUERY_SERIES_MAX, memory // 12 // LABEL_SET_BYTES)


SERIES_MAX = series_max(memory_bytes())
"""QUERY_SERIES_MAX, on this machine: a rule over all queues of all ports needs a thousand series a
host, and on a machine that is made for so many hosts it may have them."""

FOUND_ROWS_MAX = SERIES_MAX * 3 // 2
"""Rows of all cached answers together. Past it the cache is cleared."""

LABELS_CACHED_MAX = max(QUERY_LABELS_CACHED_MAX, SERIES_MAX)
"""QUERY_LABELS_CACHED_MAX, on this machine: one selector's must fit."""

FOUND_MAX = 10_000

MOVED_FROM = 100_000
"""Series of a selector from which on the store is asked which of them moved. Fewer may be held in
memory, and are read in less time than that takes (56 ns of a core a sample)."""

MOVED_MAX = 10_000
"""As many may have moved; with more, all are looked at."""

OF_METRIC = "metric IN {metrics:Array(UInt32)}"
OF_SERIES = "series IN {series:Array(UInt64)}"

Ask = Callable[[str, dict[str, Any]], pa.Table]
Key = tuple[Selector, dt.date, dt.date]
Among = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels, each with the values in which a series is of use."""

LARGE_FROM = 20_000
"""Series of a selector from which on those that are of use are asked for, unless all are known."""


class Sought(msgspec.Struct, frozen=True):
    """A selector whose series are to be found; see `SeriesMemory.find`."""

    version: int | None
    strands: list[Strand]
    from_ms: int
    to_ms: int

    @property
    def key(self) -> Key:
        return self.strands[0].selector, utc_day(self.from_ms), utc_day(self.to_ms)


class Found(msgspec.Struct, frozen=True):
    """The series that a selector matches: row number → labels, and the SQL for their samples."""

    labels: LabelRows
    row_of: dict[int, int]
    factors: Floats | None
    where: str
    """The SQL condition on `samples` that holds for these series."""
    parameters: dict[str, Any]
    shaded: tuple[tuple[int, int], ...] = ()
    """Rows of another exporter, each with the catalog's row that measures the same thing."""
    in_order: bool = False
    """The rows are in the order of their ids, which is that of their samples."""

    @property
    def is_listed(self) -> bool:
        """Whether ``where`` lists the series (`OF_SERIES`): they may be few of their metric's."""
        return "series" in self.parameters

    def ids_and_rows(self) -> tuple[Ids, Ints]:
        def make() -> tuple[Ids, Ints]:
            ids = np.fromiter(self.row_of, np.uint64, len(self.row_of))
            rows = np.fromiter(self.row_of.values(), np.int64, len(self.row_of))
            order = np.argsort(ids)
            return ids[order], rows[order]

        return derive(self.labels, "ids", make)

    def split(self, parts: int) -> list[Found]:
        """About equally large parts of the series, in the order of their ids."""
        if parts <= 1 or len(self.labels) <= 1:
            return [self]

        def cut() -> list[Found]:
            series = sorted(self.row_of)
            size = math.ceil(len(series) / parts)
            return [self.part(series[at : at + size]) for at in range(0, len(series), size)]

        return derive(self.labels, ("parts", parts), cut)

    def among(self, among: Among) -> Found:
        """Those of the series that are of use; all of them where these are many.

        All, too, where rows shade each other: one of them could be missing.
        """
        if self.shaded:
            return self
        return derive(self.labels, ("among", among), lambda: self._among(among))

    def _among(self, among: Among) -> Found:
        chosen = set(range(len(self.labels))) if not among else None
        for label, values in among:
            rows_of = self._rows_of(label)
            rows = {row for value in values for row in rows_of.get(value, ())}
            chosen = rows if chosen is None else chosen & rows
        assert chosen is not None
        if len(chosen) > IDS_INLINE_MAX or len(chosen) == len(self.labels):
            return self
        return self.of_rows(np.array(sorted(chosen), np.int64))

    def of_rows(self, kept: Ints) -> Found:
        """Some of the rows, in ascending order, at most IDS_INLINE_MAX; none shades another."""
        ids, own_rows = self.ids_and_rows()
        of_use = np.isin(own_rows, kept)
        series = ids[of_use].tolist()
        return Found(
            LabelRows(self.labels[row] for row in kept.tolist()),
            dict(zip(series, np.searchsorted(kept, own_rows[of_use]).tolist(), strict=True)),
            None if self.factors is None else self.factors[kept],
            f"{OF_METRIC} AND {OF_SERIES}",
            {"metrics": self.parameters["metrics"], "series": series},
            in_order=self.in_order,
        )

    def _rows_of(self, label: str) -> dict[str, list[int]]:
        def make() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            for row, labels in enumerate(self.labels):
                found.setdefault(labels.get(label, ""), []).append(row)
            return found

        return derive(self.labels, ("rows", label), make)

    def shade(self, vector: Vector) -> Vector:
        """The catalog's row, and the other exporter's in its gaps; rows are those of ``labels``."""
        if not self.shaded:
            return vector
        present = vector.present.copy()
        for theirs, ours in self.shaded:
            present[theirs] &= ~present[ours]
        return Vector(vector.labels, vector.values, present)

    def part(self, series: list[int]) -> Found:
        """Some of these series, which follow each other in the order of their ids."""
        rows = [self.row_of[one] for one in series]
        return Found(
            LabelRows(self.labels[row] for row in rows),
            {one: number for number, one in enumerate(series)},
            None if self.factors is None else self.factors[rows],
            f"{self.where} AND series BETWEEN {{lowest:UInt64}} AND {{highest:UInt64}}",
            {**self.parameters, "lowest": series[0], "highest": series[-1]},
        )


class Group(msgspec.Struct):
    """Series of several selectors, whose samples of one time are read by one statement."""

    found: Found
    """All of them: for what is read; without labels."""
    members: list[Found]
    stored: Stored | None = None
    """The samples of all, when they are read."""

    @property
    def series(self) -> int:
        return len(self.found.parameters["series"])

    def has(self, found: Found) -> bool:
        return any(one is found for one in self.members)


def group_of(found: Sequence[Found]) -> Group | None:
    """None: there are not two, or too many series to list them."""
    members = [one for one in found if one.is_listed]
    series, metrics = (
        sorted({each for one in members for each in one.parameters[name]})
        for name in ("series", "metrics")
    )
    if len(members) < 2 or len(series) > IDS_INLINE_MAX:  # noqa: PLR2004 - several
        return None
    parameters = {"metrics": metrics, "series": series}
    where = f"{OF_METRIC} AND {OF_SERIES}"
    return Group(Found(LabelRows(()), {}, None, where, parameters), members)


class SeriesMemory:
    """Cache of labels by id, and of selectors' results. Thread-safe."""

    def __init__(self) -> None:
        self._labels: dict[int, Labels] = {}
        self._found: dict[Key, tuple[int, Found]] = {}
        self._large: dict[Selector, int] = {}
        self._found_rows = 0
        self._lock = threading.Lock()

    def find(
        self,
        ask: Ask,
        version: int | None,
        strands: list[Strand],
        from_ms: int,
        to_ms: int,
        among: Among = (),
    ) -> Found:
        """The series that match, of those that were seen on the days of this range.

        ``version`` is the store's `series_version` of their metrics, read before anything else: a
        result of the same version is reused without a query. ``among``: see `Found.among`.
        """
        sought = Sought(version, strands, from_ms, to_ms)
        if (known := self.known(sought)) is not None:
            return known
        selector = strands[0].selector
        useful = kept_apart(strands, among)
        if useful and selector in self._large:
            return self._look(ask, strands, from_ms, to_ms, useful)
        try:
            found = self._look(ask, strands, from_ms, to_ms)
        except QueryError as error:
            if error.rule != "QUERY_SERIES_MAX":
                raise
            self._note_large(selector, SERIES_MAX)
            if not useful:
                raise
            return self._look(ask, strands, from_ms, to_ms, useful)
        if len(found.labels) >= LARGE_FROM:
            self._note_large(selector, len(found.labels))
        if version is not None:
            self._remember(sought.key, version, found)
        return found

    def find_all(self, ask: Ask, sought: Sequence[Sought]) -> None:
        """Find by one question what `find` would find by two each, of selectors of the same days.

        A question costs the engine what the labels of a thousand series cost, and metrics that a
        view shows together lie together. Too many series: nothing is found, and each is asked for.
        """
        missing = {one.key: one for one in sought if self._is_missing(one)}
        for days in {key[1:] for key in missing}:
            several = [one for key, one in missing.items() if key[1:] == days]
            if len(several) > 1:
                self._look_all(ask, several)

    def known(self, one: Sought) -> Found | None:
        """What a selector was found to match, if that is surely all."""
        version, found = self._found.get(one.key, (None, None))
        return found if version is not None and version == one.version else None

    def _is_missing(self, one: Sought) -> bool:
        """Whether it is to be found with others: it has a metric, and a label that few have."""
        selector = one.strands[0].selector
        if selector.metric is None or selector.label is None or selector in self._large:
            return False
        return one.version is not None and self.known(one) is None

    def _look_all(self, ask: Ask, sought: Sequence[Sought]) -> None:
        condition = Condition()
        of_each = [[strand.conditions(condition) for strand in one.strands] for one in sought]
        # Few texts, each evaluated once: to read a long statement takes longer than to answer it.
        meets = {text: None for strands in of_each for texts in strands for text in texts}
        place_of = {text: place for place, text in enumerate(meets)}
        rows = ask(
            "SELECT series, metric_name AS name, labels, "  # noqa: S608 - placeholders only
            f"[{', '.join(meets)}] AS meets FROM series "
            f"WHERE {condition.days(sought[0].from_ms, sought[0].to_ms)} "
            f"AND {any_of(sought, condition)} "
            f"ORDER BY series LIMIT 1 BY series LIMIT {SERIES_MAX + 1}",
            condition.parameters,
        )
        if rows.num_rows > SERIES_MAX:
            return
        series, labels = rows["series"].to_pylist(), read_labels(rows)
        names = np.array(rows["name"].to_pylist(), object)
        met = np.array(rows["meets"].to_pylist(), bool).reshape(-1, len(meets))
        self._learn(dict(zip(series, labels, strict=True)))
        for one, strands in zip(sought, of_each, strict=True):
            is_of = [
                (names == strand.metric) & met[:, [place_of[text] for text in texts]].all(axis=1)
                for strand, texts in zip(one.strands, strands, strict=True)
            ]
            strand_of = np.argmax(np.array([*is_of, np.ones(len(series), bool)]), axis=0)
            own = np.flatnonzero(strand_of < len(is_of)).tolist()
            found = self._gather(
                one.strands,
                [series[row] for row in own],
                [labels[row] for row in own],
                strand_of[own].tolist(),
                *where_of(one.strands, one.from_ms, one.to_ms)[:2],
                everything=len(one.strands[0].selector.matchers) == 1,
            )
            if len(found.labels) >= LARGE_FROM:
                self._note_large(one.key[0], len(found.labels))
            assert one.version is not None
            self._remember(one.key, one.version, found)

    def _remember(self, key: Key, version: int, found: Found) -> None:
        with self._lock:
            before = self._found.pop(key, None)
            self._found_rows += len(found.labels) - (len(before[1].labels) if before else 0)
            if self._found_rows > FOUND_ROWS_MAX or len(self._found) >= FOUND_MAX:
                self._found, self._found_rows = {}, len(found.labels)
            self._found[key] = (version, found)

    def series_in(self, selector: Selector) -> int:
        """How many series a selector is known to find, if they are many; else 0."""
        return self._large.get(selector, 0)

    def find_ids(self, ask: Ask, strand: Strand, from_ms: int, to_ms: int, ids: list[int]) -> Found:
        """Those of these series that match."""
        return self._look(ask, [strand], from_ms, to_ms, ids=ids)

    def _note_large(self, selector: Selector, series: int) -> None:
        with self._lock:
            if len(self._large) >= FOUND_MAX:
                self._large = {}
            self._large[selector] = series

    def _look(
        self,
        ask: Ask,
        strands: list[Strand],
        from_ms: int,
        to_ms: int,
        among: Among = (),
        ids: list[int] | None = None,
    ) -> Found:
        where, parameters, matches = where_of(strands, from_ms, to_ms, among, ids)
        strand_number = number_of_first(matches[:-1])
        rows = ask(
            f"SELECT series, any({strand_number}) AS strand FROM series WHERE {where} "  # noqa: S608 - placeholders only
            f"GROUP BY series ORDER BY series LIMIT {SERIES_MAX + 1}",
            parameters,
        )
        if rows.num_rows > SERIES_MAX:
            raise failed(
                f"the selector matches more than {SERIES_MAX} series (QUERY_SERIES_MAX); narrow it",
                rule="QUERY_SERIES_MAX",
            )
        series = rows["series"].to_pylist()
        known = self._know(ask, series, where, parameters)
        return self._gather(
            strands,
            series,
            known,
            rows["strand"].to_pylist(),
            where,
            parameters,
            everything=not among and ids is None and len(strands[0].selector.matchers) == 1,
        )

    def _know(
        self, ask: Ask, series: list[int], where: str, parameters: dict[str, Any]
    ) -> list[Labels | None]:
        """The labels of these series, read from the store where they are not cached."""
        remembered = self._labels  # kept here: another query may clear the cache meanwhile
        unknown = [one for one in series if one not in remembered]
        if not unknown:
            return [remembered.get(one) for one in series]
        if len(unknown) <= IDS_INLINE_MAX:
            where = f"{where} AND series IN {{unknown:Array(UInt64)}}"
            parameters = {**parameters, "unknown": unknown}
        rows = ask(
            "SELECT series, metric_name AS name, labels "  # noqa: S608 - placeholders only
            f"FROM series WHERE {where} LIMIT 1 BY series",
            parameters,
        )
        learnt = dict(zip(rows["series"].to_pylist(), read_labels(rows), strict=True))
        self._learn(learnt)
        return [learnt.get(one) or remembered.get(one) for one in series]

    def _learn(self, labels: dict[int, Labels]) -> None:
        with self._lock:
            if len(self._labels) + len(labels) > LABELS_CACHED_MAX:
                self._labels = {}
            self._labels.update(labels)

    def _gather(
        self,
        strands: list[Strand],
        series: list[int],
        known: list[Labels | None],
        strand_of: list[int],
        where: str,
        parameters: dict[str, Any],
        *,
        everything: bool,
    ) -> Found:
        """The rows with their labels as they are shown, and the condition on their samples."""
        if len(strands) == 1 and None not in known:
            # The usual case, at the speed of the interpreter's own loops.
            labels = LabelRows(cast("list[Labels]", known))
            metrics = {one[METRIC_LABEL] for one in labels}
            row_of = dict(zip(series, range(len(series)), strict=True))
            where, own = self._where(metrics, series, where, parameters, everything=everything)
            return Found(labels, row_of, None, where, own, in_order=True)
        labels, row_of, metrics = LabelRows(()), {}, set()
        factors: list[float] = []
        taken: set[frozenset[tuple[str, str]]] = set()
        measured: dict[tuple[str, ...], int] = {}
        shaded: list[tuple[int, int]] = []
        for index in sorted(range(len(series)), key=strand_of.__getitem__):
            stored, strand = known[index], strands[strand_of[index]]
            if stored is None:
                continue
            shown = strand.show(stored)
            key = label_key(shown)
            if key in taken:
                continue
            taken.add(key)
            thing = tuple(shown.get(label, "") for label in strand.identity)
            if strand.alias is None or thing not in measured:
                measured.setdefault(thing, len(labels))
            else:
                shaded.append((len(labels), measured[thing]))
            metrics.add(stored[METRIC_LABEL])
            row_of[series[index]] = len(labels)
            labels.append(shown)
            factors.append(strand.factor)
        scale = np.array(factors) if any(factor != 1.0 for factor in factors) else None
        where, own = self._where(metrics, series, where, parameters, everything=False)
        return Found(labels, row_of, scale, where, own, tuple(shaded))

    @staticmethod
    def _where(
        metrics: set[str],
        series: list[int],
        where: str,
        parameters: dict[str, Any],
        *,
        everything: bool,
    ) -> tuple[str, dict[str, Any]]:
        """The condition on `samples`. The key begins with the metric, then comes the series.

        ``everything``: the selector is a metric's name alone, and all of its series are here.
        """
        own = dict(parameters)
        own["metrics"] = sorted(metric_id(name) for name in metrics)
        if everything and len(metrics) == 1:
            return OF_METRIC, {"metrics": own["metrics"]}
        if len(series) <= IDS_INLINE_MAX:
            own = {"metrics": own["metrics"], "series": series}
            return f"{OF_METRIC} AND {OF_SERIES}", own
        return f"{OF_METRIC} AND series IN (SELECT series FROM series WHERE {where})", own  # noqa: S608 - placeholders only


def where_of(
    strands: list[Strand],
    from_ms: int,
    to_ms: int,
    among: Among = (),
    ids: list[int] | None = None,
) -> tuple[str, dict[str, Any], list[str]]:
    """The condition on `series` with its parameters, and the part of it that each strand is."""
    condition = Condition()
    matches = [
        " AND ".join(
            [
                strand.condition(condition),
                *(strand.is_among(condition, label, values) for label, values in among),
            ]
        )
        for strand in strands
    ]
    where = f"{condition.days(from_ms, to_ms)} AND ({' OR '.join(f'({m})' for m in matches)})"
    if ids is not None:
        where += f" AND series IN {condition.bind(ids, 'Array(UInt64)')}"
    return where, condition.parameters, matches


def any_of(sought: Sequence[Sought], condition: Condition) -> str:
    """What the series of all these selectors meet, and few others: their metrics, and a label."""
    names = sorted({strand.metric for one in sought for strand in one.strands if strand.metric})
    chosen = {
        strand.meets(condition, label): None
        for one in sought
        if (label := one.strands[0].selector.label) is not None
        for strand in one.strands
    }
    metric = f"metric_name IN {condition.bind(names, 'Array(String)')}"
    return f"{metric} AND ({' OR '.join(chosen)})"


def number_of_first(matches: Sequence[str]) -> str:
    """The number of the first of these conditions that holds; how many there are, if none does."""
    which = "".join(f"{match}, {number}, " for number, match in enumerate(matches))
    return f"multiIf({which}{len(matches)})" if which else "0"


def kept_apart(strands: list[Strand], among: Among) -> Among:
    """Those labels by which no row is parted from another that shades it.

    What measures the same thing has the labels of its identity in common, and may differ in others.
    """
    if len(strands) == 1:
        return among
    identity = strands[0].identity
    return tuple((label, values) for label, values in among if label in identity)


def read_labels(rows: pa.Table) -> list[Labels]:
    maps = rows["labels"].combine_chunks()
    keys, items = maps.keys.to_pylist(), maps.items.to_pylist()
    ends = maps.offsets.to_pylist()
    base = ends[0] if ends else 0
    sets: list[Labels] = []
    for name, start, end in zip(rows["name"].to_pylist(), ends[:-1], ends[1:], strict=True):
        pairs = [(METRIC_LABEL, name)]
        pairs += zip(keys[start - base : end - base], items[start - base : end - base], strict=True)
        sets.append(dict(sorted(pairs)))
    return sets
