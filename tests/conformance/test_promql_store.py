"""Questions over any store: chDB in this process, ClickHouse by URL. What is written is found."""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from api.data.store import known as module
from api.data.store.store import Store, StoreUrl
from api.promql import find
from api.promql.engine import Engine, Question
from api.promql.values import Dialect, Grid, Vector
from collector.contract.identity import canonical_labels, metric_id, series_id
from tests.doubles import clickhouse_http

NOW_MS = round(time.time()) * 1000


class Asked:
    """An engine over a store that the test writes to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.engine = Engine(store, Dialect.PROMETHEUS_3, catalog=None)

    def write(self, name: str, hosts: list[str], value: float = 1.0, at_ms: int = NOW_MS) -> None:
        """One sample for each host's series of a metric."""
        labels = [canonical_labels({"__name__": name, "host": host, "job": "x"}) for host in hosts]
        ids = pa.array([series_id(one) for one in labels], pa.uint64())
        maps = pa.map_(pa.string(), pa.string())
        names = {
            "day": pa.array([dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).date()] * len(hosts)),
            "metric_name": pa.array([name] * len(hosts)),
            "series": ids,
            "labels": pa.array([[p for p in one if p[0] != "__name__"] for one in labels], maps),
        }
        samples = {
            "metric": pa.array([metric_id(name)] * len(hosts), pa.uint32()),
            "series": ids,
            "time": pa.array([at_ms] * len(hosts), pa.timestamp("ms", "UTC")),
            "whole": pa.array([0] * len(hosts), pa.int64()),
            "fraction": pa.array([value] * len(hosts)),
        }
        self.store.insert_arrow("series", pa.table(names))
        self.store.insert_arrow("samples", pa.table(samples))

    def ask(self, text: str, at_ms: int = NOW_MS) -> dict[str, float]:
        """The answer at a moment, by host."""
        question = Question(text=text, grid=Grid(at_ms, 1, 1), is_range=False)
        value = self.engine.start(question).answer().value
        assert isinstance(value, Vector)
        points = zip(value.labels, value.values[:, 0], value.present[:, 0], strict=True)
        return {labels.get("host", ""): float(v) for labels, v, present in points if present}


@pytest.fixture(scope="module", params=["chdb", "clickhouse"])
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("promql")
    with ExitStack() as stack:
        url = f"chdb://{folder / 'data'}"
        if request.param == "clickhouse":
            url = stack.enter_context(clickhouse_http.server(folder / "data"))
        store = Store(StoreUrl.parse(url))
        stack.callback(store.close)
        store.migrate()
        yield Asked(store)


def test_a_new_series_is_found_by_a_question_that_was_asked_before(asked: Asked) -> None:
    asked.write("grows", ["a"])
    for text in ("grows", 'grows{host=~".+"}', "sum by (host) (last_over_time(grows[1m]))"):
        assert asked.ask(text) == {"a": 1.0}
    asked.write("grows", ["b"], 2.0)
    for text in ("grows", 'grows{host=~".+"}', "sum by (host) (last_over_time(grows[1m]))"):
        assert asked.ask(text) == {"a": 1.0, "b": 2.0}
    asked.write("grows", ["b"], 3.0, NOW_MS + 1000)
    assert asked.ask("grows", NOW_MS + 1000) == {"a": 1.0, "b": 3.0}
    assert asked.ask("grows") == {"a": 1.0, "b": 2.0}


def test_series_of_another_metric_make_no_question_look_again(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store with one writer; in a ClickHouse that others write to, every query looks."""
    looked: list[str] = []
    query = asked.store.query

    def noted(sql: str, *arguments: Any, **settings: Any) -> pa.Table:  # noqa: ANN401 - passed on
        looked.extend([sql] if "FROM series" in sql else [])
        return query(sql, *arguments, **settings)

    monkeypatch.setattr(asked.store, "query", noted)
    asked.write("mine", ["a"])
    named, any_of = 'mine{job="x"}', '{__name__=~"min.|others"}'
    assert asked.ask(named) == asked.ask(any_of) == {"a": 1.0}
    looked.clear()
    asked.write("others", ["b"])
    assert asked.ask(named) == {"a": 1.0}
    assert bool(looked) == (asked.store.url.scheme != "chdb")
    assert asked.ask(any_of) == {"a": 1.0, "b": 1.0}
    monkeypatch.setattr(module, "METRICS_NOTED_MAX", 0)
    asked.write("others", ["c"])
    looked.clear()
    assert asked.ask(named) == {"a": 1.0}
    assert looked, "nothing is noted any more, so it might be one of these"


def test_many_series_and_few_of_them(asked: Asked) -> None:
    """More than are named one by one, and enough to be read in halves."""
    hosts = [f"h{number:05d}" for number in range(3 * find.IDS_INLINE_MAX)]
    asked.write("many", hosts, 2.0)
    asked.write("many", hosts, 4.0, NOW_MS - 10_000)
    assert len(asked.ask("many")) == len(hosts)
    assert asked.ask("sum(many)") == {"": 2.0 * len(hosts)}
    assert asked.ask("sum(sum_over_time(many[1m]))") == {"": 6.0 * len(hosts)}
    assert asked.ask("sum(resets(many[1m]))") == {"": 1.0 * len(hosts)}
    assert asked.ask('count(rate(many{host=~"h0.*",job="x"}[1m]))') == {"": 3000.0}
    assert asked.ask('many{host="h00007"}') == {"h00007": 2.0}
    assert asked.ask('many{host!~"h0.*"}') == {}
    both = asked.ask('{__name__=~"many|grows",host=~"h00001|a"}')
    assert both == {"h00001": 2.0, "a": 1.0}


def test_what_is_remembered_is_bounded(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "FOUND_MAX", 3)
    monkeypatch.setattr(find, "FOUND_ROWS_MAX", 5)
    monkeypatch.setattr(find, "LABELS_CACHED_MAX", 4)
    asked.write("bounded", list("abcdefgh"))
    engine = Engine(asked.store, Dialect.PROMETHEUS_3, catalog=None)
    for host in "abcdefgh" * 2:
        question = Question(
            text=f'bounded{{host="{host}"}}', grid=Grid(NOW_MS, 1, 1), is_range=False
        )
        value = engine.start(question).answer().value
        assert isinstance(value, Vector)
        assert [labels["host"] for labels in value.labels] == [host]
    memory = engine._memory
    assert len(memory._found) <= 3
    assert len(memory._labels) <= 4
