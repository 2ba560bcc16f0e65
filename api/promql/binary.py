"""Operators between two sides, at every step at once.

Two vectors are matched by signature: the labels that must agree. Each signature's series of the
"one" side become one row (they must not meet at a step), every series of the "many" side is
paired with it, and the operator is applied to whole matrices. One-to-one is the same with the
left side as the many, and a check that there are not many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec
import numpy as np

from api.promql.errors import failed
from api.promql.grouping import Groups, group_rows, keys_of, number_keys, other_names
from api.promql.label_functions import drop_names
from api.promql.plan import Binary, Matching
from api.promql.texts import labels_text
from api.promql.values import (
    Bools,
    Dialect,
    Floats,
    Ints,
    LabelRows,
    Labels,
    Scalar,
    Vector,
    are_distinct,
    derive_both,
    distinct_rows,
    drop_absent,
    empty_vector,
    label_key,
    merge_rows,
    metric_names,
    without_names,
)
from collector.contract.identity import METRIC_LABEL

ARITHMETIC: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
"""`%` has the sign of the dividend, as in C and Go."""
COMPARISONS: dict[str, Callable[[Floats, Floats], Bools]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}

TOO_MANY = (
    "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
)
NOT_UNIQUE = "multiple matches for labels: grouping labels must ensure unique matches"


def binary(
    node: Binary,
    left: Vector | Scalar,
    right: Vector | Scalar,
    dialect: Dialect = Dialect.PROMETHEUS_3,
) -> Vector | Scalar:
    with np.errstate(all="ignore"):
        if isinstance(left, Scalar) and isinstance(right, Scalar):
            return Scalar(_apply(node.operator, left.values, right.values))
        if isinstance(left, Scalar):
            assert isinstance(right, Vector)
            return _with_scalar(node, right, left.values, right.values)
        if isinstance(right, Scalar):
            return _with_scalar(node, left, left.values, right.values)
        if node.operator in _SETS:
            return _SETS[node.operator](left, right, node.matching)
        return _match(node, left, right, dialect)


def negate(vector: Vector) -> Vector:
    """The vector with a minus in front: its series lose their names."""
    labels = without_names(vector.labels)
    if len(metric_names(vector.labels)) <= 1:
        return drop_absent(Vector(labels, -vector.values, vector.present))
    return distinct_rows(labels, -vector.values, vector.present)


def _apply(operator: str, left: Floats, right: Floats) -> Floats:
    if operator in ARITHMETIC:
        return ARITHMETIC[operator](left, right)
    return COMPARISONS[operator](left, right).astype(np.float64)


def _drops_name(node: Binary) -> bool:
    """Whether the result is another quantity than the metric's name states."""
    return node.operator in ARITHMETIC or node.return_bool


def _with_scalar(node: Binary, vector: Vector, left: Floats, right: Floats) -> Vector:
    if not _drops_name(node):
        holds = COMPARISONS[node.operator](left, right)
        return drop_absent(Vector(vector.labels, vector.values, vector.present & holds))
    return drop_names(vector.labels, _apply(node.operator, left, right), vector.present)


# Signatures. -----------------------------------------------------------------------------------


def _signatures(left: Vector, right: Vector, matching: Matching) -> tuple[Ints, Ints, int]:
    def make() -> tuple[Ints, Ints, int]:
        names = list(dict.fromkeys(matching.labels))
        if not matching.on:
            names = other_names([*left.labels, *right.labels], (*matching.labels, METRIC_LABEL))
        numbers: dict[Hashable, int] = {}
        ids = [number_keys(keys_of(side.labels, names), numbers) for side in (left, right)]
        return ids[0], ids[1], len(numbers)

    key = ("signatures", matching.on, matching.labels)
    return derive_both(left.labels, right.labels, key, make)


def _matched_labels(labels: Labels, matching: Matching) -> Labels:
    if matching.on:
        return {name: labels[name] for name in matching.labels if labels.get(name)}
    dropped = {*matching.labels, METRIC_LABEL}
    return {name: value for name, value in labels.items() if name not in dropped}


