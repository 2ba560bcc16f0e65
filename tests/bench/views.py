"""Every view of the built-in page in Chromium, on a live cluster: when it is there, and who paid.

`python -m tests.bench.views [HOSTS] [--gpus N] [--at URL] [--browser FILE] [--views NAME …]`.
A store is filled with half an hour of a recorded cluster (`tests.bench.held`), the service runs on
it as in production, and the recording goes on in real time (`tests.bench.player`): nothing is
simulated meanwhile. Service, player and browser share the machine, so beside the seconds stands the
CPU time that each took until the view was complete, and what the service took in as long a time
with no page open. Each view has a limit; one that does not end is a row that says what it awaits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import httpx
import msgspec

from tests.bench.held import HOST, Clock, Stand
from tests.bench.live import JOB, Player, playing_part, recorded
from tests.bench.player import Part, Played
from tests.bench.processes import (
    Program,
    cpu_seconds_of,
    fabricscope,
    free_port,
    run_program,
    say,
    tree_cpu_seconds,
    tree_of,
)
from tests.bench.recording import CYCLE_MS, JOB_HOSTS_MAX, TICK_SECONDS, record
from tests.bench.report import OUTPUT, Bar, BenchError, Result, Table, number, save, show
from tests.bench.shown import Answer, Load, Loader, loader
from tests.stands.round_by_round import round_by_round
from tests.tools import peers
from tests.tools.setup_page import PAGE

HOSTS, QUICK_HOSTS = 256, 16
GPUS = 2
"""Two cores do not take 2,048 GPUs every five seconds."""
READ_SECONDS = 30.0
"""How often agents read their counters here; records of jobs are whole."""
MINUTES, QUICK_MINUTES = 31, 3
"""Of the past: the half hour that views show, and what it looks back."""
LOADS, QUICK_LOADS = 2, 1
LIMIT_SECONDS = 30.0
"""For one load of one view: far past its budget, and a bench of 16 views ends in minutes."""
SETTLE_SECONDS = 45.0
"""Until the service has read its last minutes back and its windows are full."""
IDLE_SECONDS, QUICK_IDLE_SECONDS = 30.0, 10.0
"""With no page open: several rounds of verdicts and of rules."""
AFTER_SECONDS = 1.0
"""Between two views: the service notices that a page is gone."""
PLAYED_SECONDS_MAX = 3_600.0

EMPTY = "an empty page"
OTHER_JOB = "job-001"
EXPLORED = "sum by (host) (rate(fabric_port_transmit_bytes_total[1m]))"
VIEWS: dict[str, str] = {
    EMPTY: "/nowhere",
    "Now": "/",
    "Fabric": "/fabric",
    "Jobs": "/job",
    "one job": f"/job/{JOB}",
    "Matrix": f"/matrix?job={JOB}",
    "Compare, two jobs": f"/compare?a={JOB}&b={OTHER_JOB}",
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


class Plan(msgspec.Struct, frozen=True):
    """What is measured, and how long."""

    hosts: int
    gpus: int = GPUS
    minutes: int = MINUTES
    loads: int = LOADS
    limit: float = LIMIT_SECONDS
    settle: float = SETTLE_SECONDS
    idle: float = IDLE_SECONDS
    read_seconds: float = READ_SECONDS
    views: tuple[str, ...] = ()
    """None: all."""
    browser: Path | None = None
    at: str = ""
    """The address of a service that runs; "": one of our own."""
    recording: Path | None = None
    """Made where there is none; None: one that is made anew for each version of the simulator."""

    @property
    def read_ticks(self) -> int:
        return max(1, round(self.read_seconds / TICK_SECONDS))

    def recorded(self) -> Path:
        if self.recording is None:
            return recorded(self.hosts, self.gpus)
        if not self.recording.exists():
            say(f"views: recording a minute of {self.hosts} hosts into {self.recording}")
            record(self.hosts, self.recording, self.gpus, JOB_HOSTS_MAX)
        return self.recording


QUICK = Plan(
    hosts=QUICK_HOSTS, minutes=QUICK_MINUTES, loads=QUICK_LOADS, settle=5.0, idle=QUICK_IDLE_SECONDS
)


class Cost(msgspec.Struct, frozen=True):
    """CPU-seconds in a stretch of time."""

    seconds: float
    service: float
    browser: float
    player: float


class Measured(msgspec.Struct, frozen=True):
    """One load, and what it cost."""

    load: Load
    cost: Cost


class Meters:
    """The CPU clocks of the service, the player and the browser: all that is left below this."""

    def __init__(self, service: int, player: int) -> None:
        self._service, self._player = service, player

    def end_browser(self) -> None:
        end_browser({self._service, self._player})

    def now(self) -> Cost:
        return Cost(
            seconds=time.monotonic(),
            service=cpu_seconds_of(self._service),
            browser=tree_cpu_seconds(os.getpid(), {self._service, self._player}),
            player=cpu_seconds_of(self._player),
        )

    def since(self, before: Cost) -> Cost:
        now = self.now()
        return Cost(
            seconds=now.seconds - before.seconds,
            service=now.service - before.service,
            browser=now.browser - before.browser,
            player=now.player - before.player,
        )


def end_browser(spared: Collection[int] = ()) -> None:
    """Kill it; what steers it is this process's own child, and stays."""
    for pid in tree_of(os.getpid(), set(spared)):
        if parent_of(pid) != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def run(*, is_quick: bool, rounds: int) -> Result:
    del rounds  # each view is loaded several times
    return measured(QUICK if is_quick else Plan(hosts=HOSTS), is_quick=is_quick)


