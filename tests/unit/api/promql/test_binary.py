"""Operators: against a slow and simple reference, and against answers done by hand."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.promql.binary import NOT_UNIQUE, TOO_MANY, binary, negate
from api.promql.errors import QueryError
from api.promql.plan import Binary, Matching, Number
from api.promql.values import SAME_LABELS, Dialect, LabelRows, Scalar, Vector, drop_absent
from tests.unit.api.promql.operands import (
    Answer,
    Key,
    Points,
    answer,
    assert_same,
    at_step,
    odd,
    operand,
    operands,
    refused,
    same,
    small,
    wanted_rows,
)
from tests.unit.api.promql.vectors import INF, NAN

STEPS = 2
NOTHING = Number(0.0)
ONE_TO_ONE = Matching()


def ask(
    left: Vector | Scalar,
    operator: str,
    right: Vector | Scalar,
    matching: Matching = ONE_TO_ONE,
    *,
    return_bool: bool = False,
    dialect: Dialect = Dialect.PROMETHEUS_3,
) -> Vector:
    """The answer to a question between vectors, or a vector and a scalar."""
    node = Binary(operator, NOTHING, NOTHING, matching, return_bool)
    found = binary(node, left, right, dialect)
    assert isinstance(found, Vector)
    return found


# --- the reference: two vectors at one step, sample by sample ----------------------------------

Sample = tuple[dict[str, str], float]
Samples = list[Sample]


def quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return NAN if a == 0 or math.isnan(a) else math.copysign(INF, a) * math.copysign(1.0, b)


def remainder(a: float, b: float) -> float:
    if math.isinf(a) or b == 0 or math.isnan(a) or math.isnan(b):
        return NAN
    return math.fmod(a, b)


def power(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) ** np.float64(b))


COMPUTED: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": quotient,
    "%": remainder,
    "^": power,
    "atan2": math.atan2,
}
COMPARED: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}


class RefusedError(Exception):
    """The reference's error; its text begins as ours does."""


def matched(labels: dict[str, str], matching: Matching) -> dict[str, str]:
    if matching.on:
        return {name: value for name, value in labels.items() if name in matching.labels}
    dropped = (*matching.labels, "__name__")
    return {name: value for name, value in labels.items() if name not in dropped}


def signature(labels: dict[str, str], matching: Matching) -> Key:
    return frozenset(matched(labels, matching).items())


def named(node: Binary, many: dict[str, str], one: dict[str, str]) -> dict[str, str]:
    """The labels of a result."""
    matching = node.matching
    labels = dict(many)
    if node.operator in COMPUTED:
        labels.pop("__name__", None)
    if not matching.group:
        keep = matching.on
        labels = {name: v for name, v in labels.items() if (name in matching.labels) == keep}
    for name in matching.include:
        labels.pop(name, None)
        if name in one:
            labels[name] = one[name]
    if node.return_bool:
        labels.pop("__name__", None)
    return labels


class Meeting:
    """The results of a match at one step, and what was taken by them."""

    def __init__(self, node: Binary) -> None:
        self.node = node
        self.taken: dict[Key, list[dict[str, str]]] = {}
        self.results: Samples = []

    def meet(self, many: Sample, one: Sample) -> None:
        node = self.node
        labels = named(node, many[0], one[0])
        before = self.taken.setdefault(signature(one[0], node.matching), [])
        if before and not node.matching.group:
            raise RefusedError(TOO_MANY)
        if labels in before:
            raise RefusedError(NOT_UNIQUE)
        before.append(labels)
        a, b = (one[1], many[1]) if node.matching.group == "right" else (many[1], one[1])
        if node.operator in COMPUTED:
            self.results.append((labels, COMPUTED[node.operator](a, b)))
        elif node.return_bool:
            self.results.append((labels, float(COMPARED[node.operator](a, b))))
        elif COMPARED[node.operator](a, b):
            self.results.append((labels, a))


