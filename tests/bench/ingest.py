"""Ingest: the same samples into Prometheus, VictoriaMetrics and us, each fresh and alone.

Every load is read back before its figures count: the number of series and samples, and some
series sample by sample.
"""

from __future__ import annotations

import shutil
import statistics

import msgspec

from tests.bench.load import (
    REQUESTS_AT_ONCE,
    SERIES_PER_HOST,
    Load,
    Request,
    make_load,
    native_requests,
    remote_requests,
)
from tests.bench.processes import free_port, run_program, say
from tests.bench.report import OUTPUT, Bar, Result, Table, number, rate, ratio
from tests.bench.sender import send_all
from tests.bench.systems import Fabricscope, Prometheus, System, VictoriaMetrics

HOSTS, READINGS = 208, 60
QUICK_HOSTS, QUICK_READINGS = 32, 20
REMOTE_CONNECTIONS = (2, 8)
AGENT_CONNECTIONS = HOSTS
"""Every agent has its own, as in a cluster."""
BATCH_READINGS = (10, 1)
"""Readings in a native batch: of an agent that reads every second and sends every ten, and of one
that sends every reading."""

NATIVE_RATIO, PROMETHEUS_RATIO = 5.0, 2.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one load cost one store."""

    system: str
    how: str
    connections: int
    samples: int
    samples_per_second: float
    cpu_per_million_acked: float
    """CPU-seconds for a million samples, until the last one was acknowledged."""
    cpu_per_million: float
    """The same until the store was quiet: merges are part of the price."""
    settle_seconds: float
    p50_ms: float
    p95_ms: float
    peak_rss_mib: float
    bytes_data: float
    bytes_indexed: float
    bytes_folder: float
    retries: int
    sender_cpu_seconds: float

    @property
    def samples_per_cpu_second(self) -> float:
        """The inverse of the price, merges included."""
        return 1e6 / self.cpu_per_million


class Case(msgspec.Struct, frozen=True):
    """A store and how it is fed."""

    system: System
    how: str
    queues: list[list[Request]]


def measure(case: Case, load: Load) -> Figures | None:
    """Start the store on an empty folder, load it, look at it, stop it; None if it is missing."""
    system, folder = case.system, OUTPUT / "work" / f"ingest-{case.system.name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port = free_port()
    command = system.command(folder, port)
    if command is None:
        return None
    say(f"ingest: {system.title}, {case.how}, {len(case.queues)} connections")
    with run_program(system.name, command, folder, port) as program:
        program.wait_until_ready(system.ready_path)
        program.settle()
        before = program.cpu_seconds()
        sent = send_all(port, case.queues)
        acked = program.cpu_seconds() - before
        settled = program.settle()
        quiet = program.cpu_seconds() - before
        peak = program.peak_rss_mib()
        system.check(program, load)
        disk = system.weigh(program, folder)
    if disk is None:
        disk = system.weigh_stopped(folder, load)
    shutil.rmtree(folder, ignore_errors=True)
    millions = sent.samples / 1e6
    return Figures(
        system=system.title,
        how=case.how,
        connections=len(case.queues),
        samples=sent.samples,
        samples_per_second=sent.samples / sent.wall_seconds,
        cpu_per_million_acked=acked / millions,
        cpu_per_million=quiet / millions,
        settle_seconds=settled,
        p50_ms=sent.quantile_ms(0.5),
        p95_ms=sent.quantile_ms(0.95),
        peak_rss_mib=peak,
        bytes_data=disk.data / sent.samples,
        bytes_indexed=disk.indexed / sent.samples,
        bytes_folder=disk.folder / sent.samples,
        retries=sent.retries,
        sender_cpu_seconds=sent.sender_cpu_seconds,
    )


def run_round(hosts: int, readings: int) -> list[Figures]:
    """Every store with every load, once."""
    ours = Fabricscope()
    found: list[Figures | None] = []
    load = make_load(hosts, readings)
    for connections in REMOTE_CONNECTIONS:
        queues = remote_requests(load, ours.write_path, connections)
        systems: list[System] = [Prometheus(), VictoriaMetrics(), ours]
        found += [measure(Case(each, "remote write", queues), load) for each in systems]
    for batch in BATCH_READINGS:
        queues = native_requests(load, ours.ingest_path, AGENT_CONNECTIONS, batch)
        found.append(measure(Case(ours, f"native x{batch}", queues), load))
    return [figures for figures in found if figures is not None]


def median(rounds: list[list[Figures]]) -> list[Figures]:
    """For each case the median of each figure over the rounds."""
    merged = []
    for same in zip(*rounds, strict=True):
        middle = {
            name: statistics.median(getattr(each, name) for each in same)
            for name in Figures.__struct_fields__
            if not isinstance(getattr(same[0], name), str | int)
        }
        merged.append(msgspec.structs.replace(same[0], **middle))
    return merged


def run(*, is_quick: bool, rounds: int) -> Result:
    """The bench."""
    hosts = QUICK_HOSTS if is_quick else HOSTS
    readings = QUICK_READINGS if is_quick else READINGS
    all_rounds = []
    for number_of_round in range(rounds):
        say(f"ingest: round {number_of_round + 1} of {rounds}")
        all_rounds.append(run_round(hosts, readings))
    figures = median(all_rounds)
    series = hosts * SERIES_PER_HOST
    return Result(
        name="ingest",
        tables=[speed_table(figures, series, readings), disk_table(figures)],
        bars=bars(figures),
        figures={"rounds": [msgspec.to_builtins(each) for each in all_rounds]},
        notes=[
            "every load was read back: all series and samples counted, some compared one by one",
            f"a native xN batch has {SERIES_PER_HOST} series x N readings",
            f"a remote-write request has {series // REQUESTS_AT_ONCE:,} series x 1 sample",
        ],
        is_quick=is_quick,
    )


def row_name(figures: Figures) -> str:
    """How a row is called."""
    return f"{figures.system}, {figures.how}, {figures.connections} connections"


def speed_table(figures: list[Figures], series: int, readings: int) -> Table:
    """Speed and price."""
    return Table(
        title=f"{series:,} series x {readings} samples",
        columns=[
            "",
            "samples/s",
            "CPU-s/M until ack",
            "CPU-s/M with merges",
            "samples per CPU-s",
            "p50 ms",
            "p95 ms",
            "peak RSS MiB",
            "sender CPU-s",
        ],
        rows=[
            [
                row_name(each),
                rate(each.samples_per_second),
                number(each.cpu_per_million_acked),
                number(each.cpu_per_million),
                rate(each.samples_per_cpu_second).replace("/s", ""),
                number(each.p50_ms),
                number(each.p95_ms),
                number(each.peak_rss_mib),
                number(each.sender_cpu_seconds),
            ]
            for each in figures
        ],
    )


def disk_table(figures: list[Figures]) -> Table:
    """What lies on disk."""
    return Table(
        title="Bytes per sample on disk",
        columns=["", "samples alone, merged", "with labels and index", "folder as left"],
        rows=[
            [
                row_name(each),
                f"{each.bytes_data:.2f}",
                f"{each.bytes_indexed:.2f}",
                f"{each.bytes_folder:.2f}",
            ]
            for each in figures
        ],
    )


def pick(figures: list[Figures], system: str, how: str, connections: int) -> Figures | None:
    """One case's figures."""
    for each in figures:
        if (each.system, each.how, each.connections) == (system, how, connections):
            return each
    return None


