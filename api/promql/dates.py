"""Parts of dates, for `hour()`, `day_of_week()` and their like: from Unix times in seconds.

All in UTC and in the Gregorian calendar, without end in both directions, as Go counts. Parts of a
second are cut off (towards 1970). What does not fit into 64-bit seconds is the last second that
does, in the year 292,277,026,596, and so is anything before Go's first year; NaN is 1970. Go leaves
both to the processor; this is what it does on ARM, x86 takes NaN for the last second too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from api.promql.values import Floats, Ints

Dates = npt.NDArray[np.datetime64]

_LAST_SECOND = 2**63 - 1
_FIRST_SECOND = -9_223_372_028_715_321_600
"""Go's first second: 1 January of the year -292,277,022,399."""
_EPOCH_YEAR = 1970
_EPOCH_WEEKDAY = 4
"""1 January 1970 was a Thursday; Sunday is 0."""


def moments(seconds: Floats) -> Dates:
    known = np.where(np.isnan(seconds), 0.0, seconds)
    inside = (known < float(_LAST_SECOND)) & (known >= float(_FIRST_SECOND))
    whole = np.where(inside, known, 0.0).astype(np.int64)
    return np.where(inside, whole, _LAST_SECOND).astype("datetime64[s]")


def years(dates: Dates) -> Ints:
    return dates.astype("datetime64[Y]").astype(np.int64) + _EPOCH_YEAR


def months(dates: Dates) -> Ints:
    return dates.astype("datetime64[M]").astype(np.int64) % 12 + 1


def days_of_month(dates: Dates) -> Ints:
    return _days(dates) - _days(dates.astype("datetime64[M]")) + 1


def days_of_year(dates: Dates) -> Ints:
    return _days(dates) - _days(dates.astype("datetime64[Y]")) + 1


def days_of_week(dates: Dates) -> Ints:
    """The day of its week: 0 is Sunday."""
    return (_days(dates) + _EPOCH_WEEKDAY) % 7


def days_in_month(dates: Dates) -> Ints:
    month = dates.astype("datetime64[M]")
    following = (month.astype(np.int64) + 1).astype("datetime64[M]")
    return _days(following) - _days(month)


def hours(dates: Dates) -> Ints:
    return dates.astype("datetime64[h]").astype(np.int64) % 24


def minutes(dates: Dates) -> Ints:
    return dates.astype("datetime64[m]").astype(np.int64) % 60


def _days(dates: Dates) -> Ints:
    return dates.astype("datetime64[D]").astype(np.int64)


DATE_PARTS: Mapping[str, Callable[[Dates], Ints]] = {
    "day_of_month": days_of_month,
    "day_of_week": days_of_week,
    "day_of_year": days_of_year,
    "days_in_month": days_in_month,
    "hour": hours,
    "minute": minutes,
    "month": months,
    "year": years,
}
"""By the name of the PromQL function."""
