"""Classic histograms: by hand, and against a slow reference that looks at one step at a time."""

import math
from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.promql import histogram
from api.promql.errors import QueryError
from api.promql.histogram import almost_equal, bound_text, parse_bound
from api.promql.values import Dialect, Notes, Vector
from tests.unit.api.promql.vectors import INF, NAN, Row, assert_rows, call_vector, rows, vector

P2, P3 = Dialect.PROMETHEUS_2, Dialect.PROMETHEUS_3

Counts = list[float | None]


def buckets(counts: dict[str, float | None], **labels: str) -> Vector:
    """A histogram of one step."""
    return vector(*(({**labels, "le": bound}, [count]) for bound, count in counts.items()))


def one_value(found: Vector) -> float:
    (row,) = rows(found)
    value = row[1][0]
    assert value is not None
    return value


# --- by hand --------------------------------------------------------------------------------------

PLAIN: dict[str, float | None] = {"0.1": 10, "1": 30, "10": 60, "+Inf": 100}


@pytest.mark.parametrize(
    ("quantile", "counts", "expected"),
    [
        (0.3, PLAIN, 1),
        (0.05, PLAIN, 0.05),
        (0.2, PLAIN, 0.55),
        (0, PLAIN, 0),
        (0.6, PLAIN, 10),
        (0.7, PLAIN, 10),
        (1, PLAIN, 10),
        (-0.1, PLAIN, -INF),
        (1.1, PLAIN, INF),
        (NAN, PLAIN, NAN),
        # The rows may come in any order, and a bound may be written twice.
        (0.2, {"+Inf": 100, "10": 60, "1": 30, "0.1": 10}, 0.55),
        (0.2, {"0.1": 10, "1": 10, "1.0": 20, "10": 60, "+Inf": 40, "Inf": 60}, 0.55),
        # No interpolation below a first bound that is not positive, or above the last finite one.
        (0.1, {"-1": 50, "1": 60, "+Inf": 100}, -1),
        (0.75, {"-1": 32, "1": 64, "+Inf": 64}, 0),
        (0.1, {"0": 50, "1": 60, "+Inf": 100}, 0),
        (0.5, {"+Inf": 100}, NAN),
        (0.5, {"1": 50, "2": 60}, NAN),
        (0.5, {"1": 0, "+Inf": 0}, NAN),
        (1.5, {"1": 50}, INF),
        (0.5, {"1": NAN, "+Inf": NAN}, 1),
        (0.5, {"1": 1, "2": NAN, "+Inf": 4}, 2),
        (0.5, {"1": 50, "2": 60, "NaN": 60, "+Inf": 100}, NAN),
        # A bucket that counts less than the one below gets that one's count.
        (0.5, {"1": 10, "2": 5, "3": 20, "+Inf": 20}, 1),
    ],
)
def test_quantiles(quantile: float, counts: dict[str, float | None], expected: float) -> None:
    found = call_vector("histogram_quantile", quantile, buckets(counts, job="a"))
    assert_rows(found, ({"job": "a"}, [expected]))


@pytest.mark.parametrize(
    ("lower", "upper", "counts", "expected"),
    [
        (0, 0.1, PLAIN, 0.1),
        (0, 0.05, PLAIN, 0.05),
        (0.1, 1, PLAIN, 0.2),
        (0.55, 5.5, PLAIN, 0.25),
        (-INF, INF, PLAIN, 1),
        (-INF, 10, PLAIN, 0.6),
        (10, INF, PLAIN, 0.4),
        (20, INF, PLAIN, 0.4),
        (11, 20, PLAIN, 0),
        (-5, -1, PLAIN, 0),
        (1, 0, PLAIN, 0),
        (1, 1, PLAIN, 0),
        (NAN, 1, PLAIN, NAN),
        (0, NAN, PLAIN, NAN),
        (0, 1, {"1": 5, "2": 5}, NAN),
        (0, 1, {"1": 0, "+Inf": 0}, NAN),
        (0, 1, {"+Inf": 4}, 0),
        (-INF, -3, {"-1": 50, "1": 60, "+Inf": 100}, 0.5),
        (-2, 0, {"-1": 50, "1": 60, "+Inf": 100}, 0.05),
        (-1, 1, {"-1": 50, "1": 60, "+Inf": 100}, 0.1),
    ],
)
def test_fractions(
    lower: float, upper: float, counts: dict[str, float | None], expected: float
) -> None:
    found = call_vector("histogram_fraction", lower, upper, buckets(counts, job="a"))
    assert_rows(found, ({"job": "a"}, [expected]))


