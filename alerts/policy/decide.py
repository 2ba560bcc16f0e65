"""What a policy wants now: drains, refusals with their reason, returns. Pure.

The caller runs `decide` every few seconds with the fleet's health, past actions, and the memory
that the last call returned. `decide` acts on nothing: the caller records the decision and holds
hosts or not. In doubt a policy does not act: every uncertain condition ends in a refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from alerts.health.model import Charge, Standing
from alerts.judge.incident import REOPEN_SECONDS
from alerts.policy.action import HOLDING, Action, ActionState, Ending, Outcome, Refused, Why
from alerts.policy.model import Mode, Policy, ReturnOn, Rule
from collector.contract.units import NS

CONFIRM_S = 900.0
"""Trouble that goes on at a host for this long after the wish was worth a drain: a job that moves
loses about as much (a checkpoint, a queue, a restart)."""
SETTLED_S = float(REOPEN_SECONDS)
"""After this long without it, trouble does not come back as the same incident."""


class FleetHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet's health, by name of host."""

    hosts: Collection[str]
    """All of them; a host without a standing is well."""
    standings: Mapping[str, Standing] = {}
    stale: tuple[str, ...] = ()
    """Why evidence cannot be trusted, in sentences; empty: it can."""


class Key(msgspec.Struct, frozen=True, order=True):
    """A rule that a host meets by an incident."""

    rule: str
    host: str
    incident: str


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """State between two decisions. If it is lost, the policy waits longer; it never acts sooner."""

    matched: Mapping[Key, int] = {}
    clean: Mapping[str, int] = {}
    tripped_ns: int | None = None


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A host should be held; ``mode``: that is done, proposed, or only recorded."""

    host: str
    rule: Rule
    mode: Mode
    why: Why
    until_ns: int | None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A drain that a limit or an operator stops, and why."""

    drain: Drain
    refused: Refused
    words: str


class End(msgspec.Struct, frozen=True, kw_only=True):
    """An action of the policy is over: a hold, a shadow of one, or a proposal (``refused``)."""

    action: Action
    words: str
    why: Ending | None = None
    refused: Refused | None = None


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """A hold goes on for longer: its incident is still open."""

    action: Action
    until_ns: int | None


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a shadowed drain."""

    action: Action
    outcome: Outcome
    words: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `decide`. A host is in at most one of drains and refusals."""

    drains: tuple[Drain, ...]
    refusals: tuple[Refusal, ...]
    ends: tuple[End, ...]
    extensions: tuple[Extension, ...]
    judgements: tuple[Judgement, ...]
    breaker_until_ns: int | None
    """While the breaker is open: until when, if no more hosts become due."""
    memory: Memory


def decide(
    policy: Policy, health: FleetHealth, actions: Iterable[Action], memory: Memory, now_ns: int
) -> Decision:
    """``actions``: all live ones, and past ones that began or ended within `look_back_s`."""
    return _Round(policy, health, actions, memory, now_ns).decide()


def look_back_s(policy: Policy) -> float:
    return max(policy.limits.cooldown_s, policy.breaker.within_s, policy.breaker.rest_s, 86_400.0)


class _Due(msgspec.Struct, frozen=True):
    """A drain that is due, and since when."""

    drain: Drain
    since_ns: int


