"""The built-in page in a real browser, before a service with a simulated cluster in trouble.

The browser's clock stands where the data ends, so that nothing is polled: what changes on the
screen was pushed by the service. The service that is empty, asks for a token and goes away is
another one, a real process, with a real clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from collector.contract.units import NS
from tests.e2e.conftest import Opener
from tests.stands.browser import HEIGHT, PHONE_WIDTH, WIDTH, Watched, watched
from tests.stands.service import ServiceProcess
from tests.worlds.incidents import slow_link
from tests.worlds.page_data import CULPRIT, END_S, START_S, VICTIM_JOB, Stage

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.slow]

TOKEN = "a-token-of-decent-length"  # noqa: S105 - of a service that lives for a minute
FIRST_VIEW_BYTES_MAX = 300_000
NOT_REACHED = "net::ERR_"
NO_TOKEN = "401 (Unauthorized)"  # noqa: S105 - what the browser says
MENU = {
    "Now": "n",
    "Fabric": "f",
    "Jobs": "j",
    "Matrix": "m",
    "Compare": "c",
    "Incidents": "i",
    "Explore": "e",
    "Hosts": "h",
    "Settings": "s",
}
"""Every view of the menu with its key."""
VIEWS = {
    "now": "/",
    "fabric": f"/fabric?focus={CULPRIT}",
    "jobs": "/job",
    "job": f"/job/{VICTIM_JOB}?rank=0&step={END_S - 30}",
    "matrix": f"/matrix?job={VICTIM_JOB}",
    "compare": f"/compare?a=pretrain&b={VICTIM_JOB}",
    "steps": f"/compare/steps/{VICTIM_JOB}?incident={{incident}}",
    "incidents": "/incident",
    "incident": "/incident/{incident}",
    "costs": "/costs",
    "explore": "/explore",
    "explore-plot": "/explore?query=fabric_gpu_temperature_celsius",
    "explore-table": "/explore?query=fabric_gpu_temperature_celsius&shown=table",
    "hosts": "/hosts",
    "host": f"/hosts/{CULPRIT}",
    "settings": "/settings",
    "settings-rules": "/settings/rules",
    "settings-notices": "/settings/notices",
    "settings-agents": "/settings/agents",
    "settings-rollouts": "/settings/rollouts",
    "settings-browser": "/settings/browser",
    "no-view": "/nowhere",
}
"""Every view and part of one; `{incident}` is the culprit's."""

each_view = pytest.mark.rotating(6, "views")
"""Of the views a run looks at two parts of six; the others come in turn (`tests.tools.cut`)."""


@pytest.fixture(scope="module", params=VIEWS)
def view(request: pytest.FixtureRequest, opener: Opener, stage: Stage) -> Iterator[Watched]:
    """A view that is loaded once for all tests that ask for it."""
    with opener() as seen:
        seen.open(address_of(request.param, stage))
        yield seen


def address_of(name: str, stage: Stage) -> str:
    """What stands behind the `#` for a view."""
    return VIEWS[name].format(incident=culprits_incident(stage))


def culprits_incident(stage: Stage) -> str:
    """The incident about the injected fault."""
    wanted = {"host": CULPRIT, "cause": "straggler"}
    (found,) = stage.service.client.get("/v1/incidents", params=wanted).json()["items"]
    return str(found["id"])


def query_of(page: Page) -> dict[str, str]:
    """The parameters of the view that is shown."""
    found = parse_qs(urlsplit(page.url.partition("#")[2]).query)
    return {name: values[0] for name, values in found.items()}


# --- what a person does ---------------------------------------------------------------------------


