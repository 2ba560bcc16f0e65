"""The HTTP interface as a whole: its document, one shape for every error, the export."""

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import pyarrow as pa
import pytest

from api.http import page_files
from api.http.boundary import speaks_prometheus
from collector.contract import wire
from collector.contract.model import Sample, Series
from tests.conftest import Golden
from tests.stands.service import InProcess, in_process
from tests.tools.compact_json import compact

FIXTURES = Path(__file__).parents[1] / "fixtures"
DOCUMENT = FIXTURES / "openapi.json"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NOW = time.time()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder = tmp_path_factory.mktemp("service")
    # Whatever `make page` has built here is no part of the interface.
    with patch.object(page_files, "FOLDER", folder / "page"), in_process(folder) as running:
        yield running


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(DOCUMENT.read_text("utf-8"))
    return parsed


def is_problem(answer: httpx.Response) -> None:
    """RFC 9457: status, title and a detail for a person; nothing else than these and the rule."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert set(problem) <= {"status", "title", "detail", "rule"}
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    assert "Traceback" not in answer.text


def is_prometheus_error(answer: httpx.Response) -> None:
    """The shape that Prometheus' clients know."""
    assert answer.headers["content-type"] == "application/json", answer.text
    body = answer.json()
    assert set(body) == {"status", "errorType", "error"}
    assert body["status"] == "error"
    assert body["error"]
    assert "Traceback" not in answer.text


def is_error(answer: httpx.Response, path: str) -> None:
    """An error in the shape that the callers of this path know."""
    if speaks_prometheus(path):
        is_prometheus_error(answer)
    else:
        is_problem(answer)


# --- the document ------------------------------------------------------------------------------


def test_the_interface_is_what_was_reviewed(service: InProcess, golden: Golden) -> None:
    golden(DOCUMENT, compact(service.client.get("/openapi.json").json()) + "\n")


def test_the_page_shows_every_path_and_needs_nobody_else(service: InProcess) -> None:
    answer = service.client.get("/docs")
    page = answer.text
    document = service.client.get("/openapi.json").json()
    for path in document["paths"]:
        assert f"<span class=path>{path}</span>" in page
    for name in document["components"]["schemas"]:
        assert f"id='schema-{name}'" in page
    for word in ("http://", "https://", "@import", "src="):
        assert word not in page
    # Only the one script and the one style that stand in it may work, and nothing may be loaded.
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    links = set(re.findall(r"href='#([^']+)'", page))
    assert links
    assert links <= set(re.findall(r"id='?([\w.-]+)", page)), "every link leads somewhere"


def test_the_bare_address_leads_to_the_interface_where_no_page_was_built(
    service: InProcess,
) -> None:
    answer = service.client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/docs")


# --- the crawl ---------------------------------------------------------------------------------


def test_other_methods_and_paths_are_problems(service: InProcess, document: dict[str, Any]) -> None:
    for path, method in product(document["paths"], METHODS):
        if method.lower() in document["paths"][path]:
            continue
        answer = service.client.request(method, path.replace("{host}", "h"))
        assert answer.status_code == 405, (method, path)
        assert answer.headers["allow"]
        is_error(answer, path)
    for path in (
        "/v1",
        "/v1/nothing",
        "/v1/hosts/a/b",
        "/api/v1/nothing",
        "/%00",
        "/%ff",
        "/..%2f",
    ):
        answer = service.client.get(path)
        assert answer.status_code == 404, path
        is_error(answer, path)


def test_missing_and_repeated_parameters_are_named(service: InProcess) -> None:
    missing = service.client.get("/v1/samples")
    is_problem(missing)
    assert missing.status_code == 422
    assert "match" in missing.json()["detail"]
    many = service.client.get("/v1/samples", params={"match": ["up"] * 17})
    assert many.status_code == 422
    is_problem(many)
    for limit in ("0", "1001", "-1", "x"):
        answer = service.client.get("/v1/hosts", params={"limit": limit})
        assert answer.status_code == 422
        assert "limit" in answer.json()["detail"]
        is_problem(answer)


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ({"match": "up", "from": "yesterday"}, 400, "RFC 3339"),
        ({"match": "up", "from": "2023-11-14T22:13:20"}, 400, "with a zone"),
        ({"match": "up", "from": "nan"}, 400, "not a time"),
        ({"match": "up", "from": "20", "to": "10"}, 400, "after to"),
        ({"match": "up offset 5m"}, 400, "offset"),
        ({"match": "sum(up)"}, 400, "write a selector"),
        ({"match": 'up{a=~"("}'}, 400, "not a selector"),
        ({"match": "u" * 2049}, 400, "SELECTOR_BYTES_MAX"),
        ({"match": "up", "format": "xml"}, 422, "format"),
    ],
)
def test_bad_questions_say_what_is_wrong(
    service: InProcess, parameters: dict[str, str], status: int, words: str
) -> None:
    answer = service.client.get("/v1/samples", params=parameters)
    assert answer.status_code == status, answer.text
    is_problem(answer)
    assert words in answer.text


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("0", "10"),
        ("", "10"),
        ("0", "253402300799"),
        ("1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
        ("5000000000", "6000000000"),
    ],
)
def test_far_ranges_are_answered(service: InProcess, begin: str, end: str) -> None:
    parameters = {"match": "no_such_metric", "from": begin, "to": end}
    answer = service.client.get("/v1/samples", params=parameters)
    assert (answer.status_code, answer.json()) == (200, {"items": []})


