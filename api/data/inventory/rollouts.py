"""Configurations for agents: versions with their roll-outs, and what each agent reported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError

from api.base.limits import PAGE_DEFAULT
from api.base.rollout_limits import CONFIGURATION_AGENTS_MAX, CONFIGURATIONS_KEPT_MAX
from api.data.inventory.database import Part, before_nul, table_of, upsert
from api.data.inventory.rollout_model import AgentConfiguration, Configuration, Rollout, Version
from api.data.inventory.tables import AgentConfigurationRow, AgentRow, ConfigurationRow

CONFIGURATIONS: Final = table_of(ConfigurationRow)
REPORTS: Final = table_of(AgentConfigurationRow)
AGENTS: Final = table_of(AgentRow)
WITHOUT_DOCUMENT: Final = [
    column for column in CONFIGURATIONS.c if column.name != ConfigurationRow.document.key
]
AGAIN_SECONDS: Final = 30.0
"""Reports are read again for so long: another process' clock, or its transaction, may lag."""


class RolloutTables(Part):
    """All versions and all reports."""

    def push(self, pushed: Configuration, rollout: Rollout) -> bool:
        """Keep a version; False if there is one with its number. Forgets what is too old."""
        row = msgspec.structs.asdict(pushed) | {"revision": 1, "rollout": encoded(rollout)}
        table, version = CONFIGURATIONS, CONFIGURATIONS.c.version
        with self._database.writing("keep a configuration") as connection:
            if (connection.scalar(select(func.max(version))) or 0) >= pushed.version:
                return False
            try:
                connection.execute(table.insert(), [row])
            except IntegrityError:  # another process was quicker
                return False
            old = pushed.version - CONFIGURATIONS_KEPT_MAX
            connection.execute(delete(table).where(version <= old, version != rollout.base))
        return True

    def latest(self) -> Version | None:
        """The version that counts; None: none was ever pushed."""
        return next(iter(self.versions(limit=1)), None)

    def versions(self, before: int | None = None, limit: int = PAGE_DEFAULT) -> list[Version]:
        """The newest first."""
        query = select(*WITHOUT_DOCUMENT).order_by(CONFIGURATIONS.c.version.desc()).limit(limit)
        if before is not None:
            query = query.where(CONFIGURATIONS.c.version < before)
        with self._database.reading("list configurations") as connection:
            rows = connection.execute(query).mappings().all()
        return self._database.sound("list configurations", rows, version_of)

    def get(self, version: int) -> Configuration | None:
        wanted = [CONFIGURATIONS.c[name] for name in Configuration.__struct_fields__]
        query = select(*wanted).where(CONFIGURATIONS.c.version == version)
        return next(iter(self._database.rows("read a configuration", query, Configuration)), None)

    def change(self, known: Version, rollout: Rollout) -> bool:
        """Write the roll-out of a version; False if it was changed since ``known`` was read."""
        table = CONFIGURATIONS
        changed = self._database.execute(
            "change a roll-out",
            update(table)
            .where(table.c.version == known.version, table.c.revision == known.revision)
            .values(revision=known.revision + 1, rollout=encoded(rollout)),
        )
        return changed == 1

    def write_reports(self, reports: Sequence[AgentConfiguration]) -> None:
        with self._database.writing("note agents' configurations") as connection:
            upsert(connection, REPORTS, [msgspec.structs.asdict(each) for each in reports])

    def reports(self, since: datetime | None = None) -> list[AgentConfiguration]:
        """All, or those that were heard since a moment and a little before it."""
        query = select(REPORTS).order_by(REPORTS.c.agent).limit(CONFIGURATION_AGENTS_MAX)
        if since is not None:
            query = query.where(REPORTS.c.heard_at >= since - timedelta(seconds=AGAIN_SECONDS))
        return self._database.rows("list agents' configurations", query, AgentConfiguration)

    def page(self, after: str | None = None, limit: int = PAGE_DEFAULT) -> list[AgentConfiguration]:
        """By agent."""
        query = select(REPORTS).order_by(REPORTS.c.agent).limit(limit)
        if after is not None:
            query = query.where(REPORTS.c.agent > before_nul(after))
        return self._database.rows("list agents' configurations", query, AgentConfiguration)

    def heard_since(self, since: datetime) -> frozenset[str]:
        """Agents that take part, and of which a batch came since then."""
        query = (
            select(REPORTS.c.agent)
            .join(AGENTS, AGENTS.c.agent == REPORTS.c.agent)
            .where(AGENTS.c.last_received_at >= since)
        )
        with self._database.reading("list agents that report") as connection:
            return frozenset(connection.execute(query).scalars())


def encoded(rollout: Rollout) -> str:
    return msgspec.json.encode(rollout).decode()


def version_of(row: Any) -> Version:  # noqa: ANN401 - a row of any database
    rollout = msgspec.json.decode(row["rollout"], type=Rollout)
    return msgspec.convert(dict(row) | {"rollout": rollout}, Version)
