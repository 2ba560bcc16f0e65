"""What people do about incidents: kept, answered, shown in a terminal, told in notices."""

import datetime as dt
import re
import time
from collections.abc import Iterator
from unittest.mock import patch

import httpx
import pytest

from alerts.rulebook.model import Alert, AlertState
from alerts.rulebook.notices import Line, Notice, Status, Why
from api.base.case_limits import WORK_KEPT_DAYS
from api.data.inventory import work as tables
from api.data.inventory.feedback import name_feedback
from api.data.inventory.repository import Inventory
from api.data.inventory.work import NO_WORK, Deed, Does, TooMuchWorkError, Work, state_of
from api.oncall.evaluate import lead, task
from api.oncall.notify.message import pagerduty_event, plain_text, slack_message, webhook_body
from api.oncall.rules.explain import explain_by_incidents
from collector.cli import main
from collector.contract.identity import canonical_labels
from collector.contract.units import NS
from tests.stands.service import InProcess, in_process
from tests.worlds.incidents import Teller, slow_link

START_NS = int(dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC).timestamp()) * NS
DAY_NS = 86_400 * NS


def deed(
    incident: str, does: Does, at_ns: int = START_NS, by: str = "ann", to: str = "", note: str = ""
) -> Deed:
    return Deed(
        id=name_feedback(at_ns), incident=incident, at_ns=at_ns, by=by, does=does, to=to, note=note
    )


# --- kept ---------------------------------------------------------------------------------------


def test_what_was_done_comes_back_in_order_though_the_clock_was_set_back(
    inventory: Inventory,
) -> None:
    steps = (Does.ACKNOWLEDGE, Does.ASSIGN, Does.UNACKNOWLEDGE, Does.NOTE)
    for place, does in enumerate(steps):
        assert inventory.work.do(deed("a", does, START_NS - place * NS, to="bob")) == {}
    inventory.work.do(deed("b", Does.ACKNOWLEDGE))
    found = inventory.work.of("a")
    assert [each.does for each in found] == list(steps)
    assert state_of(found) == Work(assigned_to="bob")
    assert inventory.work.of("none") == inventory.work.of("nul\0") == []
    states = inventory.work.states(["a", "b", "none", "nul\0"])
    assert states == {
        "a": Work(assigned_to="bob"),
        "b": Work(acknowledged_by="ann", acknowledged_ns=START_NS),
    }


def test_the_record_is_bounded_and_what_goes_is_counted(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "WORK_PER_INCIDENT_MAX", 2)
    monkeypatch.setattr(tables, "WORK_KEPT_MAX", 3)
    for place, name in enumerate("aab"):
        assert inventory.work.do(deed(name, Does.NOTE, START_NS + place * NS)) == {}
    with pytest.raises(TooMuchWorkError, match="WORK_PER_INCIDENT_MAX = 2"):
        inventory.work.do(deed("a", Does.NOTE))
    assert inventory.work.do(deed("c", Does.NOTE, START_NS + 3 * NS)) == {"WORK_KEPT_MAX": 1}
    late_ns = START_NS + (WORK_KEPT_DAYS + 1) * DAY_NS
    assert inventory.work.do(deed("d", Does.NOTE, late_ns)) == {"WORK_KEPT_DAYS": 3}
    assert [len(inventory.work.of(name)) for name in "abcd"] == [0, 0, 0, 1]


# --- over HTTP ----------------------------------------------------------------------------------


class Stand:
    """A service with one open incident."""

    def __init__(self, service: InProcess) -> None:
        self.service = service
        (item,) = service.client.get("/v1/incidents").json()["items"]
        self.incident = item["id"]

    def work(self, does: str, **more: object) -> httpx.Response:
        body = {"does": does, "by": "ann", **more}
        return self.service.client.post(f"/v1/incidents/{self.incident}/work", json=body)


@pytest.fixture
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(tmp_path_factory.mktemp("service")) as service,
    ):
        now_ns = int(time.time()) * NS
        teller = Teller(service.inventory, service.store)
        teller.say(now_ns, slow_link(now_ns - 60 * NS))
        yield Stand(service)


def test_an_incident_is_acknowledged_assigned_noted_and_let_go(stand: Stand) -> None:
    assert stand.work("acknowledge", note="on it").json()["work"]["acknowledged_by"] == "ann"
    stand.work("assign", to="bob")
    answer = stand.work("note", note="cable ordered").json()
    assert [each["does"] for each in answer["items"]] == ["acknowledge", "assign", "note"]
    client = stand.service.client
    (short,) = client.get("/v1/incidents").json()["items"]
    whole = client.get(f"/v1/incidents/{stand.incident}").json()
    for work in (short["work"], whole["work"], answer["work"]):
        assert (work["acknowledged_by"], work["assigned_to"]) == ("ann", "bob")
        assert work["acknowledged_note"] == "on it"
    assert whole["runbook"] == "link-below-its-rate"
    assert whole["lasted_seconds"] == short["lasted_seconds"] == 60
    answer = stand.work("unacknowledge").json()
    assert (answer["work"]["acknowledged_by"], answer["work"]["assigned_to"]) == ("", "bob")
    assert client.get(f"/v1/incidents/{stand.incident}/work").json() == answer


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"does": "shrug", "by": "ann"}, "shrug"),
        ({"does": "note", "by": "ann"}, "needs a note"),
        ({"does": "note", "by": "ann", "note": "x", "to": "bob"}, "does=assign only"),
        ({"does": "acknowledge", "by": ""}, "length"),
        ({"does": "acknowledge", "by": "ann", "more": 1}, "more"),
    ],
)
def test_what_is_no_work_is_refused(stand: Stand, body: dict[str, object], words: str) -> None:
    path = f"/v1/incidents/{stand.incident}/work"
    answer = stand.service.client.post(path, json=body)
    assert answer.status_code == 422
    assert words in answer.text
    assert stand.service.client.get(path).json()["items"] == []


