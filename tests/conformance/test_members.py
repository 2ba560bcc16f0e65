"""Evaluators share tasks: one owner each, hand-overs without overlap, what one alone pays."""

import time
from collections.abc import Callable

import pytest
from sqlalchemy import event

from api.data.inventory.leases import MEMBER, Look
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import EVALUATOR, LEASE_SECONDS, RENEW_SECONDS, moment
from api.oncall.evaluate.members import (
    NOTICES,
    ROLL,
    RULES,
    SETTLE_SECONDS,
    TASKS,
    Members,
    owner_of,
)
from api.oncall.evaluate.scout import Watched
from collector.contract.units import NS

START_S = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def member(inventory: Inventory, clock: Clock) -> Callable[[str], Members]:
    return lambda name: Members(inventory, clock, holder=name)


def held(members: Members) -> set[str]:
    return {task for task, lead in members.leads.items() if lead.is_held()}


def pass_time(clock: Clock, *members: Members, seconds: float) -> None:
    """Let time pass; all of these renew, as they do in a service."""
    until_s = clock.now_s + seconds
    while clock.now_s < until_s:
        clock.now_s = min(until_s, clock.now_s + RENEW_SECONDS)
        for one in members:
            one.renew()
            assert_single_owners(*members)


def assert_single_owners(*members: Members) -> None:
    for task in TASKS:
        owners = [one.holder for one in members if one.leads[task].is_held()]
        assert len(owners) <= 1, f"{task} is {owners}'"


def test_one_that_is_alone_does_everything(member: Callable[[str], Members]) -> None:
    one = member("one")
    one.renew()
    assert held(one) == {*TASKS}
    assert one.settled == {"one"}


def test_two_share_and_never_have_the_same(member: Callable[[str], Members], clock: Clock) -> None:
    one, two = member("one"), member("two")
    one.renew()
    two.renew()
    assert held(two) == set(), "what runs is not taken"
    pass_time(clock, one, two, seconds=SETTLE_SECONDS - RENEW_SECONDS)
    assert held(one) == {*TASKS}, "one that has just come gets nothing that another does"
    pass_time(clock, one, two, seconds=3 * RENEW_SECONDS)
    assert held(one) | held(two) == {*TASKS}
    wanted = {task for task in TASKS if owner_of(task, {"one", "two"}) == "two"} - {EVALUATOR}
    assert held(two) == wanted
    assert wanted, "the names of this test share something"
    assert EVALUATOR in held(one), "judging stays while its holder lives"


def test_tasks_of_one_that_died_wait_until_its_lease_has_ended(
    member: Callable[[str], Members], clock: Clock
) -> None:
    one, two = member("one"), member("two")
    one.renew()
    pass_time(clock, one, two, seconds=2 * SETTLE_SECONDS)
    last_s = clock.now_s
    pass_time(clock, two, seconds=LEASE_SECONDS - 1.0)
    assert EVALUATOR not in held(two)
    pass_time(clock, two, seconds=RENEW_SECONDS)
    assert held(two) == {*TASKS}
    assert not held(one), "it stopped by its own clock"
    bound_ns = round((last_s + LEASE_SECONDS) * NS)
    judge = two.judge
    assert not judge.may_write(bound_ns), "the one before may have written that moment"
    assert judge.may_write(bound_ns + 1)
    assert one.judge.may_write(bound_ns), "what it made before arrives late, in its own stretch"
    assert not one.judge.may_write(bound_ns + 1)


def test_one_that_stops_hands_over_at_once_and_ends_its_stretch(
    member: Callable[[str], Members], clock: Clock
) -> None:
    one, two = member("one"), member("two")
    one.renew()
    two.renew()
    clock.now_s += 1.0
    one.release()
    two.renew()
    assert held(two) == {*TASKS}
    now_ns = round(clock.now_s * NS)
    assert one.judge.may_write(now_ns)
    assert not two.judge.may_write(now_ns)
    assert two.judge.may_write(now_ns + 1)


def test_a_task_is_handed_on_when_nothing_of_it_is_under_way(
    member: Callable[[str], Members], clock: Clock
) -> None:
    one, two = member("one"), member("two")
    one.renew()
    moved = {task for task in TASKS if owner_of(task, {"one", "two"}) == "two"} - {EVALUATOR}
    task = min(moved)
    with one.leads[task].at_work():
        pass_time(clock, one, two, seconds=2 * SETTLE_SECONDS)
        assert not one.leads[task].is_held(), "it begins nothing more"
        assert not two.leads[task].is_held(), "and what is under way is not done twice"
        assert held(two) == moved - {task}
    pass_time(clock, one, two, seconds=2 * RENEW_SECONDS)
    assert held(two) == moved