def test_prometheus_2_has_fractions_of_native_histograms_only() -> None:
    assert_rows(call_vector("histogram_fraction", 0, 1, buckets(PLAIN), dialect=P2))


def test_buckets_and_quantiles_come_and_go() -> None:
    given_ = vector(
        ({"__name__": "m", "le": "1"}, [10, None, None, 10]),
        ({"__name__": "m", "le": "2"}, [20, 20, None, 20]),
        ({"__name__": "m", "le": "+Inf"}, [20, 20, None, None]),
    )
    found = call_vector("histogram_quantile", [0.75, 0.75, 0.75, 0.75], given_, steps=4)
    assert_rows(found, ({}, [1.5, 1.5, None, NAN]))
    found = call_vector("histogram_quantile", [0.5, 2, 0.5, -1], given_, steps=4)
    assert_rows(found, ({}, [1, INF, None, -INF]))


def test_histograms_are_told_apart_by_all_labels_but_the_bound() -> None:
    given_ = vector(
        *(({"job": job, "le": le}, [v]) for job in "ab" for le, v in [("1", 1), ("+Inf", 2)]),
        ({"job": "c", "le": "4"}, [1]),
        ({"job": "c", "le": "8"}, [2]),
        ({"job": "c", "le": "+Inf"}, [2]),
    )
    found = call_vector("histogram_quantile", 0.5, given_)
    assert_rows(found, ({"job": "a"}, [1]), ({"job": "b"}, [1]), ({"job": "c"}, [4]))


def test_histograms_of_two_metrics_must_not_meet() -> None:
    both = vector(
        *(({"__name__": name, "le": le}, [1]) for name in ("m", "n") for le in ("1", "+Inf"))
    )
    with pytest.raises(QueryError, match="same labelset"):
        call_vector("histogram_quantile", 0.5, both)


def test_small_pieces_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    labels = [{"host": f"h{h}", "le": le} for h in range(20) for le in ("1", "2", "5", "+Inf")]
    values = rng.integers(0, 9, (80, 3)).astype(np.float64)
    given_ = Vector(labels, values, rng.random((80, 3)) > 0.2)
    whole = call_vector("histogram_quantile", 0.9, given_, steps=3)
    monkeypatch.setattr(histogram, "PIECE_CELLS", 30)
    cut = call_vector("histogram_quantile", 0.9, given_, steps=3)
    assert str(rows(cut)) == str(rows(whole))


def test_many_quantiles_at_once() -> None:
    given_ = buckets(PLAIN, __name__="m", job="a")
    found = call_vector("histogram_quantiles", given_, "q", 0.05, 1, 0.2)
    assert_rows(
        found,
        ({"job": "a", "q": "0.05"}, [0.05]),
        ({"job": "a", "q": "0.2"}, [0.55]),
        ({"job": "a", "q": "1.0"}, [10]),
    )
    with pytest.raises(QueryError, match="same labelset"):
        call_vector("histogram_quantiles", given_, "q", 0.5, 0.5)
    steps = vector(({"le": "1"}, [1, 1]), ({"le": "+Inf"}, [2, 2]))
    moving = call_vector("histogram_quantiles", steps, "q", [0.25, NAN], steps=2)
    assert_rows(moving, ({"q": "0.25"}, [0.5, None]), ({"q": "NaN"}, [None, NAN]))


# --- notes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantile", "shown"),
    [(1.5, "1.5"), (-1, "-1"), (NAN, "NaN"), (INF, "+Inf"), (-INF, "-Inf"), (2e7, "2e+07")],
)
def test_a_quantile_that_is_none_is_warned_of(quantile: float, shown: str) -> None:
    notes = Notes()
    call_vector("histogram_quantile", quantile, buckets(PLAIN), notes=notes)
    text = f"PromQL warning: quantile value should be between 0 and 1, got {shown}"
    assert notes.warnings == [text]


