"""Actions in the inventory, on SQLite and on PostgreSQL: the one path that makes and ends holds."""

import datetime as dt

import pytest

from alerts.health.model import HealthState, Hold, Target
from alerts.policy.action import (
    Action,
    ActionState,
    Applied,
    Ending,
    Refused,
    Why,
    WrongState,
    applied,
    approved,
    begun,
    ended,
    extended,
)
from alerts.policy.record import BY_POLICY, said_by
from api.base.limits import ACTIONS_KEPT_DAYS
from api.data.inventory import actions as actions_tables
from api.data.inventory import health
from api.data.inventory.actions import ActionQuery, HeldError
from api.data.inventory.repository import Inventory
from collector.contract.units import NS
from collector.contract.verdict import Cause, Reason

START = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
START_NS = int(START.timestamp()) * NS
TASK, HOLDER = "evaluator", "first"


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def at_ns(second: float) -> int:
    return START_NS + round(second * NS)


def by_policy(
    number: str,
    host: str = "node3",
    second: float = 0,
    state: ActionState = ActionState.STANDING,
    until: float | None = 3_600,
) -> Action:
    why = Why(
        rule="broken-gpu",
        incident=f"incident-{host}",
        cause=Cause.STRAGGLER,
        reason=Reason.GPU_ERROR,
        confidence=0.9,
        risk=0.9,
        about="gpu 1",
        text="its GPU \"'😀 is broken",
    )
    over = state is ActionState.REFUSED
    action = Action(
        id=number,
        host=host,
        hold=HealthState.DRAINING,
        state=state,
        by=BY_POLICY,
        reason=why.short,
        at_ns=at_ns(second),
        until_ns=None if until is None or over else at_ns(until),
        why=why,
        refused=Refused.SHARE_LIMIT if over else None,
        ended_ns=at_ns(second) if over else None,
    )
    return begun(action, why.text)


def by_ada(number: str, host: str = "node3", second: float = 0) -> Action:
    hold = Hold(
        target=Target.of_host(host),
        state=HealthState.OUT,
        reason="a cable",
        by="ada",
        since_ns=at_ns(second),
        until_ns=None,
    )
    return said_by(hold, number)


def write(
    inventory: Inventory, *new: Action, changed: tuple[Action, ...] = (), second: float = 0
) -> list[Action] | None:
    """A round of the policy, by the process that leads."""
    known = {each.id: each for each in inventory.actions.for_policy(at(-86_400))}
    assert inventory.leases.take(TASK, HOLDER, at(second), at(second + 20), by_force=True)
    return inventory.actions.keep(new, changed, known, task=TASK, holder=HOLDER, now=at(second))


def held(inventory: Inventory, second: float = 1) -> dict[str, str]:
    return {each.hold.target.host: each.hold.by for each in inventory.health.holds(at(second))}


# --- the policy ---------------------------------------------------------------------------------


def test_what_stands_is_held_and_nothing_else(inventory: Inventory) -> None:
    new = [
        by_policy(f"a{number}", f"node{number}", state=state)
        for number, state in enumerate(
            (ActionState.STANDING, ActionState.SHADOWED, ActionState.PROPOSED, ActionState.REFUSED)
        )
    ]
    assert write(inventory, *new) == new
    assert held(inventory) == {"node0": BY_POLICY}
    [hold] = inventory.health.holds(at(1))
    assert (hold.id, hold.hold) == ("a0", new[0].as_hold())
    assert inventory.actions.get("a1") == new[1]
    assert inventory.actions.standing() == new[:1]
    assert {each.id for each in inventory.actions.for_policy(at(-1))} == {"a0", "a1", "a2", "a3"}
    assert {each.id for each in inventory.actions.for_policy(at(1))} == {"a0", "a1", "a2"}


def test_a_process_that_does_not_lead_writes_nothing(inventory: Inventory) -> None:
    assert inventory.leases.take(TASK, "other", at(0), at(20))
    wrote = inventory.actions.keep([by_policy("a1")], [], {}, task=TASK, holder=HOLDER, now=at(0))
    assert wrote is None
    assert inventory.actions.get("a1") is None
    assert held(inventory) == {}


def test_the_hold_goes_on_and_ends_with_its_action(inventory: Inventory) -> None:
    first = by_policy("a1")
    write(inventory, first)
    longer = extended(first, at_ns(7_200), "still open", at_ns(60))
    write(inventory, changed=(longer,), second=60)
    assert held(inventory, 5_000) == {"node3": BY_POLICY}
    over = ended(longer, Ending.CLEAN, BY_POLICY, "clean", at_ns(100))
    write(inventory, changed=(over,), second=100)
    assert held(inventory, 101) == {}
    assert inventory.actions.get("a1") == over
    assert inventory.actions.standing() == []


