"""Silence, holds and turns of health in the inventory, on SQLite and on PostgreSQL."""

import datetime as dt

import pytest

from alerts.health.model import HealthState, Hold, Target, Turn
from api.base.limits import (
    GHOST_KEPT_DAYS,
    GHOST_LISTED_SECONDS,
    GHOST_SEEN_SECONDS,
    HEALTH_TURNS_KEPT_DAYS,
    HOLDS_KEPT_DAYS,
)
from api.data.inventory import health as health_tables
from api.data.inventory.actions import TooManyHoldsError
from api.data.inventory.health import NumberedTurn
from api.data.inventory.records import DeviceKind
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, Sighting
from collector.contract.units import NS
from tests.stands.holding import end_hold, set_hold

START = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
START_NS = int(START.timestamp()) * NS
TASK, HOLDER = "evaluator", "first"
NODE = Target.of_host("node1")


def at(second: float) -> dt.datetime:
    return START + dt.timedelta(seconds=second)


def hold(
    second: float = 0,
    *,
    host: str = "node1",
    state: HealthState = HealthState.DRAINING,
    until: float | None = None,
    by: str = "ada",
) -> Hold:
    return Hold(
        target=Target.of_host(host),
        state=state,
        reason="a cable \"'😀",
        by=by,
        since_ns=START_NS + round(second * NS),
        until_ns=None if until is None else START_NS + round(until * NS),
    )


def turn(host: str, second: float = 0, state: HealthState = HealthState.SUSPECT) -> Turn:
    return Turn(
        target=Target.of_device(host, "mlx5_0"),
        time_ns=START_NS + round(second * NS),
        state=state,
        was=HealthState.HEALTHY,
        risk=0.3,
        why="silent",
    )


def seen(inventory: Inventory, host: str, second: float, **attributes: str) -> None:
    sighting = Sighting(host=host, host_attributes=tuple(attributes.items()))
    inventory.observe([Observation.at(sighting, at(second))])


# --- who reports --------------------------------------------------------------------------------


def test_the_fleet_is_machines_that_were_heard_of_lately(inventory: Inventory) -> None:
    week = 7 * 86_400
    seen(inventory, "quiet", -300)
    seen(inventory, "gone", -week - 1)
    seen(inventory, "alive", -900)
    seen(inventory, "alive", 0)
    seen(inventory, "leaf1", 0, role="switch")
    assert [(each.host, each.first_seen) for each in inventory.health.known_hosts(at(0))] == [
        ("alive", at(-900)),
        ("quiet", at(-300)),
    ]
    assert inventory.health.count_hosts(at(0)) == 2
    assert inventory.health.silent_hosts(at(-180), at(0)) == {"quiet": at(-300)}
    assert inventory.health.silent_hosts(at(-300), at(0)) == {}


def test_a_machine_that_only_polls_switches_is_no_host_that_takes_jobs(
    inventory: Inventory,
) -> None:
    """Its agent reports no part of it; a host of other exporters may have none either."""
    seen(inventory, "poller", 0, agent="poller")
    seen(inventory, "exporter", 0)
    worker = Sighting(
        host="worker",
        host_attributes=(("agent", "worker"),),
        kind=DeviceKind.GPU,
        device="0",
    )
    inventory.observe([Observation.at(worker, at(0))])
    assert [each.host for each in inventory.health.known_hosts(at(0))] == ["exporter", "worker"]
    assert inventory.health.count_hosts(at(0)) == 2
    assert inventory.health.silent_hosts(at(1), at(1)).keys() == {"exporter", "worker"}


def test_a_host_that_was_seen_for_a_moment_leaves_the_lists_and_then_the_inventory(
    inventory: Inventory,
) -> None:
    """An honest host that falls silent stays: its silence is news."""
    brief, long = GHOST_SEEN_SECONDS - 1, GHOST_SEEN_SECONDS

    def port_of(host: str) -> Sighting:
        return Sighting(host=host, kind=DeviceKind.RDMA, device="mlx5_0", port="1")

    for name, seconds in (("ghost", brief), ("held", brief), ("honest", long)):
        inventory.observe([Observation(port_of(name), at(0), at(seconds))])
    seen(inventory, "once", brief)
    set_hold(inventory, "1", hold(host="held"))

    def shown(now: dt.datetime) -> list[list[str]]:
        listed = inventory.health.known_hosts(now)
        assert inventory.health.count_hosts(now) == len(listed)
        pages = inventory.hosts.page(now=now), inventory.hosts.page()
        return [[each.host for each in listed], *([each.host for each in page] for page in pages)]

    everything = ["ghost", "held", "honest", "once"]
    assert shown(at(brief + GHOST_LISTED_SECONDS)) == [everything] * 3
    later = at(brief + GHOST_LISTED_SECONDS + 1)
    assert shown(later) == [["honest"], ["honest"], everything]
    assert inventory.health.silent_hosts(later, later).keys() == {"honest"}
    assert inventory.hosts.forget_ghosts(later) == 0
    week = at(brief + 1) + dt.timedelta(days=GHOST_KEPT_DAYS)
    assert inventory.hosts.forget_ghosts(week) == 2
    assert [each.host for each in inventory.hosts.page()] == ["held", "honest"]
    assert {each.host for each in inventory.hosts.ports()} == {"held", "honest"}
    seen(inventory, "ghost", 0)
    assert inventory.hosts.get("ghost") is not None, "it may come back"


