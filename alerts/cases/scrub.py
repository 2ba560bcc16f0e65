"""A case without the names of its cluster, at another time. Pure.

Names of hosts, switches, jobs, devices, addresses, files and groups, and texts are replaced; times
begin at a fixed one.
What stays is what detectors compute with: numbers, differences of times, the order of names, and
words of our own vocabulary. Everything else is either replaced by a neutral name or dropped. A
scrubbed case gives the same verdict: `tests/conformance/test_cases.py` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeVar

import msgspec
import numpy as np

from alerts.cases.events import EventScrub, digits
from alerts.cases.jobs import JobScrub
from alerts.cases.model import ReplayCase, Told, Truth
from alerts.cases.names import NameBook, NameKind
from alerts.cases.times import TimeShift
from alerts.signals.storage import DATA_PHASES
from alerts.window.model import Captured, Grid, Ports, Readings, Things, Window
from collector.contract.catalog import load_catalog
from collector.contract.verdict import Culprit

CPU_MODES = frozenset(
    {"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"}
)
"""The kernel's words; what training loops call their phases are their own."""
Kind = TypeVar("Kind", bound=Things)
TARGETS = ("port_", "nic_", "gpu_", "host_", "step_")
"""What readings' names are cut short by."""


def scrub(case: ReplayCase) -> ReplayCase:
    """The case without names, at another time."""
    window = case.window
    names = NameBook(switches_of(case))
    work = Scrub(names, TimeShift(window.from_ns))
    work.case(case)  # meets every name once: only then can they be numbered in order
    names.close()
    return work.case(case)


def switches_of(case: ReplayCase) -> set[str]:
    ports = case.window.ports
    named = {ports.host[row] for row in np.flatnonzero(ports.is_switch).tolist()}
    told = (case.truth.told, *case.verdicts)
    return (named | {each.culprit.switch for each in told} | {case.truth.culprit.switch}) - {""}


class Scrub:
    """Goes over a whole case; the same way when names are met and when they are replaced."""

    def __init__(self, names: NameBook, times: TimeShift) -> None:
        self._names = names
        self._times = times
        self._events = EventScrub(names, times)
        self._jobs = JobScrub(names, times)

    def case(self, case: ReplayCase) -> ReplayCase:
        return ReplayCase(
            truth=Truth(
                says=case.truth.says,
                told=self.told(case.truth.told),
                cause=case.truth.cause,
                culprit=self.culprit(case.truth.culprit),
            ),
            window=self.window(case.window),
            verdicts=tuple(map(self.told, case.verdicts)),
            kept_by=case.kept_by,
            is_scrubbed=True,
        )

    def told(self, told: Told) -> Told:
        return msgspec.structs.replace(told, culprit=self.culprit(told.culprit))

    def culprit(self, culprit: Culprit) -> Culprit:
        return Culprit(
            job=self._names.name(NameKind.JOB, culprit.job),
            rank=culprit.rank,
            host=self._names.machine(culprit.host),
            gpu=culprit.gpu,
            device=self._names.device(culprit.device),
            port=self._names.port(culprit.port),
            switch=self._names.machine(culprit.switch),
            switch_port=self._names.port(culprit.switch_port),
            storage=self._names.machine(culprit.storage),
        )

    def window(self, window: Window) -> Window:
        return Window(
            from_ns=self._times.moved(window.from_ns),
            to_ns=self._times.moved(window.to_ns),
            jobs=[self._jobs.job(job) for job in window.jobs],
            jobs_ended_ns=(
                None if window.jobs_ended_ns is None else self._times.moved(window.jobs_ended_ns)
            ),
            ports=self.ports(window.ports),
            gpus=self.things(window.gpus),
            hosts=self.things(window.hosts),
            events=self._events.events(window.events),
            captured=None if window.captured is None else self.captured(window.captured),
            is_live=window.is_live,
        )

    def captured(self, captured: Captured) -> Captured:
        return msgspec.structs.replace(captured, grid=self.grid(captured.grid))

    # Machines ------------------------------------------------------------------------------------

    def ports(self, ports: Ports) -> Ports:
        return msgspec.structs.replace(
            self.things(ports),
            device=mapped(self._names.device, ports.device),
            port=mapped(self._names.port, ports.port),
            netdev=mapped(self._names.device, ports.netdev),
        )

    def things(self, things: Kind) -> Kind:
        return msgspec.structs.replace(
            things,
            grid=self.grid(things.grid),
            host=mapped(self._names.machine, things.host),
            readings=self.readings(things.readings),
            seen_ns=self._times.column(things.seen_ns),
        )

    def grid(self, grid: Grid) -> Grid:
        return Grid(self._times.moved(grid.start_ns), grid.step_ns, grid.cells)

    def readings(self, readings: Mapping[str, Readings]) -> dict[str, Readings]:
        found = {}
        for name, reading in readings.items():
            base, colon, label = name.partition(":")
            base = self._names.known(NameKind.METRIC, base, vocabulary().readings)
            found[base + colon + self.label(label)] = Readings(
                metric=self.metric(reading.metric),
                row=reading.row,
                values=reading.values,
                label=self.label(reading.label),
                others={row: self.metric(metric) for row, metric in reading.others.items()},
            )
        return found

    def metric(self, metric: str) -> str:
        return self._names.known(NameKind.METRIC, metric, vocabulary().metrics)

    def label(self, label: str) -> str:
        is_ours = label in CPU_MODES or label.lower() in DATA_PHASES
        return label if is_ours or digits(label) else self._names.name(NameKind.LABEL, label)


class Vocabulary(msgspec.Struct, frozen=True):
    """The catalog's names of metrics, and what windows call them."""

    metrics: frozenset[str]
    readings: frozenset[str]


@cache
def vocabulary() -> Vocabulary:
    metrics = frozenset(metric.name for metric in load_catalog().metrics)
    long = {name.removeprefix("fabric_") for name in metrics}
    short = {name.removeprefix(target) for name in long for target in TARGETS}
    return Vocabulary(metrics, frozenset(long | short))


def mapped(name: Callable[[str], str], texts: Sequence[str]) -> list[str]:
    return [name(text) for text in texts]
