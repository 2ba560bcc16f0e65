"""The built-in page as people read it: on a phone, at a time of their own, in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from urllib.parse import urlencode

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, Route, expect

from tests.stands.browser import HEIGHT, PHONE_WIDTH, WIDTH, Watched
from tests.worlds.page_data import CULPRIT, END_S, START_S, VICTIM_JOB, Stage

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.slow]


@pytest.fixture
def phone(seen: Watched) -> Page:
    seen.page.set_viewport_size({"width": PHONE_WIDTH, "height": HEIGHT})
    return seen.page


def is_within(page: Page, selector: str) -> bool:
    """Whether everything that is called so lies between the phone's edges."""
    return bool(
        page.evaluate(
            """([selector, width]) => [...document.querySelectorAll(selector)].every(one => {
                const { left, right } = one.getBoundingClientRect();
                return left >= 0 && right <= width;
            })""",
            [selector, PHONE_WIDTH],
        )
    )


@pytest.mark.parametrize(
    ("address", "label", "cell"),
    [
        ("/job", "Jobs", "Rank 1 on node0002"),
        ("/hosts", "Hosts", "Straggler"),
        ("/", "Running jobs", "Straggler"),
        ("/incident", "Incidents", "Straggler"),
    ],
)
def test_a_phone_shows_the_verdict_of_every_row(
    seen: Watched, phone: Page, address: str, label: str, cell: str
) -> None:
    seen.open(address)
    table = phone.get_by_role("table", name=label, exact=True)
    expect(table.get_by_text(re.compile(cell)).first).to_be_visible()
    assert is_within(phone, f"table[aria-label='{label}'] td")
    assert not phone.evaluate(
        "label => { const { scrollWidth, clientWidth } = document.querySelector("
        "`table[aria-label='${label}']`).parentElement; return scrollWidth > clientWidth }",
        label,
    )


def names_of_card(page: Page, label: str) -> list[str]:
    """The names of the first row's cells, from above to below."""
    return [
        str(name)
        for name in page.evaluate(
            """label => [...document.querySelectorAll(
                `table[aria-label='${label}'] tbody tr:first-child td`)]
                .map(cell => [cell.getBoundingClientRect().top, cell.dataset.label])
                .sort(([one], [other]) => one - other).map(([, name]) => name)""",
            label,
        )
    ]


def test_a_card_on_a_phone_begins_with_the_verdict(seen: Watched, phone: Page) -> None:
    seen.open("/job")
    assert names_of_card(phone, "Jobs")[:3] == ["Job", "Verdict", "State"]


@pytest.mark.parametrize(("address", "label"), [("/job", "Jobs"), ("/", "Running jobs")])
def test_a_phone_breaks_names_that_are_too_long(
    seen: Watched, phone: Page, address: str, label: str
) -> None:
    name = "finetune-llama-3.1-405b-instruct-longcontext-sft-v12-2026-11-14-0007"

    def renamed(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        found["items"][0] |= {"name": name, "user": f"{name}@research.example.org"}
        route.fulfill(response=answer, json=found)

    phone.route("**/v1/jobs?*", renamed)
    seen.open(address)
    expect(phone.get_by_role("link", name=name)).to_be_visible()
    assert is_within(phone, f"table[aria-label='{label}'] :is(td, td *)")


def test_a_phone_shows_the_whole_menu(seen: Watched, phone: Page) -> None:
    seen.open("/job")
    assert phone.locator("nav a").count() == 9
    assert is_within(phone, "nav a, header.top .tools, .live")


@pytest.mark.parametrize("width", [800, 1100, WIDTH, 1920])
def test_the_menu_is_never_cut(seen: Watched, width: int) -> None:
    """Also beside the longest words of a range that lies days back."""
    page = seen.page
    page.set_viewport_size({"width": width, "height": HEIGHT})
    seen.open(f"/job?from={START_S - 90_000}&to={START_S - 86_500}")
    cut = page.evaluate(
        "() => { const { scrollWidth, clientWidth } = document"
        ".querySelector('nav'); return scrollWidth - clientWidth }"
    )
    assert cut <= 0, f"{cut} pixels of the menu are cut at {width}"
    whole = page.evaluate("() => document.documentElement.scrollWidth")
    assert whole <= width
    expect(page.get_by_role("combobox", name="Time range")).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("navigation", name="Views").get_by_role("link")).to_have_count(9)


