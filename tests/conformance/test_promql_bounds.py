"""Questions that would hurt: each is refused by name, in bounded time, and the others go on."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.base.limits import QUERIES_MAX, QUERY_SECONDS_DEFAULT
from api.data.store import recent
from api.promql import engine
from api.promql.aliases import Strand
from api.promql.errors import QueryError
from api.promql.fetch import Reader
from api.promql.find import Among, Found, SeriesMemory
from tests.stands.memory import nothing_held
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

SERIES = 200
ENDLESS = "SELECT sum(sipHash64(number)) AS sum FROM numbers(1000000000000)"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A service with a few series."""
    with in_process(tmp_path_factory.mktemp("bounds")) as running:
        now_ms = round(time.time() * 1000)
        series = [
            TimeSeries(
                (("__name__", "some_total"), ("number", f"{'x' * 30}{number}")),
                [(float(k), now_ms - 60_000 + k * 1000) for k in range(60)],
            )
            for number in range(SERIES)
        ]
        write(running, series)
        yield running


def write(service: InProcess, series: list[TimeSeries]) -> None:
    """Send series by remote write."""
    body = snappy(request_v1(series))
    answer = service.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
    assert answer.status_code == 204, answer.text


def ask(service: InProcess, query: str, **parameters: Any) -> httpx.Response:  # noqa: ANN401
    """An instant query, as a form: a long text does not fit into a URL."""
    return service.client.post("/api/v1/query", data={"query": query, **parameters})


HOSTILE = {
    "brackets": ("(" * 10_000 + "1" + ")" * 10_000, "QUERY_NESTING_MAX"),
    "open brackets": ("(" * 60_000, "QUERY_NESTING_MAX"),
    "functions": ("abs(" * 1_000 + "x" + ")" * 1_000, "QUERY_NESTING_MAX"),
    "braces": ("{" * 1_000, "QUERY_NESTING_MAX"),
    "minuses": ("-" * 1_900 + "x", "QUERY_NESTING_MAX"),
    "minus minus": ("-" * 12_000 + "1", "QUERY_OPERATORS_MAX"),
    "powers": ("2^" * 1_900 + "2", "QUERY_NESTING_MAX"),
    "sums": ("1+" * 12_000 + "1", "QUERY_OPERATORS_MAX"),
    "ors": ("x or " * 12_000 + "x", "QUERY_OPERATORS_MAX"),
    "text": ("x" * 70_000, "QUERY_BYTES_MAX"),
    "comment": ("#" + "(" * 70_000, "QUERY_BYTES_MAX"),
    "or between matchers": ('x{a="b" or c="d"}', "not PromQL"),
    "the past": ("x @ -1", "before 1970"),
    "nothing": ("", "parse error"),
    "garbage": ("\x00\xff((", "parse error"),
    "pattern": ('x{a=~"(("}', "parse error"),
    "pattern of another kind": ('x{a=~"a(?=b)"}', "parse error"),
    "all series": ('{__name__=~".*"}', "non-empty matcher"),
}


