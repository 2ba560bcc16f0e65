"""What every view of the page and every board costs a service whose store holds so many hosts.

`python -m tests.bench.asked [HOSTS] [--times N] [--views NAME …] [--boards] [--ahead]
[--answers FILE]`.
Nothing else runs beside it, so that the process's CPU time is the answer's (`tests.bench.held`
fills the store and sets the clock).
Chromium opens each view with an empty cache, once where nothing has asked before (`first`) and once
30 seconds later (`next`), which is what a view costs while it is watched. Then each request that
the views made is asked alone. Beside each figure stands how many times it is that of 16 hosts, if
those were measured: what shows one job or one host must not grow with the others. ``--times`` puts
so many times the samples into the store, as of so many times the hosts. ``--ahead`` opens each view
a third time, where nobody has looked before and jobs' pieces were made ahead, and prints what it
cost to make them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from api.base.packages import leave_out_needless
from api.data.store.store import Store
from api.promql.fetch import Reader
from dashboards.grafana.boards import discover
from dashboards.grafana.substitute import substituted
from tests.bench import shown, views
from tests.bench.held import HOST, Stand, held, name_of
from tests.bench.live import JOB, LOOKED_SECONDS
from tests.bench.processes import say
from tests.bench.report import OUTPUT, BenchError, Table, number
from tests.oracles.grafana_ask import Span
from tests.stands.browser import chromium

SMALL = 16
"""The size that others are compared with."""
ANSWER_SECONDS_MAX = 600
"""The time does not count, and the machine may be busy."""
SHOWN = 30
BOARD_QUERIES_SHOWN = 10
CHOSEN = {
    "cluster": ".*",
    "instance": ".*",
    "job": JOB,
    "host": HOST,
    "switch": "leaf0-0",
    "device": "mlx5_0",
    "port": "1",
}
"""What is chosen on boards: one job, one of its hosts, one of that one's ports."""
ASKED = ("/v1/", "/api/")


class Cost(msgspec.Struct, frozen=True):
    """Of one question, or of all that a view asks."""

    cpu_ms: float
    wall_ms: float
    samples: int
    """Samples that PromQL looked at."""
    rows: int
    """Rows that the store gave to others."""
    size: int = 0


class View(msgspec.Struct, frozen=True):
    """One load of a view."""

    cost: Cost
    first_ms: float
    complete_ms: float
    requests: list[str]


class Meter:
    """The CPU time, samples and rows of what happens in a block; threads of the service only."""

    def __init__(self) -> None:
        self._cpu, self._own, self._wall = self._now()
        self.samples = self.rows = 0

    @staticmethod
    def _now() -> tuple[float, float, float]:
        # This thread steers the browser or waits for the answer: no part of the price.
        return time.process_time(), time.thread_time(), time.perf_counter()

    def cost(self, size: int = 0) -> Cost:
        cpu, own, wall = self._now()
        spent = (cpu - self._cpu) - (own - self._own)
        walled = (wall - self._wall) * 1000
        return Cost(spent * 1000, walled, self.samples, self.rows, size)


@contextmanager
def metered() -> Iterator[Meter]:
    meter = Meter()
    touch, query, ask = Reader.touch, Store.query, Reader.ask
    asking = [False]

    def touched(reader: Reader, samples: int, loaded: int | None = None) -> None:
        meter.samples += samples
        touch(reader, samples, loaded)

    def asked(reader: Reader, *words: Any, **more: Any) -> Any:  # noqa: ANN401 - passed on
        asking[0] = True
        try:
            return ask(reader, *words, **more)
        finally:
            asking[0] = False

    def queried(store: Store, *words: Any, **more: Any) -> Any:  # noqa: ANN401 - passed on
        table = query(store, *words, **more)
        meter.rows += 0 if asking[0] else table.num_rows
        return table

    with (
        patch.object(Reader, "touch", touched),
        patch.object(Reader, "ask", asked),
        patch.object(Store, "query", queried),
    ):
        yield meter


# --- views --------------------------------------------------------------------------------------


def open_views(stand: Stand, chosen: Collection[str]) -> dict[str, View]:
    """Every chosen view once, in Chromium; none is chosen: all."""
    found: dict[str, View] = {}
    with chromium() as browser:
        for name, address in addresses(stand).items():
            if chosen and name not in chosen:
                continue
            with metered() as meter:
                one = shown.load(browser, stand.url, address, now_s=stand.clock())
                cost = meter.cost(sum(each.size for each in one.answers))
            if one.first is None or one.complete is None:
                raise BenchError(f"{name} does not end; it awaits {', '.join(one.waits)}")
            asked = [each.url for each in one.answers if each.path.startswith(ASKED)]
            found[name] = View(cost, one.first * 1000, one.complete * 1000, asked)
            say(f"asked: {name}: {cost.cpu_ms:.0f} ms of CPU")
    return found


