"""What a detector finds: one anomaly with its evidence. Not a verdict.

A finding about a job states that the job suffers, and which NIC, rank or host its own times accuse
(``suspects``, the most likely first). A finding about a machine states a fault of the machine,
whichever job suffers from it. `alerts.judge.verdict` combines both.
"""

from __future__ import annotations

import msgspec

from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason, RuledOut


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A part that a job's own times accuse, and how much: shares of 1 over all suspects."""

    culprit: Culprit
    share: float


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """An anomaly from ``since_ns`` to ``until_ns`` (None while it lasts)."""

    detector: str
    cause: Cause
    culprit: Culprit
    """The accused part. Empty where a job suffers and no part can be named."""
    strength: float
    """0 to 1: how clear it is, by this evidence alone."""
    since_ns: int
    until_ns: int | None
    last_ns: int
    reason: Reason = Reason.UNKNOWN
    job: str = ""
    """The job whose own times show it; empty for what readings of machines show."""
    suspects: tuple[Suspect, ...] = ()
    """Where one culprit is not certain: all candidates, with shares."""
    communicators: tuple[str, ...] = ()
    accomplices: tuple[Culprit, ...] = ()
    """More of the same kind, to the same effect: every rank that never launched."""
    victims: tuple[Culprit, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    cost: Cost | None = None
    unread: tuple[int, ...] = ()
    """Ranks that nothing was read of and that could be at fault as well, or instead."""
    is_unsure: bool = False
    """Whether what was not read could explain all of it: then no rank is accused above a half."""
    is_context: bool = False
    """True of what explains others and is never a verdict by itself (a hot GPU that is not late, a
    share of time that the network takes)."""
    is_forecast: bool = False
    """True of what has not happened yet (an optic that is dying). It is context, too: it explains
    no job's trouble. The health of hosts counts it."""
