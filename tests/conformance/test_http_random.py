"""Every operation of the interface's document, asked by strangers: answers are documented ones."""

import collections
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import jsonschema
import pytest

from api.data.inventory.token_model import Scope
from api.http.boundary import OTLP_PATH, PROBLEM_TYPE, REMOTE_WRITE_PATH, speaks_prometheus
from api.http.settings import ServiceSettings
from api.oncall.evaluate import lead, task
from collector.contract import wire
from collector.contract.model import Sample, Series
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.scenario import START_UNIX_NS
from simulator.score.run import play
from simulator.score.simulated_service import Silent
from simulator.topology.model import Fabric
from tests.oracles.http_random import ODD, Asked, Known, Maker, operations_of
from tests.stands.service import InProcess, in_process
from tests.stands.strangers import traces_logged
from tests.tools.cut import CUT
from tests.worlds import remote_write as rw
from tests.worlds.incidents import Teller, slow_link, straggler
from tests.worlds.simulated_cluster import small_job, small_scenario

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[1] / "fixtures" / "openapi.json"
REQUESTS = 12_000
"""Of a whole proof, in so many rounds, of which a cut takes two."""
ROUNDS = 30
ODD_PARTS = 40
"""Odd values of parameters are 15,000 requests; a cut takes two of so many parts."""
START_S = START_UNIX_NS // NS
SECONDS = 45
NOW_S = START_S + SECONDS
JOB = "train"
ADMIN = b"Bearer token-of-admin-only"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(DOCUMENT.read_text("utf-8"))
    return parsed


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A service with tokens and something of everything: its evaluator sleeps."""
    folder = tmp_path_factory.mktemp("random")
    scenario = small_scenario(
        Fabric.ROCE, small_job(compute_seconds=0.6), seconds=float(SECONDS), tick_seconds=5.0
    )
    play(Simulation(scenario), folder, lambda _, __: Silent())
    lines = [f"token-of-{scope}-only {scope} {scope}er" for scope in Scope]
    (folder / "tokens").write_text("\n".join(lines))
    settings = ServiceSettings(
        data=str(folder), token_file=str(folder / "tokens"), rules_pack=True, own_numbers=False
    )
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(
            folder,
            clock=lambda: float(NOW_S),
            settings=settings,
            store_url=f"chdb://{folder / 'store'}",
        ) as running,
    ):
        running.client.headers["Authorization"] = ADMIN.decode()
        teller = Teller(running.inventory, running.store)
        begin = START_UNIX_NS
        teller.say(begin + 10 * NS, straggler(begin))
        teller.say(begin + 30 * NS, slow_link(begin + 25 * NS))
        yield running


@pytest.fixture(scope="module")
def known(service: InProcess) -> Known:
    """What a stranger may know of this service, and valid bodies of what no schema describes."""
    client = service.client
    silence = client.post(
        "/v1/silences",
        json={
            "matchers": [{"name": "alertname", "value": "A"}],
            "created_by": "ada",
            "comment": "known",
            "hours": 8,
        },
    ).json()["id"]
    hold = {"state": "draining", "reason": "known", "by": "ada", "hours": 1.0}
    held = client.put("/v1/hosts/node0003/hold", json=hold).json()["id"]
    incidents = [each["id"] for each in client.get("/v1/incidents").json()["items"]]
    assert incidents
    links = client.get("/v1/links").json()["items"]
    record = client.get(f"/v1/jobs/{JOB}/collectives").json()["items"][0]
    times = [str(START_S), str(NOW_S), f"{NOW_S - 5.5}", "2027-01-15T08:00:20Z", "0", "32503680000"]
    values: dict[str, list[str]] = {
        "host": ["node0000", "node0003", "leaf-pod0-rail0"],
        "switch": ["leaf-pod0-rail0", "leaf0"],
        "agent": ["node0000"],
        "job": [JOB, "other"],
        "device": ["mlx5_0", "leaf-pod0-rail0"],
        "port": ["1", "Ethernet0", links[0]["a"]],
        "link": [links[0]["id"]],
        "incident": incidents,
        "silence": [silence],
        "token": ["0123456789ab"],
        "action": [held],
        "communicator": [record["communicator"]],
        "operation": [record["operation"]],
        "name": ["host", "__name__", "job", "alertname"],
        "metric": ["fabric_port_state"],
        "query": QUERIES,
        "match": SELECTORS,
        "match[]": SELECTORS,
        **dict.fromkeys(("from", "to", "start", "end", "time", "at", "since"), times),
        "until": ["2027-01-16T00:00:00Z", "2026-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"],
        "ends": ["2027-01-16T00:00:00Z", "0001-01-01T00:00:00-23:59"],
        "ended_at": ["2027-01-16T00:00:00Z", str(NOW_S)],
        "step": ["5", "1m", "0.001", "1y"],
        "timeout": ["1", "30s", "1ms"],
        "lookback_delta": ["5m", "1"],
        "start_ns": [str(START_UNIX_NS), str(START_UNIX_NS + 5 * NS)],
        "end_ns": [str(NOW_S * NS), str(START_UNIX_NS + 6 * NS)],
        "by": ["ada", "host", "rank"],
        "reason": ["a reason"],
        "hosts": ["node0000", "node0001"],
        "candidates": ["node0000", "node0001", "node0002"],
        "NodeNames": ["node0000", "node0001"],
        "wait": ["0", "0.01"],
    }
    return Known(values=values, bodies=bodies(), tokens=TOKENS)


QUERIES = [
    "fabric_port_state",
    "sum by (host) (rate(fabric_port_transmit_bytes_total[20s]))",
    "topk(3, {host=~'node.*'}) / on(host) group_left count by (host) (fabric_port_state)",
    "histogram_quantile(0.9, fabric_port_state)",
    "label_replace(fabric_port_state, 'a', '$1', 'host', '(.*)')",
    "max_over_time(fabric_port_state[30s:1s])",
    "absent(nothing)",
    "1 / 0",
    "fabric_port_state @ end() offset -1y",
    '"text"',
]
SELECTORS = ["fabric_port_state", '{host="node0000"}', '{__name__=~"fabric_gpu.*",host!=""}']
TOKENS = (
    ADMIN,
    *(f"Bearer token-of-{scope}-only".encode() for scope in Scope),
    *(b"", b"Bearer", b"Bearer wrong", b"Basic YTpi", b"Bearer \xff\xfe", b"Bearer " + b"x" * 5000),
)
OTLP_BODY = {
    "resourceMetrics": [
        {
            "resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "h"}}]},
            "scopeMetrics": [
                {
                    "metrics": [
                        {
                            "name": "m",
                            "sum": {
                                "aggregationTemporality": 2,
                                "isMonotonic": True,
                                "dataPoints": [
                                    {"timeUnixNano": str(NOW_S * NS), "asDouble": 1.5},
                                    {"timeUnixNano": "18446744073709551615", "asInt": "-1"},
                                ],
                            },
                        }
                    ]
                }
            ],
        }
    ]
}
CHECK = b"""# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   6899 on   node0000 device  0 [0000:04:00] NVIDIA H100 80GB HBM3
     8388608 2097152  float  sum  -1  41.1  50.0  50.0  0  40.9  1.0  1.0  0