def test_only_incidents_that_exist_are_worked_on(stand: Stand) -> None:
    client = stand.service.client
    body = {"does": "acknowledge", "by": "ann"}
    for answer in (
        client.post("/v1/incidents/none/work", json=body),
        client.get("/v1/incidents/none/work"),
        client.get("/v1/incidents/none.md"),
    ):
        assert answer.status_code == 404
        assert "no such incident" in answer.text
    with patch.object(tables, "WORK_PER_INCIDENT_MAX", 1):
        assert stand.work("acknowledge").status_code == 200
        refused = stand.work("acknowledge")
    assert refused.status_code == 409
    assert "WORK_PER_INCIDENT_MAX" in refused.text


# --- as Markdown, and in a terminal -------------------------------------------------------------


def test_all_of_it_is_a_page_of_markdown_that_names_from_outside_cannot_break(
    stand: Stand,
) -> None:
    stand.work("acknowledge", note="see\n# <script>`x` [a](b)")
    answer = stand.service.client.get(f"/v1/incidents/{stand.incident}.md")
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    text = answer.text
    assert text.startswith("# node3's NIC is slow\n")
    for part in (
        f"- Incident: {stand.incident}, open",
        "- When: ", "; lasts 1 min, last seen 20",
        "## What to do\n\nlook at it\n",
        "- Cause: Slow link, NIC; ",
        "## Evidence\n\n- 0.3 s, 0.01 s before (collective_transfer, 20",
        " UTC)\n",
        "/runbooks/link-below-its-rate\n",
        "ann acknowledged it: see \\# \\<script\\>'x' \\[a\\](b)",
    ):  # fmt: skip
        assert part in text, part
    assert sum(line.startswith("# ") for line in text.splitlines()) == 1
    assert not re.search(r"\d\d:\d\d:\d\d(?! UTC| to )", text), "a time without its zone"


def test_the_verbs_of_a_terminal_do_all_of_that(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--service", str(stand.service.client.base_url)]
    number = stand.incident
    assert main(["incident", "ack", number, "--by", "ann", "--note", "on it", *flags]) == 0
    assert capsys.readouterr().out == f"{number}: acknowledged by ann\n"
    assert main(["incident", "assign", number, "bob", "--by", "ann", *flags]) == 0
    assert capsys.readouterr().out == f"{number}: acknowledged by ann, assigned to bob\n"
    assert main(["incident", "note", number, "cable ordered", "--by", "ann", *flags]) == 0
    capsys.readouterr()
    assert main(["incident", "list", "--open", *flags]) == 0
    listed = capsys.readouterr().out  # a table: what a narrow terminal has in two lines
    assert "acknowledged by ann," in listed
    assert "assigned to bob" in listed
    assert main(["incident", "show", number, "--markdown", *flags]) == 0
    shown = capsys.readouterr().out
    assert "ann noted: cable ordered" in shown
    assert main(["explain", number, *flags]) == 0
    assert capsys.readouterr().out == shown
    assert main(["incident", "unack", number, "--by", "ann", *flags]) == 0
    assert capsys.readouterr().out == f"{number}: not acknowledged, assigned to bob\n"
    assert main(["incident", "show", "none", *flags]) == 1
    assert "no such incident" in capsys.readouterr().err


# --- in notices ---------------------------------------------------------------------------------


def test_a_notice_says_who_looks_after_it_until_that_is_taken_back(stand: Stand) -> None:
    labels = canonical_labels({"alertname": "FabricIncident", "incident": stand.incident})
    alert = Alert(
        labels=labels, annotations={}, value=1.0, state=AlertState.FIRING, active_ns=1, fired_ns=1
    )
    explain = explain_by_incidents(stand.service.inventory, "http://fabric.example")
    stand.work("acknowledge", note="on it")
    stand.work("assign", to="bob")
    (told,) = explain([alert])
    words = "acknowledged by ann (on it), assigned to bob"
    assert told.annotations["work"] == words
    line = Line(labels=labels, annotations=told.annotations, starts_ns=1)
    notice = Notice(
        id="n", group="g", receiver="r", group_labels=labels, number=1,
        status=Status.FIRING, why=Why.REPEAT, planned_ns=1, lines=(line,),
    )  # fmt: skip
    for text in (
        plain_text(notice, "http://fabric.example"),
        str(slack_message(notice, "http://fabric.example")),
        str(pagerduty_event(notice, "key", "http://fabric.example")),
        str(webhook_body(notice, "http://fabric.example")),
    ):
        assert words in text
    stand.work("unacknowledge")
    (told,) = explain([told])
    assert told.annotations["work"] == "assigned to bob"
    assert NO_WORK.acknowledged_by == ""
