"""What an operator says about a verdict, and the case that it makes with the verdict's window."""

from __future__ import annotations

import enum

import msgspec

from alerts.window.model import Window
from collector.contract.verdict import Cause, Culprit, Reason, Verdict

VERDICTS_MAX = 32
"""Verdicts of the keeping version that a case has: the costliest."""


class Says(enum.StrEnum):
    """What an operator says about a verdict."""

    RIGHT = "right"
    WRONG = "wrong"
    """Neither cause nor culprit is known: only that this verdict is not it."""
    OTHER = "other"
    """It was another cause, or another culprit."""


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a verdict says, in short."""

    cause: Cause
    culprit: Culprit = Culprit()
    reason: Reason = Reason.UNKNOWN
    confidence: float = 1.0

    @classmethod
    def of(cls, verdict: Verdict) -> Told:
        return cls(
            cause=verdict.cause,
            culprit=verdict.culprit,
            reason=verdict.reason,
            confidence=verdict.confidence,
        )


class Truth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator said, and about which verdict."""

    says: Says
    told: Told
    cause: Cause | None = None
    """Of OTHER: what it was."""
    culprit: Culprit = Culprit()
    """Of OTHER: who it was, by the names that the operator gave; empty: not said."""


class ReplayCase(msgspec.Struct, frozen=True, kw_only=True):
    """A window, what was said about its verdict, and what the keeping version made of it."""

    truth: Truth
    window: Window
    verdicts: tuple[Told, ...]
    """What the version that kept the window found in it, as it was kept."""
    kept_by: str
    """That version."""
    is_scrubbed: bool = False
