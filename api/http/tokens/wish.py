"""A request for a token, and the token made from it: for the CLI verb and for the route."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from api.data.inventory.token_model import Scope, Token
from api.http.tokens.model import digest_of, make_secret
from collector.contract.identity import printable


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Whose token it is, what it may do, for how many days and how often."""

    name: str
    scopes: Sequence[Scope]
    days: float | None = None
    requests_per_second: float | None = None


def issue(wish: Wish, now: dt.datetime) -> tuple[Token, str]:
    """The token to keep, and its whole text, to be shown once."""
    number, text = make_secret()
    token = Token(
        id=number,
        # It is shown in terminals.
        name=printable(wish.name),
        digest=digest_of(text),
        scopes=tuple(sorted(set(wish.scopes))),
        created_at=now,
        expires_at=None if wish.days is None else now + dt.timedelta(days=wish.days),
        requests_per_second=wish.requests_per_second,
    )
    return token, text
