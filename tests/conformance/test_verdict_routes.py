"""Verdicts and incidents over HTTP: past verdicts, open incidents, and their timelines."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api.oncall.evaluate import lead, task
from collector.contract.units import NS
from tests.stands.service import InProcess, in_process
from tests.worlds.incidents import Teller, slow_link, straggler

NOW_S = int(time.time())
"""Near the true present: the store forgets what is older than its retention."""


class Told:
    """A service with two incidents: one is open, one is closed."""

    def __init__(self, service: InProcess, clock: list[float]) -> None:
        self.service = service
        self.clock = clock

    def get(self, path: str, **parameters: str | int) -> dict[str, Any]:
        answer = self.service.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    clock = [float(NOW_S)]
    asleep = (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
    )
    with (
        asleep[0],
        asleep[1],
        in_process(tmp_path_factory.mktemp("service"), clock=lambda: clock[0]) as service,
    ):
        for job in ("train", "other", "idle"):
            assert service.client.post("/v1/jobs", json={"id": job}).status_code == 201
        begin = (NOW_S - 600) * NS
        teller = Teller(service.inventory, service.store)
        teller.say(begin + 10 * NS, straggler(begin))
        teller.say(begin + 100 * NS, slow_link(begin + 95 * NS, confidence=0.7))
        teller.say(begin + 200 * NS, slow_link(begin + 95 * NS))
        teller.say(NOW_S * NS, slow_link(begin + 95 * NS))
        yield Told(service, clock)


def is_problem(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in answer.text


def test_verdicts_come_as_they_were_said_the_newest_first(told: Told) -> None:
    found = told.get("/v1/verdicts")
    assert [item["verdict"]["cause"] for item in found["items"]] == [
        "slow_link",
        "slow_link",
        "slow_link",
        "straggler",
    ]
    times = [item["time_ns"] for item in found["items"]]
    assert times == sorted(times, reverse=True)
    assert found["next"] is None
    first = found["items"][0]["verdict"]
    assert first["culprit"]["switch_port"] == "swp3"
    assert first["evidence"][0]["baseline"] == 0.01


def test_verdicts_come_in_pages_that_miss_nothing(told: Told) -> None:
    seen: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        page = told.get("/v1/verdicts", limit=1, **after)
        seen += page["items"]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == told.get("/v1/verdicts")["items"]


@pytest.mark.parametrize(
    ("parameters", "count"),
    [
        ({"cause": "straggler"}, 1),
        ({"job": "train"}, 3),
        ({"host": "node9"}, 1),
        ({"switch": "leaf0"}, 3),
        ({"host": "nobody"}, 0),
        ({"from": str(NOW_S - 595), "to": str(NOW_S - 450)}, 2),
    ],
)
def test_verdicts_are_filtered(told: Told, parameters: dict[str, str], count: int) -> None:
    assert len(told.get("/v1/verdicts", **parameters)["items"]) == count


def test_incidents_are_one_each_the_latest_first_and_short(told: Told) -> None:
    items = told.get("/v1/incidents")["items"]
    assert [(item["cause"], item["state"]) for item in items] == [
        ("slow_link", "open"),
        ("straggler", "closed"),
    ]
    standing = items[0]
    assert standing["culprit"]["device"] == "mlx5_0"
    assert (standing["victims"], standing["jobs"]) == (1, ["train"])
    [cost] = told.get(f"/v1/incidents/{standing['id']}")["verdict"]["costs"]
    assert standing["lost_seconds"] == pytest.approx(cost["lost_seconds"])
    assert cost["lost_seconds"] >= 12.5
    assert standing["until_ns"] is None
    assert standing["closed_ns"] is None
    assert items[1]["closed_ns"] is not None


@pytest.mark.parametrize(
    ("parameters", "causes"),
    [
        ({"state": "open"}, ["slow_link"]),
        ({"state": "closed"}, ["straggler"]),
        ({"cause": "straggler"}, ["straggler"]),
        ({"job": "other"}, ["straggler"]),
        ({"host": "node3"}, ["slow_link"]),
        ({"switch": "leaf0"}, ["slow_link"]),
        ({"since": str(NOW_S - 60)}, ["slow_link"]),
        ({"job": "nobody"}, []),
    ],
)
def test_incidents_are_filtered(told: Told, parameters: dict[str, str], causes: list[str]) -> None:
    assert [one["cause"] for one in told.get("/v1/incidents", **parameters)["items"]] == causes


def test_incidents_come_in_pages(told: Told) -> None:
    first = told.get("/v1/incidents", limit=1)
    second = told.get("/v1/incidents", limit=1, after=first["next"])
    ids = [page["items"][0]["id"] for page in (first, second)]
    assert ids == [item["id"] for item in told.get("/v1/incidents")["items"]]


def test_an_incident_has_its_whole_story(told: Told) -> None:
    [short] = told.get("/v1/incidents", state="open")["items"]
    story = told.get(f"/v1/incidents/{short['id']}")
    assert story["verdict"]["evidence"][0]["metric"] == "collective_transfer"
    assert story["verdict"]["victims"] == [{"job": "train", "rank": 4, "host": "node4"}]
    assert story["verdict"]["costs"][0]["gpu_hours"] >= 0.2
    assert story["history"][0]["news"] == "opened"
    assert story["first_said_ns"] == (NOW_S - 500) * NS


def test_an_unknown_incident_is_404_and_offers_near_ones(told: Told) -> None:
    [short] = told.get("/v1/incidents", state="open")["items"]
    client = told.service.client
    is_problem(client.get(f"/v1/incidents/{short['id']}x"), 404, short["id"], "did you mean")
    is_problem(client.get("/v1/incidents/" + "x" * 3000), 404)


def test_an_incident_s_words_alone_find_its_id(told: Told) -> None:
    """As they are said on the telephone; others of the same minute are not what was meant."""
    [short] = told.get("/v1/incidents", state="open")["items"]
    words = short["id"].split("-", 2)[2]
    detail = told.service.client.get(f"/v1/incidents/{words}.md").json()["detail"]
    assert detail.endswith(f"no incident is called '{words}'; did you mean {short['id']}?")


def test_a_mistyped_job_is_offered(told: Told) -> None:
    is_problem(told.service.client.get("/v1/jobs/trian"), 404, "did you mean train?")


def test_a_job_in_trouble_is_told_what_is_wrong(told: Told) -> None:
    found = told.get("/v1/jobs/train/verdict")
    assert [verdict["cause"] for verdict in found["verdicts"]] == ["slow_link"]
    assert found["incidents"] == [told.get("/v1/incidents", state="open")["items"][0]["id"]]
    assert found["is_fresh"] is True
    assert found["well_since"] is None


def test_a_job_that_is_well_is_told_since_when(told: Told) -> None:
    after_trouble = told.get("/v1/jobs/other/verdict")
    assert after_trouble["verdicts"] == []
    closed = told.get("/v1/incidents", state="closed")["items"][0]
    ended_s = (closed["until_ns"] or closed["last_seen_ns"]) / NS
    assert moment(after_trouble["well_since"]) == pytest.approx(ended_s, abs=1e-3)
    never = told.get("/v1/jobs/idle/verdict")
    assert never["verdicts"] == []
    assert moment(never["well_since"]) == pytest.approx(NOW_S)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_nobody_is_called_well_while_nobody_looks(told: Told) -> None:
    told.clock[0] += 3_600
    try:
        found = told.get("/v1/jobs/idle/verdict")
    finally:
        told.clock[0] -= 3_600
    assert found["verdicts"] == []
    assert found["is_fresh"] is False
    assert found["well_since"] is None
    assert found["evaluated_at"] is not None


def test_wrong_questions_are_answered_with_what_is_wrong(told: Told) -> None:
    client = told.service.client
    is_problem(client.get("/v1/jobs/nobody/verdict"), 404, "nobody")
    is_problem(client.get("/v1/verdicts", params={"cause": "gremlins"}), 422, "cause")
    is_problem(client.get("/v1/verdicts", params={"from": "yesterday"}), 400, "not a time")
    is_problem(client.get("/v1/verdicts", params={"after": "%%%"}), 400, "after")
    is_problem(client.get("/v1/verdicts", params={"job": "x" * 2_000}), 422, "job")
    is_problem(client.get("/v1/incidents", params={"state": "ajar"}), 422, "state")
    is_problem(client.get("/v1/incidents", params={"since": "later"}), 400, "not a time")
    is_problem(client.get("/v1/incidents", params={"limit": 0}), 422, "limit")
