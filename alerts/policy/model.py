"""Types of a policy. Durations are seconds; times are unix nanoseconds and always arguments."""

from __future__ import annotations

import datetime as dt
import enum
import math
from zoneinfo import ZoneInfo

import msgspec

from alerts.health.model import Charge, HealthState
from collector.contract.units import NS
from collector.contract.verdict import Cause, Reason

HOUR_S = 3_600.0
DAY_MINUTES = 24 * 60


class Mode(enum.StrEnum):
    """How far a policy may go, the least first."""

    OFF = "off"
    SHADOW = "shadow"
    """Record what would have been done, and whether that would have been right."""
    APPROVE = "approve"
    """Propose, and wait for an operator."""
    ENFORCE = "enforce"


REACH = {mode: place for place, mode in enumerate(Mode)}


class ReturnOn(enum.StrEnum):
    """What gives a host back before its time is over."""

    CLEAN = "clean"
    """No open incident accuses it for `clean_s`, while it reports."""
    CHECK = "check"
    """A run of nccl-tests on it passed (`POST /v1/hosts/{host}/check`)."""


class Match(msgspec.Struct, frozen=True):
    """A cause, and a reason where only that one is meant."""

    cause: Cause
    reason: Reason | None = None

    def meets(self, charge: Charge) -> bool:
        return charge.cause is self.cause and self.reason in {None, charge.reason}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which verdicts against a host drain it, and what ends that."""

    name: str
    causes: tuple[Match, ...]
    mode: Mode | None = None
    """Less than the policy's, for a rule that is still on trial. None: the policy's."""
    confidence_min: float = 0.8
    risk_min: float = 0.5
    """Of the verdict against the host itself (confidence times weight): from here on the host is
    `degraded` by this alone. A cable whose bad end is unknown stays below."""
    stands_s: float = 120.0
    """How long the same incident must have accused the host without interruption."""
    hold: HealthState = HealthState.DRAINING
    """DRAINING or OUT."""
    ttl_s: float | None = 24 * HOUR_S
    """A hold expires after this time; it is extended while its incident is open. None: evidence, a
    check or an operator ends it."""
    clean_s: float = 2 * HOUR_S
    return_on: frozenset[ReturnOn] = frozenset(ReturnOn)

    def meets(self, charge: Charge) -> bool:
        """Whether this rule acts on a charge: from an open incident, and clear enough."""
        return (
            charge.is_certain
            and charge.confidence >= self.confidence_min
            and charge.confidence * charge.weight >= self.risk_min
            and any(match.meets(charge) for match in self.causes)
        )

    def until_ns(self, now_ns: int) -> int | None:
        """When a hold that begins, or is extended, now would expire."""
        return None if self.ttl_s is None else now_ns + round(self.ttl_s * NS)


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a policy never exceeds, however sure it is."""

    share_max: float = 0.02
    """Share of the fleet that may be held at once, operators' holds included: where operators hold
    as much, the policy adds nothing."""
    hosts_max: int = 16
    """The same, as a number. The lower of both counts."""
    cooldown_s: float = 6 * HOUR_S
    """A host that came back is not taken again for this long: recurring trouble needs a person."""
    proposal_s: float = 4 * HOUR_S
    """How long a proposal waits for an operator."""

    def room(self, fleet: int) -> int:
        """How many hosts of a fleet may be held.

        >>> Limits(share_max=0.02, hosts_max=16).room(512), Limits().room(10_000), Limits().room(8)
        (10, 16, 0)
        """
        return min(self.hosts_max, math.floor(self.share_max * fleet + 1e-9))


class Breaker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stops all drains when many hosts are accused at once: then something else is wrong."""

    hosts_max: int = 4
    """Hosts that become due within `within_s`. One more opens the breaker."""
    within_s: float = 600.0
    rest_s: float = HOUR_S
    """How long it stays open after it last tripped."""


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """Hours in which a policy changes nothing. Over midnight they belong to the day they begin."""

    days: frozenset[int] = frozenset(range(7))
    """0 is Monday."""
    begin: int
    """Minute of the day."""
    end: int

    def covers(self, moment: dt.datetime) -> bool:
        """Whether a moment, in the policy's zone, lies in them.

        >>> night = Quiet(days=frozenset({4}), begin=22 * 60, end=6 * 60)  # Friday
        >>> night.covers(dt.datetime(2026, 11, 13, 23)), night.covers(dt.datetime(2026, 11, 14, 5))
        (True, True)
        >>> night.covers(dt.datetime(2026, 11, 14, 23)), night.covers(dt.datetime(2026, 11, 13, 5))
        (False, False)
        """
        minute = moment.hour * 60 + moment.minute
        if self.begin < self.end:
            return moment.weekday() in self.days and self.begin <= minute < self.end
        if minute >= self.begin:
            return moment.weekday() in self.days
        return minute < self.end and (moment.weekday() - 1) % 7 in self.days


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run of nccl-tests must reach."""

    share_min: float = 0.9
    """Of the best bus bandwidth that the same test (operation, ranks, size) ever reached here."""
    bus_bandwidth_min: dict[str, float] = {}
    """By operation, in GB/s as nccl-tests prints them, for the largest size. It wins over the
    share, and is needed where no result was ever kept."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A whole policy. The default drains nothing: it has no rules."""

    mode: Mode = Mode.SHADOW
    zone: str = "UTC"
    rules: tuple[Rule, ...] = ()
    limits: Limits = Limits()
    breaker: Breaker = Breaker()
    quiet: tuple[Quiet, ...] = ()
    check: Check = Check()

    def mode_of(self, rule: Rule) -> Mode:
        """How far a rule goes: the lesser of its own mode and the policy's."""
        if rule.mode is None:
            return self.mode
        return min(self.mode, rule.mode, key=REACH.__getitem__)

    def rule(self, name: str) -> Rule | None:
        return next((rule for rule in self.rules if rule.name == name), None)

    def is_quiet(self, now_ns: int) -> bool:
        if not self.quiet:
            return False
        moment = dt.datetime.fromtimestamp(now_ns // NS, tz=ZoneInfo(self.zone))
        return any(hours.covers(moment) for hours in self.quiet)
