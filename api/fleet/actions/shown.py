"""The policy as JSON: rules, room, breaker, and how often its shadowed drains were right."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from alerts.policy.action import Action, ActionState, Outcome, Refused
from alerts.policy.decide import FleetHealth
from alerts.policy.model import Mode, Policy, ReturnOn, Rule
from api.base.limits import ACTIONS_READ_MAX
from api.data.inventory.actions import ActionQuery
from api.data.inventory.incidents import moment_of
from api.data.inventory.repository import Inventory
from api.fleet.actions.policy import SHIPPED, PolicyFile
from collector.contract.units import NS

HITS_DAYS = 30
"""Shadows that count for the hit rate: as far back as incidents are judged."""


class HitsOut(msgspec.Struct, frozen=True, kw_only=True):
    """How shadowed drains turned out."""

    confirmed: int = 0
    """The trouble went on for 15 minutes or more: the drain would have been right."""
    cleared: int = 0
    """The trouble was soon over, or had another cause."""
    waiting: int = 0
    """Not known yet."""
    rate: float | None = None
    """Share of confirmed ones among those that are known; null: none is."""


class RuleOut(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the policy. Seconds."""

    name: str
    mode: Mode
    causes: Sequence[str]
    confidence_min: float
    risk_min: float
    stands_s: float
    hold: str
    ttl_s: float | None
    clean_s: float
    return_on: Sequence[ReturnOn]
    hits: HitsOut


class PolicyOut(msgspec.Struct, frozen=True, kw_only=True):
    """The policy in force."""

    file: str
    """`shipped`: no file is set."""
    problem: str
    """What is wrong with the file on disk; the policy before it stays in force."""
    mode: Mode
    evidence: str
    """fresh or stale."""
    stale: Sequence[str]
    is_quiet: bool
    breaker_until: dt.datetime | None
    """The policy acts on no host until then, because too many became due at once."""
    hosts: int
    room: int
    """Hosts that operators and the policy may hold at once, together."""
    held: int
    share_max: float
    hosts_max: int
    cooldown_s: float
    rules: Sequence[RuleOut]
    hits: HitsOut
    """Of all rules, over 30 days."""


def show_policy(
    file: PolicyFile, inventory: Inventory, health: FleetHealth, now_ns: int
) -> PolicyOut:
    """Raises InventoryError."""
    policy, now = file.refresh(), moment_of(now_ns)
    shadows = inventory.actions.page(
        ActionQuery(states=frozenset({ActionState.SHADOWED})), limit=ACTIONS_READ_MAX
    )
    since_ns = now_ns - HITS_DAYS * 86_400 * NS
    known = [each for each in shadows if each.at_ns >= since_ns]
    by_rule: dict[str, list[Action]] = {}
    for each in known:
        by_rule.setdefault(each.why.rule if each.why is not None else "", []).append(each)
    refusals = inventory.actions.page(
        ActionQuery(states=frozenset({ActionState.REFUSED})), limit=ACTIONS_READ_MAX
    )
    return PolicyOut(
        file=file.path or SHIPPED,
        problem=file.problem,
        mode=policy.mode,
        evidence="stale" if health.stale else "fresh",
        stale=health.stale,
        is_quiet=policy.is_quiet(now_ns),
        breaker_until=breaker_until(policy, refusals, now_ns),
        hosts=len(health.hosts),
        room=policy.limits.room(len(health.hosts)),
        held=len(inventory.health.holds(now)),
        share_max=policy.limits.share_max,
        hosts_max=policy.limits.hosts_max,
        cooldown_s=policy.limits.cooldown_s,
        rules=[show_rule(policy, rule, by_rule) for rule in policy.rules],
        hits=hits_of(known),
    )


def breaker_until(policy: Policy, refusals: Iterable[Action], now_ns: int) -> dt.datetime | None:
    """Until when the breaker is open, from recorded refusals: whichever process tripped it."""
    rest_ns = round(policy.breaker.rest_s * NS)
    tripped = [each.at_ns for each in refusals if each.refused is Refused.BREAKER]
    until_ns = max(tripped, default=0) + rest_ns
    return moment_of(until_ns) if tripped and now_ns < until_ns else None


def show_rule(policy: Policy, rule: Rule, by_rule: Mapping[str, Sequence[Action]]) -> RuleOut:
    return RuleOut(
        name=rule.name,
        mode=policy.mode_of(rule),
        causes=[
            match.cause.value if match.reason is None else f"{match.cause}/{match.reason}"
            for match in rule.causes
        ],
        confidence_min=rule.confidence_min,
        risk_min=rule.risk_min,
        stands_s=rule.stands_s,
        hold=rule.hold.value,
        ttl_s=rule.ttl_s,
        clean_s=rule.clean_s,
        return_on=sorted(rule.return_on),
        hits=hits_of(by_rule.get(rule.name, ())),
    )


def hits_of(shadows: Iterable[Action]) -> HitsOut:
    counts = Counter(each.outcome for each in shadows)
    confirmed, cleared = counts[Outcome.CONFIRMED], counts[Outcome.CLEARED]
    known = confirmed + cleared
    return HitsOut(
        confirmed=confirmed,
        cleared=cleared,
        waiting=counts[Outcome.WAITING],
        rate=round(confirmed / known, 3) if known else None,
    )
