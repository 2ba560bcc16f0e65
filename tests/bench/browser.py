"""The built-in page in Chromium: how soon it answers, how smoothly it moves, what it keeps.

No peer has the same page; the bars are what a person notices.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, expect

from collector.contract.units import NS
from tests.bench.processes import say
from tests.bench.report import Bar, BenchError, Result, Table, number
from tests.stands.browser import Watched, chromium, watched
from tests.stands.ports import free_port
from tests.stands.service import eventually
from tests.tools import peers
from tests.tools.setup_page import PAGE, WEB, read_json, tools_of_machine, tools_of_package
from tests.worlds.incidents import slow_link
from tests.worlds.page_data import END_S, Stage, served

LOADS, QUICK_LOADS = 9, 2
PAN_SECONDS, QUICK_PAN_SECONDS = 10, 1
UPDATES, QUICK_UPDATES = 720, 20
"""An hour of incidents that change every five seconds."""

FIRST_VIEW_KB_BAR = 300
INTERACTIVE_SECONDS_BAR = 1
FRAMES_BAR = 30
HEAP_GROWTH_MB_BAR = 2

NOTE_THE_HEADLINE = """() => {
    const look = () => {
        const said = document.querySelector("main h1");
        if (!said) return;
        watch.disconnect();
        // Also drawn: a frame later.
        requestAnimationFrame(() => { window.saidAfterMs = performance.now() });
    };
    const watch = new MutationObserver(look);
    watch.observe(document, { childList: true, subtree: true });
}"""


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench: one browser, one service with the simulated cluster, one development server."""
    del rounds  # loads are repeated, and a pan has hundreds of frames
    if peers.find("chromium") is None or not (PAGE / "index.html").is_file():
        raise BenchError("it needs chromium (make peers-system) and the built page (make page)")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        with served(Path(folder)) as stage:
            say("browser: the first view")
            first = measure_loads(browser, stage, QUICK_LOADS if is_quick else LOADS)
            say("browser: an hour of news")
            kept = measure_heap(browser, stage, QUICK_UPDATES if is_quick else UPDATES)
        say("browser: panning")
        pan = measure_pan(browser, QUICK_PAN_SECONDS if is_quick else PAN_SECONDS)
    return result_of(first, kept, pan, is_quick=is_quick)


def result_of(
    first: dict[str, Any], kept: dict[str, Any], pan: dict[str, Any], *, is_quick: bool
) -> Result:
    """The figures beside their bars."""
    grown_mb = kept["heap_mb"][2] - kept["heap_mb"][1]
    heap = ", ".join(f"{mb:.1f}" for mb in kept["heap_mb"])
    rows = [
        ["first view, all its files, packed", f"{first['bytes'] / 1e3:.0f} kB"],
        ["from the address to what is wrong, empty cache", f"{number(first['seconds'])} s"],
        ["heat map of 1,024 ranks x 500 steps, panned", f"{pan['framesPerSecond']:.0f} frames/s"],
        ["its longest frame", f"{pan['longestFrameMs']:.0f} ms"],
        [f"heap at the start, middle and end of {kept['updates']} news", f"{heap} MB"],
    ]

    def bar(what: str, needed: float, value: float, unit: str, *, at_most: bool = True) -> Bar:
        measured = None if is_quick else value
        return Bar(what=what, needed=needed, value=measured, unit=unit, at_most=at_most)

    return Result(
        name="browser",
        tables=[Table(title="The built-in page in Chromium", columns=["", "measured"], rows=rows)],
        bars=[
            bar("the first view in kB {needed}", FIRST_VIEW_KB_BAR, first["bytes"] / 1e3, " kB"),
            bar(
                "what is wrong is on the screen within seconds {needed}",
                INTERACTIVE_SECONDS_BAR,
                first["seconds"],
                " s",
            ),
            bar(
                "frames a second while a heat map is panned {needed}",
                FRAMES_BAR,
                pan["framesPerSecond"],
                "",
                at_most=False,
            ),
            bar(
                "growth of the heap in the second half hour in MB {needed}",
                HEAP_GROWTH_MB_BAR,
                grown_mb,
                " MB",
            ),
        ],
        figures={"first": first, "kept": kept, "pan": pan},
        notes=["Chromium without a window and without a GPU draws with the processor"],
        is_quick=is_quick,
    )


def measure_loads(browser: Browser, stage: Stage, loads: int) -> dict[str, Any]:
    """The median of some loads with an empty cache, and what the page's own files weigh."""
    seconds: list[float] = []
    sizes: dict[str, int] = {}
    for _ in range(loads):
        with watched(browser, stage.url, now_s=END_S) as seen:
            seen.page.add_init_script(f"({NOTE_THE_HEADLINE})()")
            seen.page.on(
                "requestfinished",
                lambda one: sizes.update({urlsplit(one.url).path: one.sizes()["responseBodySize"]}),
            )
            seen.open("/")
            seconds.append(seen.page.evaluate("() => window.saidAfterMs") / 1000)
    own = [size for path, size in sizes.items() if path == "/" or path.startswith("/assets/")]
    return {"bytes": sum(own), "files": len(own), "seconds": statistics.median(seconds)}


def measure_heap(browser: Browser, stage: Stage, updates: int) -> dict[str, Any]:
    """The heap after a collection, before, amid and after this many news, in MB."""
    heap_mb = []
    with watched(browser, stage.url, now_s=END_S) as seen:
        seen.open("/")
        heap_mb.append(heap_of(seen))
        for half in (1, 2):
            for update in range(updates // 2):
                # Surer and less sure by turns: each time something has changed.
                stage.say(slow_link(END_S * NS, confidence=0.6 if update % 2 else 0.9))
            stage.say(slow_link(END_S * NS, job=f"half{half}"))
            expect(seen.page.get_by_text(f"half{half}").first).to_be_visible()
            seen.settle()
            heap_mb.append(heap_of(seen))
    return {"updates": updates, "heap_mb": heap_mb}


def heap_of(seen: Watched) -> float:
    """What is left after a garbage collection."""
    session = seen.page.context.new_cdp_session(seen.page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = session.send("Performance.getMetrics")["metrics"]
    session.detach()
    return float(next(one["value"] for one in found if one["name"] == "JSHeapUsedSize")) / 1e6


@contextlib.contextmanager
def vite() -> Iterator[str]:
    """The development server, which alone serves the bench's own page."""
    package = read_json(WEB / "package.json")
    if package is None:
        raise BenchError("dashboards/web/package.json cannot be read")
    tools = tools_of_machine(package["engines"]["node"]) or tools_of_package()
    port = free_port()
    command = [str(tools.node), "node_modules/vite/bin/vite.js", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--strictPort"]
    with subprocess.Popen(command, cwd=WEB, stdout=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: answers(f"{url}/bench/heat.html"), "vite answers")
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    """Whether a server answers at this URL."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, trust_env=False).status_code == httpx.codes.OK
    return False


def measure_pan(browser: Browser, seconds: float) -> dict[str, Any]:
    """What the bench's page measures while a pointer drags the heat map to and fro."""
    with vite() as url, watched(browser, url) as seen:
        seen.page.goto(f"{url}/bench/heat.html")
        seen.page.wait_for_function("() => 'pan' in window && document.querySelector('canvas')")
        figures: dict[str, Any] = seen.page.evaluate("seconds => pan(seconds)", seconds)
    return figures