def joined(node: Binary, left: Samples, right: Samples) -> Samples:
    """Arithmetic and comparisons between vectors, as Prometheus goes about it."""
    matching = node.matching
    fill_many, fill_one = matching.fill_left, matching.fill_right
    if not (left and right) and fill_many is None and fill_one is None:
        return []
    many, one = (right, left) if matching.group == "right" else (left, right)
    ones: dict[Key, Sample] = {}
    for labels, value in one:
        if signature(labels, matching) in ones:
            raise RefusedError("found duplicate series for the match group")
        ones[signature(labels, matching)] = (labels, value)
    meeting = Meeting(node)
    for sample in many:
        key = signature(sample[0], matching)
        if key in ones:
            meeting.meet(sample, ones[key])
        elif fill_one is not None:
            meeting.meet(sample, (matched(sample[0], matching), fill_one))
    if fill_many is not None:
        for key, sample in ones.items():
            if key not in meeting.taken:
                meeting.meet((matched(sample[0], matching), fill_many), sample)
    return meeting.results


def combined(node: Binary, left: Samples, right: Samples) -> Samples:
    """Set operators."""
    lefts = {signature(labels, node.matching) for labels, _ in left}
    rights = {signature(labels, node.matching) for labels, _ in right}
    if node.operator == "or":
        return left + [one for one in right if signature(one[0], node.matching) not in lefts]
    wanted = node.operator == "and"
    return [one for one in left if (signature(one[0], node.matching) in rights) == wanted]


def scaled(node: Binary, found: Samples, number: float, *, swapped: bool) -> Samples:
    """A vector and a number."""
    results: Samples = []
    for labels, value in found:
        a, b = (number, value) if swapped else (value, number)
        unnamed = {name: text for name, text in labels.items() if name != "__name__"}
        if node.operator in COMPUTED:
            results.append((unnamed, COMPUTED[node.operator](a, b)))
        elif node.return_bool:
            results.append((unnamed, float(COMPARED[node.operator](a, b))))
        elif COMPARED[node.operator](a, b):
            results.append((labels, value))
    return results


def every_step(steps: int, at: Callable[[int], Samples]) -> tuple[Answer, set[str]]:
    """The answers at all steps as one, and every way in which a step was refused."""
    wanted: Answer = {}
    errors: set[str] = set()
    for step in range(steps):
        try:
            samples = at(step)
        except RefusedError as error:
            errors.add(str(error))
            continue
        keys = [frozenset(labels.items()) for labels, _ in samples]
        if len(set(keys)) != len(keys):
            errors.add(SAME_LABELS)
        for key, (_, value) in zip(keys, samples, strict=True):
            wanted.setdefault(key, [None] * steps)[step] = value
    return wanted, errors


def agree(
    node: Binary, left: Vector | Scalar, right: Vector | Scalar, at: Callable[[int], Samples]
) -> None:
    """Ours answers as the reference, or refuses if it does, and for one of its reasons."""
    wanted, errors = every_step(STEPS, at)
    try:
        found = binary(node, left, right)
    except QueryError as error:
        text = str(error)
        assert any(text.startswith(reason) for reason in errors), (text, errors)
        return
    assert not errors
    assert isinstance(found, Vector)
    assert_same(found, wanted)


few_values = small | odd
label_names = st.lists(st.sampled_from(["a", "b", "__name__"]), max_size=2).map(tuple)
fills = st.none() | st.sampled_from([0.0, 1.0, NAN])
matchings = st.builds(
    Matching,
    on=st.booleans(),
    labels=label_names,
    group=st.sampled_from(["", "left", "right"]),
    include=label_names,
    fill_left=fills,
    fill_right=fills,
).map(
    lambda one: (
        one if one.group else Matching(one.on, one.labels, "", (), one.fill_left, one.fill_right)
    )
)
plain = st.builds(Matching, on=st.booleans(), labels=label_names)
few = operands(STEPS, values=few_values, max_size=5)


@given(st.data(), matchings, few, few)
def test_matches_agree_with_the_reference(
    data: st.DataObject, matching: Matching, left: Vector, right: Vector
) -> None:
    operator = data.draw(st.sampled_from([*COMPUTED, *COMPARED]))
    return_bool = operator in COMPARED and data.draw(st.booleans())
    node = Binary(operator, NOTHING, NOTHING, matching, return_bool)
    agree(node, left, right, lambda step: joined(node, at_step(left, step), at_step(right, step)))


@given(st.sampled_from(["and", "or", "unless"]), plain, few, few)
def test_sets_agree_with_the_reference(
    operator: str, matching: Matching, left: Vector, right: Vector
) -> None:
    node = Binary(operator, NOTHING, NOTHING, matching)
    agree(node, left, right, lambda step: combined(node, at_step(left, step), at_step(right, step)))


