"""Values of an evaluation: vectors, scalars and windows, each at every step of a grid at once.

A vector is a matrix, one row a series and one column a step, with a mask beside it: a NaN is a
value like any other, and absence is not a value. Label sets are plain dicts that many vectors
share: code that changes one copies it first.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from api.promql.errors import failed
from collector.contract.identity import METRIC_LABEL

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Labels = Mapping[str, str]

Made = TypeVar("Made")

DERIVED_MAX = 32
"""Derived values cached for the same rows. Past it the cache is cleared."""

SAME_LABELS = "vector cannot contain metrics with the same labelset"


class Dialect(enum.StrEnum):
    """The Prometheus generation whose rules apply where the two differ.

    | | Prometheus 3 | Prometheus 2 |
    |---|---|---|
    | a range `[5m]`, and the look-back | leave out a sample exactly 5 min old | take it in |
    | `rate` of a counter that begins inside the range | extrapolates by half an interval, or to \
zero if that is nearer | to zero, if that is nearer than 1.1 intervals |
    | `a > on (x) b`, several `a` for one `b` | refused | refused if several are kept |
    | `.` in a pattern of `label_replace` | meets a line break | does not |
    | `label_join` from a label that is no classic name | allowed | refused |
    """

    PROMETHEUS_3 = "prometheus-3"
    PROMETHEUS_2 = "prometheus-2"


class Grid(msgspec.Struct, frozen=True):
    """The moments at which a query is evaluated. An instant query has one."""

    start_ms: int
    step_ms: int
    steps: int
    until_ms: int | None = None
    """The requested end, if the last step comes before it."""

    @property
    def asked_end_ms(self) -> int:
        return self.end_ms if self.until_ms is None else self.until_ms

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.step_ms * (self.steps - 1)

    def times_ms(self) -> Ints:
        return self.start_ms + self.step_ms * np.arange(self.steps, dtype=np.int64)


class Notes:
    """Warnings and infos about an answer for the client, each once."""

    def __init__(self) -> None:
        self._warnings: dict[str, None] = {}
        self._infos: dict[str, None] = {}

    def warn(self, text: str) -> None:
        """For what is probably a mistake in the query or the data."""
        self._warnings[f"PromQL warning: {text}"] = None

    def inform(self, text: str) -> None:
        """For what may be a mistake, or intended."""
        self._infos[f"PromQL info: {text}"] = None

    @property
    def warnings(self) -> list[str]:
        return list(self._warnings)

    @property
    def infos(self) -> list[str]:
        return list(self._infos)


class Scalar(msgspec.Struct, frozen=True):
    """One number at every step."""

    values: Floats


class Text(msgspec.Struct, frozen=True):
    """A string; only some functions take one."""

    text: str


class Vector(msgspec.Struct, frozen=True):
    """Matrices (series, steps); an absent value means nothing. No two rows have the same labels."""

    labels: Sequence[Labels]
    values: Floats
    present: Bools

    @property
    def steps(self) -> int:
        return int(self.values.shape[1])

    def take(self, rows: Ints | Sequence[int]) -> Vector:
        chosen = np.asarray(rows, dtype=np.int64)

        def make() -> LabelRows:
            return LabelRows(self.labels[row] for row in chosen.tolist())

        # Which series a filter leaves changes all the time, which ones are there hardly does.
        is_most = 2 * len(chosen) >= len(self.labels)
        labels = derive(self.labels, ("take", chosen.tobytes()), make) if is_most else make()
        return Vector(labels, self.values[chosen], self.present[chosen])


class Windows(msgspec.Struct, frozen=True):
    """A range vector at every step.

    The window of series ``s`` at step ``k`` are the samples ``first[s, k] <= i < last[s, k]`` of
    ``times_ms`` and ``values``, which hold one series after the other, each in order of time.
    Stale markers are not among them.
    """

    labels: Sequence[Labels]
    times_ms: Ints
    values: Floats
    first: Ints
    last: Ints
    end_ms: Ints
    """The right end of the window at each step, offset and @ applied."""
    range_ms: int


class LabelRows(list[Labels]):
    """Label sets that never change, with a cache: rows of a cached selector are the same object."""

    def __init__(self, labels: Iterable[Labels]) -> None:
        super().__init__(labels)
        self.derived: dict[Hashable, Any] = {}


def derive(labels: Sequence[Labels], key: Hashable, make: Callable[[], Made]) -> Made:
    """``make`` of the labels; cached under the key if they are `LabelRows`."""
    if not isinstance(labels, LabelRows):
        return make()
    derived = labels.derived  # one and the same dict, whatever another thread does meanwhile
    if key in derived:
        known: Made = derived[key]
        return known
    made = make()
    if len(derived) >= DERIVED_MAX:
        labels.derived = derived = {}
    derived[key] = made
    return made


def derive_both(
    labels: Sequence[Labels], others: Sequence[Labels], key: Hashable, make: Callable[[], Made]
) -> Made:
    """``make`` of two sets of rows; cached if both are `LabelRows`, for these very two.

    Rules ask the same every few seconds, of the same rows: what depends on labels alone is most of
    a match's work.
    """
    if not isinstance(others, LabelRows):
        return make()
    # The others are kept with it, so that no new rows can have their number meanwhile.
    _, made = derive(labels, (key, id(others)), lambda: (others, make()))
    return made


def metric_names(labels: Sequence[Labels]) -> frozenset[str | None]:
    """The names of all metrics among the rows; None for a row without one."""
    return derive(labels, "metrics", lambda: frozenset(one.get(METRIC_LABEL) for one in labels))


def without_names(labels: Sequence[Labels]) -> Sequence[Labels]:
    return derive(labels, "bare", lambda: LabelRows(without_name(one) for one in labels))


def empty_vector(steps: int) -> Vector:
    return Vector([], np.zeros((0, steps)), np.zeros((0, steps), dtype=np.bool_))


def without_name(labels: Labels) -> Labels:
    """For results of functions, which are another quantity than the metric."""
    if METRIC_LABEL not in labels:
        return labels
    bare = dict(labels)
    del bare[METRIC_LABEL]
    return bare


def label_key(labels: Labels) -> frozenset[tuple[str, str]]:
    """Something hashable that two label sets share exactly if they are the same."""
    return frozenset(labels.items())


def label_order(labels: Labels) -> list[tuple[str, str]]:
    """The key by which Prometheus sorts series."""
    return sorted(labels.items())


def merge_rows(labels: Iterable[Labels], values: Floats, present: Bools) -> Vector:
    """Rows of the same labels become one; raises if two are present at a step, as Prometheus."""
    sets = list(labels)
    rows_of: dict[frozenset[tuple[str, str]], list[int]] = {}
    for row, one in enumerate(sets):
        rows_of.setdefault(label_key(one), []).append(row)
    if len(rows_of) == len(sets):
        return Vector(sets, values, present)
    firsts = [rows[0] for rows in rows_of.values()]
    merged, seen = values[firsts], present[firsts]
    for target, rows in enumerate(rows_of.values()):
        for row in rows[1:]:
            if bool(np.any(seen[target] & present[row])):
                raise failed(SAME_LABELS)
            merged[target] = np.where(present[row], values[row], merged[target])
            seen[target] |= present[row]
    return Vector([sets[row] for row in firsts], merged, seen)


def drop_absent(vector: Vector) -> Vector:
    ever = np.asarray(vector.present.any(axis=1))
    return vector if bool(ever.all()) else vector.take(np.flatnonzero(ever))


def distinct_rows(labels: Iterable[Labels], values: Floats, present: Bools) -> Vector:
    """Raises for two rows with the same labels, as Prometheus for range functions and minus."""
    sets = labels if isinstance(labels, LabelRows) else LabelRows(labels)
    found = drop_absent(Vector(sets, values, present))
    if not are_distinct(sets) and not are_distinct(found.labels):
        raise failed(SAME_LABELS)
    return found


def are_distinct(labels: Sequence[Labels]) -> bool:
    """Whether no two of them are the same."""
    return derive(labels, "distinct", lambda: len(set(map(label_key, labels))) == len(labels))