def addresses(stand: Stand) -> dict[str, str]:
    client = stand.service.client
    items = client.get("/v1/incidents", params={"host": HOST, "limit": 1}).json()["items"]
    assert items, f"no incident of {HOST}"
    return {
        name: address.format(incident=items[0]["id"], host=HOST)
        for name, address in views.VIEWS.items()
    }


def target_of(url: str, later_s: float) -> str:
    """Path and parameters of a request, asked so much later."""
    parts = urlsplit(url)
    moved = [
        (name, moved_by(value, later_s) if name in shown.TIMES else value)
        for name, value in parse_qsl(parts.query)
    ]
    return f"{parts.path}?{urlencode(moved)}"


def moved_by(value: str, later_s: float) -> str:
    try:
        return f"{float(value) + later_s:.3f}".rstrip("0").rstrip(".")
    except ValueError:
        return value


def ask(stand: Stand, target: str) -> tuple[Cost, bytes]:
    with metered() as meter:
        answer = stand.service.client.get(target, timeout=ANSWER_SECONDS_MAX)
        cost = meter.cost(len(answer.content))
    if answer.status_code not in {200, 404}:
        say(f"asked: {target[:200]}: {answer.status_code} {answer.text[:200]}")
    return cost, answer.content


# --- boards -------------------------------------------------------------------------------------


def board_targets(now_s: float) -> dict[str, str]:
    """Every query of every board, as Grafana asks it for the last half hour."""
    span = Span(now_s - LOOKED_SECONDS, now_s)
    found: dict[str, str] = {}
    for name, board in discover().items():
        for row in board.rows:
            for panel in row.panels:
                for place, query in enumerate(panel.queries):
                    text = substituted(query.expr, CHOSEN, span.lengths())
                    title = f"{name}: {panel.title}{f' {place + 1}' if place else ''}"
                    found[title] = board_target(text, span, is_instant=query.is_instant)
    return found


def board_target(text: str, span: Span, *, is_instant: bool) -> str:
    if is_instant:
        return f"/api/v1/query?{urlencode({'query': text, 'time': span.end_s})}"
    step = span.step_s
    start, end = span.start_s // step * step, span.end_s // step * step
    asked = {"query": text, "start": start, "end": end, "step": step}
    return f"/api/v1/query_range?{urlencode(asked)}"


# --- figures and tables -------------------------------------------------------------------------


class Figures(msgspec.Struct):
    """Of one size."""

    first: dict[str, View] = {}
    next: dict[str, View] = {}
    answers: dict[str, Cost] = {}
    ahead: dict[str, View] = {}
    boards: dict[str, Cost] = {}
    boards_next: dict[str, Cost] = {}


def file_of(hosts: int, times: int = 1) -> Path:
    return OUTPUT / "asked" / f"{name_of(hosts, times)}.json"


def read_figures(hosts: int, times: int = 1) -> Figures:
    file = file_of(hosts, times)
    return msgspec.json.decode(file.read_bytes(), type=Figures) if file.exists() else Figures()


def times(value: float, of: float | None) -> str:
    return f"{value / of:.1f}x" if of else "-"


def views_table(hosts: str, found: Figures, small: Figures) -> Table:
    columns = ["view", "requests", "CPU first", "CPU next", f"of {SMALL} hosts'", "samples", "rows"]
    columns += ["first content", "complete"]
    rows = []
    for name, one in found.next.items():
        before = small.next.get(name)
        rows.append(
            [
                name,
                str(len(one.requests)),
                f"{found.first[name].cost.cpu_ms:,.0f} ms",
                f"{one.cost.cpu_ms:,.0f} ms",
                times(one.cost.cpu_ms, before.cost.cpu_ms if before else None),
                f"{one.cost.samples:,}",
                f"{one.cost.rows:,}",
                f"{one.first_ms:,.0f} ms",
                f"{one.complete_ms:,.0f} ms",
            ]
        )
    return Table(title=f"Views over a store with {hosts} hosts", columns=columns, rows=rows)


def ahead_table(hosts: str, found: Figures) -> Table:
    columns = ["view", "CPU first", "CPU made ahead", "share", "complete first", "made ahead"]
    rows = []
    for name, one in found.ahead.items():
        first = found.first[name]
        rows.append(
            [
                name,
                f"{first.cost.cpu_ms:,.0f} ms",
                f"{one.cost.cpu_ms:,.0f} ms",
                f"{one.cost.cpu_ms / first.cost.cpu_ms:.0%}",
                f"{first.complete_ms:,.0f} ms",
                f"{one.complete_ms:,.0f} ms",
            ]
        )
    title = f"The first look, and the first look after pieces were made ahead, {hosts} hosts"
    return Table(title=title, columns=columns, rows=rows)