def test_the_culprit_is_found_in_three_clicks(seen: Watched) -> None:
    page = seen.page
    seen.open("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("things are wrong")
    mine = page.get_by_role("table", name="Running jobs").get_by_role("row", name=VICTIM_JOB)
    mine.get_by_role("link", name="Straggler").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(CULPRIT)
    page.get_by_role("list", name="Culprit").get_by_role("link", name=CULPRIT).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(CULPRIT)
    seen.settle()


def test_news_arrive_without_a_reload(seen: Watched, stage: Stage) -> None:
    page = seen.page
    seen.open("/")
    said = page.get_by_role("article", name="node3's NIC is slow")
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    expect(said).to_have_count(0)
    page.evaluate("() => { window.isTheSame = true }")
    stage.say(slow_link(END_S * NS))
    expect(said).to_be_visible()
    assert page.evaluate("() => window.isTheSame")
    expect(page.get_by_text("Incident opened: node3's NIC is slow")).to_be_attached()


def test_the_fabrics_slider_goes_back_in_time(seen: Watched) -> None:
    page = seen.page
    seen.open(f"/fabric?from={START_S}&to={END_S}")
    heading, slider = page.get_by_role("heading", level=1), page.get_by_role("slider")
    expect(heading).to_contain_text(f"{CULPRIT} (straggler)")
    after = heading.text_content()
    slider.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    early_s = float(query_of(page)["at"])
    assert START_S < early_s < END_S
    slider.press("Home")
    expect(heading).not_to_contain_text(CULPRIT)
    assert heading.text_content() != after
    assert START_S < float(query_of(page)["at"]) < early_s
    page.get_by_role("button", name="End", exact=True).click()
    expect(heading).to_contain_text(f"{CULPRIT} (straggler)")
    assert "at" not in query_of(page)


def drag(page: Page, drawing: Locator, start: float, end: float) -> None:
    """With the left button, between two shares of its width; then away with the hand."""
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()
    page.mouse.move(0, 0)


def test_brushing_selects_a_time_for_all_plots(seen: Watched) -> None:
    page = seen.page
    seen.open(f"/job/{VICTIM_JOB}?from={START_S}&to={END_S}")
    steps, heat = page.get_by_role("img", name="Steps:"), page.get_by_role("img", name="Who comes")
    before = steps.get_attribute("aria-label"), heat.get_attribute("aria-label")
    drag(page, steps, 0.3, 0.6)
    expect(page).to_have_url(re.compile(rf"from=(?!{START_S}&)"))
    seen.settle()
    chosen = query_of(page)
    from_s, to_s = float(chosen["from"]), float(chosen["to"])
    assert START_S < from_s < to_s < END_S
    # Names of rows stand left of the plot, so that a share of the picture is more of the time.
    assert 0.25 < (to_s - from_s) / (END_S - START_S) < 0.45
    after = steps.get_attribute("aria-label"), heat.get_attribute("aria-label")
    assert all(one != other for one, other in zip(before, after, strict=True))
    page.get_by_role("button", name="Back", exact=True).click()
    seen.settle()
    assert (steps.get_attribute("aria-label"), heat.get_attribute("aria-label")) == before


def choose_in_job(seen: Watched) -> None:
    """Another time, another quantity, a step of a rank."""
    page = seen.page
    seen.open(f"/job/{VICTIM_JOB}?from={START_S}&to={END_S}")
    drag(page, page.get_by_role("img", name="Steps:"), 0.5, 0.9)
    seen.settle()
    page.get_by_role("combobox", name="What the colours show").select_option("Waiting")
    seen.settle()
    page.get_by_role("img", name="Who waits").click()
    expect(page).to_have_url(re.compile("step="))
    page.mouse.move(0, 0)


def choose_in_fabric(seen: Watched) -> None:
    """Another colour, a rail, a link, a moment."""
    page = seen.page
    seen.open(f"/fabric?from={START_S}&to={END_S}")
    page.get_by_role("group", name="Colour of links").get_by_text("Paused").click()
    page.get_by_role("combobox", name="Rail").select_option("Rail 0")
    page.get_by_role("slider").press("ArrowLeft")
    page.get_by_role("combobox", name="Find a host").fill(CULPRIT)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("focus="))


