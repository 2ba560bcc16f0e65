"""`GET /v1/events`: the events of agents, newest first, each once."""

import time
from collections.abc import Iterator

import httpx
import pytest

from collector.contract import wire
from collector.contract.model import Event
from tests.stands.service import InProcess, in_process

NOW_NS = time.time_ns()
SECOND_NS = 1_000_000_000
COUNT = 25


def event(number: int) -> Event:
    """One a second, the highest number newest; every fifth is of another kind and host."""
    is_fifth = number % 5 == 0
    return Event(
        kind="xid" if is_fifth else "link_down",
        time_ns=NOW_NS - (COUNT - number) * SECOND_NS + number,
        labels={"device": f"mlx5_{number % 2}", "port": "1"} | ({"host": "b"} if is_fifth else {}),
        message=f"number {number}",
        attributes={"number": str(number)},
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Holds COUNT events of two hosts; the batch was sent twice."""
    with in_process(tmp_path_factory.mktemp("service")) as running:
        for sequence in (1, 2):
            batch = wire.pack_batch(
                [],
                [event(number) for number in range(COUNT)],
                agent="a",
                boot="b",
                sequence=sequence,
                sent_ms=NOW_NS // 1_000_000,
                common={"host": "a"},
            )
            headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
            answer = running.client.post(
                "/v1/ingest", content=wire.encode_batch(batch), headers=headers
            )
            assert answer.status_code == 200, answer.text
        yield running


def ask(service: InProcess, **parameters: str | int | list[str]) -> httpx.Response:
    return service.client.get("/v1/events", params=parameters)


def numbers(answer: httpx.Response) -> list[int]:
    return [int(item["attributes"]["number"]) for item in answer.json()["items"]]


def test_the_newest_comes_first_and_a_resend_shows_nothing_twice(service: InProcess) -> None:
    answer = ask(service)
    assert numbers(answer) == list(reversed(range(COUNT)))
    assert answer.json()["next"] is None
    first = answer.json()["items"][0]
    assert first["time_ns"] == event(COUNT - 1).time_ns
    assert first["labels"] == {"device": "mlx5_0", "host": "a", "port": "1"}
    assert first["message"] == f"number {COUNT - 1}"


def test_pages_join_to_the_whole(service: InProcess) -> None:
    found: list[int] = []
    after: dict[str, str] = {}
    while True:
        answer = ask(service, limit=7, **after).json()
        found += [int(item["attributes"]["number"]) for item in answer["items"]]
        if answer["next"] is None:
            break
        after = {"after": answer["next"]}
    assert found == list(reversed(range(COUNT)))


def test_kind_host_device_and_time_narrow_the_list(service: InProcess) -> None:
    assert numbers(ask(service, kind="xid")) == [20, 15, 10, 5, 0]
    assert numbers(ask(service, kind=["xid", "link_down"])) == list(reversed(range(COUNT)))
    assert numbers(ask(service, host="b", device="mlx5_0")) == [20, 10, 0]
    middle = event(12).time_ns / 1e9 + 0.5
    assert numbers(ask(service, to=str(middle)))[0] == 12
    assert numbers(ask(service, **{"from": str(middle)}))[-1] == 13


@pytest.mark.parametrize(
    "wrong",
    [{"after": "x"}, {"after": "WzEsIC0xXQ"}, {"from": "2", "to": "1"}, {"limit": "0"}],
)
def test_a_wrong_question_is_refused(service: InProcess, wrong: dict[str, str]) -> None:
    assert ask(service, **wrong).status_code in {400, 422}
