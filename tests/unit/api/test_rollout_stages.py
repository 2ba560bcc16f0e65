"""Who is in a share, what agents should run, and when a roll-out goes on, waits or stops."""

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.base.errors import Problem
from api.base.rollout_limits import ROLLOUT_PENDING_SECONDS
from api.data.inventory.rollout_model import AgentConfiguration, Rollout, RolloutState, Version
from api.data.rollouts.orders import Plan, check_shares, pushed, resumed, stopped, taken_back
from api.data.rollouts.reports import updated
from api.data.rollouts.stages import (
    HostState,
    at_stage,
    decide,
    held_by,
    position,
    state_of,
    tally,
    wanted,
)
from collector.contract.model import Event
from collector.contract.units import NS

NOW = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(seconds=ROLLOUT_PENDING_SECONDS + 61)
FLEET = [f"node-{number}" for number in range(1_000)]


def rollout(*shares: float, failures_max: int = 1, base: int = 6) -> Rollout:
    made = Rollout(
        version=7,
        base=base,
        shares=list(shares),
        failures_max=failures_max,
        trial_seconds=60,
        since=NOW,
    )
    return at_stage(made, 0, NOW)


def agent(name: str, **known: int | None) -> AgentConfiguration:
    return AgentConfiguration(agent=name, at=NOW, heard_at=NOW, **({"good": 6} | known))  # type: ignore[arg-type]


def fleet(going: Rollout, **of_those_in: int | None) -> list[AgentConfiguration]:
    """A thousand agents; those in the share are as given."""
    return [
        agent(name, **of_those_in) if position(name, 7) < going.threshold else agent(name)
        for name in FLEET
    ]


# --- the share ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 7, 2**31 - 1])
def test_a_share_of_a_fleet_is_about_that_share(version: int) -> None:
    positions = [position(name, version) for name in FLEET]
    for share in (0.05, 0.25, 0.5):
        count = sum(each < share for each in positions)
        assert abs(count / len(FLEET) - share) < 0.05
    assert all(0 <= each < 1 for each in positions)


@given(st.text(max_size=64), st.integers(0, 2**31 - 1))
def test_a_position_is_stable_and_below_one(name: str, version: int) -> None:
    assert 0 <= position(name, version) == position(name, version) < 1


def test_a_larger_share_contains_the_smaller_one_and_versions_begin_with_others() -> None:
    first = {name for name in FLEET if position(name, 7) < 0.05}
    assert first < {name for name in FLEET if position(name, 7) < 0.25}
    others = {name for name in FLEET if position(name, 8) < 0.05}
    assert len(first & others) < len(first) / 2


# --- what an agent should run -------------------------------------------------------------------


def test_what_an_agent_should_run() -> None:
    going = rollout(100)
    outside = msgspec.structs.replace(going, threshold=0.0)
    stands = msgspec.structs.replace(going, state=RolloutState.STOPPED)
    over = msgspec.structs.replace(going, state=RolloutState.BACK)
    assert wanted(going, agent("a")) == 7
    assert wanted(outside, agent("a")) == 6
    assert wanted(outside, agent("a", good=3)) == 6
    # One that has it keeps it, whatever the share is.
    assert wanted(outside, agent("a", good=7)) == wanted(outside, agent("a", trying=7)) == 7
    # One that failed is not told again.
    assert wanted(going, agent("a", failed=7)) == 6
    assert wanted(stands, agent("a")) == 6
    assert wanted(stands, agent("a", good=7)) == 7
    assert wanted(over, agent("a", good=7)) == wanted(over, agent("a", trying=7)) == 6


def test_a_silent_agent_is_not_yet_and_never_failed() -> None:
    going = rollout(100)
    assert state_of(going, agent("a"), reports=False) is HostState.NOT_YET
    assert state_of(going, agent("a"), reports=True) is HostState.PENDING
    assert state_of(going, agent("a", trying=7), reports=False) is HostState.TRYING
    assert state_of(going, agent("a", failed=7), reports=False) is HostState.FAILED
    assert state_of(rollout(100, base=0), agent("a", failed=5), reports=True) is HostState.PENDING


