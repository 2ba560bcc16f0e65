"""Running jobs as what-if sees them, from store and inventory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from api.base.compare_limits import WHAT_IF_JOBS_MAX
from api.data.inventory.records import Job
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fleet.what_if.model import JobSeen
from api.jobs.correlate.pattern import read_rhythm
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.traffic import find_records, read_traffic
from api.jobs.correlate.windows import read_communicators, to_rank
from collector.contract.units import NS


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The running jobs that can be looked at, and the rest."""

    seen: list[JobSeen]
    unknown: list[str]
    left_out: int


def read_running(
    store: Store, inventory: Inventory, span_ns: tuple[int, int], first: Sequence[str]
) -> Running:
    """The jobs in ``first`` and the largest others."""
    running = [job for job in inventory.jobs.running() if job.alias_of is None]
    running.sort(key=lambda job: (job.job not in first, -(job.ranks or 0), job.job))
    seen: list[JobSeen] = []
    unknown: list[str] = []
    for job in running[:WHAT_IF_JOBS_MAX]:
        one = read_job(store, inventory, job, span_ns)
        if isinstance(one, str):
            unknown.append(f"{job.job}: {one}; what it sends is left out for the others, too")
        else:
            seen.append(one)
    return Running(seen=seen, unknown=unknown, left_out=max(0, len(running) - WHAT_IF_JOBS_MAX))


def read_job(
    store: Store, inventory: Inventory, job: Job, span_ns: tuple[int, int]
) -> JobSeen | str:
    """What is known of a job, or why nothing can be told of it."""
    from_ns, to_ns = span_ns
    from_ns = max(from_ns, round(job.first_seen.timestamp() * NS))
    to_ns = max(min(to_ns, round(job.last_seen.timestamp() * NS)), from_ns + 1)
    job_rank = job_ranks_of(inventory, job.job)
    ranks = {place.rank: to_rank(place) for place in inventory.jobs.ranks(job.job)}
    if not any(rank.devices for rank in ranks.values()):
        return "the NICs of its ranks are not known"
    found = find_records(store, job_rank, from_ns, to_ns)
    read = read_traffic(store, found)
    if not read.seen:
        return "no collective of it was recorded in this time"
    rhythm, _, _ = read_rhythm(store, job_rank, ranks, found, (from_ns, to_ns))
    period = rhythm.period_ns
    return JobSeen(
        job=job.job,
        title=job.name or job.job,
        ranks=ranks,
        communicators=read_communicators(inventory, job.job, job_rank, ranks),
        sums=read.sums,
        messages=read.messages,
        seconds=(to_ns - from_ns) / NS,
        step_seconds=period / NS if period is not None and period > 0 else None,
    )