@pytest.mark.parametrize(("query", "why"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_refused_by_name(service: InProcess, query: str, why: str) -> None:
    answer = ask(service, query)
    assert answer.status_code == 400, answer.text[:500]
    assert answer.json()["errorType"] == "bad_data"
    assert why in answer.json()["error"]
    assert ask(service, "1+1").json()["data"]["result"][1] == "2"


@pytest.mark.parametrize(
    "query",
    [
        "1+" * 1_990 + "1",
        "some_total or " * 300 + "some_total",
        "(" * 64 + "1" + ")" * 64,
        "-(" * 31 + "1" + ")" * 31,
        f"some_total{{number=~'(x+x+)+y'}} + {'1 + ' * 50} 1",
        'count(label_replace(some_total, "d", "$1", "number", "(x+x+)+y"))',
        'some_total{number=~"(a*)*|(b|b)*|(x|xx)*"}',
    ],
)
def test_what_is_within_bounds_is_answered(service: InProcess, query: str) -> None:
    answer = ask(service, query)
    assert answer.status_code == 200, answer.text[:500]


TOO_MUCH = {
    "points": (
        {"query": "1", "start": "0", "end": "1000000000", "step": "1"},
        400,
        "exceeded maximum resolution of 11,000 points per timeseries",
    ),
    "subquery": (
        {"query": "max_over_time(time()[1y:1ms])", "start": "0", "end": "1", "step": "1"},
        400,
        "subquery is only allowed on vector",
    ),
    "steps of a subquery": (
        {"query": "max_over_time(vector(1)[1y:1s])", "start": "1e9", "end": "1e9", "step": "1"},
        422,
        "QUERY_SUBQUERY_STEPS_MAX",
    ),
    "a range vector": (
        {"query": "x[5m]", "start": "0", "end": "1", "step": "1"},
        400,
        'invalid expression type "range vector" for range query',
    ),
}


@pytest.mark.parametrize(("form", "status", "why"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_too_much_at_once_is_refused_by_name(
    service: InProcess, form: dict[str, str], status: int, why: str
) -> None:
    answer = service.client.post("/api/v1/query_range", data=form)
    assert answer.status_code == status, answer.text[:500]
    assert why in answer.json()["error"]


@pytest.mark.parametrize(
    ("module", "bound", "value", "query"),
    [
        ("find", "SERIES_MAX", SERIES - 1, '{__name__=~".+"}'),
        ("fetch", "QUERY_SAMPLES_MAX", SERIES * 60 - 1, "sum(rate(some_total[2m]))"),
        ("fetch", "QUERY_SAMPLES_MAX", SERIES * 60 - 1, "sum(max_over_time(some_total[2m]))"),
        ("fetch", "QUERY_POINTS_MAX", SERIES * 60 - 1, "some_total[2m]"),
        ("evaluate", "QUERY_POINTS_MAX", SERIES - 1, "some_total"),
        ("fetch", "QUERY_MEMORY_BYTES_MAX", 1 << 12, "some_total"),
    ],
)
def test_bounds_of_the_data_have_names(
    service: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    bound: str,
    value: int,
    query: str,
) -> None:
    monkeypatch.setattr(service.store, "recent", nothing_held())
    monkeypatch.setattr(f"api.promql.{module}.{bound}", value)
    answer = ask(service, query)
    assert answer.status_code == 422, answer.text[:500]
    assert answer.json()["errorType"] == "execution"
    named = "QUERY_SAMPLES_MAX" if "[2m]" in query else bound
    assert named in answer.json()["error"]


@pytest.mark.parametrize("bound", ["QUERY_SAMPLES_MAX", "QUERY_POINTS_MAX"])
def test_they_hold_for_what_is_read_from_memory(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(recent, "READ_APART_MS", 0)
    for _ in range(2):
        assert ask(service, "some_total[2m]").status_code == 200
    before = service.store.recent.reads_here
    monkeypatch.setattr(f"api.promql.fetch.{bound}", SERIES * 60 - 1)
    answer = ask(service, "some_total[2m]")
    assert (answer.status_code, service.store.recent.reads_here) == (422, before + 1)
    assert "QUERY_SAMPLES_MAX" in answer.json()["error"]


def test_a_timeout_is_kept(service: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    make_endless(monkeypatch)
    started = time.monotonic()
    answer = ask(service, "some_total", timeout="0.3")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "error",
        "errorType": "timeout",
        "error": "query timed out in query execution",
    }
    assert time.monotonic() - started < 20
    assert ask(service, "1", timeout="0s").status_code in {200, 503}


def make_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question about these series now needs hours inside the store; those of rules do not."""
    find = Reader.find

    def never(
        reader: Reader, strands: list[Strand], from_ms: int, to_ms: int, among: Among = ()
    ) -> Found:
        if any(strand.metric == "some_total" for strand in strands):
            reader.ask(ENDLESS, {})
        return find(reader, strands, from_ms, to_ms, among)

    monkeypatch.setattr(Reader, "find", never)


def running_inside(service: InProcess) -> int:
    """How many endless questions the store works on now."""
    rows = service.rows(
        "SELECT count() AS n FROM system.processes "
        "WHERE query LIKE '%sipHash64%' AND query NOT LIKE '%processes%'"
    )
    return int(rows[0]["n"])


def test_a_question_ends_inside_the_store_when_its_asker_leaves(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_endless(monkeypatch)
    url = service.client.base_url
    words = f"GET /api/v1/query?query=some_total HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n\r\n"
    with socket.create_connection((url.host, url.port)) as asker:
        asker.sendall(words.encode())
        eventually(lambda: running_inside(service) == 1, "the question runs")
    left = QUERY_SECONDS_DEFAULT / 2
    eventually(lambda: running_inside(service) == 0, "the question has ended", seconds=left)


def test_more_questions_than_places_wait_and_then_are_refused(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.promql.gate.QUERY_WAIT_SECONDS", 0.5)
    go_on = threading.Event()
    inside: list[engine.Running] = []
    answer_of = engine.Running.answer

    def slow(running: engine.Running) -> engine.Answer:
        inside.append(running)
        assert go_on.wait(60)
        return answer_of(running)

    monkeypatch.setattr(engine.Running, "answer", slow)
    answers: list[int] = []

    def one() -> None:
        with httpx.Client(base_url=service.client.base_url, timeout=60) as client:
            answers.append(client.post("/api/v1/query", data={"query": "1"}).status_code)

    threads = [threading.Thread(target=one) for _ in range(QUERIES_MAX)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(inside) == QUERIES_MAX, "all places are taken")
    late = ask(service, "1")
    assert late.status_code == 503
    assert late.json()["errorType"] == "unavailable"
    assert "QUERY_WAIT_SECONDS" in late.json()["error"]
    assert late.headers["Retry-After"]
    # Ingest has connections and threads of its own.
    write(service, [TimeSeries((("__name__", "other"),), [(1.0, round(time.time() * 1000))])])
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [200] * QUERIES_MAX


def test_a_stopped_reader_says_so(service: InProcess) -> None:
    reader = Reader(service.store, SeriesMemory(), time.monotonic() + 60)
    stopper = threading.Timer(0.5, reader.stop)
    stopper.start()
    started = time.monotonic()
    with pytest.raises(QueryError, match="query was canceled"):
        reader.ask(ENDLESS, {})
    assert time.monotonic() - started < 20
    stopper.join()
    with pytest.raises(QueryError, match="query was canceled"):
        reader.ask("SELECT 1", {})
