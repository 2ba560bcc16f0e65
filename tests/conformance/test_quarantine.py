"""One odd thing harms itself alone, on a real service, from the door to the verdict."""

import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from alerts.finding import Finding
from alerts.rulebook.model import Group
from alerts.window.model import Window
from api.jobs.correlate import readings
from api.jobs.correlate.roll import RollTask
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.task import EvaluateTask
from api.oncall.rules.task import RuleTask
from collector.contract import wire
from collector.contract.errors import IdentityError
from collector.contract.model import Event, Sample, Series
from tests.stands.round_by_round import RoundByRound, round_by_round
from tests.worlds import remote_write as rw
from tests.worlds.hostile import Point, Sending, send

NATIVE = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
ODD = "gpu\u00a07"
NO_PORT = {
    "__name__": "node_infiniband_state_id",
    "device": "mlx5_0",
    "instance": "gpu7:9100",
}


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundByRound]:
    with round_by_round(tmp_path_factory.mktemp("quarantine")) as one:
        yield one


def ingest(service: RoundByRound, host: str, *events: Event, **labels: str) -> dict[str, Any]:
    now_ns = time.time_ns()
    where = {"device": "mlx5_0", "port": "1", **labels}
    batch = wire.pack_batch(
        [
            Sample(Series("fabric_port_state", where), 4.0, now_ns),
            Sample(Series("plain_metric", {"a": "b"}), 1.0, now_ns),
        ],
        events,
        agent="agent",
        boot="boot",
        sequence=1,
        sent_ms=now_ns // 1_000_000,
        common={"host": host},
    )
    answer = service.client.post("/v1/ingest", content=wire.encode_batch(batch), headers=NATIVE)
    assert answer.status_code == 200, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


def write(service: RoundByRound, *series: dict[str, str], version: int = 1) -> httpx.Response:
    now_ms = time.time_ns() // 1_000_000
    sent = [rw.TimeSeries(sorted(each.items()), [(1.0, now_ms)]) for each in series]
    body = rw.request_v1(sent) if version == 1 else rw.request_v2(sent)
    headers = rw.V1_HEADERS if version == 1 else rw.V2_HEADERS
    return service.client.post("/api/v1/write", content=rw.snappy(body), headers=headers)


def hosts_in_window(service: RoundByRound) -> set[str]:
    answer = service.client.get("/v1/ports")
    assert answer.status_code == 200
    return {port["host"] for port in answer.json()["items"]}


def test_an_odd_name_in_a_native_batch_breaks_no_evaluation(service: RoundByRound) -> None:
    ingest(service, ODD)
    ingest(service, "gpu8")
    service.watch()
    assert service.evaluate() is not None
    assert service.troubles() == {}
    assert hosts_in_window(service) == {"gpu8"}


