"""What a comparison of steps says. Durations are nanoseconds, ranks the job's; None: not known."""

from __future__ import annotations

import enum

import msgspec

from collector.contract.verdict import Cause, Culprit


class Role(enum.StrEnum):
    """What a rank did in the slow steps that it did not do in the normal ones."""

    LATE = "late"
    """It was longer outside of collectives by itself, and others waited for it."""
    PASSED_ON = "passed_on"
    """Others waited for it, and it had waited itself: lateness went through it."""
    WAITED = "waited"
    """It waited longer for others."""
    TRANSFER = "transfer"
    """It was longer inside of collectives after all ranks had come."""
    IDLE = "idle"
    """It was longer outside of collectives and came no later than its peers: it waited where
    nothing is recorded."""
    AS_USUAL = "as_usual"
    UNKNOWN = "unknown"
    """Its records are missing in these steps."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's step: outside of collectives, waiting inside of them, and the rest inside."""

    own_ns: int | None = None
    wait_ns: int | None = None
    transfer_ns: int | None = None


class RankCompared(msgspec.Struct, frozen=True, kw_only=True):
    """One rank: medians over the steps of each side, and the difference of the two."""

    rank: int
    host: str
    gpu: int | None
    slow: Parts
    normal: Parts
    excess: Parts
    beyond_peers_ns: int | None
    """Of the own excess, what the ranks that do the same work do not have."""
    waited_for_ns: int
    """How much longer all others together waited for it, in the collectives it entered last."""
    role: Role
    is_accused: bool


class SideSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one side."""

    from_ns: int
    to_ns: int
    steps: int
    step_ns: int | None
    """The median step."""
    shown_ns: int | None = None
    """Where the step that is drawn begins: the one whose length is the median."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Excess that went from one rank to another: it waited so much longer for it, a step."""

    source: int
    """The rank that entered last."""
    target: int
    """The rank that waited."""
    excess_ns: int


class KindCompared(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of one kind whose bytes took longer after the last rank had come."""

    communicator: str
    operation: str
    size_bytes: int | None
    ranks: int
    slow_ns: int
    normal_ns: int
    operations: int
    """In the slow steps."""
    excess_ns: int
    """In a step, all operations of the kind together."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """How bytes go round: the ranks of the job's largest communicator in that order."""

    communicator: str
    ring: list[int]
    is_assumed: bool
    """No log says it: the ranks are in their order."""
    parent: dict[str, int | None] = {}
    """Of each rank in the first tree, where one is known; None for the root."""


class Span(msgspec.Struct, frozen=True):
    """A stretch of a rank's step, from its beginning on."""

    part: str
    """`own`, `wait` or `transfer`."""
    start_ns: int
    end_ns: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's step, drawn."""

    rank: int
    spans: list[Span]
    is_cut: bool = False
    """It has more stretches; those after the last one are not here."""


class Without(msgspec.Struct, frozen=True, kw_only=True):
    """The slow steps replayed without something."""

    what: str
    """`rank`: the ranks' own excess is taken away; `network`: the excess of transfers is."""
    ranks: list[int]
    """Of `network`: those whose collectives are replayed with usual transfers; empty: all."""
    title: str
    step_ns: int
    saved_ns: int
    rows: list[Row]


class Accused(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict or a finding accuses in the time of the slow steps."""

    cause: Cause
    culprit: Culprit
    summary: str
    ranks: list[int]
    """The job's ranks that run on it or send through it."""
    confidence: float | None = None


class StepsCompared(msgspec.Struct, frozen=True, kw_only=True):
    """Slow steps against normal ones."""

    job: str
    sentence: str
    slow: SideSummary
    normal: SideSummary
    excess_ns: int | None
    """By how much the median slow step is longer; None: not known."""
    unknown: list[str]
    """Reasons why something is not known; nothing is said about it then."""
    accused: list[Accused]
    ranks: list[RankCompared]
    """In the order of blame: accused, late, passed on, waited; bounded."""
    ranks_left_out: int
    silent: list[int]
    """Ranks of the job without records in the slow steps; bounded."""
    flows: list[Flow]
    kinds: list[KindCompared]
    order: Order | None
    rows_slow: list[Row]
    rows_normal: list[Row]
    without: list[Without]
    assumptions: list[str]
