"""`/v1/silences`, `/v1/notices` and `/api/v1/alertmanagers` of a running service."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.data.inventory import notices
from api.http.settings import ServiceSettings
from tests.stands.service import InProcess, in_process
from tests.stands.strangers import JSON

START_S = 1_794_000_000.0
BODY = {
    "matchers": [{"name": "host", "value": "n[0-9]+", "isRegex": True}],
    "hours": 2,
    "created_by": "me",
    "comment": "a cable is being changed",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    data: Path = tmp_path_factory.mktemp("service")
    settings = ServiceSettings(
        data=str(data), alertmanagers="http://127.0.0.1:9/am", rules_pack=False
    )
    with in_process(data, clock=lambda: START_S, settings=settings) as service:
        yield service


def make(service: InProcess, **changes: object) -> httpx.Response:
    body = {key: value for key, value in {**BODY, **changes}.items() if value is not None}
    return service.client.post("/v1/silences", content=json.dumps(body), headers=JSON)


def test_a_silence_is_made_found_and_ended(service: InProcess) -> None:
    made = make(service)
    assert made.status_code == 201
    silence = made.json()
    assert made.headers["Location"] == f"/v1/silences/{silence['id']}"
    assert silence["state"] == "active"
    assert silence["matchers"] == [
        {"name": "host", "value": "n[0-9]+", "isRegex": True, "isEqual": True}
    ]
    assert service.client.get(made.headers["Location"]).json() == silence
    listed = service.client.get("/v1/silences", params={"state": "active"}).json()["items"]
    assert silence in listed
    ended = service.client.delete(made.headers["Location"])
    assert (ended.status_code, ended.json()["state"]) == (200, "expired")
    assert service.client.get(made.headers["Location"]).json()["state"] == "expired"


def test_a_silence_may_begin_later(service: InProcess) -> None:
    made = make(service, starts="2027-01-01T00:00:00Z", hours=1).json()
    assert (made["state"], made["ends"]) == ("pending", "2027-01-01T01:00:00Z")


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"matchers": []}, "length"),
        ({"matchers": [{"name": "host", "value": "("} | {"isRegex": True}]}, "RE2"),
        ({"matchers": [{"name": "ho st", "value": "x"}]}, "no label"),
        ({"matchers": [{"name": "host", "value": ""}]}, "must be there"),
        ({"matchers": [{"name": "host", "value": ".*", "isRegex": True}]}, "must be there"),
        ({"matchers": [{"name": "host", "value": "x", "isEqual": False}]}, "must be there"),
        ({"comment": ""}, "comment"),
        ({"created_by": None}, "created_by"),
        ({"hours": None}, "ends, or hours"),
        ({"ends": "2027-01-01T00:00:00Z"}, "not both"),
        ({"hours": None, "ends": "2020-01-01T00:00:00Z"}, "after now"),
        ({"hours": None, "ends": "2030-01-01T00:00:00Z"}, "within 366 days"),
        ({"hours": None, "ends": "2027-01-01T00:00:00"}, "ends"),
        ({"hours": -1}, "hours"),
        ({"more": 1}, "more"),
    ],
)
def test_what_is_no_silence_is_refused(
    service: InProcess, changes: dict[str, object], detail: str
) -> None:
    answer = make(service, **changes)
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]


def test_silences_are_bounded(service: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "SILENCES_MAX", 0)
    answer = make(service)
    assert (answer.status_code, answer.json()["rule"]) == (409, "SILENCES_MAX")


@pytest.mark.parametrize("name", ["nobody", "a" * 3_000, "%00"])
def test_a_silence_that_there_is_not_is_not_found(service: InProcess, name: str) -> None:
    assert service.client.get(f"/v1/silences/{name}").status_code == 404
    assert service.client.delete(f"/v1/silences/{name}").status_code == 404


def test_notices_are_listed(service: InProcess) -> None:
    assert service.client.get("/v1/notices").json() == {"items": [], "next": None}
    assert service.client.get("/v1/notices", params={"state": "lost"}).status_code == 422
    assert service.client.get("/v1/notices", params={"after": "x"}).json()["items"] == []


def test_alertmanagers_are_listed_as_prometheus_lists_them(service: InProcess) -> None:
    assert service.client.get("/api/v1/alertmanagers").json()["data"] == {
        "activeAlertmanagers": [{"url": "http://127.0.0.1:9/am/api/v2/alerts"}],
        "droppedAlertmanagers": [],
    }
