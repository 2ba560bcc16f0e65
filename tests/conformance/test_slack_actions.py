"""A click in Slack acknowledges one incident, signed, and changes its message; nothing else."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import httpx
import msgspec
import pytest

from alerts.rulebook.model import INCIDENT_LABEL
from alerts.rulebook.notices import Line, Notice, Status, Talk, Why, group_key
from api.base.case_limits import SLACK_BODY_BYTES_MAX
from api.data.inventory import work as tables
from api.data.inventory.notices import write_talks
from api.data.inventory.work import Deed, Does
from api.http.settings import ServiceSettings
from api.oncall.evaluate import lead, task
from api.oncall.notify import task as notify_task
from api.oncall.notify.message import slack_message
from api.oncall.notify.receivers import Means
from api.oncall.notify.receivers.slack import SlackReceiver, SlackTable
from api.oncall.notify.slack_actions import is_signed, is_slacks
from collector.contract.units import NS
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.incidents import Teller, slow_link

FIXTURES = Path(__file__).parents[1] / "fixtures/slack"
SECRET = "signing-secret-of-decent-length"  # noqa: S105 - of a service that lives for a second
PERSON = "ann U0CA5 (Slack, channel)"
WEBHOOK = "https://hooks.slack.com/services/T/B/x"
ANSWERED = json.loads((FIXTURES / "clicked.json").read_text())["response_url"]


class Slack:
    """Slack's side: takes posts, or refuses those to some addresses."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.refuses: set[str] = set()

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._take))

    def _take(self, request: httpx.Request) -> httpx.Response:
        status = 404 if str(request.url) in self.refuses else 200
        if status == 200:
            self.got.append((str(request.url), json.loads(request.content)))
        return httpx.Response(status, stream=httpx.ByteStream(b"ok"))


class Stand:
    """A service with one open incident, of which the receiver `channel` was told."""

    def __init__(self, service: InProcess, slack: Slack) -> None:
        self.service, self.slack = service, slack
        (item,) = service.client.get("/v1/incidents").json()["items"]
        self.incident = item["id"]
        labels = ((INCIDENT_LABEL, self.incident),)
        line = Line(labels=labels, annotations={"verdict": "node3's NIC is slow"}, starts_ns=NS)
        talk = Talk(
            key=group_key("channel", labels),
            receiver="channel",
            labels=labels,
            opened_ns=1,
            number=1,
            lines=(line,),
        )
        with service.inventory.notices._database.writing("a page") as connection:
            write_talks(connection, [talk])

    def click(self, **changed: Any) -> bytes:  # noqa: ANN401 - JSON
        """The document's click, on the message about this incident."""
        payload = json.loads((FIXTURES / "clicked.json").read_text())
        payload["actions"][0]["value"] = self.incident
        return urlencode({"payload": json.dumps(payload | changed)}).encode()

    def post(self, body: bytes, receiver: str = "channel", **headers: str) -> httpx.Response:
        stamp = headers.get("stamp", f"{time.time():.0f}")
        given = {
            b"X-Slack-Request-Timestamp": stamp.encode(),
            b"X-Slack-Signature": headers.get("signature", sign(body, stamp)).encode(),
            b"Content-Type": b"application/x-www-form-urlencoded",
        }
        path = f"/v1/slack/{receiver}"
        return self.service.client.post(path, content=body, headers=given)

    def send(self, body: bytes) -> str:
        answer = self.post(body)
        assert answer.status_code == 200, answer.text
        result: str = answer.json()["result"]
        return result

    def answers(self, number: int) -> list[tuple[str, dict[str, Any]]]:
        """What Slack was answered so far; answers follow the end of a click's request."""
        eventually(lambda: len(self.slack.got) >= number, f"answer {number} to Slack")
        assert len(self.slack.got) == number
        return self.slack.got

    def deeds(self) -> list[tuple[str, str]]:
        return [(deed.does, deed.by) for deed in self.service.inventory.work.of(self.incident)]

    def count(self, result: str) -> float:
        read = self.service.context.metrics.slack_actions.labels("channel", result)
        return float(read._value.get())


def sign(body: bytes, stamp: str, secret: str = SECRET) -> str:
    signed = f"v0:{stamp}:".encode() + body
    return f"v0={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def texts(message: dict[str, Any]) -> str:
    return json.dumps(message["blocks"])


