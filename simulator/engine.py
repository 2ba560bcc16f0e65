"""The event loop: jobs use the network in turn, faults strike, and every tick gives a snapshot.

Between two events nothing changes: the units that are moving bytes keep their speeds, so time jumps
from event to event (a collective starts or ends, a fault turns a knob, a tick is due). A tick only
reads state; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.collisions import Collisions
from simulator.faults.model import FOREVER, Cluster, Injection
from simulator.faults.places import used_links
from simulator.jobs.job import Job
from simulator.machines import Machines
from simulator.network.losses import link_errors
from simulator.network.model import Solution
from simulator.network.network import Network
from simulator.pattern import Pattern
from simulator.scenario import Collision, Scenario, Truth, truth_of
from simulator.snapshot import HangDump, Happening, Snapshot
from simulator.tallies import Tallies
from simulator.topology.build import build
from simulator.topology.model import Bools, Floats
from simulator.topology.world import World
from simulator.turn import COINCIDING_SECONDS, NEVER, Turn

CLOCK_SPREAD_SECONDS = 200e-6
"""How far a healthy host's clock is off: what NTP on a local network leaves."""
COINCIDING_SHARE = 0.02
"""Share of a long collective: ends that lie within so much of it also count as one."""
_ROUNDING = 1e-9
"""Share of a collective: less than this is left only by rounding."""
_MOMENT_SECONDS = 1e-9
"""Below the resolution of a float clock after hours: a unit with less time left has ended."""


@dataclass(eq=False)
class Active:
    """An injection that has begun, and when its knobs must be turned again (true seconds)."""

    injection: Injection
    next_change_s: float = FOREVER


