"""The alerts of rule groups that other processes evaluate, for the one that plans notices.

Each evaluator keeps its alerts in the inventory before anything is told to receivers. Only groups
that were evaluated since the last look are read; nothing is where all groups are this process' own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from alerts.rulebook.model import Alert, Group
from api.data.inventory.repository import Inventory
from api.oncall.rules.leads import GroupLeads
from api.oncall.rules.shelf import Shelf
from api.oncall.rules.state import ROAD, read_alert, read_group

Evaluated = tuple[Group, Sequence[Alert], int]
"""A group, all of its alerts, and the moment of its last evaluation (unix nanoseconds)."""


class GroupsElsewhere:
    """Reads what others evaluated. For one thread at a time."""

    def __init__(self, inventory: Inventory, leads: GroupLeads, shelf: Shelf) -> None:
        self._inventory = inventory
        self._leads = leads
        self._shelf = shelf
        self._seen: dict[str, dt.datetime] = {}

    @property
    def are_any(self) -> bool:
        return not self._leads.are_all_held

    def look(self, *, is_first: bool) -> list[Evaluated]:
        """Groups that were evaluated since the last look, or all. Raises InventoryError."""
        if is_first:
            self._seen.clear()
        if not self.are_any:
            return []
        tables, sound = self._inventory.alerts, self._inventory.quarantine.sound
        kept = tables.groups()
        news = [each for each in kept if self._seen.get(each.rule_group) != each.evaluated_at]
        read = sound(ROAD, "a rule group", news, lambda each: (each, read_group(each)))
        known = {group.key: group for group in self._shelf.groups}
        groups = {}
        for each, document in read:
            key = f"{document.file};{document.name}"
            if not self._leads.of(key).is_held():
                plain = Group(file=document.file, name=document.name, rules=())
                groups[each.rule_group] = known.get(key, plain), document.health.evaluated_ns
        alerts: dict[str, list[Alert]] = {name: [] for name in groups}
        rows = tables.of_groups(sorted(groups))
        for row, alert in sound(
            ROAD, "an alert", rows, lambda one: (one, read_alert(one.document))
        ):
            alerts[row.rule_group].append(alert)
        self._seen = {each.rule_group: each.evaluated_at for each in kept}
        return [(group, alerts[name], at_ns) for name, (group, at_ns) in groups.items()]
