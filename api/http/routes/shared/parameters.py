"""Parameters that several routes take: names, moments, stretches of time."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from fastapi import Query

from api.base.errors import Problem
from api.base.limits import NAME_CHARS_MAX
from api.base.times import parse_range_ms
from api.data.inventory.records import Job, JobState
from api.data.selectors import STORE_MS_MAX
from api.http.context import Context
from api.http.turns import ANSWER_KEPT_SECONDS
from collector.contract.units import NS_PER_MS
from collector.contract.verdict import Cause

CauseAsked = Annotated[Cause | None, Query(description="Only this cause.")]
Name = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
At = Annotated[
    str | None, Query(description="RFC 3339 or unix seconds: as it was cabled then. Empty: now.")
]
RANK_MAX = (1 << 31) - 1
From = Annotated[
    str | None,
    Query(alias="from", description="RFC 3339 or unix seconds; five minutes before `to`."),
]
To = Annotated[
    str | None,
    Query(description="RFC 3339 or unix seconds; now, or the end of a job that has ended."),
]
FromDay = Annotated[
    str | None, Query(alias="from", description="RFC 3339 or unix seconds; a day before `to`.")
]
DAY_MS = 24 * 3_600_000
"""Without `from`, the last day: what an operator wants to see in the morning."""
ToNow = Annotated[str | None, Query(description="RFC 3339 or unix seconds; now.")]
OfHost = Annotated[str | None, Query(description="Only this host's.")]
OfDevice = Annotated[str | None, Query(description="Only this device's.")]
OfPort = Annotated[str | None, Query(description="Only this port's.")]
Rank = Annotated[int | None, Query(ge=0, le=RANK_MAX)]
RANGE_MS_DEFAULT = 300_000
"""Without `from`, the last five minutes."""


def shared_now_ms(parts: Context) -> int:
    """Now, as all who ask within the same seconds see it: their questions are the same."""
    kept_ms = round(ANSWER_KEPT_SECONDS * 1000)
    return round(parts.clock() * 1000) // kept_ms * kept_ms


def range_of(
    parts: Context, job: Job, begin: str | None, end: str | None, now_ms: int | None = None
) -> tuple[int, int]:
    now_ms = round(parts.clock() * 1000) if now_ms is None else now_ms
    if job.state is JobState.ENDED:
        ended = max(job.last_seen, job.ended_at or job.last_seen)
        now_ms = min(now_ms, round(ended.timestamp() * 1000) + 1)
    return parse_range_ms(begin, end, now_ms, RANGE_MS_DEFAULT, STORE_MS_MAX)


def span_of(parts: Context, job: Job, begin: str | None, end: str | None) -> tuple[int, int]:
    """The same in unix nanoseconds, and where it ends now, as `shared_now_ms` has it."""
    from_ms, to_ms = range_of(parts, job, begin, end, shared_now_ms(parts))
    return from_ms * NS_PER_MS, to_ms * NS_PER_MS


def range_to_now(
    parts: Context,
    begin: str | None,
    end: str | None,
    default_ms: int = RANGE_MS_DEFAULT,
    *,
    is_shared: bool = False,
) -> tuple[int, int]:
    """``is_shared``: now is as `shared_now_ms` has it."""
    now_ms = shared_now_ms(parts) if is_shared else round(parts.clock() * 1000)
    return parse_range_ms(begin, end, now_ms, default_ms, STORE_MS_MAX)


def refuse_far_future(time_ms: int, name: str) -> None:
    """A Problem if the store cannot name this moment; nanoseconds end only a little later."""
    if time_ms > STORE_MS_MAX:
        raise Problem(400, "too late", f"{name} is after {STORE_MS_MAX} ms, where the store ends")


def moment_of(time_ns: int) -> str:
    return dt.datetime.fromtimestamp(time_ns / 1e9, tz=dt.UTC).isoformat()
