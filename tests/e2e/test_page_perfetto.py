"""A trace goes from the page to Perfetto in another tab; a double stands for Perfetto's page."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.doubles.perfetto_double import perfetto_double
from tests.stands.browser import Watched
from tests.worlds.page_data import END_S, VICTIM_JOB

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.slow]

ADDRESS = f"/job/{VICTIM_JOB}?from={END_S - 30}&to={END_S}"


def decide(seen: Watched, perfetto_url: str | None) -> None:
    """What the operator set."""
    body = json.dumps({"perfetto_url": perfetto_url})
    seen.page.route("**/v1/page", lambda route: route.fulfill(body=body))


def test_a_click_opens_the_trace_in_another_tab(seen: Watched) -> None:
    with perfetto_double() as url:
        decide(seen, url)
        seen.open(ADDRESS)
        with seen.page.expect_popup() as opened:
            seen.page.get_by_role("button", name="Open in Perfetto").click()
        got = opened.value.locator("#got")
        expect(got).to_contain_text("events")
        told = json.loads(got.inner_text())
        assert told["fileName"] == f"{VICTIM_JOB}.trace.json"
        assert VICTIM_JOB in told["title"]
        assert told["origin"] == seen.url
        assert told["events"] > 100
        assert not told["hasOpener"]
        expect(seen.page.get_by_role("button", name="Open in Perfetto")).to_be_enabled()


def test_a_tab_that_was_closed_is_said(seen: Watched) -> None:
    decide(seen, "http://127.0.0.1:9")
    seen.open(ADDRESS)
    with seen.page.expect_popup() as opened:
        seen.page.get_by_role("button", name="Open in Perfetto").click()
    opened.value.close()
    expect(seen.page.get_by_role("alert")).to_contain_text("tab was closed")


def test_where_it_is_off_the_file_is_left(seen: Watched) -> None:
    decide(seen, None)
    seen.open(ADDRESS)
    expect(seen.page.get_by_role("link", name="Trace as a file")).to_be_visible()
    expect(seen.page.get_by_role("button", name="Open in Perfetto")).to_have_count(0)
