"""What is read ahead for many queries gives each the answer that it gets alone."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from api.data.store.store import Store
from api.oncall.evaluate.series import STALE
from api.promql import ahead, evaluate
from api.promql.ahead import ReadAhead
from api.promql.arrange import Stored
from api.promql.engine import Engine, Question
from api.promql.errors import QueryError
from api.promql.fetch import Reader
from api.promql.values import Dialect, Grid, Vector
from collector.contract.errors import StoreError
from collector.contract.identity import metric_id
from tests.stands.memory import nothing_held
from tests.stands.service import InProcess, in_process
from tests.worlds import remote_write as rw

AT_MS = round(time.time()) * 1000
STEP_MS = 5_000
HOSTS = 12
METRICS = ("up_state", "sent_bytes_total", "errors_total", "heat_celsius")
QUERIES = (
    "up_state",
    'up_state{host="n3"}',
    'up_state{host=~"n[1-4]"} == 1',
    "rate(sent_bytes_total[1m])",
    "increase(sent_bytes_total[5m])",
    "rate(errors_total[1m]) / on (host) rate(sent_bytes_total[1m])",
    "max_over_time(heat_celsius[10m])",
    "count(up_state) - count(heat_celsius)",
    "up_state offset 1m",
    "rate(sent_bytes_total[1m] offset 2m)",
    f"up_state @ {AT_MS / 1000 - 60}",
    "max_over_time(rate(sent_bytes_total[1m])[5m:30s])",
    "timestamp(up_state)",
    "absent(nothing_total)",
    "nothing_total",
    "increase(sent_bytes_total[1h])",
)
Answer = dict[tuple[tuple[str, str], ...], float]


def made_up() -> list[rw.TimeSeries]:
    """Twenty minutes; some on the edges of ranges, and one series that has ended."""
    random = np.random.default_rng(7)
    found = []
    for metric in METRICS:
        for host in range(HOSTS):
            end = AT_MS - (400_000 if host == 5 else 0) + (host % 3) * 1_000
            times = range(end - 1_200_000, end + 60_000, STEP_MS)
            values = random.integers(0, 100, len(times)).astype(float)
            if metric.endswith("_total"):
                values = np.cumsum(values)
            labels = (("__name__", metric), ("host", f"n{host}"))
            found.append(rw.TimeSeries(labels, list(zip(values.tolist(), times, strict=True))))
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as running:
        body = rw.snappy(rw.request_v1(made_up()))
        answer = running.client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
        assert answer.status_code == 204, answer.text
        running.store.recent = nothing_held()  # how often the store is asked is what is tested
        yield running


@pytest.fixture(params=list(Dialect))
def engine(service: InProcess, request: pytest.FixtureRequest) -> Iterator[Engine]:
    found = Engine(service.store, request.param, None)
    yield found
    found.close()


def ask(engine: Engine, text: str, given: ReadAhead | None) -> Answer:
    question = Question(text=text, grid=Grid(AT_MS, 1, 1), is_range=False)
    value = engine.start(question, given).answer().value
    assert isinstance(value, Vector)
    return {
        tuple(sorted(labels.items())): number
        for labels, number, there in zip(
            value.labels, value.values[:, 0].tolist(), value.present[:, 0], strict=True
        )
        if there
    }


class Asked:
    """How often samples were asked for; ``error`` is what the store says then."""

    def __init__(self) -> None:
        self.count = 0
        self.error: StoreError | None = None


@contextmanager
def counted() -> Iterator[Asked]:
    asked, query = Asked(), Store.query

    def counting(
        self: Store,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        **more: Any,  # noqa: ANN401 - as it is
    ) -> pa.Table:
        if "FROM samples" in sql:
            asked.count += 1
            if asked.error is not None:
                raise asked.error
        return query(self, sql, parameters, **more)

    with patch.object(Store, "query", counting):
        yield asked


def test_the_answers_are_the_same(engine: Engine) -> None:
    alone = [ask(engine, text, None) for text in QUERIES]
    with counted() as asked:
        given = engine.read_ahead(QUERIES, AT_MS, ())
        together = [ask(engine, text, given) for text in QUERIES]
    assert together == alone
    assert sum(map(len, alone)) > 50
    # Two lengths of range; and what lies elsewhere in time or is too long, by itself.
    assert asked.count <= 2 + 6


def test_metrics_that_are_written_meanwhile_are_asked_for(engine: Engine) -> None:
    text = "up_state + heat_celsius"
    with counted() as asked:
        ask(engine, text, engine.read_ahead([text], AT_MS, {"heat_celsius"}))
    assert asked.count == 2


def test_what_is_large_is_asked_for_by_itself_from_then_on(engine: Engine) -> None:
    texts = ["up_state", "rate(sent_bytes_total[1m])"]
    alone = [ask(engine, text, None) for text in texts]
    with patch.object(ahead, "AHEAD_METRIC_ROWS_MAX", 1):
        assert [ask(engine, t, engine.read_ahead(texts, AT_MS, ())) for t in texts] == alone
        with counted() as asked:
            given = engine.read_ahead(texts, AT_MS, ())
            assert [ask(engine, text, given) for text in texts] == alone
        assert asked.count == len(texts)


def test_more_than_may_be_held_is_left_out_bit_by_bit(engine: Engine) -> None:
    texts = list(METRICS)
    alone = [ask(engine, text, None) for text in texts]
    with patch.object(ahead, "AHEAD_ROWS_MAX", 1_500):
        for _ in METRICS:
            given = engine.read_ahead(texts, AT_MS, ())
            assert [ask(engine, text, given) for text in texts] == alone
        with counted() as asked:
            given = engine.read_ahead(texts, AT_MS, ())
            assert [ask(engine, text, given) for text in texts] == alone
    assert asked.count <= len(texts)


def test_a_range_that_is_not_read_ahead_is_reduced_by_the_engine(service: InProcess) -> None:
    """The same metric, read ahead for a shorter range, does not make us read an hour raw."""
    engine = Engine(service.store, Dialect.PROMETHEUS_3, None)
    short, long = "max_over_time(heat_celsius[5m])", "max_over_time(heat_celsius[1h])"
    given = engine.read_ahead([short], AT_MS, ())
    with (
        patch.object(evaluate, "REDUCE_SAMPLES_FROM", 0),
        patch.object(Reader, "reduced", autospec=True, side_effect=Reader.reduced) as reduced,
    ):
        assert ask(engine, short, given)
        assert reduced.call_count == 0
        assert ask(engine, long, given) == ask(engine, long, None)
        assert reduced.call_count == 2
    engine.close()


def test_a_store_that_is_away_is_named_by_the_one_who_asks(engine: Engine) -> None:
    given = engine.read_ahead(["up_state"], AT_MS, ())
    with counted() as asked:
        asked.error = StoreError("away")
        with pytest.raises(QueryError, match="the store is not available"):
            ask(engine, "up_state", given)


def test_a_query_gets_the_samples_of_its_time_and_no_others(engine: Engine) -> None:
    """They count against its bound, though the longest range of the group has been read."""
    given = engine.read_ahead(["rate(up_state[1m])", "rate(up_state[10m])"], AT_MS, ())
    after_ms, to_ms = AT_MS - 60_000, AT_MS - 20_000
    assert given is not None
    found = given.find([metric_id("up_state")], after_ms, to_ms)
    assert found is not None
    assert len(found.times_ms) > HOSTS
    assert after_ms < found.times_ms.min() <= found.times_ms.max() <= to_ms


def id_of(service: InProcess, metric: str, host: str) -> int:
    rows = service.store.query(
        "SELECT series FROM series WHERE metric_name = {m:String} AND labels['host'] = {h:String}",
        {"m": metric, "h": host},
    )
    return int(rows["series"][0].as_py())


def test_what_is_added_is_read_before_the_store_has_it(service: InProcess, engine: Engine) -> None:
    """As what earlier rules of a group recorded: a new value, an end, and one that is there too."""
    texts = ["up_state", "count_over_time(up_state[1m])"]
    alone = {text: ask(engine, text, None) for text in texts}
    given = engine.read_ahead(texts, AT_MS, ())
    same = alone["up_state"][("__name__", "up_state"), ("host", "n0")]
    given.add(
        np.full(3, metric_id("up_state"), dtype=np.uint32),
        Stored(
            np.array([id_of(service, "up_state", f"n{n}") for n in (1, 4, 0)], dtype=np.uint64),
            np.full(3, AT_MS, dtype=np.int64),
            np.array([77.0, STALE, same]),
        ),
    )
    with counted() as asked:
        found = {text: ask(engine, text, given) for text in texts}
    assert asked.count == 1, "one question for both"
    wanted = dict(alone["up_state"])
    wanted[("__name__", "up_state"), ("host", "n1")] = 77.0
    del wanted[("__name__", "up_state"), ("host", "n4")]
    assert found["up_state"] == wanted
    more = {row: found[texts[1]][row] - count for row, count in alone[texts[1]].items()}
    assert {dict(row)["host"] for row, gained in more.items() if gained} == {"n1"}


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("a + rate(b[5m]) + c offset 1d", set()),
        ("avg_over_time(a[6h]) + b", {"a"}),
        ("avg_over_time(a[6h] offset 30m)", set()),
        ("max_over_time(a[12h:5m]) + b", {"a"}),
        ("a @ 100 + b offset -1m + c", {"a", "b"}),
    ],
)
def test_what_a_query_reads_from_the_store_itself(text: str, metrics: set[str]) -> None:
    assert ahead.read_elsewhere(text) == metrics
