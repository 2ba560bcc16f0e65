"""Pending captures: what survives an inventory that is away, and when a request is given up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.base.errors import Problem
from api.base.limits import CAPTURES_KEPT_DAYS, CAPTURES_PER_AGENT_MAX
from api.data.captures import EXPIRE_SECONDS, Captures, read_end
from api.data.inventory.orders import Orders
from api.data.inventory.repository import Inventory
from collector.contract.errors import InventoryError
from collector.contract.model import Event


class Clock:
    """A clock that the test moves."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    inventory = Inventory(f"sqlite:///{tmp_path}/inventory.db")
    inventory.migrate()
    yield inventory
    inventory.close()


def ended(capture: str, **more: str) -> Event:
    attributes = {"capture": capture, "result": "finished", "samples": "3"} | more
    return Event(kind="capture", time_ns=1, labels={}, attributes=attributes)


def test_a_request_that_nobody_ends_is_given_up(inventory: Inventory) -> None:
    clock = Clock()
    captures = Captures(inventory, clock)
    made = captures.ask("node", 1.0, 1.0, [])
    captures.look()
    assert [each.id for each in captures.of("node")] == [made.id]
    clock.now += EXPIRE_SECONDS + 1
    captures.look()
    assert captures.of("node") == []
    assert [each.state for each in inventory.captures.page("node")] == ["expired"]


@pytest.mark.parametrize("is_read_first", [True, False])
def test_a_request_made_while_the_inventory_is_read_is_told_once(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, *, is_read_first: bool
) -> None:
    captures = Captures(inventory, Clock())
    read, ids = inventory.orders.pending, []

    def read_and_ask() -> Orders:
        before = read()
        ids.append(captures.ask("node", 1.0, 1.0, []).id)
        return before if is_read_first else read()

    with monkeypatch.context() as patch:
        patch.setattr(inventory.orders, "pending", read_and_ask)
        captures.look()
    assert [each.id for each in captures.of("node")] == ids
    captures.look()
    assert [each.id for each in captures.of("node")] == ids


def test_news_wait_while_the_inventory_is_away(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = Captures(inventory, Clock())
    made = captures.ask("node", 1.0, 1.0, [])
    captures.note("node", [ended(made.id)])
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise InventoryError("away")

        patch.setattr(inventory.captures, "note", refuse)
        captures.look()
    assert [each.state for each in inventory.captures.page("node")] == ["waiting"]
    captures.look()
    assert [(each.state, each.samples) for each in inventory.captures.page("node")] == [
        ("finished", 3)
    ]


def test_a_request_that_ended_makes_room_and_is_forgotten_in_time(inventory: Inventory) -> None:
    clock = Clock()
    captures = Captures(inventory, clock)
    made = [captures.ask("node", 1.0, 1.0, []) for _ in range(CAPTURES_PER_AGENT_MAX)]
    with pytest.raises(Problem):
        captures.ask("node", 1.0, 1.0, [])
    captures.note("node", [ended(each.id) for each in made])
    captures.look()
    clock.now += CAPTURES_KEPT_DAYS * 86_400 + 1
    last = captures.ask("node", 1.0, 1.0, [])
    assert [each.id for each in inventory.captures.page("node")] == [last.id]


def test_an_end_that_makes_no_sense_is_none() -> None:
    assert read_end("node", ended("x", result="melted")) is None
    assert read_end("node", ended("x", samples="-3")) is None
    assert read_end("node", ended("x", samples="9" * 40)) is None
    assert read_end("node", ended("\0")) is None
    end = read_end("node", ended("x", detail="a\nb" + "c" * 900))
    assert end is not None
    assert end.detail.startswith("ab")
    assert len(end.detail) <= 200