def _seen(vector: Vector, ids: Ints, count: int) -> Bools:
    """For each signature, the steps at which some row has it."""
    seen = np.zeros((count, vector.steps), dtype=np.bool_)
    if len(ids):
        used, groups = _regroup(ids)
        seen[used] = np.logical_or.reduceat(vector.present[groups.order], groups.starts, axis=0)
    return seen


def _regroup(ids: Ints) -> tuple[Ints, Groups]:
    """The numbers that are used, in order, and the groups of rows that have them."""
    used, dense = np.unique(ids, return_inverse=True)
    return used, group_rows(dense)


# Set operators. --------------------------------------------------------------------------------


def _and(left: Vector, right: Vector, matching: Matching) -> Vector:
    left_ids, right_ids, count = _signatures(left, right, matching)
    met = _seen(right, right_ids, count)[left_ids]
    return drop_absent(Vector(left.labels, left.values, left.present & met))


def _unless(left: Vector, right: Vector, matching: Matching) -> Vector:
    left_ids, right_ids, count = _signatures(left, right, matching)
    met = _seen(right, right_ids, count)[left_ids]
    return drop_absent(Vector(left.labels, left.values, left.present & ~met))


def _or(left: Vector, right: Vector, matching: Matching) -> Vector:
    left_ids, right_ids, count = _signatures(left, right, matching)
    met = _seen(left, left_ids, count)[right_ids]
    added = drop_absent(Vector(right.labels, right.values, right.present & ~met))
    if not len(added.labels):
        return left
    labels = derive_both(
        left.labels, added.labels, "or", lambda: LabelRows([*left.labels, *added.labels])
    )
    values = np.concatenate([left.values, added.values])
    present = np.concatenate([left.present, added.present])
    if are_distinct(labels):
        return Vector(labels, values, present)
    return merge_rows(labels, values, present)


_SETS: dict[str, Callable[[Vector, Vector, Matching], Vector]] = {
    "and": _and,
    "unless": _unless,
    "or": _or,
}


# Matching. -------------------------------------------------------------------------------------


class _Sides(msgspec.Struct, frozen=True):
    """Two vectors to be matched, as the many and the one, with the signatures of their rows.

    ``active`` are the steps at which anything is matched: where one side is empty and nothing is
    filled in, Prometheus does not even look for mistakes.
    """

    many: Vector
    one: Vector
    many_ids: Ints
    one_ids: Ints
    count: int
    active: Bools


class _Pairs(msgspec.Struct, frozen=True):
    """Partners at every step: one row for each result, before the operator."""

    ids: Ints
    labels: Sequence[Labels]
    many: Floats
    one: Floats
    present: Bools


def _match(node: Binary, left: Vector, right: Vector, dialect: Dialect) -> Vector:
    matching = node.matching
    filled = matching.fill_left is not None or matching.fill_right is not None
    some_left, some_right = left.present.any(axis=0), right.present.any(axis=0)
    active: Bools = np.where(filled, some_left | some_right, some_left & some_right)
    if not bool(active.any()):
        return empty_vector(left.steps)
    many, one = (right, left) if matching.group == "right" else (left, right)
    many_ids, one_ids, count = _signatures(many, one, matching)
    sides = _Sides(many, one, many_ids, one_ids, count, active)
    _check_ones(sides, matching)
    pairs = _pair(node, sides)
    left_values, right_values = (
        (pairs.one, pairs.many) if matching.group == "right" else (pairs.many, pairs.one)
    )
    apart = _stay_apart(node, pairs, sides)
    values, present = left_values, pairs.present
    if _drops_name(node):
        values = _apply(node.operator, left_values, right_values)
    else:
        present = present & COMPARISONS[node.operator](left_values, right_values)
    if not apart:
        # A comparison that does not hold still counts, since Prometheus 3.
        _check_results(pairs, present if dialect is Dialect.PROMETHEUS_2 else pairs.present, node)
    found = Vector(pairs.labels, values, present)
    found = drop_absent(found)
    return found if apart else merge_rows(found.labels, found.values, found.present)


