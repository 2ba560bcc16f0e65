"""What people do at PagerDuty comes here once, signed, and is not sent back."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from alerts.rulebook.model import INCIDENT_LABEL
from alerts.rulebook.notices import Line, Notice, Status, Talk, Why, group_key
from api.base.case_limits import PAGERDUTY_BODY_BYTES_MAX
from api.data.inventory import work as tables
from api.data.inventory.notices import write_talks
from api.data.inventory.work import Deed, Does
from api.http.settings import ServiceSettings
from api.oncall.evaluate import lead, task
from api.oncall.notify import pagerduty_events as events
from api.oncall.notify.message import dedup_key_of
from api.oncall.notify.pagerduty_events import PagerDutyEvents
from api.oncall.notify.receivers import Means
from api.oncall.notify.receivers.pagerduty import PagerDutyReceiver, PagerDutyTable
from collector.contract.units import NS
from tests.stands.service import InProcess, in_process
from tests.worlds.incidents import Teller, slow_link

FIXTURES = Path(__file__).parents[1] / "fixtures/pagerduty"
SECRET = "webhook-secret-of-decent-length"  # noqa: S105 - of a service that lives for a second
OWNER = "Ann Example (PagerDuty, pager)"


class Stand:
    """A service with one open incident, of which the receiver `pager` was told."""

    def __init__(self, service: InProcess) -> None:
        self.service = service
        (item,) = service.client.get("/v1/incidents").json()["items"]
        self.incident = item["id"]
        labels = ((INCIDENT_LABEL, self.incident),)
        self.group = group_key("pager", labels)
        talk = Talk(key=self.group, receiver="pager", labels=labels, opened_ns=1, number=1)
        with service.inventory.notices._database.writing("a page") as connection:
            write_talks(connection, [talk])

    def event(self, what: str, **changed: Any) -> bytes:  # noqa: ANN401 - JSON
        """The document's event about this incident."""
        body = json.loads((FIXTURES / f"{what}.json").read_text())
        if "incident_key" in body["event"]["data"]:
            body["event"]["data"]["incident_key"] = dedup_key_of(self.group)
        body["event"] |= changed
        return json.dumps(body).encode()

    def post(self, body: bytes, signature: str = "", receiver: str = "pager") -> httpx.Response:
        headers = {b"X-PagerDuty-Signature": (signature or sign(body)).encode()}
        path = f"/v1/pagerduty/{receiver}"
        return self.service.client.post(path, content=body, headers=headers)

    def send(self, what: str, **changed: Any) -> str:  # noqa: ANN401 - JSON
        answer = self.post(self.event(what, **changed))
        assert answer.status_code == 200, answer.text
        result: str = answer.json()["result"]
        return result

    def deeds(self) -> list[tuple[str, str, str]]:
        return [(d.does, d.by, d.note) for d in self.service.inventory.work.of(self.incident)]


def sign(body: bytes, secret: str = SECRET) -> str:
    return f"v1={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    (tmp_path / "secret").write_text(SECRET + "\n")
    file = tmp_path / "notify.toml"
    file.write_text(
        '[[receivers]]\nname = "pager"\ntype = "pagerduty"\nkey = "k"\n'
        f'url = "http://127.0.0.1:9/"\nwebhook_secret_file = "{tmp_path / "secret"}"\n'
        '[[receivers]]\nname = "mute"\ntype = "pagerduty"\nkey = "k"\n'
    )
    data = tmp_path / "data"
    data.mkdir()
    settings = ServiceSettings(
        data=str(data), rules_pack=False, own_numbers=False, notify_file=str(file)
    )
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(data, settings=settings) as service,
    ):
        now_ns = int(time.time()) * NS
        Teller(service.inventory, service.store).say(now_ns, slow_link(now_ns - 60 * NS))
        yield Stand(service)


def test_an_acknowledgement_comes_once_and_ends_there_as_here(stand: Stand) -> None:
    assert stand.send("triggered") == "ignored"
    assert stand.send("annotated") == "kept"
    assert stand.send("acknowledged") == "kept"
    assert stand.send("acknowledged") == "repeated"
    path = f"/v1/incidents/{stand.incident}"
    assert stand.service.client.get(path).json()["work"]["acknowledged_by"] == OWNER
    assert stand.send("reassigned") == "kept"
    assert stand.send("resolved") == "kept"
    assert stand.send("unacknowledged") == "kept"
    assert stand.send("priority_updated") == "ignored"
    no_person = "no person (PagerDuty, pager)"
    assert stand.deeds() == [
        ("note", OWNER, "spare cable is in rack 12"),
        ("acknowledge", OWNER, ""),
        ("note", OWNER, "reassigned at PagerDuty to Bob Example"),
        ("note", OWNER, "resolved at PagerDuty; here it is open until its trouble is over"),
        ("unacknowledge", no_person, ""),
    ]
    story = stand.service.client.get(path).json()
    assert story["state"] == "open"
    assert story["work"]["acknowledged_by"] == ""
    text = stand.service.client.get("/metrics").text
    counted = 'fabric_service_pagerduty_events_total{receiver="pager",result="repeated"} 1.0'
    assert counted in text


