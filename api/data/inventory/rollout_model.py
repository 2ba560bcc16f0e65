"""A configuration, its roll-out, and what agents reported of it: the records."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from collector.contract.rollout import LOCAL_VERSION


class RolloutState(StrEnum):
    """Where a roll-out stands."""

    ROLLING = "rolling"
    WAITING = "waiting"
    """Its last share, below 100 %, is good: an operator decides how it goes on."""
    STOPPED = "stopped"
    """No other agent gets it; those that have it keep it."""
    DONE = "done"
    BACK = "back"
    """All agents go back to `base`."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """How a version reaches agents. Times are UTC, by the service's clock."""

    version: int
    base: int
    """What agents outside the share run, and what all go back to; 0: their own files alone."""
    shares: list[float]
    """Percent of the agents that take part, in the order in which they are reached."""
    stage: int = 0
    """Which of the shares it has reached."""
    threshold: float = 0.0
    """Agents whose position (0 to 1) is below it are in; at least one agent that reports is."""
    state: RolloutState = RolloutState.ROLLING
    failures_max: int
    """So many failed agents stop it."""
    trial_seconds: float
    reason: str = ""
    """Why it is in its state."""
    by: str = ""
    """Who brought it there; empty: the service itself."""
    since: datetime
    """In this state and at this share."""

    @property
    def share(self) -> float:
        return self.shares[self.stage]


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """A version as it was pushed."""

    version: int
    sha256: str
    signature: str
    document: bytes
    by: str
    why: str
    at: datetime


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version without its document, and its roll-out."""

    version: int
    sha256: str
    signature: str
    by: str
    why: str
    at: datetime
    revision: int
    rollout: Rollout


class AgentConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent reported last; `at` by its own clock, `heard_at` by the service's."""

    agent: str
    good: int = LOCAL_VERSION
    trying: int | None = None
    failed: int | None = None
    """The last version that it refused, or went back from."""
    detail: str = ""
    at: datetime
    heard_at: datetime
