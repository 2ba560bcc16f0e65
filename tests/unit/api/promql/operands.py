"""What operators are given in tests: vectors written by hand or made at random, and compared."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import strategies as st

from api.promql.errors import ErrorKind, QueryError
from api.promql.values import Vector
from tests.unit.api.promql.vectors import INF, NAN, Row, ordered_rows

Points = Sequence[float | None]
"""The values of a series at each step; None where it is absent."""
Key = frozenset[tuple[str, str]]
Answer = dict[Key, list[float | None]]
"""The points of each series, by its labels. This is how references answer."""


def series(text: str) -> dict[str, str]:
    """Labels from `name a=1 b=2`, the name optional."""
    labels = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        labels[name if equals else "__name__"] = value if equals else name
    return labels


def operand(rows: Mapping[str, Points], steps: int = 1) -> Vector:
    """A vector from lines such as {"up node=a": [1, None, 3]}; ``steps`` is for one without any."""
    return from_rows([(series(text), points) for text, points in rows.items()], steps)


def from_rows(rows: Sequence[Row], steps: int) -> Vector:
    """The value of an absent point is one that would show if it were used."""
    columns = len(rows[0][1]) if rows else steps
    values = [[7.5 if point is None else point for point in points] for _, points in rows]
    present = [[point is not None for point in points] for _, points in rows]
    return Vector(
        [labels for labels, _ in rows],
        np.array(values, dtype=np.float64).reshape(len(rows), columns),
        np.array(present, dtype=np.bool_).reshape(len(rows), columns),
    )


def answer(found: Vector) -> Answer:
    """What a vector says; rows that are never present say nothing."""
    keys = [frozenset(labels.items()) for labels in found.labels]
    assert len(set(keys)) == len(keys), "two rows have the same labels"
    assert found.values.shape == found.present.shape == (len(keys), found.steps)
    return {frozenset(labels.items()): points for labels, points in ordered_rows(found)}


def wanted_rows(rows: Mapping[str, Points]) -> Answer:
    """An answer written by hand, as for `operand`."""
    return {frozenset(series(text).items()): list(points) for text, points in rows.items()}


def at_step(whole: Vector, step: int) -> list[tuple[dict[str, str], float]]:
    """The samples of one step, in the order of rows: what a reference works on."""
    rows = np.flatnonzero(whole.present[:, step]).tolist()
    return [(dict(whole.labels[row]), float(whole.values[row, step])) for row in rows]


def assert_same(found: Vector, wanted: Answer, tolerance: float = 1e-12) -> None:
    got = answer(found)
    assert set(got) == set(wanted)
    for key, points in wanted.items():
        for one, other in zip(got[key], points, strict=True):
            assert (one is None) == (other is None), (key, got[key], points)
            if one is not None and other is not None:
                assert same(one, other, tolerance), (key, got[key], points)


def same(one: float, other: float, tolerance: float = 1e-12) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=0.0)


def refused(ask: Callable[[], object]) -> str:
    """The message with which a question is refused."""
    with pytest.raises(QueryError) as error:
        ask()
    assert error.value.kind is ErrorKind.EXECUTION
    return str(error.value)


label_sets = st.fixed_dictionaries(
    {},
    optional={
        "__name__": st.sampled_from(["x", "y"]),
        "a": st.sampled_from(["1", "2"]),
        "b": st.sampled_from(["1", "2", "3"]),
    },
)
small = st.integers(-3, 3).map(float)
odd = st.sampled_from([NAN, INF, -INF, -0.0, 1e16, 0.1])
ordinary = st.floats(-1e6, 1e6)


@st.composite
def operands(
    draw: st.DrawFn,
    steps: int,
    values: st.SearchStrategy[float] = small | odd | ordinary,
    max_size: int = 10,
) -> Vector:
    """Few label names and values, so that series collide; absent points and odd numbers."""
    sets = draw(
        st.lists(label_sets, max_size=max_size, unique_by=lambda one: frozenset(one.items()))
    )
    points = st.lists(st.none() | values, min_size=steps, max_size=steps)
    return from_rows([(labels, draw(points)) for labels in sets], steps)