def test_times_have_a_day_and_a_zone(seen: Watched) -> None:
    page = seen.page
    seen.open("/")
    expect(page.locator(".clock-now")).to_have_text("15 Nov 2026, 09:08 UTC")
    since = page.get_by_role("article").first.get_by_text(re.compile(r"^\d\d:\d\d:\d\d"))
    expect(since.first).to_have_attribute("title", re.compile(r"^15 Nov 2026, 09:0\d:\d\d UTC$"))
    seen.settle()


def test_a_time_can_be_typed(seen: Watched) -> None:
    page = seen.page
    seen.open("/fabric")
    page.get_by_role("button", name="Type a time range").click()
    form = page.get_by_role("form", name="Time range")
    form.get_by_label("From").fill("tomorrow")
    form.get_by_role("button", name="Show").click()
    expect(form.get_by_role("alert")).to_contain_text('"From" is no time')
    form.get_by_label("From").fill("2026-11-15 09:00")
    form.get_by_label("To").fill("09:08")
    form.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(rf"from={START_S}\.000&to={END_S}\.000"))
    expect(form).to_have_count(0)
    seen.settle()


def test_a_table_is_saved_as_csv(seen: Watched, tmp_path: Path) -> None:
    page = seen.page
    seen.open("/job")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Jobs as CSV").click()
    assert saved.value.suggested_filename == "jobs.csv"
    path = tmp_path / "jobs.csv"
    saved.value.save_as(path)
    rows = {row["Job"]: row for row in csv.DictReader(io.StringIO(path.read_text("utf-8")))}
    mine = rows[VICTIM_JOB]
    assert (mine["State"], mine["User"], mine["Ranks"]) == ("running", "trainer", "4")
    assert mine["Since"].startswith("2026-11-15T09:00:0")
    assert 2.0 < float(mine["Step"]) < 2.5
    assert CULPRIT in mine["Verdict"]


