"""`GET /v1/jobs/{job}/timeline` and `…/operations`: a job's collectives over all ranks."""

from __future__ import annotations

import asyncio
import statistics
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from alerts.window.columns import Floats, Ints, Operations, Step
from api.base.errors import Problem
from api.base.limits import (
    PAGE_DEFAULT,
    TIMELINE_BUCKETS_DEFAULT,
    TIMELINE_BUCKETS_MAX,
    TIMELINE_CELLS_MAX,
    TIMELINES_WAITING_MAX,
)
from api.http.context import Context, Parts
from api.http.routes.shared.answers import BUSY, copied
from api.http.routes.shared.find import FoundJob
from api.http.routes.shared.looks import look_at, look_once
from api.http.routes.shared.paging import After, Limit
from api.http.routes.shared.parameters import From, To, span_of
from api.http.turns import refusals_counted
from api.jobs.correlate.piece import Buckets, make_buckets
from api.jobs.correlate.pieces import Pieced, even_stretches
from api.jobs.correlate.window import JobCollectives, JobWork
from collector.contract.records import ABSENT

router = APIRouter(tags=["jobs"])

TIMELINE = "timeline"
TIME_DIGITS_MAX = 20
"""Of a time in nanoseconds; more fit no 64-bit number."""


class ClockOut(BaseModel):
    """A host's clock against the others'."""

    host: str
    offset_ns: int = Field(description="How far it is ahead, in the middle of the time.")
    drift: float = Field(description="Seconds a second.")
    residual_ns: int = Field(description="How far that may be off.")
    bound_ns: int | None = Field(description="How far at most: no rank leaves before all came.")
    is_corrected: bool
    is_known: bool = Field(
        default=True, description="False: it cannot be compared; nothing is computed from it."
    )


class BucketOut(BaseModel):
    """A stretch of time: medians over its operations and steps."""

    start_ns: int
    end_ns: int
    operations: int
    skew_ns: int | None
    transfer_ns: int | None
    steps: int
    step_ns: int | None
    compute_ns: int | None
    wait_ns: int | None
    network_ns: int | None


class RankLateOut(BaseModel):
    """How late a rank was in each bucket; null where it was not seen."""

    rank: int
    late_ns: list[int | None]


class TimelineOut(BaseModel):
    """A job over time, thinned to the buckets that were asked for."""

    job: str
    source: str = Field(description="Whose records were used.")
    kept_one_in: int = Field(description="Of so many operations one was looked at.")
    buckets: list[BucketOut]
    ranks: list[RankLateOut]
    ranks_left_out: int = Field(description="Ranks without a row, to keep the answer small.")
    clocks: list[ClockOut]


class OperationOut(BaseModel):
    """A collective over its ranks. Ranks are those within the communicator."""

    communicator: str
    operation: str
    sequence: int
    size_bytes: int | None
    ranks: int
    ranks_seen: int
    first_entry_ns: int
    last_entry_ns: int
    first_exit_ns: int
    last_exit_ns: int
    skew_ns: int
    transfer_ns: int
    bus_bandwidth_bytes_per_second: float | None
    last_in: int
    least_inside: int


WHOLE_NUMBERS = [
    name for name, field in OperationOut.model_fields.items() if field.annotation is int
]


class OperationsOut(BaseModel):
    """Collectives by the time of their end."""

    items: list[OperationOut]
    kept_one_in: int
    next: str | None = Field(description="Pass it as `after` to get the next page.")


@router.get(
    "/v1/jobs/{job}/timeline",
    summary="A job over time: steps, waiting, transfer, ranks",
    responses=BUSY,
)
async def timeline(
    job: FoundJob,
    parts: Parts,
    from_: From = None,
    to: To = None,
    buckets: Annotated[
        int, Query(ge=1, le=TIMELINE_BUCKETS_MAX, description="Equal stretches of time.")
    ] = TIMELINE_BUCKETS_DEFAULT,
) -> TimelineOut:
    """Operations, steps and lateness in equal buckets; times are on one clock.

    Where half a minute has a whole number of them they begin at multiples of their length, up to
    one later than `from`, so that all who ask within one are answered alike.
    """
    stretch = span_of(parts, job, from_, to)
    even = even_stretches(stretch, buckets)
    stretch, length_ns = (stretch, None) if even is None else even
    with refusals_counted(parts.metrics, TIMELINE):
        rule, most = "TIMELINES_WAITING_MAX", TIMELINES_WAITING_MAX
        return await parts.queues.timelines.take_after(
            lambda: look_once(
                parts,
                job.job,
                stretch,
                rule,
                most,
                stretch_ns=length_ns,
                is_pieced=even is not None,
            ),
            lambda looked: make_timeline(job.job, looked, stretch, buckets),
            rule,
            most,
            key=(job.job, stretch, buckets),
        )