@given(st.data(), few, st.lists(few_values, min_size=STEPS, max_size=STEPS), st.booleans())
def test_vectors_and_scalars_agree_with_the_reference(
    data: st.DataObject,
    found: Vector,
    numbers: list[float],
    swapped: bool,  # noqa: FBT001 - drawn
) -> None:
    operator = data.draw(st.sampled_from([*COMPUTED, *COMPARED]))
    return_bool = operator in COMPARED and data.draw(st.booleans())
    node = Binary(operator, NOTHING, NOTHING, return_bool=return_bool)
    scalar = Scalar(np.array(numbers))
    sides: tuple[Vector | Scalar, Vector | Scalar] = (scalar, found) if swapped else (found, scalar)
    agree(
        node,
        *sides,
        lambda step: scaled(node, at_step(found, step), numbers[step], swapped=swapped),
    )


@given(few)
def test_a_minus_agrees_with_the_reference(found: Vector) -> None:
    """Unlike other operators it refuses series that collide even if they never meet."""
    wanted = {}
    for key, points in answer(found).items():
        unnamed = frozenset(pair for pair in key if pair[0] != "__name__")
        if unnamed in wanted:
            assert refused(lambda: negate(found)) == SAME_LABELS
            return
        wanted[unnamed] = [None if point is None else -point for point in points]
    assert_same(negate(found), wanted)


# --- by hand -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "operator", "b", "wanted"),
    [
        (1.0, "/", 0.0, INF),
        (-1.0, "/", 0.0, -INF),
        (1.0, "/", -0.0, -INF),
        (0.0, "/", 0.0, NAN),
        (5.0, "%", 3.0, 2.0),
        (-5.0, "%", 3.0, -2.0),
        (5.0, "%", -3.0, 2.0),
        (5.5, "%", 2.0, 1.5),
        (5.0, "%", 0.0, NAN),
        (INF, "%", 3.0, NAN),
        (-5.0, "%", INF, -5.0),
        (2.0, "^", 10.0, 1024.0),
        (0.0, "^", 0.0, 1.0),
        (NAN, "^", 0.0, 1.0),
        (1.0, "^", NAN, 1.0),
        (-1.0, "^", INF, 1.0),
        (-8.0, "^", 1 / 3, NAN),
        (0.0, "^", -1.0, INF),
        (1e200, "*", 1e200, INF),
        (INF, "-", INF, NAN),
        (0.0, "atan2", -1.0, math.pi),
        (-0.0, "atan2", -1.0, -math.pi),
        (1.0, "==", 1.0, 1.0),
        (NAN, "==", NAN, 0.0),
        (NAN, "!=", NAN, 1.0),
        (-0.0, "==", 0.0, 1.0),
        (1.0, ">", 2.0, 0.0),
        (2.0, ">=", 2.0, 1.0),
        (1.0, "<", NAN, 0.0),
        (-INF, "<=", INF, 1.0),
    ],
)
def test_numbers_at_the_edges(a: float, operator: str, b: float, wanted: float) -> None:
    node = Binary(operator, NOTHING, NOTHING, return_bool=operator in COMPARED)
    scalars = binary(node, Scalar(np.array([a])), Scalar(np.array([b])))
    assert isinstance(scalars, Scalar)
    joint = binary(node, operand({"up n=1": [a]}), operand({"down n=1": [b]}))
    assert isinstance(joint, Vector)
    for found in (scalars.values[0], joint.values[0, 0]):
        assert same(float(found), wanted)


def said(found: Vector) -> dict[str, list[float | None]]:
    """The answer with readable labels, sorted by name."""
    texts = {}
    for key, points in answer(found).items():
        pairs = dict(sorted(key))
        name = pairs.pop("__name__", "")
        texts[" ".join([name] * bool(name) + [f"{n}={v}" for n, v in pairs.items()])] = points
    return texts


REQUESTS: dict[str, Points] = {
    "requests node=a port=1": [1.0, 2.0],
    "requests node=a port=2": [3.0, None],
    "requests node=b port=1": [5.0, 6.0],
}
LIMITS: dict[str, Points] = {
    "limits node=a rack=r1": [10.0, 10.0],
    "limits node=b": [50.0, None],
    "limits node=c rack=r3": [70.0, 70.0],
}
ON_NODE = Matching(on=True, labels=("node",))


