"""What a program that measures between two hosts has found."""

from __future__ import annotations

import msgspec


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One size. Bits a second; seconds, one way."""

    bytes: int
    bits_per_second: float | None = None
    sent_again: int | None = None
    """Segments of TCP; None: not counted."""
    seconds_typical: float | None = None
    seconds_99: float | None = None
    """99 of 100 messages took no longer."""
