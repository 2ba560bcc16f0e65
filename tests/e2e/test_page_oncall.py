"""What a person on call does with the built-in page, task by task, in a real browser.

The culprit, a port's counters, an earlier time, a shared address, a CSV file, an unhealthy host, an
incident that is worked on, a configuration for agents: each from where the person stands, by what
the page says. The clocks of service and browser stand where the data ends. What a task changes it
leaves as it was, or on an incident of its own.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from alerts.health.model import HealthState
from alerts.policy.action import Action, ActionState, Event, What, Why
from alerts.policy.record import BY_POLICY
from api.data.inventory.incidents import moment_of
from api.data.inventory.rollout_model import AgentConfiguration
from api.fleet.actions.task import ActionTask
from api.oncall.evaluate.lead import EVALUATOR
from collector.contract.units import NS
from collector.contract.verdict import Cause, Reason
from tests.e2e.conftest import Opener
from tests.stands.browser import Watched
from tests.worlds.incidents import HOLDER, slow_link
from tests.worlds.page_data import CULPRIT, END_S, START_S, VICTIM_JOB, Stage

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.slow]

FORBIDDEN = {
    "title": "not allowed",
    "detail": "POST /v1/incidents/{incident}/work needs a token with scope operate; 'eve' has read",
    "status": 403,
}


def incident_of(stage: Stage, **wanted: str) -> str:
    found = stage.service.client.get("/v1/incidents", params=wanted).json()["items"]
    return str(found[0]["id"])


@pytest.fixture(scope="module")
def worked(stage: Stage) -> str:
    """An incident of its own for those who work on it."""
    stage.say(slow_link(END_S * NS, job="pretrain"))
    return incident_of(stage, host="node3")


def panel_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Who looks after it")


def done(panel: Locator, words: str) -> Locator:
    """The line of the record with these words; all are of the same moment, so in any order."""
    return (
        panel.get_by_role("list", name="Who did what")
        .get_by_role("listitem")
        .filter(has_text=words)
    )


# --- to find ------------------------------------------------------------------------------------


def test_the_culprit_is_named_after_one_click(seen: Watched) -> None:
    page = seen.page
    seen.open("/")
    jobs = page.get_by_role("table", name="Running jobs")
    jobs.get_by_role("row", name=VICTIM_JOB).get_by_role("link", name="Straggler").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(CULPRIT)
    expect(page.get_by_role("list", name="Culprit").get_by_role("link").first).to_be_visible()
    seen.settle()


def test_the_counters_of_a_port_are_seen_over_time(seen: Watched) -> None:
    page = seen.page
    seen.open(f"/hosts/node0004?from={START_S}&to={END_S}")
    row = page.get_by_role("table", name="Ports and links").get_by_role("row", name="mlx5_0")
    sent = row.first.get_by_role("img", name="mlx5_0 sent")
    expect(sent).to_have_attribute("aria-label", re.compile(r"b/s, at most [\d.]+ Gb/s"))
    assert len(re.findall("[ML]", sent.locator("path").get_attribute("d") or "")) > 10
    row.first.get_by_role("link", name=re.compile("leaf")).click()
    expect(page.get_by_role("region", name=re.compile("Link|leaf")).first).to_be_visible()
    seen.settle()


def test_a_person_looks_at_ten_minutes_ago(seen: Watched) -> None:
    page = seen.page
    seen.open("/job")
    page.get_by_role("button", name="Type a time range").click()
    form = page.get_by_role("form", name="Time range")
    form.get_by_label("From").fill("10m ago")
    form.get_by_label("To").fill("6m ago")
    form.get_by_label("To").press("Enter")
    expect(page).to_have_url(re.compile(rf"from={END_S - 600}\.000&to={END_S - 360}\.000"))
    seen.settle()
    row = page.get_by_role("row", name="pretrain")
    expect(row).to_contain_text("node0001")  # who was too hot then, and is not now


def test_the_address_of_an_incident_shows_the_same_to_a_colleague(
    seen: Watched, opener: Opener
) -> None:
    page = seen.page
    seen.open("/incident")
    page.get_by_role("combobox", name="Cause").select_option("straggler")
    page.get_by_role("combobox", name="State").select_option("closed")
    seen.settle()
    with opener() as other:
        other.open(page.url.partition("#")[2])
        table = "table[aria-label=Incidents]"
        assert other.page.locator(table).inner_text() == page.locator(table).inner_text()
        expect(other.page.get_by_role("combobox", name="State")).to_have_value("closed")


def test_a_query_becomes_a_file_for_a_spreadsheet(seen: Watched, tmp_path: Path) -> None:
    page = seen.page
    query = "max by (host) (fabric_gpu_temperature_celsius)"
    seen.open(f"/explore?from={START_S}&to={END_S}&shown=table&query={query}")
    with page.expect_download() as saved:
        page.get_by_role("button", name=f"Values of {query} as CSV").click()
    saved.value.save_as(tmp_path / "values.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "values.csv").read_text("utf-8"))))
    hottest = max(rows, key=lambda row: float(row["Value"]))
    assert (len(rows), hottest["host"]) == (6, CULPRIT)


# --- to act -------------------------------------------------------------------------------------


def test_an_incident_is_acknowledged_noted_and_assigned(seen: Watched, worked: str) -> None:
    page = seen.page
    seen.open(f"/incident/{worked}")
    panel = panel_of(page)
    expect(panel).to_contain_text("Not acknowledged yet")
    panel.get_by_role("button", name="Acknowledge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(panel).to_contain_text("Acknowledged by ann")
    panel.get_by_role("button", name="Note").click()
    dialog.get_by_label("Note", exact=True).fill("spare cable is in rack 12")
    dialog.get_by_role("button", name="Keep the note").click()
    panel.get_by_role("button", name="Assign").click()
    dialog.get_by_label("To").fill("bob")
    dialog.get_by_role("button", name="Assign").click()
    expect(panel).to_contain_text("Assigned to bob")
    expect(done(panel, "ann assigned it to bob")).to_be_visible()
    expect(done(panel, "ann noted: spare cable is in rack 12")).to_be_visible()
    with page.expect_download() as saved:
        panel.get_by_role("link", name="Markdown").click()
    assert "ann noted: spare cable is in rack 12" in saved.value.path().read_text()
    seen.go("/incident")
    expect(page.get_by_role("row", name="node3")).to_contain_text("acknowledged by ann")
    # Who has said a name once acknowledges with one click; and lets go with one.
    seen.go(f"/incident/{worked}")
    panel.get_by_role("button", name="Take the acknowledgement back").click()
    expect(panel).to_contain_text("Not acknowledged yet")
    assert seen.axe() == []


def test_a_click_shows_that_it_works_and_a_refusal_says_why_and_what_else_helps(
    seen: Watched, worked: str
) -> None:
    page = seen.page
    held: list[Route] = []
    page.route(
        "**/work",
        lambda one: held.append(one) if one.request.method == "POST" else one.continue_(),
    )
    seen.open(f"/incident/{worked}")
    page.evaluate("() => localStorage.setItem('fabricscope.name', 'eve')")
    panel = panel_of(page)
    panel.get_by_role("button", name="Acknowledge").click()
    expect(panel.get_by_role("button", name="Sending")).to_be_disabled()
    seen.until(lambda: len(held) == 1, "the request is sent")
    held.pop().fulfill(status=403, json=FORBIDDEN, content_type="application/problem+json")
    refusal = panel.get_by_role("alert")
    expect(refusal).to_contain_text("needs a token with scope operate; 'eve' has read")
    expect(refusal).to_contain_text(f"fabricscope incident ack {worked}")
    expect(panel.get_by_role("button", name="Acknowledge")).to_be_enabled()
    seen.faults.clear()  # the browser itself tells of the status


def test_a_page_that_may_only_read_says_so_beforehand(seen: Watched, worked: str) -> None:
    page = seen.page
    page.route("**/v1/whoami", lambda one: one.fulfill(json={"name": "eve", "allowed": ["read"]}))
    seen.open(f"/incident/{worked}")
    panel = panel_of(page)
    expect(panel).to_contain_text("The token eve of this page may read, and not operate.")
    expect(panel).to_contain_text(f"fabricscope incident ack {worked}")
    expect(panel.get_by_role("button")).to_have_count(0)
    expect(panel.get_by_role("link", name="Markdown")).to_be_visible()


def test_a_silenced_incident_is_marked_wherever_it_stands(seen: Watched, worked: str) -> None:
    page = seen.page
    seen.open(f"/incident/{worked}")
    panel = panel_of(page)
    panel.get_by_role("button", name="Silence").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("For").select_option("4 h")
    dialog.get_by_label("Why").fill("its cable is swapped")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_role("button", name="Silence").click()
    expect(panel).to_contain_text("silenced until 13:08:00")
    expect(done(panel, "its cable is swapped")).to_be_visible()
    seen.go("/")
    card = page.get_by_role("article", name="node3's NIC is slow")
    expect(card).to_contain_text("silenced until 13:08:00")
    seen.go("/incident")
    expect(page.get_by_role("row", name="node3")).to_contain_text("silenced until 13:08:00")
    seen.go(f"/incident/{worked}")
    panel.get_by_role("button", name="End the silence").click()
    expect(panel.get_by_text("silenced until")).to_have_count(0)


def test_a_notice_s_link_acknowledges_and_stays_in_no_address(seen: Watched, worked: str) -> None:
    """What it may is the service's to say (`tests/conformance/test_passes.py`)."""
    page = seen.page
    bearers: set[str | None] = set()
    page.on(
        "request",
        lambda one: bearers.add(one.headers.get("authorization")) if "/v1/" in one.url else None,
    )
    made = f"fsp.{worked}.{END_S + 60}.{'x' * 43}"
    seen.open(f"/incident/{worked}?pass={made}")
    assert page.url.endswith(f"#/incident/{worked}")
    assert bearers == {f"Bearer {made}"}
    assert all(f"/v1/incidents/{worked}" in url for url in seen.asked if "/v1/incidents" in url)
    assert not any("/v1/live" in url or "/api/" in url for url in seen.asked)
    expect(page.get_by_role("button", name="One incident only: enter a token")).to_be_visible()
    panel = panel_of(page)
    expect(panel.get_by_role("button")).to_have_text(["Acknowledge", "Markdown"])
    assert seen.axe() == []