# --- the export --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(service: InProcess) -> list[dict[str, Any]]:
    """Three series of one metric, as they were sent and as they must come back."""
    now_ms = int(NOW * 1000)
    values = [[1.0, 2.5], [float("inf"), float("-inf")], [float("nan"), -3.0]]
    labels = [{"n": "0", "q": 'a"b\\c}\n{'}, {"n": "1"}, {"n": "2", "z": "é"}]
    batch = wire.pack_batch(
        [
            Sample(Series("exported", own), value, (now_ms + i) * 1_000_000)
            for own, numbers in zip(labels, values, strict=True)
            for i, value in enumerate(numbers)
        ],
        agent="a",
        boot="b",
        sequence=0,
        sent_ms=now_ms,
        common={"host": "h"},
    )
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    for _ in range(2):  # a resend
        answer = service.client.post(
            "/v1/ingest", content=wire.encode_batch(batch), headers=headers
        )
        assert answer.json() == {
            "boot": "b",
            "sequence": 0,
            "stored": 6,
            "refused": {},
            "any_order": True,
        }
    shown: list[list[Any]] = [[1.0, 2.5], ["+Inf", "-Inf"], ["NaN", -3.0]]
    return [
        {
            "labels": {"__name__": "exported", "host": "h", **own},
            "times_ms": [now_ms, now_ms + 1],
            "values": numbers,
        }
        for own, numbers in zip(labels, shown, strict=True)
    ]


def by_number(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(series, key=lambda one: str(one["labels"]["n"]))


def ask(service: InProcess, match: str = "exported", **parameters: str) -> httpx.Response:
    when = {"from": str(NOW - 60), "to": str(NOW + 60)}
    answer = service.client.get("/v1/samples", params={"match": match, **when, **parameters})
    assert answer.status_code == 200, answer.text
    return answer


def test_json_and_ndjson_give_what_was_sent(
    service: InProcess, exported: list[dict[str, Any]]
) -> None:
    assert by_number(ask(service).json()["items"]) == exported
    lines = ask(service, format="ndjson").text.splitlines()
    assert by_number([msgspec.json.decode(line) for line in lines]) == exported


def test_arrow_gives_what_was_sent(service: InProcess, exported: list[dict[str, Any]]) -> None:
    answer = ask(service, format="arrow")
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(answer.content).read_all()
    rows = table.to_pylist()
    assert len(rows) == 6
    assert {row["labels"] for row in rows} == {
        msgspec.json.encode(one["labels"], order="sorted").decode() for one in exported
    }
    times = {round(row["time"].timestamp() * 1000) for row in rows}
    assert times == set(exported[0]["times_ms"])


def test_the_accept_header_chooses_the_format(
    service: InProcess, exported: list[dict[str, Any]]
) -> None:
    assert exported
    parameters = {"match": "exported", "from": str(NOW - 60), "to": str(NOW + 60)}
    for accept, media in (
        ("application/x-ndjson", "application/x-ndjson"),
        (
            "text/html, application/vnd.apache.arrow.stream;q=0.9",
            "application/vnd.apache.arrow.stream",
        ),
        ("*/*", "application/json"),
        ("image/png", "application/json"),
    ):
        answer = service.client.get("/v1/samples", params=parameters, headers={"Accept": accept})
        assert answer.headers["content-type"].startswith(media)


@pytest.mark.parametrize("form", ["json", "ndjson", "arrow"])
def test_an_empty_answer_is_an_answer(service: InProcess, form: str) -> None:
    answer = ask(service, "no_such_metric", format=form)
    if form == "json":
        assert answer.json() == {"items": []}
    elif form == "ndjson":
        assert answer.content == b""
    else:
        assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0


@pytest.mark.parametrize(
    ("selector", "numbers"),
    [
        ("exported", "012"),
        ('exported{n="1"}', "1"),
        ('exported{n!="1"}', "02"),
        ('exported{n=~"0|2"}', "02"),
        ('exported{n!~"[01]"}', "2"),
        ('exported{n=~"1."}', ""),
        ('exported{z=""}', "01"),
        ('exported{z!=""}', "2"),
        ('exported{z=~".*"}', "012"),
        ('exported{z=~".+"}', "2"),
        ('{host="h",n="0"}', "0"),
        ('{__name__=~"expor.*",n="2"}', "2"),
        ('{__name__="exported",z="é"}', "2"),
        ('exported{q="a\\"b\\\\c}\\n{"}', "0"),
        ('exported{q=~"a.*c.*"}', "0"),
        ('exported{host="g"}', ""),
    ],
)
def test_selectors_select_as_in_prometheus(
    service: InProcess, exported: list[dict[str, Any]], selector: str, numbers: str
) -> None:
    assert exported
    found = by_number(ask(service, selector).json()["items"])
    assert "".join(one["labels"]["n"] for one in found) == numbers


def test_several_selectors_give_each_series_once(
    service: InProcess, exported: list[dict[str, Any]]
) -> None:
    parameters = {
        "match": ["exported", 'exported{n="1"}', '{host="h"}'],
        "from": str(NOW - 60),
        "to": str(NOW + 60),
    }
    found = service.client.get("/v1/samples", params=parameters).json()["items"]
    assert by_number(found) == exported


def test_both_ends_of_a_range_are_in_it(service: InProcess, exported: list[dict[str, Any]]) -> None:
    first, second = exported[0]["times_ms"]
    for begin, end, times in (
        (first, second, [first, second]),
        (first, first, [first]),
        (second, second, [second]),
        (second + 1, second + 1, []),
    ):
        edges = {"from": f"{begin / 1000:.3f}", "to": f"{end / 1000:.3f}"}
        found = ask(service, 'exported{n="0"}', **edges).json()["items"]
        assert [one["times_ms"] for one in found] == ([times] if times else [])
