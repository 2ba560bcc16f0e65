"""Aggregations: many series become fewer, at every step at once.

Where the result depends on the order of operations, they are done in Prometheus' order, member
after member, but for all groups and steps together (`_fold`). A group too long for that is cut
into lanes, which are folded side by side and then into each other; every fold here is
compensated or exact, so that the lanes are not seen in the result but for the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import msgspec
import numpy as np

from api.promql.errors import failed
from api.promql.grouping import Groups, group_rows, keys_of, number_keys, other_names
from api.promql.histogram import QUANTILE_RANGE
from api.promql.label_functions import is_new_label_name
from api.promql.pieces import rounding_error
from api.promql.texts import decimal_text, general_text
from api.promql.values import (
    Bools,
    Floats,
    Ints,
    LabelRows,
    Labels,
    Notes,
    Scalar,
    Text,
    Vector,
    derive,
    drop_absent,
    empty_vector,
    label_order,
)
from collector.contract.identity import METRIC_LABEL, canonical_labels, series_id

State = tuple[Floats, ...]
"""The intermediate result of a fold, in as many matrices (members or groups, steps) as it needs."""
Combine = Callable[[State, State], State]

LANE_MIN = 16
"""Members below which cutting a group costs more than it saves."""
OVERFLOW_NEAR = 1e308
"""A sum that may pass this is done strictly in order: where it overflows depends on that."""

K_LEAST = -(2.0**63)
K_MOST = 9223372036854774784.0
"""The largest number below 2^63: Prometheus refuses a k outside these two."""


def aggregate(
    node_operator: str,
    labels: tuple[str, ...],
    without: bool,  # noqa: FBT001 - the fields of plan.Aggregate, in their order
    vector: Vector,
    parameter: Scalar | Text | None,
    notes: Notes,
) -> Vector:
    """Apply an aggregation operator to each group of series.

    A group is present at a step where one of its members is; groups that never are vanish. The
    operators that choose (`topk`, `limitk` …) give the chosen series with all their labels. The
    parameter must be present and of the right kind for the operators that take one (the parser
    checks that); its value is checked even if there are no series, as Prometheus does.
    """
    if node_operator == "count_values":
        assert isinstance(parameter, Text)
        return _count_values(labels, vector, parameter.text, without=without)
    per_step = parameter.values if isinstance(parameter, Scalar) else np.zeros(vector.steps)
    check = _PARAMETER_CHECKS.get(node_operator)
    if check is not None and not check(per_step, notes):
        return empty_vector(vector.steps)
    if not len(vector.labels):
        return empty_vector(vector.steps)
    found, groups = derive(
        vector.labels,
        ("groups", labels, without),
        lambda: _grouped(labels, vector.labels, without=without),
    )
    with np.errstate(all="ignore"):
        if node_operator in _CHOOSERS:
            return _CHOOSERS[node_operator](vector, groups, per_step)
        if node_operator == "quantile":
            values, present = _quantiles(vector, groups, per_step), _counts(vector, groups) > 0
        else:
            members = _members(vector, groups)
            values = _REDUCERS[node_operator](members)
            present = members.counts > 0
    return drop_absent(Vector(found, values, present))


def _grouped(
    labels: tuple[str, ...], sets: Sequence[Labels], *, without: bool
) -> tuple[LabelRows, Groups]:
    names = _grouping_names(labels, sets, without=without)
    groups = group_rows(number_keys(keys_of(sets, names), {}))
    return LabelRows(_group_labels(sets[row], names) for row in groups.firsts.tolist()), groups


def _grouping_names(labels: tuple[str, ...], sets: Sequence[Labels], *, without: bool) -> list[str]:
    if without:
        return other_names(sets, (*labels, METRIC_LABEL))
    return list(dict.fromkeys(labels))


def _group_labels(labels: Labels, names: Sequence[str]) -> Labels:
    return {name: labels[name] for name in names if labels.get(name)}


class _Members(msgspec.Struct, frozen=True):
    """The points of a vector, its rows in the order of the groups."""

    groups: Groups
    values: Floats
    present: Bools
    counts: Ints

    def filled(self, absent: float) -> Floats:
        """The values, with this one where a series is absent."""
        if bool(self.present.all()):
            return self.values
        return np.where(self.present, self.values, absent)


def _members(vector: Vector, groups: Groups) -> _Members:
    order = groups.order
    return _Members(groups, vector.values[order], vector.present[order], _counts(vector, groups))


def _counts(vector: Vector, groups: Groups) -> Ints:
    if bool(vector.present.all()):
        return np.broadcast_to(groups.sizes[:, None], (groups.count, vector.steps))
    return np.add.reduceat(vector.present[groups.order], groups.starts, axis=0, dtype=np.int64)


# Reducers: every group becomes one series. -----------------------------------------------------


def _fold(groups: Groups, state: State, combine: Combine, *, in_order: bool = False) -> State:
    """``state`` has a row for each member. ``in_order``: never cut a group into lanes."""
    lane = max(LANE_MIN, math.isqrt(len(groups.order)) + 1)
    if in_order or int(groups.sizes.max()) <= lane:
        return _fold_lanes(groups.starts, groups.sizes, state, combine)
    lanes_of = -(-groups.sizes // lane)
    first_lanes = np.cumsum(lanes_of) - lanes_of
    place = np.arange(int(lanes_of.sum())) - np.repeat(first_lanes, lanes_of)
    starts = np.repeat(groups.starts, lanes_of) + place * lane
    sizes = np.minimum(np.repeat(groups.sizes, lanes_of) - place * lane, lane)
    partial = _fold_lanes(starts, sizes, state, combine)
    return _fold_lanes(first_lanes, lanes_of, partial, combine)


def _fold_lanes(starts: Ints, sizes: Ints, state: State, combine: Combine) -> State:
    """The k-th member of every lane at once; longest lanes first, so that those with one lead."""
    size = int(sizes[0])
    if bool(np.all(sizes == size)) and bool(np.all(np.diff(starts) == size)):
        return _fold_even(len(sizes), size, state, combine)
    longest_first = np.argsort(-sizes, kind="stable")
    heads = starts[longest_first]
    found = tuple(part[heads] for part in state)
    active = np.searchsorted(-sizes[longest_first], -np.arange(int(sizes.max())), side="left")
    for k, lanes in enumerate(active.tolist()):
        if k == 0:
            continue
        rows = heads[:lanes] + k
        merged = combine(tuple(part[:lanes] for part in found), tuple(part[rows] for part in state))
        for part, new in zip(found, merged, strict=True):
            part[:lanes] = new
    back = np.argsort(longest_first)
    return tuple(part[back] for part in found)


def _fold_even(lanes: int, size: int, state: State, combine: Combine) -> State:
    """The same for adjacent lanes of one size, which need no index."""
    blocks = [np.reshape(part, (lanes, size, part.shape[1])) for part in state]
    found: State = tuple(block[:, 0] for block in blocks)
    for k in range(1, size):
        found = combine(found, tuple(block[:, k] for block in blocks))
    return found


def _add(total: State, more: State) -> State:
    """Sum with the exact rounding errors kept apart: Neumaier's, without his comparison."""
    (left, left_error), (right, right_error) = total, more
    both = left + right
    return both, left_error + (right_error + rounding_error(left, right, both))