def _check_ones(sides: _Sides, matching: Matching) -> None:
    """Raise if two series of the one side have the same signature at the same step."""
    step = _first_clash(sides.one_ids, sides.one.present & sides.active)
    if step is None:
        return
    earlier: dict[int, int] = {}
    for row in np.flatnonzero(sides.one.present[:, step]).tolist():
        before = earlier.setdefault(int(sides.one_ids[row]), row)
        if before != row:
            labels = sides.one.labels[row]
            raise failed(
                f"found duplicate series for the match group "
                f"{labels_text(_matched_labels(labels, matching))} on the "
                f"{'left' if matching.group == 'right' else 'right'} hand-side of the operation: "
                f"[{labels_text(labels)}, {labels_text(sides.one.labels[before])}]"
                ";many-to-many matching not allowed: matching labels must be unique on one side"
            )


def _check_results(pairs: _Pairs, counted: Bools, node: Binary) -> None:
    """Raise if results of one signature are too many, or have the same labels, at the same step."""
    if not node.matching.group:
        if _first_clash(pairs.ids, counted) is not None:
            raise failed(TOO_MANY)
        return
    keys = zip(pairs.ids.tolist(), map(label_key, pairs.labels), strict=True)
    if _first_clash(number_keys(keys, {}), counted) is not None:
        raise failed(NOT_UNIQUE)


def _first_clash(ids: Ints, present: Bools) -> int | None:
    """The first step at which two rows with the same number are present."""
    if len(set(ids.tolist())) == len(ids):
        return None
    _, groups = _regroup(ids)
    counts = np.add.reduceat(present[groups.order], groups.starts, axis=0, dtype=np.int64)
    clashes = (counts > 1).any(axis=0)
    return int(np.argmax(clashes)) if bool(clashes.any()) else None


def _stay_apart(node: Binary, pairs: _Pairs, sides: _Sides) -> bool:
    """Whether all results surely have different labels; finding out costs more than most matches.

    One-to-one results differ in their signatures, unless the name was part of them; grouped ones
    differ in the labels of the many, unless some of those are replaced.
    """
    matching = node.matching
    if not matching.group:
        unnamed = not (matching.on and METRIC_LABEL in matching.labels)
        return unnamed and len(set(pairs.ids.tolist())) == len(pairs.ids)
    filled = matching.fill_left is not None or matching.fill_right is not None
    renamed = _drops_name(node) and len(metric_names(sides.many.labels)) > 1
    replaced = any(name in labels for labels in sides.many.labels for name in matching.include)
    return not (filled or renamed or replaced)


# Pairs. ----------------------------------------------------------------------------------------


class _Ones(msgspec.Struct, frozen=True):
    """The one side, a row for each signature and set of labels that the many take from it.

    Usually that is a row for each series. But series that follow each other in time make one row,
    so that the many need not be paired with each of them.
    """

    ids: Ints
    labels: Sequence[Labels]
    values: Floats
    present: Bools


def _pair(node: Binary, sides: _Sides) -> _Pairs:
    """Every series of the many with its partners, and those that have only a fill value."""
    matching = node.matching
    ones = _merge_ones(sides, matching)
    partners = np.bincount(ones.ids, minlength=sides.count)
    order = np.argsort(ones.ids, kind="stable")
    firsts = np.cumsum(partners) - partners
    repeats = partners[sides.many_ids]
    rows = np.repeat(np.arange(len(sides.many_ids)), repeats)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    chosen = order[firsts[sides.many_ids[rows]] + nth]
    # Who is paired with whom follows from the labels alone, and so do the results' labels.
    labels = derive_both(
        sides.many.labels,
        sides.one.labels,
        ("results", node.operator in ARITHMETIC, node.return_bool, matching),
        lambda: LabelRows(
            _result_labels(node, sides.many.labels[row], ones.labels[partner])
            for row, partner in zip(rows.tolist(), chosen.tolist(), strict=True)
        ),
    )
    many, there = sides.many.values[rows], sides.many.present[rows]
    present = there & ones.present[chosen] & sides.active
    pairs = _Pairs(sides.many_ids[rows], labels, many, ones.values[chosen], present)
    if matching.fill_right is not None:
        pairs = _fill_one(node, sides, pairs, rows, matching.fill_right)
    if matching.fill_left is not None:
        pairs = _fill_many(node, sides, pairs, ones, matching.fill_left)
    return pairs