def actions(message: dict[str, Any]) -> list[str]:
    blocks = [block for block in message["blocks"] if block["type"] == "actions"]
    return [element["text"]["text"] for block in blocks for element in block["elements"]]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    (tmp_path / "secret").write_text(SECRET + "\n")
    file = tmp_path / "notify.toml"
    file.write_text(
        f'[[receivers]]\nname = "channel"\ntype = "slack"\nurl = "{WEBHOOK}"\n'
        f'signing_secret_file = "{tmp_path / "secret"}"\n'
        f'[[receivers]]\nname = "mute"\ntype = "slack"\nurl = "{WEBHOOK}"\n'
    )
    data = tmp_path / "data"
    data.mkdir()
    settings = ServiceSettings(
        data=str(data),
        rules_pack=False,
        own_numbers=False,
        notify_file=str(file),
        external_url="https://fabric.example",
    )
    slack = Slack()
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        patch.object(notify_task, "make_client", slack.client),
        in_process(data, settings=settings) as service,
    ):
        now_ns = int(time.time()) * NS
        Teller(service.inventory, service.store).say(now_ns, slow_link(now_ns - 60 * NS))
        yield Stand(service, slack)


def test_a_click_acknowledges_and_the_message_says_who(stand: Stand) -> None:
    assert stand.send(stand.click()) == "kept"
    path = f"/v1/incidents/{stand.incident}"
    assert stand.service.client.get(path).json()["work"]["acknowledged_by"] == PERSON
    ((url, message),) = stand.answers(1)
    assert url == ANSWERED
    assert message["replace_original"] is True
    assert f"acknowledged by {PERSON}" in texts(message)
    assert "node3's NIC is slow" in message["text"]
    assert actions(message) == ["Open"]
    assert stand.count("kept") == 1


def test_a_second_click_takes_nothing_over_and_shows_who_has_it(stand: Stand) -> None:
    bob = Deed(id="1", incident=stand.incident, at_ns=NS, by="bob", does=Does.ACKNOWLEDGE)
    stand.service.inventory.work.do(bob)
    assert stand.send(stand.click()) == "stands"
    assert stand.deeds() == [("acknowledge", "bob")]
    assert "acknowledged by bob" in texts(stand.answers(1)[0][1])


def test_a_repeated_request_does_not_undo_what_was_taken_back(stand: Stand) -> None:
    assert stand.send(stand.click()) == "kept"
    taken_back = Deed(id="9", incident=stand.incident, at_ns=NS, by="ann", does=Does.UNACKNOWLEDGE)
    stand.service.inventory.work.do(taken_back)
    assert stand.send(stand.click()) == "repeated"
    assert [does for does, _ in stand.deeds()] == ["acknowledge", "unacknowledge"]
    assert actions(stand.answers(2)[-1][1]) == ["Acknowledge", "Open"]


def test_only_slacks_signature_of_now_opens_the_door(stand: Stand) -> None:
    body = stand.click()
    for wrong in ("", "v0=", "v0=00", sign(body, "1"), "v0=é", "x" * 10_000):
        assert stand.post(body, signature=wrong).status_code == 401, wrong
    now = time.time()
    for stamp in ("", "-1", "1e3", "٣", f"{now - 400:.0f}", f"{now + 400:.0f}", "9" * 400):
        assert stand.post(body, stamp=stamp).status_code == 401, stamp
    assert stand.post(body, signature=sign(body, f"{now:.0f}", "another")).status_code == 401
    assert stand.post(body, receiver="mute").status_code == 404
    assert stand.post(body, receiver="none").status_code == 404
    assert stand.post(b" " * (SLACK_BODY_BYTES_MAX + 1)).status_code == 413
    assert stand.deeds() == []
    assert stand.slack.got == []


def test_the_documents_own_example_is_signed() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id="
        b"G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-"
        b"collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F3977008"
        b"85554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c4"
        b"47fce8b6703c"
    )
    given = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    secret = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105 - the document's
    assert is_signed(body, "1531420618", given, secret, 1531420618.0)
    assert not is_signed(body, "1531420618", given, secret, 1531420618.0 + 301)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"payload=",
        b"payload=[]",
        b"payload={}&payload={}",
        b"payload=%ff",
        b"&".join([b"a=1"] * 50),
        urlencode({"payload": '{"type": "block_actions", "user": {"id": "' + "U" * 200 + '"}}'}),
    ],
)
def test_a_signed_body_that_is_no_click_is_refused(stand: Stand, body: bytes | str) -> None:
    raw = body.encode() if isinstance(body, str) else body
    assert stand.post(raw).status_code in {400, 413, 422}
    assert stand.deeds() == []