class Simulation:
    """A running cluster. `tick` advances the time by one tick and returns a snapshot."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.topology = build(scenario.cluster)
        streams = np.random.SeedSequence(scenario.seed).spawn(4 + len(scenario.jobs))
        world, machines, tallies, own, *jobs = (np.random.default_rng(s) for s in streams)
        self.world = World(self.topology, world)
        self._network = Network(self.topology)
        self._machines = Machines(self.topology, machines, start_unix_ns=scenario.start_unix_ns)
        self._tallies = Tallies(self.topology, tallies)
        self._random = own
        self._jobs = [
            Job(spec, self.topology, random)
            for spec, random in zip(scenario.jobs, jobs, strict=True)
        ]
        self.patterns = [pattern for job in self._jobs for pattern in job.patterns]
        """What all jobs ask of the network, moving or not."""
        self.cluster = Cluster(
            self.topology, scenario.jobs, used_links=used_links(self.world, self.patterns)
        )
        self._collisions = Collisions(
            self.topology, {one: job.name for job in self._jobs for one in job.patterns}
        )
        self._turns: list[Turn | None] = [self._next_turn(job) for job in self._jobs]
        self.now_s = 0.0
        self._pending = sorted(scenario.injections, key=lambda one: one.start_s)
        self._active: list[Active] = []
        self._solution: Solution | None = None
        self._errors = link_errors(self.world)
        self._drawn_s = 0.0
        self._clock_s = own.normal(0.0, CLOCK_SPREAD_SECONDS, self.topology.hosts)
        self._drifted_s = np.zeros(self.topology.hosts)
        self._happenings: list[Happening] = []
        self._dumped: set[str] = set()

    # Callers
    # -----------------------------------------------------------------------------------------

    def run(self) -> Iterator[Snapshot]:
        while self.now_s < self.scenario.seconds - _ROUNDING:
            yield self.tick()

    def inject(self, injection: Injection) -> Truth:
        """Schedule a fault at its time, or now if that has passed."""
        self._pending = sorted([*self._pending, injection], key=lambda one: one.start_s)
        return truth_of(injection, self.cluster, self.scenario.start_unix_ns)

    def truths(self) -> list[Truth]:
        return [
            truth_of(one, self.cluster, self.scenario.start_unix_ns)
            for one in sorted(self.scenario.injections, key=lambda one: one.start_s)
        ]

    def collisions(self) -> list[Collision]:
        """Where flows met by chance until now."""
        return self._collisions.until_now(self.scenario.start_unix_ns)

    def tick(self) -> Snapshot:
        seconds = self.scenario.tick_seconds
        sent_before = self._tallies.bytes_sent.copy()
        self._advance(self.now_s + seconds)
        self._book()
        self._draw()
        self._collisions.tick(self.now_s, seconds)
        sent = (self._tallies.bytes_sent - sent_before) / seconds
        self._advance_machines(seconds, sent)
        self._drifted_s = np.where(
            self.world.host_clock_drift != 0,
            self._drifted_s + self.world.host_clock_drift * seconds,
            0.0,
        )
        snapshot = self._look(seconds, self._tallies.bursts(sent))
        self._tallies.forget_queues()
        return snapshot

    # Time --------------------------------------------------------------------------------------

    def _advance(self, until_s: float) -> None:
        while True:
            self._strike()
            self._start_units()
            solution = self._solve()
            at = min(until_s, self._next_change(), self._next_start(), self._next_end(solution))
            seconds = max(0.0, at - self.now_s)
            if seconds > 0:
                self._move(solution, seconds)
                self.now_s = at
            is_idle = not self._end_units(solution) and at >= until_s
            if is_idle and self._next_start() > until_s and self._next_change() > until_s:
                self.now_s = until_s
                return

    def _next_start(self) -> float:
        return min((turn.next_start_s for turn in self._turns if turn), default=NEVER)

    def _next_end(self, solution: Solution) -> float:
        ends = min((turn.lone_end_s for turn in self._turns if turn), default=NEVER)
        for turn, speed in self._moving(solution):
            able = turn.is_moving & (speed > 0)
            if able.any():
                left = turn.remaining[able] / speed[able]
                first = left.argmin()
                merged = max(COINCIDING_SHARE / float(speed[able][first]), COINCIDING_SECONDS)
                together = left <= left[first] + merged
                ends = min(ends, self.now_s + float(left[together].max()))
        return ends

    def _moving(self, solution: Solution) -> Iterator[tuple[Turn, Floats]]:
        turns = (turn for turn in self._turns if turn and turn.is_active)
        return zip(turns, solution.speed, strict=True)

    def _solve(self) -> Solution:
        if self._solution is None:
            active: list[tuple[Pattern, Bools]] = [
                (turn.phase.pattern, turn.is_moving)
                for turn in self._turns
                if turn and turn.is_active
            ]
            self._solution = self._network.solve(self.world, active)
        return self._solution

    def _move(self, solution: Solution, seconds: float) -> None:
        self._tallies.add(solution.links, solution.nics, seconds)
        self._collisions.add(solution.meetings, self.now_s, seconds)
        turns = [turn for turn in self._turns if turn and turn.is_active]
        for turn, speed, bps in zip(turns, solution.speed, solution.flow_bps, strict=True):
            turn.progress(speed, bps, seconds)

    # Units -------------------------------------------------------------------------------------

    def _next_turn(self, job: Job) -> Turn | None:
        phase = job.next_phase(self.world)
        return None if phase is None else Turn(phase)

    def _start_units(self) -> None:
        """Start what is due. A unit may be due in the past, see `_catch_up`."""
        for turn in self._turns:
            if turn is None or turn.next_start_s > self.now_s + _ROUNDING:
                continue
            due = turn.waiting & (turn.start_s <= self.now_s + _ROUNDING)
            if due.any():
                late = due & (turn.start_s < self.now_s - COINCIDING_SECONDS)
                turn.start(due, self.now_s)
                if late.any():
                    self._catch_up(turn, late)
                self._solution = None

    def _catch_up(self, turn: Turn, late: Bools) -> None:
        """Advance units that should have started earlier as far as they would have come.

        A job has one phase in the network at a time, so a unit that is ready for the next one waits
        here for its slower neighbours, although in truth it does not: it went on alone.
        """
        is_moving = turn.is_moving
        turn.lag_s[late] = 0.0
        for unit in np.flatnonzero(late):
            only = np.zeros(len(late), dtype=np.bool_)
            only[unit] = True
            alone = self._network.solve_alone(self.world, turn.phase.pattern, int(unit))
            speed = float(alone.speed[0][unit])
            needed = 1.0 / speed if speed > 0 else NEVER
            went = min(self.now_s - float(turn.phase.start_s[unit]), needed)
            if went == needed:
                turn.end_s[unit] = turn.phase.start_s[unit] + needed
            turn.is_moving = only
            turn.progress(alone.speed[0], alone.flow_bps[0], went)
            self._tallies.add(alone.links, alone.nics, went)
        turn.is_moving = is_moving

    def _end_units(self, solution: Solution) -> bool:
        """End units that have moved all their bytes and finish their phases; whether any ended."""
        ended = False
        moving = [
            (number, turn) for number, turn in enumerate(self._turns) if turn and turn.is_active
        ]
        answers = zip(solution.speed, solution.flow_bps, strict=True)
        for (number, turn), (speed, bps) in zip(moving, answers, strict=True):
            left = np.maximum(_ROUNDING, speed * _MOMENT_SECONDS)
            done = turn.is_moving & (turn.remaining <= left)
            if not done.any():
                continue
            ended = True
            self._solution = None
            # What caught up may have ended a while ago, what went on too long a moment ago.
            able = done & (speed > 0)
            over = np.divide(turn.remaining, speed, out=np.zeros(len(speed)), where=able)
            own = self.now_s + np.minimum(over, 0.0) - turn.lag_s
            ends = np.where(np.isfinite(turn.end_s), turn.end_s, own)
            floor = turn.phase.start_s + turn.phase.floor_seconds
            too_much = np.where(done, np.maximum(-turn.remaining, 0.0), 0.0)
            if too_much.any():
                self._tallies.take_back(
                    self._network.wire(self.world, turn.phase.pattern), too_much
                )
            turn.end(done, np.maximum(ends, floor))
            if turn.is_done.all():
                self._finish(number, turn, turn.end_s, turn.mean_bps(bps))
        return self._end_lone() or ended

    def _finish(self, number: int, turn: Turn, end_s: Floats, bps: Floats) -> None:
        job = self._jobs[number]
        job.finish(turn.phase, end_s, bps, self.world)
        following = self._turns[number] = self._next_turn(job)
        if following is not None:
            self._leave_alone(number, following)

    # Units that meet no others -----------------------------------------------------------------

    def _leave_alone(self, number: int, turn: Turn) -> None:
        """Let the units of a phase go by themselves, where no other flow can meet theirs.

        Until it ends, or the world changes: then `_strike` calls them back. Other jobs count with
        all that they may do, if they are in the network before that end.
        """
        lone = self._network.lone(self.world, turn.phase.pattern)
        if lone is None or not turn.may_go_alone:
            return
        ends = turn.ends_alone(lone)
        for other, (job, there) in enumerate(zip(self._jobs, self._turns, strict=True)):
            is_there = there is not None and (there.is_active or there.first_s < ends)
            if other != number and is_there:
                patterns = self._jobs[number].patterns, job.patterns
                if self._network.may_meet(self.world, *map(tuple, patterns)):
                    return
        turn.go_alone(lone)

    def _end_lone(self) -> bool:
        ended = False
        for number, turn in enumerate(self._turns):
            if turn is None or turn.lone is None or turn.lone_end_s > self.now_s + _ROUNDING:
                continue
            ended = True
            self._tallies.add_lone(turn.lone, turn.book(NEVER))
            self._finish(number, turn, turn.lone_ends(), turn.lone.flow_bps)
        return ended

    def _book(self) -> None:
        """Count what lone units have sent by now."""
        for turn in self._turns:
            if turn is not None and turn.lone is not None:
                self._tallies.add_lone(turn.lone, turn.book(self.now_s))

    # Faults ------------------------------------------------------------------------------------

    def _next_change(self) -> float:
        changes = [min(one.next_change_s, one.injection.end_s) for one in self._active]
        if self._pending:
            changes.append(self._pending[0].start_s)
        return min(changes, default=NEVER)

    def _strike(self) -> None:
        """Begin, change and end due faults: reset all knobs and apply every active fault."""
        if self._next_change() > self.now_s:
            return
        while self._pending and self._pending[0].start_s <= self.now_s:
            self._active.append(Active(self._pending.pop(0)))
        self._active = [one for one in self._active if one.injection.end_s > self.now_s]
        self._book()
        self._draw()
        for turn in self._turns:
            if turn is not None:
                turn.call_back(self.now_s)
        world = self.world
        before = (world.link_up, world.gpu_xid, world.host_is_down)
        world.reset()
        for one in self._active:
            injection = one.injection
            elapsed = self.now_s - injection.start_s
            change = injection.fault.apply(world, injection.place, injection.strength, elapsed)
            one.next_change_s = injection.start_s + change
        world.version += 1
        self._solution = None
        self._errors = link_errors(world)
        self._note_changes(*before)
        for job, turn in zip(self._jobs, self._turns, strict=True):
            if turn is not None:
                job.revise(turn.phase, world, self.now_s)
                turn.settle_starts()

    def _draw(self) -> None:
        """Draw random errors for the time until now, before the knobs change."""
        world, seconds = self.world, self.now_s - self._drawn_s
        self._drawn_s = self.now_s
        if seconds > 0:
            self._tallies.draw(self._errors, world.link_up, world.link_speed_share, seconds)

    def _note_changes(self, was_up: Bools, xids: np.ndarray, was_down: Bools) -> None:
        world, now = self.world, self.now_s
        nics_down = np.repeat(world.host_is_down, self.topology.nics_per_host)
        for links in (self.topology.up, self.topology.down):
            world.link_up[links(np.flatnonzero(nics_down).astype(np.int32))] = False
        fallen = np.flatnonzero(was_up & ~world.link_up).astype(np.int32)
        self._tallies.add_downs(fallen)
        for kind, which in (
            ("link_down", fallen),
            ("link_up", np.flatnonzero(~was_up & world.link_up)),
        ):
            self._happenings += [Happening(kind, now, link=int(link)) for link in which]
        for gpu in np.flatnonzero((world.gpu_xid != 0) & (world.gpu_xid != xids)):
            host, xid = int(world.gpu_host[gpu]), int(world.gpu_xid[gpu])
            self._happenings.append(Happening("xid", now, host=host, gpu=int(gpu), value=xid))
        for back in np.flatnonzero(was_down & ~world.host_is_down):
            self._happenings.append(Happening("reboot", now, host=int(back)))

    # Snapshots
    # ---------------------------------------------------------------------------------------

    def _advance_machines(self, seconds: float, bytes_per_second: Floats) -> None:
        topology = self.topology
        computed, communicated, nvlink = np.zeros((3, topology.gpus))
        is_used = np.zeros(topology.gpus, dtype=np.bool_)
        for job in self._jobs:
            gpus = job.rank_gpu
            work = job.work_seconds(self.now_s)
            for total, own in zip((computed, communicated, nvlink), work, strict=True):
                total[gpus] += own
            is_used[gpus] |= job.status(self.now_s).is_running
        # Both streams of a GPU may be busy at once; a second has room for one second of work.
        computing = np.minimum(computed / seconds, 1.0)
        communicating = np.minimum(communicated / seconds, 1.0 - computing)
        nic = np.arange(topology.nics, dtype=np.int32)
        self._machines.advance(
            self.world,
            seconds,
            computing,
            communicating,
            nvlink,
            (bytes_per_second[topology.up(nic)], bytes_per_second[topology.down(nic)]),
            is_used,
        )
        if self._machines.rebooted.any():
            self._tallies.restart(np.repeat(self._machines.rebooted, topology.nics_per_host))

    def _look(self, seconds: float, bursts: Floats) -> Snapshot:
        links, nics = self._tallies.links(seconds), self._tallies.nics()
        host_links, host_nics = self._tallies.seen_by_hosts(links, nics)
        drained = [job.drain(self.now_s) for job in self._jobs]
        lost = self._random.random(self.topology.hosts) < self.world.host_telemetry_loss
        happenings, self._happenings = self._happenings, []
        return Snapshot(
            topology=self.topology,
            world=self.world,
            time_s=self.now_s,
            start_unix_ns=self.scenario.start_unix_ns,
            interval_s=seconds,
            links=links,
            host_links=host_links,
            nics=host_nics,
            gpus=self._machines.gpus,
            hosts=self._machines.hosts,
            jobs=[job.status(self.now_s) for job in self._jobs],
            collectives=[block for blocks, _ in drained for block in blocks],
            steps=[block for _, blocks in drained for block in blocks],
            dumps=self._dump_hangs(),
            standing=self._standing(),
            happenings=happenings,
            clock_offset_s=self._clock_s + self._drifted_s + self.world.host_clock_offset_s,
            burst_bytes=bursts,
            reporting=~(lost | self.world.host_agent_is_dead | self.world.host_is_down),
        )

    def _standing(self) -> list[HangDump]:
        """What each job that hangs would show if it were asked now."""
        return [
            HangDump(job.name, self.now_s, job.pending(None if turn is None else turn.end_s))
            for job, turn in zip(self._jobs, self._turns, strict=True)
            if job.status(self.now_s).hung_since_s is not None
        ]

    def _dump_hangs(self) -> list[HangDump]:
        """Flight Recorder dumps: one for each hang, when the watchdog's time is over."""
        dumps = []
        for job, turn in zip(self._jobs, self._turns, strict=True):
            since = job.status(self.now_s).hung_since_s
            if since is None:
                self._dumped.discard(job.name)
            elif job.name not in self._dumped and self.now_s - since >= job.spec.watchdog_seconds:
                self._dumped.add(job.name)
                ends = None if turn is None else turn.end_s
                dumps.append(HangDump(job.name, self.now_s, job.pending(ends)))
        return dumps