# --- on, wait, stop -----------------------------------------------------------------------------


def test_shares_follow_each_other_and_the_last_one_is_done_or_waits() -> None:
    going = rollout(5, 25, 100)
    for share in (25, 100):
        going = decide(going, fleet(going, good=7), FLEET, NOW)
        assert (going.state, going.share) == (RolloutState.ROLLING, share)
    assert decide(going, fleet(going, good=7), FLEET, NOW).state is RolloutState.DONE
    small = rollout(5)
    assert decide(small, fleet(small, good=7), FLEET, NOW).state is RolloutState.WAITING


def test_nothing_goes_on_before_all_that_report_have_ended_it() -> None:
    going = rollout(5, 100)
    for known in ({}, {"trying": 7}):
        agents = fleet(going, **known)
        assert decide(going, agents, FLEET, NOW) is going
        assert "no agent that reports" in held_by(going, tally(going, agents, FLEET), NOW)
    agents = fleet(going, good=7)
    first = next(each for each in agents if each.good == 7)
    one_waits = [agent(each.agent) if each is first else each for each in agents]
    assert decide(going, one_waits, FLEET, NOW) is going
    # One that is down holds nothing up, and one that does nothing only for a while.
    without = [name for name in FLEET if name != first.agent]
    assert decide(going, one_waits, without, NOW).share == 100
    assert decide(going, one_waits, FLEET, LATER).share == 100
    # If most do nothing, their silence is news of its own.
    most_wait = [agent(each.agent) for each in agents if each is not first] + [first]
    assert decide(going, most_wait, FLEET, LATER) is going


def test_a_failure_stops_it_at_the_bound_and_says_who_and_why() -> None:
    going = rollout(5, 100, failures_max=2)
    agents = fleet(going, good=7)
    failing = [
        msgspec.structs.replace(each, good=6, failed=7, detail="source x fails")
        for each in agents
        if each.good == 7
    ]
    rest = [each for each in agents if each.agent not in {bad.agent for bad in failing[:1]}]
    assert decide(going, failing[:1] + rest, FLEET, NOW).state is RolloutState.ROLLING
    rest = [each for each in agents if each.agent not in {bad.agent for bad in failing[:2]}]
    found = decide(going, failing[:2] + rest, FLEET, NOW)
    assert found.state is RolloutState.STOPPED
    assert found.reason.startswith("2 failed, the bound is 2")
    assert "source x fails" in found.reason
    assert found.by == ""
    assert decide(found, agents, FLEET, NOW) is found


def test_agents_that_fall_silent_with_it_hold_it_up_and_are_no_failures() -> None:
    going = rollout(5, 100)
    agents = fleet(going, good=7)
    first = next(each for each in agents if each.good == 7)
    found = decide(going, agents, [name for name in FLEET if name != first.agent], LATER)
    assert found is going
    told = tally(going, agents, [name for name in FLEET if name != first.agent])
    assert told.silent == [first.agent]
    assert "fell silent" in held_by(going, told, NOW)


def test_a_share_of_a_small_fleet_has_at_least_one_agent_that_reports() -> None:
    going = rollout(1, 100)
    agents = [agent(f"n{number}") for number in range(4)]
    assert all(position(each.agent, 7) >= going.threshold for each in agents)
    alive = ["n1", "n3"]
    found = decide(going, agents, alive, NOW)
    inside = [each.agent for each in agents if position(each.agent, 7) < found.threshold]
    assert len(set(inside) & set(alive)) == 1
    assert decide(found, agents, alive, NOW) is found
    assert decide(going, agents, [], NOW) is going


# --- orders -------------------------------------------------------------------------------------


def version_of(going: Rollout) -> Version:
    return Version(
        version=going.version,
        sha256="",
        signature="",
        by="",
        why="",
        at=NOW,
        revision=1,
        rollout=going,
    )


def resume(going: Rollout, failed: int = 0, **order: object) -> Rollout:
    given: dict[str, object] = {"shares": None, "failures_max": None, **order}
    return resumed(going, "why", NOW, "op", failed=failed, **given)  # type: ignore[arg-type]


