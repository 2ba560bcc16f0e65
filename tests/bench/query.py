"""Queries: the same samples in Prometheus, VictoriaMetrics and us, the same questions to all three.

All three run side by side and are asked in turn, so that whatever else the machine does hits them
alike. The first answers are compared: with Prometheus always, with VictoriaMetrics where the two
mean the same. Questions are asked half an interval after the samples: a sample that lies exactly
on the edge of a range is in it for Prometheus 2, and not for Prometheus 3 and us.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from collector.contract.identity import METRIC_LABEL
from tests.bench.answers import Asker, Question, difference
from tests.bench.load import (
    INTERVAL_SECONDS,
    PORTS,
    Load,
    Request,
    counters,
    latest_end,
    remote_requests,
    times_until,
)
from tests.bench.processes import Program, free_port, run_program, say
from tests.bench.report import OUTPUT, Bar, Result, Table, number, quantile, rate, ratio
from tests.bench.sender import send_all
from tests.bench.systems import Fabricscope, Prometheus, System, VictoriaMetrics

READINGS = 60
"""Of the wide data: ten minutes."""
DAY_METRIC, REST_METRIC = "y", "rest"
DAY_READINGS_A_REQUEST = 72
WIDE_STEP, DAY_STEP = INTERVAL_SECONDS, 60
BEHIND_SECONDS = 300
"""The data ends so long ago: what is sent while we ask is ten times faster than time."""
FAR_FROM_ZERO = 1e6
"""Added to every counter: near zero, `rate` of Prometheus 2 and of 3 extrapolate differently."""
NODES_PER_RACK = 32

CONNECTIONS = 2
SERIES_A_REQUEST = 12_500
ASKS_MIN = 3
ASKS_SECONDS_MAX = 40.0
"""Of one question, all three together; past it only the least number of rounds is done."""

PROMETHEUS_RATIO, VICTORIA_RATIO = 2.5, 1.0

OURS = Fabricscope.title
PEERS = [Prometheus.title, VictoriaMetrics.title]
TITLES = [*PEERS, OURS]
"""In the order in which they are started and shown."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large a run is."""

    wide: tuple[int, int, int]
    """Series of three metrics, each ten times the one before; the middle one is asked most."""
    rest: int
    """Series of a metric that no query selects."""
    day_series: int
    day_readings: int
    asks: int
    ticks: int
    """Readings of the wide data that are sent while we ask: one a second."""

    @property
    def middle(self) -> int:
        """Series of the metric that is asked most."""
        return self.wide[1]


FULL = Size(
    wide=(800, 8_000, 80_000),
    rest=11_200,
    day_series=1_000,
    day_readings=8_640,
    asks=20,
    ticks=20,
)
QUICK = Size(wide=(80, 800, 8_000), rest=1_120, day_series=200, day_readings=720, asks=3, ticks=4)


class Cost(msgspec.Struct, frozen=True):
    """What one question cost one system, over all times that it was asked."""

    wall_ms: list[float]
    cpu_ms: list[float]
    first_ms: float
    """The first time: nothing was warm."""

    @property
    def median_ms(self) -> float:
        """Wall time."""
        return statistics.median(self.wall_ms)

    @property
    def median_cpu_ms(self) -> float:
        """CPU time of the system."""
        return statistics.median(self.cpu_ms)

    def wall(self) -> str:
        """Median and 95th percentile."""
        return f"{number(self.median_ms)} / {number(quantile(self.wall_ms, 0.95))}"


class Ingesting(msgspec.Struct, frozen=True):
    """What questions took while samples came in."""

    walls_ms: dict[str, list[float]]
    samples_per_second: float
    retries: int
    peak_rss_mib: float


Costs = dict[str, dict[str, Cost]]
"""By question, then by system."""


# --- the data ----------------------------------------------------------------------------------


def wide_metric(series: int) -> str:
    """The name of the metric with so many series."""
    return f"x{series}"


def port_labels(metric: str, index: int) -> dict[str, str]:
    """The labels of one series: seven and the name, as many as in the ingest bench."""
    node = f"node-{index // PORTS:05d}"
    return {
        METRIC_LABEL: metric,
        "cluster": "bench",
        "device": f"mlx5_{index % PORTS}",
        "instance": f"{node}.bench.example:9100",
        "node": node,
        "port": "1",
        "rack": f"r{index // PORTS // NODES_PER_RACK:03d}",
    }


