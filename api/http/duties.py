"""What a process of the service does: takes telemetry, answers questions, evaluates, or all of it.

One process does everything unless it is told otherwise. Where several share the work, each knows
its duties, its name among them, and how to reach the others.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from api.http.peers import Peers


class Role(StrEnum):
    """The role of a service among several that share a store and an inventory (`role`)."""

    ALL = "all"
    INGEST = "ingest"
    QUERY = "query"
    EVALUATE = "evaluate"


class Duties(msgspec.Struct, frozen=True, kw_only=True):
    """The duties of one process."""

    ingests: bool = True
    answers: bool = True
    evaluates: bool = True
    name: str = ""
    """Its name among the processes of one service; empty: it is the only one."""
    socket: Path | None = None
    """Where it answers the other processes; None: there are none."""
    peers: Peers = Peers({})
    """The other processes of the service; none: it is the only one."""
    is_watch: bool = True
    """Whether it looks after what all processes of the service share: the disks, the clock, the
    service's own alerts. One of them does."""

    takers: int = 1
    """Processes of the service that take telemetry on the same address, this one among them."""

    sums_deltas: bool = True
    """Whether all increments of a series that OTLP senders send come to this process, as far as it
    knows: it keeps their sums in memory."""

    def describe(self) -> str:
        parts = {
            "takes telemetry": self.ingests,
            "answers questions": self.answers,
            "evaluates": self.evaluates,
        }
        return " and ".join(words for words, is_one in parts.items() if is_one)


EVERYTHING: Final = Duties()
"""Of a service that is one process."""

OF_ROLE: Final = {
    Role.ALL: EVERYTHING,
    Role.INGEST: Duties(answers=False, evaluates=False, sums_deltas=False),
    Role.QUERY: Duties(ingests=False, evaluates=False),
    Role.EVALUATE: Duties(ingests=False, answers=False),
}

INGEST_WORKS: Final = frozenset({"sighting", "inventory feed"})
ANSWER_WORKS: Final = frozenset({"news", "ahead", "health", "actions", "rules"})
"""Where a process does not lead, `actions` and `rules` only keep what they show fresh."""
EVALUATE_WORKS: Final = frozenset(
    {
        *("port watch", "job watch", "lead", "roll", "evaluator", "health", "actions", "ghosts"),
        "optics",
        *("rules", "notifier", "roll-ups"),
    }
)
WATCH_WORKS: Final = frozenset({"wellbeing", "self watch"})
COMMON_WORKS: Final = frozenset({"commit", "memory", "inserts", "orders", "tokens", "own numbers"})


def works_for(duties: Duties) -> frozenset[str]:
    """The names of the background work that a process does."""
    found = COMMON_WORKS
    found |= INGEST_WORKS if duties.ingests else frozenset()
    found |= ANSWER_WORKS if duties.answers else frozenset()
    found |= EVALUATE_WORKS if duties.evaluates else frozenset()
    return found | (WATCH_WORKS if duties.is_watch else frozenset())
