"""The data model of what-if: the changes asked for, what was read of jobs, the outlook. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import msgspec

from alerts.traffic.flows import Assumption, Messages, Sums
from alerts.window.model import Communicator, Rank
from collector.contract.identity import LinkId


class Rule(enum.StrEnum):
    """Why a question cannot be answered as it is."""

    NOTHING_ASKED = "what_if_nothing_asked"
    TWICE = "what_if_twice"
    NIC_DOUBLED = "what_if_nic_doubled"
    NOT_ON_HOST = "what_if_not_on_host"


class CannotTry(Exception):  # noqa: N818 - what it is
    """A question that contradicts itself or the fabric; the rule names how."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(detail)
        self.rule = rule


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """A cable at another rate, in each direction."""

    link: LinkId
    bits_per_second: int


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A rank on another host, at the NICs of the rails that it uses now."""

    job: str
    rank: int
    host: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """All changes of a question; they are tried together."""

    drop: tuple[LinkId, ...] = ()
    double: tuple[LinkId, ...] = ()
    """A second cable of the same rate beside each of these."""
    speed: tuple[Speed, ...] = ()
    move: tuple[Move, ...] = ()


class JobSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a running job, over some seconds of it."""

    job: str
    title: str
    ranks: Mapping[int, Rank]
    communicators: Mapping[str, Communicator]
    sums: Sequence[Sums]
    messages: Messages
    seconds: float
    """In which the operations were; the job ran in all of them."""
    step_seconds: float | None


class Guess(enum.StrEnum):
    """What every outlook assumes beside the flows' own assumptions."""

    ONE_CONNECTION = "one_connection"
    """What one NIC sends to another takes one of several equal cables, and all such connections lie
    on them as evenly as they can. The low end of the range divides them evenly over the cables; the
    high end has one more on the fullest, where a change gives them other cables."""
    OTHERS_BY_MEAN = "others_by_mean"
    """Other jobs are on the links with what they send in the mean."""
    ALIKE_TOGETHER = "alike_together"
    """Communicators of as many ranks with as many bytes, and no rank in common, send at once."""
    ONE_AFTER_ANOTHER = "one_after_another"
    """Nothing hides a transfer: a step is longer by all that its transfers are. The lower end of
    the range has all of it hidden behind computing."""
    SAME_RINGS = "same_rings"
    """A job whose rank moves keeps its rings and trees; NCCL would order them again."""


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """The cable that limits the transfers that take longest."""

    link: str
    source: str
    """The end that sends."""
    bits_per_second: float
    used_by_others: float
    """Of it, by other jobs in the mean; a share."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """One job before and after; times are seconds of one step."""

    job: str
    title: str
    is_affected: bool
    """Whether its transfers would take another time by a thousandth, or it would stop."""
    stops_because: str
    """Ranks that could not reach each other; empty: they can."""
    cannot_tell: list[str]
    """Why no time is given; empty: there is one."""
    step_seconds: float | None
    """As measured; null: its steps are not known, and times are of a second of its life."""
    step_seconds_expected: float | None
    step_seconds_range: tuple[float, float] | None
    transfer_seconds: float | None
    """Between hosts, as measured from when the last rank had come."""
    transfer_seconds_expected: float | None
    slower: float | None
    """Of a step, expected: 0.1 is a tenth longer, negative is faster."""
    gpu_hours_per_day: float | None
    """That all of its ranks would lose in a day; negative: would gain."""
    money_per_day: float | None
    """The same at the service's price of a GPU-hour; null without one."""
    bottleneck: Bottleneck | None
    bottleneck_expected: Bottleneck | None
    assumptions: list[Assumption]


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: every running job that was looked at, those that change most first."""

    from_: float = msgspec.field(name="from")
    """Unix seconds of the traffic that it rests on."""
    to: float
    changes: list[str]
    """In sentences."""
    jobs: list[Outlook]
    jobs_left_out: int
    """Running jobs that were not looked at: there were too many."""
    assumes: list[Guess]
    unknown: list[str]
    """What the answer does not know, in sentences."""
    currency: str