def grouped(
    side: str, *include: str, left: float | None = None, right: float | None = None
) -> Matching:
    return Matching(True, ("node",), side, include, left, right)


@pytest.mark.parametrize(
    ("operator", "matching", "return_bool", "wanted"),
    [
        (
            "/",
            grouped("left"),
            False,
            {
                "node=a port=1": [0.1, 0.2],
                "node=a port=2": [0.3, None],
                "node=b port=1": [0.1, None],
            },
        ),
        (
            "<",
            grouped("left", "rack"),
            False,
            {
                "requests node=a port=1 rack=r1": [1.0, 2.0],
                "requests node=a port=2 rack=r1": [3.0, None],
                "requests node=b port=1": [5.0, None],
            },
        ),
        (
            "+",
            grouped("left", "port", "__name__"),
            False,
            NOT_UNIQUE,
        ),
        (
            ">=",
            grouped("left", "__name__"),
            True,
            {
                "node=a port=1": [0.0, 0.0],
                "node=a port=2": [0.0, None],
                "node=b port=1": [0.0, None],
            },
        ),
        ("+", ON_NODE, False, TOO_MANY),
        (
            "+",
            grouped("left", left=0.0, right=100.0),
            False,
            {
                "node=a port=1": [11.0, 12.0],
                "node=a port=2": [13.0, None],
                "node=b port=1": [55.0, 106.0],
                "node=c": [70.0, 70.0],
            },
        ),
    ],
)
def test_many_to_one(
    operator: str,
    matching: Matching,
    return_bool: bool,  # noqa: FBT001 - a column of the table
    wanted: dict[str, Points] | str,
) -> None:
    left, right = operand(REQUESTS), operand(LIMITS)
    if isinstance(wanted, str):
        assert refused(lambda: ask(left, operator, right, matching)) == wanted
        return
    found = ask(left, operator, right, matching, return_bool=return_bool)
    assert_same(found, wanted_rows(wanted))


def test_one_to_many_gives_the_left_value_and_the_labels_of_the_right() -> None:
    found = ask(operand(LIMITS), ">", operand(REQUESTS), grouped("right", "rack"))
    assert said(found) == {
        "requests node=a port=1 rack=r1": [10.0, 10.0],
        "requests node=a port=2 rack=r1": [10.0, None],
        "requests node=b port=1": [50.0, None],
    }


def test_fill_values_follow_the_many_and_the_one_not_left_and_right() -> None:
    """Prometheus swaps the sides for group_right, but not the fill values; its tests say so."""
    meta, cpus = (
        operand({"meta n=a": [100.0], "meta n=c": [300.0]}),
        operand({"cpu n=a c=0": [1.0], "cpu n=b c=0": [1.0]}),
    )
    on_n = Matching(on=True, labels=("n",), group="right", fill_left=1.0)
    assert said(ask(meta, "*", cpus, on_n)) == {"c=0 n=a": [100.0], "n=c": [300.0]}
    on_n = Matching(on=True, labels=("n",), group="right", fill_right=0.0)
    assert said(ask(meta, "*", cpus, on_n)) == {"c=0 n=a": [100.0], "c=0 n=b": [0.0]}


def test_a_partner_that_comes_and_goes_is_filled_in_meanwhile() -> None:
    left = operand({"l n=a": [1, None, 3], "l n=b": [None, 20, None]})
    right = operand({"r n=a": [None, 200, None], "r n=c": [1000, None, None]})
    both = Matching(fill_left=0.0, fill_right=0.0)
    assert said(ask(left, "+", right, both)) == {
        "n=a": [1.0, 200.0, 3.0],
        "n=b": [None, 20.0, None],
        "n=c": [1000.0, None, None],
    }