def test_what_our_own_events_cause_there_is_not_taken_for_a_person(stand: Stand) -> None:
    ann = Deed(id="1", incident=stand.incident, at_ns=NS, by="ann", does=Does.ACKNOWLEDGE)
    stand.service.inventory.work.do(ann)
    integration = {"id": "PINTEGR", "type": "inbound_integration_reference", "summary": "us"}
    for agent in (integration, None):
        assert stand.send("acknowledged", agent=agent) == "ignored"
        assert stand.send("resolved", agent=agent) == "ignored"
    # What ended there is not what ann acknowledged here.
    assert stand.send("unacknowledged") == "ignored"
    assert stand.deeds() == [("acknowledge", "ann", "")]


def test_only_the_receivers_secret_opens_the_door(stand: Stand) -> None:
    body = stand.event("acknowledged")
    for wrong in ("v1=", "v1=00", sign(body, "another"), sign(body + b" "), "v2=é", "x" * 10_000):
        assert stand.post(body, wrong).status_code == 401, wrong
    assert stand.post(body, receiver="mute").status_code == 404
    assert stand.post(body, receiver="none").status_code == 404
    large = b" " * (PAGERDUTY_BODY_BYTES_MAX + 1)
    assert stand.post(large).status_code == 413
    assert stand.deeds() == []
    # While the secret is changed there are two signatures.
    assert stand.post(body, f"{sign(body, 'old')},{sign(body)}").json() == {"result": "kept"}
    assert 'denied_total{reason="signature"} 6.0' in stand.service.client.get("/metrics").text


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"event": {"id": 7}}', b'{"event": {"id": "a", "event_type": "b"}}', b"\xff"],
)
def test_a_signed_body_that_is_no_event_is_refused(stand: Stand, body: bytes) -> None:
    assert stand.post(body).status_code in {400, 413, 422}
    odd = stand.event("acknowledged", data={"id": ["x"]})
    assert stand.post(odd).status_code == 422
    long = stand.event("acknowledged", id="x" * 200)
    assert stand.post(long).status_code == 422
    assert stand.deeds() == []


def test_events_about_other_incidents_and_full_records_change_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = json.loads(stand.event("acknowledged"))["event"]["data"]
    assert stand.send("acknowledged", data=other | {"incident_key": "theirs"}) == "unknown"
    assert stand.send("annotated") == "unknown"
    monkeypatch.setattr(tables, "WORK_PER_INCIDENT_MAX", 1)
    assert stand.send("acknowledged") == "kept"
    assert stand.send("annotated") == "full"


def test_a_note_finds_its_incident_after_a_restart(stand: Stand) -> None:
    assert stand.send("acknowledged") == "kept"
    again = PagerDutyEvents(stand.service.inventory)
    result, _ = again.take(stand.event("annotated"), "pager", time.time_ns())
    assert result == "kept"
    assert stand.deeds()[-1][2] == "spare cable is in rack 12"


def test_ids_are_remembered_within_a_bound(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAGERDUTY_IDS_MAX", 2)
    known = PagerDutyEvents(stand.service.inventory)
    data = json.loads(stand.event("triggered"))["event"]["data"]
    for place in range(5):
        known.take(stand.event("triggered", data=data | {"id": f"P{place}"}), "pager", 1)
    assert list(known._keys) == ["P3", "P4"]


@pytest.mark.parametrize(
    ("by", "why", "sent"),
    [
        ("ann", Why.WORK, ["acknowledge"]),
        (OWNER, Why.WORK, []),
        (OWNER, Why.REPEAT, ["trigger"]),
        ("Ann Example (PagerDuty, another)", Why.WORK, ["acknowledge"]),
    ],
)
def test_what_was_acknowledged_there_is_not_sent_back(by: str, why: Why, sent: list[str]) -> None:
    posted: list[str] = []

    def note(request: httpx.Request) -> httpx.Response:
        posted.append(json.loads(request.content)["event_action"])
        return httpx.Response(202, stream=httpx.ByteStream(b"{}"))

    line = Line(labels=(), annotations={"work": f"acknowledged by {by}"}, starts_ns=NS)
    notice = Notice(
        id="n",
        group="g",
        receiver="pager",
        group_labels=(),
        number=2,
        status=Status.FIRING,
        why=why,
        planned_ns=NS,
        lines=(line,),
    )
    table = PagerDutyTable(name="pager", type="pagerduty", key="k", url="http://127.0.0.1:9/")
    client = httpx.AsyncClient(transport=httpx.MockTransport(note))
    means = Means(client=client, external_url="", clock=time.time)
    outcome = asyncio.run(PagerDutyReceiver(table, means).send(notice))
    assert outcome.delivery == "sent"
    assert posted == sent
