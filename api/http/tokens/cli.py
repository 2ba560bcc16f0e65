"""`fabricscope token`: make, list and revoke tokens in the service's inventory.

It works on the inventory itself, so it needs no token: a user who may read the service's settings
may use it, also before the service has ever run. A new token's text goes to standard output alone,
so that `fabricscope token create … > FILE` is all it takes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from api.base.host_names import ANY, parse_patterns
from api.base.limits import (
    TOKEN_DAYS_MAX,
    TOKEN_NAME_CHARS_MAX,
    TOKEN_RATE_MAX,
    TOKENS_FRESH_SECONDS,
    TOKENS_MAX,
)
from api.data.inventory.repository import Inventory
from api.data.inventory.token_model import Scope, Token
from api.http.settings import load_service_settings
from api.http.tokens.scopes import allowed_by
from api.http.tokens.wish import Wish, issue
from collector.contract.errors import SettingsError

HOSTS_SHOWN = 3
"""Hosts of a token in a line of the list; `--json` has all."""
ANOTHER_USER = "run this as the service's user, or name another place with"
SETTINGS = {
    "data": ("DIR", "folder of the embedded inventory"),
    "inventory": ("URL", "inventory: sqlite:///path or postgresql+psycopg://…"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", required=True, metavar="create|list|revoke")
    create = what.add_parser("create", help="make a token and print it, once")
    create.add_argument("name", help="whose it is, or what for: it stands beside what is done")
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        choices=[str(scope) for scope in Scope],
        help="what it may do: ingest (send telemetry), read (ask), operate (read, holds, actions, "
        "jobs, silences) or admin (everything); repeatable",
    )
    create.add_argument(
        "--days", type=float, metavar="N", help="it ends after so long (default: when revoked)"
    )
    create.add_argument(
        "--requests-per-second", type=float, metavar="N", help="no more than these (default: any)"
    )
    create.add_argument(
        "--hosts",
        metavar="A,B-*",
        help="hosts of which it may send telemetry: names, prefixes with * at their end, or '*' "
        "for any (default: the host of its name if it may only ingest; else any)",
    )
    listed = what.add_parser("list", help="show all tokens, without their secrets")
    listed.add_argument("--json", action="store_true", help="for programs")
    revoke = what.add_parser("revoke", help="end a token")
    revoke.add_argument("id", help="as list shows it")
    for verb in (create, listed, revoke):
        verb.add_argument("--config", type=Path, metavar="FILE", help="the service's settings")
        for name, (metavar, text) in SETTINGS.items():
            verb.add_argument(f"--{name}", metavar=metavar, help=text)


def run(arguments: argparse.Namespace) -> int:
    doing: dict[str, Callable[[argparse.Namespace], int]] = {
        "create": create_token,
        "list": list_tokens,
        "revoke": revoke_token,
    }
    return doing[arguments.what](arguments)


@contextmanager
def opened(arguments: argparse.Namespace, *, may_make: bool = False) -> Iterator[Inventory]:
    """The service's inventory; ``may_make``: also before the service has ever run."""
    flags = {name: getattr(arguments, name) for name in SETTINGS}
    settings = load_service_settings(arguments.config, flags)
    file = inventory_file(settings.inventory_url)
    if file is not None and not may_make and not file.is_file():
        raise SettingsError(
            f"no inventory at {file}: no service has run there, and no token was made; name the "
            "service's folder with --data or its settings with --config"
        )
    if not settings.inventory:
        try:
            settings.data_path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            words = f"data folder {settings.data_path}: {error.strerror}; {ANOTHER_USER} --data"
            raise SettingsError(words) from error
    if file is not None:
        check_writable(file, "--inventory" if settings.inventory else "--data")
    inventory = Inventory(settings.inventory_url)
    try:
        inventory.migrate()
        yield inventory
    finally:
        inventory.close()


def check_writable(file: Path, option: str) -> None:
    """Raises SettingsError where an embedded inventory cannot be written to.

    Whoever opens it writes, `list` too: the schema is brought up to date, and SQLite's log stands
    beside the file. SQLite itself says that it is unable to open a file, and not why.
    """
    folder = file.absolute().parent
    if not folder.is_dir():
        raise SettingsError(f"there is no folder {folder}; make it, or name another with {option}")
    for place, needed in ((folder, os.W_OK | os.X_OK), (file, os.W_OK)):
        if place.exists() and not os.access(place, needed):
            raise SettingsError(f"{place} cannot be written by this user; {ANOTHER_USER} {option}")