def _sums(groups: Groups, values: Floats, *, in_order: bool) -> State:
    """The sum of each group and what rounding took from it. Infinite sums have no such error."""
    state = (values, np.broadcast_to(0.0, values.shape))
    total, error = _fold(groups, state, _add, in_order=in_order)
    return total, np.where(np.isfinite(total), error, 0.0)


def _may_overflow(groups: Groups, values: Floats) -> bool:
    """Whether adding up finite members may give an infinity on the way."""
    largest = max(float(values.max()), -float(values.min()))
    if not math.isfinite(largest):
        finite = np.abs(values[np.isfinite(values)])
        largest = float(finite.max()) if finite.size else 0.0
    return largest * int(groups.sizes.max()) >= OVERFLOW_NEAR


def _sum(members: _Members) -> Floats:
    values = members.filled(0.0)
    in_order = _may_overflow(members.groups, values)
    total, error = _sums(members.groups, values, in_order=in_order)
    return total + error


def _avg(members: _Members) -> Floats:
    values = members.filled(0.0)
    if _may_overflow(members.groups, values):
        return _avg_large(members)
    total, error = _sums(members.groups, values, in_order=False)
    return total / members.counts + error / members.counts


def _avg_large(members: _Members) -> Floats:
    """The mean of numbers whose sum overflows: from where it does so, of the means so far."""
    values = members.filled(0.0)
    nothing = np.zeros_like(values)
    state = (values, nothing, nothing, members.present.astype(np.float64), nothing)
    total, error, mean, count, switched = _fold(members.groups, state, _average, in_order=True)
    return np.where(switched > 0, mean + error, total / count + error / count)


