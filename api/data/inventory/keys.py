"""Keys of the service's own, which all its processes share: each made once, at the first need."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Final

from sqlalchemy import select

from api.data.inventory.database import Part, insert_into, table_of
from api.data.inventory.tables import ServiceKeyRow

KEYS: Final = table_of(ServiceKeyRow)
KEY_BYTES: Final = 32
"""As many as the SHA-256 that signs with it gives."""
PASS_KEY: Final = "passes"  # noqa: S105 - a name
"""Signs the links in notices (`api.base.passes`)."""


class KeyTables(Part):
    """Keys by name. They never leave the service."""

    def get(self, name: str, now: dt.datetime) -> bytes:
        """The key of this name. Of processes that need it at once, the first makes it for all."""
        with self._database.writing("keep a key") as connection:
            row = {"name": name, "secret": secrets.token_bytes(KEY_BYTES), "made_at": now}
            connection.execute(insert_into(connection, KEYS).on_conflict_do_nothing(), [row])
            found = connection.scalar(select(KEYS.c.secret).where(KEYS.c.name == name))
        return bytes(found or b"")