@pytest.mark.parametrize(
    ("operator", "matching", "return_bool", "wanted"),
    [
        ("+", Matching(), False, {"n=1 m=2": 3.0}),
        ("<", Matching(), False, {"l n=1 m=2": 1.0}),
        ("<", Matching(), True, {"n=1 m=2": 1.0}),
        ("<", Matching(on=True, labels=("n",)), False, {"n=1": 1.0}),
        ("+", Matching(on=True, labels=("n",)), False, {"n=1": 3.0}),
        ("<", Matching(labels=("n",)), False, {"l m=2": 1.0}),
        ("<", Matching(labels=("n",)), True, {"m=2": 1.0}),
        ("<", Matching(labels=("n", "__name__")), False, {"m=2": 1.0}),
        ("<", Matching(on=True, labels=("__name__",)), False, {}),
        ("and", Matching(on=True), False, {"l n=1 m=2": 1.0}),
        (
            "or",
            Matching(on=True, labels=("__name__",)),
            False,
            {"l n=1 m=2": 1.0, "r n=1 m=2": 2.0},
        ),
        ("or", Matching(), False, {"l n=1 m=2": 1.0}),
        ("unless", Matching(), False, {}),
    ],
)
def test_the_labels_of_one_to_one_and_set_results(
    operator: str,
    matching: Matching,
    return_bool: bool,  # noqa: FBT001 - a column of the table
    wanted: dict[str, float],
) -> None:
    left, right = operand({"l n=1 m=2": [1.0]}), operand({"r n=1 m=2": [2.0]})
    found = ask(left, operator, right, matching, return_bool=return_bool)
    assert_same(found, wanted_rows({text: [value] for text, value in wanted.items()}))


def test_the_name_of_a_pair_is_kept_if_it_was_matched_on_and_compared() -> None:
    one, other = operand({"up n=1": [1.0]}), operand({"up n=2": [2.0]})
    on_name = Matching(on=True, labels=("__name__",))
    assert said(ask(one, "<", other, on_name)) == {"up": [1.0]}
    assert said(ask(one, "+", other, on_name)) == {"": [3.0]}


@pytest.mark.parametrize(("group", "side"), [("", "right"), ("left", "right"), ("right", "left")])
def test_duplicates_on_the_one_side_are_shown(group: str, side: str) -> None:
    other = operand({"l n=9": [1.0]})
    one = operand({"r n=1 x=1": [1.0], 'r n=1 x="': [1.0], "r n=2": [1.0]})
    left, right = (one, other) if side == "left" else (other, one)
    matching = Matching(on=True, labels=("n",), group=group)
    assert refused(lambda: ask(left, "+", right, matching)) == (
        f'found duplicate series for the match group {{n="1"}} on the {side} hand-side of the '
        'operation: [{__name__="r", n="1", x="\\""}, {__name__="r", n="1", x="1"}]'
        ";many-to-many matching not allowed: matching labels must be unique on one side"
    )


def test_duplicates_are_only_sought_where_both_sides_have_something() -> None:
    left = operand({"l n=1": [None, 1.0]})
    right = operand({"r n=1 x=1": [1.0, None], "r n=1 x=2": [2.0, 2.0]})
    assert said(ask(left, "+", right, Matching(on=True, labels=("n",)))) == {"n=1": [None, 3.0]}
    filled = Matching(on=True, labels=("n",), fill_right=0.0)
    assert refused(lambda: ask(left, "+", right, filled)).startswith("found duplicate series")


def test_partners_that_follow_each_other_make_one_result() -> None:
    left = operand({"l n=1 p=1": [1.0, 2.0, 3.0], "l n=1 p=2": [4.0, 5.0, 6.0]})
    right = operand({"r n=1 x=1": [10.0, None, None], "r n=1 x=2": [None, 20.0, None]})
    matching = Matching(on=True, labels=("n",), group="left")
    assert said(ask(left, "+", right, matching)) == {
        "n=1 p=1": [11.0, 22.0, None],
        "n=1 p=2": [14.0, 25.0, None],
    }
    included = Matching(on=True, labels=("n",), group="left", include=("x",))
    assert said(ask(left, "+", right, included)) == {
        "n=1 p=1 x=1": [11.0, None, None],
        "n=1 p=1 x=2": [None, 22.0, None],
        "n=1 p=2 x=1": [14.0, None, None],
        "n=1 p=2 x=2": [None, 25.0, None],
    }


def test_many_series_that_follow_each_other_are_one_to_one() -> None:
    left = operand({"l n=1": [1.0, None], "m n=1": [None, 2.0]})
    assert said(ask(left, "*", operand({"r n=1": [10.0, 10.0]}))) == {"n=1": [10.0, 20.0]}
    assert said(ask(left, "<", operand({"r n=1": [10.0, 10.0]}))) == {
        "l n=1": [1.0, None],
        "m n=1": [None, 2.0],
    }


