"""Runs of numbered batches, and the gaps in them. Pure.

An agent numbers its batches without a hole. In normal times it sends them in order; after an outage
the newest go first and the others follow, several as one (`first` of the wire format). So what came
is a set: it does not matter in which order, or how often. A number that has not come is a batch
that waits in the agent's spool, or one that the agent lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

SEQUENCE_MAX: Final = 2**63 - 1
"""The largest number that the databases keep; an agent does not live to reach it."""


GAPS_MAX: Final = 100
"""Gaps whose place one run remembers, the latest: what fills one is then no longer missing. A
backlog is one gap. Of earlier gaps the batches are merely counted, and stay so."""

Gap = tuple[int, int]
"""The first and the last number that were left out."""


class BatchRun(msgspec.Struct, frozen=True, kw_only=True):
    """Batches `first` to `last` of one agent and boot, without those in `gaps` (in order, apart).

    `counted` is the number of missing batches whose place is not in `gaps`. `received_at` is when
    the last batch came, by the service's clock. `host` is empty when the batches do not name one.
    `is_backlog`: all of them are of a backlog, and later ones may have come before.
    """

    agent: str
    boot: str
    first: int
    last: int
    received_at: datetime
    host: str = ""
    counted: int = 0
    gaps: tuple[Gap, ...] = ()
    is_backlog: bool = False

    @property
    def missing(self) -> int:
        """Batches that have not come, SEQUENCE_MAX at most."""
        skipped = sum(last - first + 1 for first, last in self.gaps)
        return min(self.counted + skipped, SEQUENCE_MAX)

    @classmethod
    def of_one(
        cls,
        *,
        agent: str,
        boot: str,
        sequence: int,
        received_at: datetime,
        host: str = "",
        first: int | None = None,
    ) -> BatchRun:
        """One batch; with ``first``, one of a backlog that holds all from that number on."""
        return cls(
            agent=agent,
            boot=boot,
            first=sequence if first is None else first,
            last=sequence,
            received_at=received_at,
            host=host,
            is_backlog=first is not None,
        )

    def followed_by(self, later: BatchRun) -> BatchRun:
        """All that is in this run or in another one, of the same agent and boot.

        What brings nothing new changes nothing; so does what lies apart from this run and before
        it: it came before anybody counted, and comes again.
        """
        if later.last < self.first - 1:
            return self
        first, last = min(self.first, later.first), max(self.last, later.last)
        gaps = tuple(common(holes(self, first, last), holes(later, first, last)))
        if (first, last, gaps) == (self.first, self.last, self.gaps):
            return self
        joined = msgspec.structs.replace(
            self,
            first=first,
            last=last,
            received_at=max(self.received_at, later.received_at),
            host=later.host or self.host,
            gaps=gaps[-GAPS_MAX:],
            is_backlog=self.is_backlog and later.is_backlog,
        )
        forgotten = sum(end - start + 1 for start, end in gaps[:-GAPS_MAX])
        counted = min(self.counted + later.counted + forgotten, SEQUENCE_MAX)
        return msgspec.structs.replace(joined, counted=counted)

    def succeeded_by(self, other: BatchRun) -> BatchRun:
        """The agent's run after both, of whatever boot.

        A new boot restarts the count. A run of another boot that was received before this one is
        late news of an old boot: with several service processes, each writes at its own moment. So
        is a backlog: the newest batch was sent before it.
        """
        if other.boot == self.boot:
            return self.followed_by(other)
        is_late = other.is_backlog or other.received_at < self.received_at
        return self if is_late else other


def holes(run: BatchRun, first: int, last: int) -> list[Gap]:
    """What a run does not have of these numbers, which begin and end not within it."""
    before = [(first, run.first - 1)] if first < run.first else []
    after = [(run.last + 1, last)] if last > run.last else []
    return [*before, *run.gaps, *after]


def common(some: list[Gap], others: list[Gap]) -> Iterable[Gap]:
    """The numbers that are in both; both are in order."""
    here = there = 0
    while here < len(some) and there < len(others):
        start = max(some[here][0], others[there][0])
        end = min(some[here][1], others[there][1])
        if start <= end:
            yield start, end
        if some[here][1] < others[there][1]:
            here += 1
        else:
            there += 1
