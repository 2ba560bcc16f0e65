"""The report of `diagnose` in a browser: one file, from a disk, that makes no request."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.stands.browser import PHONE_WIDTH, Watched, chromium, watched
from tests.stands.diagnosing import ROOT, diagnose

FIXTURE = ROOT / "tests/fixtures/diagnose/net3"
HEAT = "canvas[aria-label^='Who comes late']"

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the run in which node3's NIC was slowed down on purpose."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    done = diagnose(FIXTURE, "--html", path)
    assert done.returncode == 0, done.stderr.decode()
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def open_file(watched_page: Watched, path: Path) -> Page:
    watched_page.page.goto(f"file://{path}")
    watched_page.settle()
    return watched_page.page


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_report_from_a_disk_shows_the_verdict_and_asks_nobody(
    report: Path, browser: Browser, *, is_dark: bool
) -> None:
    with watched(browser, f"file://{report.parent}", is_dark=is_dark) as seen:
        page = open_file(seen, report)
        expect(page.locator("h2").first).to_contain_text("node3's NIC eth0")
        expect(page.get_by_label("Culprit").first).to_contain_text("Host node3")
        for title in ("Evidence", "Late only because of it", "Ruled out", "What was read"):
            expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        for title in ("Transfer over time", "Exits around the ring", "Steps", "Network, sent"):
            expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        for title in ("all_reduce, 8 MiB", "Ranks", "Slowest collectives", "Communicators"):
            expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        expect(page.locator(HEAT)).to_be_visible()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark" if is_dark else "light")
        assert page.locator("a[href]").count() == 0, "no name leads into a page that is not there"
        assert seen.axe() == []
        assert seen.asked == [f"file://{report}"]
        assert seen.faults == []


def test_slow_steps_are_held_against_normal_ones_without_a_service(
    report: Path, browser: Browser
) -> None:
    with watched(browser, f"file://{report.parent}") as seen:
        page = open_file(seen, report)
        said = page.locator(".steps-sentence")
        expect(said).to_contain_text("no rank came late by itself")
        expect(said).to_contain_text("eth0 of node3")
        ranks = page.get_by_role("table", name="Ranks compared")
        expect(ranks.get_by_role("row", name="accused")).to_contain_text("node3")
        page.get_by_label("Show the slow step").select_option(index=1)
        expect(page.get_by_text("Replayed", exact=True)).to_be_visible()
        assert seen.faults == []


def test_a_report_can_be_read_by_pointing_and_on_a_phone(report: Path, browser: Browser) -> None:
    with watched(browser, f"file://{report.parent}", width=PHONE_WIDTH) as seen:
        page = open_file(seen, report)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE_WIDTH
        assert seen.axe() == []
        assert seen.faults == []
    with watched(browser, f"file://{report.parent}") as seen:
        page = open_file(seen, report)
        steps = page.locator("canvas[aria-label^='Steps']")
        steps.hover()
        expect(page.locator(".report-cursor")).to_contain_text("after the start")
        page.locator(".cells").focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".cells [aria-live]")).to_contain_text("rank 0")
        assert seen.faults == []