def _average(so_far: State, one: State) -> State:
    """The parts: sum, error, mean, count, and 1 once the mean has taken the place of the sum."""
    total, error, mean, count, switched = so_far
    value, _, _, there, _ = one
    summed, summed_error = _add((total, error), (value, np.zeros_like(value)))
    now = (there > 0) & (count > 0) & (switched == 0) & np.isinf(summed)
    later = count + there
    kept = count / later
    before = np.where(now, total / count, mean) * kept
    before_error = np.where(now, error / count, error) * kept
    new_mean, new_error = _add((before, before_error), (value / later, np.zeros_like(value)))
    moving = now | ((switched > 0) & (there > 0))
    summing = (switched == 0) & ~now
    return (
        np.where(summing, summed, total),
        np.where(
            summing,
            np.where(np.isfinite(summed), summed_error, 0.0),
            np.where(moving, np.where(np.isfinite(new_mean), new_error, 0.0), error),
        ),
        np.where(moving, new_mean, mean),
        later,
        np.where(now, 1.0, switched),
    )


def _max(members: _Members) -> Floats:
    def larger(best: State, one: State) -> State:
        return (np.where((best[0] < one[0]) | np.isnan(best[0]), one[0], best[0]),)

    return _fold(members.groups, (members.filled(np.nan),), larger)[0]


def _min(members: _Members) -> Floats:
    def smaller(best: State, one: State) -> State:
        return (np.where((best[0] > one[0]) | np.isnan(best[0]), one[0], best[0]),)

    return _fold(members.groups, (members.filled(np.nan),), smaller)[0]


def _count(members: _Members) -> Floats:
    return members.counts.astype(np.float64)


def _group(members: _Members) -> Floats:
    return np.ones(members.counts.shape)


def _stdvar(members: _Members) -> Floats:
    values = members.filled(0.0)
    squares = np.where(np.isfinite(values), 0.0, np.nan)
    state = (members.present.astype(np.float64), values, squares)
    count, _, squares = _fold(members.groups, state, _spread)
    return squares / count


def _spread(so_far: State, more: State) -> State:
    """Welford's count, mean and sum of squared distances; for one more member, in his order."""
    (count, mean, squares), (more_count, more_mean, more_squares) = so_far, more
    both = count + more_count
    distance = more_mean - mean
    new_mean = mean + distance * more_count / np.maximum(both, 1.0)
    new = distance * more_count * (more_mean - new_mean)
    return both, new_mean, squares + (more_squares + new)


def _stddev(members: _Members) -> Floats:
    return np.sqrt(_stdvar(members))


_REDUCERS: dict[str, Callable[[_Members], Floats]] = {
    "sum": _sum,
    "avg": _avg,
    "max": _max,
    "min": _min,
    "count": _count,
    "group": _group,
    "stddev": _stddev,
    "stdvar": _stdvar,
}


# Quantiles. ------------------------------------------------------------------------------------


def _quantiles(vector: Vector, groups: Groups, per_step: Floats) -> Floats:
    """Linear between the two nearest members; a NaN is less than any number."""
    found = np.empty((groups.count, vector.steps))
    for numbers, rows in groups.blocks():
        values = np.where(vector.present[rows], vector.values[rows], np.nan)
        members = vector.present[rows].sum(axis=1)
        nans = members - (~np.isnan(values)).sum(axis=1)
        ascending = np.sort(values, axis=1)
        rank = per_step * (members - 1.0)
        lower = np.maximum(np.floor(rank), 0.0)
        upper = np.minimum(members - 1.0, lower + 1.0)
        weight = rank - np.floor(rank)
        found[numbers] = _member(ascending, nans, lower) * (1.0 - weight) + (
            _member(ascending, nans, upper) * weight
        )
    found = np.where(per_step < 0.0, -np.inf, np.where(per_step > 1.0, np.inf, found))
    return np.where(np.isnan(per_step), np.nan, found)