def _merge_ones(sides: _Sides, matching: Matching) -> _Ones:
    """The rows of the one side, those of the same signature and include labels merged."""
    one = sides.one
    keys = zip(sides.one_ids.tolist(), keys_of(one.labels, matching.include), strict=True)
    groups = group_rows(number_keys(keys, {})) if len(one.labels) else None
    if groups is None or groups.count == len(one.labels):
        return _Ones(sides.one_ids, one.labels, one.values, one.present)
    values, present = one.values[groups.firsts], one.present[groups.firsts]
    for row in np.setdiff1d(np.arange(len(one.labels)), groups.firsts).tolist():
        target = int(groups.ids[row])
        values[target] = np.where(one.present[row], one.values[row], values[target])
        present[target] |= one.present[row]
    labels = [one.labels[row] for row in groups.firsts.tolist()]
    return _Ones(sides.one_ids[groups.firsts], labels, values, present)


def _fill_one(node: Binary, sides: _Sides, pairs: _Pairs, rows: Ints, fill: float) -> _Pairs:
    """The pairs, and the many whose partner is absent with a fill value for it.

    They stay in the order of the many. ``fill_right`` is the one's value even where the one is on
    the left side (`group_right`): so does Prometheus.
    """
    many = sides.many
    alone = many.present & ~_seen(sides.one, sides.one_ids, sides.count)[sides.many_ids]
    labels = [_result_labels(node, one, _matched_labels(one, node.matching)) for one in many.labels]
    filled = _Pairs(sides.many_ids, labels, many.values, np.full_like(many.values, fill), alone)
    order = np.argsort(np.concatenate([rows, np.arange(len(labels))]), kind="stable")
    return _concatenate(pairs, filled, order)


def _fill_many(node: Binary, sides: _Sides, pairs: _Pairs, ones: _Ones, fill: float) -> _Pairs:
    """The pairs, and after them the ones without partners, each with a fill value for one."""
    alone = ones.present & ~_seen(sides.many, sides.many_ids, sides.count)[ones.ids]
    labels = [_result_labels(node, _matched_labels(one, node.matching), one) for one in ones.labels]
    filled = _Pairs(ones.ids, labels, np.full_like(ones.values, fill), ones.values, alone)
    return _concatenate(pairs, filled, np.arange(len(pairs.ids) + len(labels)))


def _concatenate(pairs: _Pairs, more: _Pairs, order: Ints) -> _Pairs:
    labels = [*pairs.labels, *more.labels]
    return _Pairs(
        np.concatenate([pairs.ids, more.ids])[order],
        [labels[row] for row in order.tolist()],
        np.concatenate([pairs.many, more.many])[order],
        np.concatenate([pairs.one, more.one])[order],
        np.concatenate([pairs.present, more.present])[order],
    )


def _result_labels(node: Binary, many: Labels, one: Labels) -> Labels:
    """The labels of a result: the many's, less the name if it no longer fits.

    One-to-one matches keep the labels that were matched on, or lose those that were ignored.
    Included labels are the one's, and absent if it lacks them.
    """
    matching = node.matching
    arithmetic = node.operator in ARITHMETIC
    if matching.group:
        kept = dict(many)
    elif matching.on:
        kept = {name: many[name] for name in matching.labels if name in many}
    else:
        kept = {name: value for name, value in many.items() if name not in matching.labels}
    if arithmetic:
        kept.pop(METRIC_LABEL, None)
    for name in matching.include:
        kept.pop(name, None)
        if one.get(name):
            kept[name] = one[name]
    if node.return_bool:
        kept.pop(METRIC_LABEL, None)
    # Rows are cached: those that are the same share one dict.
    return many if not matching.include and len(kept) == len(many) else kept