def test_one_that_cannot_renew_stops_before_its_lease_ends(
    member: Callable[[str], Members], clock: Clock, inventory: Inventory
) -> None:
    one = member("one")
    one.renew()
    clock.now_s += LEASE_SECONDS
    assert not held(one)
    assert one.settled == frozenset()
    lease = inventory.leases.get(EVALUATOR)
    assert lease is not None
    assert lease.holder == "one"
    one.renew()
    assert held(one) == {*TASKS}, "another did not take it"


def test_what_an_older_release_leads_is_left_to_it(
    member: Callable[[str], Members], clock: Clock, inventory: Inventory
) -> None:

    until = moment(clock() + LEASE_SECONDS)
    assert inventory.leases.take(EVALUATOR, "older", moment(clock()), until)
    one = member("one")
    one.renew()
    assert not held(one), "a release without members does all of the work"
    clock.now_s += LEASE_SECONDS
    one.renew()
    assert held(one) == {*TASKS}


def test_epochs_grow_with_each_holder(
    member: Callable[[str], Members], clock: Clock, inventory: Inventory
) -> None:
    one, two = member("one"), member("two")
    one.renew()
    pass_time(clock, one, seconds=2 * RENEW_SECONDS)
    first = inventory.leases.get(ROLL)
    assert first is not None
    assert first.epoch == 1
    one.release()
    two.renew()
    second = inventory.leases.get(ROLL)
    assert second is not None
    assert (second.holder, second.epoch) == ("two", 2)


def test_one_alone_pays_two_statements_for_a_renewal(
    member: Callable[[str], Members], clock: Clock, inventory: Inventory
) -> None:
    """As a single lease cost before there were members."""
    one = member("one")
    one.renew()
    said: list[str] = []
    engine = inventory.leases._database._engine

    def note(*arguments: object) -> None:
        said.append(str(arguments[2]))

    event.listen(engine, "before_cursor_execute", note)
    pass_time(clock, one, seconds=RENEW_SECONDS)
    looks = Watched(inventory, one).looks(round(clock() * NS))
    event.remove(engine, "before_cursor_execute", note)
    data = [text for text in said if "leases" in text or "job_looks" in text]
    assert [text.split()[0] for text in data] == ["UPDATE", "SELECT"]
    assert looks == {}


def test_the_database_says_what_time_it_is(inventory: Inventory) -> None:
    one = Members(inventory, time.time, holder="one")
    one.renew()
    one.renew()
    assert held(one) == {*TASKS}
    lease = inventory.leases.get(NOTICES)
    assert lease is not None
    assert 0 < lease.until.timestamp() - time.time() <= LEASE_SECONDS + 60
    one.release()
    two = Members(inventory, time.time, holder="two")
    two.renew()
    assert held(two) == {*TASKS}


def test_looks_of_a_process_whose_lease_has_ended_are_not_kept(
    member: Callable[[str], Members], clock: Clock, inventory: Inventory
) -> None:

    one, two = member("one"), member("two")
    one.renew()
    pass_time(clock, one, two, seconds=2 * SETTLE_SECONDS)

    def note(*, is_quiet: bool) -> bool:
        look = Look(
            job="train", holder="two", looked_ns=round(clock() * NS), is_quiet=is_quiet, shape="s"
        )
        now = moment(clock())
        return inventory.leases.keep_looks([look], holder="two", now=now, kept_ns=0)

    assert note(is_quiet=True)
    watched = Watched(inventory, one)
    assert watched.looks(round(clock() * NS))["train"].is_quiet
    pass_time(clock, one, seconds=LEASE_SECONDS + RENEW_SECONDS)
    assert not note(is_quiet=False)
    assert watched.looks(round(clock() * NS)) == {}, "nor are its old ones of use"


def test_few_tasks_move_when_one_comes() -> None:
    names = {f"evaluator{number}" for number in range(4)}
    jobs = [f"job{number}" for number in range(400)]
    before = {job: owner_of(job, names) for job in jobs}
    after = {job: owner_of(job, {*names, "new"}) for job in jobs}
    moved = [job for job in jobs if before[job] != after[job]]
    assert all(after[job] == "new" for job in moved)
    assert 0.1 < len(moved) / len(jobs) < 0.3
    assert len(RULES) == len({*RULES})
    assert MEMBER not in "".join(TASKS)
