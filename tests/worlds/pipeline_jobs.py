"""Jobs cut into pipeline stages, for tests: who computes, sends, receives and waits, as columns."""

from collections.abc import Callable

import numpy as np

from alerts.window.model import Communicator, JobWindow, Rank
from alerts.window.split import split
from alerts.window.steps import infer_steps
from collector.contract.collective import Collective, Operation
from tests.worlds.collectives import START_NS, to_columns

MS = 1_000_000
COMPUTE_MS = 4.0
"""Of one micro-batch, forward or backward."""
MESSAGE_MS = 0.2
REDUCE_MS = 3.0

Slow = Callable[[int, int], float]
"""More milliseconds in each pass of a micro-batch, for a rank in a step."""


class Pipelines:
    """Stage = rank % stages, copy = rank // stages; all forward, all backward, then reduced."""

    def __init__(self, stages: int, copies: int, *, seed: int = 1, batches: int = 4) -> None:
        self.stages, self.copies, self.batches = stages, copies, batches
        self.random = np.random.default_rng(seed)
        self.ranks = stages * copies
        self.now = np.zeros(self.ranks)
        self.records: list[Collective] = []
        self.numbers: dict[tuple[str, str], int] = {}
        self.sends_ms: dict[int, float] = {}
        """Of ranks whose messages take longer than MESSAGE_MS: how long."""

    def play(self, steps: int, slow: Slow = lambda *_: 0.0) -> list[Collective]:
        for step in range(steps):
            for first in range(0, self.ranks, self.stages):
                for _ in range(self.batches):
                    self._pass(range(first, first + self.stages), step, slow)
                for _ in range(self.batches):
                    self._pass(range(first + self.stages - 1, first - 1, -1), step, slow)
            if self.copies > 1:
                for stage in range(self.stages):
                    self.reduce(f"stage{stage}", list(range(stage, self.ranks, self.stages)))
            self.reduce("world", list(range(self.ranks)))
        return self.records

    def _pass(self, ranks: range, step: int, slow: Slow) -> None:
        for place, rank in enumerate(ranks):
            work = COMPUTE_MS * self.random.normal(1.0, 0.01) + slow(rank, step)
            self.now[rank] += max(work, 0.1)
            if place + 1 < len(ranks):
                self.message(rank, ranks[place + 1])

    def message(self, source: int, target: int) -> None:
        """Blocking at both ends: over when the later one has come, and the bytes."""
        low, high = sorted((source, target))
        name = f"pair{low}-{high}"
        # As the Inspector counts: one number for the pair's messages in either direction.
        number = self.numbers[name, "message"] = self.numbers.get((name, "message"), 0) + 1
        entries = self.now[[source, target]].copy()
        took = self.sends_ms.get(source, MESSAGE_MS)
        leave = entries.max() + took * self.random.normal(1.0, 0.02)
        for rank, kind in ((source, Operation.SEND), (target, Operation.RECV)):
            own = int(rank == high)
            entry = entries[0] if rank == source else entries[1]
            self.record(name, kind, number, rank, (own, 2), (entry, leave), peer=1 - own)
            self.now[rank] = leave

    def reduce(self, name: str, ranks: list[int]) -> None:
        number = self.numbers[name, "reduce"] = self.numbers.get((name, "reduce"), 0) + 1
        leave = self.now[ranks].max() + REDUCE_MS
        for place, rank in enumerate(ranks):
            times = (self.now[rank], leave)
            self.record(name, Operation.ALL_REDUCE, number, rank, (place, len(ranks)), times)
            self.now[rank] = leave

    def record(
        self,
        name: str,
        operation: Operation,
        number: int,
        rank: int,
        place: tuple[int, int],
        times_ms: tuple[float, float],
        peer: int | None = None,
    ) -> None:
        entry, leave = (START_NS + round(time * MS) for time in times_ms)
        self.records.append(
            Collective(
                communicator=name, operation=operation, sequence=number, rank=place[0],
                ranks=place[1], source="nccl_inspector", time_ns=leave, entry_ns=entry,
                exit_ns=leave, size_bytes=1 << 20, peer=peer, host=f"node{rank}", pid=rank + 1,
            )
        )  # fmt: skip


def to_job(records: list[Collective]) -> JobWindow:
    """The job that these records are of; `host` and `pid` name the rank."""
    columns = to_columns(records)
    members: dict[str, dict[int, int]] = {}
    sizes: dict[str, int] = {}
    for one in records:
        members.setdefault(one.communicator, {})[one.rank] = one.pid - 1
        sizes[one.communicator] = one.ranks
    job_rank = {(name, rank): own for name, found in members.items() for rank, own in found.items()}
    numbers = sorted(set(job_rank.values()))
    return JobWindow(
        job="train",
        size=len(numbers),
        ranks={rank: Rank(rank=rank, host=f"node{rank}", gpu=0) for rank in numbers},
        communicators={
            name: Communicator(name=name, ranks=sizes[name], job_rank=found)
            for name, found in members.items()
        },
        source="nccl_inspector",
        records=columns,
        operations=split(columns),
        clocks=[],
        steps=infer_steps(columns, job_rank),
        is_running=False,
    )
