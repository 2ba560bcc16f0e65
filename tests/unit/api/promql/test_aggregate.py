"""Aggregations: against a slow and simple reference, and against answers done by hand."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.promql.aggregate import aggregate
from api.promql.values import Notes, Scalar, Text, Vector
from tests.unit.api.promql.operands import (
    Answer,
    Key,
    Points,
    answer,
    assert_same,
    at_step,
    operand,
    operands,
    ordinary,
    refused,
    same,
    small,
    wanted_rows,
)
from tests.unit.api.promql.reference import add
from tests.unit.api.promql.vectors import INF, NAN, ordered_rows

STEPS = 3


def ask(
    operator: str,
    found: Vector,
    *,
    by: tuple[str, ...] = (),
    without: tuple[str, ...] | None = None,
    parameter: float | list[float] | str | None = None,
    notes: Notes | None = None,
) -> Vector:
    """The aggregation as it is written in a question."""
    value: Scalar | Text | None = None
    if isinstance(parameter, str):
        value = Text(parameter)
    elif parameter is not None:
        value = Scalar(np.broadcast_to(np.array(parameter, dtype=np.float64), found.steps))
    return aggregate(
        operator,
        by if without is None else without,
        without is not None,
        found,
        value,
        notes or Notes(),
    )


# --- the reference: one group at one step ------------------------------------------------------


def summed(values: list[float]) -> float:
    total, lost = values[0], 0.0
    for value in values[1:]:
        total, lost = add(value, total, lost)
    return total + lost


def averaged(values: list[float]) -> float:
    """The sum over the count, until the sum overflows; from there on the mean of means."""
    total, lost, mean, moving = values[0], 0.0, 0.0, False
    for count, value in enumerate(values[1:], start=2):
        if not moving:
            more, more_lost = add(value, total, lost)
            if not math.isinf(more):
                total, lost = more, more_lost
                continue
            moving, mean, lost = True, total / (count - 1), lost / (count - 1)
        share = (count - 1) / count
        mean, lost = add(value / count, share * mean, share * lost)
    return mean + lost if moving else total / len(values) + lost / len(values)


def variance(values: list[float]) -> float:
    mean, squares = values[0], 0.0 if math.isfinite(values[0]) else NAN
    for count, value in enumerate(values[1:], start=2):
        distance = value - mean
        mean += distance / count
        squares += distance * (value - mean)
    return squares / len(values)


def largest(values: list[float]) -> float:
    best = values[0]
    for value in values[1:]:
        best = value if best < value or math.isnan(best) else best
    return best


def smallest(values: list[float]) -> float:
    return -largest([-value for value in values])


def quantile(q: float, values: list[float]) -> float:
    if math.isnan(q):
        return NAN
    if not 0 <= q <= 1:
        return math.copysign(INF, q)
    ascending = sorted(values, key=lambda value: (not math.isnan(value), value))
    rank = q * (len(values) - 1)
    lower = max(0, math.floor(rank))
    upper = min(len(values) - 1, lower + 1)
    weight = rank - math.floor(rank)
    return ascending[lower] * (1 - weight) + ascending[upper] * weight


REDUCED: dict[str, Callable[[list[float]], float]] = {
    "sum": summed,
    "avg": averaged,
    "min": smallest,
    "max": largest,
    "count": lambda values: float(len(values)),
    "group": lambda _: 1.0,
    "stdvar": variance,
    "stddev": lambda values: math.sqrt(variance(values)),
}


def key_of(labels: dict[str, str], names: tuple[str, ...], *, without: bool) -> Key:
    kept = {
        name: value
        for name, value in labels.items()
        if (name not in (*names, "__name__") if without else name in names)
    }
    return frozenset(kept.items())


def reference(
    found: Vector,
    names: tuple[str, ...],
    reduce: Callable[[int, list[float]], float],
    *,
    without: bool,
) -> Answer:
    wanted: Answer = {}
    for step in range(found.steps):
        groups: dict[Key, list[float]] = {}
        for labels, value in at_step(found, step):
            groups.setdefault(key_of(labels, names, without=without), []).append(value)
        for key, values in groups.items():
            points = wanted.setdefault(key, [None] * found.steps)
            points[step] = reduce(step, values)
    return wanted


groupings = st.lists(st.sampled_from(["a", "b", "__name__", "c"]), max_size=3).map(tuple)


@given(st.sampled_from(sorted(REDUCED)), operands(STEPS), groupings, st.booleans())
def test_reducers_agree_with_the_reference(
    operator: str,
    found: Vector,
    names: tuple[str, ...],
    without: bool,  # noqa: FBT001 - drawn
) -> None:
    got = aggregate(operator, names, without, found, None, Notes())
    assert_same(got, reference(found, names, lambda _, v: REDUCED[operator](v), without=without))


large = st.sampled_from([1.7e308, -1.7e308, 9e307, -9e307, 1.0, INF, -INF, NAN, 0.0])


@given(st.sampled_from(["sum", "avg"]), operands(STEPS, values=large))
def test_sums_that_overflow_agree_with_the_reference(operator: str, found: Vector) -> None:
    wanted = reference(found, (), lambda _, values: REDUCED[operator](values), without=False)
    assert_same(aggregate(operator, (), False, found, None, Notes()), wanted)


@given(
    operands(STEPS),
    groupings,
    st.lists(
        st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0, -0.1, 1.1, NAN, INF]),
        min_size=STEPS,
        max_size=STEPS,
    ),
)
def test_quantiles_agree_with_the_reference(
    found: Vector, names: tuple[str, ...], q: list[float]
) -> None:
    got = ask("quantile", found, by=names, parameter=q)
    assert_same(got, reference(found, names, lambda step, v: quantile(q[step], v), without=False))


@given(st.sampled_from(sorted(REDUCED)), st.integers(1, 4), st.integers(0, 2**32))
def test_long_groups_agree_with_the_reference(operator: str, groups: int, seed: int) -> None:
    """Groups long enough to be cut into lanes, of different lengths, with gaps."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 400, groups)
    labels = [{"g": str(g), "n": str(n)} for g in range(groups) for n in range(sizes[g])]
    random.shuffle(labels)
    values = random.normal(10.0, 1000.0, (len(labels), 2))
    found = Vector(labels, values, random.random(values.shape) < 0.8)
    wanted = reference(found, ("g",), lambda _, v: REDUCED[operator](v), without=False)
    assert_same(ask(operator, found, by=("g",)), wanted, tolerance=1e-11)