def bars(figures: list[Figures]) -> list[Bar]:
    """How we stand to what was promised."""
    ours, prometheus, victoria = (each.title for each in (Fabricscope, Prometheus, VictoriaMetrics))
    victorias = [each for each in figures if each.system == victoria]
    # The peer's better run is the one to beat.
    cheapest = max((each.samples_per_cpu_second for each in victorias), default=None)
    found = []
    for batch in BATCH_READINGS:
        native = pick(figures, ours, f"native x{batch}", AGENT_CONNECTIONS)
        per_cpu = native.samples_per_cpu_second if native else None
        what = f"native x{batch}, samples per CPU-second {{needed}}x VictoriaMetrics' remote write"
        found.append(Bar(what=what, needed=NATIVE_RATIO, value=ratio(per_cpu, cheapest), unit="x"))
    for connections in REMOTE_CONNECTIONS:
        mine = pick(figures, ours, "remote write", connections)
        for title, needed in ((prometheus, PROMETHEUS_RATIO), (victoria, 1.0)):
            theirs = pick(figures, title, "remote write", connections)
            value = ratio(
                mine.samples_per_second if mine else None,
                theirs.samples_per_second if theirs else None,
            )
            what = f"remote write, {connections} connections, samples/s {{needed}}x {title}"
            found.append(Bar(what=what, needed=needed, value=value, unit="x"))
    for what, field in (
        ("bytes per sample, samples alone,", "bytes_data"),
        ("bytes per sample with labels and index", "bytes_indexed"),
    ):
        mine_worst = max((getattr(e, field) for e in figures if e.system == ours), default=None)
        theirs_best = min((getattr(each, field) for each in victorias), default=None)
        sentence = f"{what} {{needed}}x VictoriaMetrics"
        value = ratio(mine_worst, theirs_best)
        found.append(Bar(what=sentence, needed=1.0, value=value, unit="x", at_most=True))
    return found
