"""Moments in parameters: RFC 3339 or unix seconds."""

from __future__ import annotations

import datetime as dt
import math

from api.errors import Problem

TIME_MS_MAX = 253_402_300_799_000
"""The end of the year 9999: the last moment that has a date."""


def parse_time_ms(text: str, name: str) -> int:
    """The moment in unix milliseconds; a Problem says what is wrong with the parameter.

    >>> parse_time_ms("1700000000.5", "from"), parse_time_ms("2023-11-14T22:13:20Z", "from")
    (1700000000500, 1700000000000)
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError as error:
            raise refuse(text, name) from error
        if moment.tzinfo is None:
            raise refuse(text, name) from None
        seconds = moment.timestamp()
    if not math.isfinite(seconds) or not 0 <= seconds * 1000 <= TIME_MS_MAX:
        raise refuse(text, name)
    return round(seconds * 1000)


def refuse(text: str, name: str) -> Problem:
    """The answer to a parameter that is no moment."""
    return Problem(
        400,
        "not a time",
        f"{name}={text[:64]!r}: write unix seconds (1700000000.5) or RFC 3339 with a zone "
        "(2023-11-14T22:13:20Z; in a URL, + is written %2B)",
    )
