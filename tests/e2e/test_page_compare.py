"""Comparisons on the built-in page: steps, a pipeline's stages, two jobs, who shares an uplink."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from collector.contract.units import NS
from tests.stands.browser import Watched
from tests.worlds.page_data import CULPRIT, END_S, START_S, VICTIM_JOB, Stage

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.slow]

OTHER_JOB = "pretrain"
SPAN = f"from={START_S}&to={END_S}"


def test_the_steps_of_an_incident_name_its_culprit(seen: Watched, stage: Stage) -> None:
    page = seen.page
    found = stage.service.client.get("/v1/incidents", params={"cause": "straggler"}).json()
    seen.open(f"/incident/{found['items'][0]['id']}")
    page.get_by_role("link", name="Slow steps against normal").click()
    expect(page.locator(".steps-sentence")).to_contain_text(CULPRIT)
    seen.settle()
    accused = page.get_by_role("table", name="Ranks compared").get_by_role("row", name="accused")
    expect(accused).to_have_count(1)
    expect(accused).to_contain_text(CULPRIT)
    expect(accused).to_contain_text("late itself")
    # Replayed without it: the toggle changes the drawing and says what a step would take.
    expect(page.get_by_text("Replayed", exact=True)).to_have_count(0)
    page.get_by_label("Show the slow step").select_option(index=1)
    expect(page.get_by_text("Replayed", exact=True)).to_be_visible()
    stands_out = page.get_by_role("table", name="What stands out in slow steps")
    expect(stands_out.get_by_role("row").nth(1)).to_contain_text(CULPRIT)
    clock = stands_out.get_by_role("row", name="fabric_gpu_sm_clock_hertz").first
    expect(clock).to_contain_text("1.98 GHz")


def test_the_excess_flows_over_the_fabric_from_whom_a_verdict_accuses(
    seen: Watched, stage: Stage
) -> None:
    page = seen.page
    found = stage.service.client.get("/v1/incidents", params={"cause": "pause_storm"}).json()
    (incident, *_) = found["items"]
    host = incident["culprit"]["host"]
    seen.open(f"/compare/steps/{OTHER_JOB}?incident={incident['id']}")
    fabric = page.get_by_role("region", name="Over the fabric")
    drawing = fabric.get_by_role("img")
    accused = re.compile(f"From {host}, which a verdict accuses")
    expect(drawing).to_have_attribute("aria-label", accused)
    first = fabric.get_by_role("list").get_by_role("listitem").first
    expect(first).to_contain_text(f"▲ {host} →")
    expect(first).to_contain_text("+")
    # At the beginning of the step nothing has flowed yet; without the culprit less does.
    fabric.get_by_label("Time in the step").fill("0")
    expect(first).not_to_contain_text("+")
    fabric.get_by_label("Time in the step").fill("1")
    as_it_was = drawing.get_attribute("aria-label")
    fabric.get_by_label("Replay").select_option(index=1)
    expect(drawing).not_to_have_attribute("aria-label", str(as_it_was))
    # Nothing moves by itself where the reader's system asks for that.
    expect(fabric.get_by_role("button", name="Play")).to_have_count(0)
    assert seen.axe() == []


def test_a_replay_pauses_and_goes_on(seen: Watched, stage: Stage) -> None:
    page = seen.page
    found = stage.service.client.get("/v1/incidents", params={"cause": "pause_storm"}).json()
    page.emulate_media(reduced_motion="no-preference")
    seen.open(f"/compare/steps/{OTHER_JOB}?incident={found['items'][0]['id']}")
    fabric = page.get_by_role("region", name="Over the fabric")
    fabric.get_by_role("button", name="Play").click()
    time = fabric.get_by_label("Time in the step")
    seen.until(lambda: 0 < float(time.input_value()) < 1, "the replay runs")
    fabric.get_by_role("button", name="Pause").click()
    paused = float(time.input_value())
    fabric.get_by_role("button", name="Play").click()
    seen.until(lambda: float(time.input_value()) == 1, "the replay ends")
    expect(fabric.get_by_role("button", name="Play")).to_be_visible()
    assert 0 < paused <= 1


def test_a_notices_evidence_is_in_sight_when_its_link_is_opened(
    seen: Watched, stage: Stage
) -> None:
    found = stage.service.client.get("/v1/incidents", params={"cause": "straggler"}).json()
    incident = found["items"][0]["id"]
    seen.page.set_viewport_size({"width": 390, "height": 700})
    heading = seen.page.get_by_role("heading", name="Evidence", exact=True)
    seen.open(f"/incident/{incident}")
    expect(heading).not_to_be_in_viewport()
    seen.open(f"/incident/{incident}?show=evidence")
    expect(heading).to_be_in_viewport()


STAGES = {
    "job": OTHER_JOB,
    "from_ns": START_S * NS,
    "to_ns": END_S * NS,
    "pipelines": 4,
    "steps": 40,
    "step_ns": 2 * NS,
    "basis": "kernels",
    "bubble_share": 0.25,
    "stages": [
        {
            "stage": stage,
            "ranks": [2 * stage, 2 * stage + 1],
            "ranks_total": 2,
            "own_ns": NS,
            "wait_ns": NS // 2,
            "transfer_ns": NS // 4,
            "bubble_share": 0.29,
            "own_most_ns": NS,
            "own_most_rank": 2 * stage,
            "saved_share": 0.05 * stage,
        }
        for stage in range(2)
    ],
    "pace": 1,
    "unknown": [],
}
ONE_SERIES = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {}, "value": [END_S, "8"]}]},
}


def test_stages_are_asked_for_where_ranks_send_each_other_messages(seen: Watched) -> None:
    """What a pipeline's answer has is `tests/unit/alerts/test_stages.py`'s matter."""
    page = seen.page
    seen.open(f"/job/{OTHER_JOB}?{SPAN}")
    stages = page.get_by_role("region", name="Stages of the pipeline", exact=True)
    expect(stages).to_have_count(0)
    assert not any("/stages" in url for url in seen.asked)
    page.route(re.compile("send_recv"), lambda one: one.fulfill(json=ONE_SERIES))
    page.route("**/stages?*", lambda one: one.fulfill(json=STAGES))
    page.reload()
    expect(stages).to_contain_text("4 pipelines of 2 stages")
    row = stages.get_by_role("row", name="sets the pace")
    expect(row).to_contain_text("2-3")
    row.get_by_role("button", name="rank 2").click()
    expect(page).to_have_url(re.compile("rank=2"))
    seen.settle()
    (asked,) = (url for url in seen.asked if "/stages" in url)
    assert f"from={END_S - 300}&to={END_S}" in asked
    assert seen.axe() == []


def test_two_jobs_are_on_one_axis_and_the_address_holds_the_choice(seen: Watched) -> None:
    page = seen.page
    seen.open(f"/compare?{SPAN}")
    expect(page.get_by_text("Choose two of a kind")).to_be_visible()
    for name, job in (("first", OTHER_JOB), ("second", VICTIM_JOB)):
        field = page.get_by_label(name, exact=True)
        field.fill(job)
        field.press("Tab")
    expect(page.get_by_role("img", name=f"{OTHER_JOB} against {VICTIM_JOB}")).to_be_visible()
    expect(page).to_have_url(re.compile(f"a={OTHER_JOB}&b={VICTIM_JOB}"))
    seen.settle()
    expect(page.get_by_text("no readings in this time")).to_have_count(0)


def test_who_shares_an_uplink_is_beside_it(seen: Watched, stage: Stage) -> None:
    page = seen.page
    links = stage.service.client.get("/v1/links", params={"host": "leaf-pod0-rail0"}).json()
    (uplink, *_) = [one["id"] for one in links["items"] if "spine" in one["id"]]
    seen.open(f"/fabric?focus={uplink}&{SPAN}")
    shares = page.get_by_role("region", name="Who shares it")
    for job in (OTHER_JOB, VICTIM_JOB):
        expect(shares.get_by_text(job, exact=True)).to_be_visible()
    shares.get_by_text(VICTIM_JOB, exact=True).click()
    expect(shares.get_by_text(f"{CULPRIT}/mlx5_0", exact=False).first).to_be_visible()


def test_a_metric_that_does_not_exist_is_corrected_by_a_click(seen: Watched) -> None:
    page = seen.page
    seen.open(f"/explore?query=fabric_gpu_temprature_celsius&{SPAN}")
    wrong = page.get_by_role("status").filter(has_text="No such metric")
    expect(wrong).to_have_text(
        re.compile(r"Did you mean fabric_gpu_temperature_celsius, fabric_\w+ or fabric_\w+\?$")
    )
    nothing = page.get_by_role("region", name="Nothing from A")
    expect(nothing).to_contain_text("There is no metric fabric_gpu_temprature_celsius")
    page.get_by_role("button", name="fabric_gpu_temperature_celsius", exact=True).first.click()
    expect(page).to_have_url(re.compile("query=fabric_gpu_temperature_celsius"))
    seen.settle()
    expect(page.get_by_text("No such metric")).to_have_count(0)
    expect(page.get_by_text(re.compile("samples? read"))).to_be_visible()
    page.get_by_text("What it reads").click()
    expect(page.get_by_text("12 series", exact=False).first).to_be_visible()
