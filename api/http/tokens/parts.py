"""Wiring of tokens; refuses to start without any where other machines can connect."""

from __future__ import annotations

from collections.abc import Callable

from api.data.inventory.tokens import TokenTables
from api.http.tokens.book import TokenBook
from collector.contract.errors import SettingsError


def make_book(
    tokens: TokenTables, clock: Callable[[], float], *, file: str, need: str
) -> TokenBook:
    """``need``: why a request needs a token; empty: it does not. SettingsError if there is none."""
    book = TokenBook(tokens, clock, file=file)
    book.load()
    if need and book.is_empty():
        raise SettingsError(
            f"{need}, and there is no token: make one (fabricscope token create NAME "
            "--scope admin), or set token_file, or listen on 127.0.0.1"
        )
    return book