def choose_in_explore(seen: Watched) -> None:
    """A query, as a table."""
    page = seen.page
    seen.open(f"/explore?from={START_S}&to={END_S}")
    page.get_by_role("textbox", name="Query A").click()
    page.keyboard.insert_text("max by (host) (fabric_gpu_temperature_celsius)")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("cell", name=CULPRIT)).to_be_visible()


def said_by(seen: Watched) -> list[str]:
    """The view's text, without the query's duration and the button "Back"."""
    said = seen.page.locator("main").aria_snapshot()
    return re.sub(r'button "Back".*|series in .*', "", said).splitlines()


@pytest.mark.parametrize("choose", [choose_in_job, choose_in_fabric, choose_in_explore])
def test_an_address_shows_the_same_to_somebody_else(
    seen: Watched, opener: Opener, choose: Callable[[Watched], None]
) -> None:
    choose(seen)
    seen.settle()
    with opener() as other:
        other.open(seen.page.url.partition("#")[2])
        assert said_by(other) == said_by(seen)


def test_promql_is_completed_and_run(seen: Watched) -> None:
    page = seen.page
    seen.open("/explore")
    field = page.get_by_role("textbox", name="Query A")
    field.click()
    field.press_sequentially("fabric_gpu_temp")
    page.get_by_role("option", name="fabric_gpu_temperature_celsius").click()
    field.press_sequentially("{ho")
    page.get_by_role("option", name=re.compile("^host")).first.click()
    field.press_sequentially('="')
    page.get_by_role("option", name=CULPRIT).click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page).to_have_url(re.compile("query="))
    seen.settle()
    asked = f'fabric_gpu_temperature_celsius{{host="{CULPRIT}"}}'
    assert query_of(page)["query"] == asked
    expect(page.get_by_text("2 series").first).to_be_visible()


# --- what every view must be ----------------------------------------------------------------------


@each_view
def test_a_view_makes_no_error_and_asks_nobody_else(view: Watched) -> None:
    assert view.faults == []
    expect(view.page.get_by_role("main")).not_to_be_empty()
    expect(view.page.locator(".state.failed")).to_have_count(0)


@each_view
def test_a_view_is_accessible(view: Watched) -> None:
    assert view.axe() == []


@each_view
def test_a_view_can_be_read_in_the_dark(view: Watched) -> None:
    view.page.emulate_media(color_scheme="dark")
    try:
        expect(view.page.locator("html")).to_have_attribute("data-theme", "dark")
        assert view.axe("color-contrast") == []
    finally:
        view.page.emulate_media(color_scheme="light")


@each_view
def test_a_view_fits_a_phone(view: Watched) -> None:
    view.page.set_viewport_size({"width": PHONE_WIDTH, "height": HEIGHT})
    try:
        view.settle()
        wide = view.page.evaluate(
            """width => [...document.querySelectorAll("body *")]
                .filter(one => one.getBoundingClientRect().right > width + 1)
                .map(one => one.outerHTML.slice(0, 120))""",
            PHONE_WIDTH,
        )
        whole = view.page.evaluate("() => document.documentElement.scrollWidth")
        assert whole <= PHONE_WIDTH, f"{whole} pixels; beyond the edge: {wide[:8]}"
    finally:
        view.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


@each_view
@pytest.mark.parametrize("width", [PHONE_WIDTH, 760, WIDTH])
def test_no_words_lie_on_others(view: Watched, width: int) -> None:
    view.page.set_viewport_size({"width": width, "height": HEIGHT})
    try:
        view.settle()
        assert view.overlaps() == []
    finally:
        view.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def test_words_on_others_are_found(seen: Watched) -> None:
    seen.open("/costs")
    assert seen.overlaps() == []
    seen.page.add_style_tag(content=".tile b { margin-top: -1.2em }")
    found = seen.overlaps()
    assert any('"GPU-hours lost" on' in one or 'on "GPU-hours lost"' in one for one in found), found


