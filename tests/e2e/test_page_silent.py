"""The built-in page twenty minutes after agents fell silent and the evaluation stopped.

Nothing is held back or made up here: the service's clock goes on, and neither data nor a round of
verdicts comes. No view may look as if it knew how things are.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.conftest import Opener
from tests.stands.browser import Watched, watched
from tests.worlds.page_data import CULPRIT, END_S, VICTIM_JOB, Stage, served

pytestmark = [pytest.mark.peer("chromium"), pytest.mark.slow]

SILENT_S = 1200
MARK = "Data 20 min old, not evaluated for 20 min"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with served(tmp_path_factory.mktemp("page")) as stage:
        ages = stage.service.client.get("/v1/freshness").json()
        assert [ages[of]["is_late"] for of in ("data", "evaluation")] == [False, False]
        stage.clock.now_s += SILENT_S
        yield stage


@pytest.fixture(scope="module")
def opener(browser: Browser, stage: Stage) -> Opener:
    return lambda: watched(browser, stage.url, now_s=END_S + SILENT_S)


@pytest.mark.parametrize(
    ("address", "said", "never"),
    [
        ("/", "But not evaluated now: Last evaluation 20 min ago. It may be over.", "100 % busy"),
        ("/fabric", "24 links; none has a reading at this moment.", "16 %"),
        ("/hosts", "0 of 6 hosts can take the next job", "healthy 6"),
        (
            f"/hosts/{CULPRIT}",
            "Not to be trusted now: verdicts: nothing was evaluated",
            "now silent",
        ),
        ("/settings", "The service is not well", "The service is well"),
        ("/settings", "The newest data is 20 min old: no agent reports", "nothing refused"),
        ("/settings", "Nothing was evaluated for 20 min: incidents are as they were", "60 of 60"),
        ("/incident", "in all so far", "lasts 2"),
        ("/matrix", "Traffic matrix", ""),
        (f"/job/{VICTIM_JOB}", VICTIM_JOB, ""),
        ("/costs", "GPU-hours lost", ""),
        ("/explore", "Ask anything", ""),
    ],
)
def test_no_view_is_live(seen: Watched, address: str, said: str, never: str) -> None:
    seen.open(address)
    expect(seen.page.locator(".live")).to_have_text(MARK)
    main = seen.page.get_by_role("main")
    if address == "/incident":
        seen.page.get_by_role("table", name="Incidents").get_by_role("link").first.click()
        seen.settle()
    expect(main).to_contain_text(said)
    if never:
        expect(main).not_to_contain_text(never)