"""


def bodies() -> dict[str, list[bytes]]:
    """Bodies that are right."""
    series = rw.TimeSeries([("__name__", "up"), ("instance", "a:1")], [(1.0, NOW_S * 1000)])
    sample = Sample(Series("fabric_port_state", {"device": "m", "port": "1"}), 4.0, NOW_S * NS)
    batch = wire.pack_batch(
        [sample], agent="a", boot="b", sequence=1, sent_ms=NOW_S * 1000, common={"host": "h"}
    )
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}
    extender = json.dumps({"Pod": pod, "NodeNames": ["node0000", "node0001", "none"]}).encode()
    return {
        "POST /v1/ingest": [wire.encode_batch(batch)],
        "POST /api/v1/write": [rw.snappy(rw.request_v1([series]))],
        "POST /otlp/v1/metrics": [json.dumps(OTLP_BODY).encode()],
        "POST /v1/hosts/{host}/check": [CHECK],
        "POST /v1/kubernetes/filter": [extender],
        "POST /v1/kubernetes/prioritize": [extender],
    }


# --- the judge ----------------------------------------------------------------------------------


class Judge:
    """Sends requests and holds each answer against the document."""

    def __init__(self, service: InProcess, document: dict[str, Any], known: Known) -> None:
        self.statuses: collections.Counter[int] = collections.Counter()
        self._client = service.client
        self._known = known
        self._components = document["components"]
        self._validators: dict[tuple[str, int], jsonschema.protocols.Validator | None] = {}

    def ask(self, asked: Asked) -> None:
        answer = self._send(asked)
        try:
            self._check(asked, answer)
        except AssertionError as error:
            shown = f"{asked}\nwas answered {answer.status_code} {answer.content[:500]!r}"
            raise AssertionError(f"{error}\n{shown}") from error

    def _send(self, asked: Asked) -> httpx.Response:
        """The answer; of a stream that does not end only its beginning."""
        middle = len(asked.content) // 2
        pieces = iter((asked.content[:middle], asked.content[middle:]))
        request = self._client.build_request(
            asked.operation.method,
            "/",
            content=pieces if asked.is_chunked else asked.content,
            headers=list(asked.headers),
            extensions={"target": asked.target},
        )
        # The client's own would be sent beside the request's.
        if not any(name == b"authorization" for name, _ in asked.headers):
            del request.headers["authorization"]
        with contextlib.closing(self._client.send(request, stream=True)) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                answer.read()
            else:
                answer._content = b""
            return answer

    def _check(self, asked: Asked, answer: httpx.Response) -> None:
        status = answer.status_code
        self.statuses[status] += 1
        assert "Traceback" not in answer.text
        if asked.is_elsewhere and status in {307, 404, 405}:
            return
        shown = asked.operation.responses.get(str(status))
        assert shown is not None, f"{status} is not documented for {asked.operation}"
        assert status != 500
        media = answer.headers.get("content-type", "").partition(";")[0]
        if status >= 400:
            assert media in shown["content"], f"{media} is not documented for {status}"
            is_error(answer, asked.operation.path)
        elif media == "application/json":
            self._check_schema(asked, answer)

    def _check_schema(self, asked: Asked, answer: httpx.Response) -> None:
        body = answer.json()
        if isinstance(body, dict) and isinstance(body.get("next"), str):
            self._known.pages.append(body["next"])
        key = str(asked.operation), answer.status_code
        if key not in self._validators:
            self._validators[key] = self._validator(asked, answer)
        elif len(answer.content) > CHECKED_BYTES_MAX:
            return
        if (validator := self._validators[key]) is not None:
            error = next(validator.iter_errors(body), None)
            assert error is None, f"{error.json_path}: {error.message[:300]}"

    def _validator(
        self, asked: Asked, answer: httpx.Response
    ) -> jsonschema.protocols.Validator | None:
        content = asked.operation.responses[str(answer.status_code)].get("content", {})
        schema = content.get("application/json", {}).get("schema")
        if schema is None:
            return None
        return jsonschema.Draft202012Validator({**schema, "components": self._components})


CHECKED_BYTES_MAX = 50_000
"""Of an operation's answers the first is held against its schema, and then those of this size: to
check a trace of megabytes takes seconds."""


def is_error(answer: httpx.Response, path: str) -> None:
    """An error in the shape that its readers know: RFC 9457's, Prometheus', or a line of text."""
    media = answer.headers["content-type"].partition(";")[0]
    if media == PROBLEM_TYPE:
        problem = answer.json()
        assert set(problem) <= {"status", "title", "detail", "rule"}
        assert problem["status"] == answer.status_code
        assert problem["title"]
        assert problem["detail"]
    elif speaks_prometheus(path):
        error = answer.json()
        assert set(error) == {"status", "errorType", "error"}
        assert error["status"] == "error"
        assert error["error"]
    else:
        assert path in {REMOTE_WRITE_PATH, OTLP_PATH}
        assert answer.content


@pytest.fixture
def judge(service: InProcess, document: dict[str, Any], known: Known) -> Iterator[Judge]:
    """One whose service is alive afterwards, and left no trace in its log."""
    with traces_logged() as traces:
        yield Judge(service, document, known)
    assert traces == []
    assert service.client.get("/readyz").text == "ready\n"
    assert service.client.get("/v1/hosts").status_code == 200


# --- the requests -------------------------------------------------------------------------------


@pytest.mark.rotating(ROUNDS)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_requests_have_documented_answers(
    judge: Judge, document: dict[str, Any], known: Known, number: int
) -> None:
    maker = Maker(document, CUT.seed + number, known)
    for _ in range(REQUESTS // ROUNDS):
        judge.ask(maker.make())
    assert judge.statuses[200] > REQUESTS // ROUNDS // 10, "hardly one came through to its route"


def test_odd_parameters_have_documented_answers(
    judge: Judge, document: dict[str, Any], known: Known
) -> None:
    maker = Maker(document, 0, known)
    cases = [
        (operation, parameter["name"], value)
        for operation in operations_of(document)
        for parameter in operation.parameters
        for value in ODD
    ]
    for operation, name, value in CUT.choose(cases, ODD_PARTS):
        judge.ask(maker.with_value(operation, name, value))


# --- what was found so --------------------------------------------------------------------------

FAR = "9999-12-31T23:59:59Z"
"""Past the last day that the store can name."""


@pytest.mark.parametrize(
    "path",
    [
        "/v1/events",
        "/v1/bursts",
        "/v1/verdicts",
        "/v1/samples?match=up",
        "/v1/fabric/state",
        *(
            f"/v1/jobs/{JOB}/{part}"
            for part in ("collectives", "steps", "operations", "timeline", "heat", "matrix")
        ),
    ],
)
@pytest.mark.parametrize("begin", ["", FAR, str(NOW_S)])
def test_a_range_to_the_end_of_time_is_answered(service: InProcess, path: str, begin: str) -> None:
    """It was a 503: the store cannot compare with such a moment."""
    answer = service.client.get(httpx.URL(path).copy_merge_params({"from": begin, "to": FAR}))
    assert answer.status_code == 200 or answer.json()["rule"], answer.text
    assert answer.status_code < 500


def test_a_direction_that_there_is_not_is_refused(service: InProcess) -> None:
    """It was answered with no bursts, as if there were none."""
    answer = service.client.get("/v1/bursts", params={"direction": "sideways"})
    assert answer.status_code == 422
    assert "'receive' or 'transmit'" in answer.json()["detail"]


def test_a_trace_to_the_end_of_time_is_answered(service: InProcess) -> None:
    answer = service.client.get(f"/v1/jobs/{JOB}/trace", params={"to": FAR})
    assert answer.status_code == 200


@pytest.mark.parametrize("origin", ["http://[::1", "http://[", "https://[evil]", "http://a]"])
def test_an_origin_that_is_no_address_is_another_page(service: InProcess, origin: str) -> None:
    """It was a 500."""
    for path in ("/v1/jobs", "/v1/ingest", "/otlp/v1/metrics"):
        answer = service.client.post(path, json={}, headers={"Origin": origin})
        assert (answer.status_code, answer.json()["rule"]) == (403, "origin")


def test_a_path_of_prometheus_is_refused_at_the_door_as_all_are(service: InProcess) -> None:
    """By a wrong name as by a missing token."""
    answer = service.client.get("/api/v1/labels", headers={"Host": "a", "Authorization": ""})
    assert answer.headers["content-type"] == PROBLEM_TYPE


@pytest.mark.parametrize("kind", ["host", "device", "link", "gpu", "switch"])
def test_health_of_every_kind_is_as_documented(
    judge: Judge, document: dict[str, Any], known: Known, kind: str
) -> None:
    """Devices were described as hosts."""
    [operation] = [each for each in operations_of(document) if str(each) == "GET /v1/health"]
    judge.ask(Maker(document, 0, known).with_value(operation, "kind", kind))
    assert judge.statuses == {200: 1}


@pytest.mark.parametrize("verb", ["approve", "reject", "undo", "applied"])
def test_an_action_in_another_state_is_as_documented(
    judge: Judge, document: dict[str, Any], known: Known, verb: str
) -> None:
    """Schemathesis found that its 409 was not."""
    [operation] = [each for each in operations_of(document) if each.path.endswith(f"/{verb}")]
    said = {"executor": "slurm", "outcome": "done"} if verb == "applied" else {"by": "ada"}
    target = operation.path.replace("{action}", known.values["action"][0]).encode()
    headers = ((b"authorization", ADMIN), (b"content-type", b"application/json"))
    for _ in range(2):
        judge.ask(Asked(operation, target, headers, json.dumps(said).encode()))
    assert set(judge.statuses) <= {200, 409}


def test_the_extender_answers_as_documented(
    judge: Judge, document: dict[str, Any], known: Known
) -> None:
    """Its document had a null that OpenAPI 3.1 does not know."""
    [operation] = [each for each in operations_of(document) if each.path.endswith("/filter")]
    body = known.bodies[str(operation)][0]
    headers = ((b"authorization", ADMIN), (b"content-type", b"application/json"))
    judge.ask(Asked(operation, operation.path.encode(), headers, body))
    assert judge.statuses == {200: 1}
