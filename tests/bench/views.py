"""Every view of the built-in page in Chromium, on a live cluster of 256 hosts: when it is there.

The service runs as in production and a recorded cluster is played to it (`tests.bench.live`). The
machine that measures also runs the service, the player and the browser; so beside the seconds stand
how many times an empty page's they are, and what each answer took. Two cores do not take 2,048 GPUs
every five seconds: hosts have two GPUs and NICs here, and agents read their counters every 30 s.
"""

from __future__ import annotations

import statistics
import time
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
from playwright.sync_api import Browser

from tests.bench.live import JOB, host_of, playing, recorded, time_to_verdict
from tests.bench.player import Played
from tests.bench.processes import Program, fabricscope, free_port, run_program, say
from tests.bench.report import OUTPUT, Bar, BenchError, Result, Table, number
from tests.stands.browser import STREAM, chromium, watched
from tests.tools import peers
from tests.tools.setup_page import PAGE

HOSTS, QUICK_HOSTS = 256, 16
GPUS = 2
SETTLE_SECONDS, QUICK_SETTLE_SECONDS = 120.0, 30.0
"""The store has as much of the half hour that views show."""
PLAYED_SECONDS_MAX = 3_600.0
READ_TICKS = 6
LOADS, QUICK_LOADS = 2, 1

EMPTY = "an empty page"
EXPLORED = "sum by (host) (rate(fabric_port_transmit_bytes_total[1m]))"
VIEWS: dict[str, str] = {
    EMPTY: "/nowhere",
    "Now": "/",
    "Fabric": "/fabric",
    "Jobs": "/job",
    "one job": f"/job/{JOB}",
    "Matrix": f"/matrix?job={JOB}",
    "Compare, two jobs": f"/compare?a={JOB}&b=job-001",
    "Compare, slow steps": f"/compare/steps/{JOB}",
    "Incidents": "/incident",
    "one incident": "/incident/{incident}",
    "Explore": f"/explore?query={quote(EXPLORED)}",
    "Hosts": "/hosts",
    "one host": "/hosts/{host}",
    "Settings": "/settings",
    "its rules": "/settings/rules",
    "its agents": "/settings/agents",
}

FIRST_SECONDS_BAR, COMPLETE_SECONDS_BAR = 1.0, 2.5
SLOW_ANSWERS_SHOWN = 15
TIMES = frozenset({"from", "to", "start", "end", "time", "at"})
"""Parameters of questions that move with the clock."""

NOTE_WHAT_IS_SHOWN = """() => {
    const seen = window.shown = { first: null, complete: null, busy: 0 };
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
        if (isCodeAwaited) return;
        if (seen.first === null && (hasAnswer || waits.size === 0)) seen.first = performance.now();
        if (waits.size > 0) seen.complete = null;
        else seen.complete ??= performance.now();
    };
    new MutationObserver(look).observe(document, { childList: true, subtree: true });
    new PerformanceObserver(list => {
        for (const one of list.getEntries()) seen.busy += one.duration;
    }).observe({ type: "longtask", buffered: true });
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


class Load(msgspec.Struct, frozen=True):
    """One load of a view with an empty cache."""

    first: float
    complete: float
    """Seconds until nothing waits and the last answer has come."""
    busy: float
    """Seconds in which the page's thread was held for 50 ms and more."""
    answers: list[Answer]

    @property
    def packed(self) -> int:
        return sum(one.packed for one in self.answers)

    @property
    def slowest(self) -> Answer:
        return max(self.answers, key=lambda one: one.ended - one.began)


def run(*, is_quick: bool, rounds: int) -> Result:
    del rounds  # each view is loaded several times
    if peers.find("chromium") is None or not (PAGE / "index.html").is_file():
        raise BenchError("it needs chromium (make peers-system) and the built page (make page)")
    hosts = QUICK_HOSTS if is_quick else HOSTS
    file, port, folder = recorded(hosts, GPUS), free_port(), OUTPUT / "work" / f"views-{hosts}"
    command = [fabricscope(), "serve", "--data", str(folder), "--listen", f"127.0.0.1:{port}"]
    with (
        run_program("views", command, folder, port) as service,
        chromium() as browser,
    ):
        service.wait_until_ready("/readyz")
        with playing(file, port, PLAYED_SECONDS_MAX, 0, read_ticks=READ_TICKS) as player:
            say(f"views: {hosts} hosts, settling")
            time.sleep(QUICK_SETTLE_SECONDS if is_quick else SETTLE_SECONDS)
            host = host_of(hosts, 0)
            time_to_verdict(service, host)
            cpu, began = service.cpu_seconds(), time.monotonic()
            loads = measure(browser, service, host, QUICK_LOADS if is_quick else LOADS)
            cores = (service.cpu_seconds() - cpu) / (time.monotonic() - began)
            played = player.end()
    return result_of(hosts, loads, cores, played, is_quick=is_quick)


