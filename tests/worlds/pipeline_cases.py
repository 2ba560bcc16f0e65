"""Pipelines with and without a fault, and whether a report of them is right."""

from __future__ import annotations

import enum
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from alerts.window.columns import Computing
from alerts.window.model import JobWindow
from api.diagnose.report import Diagnosis
from collector.contract.collective import Collective, Operation
from collector.contract.units import NS
from collector.contract.verdict import Reason
from tests.worlds.collectives import START_NS
from tests.worlds.pipeline_jobs import to_job
from tests.worlds.pipeline_play import Kernel, Play, Shape, Work
from tests.worlds.pipeline_traces import Style, write_traces

OPERATIONS = {
    "params": Operation.ALL_GATHER,
    "grads": Operation.REDUCE_SCATTER,
    "norm": Operation.ALL_REDUCE,
}


class Fault(enum.StrEnum):
    """What is the matter with a job, from its first step to its last."""

    HEALTHY = "healthy"
    SLOW_WORKER = "slow worker"
    """One copy of one stage takes longer."""
    LAST_STAGE = "last stage"
    """All copies of the last stage have more work."""
    SEQUENCES = "sequences"
    """Micro-batches of different lengths, other ones in every copy and step."""


class Outcome(enum.StrEnum):
    """What a report is worth."""

    RIGHT = "right"
    UNKNOWN = "unknown"
    """Nothing is said that was to be said, and nobody accused."""
    WRONG = "wrong"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its fault; ``seed`` chooses which rank and how much, and the noise."""

    fault: Fault
    shape: Shape
    style: Style = Style.FULL
    seed: int = 1
    has_steps: bool = True

    @property
    def name(self) -> str:
        shape = self.shape
        return f"{self.style}-{self.fault}-{shape.stages}x{shape.copies}-{self.seed}"

    @property
    def slow(self) -> tuple[int, int, float]:
        """Copy, stage and factor of the slow worker."""
        random = np.random.default_rng(self.seed)
        copy, stage = (
            int(random.integers(self.shape.copies)),
            int(random.integers(self.shape.stages)),
        )
        return copy, stage, float(random.uniform(1.5, 2.5))

    def work(self) -> Work:
        copy, stage, factor = self.slow
        last = self.shape.stages - 1
        lengths = np.random.default_rng(self.seed + 1).lognormal(
            -0.12, 0.5, (self.shape.copies, self.shape.steps, self.shape.batches)
        )
        by_fault: dict[Fault, Work] = {
            Fault.HEALTHY: lambda *_: 1.0,
            Fault.SLOW_WORKER: lambda c, s, *_: factor if (c, s) == (copy, stage) else 1.0,
            Fault.LAST_STAGE: lambda _, s, *__: min(factor, 1.8) if s == last else 1.0,
            Fault.SEQUENCES: lambda c, _, step, b: float(np.clip(lengths[c, step, b], 0.3, 4.0)),
        }
        return by_fault[self.fault]

    def write(self, folder: Path) -> Play:
        play = Play(self.shape, self.work(), seed=self.seed).run()
        write_traces(play, folder, self.style, has_steps=self.has_steps)
        return play

    def accused(self) -> list[int]:
        """The ranks that are to be named."""
        copy, stage, _ = self.slow
        shape = self.shape
        if self.fault is Fault.SLOW_WORKER:
            return [shape.rank(copy, stage)]
        if self.fault is Fault.LAST_STAGE:
            return sorted(shape.rank(each, shape.stages - 1) for each in range(shape.copies))
        return []

    def outcome(self, report: Diagnosis) -> Outcome:
        """A stage's ranks are named for uneven work only; without copies it may be either."""
        named, uneven = [], False
        for verdict in report.verdicts:
            ranks = [one.rank for one in (verdict.culprit, *verdict.accomplices)]
            uneven |= verdict.reason is Reason.IMBALANCE
            named += [rank for rank in ranks if rank is not None]
        if not set(named) <= set(self.accused()):
            return Outcome.WRONG
        if self.fault is Fault.HEALTHY:
            return Outcome.WRONG if report.verdicts else Outcome.RIGHT
        if not report.verdicts:
            return Outcome.UNKNOWN
        if self.fault is Fault.SLOW_WORKER:
            is_right = bool(named) and uneven == (self.shape.copies == 1)
        else:
            is_right = uneven and bool(named) == (self.fault is Fault.LAST_STAGE)
        return Outcome.RIGHT if is_right else Outcome.WRONG


def window_of(play: Play) -> JobWindow:
    """The job as `diagnose` would read its traces, without files; ranks are numbered from 0."""
    place = {rank: number for number, rank in enumerate(play.shape.ranks)}
    numbers: Counter[tuple[str, str, int]] = Counter()
    records = [
        record_of(kernel, place[rank], place, numbers)
        for rank, own in play.kernels.items()
        for kernel in own
        if kernel.stream != "compute"
    ]
    stretches = [
        (place[rank], START_NS + round(one.start * NS), START_NS + round(one.end * NS))
        for rank, own in play.kernels.items()
        for one in own
        if one.stream == "compute"
    ]
    rows = np.array(stretches, dtype=np.int64)
    computing = Computing(rank=rows[:, 0], start_ns=rows[:, 1], end_ns=rows[:, 2])
    return msgspec.structs.replace(to_job(records), computing=computing)


def record_of(
    kernel: Kernel, rank: int, place: dict[int, int], numbers: Counter[tuple[str, str, int]]
) -> Collective:
    members = [place[one] for one in kernel.group] or [*place.values()]
    name = f"{kernel.kind if len(members) == len(place) else 'stage'}{members[0]}"
    operation = OPERATIONS[kernel.kind] if kernel.group else Operation.SEND_RECV
    peer = None
    if len(kernel.halves) == 1:
        half = kernel.halves[0]
        operation = Operation.SEND if half.is_send else Operation.RECV
        peer = place[half.target if half.is_send else half.source]
    number = numbers[name, operation, rank] = numbers[name, operation, rank] + 1
    return Collective(
        communicator=name, operation=operation, sequence=number, rank=members.index(rank),
        ranks=len(members), source="kineto", time_ns=START_NS + round(kernel.end * NS),
        entry_ns=START_NS + round(kernel.start * NS), exit_ns=START_NS + round(kernel.end * NS),
        size_bytes=1 << 20, peer=peer, host=f"node{rank}", pid=rank + 1,
    )  # fmt: skip
