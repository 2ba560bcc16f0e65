"""Records of a job's own tools: collectives with their sequence numbers, and steps.

Records are planned ahead of the clock like everything else in a job; `take` returns them once their
last exit has passed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from collector.contract.collective import Operation, State
from simulator.jobs.patterns import Collective
from simulator.snapshot import CollectiveBlock, StepBlock
from simulator.topology.model import Bools, Floats, Ints

OBSERVATION_SECONDS = 15e-6
"""Mean delay of the CPU callbacks that record entries and exits; never early, seldom 100 us."""
SHORTEST_SECONDS = 1e-6
PENDING_BLOCKS = 10
"""Finished collectives that a simulated Flight Recorder dump shows before the one that hangs."""


class Records:
    """Collective and step records of one job until `take` returns them."""

    def __init__(self, job: str, stages: int, random: np.random.Generator) -> None:
        self._job = job
        self._stages = stages
        self._random = random
        self._counts: dict[tuple[str, Operation], Ints] = {}
        self._blocks: list[tuple[float, CollectiveBlock]] = []
        self._steps: list[tuple[float, StepBlock]] = []
        self.recent: deque[CollectiveBlock] = deque(maxlen=PENDING_BLOCKS)

    def number(self, collective: Collective) -> Ints:
        """Return and advance each unit's sequence number, by stage: they fill one by one."""
        key = (collective.kind, collective.pattern.operation)
        counts = self._counts.setdefault(key, np.zeros(self._stages, dtype=np.int32))
        numbers: Ints = counts[collective.stage]
        busy = np.zeros(self._stages, dtype=np.bool_)
        busy[collective.stage] = True
        counts += busy
        return numbers

    def completed(
        self,
        collective: Collective,
        numbers: Ints,
        entry_s: Floats,
        exit_s: Floats,
        chosen: Bools | None = None,
    ) -> None:
        delay = self._random.exponential(OBSERVATION_SECONDS, (2, *entry_s.shape))
        seen_entry = entry_s + delay[0]
        seen_exit = np.maximum(exit_s + delay[1], seen_entry + SHORTEST_SECONDS)
        for block in self.blocks(collective, numbers, seen_entry, seen_exit, chosen):
            self._blocks.append((float(block.exit_s.max()), block))
            self.recent.append(block)

    def blocks(
        self,
        collective: Collective,
        numbers: Ints,
        entry_s: Floats,
        exit_s: Floats,
        chosen: Bools | None = None,
    ) -> list[CollectiveBlock]:
        """One block for each sequence number, of the chosen units (all, if None)."""
        pattern = collective.pattern
        chosen = np.ones(pattern.units, dtype=np.bool_) if chosen is None else chosen
        found = []
        for number in np.unique(numbers[chosen]).tolist():
            units = np.flatnonzero(chosen & (numbers == number))
            is_done = bool(np.isfinite(exit_s[units]).all())
            found.append(
                CollectiveBlock(
                    job=self._job,
                    operation=pattern.operation,
                    algorithm=pattern.algorithm,
                    communicators=tuple(pattern.communicators[unit] for unit in units),
                    sequence=number,
                    size_bytes=pattern.size_bytes,
                    members=pattern.members[units],
                    entry_s=entry_s[units],
                    exit_s=exit_s[units],
                    state=State.COMPLETED if is_done else State.STARTED,
                )
            )
        return found

    def released(self, block: CollectiveBlock, now_s: float) -> None:
        """Record that a hung block has ended after all, for every rank at once."""
        late = self._random.exponential(OBSERVATION_SECONDS, block.entry_s.shape)
        entry = np.where(np.isfinite(block.entry_s), block.entry_s, now_s)
        exit_s = np.maximum(now_s + late, entry + SHORTEST_SECONDS)
        ended = replace(block, entry_s=entry, exit_s=exit_s, state=State.COMPLETED)
        self._blocks.append((float(exit_s.max()), ended))
        self.recent.append(ended)

    def step(self, block: StepBlock) -> None:
        self._steps.append((float(block.end_s.max()), block))

    def take(self, until_s: float) -> tuple[list[CollectiveBlock], list[StepBlock]]:
        blocks = sorted((one for one in self._blocks if one[0] <= until_s), key=_end)
        steps = sorted((one for one in self._steps if one[0] <= until_s), key=_end)
        self._blocks = [one for one in self._blocks if one[0] > until_s]
        self._steps = [one for one in self._steps if one[0] > until_s]
        return [block for _, block in blocks], [block for _, block in steps]


def _end(record: tuple[float, CollectiveBlock | StepBlock]) -> float:
    return record[0]
