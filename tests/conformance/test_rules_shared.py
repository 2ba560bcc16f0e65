"""Rule groups that several processes share: states survive a hand-over, notices see all alerts."""

import asyncio
from pathlib import Path

import pytest

from alerts.rulebook.model import AlertState
from api.base import edited
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.lead import LEASE_SECONDS, Lead
from api.oncall.rules.elsewhere import GroupsElsewhere
from api.oncall.rules.leads import GroupLeads
from collector.contract.units import NS
from tests.conformance.test_rules_service import ALERT, DOWN, START_S, Process

GROUPS = tuple(f"group{number}" for number in range(24))
"""So many that both of two parts have some, whatever the path of their file is."""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with several groups, which hash to both of two parts."""
    monkeypatch.setattr(edited, "SETTLED_SECONDS", 0.0)
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.yaml").write_text(
        "groups:" + "".join(ALERT.partition("groups:")[2].replace("links", one) for one in GROUPS)
    )
    return folder


class Sharing(Process):
    """A process with two leases of rule groups."""

    def __init__(self, inventory: Inventory, rules: Path, name: str) -> None:
        super().__init__(inventory, rules, name)
        self.leads = [
            Lead(inventory, self.clock, task=f"rules/{number}", holder=name) for number in range(2)
        ]
        self.groups = GroupLeads(self.leads)
        self.task._leads = self.task._keeper._leads = self.groups
        self.answers.rows["link_up == 0"] = DOWN

    def renew(self, second: float, *parts: int) -> None:
        self.now_s = START_S + second
        for number in parts:
            assert self.leads[number].renew()

    def round(self, second: float, *parts: int) -> set[str]:
        """The groups that are evaluated then, by the parts whose leases it renews."""
        self.renew(second, *parts)
        before = len(self.told)
        asyncio.run(self.task.once())
        return {group.name for group, _ in self.told[before:]}


def test_each_group_is_evaluated_by_one_and_its_wait_goes_on_elsewhere(
    inventory: Inventory, rules: Path
) -> None:
    one, two = Sharing(inventory, rules, "one"), Sharing(inventory, rules, "two")
    one.round(0, 0)
    two.round(0, 1)
    ones, twos = set(), set()
    for second in (30, 60):
        ones |= one.round(second, 0)
        twos |= two.round(second, 1)
    assert ones
    assert twos
    assert not ones & twos
    assert ones | twos == {*GROUPS}
    # The second one dies; the first takes its part after the lease has ended.
    late = 60 + LEASE_SECONDS + 1
    one.round(late, 0, 1)
    assert one.round(120, 0, 1) == {*GROUPS}
    assert {state for _, state in one.states()} == {"firing"}, "90 s since it began, with the other"


def test_what_another_evaluated_is_noted_once(inventory: Inventory, rules: Path) -> None:
    one, two = Sharing(inventory, rules, "one"), Sharing(inventory, rules, "two")
    elsewhere = GroupsElsewhere(inventory, one.groups, one.shelf)
    for second in (0, 30, 60):
        one.round(second, 0)
        two.round(second, 1)
    found = elsewhere.look(is_first=True)
    assert {group.name for group, _, _ in found} == {
        group.name for group in two.shelf.groups if two.groups.of(group.key) is two.leads[1]
    }
    assert all(group.rules for group, _, _ in found), "with their rules, for links"
    assert {alert.state for _, alerts, _ in found for alert in alerts} == {AlertState.PENDING}
    assert elsewhere.look(is_first=False) == []
    two.round(90, 1)
    one.renew(90, 0)
    again = elsewhere.look(is_first=False)
    assert len(again) == len(found)
    assert all(
        at_ns > before_ns for (_, _, at_ns), (_, _, before_ns) in zip(again, found, strict=True)
    )
    assert one.leads[1].renew() is False
    two.leads[1].release()
    one.renew(91, 0, 1)
    assert not elsewhere.are_any
    assert elsewhere.look(is_first=False) == [], "all are this process' own"


def test_moments_of_the_holder_before_are_left_out(inventory: Inventory, rules: Path) -> None:
    one = Sharing(inventory, rules, "one")
    one.round(0, 0, 1)
    before_ns, later_ns = (round((START_S + second) * NS) for second in (61, 200))
    seen = []
    for second in (1, 31, 61, 91, 121):
        one.renew(second)
        for lead in one.leads:
            is_first = second == 1
            lead.grant(one.clock(), later_ns, before_ns if is_first else None)
        seen.append(one.round(second))
    assert seen[:3] == [set(), set(), set()], "the process before may have written these moments"
    assert seen[4] == {*GROUPS}
