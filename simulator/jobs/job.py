"""A running training job: the step program, its ranks' clocks, and its use of the network.

Each rank has two clocks, as a GPU has two streams: one computes, one communicates. No code marks a
rank as late: a rank enters a collective at the time of its own clock, leaves it when the ring has
served it, and carries its delay into the next one.

A step: wait for data; forward, backward (in a pipeline stage after stage, wave after wave), the
gradient's buckets reduced while backward still runs, the optimizer, and now and then a pause.
Collectives inside a host, or with hardly any bytes, need no network and are computed here; for the
others `next_phase` hands a `Phase` to the engine and waits for `finish`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.jobs.activity import Activity, Doing
from simulator.jobs.ladder import exits
from simulator.jobs.layout import PIPELINE, lay_out
from simulator.jobs.model import JobSpec, Phase
from simulator.jobs.patterns import (
    Collective,
    Collectives,
    StageRange,
    edge_range,
    floor_of,
    stage_ranges,
    waves,
)
from simulator.jobs.records import Records
from simulator.jobs.workload import (
    BACKWARD_SHARE,
    FORWARD_SHARE,
    OPTIMIZER_SHARE,
    StepWork,
    Workload,
)
from simulator.snapshot import CollectiveBlock, JobStatus, StepBlock
from simulator.topology.model import Bools, Floats, Ints, Topology
from simulator.topology.world import World

HUNG_AFTER_SECONDS = 10.0
"""A collective takes seconds at worst; if nothing has moved for longer, the job hangs."""
PID_FIRST, PID_LAST = 2_000, 200_000
"""Range of the training processes' pids on a host that has run for weeks."""


@dataclass(eq=False)
class _Turn:
    """A phase that the engine has, and the job's own state of it."""

    phase: Phase
    collective: Collective
    numbers: Ints
    """Of each unit, see `Records.number`."""
    planned_s: Floats
    """When ranks would have entered if nothing had stopped them."""
    left_s: Floats
    """For ranks that are stopped: the work they had left before entering; else NaN."""
    not_before_s: Floats
    """For each unit: when it was no longer stuck; minus infinity if it never was."""
    exit_s: Floats | None = None


@dataclass(eq=False)
class _Hung:
    """A collective that needs no network and that a dead GPU keeps from ending."""

    members: Ints
    blocks: list[CollectiveBlock]
    entry_s: Floats
    """When each rank reached it; NaN: it never did."""


