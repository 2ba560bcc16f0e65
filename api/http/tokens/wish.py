"""A request for a token, and the token made from it: for the CLI verb and for the route."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

import msgspec

from api.base.host_names import ANY, check_patterns
from api.data.inventory.token_model import Scope, Token
from api.http.tokens.model import digest_of, make_secret
from collector.contract.errors import SettingsError
from collector.contract.identity import printable


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Whose token it is, what it may do, for how many days and how often."""

    name: str
    scopes: Sequence[Scope]
    days: float | None = None
    requests_per_second: float | None = None
    hosts: Sequence[str] | None = None
    """Names, and prefixes with * at their end; null: the default of its scopes."""


def default_hosts(name: str, scopes: Iterable[Scope]) -> tuple[str, ...]:
    """A token that may only send lies on a host, whose name it has; any other is for any host.

    >>> default_hosts("node-a", [Scope.INGEST]), default_hosts("ada", [Scope.INGEST, Scope.READ])
    (('node-a',), ('*',))
    """
    if set(scopes) != {Scope.INGEST}:
        return (ANY,)
    try:
        return check_patterns([name])
    except SettingsError as error:
        raise SettingsError(
            f"token {name!r} may only ingest, so it would be bound to the host of its name, which "
            "no host has: name its hosts (--hosts, hosts), or '*' for any"
        ) from error


def issue(wish: Wish, now: dt.datetime) -> tuple[Token, str]:
    """The token to keep, and its whole text, to be shown once; SettingsError for odd hosts."""
    number, text = make_secret()
    # It is shown in terminals.
    name = printable(wish.name)
    if wish.hosts is not None:
        hosts = check_patterns(wish.hosts)
    else:
        hosts = default_hosts(name, wish.scopes)
    token = Token(
        id=number,
        name=name,
        digest=digest_of(text),
        scopes=tuple(sorted(set(wish.scopes))),
        created_at=now,
        expires_at=None if wish.days is None else now + dt.timedelta(days=wish.days),
        requests_per_second=wish.requests_per_second,
        hosts=hosts,
    )
    return token, text
