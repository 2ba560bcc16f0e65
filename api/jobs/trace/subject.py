"""The content of a trace: jobs on one clock, troubles, and machines whose counters are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from alerts.judge.incident import Turn
from alerts.window.columns import ClockFit, Ints, Records
from alerts.window.common_clock import HostClock, ahead_of, host_clocks
from alerts.window.model import JobWindow
from alerts.window.steps import Bounds
from collector.contract.identity import PortId
from collector.contract.model import Event
from collector.contract.verdict import Verdict


class Span(NamedTuple):
    """A step of the job's rank, or a phase of one (empty: all of it), on the common clock."""

    rank: int
    step: int
    phase: str
    start_ns: int
    end_ns: int
    source: str


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An accusation: an incident of the service, or a verdict about a folder."""

    verdict: Verdict
    id: str = ""
    history: tuple[Turn, ...] = ()


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One job. ``job`` holds its operations, clocks, steps and ranks; its records come in pieces.

    ``records`` and ``spans`` are asked for once, when it is their turn, and give a bounded piece at
    a time: pieces of records in order of time, on the common clock.
    """

    job: JobWindow
    job_rank: Mapping[tuple[str, int], int]
    records: Callable[[], Iterator[Records]]
    spans: Callable[[], Iterator[Sequence[Span]]]
    bounds: Bounds | None = None
    """Where steps begin and end on each rank, if there are no marks."""
    has_marks: bool = False


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Ports and GPUs of these hosts, culprits first; of hosts in ``nics`` only those devices."""

    hosts: Sequence[str]
    nics: Mapping[str, frozenset[str]] = {}
    switch_ports: frozenset[PortId] = frozenset()
    switch_ports_left_out: int = 0
    unnamed: str = ""
    """The process of readings that name no host, as files of one machine do."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The whole content of one trace."""

    from_ns: int
    to_ns: int
    subjects: Sequence[Subject]
    machines: Machines
    troubles: Sequence[Trouble] = ()
    events: Sequence[Event] = ()


class Ahead:
    """How far a host's clock is ahead of the common one; of several jobs on it by the first."""

    def __init__(self, *jobs: Sequence[ClockFit]) -> None:
        self._clocks: dict[str, HostClock] = {}
        for fits in jobs:
            self._clocks = host_clocks(fits) | self._clocks

    def corrected(self, host: str, time_ns: Ints) -> Ints:
        """Times by a host's clock as times on the common one."""
        return time_ns - ahead_of(self._clocks, host, time_ns)

    def corrected_one(self, host: str, time_ns: int) -> int:
        if host not in self._clocks:
            return time_ns
        return int(self.corrected(host, np.array([time_ns], dtype=np.int64))[0])
