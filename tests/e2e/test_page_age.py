"""The built-in page before a slow service and old data: it waits for answers, and tells their age.

The browser's clock stands where the data ends and is moved on by hand. Answers are held back in the
browser, so that how slow they are depends on no machine.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from playwright.sync_api import Page, Request, Route, expect

from api.promql.narrow import is_named_by_right
from api.promql.parse import parse_query
from api.promql.plan import Binary, nodes_of
from collector.contract.units import NS
from collector.contract.verdict import Cause
from tests.stands.browser import Watched
from tests.worlds.incidents import slow_link
from tests.worlds.page_data import CULPRIT, END_S, START_S, VICTIM_JOB, Stage

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.slow]


class Held:
    """Requests of one path, held back until the test lets them go; ``among``: with these words."""

    def __init__(self, page: Page, path: str, among: str = "") -> None:
        self.waiting: list[Route] = []
        self.asked = 0
        self.given_up: list[str] = []
        self._is_over = False
        page.route(f"**{path}*{among}*" if among else f"**{path}*", self._hold)
        page.on("requestfailed", lambda one: self._note(one, path))

    def _hold(self, route: Route) -> None:
        self.asked += 1
        if self._is_over:
            route.continue_()
        else:
            self.waiting.append(route)

    def _note(self, request: Request, path: str) -> None:
        if path in request.url:
            self.given_up.append(request.url)

    def let_go(self) -> None:
        """Let the oldest be answered."""
        self.waiting.pop(0).continue_()

    def let_all_go(self) -> None:
        """Also those that are still to come."""
        self._is_over = True
        while self.waiting:
            self.let_go()


def move_clock(page: Page, seconds: float) -> None:
    """The page sees it at its next tick, within five real seconds."""
    page.clock.set_fixed_time(dt.datetime.fromtimestamp(END_S + seconds, tz=dt.UTC))


@contextmanager
def asked_again(seen: Watched, path: str) -> Iterator[None]:
    """What is done here makes the page ask for this path once more."""
    before = count_of(seen, path)
    yield
    seen.until(lambda: count_of(seen, path) > before, f"{path} is asked for again")


def count_of(seen: Watched, path: str) -> int:
    return sum(path in url for url in seen.asked)


@pytest.mark.parametrize(
    ("address", "slow", "pulse", "shown", "asked"),
    [
        # What is shown, that again, and all of the range behind it.
        ("/fabric", "/v1/fabric/state", "/v1/topology", "Worst links", 3),
        (f"/job/{VICTIM_JOB}", f"/v1/jobs/{VICTIM_JOB}/timeline", "/verdict", "Steps:", 2),
        (f"/compare/steps/{VICTIM_JOB}", "/steps/differ", "/v1/freshness", "How slow steps", 2),
    ],
)
def test_an_answer_slower_than_the_pulse_is_shown(
    seen: Watched, address: str, slow: str, pulse: str, shown: str, asked: int
) -> None:
    page = seen.page
    # Told the service's time, which stands, the page would turn back: a third question, if it is
    # told so after it has asked about the time that it had moved on to.
    with_ages(page, 3, 2)
    held = Held(page, slow)
    page.goto(f"{seen.url}/#{address}")
    seen.until(lambda: held.asked == 1, "the slow answer is asked for")
    for seconds in (31, 122):
        with asked_again(seen, pulse):
            move_clock(page, seconds)
    assert (held.asked, held.given_up) == (1, []), "a pulse does not end a question"
    expect(page.locator(".state.loading").first).to_contain_text("for 2 min")
    held.let_go()
    expect(
        page.get_by_role("img", name=shown).or_(page.get_by_role("region", name=shown)).first
    ).to_be_visible()
    seen.until(lambda: held.asked == asked, "what the pulses wanted is asked for now")
    held.let_all_go()
    seen.settle()
    assert (held.asked, held.given_up) == (asked, [])


def test_the_fabric_does_not_wait_for_its_past(seen: Watched) -> None:
    page = seen.page
    held = Held(page, "/v1/fabric/state", "frames=60")
    page.goto(f"{seen.url}/#/fabric")
    seen.until(lambda: held.asked == 1, "the range is asked for behind what is shown")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("The busiest carries")
    expect(page.locator(".fabric-moment")).to_contain_text("asking for others")
    expect(page.locator("main .state.loading")).to_have_count(0)
    slider = page.get_by_role("slider", name="Moment")
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("being asked"))
    expect(heading).to_contain_text("how they fare is being asked")
    held.let_all_go()
    # The data are younger than the range.
    expect(heading).to_contain_text("none has a reading at this moment")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("worst link"))
    expect(page.locator(".fabric-moment")).to_contain_text("mean of 30 s")
    seen.settle()


def test_another_range_takes_the_place_of_the_question_under_way(seen: Watched) -> None:
    page = seen.page
    held = Held(page, "/v1/fabric/state")
    page.goto(f"{seen.url}/#/fabric")
    seen.until(lambda: held.asked == 1, "the state is asked for")
    page.get_by_role("combobox", name="Time range").select_option("1h")
    seen.until(lambda: held.asked == 2, "the state of the hour is asked for")
    seen.until(lambda: len(held.given_up) == 1, "the question before is given up")
    held.waiting.pop(0)
    held.let_all_go()
    seen.settle()


def test_a_view_that_fails_keeps_what_it_showed_and_its_age(seen: Watched) -> None:
    page = seen.page
    seen.open(f"/hosts/{CULPRIT}")
    page.route(
        f"**/v1/hosts/{CULPRIT}/health*",
        lambda route: route.fulfill(
            status=503,
            content_type="application/problem+json",
            body='{"title": "busy", "detail": "the store is away", "status": 503}',
        ),
    )
    with asked_again(seen, f"/v1/hosts/{CULPRIT}/health"):
        move_clock(page, 120)
    stale = page.locator(".state.stale").first
    expect(stale).to_contain_text("As it was 2 min ago: the store is away")
    expect(page.get_by_role("heading", level=1)).to_contain_text(CULPRIT)
    seen.faults.clear()  # the browser itself tells of the status


def with_ages(page: Page, data_s: float | None, evaluation_s: float | None) -> None:
    """The service says from now on that data and evaluation are so old, and not what time it is."""
    ages = {
        name: {"at": None, "age_seconds": age, "bound_seconds": 60, "is_late": False}
        for name, age in (("data", data_s), ("evaluation", evaluation_s))
    }
    page.route("**/v1/freshness", lambda route: route.fulfill(json=ages))


@pytest.mark.parametrize(
    ("data_s", "evaluation_s", "said"),
    [
        (3, 2, "Live"),
        (1200, 2, "Data 20 min old"),
        (3, 75, "Not evaluated for 75 s"),
        (1200, 180, "Data 20 min old, not evaluated for 3 min"),
        (None, None, "No data yet"),
    ],
)
def test_live_means_new_data_and_a_new_evaluation(
    seen: Watched, data_s: float | None, evaluation_s: float | None, said: str
) -> None:
    page = seen.page
    with_ages(page, data_s, evaluation_s)
    seen.open("/incident")
    expect(page.locator(".live")).to_have_text(said)


def test_ages_are_by_the_service_s_clock(seen: Watched) -> None:
    """The browser's is ten minutes ahead: by it the data would be old, and the ranges empty."""
    page = seen.page
    move_clock(page, 600)
    seen.open("/")
    expect(page.locator(".clock-now")).to_have_text("15 Nov 2026, 09:08 UTC")
    expect(page.locator(".now-short li").first).to_contain_text(re.compile(r"^[1-7] min ago"))
    expect(page.get_by_role("row", name=VICTIM_JOB)).not_to_contain_text("no data")
    seen.settle()


