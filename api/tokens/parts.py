"""Tokens put together for the service: the refusal to start without any where others can reach."""

from __future__ import annotations

from collections.abc import Callable

from api.inventory.tokens import TokenStock
from api.settings import ServiceSettings
from api.tokens.book import TokenBook
from collector.contract.errors import SettingsError


def make_book(
    settings: ServiceSettings, stock: TokenStock, clock: Callable[[], float]
) -> TokenBook:
    """The tokens that are known; SettingsError if one must be shown and there is none."""
    book = TokenBook(stock, clock, file=settings.token_file)
    book.load()
    if settings.asks_for_tokens and book.is_empty():
        why = (
            "require_tokens is set"
            if settings.is_loopback
            else f"listen is {settings.listen}, which others can reach"
        )
        raise SettingsError(
            f"{why}, and there is no token: make one (fabricscope token create NAME "
            "--scope admin), or set token_file, or listen on 127.0.0.1"
        )
    return book