def _member(ascending: Floats, nans: Ints, place: Floats) -> Floats:
    """The member at this place, where the NaN that were sorted to the end are counted first."""
    index = np.nan_to_num(place, posinf=0.0, neginf=0.0).astype(np.int64) - nans
    inside = np.clip(index, 0, ascending.shape[1] - 1)
    taken = np.take_along_axis(ascending, inside[:, None, :], axis=1)[:, 0, :]
    return np.where(index < 0, np.nan, taken)


# Choosers: some members of every group stay as they are. ---------------------------------------


def _topk(vector: Vector, groups: Groups, per_step: Floats) -> Vector:
    return _best(vector, groups, -vector.values, per_step)


def _bottomk(vector: Vector, groups: Groups, per_step: Floats) -> Vector:
    return _best(vector, groups, vector.values, per_step)


def _best(vector: Vector, groups: Groups, costs: Floats, per_step: Floats) -> Vector:
    """The k members of each group that cost least at each step; a NaN costs most.

    Of members that cost the same the first in the order of labels is taken (Prometheus takes any).
    An instant query's rows are in the order of groups and costs; other rows are in no new order.
    """
    wanted = _whole_numbers(per_step)
    chosen = np.zeros_like(vector.present)
    for _, rows in groups.blocks():
        present = vector.present[rows]
        chosen[rows] = _cheapest(np.where(present, costs[rows], np.nan), present, wanted)
        most = np.minimum(np.maximum(wanted, 0), present.sum(axis=1))
        too_many = chosen[rows].sum(axis=1) > most
        for group in np.flatnonzero(too_many.any(axis=1)).tolist():
            ordered = _by_labels(vector.labels, rows[group][chosen[rows[group]].any(axis=1)])
            known = np.where(vector.present[ordered], costs[ordered], np.nan)
            chosen[ordered] &= _first_of_equals(known, chosen[ordered], wanted)
    kept = np.flatnonzero(chosen.any(axis=1))
    if vector.steps == 1:
        kept = np.array(
            sorted(
                kept.tolist(),
                key=lambda row: (
                    groups.ids[row],
                    math.isnan(costs[row, 0]),
                    0.0 if math.isnan(costs[row, 0]) else costs[row, 0],
                    label_order(vector.labels[row]),
                ),
            ),
            dtype=np.int64,
        )
    return Vector([vector.labels[row] for row in kept.tolist()], vector.values[kept], chosen[kept])


def _cheapest(costs: Floats, present: Bools, wanted: Ints) -> Bools:
    """Members of blocks (groups, members, steps) that cost as little as the k-th, or less."""
    numbers = (~np.isnan(costs)).sum(axis=1)
    last = np.clip(np.minimum(wanted, numbers) - 1, 0, None)
    # Only the places that are read need to be in order.
    limit = np.take_along_axis(
        np.partition(costs, np.unique(last).tolist(), axis=1), last[:, None, :], axis=1
    )
    enough = (wanted <= numbers)[:, None, :]
    return present & (wanted > 0) & np.where(enough, costs <= limit, True)


def _first_of_equals(costs: Floats, chosen: Bools, wanted: Ints) -> Bools:
    """Which of a group's chosen (members, steps) stay when too many cost as much as the dearest."""
    dearest = np.fmax.reduce(np.where(chosen, costs, -np.inf), axis=0)
    unknown = chosen & np.isnan(costs)
    equal = np.where(unknown.any(axis=0), unknown, chosen & (costs == dearest))
    room = wanted - (chosen & ~equal).sum(axis=0)
    stays: Bools = chosen & (~equal | (np.cumsum(equal, axis=0) <= room))
    return stays


def _by_labels(labels: Sequence[Labels], rows: Ints) -> Ints:
    ordered = sorted(rows.tolist(), key=lambda row: label_order(labels[row]))
    return np.array(ordered, dtype=np.int64)


def _whole_numbers(per_step: Floats) -> Ints:
    return np.trunc(np.nan_to_num(per_step)).astype(np.int64)


def _limitk(vector: Vector, groups: Groups, per_step: Floats) -> Vector:
    wanted = _whole_numbers(per_step)
    chosen = np.zeros_like(vector.present)
    for _, rows in groups.blocks():
        present = vector.present[rows]
        chosen[rows] = present & (np.cumsum(present, axis=1) <= wanted)
    return drop_absent(Vector(vector.labels, vector.values, chosen))