def chosen(
    operator: str, found: Vector, names: tuple[str, ...], k: list[float]
) -> dict[tuple[Key, int], set[Key]]:
    """The series that must be chosen of each group, at each step."""
    sign = -1.0 if operator == "topk" else 1.0
    wanted = {}
    for step in range(found.steps):
        groups: dict[Key, list[tuple[dict[str, str], float]]] = {}
        for labels, value in at_step(found, step):
            groups.setdefault(key_of(labels, names, without=False), []).append((labels, value))
        for key, members in groups.items():
            if operator != "limitk":
                members.sort(key=lambda one: sorted(one[0].items()))
                members.sort(
                    key=lambda one: (math.isnan(one[1]), sign * one[1] if one[1] == one[1] else 0)
                )
            first = members[: max(0, int(k[step]))]
            wanted[key, step] = {frozenset(labels.items()) for labels, _ in first}
    return wanted


@given(
    st.sampled_from(["topk", "bottomk", "limitk"]),
    operands(STEPS),
    groupings,
    st.lists(
        st.sampled_from([-1.0, 0.0, 0.9, 1.0, 2.0, 2.7, 3.0, 100.0]), min_size=STEPS, max_size=STEPS
    ),
)
def test_choosers_agree_with_the_reference(
    operator: str, found: Vector, names: tuple[str, ...], k: list[float]
) -> None:
    got = ask(operator, found, by=names, parameter=k)
    points = answer(found)
    wanted: Answer = {}
    for (_, step), keys in chosen(operator, found, names, k).items():
        for key in keys:
            wanted.setdefault(key, [None] * STEPS)[step] = points[key][step]
    assert_same(got, wanted)


@given(operands(STEPS, values=small | ordinary), st.floats(0.0, 1.0))
def test_a_ratio_and_what_is_left_of_it_are_all_series(found: Vector, ratio: float) -> None:
    some = answer(ask("limit_ratio", found, parameter=ratio))
    rest = answer(ask("limit_ratio", found, parameter=ratio - 1.0))
    assert not some.keys() & rest.keys()
    assert_same(found, {**some, **rest})


@given(operands(STEPS), groupings, st.sampled_from(["a", "v", "__name__"]), st.booleans())
def test_counted_values_agree_with_the_reference(
    found: Vector,
    names: tuple[str, ...],
    label: str,
    without: bool,  # noqa: FBT001 - drawn
) -> None:
    wanted: Answer = {}
    for step in range(found.steps):
        for labels, value in at_step(found, step):
            text = "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf")
            if math.isfinite(value):
                text = np.format_float_positional(value, unique=True, trim="-")
            named = {**labels, label: text}
            key = key_of(named, names if without else (*names, label), without=without)
            points = wanted.setdefault(key, [None] * found.steps)
            points[step] = (points[step] or 0.0) + 1.0
    assert_same(aggregate("count_values", names, without, found, Text(label), Notes()), wanted)


