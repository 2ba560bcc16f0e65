"""A token as it is kept, and what it may do. Pure."""

from __future__ import annotations

import datetime as dt
import enum

import msgspec

from api.base.host_names import ANY


class Scope(enum.StrEnum):
    """What a token may do."""

    INGEST = "ingest"
    """Write telemetry, and nothing else: this token lies on every host."""
    READ = "read"
    """Read: queries, health, placement."""
    OPERATE = "operate"
    """Change what people and schedulers act upon: holds, actions, jobs, silences, captures."""
    ADMIN = "admin"
    """Everything, tokens included."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret. ``digest`` is the SHA-256 of the whole text, in hex."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_at: dt.datetime
    expires_at: dt.datetime | None = None
    """Null: never."""
    used_at: dt.datetime | None = None
    """About when it was last shown (`TOKEN_USED_SECONDS`)."""
    revoked_at: dt.datetime | None = None
    requests_per_second: float | None = None
    """Null: unlimited."""
    hosts: tuple[str, ...] = (ANY,)
    """Hosts of which it may send telemetry: names, and prefixes with * at their end."""

    def stands(self, now: dt.datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