def test_what_was_live_grows_old_without_answers(seen: Watched) -> None:
    page = seen.page
    seen.open("/incident")
    expect(page.locator(".live")).to_have_text("Live")
    held = Held(page, "/v1/freshness")
    move_clock(page, 300)
    expect(page.locator(".live")).to_contain_text("Data 5 min old")
    held.let_go()


@pytest.mark.parametrize("address", ["/", "/job"])
def test_a_job_that_fell_silent_says_since_when(seen: Watched, address: str) -> None:
    """Twenty minutes after the last sample: PromQL knows none; the inventory says that it runs."""
    page = seen.page
    with_ages(page, 1200, 2)
    move_clock(page, 1200)
    seen.open(address)
    row = page.get_by_role("row", name=VICTIM_JOB)
    expect(row).to_contain_text("no data since 09:07:40")


def test_plots_of_a_job_that_fell_silent_say_so(seen: Watched) -> None:
    page = seen.page
    with_ages(page, 1200, 2)
    move_clock(page, 1200)
    seen.open(f"/job/{VICTIM_JOB}")
    expect(page.locator(".track-warning").first).to_contain_text("no data since 09:0")


def parameters_of(seen: Watched, path: str) -> list[dict[str, str]]:
    """Of every request so far whose path begins so."""
    asked = (urlsplit(url) for url in seen.asked)
    return [dict(parse_qsl(one.query)) for one in asked if one.path.startswith(path)]


