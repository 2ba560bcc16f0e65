"""The fleet, its jobs and its operators through a week, minute by minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from alerts.health.model import HealthState, Hold, Target
from alerts.policy.file import shipped_policy
from alerts.policy.model import Mode
from api.fleet.health.answers import HostEntry
from api.fleet.placement.model import Ask
from api.fleet.placement.place import place
from api.fleet.placement.refuse import Fleet
from collector.contract.units import NS
from collector.contract.verdict import Culprit, Verdict
from simulator.score.week.draw import FalseAlarm, Fault, Wanted, Week
from simulator.score.week.ground import ground, name_of
from simulator.score.week.model import DAY_S, HOUR_S, Arm, Kind, Losses, Outcome, Spec
from simulator.score.week.watch import Watcher

TRIES_PER_TICK = 40
"""Waiting jobs that the scheduler looks at in a tick, the oldest first: those that fit begin."""
PAYS = 2.0
"""A job is moved where staying would cost this many times as much as moving."""
EPOCH_NS = 1_767_571_200 * NS
"""A Monday; policies know of days."""


@dataclass
class Machine:
    """A host."""

    name: str
    fault: Fault | None = None
    heals_at_s: float | None = None
    first_victim_s: float | None = None
    """When a job first suffered from the fault that it has."""
    killed: int = 0
    job: Job | None = None
    out_until_s: float | None = None
    """An operator took it out: until it is repaired."""
    looked_at_s: float | None = None
    """When the operator comes who was called by a drain."""


@dataclass
class Job:
    """A job that waits or runs. Its work is in seconds of all its hosts."""

    wanted: Wanted
    hosts: list[Machine] = field(default_factory=list)
    done_s: float = 0.0
    saved_s: float = 0.0
    begins_s: float = 0.0
    """It starts up until then."""
    hung_since_s: float | None = None
    was_placed: bool = False


class Yard:
    """One arm of one week."""

    def __init__(self, spec: Spec, week: Week, arm: Arm) -> None:
        self._spec, self._week, self._arm = spec, week, arm
        self._ground = ground(spec)
        self._machines = [Machine(name_of(host)) for host in range(spec.hosts)]
        self._by_name = {machine.name: machine for machine in self._machines}
        mode = Mode.ENFORCE if arm in (Arm.DRAINED, Arm.MOVED) else Mode.OFF
        self._policy = msgspec.structs.replace(shipped_policy(), mode=mode)
        self._watcher = Watcher([machine.name for machine in self._machines], self._policy)
        self._held: set[str] = set()
        self._faults = deque(week.faults)
        self._arrivals = deque(week.jobs)
        self._queue: deque[Job] = deque()
        self._running: list[Job] = []
        self._now_s = 0.0
        self._suffering: dict[int, float] = {}
        """Since when a job suffers from a fault, by the fault's number; while it does."""
        self._losses = Losses()
        self._struck: set[int] = set()
        self._killed = self._moved = self._finished = 0
        self._drains = self._false_drains = 0
        self._share_max = 0.0
        self._waits_s: list[float] = []

    def run(self) -> Outcome:
        spec = self._spec
        for tick in range(round(spec.days * DAY_S / spec.tick_s)):
            self._now_s = tick * spec.tick_s
            self._break_and_heal()
            self._repair()
            self._watch()
            self._operators()
            self._work()
            self._schedule()
            self._count_hosts()
        return Outcome(
            seed=0,
            arm=self._arm,
            losses=self._losses,
            faults=len(self._week.faults),
            struck=len(self._struck),
            killed=self._killed,
            moved=self._moved,
            finished=self._finished,
            drains=self._drains,
            false_drains=self._false_drains,
            refused=dict(sorted(self._watcher.refused.items())),
            share_max=self._share_max,
            share_limit=self._policy.limits.room(spec.hosts) / spec.hosts,
            waited_hours=float(np.mean(self._waits_s)) / HOUR_S if self._waits_s else 0.0,
        )

    # --- what breaks ---------------------------------------------------------------------------

    def _break_and_heal(self) -> None:
        for machine in self._machines:
            if machine.heals_at_s is not None and machine.heals_at_s <= self._now_s:
                self._mend(machine)
        while self._faults and self._faults[0].at_s <= self._now_s:
            fault = self._faults.popleft()
            machine = self._machines[fault.host]
            if machine.fault is not None or machine.out_until_s is not None:
                continue  # nothing breaks twice, or on the bench
            machine.fault = fault
            machine.heals_at_s = None if fault.heals_s is None else self._now_s + fault.heals_s

    def _mend(self, machine: Machine) -> None:
        if machine.fault is not None:
            self._suffering.pop(machine.fault.number, None)
        machine.fault = machine.heals_at_s = machine.first_victim_s = None
        machine.killed = 0

    def _repair(self) -> None:
        for machine in self._machines:
            if machine.out_until_s is not None and machine.out_until_s <= self._now_s:
                self._mend(machine)
                machine.out_until_s = None
                self._watcher.pass_check(machine.name, self._now_ns)

    @property
    def _now_ns(self) -> int:
        return EPOCH_NS + round(self._now_s * NS)

    # --- verdicts, and what the policy does ----------------------------------------------------

    def _watch(self) -> None:
        """Verdicts of this minute, and the drains that follow."""
        if self._arm is Arm.ALONE:
            return
        operators = {
            machine.name: Hold(
                target=Target.of_host(machine.name),
                state=HealthState.OUT,
                reason="being repaired",
                by="operator",
                since_ns=EPOCH_NS,
                until_ns=None,
            )
            for machine in self._machines
            if machine.out_until_s is not None
        }
        begun = self._watcher.look(list(self._verdicts()), operators, self._now_ns)
        self._held = {each.host for each in self._watcher.standing_actions(self._now_ns)}
        for action in begun:
            machine = self._by_name[action.host]
            self._drains += 1
            self._false_drains += machine.fault is None
            response_s = machine.fault.response_s if machine.fault else self._spec.response_s
            machine.looked_at_s = self._now_s + response_s
            if self._arm is Arm.MOVED and machine.job is not None:
                self._move_if_it_pays(machine.job, machine)
        if begun:
            share = len(self._held | set(operators)) / self._spec.hosts
            self._share_max = max(self._share_max, share)

    def _verdicts(self) -> Iterator[Verdict]:
        for machine in self._machines:
            fault, job = machine.fault, machine.job
            if fault is None or job is None or not fault.is_told:
                continue
            since_s = self._suffering.get(fault.number)
            if since_s is None or self._now_s < since_s + self._spec.delay_s:
                continue
            named = machine
            others = [each for each in job.hosts if each is not machine]
            if fault.wrong_host is not None and others:
                named = others[int(fault.wrong_host * len(others))]
            yield self._verdict(fault.kind, named.name, fault.part, job.wanted.name, since_s)
        for alarm in self._week.alarms:
            if alarm.at_s <= self._now_s < alarm.at_s + alarm.lasts_s:
                yield self._false(alarm)

    def _false(self, alarm: FalseAlarm) -> Verdict:
        machine = self._machines[alarm.host]
        job = machine.job.wanted.name if machine.job is not None else ""
        return self._verdict(alarm.kind, machine.name, alarm.part, job, alarm.at_s)

    def _verdict(self, kind: Kind, host: str, part: int, job: str, since_s: float) -> Verdict:
        if kind.part == "gpu":
            culprit = Culprit(host=host, gpu=part, job=job)
        else:
            culprit = Culprit(host=host, device=f"mlx5_{part}", port="1", job=job)
        return Verdict(
            cause=kind.cause,
            reason=kind.reason,
            culprit=culprit,
            since_ns=EPOCH_NS + round(since_s * NS),
            confidence=self._spec.confidence,
            jobs=(job,) if job else (),
            summary=f"{host}: {kind.name}",
        )

    # --- people --------------------------------------------------------------------------------

    def _operators(self) -> None:
        """Operators inspect drained hosts; other faults they find after a while."""
        for machine in self._machines:
            fault = machine.fault
            if machine.looked_at_s is not None and machine.looked_at_s <= self._now_s:
                machine.looked_at_s = None
                if fault is None:
                    self._watcher.pass_check(machine.name, self._now_ns)
                elif machine.out_until_s is None:
                    self._take_out(machine, fault)
            elif fault is not None and machine.out_until_s is None:
                is_known = machine.first_victim_s is not None and (
                    self._now_s >= machine.first_victim_s + fault.found_s
                )
                if is_known or machine.killed >= self._spec.jobs_killed_max:
                    self._take_out(machine, fault)

    def _take_out(self, machine: Machine, fault: Fault) -> None:
        """Take a host out for repair. Its job is saved and moved, if it still can be."""
        machine.out_until_s = self._now_s + fault.repair_s
        machine.heals_at_s = None
        if machine.job is not None:
            if machine.job.hung_since_s is not None:
                self._kill(machine.job)
            else:
                self._move(machine.job)

    def _move_if_it_pays(self, job: Job, machine: Machine) -> None:
        """The scheduler's plug-in: a held host's job is moved where staying costs more."""
        if job.hung_since_s is not None:
            self._kill(job)
            return
        slow = machine.fault.slowdown if machine.fault is not None else 1.0
        saved_s = (job.wanted.work_s - job.done_s) * (slow - 1)
        if saved_s > PAYS * (self._spec.save_s + self._spec.restart_s):
            self._move(job)

    # --- jobs ----------------------------------------------------------------------------------

    def _gpu_hours(self, job: Job, seconds: float) -> float:
        return job.wanted.size * self._spec.gpus_per_host * seconds / HOUR_S

    def _work(self) -> None:
        tick_s = self._spec.tick_s
        self._note_suffering()
        for job in list(self._running):
            if self._now_s < job.begins_s:
                self._losses.restarting += self._gpu_hours(job, tick_s)
                continue
            faults = [machine.fault for machine in job.hosts if machine.fault is not None]
            if job.hung_since_s is None and any(fault.kind.stops for fault in faults):
                job.hung_since_s = self._now_s
            if job.hung_since_s is not None:
                self._losses.hung += self._gpu_hours(job, tick_s)
                if self._now_s + tick_s >= job.hung_since_s + self._spec.hang_s:
                    self._kill(job)
                continue
            slow = max((fault.slowdown for fault in faults), default=1.0)
            moved_s = min(tick_s / slow, job.wanted.work_s - job.done_s)
            job.done_s += moved_s
            self._losses.useful += self._gpu_hours(job, moved_s)
            self._losses.slow += self._gpu_hours(job, moved_s * (slow - 1))
            if job.done_s >= job.wanted.work_s:
                self._finished += 1
                self._leave(job)

    def _note_suffering(self) -> None:
        """Since when jobs suffer from which faults."""
        suffering = {}
        for job in self._running:
            if self._now_s < job.begins_s:
                continue
            for machine in job.hosts:
                if machine.fault is None:
                    continue
                number = machine.fault.number
                self._struck.add(number)
                suffering[number] = self._suffering.get(number, self._now_s)
                if machine.first_victim_s is None:
                    machine.first_victim_s = self._now_s
        self._suffering = suffering

    def _kill(self, job: Job) -> None:
        """A job dies: what came after its last checkpoint is done again."""
        checkpoint_s = self._spec.checkpoint_s
        kept_s = max(job.saved_s, job.done_s // checkpoint_s * checkpoint_s)
        again = self._gpu_hours(job, job.done_s - kept_s)
        self._losses.useful -= again
        self._losses.redone += again
        job.done_s = job.saved_s = kept_s
        self._killed += 1
        for machine in job.hosts:
            if machine.fault is None or not machine.fault.kind.stops:
                continue
            machine.killed += 1
            if machine.fault.is_seen_at_once and machine.out_until_s is None:
                machine.out_until_s = self._now_s + machine.fault.repair_s
                machine.heals_at_s = None
        self._leave(job)
        self._queue.appendleft(job)

    def _move(self, job: Job) -> None:
        self._losses.restarting += self._gpu_hours(job, self._spec.save_s)
        job.saved_s = job.done_s
        self._moved += 1
        self._leave(job)
        self._queue.appendleft(job)

    def _leave(self, job: Job) -> None:
        self._running.remove(job)
        for machine in job.hosts:
            machine.job = None
        job.hosts = []
        job.hung_since_s = None

    # --- the scheduler -------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Jobs that wait get hosts, the oldest first; what does not fit lets others pass."""
        while self._arrivals and self._arrivals[0].at_s <= self._now_s:
            self._queue.append(Job(self._arrivals.popleft()))
        free = {
            machine.name
            for machine in self._machines
            if machine.job is None and machine.out_until_s is None
        }
        entries: dict[str, HostEntry] | None = None
        left = deque[Job]()
        for _ in range(min(TRIES_PER_TICK, len(self._queue))):
            job = self._queue.popleft()
            if job.wanted.size > len(free):
                left.append(job)
                continue
            entries = self._entries() if entries is None else entries
            chosen = self._hosts_for(job.wanted.size, free, entries)
            if not chosen:
                left.append(job)
                continue
            free -= set(chosen)
            self._begin(job, chosen)
        self._queue.extendleft(reversed(left))

    def _entries(self) -> dict[str, HostEntry]:
        if self._arm is not Arm.ALONE:
            return self._watcher.entries(self._now_s)
        well = HealthState.HEALTHY
        return {
            machine.name: HostEntry(host=machine.name, state=well, risk=0.0, lemon=0.0)
            for machine in self._machines
        }

    def _hosts_for(self, size: int, free: set[str], entries: dict[str, HostEntry]) -> list[str]:
        """Hosts for a job: healthy ones, or suspects too where those are not enough."""
        fleet = Fleet(entries=entries, gpus=self._ground.gpus, is_busy=self._ground.traffic.is_busy)
        for allow in (frozenset[HealthState](), frozenset({HealthState.SUSPECT})):
            ask = Ask(size=size, candidates=tuple(sorted(free)), allow=allow)
            found = place(self._ground, fleet, ask)
            if found.sets:
                return found.sets[0].hosts
        return []

    def _begin(self, job: Job, chosen: list[str]) -> None:
        job.hosts = [self._by_name[name] for name in chosen]
        for machine in job.hosts:
            machine.job = job
        if job.was_placed:
            job.begins_s = self._now_s + self._spec.restart_s
        else:
            self._waits_s.append(self._now_s - job.wanted.at_s)
        job.was_placed = True
        self._running.append(job)

    def _count_hosts(self) -> None:
        """Add this tick's GPU-hours of hosts without a job: idle, held with a fault, held well."""
        each = self._spec.gpus_per_host * self._spec.tick_s / HOUR_S
        for machine in self._machines:
            if machine.job is not None:
                continue
            if machine.out_until_s is None and machine.name not in self._held:
                self._losses.idle += each
            elif machine.fault is not None:
                self._losses.held += each
            else:
                self._losses.held_well += each


def play(spec: Spec, week: Week, seed: int, arm: Arm) -> Outcome:
    return msgspec.structs.replace(Yard(spec, week, arm).run(), seed=seed)
