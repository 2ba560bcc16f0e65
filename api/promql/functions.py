"""Functions on instant vectors, scalars and strings, by name.

Each takes its evaluated arguments, at all steps at once, and a scope. Functions on range vectors
have a table of their own.

Which functions keep the metric's name? Those that leave the samples as they are: the sorting ones,
`label_replace`, `label_join`. All others drop it, since their result is another quantity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import msgspec
import numpy as np

from api.promql.dates import DATE_PARTS, Dates, moments
from api.promql.errors import bad_data
from api.promql.histogram import histogram_fraction, histogram_quantile, histogram_quantiles
from api.promql.label_functions import (
    drop_names,
    label_join,
    label_replace,
    sort_by_labels,
    sort_by_values,
)
from api.promql.values import (
    Dialect,
    Floats,
    Grid,
    Ints,
    Labels,
    Notes,
    Scalar,
    Text,
    Vector,
    empty_vector,
)

_LARGE_FOR_HYPERBOLIC = 21.0
"""From here on the smaller of the two exponentials is lost in rounding."""


class Scope(msgspec.Struct, frozen=True):
    """Context of a function call besides its arguments."""

    grid: Grid
    """The moments at which the function is evaluated; in a subquery those of the subquery."""
    notes: Notes
    dialect: Dialect
    question: Grid | None = None
    """The moments of the whole query, if they differ from those of ``grid``."""

    @property
    def whole(self) -> Grid:
        return self.question or self.grid


Argument = Vector | Scalar | Text
Function = Callable[[Sequence[Argument], Scope], Vector | Scalar]


def as_vector(argument: Argument) -> Vector:
    assert isinstance(argument, Vector)
    return argument


def as_scalar(argument: Argument) -> Scalar:
    assert isinstance(argument, Scalar)
    return argument


def as_text(argument: Argument) -> str:
    assert isinstance(argument, Text)
    return argument.text


def constant(value: float, scope: Scope) -> Scalar:
    return Scalar(np.full(scope.grid.steps, value))


def unlabelled(values: Floats) -> Vector:
    return Vector([{}], values[np.newaxis], np.ones((1, values.size), dtype=np.bool_))


def seconds(grid: Grid) -> Floats:
    return grid.times_ms() / 1000


# --- numbers --------------------------------------------------------------------------------------


def elementwise(change: Callable[[Floats], Floats]) -> Function:
    def changed(arguments: Sequence[Argument], _: Scope) -> Vector:
        vector = as_vector(arguments[0])
        with np.errstate(all="ignore"):
            return drop_names(vector.labels, change(vector.values), vector.present)

    return changed


def sign(values: Floats) -> Floats:
    """-1, 1, or what is neither negative nor positive: the zeros and NaN."""
    return np.where(values < 0, -1.0, np.where(values > 0, 1.0, values))


def log2(values: Floats) -> Floats:
    """Go's way, exact for powers of two: near 1 numpy's differs in more than the last digit."""
    fraction, exponent = np.frexp(values)
    return np.where(
        fraction == 0.5,  # noqa: PLR2004 - the fraction of powers of two
        exponent - 1.0,
        np.log(fraction) * (1 / math.log(2)) + exponent,
    )


def log10(values: Floats) -> Floats:
    return log2(values) * (math.log(2) / math.log(10))


def cosh(values: Floats) -> Floats:
    """The hyperbolic cosine in Go's way, which overflows as early as the exponential function."""
    large = np.abs(values) > _LARGE_FOR_HYPERBOLIC
    return np.where(large, np.exp(np.abs(values)) * 0.5, np.cosh(values))


def sinh(values: Floats) -> Floats:
    """The hyperbolic sine in Go's way, which overflows as early as the exponential function."""
    large = np.abs(values) > _LARGE_FOR_HYPERBOLIC
    return np.where(large, np.copysign(cosh(values), values), np.sinh(values))


def larger(left: Floats, right: Floats) -> Floats:
    """The larger one as Go's ``math.Max`` has it: +Inf beats NaN, NaN all others, 0 beats -0."""
    either = np.where((left == 0) & (right == 0), left + right, np.maximum(left, right))
    return np.where((left == np.inf) | (right == np.inf), np.inf, either)


def smaller(left: Floats, right: Floats) -> Floats:
    """The smaller one as Go's ``math.Min`` has it: -Inf beats NaN, NaN all others, -0 beats 0."""
    return -larger(-left, -right)


def clamp(vector: Vector, lowest: Floats, highest: Floats) -> Vector:
    """The values within bounds; at steps where the bounds contradict each other there is nothing.

    A bound that is NaN makes NaN of every value, save where an infinity wins (see ``larger``).
    """
    with np.errstate(all="ignore"):
        values = larger(lowest, smaller(highest, vector.values))
        return drop_names(vector.labels, values, vector.present & ~(highest < lowest))