# --- by hand -----------------------------------------------------------------------------------

MEMBERS: dict[str, Points] = {
    "up node=a port=1": [1.0, None, 5.0],
    "up node=a port=2": [3.0, None, NAN],
    "up node=b port=1": [10.0, 20.0, None],
    "down node=a port=1": [8.0, None, 1.0],
}


def test_groups_are_named_by_their_labels() -> None:
    found = ask("sum", operand(MEMBERS), by=("node", "rack"))
    assert_same(
        found,
        wanted_rows(
            {
                "node=a": [12.0, None, NAN],
                "node=b": [10.0, 20.0, None],
            }
        ),
    )


def test_without_also_drops_the_name() -> None:
    found = ask("count", operand(MEMBERS), without=("node",))
    assert_same(found, wanted_rows({"port=1": [3.0, 1.0, 2.0], "port=2": [1.0, None, 1.0]}))


def test_an_empty_vector_has_no_groups() -> None:
    for operator in REDUCED:
        assert answer(ask(operator, operand({}, steps=4))) == {}
    assert ask("sum", operand({}, steps=4)).steps == 4


def test_a_group_that_is_never_present_vanishes() -> None:
    found = ask("sum", operand({"up node=a": [None, None], "up node=b": [1.0, None]}), by=("node",))
    assert [dict(labels) for labels in found.labels] == [{"node": "b"}]


@pytest.mark.parametrize(
    ("operator", "values", "wanted"),
    [
        ("sum", [1e100, 1.0, -1e100], 1.0),
        ("sum", [1e308, 1e308, -1e308], INF),
        ("sum", [INF, 1.0], INF),
        ("sum", [INF, -INF], NAN),
        ("sum", [0.1] * 10, 1.0),
        ("avg", [1e308, 1e308], 1e308),
        ("avg", [1e308, 1e308, -1e308], 1e308 / 3),
        ("avg", [INF, 1.0], INF),
        ("avg", [INF, -INF], NAN),
        ("min", [NAN, 2.0, 1.0], 1.0),
        ("max", [1.0, 2.0, NAN], 2.0),
        ("max", [NAN, NAN], NAN),
        ("max", [-INF, NAN], -INF),
        ("count", [NAN, 1.0], 2.0),
        ("group", [NAN, 7.0], 1.0),
        ("stdvar", [1.0, 3.0], 1.0),
        ("stddev", [5.0], 0.0),
        ("stddev", [INF], NAN),
        ("stddev", [1.0, NAN], NAN),
        ("stdvar", [1e9 + 1, 1e9 + 3], 1.0),
    ],
)
def test_numbers_at_the_edges(operator: str, values: list[float], wanted: float) -> None:
    found = ask(operator, operand({f"up n={n:02}": [value] for n, value in enumerate(values)}))
    assert same(float(found.values[0, 0]), wanted)


def test_the_first_of_two_zeros_is_the_extreme() -> None:
    for operator in ("min", "max"):
        found = ask(operator, operand({"up n=1": [-0.0, 0.0], "up n=2": [0.0, -0.0]}))
        assert np.signbit(found.values).tolist() == [[True, False]]


QUANTILES: dict[str, Points] = {"up n=1": [1.0], "up n=2": [2.0], "up n=3": [4.0], "up n=4": [NAN]}


@pytest.mark.parametrize(
    ("q", "wanted", "said"),
    [
        (0.0, NAN, []),
        (1.0, 4.0, []),
        (0.5, 1.5, []),
        (NAN, NAN, ["got NaN"]),
        (-0.5, -INF, ["got -0.5"]),
        (1e7, INF, ["got 1e+07"]),
        (INF, INF, ["got +Inf"]),
    ],
)
def test_a_quantile_counts_nan_as_least_and_warns(q: float, wanted: float, said: list[str]) -> None:
    notes = Notes()
    found = ask("quantile", operand(QUANTILES), parameter=q, notes=notes)
    assert same(float(found.values[0, 0]), wanted)
    start = "PromQL warning: quantile value should be between 0 and 1, "
    assert notes.warnings == [start + text for text in said]


def test_a_quantile_warns_of_both_extremes_of_a_changing_parameter() -> None:
    notes = Notes()
    ask("quantile", operand({}, steps=3), parameter=[2.0, -1.0, 1.5], notes=notes)
    assert [text.rpartition(" ")[2] for text in notes.warnings] == ["2", "-1"]