def test_what_to_fix_first_is_ranked_and_saved_with_its_price(
    seen: Watched, tmp_path: Path
) -> None:
    page = seen.page
    page.add_init_script("localStorage.setItem('fabricscope.gpu-hour-price', '$1000')")
    seen.open("/incident")
    page.get_by_role("link", name="What they cost").click()
    ranking = page.get_by_role("table", name="Costs by culprit")
    expect(ranking.get_by_role("row").nth(1)).to_contain_text("Pause storm")
    expect(ranking.get_by_role("row", name=CULPRIT).first).to_contain_text("$")
    weeks = page.get_by_role("table", name="Costs by week")
    expect(weeks.get_by_role("row").nth(1)).to_contain_text("2026-11-09")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Costs by culprit as CSV").click()
    saved.value.save_as(tmp_path / "costs.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "costs.csv").read_text("utf-8-sig"))))
    measured = [row for row in rows if row["GPU-hours"]]
    hours = [float(row["GPU-hours"]) for row in measured]
    assert hours == sorted(hours, reverse=True)
    # What nobody measured is no zero: not here, not on Now, not in the list of incidents.
    (flap,) = (row for row in rows if row["Cause"].startswith("Link flap"))
    assert (flap["GPU-hours"], flap["Unmeasured"], rows[-1]) == ("", "1", flap)
    assert float(rows[0]["Money"]) == pytest.approx(1000 * hours[0])
    # Of the last four weeks.
    assert float(rows[0]["Hours a week"]) == pytest.approx(hours[0] / 4)
    seen.go("/incident")
    flapping = page.get_by_role("table", name="Incidents").get_by_role("row", name="Link flap")
    expect(flapping.get_by_title("not known")).to_have_text("\u2013")
    seen.go("/costs")
    page.get_by_label("Added up").select_option("by cause")
    expect(page).to_have_url(re.compile("by=cause"))
    expect(page.get_by_role("table", name="Costs by cause")).to_contain_text("Straggler")
    seen.settle()


def test_a_phone_shows_costs_as_cards(seen: Watched, phone: Page) -> None:
    seen.open("/costs")
    for label in ("Costs by culprit", "Costs by week"):
        expect(phone.get_by_role("table", name=label)).to_be_visible()
        assert is_within(phone, f"table[aria-label='{label}'] td")


def test_a_card_cuts_no_words(seen: Watched, phone: Page) -> None:
    """An id that stayed in one piece made its table wider than the phone."""
    seen.open("/costs")
    table = phone.get_by_role("table", name="Costs by culprit").locator("..")
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")


@pytest.mark.parametrize(("width", "abreast"), [(PHONE_WIDTH, 1), (760, 2)])
def test_cards_stand_abreast_where_there_is_room(seen: Watched, width: int, abreast: int) -> None:
    seen.page.set_viewport_size({"width": width, "height": HEIGHT})
    seen.open("/hosts")
    tops = seen.page.evaluate(
        "() => [...document.querySelectorAll('table[aria-label=Hosts] tbody tr')]"
        ".map(one => one.getBoundingClientRect().top)"
    )
    assert tops.count(tops[0]) == abreast


def test_a_long_table_of_cards_shows_its_first_ones(seen: Watched, phone: Page) -> None:
    query = 'count by (host, __name__) ({__name__=~"fabric_(gpu|port)_.*"})'
    seen.open(f"/explore?{urlencode({'query': query, 'from': START_S, 'to': END_S})}")
    rows = phone.get_by_role("table", name="Series").locator("tbody tr")
    expect(rows).to_have_count(20)
    phone.get_by_role("button", name=re.compile("Show more of")).click()
    assert rows.count() > 20


def test_when_a_host_was_last_heard_is_said_once(seen: Watched) -> None:
    """Its agent had an age of its own, of the same moment, asked for at another time."""
    seen.open(f"/hosts/{CULPRIT}")
    expect(seen.page.get_by_role("region", name="Agent")).to_be_visible()
    expect(seen.page.get_by_text("Last heard")).to_have_count(1)


def test_a_table_is_saved_as_parquet(seen: Watched, tmp_path: Path) -> None:
    page = seen.page
    seen.open("/job")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Jobs as Parquet").click()
    assert saved.value.suggested_filename == "jobs.parquet"
    path = tmp_path / "jobs.parquet"
    saved.value.save_as(path)
    rows = {row["Job"]: row for row in pq.read_table(path).to_pylist()}
    mine = rows[VICTIM_JOB]
    assert (mine["State"], mine["User"], mine["Ranks"]) == ("running", "trainer", 4.0)
    assert 2.0 < mine["Step"] < 2.5
    assert CULPRIT in mine["Verdict"]


def test_silences_in_force_are_seen_at_once(seen: Watched, stage: Stage) -> None:
    client = stage.service.client
    wish = {
        "matchers": [{"name": "host", "value": "node0001", "isRegex": False, "isEqual": True}],
        "hours": 2,
        "created_by": "ann",
        "comment": "its fan is replaced",
    }
    answer = client.post("/v1/silences", json=wish)
    assert answer.status_code == 201, answer.text
    try:
        seen.open("/")
        panel = seen.page.get_by_role("region", name="1 silence in force")
        expect(panel).to_contain_text('host="node0001" until 11:08:00')
        expect(panel).to_contain_text("by ann: its fan is replaced")
        expect(panel.get_by_role("link", name="All silences")).to_be_visible()
    finally:
        client.delete(f"/v1/silences/{answer.json()['id']}")
    seen.open("/incident")
    seen.open("/")
    expect(seen.page.get_by_role("region", name="silence in force")).to_have_count(0)


def test_the_interface_has_contents_search_and_schemas(seen: Watched) -> None:
    page = seen.page
    page.goto(f"{seen.url}/docs")
    shown = page.locator(".operation:visible")
    everything = shown.count()
    assert everything > 80
    page.get_by_role("searchbox").fill("how every link fared")
    expect(shown).to_have_count(1)
    expect(page.get_by_role("status")).to_have_text("1 path")
    page.get_by_role("navigation").get_by_role("link", name="GET /v1/fabric/state").click()
    operation = page.locator("#get-v1-fabric-state")
    expect(operation).to_have_attribute("open", "")
    page.get_by_role("searchbox").fill("")
    expect(shown).to_have_count(everything)
    operation.get_by_role("link", name="FabricOut").first.click()
    expect(page.locator("#schema-FabricOut")).to_have_attribute("open", "")
    expect(page.locator("#schema-FabricOut")).to_contain_text("Where the first moment begins.")


# --- numbers that agree -------------------------------------------------------------------------


def test_what_an_incident_costs_is_the_same_on_every_screen(seen: Watched, stage: Stage) -> None:
    """Share, step and GPU-hours: in the sentence, on Now, in the list, and in what is exported."""
    page, client = seen.page, stage.service.client
    items = client.get("/v1/incidents", params={"state": "open"}).json()["items"]
    measured = [one for one in items if one["costs"]]
    assert len(measured) > 1
    for one in measured:
        (cost,) = one["costs"]
        step, without = cost["step_seconds"], cost["step_seconds_without"]
        # A median step and a sum over all of them: alike, or one of them misleads.
        assert cost["lost_share"] == pytest.approx(1 - without / step, abs=0.03)
        share, hours = f"{100 * cost['lost_share']:.0f} %", f"{one['gpu_hours']:.2f} GPU-hours"
        takes = f"takes {step:.2f} s instead of {without:.2f} s"
        assert takes in one["summary"]
        seen.open("/")
        card = page.get_by_role("article", name=one["summary"][:40])
        expect(card).to_contain_text(f"{share} of the time · {hours}")
        usual = page.get_by_role("table", name="Running jobs").get_by_role("row", name=cost["job"])
        expect(usual).to_contain_text(f"{without:.2f} s")
        seen.go(f"/incident/{one['id']}")
        costs = page.get_by_role("region", name="What it costs")
        expect(costs).to_contain_text(f"would take {without:.2f} s instead of {step:.2f} s")
        exported = client.get(f"/v1/incidents/{one['id']}.md").text
        assert f"{hours}, {share} of its time" in exported
        certainty = re.search(r"^- Cause: .* \((.*)\)$", exported, re.MULTILINE)
        assert certainty is not None
        expect(page.get_by_role("main")).to_contain_text(f", {certainty[1]}")


def test_hosts_and_ranks_are_counted_once_and_a_poller_is_no_host(seen: Watched) -> None:
    """Six hosts of two GPUs and two ranks, and a poller of switches: seven agents."""
    page = seen.page
    seen.open("/")
    tile = page.locator(".tile", has_text="Hosts reporting")
    expect(tile).to_contain_text("6none silent")
    seen.go("/hosts")
    expect(page.get_by_role("heading", name=re.compile("of 6 hosts can take"))).to_be_visible()
    rows = page.get_by_role("table", name="Hosts", exact=True)
    ranks = re.findall(r"(\d+) ranks?", rows.inner_text())
    assert ranks == ["2"] * 6
    seen.go("/settings/agents")
    versions = page.get_by_role("table", name="Versions of agents")
    expect(versions.get_by_role("columnheader").nth(1)).to_have_text("Agents")
    expect(versions.get_by_role("row").nth(1)).to_contain_text("7")