@pytest.mark.parametrize(
    "rule", ["{ padding-left: 0 !important }", "::before { position: absolute; margin: 0 }"]
)
def test_a_card_s_words_on_its_names_are_found(seen: Watched, rule: str) -> None:
    """Names of columns on a phone, which no node of the document holds."""
    seen.page.set_viewport_size({"width": PHONE_WIDTH, "height": HEIGHT})
    seen.open(VIEWS["job"])
    assert seen.overlaps() == []
    seen.page.add_style_tag(content=f".scrolled.carded td{rule}")
    assert seen.overlaps() != []


SHIFT_MAX = 0.05
"""Half of what browsers call good for a visit (0.1): a button that moves is clicked wrongly."""
MATRIX_SHIFT_MAX = 0.1
"""Its map's labels and what is below it wait for the incidents, of which none may come."""
STEADY = VIEWS | {"job-alone": f"/job/{VICTIM_JOB}"}
"""A job also without a chosen step."""
WATCH_SHIFTS = """
    window.shifts = [];
    new PerformanceObserver(list => {
        for (const { value, sources } of list.getEntries())
            window.shifts.push([value, sources.map(({ node }) => node?.outerHTML?.slice(0, 90))]);
    }).observe({ type: "layout-shift", buffered: true });
"""


@pytest.mark.rotating(12)
@pytest.mark.parametrize("width", [WIDTH, PHONE_WIDTH])
@pytest.mark.parametrize("name", sorted(STEADY))
def test_a_view_that_loads_does_not_jump(
    seen: Watched, stage: Stage, name: str, width: int
) -> None:
    page = seen.page
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.add_init_script(WATCH_SHIFTS)
    seen.open(STEADY[name].format(incident=culprits_incident(stage)))
    shifts = page.evaluate("() => window.shifts")
    most = MATRIX_SHIFT_MAX if name == "matrix" else SHIFT_MAX
    assert sum(value for value, _ in shifts) < most, shifts


# --- the keyboard ---------------------------------------------------------------------------------


def test_every_view_has_a_key(seen: Watched) -> None:
    page = seen.page
    seen.open("/nowhere")
    for name, key in MENU.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        current = page.get_by_role("navigation", name="Views").locator("[aria-current=page]")
        expect(current).to_have_text(name)
        seen.settle()


def test_help_is_shown_and_goes_away(seen: Watched) -> None:
    page = seen.page
    seen.open("/")
    told = page.get_by_role("complementary", name="Keyboard")
    page.keyboard.press("?")
    expect(told).to_be_visible()
    page.keyboard.press("Escape")
    expect(told).to_have_count(0)


def test_a_dialog_is_escaped(seen: Watched, stage: Stage) -> None:
    page = seen.page
    seen.open(address_of("incident", stage))
    page.get_by_role("button", name="Silence").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("() => document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_an_operator_says_what_it_was(seen: Watched, stage: Stage) -> None:
    seen.open(f"/incident/{culprits_incident(stage)}")
    page = seen.page
    panel = page.get_by_role("region", name="Was it right?")
    expect(panel).to_contain_text("No operator has answered yet.")
    panel.get_by_role("button", name="Right").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Enter your name.")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_role("button", name="Say so").click()
    expect(panel.get_by_role("listitem")).to_contain_text("right ann")
    expect(panel).to_contain_text("later versions are held against it")
    expect(panel.get_by_role("link", name="Window without names")).to_be_visible()
    panel.get_by_role("button", name="Another cause").click()
    dialog.get_by_role("combobox").select_option("slow_link")
    dialog.get_by_label("Host").fill(CULPRIT)
    dialog.get_by_label("NIC").fill("mlx5_0")
    dialog.get_by_label("Note").fill("its fan has failed")
    dialog.get_by_role("button", name="Say so").click()
    first = panel.get_by_role("listitem").first
    expect(first).to_contain_text(f"it was Slow link: {CULPRIT} · mlx5_0")
    expect(first).to_contain_text("its fan has failed")
    expect(panel.get_by_role("listitem").last).to_contain_text("replaced")
    assert seen.faults == []


def test_what_has_the_focus_is_seen(seen: Watched) -> None:
    page = seen.page
    seen.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="To the content")).to_be_focused()
    expect(page.get_by_role("button", name="To the content")).to_be_in_viewport()
    unseen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        said = page.evaluate(
            """() => {
                const one = document.activeElement;
                const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(one);
                const isSeen = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
                return isSeen || boxShadow !== "none" ? "" : one.outerHTML.slice(0, 120);
            }"""
        )
        unseen += [said] if said else []
    assert unseen == []