def make_data(size: Size) -> tuple[Load, Load, Load]:
    """The wide data, what comes after it, and the long data."""
    metrics = [(wide_metric(series), series) for series in size.wide] + [(REST_METRIC, size.rest)]
    labels = [port_labels(metric, index) for metric, count in metrics for index in range(count)]
    readings = READINGS + size.ticks
    values = counters(len(labels), readings, seed=1) + FAR_FROM_ZERO
    end = latest_end(int(time.time()) - BEHIND_SECONDS, (READINGS - 1) * INTERVAL_SECONDS)
    times = times_until(end + size.ticks * INTERVAL_SECONDS, readings)
    day = Load(
        [port_labels(DAY_METRIC, index) for index in range(size.day_series)],
        times_until(end, size.day_readings),
        counters(size.day_series, size.day_readings, seed=2) + FAR_FROM_ZERO,
    )
    wide = Load(labels, times[:READINGS], values[:READINGS])
    return wide, Load(labels, times[READINGS:], values[READINGS:]), day


def wide_requests(load: Load) -> list[list[Request]]:
    """Requests of one reading each, for every connection as many."""
    spread = -(-len(load.labels) // SERIES_A_REQUEST // CONNECTIONS) * CONNECTIONS
    return remote_requests(load, Fabricscope.write_path, CONNECTIONS, spread=spread)


# --- the questions -----------------------------------------------------------------------------


def code(text: str) -> str:
    """PromQL as pages show it, so that its underscores stay."""
    return f"`{text}`"


def over(text: str, end_ms: int, seconds: int, step: int) -> Question:
    """A question over a range that ends half an interval after a sample."""
    end = end_ms // 1000 + INTERVAL_SECONDS / 2
    return Question(
        title=code(text) if step == WIDE_STEP else f"{code(text)}, {seconds // 3600} h",
        path="/api/v1/query_range",
        parameters={
            "query": text,
            "start": str(end - seconds + step),
            "end": str(end),
            "step": str(step),
        },
        has_ties="topk" in text,
        victoria_agrees="rate(" not in text,
    )


def at(text: str, end_ms: int) -> Question:
    """A question about one moment."""
    moment = end_ms // 1000 + INTERVAL_SECONDS / 2
    parameters = {"query": text, "time": str(moment)}
    return Question(title=f"{code(text)}, one moment", path="/api/v1/query", parameters=parameters)


def sum_by_node(series: int) -> str:
    """The question of the bar."""
    return f"sum by (node) (rate({wide_metric(series)}[1m]))"


def one_series(series: int) -> str:
    """A selector that matches one series."""
    return f'{wide_metric(series)}{{node="node-00003",device="mlx5_5"}}'


def questions(size: Size, wide: Load, day: Load) -> list[Question]:
    """Everything that is asked of all three while they rest."""
    end_ms, seconds = wide.times_ms[-1], READINGS * INTERVAL_SECONDS
    x = wide_metric(size.middle)
    ranges = [
        one_series(size.middle),
        *map(sum_by_node, size.wide),
        f"topk(10, {sum_by_node(size.middle)})",
        f"topk(10, rate({x}[1m]))",
    ]
    values_of_node = Question(
        title="values of the label node",
        path="/api/v1/label/node/values",
        parameters={"start": str(wide.times_ms[0] // 1000), "end": str(end_ms // 1000)},
    )
    day_seconds = size.day_readings * INTERVAL_SECONDS
    long = ["rate(y[5m])", "sum(rate(y[5m]))", "avg_over_time(y[5m])", "y"]
    return [
        *[over(text, end_ms, seconds, WIDE_STEP) for text in ranges],
        values_of_node,
        at(f"sum by (node) ({x})", end_ms),
        at('count({__name__=~".+"})', end_ms),
        *[over(text, day.times_ms[-1], day_seconds, DAY_STEP) for text in long],
    ]


# --- the run -----------------------------------------------------------------------------------


class Side(msgspec.Struct, frozen=True):
    """A system that runs and holds the data."""

    system: System
    program: Program
    asker: Asker


@contextlib.contextmanager
def loaded_sides(wide: Load, day: Load) -> Iterator[list[Side]]:
    """Every system that is here, running on its own folder, with the same data in it."""
    with contextlib.ExitStack() as stack:
        sides = []
        # Oldest first: Prometheus takes nothing that is an hour older than what it has.
        loads = [
            remote_requests(
                day, Fabricscope.write_path, 1, spread=1, readings=DAY_READINGS_A_REQUEST
            ),
            wide_requests(wide),
        ]
        systems: list[System] = [Prometheus(), VictoriaMetrics(), Fabricscope()]
        for system in systems:
            folder = OUTPUT / "work" / f"query-{system.name}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            port = free_port()
            command = system.command(folder, port)
            if command is None:
                continue
            program = stack.enter_context(run_program(system.name, command, folder, port))
            program.wait_until_ready(system.ready_path)
            for queues in loads:
                sent = send_all(port, queues)
                say(f"query: {system.title} took {sent.samples:,} in {sent.wall_seconds:.1f} s")
            for load in (day, wide):
                system.check(program, load)
            asker = Asker(program)
            stack.callback(asker.close)
            sides.append(Side(system, program, asker))
        for side in sides:
            settled = side.program.settle()
            say(f"query: {side.system.title} was quiet after {settled:.0f} s")
        yield sides


def ask_in_turn(question: Question, sides: list[Side], asks: int) -> tuple[dict[str, Cost], str]:
    """The price of one question for each system, and how their first answers differ."""
    firsts = {side.system.title: side.asker.ask(question) for side in sides}
    unlike = compare(question, {title: first.body for title, first in firsts.items()})
    costs = {title: Cost([], [], first.wall_ms) for title, first in firsts.items()}
    del firsts  # the answers are large
    deadline = time.monotonic() + ASKS_SECONDS_MAX
    for number_of_ask in range(asks):
        if number_of_ask >= ASKS_MIN and time.monotonic() > deadline:
            break
        # Each comes first as often as the others do.
        turn = number_of_ask % len(sides)
        for side in sides[turn:] + sides[:turn]:
            asked = side.asker.ask(question)
            costs[side.system.title].wall_ms.append(asked.wall_ms)
            costs[side.system.title].cpu_ms.append(asked.cpu_ms)
    return costs, unlike


def agreement(compared: list[str]) -> list[str]:
    """The report's sentences, if no answer differed from those it was compared with."""
    said = {
        Prometheus.title: "our answers were Prometheus' answers",
        VictoriaMetrics.title: "our answers were VictoriaMetrics' answers, rate left out",
    }
    return [text for title, text in said.items() if title in compared]


def compare(question: Question, bodies: dict[str, bytes]) -> str:
    """How our answer differs from the others' where it should not."""
    peers = [Prometheus.title] + [VictoriaMetrics.title] * question.victoria_agrees
    found = []
    for peer in peers:
        if peer in bodies:
            unlike = difference(bodies[OURS], bodies[peer], question)
            found += [f"{question.title}: not {peer}'s answer: {unlike}"] if unlike else []
    return "; ".join(found)


def ask_while_ingesting(side: Side, size: Size, more: Load) -> Ingesting:
    """Ask for the last ten minutes, again and again, while samples come in at a steady pace.

    The load is finite, so this ends when all of it was acknowledged.
    """
    queues = wide_requests(more)
    pace = size.ticks / len(queues[0])
    texts = (one_series(size.middle), sum_by_node(size.middle))
    walls: dict[str, list[float]] = {text: [] for text in texts}
    before_ms = more.times_ms[0] - INTERVAL_SECONDS * 1000
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_all, side.program.port, queues, pace)
        for text in itertools.cycle(texts):
            if sending.done():
                break
            ticks = min(size.ticks, int(time.monotonic() - started))
            end_ms = before_ms + ticks * INTERVAL_SECONDS * 1000
            question = over(text, end_ms, READINGS * INTERVAL_SECONDS, WIDE_STEP)
            walls[text].append(side.asker.ask(question).wall_ms)
        sent = sending.result()
    peak = side.program.peak_rss_mib()
    # The last request is there for the rest of its second.
    seconds = max(sent.wall_seconds, size.ticks)
    return Ingesting(walls, sent.samples / seconds, sent.retries, peak)


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench: `rounds` times as many askings."""
    size = QUICK if is_quick else FULL
    wide, more, day = make_data(size)
    costs: Costs = {}
    notes = []
    with loaded_sides(wide, day) as sides:
        for question in questions(size, wide, day):
            say(f"query: {question.title}")
            costs[question.title], unlike = ask_in_turn(question, sides, size.asks * rounds)
            notes += [unlike] if unlike else []
        ingesting = {}
        for side in sides:
            say(f"query: {side.system.title} while it takes samples")
            ingesting[side.system.title] = ask_while_ingesting(side, size, more)
    return Result(
        name="query",
        tables=[
            wall_table(costs),
            cpu_table(costs),
            scaling_table(size, costs),
            ingesting_table(size, len(more.labels), ingesting),
        ],
        bars=bars(size, costs),
        figures={
            "costs": msgspec.to_builtins(costs),
            "ingesting": msgspec.to_builtins(ingesting),
        },
        notes=notes or agreement(list(ingesting)),
        is_quick=is_quick,
    )


# --- what is shown -----------------------------------------------------------------------------


def cell(cost: Cost | None, show: Callable[[Cost], str]) -> str:
    """One figure, or that there is none."""
    return "none" if cost is None else show(cost)


def times_ours(costs: dict[str, Cost], peer: str) -> float | None:
    """How many times as long as we a peer takes."""
    return ratio(costs[peer].median_ms if peer in costs else None, costs[OURS].median_ms)


def times_cell(costs: dict[str, Cost], peer: str) -> str:
    """The same as text."""
    times = times_ours(costs, peer)
    return "none" if times is None else f"{number(times)}x"


def wall_table(costs: Costs) -> Table:
    """How long the asker waits."""
    return Table(
        title="Wall ms, median / p95, and how many times our median the peers take",
        columns=["", *TITLES, *[f"{peer} / us" for peer in PEERS], "asked"],
        rows=[
            [
                name,
                *[cell(each.get(title), Cost.wall) for title in TITLES],
                *[times_cell(each, peer) for peer in PEERS],
                str(len(each[OURS].wall_ms)),
            ]
            for name, each in costs.items()
        ],
    )


def cpu_table(costs: Costs) -> Table:
    """What the systems spend, and how long the very first asking took."""
    return Table(
        title="CPU ms of the system for one query, median; and wall ms of the first asking",
        columns=["", *TITLES, *[f"{title}, first" for title in TITLES]],
        rows=[
            [
                name,
                *[cell(each.get(title), lambda c: number(c.median_cpu_ms)) for title in TITLES],
                *[cell(each.get(title), lambda c: number(c.first_ms)) for title in TITLES],
            ]
            for name, each in costs.items()
        ],
    )


def scaling_table(size: Size, costs: Costs) -> Table:
    """The same question over ten and a hundred times as many series."""

    def row(series: int) -> list[str]:
        each = costs[code(sum_by_node(series))]

        def per_series(cost: Cost) -> str:
            wall, cpu = cost.median_ms * 1000 / series, cost.median_cpu_ms * 1000 / series
            return f"{number(wall)} / {number(cpu)}"

        return [f"{series:,} series", *[cell(each.get(title), per_series) for title in TITLES]]

    return Table(
        title="`sum by (node) (rate(x[1m]))`: wall µs / CPU µs for each series",
        columns=["", *TITLES],
        rows=[row(series) for series in size.wide],
    )


def ingesting_table(size: Size, asked_rate: int, ingesting: dict[str, Ingesting]) -> Table:
    """What queries take while samples come in."""

    def wall(walls_ms: list[float]) -> str:
        if not walls_ms:
            return "none"
        return f"{number(statistics.median(walls_ms))} / {number(quantile(walls_ms, 0.95))}"

    return Table(
        title=f"While {rate(asked_rate)} samples come in for {size.ticks} s: "
        "wall ms, median / p95 (times asked)",
        columns=["", "one series", "sum by (node)", "samples taken", "retries", "peak RSS MiB"],
        rows=[
            [
                title,
                *[f"{wall(walls)} ({len(walls)})" for walls in each.walls_ms.values()],
                rate(each.samples_per_second),
                str(each.retries),
                number(each.peak_rss_mib),
            ]
            for title, each in ingesting.items()
        ],
    )


def bars(size: Size, costs: Costs) -> list[Bar]:
    """How we stand to what was promised."""
    text = code(sum_by_node(size.middle))
    return [
        Bar(
            what=f"{text}, {size.middle:,} series: {peer} takes {{needed}}x our time",
            needed=needed,
            value=times_ours(costs[text], peer),
            unit="x",
        )
        for peer, needed in (
            (VictoriaMetrics.title, VICTORIA_RATIO),
            (Prometheus.title, PROMETHEUS_RATIO),
        )
    ]