@pytest.mark.parametrize(
    "address",
    [
        "http://hooks.slack.com/x",
        "https://hooks.slack.com.example/x",
        "https://hooks.slack.com@127.0.0.1/x",
        "https://hooks.slack.com:8443/x",
        "https://127.0.0.1/\\@hooks.slack.com",
        "https://169.254.169.254/latest",
        "file:///etc/passwd",
    ],
)
def test_answers_go_to_slack_only(stand: Stand, address: str) -> None:
    assert not is_slacks(address)
    assert stand.post(stand.click(response_url=address)).status_code == 422
    assert stand.deeds() == []
    assert stand.slack.got == []


def test_what_is_no_acknowledgement_of_a_standing_incident_changes_nothing(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stand.send(stand.click(type="view_closed")) == "ignored"
    opened = {"action_id": "fabricscope_open", "action_ts": "1"}
    assert stand.send(stand.click(actions=[opened])) == "ignored"
    assert stand.slack.got == []
    other = {"action_id": "fabricscope_acknowledge", "value": "i-other", "action_ts": "1"}
    assert stand.send(stand.click(actions=[other])) == "unknown"
    monkeypatch.setattr(tables, "WORK_PER_INCIDENT_MAX", 0)
    assert stand.send(stand.click()) == "full"
    assert [message["response_type"] for _, message in stand.answers(2)] == ["ephemeral"] * 2
    assert stand.deeds() == []


def test_where_the_message_cannot_be_changed_a_new_one_says_it(stand: Stand) -> None:
    stand.slack.refuses = {ANSWERED}
    assert stand.send(stand.click()) == "kept"
    ((url, message),) = stand.answers(1)
    assert url == WEBHOOK
    assert "replace_original" not in message
    assert stand.count("unanswered") == 0
    stand.slack.refuses = {ANSWERED, WEBHOOK}
    assert stand.send(stand.click()) == "stands"
    eventually(lambda: stand.count("unanswered") == 1, "the count of what Slack did not take")


# --- the message --------------------------------------------------------------------------------


def notice_of(work: str = "", **changed: Any) -> Notice:  # noqa: ANN401 - of any field
    notes = {"work": work} if work else {}
    line = Line(labels=((INCIDENT_LABEL, "i-1"),), annotations=notes, starts_ns=NS)
    notice = Notice(
        id="n",
        group="g",
        receiver="channel",
        group_labels=(),
        number=1,
        status=Status.FIRING,
        why=Why.FIRST,
        planned_ns=NS,
        lines=(line,),
    )
    return msgspec.structs.replace(notice, **changed)


def test_buttons_are_shown_where_clicks_are_taken_and_do_something() -> None:
    url, page = "https://fabric.example", "https://fabric.example/#/incident/i-1?pass=p"
    asked = slack_message(notice_of(), url, page, has_buttons=True)
    assert actions(asked) == ["Acknowledge", "Open"]
    assert f"<{page}|Acknowledge>" not in texts(asked)
    assert f"<{page}&amp;show=evidence|Evidence>" in texts(asked)
    done = slack_message(notice_of("acknowledged by bob"), url, page, has_buttons=True)
    assert actions(done) == ["Open"]
    over = slack_message(notice_of(status=Status.RESOLVED), url, "", has_buttons=True)
    assert actions(over) == []
    plain = slack_message(notice_of(), url, page)
    assert actions(plain) == []
    assert f"<{page}|Acknowledge>" in texts(plain)


@pytest.mark.parametrize(
    ("by", "why", "posts"),
    [
        ("bob", Why.WORK, 1),
        (PERSON, Why.WORK, 0),
        (PERSON, Why.REPEAT, 1),
        ("ann U0CA5 (Slack, another)", Why.WORK, 1),
    ],
)
def test_a_click_is_not_told_again_in_its_own_channel(by: str, why: Why, posts: int) -> None:
    slack = Slack()
    secret = "s"  # noqa: S105 - of no service
    table = SlackTable(name="channel", type="slack", url=WEBHOOK, signing_secret=secret)
    means = Means(client=slack.client(), external_url="", clock=time.time)
    notice = notice_of(f"acknowledged by {by}", why=why)
    outcome = asyncio.run(SlackReceiver(table, means).send(notice))
    assert outcome.delivery == "sent"
    assert len(slack.got) == posts