# --- little data, no data, no service -------------------------------------------------------------


def test_the_first_view_is_small(seen: Watched) -> None:
    sizes: dict[str, int] = {}
    seen.page.on(
        "requestfinished",
        lambda one: sizes.update({urlsplit(one.url).path: one.sizes()["responseBodySize"]}),
    )
    seen.open("/")
    of_page = {path: size for path, size in sizes.items() if path == "/" or "/assets/" in path}
    assert len(of_page) > 3
    assert sum(of_page.values()) <= FIRST_VIEW_BYTES_MAX, of_page


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service without data that requires a token."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "tokens").write_text(TOKEN)
    config = folder / "service.toml"
    config.write_text(f'token_file = "{folder / "tokens"}"\nrules_pack = false\n')
    with ServiceProcess(folder / "data", "--config", str(config)) as service:
        yield service


def enter_token(seen: Watched) -> None:
    """As a person does who was asked for it."""
    seen.page.goto(f"{seen.url}/")
    asked = seen.page.get_by_role("dialog", name="This service asks for a token")
    asked.get_by_label("Token").fill(TOKEN)
    with seen.page.expect_navigation():
        asked.get_by_role("button", name="Go on").click()
    seen.settle()


def test_a_token_is_asked_for_and_nothing_is_shown_as_nothing(
    browser: Browser, empty: ServiceProcess
) -> None:
    with watched(browser, empty.url) as seen:
        enter_token(seen)
        assert seen.faults
        assert all(NO_TOKEN in fault for fault in seen.faults)
        seen.faults.clear()
        for name in ("now", "fabric", "jobs", "matrix", "incidents", "costs", "explore", "hosts"):
            seen.go(VIEWS[name].partition("?")[0])
            expect(seen.page.locator(".state.failed")).to_have_count(0)
            expect(seen.page.get_by_role("main")).not_to_be_empty()
        for part in ("", "/rules", "/notices", "/agents", "/rollouts"):
            seen.go(f"/settings{part}")
            expect(seen.page.locator(".state.failed")).to_have_count(0)
        expect(seen.page.get_by_role("dialog")).to_have_count(0)
        assert TOKEN not in "".join(seen.asked)
        assert seen.faults == []


@pytest.mark.rotating(3, turn=1)
def test_a_service_that_goes_away_and_comes_back(browser: Browser, empty: ServiceProcess) -> None:
    with watched(browser, empty.url) as seen:
        page = seen.page
        enter_token(seen)
        seen.go("/incident")
        seen.faults.clear()
        empty.kill()
        expect(page.get_by_role("status").filter(has_text="No connection")).to_be_visible()
        expect(page.locator(".state.stale").first).to_be_visible()
        seen.go("/")
        expect(page.get_by_role("alert").first).to_contain_text("The service does not answer")
        empty.start()
        # The user need not reload the page.
        expect(page.get_by_role("alert")).to_have_count(0)
        # Connected again; but no agent reports to this service, so that nothing is live.
        expect(page.get_by_role("status").filter(has_text="No data yet")).to_be_visible()
        assert all(NOT_REACHED in fault for fault in seen.faults), seen.faults
