"""The same questions to a running Prometheus and to us: lists that people wrote, query by query.

Two lists: our own (tests/fixtures/promql/queries.txt), and the queries of prometheus/compliance,
which are not ours to ship; they run where they lie beside this repository.
"""

import importlib.util
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.oracles import promql_oracle
from tests.oracles.promql_oracle import Pair
from tests.oracles.promql_random import START_MS, Question
from tests.stands.service import ROOT
from tests.tools.cut import CUT
from tests.worlds.remote_write import STALE, TimeSeries

QUERIES = ROOT / "tests/fixtures/promql/queries.txt"
COMPLIANCE = ROOT / "../shared/tools/promql_compare.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rotating(3, turn=1),
    pytest.mark.peer("prometheus"),
]

HOUR_MS = 3_600_000
END_MS = START_MS + HOUR_MS
NEWEST_PARTS = 5
"""The newest dialect differs in corners that our own list has: of these queries a part is asked."""

SMALL = 1e-12
"""Values near zero, like the sine of a multiple of pi, have few digits in common."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with promql_oracle.running_pair(tmp_path_factory.mktemp("oracle")) as both:
        both.load(made_up_series())
        yield both


# --- series ------------------------------------------------------------------------------------


def made_up_series() -> list[TimeSeries]:
    """An hour of a small fabric. Host a's samples lie on the grid of the questions."""
    return [
        *(series for host in "abc" for series in host_series(host)),
        *odd_series(),
        series("once", {}, [START_MS + HOUR_MS // 2], lambda _: 1.0),
        series("late", {"host": "a"}, range(END_MS - 1_500_000, END_MS - 600_000, 60_000), float),
        series("late", {"host": "b"}, range(END_MS - 900_000, END_MS, 15_000), float),
    ]


def series(
    name: str, labels: dict[str, str], times: Sequence[int], value: Callable[[int], float]
) -> TimeSeries:
    """A series whose n-th value is a function of n."""
    pairs = sorted({"__name__": name, **labels}.items())
    return TimeSeries(pairs, [(value(n), at) for n, at in enumerate(times)])


def host_series(host: str) -> Iterator[TimeSeries]:
    """What one host sends every 15 s."""
    number = "abc".index(host)
    times = range(START_MS + (0, 4_321, 11_000)[number], END_MS, 15_000)

    def has(name: str, value: Callable[[int], float], **labels: str) -> TimeSeries:
        return series(name, {"host": host, **labels}, times, value)

    def wave(phase: int) -> Callable[[int], float]:
        return lambda n: round(45 + 10 * math.sin(n / 9 + phase), 3) + phase / 1024

    def bucket(index: int) -> Callable[[int], float]:
        return lambda n: float(n * (index + 1) + n % (index + 2))

    for port in (1, 2):
        yield from port_series(has, number, port)
    for gpu in (0, 1):
        yield has("temperature", wave(number * 2 + gpu), gpu=str(gpu))
    yield has("fan", lambda n: 2400.0 + 100 * number + n % 11)
    yield has("host_info", lambda _: 1.0, rack=f"r{number // 2}", model="x")
    yield has("boot_time_seconds", lambda n: 1_700_000_000.0 + 86_400 * 31 * (number + n // 60))
    for index, bound in enumerate(("0.001", "0.01", "0.1", "1", "+Inf")):
        yield has("rtt_seconds_bucket", bucket(index), le=bound)
    yield has("rtt_seconds_count", bucket(4))
    yield has("rtt_seconds_sum", lambda n: n * 0.375)


def port_series(has: Callable[..., TimeSeries], host: int, port: int) -> Iterator[TimeSeries]:
    """Counters and the state of one port. Those of the second host start again at half time."""
    pace = 1000 * (host + port)
    reset = 120 if host == 1 else 10_000
    at = {"port": str(port)}

    def errors(samples_per_error: int) -> Callable[[int], float]:
        return lambda n: float(n // samples_per_error)

    yield has("rx_bytes_total", lambda n: float(pace * (n % reset) + n % 7), **at)
    yield has("tx_bytes_total", lambda n: pace * n * 1.5 + n % 3, **at)
    yield has("errors_total", errors(10 * port), kind="crc", **at)
    yield has("errors_total", errors(7 * port), kind="drop", **at)
    yield has("link_up", lambda n: link_state(n, host + port), **at)


def link_state(n: int, shift: int) -> float:
    """Up, down, and gone for a while: a stale marker, after which one sample in forty comes."""
    phase = (n + 17 * shift) % 80
    if phase >= 60:
        return STALE if phase < 79 else 0.0
    return float(phase % 10 != 3)


def odd_series() -> Iterator[TimeSeries]:
    """Values that are not numbers as usual, and so large that their sum is infinite."""
    cases: dict[str, Callable[[int], float]] = {
        "nan": lambda _: math.nan,
        "inf": lambda n: math.inf if n % 20 < 15 else 1.0,
        "minus_inf": lambda n: -math.inf if n % 20 < 15 else 1.0,
        "zero": lambda _: 0.0,
        "minus_zero": lambda _: -0.0,
        "mixed": lambda n: (1.5, math.nan, -2.0, math.inf, -0.0, 7.0)[n % 6],
        "sometimes_nan": lambda n: math.nan if n % 9 == 4 else float(n % 5),
    }
    times = range(START_MS + 7_000, END_MS, 15_000)
    for case, value in cases.items():
        yield series("odd", {"case": case}, times, value)
    yield series("huge", {"sign": "1"}, times, lambda n: 1.5e308 - n * 1e300)
    yield series("huge", {"sign": "-1"}, times, lambda n: -1.5e308 + n * 1e300)


# --- questions ---------------------------------------------------------------------------------


def read_queries() -> list[str]:
    """Our own list."""
    lines = (line.strip() for line in QUERIES.read_text("utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def ranges(query: str) -> list[Question]:
    """A question over ten minutes, on the grid of the samples and off it."""
    start_ms, end_ms = END_MS - 1_200_000, END_MS - 600_000
    return [
        Question(query, start_ms, end_ms, 15_000, SMALL),
        Question(query, start_ms + 3_777, end_ms, 47_000, SMALL),
    ]


def moments(queries: Sequence[str]) -> list[Question]:
    """Each question at one moment, in turn: before the end, off the grid, at the end, after it."""
    offsets_ms = (-600_000, -476_543, -300_000, 0, 240_000)
    return [
        Question(query, END_MS + offset_ms, END_MS + offset_ms, 0, SMALL, is_in_order(query))
        for query, offset_ms in zip(queries, itertools.cycle(offsets_ms), strict=False)
    ]


def is_in_order(query: str) -> bool:
    """Whether the question asks for an order, and says it for all series."""
    return query.startswith(("sort", "topk(2", "bottomk(2"))


def assert_agreement(pair: Pair, questions: Sequence[Question]) -> None:
    """Fail with one text for every expression on which we differ from Prometheus."""
    found: dict[str, str] = {}
    for question in questions:
        if question.text in found:
            continue
        _, difference = pair.judge(question)
        if difference is not None:
            found[question.text] = promql_oracle.show(question, difference)
    asked = len({question.text for question in questions})
    assert not found, f"{len(found)} of {asked} queries differ:\n" + "\n".join(found.values())


def test_our_own_list(pair: Pair) -> None:
    queries = read_queries()
    assert len(queries) > 300
    assert_agreement(pair, [question for query in queries for question in ranges(query)])
    assert_agreement(pair, moments(queries))


def test_our_own_list_where_the_series_end(pair: Pair) -> None:
    """The last samples, then nothing new, then nothing."""
    queries = read_queries()
    times = (END_MS - 120_000, END_MS + 420_000)
    assert_agreement(pair, [Question(query, *times, 60_000, SMALL) for query in queries])


def test_the_list_finds_values(pair: Pair) -> None:
    """A list that mostly finds nothing would prove nothing."""
    replies = [pair.theirs.ask(ranges(query)[0]) for query in read_queries()]
    assert sum(bool(reply.series) for reply in replies) > 0.75 * len(replies)


# --- prometheus/compliance ---------------------------------------------------------------------


def compliance_tool() -> ModuleType:
    """The stand-in for the compliance tester: its series and queries."""
    if not COMPLIANCE.exists():
        pytest.skip("the queries of prometheus/compliance do not lie beside this repository")
    found = importlib.util.spec_from_file_location("promql_compare", COMPLIANCE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def demo_series(tool: Any) -> list[TimeSeries]:  # noqa: ANN401 - a module found at run time
    """The tool's series for two hours, off the grid of the questions."""
    return [
        TimeSeries(sorted(labels.items()), list(zip(values.tolist(), times.tolist(), strict=True)))
        for labels, times, values in tool.demo_series(END_MS // 1000)
    ]


def compliance_queries() -> list[str]:
    cases = json.loads(COMPLIANCE.with_name("promql-compliance-queries.json").read_text("utf-8"))
    return [case["query"] for case in cases]


def compliance_way(query: str) -> Question:
    """As the compliance tester asks: the last ten minutes, every 10 s."""
    return Question(query, END_MS - 600_000, END_MS, 10_000, SMALL)


@pytest.fixture(scope="module")
def demo(pair: Pair) -> list[TimeSeries]:
    """The tool's series, which both have."""
    series = demo_series(compliance_tool())
    pair.load(series)
    return series


@pytest.mark.usefixtures("demo")
def test_the_queries_of_prometheus_compliance(pair: Pair) -> None:
    queries = compliance_queries()
    assert_agreement(pair, [compliance_way(query) for query in queries])
    assert_agreement(pair, moments(queries))


def test_the_newest_dialect_gives_the_compliance_answers_too(
    pair: Pair, demo: list[TimeSeries], tmp_path: Path
) -> None:
    """The samples lie off the step grid, so that both generations agree on ranges of samples.

    The steps of a subquery lie on it: where its range begins at one, the newer takes one less.
    """
    queries = [query for query in compliance_queries() if ":10s]" not in query]
    assert len(queries) >= len(compliance_queries()) - 2
    with promql_oracle.running_service(tmp_path, "prometheus-3") as service:
        newest = Pair(pair.theirs, promql_oracle.our_side(service))
        newest.ours.load(demo)
        chosen = CUT.choose(queries, NEWEST_PARTS)
        assert_agreement(newest, [compliance_way(query) for query in chosen])
