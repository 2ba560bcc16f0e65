"""Runs of numbered batches, and the gaps in them. Pure.

An agent numbers its batches without a hole and sends them in order, each again until it is
acknowledged. So a number that was skipped is a batch that the agent lost (its spool was full), and
a number that is not above the last one is a resend, which changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

SEQUENCE_MAX: Final = 2**63 - 1
"""The largest number that the databases keep; an agent does not live to reach it."""


GAPS_MAX: Final = 100
"""Gaps whose place one run remembers, only to separate them from those of an overlapping run. Past
it they are merely counted."""

Gap = tuple[int, int]
"""The first and the last number that were left out."""


class BatchRun(msgspec.Struct, frozen=True, kw_only=True):
    """Batches `first` to `last` of one agent and boot, without those in `gaps`.

    `counted` is the number of missing batches whose place is not in `gaps`. `received_at` is when
    the last batch came, by the service's clock. `host` is empty when the batches do not name one.
    """

    agent: str
    boot: str
    first: int
    last: int
    received_at: datetime
    host: str = ""
    counted: int = 0
    gaps: tuple[Gap, ...] = ()

    @property
    def missing(self) -> int:
        """Batches that were skipped, SEQUENCE_MAX at most."""
        skipped = sum(last - first + 1 for first, last in self.gaps)
        return min(self.counted + skipped, SEQUENCE_MAX)

    @classmethod
    def of_one(
        cls, *, agent: str, boot: str, sequence: int, received_at: datetime, host: str = ""
    ) -> BatchRun:
        return cls(
            agent=agent,
            boot=boot,
            first=sequence,
            last=sequence,
            received_at=received_at,
            host=host,
        )

    def followed_by(self, later: BatchRun) -> BatchRun:
        """This run and what came after it, of the same agent and boot.

        Of a later run that overlaps this one (an agent that went back and sends again) only what is
        new counts; one that brings nothing new changes nothing.
        """
        if later.last <= self.last:
            return self
        gaps = [(max(start, self.last + 1), end) for start, end in later.gaps if end > self.last]
        if later.first > self.last + 1:
            gaps.insert(0, (self.last + 1, later.first - 1))
        joined = msgspec.structs.replace(
            later,
            first=min(self.first, later.first),
            host=later.host or self.host,
            counted=self.counted,
            gaps=(*self.gaps, *gaps),
        )
        if len(joined.gaps) <= GAPS_MAX:
            return joined
        return msgspec.structs.replace(joined, counted=joined.missing, gaps=())

    def succeeded_by(self, other: BatchRun) -> BatchRun:
        """The agent's run after both, of whatever boot.

        A new boot restarts the count. A run of another boot that was received before this one is
        late news of an old boot: with several service processes, each writes at its own moment.
        """
        if other.boot == self.boot:
            return self.followed_by(other)
        return other if other.received_at >= self.received_at else self
