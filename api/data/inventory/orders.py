"""What is there for agents, in one statement: captures that wait, and the latest configuration."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import literal, select, true

from api.base.limits import CAPTURES_PENDING_MAX
from api.data.inventory.captures import CAPTURES, PENDING, Capture
from api.data.inventory.database import Part
from api.data.inventory.rollouts import CONFIGURATIONS

Mark = tuple[int, int]
"""Version and revision of a configuration: another one, or another step of its roll-out, differs
in one of them."""
VERSION, REVISION = "configuration_version", "configuration_revision"
LATEST: Final = (
    select(CONFIGURATIONS.c.version.label(VERSION), CONFIGURATIONS.c.revision.label(REVISION))
    .order_by(CONFIGURATIONS.c.version.desc())
    .limit(1)
    .subquery()
)
ALWAYS: Final = select(literal(1).label("is_there")).subquery()
"""One row, so that there is one where nothing waits."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a process looks for, once a second."""

    captures: list[Capture]
    configuration: Mark | None
    """None: none was ever pushed."""


class OrderTables(Part):
    """Reads more than one table: every statement costs, also one that finds nothing."""

    def pending(self) -> Orders:
        query = (
            select(LATEST, CAPTURES)
            .select_from(
                ALWAYS.outerjoin(LATEST, true()).outerjoin(CAPTURES, CAPTURES.c.state.in_(PENDING))
            )
            .order_by(CAPTURES.c.id)
            .limit(CAPTURES_PENDING_MAX)
        )
        doing = "look for orders"
        with self._database.reading(doing) as connection:
            rows = connection.execute(query).mappings().all()
        version, revision = rows[0][VERSION], rows[0][REVISION]
        captures = [
            {name: row[name] for name in Capture.__struct_fields__}
            for row in rows
            if row[CAPTURES.c.id] is not None
        ]
        return Orders(
            captures=self._database.sound(
                doing, captures, lambda row: msgspec.convert(row, Capture)
            ),
            configuration=None if version is None else (version, revision),
        )
