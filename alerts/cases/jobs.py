"""Jobs of a case without their names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
import numpy as np

from alerts.cases.names import NameBook, NameKind
from alerts.cases.times import TimeShift
from alerts.window.columns import ClockFit, Computing, Operations, Records, Step
from alerts.window.model import (
    Calls,
    Communicator,
    JobWindow,
    Kind,
    Paths,
    Pending,
    Rank,
    Side,
)
from collector.contract.collective import Operation

SOURCES = frozenset({"nccl_inspector", "kineto", "flight_recorder"})
"""Sources of records that words of a verdict tell apart."""

Value = TypeVar("Value")


class JobScrub:
    """Replaces what a job's window names."""

    def __init__(self, names: NameBook, times: TimeShift) -> None:
        self._names = names
        self._times = times

    def job(self, job: JobWindow) -> JobWindow:
        return JobWindow(
            job=self._names.name(NameKind.JOB, job.job),
            size=job.size,
            ranks={number: self.rank(rank) for number, rank in job.ranks.items()},
            communicators={
                self.communicator(name): self.wiring(each)
                for name, each in job.communicators.items()
            },
            source=self._names.known(NameKind.SOURCE, job.source, SOURCES),
            is_estimate=job.is_estimate,
            kept_one_in=job.kept_one_in,
            slices=[(self._times.moved(a), self._times.moved(b)) for a, b in job.slices],
            records=self.records(job.records),
            operations=self.operations(job.operations),
            clocks=[self.clocks(fit) for fit in job.clocks],
            steps=[self.step(step) for step in job.steps],
            computing=None if job.computing is None else self.computing(job.computing),
            pending=[self.pending(each) for each in job.pending],
            calls=[self.calls(each) for each in job.calls],
            past=self.by_kind(job.past),
            baselines=self.by_kind(job.baselines),
            paths=None if job.paths is None else self.paths(job.paths),
            is_running=job.is_running,
            ranks_read=job.ranks_read,
            unread=job.unread,
            guessed=job.guessed,
            dumped=job.dumped,
        )

    # Names ---------------------------------------------------------------------------------------

    def communicator(self, name: str) -> str:
        return self._names.name(NameKind.COMMUNICATOR, name)

    def operation(self, name: str) -> str:
        return self._names.known(NameKind.OPERATION, name, frozenset(Operation))

    def rank(self, rank: Rank) -> Rank:
        return Rank(
            rank=rank.rank,
            host=self._names.machine(rank.host),
            gpu=rank.gpu,
            devices=tuple(map(self._names.device, rank.devices)),
            port=self._names.port(rank.port),
        )

    def wiring(self, communicator: Communicator) -> Communicator:
        return msgspec.structs.replace(communicator, name=self.communicator(communicator.name))

    def by_kind(self, values: Mapping[Kind, Value]) -> dict[Kind, Value]:
        return {
            (self.communicator(name), self.operation(operation), size): value
            for (name, operation, size), value in values.items()
        }

    def paths(self, paths: Paths) -> Paths:
        names = [self.communicator(name) for name in paths.communicator]
        return msgspec.structs.replace(paths, communicator=names)

    def pending(self, pending: Pending) -> Pending:
        return msgspec.structs.replace(
            pending,
            communicator=self.communicator(pending.communicator),
            operation=self.operation(pending.operation),
            time_ns=self._times.known(pending.time_ns),
        )

    def calls(self, calls: Calls) -> Calls:
        return msgspec.structs.replace(
            calls,
            communicator=self.communicator(calls.communicator),
            name=self._names.name(NameKind.GROUP, calls.name),
            sides=tuple(map(self.side, calls.sides)),
            time_ns=self._times.known(calls.time_ns),
        )

    def side(self, side: Side) -> Side:
        return Side(
            ranks=side.ranks,
            call=self._names.name(NameKind.CALL, side.call),
            frames=tuple(self._names.name(NameKind.PATH, frame) for frame in side.frames),
        )

    # Columns -------------------------------------------------------------------------------------

    def records(self, records: Records) -> Records:
        distinct, which = np.unique(records.pid, return_inverse=True)
        pids = np.array([self._names.pid(pid) for pid in distinct.tolist()], dtype=np.int32)
        return msgspec.structs.replace(
            records,
            communicators=[self.communicator(name) for name in records.communicators],
            operations=[self.operation(name) for name in records.operations],
            hosts=[self._names.machine(name) for name in records.hosts],
            pid=pids[which] if len(pids) else records.pid,
            entry_ns=self._times.column(records.entry_ns),
            exit_ns=self._times.column(records.exit_ns),
            enqueue_ns=self._times.column(records.enqueue_ns),
        )

    def operations(self, operations: Operations) -> Operations:
        return msgspec.structs.replace(
            operations,
            communicators=[self.communicator(name) for name in operations.communicators],
            operations=[self.operation(name) for name in operations.operations],
            first_entry_ns=self._times.column(operations.first_entry_ns),
            last_entry_ns=self._times.column(operations.last_entry_ns),
            first_exit_ns=self._times.column(operations.first_exit_ns),
            last_exit_ns=self._times.column(operations.last_exit_ns),
        )

    def computing(self, computing: Computing) -> Computing:
        return Computing(
            rank=computing.rank,
            start_ns=self._times.column(computing.start_ns),
            end_ns=self._times.column(computing.end_ns),
        )

    def step(self, step: Step) -> Step:
        return msgspec.structs.replace(
            step, start_ns=self._times.moved(step.start_ns), end_ns=self._times.moved(step.end_ns)
        )

    def clocks(self, fit: ClockFit) -> ClockFit:
        return ClockFit(
            from_ns=self._times.moved(fit.from_ns),
            to_ns=self._times.moved(fit.to_ns),
            middle_ns=self._times.moved(fit.middle_ns),
            clocks=[
                msgspec.structs.replace(
                    clock,
                    host=self._names.machine(clock.host),
                    from_ns=self._times.maybe(clock.from_ns),
                    to_ns=self._times.maybe(clock.to_ns),
                )
                for clock in fit.clocks
            ],
            operations=fit.operations,
        )