def inventory_file(url: str) -> Path | None:
    """Where an embedded inventory lies; None: it is a server's."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None


def now() -> dt.datetime:
    return dt.datetime.fromtimestamp(time.time(), tz=dt.UTC)


def create_token(arguments: argparse.Namespace) -> int:
    if not 1 <= len(arguments.name) <= TOKEN_NAME_CHARS_MAX:
        raise SettingsError(f"a token's name has 1 to {TOKEN_NAME_CHARS_MAX} characters")
    for flag, value, most in (
        ("--days", arguments.days, TOKEN_DAYS_MAX),
        ("--requests-per-second", arguments.requests_per_second, TOKEN_RATE_MAX),
    ):
        if value is not None and not 0 < value <= most:
            raise SettingsError(f"{flag} is {value:g}; more than 0, and {most:g} at most")
    wish = Wish(
        name=arguments.name,
        scopes=[Scope(scope) for scope in arguments.scope],
        days=arguments.days,
        requests_per_second=arguments.requests_per_second,
        hosts=None if arguments.hosts is None else parse_patterns(arguments.hosts),
    )
    token, text = issue(wish, now())
    with opened(arguments, may_make=True) as inventory:
        if not inventory.tokens.keep(token):
            raise SettingsError(
                f"there are TOKENS_MAX = {TOKENS_MAX} tokens; revoke those that are not used "
                "(fabricscope token list)"
            )
    print(text)
    ends = f"ends {shown(token.expires_at)}" if token.expires_at else "ends when it is revoked"
    print(
        f"token {token.id} ({token.name}): {', '.join(token.scopes)}; {ends}. It is not shown "
        "again.",
        file=sys.stderr,
    )
    if Scope.INGEST in allowed_by(token.scopes):
        print(binding_of(token, is_default=arguments.hosts is None), file=sys.stderr)
    return 0


def binding_of(token: Token, *, is_default: bool) -> str:
    """Of which hosts a token may send, in words, and how to get another."""
    if ANY in token.hosts:
        return "It may send telemetry of any host."
    words = f"It may send telemetry of {', '.join(token.hosts)} only."
    how = " For more, make one with --hosts 'node-*', or --hosts '*' for any host."
    return words + how if is_default else words


def list_tokens(arguments: argparse.Namespace) -> int:
    with opened(arguments) as inventory:
        tokens = inventory.tokens.all()
    if arguments.json:
        without = [
            {key: value for key, value in msgspec.to_builtins(token).items() if key != "digest"}
            for token in tokens
        ]
        print(msgspec.json.encode(without).decode())
        return 0
    head = ("ID", "NAME", "SCOPES", "HOSTS", "CREATED", "LAST USED", "STATE")
    rows = [head, *(line_of(token, now()) for token in tokens)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    return 0


def line_of(token: Token, at: dt.datetime) -> tuple[str, ...]:
    state = "stands"
    if token.revoked_at is not None:
        state = f"revoked {shown(token.revoked_at)}"
    elif token.expires_at is not None:
        state = f"{'until' if token.stands(at) else 'expired'} {shown(token.expires_at)}"
    used = shown(token.used_at) if token.used_at else "never"
    scopes, hosts = ",".join(token.scopes), hosts_shown(token)
    return token.id, token.name, scopes, hosts, shown(token.created_at), used, state


def hosts_shown(token: Token) -> str:
    """The first hosts of a token, and how many more there are."""
    first, more = token.hosts[:HOSTS_SHOWN], len(token.hosts) - HOSTS_SHOWN
    return ",".join(first) + (f" and {more} more" if more > 0 else "")


def shown(moment: dt.datetime) -> str:
    """A moment, to the minute.

    >>> shown(dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC))
    '2026-01-02 03:04Z'
    """
    return f"{moment:%Y-%m-%d %H:%M}Z"


def revoke_token(arguments: argparse.Namespace) -> int:
    with opened(arguments) as inventory:
        token = inventory.tokens.revoke(arguments.id, now())
    if token is None:
        raise SettingsError(
            f"no token that is not revoked has the id {arguments.id!r} (fabricscope token list)"
        )
    print(
        f"token {token.id} ({token.name}) is revoked: services know it within "
        f"{TOKENS_FRESH_SECONDS:g} seconds"
    )
    return 0
