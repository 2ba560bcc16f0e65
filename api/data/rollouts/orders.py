"""What operators may do with a roll-out, and when: push, stop, resume, back. Pure.

Refusals are Problems with status 409: the state does not allow it, and the words say what does.
"""

from __future__ import annotations

import datetime as dt
import itertools

import msgspec

from api.base.errors import Problem
from api.data.inventory.rollout_model import Rollout, RolloutState, Version
from api.data.rollouts.stages import PERCENT, at_stage, moved
from collector.contract.rollout import LOCAL_VERSION

MOVING = frozenset({RolloutState.ROLLING, RolloutState.WAITING})
NOT_NOW = "not in this state"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator wants a version to reach agents."""

    shares: list[float]
    failures_max: int
    trial_seconds: float


def check_shares(shares: list[float]) -> None:
    """Problem 422 unless they grow, and stay within 100 %."""
    grows = all(low < high for low, high in itertools.pairwise(shares))
    if not grows or not all(0 < share <= PERCENT for share in shares):
        said = ", ".join(f"{share:g}" for share in shares)
        why = f"shares are {said}: each must be above the one before, above 0 and at most 100"
        raise Problem(422, "not shares", why)


def pushed(latest: Version | None, plan: Plan, now: dt.datetime, by: str) -> Rollout:
    """The roll-out of the next version. Those outside its share run what was done last."""
    base = LOCAL_VERSION
    if latest is not None:
        old = latest.rollout
        if old.state in MOVING:
            why = f"configuration {old.version} is {old.state}; stop it or take it back first"
            raise Problem(409, NOT_NOW, why)
        base = old.version if old.state is RolloutState.DONE else old.base
    rollout = Rollout(
        version=(latest.version if latest is not None else LOCAL_VERSION) + 1,
        base=base,
        shares=plan.shares,
        failures_max=plan.failures_max,
        trial_seconds=plan.trial_seconds,
        since=now,
        by=by,
    )
    return at_stage(rollout, 0, now)


def stopped(rollout: Rollout, why: str, now: dt.datetime, by: str) -> Rollout:
    if rollout.state not in MOVING:
        raise Problem(409, NOT_NOW, f"configuration {rollout.version} is {rollout.state} already")
    return moved(rollout, RolloutState.STOPPED, why, now, by)


def resumed(
    rollout: Rollout,
    why: str,
    now: dt.datetime,
    by: str,
    *,
    shares: list[float] | None,
    failures_max: int | None,
    failed: int,
) -> Rollout:
    """On with the same shares or others, which begin no lower than what was reached."""
    if rollout.state not in {RolloutState.STOPPED, RolloutState.WAITING}:
        why = f"configuration {rollout.version} is {rollout.state}; stopped or waiting can go on"
        raise Problem(409, NOT_NOW, why)
    bound = failures_max if failures_max is not None else rollout.failures_max
    if failed >= bound:
        why = f"{failed} agents failed and failures_max is {bound}; give a higher one, or go back"
        raise Problem(409, NOT_NOW, why)
    if shares is None and rollout.state is RolloutState.WAITING:
        why = f"it waits at its last share, {rollout.share:g} %; give the next ones"
        raise Problem(409, NOT_NOW, why)
    going = moved(rollout, RolloutState.ROLLING, why, now, by)
    going = msgspec.structs.replace(going, failures_max=bound)
    if shares is None:
        return at_stage(going, going.stage, now)
    if shares[0] < rollout.share:
        why = f"{rollout.share:g} % are reached; shares begin with that or more, or take it back"
        raise Problem(409, NOT_NOW, why)
    return at_stage(msgspec.structs.replace(going, shares=shares), 0, now)


def taken_back(rollout: Rollout, why: str, now: dt.datetime, by: str) -> Rollout:
    if rollout.state is RolloutState.BACK:
        raise Problem(409, NOT_NOW, f"configuration {rollout.version} is taken back already")
    return moved(rollout, RolloutState.BACK, why, now, by)
