"""Chromium for tests of the built-in page, with an eye on everything that a page must not do.

The browser is Debian's; Playwright only steers it, and downloads nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from tests.tools import peers
from tests.tools.setup_page import MODULES, PAGE

PATIENCE_SECONDS = 180
"""An answer takes a tenth of a second; on a machine that does ten other things, more."""
WIDTH, HEIGHT = 1366, 900
PHONE_WIDTH = 390
STREAM = "/v1/live"
"""It never ends, so tests do not wait for its end."""
AXE = MODULES / "axe-core/axe.min.js"
SERIOUS = {"serious", "critical"}

expect.set_options(timeout=PATIENCE_SECONDS * 1000)


@contextlib.contextmanager
def chromium(program: Path | None = None) -> Iterator[Browser]:
    """A browser without a window. Only one at a time: Playwright wants the thread's event loop.

    ``program``: another one than the one that is found.
    """
    assert (PAGE / "index.html").is_file(), f"no page in {PAGE}: make page"
    program = program or peers.find("chromium")
    assert program is not None, "no chromium: as root, make peers-system"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page and what it has done wrong so far."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.asked: list[str] = []
        """The addresses of all requests, in their order."""
        self._pending: set[Request] = set()
        self.page.on("console", lambda said: self._note(said.type, said.text))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", self._begin)
        self.page.on("requestfinished", self._end)
        self.page.on("requestfailed", self._end)

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.faults.append(f"{kind}: {text}")

    def _begin(self, request: Request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self.faults.append(f"request to another server: {request.url}")
        if STREAM not in request.url:
            self._pending.add(request)

    def _end(self, request: Request) -> None:
        self._pending.discard(request)

    def open(self, address: str) -> None:
        """Load this view, the part after the `#`, and wait until it has all its answers."""
        self.page.goto(f"{self.url}/#{address}")
        self.settle()

    def go(self, address: str) -> None:
        """Follow a link within the page, and wait for the answers."""
        self.page.evaluate("address => { location.hash = address }", address)
        self.settle()

    def settle(self) -> None:
        """Wait until no request is pending and no element shows that it loads."""
        loading = self.page.locator(".state.loading")
        self.until(
            lambda: loading.count() == 0 and not self._pending and self._is_drawn(),
            f"the view has all its answers; awaited: {[one.url for one in self._pending]}",
        )

    def _is_drawn(self) -> bool:
        """Whether something stands there, and the browser has drawn since."""
        return bool(
            self.page.evaluate(
                "() => new Promise(done => requestAnimationFrame(() => setTimeout(() =>"
                " done(document.querySelector('main')?.childElementCount > 0))))"
            )
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again, with the browser at work meanwhile, until it holds twice."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        held = 0
        while held < 2:
            held = held + 1 if condition() else 0
            assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
            self.page.wait_for_timeout(20)

    def axe(self, *rules: str) -> list[str]:
        """Faults of accessibility that are serious; of these rules only, where some are named."""
        if not self.page.evaluate("() => 'axe' in window"):
            # Not as a script element, which the page's policy forbids.
            self.page.evaluate(AXE.read_text())
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = {"type": "rule", "values": list(rules)}
        found = self.page.evaluate("options => axe.run(document, options)", options)
        return [
            f"{fault['id']} ({fault['impact']}): {node['html'][:160]}: {node['failureSummary']}"
            for fault in found["violations"]
            if fault["impact"] in SERIOUS
            for node in fault["nodes"]
        ]

    def overlaps(self) -> list[str]:
        """Words that lie on other words, with their places; see `OVERLAPS`."""
        return [str(one) for one in self.page.evaluate(OVERLAPS)]


OVERLAPS = """() => {
    // Fonts reach a little beyond their lines: only the middle of a line counts.
    const EDGE = 0.22, LEAST = 1.5, SHOWN = 12;
    const boxes = [];
    const add = (text, owner, rect, node) => {
        let { left, right } = rect;
        let top = rect.top + EDGE * rect.height, bottom = rect.bottom - EDGE * rect.height;
        for (let one = owner; one && one !== document.body; one = one.parentElement) {
            const style = getComputedStyle(one);
            if (style.overflowX === "visible" && style.overflowY === "visible") continue;
            const room = one.getBoundingClientRect();
            [left, right] = [Math.max(left, room.left), Math.min(right, room.right)];
            [top, bottom] = [Math.max(top, room.top), Math.min(bottom, room.bottom)];
        }
        if (right - left > LEAST && bottom - top > LEAST)
            boxes.push({ text: text.trim().slice(0, 40), node, left, right, top, bottom });
    };
    const isSeen = one => one.checkVisibility({ opacityProperty: true, visibilityProperty: true })
        && !one.closest(".unseen, option, [hidden]");
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, owner = node.parentElement;
        if (!node.data.trim() || !isSeen(owner)) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        for (const rect of range.getClientRects()) add(node.data, owner, rect, node);
    }
    const found = [];
    // A card's names of columns are no nodes: each stands at the beginning of its cell.
    for (const cell of document.querySelectorAll(".carded td")) {
        const name = getComputedStyle(cell, "::before"), own = getComputedStyle(cell);
        if (!isSeen(cell) || !["absolute", "none"].includes(name.position) && name.float !== "left")
            continue;
        const { left, top } = cell.getBoundingClientRect();
        const isPlaced = name.position === "absolute";
        const x = isPlaced ? left + parseFloat(name.left)
            : left + parseFloat(own.paddingLeft) + parseFloat(name.marginLeft);
        const y = top + parseFloat(own.paddingTop);
        if (x < left) found.push(`"${cell.dataset.label}" beside its card`);
        const height = parseFloat(name.height);
        const rows = Math.round(height / parseFloat(own.lineHeight));
        for (let row = 0; row < Math.max(1, rows); row++)
            add(cell.dataset.label, cell, new DOMRect(
                x, y + row * height / Math.max(1, rows), parseFloat(name.width),
                height / Math.max(1, rows)), cell);
    }
    boxes.sort((one, other) => one.top - other.top);
    boxes.forEach((one, place) => {
        for (let next = place + 1; next < boxes.length; next++) {
            const other = boxes[next];
            if (other.top >= one.bottom) break;
            if (other.node === one.node) continue; // its end, and the dots that stand for it
            const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
            const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
            if (wide > LEAST && high > LEAST)
                found.push(`"${one.text}" on "${other.text}" at`
                    + ` ${Math.round(other.left)}, ${Math.round(other.top)}`);
        }
    });
    return found.slice(0, SHOWN);
}"""
"""What `Watched.overlaps` asks the browser: text on text, by the boxes of lines that are in sight.
Words in a canvas are not known to it."""


@contextlib.contextmanager
def watched(
    browser: Browser,
    url: str,
    *,
    now_s: float | None = None,
    width: int = WIDTH,
    is_dark: bool = False,
) -> Iterator[Watched]:
    """A page in a context of its own; with ``now_s``, its clock stands at this unix second."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if is_dark else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
    )
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    if now_s is not None:
        context.clock.set_fixed_time(dt.datetime.fromtimestamp(now_s, tz=dt.UTC))
    try:
        yield Watched(context, url)
    finally:
        context.close()