def call_clamp(arguments: Sequence[Argument], _: Scope) -> Vector:
    lowest, highest = (as_scalar(one).values for one in arguments[1:])
    return clamp(as_vector(arguments[0]), lowest, highest)


def call_clamp_min(arguments: Sequence[Argument], scope: Scope) -> Vector:
    highest = constant(math.inf, scope).values
    return clamp(as_vector(arguments[0]), as_scalar(arguments[1]).values, highest)


def call_clamp_max(arguments: Sequence[Argument], scope: Scope) -> Vector:
    lowest = constant(-math.inf, scope).values
    return clamp(as_vector(arguments[0]), lowest, as_scalar(arguments[1]).values)


def call_round(arguments: Sequence[Argument], scope: Scope) -> Vector:
    """`round(v, to_nearest=1)`: ties go up. Multiplies by the inverse, as Prometheus does."""
    vector = as_vector(arguments[0])
    nearest = as_scalar(arguments[1]) if len(arguments) > 1 else constant(1.0, scope)
    with np.errstate(all="ignore"):
        inverse = 1.0 / nearest.values
        values = np.floor(vector.values * inverse + 0.5) / inverse
    return drop_names(vector.labels, values, vector.present)


def call_max_of(arguments: Sequence[Argument], _: Scope) -> Scalar:
    left, right = (as_scalar(one).values for one in arguments)
    return Scalar(larger(left, right))


def call_min_of(arguments: Sequence[Argument], _: Scope) -> Scalar:
    left, right = (as_scalar(one).values for one in arguments)
    return Scalar(smaller(left, right))


def call_pi(_: Sequence[Argument], scope: Scope) -> Scalar:
    return constant(math.pi, scope)


# --- times ----------------------------------------------------------------------------------------


def date_part(part: Callable[[Dates], Ints]) -> Function:
    """A function that reads values as Unix seconds; without an argument, the evaluation time."""

    def parts(arguments: Sequence[Argument], scope: Scope) -> Vector:
        if not arguments:
            return unlabelled(part(moments(seconds(scope.grid))).astype(np.float64))
        vector = as_vector(arguments[0])
        values = part(moments(vector.values)).astype(np.float64)
        return drop_names(vector.labels, values, vector.present)

    return parts


def call_time(_: Sequence[Argument], scope: Scope) -> Scalar:
    return Scalar(seconds(scope.grid))


def call_timestamp(arguments: Sequence[Argument], scope: Scope) -> Vector:
    """`timestamp(v)` of anything but a selector: the evaluation time."""
    vector = as_vector(arguments[0])
    return timestamps(vector, np.broadcast_to(scope.grid.times_ms(), vector.values.shape))


def timestamps(vector: Vector, times_ms: Ints) -> Vector:
    return drop_names(vector.labels, times_ms / 1000, vector.present)


def call_start_timestamp(_: Sequence[Argument], scope: Scope) -> Vector:
    """`start_timestamp(v)`: nothing, as in Prometheus unless its start timestamps are enabled."""
    return empty_vector(scope.grid.steps)


def call_start(_: Sequence[Argument], scope: Scope) -> Scalar:
    return constant(scope.whole.start_ms / 1000, scope)


def call_end(_: Sequence[Argument], scope: Scope) -> Scalar:
    return constant(scope.whole.end_ms / 1000, scope)


def call_range(_: Sequence[Argument], scope: Scope) -> Scalar:
    """`range()`: from the first moment of the whole query to the last."""
    return constant((scope.whole.end_ms - scope.whole.start_ms) / 1000, scope)


def call_step(_: Sequence[Argument], scope: Scope) -> Scalar:
    """`step()`: from one moment of the whole query to the next; 0 if there is only one."""
    return constant(scope.whole.step_ms / 1000 if scope.whole.steps > 1 else 0.0, scope)


# --- vectors and scalars --------------------------------------------------------------------------


def absent(vector: Vector, template_labels: Labels, scope: Scope) -> Vector:
    """1 at the steps where the vector is empty, with the labels that its selector fixes."""
    missing = ~np.asarray(vector.present.any(axis=0, keepdims=True))
    return Vector([template_labels], np.ones((1, scope.grid.steps)), missing)


def call_absent(arguments: Sequence[Argument], scope: Scope) -> Vector:
    """`absent(v)` of anything but a selector: the result has no labels."""
    return absent(as_vector(arguments[0]), {}, scope)


def call_vector(arguments: Sequence[Argument], _: Scope) -> Vector:
    return unlabelled(as_scalar(arguments[0]).values)


def call_scalar(arguments: Sequence[Argument], scope: Scope) -> Scalar:
    """`scalar(v)`: the value where there is exactly one series, else NaN."""
    vector = as_vector(arguments[0])
    if not vector.labels:
        return constant(math.nan, scope)
    first = vector.present.argmax(axis=0)
    values = np.take_along_axis(vector.values, first[np.newaxis], axis=0)[0]
    return Scalar(np.where(vector.present.sum(axis=0) == 1, values, np.nan))


