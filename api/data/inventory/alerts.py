"""Standing alerts and the health of rule groups; `api.oncall.rules.state` defines documents."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, and_, delete, select
from sqlalchemy.sql.expression import bindparam

from api.base.limits import ALERTS_MAX, RULE_GROUPS_MAX
from api.data.inventory.database import Part, execute_all, table_of, upsert
from api.data.inventory.leases import is_holder
from api.data.inventory.tables import AlertRow, RuleGroupRow

ALERTS: Final = table_of(AlertRow)
GROUPS: Final = table_of(RuleGroupRow)


class KeptAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of one rule, as it is kept."""

    rule_group: str
    rule: str
    fingerprint: str
    document: str


class KeptGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of rules, as it is kept."""

    rule_group: str
    evaluated_at: dt.datetime
    document: str


class AlertTables(Part):
    """Standing alerts and the health of all rule groups."""

    def keep(
        self,
        group: KeptGroup,
        changed: Sequence[KeptAlert],
        gone: Sequence[KeptAlert],
        *,
        task: str,
        holder: str,
    ) -> bool:
        """False, and nothing is kept, if the task belongs to another process by now."""
        with self._database.writing("keep alerts") as connection:
            if not is_holder(connection, task, holder):
                return False
            remove(connection, gone)
            upsert(connection, ALERTS, [msgspec.structs.asdict(each) for each in changed])
            upsert(connection, GROUPS, [msgspec.structs.asdict(group)])
        return True

    def forget_group(self, rule_group: str, *, task: str, holder: str) -> bool:
        """Remove a group that is no longer evaluated, with its alerts; False: another's task."""
        with self._database.writing("forget a rule group") as connection:
            if not is_holder(connection, task, holder):
                return False
            connection.execute(delete(ALERTS).where(ALERTS.c.rule_group == rule_group))
            connection.execute(delete(GROUPS).where(GROUPS.c.rule_group == rule_group))
        return True

    def groups(self) -> list[KeptGroup]:
        query = select(GROUPS).order_by(*GROUPS.primary_key).limit(RULE_GROUPS_MAX)
        return self._database.rows("list groups", query, KeptGroup)

    def of_groups(self, names: Sequence[str]) -> list[KeptAlert]:
        """The alerts of these groups, by key."""
        if not names:
            return []
        wanted = select(ALERTS).where(ALERTS.c.rule_group.in_(names))
        query = wanted.order_by(*ALERTS.primary_key).limit(ALERTS_MAX)
        return self._database.rows("list alerts", query, KeptAlert)

    def standing(self) -> tuple[list[KeptGroup], list[KeptAlert]]:
        """All groups and all alerts, each by key, as they were at one moment."""
        groups = select(GROUPS).order_by(*GROUPS.primary_key).limit(RULE_GROUPS_MAX)
        alerts = select(ALERTS).order_by(*ALERTS.primary_key).limit(ALERTS_MAX)
        with self._database.reading("list alerts") as connection:
            kept = connection.execute(groups).mappings().all()
            standing = connection.execute(alerts).mappings().all()
        sound = self._database.sound
        return (
            sound("list groups", kept, lambda row: msgspec.convert(dict(row), KeptGroup)),
            sound("list alerts", standing, lambda row: msgspec.convert(dict(row), KeptAlert)),
        )


# --- rows ---------------------------------------------------------------------------------------


def remove(connection: Connection, alerts: Sequence[KeptAlert]) -> None:
    keys = [column.name for column in ALERTS.primary_key]
    which = and_(*(ALERTS.c[name] == bindparam(f"key_{name}") for name in keys))
    rows = [{f"key_{name}": getattr(each, name) for name in keys} for each in alerts]
    execute_all(connection, delete(ALERTS).where(which), rows)