def costs_table(
    title: str, found: Mapping[str, Cost], small: Mapping[str, Cost], shown: int
) -> Table:
    columns = ["", "CPU", f"of {SMALL} hosts'", "wall", "samples", "rows", "size"]
    rows = []
    for name, one in sorted(found.items(), key=lambda each: -each[1].cpu_ms)[:shown]:
        before = small.get(name)
        rows.append(
            [
                views.shortened(name, 110),
                f"{one.cpu_ms:,.0f} ms",
                times(one.cpu_ms, before.cpu_ms if before else None),
                f"{one.wall_ms:,.0f} ms",
                f"{one.samples:,}",
                f"{one.rows:,}",
                f"{number(one.size / 1e3)} kB",
            ]
        )
    return Table(title=title, columns=columns, rows=rows)


def show(table: Table) -> None:
    print("\n".join(table.lines()), flush=True)


class Answers:
    """A digest of each answer, to compare two versions of the service on the same store."""

    def __init__(self, file: str) -> None:
        self._file = Path(file) if file else None
        self.bodies: dict[str, str] = {}

    def note(self, name: str, body: bytes) -> None:
        if self._file is not None:
            self.bodies[name] = body.decode(errors="replace")

    def write(self) -> None:
        if self._file is not None:
            self._file.write_text(json.dumps(self.bodies))


def measure_views(
    stand: Stand, found: Figures, answers: Answers, chosen: Collection[str] = ()
) -> None:
    found.first = open_views(stand, chosen)
    stand.advance()
    found.next = open_views(stand, chosen)
    asked_s = stand.clock()
    stand.advance()
    found.answers = {}
    for view, one in found.next.items():
        for url in one.requests:
            name = f"{view}: {question_of(url)}"
            cost, body = ask(stand, target_of(url, stand.clock() - asked_s))
            found.answers.setdefault(name, cost)
            answers.note(name, body)


def measure_ahead(stand: Stand, found: Figures, chosen: Collection[str] = ()) -> None:
    """Views that nobody looked at before, of jobs whose pieces were made ahead."""
    stand.advance()
    with metered() as meter:
        made = stand.make_ahead()
        cost = meter.cost()
    say(f"asked: {made} pieces of jobs were made ahead, {cost.cpu_ms:,.0f} ms of CPU")
    found.ahead = open_views(stand, chosen)


def question_of(url: str) -> str:
    parts = urlsplit(url)
    asked = [(name, value) for name, value in parse_qsl(parts.query) if name not in shown.TIMES]
    text = "&".join(f"{name}={value}" for name, value in asked)
    digest = hashlib.blake2b(text.encode(), digest_size=3).hexdigest()
    return f"{parts.path} {digest} {text}"


def measure_boards(stand: Stand, found: Figures, answers: Answers) -> None:
    found.boards, found.boards_next = {}, {}
    for costs in (found.boards, found.boards_next):
        for name, target in board_targets(stand.clock()).items():
            costs[name], body = ask(stand, target)
            answers.note(name, body)
        if costs is found.boards:
            stand.advance()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.asked", description=__doc__)
    parser.add_argument("hosts", nargs="?", type=int, default=64)
    parser.add_argument("--times", type=int, default=1, help="samples of so many times the hosts")
    parser.add_argument("--views", nargs="+", default=(), metavar="NAME", help="these views alone")
    parser.add_argument("--boards", action="store_true", help="the boards' queries; not the views")
    parser.add_argument("--ahead", action="store_true", help="also with pieces made ahead")
    parser.add_argument("--answers", default="", metavar="FILE", help="write every answer there")
    chosen = parser.parse_args(words)
    leave_out_needless()  # as the service does; here it would be the first view's
    size = chosen.hosts, chosen.times
    found, small, answers = read_figures(*size), read_figures(SMALL), Answers(chosen.answers)
    with held(*size) as stand:
        if chosen.boards:
            measure_boards(stand, found, answers)
        else:
            measure_views(stand, found, answers, chosen.views)
            if chosen.ahead:
                measure_ahead(stand, found, chosen.views)
    answers.write()
    file_of(*size).parent.mkdir(parents=True, exist_ok=True)
    file_of(*size).write_bytes(msgspec.json.encode(found))
    hosts = name_of(*size)
    if chosen.boards:
        title = f"The dearest queries of boards over a store with {hosts} hosts"
        show(costs_table(title, found.boards_next, small.boards_next, BOARD_QUERIES_SHOWN))
    else:
        show(views_table(hosts, found, small))
        if chosen.ahead:
            show(ahead_table(hosts, found))
        show(costs_table("The dearest answers", found.answers, small.answers, SHOWN))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