def measured(plan: Plan, *, is_quick: bool = False) -> Result:
    if plan.browser is None and peers.find("chromium") is None:
        raise BenchError("it needs chromium (make peers-system), or another one by --browser")
    if not (PAGE / "index.html").is_file():
        raise BenchError("it needs the built page (make page)")
    folder, port = OUTPUT / "work" / f"views-{plan.hosts}", free_port()
    shutil.rmtree(folder, ignore_errors=True)
    file = plan.recorded()
    part = fill(folder, file, plan)
    command = [fabricscope(), "serve", "--data", str(folder), "--listen", f"127.0.0.1:{port}"]
    with run_program("views", command, folder, port) as service:
        service.wait_until_ready("/readyz")
        with playing_part(file, port, PLAYED_SECONDS_MAX, part) as player:
            say(f"views: {plan.hosts} hosts, settling")
            time.sleep(plan.settle)
            idle, found = look(service, player, plan)
            rss = service.rss_mib()
            played = player.end()
    shutil.rmtree(folder, ignore_errors=True)
    return result_of(plan, idle, found, note_of(idle, played, rss), is_quick=is_quick)


def measured_at(plan: Plan) -> Result:
    """The views of a service that an operator has started: no CPU time is known of it."""
    views = views_at(plan)
    nothing = Cost(seconds=1.0, service=0.0, browser=0.0, player=0.0)
    with loader(plan.browser, end_browser) as pages:
        pages.load(plan.at, VIEWS[EMPTY], plan.limit)  # a browser's first page is slow
        found = load_all(
            plan,
            views,
            lambda address: Measured(pages.load(plan.at, address, plan.limit), nothing),
        )
    return result_of(plan, nothing, found, f"of {plan.at}, CPU time unknown", is_quick=False)


def views_at(plan: Plan) -> dict[str, str]:
    """The views' addresses there, with names of what is there."""
    with httpx.Client(base_url=plan.at, timeout=plan.limit) as client:

        def names_of(what: str, name: str) -> list[str]:
            answer = client.get(f"/v1/{what}").raise_for_status().json()
            return [one[name] for one in answer["items"]]

        jobs, hosts = (
            names_of("jobs?state=running&limit=2", "id"),
            names_of("hosts?limit=1", "host"),
        )
        incidents = names_of("incidents?limit=1", "id")
    if not (jobs and hosts and incidents):
        raise BenchError(f"{plan.at}: it takes a running job, a host and an incident")
    return {
        name: address.replace(JOB, jobs[0])
        .replace(OTHER_JOB, jobs[-1])
        .format(incident=incidents[0], host=hosts[0])
        for name, address in VIEWS.items()
        if not plan.views or name in plan.views
    }


