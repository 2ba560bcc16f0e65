"""Requests for raw samples, from the asker to the agent's receipt and back; and lists of bursts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.base.limits import CAPTURES_PER_AGENT_MAX
from collector.contract import wire
from collector.contract.model import Event
from collector.contract.units import NS_PER_MS
from tests.stands.service import InProcess, eventually, in_process
from tests.stands.strangers import JSON

NOW = 1_800_000_000.0
NOW_NS = int(NOW) * 1_000_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(Path(tmp_path_factory.mktemp("bursts")), clock=lambda: NOW) as service:
        yield service


class Agent:
    """An agent that sends batches of events and keeps its receipts."""

    def __init__(self, service: InProcess, name: str) -> None:
        self.service = service
        self.name = name
        self.sequence = 0

    def send(self, *events: Event) -> wire.Receipt:
        batch = wire.pack_batch(
            [],
            events,
            agent=self.name,
            boot="b",
            sequence=self.sequence,
            sent_ms=NOW_NS // NS_PER_MS,
            common={"host": self.name},
        )
        self.sequence += 1
        answer = self.service.client.post(
            "/v1/ingest",
            content=wire.encode_batch(batch),
            headers={"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"},
        )
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=wire.Receipt)

    def introduce(self) -> None:
        """Send a batch and wait until the inventory knows the agent."""
        self.send()
        inventory = self.service.inventory
        eventually(
            lambda: inventory.hosts.agent(self.name) is not None, "the agent in the inventory"
        )

    def ask(self, body: bytes = b"") -> Any:  # noqa: ANN401 - JSON
        answer = self.service.client.post(
            f"/v1/agents/{self.name}/capture", content=body, headers=JSON
        )
        assert answer.status_code == 202, answer.text
        return answer.json()

    def captures(self) -> list[dict[str, Any]]:
        answer = self.service.client.get(f"/v1/agents/{self.name}/captures")
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items


def ended(capture: str, result: str = "finished") -> Event:
    attributes = {"capture": capture, "result": result, "samples": "17"}
    return Event(kind="capture", time_ns=NOW_NS, labels={}, attributes=attributes)


# --- captures ------------------------------------------------------------------------------------


def test_a_request_travels_with_every_receipt_until_the_agent_says_how_it_ended(
    service: InProcess,
) -> None:
    agent = Agent(service, "node-1")
    agent.introduce()
    made = agent.ask(b'{"seconds_before": 3, "devices": ["mlx5_0"]}')
    wanted = [
        wire.CaptureRequest(id=made["id"], seconds_before=3, seconds_after=5.0, devices=["mlx5_0"])
    ]
    assert agent.send().captures == wanted
    assert agent.send().captures == wanted
    eventually(lambda: agent.captures()[0]["state"] == "handed", "the inventory's news")
    assert agent.send(ended(made["id"])).captures is msgspec.UNSET
    eventually(lambda: agent.captures()[0]["state"] == "finished", "the end in the inventory")
    (shown,) = agent.captures()
    assert (shown["id"], shown["samples"]) == (made["id"], 17)
    assert agent.send().captures is msgspec.UNSET


def test_another_service_process_hands_the_request_over(service: InProcess) -> None:
    """What one process was asked, every process learns from the inventory."""
    from api.data.captures import Captures  # noqa: PLC0415 - only here

    agent = Agent(service, "node-2")
    agent.introduce()
    other = Captures(service.inventory, lambda: NOW)
    made = other.ask("node-2", 1.0, 2.0, [])

    def is_told() -> bool:
        asked = agent.send().captures
        return asked is not msgspec.UNSET and [each.id for each in asked] == [made.id]

    eventually(is_told, "the request in a receipt of the other process")


def test_an_agent_cannot_end_another_agents_capture(service: InProcess) -> None:
    agent, liar = Agent(service, "node-3"), Agent(service, "node-4")
    agent.introduce()
    liar.introduce()
    made = agent.ask()
    liar.send(ended(made["id"]), ended("", "melted"), ended("x" * 500))
    asked = agent.send().captures
    assert asked is not msgspec.UNSET
    assert [each.id for each in asked] == [made["id"]]
    agent.send(ended(made["id"], "refused"))
    eventually(lambda: agent.captures()[0]["state"] == "refused", "the end in the inventory")


def test_an_agent_has_only_so_many_requests_before_it(service: InProcess) -> None:
    agent = Agent(service, "node-5")
    agent.introduce()
    for _ in range(CAPTURES_PER_AGENT_MAX):
        agent.ask()
    answer = service.client.post("/v1/agents/node-5/capture")
    assert (answer.status_code, answer.json()["rule"]) == (429, "CAPTURES_PER_AGENT_MAX")
    ids = [capture["id"] for capture in agent.captures()]
    assert ids == sorted(ids, reverse=True)
    page = service.client.get("/v1/agents/node-5/captures", params={"limit": 3}).json()
    rest = service.client.get(
        "/v1/agents/node-5/captures", params={"limit": 3, "after": page["next"]}
    ).json()
    assert [each["id"] for each in (*page["items"], *rest["items"])] == ids


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b'{"seconds_before": -1}', 422),
        (b'{"seconds_after": 301}', 422),
        (b'{"devices": [""]}', 422),
        (b'{"color": "red"}', 422),
    ],
)
def test_what_is_no_request_is_refused(service: InProcess, body: bytes, status: int) -> None:
    assert (
        service.client.post("/v1/agents/node-1/capture", content=body, headers=JSON).status_code
        == status
    )


def test_nobody_is_asked_who_never_sent_a_batch(service: InProcess) -> None:
    assert service.client.post("/v1/agents/nobody/capture").status_code == 404
    assert service.client.get("/v1/agents/nobody/captures").status_code == 404


# --- bursts --------------------------------------------------------------------------------------


def burst(second: int, length: float, direction: str = "receive", **more: str) -> Event:
    return Event(
        kind="burst",
        time_ns=NOW_NS - second * 1_000_000_000,
        labels={"device": "mlx5_0", "port": "1"},
        message=f"{length} s",
        attributes={"length_seconds": str(length), "direction": direction, **more},
    )


def test_bursts_are_listed_by_length_direction_and_page(service: InProcess) -> None:
    agent = Agent(service, "node-9")
    agent.send(
        burst(10, 0.004),
        burst(20, 0.008, peak_bytes_per_second="4e10", bytes="320", phase="ended"),
        burst(30, 0.020, "transmit"),
        burst(40, 0.009, bytes="many", peak_bytes_per_second="nan"),
    )

    def lengths(**parameters: Any) -> list[float]:  # noqa: ANN401 - any parameter
        answer = service.client.get("/v1/bursts", params={"host": "node-9", **parameters})
        assert answer.status_code == 200, answer.text
        return [each["length_seconds"] for each in answer.json()["items"]]

    assert lengths() == [0.004, 0.008, 0.020, 0.009]
    assert lengths(min_ms=5) == [0.008, 0.020, 0.009]
    assert lengths(direction="transmit") == [0.020]
    assert lengths(device="mlx5_1") == []
    assert lengths(to=NOW - 15) == [0.008, 0.020, 0.009]
    first = service.client.get("/v1/bursts", params={"host": "node-9", "limit": 3}).json()
    assert lengths(limit=3, after=first["next"]) == [0.009]
    assert first["items"][1] == {
        "host": "node-9",
        "device": "mlx5_0",
        "port": "1",
        "direction": "receive",
        "phase": "ended",
        "start_ns": NOW_NS - 20_000_000_000,
        "length_seconds": 0.008,
        "bytes": 320,
        "peak_bytes_per_second": 4e10,
        "line_bytes_per_second": None,
        "threshold_ratio": None,
        "resolution_seconds": None,
        "message": "0.008 s",
    }
    assert service.client.get("/v1/bursts", params={"after": "?"}).status_code == 400
    assert service.client.get("/v1/bursts", params={"from": NOW, "to": 1}).status_code == 400