def test_hosts_are_found_by_their_names(inventory: Inventory) -> None:
    for name in ("b", "a", "c"):
        seen(inventory, name, 0)
    assert [host.host for host in inventory.hosts.named(["c", "a", "x", "\0"])] == ["a", "c"]
    assert inventory.hosts.named([]) == []


# --- holds --------------------------------------------------------------------------------------


def test_a_hold_comes_back_as_it_was_set(inventory: Inventory) -> None:
    set_hold(inventory, "1", hold(until=3_600.5))
    [kept] = inventory.health.holds(at(1))
    assert (kept.id, kept.hold) == ("1", hold(until=3_600.5))
    assert (kept.ended_at, kept.ended_by) == (None, "")


def test_a_hold_ends_by_itself_or_by_somebody(inventory: Inventory) -> None:
    set_hold(inventory, "1", hold(until=60))
    assert inventory.health.holds(at(60)) == []
    assert end_hold(inventory, "node1", "bob", at(60)) is None
    set_hold(inventory, "2", hold(70))
    ended = end_hold(inventory, "node1", "bob", at(80))
    assert ended is not None
    assert (ended.id, ended.ended_at, ended.ended_by) == ("2", at(80), "bob")
    assert inventory.health.holds(at(81)) == []
    assert end_hold(inventory, "node1", "bob", at(82)) is None


def test_who_set_and_who_ended_what_stays_on_record(inventory: Inventory) -> None:
    set_hold(inventory, "1", hold(0, by="ada"))
    set_hold(inventory, "2", hold(10, by="bob", state=HealthState.OUT))
    end_hold(inventory, "node1", "eve", at(20))
    set_hold(inventory, "3", hold(0, host="node2"))
    record = [(each.id, each.hold.by, each.ended_by) for each in inventory.health.holds_of(NODE)]
    assert record == [("2", "bob", "eve"), ("1", "ada", "bob")]
    later = HOLDS_KEPT_DAYS * 86_400 + 21
    set_hold(inventory, "4", hold(later, host="node2"))
    assert inventory.health.holds_of(NODE) == []
    assert [each.id for each in inventory.health.holds_of(Target.of_host("node2"))] == ["4", "3"]
    assert inventory.health.holds_of(Target.of_host("no\0de")) == []
    assert end_hold(inventory, "no\0de", "eve", at(0)) is None


def test_holds_are_bounded_and_one_may_still_be_replaced(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_tables, "HOLDS_MAX", 2)
    set_hold(inventory, "1", hold())
    set_hold(inventory, "2", hold(host="node2", until=50))
    with pytest.raises(TooManyHoldsError, match="HOLDS_MAX"):
        set_hold(inventory, "3", hold(1, host="node3"))
    set_hold(inventory, "4", hold(2, state=HealthState.OUT))
    assert [each.id for each in inventory.health.holds(at(3))] == ["4", "2"]
    set_hold(inventory, "5", hold(51, host="node3"))  # one has ended by itself


# --- turns --------------------------------------------------------------------------------------


@pytest.fixture
def led(inventory: Inventory) -> Inventory:
    """An inventory whose evaluator is HOLDER."""
    assert inventory.leases.take(TASK, HOLDER, at(0), at(20))
    return inventory


def keep(inventory: Inventory, *turns: Turn, second: float = 0, holder: str = HOLDER) -> bool:
    return inventory.health.keep_turns(turns, task=TASK, holder=holder, now=at(second))


def test_turns_are_numbered_over_all_and_found_by_host(led: Inventory) -> None:
    assert led.health.turns_span() is None
    first, second, third = turn("node1"), turn("node2"), turn("node1", 5, HealthState.HEALTHY)
    assert keep(led, first, second)
    assert keep(led, third)
    assert led.health.turns_span() == (1, 3)
    assert led.health.turns_after(1) == [NumberedTurn(2, second), NumberedTurn(3, third)]
    assert led.health.turns_after(0, limit=1) == [NumberedTurn(1, first)]
    assert led.health.turns_after(1 << 80) == led.health.turns_after(3) == []
    assert led.health.turns_of("node1") == [third, first]
    assert led.health.turns_of("node1", limit=1) == [third]
    assert led.health.turns_of("\0") == []


def test_only_who_evaluates_writes_turns(led: Inventory) -> None:
    assert not keep(led, turn("node1"), holder="second")
    assert led.health.turns_after(0) == []


def test_turns_that_are_too_many_or_too_old_go(
    led: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_tables, "HEALTH_TURNS_KEPT_MAX", 2)
    keep(led, *(turn(f"node{n}") for n in range(5)))
    assert [each.number for each in led.health.turns_after(0)] == [4, 5]
    later = (HEALTH_TURNS_KEPT_DAYS * 86_400) + 1
    keep(led, turn("node1", later), second=later)
    assert [each.number for each in led.health.turns_after(0)] == [6]
