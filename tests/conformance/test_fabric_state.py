"""The state of every link over HTTP: from what both of its ends count to matrices on a slider."""

import base64
import datetime as dt
import socket
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pytest

from api.data.inventory.sightings import Observation, sight
from api.http import turns
from api.http.routes import fabric as fabric_route
from collector.contract import wire
from collector.contract.catalog import load_catalog
from collector.contract.identity import LinkId, PortId
from collector.contract.model import Sample, Series
from collector.contract.units import NS
from simulator.topology.build import ClusterSpec, build
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds import link_ends
from tests.worlds import remote_write as rw

END_S = int(time.time()) - 60
START_S = END_S - 600
PERIOD_S = 10
RATE = 400_000_000_000
CLUSTER = build(
    ClusterSpec(topology="rail", hosts=4, hosts_per_leaf=4, nics_per_host=2, gpus_per_host=2)
)
LINKS = sorted(link_ends.cables(CLUSTER))
BUSY, BROKEN, FOREIGN, QUIET = LINKS[:4]
TROUBLE_S = (START_S + 300, START_S + 330)
"""When BROKEN counts errors and is down."""


def labels(port: PortId) -> dict[str, str]:
    return {"host": port.host, "device": port.device, "port": port.port}


def samples_of(link: LinkId, time_s: int) -> Iterator[tuple[str, PortId, float]]:
    """What is read of both ends of a link at one moment: metric, port, value."""
    passed = time_s - START_S + 60
    for end in (link.a, link.b):
        is_down = link == BROKEN and TROUBLE_S[0] < time_s < TROUBLE_S[1]
        yield "fabric_port_state", end, 1.0 if is_down else 4.0
        yield "fabric_port_rate_bits_per_second", end, RATE
    share = 0.5 if link == BUSY else 0.0
    yield "fabric_port_transmit_bytes_total", link.a, passed * share * RATE / 8
    yield "fabric_port_receive_bytes_total", link.b, passed * share * RATE / 8
    yield "fabric_port_transmit_bytes_total", link.b, passed * 0.25 * share * RATE / 8
    yield "fabric_port_transmit_wait_seconds_total", link.a, passed * 0.1
    if link == BROKEN:
        grown = min(max(time_s - TROUBLE_S[0], 0), TROUBLE_S[1] - TROUBLE_S[0])
        yield "fabric_port_symbol_errors_total", link.a, grown * 100.0
        yield "fabric_port_receive_errors_total", link.b, grown * 20.0


def batch() -> bytes:
    """Ten minutes of three links; QUIET has no samples."""
    read = [
        Sample(Series(metric, labels(port)), value, time_s * NS)
        for link in (BUSY, BROKEN)
        for time_s in range(START_S - 60, END_S + 1, PERIOD_S)
        for metric, port, value in samples_of(link, time_s)
    ]
    packed = wire.pack_batch(
        read, agent="poller", boot="b", sequence=0, sent_ms=END_S * 1000, common={}
    )
    return wire.encode_batch(packed)


def foreign() -> bytes:
    """A link by node_exporter's names, over remote write."""
    moments = range(START_S - 60, END_S + 1, PERIOD_S)
    series = []
    for end in (FOREIGN.a, FOREIGN.b):
        own = {"device": end.device, "instance": end.host, "port": end.port}
        for name, slope, level in (
            ("node_infiniband_port_data_transmitted_bytes_total", 0.75 * RATE / 8, 0.0),
            ("node_infiniband_rate_bytes_per_second", 0.0, RATE / 8),
        ):
            pairs = sorted({"__name__": name, **own}.items())
            values = [(slope * (moment - moments[0]) + level, moment * 1000) for moment in moments]
            series.append(rw.TimeSeries(pairs, values))
    return rw.snappy(rw.request_v1(series))


@pytest.fixture(autouse=True)
def asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds change from test to test, so no answer stands for the next."""
    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 0.0)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    headers = {"content-type": wire.CONTENT_TYPE, "content-encoding": "zstd"}
    ends = [*link_ends.things(CLUSTER), *link_ends.ends(CLUSTER, of_hosts=True)]
    found = [sight(each, load_catalog()) for each in ends]
    moment = dt.datetime.fromtimestamp(END_S, tz=dt.UTC)
    seen = [Observation.at(one, moment) for one in found if one is not None]
    folder = tmp_path_factory.mktemp("service")
    with in_process(
        folder, clock=lambda: float(END_S), prepare=lambda inventory: inventory.observe(seen)
    ) as running:
        answer = running.client.post("/v1/ingest", content=batch(), headers=headers)
        assert answer.status_code == 200, answer.text
        answer = running.client.post("/api/v1/write", content=foreign(), headers=rw.V1_HEADERS)
        assert answer.status_code == 204, answer.text
        yield running


def ask(service: InProcess, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = service.client.get("/v1/fabric/state", params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def column(found: dict[str, Any], name: str, link: LinkId) -> np.ndarray:
    """One link's numbers over time."""
    matrix = found[name]
    numbers = np.frombuffer(base64.b64decode(matrix["data"]), "<f4")
    assert (matrix["rows"], matrix["columns"]) == (found["frames"], len(found["links"]))
    shaped = numbers.reshape(matrix["rows"], matrix["columns"])
    return shaped[:, found["links"].index(str(link))]


@pytest.fixture(scope="module")
def state(service: InProcess) -> dict[str, Any]:
    return ask(service, **{"from": START_S, "to": END_S}, frames=10)