class _Round:
    """One decision in the making."""

    def __init__(
        self,
        policy: Policy,
        health: FleetHealth,
        actions: Iterable[Action],
        memory: Memory,
        now_ns: int,
    ) -> None:
        self._policy = policy
        self._health = health
        self._now_ns = now_ns
        self._memory = memory
        # Includes expired actions whose end is not recorded yet.
        known = list(actions)
        self._open = [each for each in known if each.ended_ns is None]
        self._live = [each for each in self._open if each.is_live(now_ns)]
        self._past = [each for each in known if each.ended_ns is not None]
        self._is_quiet = policy.is_quiet(now_ns)

    def decide(self) -> Decision:
        matched = {key: self._memory.matched.get(key, self._now_ns) for key, _, _ in self._met()}
        due = list(self._due(matched))
        tripped_ns = self._trip(due)
        rest_ns = round(self._policy.breaker.rest_s * NS)
        is_open = tripped_ns is not None and self._now_ns < tripped_ns + rest_ns
        drains, refusals = self._choose([each.drain for each in due], is_open=is_open)
        clean = self._clean()
        return Decision(
            drains=tuple(drains),
            refusals=tuple(refusals),
            ends=tuple(self._ends(clean, {key.host for key in matched})),
            extensions=tuple(self._extensions()),
            judgements=tuple(self._judgements()),
            breaker_until_ns=tripped_ns + rest_ns if is_open and tripped_ns is not None else None,
            memory=Memory(matched=matched, clean=clean, tripped_ns=tripped_ns),
        )

    # --- due drains ----------------------------------------------------------------------------

    def _met(self) -> Iterator[tuple[Key, Rule, Charge]]:
        for host, standing in self._health.standings.items():
            for charge in standing.charges:
                rule = next((each for each in self._policy.rules if each.meets(charge)), None)
                if rule is not None and self._policy.mode_of(rule) is not Mode.OFF:
                    yield Key(rule.name, host, charge.incident), rule, charge

    def _due(self, matched: Mapping[Key, int]) -> Iterator[_Due]:
        """Drains whose time has come: each host's heaviest, the heaviest host first."""
        found: dict[str, _Due] = {}
        for key, rule, charge in self._met():
            since_ns = matched[key] + round(rule.stands_s * NS)
            mode = self._policy.mode_of(rule)
            if self._now_ns < since_ns or self._is_held(key.host, mode):
                continue
            drain = Drain(
                host=key.host,
                rule=rule,
                mode=mode,
                why=Why.of(rule, charge),
                until_ns=rule.until_ns(self._now_ns),
            )
            known = found.get(key.host)
            if known is None or known.drain.why.risk < drain.why.risk:
                found[key.host] = _Due(drain, since_ns)
        yield from sorted(found.values(), key=lambda each: (-each.drain.why.risk, each.drain.host))

    def _is_held(self, host: str, mode: Mode) -> bool:
        """Whether the host is held already, or proposed. A shadow is no hold to acting rules."""
        standing = self._health.standings.get(host)
        if standing is not None and standing.hold is not None:
            return True
        return any(
            each.host == host and (mode is Mode.SHADOW or each.state is not ActionState.SHADOWED)
            for each in self._live
        )

    # --- the breaker ---------------------------------------------------------------------------

    def _trip(self, due: Sequence[_Due]) -> int | None:
        """When the breaker last tripped: now, if too many hosts became due within its time.

        A host that was refused for another reason before is not new: it waits for room, or for the
        end of quiet hours. One that the breaker itself refused counts for as long as it is due.
        """
        breaker = self._policy.breaker
        since_ns = self._now_ns - round(breaker.within_s * NS)
        acted = {
            each.host
            for each in (*self._open, *self._past)
            if each.is_policys and each.refused is None and each.at_ns >= since_ns
        }
        fresh = {each.drain.host for each in due if self._due_ns(each) >= since_ns}
        tripped = [each.at_ns for each in self._past if each.refused is Refused.BREAKER]
        if self._memory.tripped_ns is not None:
            tripped.append(self._memory.tripped_ns)
        if len(acted | fresh) > breaker.hosts_max:
            tripped.append(self._now_ns)
        return max(tripped, default=None)

    def _due_ns(self, due: _Due) -> int:
        """When a drain became due, as the breaker counts."""
        refusals = [
            each
            for each in self._past
            if each.refused is not None
            and each.host == due.drain.host
            and each.why is not None
            and each.why.incident == due.drain.why.incident
        ]
        if any(each.refused is Refused.BREAKER for each in refusals):
            return self._now_ns
        return min((each.at_ns for each in refusals), default=due.since_ns)

    # --- granted drains ------------------------------------------------------------------------

    def _choose(
        self, wanted: Sequence[Drain], *, is_open: bool
    ) -> tuple[list[Drain], list[Refusal]]:
        """The drains without an objection, and the others with their first one."""
        held = self._held_hosts()
        shadowed = {each.host for each in self._live if each.state is ActionState.SHADOWED}
        drains: list[Drain] = []
        refusals: list[Refusal] = []
        for drain in wanted:
            # A shadow takes room from shadows only: real drains must not wait for it.
            taken = held | shadowed if drain.mode is Mode.SHADOW else held
            against = self._objections(drain, is_open=is_open, taken=len(taken - {drain.host}))
            if (found := next(against, None)) is not None:
                refusals.append(Refusal(drain=drain, refused=found[0], words=found[1]))
                continue
            drains.append(drain)
            (shadowed if drain.mode is Mode.SHADOW else held).add(drain.host)
        return drains, refusals

    def _held_hosts(self) -> set[str]:
        held = {
            host for host, standing in self._health.standings.items() if standing.hold is not None
        }
        return held | {each.host for each in self._live if each.state is not ActionState.SHADOWED}

    def _objections(
        self, drain: Drain, *, is_open: bool, taken: int
    ) -> Iterator[tuple[Refused, str]]:
        limits, host, fleet = self._policy.limits, drain.host, len(self._health.hosts)
        standing = self._health.standings.get(host)
        if host not in self._health.hosts:
            yield Refused.UNKNOWN_HOST, f"no host named {host} reports"
        if self._health.stale:
            yield Refused.STALE_EVIDENCE, "; ".join(self._health.stale)
        if standing is None or standing.silent_since_ns is not None:
            yield Refused.STALE_EVIDENCE, f"{host} is silent"
        if is_open:
            breaker = self._policy.breaker
            words = f"more than {breaker.hosts_max} hosts became due within {breaker.within_s:g} s"
            yield Refused.BREAKER, f"{words}: look for what they have in common"
        if (rejection := self._rejection(drain)) is not None:
            yield Refused.REJECTED, rejection
        if (back_ns := self._came_back_ns(drain)) is not None:
            words = f"{host} came back {(self._now_ns - back_ns) / NS:.0f} s ago"
            yield Refused.COOLDOWN, f"{words}; cooldown_s is {limits.cooldown_s:g}"
        if self._is_quiet:
            yield Refused.QUIET_HOURS, "these are quiet hours"
        if taken >= (room := limits.room(fleet)):
            words = f"{taken} hosts are held; of {fleet} at most {room} may be"
            bounds = f"share_max {limits.share_max:g}, hosts_max {limits.hosts_max}"
            yield Refused.SHARE_LIMIT, f"{words} ({bounds})"

    def _rejection(self, drain: Drain) -> str | None:
        for each in self._past:
            if each.host != drain.host or each.why is None:
                continue
            if each.why.incident != drain.why.incident:
                continue
            if each.refused is Refused.REJECTED or each.ended_why is Ending.OPERATOR:
                return f"{each.ended_by} rejected action {each.id}"
        return None

    def _came_back_ns(self, drain: Drain) -> int | None:
        """When the host last came back, if that is less than `cooldown_s` ago."""
        states = (ActionState.SHADOWED,) if drain.mode is Mode.SHADOW else (ActionState.ENDED,)
        since_ns = self._now_ns - round(self._policy.limits.cooldown_s * NS)
        back = [
            each.ended_ns
            for each in self._past
            if each.host == drain.host
            and each.is_policys
            and each.state in states
            and each.ended_why not in {Ending.POLICY, Ending.REPLACED}
            and each.ended_ns is not None
            and each.ended_ns > since_ns
        ]
        return max(back, default=None)

    # --- ends ----------------------------------------------------------------------------------

    def _clean(self) -> dict[str, int]:
        """Since when each host that the policy holds, also in shadow, has no open charge."""
        if self._health.stale:
            return {}
        held = {each.host for each in self._live if each.is_policys and each.state in HOLDING}
        return {
            host: self._memory.clean.get(host, self._now_ns)
            for host in sorted(held)
            if host in self._health.hosts and is_clean(self._health.standings.get(host))
        }

    def _ends(self, clean: Mapping[str, int], accused: Collection[str]) -> Iterator[End]:
        for action in self._open:
            if not action.is_live(self._now_ns):
                yield self._expired(action)
            elif action.why is not None:
                rule = self._policy.rule(action.why.rule)
                end = self._end_of(action, rule, clean, accused)
                if end is not None:
                    yield end

    def _expired(self, action: Action) -> End:
        if action.state is ActionState.PROPOSED:
            words = "no operator answered in time"
            return End(action=action, refused=Refused.EXPIRED, words=words)
        return End(action=action, why=Ending.TTL, words="its time is up")

    def _end_of(
        self, action: Action, rule: Rule | None, clean: Mapping[str, int], accused: Collection[str]
    ) -> End | None:
        """The end of a live action; None: it goes on."""
        mode = self._policy.mode_of(rule) if rule is not None else Mode.OFF
        if action.state is ActionState.PROPOSED:
            return self._withdrawn(action, mode, accused)
        if action.state is ActionState.SHADOWED and mode is not Mode.SHADOW:
            return End(action=action, why=Ending.POLICY, words=f"the rule's mode is now {mode}")
        if rule is None or self._is_quiet or self._health.stale:
            return None
        return self._returned(action, rule, clean.get(action.host))

    def _withdrawn(self, action: Action, mode: Mode, accused: Collection[str]) -> End | None:
        words = ""
        if mode is not Mode.APPROVE:
            words = "the policy no longer proposes it"
        elif action.host not in accused and not self._health.stale:
            words = "its rule no longer applies to the host"
        return End(action=action, refused=Refused.WITHDRAWN, words=words) if words else None

    def _returned(self, action: Action, rule: Rule, clean_ns: int | None) -> End | None:
        if ReturnOn.CHECK in rule.return_on and action.check is not None and action.check.passed:
            return End(action=action, why=Ending.CHECK, words=action.check.words)
        clean_s = 0.0 if clean_ns is None else (self._now_ns - clean_ns) / NS
        if ReturnOn.CLEAN in rule.return_on and clean_ns is not None and clean_s >= rule.clean_s:
            words = f"no open incident has accused it for {clean_s:.0f} s"
            return End(action=action, why=Ending.CLEAN, words=words)
        return None

    def _extensions(self) -> Iterator[Extension]:
        """Holds whose incident is still open when half of their time is over."""
        if self._health.stale:
            return
        for action in self._live:
            if action.why is None or action.state not in HOLDING or action.until_ns is None:
                continue
            rule = self._policy.rule(action.why.rule)
            if rule is None or rule.ttl_s is None:
                continue
            left_ns = action.until_ns - self._now_ns
            charge = self._charge_of(action)
            is_accused = charge is not None and charge.is_certain
            if is_accused and left_ns < rule.ttl_s * NS / 2:
                yield Extension(action=action, until_ns=rule.until_ns(self._now_ns))

    # --- outcomes of shadows -------------------------------------------------------------------

    def _charge_of(self, action: Action) -> Charge | None:
        standing = self._health.standings.get(action.host)
        if standing is None or action.why is None:
            return None
        incident = action.why.incident
        return next((each for each in standing.charges if each.incident == incident), None)

    def _judgements(self) -> Iterator[Judgement]:
        if self._health.stale:
            return
        for action in self._live:
            if action.outcome is not Outcome.WAITING or action.state is not ActionState.SHADOWED:
                continue
            charge = self._charge_of(action)
            found = judge(action.at_ns, charge, self._now_ns)
            if found is not None:
                yield Judgement(action=action, outcome=found[0], words=found[1])


def is_clean(standing: Standing | None) -> bool:
    """Whether a host reports and no open charge counts against it."""
    if standing is None:
        return True
    is_charged = any(charge.until_ns is None for charge in standing.charges)
    return standing.silent_since_ns is None and not is_charged


def judge(at_ns: int, charge: Charge | None, now_ns: int) -> tuple[Outcome, str] | None:
    """Whether a drain at ``at_ns`` would have been right; None: not known yet.

    ``charge`` is what the incident counts against the host now; None: nothing.
    """
    confirm_ns, settled_ns = round(CONFIRM_S * NS), round(SETTLED_S * NS)
    if charge is not None:
        seen_ns = now_ns if charge.until_ns is None else charge.until_ns
        if seen_ns - at_ns >= confirm_ns:
            return Outcome.CONFIRMED, f"it went on for {(seen_ns - at_ns) / NS:.0f} s"
        if charge.until_ns is not None and now_ns - charge.until_ns >= settled_ns:
            return Outcome.CLEARED, f"it was over after {max(0, seen_ns - at_ns) / NS:.0f} s"
        return None
    if now_ns - at_ns >= confirm_ns + settled_ns:
        return Outcome.CLEARED, "its incident no longer accuses this host"
    return None
