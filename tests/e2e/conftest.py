"""What the tests of the built-in page share: a service with a simulated cluster, and a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Browser

from tests.stands.browser import Watched, chromium, watched
from tests.worlds.page_data import END_S, Stage, served

Opener = Callable[[], AbstractContextManager[Watched]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The service, for all tests of a file."""
    with served(tmp_path_factory.mktemp("page")) as stage:
        yield stage


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser, for all tests of a file."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def opener(browser: Browser, stage: Stage) -> Opener:
    """Opens a new page in a new context at each call."""
    return lambda: watched(browser, stage.url, now_s=END_S)


@pytest.fixture
def seen(opener: Opener) -> Iterator[Watched]:
    """A page of its own; the test fails if the browser reports a fault."""
    with opener() as seen:
        yield seen
        assert seen.faults == []