def test_who_is_faster_than_the_policy_is_left_alone(inventory: Inventory) -> None:
    first = by_policy("a1")
    write(inventory, first)
    known = {"a1": first}
    inventory.actions.give_back("node3", "ada", "I need it", at(10))
    inventory.actions.take_host(by_ada("a2", "node4", 11))
    over = ended(first, Ending.CLEAN, BY_POLICY, "clean", at_ns(12))
    wrote = inventory.actions.keep(
        [by_policy("a3", "node4", 12)], [over], known, task=TASK, holder=HOLDER, now=at(12)
    )
    assert wrote == []
    found = inventory.actions.get("a1")
    assert found is not None
    assert (found.ended_by, found.ended_why) == ("ada", Ending.OPERATOR)
    assert held(inventory, 13) == {"node4": "ada"}


def test_a_policy_s_wish_past_the_bound_is_a_refusal(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "HOLDS_MAX", 1)
    inventory.actions.take_host(by_ada("a1", "node1"))
    wrote = write(inventory, by_policy("a2"))
    assert wrote is not None
    assert [each.refused for each in wrote] == [Refused.HOLDS_LIMIT]
    assert held(inventory) == {"node1": "ada"}


# --- people -------------------------------------------------------------------------------------


def test_an_operator_s_word_takes_the_place_of_the_policy_s(inventory: Inventory) -> None:
    write(inventory, by_policy("a1"))
    inventory.actions.take_host(by_ada("a2", second=10))
    before, after = inventory.actions.get("a1"), inventory.actions.get("a2")
    assert before is not None
    assert (before.state, before.ended_why, before.ended_by) == (
        ActionState.ENDED,
        Ending.REPLACED,
        "ada",
    )
    assert after == by_ada("a2", second=10)
    assert held(inventory, 11) == {"node3": "ada"}


def test_a_proposal_is_held_once_it_is_granted(inventory: Inventory) -> None:
    write(inventory, by_policy("a1", state=ActionState.PROPOSED))
    granted = inventory.actions.change(
        "a1", lambda each: approved(each, "ada", "yes", at_ns(10), at_ns(500)), at(10)
    )
    assert granted is not None
    assert granted == inventory.actions.get("a1")
    assert held(inventory, 11) == {"node3": BY_POLICY}
    assert held(inventory, 501) == {}
    with pytest.raises(WrongState):
        inventory.actions.change(
            "a1", lambda each: approved(each, "bob", "", at_ns(11), None), at(11)
        )
    assert inventory.actions.change("none", lambda each: each, at(11)) is None
    assert inventory.actions.change("no\0ne", lambda each: each, at(11)) is None


def test_a_host_that_somebody_holds_is_not_held_twice(inventory: Inventory) -> None:
    write(inventory, by_policy("a1", state=ActionState.PROPOSED))
    inventory.actions.take_host(by_ada("a2", second=1))
    with pytest.raises(HeldError, match="node3 is held already: out by ada: a cable"):
        inventory.actions.change(
            "a1", lambda each: approved(each, "bob", "", at_ns(10), None), at(10)
        )
    found = inventory.actions.get("a1")
    assert found is not None
    assert found.state is ActionState.PROPOSED
    assert held(inventory, 11) == {"node3": "ada"}


def test_an_executor_s_word_is_kept_and_holds_stay(inventory: Inventory) -> None:
    write(inventory, by_policy("a1"))
    said = Applied(executor="slurm", outcome="done", words="drained", time_ns=at_ns(5))
    told = inventory.actions.change("a1", lambda each: applied(each, said), at(5))
    assert told is not None
    assert told.applied == (said,)
    assert held(inventory, 6) == {"node3": BY_POLICY}


# --- asking -------------------------------------------------------------------------------------


def test_questions_choose_and_page_the_newest_first(inventory: Inventory) -> None:
    write(
        inventory,
        by_policy("a1", "node1"),
        by_policy("a2", "node2", state=ActionState.REFUSED),
        by_policy("a3", "node1", state=ActionState.REFUSED),
        by_policy("a4", "node3", state=ActionState.SHADOWED),
    )

    def ids(after: str | None = None, limit: int = 10, **wanted: object) -> list[str]:
        query = ActionQuery(**wanted)  # type: ignore[arg-type]
        return [each.id for each in inventory.actions.page(query, after, limit)]

    assert ids() == ["a4", "a3", "a2", "a1"]
    assert ids(limit=2) == ["a4", "a3"]
    assert ids(after="a3", limit=2) == ["a2", "a1"]
    assert ids(states=frozenset({ActionState.REFUSED})) == ["a3", "a2"]
    assert ids(host="node1") == ["a3", "a1"]
    assert ids(incident="incident-node2") == ["a2"]
    assert ids(live=True) == ["a4", "a1"]
    assert ids(host="no\0de") == []


def test_what_is_over_is_forgotten_in_time_and_what_stands_is_not(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions_tables, "ACTIONS_KEPT_MAX", 2)
    write(inventory, by_policy("a1", "node1", until=None))
    refused = [by_policy(f"b{n}", f"node{n}", n, ActionState.REFUSED) for n in range(4)]
    write(inventory, *refused, second=5)
    assert [each.id for each in inventory.actions.page(ActionQuery())] == ["b3", "b2", "a1"]
    write(inventory, second=ACTIONS_KEPT_DAYS * 86_400 + 10)
    assert [each.id for each in inventory.actions.page(ActionQuery())] == ["a1"]