@pytest.mark.parametrize("text", ["", "x", "1_", " 1", "1e999", "٣", "0x10", "+nan", "1e", "."])
@pytest.mark.parametrize("name", ["", "m"])
def test_a_bound_that_is_none_is_warned_of(text: str, name: str) -> None:
    notes = Notes()
    named = {"__name__": name} if name else {}
    bad = {**named, **({"le": text} if text else {})}
    given_ = vector(({**named, "le": "1"}, [1]), ({**named, "le": "+Inf"}, [2]), (bad, [3]))
    assert_rows(call_vector("histogram_quantile", 0.25, given_, notes=notes), ({}, [0.5]))
    suffix = ' for metric name "m"' if name else ""
    assert notes.warnings == [
        f'PromQL warning: bucket label "le" is missing or has a malformed value of "{text}"{suffix}'
    ]
    assert notes.infos == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("1", 1), ("1.", 1), (".5", 0.5), ("-1e-3", -0.001), ("1_000.5", 1000.5)),
        *(("+Inf", INF), ("-inf", -INF), ("Infinity", INF)),
    ],
)
def test_bounds_are_numbers(text: str, expected: float) -> None:
    assert parse_bound(text) == expected


def test_falling_counts_are_told_of_once() -> None:
    notes = Notes()
    given_ = vector(
        ({"host": "a", "le": "1"}, [10, 10, 10]),
        ({"host": "a", "le": "2"}, [10, 7, 10]),
        ({"host": "a", "le": "+Inf"}, [10, 10, 10]),
        ({"host": "b", "le": "0.5"}, [3, 3, 3]),
        ({"host": "b", "le": "0.7"}, [3, 2.5, 2]),
        ({"host": "b", "le": "+Inf"}, [4, 4, 4]),
    )
    call_vector("histogram_quantile", 0.5, given_, steps=3, notes=notes)
    (info,) = notes.infos
    assert info == (
        "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see "
        "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile), "
        "from buckets 0.7 to 2, with a max diff of 3, over 3 samples from 1970-01-01T00:01:00Z "
        "to 1970-01-01T00:02:00Z"
    )
    silent = Notes()
    call_vector("histogram_quantile", 0.5, given_, steps=3, notes=silent, dialect=P2)
    call_vector("histogram_quantile", 2, given_, steps=3, notes=silent)
    assert silent.infos == []


def test_rounding_is_not_falling() -> None:
    notes = Notes()
    less = 100 * (1 - 1e-13)
    given_ = buckets({"1": 50, "2": 100, "3": less, "+Inf": 100})
    assert one_value(call_vector("histogram_quantile", 1, given_, notes=notes)) == 2
    assert notes.infos == []
    # Counts that differ by a rounding error are equal too, but not in Prometheus 2.
    given_ = buckets({"1": less, "2": 100, "+Inf": 100})
    assert one_value(call_vector("histogram_quantile", 1, given_)) == 1
    assert one_value(call_vector("histogram_quantile", 1, given_, dialect=P2)) == 2


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1, True),
        (1, 1 + 1e-13, True),
        (1, 1 + 1e-11, False),
        (0, 1e-300, False),
        (0, 0, True),
        (NAN, NAN, True),
        (NAN, 1, False),
        (INF, INF, True),
        (INF, 1, False),
        (1e308, 1.5e308, False),
    ],
)
def test_almost_equal(left: float, right: float, expected: bool) -> None:  # noqa: FBT001 - a table
    with np.errstate(all="ignore"):
        assert almost_equal(np.array([left]), np.array([right])).tolist() == [expected]


def test_bounds_are_written_as_in_openmetrics() -> None:
    texts = [bound_text(value) for value in (0.99, 1.0, 0.0, 1e7, INF, NAN)]
    assert texts == ["0.99", "1.0", "0.0", "1e+07", "+Inf", "NaN"]


# --- against a reference --------------------------------------------------------------------------


def merged(known: list[tuple[float, float]]) -> list[tuple[float, float]]:
    sums: dict[float, float] = {}
    for bound, count in known:
        sums[bound] = sums[bound] + count if bound in sums else count
    return sorted(sums.items())


def repaired(counts: list[float], dialect: Dialect) -> list[float]:
    highest, result = counts[0], [counts[0]]
    for count in counts[1:]:
        same = dialect is P3 and (
            count == highest
            or (highest and count and abs(count - highest) / (abs(count) + abs(highest)) < 1e-12)
        )
        if not same and count >= highest:
            highest = count
        result.append(highest)
    return result