def fill(folder: Path, file: Path, plan: Plan) -> Part:
    """A store with the past of the cluster, until about now, and what is to be played after it."""
    say(f"views: filling a store with {plan.minutes} minutes of {plan.hosts} hosts")
    start_ms = int(time.time()) // 60 * 60_000 - plan.minutes * CYCLE_MS
    clock = Clock(start_ms / 1000)
    folder.mkdir(parents=True)
    with round_by_round(folder, clock=clock) as service:
        stand = Stand(service, lambda: file, clock, start_ms, plan.read_ticks)
        stand.fill(plan.minutes)
        stand.look()
        stand.accuse()
        return Part(start_ms, stand.tick, plan.read_ticks)


def look(service: Program, player: Player, plan: Plan) -> tuple[Cost, dict[str, list[Measured]]]:
    """What it costs with no page open, and every view so many times.

    Each time all of them: a slow minute spoils one load of each.
    """
    meters = Meters(service.pid, player.pid)
    views = chosen(service, plan.views)
    before = meters.now()
    time.sleep(plan.idle)
    idle = meters.since(before)
    with loader(plan.browser, meters.end_browser) as pages:
        pages.load(service.url, VIEWS[EMPTY], plan.limit)  # a browser's first page is slow
        found = load_all(
            plan, views, lambda address: one_load(pages, service.url, address, plan.limit, meters)
        )
    return idle, found


def load_all(
    plan: Plan, views: Mapping[str, str], one_load: Callable[[str], Measured]
) -> dict[str, list[Measured]]:
    """Every view, so many times; between two the service notices that a page is gone."""
    found: dict[str, list[Measured]] = {name: [] for name in views}
    for turn in range(plan.loads):
        for name, address in views.items():
            one = one_load(address)
            found[name].append(one)
            say(f"views: {name}, load {turn + 1}: {told(one.load.complete, plan.limit)}")
            time.sleep(AFTER_SECONDS)
    return found


def one_load(pages: Loader, url: str, address: str, limit: float, meters: Meters) -> Measured:
    before = meters.now()
    shown = pages.load(url, address, limit)
    return Measured(shown, meters.since(before))


def chosen(service: Program, names: Collection[str]) -> dict[str, str]:
    """The views' addresses by name."""
    found = service.get("/v1/incidents", host=HOST, limit="1").json()["items"]
    if not found:
        raise BenchError(f"no incident names {HOST}, which the filled store accuses")
    views = {
        name: address.format(incident=found[0]["id"], host=HOST) for name, address in VIEWS.items()
    }
    return {name: views[name] for name in VIEWS if not names or name in names}


# Tables ------------------------------------------------------------------------------------------


def told(seconds: float | None, limit: float) -> str:
    return f"not in {limit:.0f} s" if seconds is None else f"{seconds:.2f} s"


def value_of(seconds: float | None, limit: float) -> float:
    """For medians and bars: what did not end took the limit at least."""
    return limit if seconds is None else seconds


