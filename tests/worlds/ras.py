"""Recorded answers of NCCL's RAS (tests/fixtures/ras), replayed to the agent's source."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from alerts.window.columns import Operations, Records
from alerts.window.model import Communicator, Gpus, Grid, Hosts, JobWindow, Rank, Window
from alerts.window.split import split
from collector.contract.communicator import COMMUNICATOR
from collector.contract.errors import HostError
from collector.contract.model import Event, Reading
from collector.contract.ras import RAS
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import Host
from collector.sources.nccl_ras import NcclRas, Settings
from tests.worlds.late_jobs import make_job, no_ports

RECORDINGS = Path(__file__).resolve().parent.parent / "fixtures/ras"
START_NS = 1_800_000_000 * NS
TICK_SECONDS = 5.0
JITTER_SECONDS = 0.003
ADDRESS = "10.77.0.{}"


class Answer(NamedTuple):
    seconds: float
    format: str
    status: bytes


def answers_of(run: str, kind: str = "json") -> list[Answer]:
    """The answers of a run, in order of time since its fault."""
    with gzip.open(RECORDINGS / f"{run}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Answer(row["seconds"], row["format"], row["status"].encode())
        for row in rows
        if row["format"] == kind
    ]


class RecordedHost(Host):
    """A host whose RAS port answers as it was recorded, by a clock that the test sets."""

    def __init__(self, root: Path, answers: Sequence[Answer], node: int = 0) -> None:
        super().__init__(root)
        table = root / "proc/net/fib_trie"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(f"  |-- {ADDRESS.format(node + 1)}\n     /32 host LOCAL\n", "utf-8")
        self.answers = answers
        self.seconds = answers[0].seconds
        self.asked: list[float] = []

    def now_ns(self) -> int:
        return START_NS + round(self.seconds * NS)

    def monotonic_ns(self) -> int:
        return 10**15 + round(self.seconds * NS)

    def ras_status(self, address: str, seconds: float) -> bytes:  # noqa: ARG002 - a door's seam
        self.asked.append(self.seconds)
        past = [one for one in self.answers if one.seconds <= self.seconds]
        if not past or not past[-1].status:
            raise HostError(UnreadReason.ABSENT, address, "nothing listens")
        return past[-1].status


class Replayed(NamedTuple):
    host: RecordedHost
    readings: list[tuple[float, Reading]]

    def events(self, kind: str, until: float = 1e9) -> list[Event]:
        return [
            each
            for seconds, each in self.readings
            if isinstance(each, Event) and each.kind == kind and seconds <= until
        ]


def replay(root: Path, answers: Sequence[Answer], *, node: int = 0, phase: float = 0.0) -> Replayed:
    """Reads the source every five seconds over a run; ``phase``: when its first read is.

    As by an agent on a busy host, every other read comes some milliseconds early.
    """
    host, source = RecordedHost(root, answers, node), NcclRas(Settings())
    found: list[tuple[float, Reading]] = []
    host.seconds += phase
    jitter = JITTER_SECONDS
    while host.seconds <= answers[-1].seconds:
        found += [(host.seconds, each) for each in source.read(host)]
        host.seconds += TICK_SECONDS - jitter
        jitter = -jitter
    host.close()
    return Replayed(host, found)


def job_of(events: Sequence[Event], size: int = 8) -> JobWindow:
    """A job that only RAS has seen: its largest communicators number its ranks."""
    nothing = make_job(steps=1)
    records: Records = nothing.records.select(slice(0))
    operations: Operations = split(records)
    names = {event.labels[COMMUNICATOR] for event in events if event.kind == RAS}
    return JobWindow(
        job="training",
        size=size,
        ranks={rank: Rank(rank=rank, host=f"node{rank}", gpu=0) for rank in range(size)},
        communicators={
            name: Communicator(name=name, ranks=size, job_rank={}) for name in sorted(names)
        },
        source="",
        records=records,
        operations=operations,
        clocks=(),
    )


def window_at(seconds: float, events: Sequence[Event], *, is_live: bool = True) -> Window:
    """What a service sees of them at that time, without any reading."""
    to_ns = START_NS + round(seconds * NS)
    told = [event for event in events if event.time_ns <= to_ns]
    grid = Grid(to_ns - 36 * 5 * NS, 5 * NS, 36)
    nothing = np.zeros(0, dtype=np.int64)
    return Window(
        from_ns=to_ns - 180 * NS,
        to_ns=to_ns,
        jobs=[job_of(told)],
        ports=no_ports(grid),
        gpus=Gpus(grid=grid, host=[], gpu=[], readings={}, seen_ns=nothing),
        hosts=Hosts(grid=grid, host=[], readings={}, seen_ns=nothing),
        events=told,
        is_live=is_live,
    )