def naive_quantile(q: float, known: list[tuple[float, float]], dialect: Dialect) -> float:
    if not 0 <= q <= 1:
        return q * INF
    found = merged(known)
    bounds = [bound for bound, _ in found]
    if bounds[-1] != INF or len(found) < 2:
        return NAN
    counts = repaired([count for _, count in found], dialect)
    if counts[-1] == 0:
        return NAN
    rank = q * counts[-1]
    at = bisect_left(counts[:-1], rank)
    if at == len(counts) - 1:
        return bounds[-2]
    if at == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[at - 1], counts[at - 1]) if at else (0.0, 0.0)
    part, width = rank - below, counts[at] - below
    share = part / width if width else NAN if part == 0 else math.copysign(INF, part)
    return start + (bounds[at] - start) * share


def naive_rank(value: float, found: list[tuple[float, float]]) -> float:
    lower, below = 0.0 if found[0][0] > 0 else -INF, 0.0
    for upper, count in found:
        if lower >= value:
            return min(below, found[-1][1])
        if upper > value:
            width, inside = upper - lower, (count - below) * (value - lower)
            rank = count if lower == -INF else below + (0 if width == INF else inside / width)
            return min(rank, found[-1][1])
        lower, below = upper, count
    return found[-1][1]


def naive_fraction(lower: float, upper: float, known: list[tuple[float, float]]) -> float:
    found = merged(known)
    total = found[-1][1]
    if found[-1][0] != INF or total == 0 or math.isnan(lower) or math.isnan(upper):
        return NAN
    if lower >= upper:
        return 0.0
    return (naive_rank(upper, found) - naive_rank(lower, found)) / total


BOUNDS = ["-2", "-1", "0", "0.5", "1", "1.0", "2", "5", "10", "+Inf", "Inf"]
COUNTS = st.sampled_from([None, 0.0, 1.0, 2.0, 2.0 * (1 - 1e-14), 3.0, 7.5, 1e6]) | st.floats(0, 50)
STEPS = 3


@st.composite
def histograms(draw: st.DrawFn) -> list[Row]:
    found: list[Row] = []
    for host in range(draw(st.integers(1, 4))):
        likely = draw(st.booleans())
        for bound in draw(st.lists(st.sampled_from(BOUNDS), min_size=1, unique=True)):
            counts: Counts = draw(st.lists(COUNTS, min_size=STEPS, max_size=STEPS))
            if likely:
                counts = [None if c is None else c + 10 * BOUNDS.index(bound) for c in counts]
            found.append(({"host": str(host), "le": bound}, counts))
    return draw(st.permutations(found))


def known_buckets(given_: list[Row], host: str, step: int) -> list[tuple[float, float]]:
    """Buckets in the order of the rows: a float sum of three depends on the order."""
    return [
        (float(labels["le"]), count)
        for labels, counts in given_
        if labels["host"] == host and (count := counts[step]) is not None
    ]


def expected_rows(given_: list[Row], answers: dict[tuple[str, int], float]) -> list[Row]:
    hosts = {labels["host"] for labels, _ in given_}
    found = [(host, [answers.get((host, step)) for step in range(STEPS)]) for host in hosts]
    return [({"host": host}, row) for host, row in found if any(v is not None for v in row)]


SHARES = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, -1.0, 2.0, NAN]) | st.floats(0, 1)
EDGES = st.sampled_from([-INF, -2.0, -1.5, 0.0, 0.5, 0.7, 1.0, 3.0, 10.0, 20.0, INF, NAN])


@given(histograms(), st.lists(SHARES, min_size=STEPS, max_size=STEPS), st.sampled_from([P2, P3]))
def test_quantiles_agree_with_the_reference(
    given_: list[Row], shares: list[float], dialect: Dialect
) -> None:
    answers = {
        (host, step): naive_quantile(shares[step], known, dialect)
        for host in {labels["host"] for labels, _ in given_}
        for step in range(STEPS)
        if (known := known_buckets(given_, host, step))
    }
    found = call_vector("histogram_quantile", shares, vector(*given_), steps=STEPS, dialect=dialect)
    assert_rows(found, *expected_rows(given_, answers))


@given(
    histograms(),
    st.lists(EDGES, min_size=STEPS, max_size=STEPS),
    st.lists(EDGES, min_size=STEPS, max_size=STEPS),
)
def test_fractions_agree_with_the_reference(
    given_: list[Row], lowers: list[float], uppers: list[float]
) -> None:
    answers = {
        (host, step): naive_fraction(lowers[step], uppers[step], known)
        for host in {labels["host"] for labels, _ in given_}
        for step in range(STEPS)
        if (known := known_buckets(given_, host, step))
    }
    found = call_vector("histogram_fraction", lowers, uppers, vector(*given_), steps=STEPS)
    assert_rows(found, *expected_rows(given_, answers))