def _limit_ratio(vector: Vector, _groups: Groups, per_step: Floats) -> Vector:
    """About this share of the series, chosen by a hash of their labels, so always the same ones.

    A negative share -(1 - r) chooses exactly those that r does not. The hash is the id of the
    series, not Prometheus' (xxHash): other series are chosen, in the same proportion. 53 bits of
    it, so that a float holds them and none rounds up to 1.
    """
    places = np.array(
        [series_id(canonical_labels(one)) >> 11 for one in vector.labels], dtype=np.float64
    )
    places *= 2.0**-53
    ratio = np.clip(per_step, -1.0, 1.0)
    chosen = np.where(ratio >= 0, places[:, None] < ratio, places[:, None] >= 1.0 + ratio)
    chosen &= vector.present & (ratio != 0)
    return drop_absent(Vector(vector.labels, vector.values, chosen))


_CHOOSERS: dict[str, Callable[[Vector, Groups, Floats], Vector]] = {
    "topk": _topk,
    "bottomk": _bottomk,
    "limitk": _limitk,
    "limit_ratio": _limit_ratio,
}


# Parameters: False means that nothing can be chosen. A NaN hides the other extremes, as it does
# in Prometheus. --------------------------------------------------------------------------------


def _check_k(per_step: Floats, _notes: Notes) -> bool:
    least, most = float(per_step.min()), float(per_step.max())
    if most < 1:
        return False
    if math.isnan(most):
        raise failed("Parameter value is NaN")
    if least <= K_LEAST:
        raise failed(f"Scalar value {general_text(least)} underflows int64")
    if most >= K_MOST:
        raise failed(f"Scalar value {general_text(most)} overflows int64")
    return True


def _check_ratio(per_step: Floats, notes: Notes) -> bool:
    least, most = float(per_step.min()), float(per_step.max())
    if least == most == 0:
        return False
    if math.isnan(most):
        raise failed("Ratio value is NaN")
    for bound, value in ((1.0, most), (-1.0, least)):
        if value * bound > 1:
            notes.warn(
                "ratio value should be between -1 and 1, "
                f"got {general_text(value)}, capping to {general_text(bound)}"
            )
    return True


def _check_quantile(per_step: Floats, notes: Notes) -> bool:
    least, most = float(per_step.min()), float(per_step.max())
    for value, odd in ((most, math.isnan(most)), (most, most > 1), (least, least < 0)):
        if odd:
            notes.warn(QUANTILE_RANGE.format(general_text(value)))
    return True


_PARAMETER_CHECKS: dict[str, Callable[[Floats, Notes], bool]] = {
    "topk": _check_k,
    "bottomk": _check_k,
    "limitk": _check_k,
    "limit_ratio": _check_ratio,
    "quantile": _check_quantile,
}


# Counting equal values. ------------------------------------------------------------------------


def _count_values(
    labels: tuple[str, ...], vector: Vector, value_label: str, *, without: bool
) -> Vector:
    """The value becomes a label, replacing one of that name; `without` may take it away again."""
    if not is_new_label_name(value_label):
        raise failed(f'invalid label name "{value_label}"')
    if not bool(vector.present.any()):
        return empty_vector(vector.steps)
    names = [
        name
        for name in _grouping_names(labels, vector.labels, without=without)
        if name != value_label
    ]
    groups = group_rows(number_keys(keys_of(vector.labels, names), {}))
    shown = not (without and value_label in (*labels, METRIC_LABEL))
    rows, steps = np.nonzero(vector.present)
    # By their bits: 0 and -0 are written differently, though they are equal.
    bits, codes = np.unique(vector.values[rows, steps].view(np.int64), return_inverse=True)
    texts: dict[Hashable, int] = {}
    written = [decimal_text(value) if shown else "" for value in bits.view(np.float64).tolist()]
    kinds = number_keys(written, texts)[codes]
    results = groups.ids[rows] * len(texts) + kinds
    used, places = np.unique(results, return_inverse=True)
    counts = np.zeros((len(used), vector.steps))
    np.add.at(counts, (places, steps), 1.0)
    by_kind = list(texts)
    found = []
    for group, kind in zip(*np.divmod(used, len(texts)), strict=True):
        base = _group_labels(vector.labels[int(groups.firsts[group])], names)
        found.append({**base, value_label: str(by_kind[kind])} if shown else base)
    return Vector(found, counts, counts > 0)
