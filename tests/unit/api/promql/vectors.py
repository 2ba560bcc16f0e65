"""Small vectors written and read as tables: a row is a label set and a value for each step."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from api.promql.functions import FUNCTIONS, Argument, Scope
from api.promql.values import Dialect, Grid, Notes, Scalar, Text, Vector, label_order

NAN, INF = math.nan, math.inf

Row = tuple[Mapping[str, str], Sequence[float | None]]
"""None: the series is absent at that step."""


def vector(*rows: Row) -> Vector:
    """The vector of these rows; all rows have equally many steps."""
    values = np.array([[NAN if v is None else v for v in values] for _, values in rows])
    present = np.array([[v is not None for v in values] for _, values in rows])
    return Vector([labels for labels, _ in rows], values, present)


def number(value: float) -> Vector:
    """One series without labels and one step."""
    return vector(({}, [value]))


def rows(found: Vector) -> list[tuple[dict[str, str], list[float | None]]]:
    """The rows that are ever present, in the order of labels."""
    return sorted(ordered_rows(found), key=lambda row: label_order(row[0]))


def ordered_rows(found: Vector) -> list[tuple[dict[str, str], list[float | None]]]:
    """The rows that are ever present, as they stand."""
    return [
        (dict(labels), [v if there else None for v, there in zip(values, known, strict=True)])
        for labels, values, known in zip(
            found.labels, found.values.tolist(), found.present.tolist(), strict=True
        )
        if any(known)
    ]


def close(left: float | None, right: float | None) -> bool:
    """The same value but for rounding; a zero has its sign, and NaN is NaN."""
    if left is None or right is None or math.isnan(left) or math.isnan(right):
        return str(left) == str(right)
    same_sign = math.copysign(1, left) == math.copysign(1, right)
    return same_sign and math.isclose(left, right, rel_tol=1e-11)


def assert_rows(found: Vector, *expected: Row) -> None:
    """The vector has these rows, in whatever order."""
    shown = rows(found)
    wanted = rows(vector(*expected)) if expected else []
    assert [labels for labels, _ in shown] == [labels for labels, _ in wanted]
    for (labels, values), (_, others) in zip(shown, wanted, strict=True):
        pairs = zip(values, others, strict=True)
        assert all(close(value, other) for value, other in pairs), (labels, values, others)


def call(
    name: str,
    *arguments: Vector | str | float | Sequence[float],
    steps: int = 1,
    dialect: Dialect = Dialect.PROMETHEUS_3,
    notes: Notes | None = None,
    start_ms: int = 0,
    question: Grid | None = None,
) -> Vector | Scalar:
    """The answer of a function; the steps are a minute apart."""

    def evaluated(argument: Vector | str | float | Sequence[float]) -> Argument:
        if isinstance(argument, Vector):
            return argument
        if isinstance(argument, str):
            return Text(argument)
        return Scalar(np.broadcast_to(np.array(argument, dtype=np.float64), steps))

    scope = Scope(Grid(start_ms, 60_000, steps), notes or Notes(), dialect, question)
    return FUNCTIONS[name]([evaluated(one) for one in arguments], scope)


def call_vector(
    name: str,
    *arguments: Vector | str | float | Sequence[float],
    steps: int = 1,
    dialect: Dialect = Dialect.PROMETHEUS_3,
    notes: Notes | None = None,
) -> Vector:
    """The answer of a function that gives a vector."""
    found = call(name, *arguments, steps=steps, dialect=dialect, notes=notes)
    assert isinstance(found, Vector)
    return found