def measure(browser: Browser, service: Program, host: str, times: int) -> dict[str, list[Load]]:
    """Every view so many times, each time all of them: a slow minute spoils one load of each."""
    found = service.get("/v1/incidents", host=host, limit="1").json()["items"]
    incident = found[0]["id"] if found else ""
    views = {name: where for name, where in VIEWS.items() if incident or "{incident}" not in where}
    if not incident:
        say(f"views: no incident names {host}, whose GPU fell off the bus; its view is left out")
    loads: dict[str, list[Load]] = {name: [] for name in views}
    for turn in range(times):
        for name, address in views.items():
            say(f"views: {name}, load {turn + 1}")
            loads[name].append(
                load(browser, service.url, address.format(incident=incident, host=host))
            )
    return loads


def load(browser: Browser, url: str, address: str, *, now_s: float | None = None) -> Load:
    """The view at this address, with an empty cache; ``now_s``: where the page's clock stands.

    Playwright's own clock would also stop the one that measures.
    """
    with watched(browser, url) as seen:
        if now_s is not None:
            seen.page.add_init_script(f"({STOP_THE_CLOCK})({now_s * 1000})")
        seen.page.add_init_script(f"({NOTE_WHAT_IS_SHOWN})()")
        seen.open(address)
        shown = seen.page.evaluate("() => window.shown")
        answers = msgspec.convert(seen.page.evaluate(ANSWERS_SO_FAR), list[Answer])
    waited: dict[str, Answer] = {}
    # A part that waits again (the pulse asked for it) does so after the view was complete.
    complete = shown["complete"] or max(one.ended for one in answers)
    for one in sorted(answers, key=lambda one: one.began):
        if one.began <= complete and one.path != STREAM:
            waited.setdefault(one.question, one)
    return Load(
        first=shown["first"] / 1000,
        complete=max([complete, *(one.ended for one in waited.values())]) / 1000,
        busy=shown["busy"] / 1000,
        answers=list(waited.values()),
    )


# Tables ------------------------------------------------------------------------------------------


def middle(loads: list[Load]) -> Load:
    """The load whose time until complete is the median."""
    return sorted(loads, key=lambda one: one.complete)[len(loads) // 2]


def result_of(
    hosts: int, loads: dict[str, list[Load]], cores: float, played: Played, *, is_quick: bool
) -> Result:
    first = {name: statistics.median(one.first for one in of) for name, of in loads.items()}
    complete = {name: middle(of).complete for name, of in loads.items()}

    def bar(what: str, needed: float, of: dict[str, float]) -> Bar:
        slowest = max(of, key=lambda name: of[name])
        value = None if is_quick else of[slowest]
        what = f"{what} in seconds {{needed}}: {slowest}"
        return Bar(what=what, needed=needed, value=value, unit=" s", at_most=True)

    return Result(
        name="views",
        tables=[views_table(hosts, loads, first), answers_table(loads)],
        bars=[
            bar("first content of the slowest view", FIRST_SECONDS_BAR, first),
            bar("the slowest view is complete", COMPLETE_SECONDS_BAR, complete),
        ],
        figures={name: msgspec.to_builtins(of) for name, of in loads.items()},
        notes=[note_of(cores, played)],
        is_quick=is_quick,
    )


def note_of(cores: float, played: Played) -> str:
    return (
        f"the service took {cores:.2f} cores meanwhile, beside the browser and the player; "
        f"{played.sent:,} batches, {played.refused:,} refused, {played.late_seconds:.0f} s late"
    )


def views_table(hosts: int, loads: dict[str, list[Load]], first: dict[str, float]) -> Table:
    empty = middle(loads[EMPTY]).complete
    columns = ["view", "first content", "complete", "of an empty page's", "page busy"]
    columns += ["packed", "requests", "slowest answer"]
    rows = []
    for name, of in loads.items():
        one = middle(of)
        took = (one.slowest.ended - one.slowest.began) / 1000
        rows.append(
            [
                name,
                f"{first[name]:.2f} s",
                f"{one.complete:.2f} s",
                f"{one.complete / empty:.1f}x",
                f"{one.busy:.2f} s",
                f"{one.packed / 1e3:,.0f} kB",
                str(len(one.answers)),
                f"{one.slowest.path}, {number(took)} s",
            ]
        )
    return Table(title=f"Views at {hosts} hosts, live", columns=columns, rows=rows)


def answers_table(loads: dict[str, list[Load]]) -> Table:
    """The slowest answers over all views."""
    took: dict[tuple[str, str], Answer] = {}
    for name, of in loads.items():
        for one in middle(of).answers:
            took[name, one.question] = one
    slow = sorted(took.items(), key=lambda each: -each[1].waited)[:SLOW_ANSWERS_SHOWN]
    rows = [
        [
            f"{name}: {shortened(question)}",
            f"{one.began:.0f} ms",
            f"{one.waited:.0f} ms",
            f"{one.packed / 1e3:,.0f} kB",
            f"{one.size / 1e3:,.0f} kB",
        ]
        for (name, question), one in slow
    ]
    columns = ["answer", "asked after", "until its first byte", "packed", "size"]
    return Table(title="The slowest answers", columns=columns, rows=rows)


def shortened(question: str, most: int = 90) -> str:
    """A question that fits into a table; bars would end its cell."""
    text = question.replace("|", "¦")
    return text if len(text) <= most else f"{text[: most - 1]}…"
