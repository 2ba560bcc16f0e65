"""Incidents, their news and leases in the inventory, on SQLite and on PostgreSQL."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from alerts.judge.incident import Change, Incident, IncidentState, News, advance
from api.base.limits import INCIDENTS_KEPT_DAYS
from api.data.inventory import incidents as incidents_tables
from api.data.inventory.incidents import IncidentQuery
from api.data.inventory.repository import Inventory
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict

START = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
START_NS = int(START.timestamp()) * NS
TASK, HOLDER = "evaluator", "first"


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def verdict(host: str, *, cause: Cause = Cause.SLOW_LINK, job: str = "llama") -> Verdict:
    return Verdict(
        cause=cause,
        culprit=Culprit(host=host, device="mlx5_0", switch="leaf1"),
        since_ns=START_NS,
        confidence=0.8,
        jobs=(job,) if job else (),
        victims=(Culprit(host="victim"),),
    )


def opened(second: int, *verdicts: Verdict) -> tuple[list[Incident], list[Change]]:
    after = advance([], verdicts, START_NS + second * NS)
    return after.incidents, after.changes


def keep(
    inventory: Inventory,
    incidents: list[Incident],
    changes: list[Change] | None = None,
    second: float = 0,
    holder: str = HOLDER,
) -> bool:
    return inventory.incidents.keep(
        incidents, changes or [], task=TASK, holder=holder, now=at(second)
    )


@pytest.fixture
def led(inventory: Inventory) -> Inventory:
    """An inventory whose evaluator is HOLDER."""
    assert inventory.leases.take(TASK, HOLDER, at(0), at(20))
    return inventory


# --- leases -------------------------------------------------------------------------------------


def test_a_task_has_one_holder_until_its_lease_ends(inventory: Inventory) -> None:
    assert inventory.leases.take(TASK, "first", at(0), at(20))
    assert not inventory.leases.take(TASK, "second", at(10), at(30))
    assert inventory.leases.take(TASK, "first", at(15), at(35))
    assert not inventory.leases.take(TASK, "second", at(34), at(54))
    assert inventory.leases.take(TASK, "second", at(35), at(55))
    assert not inventory.leases.take(TASK, "first", at(36), at(56))


def test_a_lease_that_is_handed_back_can_be_taken_at_once(inventory: Inventory) -> None:
    assert inventory.leases.take(TASK, "first", at(0), at(20))
    inventory.leases.release(TASK, "second", at(1))
    assert not inventory.leases.take(TASK, "second", at(1), at(21))
    inventory.leases.release(TASK, "first", at(2))
    assert inventory.leases.take(TASK, "second", at(2), at(22))


def test_who_knows_that_nobody_else_is_there_need_not_wait(inventory: Inventory) -> None:
    assert inventory.leases.take(TASK, "dead", at(0), at(20))
    assert inventory.leases.take(TASK, "alive", at(1), at(21), by_force=True)


def test_of_many_that_want_a_task_at_once_one_gets_it(inventory: Inventory) -> None:
    names = [f"process{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        got = list(pool.map(lambda name: inventory.leases.take(TASK, name, at(0), at(20)), names))
    assert sum(got) == 1
    lease = inventory.leases.get(TASK)
    assert lease is not None
    assert lease.holder == names[got.index(True)]


def test_nobody_but_the_holder_can_write(led: Inventory) -> None:
    incidents, changes = opened(0, verdict("node1"))
    assert led.leases.take(TASK, "second", at(20), at(40))
    assert not keep(led, incidents, changes, second=21)
    assert led.incidents.page(IncidentQuery()) == []
    assert led.incidents.changes(0) == []
    assert keep(led, incidents, changes, second=21, holder="second")
    assert led.incidents.page(IncidentQuery()) == incidents


def test_it_is_known_when_a_round_was_last_done(led: Inventory) -> None:
    before = led.leases.get(TASK)
    keep(led, [], second=7)
    after = led.leases.get(TASK)
    assert before is not None
    assert after is not None
    assert (before.done_at, after.done_at) == (None, at(7))


# --- incidents ----------------------------------------------------------------------------------


def test_an_incident_comes_back_as_it_was_kept(led: Inventory) -> None:
    incidents, changes = opened(0, verdict("node1\u2028 \"'😀"))
    assert keep(led, incidents, changes)
    assert led.incidents.get(incidents[0].id) == incidents[0]
    assert led.incidents.page(IncidentQuery()) == incidents
    assert led.incidents.get("20200101-000000-babab-babab") is None
    assert led.incidents.get("a\0b") is None


def test_what_is_kept_again_takes_the_place_of_the_old(led: Inventory) -> None:
    incidents, changes = opened(0, verdict("node1"))
    keep(led, incidents, changes)
    later = advance(incidents, [], START_NS + 60 * NS)
    keep(led, later.incidents, later.changes, second=60)
    (found,) = led.incidents.page(IncidentQuery())
    assert found.state is IncidentState.CLOSED
    assert led.incidents.page(IncidentQuery(state=IncidentState.OPEN)) == []


def test_incidents_are_found_by_what_they_are_about_and_who_suffers(led: Inventory) -> None:
    first, _ = opened(0, verdict("node1"))
    second, _ = opened(5, verdict("node2", cause=Cause.LOSSY_LINK, job="mixtral"))
    keep(led, [*first, *second])

    def found(**wanted: object) -> list[str]:
        query = msgspec.convert(wanted, IncidentQuery)
        return [each.id for each in led.incidents.page(query)]

    newest_first = [second[0].id, first[0].id]
    assert found() == newest_first
    assert found(host="node1") == [first[0].id]
    assert found(host="victim") == newest_first
    assert found(switch="leaf1") == newest_first
    assert found(job="mixtral") == [second[0].id]
    assert found(cause="lossy_link") == [second[0].id]
    assert found(cause="lossy_link", host="node1") == []
    assert found(host="leaf1") == []
    assert found(job="a\0b") == []
    assert found(since=at(3)) == [second[0].id]


def test_incidents_come_in_pages(led: Inventory) -> None:
    all_of_them = [opened(number, verdict(f"node{number}"))[0][0] for number in range(7)]
    keep(led, all_of_them)
    pages = []
    after = None
    while page := led.incidents.page(IncidentQuery(), after, limit=3):
        pages += page
        after = page[-1].id
    assert pages == all_of_them[::-1]


def test_who_takes_over_finds_what_stands_and_what_may_come_back(led: Inventory) -> None:
    old, _ = opened(0, verdict("node1"))
    closed = advance(old, [], START_NS + 60 * NS).incidents
    standing, _ = opened(100, verdict("node2"))
    keep(led, [*closed, *standing])
    assert led.incidents.recent(at(60)) == [*closed, *standing]
    assert led.incidents.recent(at(61)) == standing


def test_closed_incidents_are_forgotten_after_a_while_and_open_ones_never(led: Inventory) -> None:
    old, _ = opened(0, verdict("node1"))
    closed = advance(old, [], START_NS + 60 * NS).incidents
    standing, _ = opened(0, verdict("node2"))
    keep(led, [*closed, *standing])
    keep(led, [], second=(INCIDENTS_KEPT_DAYS + 1) * 86_400)
    assert led.incidents.page(IncidentQuery()) == standing
    assert led.incidents.page(IncidentQuery(host="node1")) == []


def test_too_many_closed_incidents_are_forgotten_from_the_oldest_on(
    led: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents_tables, "INCIDENTS_KEPT_MAX", 3)
    made = []
    for number in range(6):
        incidents, _ = opened(number, verdict(f"node{number}"))
        made += advance(incidents, [], START_NS + (60 + number) * NS).incidents
    standing, _ = opened(0, verdict("standing"))
    keep(led, [*standing, *made])
    assert {each.id for each in led.incidents.page(IncidentQuery())} == {
        standing[0].id,
        *(each.id for each in made[-3:]),
    }


# --- news ---------------------------------------------------------------------------------------


def test_news_are_numbered_without_gaps_over_restarts(led: Inventory) -> None:
    assert led.incidents.changes_span() is None
    for number in range(3):
        incidents, changes = opened(number, verdict(f"node{number}"))
        keep(led, incidents, changes)
    assert led.leases.take(TASK, "second", at(20), at(40))
    incidents, changes = opened(21, verdict("node4"))
    keep(led, incidents, changes, second=21, holder="second")
    found = led.incidents.changes(0)
    assert [each.number for each in found] == [1, 2, 3, 4]
    assert found[-1].change == changes[0]
    assert [each.number for each in led.incidents.changes(2, limit=1)] == [3]
    assert led.incidents.changes(1 << 80) == []
    assert led.incidents.changes_span() == (1, 4)


def test_old_news_are_forgotten_and_numbers_go_on(
    led: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents_tables, "INCIDENT_CHANGES_KEPT_MAX", 2)
    for number in range(5):
        incidents, changes = opened(number, verdict(f"node{number}"))
        keep(led, incidents, changes)
    assert led.incidents.changes_span() == (4, 5)
    assert all(each.change.news is News.OPENED for each in led.incidents.changes(0))
