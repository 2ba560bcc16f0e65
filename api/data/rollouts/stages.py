"""Who gets a configuration, what an agent should run, and when a roll-out goes on or stops. Pure.

An agent has a position between 0 and 1, another one for each version: a share of 5 % is the agents
below 0.05, so larger shares contain smaller ones, and the first hosts of one roll-out are not the
first of the next.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Final

import msgspec

from api.base.rollout_limits import ROLLOUT_PENDING_SECONDS
from api.data.inventory.rollout_model import AgentConfiguration, Rollout, RolloutState

PERCENT: Final = 100.0
NAMES_SHOWN: Final = 3
REACHING: Final = frozenset({RolloutState.ROLLING, RolloutState.WAITING, RolloutState.DONE})
"""States in which agents in the share are told of the version."""


class HostState(StrEnum):
    """How far one agent has come with the latest version."""

    GOOD = "good"
    TRYING = "trying"
    FAILED = "failed"
    PENDING = "pending"
    """In the share, reports, and has not taken it yet."""
    NOT_YET = "not_yet"
    """In the share, and silent: it is down, or was taken out of service."""
    OUTSIDE = "outside"
    """Not meant: outside of the share, or the roll-out is stopped or taken back."""


def position(agent: str, version: int) -> float:
    """Where an agent stands in the order of a version: 0 to below 1, evenly spread, stable.

    >>> position("node-1", 7) == position("node-1", 7) != position("node-1", 8)
    True
    """
    digest = blake2b(f"{version}/{agent}".encode(), digest_size=8).digest()
    # 53 bits: what a float holds exactly, so that the result stays below 1.
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def wanted(rollout: Rollout, agent: AgentConfiguration) -> int:
    """The version that an agent should run."""
    if rollout.state is RolloutState.BACK or agent.failed == rollout.version:
        return rollout.base
    has_it = rollout.version in {agent.good, agent.trying}
    is_in = position(agent.agent, rollout.version) < rollout.threshold
    if has_it or (is_in and rollout.state in REACHING):
        return rollout.version
    return rollout.base


def state_of(rollout: Rollout, agent: AgentConfiguration, *, reports: bool) -> HostState:
    if agent.failed == rollout.version:
        return HostState.FAILED
    if agent.good == rollout.version:
        return HostState.GOOD
    if agent.trying == rollout.version:
        return HostState.TRYING
    if wanted(rollout, agent) != rollout.version:
        return HostState.OUTSIDE
    return HostState.PENDING if reports else HostState.NOT_YET


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many agents are in each state, and those that are worth a name."""

    counts: Mapping[HostState, int]
    failed: list[AgentConfiguration]
    silent: list[str]
    """Have it, or try it, and do not report any more."""
    good_that_report: int
    waited_for: list[str]
    """Report, and have not taken or not ended it."""


def tally(
    rollout: Rollout, agents: Iterable[AgentConfiguration], reporting: Collection[str]
) -> Tally:
    counts: Counter[HostState] = Counter()
    failed: list[AgentConfiguration] = []
    silent: list[str] = []
    waited_for: list[str] = []
    good = 0
    for agent in agents:
        reports = agent.agent in reporting
        state = state_of(rollout, agent, reports=reports)
        counts[state] += 1
        if state is HostState.FAILED:
            failed.append(agent)
        elif state in {HostState.GOOD, HostState.TRYING} and not reports:
            silent.append(agent.agent)
        elif state in {HostState.PENDING, HostState.TRYING}:
            waited_for.append(agent.agent)
        elif state is HostState.GOOD:
            good += 1
    return Tally(
        counts={state: counts[state] for state in HostState},
        failed=failed,
        silent=sorted(silent),
        good_that_report=good,
        waited_for=sorted(waited_for),
    )


def decide(
    rollout: Rollout,
    agents: Collection[AgentConfiguration],
    reporting: Collection[str],
    now: dt.datetime,
) -> Rollout:
    """The roll-out as it should be now; the same one if nothing is to be changed."""
    if rollout.state not in {RolloutState.ROLLING, RolloutState.WAITING}:
        return rollout
    found = tally(rollout, agents, reporting)
    if len(found.failed) >= rollout.failures_max:
        return moved(rollout, RolloutState.STOPPED, failure_words(rollout, found), now)
    if rollout.state is RolloutState.WAITING:
        return rollout
    if threshold := threshold_of_first(rollout, agents, reporting, found):
        return msgspec.structs.replace(rollout, threshold=threshold, since=now)
    if held_by(rollout, found, now):
        return rollout
    return advanced(rollout, now)


def held_by(rollout: Rollout, found: Tally, now: dt.datetime) -> str:
    """What the roll-out waits for before it goes on; empty: nothing."""
    if not found.good_that_report:
        return "no agent that reports has called it good yet"
    late_s = (now - rollout.since).total_seconds() - rollout.trial_seconds
    if found.waited_for and late_s < ROLLOUT_PENDING_SECONDS:
        who = (
            "1 agent has" if len(found.waited_for) == 1 else f"{len(found.waited_for)} agents have"
        )
        return f"{who} not ended it: {names(found.waited_for)}"
    if len(found.waited_for) > found.good_that_report:
        return f"most agents have not taken it: {names(found.waited_for)}"
    if len(found.silent) + len(found.failed) >= rollout.failures_max:
        return f"{len(found.silent)} agents fell silent with it: {names(found.silent)}"
    return ""


def advanced(rollout: Rollout, now: dt.datetime) -> Rollout:
    """At the next share; after the last one it is done, or waits for an operator."""
    stage = rollout.stage + 1
    if stage < len(rollout.shares):
        return at_stage(rollout, stage, now)
    is_all = rollout.share >= PERCENT
    state = RolloutState.DONE if is_all else RolloutState.WAITING
    return moved(rollout, state, f"{rollout.share:g} % are good", now)


def at_stage(rollout: Rollout, stage: int, now: dt.datetime) -> Rollout:
    threshold = max(rollout.threshold, rollout.shares[stage] / PERCENT)
    return msgspec.structs.replace(rollout, stage=stage, threshold=threshold, since=now)


def threshold_of_first(
    rollout: Rollout,
    agents: Iterable[AgentConfiguration],
    reporting: Collection[str],
    found: Tally,
) -> float:
    """What lets one agent in, where a small share of a small fleet has none that reports."""
    if found.waited_for or found.good_that_report or found.silent or found.failed:
        return 0.0
    positions = [
        position(agent.agent, rollout.version) for agent in agents if agent.agent in reporting
    ]
    return math.nextafter(min(positions), 1.0) if positions else 0.0


def moved(
    rollout: Rollout, state: RolloutState, reason: str, now: dt.datetime, by: str = ""
) -> Rollout:
    return msgspec.structs.replace(rollout, state=state, reason=reason, since=now, by=by)


def failure_words(rollout: Rollout, found: Tally) -> str:
    first = found.failed[0]
    said = f"{len(found.failed)} failed, the bound is {rollout.failures_max}"
    return f"{said}: {names([each.agent for each in found.failed])}; {first.agent}: {first.detail}"


def names(agents: list[str]) -> str:
    """The first names, and how many more there are.

    >>> names(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = len(agents) - NAMES_SHOWN
    return ", ".join(agents[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
