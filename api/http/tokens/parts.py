"""Wiring of tokens; refuses to start without any where other machines can connect."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from api.base.passes import Passes
from api.data.inventory.keys import PASS_KEY, KeyTables
from api.data.inventory.tokens import TokenTables
from api.http.tokens.book import TokenBook
from collector.contract.errors import SettingsError


def make_passes(keys: KeyTables, clock: Callable[[], float], *, need: str) -> Passes | None:
    """What signs the links of notices; None where a request needs no token, nor a link a pass."""
    if not need:
        return None
    return Passes(keys.get(PASS_KEY, dt.datetime.fromtimestamp(clock(), tz=dt.UTC)), clock)


def make_book(
    tokens: TokenTables,
    clock: Callable[[], float],
    file: str,
    need: str,
    passes: Passes | None = None,
) -> TokenBook:
    """``need``: why a request needs a token; empty: it does not. SettingsError if there is none."""
    book = TokenBook(tokens, clock, file=file, passes=passes)
    book.load()
    if need and book.is_empty():
        raise no_token(need)
    return book


def no_token(need: str) -> SettingsError:
    """What a service says that nobody could ask."""
    return SettingsError(
        f"{need}, and there is no token: make one (fabricscope token create NAME "
        "--scope admin), or set token_file, or listen on 127.0.0.1"
    )