def test_a_comparison_that_fails_still_counts_as_a_match() -> None:
    left = operand({"l n=1": [1.0], "m n=1": [100.0]})
    right = operand({"r n=1": [10.0]})
    assert refused(lambda: ask(left, "<", right)) == TOO_MANY
    older = Dialect.PROMETHEUS_2
    assert said(ask(left, "<", right, dialect=older)) == {"l n=1": [1.0]}
    assert refused(lambda: ask(left, "!=", right, dialect=older)) == TOO_MANY
    assert refused(lambda: ask(left, "<", right, return_bool=True, dialect=older)) == TOO_MANY


def test_names_that_are_dropped_must_not_make_series_the_same() -> None:
    both = operand({"l n=1": [1.0, None], "m n=1": [2.0, 3.0]})
    ten = Scalar(np.array([10.0, 10.0]))
    assert refused(lambda: ask(both, "+", ten)) == SAME_LABELS
    assert said(ask(both, "<", ten)) == {"l n=1": [1.0, None], "m n=1": [2.0, 3.0]}
    apart = operand({"l n=1": [1.0, None], "m n=1": [None, 3.0]})
    assert said(ask(ten, "+", apart)) == {"n=1": [11.0, 13.0]}
    assert refused(lambda: negate(apart)) == SAME_LABELS


def test_a_scalar_on_the_left_keeps_the_value_of_the_vector() -> None:
    found = ask(
        Scalar(np.array([2.0, 5.0])), ">", operand({"up n=1": [1.0, 7.0], "up n=2": [9.0, 9.0]})
    )
    assert said(found) == {"up n=1": [1.0, None]}


def test_the_rows_of_an_instant_query_are_in_the_order_of_the_many() -> None:
    left = operand({"l n=3": [3.0], "l n=1": [1.0], "l n=2": [2.0]})
    right = operand({"r n=0": [0.0], "r n=2": [2.0], "r n=3": [3.0]})
    found = ask(left, "+", right, Matching(fill_left=0.0, fill_right=0.0))
    assert [one["n"] for one, there in zip(found.labels, found.present, strict=True) if there] == [
        "3",
        "1",
        "2",
        "0",
    ]


# --- rows that are asked again -----------------------------------------------------------------

PORTS = [{"__name__": "sent", "host": f"h{n // 2}", "port": str(n % 2)} for n in range(8)]
SPEEDS = [{"__name__": "speed", "host": f"h{n // 2}", "port": str(n % 2)} for n in range(1, 8)]
HOSTS = [{"host": f"h{n}", "board": f"b{n % 2}"} for n in range(4)]
AGAIN = [
    ("/", SPEEDS, Matching(on=True, labels=("host", "port"))),
    (">", SPEEDS, Matching(on=True, labels=("host", "port"))),
    ("*", HOSTS, Matching(on=True, labels=("host",), group="left", include=("board",))),
    ("and", HOSTS, Matching(on=True, labels=("host",))),
    ("unless", SPEEDS, Matching(on=True, labels=("host", "port"))),
    ("or", SPEEDS, Matching(on=True, labels=("host", "port"))),
    ("or", SPEEDS, Matching()),
]


@pytest.mark.parametrize(("operator", "others", "matching"), AGAIN)
def test_rows_that_are_asked_again_have_the_answer_of_new_ones(
    operator: str, others: list[dict[str, str]], matching: Matching
) -> None:
    """Rules ask about the same rows; what is there of them, and its value, is another each time."""
    random = np.random.default_rng(7)
    cached = LabelRows(PORTS), LabelRows(others)
    for _ in range(40):
        sides, fresh = [], []
        for labels in cached:
            values = random.integers(0, 3, (len(labels), STEPS)).astype(np.float64)
            present = random.random((len(labels), STEPS)) < random.choice([0.3, 0.9, 1.0])
            # As a selector's answer reaches an operator: without the rows that are never there.
            sides.append(drop_absent(Vector(labels, values, present)))
            fresh.append(drop_absent(Vector(list(labels), values, present)))
        found = ask(sides[0], operator, sides[1], matching)
        wanted = ask(fresh[0], operator, fresh[1], matching)
        assert_same(found, answer(wanted))
    assert cached[0].derived, "nothing was kept"
