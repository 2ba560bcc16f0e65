"""Prometheus' HTTP API: paths, parameters, shapes and errors, as its clients expect them.

What the numbers are is the business of the oracle tests; here it is how they are asked for and how
they come back.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.base.limits import FORM_BYTES_MAX, FORM_FIELDS_MAX, SELECTORS_MAX
from api.data.ingest.columns import MS_PER_DAY
from api.data.ingest.commit import series_rows
from api.data.ingest.series import NewSeries
from collector.contract.catalog import load_catalog
from tests.oracles import promql_oracle
from tests.stands.service import InProcess, in_process
from tests.worlds import remote_write as rw

NOW_MS = int(time.time()) * 1000
"""A whole second: sums of such moments are exact."""
NOW = NOW_MS / 1000
STATUSES = {
    "bad_data": 400,
    "execution": 422,
    "not_found": 404,
    "unavailable": 503,
    "timeout": 503,
    "internal": 500,
}


def every_10_s(*values: float) -> list[tuple[float, int]]:
    """Samples of which the last is of now."""
    return [(v, NOW_MS - 10_000 * (len(values) - 1 - i)) for i, v in enumerate(values)]


SERIES = [
    rw.TimeSeries(
        [("__name__", "requests_total"), ("host", host), ("path", "/a/b"), ("port", port)],
        every_10_s(1.0, 2.0, 4.0),
        [rw.Exemplar(0.25, NOW_MS - 5_000, [("trace_id", f"t-{host}")])] if port == "1" else [],
    )
    for host in ("h1", "h0")
    for port in ("1", "2")
] + [
    rw.TimeSeries([("__name__", "temperature"), ("Unit", "c")], every_10_s(float("nan"), 1e-7)),
    rw.TimeSeries([("__name__", "ended"), ("host", "h0")], every_10_s(1.0, rw.STALE)),
    rw.TimeSeries([("__name__", "http.size"), ("dot.ted", "x"), ("é", 'quo"te')], every_10_s(5.0)),
]
METADATA = [("requests_total", 1, "Requests so far.", ""), ("temperature", 2, "How warm.", "c")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service"), clock=lambda: NOW) as running:
        body = rw.snappy(rw.request_v1(SERIES, METADATA))
        for _ in range(2):  # a resend
            answer = running.client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
            assert answer.status_code == 204, answer.text
        yield running


def envelope_of(answer: httpx.Response) -> dict[str, Any]:
    """The answer's envelope, which must be one of Prometheus' two."""
    assert answer.headers["content-type"] == "application/json", answer.text
    body: dict[str, Any] = answer.json()
    if answer.status_code == 200:
        assert body["status"] == "success"
        assert set(body) <= {"status", "data", "warnings", "infos"}
        assert body.get("warnings") != []
        assert body.get("infos") != []
    else:
        assert set(body) == {"status", "errorType", "error"}
        assert body["status"] == "error"
        assert body["error"]
        assert "Traceback" not in body["error"]
    return body


def data_of(answer: httpx.Response) -> Any:  # noqa: ANN401 - any JSON
    assert answer.status_code == 200, answer.text
    return envelope_of(answer)["data"]


def get(service: InProcess, path: str, **parameters: Any) -> Any:  # noqa: ANN401 - any JSON
    """The data at this path; ``match`` is `match[]`."""
    if "match" in parameters:
        parameters["match[]"] = parameters.pop("match")
    return data_of(service.client.get(f"/api/v1/{path}", params=parameters))


# --- Grafana's calls ---------------------------------------------------------------------------

RANGE = {"start": f"{NOW - 60:.3f}", "end": f"{NOW:.3f}"}
ALL = '{__name__!=""}'


@pytest.mark.parametrize(
    ("method", "path", "parameters", "kind"),
    [
        # "Save & test"
        ("POST", "query", {"query": "1+1", "time": "4"}, "scalar"),
        ("GET", "status/buildinfo", {}, dict),
        # panels
        (
            "POST",
            "query_range",
            {"query": "rate(requests_total[1m])", **RANGE, "step": "15", "timeout": "30"},
            "matrix",
        ),
        ("POST", "query", {"query": "sum by (host) (requests_total)", "time": f"{NOW}"}, "vector"),
        ("POST", "query", {"query": "requests_total[1m]", "time": f"{NOW}"}, "matrix"),
        ("POST", "query_exemplars", {"query": "rate(requests_total[1m])", **RANGE}, list),
        # builder, variables, metrics browser
        ("POST", "labels", RANGE, list),
        ("POST", "labels", {**RANGE, "match[]": ALL, "limit": "40000"}, list),
        ("GET", "label/__name__/values", {**RANGE, "limit": "40000"}, list),
        ("GET", "label/__name__/values", {**RANGE, "match[]": ALL, "limit": "0"}, list),
        ("GET", "label/host/values", {**RANGE, "match[]": "requests_total"}, list),
        ("GET", "label/U__dot_2e_ted/values", RANGE, list),
        ("POST", "series", {**RANGE, "match[]": ALL, "limit": "40000"}, list),
        ("GET", "series", {**RANGE, "match[]": 'requests_total{host=~"h.*"}'}, list),
        ("GET", "metadata", {}, dict),
        ("GET", "metadata", {"limit": "10", "metric": "temperature"}, dict),
        # the alert list
        ("GET", "rules", {}, dict),
        ("GET", "alerts", {}, dict),
    ],
)
def test_what_grafana_asks_is_answered(
    service: InProcess, method: str, path: str, parameters: dict[str, str], kind: str | type
) -> None:
    url = f"/api/v1/{path}"
    if method == "POST":
        data = data_of(service.client.post(url, data=parameters))
    else:
        data = data_of(service.client.get(url, params=parameters))
    assert data
    if isinstance(kind, str):
        assert set(data) == {"resultType", "result"}
        assert data["resultType"] == kind
        assert data["result"]
    else:
        assert isinstance(data, kind)


def test_grafana_is_not_told_that_this_is_mimir(service: InProcess) -> None:
    build = get(service, "status/buildinfo")
    assert "features" not in build
    assert build["version"].startswith("3.")
    assert build["fabricscopeVersion"]


# --- queries -----------------------------------------------------------------------------------


def test_each_kind_of_instant_answer(service: InProcess) -> None:
    at = {"time": f"{NOW:.3f}"}
    assert get(service, "query", query="1 + 1", time="4.5") == {
        "resultType": "scalar",
        "result": [4.5, "2"],
    }
    assert get(service, "query", query='"text"', **at) == {
        "resultType": "string",
        "result": [NOW, "text"],
    }
    assert get(service, "query", query="temperature", **at) == {
        "resultType": "vector",
        "result": [{"metric": {"Unit": "c", "__name__": "temperature"}, "value": [NOW, "1e-07"]}],
    }
    raw = get(service, "query", query='requests_total{host="h0",port="1"}[1m]', **at)
    assert raw["resultType"] == "matrix"
    [series] = raw["result"]
    assert series["values"] == [[NOW - 20, "1"], [NOW - 10, "2"], [NOW, "4"]]
    assert get(service, "query", query="ended", **at) == {"resultType": "vector", "result": []}


def test_a_range_answer_is_sorted_and_shows_only_points_that_are(service: InProcess) -> None:
    asked = {"start": NOW - 30, "end": NOW, "step": "10s"}
    data = get(service, "query_range", query="requests_total", **asked)
    assert [(one["metric"]["host"], one["metric"]["port"]) for one in data["result"]] == [
        *(("h0", "1"), ("h0", "2"), ("h1", "1"), ("h1", "2"))
    ]
    expected = [[NOW - 20, "1"], [NOW - 10, "2"], [NOW, "4"]]
    assert all(one["values"] == expected for one in data["result"])
    scalar = get(service, "query_range", query="1", start="4", end="9", step="2.5")
    assert scalar == {
        "resultType": "matrix",
        "result": [{"metric": {}, "values": [[4, "1"], [6.5, "1"], [9, "1"]]}],
    }


def test_body_and_address_are_merged_and_the_body_comes_first(service: InProcess) -> None:
    merged = service.client.post("/api/v1/query?time=4&query=5", data={"query": "6"})
    assert data_of(merged)["result"] == [4, "6"]
    both = service.client.post(
        "/api/v1/series", params={"match[]": "temperature"}, data={"match[]": ["ended", "nothing"]}
    )
    assert [one["__name__"] for one in data_of(both)] == ["temperature", "ended"]
    # Another type of body is no form, as in Prometheus.
    other = service.client.post(
        "/api/v1/query?query=7&time=4", content="query=8", headers={"Content-Type": "text/plain"}
    )
    assert data_of(other)["result"] == [4, "7"]


@pytest.mark.parametrize("path", ["query", "query_range", "labels", "label/host/values", "series"])
def test_a_limit_cuts_with_a_warning(service: InProcess, path: str) -> None:
    asked: dict[str, Any] = {"query": "requests_total", "match[]": "requests_total"}
    asked |= {"start": NOW, "end": NOW, "step": 1}
    for limit, warned in (("1", True), ("0", False), ("40000", False)):
        answer = service.client.get(f"/api/v1/{path}", params={**asked, "limit": limit})
        body = envelope_of(answer)
        found = body["data"]["result"] if path.startswith("query") else body["data"]
        assert (len(found) == 1) is warned
        assert body.get("warnings", []) == ["results truncated due to limit"] * warned


def test_stats_say_how_much_and_how_long(service: InProcess) -> None:
    data = get(service, "query", query="requests_total", stats="all")
    assert set(data) == {"resultType", "result", "stats"}
    timings = data["stats"]["timings"]
    assert set(timings) == {
        *("evalTotalTime", "resultSortTime", "queryPreparationTime"),
        *("innerEvalTime", "execQueueTime", "execTotalTime"),
    }
    assert timings["execTotalTime"] >= timings["evalTotalTime"] > 0
    assert data["stats"]["samples"]["totalQueryableSamples"] >= 4
    assert data["stats"]["samples"]["peakSamples"] >= 4
    assert "stats" not in get(service, "query", query="1")


def test_the_look_back_can_be_chosen(service: InProcess) -> None:
    asked = {"query": "count(requests_total)", "time": NOW + 60}
    assert get(service, "query", **asked)["result"][0]["value"][1] == "4"
    assert get(service, "query", **asked, lookback_delta="30s")["result"] == []


def test_text_is_laid_out_and_taken_apart(service: InProcess) -> None:
    assert get(service, "format_query", query="sum(up)by(x)/2") == "sum by (x) (up) / 2"
    tree = get(service, "parse_query", query="rate(up[5m])")
    assert (tree["type"], tree["func"]["name"]) == ("call", "rate")
    posted = service.client.post("/api/v1/format_query", data={"query": "1+1"})
    assert data_of(posted) == "1 + 1"


# --- errors ------------------------------------------------------------------------------------

TIMES = {"start": "1", "end": "2", "step": "1"}
NO_TIME = (
    "invalid parameter \"time\": invalid time value for 'time': "
    'cannot parse "x" to a valid timestamp'
)
NO_STEP = (
    'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
    "Try a positive integer"
)
TOO_FINE = (
    "exceeded maximum resolution of 11,000 points per timeseries. "
    "Try decreasing the query resolution (?step=XX)"
)
NO_NUMBERS = (
    'invalid parameter "query": invalid expression type "range vector" for range query, '
    "must be Scalar or instant Vector"
)


@pytest.mark.parametrize(
    ("path", "parameters", "kind", "words"),
    [
        ("query", {"query": "1+"}, "bad_data", 'invalid parameter "query": parse error: '),
        ("query", {}, "bad_data", 'invalid parameter "query": '),
        ("query", {"query": "(" * 9999}, "bad_data", "QUERY_NESTING_MAX"),
        (
            "query",
            {"query": "1", "time": "x"},
            "bad_data",
            NO_TIME,
        ),
        ("query", {"query": "1", "time": "nan"}, "bad_data", "valid timestamp"),
        (
            "query",
            {"query": "1", "timeout": "x"},
            "bad_data",
            'invalid parameter "timeout": cannot parse "x" to a valid duration',
        ),
        ("query", {"query": "1", "timeout": "1e30"}, "bad_data", "It overflows int64"),
        ("query", {"query": "1", "timeout": "999999999y"}, "bad_data", "It overflows int64"),
        ("query", {"query": "1", "lookback_delta": "5q"}, "bad_data", "valid duration"),
        ("query", {"query": "1", "limit": "x"}, "bad_data", 'invalid parameter "limit": '),
        ("query", {"query": "1", "limit": "-1"}, "bad_data", "limit must be non-negative"),
        (
            "query_range",
            {"query": "1"},
            "bad_data",
            'invalid parameter "start": cannot parse "" to a valid timestamp',
        ),
        ("query_range", {**TIMES, "query": "1", "end": "x"}, "bad_data", 'parameter "end"'),
        (
            "query_range",
            {**TIMES, "query": "1", "end": "0"},
            "bad_data",
            'invalid parameter "end": end timestamp must not be before start time',
        ),
        (
            "query_range",
            {**TIMES, "query": "1", "step": "0"},
            "bad_data",
            NO_STEP,
        ),
        ("query_range", {**TIMES, "query": "1", "step": "-5"}, "bad_data", "zero or negative"),
        ("query_range", {**TIMES, "query": "1", "step": ""}, "bad_data", "valid duration"),
        (
            "query_range",
            {**TIMES, "query": "1", "end": "11002"},
            "bad_data",
            TOO_FINE,
        ),
        (
            "query_range",
            {**TIMES, "query": "up[5m]"},
            "bad_data",
            NO_NUMBERS,
        ),
        (
            "query",
            {"query": "requests_total + on(host) requests_total"},
            "execution",
            "many-to-many matching not allowed",
        ),
        ("series", {}, "bad_data", "no match[] parameter provided"),
        (
            "series",
            {"match[]": "{}"},
            "bad_data",
            "match[] must contain at least one non-empty matcher",
        ),
        ("series", {"match[]": '{a=~".*"}'}, "bad_data", "at least one non-empty matcher"),
        ("series", {"match[]": "sum(x)"}, "bad_data", 'invalid parameter "match[]": '),
        ("series", {"match[]": "x offset 5m"}, "bad_data", 'invalid parameter "match[]": '),
        ("series", {"match[]": 'x{a=~"("}'}, "bad_data", "parse error"),
        ("labels", {"match[]": ["x"] * (SELECTORS_MAX + 1)}, "bad_data", "SELECTORS_MAX"),
        ("labels", {"start": "x"}, "bad_data", 'invalid parameter "start": '),
        ("labels", {"limit": "x"}, "bad_data", 'invalid parameter "limit": '),
        ("label/U__/values", {}, "bad_data", 'invalid label name: ""'),
        ("label/%ff/values", {}, "bad_data", "invalid label name: "),
        ("metadata", {"limit": "x"}, "bad_data", "limit must be a number"),
        ("metadata", {"limit_per_metric": "x"}, "bad_data", "limit_per_metric must be a number"),
        ("status/tsdb", {"limit": "0"}, "bad_data", "limit must be a positive number"),
        (
            "query_exemplars",
            {"query": "x", "start": "2", "end": "1"},
            "bad_data",
            "end timestamp must not be before start timestamp",
        ),
        ("query_exemplars", {"query": "x["}, "bad_data", "parse error"),
        ("format_query", {"query": "x["}, "bad_data", 'invalid parameter "query": '),
        ("parse_query", {"query": "x["}, "bad_data", 'invalid parameter "query": '),
        ("parse_query", {"query": "1" + "+1" * 500}, "execution", "TREE_DEPTH_MAX"),
        ("nothing", {}, "not_found", "/api/v1/nothing"),
        ("query/nothing", {}, "not_found", "/api/v1/query/nothing"),
    ],
)
def test_errors_are_prometheus(
    service: InProcess, path: str, parameters: dict[str, Any], kind: str, words: str
) -> None:
    answer = service.client.get(f"/api/v1/{path}", params=parameters)
    body = envelope_of(answer)
    assert (answer.status_code, body["errorType"]) == (STATUSES[kind], kind), body
    assert words in body["error"]
    assert len(body["error"]) < 1000


def test_forms_have_bounds(service: InProcess) -> None:
    long = service.client.post("/api/v1/query", data={"query": "1" * FORM_BYTES_MAX})
    assert long.status_code == 413
    assert "FORM_BYTES_MAX" in envelope_of(long)["error"]
    many = service.client.post("/api/v1/query", data={f"p{n}": "" for n in range(FORM_FIELDS_MAX)})
    assert many.status_code == 400  # no query, but read
    assert "FORM_FIELDS_MAX" not in envelope_of(many)["error"]
    more = "&".join(f"p{n}=" for n in range(FORM_FIELDS_MAX + 1))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = service.client.post("/api/v1/query", content=more, headers=headers)
    assert answer.status_code == 400
    assert "FORM_FIELDS_MAX" in envelope_of(answer)["error"]


def test_what_a_rule_refuses_is_counted(service: InProcess) -> None:
    service.client.get("/api/v1/query", params={"query": "(" * 100})
    counted = 'fabric_service_refused_total{protocol="promql",rule="QUERY_NESTING_MAX"}'
    assert counted in service.client.get("/metrics").text


def test_a_wrong_method_is_an_error_in_the_envelope(service: InProcess) -> None:
    answer = service.client.delete("/api/v1/query")
    assert answer.status_code == 405
    assert answer.headers["allow"]
    assert "Method Not Allowed" in envelope_of(answer)["error"]


# --- series and labels -------------------------------------------------------------------------


def test_names_of_labels(service: InProcess) -> None:
    everything = ["Unit", "__name__", "dot.ted", "host", "path", "port", "é"]
    assert get(service, "labels") == everything
    assert get(service, "labels", match="temperature") == ["Unit", "__name__"]
    assert get(service, "labels", match=["temperature", "ended"]) == ["Unit", "__name__", "host"]
    assert get(service, "labels", match="nothing") == []
    assert get(service, "labels", **RANGE) == everything
    assert get(service, "labels", start="0", end="1") == []


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("host", ["h0", "h1"]),
        ("port", ["1", "2"]),
        ("path", ["/a/b"]),
        ("__name__", ["ended", "http.size", "requests_total", "temperature"]),
        ("U______name____", ["ended", "http.size", "requests_total", "temperature"]),
        ("dot.ted", ["x"]),
        ("U__dot_2e_ted", ["x"]),
        ("é", ['quo"te']),
        ("U___e9_", ['quo"te']),
        ("nothing", []),
        ("'; DROP TABLE series; --", []),
        ("\t\\n\0{x:String}", []),
    ],
)
def test_values_of_a_label(service: InProcess, label: str, expected: list[str]) -> None:
    quoted = str(httpx.QueryParams({"x": label})).removeprefix("x=").replace("+", "%20")
    assert get(service, f"label/{quoted}/values") == expected


def test_values_of_a_label_of_some_series(service: InProcess) -> None:
    assert get(service, "label/host/values", match="ended") == ["h0"]
    assert get(service, "label/host/values", match=["ended", 'requests_total{host="h1"}']) == [
        *("h0", "h1")
    ]
    assert get(service, "label/__name__/values", match='{host="h0"}') == ["ended", "requests_total"]
    assert get(service, "label/host/values", start="5", end="4") == []
    assert get(service, "label/host/values", start="2149-12-31T00:00:00Z") == []


def test_series_are_whole_sorted_and_named_once(service: InProcess) -> None:
    assert get(service, "series", match=['{host="h0"}', "ended", "temperature"]) == [
        {"Unit": "c", "__name__": "temperature"},
        {"__name__": "ended", "host": "h0"},
        {"__name__": "requests_total", "host": "h0", "path": "/a/b", "port": "1"},
        {"__name__": "requests_total", "host": "h0", "path": "/a/b", "port": "2"},
    ]
    assert get(service, "series", match='{"http.size"}') == [
        {"__name__": "http.size", "dot.ted": "x", "é": 'quo"te'}
    ]
    assert (
        get(service, "series", match="ended", start=NOW - 86_400 * 20, end=NOW - 86_400 * 19) == []
    )


def test_the_ends_of_time_are_understood(service: InProcess) -> None:
    ever = {"start": "-292273086-05-16T16:47:06Z", "end": "292277025-08-18T07:12:54.999999999Z"}
    assert len(get(service, "series", match="ended", **ever)) == 1
    assert get(service, "labels", **ever) == get(service, "labels")
    assert get(service, "query_exemplars", query="requests_total", **ever)


def test_exemplars(service: InProcess) -> None:
    found = get(service, "query_exemplars", query="rate(requests_total[1m]) > 0", **RANGE)
    assert found == [
        {
            "seriesLabels": {
                "__name__": "requests_total",
                "host": host,
                "path": "/a/b",
                "port": "1",
            },
            "exemplars": [
                {"labels": {"trace_id": f"t-{host}"}, "value": "0.25", "timestamp": NOW - 5}
            ],
        }
        for host in ("h0", "h1")
    ]
    assert len(get(service, "query_exemplars", query='requests_total{host="h0"} or ended')) == 1
    assert get(service, "query_exemplars", query="requests_total", end=f"{NOW - 5.001:.3f}") == []
    assert get(service, "query_exemplars", query="1") == []


def test_metadata_is_the_catalog_s_and_the_senders(service: InProcess) -> None:
    assert get(service, "metadata", metric="temperature") == {
        "temperature": [{"type": "gauge", "help": "How warm.", "unit": "c"}]
    }
    known = load_catalog().metrics[0]
    [entry] = get(service, "metadata", metric=known.name)[known.name]
    assert entry["help"] == known.help
    everything = get(service, "metadata")
    assert {"temperature", "requests_total", known.name} <= set(everything)
    assert {entry["type"] for [entry] in everything.values()} <= {"counter", "gauge", "histogram"}
    assert len(get(service, "metadata", limit=2)) == 2
    assert get(service, "metadata", metric="nothing") == {}


# --- the server --------------------------------------------------------------------------------


def test_where_series_come_from(service: InProcess) -> None:
    tomorrow = NewSeries(NOW_MS // MS_PER_DAY + 1, 1, (("__name__", "ahead"),))
    service.store.insert_arrow("series", series_rows([tomorrow]))
    status = get(service, "status/tsdb", limit=2)
    assert status["headStats"] == {
        "numSeries": 7,
        "numLabelPairs": 12,
        "chunkCount": 0,
        "minTime": NOW_MS - 20_000,
        "maxTime": NOW_MS,
    }
    assert status["seriesCountByMetricName"] == [
        {"name": "requests_total", "value": 4},
        {"name": "ended", "value": 1},
    ]
    assert status["labelValueCountByLabelName"] == [
        {"name": "__name__", "value": 4},
        {"name": "host", "value": 2},
    ]
    assert status["memoryInBytesByLabelName"][0] == {"name": "__name__", "value": 81}
    assert status["seriesCountByLabelValuePair"] == [
        {"name": "__name__=requests_total", "value": 4},
        {"name": "path=/a/b", "value": 4},
    ]


def test_what_there_is_not_is_empty_in_the_right_shape(service: InProcess) -> None:
    assert get(service, "rules") == {"groups": []}
    assert get(service, "alerts") == {"alerts": []}
    assert get(service, "alertmanagers") == {"activeAlertmanagers": [], "droppedAlertmanagers": []}
    assert get(service, "targets/metadata") == []
    targets = get(service, "targets", state="active")
    assert (targets["activeTargets"], targets["droppedTargets"]) == ([], [])
    assert "yaml" in get(service, "status/config")
    assert get(service, "status/flags")["query.lookback-delta"] == "300s"
    assert get(service, "status/runtimeinfo")["storageRetention"] == "30d"


def test_federation_gives_the_newest_samples(service: InProcess) -> None:
    answer = service.client.get(
        "/federate", params={"match[]": ["temperature", "ended", 'requests_total{port="1"}']}
    )
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text == (
        "# TYPE requests_total untyped\n"
        f'requests_total{{host="h0",path="/a/b",port="1",instance=""}} 4 {NOW_MS}\n'
        f'requests_total{{host="h1",path="/a/b",port="1",instance=""}} 4 {NOW_MS}\n'
        "# TYPE temperature untyped\n"
        f'temperature{{Unit="c",instance=""}} 1e-07 {NOW_MS}\n'
    )
    quoted = service.client.get(
        "/federate",
        params={"match[]": '{"http.size"}'},
        headers={"Accept": "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5"},
    )
    assert '{"http.size","dot.ted"="x","é"="quo\\"te",instance=""}' in quoted.text
    assert service.client.get("/federate").text == ""
    assert service.client.get("/federate", params={"match[]": "nothing"}).text == ""
    wrong = service.client.get("/federate", params={"match[]": "sum(x)"})
    assert wrong.status_code == 400


def test_numbers_in_json_are_not_rounded(service: InProcess) -> None:
    text = service.client.get("/api/v1/query", params={"query": "0.1 + 0.2", "time": "4"}).text
    assert text == json.dumps(
        {
            "status": "success",
            "data": {"resultType": "scalar", "result": [4, "0.30000000000000004"]},
        },
        separators=(",", ":"),
    )


# --- beside a Prometheus -----------------------------------------------------------------------

SAME: list[tuple[str, dict[str, Any]]] = [
    ("query", {"query": "1 + 1", "time": "4"}),
    ("query", {"query": '"text"', "time": "4.5"}),
    ("query", {"query": "temperature", "time": NOW}),
    ("query", {"query": "ended", "time": NOW}),
    ("query", {"query": "sort_desc(sum by (__name__) ({host!=''}) * 1e21)", "time": NOW}),
    ("query", {"query": 'requests_total{host="h0"}[25s]', "time": NOW}),
    (
        "query",
        {"query": "sum(requests_total) / 3e7", "time": "2030-01-01T00:00:00Z"},
    ),
    ("query_range", {"query": "requests_total", "start": NOW - 25, "end": NOW, "step": "5s"}),
    ("query_range", {"query": "temperature * -0", "start": NOW - 20, "end": NOW, "step": "5"}),
    ("query_range", {"query": "time() / 7", "start": "1.001", "end": "9", "step": "0.5"}),
    ("query_range", {"query": "vector(1)", "start": NOW, "end": NOW, "step": "1y"}),
    ("query_range", {"query": "nothing", "start": NOW, "end": NOW, "step": "1"}),
    ("labels", {"match[]": "requests_total"}),
    ("labels", {"match[]": ["temperature", "ended"]}),
    ("labels", {"match[]": "nothing"}),
    ("label/host/values", {}),
    ("label/host/values", {"match[]": "ended"}),
    ("label/nothing/values", {}),
    ("label/__name__/values", {"match[]": '{host="h0"}'}),
    ("label/port/values", {"match[]": ['{host="h0",port!="1"}', "ended"]}),
    ("series", {"match[]": ['{host="h0"}', "temperature"]}),
    ("series", {"match[]": '{host!~"h0|"}'}),
    ("series", {"match[]": "ended", **RANGE}),
    ("format_query", {"query": "sum(up)by(x)/2"}),
    ("rules", {}),
    ("alerts", {}),
    ("alertmanagers", {}),
    ("targets/metadata", {}),
    # errors, word for word
    ("query", {"query": "1", "time": "x"}),
    ("query", {"query": "1", "timeout": "x"}),
    ("query", {"query": "1", "timeout": "1e30"}),
    ("query_range", {"query": "1"}),
    ("query_range", {**TIMES, "query": "1", "end": "x"}),
    ("query_range", {**TIMES, "query": "1", "end": "0"}),
    ("query_range", {**TIMES, "query": "1", "step": "x"}),
    ("query_range", {**TIMES, "query": "1", "step": "0"}),
    ("query_range", {**TIMES, "query": "1", "step": "-1"}),
    ("query_range", {**TIMES, "query": "1", "end": "11002"}),
    ("query_range", {**TIMES, "query": "1", "end": "11001"}),
    ("series", {}),
    ("series", {"match[]": "{}"}),
    ("series", {"match[]": '{a=~".*"}'}),
    ("labels", {"start": "x"}),
    ("metadata", {"limit": "x"}),
    ("query_exemplars", {"query": "x", "start": "2", "end": "1"}),
]


def comparable(answer: httpx.Response) -> tuple[int, Any]:
    """Status and body. Prometheus 3 begins one of its errors with a small letter."""
    return answer.status_code, json.loads(answer.text.replace("Invalid time", "invalid time"))


@pytest.mark.peer("prometheus")
def test_the_same_questions_have_the_same_answers(service: InProcess, tmp_path: Path) -> None:
    known = [one for one in SERIES if "http.size" not in dict(one.labels).values()]
    with promql_oracle.running_prometheus(tmp_path) as prometheus:
        body = rw.snappy(rw.request_v1(known, METADATA))
        sent = prometheus.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
        assert sent.status_code == 204, sent.text
        for path, parameters in SAME:
            theirs = prometheus.get(f"/api/v1/{path}", params=parameters)
            ours = service.client.get(f"/api/v1/{path}", params=parameters)
            assert comparable(ours) == comparable(theirs), (path, parameters)
        # This question has no time: Prometheus looks back from its own present, not from NOW, which
        # may be long ago in a long run. So it gets the same once more, of its present.
        shift_ms = int(time.time()) * 1000 - NOW_MS
        body = rw.snappy(rw.request_v1([shifted(one, shift_ms) for one in known]))
        sent = prometheus.post("/api/v1/write", content=body, headers=rw.V1_HEADERS)
        assert sent.status_code == 204, sent.text
        match = {"match[]": ["requests_total", "temperature", "ended"]}
        theirs = prometheus.get("/federate", params=match)
        ours = service.client.get("/federate", params=match)
        assert ours.headers["content-type"] == theirs.headers["content-type"]
        assert ours.text == theirs.text.replace(str(NOW_MS + shift_ms), str(NOW_MS))


def shifted(series: rw.TimeSeries, shift_ms: int) -> rw.TimeSeries:
    """The samples of a series at a later time."""
    return rw.TimeSeries(series.labels, [(v, time_ms + shift_ms) for v, time_ms in series.samples])