def middle(loads: list[Measured], limit: float) -> Measured:
    """The load whose time until complete is the median; of two the worse."""
    return sorted(loads, key=lambda one: value_of(one.load.complete, limit))[len(loads) // 2]


def first_of(loads: list[Measured], limit: float) -> float:
    return statistics.median(value_of(one.load.first, limit) for one in loads)


def result_of(
    plan: Plan, idle: Cost, found: dict[str, list[Measured]], note: str, *, is_quick: bool
) -> Result:
    limit = plan.limit
    first = {name: first_of(of, limit) for name, of in found.items()}
    complete = {
        name: value_of(middle(of, limit).load.complete, limit) for name, of in found.items()
    }

    def bar(what: str, needed: float, of: dict[str, float]) -> Bar:
        slowest = max(of, key=lambda name: of[name])
        value = None if is_quick else of[slowest]
        what = f"{what} in seconds {{needed}}: {slowest}"
        return Bar(what=what, needed=needed, value=value, unit=" s", at_most=True)

    return Result(
        name="views",
        tables=[views_table(plan, idle, found), answers_table(found, limit)],
        bars=[
            bar("first content of the slowest view", FIRST_SECONDS_BAR, first),
            bar("the slowest view is complete", COMPLETE_SECONDS_BAR, complete),
        ],
        figures={name: msgspec.to_builtins(of) for name, of in found.items()},
        notes=[note, *waits_of(found)],
        is_quick=is_quick,
    )


def note_of(idle: Cost, played: Played, rss: float) -> str:
    return (
        f"with no page open the service took {idle.service / idle.seconds:.2f} cores and the "
        f"player {idle.player / idle.seconds:.2f}; {rss:,.0f} MiB; {played.sent:,} batches, "
        f"{played.refused:,} refused, {played.late_seconds:.0f} s late"
    )


def waits_of(found: dict[str, list[Measured]]) -> list[str]:
    """What views that did not end still waited for."""
    return [
        f"{name} did not end; it awaits {', '.join(one.load.waits) or 'nothing'}"
        for name, of in found.items()
        for one in of
        if one.load.complete is None
    ]


def views_table(plan: Plan, idle: Cost, found: dict[str, list[Measured]]) -> Table:
    columns = ["view", "first content", "complete", "budget", "CPU: service", "idle", "browser"]
    columns += ["player", "page busy", "requests", "packed", "slowest answer"]
    rows = [row_of(name, of, plan.limit, idle) for name, of in found.items()]
    shape = f"{plan.hosts} hosts of {plan.gpus} GPUs" if not plan.at else plan.at
    return Table(title=f"Views, {shape}, live", columns=columns, rows=rows)


def row_of(name: str, of: list[Measured], limit: float, idle: Cost) -> list[str]:
    one, first = middle(of, limit), first_of(of, limit)
    shown, cost = one.load, one.cost
    is_met = first <= FIRST_SECONDS_BAR and (
        value_of(shown.complete, limit) <= COMPLETE_SECONDS_BAR
    )
    slowest = shown.slowest
    took = 0.0 if slowest is None else (slowest.ended - slowest.began) / 1000
    return [
        name,
        told(first if first < limit else None, limit),
        told(shown.complete, limit),
        "met" if is_met else "missed",
        f"{cost.service:.2f} s",
        f"{idle.service / idle.seconds * cost.seconds:.2f} s",
        f"{cost.browser:.2f} s",
        f"{cost.player:.2f} s",
        f"{shown.busy:.2f} s",
        str(len(shown.answers)),
        f"{shown.packed / 1e3:,.0f} kB",
        "none" if slowest is None else f"{slowest.path}, {number(took)} s",
    ]


def answers_table(found: dict[str, list[Measured]], limit: float) -> Table:
    """The slowest answers over all views."""
    took: dict[tuple[str, str], Answer] = {}
    for name, of in found.items():
        for one in middle(of, limit).load.answers:
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


def parse(words: list[str]) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.views", description=__doc__)
    add, base = parser.add_argument, Plan(hosts=HOSTS)
    add("hosts", nargs="?", type=int, default=base.hosts)
    add("--gpus", type=int, default=base.gpus, help="of a host, and NICs")
    add("--minutes", type=int, default=base.minutes, help="of past that the store holds")
    add("--loads", type=int, default=base.loads, help="of each view; the median is shown")
    add("--limit", type=float, default=base.limit, help="seconds for one load")
    add("--settle", type=float, default=base.settle, help="seconds before the first load")
    add("--idle", type=float, default=base.idle, help="seconds measured with no page open")
    add("--read-seconds", type=float, default=base.read_seconds, help="between two readings")
    add("--views", nargs="+", default=(), metavar="NAME", choices=VIEWS, help="these alone")
    add("--at", default="", metavar="URL", help="of a service that runs, such as the demo's")
    add("--browser", type=Path, metavar="FILE", help="Chromium, or a script that starts one")
    add("--recording", type=Path, metavar="FILE", help="the load; made where there is none")
    given = vars(parser.parse_args(words))
    return Plan(**{**given, "views": tuple(given["views"])})


def main(words: list[str]) -> int:
    try:
        plan = parse(words)
        result = measured_at(plan) if plan.at else measured(plan)
    except BenchError as error:
        say(f"views: failed: {error}")
        return 1
    show(result)
    say(f"views: written to {save(result).relative_to(OUTPUT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