class Job:
    """One job. The engine alternates `next_phase` and `finish`; all other callers only read."""

    def __init__(self, spec: JobSpec, topology: Topology, random: np.random.Generator) -> None:
        self.spec = spec
        self.name = spec.name
        self.layout = lay_out(spec, topology)
        self.rank_gpu = self.layout.rank_gpu
        self._collectives = Collectives(spec, self.layout, topology)
        every = self._collectives.all()
        crossing = [one for one in every if one.has_flows and not one.is_latency]
        # A job inside one host has phases too: they advance its time.
        self._networked = crossing or every
        self.patterns = tuple(one.pattern for one in self._networked)
        self._workload = Workload(spec, self.layout, random)
        self._records = Records(spec.name, spec.pipeline, random)
        self._activity = Activity(self.layout.ranks)
        ready = spec.start_s + self._workload.startup_seconds()
        self._compute: Floats = ready
        self._network: Floats = ready.copy()
        pairs = self.layout.groups.get(PIPELINE, np.zeros((0, 2), dtype=np.int32))
        self._pair_left_s: Floats = np.zeros(pairs.shape)
        """When both ends of each pair of stages left its latest message."""
        self._wave_s: Floats = np.zeros((2, self.layout.ranks))
        """Start and end of each rank's latest stretch of backward: its buckets come out of it."""
        self._now_s = spec.start_s
        self._moved_s = spec.start_s
        self._turn: _Turn | None = None
        self._hung: list[_Hung] = []
        self._is_held: Bools = np.zeros(self.layout.ranks, dtype=np.bool_)
        """Ranks that cannot enter the next collective because one hung without the network."""
        self._step = 0
        self._step_seconds = 0.0
        self._is_over = False
        self._rank_pid = self._draw_pids(random)
        self._communicators = self.layout.communicators()
        self._in_network = frozenset(
            name
            for one in every
            if one.pattern.algorithm.is_in_network
            for name in one.pattern.communicators
        )
        self._world: World | None = None
        self._program = self._run()

    def _draw_pids(self, random: np.random.Generator) -> Ints:
        """The ranks of a host start one after the other."""
        first = random.integers(PID_FIRST, PID_LAST, len(self.spec.hosts))
        per_host = self.layout.ranks // len(self.spec.hosts)
        return (np.repeat(first, per_host) + np.tile(np.arange(per_host), len(first))).astype(
            np.int32
        )

    # The engine's side -------------------------------------------------------------------------

    def next_phase(self, world: World) -> Phase | None:
        """The next use of the network; None when the job is over."""
        self._world = world
        phase = next(self._program, None)
        if phase is None:
            self._is_over = True
            self._turn = None
        return phase

    def revise(self, phase: Phase, world: World, now_s: float) -> None:
        """Recompute after a change of the world; a stopped process goes on where it was."""
        self._world = world
        turn = self._turn
        assert turn is not None
        assert turn.phase is phase
        self._now_s = max(self._now_s, now_s)
        self._release(world, now_s)
        is_blocked = self._blocked(world)[phase.pattern.members]
        was_blocked = np.isinf(phase.entry_s)
        stops = is_blocked & ~was_blocked & (phase.entry_s > now_s)
        resumes = was_blocked & ~is_blocked
        turn.left_s = np.where(stops, phase.entry_s - now_s, turn.left_s)
        phase.entry_s = np.where(stops, np.inf, phase.entry_s)
        phase.entry_s = np.where(resumes, now_s + turn.left_s, phase.entry_s)
        turn.left_s = np.where(resumes, np.nan, turn.left_s)
        was_stuck = phase.is_stuck
        self._settle(phase, world)
        turn.not_before_s = np.where(was_stuck & ~phase.is_stuck, now_s, turn.not_before_s)
        phase.start_s = np.maximum(phase.start_s, turn.not_before_s)

    def finish(self, phase: Phase, end_s: Floats, flow_bps: Floats, world: World) -> None:
        self._world = world
        turn = self._turn
        assert turn is not None
        assert turn.phase is phase
        members = phase.pattern.members
        # A unit that was stuck starts again, its ranks as far apart as they entered.
        stuck_s = np.maximum(turn.not_before_s - phase.entry_s.max(axis=1), 0.0)
        began_s = phase.entry_s + stuck_s[:, None]
        share = self._nvlink_share(turn.collective)
        turn.exit_s = exits(turn.collective, began_s, end_s, flow_bps, share)
        self._records.completed(turn.collective, turn.numbers, phase.entry_s, turn.exit_s)
        nvlink = turn.collective.nvlink_bytes
        self._activity.add(Doing.COMMUNICATING, members, phase.entry_s, turn.exit_s, nvlink)
        # A rank that was stopped before it entered has lost that time on both clocks.
        lost = phase.entry_s - turn.planned_s
        if (lost > 0).any():
            delay = np.zeros(self.layout.ranks)
            np.maximum.at(delay, members, lost)
            self._compute += delay
        self._moved_s = max(self._moved_s, float(end_s.max()))
        self._now_s = max(self._now_s, self._moved_s)

    def drain(self, until_s: float) -> tuple[list[CollectiveBlock], list[StepBlock]]:
        return self._records.take(until_s)

    def work_seconds(self, until_s: float) -> tuple[Floats, Floats, Floats]:
        """Per rank since the last call: seconds computing, in collectives; NVLink bytes."""
        waiting = [(hung.members, np.nan_to_num(hung.entry_s, nan=np.inf)) for hung in self._hung]
        if self._turn is not None and self._turn.exit_s is None:
            waiting.append((self._turn.phase.pattern.members, self._turn.phase.entry_s))
        return self._activity.take(until_s, waiting)

    def pending(self, end_s: Floats | None) -> list[CollectiveBlock]:
        """The last collectives and the one that hangs, as Flight Recorders would hold them.

        ``end_s`` is finite for the units of the current phase that have ended already; None if
        there is no phase.
        """
        found = [*self._records.recent]
        found += [block for hung in self._hung for block in hung.blocks]
        turn = self._turn
        if turn is not None and turn.exit_s is None and end_s is not None:
            entry = np.where(np.isfinite(turn.phase.entry_s), turn.phase.entry_s, np.nan)
            left = np.full(entry.shape, np.nan)
            left[:] = np.where(np.isfinite(end_s), end_s, np.nan)[:, None]
            is_left = np.isfinite(left).all(axis=1)
            for chosen in (is_left, ~is_left):
                found += self._records.blocks(turn.collective, turn.numbers, entry, left, chosen)
        return found

    def status(self, now_s: float) -> JobStatus:
        layout = self.layout
        return JobStatus(
            name=self.name,
            ranks=layout.ranks,
            rank_host=layout.rank_host,
            rank_gpu=layout.rank_gpu,
            rank_nic=layout.rank_nic,
            rank_pid=self._rank_pid,
            step=self._step,
            step_seconds=self._step_seconds,
            hung_since_s=self._hung_since(now_s),
            is_running=self.spec.start_s <= now_s and not self._has_ended(now_s),
            communicators=self._communicators,
            in_network=self._in_network,
            start_s=self.spec.start_s,
        )

    def _has_ended(self, now_s: float) -> bool:
        return self._is_over and now_s >= float(self._compute.max())

    def _hung_since(self, now_s: float) -> float | None:
        """Since when nothing has moved; None while a rank is still on its way."""
        turn = self._turn
        if turn is None or turn.exit_s is not None:
            return None
        entered = turn.phase.entry_s[np.isfinite(turn.phase.entry_s)]
        last = max(float(entered.max(initial=self._moved_s)), self._moved_s)
        return last if now_s - last >= HUNG_AFTER_SECONDS else None

    # Collectives
    # -------------------------------------------------------------------------------------

    def _now_world(self) -> World:
        """The world as of the engine's last call; the program only runs inside one."""
        assert self._world is not None
        return self._world

    def _blocked(self, world: World) -> Bools:
        """Ranks that launch nothing in this world."""
        host = self.layout.rank_host
        stopped: Bools = world.host_process_is_stopped[host] | world.host_is_down[host]
        return stopped | self._is_held

    def _nvlink_share(self, collective: Collective) -> Floats | None:
        """[units, members]: of NVLink's speed, what is left of each rank's; None: all of it."""
        left = self._now_world().gpu_nvlink_share[self.rank_gpu]
        return left[collective.pattern.members] if (left < 1.0).any() else None

    def _floor(self, collective: Collective) -> Floats:
        share = self._nvlink_share(collective)
        return collective.pattern.floor_seconds if share is None else floor_of(collective, share)

    def _settle(self, phase: Phase, world: World) -> None:
        """When units start, and which never end, given the entries."""
        phase.start_s = phase.entry_s.max(axis=1)
        dead = world.gpu_is_dead[self.rank_gpu][phase.pattern.members].any(axis=1)
        phase.is_stuck = np.isfinite(phase.start_s) & dead

    def _release(self, world: World, now_s: float) -> None:
        """End collectives that hung without the network if their GPUs are alive again."""
        dead = world.gpu_is_dead[self.rank_gpu]
        still: list[_Hung] = []
        for hung in self._hung:
            if dead[hung.members].any():
                still.append(hung)
                continue
            for block in hung.blocks:
                self._records.released(block, now_s)
        self._hung = still
        self._is_held = np.zeros(self.layout.ranks, dtype=np.bool_)
        for hung in still:
            self._is_held[hung.members] = True

    def _take_part(self, collective: Collective, entry_s: Floats) -> Iterator[Phase]:
        world = self._now_world()
        members = collective.pattern.members
        numbers = self._records.number(collective)
        if collective not in self._networked:
            self._take_part_inside(collective, numbers, entry_s)
            return
        is_blocked = self._blocked(world)[members]
        phase = Phase(
            pattern=collective.pattern,
            entry_s=np.where(is_blocked, np.inf, entry_s),
            start_s=np.zeros(len(members)),
            is_stuck=np.zeros(len(members), dtype=np.bool_),
            floor_seconds=self._floor(collective),
        )
        left = np.where(is_blocked, np.maximum(entry_s - self._now_s, 0.0), np.nan)
        self._settle(phase, world)
        never = np.full(len(members), -np.inf)
        self._turn = _Turn(phase, collective, numbers, entry_s, left, never)
        yield phase

    def _take_part_inside(self, collective: Collective, numbers: Ints, entry_s: Floats) -> None:
        """A collective over NVLink, or with nothing to move: it takes its least duration."""
        pattern = collective.pattern
        members = pattern.members
        floor = self._floor(collective)
        end = entry_s.max(axis=1) + floor
        no_wait = np.full(len(pattern.flow_unit), np.inf)
        exit_s = exits(collective, entry_s, end, no_wait, self._nvlink_share(collective))
        is_dead = self._now_world().gpu_is_dead[self.rank_gpu]
        dead: Bools = np.asarray(is_dead[members].any(axis=1))
        held: Bools = self._is_held[members]
        hangs: Bools = dead | held.any(axis=1)
        if hangs.any():
            # Held ranks never get here; a unit that no rank enters leaves no record.
            entry = np.where(held, np.nan, entry_s)
            shown: Bools = hangs & ~held.all(axis=1)
            never = np.full(entry_s.shape, np.nan)
            blocks = self._records.blocks(collective, numbers, entry, never, shown)
            if blocks:
                self._hung.append(_Hung(members[shown], blocks, entry[shown]))
            self._is_held[members[hangs]] = True
        if not hangs.all():
            # The clocks of a hung unit go on; its ranks are held at the next phase.
            self._records.completed(collective, numbers, entry_s, exit_s, ~hangs)
        nvlink = collective.nvlink_bytes
        self._activity.add(Doing.COMMUNICATING, members, entry_s, exit_s, nvlink)
        phase = Phase(pattern, entry_s, end, dead, floor)
        self._turn = _Turn(phase, collective, numbers, entry_s, entry_s, end, exit_s)

    def _left(self) -> Floats:
        assert self._turn is not None
        assert self._turn.exit_s is not None
        return self._turn.exit_s

    # The step program --------------------------------------------------------------------------

    def _run(self) -> Iterator[Phase]:
        while self.spec.steps == 0 or self._step < self.spec.steps:
            yield from self._run_step()
            self._step += 1

    def _run_step(self) -> Iterator[Phase]:
        spec = self.spec
        work = self._workload.step(self._now_world())
        phases: dict[str, tuple[Floats, Floats]] = {}
        start = self._compute.copy()
        self._compute = start + work.data_seconds
        phases["data"] = (start, self._compute.copy())
        yield from self._forward(work)
        phases["forward"] = (phases["data"][1], self._compute.copy())
        yield from self._backward(work)
        yield from self._reduce_gradient()
        phases["backward"] = (phases["forward"][1], self._compute.copy())
        yield from self._share_loss()
        phases["gradients"] = (phases["backward"][1], self._compute.copy())
        everyone = np.arange(self.layout.ranks, dtype=np.int32)
        self._work(OPTIMIZER_SHARE * spec.compute_seconds, work, everyone)
        phases["optimizer"] = (phases["gradients"][1], self._compute.copy())
        yield from self._gather_parameters(phases)
        self._pause("checkpoint", spec.checkpoint_every_steps, spec.checkpoint_seconds, phases)
        self._pause("evaluation", spec.evaluation_every_steps, spec.evaluation_seconds, phases)
        end = self._compute.copy()
        self._step_seconds = float(np.median(end - start))
        self._records.step(StepBlock(self.name, self._step, start, end, phases))

    def _work(self, base_seconds: float, work: StepWork, ranks: Ints) -> None:
        seconds = self._workload.compute_seconds(base_seconds, work, ranks, self._now_world())
        start = self._compute[ranks]
        self._compute[ranks] = start + seconds
        self._activity.add(Doing.COMPUTING, ranks, start, start + seconds)

    def _ranks_of(self, stages: StageRange) -> Ints:
        stage = self.layout.rank_stage
        chosen = np.flatnonzero((stage >= stages[0]) & (stage <= stages[1]))
        return chosen.astype(np.int32)

    def _wave_seconds(self, share: float) -> float:
        """Seconds of one stretch of forward or backward.

        In a pipeline of ``p`` stages, ``m`` microbatches take the time of ``m + p - 1``. Where
        several travel together, the stretch is scaled so that a pass takes as long as it should.
        """
        count, stages, batches = waves(self.spec), self.spec.pipeline, self.spec.microbatches
        fill = (batches + stages - 1) / batches * count / (count + stages - 1)
        return share * self.spec.compute_seconds / count * fill

    def _forward(self, work: StepWork) -> Iterator[Phase]:
        """Wave after wave through the stages; one slot for each place where a wave can be."""
        seconds = self._wave_seconds(FORWARD_SHARE)
        for stages in stage_ranges(self.spec):
            self._work(seconds, work, self._ranks_of(stages))
            for inside in (self._collectives.tensor, self._collectives.expert):
                if stages in inside:
                    yield from self._join(inside[stages])
            edges = edge_range(stages, self.spec.pipeline)
            if edges is not None:
                yield from self._send(self._collectives.forward[edges], sender=0)

    def _backward(self, work: StepWork) -> Iterator[Phase]:
        """The same back from the last stage; a stretch begins with what its layers exchange."""
        seconds = self._wave_seconds(BACKWARD_SHARE)
        ranges = stage_ranges(self.spec)
        for slot in reversed(range(len(ranges))):
            stages = ranges[slot]
            for inside in (self._collectives.expert, self._collectives.tensor):
                if stages in inside:
                    yield from self._join(inside[stages])
            ranks = self._ranks_of(stages)
            self._wave_s[0, ranks] = self._compute[ranks]
            self._work(seconds, work, ranks)
            self._wave_s[1, ranks] = self._compute[ranks]
            # These stages are the upper ends of the pairs over which the slot before sent forward.
            edges = edge_range(ranges[slot - 1], self.spec.pipeline) if slot else None
            if edges is not None:
                yield from self._send(self._collectives.backward[edges], sender=1)

    def _join(self, collective: Collective) -> Iterator[Phase]:
        """A collective that the computation waits for."""
        members = collective.pattern.members
        yield from self._take_part(collective, self._compute[members])
        self._compute[members] = self._left()

    def _send(self, collective: Collective, sender: int) -> Iterator[Phase]:
        """The receiver's computation waits, the sender's does not; each pair has its own stream."""
        members, pairs = collective.pattern.members, collective.group
        entry = np.maximum(self._compute[members], self._pair_left_s[pairs])
        yield from self._take_part(collective, entry)
        left = self._left()
        self._pair_left_s[pairs] = left
        receiver = members[:, 1 - sender]
        self._compute[receiver] = np.maximum(self._compute[receiver], left[:, 1 - sender])

    def _reduce_gradient(self) -> Iterator[Phase]:
        """Buckets as the last stretch of backward produces them, one by one."""
        collective = self._collectives.reduce
        if collective is None:
            return
        members, buckets = collective.pattern.members, self.spec.buckets
        start, end = self._wave_s.copy()
        for bucket in range(buckets):
            ready = start + (end - start) * ((bucket + 1) / buckets)
            entry = np.maximum(ready, self._network)[members]
            yield from self._take_part(collective, entry)
            self._network[members] = self._left()

    def _share_loss(self) -> Iterator[Phase]:
        """After the last bucket all ranks exchange the loss (and before it its inputs, if any)."""
        self._compute = np.maximum(self._compute, self._network)
        for collective in (self._collectives.exchange, self._collectives.loss):
            if collective is not None:
                yield from self._join(collective)
        self._network = np.maximum(self._network, self._compute)

    def _gather_parameters(self, phases: dict[str, tuple[Floats, Floats]]) -> Iterator[Phase]:
        """In sharded jobs each rank has updated a part of the parameters: gather the parts."""
        collective = self._collectives.gather
        if collective is None:
            return
        before = self._compute.copy()
        for _ in range(self.spec.buckets):
            yield from self._join(collective)
        self._network = np.maximum(self._network, self._compute)
        phases["parameters"] = (before, self._compute.copy())

    def _pause(
        self, name: str, every: int, seconds: float, phases: dict[str, tuple[Floats, Floats]]
    ) -> None:
        """Work due every so many steps that keeps the GPUs idle."""
        if every <= 0 or (self._step + 1) % every:
            return
        before = self._compute.copy()
        self._compute = before + self._workload.pause_seconds(seconds, self._now_world())
        phases[name] = (before, self._compute.copy())