def test_a_job_that_ended_is_asked_about_at_its_own_time(seen: Watched) -> None:
    """Its address names no time: "now" would show nothing, and cost as much."""
    page, end_s = seen.page, START_S + 240

    def say_ended(route: Route) -> None:
        answer = route.fetch()
        ended_at = dt.datetime.fromtimestamp(end_s, tz=dt.UTC).isoformat()
        route.fulfill(json={**answer.json(), "state": "ended", "ended_at": ended_at})

    page.route(f"**/v1/jobs/{VICTIM_JOB}", say_ended)
    seen.open(f"/job/{VICTIM_JOB}")
    assert f"to={end_s}" in page.url
    own = parameters_of(seen, f"/v1/jobs/{VICTIM_JOB}/")
    ends = [one["to"] for one in own if "to" in one]
    ends += [one["end"] for one in parameters_of(seen, "/api/v1/query_range")]
    assert len(ends) > 5
    assert max(float(end) for end in ends) <= end_s


def test_a_job_s_questions_read_its_hosts_alone(seen: Watched) -> None:
    """The service may only do so where nothing of the other hosts can matter."""
    seen.open(f"/job/{VICTIM_JOB}")
    texts = [one["query"] for one in parameters_of(seen, "/api/v1/query_range")]
    matches = [
        node
        for text in texts
        for node in nodes_of(parse_query(text))
        if isinstance(node, Binary) and node.operator == "and"
    ]
    assert len(matches) > 10
    assert all(is_named_by_right(one) for one in matches)


def incident_of(stage: Stage, cause: str, state: str) -> str:
    found = stage.service.client.get("/v1/incidents", params={"cause": cause, "state": state})
    return str(found.json()["items"][0]["id"])


def test_in_the_fabric_shows_the_incident_s_time_metric_and_both_ends(seen: Watched) -> None:
    page = seen.page
    seen.open("/")
    card = page.get_by_role("article", name="makes its senders pause")
    card.get_by_role("link", name="In the fabric").click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("At fault: node0004 mlx5_0")
    expect(heading).to_contain_text(
        "leaf-pod1-rail0 Ethernet4 (pause storm). Other incidents then:"
    )
    expect(page.get_by_role("button", name="Paused", pressed=True).first).to_be_visible()
    side = page.get_by_role("region", name="Link", exact=True)
    expect(side).to_contain_text("pause storm")
    expect(side).to_contain_text("Lower endnode0004 mlx5_0")
    expect(side).to_contain_text("Upper endleaf-pod1-rail0 Ethernet4")
    seen.settle()


def test_in_the_fabric_goes_back_to_what_is_over(seen: Watched, stage: Stage) -> None:
    """The straggler of the beginning: at the end of the range it is not at fault any more."""
    page = seen.page
    seen.open(f"/incident/{incident_of(stage, 'straggler', 'closed')}")
    page.get_by_role("link", name="In the fabric").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("At fault: node0001 (straggler)")
    expect(page.get_by_role("region", name="node0001")).to_be_visible()
    seen.settle()


def test_an_open_incident_that_was_not_seen_for_minutes_says_so(
    seen: Watched, stage: Stage
) -> None:
    """It stays open for ten minutes, as flaps come back; the fabric shows it while it was seen."""
    flap = slow_link((END_S - 300) * NS, job="pretrain")
    over_ns = (END_S - 200) * NS
    stage.say(msgspec.structs.replace(flap, cause=Cause.LINK_FLAP, until_ns=over_ns))
    page = seen.page
    seen.open("/")
    card = page.get_by_role("article").filter(has_text="node3").first
    expect(card).to_contain_text("last seen 3 min ago")
    way = card.get_by_role("link", name="In the fabric").get_attribute("href") or ""
    assert f"at={END_S - 250}" in way
    seen.open(f"/incident/{incident_of(stage, 'link_flap', 'open')}")
    card = page.get_by_role("article").first
    expect(card).to_contain_text("last seen 3 min ago")