def proposed(incident: str, number: str) -> Action:
    """As the policy proposes in the mode `approve`."""
    at_ns = END_S * NS - 60 * NS
    return Action(
        id=number,
        host="node0005",
        hold=HealthState.DRAINING,
        state=ActionState.PROPOSED,
        by=BY_POLICY,
        reason="slow_link of mlx5_0",
        at_ns=at_ns,
        until_ns=at_ns + 3_600 * NS,
        why=Why(
            rule="bad-nic-or-cable",
            incident=incident,
            cause=Cause.SLOW_LINK,
            reason=Reason.UNKNOWN,
            confidence=0.9,
            risk=0.9,
            about="",
            text="its NIC is slow",
        ),
        history=(Event(time_ns=at_ns, what=What.PROPOSED, by=BY_POLICY),),
    )


def test_what_the_policy_proposes_is_refused_in_place(
    seen: Watched, stage: Stage, worked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The stage has no policy: a round of the service's own would withdraw what is proposed here.
    monkeypatch.setattr(ActionTask, "once", AsyncMock(return_value=None))
    page = seen.page
    kept = stage.service.inventory.actions.keep(
        [proposed(worked, "a1")], [], {}, task=EVALUATOR, holder=HOLDER, now=moment_of(END_S * NS)
    )
    assert kept
    seen.open(f"/incident/{worked}")
    panel = panel_of(page)
    expect(panel).to_contain_text("The policy proposes to drain node0005: slow_link of mlx5_0")
    assert seen.axe() == []
    # More than the policy's share of six hosts: the service says so, where it was asked.
    panel.get_by_role("button", name="Grant").click()
    dialog = page.get_by_role("dialog", name="Drain node0005?")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_role("button", name="Grant").click()
    expect(dialog.get_by_role("alert")).to_contain_text("share of the fleet")
    dialog.get_by_role("button", name="Cancel").click()
    seen.faults.clear()  # the browser itself tells of the status
    panel.get_by_role("button", name="Refuse").click()
    dialog = page.get_by_role("dialog", name="Do not drain node0005?")
    dialog.get_by_label("Why").fill("the spare is not there yet")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_role("button", name="Refuse").click()
    refused = "ann refused the drain of node0005: the spare is not there yet"
    expect(done(panel, refused)).to_be_visible()
    expect(panel.get_by_role("button", name="Grant")).to_have_count(0)


def test_why_a_host_is_not_well_and_it_is_drained(seen: Watched, stage: Stage) -> None:
    page = seen.page
    seen.open("/hosts")
    page.get_by_role("link", name=CULPRIT, exact=True).first.click()
    charges = page.get_by_role("list", name="What speaks against it")
    expect(charges.get_by_role("listitem").first).to_contain_text("Straggler")
    page.get_by_role("button", name="Drain or take out").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("its GPU is too hot")
    dialog.get_by_label("Who").fill("ann")
    dialog.get_by_role("button", name="Mark it as draining").click()
    try:
        expect(page.get_by_role("heading", level=1)).to_contain_text("draining")
        expect(page.get_by_text("draining by ann: its GPU is too hot").first).to_be_visible()
    finally:
        stage.service.client.delete(f"/v1/hosts/{CULPRIT}/hold", params={"by": "ann"})
    seen.settle()


# --- a configuration for agents -----------------------------------------------------------------


def report(stage: Stage, *said: AgentConfiguration) -> None:
    """As agents' batches do; the service knows it at once."""
    stage.service.inventory.rollouts.write_reports(said)
    stage.service.context.rollouts.look()


def of_agent(number: int, **said: Any) -> AgentConfiguration:  # noqa: ANN401 - fields of one
    at = moment_of(END_S * NS)
    return AgentConfiguration(agent=f"node{number:04}", at=at, heard_at=at, **said)


def order(page: Page, button: str, title: str, confirm: str, why: str) -> None:
    """Open a form, give the reason, send it, and see it close."""
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog", name=title)
    dialog.get_by_label("Why").fill(why)
    dialog.get_by_role("button", name=confirm).click()
    expect(dialog).to_have_count(0)


def test_a_configuration_is_rolled_out_stopped_and_taken_back(seen: Watched, stage: Stage) -> None:
    page = seen.page
    report(stage, *(of_agent(number) for number in range(6)))
    seen.open("/settings/rollouts")
    expect(
        page.get_by_role("status").filter(has_text="Nothing was ever rolled out")
    ).to_be_visible()
    asked = [url for url in seen.asked if "/v1/configurations" in url]
    assert len(asked) == 1
    # By the keyboard, as the form takes the focus; the agent's own reader has the first word.
    page.get_by_role("button", name="Roll one out").press("Enter")
    dialog = page.get_by_role("dialog", name="Roll a configuration out")
    field = dialog.get_by_label("Configuration, TOML")
    field.fill("flush_secnods = 1.0")
    dialog.get_by_label("Shares").fill("50, 5")
    expect(dialog).to_contain_text("Each share must be above the one before.")
    expect(dialog.get_by_role("button", name="Roll it out")).to_be_disabled()
    dialog.get_by_label("Shares").fill("50, 100")
    dialog.get_by_label("Stopped by").fill("2")
    dialog.get_by_label("Why").fill("cheaper netdev")
    dialog.get_by_label("Who").fill("ann")
    dialog.get_by_label("Who").press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("did you mean 'flush_seconds'?")
    seen.faults.clear()  # the browser itself tells of the status
    field.fill("[sources.netdev]\ninterval_seconds = 2.0\n")
    dialog.get_by_role("button", name="Roll it out").press("Enter")
    expect(dialog).to_have_count(0)
    panel = page.get_by_role("region", name="Configuration 1 of agents")
    expect(panel).to_contain_text("50 % of the agents that take part: step 1 of 50 %, 100 %")
    expect(panel).to_contain_text("by ann, now: cheaper netdev")
    report(
        stage,
        of_agent(0, good=1),
        of_agent(1, trying=1),
        of_agent(3, failed=1, detail="source ethtool fails newly"),
    )
    order(page, "Stop it", "Stop version 1?", "Stop it", "looks odd")
    expect(panel.get_by_role("status")).to_contain_text("stopped")
    expect(panel).to_contain_text("ann: looks odd")
    counts = panel.get_by_role("list", name="How far agents are")
    expect(counts).to_contain_text("1 went back")
    expect(counts).to_contain_text("1 kept it")
    back = page.get_by_role("table", name="Agents that went back")
    expect(back.get_by_role("row", name="node0003")).to_contain_text("source ethtool fails newly")
    page.get_by_role("button", name="Show them").click()
    agents = page.get_by_role("table", name="What agents run")
    expect(agents.get_by_role("row", name="node0000")).to_contain_text("version 1")
    seen.settle()
    assert seen.axe() == []
    order(page, "Let it go on", "Let version 1 go on?", "Go on", "its cable was loose")
    expect(panel.get_by_role("status")).to_contain_text("rolls out")
    order(page, "Take it back", "Take version 1 back?", "Take it back", "wrong interval")
    expect(panel.get_by_role("status")).to_contain_text("taken back")
    expect(page.get_by_role("button", name="Roll out another")).to_be_visible()
    page.route("**/v1/whoami", lambda one: one.fulfill(json={"name": "eve", "allowed": ["read"]}))
    page.reload()
    expect(panel).to_contain_text("The token eve of this page may not.")
    expect(panel).to_contain_text("fabricscope config push")
    expect(panel.get_by_role("button", name="Roll out another")).to_have_count(0)


# --- by the keyboard ----------------------------------------------------------------------------


def tab_to(page: Page, target: Locator, presses: int = 60) -> None:
    """Press Tab until the target has the focus; fail after so many."""
    for _ in range(presses):
        if target.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"not reached by {presses} presses of Tab: {target}")


@pytest.mark.usefixtures("worked")
def test_an_incident_is_found_and_acknowledged_without_a_mouse(seen: Watched) -> None:
    page = seen.page
    seen.open("/nowhere")
    page.keyboard.press("g")
    page.keyboard.press("i")
    link = page.get_by_role("row", name="node3").get_by_role("link", name="node3")
    expect(link).to_be_visible()
    seen.settle()
    tab_to(page, link)
    page.keyboard.press("Enter")
    panel = panel_of(page)
    button = panel.get_by_role("button", name="Acknowledge")
    expect(button).to_be_visible()
    seen.settle()
    tab_to(page, button)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    tab_to(page, dialog.get_by_label("Your name"))
    page.keyboard.type("zoe")
    page.keyboard.press("Enter")
    expect(panel).to_contain_text("Acknowledged by zoe")
    expect(dialog).to_have_count(0)