def test_a_series_without_a_port_breaks_no_evaluation(service: RoundByRound) -> None:
    assert write(service, NO_PORT).status_code == 204, "a foreign exporter's series stays stored"
    ingest(service, "gpu8")
    service.watch()
    assert service.evaluate() is not None
    assert service.troubles() == {}


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"__name__": "fabric_port_state", "host": ODD, "device": "d", "port": "1"}, "host"),
        ({"__name__": "fabric_port_state", "host": "n", "device": "\0", "port": "1"}, "device"),
        ({"__name__": "fabric_port_state", "host": "n", "port": "1"}, "no label device"),
        ({"__name__": "fabric_link_info", "host": "n", "device": "d"}, "no label port"),
        ({"__name__": "fabric_gpu_temperature_celsius", "gpu": "0"}, "no label host"),
        ({"__name__": "fabric_host_load1", "instance": f"{ODD}:9100"}, "the host of"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_can_name_no_thing_is_refused_and_named_to_the_sender(
    service: RoundByRound, version: int, labels: dict[str, str], why: str
) -> None:
    beside = {"__name__": "plain_metric", "host": ODD}
    answer = write(service, labels, beside, version=version)
    assert answer.status_code == 400
    assert "1 by bad_identity" in answer.text
    assert why in answer.text
    found = service.client.get("/v1/refused").json()["refused"]
    assert [(one["road"], one["reason"], one["count"]) for one in found] == [
        ("remote_write", "bad_identity", 1)
    ]
    assert found[0]["sender"] == "127.0.0.1"
    assert why in found[0]["examples"][0]
    name = '{protocol="remote_write",rule="bad_identity"}'
    assert service.counted("fabric_service_refused_total")[name] == 1.0
    assert service.service.samples("plain_metric"), "the good one beside it is stored"


def test_a_native_batch_is_told_by_rule_what_it_lost(service: RoundByRound) -> None:
    event = Event(kind="note", time_ns=time.time_ns(), labels={"device": "mlx5_0"})
    receipt = ingest(service, ODD, event)
    assert receipt["refused"] == {"bad_identity": 2}, "the port's sample and the event"
    assert receipt["stored"] == 1
    (found,) = service.client.get("/v1/refused").json()["refused"]
    assert (found["road"], found["count"]) == ("native", 2)
    assert "gpu\\xa07" in found["examples"][0], "escaped, so that it can be seen"


def test_otlp_names_it_in_its_partial_success(service: RoundByRound) -> None:
    answer = send(
        service.client,
        Sending("otlp", [Point("fabric_port_state", {"host": ODD, "device": "d", "port": "1"})]),
    )
    assert answer is not None
    assert answer.status_code == 200
    assert b"1 by bad_identity" in answer.content


def test_what_a_window_leaves_out_is_counted_once_and_shown(service: RoundByRound) -> None:
    write(service, NO_PORT)
    for _ in range(2):
        assert service.evaluate() is not None
    assert service.counted("fabric_service_quarantined_total") == {'{road="window"}': 1.0}
    answer = service.client.get("/v1/refused").json()
    (found,) = answer["quarantined"]
    assert (found["road"], found["reason"], found["count"]) == ("window", "no port", 1)
    assert "node_infiniband_state_id{" in found["examples"][0]
    assert found["first_at"] <= found["last_at"]
    assert answer["refused"] == []
    assert answer["at_most"] > 1


def test_labels_past_what_one_metric_may_be_split_by_are_counted_and_said(
    service: RoundByRound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "SPLITS_MAX", 2)
    name = {"__name__": "fabric_host_probe_sent_total", "host": "node-0", "rail": "rail0"}
    write(service, *({**name, "to": f"node-{peer}/rail0"} for peer in range(1, 6)))
    assert service.evaluate() is not None
    (found,) = service.client.get("/v1/refused").json()["quarantined"]
    assert "more values of to than SPLITS_MAX = 2" in found["reason"]
    assert found["examples"] == ["3 of 5 values, probe_sent_total:node-3/rail0 and what follows"]
    assert service.counted("fabric_service_quarantined_total") == {'{road="window"}': 1.0}


def test_a_row_that_cannot_be_read_hides_no_other(service: RoundByRound) -> None:
    wish = {
        "matchers": [{"name": "alertname", "value": "A"}],
        "created_by": "a test",
        "comment": "of two silences one is damaged",
        "hours": 1,
    }
    answers = [service.client.post("/v1/silences", json=wish) for _ in range(2)]
    made = [answer.json()["id"] for answer in answers]
    with service.service.inventory._database.writing("test") as connection:
        damage = "UPDATE silences SET document = '{}' WHERE id = ?"
        connection.exec_driver_sql(damage, (made[0],))
    found = service.client.get("/v1/silences").json()["items"]
    assert [one["id"] for one in found] == made[1:]
    assert service.counted("fabric_service_quarantined_total") == {'{road="inventory"}': 1.0}


def test_an_evaluation_that_breaks_is_counted_and_the_next_is_well(service: RoundByRound) -> None:
    ingest(service, "gpu8")
    task = service.part("evaluator", EvaluateTask)
    with patch.object(task, "_write", side_effect=KeyError("a bug")):
        assert service.evaluate() is not None, "incidents were kept before the rows"
    assert service.troubles() == {'{outcome="broken"}': 1.0}
    assert service.evaluate() is not None
    assert service.counted("fabric_service_evaluations_total")['{outcome="done"}'] == 1.0


def test_a_detector_that_raises_an_error_of_ours_silences_no_other(service: RoundByRound) -> None:
    def odd(_: Window) -> list[Finding]:
        raise IdentityError("PortId.port is ''")

    seen: list[Window] = []

    def plain(window: Window) -> list[Finding]:
        seen.append(window)
        return []

    panel = GuardedDetectors(service.service.context.metrics, {"odd": odd, "plain": plain})
    window: Any = object()
    assert panel.find(window) == []
    assert seen == [window], "the detector behind it has looked"
    assert panel.broken == ["odd"]


def test_a_stretch_that_cannot_be_rolled_is_left_out(service: RoundByRound) -> None:
    task = service.part("roll", RollTask)
    with patch.object(task, "_roll", side_effect=KeyError("a bug")):
        count = service.roll()
    assert count > 1, "it goes on behind the stretch that broke"
    assert service.troubles() == {'{work="roll of a stretch"}': float(count)}


def test_a_rule_group_that_breaks_leaves_the_others_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with round_by_round(tmp_path_factory.mktemp("rules"), rules=True) as service:
        task = service.part("rules", RuleTask)
        whole = task._evaluate
        broken: list[str] = []

        async def evaluate(group: Group, *given: Any) -> None:  # noqa: ANN401 - as it is
            if not broken or group.key in broken:
                broken.append(group.key)
                raise KeyError("a bug")
            await whole(group, *given)

        with patch.object(task, "_evaluate", evaluate):
            groups = service.evaluate_rules()
        assert groups > 2
        outcomes = service.counted("fabric_service_rule_groups_total")
        assert outcomes == {'{outcome="broken"}': 1.0, '{outcome="done"}': groups - 1.0}
