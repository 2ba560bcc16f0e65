"""Moments in parameters and answers: RFC 3339 or unix seconds."""

from __future__ import annotations

import datetime as dt

from api.base.errors import Problem
from collector.contract.units import NS

TIME_MS_MAX = 253_402_300_799_000
"""The end of the year 9999: the last moment that has a date."""


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def parse_time_ms(text: str, name: str) -> int:
    """The moment in unix milliseconds; raises a Problem that names the parameter.

    >>> parse_time_ms("1700000000.5", "from"), parse_time_ms("2023-11-14T22:13:20Z", "from")
    (1700000000500, 1700000000000)
    """
    time_ms = read_time_ms(text)
    if time_ms is None or time_ms < 0:
        raise refuse(text, name)
    return time_ms


def parse_moment(text: str | None, name: str) -> dt.datetime | None:
    return dt.datetime.fromtimestamp(parse_time_ms(text, name) / 1000, dt.UTC) if text else None


def read_time_ms(text: str) -> int | None:
    """The moment in unix milliseconds; None if it is no time, or further away than the year 9999.

    >>> read_time_ms("-1.5"), read_time_ms("1969-12-31T23:59:59Z"), read_time_ms("now")
    (-1500, -1000, None)
    """
    try:
        milliseconds = float(text) * 1000
    except ValueError:
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            return None
        milliseconds = (moment - _EPOCH) // dt.timedelta(milliseconds=1)
    # NaN is in no range.
    return round(milliseconds) if -TIME_MS_MAX <= milliseconds <= TIME_MS_MAX else None


def rfc3339(time_ns: int, decimals: int | None = None) -> str:
    """A moment in UTC, with so many decimals; None: as many as it needs, as Go writes it.

    >>> rfc3339(1_700_000_000_000_000_000), rfc3339(1_700_000_000_120_000_000)
    ('2023-11-14T22:13:20Z', '2023-11-14T22:13:20.12Z')
    >>> rfc3339(1_700_000_000_500_000_000, 3)
    '2023-11-14T22:13:20.500Z'
    """
    seconds, rest = divmod(time_ns, NS)
    fraction = f".{rest:09d}"
    shown = fraction.rstrip("0.") if decimals is None else fraction[: decimals + 1]
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%S}{shown}Z"


def refuse(text: str, name: str) -> Problem:
    return Problem(
        400,
        "not a time",
        f"{name}={text[:64]!r}: write unix seconds (1700000000.5) or RFC 3339 with a zone "
        "(2023-11-14T22:13:20Z; in a URL, + is written %2B)",
    )


def parse_range_ms(
    begin: str | None,
    end: str | None,
    now_ms: int,
    default_ms: int,
    last_ms: int = TIME_MS_MAX,
) -> tuple[int, int]:
    """By default the last ``default_ms`` milliseconds. Raises Problem if it is empty.

    What lies behind ``last_ms`` is cut off: there is nothing.

    >>> parse_range_ms("0", "9999-12-31T23:59:59Z", 0, 0, last_ms=5_000)
    (0, 5000)
    """
    to_ms = parse_time_ms(end, "to") if end else now_ms
    begin_ms = parse_time_ms(begin, "from") if begin else None
    if begin_ms is not None and begin_ms > to_ms:
        raise Problem(400, "empty range", f"from ({begin_ms} ms) is after to ({to_ms} ms)")
    to_ms = min(to_ms, last_ms)
    from_ms = max(0, to_ms - default_ms) if begin_ms is None else min(begin_ms, last_ms)
    return from_ms, to_ms