BEST: dict[str, Points] = {
    "up node=b n=1": [5.0],
    "up node=a n=1": [1.0],
    "up node=a n=2": [NAN],
    "up node=b n=2": [7.0],
    "up node=a n=3": [3.0],
    "up node=a n=0": [3.0],
}


def in_order(found: Vector) -> list[str]:
    return [f"{one['node']}{one['n']}" for one in found.labels]


@pytest.mark.parametrize(
    ("operator", "k", "by", "wanted"),
    [
        ("topk", 2, ("node",), ["b2", "b1", "a0", "a3"]),
        ("topk", 3, (), ["b2", "b1", "a0"]),
        ("topk", 9, (), ["b2", "b1", "a0", "a3", "a1", "a2"]),
        ("bottomk", 2, ("node",), ["b1", "b2", "a1", "a0"]),
        ("bottomk", 9, (), ["a1", "a0", "a3", "b1", "b2", "a2"]),
        ("limitk", 1, ("node",), ["b1", "a1"]),
    ],
)
def test_an_instant_query_is_ordered_by_group_and_value(
    operator: str, k: float, by: tuple[str, ...], wanted: list[str]
) -> None:
    found = ask(operator, operand(BEST), by=by, parameter=k)
    assert in_order(found) == wanted
    assert all("__name__" in one for one in found.labels)


@pytest.mark.parametrize("operator", ["topk", "bottomk", "limitk"])
@pytest.mark.parametrize(
    ("k", "wanted"),
    [
        ([NAN, 1.0], "Parameter value is NaN"),
        ([1.0, 2.0**63], "Scalar value 9.223372036854776e+18 overflows int64"),
        ([1.0, INF], "Scalar value +Inf overflows int64"),
        ([1.0, -1e30], "Scalar value -1e+30 underflows int64"),
    ],
)
def test_a_k_that_is_no_whole_number_is_refused(operator: str, k: list[float], wanted: str) -> None:
    assert refused(lambda: ask(operator, operand({}, steps=2), parameter=k)) == wanted


def test_a_k_below_one_chooses_nothing_even_if_it_is_no_whole_number() -> None:
    for k in (0.0, 0.99, -1.0, -1e30, -INF):
        assert answer(ask("topk", operand(BEST), parameter=k)) == {}


def test_a_ratio_is_capped_with_a_warning() -> None:
    for ratio, bound in ((1.5, "1"), (-1.5, "-1")):
        notes = Notes()
        found = ask("limit_ratio", operand(BEST), parameter=ratio, notes=notes)
        assert len(found.labels) == len(BEST)
        start = "PromQL warning: ratio value should be between -1 and 1"
        assert notes.warnings == [f"{start}, got {ratio}, capping to {bound}"]


def test_a_ratio_of_nan_is_refused_and_of_zero_is_nothing() -> None:
    assert refused(lambda: ask("limit_ratio", operand(BEST), parameter=NAN)) == "Ratio value is NaN"
    assert answer(ask("limit_ratio", operand(BEST), parameter=0.0)) == {}


def test_a_ratio_chooses_about_that_many() -> None:
    found = operand({f"up n={n}": [1.0] for n in range(1000)})
    assert 150 < len(ask("limit_ratio", found, parameter=0.2).labels) < 250


def test_counted_values_are_written_without_exponents() -> None:
    points = [1e22, 1e-7, -0.0, 0.0, NAN, INF, -INF, 1.5]
    found = ask("count_values", operand({"up": points}), parameter="v")
    wanted = ["10000000000000000000000", "0.0000001", "-0", "0", "NaN", "+Inf", "-Inf", "1.5"]
    by_value = {labels["v"]: points for labels, points in ordered_rows(found)}
    assert {text: by_value[text].index(1.0) for text in wanted} == {
        text: step for step, text in enumerate(wanted)
    }


def test_a_counted_value_replaces_a_label() -> None:
    found = ask(
        "count_values",
        operand({"up node=a n=1": [3.0], "up node=b n=1": [3.0]}),
        by=("n",),
        parameter="node",
    )
    assert_same(found, wanted_rows({"node=3 n=1": [2.0]}))


def test_a_counted_value_that_is_grouped_away_only_counts() -> None:
    found = ask(
        "count_values",
        operand({"up n=1": [3.0], "up n=2": [4.0]}),
        without=("v", "n"),
        parameter="v",
    )
    assert_same(found, wanted_rows({"": [2.0]}))


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_a_value_needs_a_label_with_a_name(name: str) -> None:
    why = refused(lambda: ask("count_values", operand(BEST), parameter=name))
    assert why == f'invalid label name "{name}"'
