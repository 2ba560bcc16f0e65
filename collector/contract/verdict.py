"""The vocabulary of verdicts: causes, culprits, evidence, costs.

The judge, the simulator's ground truth and the scoreboard that compares the two use only these.
"""

from __future__ import annotations

import msgspec

from collector.contract.cause_facts import Layer
from collector.contract.cause_reasons import Reason
from collector.contract.causes import Cause
from collector.contract.culprit import Culprit
from collector.contract.measurement import MeasurementKind, Suspected, Undecided

__all__ = [
    "Cause", "Cost", "Culprit", "Evidence", "Layer", "MeasurementKind", "Reason", "RuledOut",
    "Suspected", "Undecided", "Verdict",
]  # fmt: skip


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observation that supports a verdict, with what a reader needs to compute it again.

    ``metric`` is a series of the catalog (with ``labels``: a PromQL selector), or a quantity
    computed from records of collectives (`collective_transfer`, `rank_gap`, `exit_ladder`…), which
    `/v1/explain` returns as data. ``value`` is what was seen in the window, ``baseline`` what is
    usual: the same before, or the peers at the same time.
    """

    metric: str
    text: str
    """One plain sentence with both numbers."""
    value: float
    unit: str
    baseline: float | None = None
    from_ns: int = 0
    to_ns: int = 0
    labels: dict[str, str] = {}
    samples: int = 0
    """How many observations it rests on."""


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked for and is not the cause, and why."""

    what: str
    """A cause, a reason, or a layer."""
    why: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs: the steps replayed with the culprit as its peers are."""

    job: str
    lost_seconds: float
    """Of the job's time, since the verdict's start."""
    step_seconds: float | None
    """A step as it is; None where steps are not known."""
    step_seconds_without: float | None
    """A step as it would be."""
    lost_share: float
    """Of the job's time while it lasted, 0 to 1."""
    gpu_hours: float
    is_at_least: bool = False
    """Whether it cost this or more: the steps beside it, which say what is usual, were slow by
    another trouble."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One diagnosis: cause, culprit, start (unix nanoseconds) and confidence.

    ``until_ns`` is None while it lasts.
    """

    cause: Cause
    culprit: Culprit
    since_ns: int
    until_ns: int | None = None
    reason: Reason = Reason.UNKNOWN
    confidence: float = 1.0
    """0 to 1: of a hundred verdicts with 0.9, ninety are right."""
    layer: Layer = Layer.UNKNOWN
    summary: str = ""
    """One sentence for a tired person."""
    action: str = ""
    jobs: tuple[str, ...] = ()
    accomplices: tuple[Culprit, ...] = ()
    """More culprits of the same kind: of a hang, every rank that is to blame."""
    victims: tuple[Culprit, ...] = ()
    """Things that only look guilty: the culprit explains their symptoms."""
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    costs: tuple[Cost, ...] = ()
    clock_error_ns: int | None = None
    """How far hosts' clocks may be apart after alignment; None: no times were compared."""
    undecided: Undecided | None = None
    """Who else it may be, and the one measurement that would decide; None where it is decided."""
