"""Chance collisions of a run: what `simulator.network.meetings` saw, put together in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collector.contract.units import NS
from simulator.faults.places import switch_port_names
from simulator.network.model import Meeting
from simulator.pattern import Pattern
from simulator.scenario import Collision
from simulator.topology.model import Topology

LOST_LEAST = 0.01
"""Of what the flows would have brought between two ticks: below it nobody feels it, as with the
least class of faults (`simulator.score.accuracy.table.COSTS`)."""
GAP_SECONDS = 15.0
"""Flows that meet in every step meet once in so long at least: it stays one collision."""


@dataclass
class Span:
    """A collision that may go on. Seconds of true time."""

    start_s: float
    end_s: float
    lost_s: float
    """Its lost share of each moment, added up."""
    jobs: set[str] = field(default_factory=set)


class Collisions:
    """Takes what meets between two ticks, and the ticks."""

    def __init__(self, topology: Topology, job_of: Mapping[Pattern, str]) -> None:
        self._topology = topology
        self._job_of = job_of
        self._fresh: dict[int, Span] = {}
        """By link: since the last tick."""
        self._open: dict[int, Span] = {}
        self._closed: list[tuple[int, Span]] = []

    def add(self, meetings: Iterable[Meeting], now_s: float, seconds: float) -> None:
        for one in meetings:
            span = self._fresh.setdefault(one.link, Span(now_s, now_s, 0.0))
            span.end_s = now_s + seconds
            span.lost_s += one.lost_share * seconds
            span.jobs.update(self._job_of[pattern] for pattern in one.patterns)

    def tick(self, now_s: float, seconds: float) -> None:
        """``seconds``: since the last tick."""
        for link, fresh in self._fresh.items():
            if fresh.lost_s < LOST_LEAST * seconds:
                continue
            span = self._open.setdefault(link, fresh)
            if span is not fresh:
                span.end_s = fresh.end_s
                span.lost_s += fresh.lost_s
                span.jobs |= fresh.jobs
        self._fresh = {}
        over = [link for link, span in self._open.items() if now_s - span.end_s > GAP_SECONDS]
        self._closed += [(link, self._open.pop(link)) for link in over]

    def until_now(self, start_unix_ns: int) -> list[Collision]:
        """All of the run so far, in order of their beginning."""
        spans = sorted(
            [*self._closed, *self._open.items()], key=lambda one: (one[1].start_s, one[0])
        )
        return [
            Collision(
                culprits=switch_port_names(self._topology, link, int(self._topology.reverse[link])),
                jobs=tuple(sorted(span.jobs)),
                start_ns=start_unix_ns + round(span.start_s * NS),
                end_ns=start_unix_ns + round(span.end_s * NS),
                lost_share=span.lost_s / (span.end_s - span.start_s),
            )
            for link, span in spans
        ]
