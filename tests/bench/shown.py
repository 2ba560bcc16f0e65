"""One load of a view in Chromium: when its content is there, and what it waited for.

The page is watched from within: when the first of the parts that had to wait shows its answer
(first content), and when none waits any more and every question asked until then is answered
(complete). A view has a limit; one that does not end in time is told with what it still waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from urllib.parse import parse_qsl, urlsplit

import msgspec
from playwright.sync_api import Browser, Error, Page

from tests.stands.browser import PATIENCE_SECONDS, STREAM, chromium, watched

POLL_MS = 50
HUNG_SECONDS = 30.0
"""Past the limit: a page that does not even say how far it is hangs; its browser is ended."""
HELD_LOOKS = 3
"""A view is complete when that still holds when one looks again: parts follow parts."""
WAITS_TOLD = 4
TIMES = frozenset({"from", "to", "start", "end", "time", "at"})
"""Parameters of questions that move with the clock."""

NOTE_WHAT_IS_SHOWN = """() => {
    const seen = window.shown = { first: null, complete: null, busy: 0, waits: [], asked: [] };
    const awaited = new Set();
    const look = () => {
        const main = document.querySelector("main");
        if (!main) return;
        const waits = new Set([...main.querySelectorAll(".state.loading")]
            .map(one => one.innerText.split("\\u2026")[0])
            .filter(text => !text.includes("the view")));
        const isCodeAwaited = main.innerText.includes("Asking for the view");
        const hasAnswer = [...awaited].some(text => !waits.has(text));
        for (const text of waits) awaited.add(text);
        seen.waits = isCodeAwaited ? ["the view's code", ...waits] : [...waits];
        if (isCodeAwaited) return;
        if (seen.first === null && (hasAnswer || waits.size === 0)) seen.first = performance.now();
        if (waits.size > 0) seen.complete = null;
        else seen.complete ??= performance.now();
    };
    new MutationObserver(look).observe(document, { childList: true, subtree: true });
    new PerformanceObserver(list => {
        for (const one of list.getEntries()) seen.busy += one.duration;
    }).observe({ type: "longtask", buffered: true });
    const ask = window.fetch;
    window.fetch = async (...words) => {
        const url = String(words[0]?.url ?? words[0]);
        const one = { url, began: performance.now(), hasEnded: false };
        seen.asked.push(one);
        try { return await ask(...words); } finally { one.hasEnded = true; }
    };
}"""
"""First content: the first of the view's parts that had to wait shows its answer. Complete: no part
waits any more."""

STOP_THE_CLOCK = """nowMs => {
    const Real = Date;
    window.Date = class extends Real {
        constructor(...words) { words.length ? super(...words) : super(nowMs); }
        static now() { return nowMs; }
    };
}"""

HOW_FAR = """() => {
    const nothing = { asked: [], waits: ["the page"] };
    const { first, complete, busy, waits, asked } = window.shown ?? nothing;
    const open = asked.filter(one => !one.hasEnded && one.began <= (complete ?? Infinity));
    return { first, complete, busy: busy ?? 0, waits, open: open.map(one => one.url) };
}"""

ANSWERS_SO_FAR = """() => performance.getEntriesByType("resource").map(one => ({
    url: one.name, began: one.startTime, ended: one.responseEnd,
    waited: one.responseStart - one.requestStart,
    packed: one.encodedBodySize, size: one.decodedBodySize,
}))"""


class Answer(msgspec.Struct, frozen=True):
    """One answer that a view waited for; times in ms since the address was given."""

    url: str
    began: float
    ended: float
    waited: float
    """Until its first byte: the service's time, and its queue."""
    packed: int
    size: int

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @property
    def question(self) -> str:
        """What was asked, without when: the page's pulse asks the same again."""
        parts = urlsplit(self.url)
        asked = [f"{name}={value}" for name, value in parse_qsl(parts.query) if name not in TIMES]
        return f"{parts.path}?{'&'.join(asked)}" if asked else parts.path