@router.get("/v1/jobs/{job}/operations", summary="A job's collectives, joined over ranks")
async def operations(
    job: FoundJob,
    parts: Parts,
    from_: From = None,
    to: To = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> OperationsOut:
    """Each collective with its skew (waiting for ranks) and its transfer (the network)."""
    stretch = span_of(parts, job, from_, to)
    return await asyncio.to_thread(list_operations, parts, job.job, stretch, limit, after)


def make_timeline(
    job: str, looked: JobWork | Pieced, stretch: tuple[int, int], buckets: int
) -> TimelineOut:
    """The timeline; ranks beyond TIMELINE_CELLS_MAX cells are left out, the latest are kept."""
    edges = stretch[0] + (stretch[1] - stretch[0]) * np.arange(buckets + 1) // buckets
    window: JobCollectives | Pieced
    if isinstance(looked, Pieced):
        window, clocks = looked, looked.clocks
        late = looked.buckets((stretch[1] - stretch[0]) // buckets)
    else:
        window, clocks = looked.window, looked.window.clocks[-1].clocks
        late = make_buckets(looked, edges)
    kept = worst_ranks(late.late_ns, max(1, TIMELINE_CELLS_MAX // buckets))
    return TimelineOut(
        job=job,
        source=window.source,
        kept_one_in=window.kept_one_in,
        buckets=show_buckets(late, looked.steps, edges),
        ranks=[
            RankLateOut(rank=rank, late_ns=whole_numbers(row))
            for rank, row in zip(late.ranks[kept].tolist(), late.late_ns[kept], strict=True)
        ],
        ranks_left_out=len(late.ranks) - len(kept),
        clocks=[copied(ClockOut, clock) for clock in clocks],
    )


def worst_ranks(late_ns: Floats, count: int) -> list[int]:
    """Rows of the map, in order of rank: all, or as many of the latest as may be shown."""
    if len(late_ns) <= count:
        return list(range(len(late_ns)))
    worst = np.nan_to_num(late_ns, nan=-np.inf).max(axis=1)
    return sorted(np.argsort(-worst, kind="stable")[:count].tolist())


def show_buckets(found: Buckets, steps: list[Step], edges: Ints) -> list[BucketOut]:
    """Medians over what ended in each bucket; None where nothing did."""
    step_ends = np.array([step.end_ns for step in steps], dtype=np.int64)
    cuts = np.searchsorted(step_ends, edges).tolist()
    skew, transfer = whole_numbers(found.skew_ns), whole_numbers(found.transfer_ns)
    ends = edges.tolist()
    shown = []
    for bucket, operations in enumerate(found.operations.tolist()):
        own = steps[cuts[bucket] : cuts[bucket + 1]]
        shown.append(
            BucketOut(
                start_ns=ends[bucket],
                end_ns=ends[bucket + 1],
                operations=operations,
                skew_ns=skew[bucket],
                transfer_ns=transfer[bucket],
                steps=len(own),
                step_ns=median([step.end_ns - step.start_ns for step in own]),
                compute_ns=median([step.compute_ns for step in own]),
                wait_ns=median([step.wait_ns for step in own]),
                network_ns=median([step.transfer_ns for step in own]),
            )
        )
    return shown


def whole_numbers(values: Floats) -> list[int | None]:
    """Rounded; None for NaN."""
    return [None if value != value else round(value) for value in values.tolist()]  # noqa: PLR0124


def median(values: list[int]) -> int | None:
    """The median; None of nothing."""
    return int(statistics.median(values)) if values else None


def list_operations(
    parts: Context, job: str, stretch: tuple[int, int], limit: int, after: str | None
) -> OperationsOut:
    window = look_at(parts, job, stretch).window
    joined = window.operations
    ends = joined.last_exit_ns
    order = np.lexsort((joined.sequence, joined.operation, joined.communicator, ends))
    first = int(np.searchsorted(ends[order], stretch[0]))
    if after is not None:
        first = place_after(joined.select(order), after)
    page: Operations = joined.select(order[first : first + limit])
    is_last = first + limit >= len(order)
    following = None if is_last else position_of(page, len(page) - 1)
    return OperationsOut(items=to_items(page), kept_one_in=window.kept_one_in, next=following)


def position_of(page: Operations, row: int) -> str:
    return (
        f"{page.last_exit_ns[row]}.{page.sequence[row]}."
        f"{page.operations[page.operation[row]]}.{page.communicators[page.communicator[row]]}"
    )


def place_after(ordered: Operations, after: str) -> int:
    """The row behind the operation that ``after`` names; the next by time if it has moved."""
    text = after.partition(".")[0]
    if not (text.isascii() and text.isdigit() and len(text) < TIME_DIGITS_MAX):
        raise Problem(400, "bad position", f"after is {after[:80]!r}; pass `next` as it was given")
    end_ns = int(text)
    low = int(np.searchsorted(ordered.last_exit_ns, end_ns, side="left"))
    high = int(np.searchsorted(ordered.last_exit_ns, end_ns, side="right"))
    places = [row for row in range(low, high) if position_of(ordered, row) == after]
    return places[0] + 1 if places else high


def to_items(page: Operations) -> list[OperationOut]:
    bandwidth = page.bus_bandwidth
    return [
        OperationOut(
            communicator=page.communicators[page.communicator[row]],
            operation=page.operations[page.operation[row]],
            size_bytes=None if page.size_bytes[row] == ABSENT else int(page.size_bytes[row]),
            bus_bandwidth_bytes_per_second=float(bandwidth[row]) if page.bus_bytes[row] else None,
            **{name: int(getattr(page, name)[row]) for name in WHOLE_NUMBERS},
        )
        for row in range(len(page))
    ]
