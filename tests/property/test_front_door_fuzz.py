"""The front door, fuzzed through to the verdict: whatever is sent, all that reads it goes on.

Anything goes in by HTTP into one service; then each kind of background work has a round, and the
page asks its questions. No answer is a 5xx, no work fails, and an honest agent's trouble is found.
"""

import itertools
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from collector.contract import wire
from collector.contract.model import Event, Sample, Series
from tests.stands.round_by_round import RoundByRound, round_by_round
from tests.tools.cut import CUT
from tests.worlds.hostile import NATIVE_HEADERS, NS, Point, Sending, send, sendings

pytestmark = pytest.mark.slow

PAGE = (
    *("/v1/hosts", "/v1/switches", "/v1/ports", "/v1/health", "/v1/holds", "/v1/actions"),
    *("/v1/topology", "/v1/topology?format=graphml", "/v1/links", "/v1/topology/mistakes"),
    *("/v1/fabric/state", "/v1/jobs", "/v1/verdicts", "/v1/incidents", "/v1/events", "/v1/bursts"),
    *("/v1/audit", "/v1/silences", "/v1/notices", "/v1/refused", "/v1/causes", "/v1/rules/files"),
    *("/v1/kubernetes/labels", "/api/v1/rules", "/api/v1/alerts", "/api/v1/status/tsdb"),
    *("/api/v1/labels", "/api/v1/label/host/values", "/api/v1/metadata"),
    "/api/v1/query?query=fabric_port_state",
    '/api/v1/series?match[]={__name__=~".%2B"}',
)
"""What views of the built-in page ask when they are opened."""
OF_A_JOB = (
    *("ranks", "collectives", "steps", "timeline", "operations", "heat", "matrix", "verdict"),
    "trace",
)

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundByRound]:
    with round_by_round(tmp_path_factory.mktemp("fuzz"), rules=True) as one:
        one.evaluate_rules()
        yield one


def honest(service: RoundByRound, host: str) -> None:
    """An agent on a host whose GPU falls off the bus."""
    now_ns = time.time_ns()
    gpu = {"gpu": "0"}
    samples = [
        Sample(Series(metric, gpu), value, now_ns - age * NS)
        for metric, value in (("fabric_gpu_temperature_celsius", 50.0),)
        for age in (1, 11, 21, 31)
    ]
    port = {"device": "mlx5_0", "port": "1"}
    samples += [Sample(Series("fabric_port_state", port), 4.0, now_ns - NS)]
    xid = Event(
        kind="gpu_xid", time_ns=now_ns - 10 * NS, labels=gpu, attributes={"xid": "79"}, message="x"
    )
    batch = wire.pack_batch(
        samples,
        [xid],
        agent=host,
        boot="b",
        sequence=1,
        sent_ms=now_ns // 1_000_000,
        common={"host": host},
    )
    answer = service.client.post(
        "/v1/ingest", content=wire.encode_batch(batch), headers=NATIVE_HEADERS
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["refused"] == {}


def ask(service: RoundByRound, path: str) -> None:
    answer = service.client.get(path)
    assert answer.status_code < 500, f"{path}: {answer.status_code} {answer.text[:500]}"


def ask_the_page(service: RoundByRound) -> None:
    for path in PAGE:
        ask(service, path)
    for job in service.client.get("/v1/jobs").json()["items"][:2]:
        name = quote(job["id"], safe="")
        ask(service, f"/v1/explain?job={name}")
        for view in OF_A_JOB:
            ask(service, f"/v1/jobs/{name}/{view}")
    for host in service.client.get("/v1/hosts").json()["items"][-2:]:
        name = quote(host["host"], safe="")
        # On a busy machine the last look may be a minute old, which is answered by 503, as it says.
        service.judge_health()
        for path in ("", "/health"):
            ask(service, f"/v1/hosts/{name}{path}")
        ask(service, f"/v1/explain?host={name}")


@pytest.mark.rotating(3, turn=0)
@given(st.lists(sendings, min_size=10, max_size=24))
@example(
    [
        Sending(
            "native",
            [Point("fabric_port_state", {"device": "d", "port": "1"})],
            {"host": "gpu\u00a07"},
        )
    ]
)
@example(
    [
        Sending(
            "write 1",
            [Point("node_infiniband_state_id", {"device": "mlx5_0", "instance": "gpu7:9100"})],
        )
    ]
)
@example(
    [Sending("native", events=[("gpu_xid", {"host": "n", "gpu": "0"}, {"xid": "9" * 5000}, NS)])]
)
@example(
    [Sending("native", events=[("gpu_xid", {"host": "n", "gpu": "9" * 5000}, {"xid": "79"}, NS)])]
)
@settings(
    max_examples=60 if CUT.is_all else 4,  # in all a thousand batches
    # What was sent before is still in the store: a smaller request alone may break nothing.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
def test_whatever_is_sent_all_that_reads_it_goes_on(
    service: RoundByRound, strangers: list[Sending]
) -> None:
    host = f"honest-{next(numbers)}"
    for sending in strangers:
        answer = send(service.client, sending)
        assert answer is None or answer.status_code < 500, answer.text
    honest(service, host)
    service.watch()
    outcome = service.evaluate()
    assert service.troubles() == {}
    assert outcome is not None
    assert host in {finding.culprit.host for finding in outcome.findings}
    service.evaluate_rules()
    service.judge_health()
    service.roll()
    ask_the_page(service)
    assert service.troubles() == {}