def sorting(sort: Callable[[Vector, Sequence[str]], Vector]) -> Function:
    """For instant queries: a range query's answer is always in the order of labels."""

    def ordered(arguments: Sequence[Argument], scope: Scope) -> Vector:
        vector = as_vector(arguments[0])
        if scope.grid.steps == 1:
            return sort(vector, [as_text(one) for one in arguments[1:]])
        if scope.dialect is Dialect.PROMETHEUS_3:
            scope.notes.warn(
                "sort is ineffective for range queries since results are always ordered by labels"
            )
        return vector

    return ordered


# --- labels and histograms ------------------------------------------------------------------------


def call_label_join(arguments: Sequence[Argument], scope: Scope) -> Vector:
    target, separator, *sources = (as_text(one) for one in arguments[1:])
    return label_join(as_vector(arguments[0]), target, separator, sources, scope.dialect)


def call_label_replace(arguments: Sequence[Argument], scope: Scope) -> Vector:
    target, replacement, source, pattern = (as_text(one) for one in arguments[1:])
    vector = as_vector(arguments[0])
    return label_replace(vector, target, replacement, source, pattern, scope.dialect)


def call_histogram_quantile(arguments: Sequence[Argument], scope: Scope) -> Vector:
    quantile, vector = as_scalar(arguments[0]), as_vector(arguments[1])
    return histogram_quantile(quantile, vector, scope.grid, scope.notes, scope.dialect)


def call_histogram_quantiles(arguments: Sequence[Argument], scope: Scope) -> Vector:
    vector, label, *quantiles = arguments
    scalars = [as_scalar(one) for one in quantiles]
    return histogram_quantiles(as_vector(vector), as_text(label), scalars, scope.grid, scope.notes)


def call_histogram_fraction(arguments: Sequence[Argument], scope: Scope) -> Vector:
    """`histogram_fraction(lower, upper, buckets)`; Prometheus 2 has it for native ones only."""
    lower, upper = (as_scalar(one) for one in arguments[:2])
    if scope.dialect is Dialect.PROMETHEUS_2:
        return empty_vector(scope.grid.steps)
    return histogram_fraction(lower, upper, as_vector(arguments[2]), scope.notes)


def of_native_histograms(_: Sequence[Argument], scope: Scope) -> Vector:
    """A function that ignores float samples: the store has no others, so the result is empty."""
    scope.notes.warn("native histograms are not stored here, so their functions find nothing")
    return empty_vector(scope.grid.steps)


REFUSED: Mapping[str, str] = {
    "info": "it takes labels from other metrics, which is not supported; join with "
    "'* on (instance, job) group_left (…) target_info' instead"
}
"""Functions that the parser accepts and this engine lacks, with the reason."""


def refusing(name: str) -> Function:
    def refuse(_: Sequence[Argument], __: Scope) -> NoReturn:
        raise bad_data(f"{name}(): {REFUSED[name]}")

    return refuse


_ELEMENTWISE: Mapping[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": cosh,
    "deg": lambda values: values * 180 / math.pi,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": log10,
    "log2": log2,
    "rad": lambda values: values * math.pi / 180,
    "sgn": sign,
    "sin": np.sin,
    "sinh": sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
_NATIVE = ("avg", "count", "stddev", "stdvar", "sum")

FUNCTIONS: Mapping[str, Function] = {
    **{name: elementwise(change) for name, change in _ELEMENTWISE.items()},
    **{name: date_part(part) for name, part in DATE_PARTS.items()},
    **{f"histogram_{name}": of_native_histograms for name in _NATIVE},
    **{name: refusing(name) for name in REFUSED},
    "absent": call_absent,
    "clamp": call_clamp,
    "clamp_max": call_clamp_max,
    "clamp_min": call_clamp_min,
    "end": call_end,
    "histogram_fraction": call_histogram_fraction,
    "histogram_quantile": call_histogram_quantile,
    "histogram_quantiles": call_histogram_quantiles,
    "label_join": call_label_join,
    "label_replace": call_label_replace,
    "max_of": call_max_of,
    "min_of": call_min_of,
    "pi": call_pi,
    "range": call_range,
    "round": call_round,
    "scalar": call_scalar,
    "sort": sorting(lambda vector, _: sort_by_values(vector, descending=False)),
    "sort_by_label": sorting(lambda vector, names: sort_by_labels(vector, names, descending=False)),
    "sort_by_label_desc": sorting(
        lambda vector, names: sort_by_labels(vector, names, descending=True)
    ),
    "sort_desc": sorting(lambda vector, _: sort_by_values(vector, descending=True)),
    "start": call_start,
    "start_timestamp": call_start_timestamp,
    "step": call_step,
    "time": call_time,
    "timestamp": call_timestamp,
    "vector": call_vector,
}
"""By name; those of REFUSED raise an error."""