class HowFar(msgspec.Struct, frozen=True):
    """What the page says of itself; times in ms."""

    first: float | None = None
    complete: float | None = None
    busy: float = 0.0
    waits: list[str] = []
    """What its parts say that they wait for."""
    open: list[str] = []
    """Questions without an answer, of those asked until it was complete."""

    @property
    def is_complete(self) -> bool:
        return self.complete is not None and not self.awaited

    @property
    def awaited(self) -> list[str]:
        """Paths of the questions; the stream of news never ends."""
        paths = [urlsplit(url).path for url in self.open]
        return [path for path in paths if path != STREAM]


class Load(msgspec.Struct, frozen=True):
    """One load of a view with an empty cache; times in seconds since the address was given."""

    first: float | None
    """None: nothing came within the limit."""
    complete: float | None
    """When nothing waits and the last answer has come; None: not within the limit."""
    busy: float
    """Seconds in which the page's thread was held for 50 ms and more."""
    answers: list[Answer]
    waits: list[str] = []
    """What it still waited for at the limit."""

    @property
    def packed(self) -> int:
        return sum(one.packed for one in self.answers)

    @property
    def slowest(self) -> Answer | None:
        return max(self.answers, key=lambda one: one.ended - one.began, default=None)


def load(
    browser: Browser,
    url: str,
    address: str,
    *,
    now_s: float | None = None,
    limit: float = PATIENCE_SECONDS,
) -> Load:
    """The view at this address, with an empty cache; ``now_s``: where the page's clock stands.

    Playwright's own clock would also stop the one that measures.
    """
    with watched(browser, url) as seen:
        if now_s is not None:
            seen.page.add_init_script(f"({STOP_THE_CLOCK})({now_s * 1000})")
        seen.page.add_init_script(f"({NOTE_WHAT_IS_SHOWN})()")
        ends = time.monotonic() + limit
        seen.page.goto(f"{url}/#{address}", wait_until="commit", timeout=limit * 1000)
        far = await_complete(seen.page, ends)
        answers = msgspec.convert(seen.page.evaluate(ANSWERS_SO_FAR), list[Answer])
    return load_of(far, answers)


def await_complete(page: Page, ends: float) -> HowFar:
    """How far the view is when it is complete, or at this moment (monotonic) if it is not."""
    held = 0
    while True:
        far = msgspec.convert(page.evaluate(HOW_FAR), HowFar)
        held = held + 1 if far.is_complete else 0
        if held == HELD_LOOKS or time.monotonic() >= ends:
            return far
        page.wait_for_timeout(POLL_MS)


def load_of(far: HowFar, answers: list[Answer]) -> Load:
    # A part that waits again (the pulse asked for it) does so after the view was complete.
    until = far.complete if far.complete is not None and far.is_complete else float("inf")
    waited: dict[str, Answer] = {}
    for one in sorted(answers, key=lambda one: one.began):
        if one.began <= until and one.path != STREAM:
            waited.setdefault(one.question, one)
    complete = None
    if far.complete is not None and far.is_complete:
        complete = max([far.complete, *(one.ended for one in waited.values())]) / 1000
    return Load(
        first=None if far.first is None else far.first / 1000,
        complete=complete,
        busy=far.busy / 1000,
        answers=list(waited.values()),
        waits=[] if complete is not None else [*far.waits, *far.awaited][:WAITS_TOLD],
    )


class Loader:
    """Loads views in one browser, within a limit each; a browser that hangs is ended and replaced.

    ``kill`` ends the browser's processes: nothing else ends a call into a page that hangs.
    """

    def __init__(self, stack: ExitStack, program: Path | None, kill: Callable[[], None]) -> None:
        self._stack, self._program, self._kill = stack, program, kill
        self._browser = stack.enter_context(chromium(program))

    def load(self, url: str, address: str, limit: float) -> Load:
        if not self._browser.is_connected():
            self._stack.close()
            self._browser = self._stack.enter_context(chromium(self._program))
        hung = Timer(limit + HUNG_SECONDS, self._kill)
        hung.start()
        try:
            return load(self._browser, url, address, limit=limit)
        except Error as error:
            what = str(error).partition("\n")[0]
            return Load(first=None, complete=None, busy=0.0, answers=[], waits=[what])
        finally:
            hung.cancel()


@contextmanager
def loader(program: Path | None, kill: Callable[[], None]) -> Iterator[Loader]:
    with ExitStack() as stack:
        yield Loader(stack, program, kill)