def test_every_link_of_the_topology_is_there(service: InProcess, state: dict[str, Any]) -> None:
    topology = service.client.get("/v1/topology").json()
    assert state["links"] == [link["id"] for link in topology["links"]]
    assert len(state["links"]) == len(LINKS)
    assert (state["from_ns"], state["step_ns"], state["frames"]) == (START_S * NS, 60 * NS, 10)
    assert np.isnan(column(state, "a_to_b", QUIET)).all()
    assert np.isnan(column(state, "up", QUIET)).all()


def test_both_directions_are_shares_of_the_link_s_rate(state: dict[str, Any]) -> None:
    assert column(state, "a_to_b", BUSY) == pytest.approx(np.full(10, 0.5), rel=0.01)
    assert column(state, "b_to_a", BUSY) == pytest.approx(np.full(10, 0.125), rel=0.01)
    assert column(state, "paused", BUSY) == pytest.approx(np.full(10, 0.1), rel=0.01)
    assert column(state, "up", BUSY).tolist() == [1.0] * 10


def test_other_people_s_counters_tell_the_same(state: dict[str, Any]) -> None:
    assert column(state, "a_to_b", FOREIGN) == pytest.approx(np.full(10, 0.75), rel=0.01)


def test_trouble_between_two_moments_is_not_lost(state: dict[str, Any]) -> None:
    errors = column(state, "errors", BROKEN)
    # Half a minute of 120 errors a second, within the sixth minute.
    assert errors[5] == pytest.approx(60)
    assert np.delete(errors, 5).max() == 0
    assert column(state, "up", BROKEN).tolist() == [1.0] * 5 + [0.0] + [1.0] * 4
    worst = state["worst_errors"]
    codes = np.frombuffer(base64.b64decode(worst["data"]), np.uint8)
    codes = codes.reshape(worst["rows"], worst["columns"])
    place = state["links"].index(str(BROKEN))
    assert worst["kinds"][codes[5, place]] == "symbol_errors"
    assert (np.delete(codes.reshape(-1), 5 * len(state["links"]) + place) == worst["none"]).all()


def test_short_moments_have_rates_over_half_a_minute(service: InProcess) -> None:
    found = ask(service, **{"from": END_S - 60, "to": END_S}, frames=120)
    assert (found["step_ns"], found["frames"]) == (NS, 60)
    assert column(found, "a_to_b", BUSY) == pytest.approx(np.full(60, 0.5), rel=0.01)


def test_a_part_is_asked_for_as_of_the_topology(service: InProcess) -> None:
    found = ask(service, host=BUSY.b.host, frames=1)
    assert found["links"] == [
        str(link) for link in LINKS if BUSY.b.host in {link.a.host, link.b.host}
    ]
    with patch.object(fabric_route, "FABRIC_CELLS_MAX", 3 * len(LINKS)):
        assert ask(service, frames=60)["frames"] == 3


@pytest.mark.parametrize(
    ("limit", "status"),
    [("FABRIC_LINKS_MAX", 422), ("FABRIC_SAMPLES_MAX", 422), ("FABRICS_WAITING_MAX", 503)],
)
def test_bounds_say_their_names(service: InProcess, limit: str, status: int) -> None:
    with patch.object(fabric_route, limit, 0):
        answer = service.client.get("/v1/fabric/state")
    assert (answer.status_code, answer.json()["rule"]) == (status, limit)
    counted = f'fabric_service_refused_total{{protocol="fabric",rule="{limit}"}} 1.0'
    assert counted in service.client.get("/metrics").text


@pytest.mark.parametrize(
    "parameters",
    [{"frames": 0}, {"frames": 121}, {"from": END_S, "to": END_S - 1}, {"host": "nobody"}],
)
def test_odd_questions_are_problems(service: InProcess, parameters: dict[str, Any]) -> None:
    answer: httpx.Response = service.client.get("/v1/fabric/state", params=parameters)
    assert answer.status_code in {400, 404, 422}
    assert answer.headers["content-type"] == "application/problem+json"


ENDLESS = "SELECT sum(sipHash64(number)) AS sum FROM numbers(1000000000000)"


def running_inside(service: InProcess) -> int:
    """How many endless questions the store works on now."""
    rows = service.rows(
        "SELECT count() AS n FROM system.processes "
        "WHERE query LIKE '%sipHash64%' AND query NOT LIKE '%processes%'"
    )
    return int(rows[0]["n"])


def asker_of(service: InProcess, frames: int) -> socket.socket:
    """A client that has asked and does not wait for the answer yet."""
    url = service.client.base_url
    assert url.port is not None
    line = socket.create_connection((url.host, url.port))
    line.sendall(
        f"GET /v1/fabric/state?frames={frames} HTTP/1.1\r\nHost: {url.host}\r\n\r\n".encode()
    )
    return line


def test_an_answer_whose_askers_have_left_is_not_made(service: InProcess) -> None:
    """Neither the one that the store works on, nor the one that waits for its turn."""
    made: list[int] = []

    def endless(*_: object, **__: object) -> None:
        made.append(1)
        service.store.query(ENDLESS)

    with patch.object(service.context.fabric_reader, "read", endless):
        first = asker_of(service, 7)
        eventually(lambda: running_inside(service) == 1, "the question runs")
        second = asker_of(service, 8)
        turns_taken = service.context.queues.fabrics
        eventually(lambda: turns_taken._waiting == 2, "the other waits for its turn")
        second.close()
        eventually(lambda: turns_taken._waiting == 1, "the other has given its turn up")
        assert running_inside(service) == 1, "the first is still wanted"
        first.close()
        eventually(lambda: running_inside(service) == 0, "the question has ended", seconds=60)
        eventually(lambda: turns_taken._waiting == 0, "the turn is free", seconds=60)
    assert made == [1]
    assert ask(service, frames=7)["frames"] == 7