def test_a_push_goes_on_from_what_was_done() -> None:
    plan = Plan(shares=[5.0], failures_max=1, trial_seconds=60)
    assert pushed(None, plan, NOW, "op").base == 0
    for state, base in ((RolloutState.DONE, 7), (RolloutState.STOPPED, 6), (RolloutState.BACK, 6)):
        old = msgspec.structs.replace(rollout(100), state=state)
        made = pushed(version_of(old), plan, NOW, "op")
        assert (made.version, made.base, made.threshold) == (8, base, 0.05)
    with pytest.raises(Problem, match="configuration 7 is rolling; stop it"):
        pushed(version_of(rollout(100)), plan, NOW, "op")


def test_orders_that_a_state_allows() -> None:
    going = rollout(5, 25)
    stands = stopped(going, "why", NOW, "op")
    assert (stands.state, stands.by) == (RolloutState.STOPPED, "op")
    with pytest.raises(Problem, match="stopped already"):
        stopped(stands, "", NOW, "op")
    with pytest.raises(Problem, match="stopped or waiting can go on"):
        resume(going)
    assert resume(stands).state is RolloutState.ROLLING
    assert resume(stands, shares=[50.0, 100.0]).threshold == 0.5
    with pytest.raises(Problem, match="5 % are reached"):
        resume(stands, shares=[1.0])
    with pytest.raises(Problem, match="give a higher one"):
        resume(stands, failed=1)
    assert resume(stands, failed=1, failures_max=2).failures_max == 2
    waits = msgspec.structs.replace(going, state=RolloutState.WAITING, stage=1)
    with pytest.raises(Problem, match="give the next ones"):
        resume(waits)
    over = taken_back(going, "why", NOW, "op")
    with pytest.raises(Problem, match="taken back already"):
        taken_back(over, "", NOW, "op")


@pytest.mark.parametrize(
    "shares", [[0.0], [-1.0], [101.0], [5.0, 5.0], [25.0, 5.0], [float("nan")]]
)
def test_shares_must_grow(shares: list[float]) -> None:
    with pytest.raises(Problem, match="shares are"):
        check_shares(shares)
    check_shares([0.5, 100.0])


# --- reports ------------------------------------------------------------------------------------


def report(seconds: int, **attributes: str) -> Event:
    at_ns = (int(NOW.timestamp()) + seconds) * NS
    return Event(kind="configuration", time_ns=at_ns, labels={}, attributes=attributes)


def told(*events: Event) -> AgentConfiguration | None:
    known: AgentConfiguration | None = None
    for event in events:
        known = updated(known, "a", event, NOW)
    return known


def test_reports_in_their_order_and_late_ones() -> None:
    hello = report(0, version="6", good="6", result="running")
    tries = report(1, version="7", good="6", result="trying")
    fails = report(2, version="7", good="6", result="failed", detail="why\x1b[2J")
    known = told(hello, tries)
    assert known is not None
    assert (known.good, known.trying) == (6, 7)
    for events in ((hello, tries, fails), (hello, fails, tries), (fails, hello)):
        known = told(*events)
        assert known is not None
        assert (known.good, known.trying, known.failed) == (6, None, 7)
        assert known.detail == "why�[2J"
    known = told(hello, tries, report(3, version="7", good="7", result="good"))
    assert known is not None
    assert (known.good, known.trying, known.failed) == (7, None, None)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"version": "1", "good": "0"},
        {"version": "-1", "good": "0", "result": "good"},
        {"version": "1", "good": "9" * 30, "result": "good"},
        {"version": "\N{ARABIC-INDIC DIGIT ONE}", "good": "0", "result": "good"},
        {"version": "1", "good": "0", "result": "fine"},
    ],
)
def test_an_odd_report_is_none(odd: dict[str, str]) -> None:
    assert updated(None, "a", report(0, **odd), NOW) is None


def test_a_detail_is_cut() -> None:
    known = told(report(0, version="7", good="6", result="failed", detail="x" * 10_000))
    assert known is not None
    assert len(known.detail) < 1_000
