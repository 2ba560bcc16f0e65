"""`/v1/jobs`: register and change jobs, and read them and their ranks."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from api.base.errors import Problem
from api.base.limits import JOB_COMMUNICATORS_SHOWN_MAX, PAGE_DEFAULT
from api.data.inventory.jobs import JobConflictError
from api.data.inventory.records import Job, JobChange, JobOrigin, JobSaid, JobState
from api.http.context import Context, Parts
from api.http.routes.shared.answers import body_of
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.find import FoundJob, find_job
from api.http.routes.shared.paging import After, Limit, Page
from api.jobs.registration import read_change, read_job

router = APIRouter(tags=["jobs"])


class JobOut(BaseModel):
    """A training job. Times are the service's; `origin` is the first source of the job."""

    id: str
    name: str | None
    user: str | None
    scheduler: str | None
    cluster: str | None
    origin: JobOrigin
    state: JobState
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    ranks: int | None = Field(description="How many ranks it has, as far as is known.")
    attributes: dict[str, str]
    first_seen: dt.datetime
    last_seen: dt.datetime

    @classmethod
    def of(cls, job: Job) -> JobOut:
        return cls(**fields_of(job))


class CommunicatorOut(BaseModel):
    """A communicator of a job."""

    communicator: str
    name: str | None
    ranks: int | None
    nodes: int | None
    rings: list[list[int]] = Field(description="For each channel, the ranks in ring order.")
    trees: list[dict[str, int | None]] = Field(
        description="For each channel, each rank's parent; null for the root."
    )
    is_in_network: bool = Field(
        description="Switches of the network add up for it (CollNet, SHARP)."
    )
    first_seen: dt.datetime
    last_seen: dt.datetime


class JobDetail(JobOut):
    """A job with its hosts, groups and communicators."""

    hosts: list[str]
    groups: dict[str, list[list[int]]] = Field(
        description="Parallelism groups, if they were registered."
    )
    ranks_known: int = Field(description="Ranks of which it is known where they run.")
    communicator_count: int
    communicators: list[CommunicatorOut] = Field(
        description=f"The first {JOB_COMMUNICATORS_SHOWN_MAX} by name."
    )


class RankOut(BaseModel):
    """A rank of a job: its host, GPU, NIC and port."""

    rank: int
    host: str | None
    pid: int | None
    gpu: str | None
    gpu_uuid: str | None
    device: str | None = Field(description="The NIC that it uses first.")
    devices: str | None = Field(description="All NICs that it uses, joined by commas.")
    port: str | None
    local_rank: int | None
    origins: dict[str, str] = Field(
        description="Source of each fact: registered, nccl, scheduler, records, pci or inferred."
    )


def fields_of(job: Job) -> dict[str, Any]:
    fields = msgspec.structs.asdict(job)
    hidden = {"job", "alias_of", "revision"}
    return {"id": job.job, **{name: value for name, value in fields.items() if name not in hidden}}


@router.post(
    "/v1/jobs",
    summary="Register a job",
    status_code=201,
    response_model=JobOut,
    responses={
        200: {"model": JobOut, "description": "It was registered so before."},
        409: {"description": "It was registered with other values; the answer names them."},
    },
    openapi_extra=body_of(JobSaid),
)
async def register(request: Request, response: Response, parts: Parts) -> JobOut:
    """Register a job, where its ranks run and how they are grouped.

    Only `id` is needed. The rest is inferred, as far as records allow. The same request again
    changes nothing and answers 200; something else answers 409, and `PATCH` changes it.
    """
    job = await asyncio.to_thread(read_job, await receive(request, parts))
    try:
        is_new = await asyncio.to_thread(parts.inventory.jobs.register, job, parts.now())
    except JobConflictError as error:
        raise Problem(409, "registered otherwise", str(error)) from error
    found = await asyncio.to_thread(parts.inventory.jobs.get, job.id)
    if found is None:
        raise Problem(409, "gone", f"job {job.id!r} was removed meanwhile")
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{quote(job.id, safe='')}"
    return JobOut.of(found)


@router.patch("/v1/jobs/{job}", summary="Change a job", openapi_extra=body_of(JobChange))
async def change(job: FoundJob, request: Request, parts: Parts) -> JobOut:
    """Change what is given: name, state or end, ranks, hosts, groups, attributes.

    Attributes are merged, and one that is null goes. Ranks and hosts are added or changed. Groups
    replace those before.
    """
    wanted = await asyncio.to_thread(read_change, await receive(request, parts))
    await asyncio.to_thread(parts.inventory.jobs.change, job.job, wanted, parts.now())
    return JobOut.of(await find_job(job.job, request, parts))


@router.get("/v1/jobs", summary="Jobs, by name")
async def jobs(
    parts: Parts,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    host: Annotated[str | None, Query(description="Only those on this host.")] = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Page[JobOut]:
    """Every job that was registered, sighted at a scheduler, or inferred; no aliases."""
    found = await asyncio.to_thread(parts.inventory.jobs.page, state, host, after, limit)
    items = [JobOut.of(job) for job in found]
    return Page(items=items, next=items[-1].id if len(items) == limit else None)


@router.get("/v1/jobs/{job}", summary="One job with its communicators")
async def job(job: FoundJob, parts: Parts) -> JobDetail:
    """One job; 404 if it is not known, 308 if it turned out to be another."""
    return await asyncio.to_thread(detail_of, parts, job)


def detail_of(parts: Context, job: Job) -> JobDetail:
    inventory = parts.inventory
    communicators = inventory.jobs.communicators(job.job, JOB_COMMUNICATORS_SHOWN_MAX)
    return JobDetail(
        **fields_of(job),
        hosts=inventory.jobs.hosts(job.job),
        groups=inventory.jobs.groups(job.job),
        ranks_known=inventory.jobs.count_ranks(job.job),
        communicator_count=inventory.jobs.count_communicators(job.job),
        communicators=[CommunicatorOut(**msgspec.structs.asdict(one)) for one in communicators],
    )


@router.get("/v1/jobs/{job}/ranks", summary="Where a job's ranks run")
async def ranks(
    job: FoundJob,
    parts: Parts,
    limit: Limit = PAGE_DEFAULT,
    after: Annotated[
        int | None, Query(ge=0, lt=1 << 31, description="`next` of the page before.")
    ] = None,
) -> Page[RankOut]:
    """The job's ranks in order, each with host, GPU, NIC and port, and the source of each."""
    places = await asyncio.to_thread(parts.inventory.jobs.ranks, job.job, after, limit)
    items = [RankOut(**msgspec.structs.asdict(place)) for place in places]
    return Page(items=items, next=str(items[-1].rank) if len(items) == limit else None)
