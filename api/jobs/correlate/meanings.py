"""Which thing and which reading a series is, and under which of its names.

The labels of a series never change, so that what was learned of one holds for as long as the
process lives, and for all readers of windows: the evaluator, and whoever looks at a past one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.window.columns import Flags, Ints
from api.base.quarantine import Quarantine, shown_series
from api.data.inventory.sightings import host_of
from api.data.store.store import Store
from collector.contract.catalog import Alias, Kind, load_catalog
from collector.contract.errors import ContractError
from collector.contract.identity import metric_id, odd_part

ROAD = "window"
"""Under which the quarantine has series that windows leave out."""

NOTHING = (-1, -1, -1)
"""Codes of a series that is of no thing of a window."""

SeriesIds = npt.NDArray[np.uint64]


class Choice(msgspec.Struct, frozen=True):
    """A metric that windows have, and under which name.

    ``split`` is the label whose values become readings of their own (`cpu_seconds_total:steal`);
    without it lines that differ in other labels are added up (``is_max``: the largest counts).
    ``is_peak``: of several values within one cell the largest counts, and not the last.
    ``needs`` and ``lacks`` are labels that tell the series of this kind of thing from those of
    another one; empty: all are its.
    """

    metric: str
    reading: str
    split: str = ""
    is_max: bool = False
    is_peak: bool = False
    needs: str = ""
    lacks: str = ""


class Target(msgspec.Struct, frozen=True):
    """A kind of thing: what windows have of it, and the labels that name one, the host first."""

    choices: tuple[Choice, ...]
    keys: tuple[str, ...]
    may_lack_host: bool = False
    """Whether a series without a host is of one nevertheless: a machine's exporter, read from a
    file, names its GPUs and not itself."""

    def odd(self, key: Sequence[str]) -> str:
        """Why this key names no thing; empty: it does."""
        first = 1 if self.may_lack_host and not key[0] else 0
        return odd_part(self.keys[first:], key[first:])


class Name(msgspec.Struct, frozen=True):
    """A name of a metric: the choice that it is, and the exporter's alias."""

    choice: Choice
    is_counter: bool
    alias: Alias | None = None
    labels: tuple[str, ...] = ()
    """Of the metric, by the catalog's names: they tell apart what is measured at one thing."""

    @property
    def factor(self) -> float:
        return 1.0 if self.alias is None else self.alias.factor

    def key(self, labels: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...] | None:
        """The thing that a series is of; None if the labels name something else."""
        theirs: Mapping[str, str] = {}
        if self.alias is not None:
            theirs = self.alias.labels
            if not self.alias.fits(labels):
                return None
        needs, lacks = self.choice.needs, self.choice.lacks
        if (needs and not labels.get(needs)) or (lacks and labels.get(lacks)):
            return None
        own = (labels.get(theirs.get(name, name), "") for name in keys[1:])
        return (host_of(labels, theirs), *own)

    def measured(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What is measured at the thing: values of the metric's labels, by its own names."""
        if self.alias is None:
            return tuple(labels.get(name, "") for name in self.labels)
        theirs, means = self.alias.labels, self.alias.means
        return tuple(
            means.get(name) or labels.get(theirs.get(name, name), "") for name in self.labels
        )


def all_names(choices: Sequence[Choice]) -> dict[str, Name]:
    """Every name that a series of these metrics may have: the catalog's own, and aliases.

    Names of metrics alone. What a series is of (a host, a NIC by its device, an interface) is told
    by its labels, see `Name.key`; an address is never a name.
    """
    catalog = load_catalog()
    found: dict[str, Name] = {}
    for choice in choices:
        metric = catalog.metric(choice.metric)
        if metric is None:
            raise ContractError(
                f"{choice.metric}: a window asks for what the catalog does not have"
            )
        is_counter, labels = metric.kind is Kind.COUNTER, tuple(metric.labels)
        found[choice.metric] = Name(choice, is_counter, labels=labels)
        for alias in metric.aliases:
            found.setdefault(alias.name, Name(choice, is_counter, alias, labels))
    return found


class ReadingName(msgspec.Struct, frozen=True):
    """A reading of one kind of thing; ``label`` is the value that it was split by."""

    name: str
    is_max: bool
    label: str


class Columns(NamedTuple):
    """What each known series is, in codes."""

    series: SeriesIds
    reading: Ints
    key: Ints
    line: Ints


class Known:
    """The meaning of the series of one kind of thing, as columns sorted by series.

    For any thread: what is known only grows, and a code never changes what it means.
    """

    def __init__(self, target: Target, quarantine: Quarantine) -> None:
        self.target = target
        self._quarantine = quarantine
        self._adding = threading.Lock()
        self.names = all_names(target.choices)
        self.by_id = {metric_id(name): name for name in self.names}
        self.readings: list[ReadingName] = []
        self.keys: list[tuple[str, ...]] = []
        self._reading_code: dict[ReadingName, int] = {}
        self._key_code: dict[tuple[str, ...], int] = {}
        self._line_code: dict[tuple[int, int, tuple[str, ...]], int] = {}
        self._columns = Columns(
            np.zeros(0, np.uint64), *(np.zeros(0, np.int64) for _ in Columns._fields[1:])
        )
        """Replaced as a whole."""

    def __len__(self) -> int:
        return len(self._columns.series)

    def find(self, series: SeriesIds) -> tuple[Flags, Ints, Ints, Ints]:
        """Which are known, and their reading, thing and line; -1 for series of other things."""
        columns = self._columns
        if not len(columns.series):
            nothing = np.full(len(series), -1, dtype=np.int64)
            return np.zeros(len(series), dtype=bool), nothing, nothing, nothing
        place = np.minimum(np.searchsorted(columns.series, series), len(columns.series) - 1)
        is_known: Flags = columns.series[place] == series
        reading, key, line = (np.where(is_known, column[place], -1) for column in columns[1:])
        return is_known, reading, key, line

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        with self._adding:
            meant = [self._meaning(row["name"], dict(row["words"])) for row in rows]
            codes = np.array(meant, dtype=np.int64).reshape(-1, 3)
            series = np.array([row["series"] for row in rows], dtype=np.uint64)
            new = Columns(series, *codes.T)
            both = zip(self._columns, new, strict=True)
            series, *others = (np.concatenate(pair) for pair in both)
            series, first = np.unique(series, return_index=True)
            self._columns = Columns(series, *(column[first] for column in others))

    def _meaning(self, metric: str, labels: Mapping[str, str]) -> tuple[int, int, int]:
        """The codes of reading, key and line; -1 three times if it is something else."""
        name = self.names.get(metric)
        key = name.key(labels, self.target.keys) if name is not None else None
        if name is None or key is None:
            return NOTHING
        if odd := self.target.odd(key):
            self._quarantine.put(ROAD, odd, shown_series(labels, metric))
            return NOTHING
        choice = name.choice
        extra = labels.get(choice.split, "") if choice.split else ""
        full = f"{choice.reading}:{extra}" if choice.split else choice.reading
        reading = ReadingName(full, choice.is_max, extra)
        if reading not in self._reading_code:
            self._reading_code[reading] = len(self.readings)
            self.readings.append(reading)
        if key not in self._key_code:
            self._key_code[key] = len(self.keys)
            self.keys.append(key)
        codes = self._reading_code[reading], self._key_code[key]
        line = self._line_code.setdefault((*codes, name.measured(labels)), len(self._line_code))
        return *codes, line


class Meanings:
    """What is known of a store's series, by kind of thing; for any thread."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine
        self._known: dict[int, Known] = {}
        """By the target itself, and not by all of its choices: they are compared for every
        window."""
        self._lock = threading.Lock()

    def of(self, target: Target) -> Known:
        with self._lock:
            found = self._known.get(id(target))
            if found is None:
                found = self._known[id(target)] = Known(target, self._quarantine)
            return found

    def anew(self, full: Known) -> Known:
        """What takes the place of one that is full: it knows nothing yet."""
        with self._lock:
            if self._known[id(full.target)] is full:
                self._known[id(full.target)] = Known(full.target, self._quarantine)
            return self._known[id(full.target)]


_MEANINGS: WeakKeyDictionary[Store, Meanings] = WeakKeyDictionary()
_FINDING = threading.Lock()


def meanings_of(store: Store) -> Meanings:
    """Those that all readers of a store share."""
    with _FINDING:
        return _MEANINGS.setdefault(store, Meanings(store.quarantine))


def fitting(reading: Ints, readings: Sequence[ReadingName], most: int) -> Flags:
    """Which series are of the first ``most`` labels that a metric was split by; -1 fits always."""
    codes = np.unique(reading[reading >= 0])
    if len(codes) <= most:
        return np.ones(len(reading), dtype=bool)
    ordered = sorted(codes.tolist(), key=lambda code: readings[code].label)
    left_out: Flags = np.isin(reading, ordered[most:])
    return ~left_out
