"""`/v1/jobs/{job}/collectives` and `/steps`: the raw records of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from api.base.limits import PAGE_DEFAULT, RECORDS_PAGE_MAX
from api.base.positions import encode_position
from api.http.context import Context, Parts
from api.http.routes.shared.exports import MEDIA_TYPES, ExportFormat, negotiate, stream
from api.http.routes.shared.find import FoundJob
from api.http.routes.shared.paging import After, Page
from api.http.routes.shared.parameters import From, Rank, To, range_of
from api.jobs.records import (
    Question,
    collectives_of,
    decode_position,
    encode_arrow,
    encode_csv,
    encode_ndjson,
    encode_parquet,
    key_of,
    steps_of,
)
from collector.contract.collective import Operation

router = APIRouter(tags=["jobs"])


RecordLimit = Annotated[int, Query(ge=1, le=RECORDS_PAGE_MAX, description="Records of one page.")]


class CollectiveOut(BaseModel):
    """What one rank did in one collective operation; null is what was not observed.

    Times are unix nanoseconds by the clock of the rank's host.
    """

    communicator: str
    operation: str
    sequence: int
    rank: int = Field(description="Within the communicator.")
    job_rank: int | None = Field(description="Within the job, if it is known.")
    ranks: int
    source: str
    host: str
    pid: int
    time_ns: int
    entry_ns: int | None
    exit_ns: int | None
    enqueue_ns: int | None
    duration_ns: int | None
    size_bytes: int | None
    peer: int | None
    algorithm: str
    protocol: str
    timing: str
    state: str


class StepOut(BaseModel):
    """A stretch of one step of one rank; the whole step if `phase` is empty."""

    step: int
    rank: int | None = Field(description="Within the job, if it is known.")
    phase: str
    start_ns: int
    end_ns: int
    source: str
    host: str
    pid: int


ENCODERS = {
    ExportFormat.NDJSON: encode_ndjson,
    ExportFormat.CSV: encode_csv,
    ExportFormat.ARROW: encode_arrow,
    ExportFormat.PARQUET: encode_parquet,
}
"""Of answers that are not in pages."""


Format = Annotated[ExportFormat | None, Query(alias="format")]
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {media: {} for media in MEDIA_TYPES.values()}}
}


async def answer_stream(
    parts: Context,
    question: Question,
    chosen: ExportFormat,
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> Response:
    tables = map(change, await asyncio.to_thread(question.tables, parts.store))
    encode = ENCODERS[chosen]
    return StreamingResponse(stream(encode(tables)), media_type=MEDIA_TYPES[chosen])


@router.get(
    "/v1/jobs/{job}/collectives",
    summary="A job's collectives, one record a rank",
    response_model=Page[CollectiveOut],
    responses=STREAMED,
)
async def collectives(  # noqa: PLR0913, PLR0917 - the question's parameters
    job: FoundJob,
    request: Request,
    parts: Parts,
    from_: From = None,
    to: To = None,
    communicator: Annotated[str | None, Query(description="Only this one's.")] = None,
    operation: Annotated[Operation | None, Query(description="Only these.")] = None,
    rank: Rank = None,
    limit: RecordLimit = PAGE_DEFAULT,
    after: After = None,
    format_: Format = None,
) -> Page[CollectiveOut] | Response:
    """Records by communicator, operation, sequence and rank (within the communicator).

    JSON comes in pages; NDJSON and CSV are one record a line, Arrow one stream, Parquet one file,
    all whole.
    """
    from_ms, to_ms = range_of(parts, job, from_, to)
    question = await asyncio.to_thread(
        lambda: collectives_of(
            parts.inventory,
            job.job,
            from_ms,
            to_ms,
            communicator=communicator,
            operation=operation,
            rank=rank,
        )
    )
    chosen = format_ or negotiate(request.headers.get("accept", ""))
    if chosen is not ExportFormat.JSON:
        return await answer_stream(parts, question, chosen)
    position = decode_position(question.table, after) if after else None
    rows = await asyncio.to_thread(question.page, parts.store, position, limit)
    names = sorted({row["communicator"] for row in rows})
    members = await asyncio.to_thread(parts.inventory.jobs.members, job.job, names)
    known = {(member.communicator, member.rank): member.job_rank for member in members}
    items = [
        CollectiveOut(**row, job_rank=known.get((row["communicator"], row["rank"]))) for row in rows
    ]
    following = encode_position(key_of(question.table, rows[-1])) if len(rows) == limit else None
    return Page(items=items, next=following)


@router.get(
    "/v1/jobs/{job}/steps",
    summary="A job's training steps and their phases",
    response_model=Page[StepOut],
    responses=STREAMED,
)
async def steps(  # noqa: PLR0913, PLR0917 - the question's parameters
    job: FoundJob,
    request: Request,
    parts: Parts,
    from_: From = None,
    to: To = None,
    rank: Rank = None,
    phase: Annotated[
        str | None, Query(description="Only this phase; empty for whole steps.")
    ] = None,
    limit: RecordLimit = PAGE_DEFAULT,
    after: After = None,
    format_: Format = None,
) -> Page[StepOut] | Response:
    """Stretches by step, rank and phase; `rank` is the rank within the job.

    JSON comes in pages; NDJSON and CSV are one record a line, Arrow one stream, Parquet one file,
    all whole.
    """
    from_ms, to_ms = range_of(parts, job, from_, to)
    processes = await asyncio.to_thread(processes_of, parts, job.job)
    question = steps_of(job.job, processes, from_ms, to_ms, rank=rank, phase=phase)
    chosen = format_ or negotiate(request.headers.get("accept", ""))
    if chosen is not ExportFormat.JSON:
        return await answer_stream(parts, question, chosen, partial(with_ranks, processes))
    position = decode_position(question.table, after) if after else None
    rows = await asyncio.to_thread(question.page, parts.store, position, limit)
    items = [StepOut(**{**row, "rank": rank_of(row, processes)}) for row in rows]
    following = encode_position(key_of(question.table, rows[-1])) if len(rows) == limit else None
    return Page(items=items, next=following)


def processes_of(parts: Context, job: str) -> dict[tuple[str, int], int]:
    """A job's ranks by host and process, of processes with exactly one rank."""
    found: dict[tuple[str, int], int] = {}
    several: set[tuple[str, int]] = set()
    for place in parts.inventory.jobs.ranks(job):
        if place.host is None or place.pid is None:
            continue
        process = place.host, place.pid
        if process in found:
            several.add(process)
        found[process] = place.rank
    return {process: rank for process, rank in found.items() if process not in several}


def with_ranks(processes: Mapping[tuple[str, int], int], rows: pa.Table) -> pa.Table:
    """A piece of the steps as `StepOut` has them: null for a rank that is not known."""
    names = list(StepOut.model_fields)
    known = [rank_of(row, processes) for row in rows.select(["rank", "host", "pid"]).to_pylist()]
    place = rows.schema.get_field_index("rank")
    return rows.set_column(place, "rank", pa.array(known, pa.int32())).select(names)


def rank_of(
    row: Mapping[str, int | str], processes: Mapping[tuple[str, int], int]
) -> int | str | None:
    if row["rank"] != -1:
        return row["rank"]
    return processes.get((str(row["host"]), int(row["pid"])))
