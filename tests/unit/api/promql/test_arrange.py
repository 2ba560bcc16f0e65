"""`arrange` merges the samples of many parts into the order of a full sort."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from api.promql.arrange import Stored, arrange

Sample = tuple[int, int, float]

samples = st.tuples(
    st.integers(1, 6), st.integers(0, 9).map(lambda n: n * 1000), st.sampled_from([1.0, 2.0])
)
parts = st.lists(st.lists(samples, max_size=12), max_size=5)


def stored(rows: list[Sample]) -> Stored:
    return Stored(
        np.array([one for one, _, _ in rows], np.uint64),
        np.array([at for _, at, _ in rows], np.int64),
        np.array([value for _, _, value in rows], np.float64),
    )


@given(parts, st.permutations([1, 3, 4, 6]))
def test_parts_become_one_order(given_parts: list[list[Sample]], wanted: list[int]) -> None:
    """Each part is in order of series and time; the query wants no samples of series 2 and 5."""
    rows = [sample for part in given_parts for sample in sorted(part)]
    ids = np.array(sorted(wanted), np.uint64)
    row_of = {one: row for row, one in enumerate(wanted)}
    numbers = np.array([row_of[one] for one in sorted(wanted)], np.int64)
    found = arrange(stored(rows), ids, numbers)
    got = list(zip(found.rows.tolist(), found.times_ms.tolist(), strict=True))
    assert got == sorted((row_of[one], at) for one, at, _ in rows if one in row_of)
    values: dict[tuple[int, int], list[float]] = {}
    for one, at, value in rows:
        values.setdefault((row_of.get(one, -1), at), []).append(value)
    kept = found.without(found.repeats())
    assert len(kept.rows) == len(set(got))
    contradicts = any(len(set(values[key])) > 1 for key in got)
    assert found.contradict(found.repeats()) == contradicts


def test_what_is_in_order_is_not_copied() -> None:
    rows: list[Sample] = [(1, 0, 1.0), (1, 1000, 2.0), (4, 0, 3.0)]
    given_ = stored(rows)
    found = arrange(given_, np.array([1, 4], np.uint64), np.array([0, 1]))
    assert found.rows.tolist() == [0, 0, 1]
    assert np.shares_memory(found.times_ms, given_.times_ms)


def test_nothing_is_nothing() -> None:
    none = arrange(stored([]), np.array([1], np.uint64), np.array([0]))
    assert not len(none.rows)
    assert not len(arrange(stored([(1, 0, 1.0)]), np.zeros(0, np.uint64), np.zeros(0, int)).rows)
    stranger = arrange(stored([(2, 0, 1.0)]), np.array([1], np.uint64), np.array([0]))
    assert not len(stranger.rows)
