"""Bearer tokens in the inventory: owner, scopes, expiry. Never their secrets."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

import msgspec
from sqlalchemy import delete, func, or_, select, update

from api.base.limits import TOKENS_KEPT_DAYS, TOKENS_MAX
from api.data.inventory.database import Part, table_of
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import TokenRow
from api.data.inventory.token_model import Token

TOKENS: Final = table_of(TokenRow)
LISTS: Final = ("scopes", "hosts")
"""Columns that hold words with commas between them."""


class TokenTables(Part):
    """Tokens that stand, and those that ended lately."""

    def keep(self, token: Token) -> bool:
        """False if there are TOKENS_MAX. Those that ended long ago are forgotten here."""
        old = token.created_at - dt.timedelta(days=TOKENS_KEPT_DAYS)
        with self._database.writing("keep a token") as connection:
            ended = or_(TOKENS.c.revoked_at < old, TOKENS.c.expires_at < old)
            connection.execute(delete(TOKENS).where(ended))
            others = select(func.count()).where(TOKENS.c.revoked_at.is_(None))
            if (connection.scalar(others) or 0) >= TOKENS_MAX:
                return False
            lists = {name: ",".join(getattr(token, name)) for name in LISTS}
            connection.execute(TOKENS.insert(), [msgspec.structs.asdict(token) | lists])
        return True

    def all(self) -> list[Token]:
        """All that are not revoked, the oldest first; then as many of the others, the latest."""
        number, revoked_at = TOKENS.c.id, TOKENS.c.revoked_at
        kept = select(TOKENS).where(revoked_at.is_(None)).order_by(TOKENS.c.created_at, number)
        gone = select(TOKENS).where(revoked_at.is_not(None)).order_by(revoked_at.desc(), number)
        with self._database.reading("list tokens") as connection:
            rows = [
                row
                for query in (kept, gone)
                # Twice: processes that make tokens at the same moment may pass the bound a little.
                for row in connection.execute(query.limit(2 * TOKENS_MAX)).mappings()
            ]
        return [
            msgspec.convert(dict(row) | {name: row[name].split(",") for name in LISTS}, Token)
            for row in rows
        ]

    def revoke(self, number: str, now: dt.datetime) -> Token | None:
        """End a token; None if there is none of this id that is not revoked."""
        if not is_name(number):
            return None
        stands = (TOKENS.c.id == number, TOKENS.c.revoked_at.is_(None))
        with self._database.writing("revoke a token") as connection:
            done = connection.execute(update(TOKENS).where(*stands).values(revoked_at=now))
        if not done.rowcount:
            return None
        return next((token for token in self.all() if token.id == number), None)

    def note_used(self, used: Mapping[str, dt.datetime]) -> None:
        with self._database.writing("note tokens") as connection:
            for number, moment in sorted(used.items()):
                is_later = or_(TOKENS.c.used_at.is_(None), TOKENS.c.used_at < moment)
                connection.execute(
                    update(TOKENS).where(TOKENS.c.id == number, is_later).values(used_at=moment)
                )
