"""A job's collectives in a stretch of time, for answers that show them in different ways.

Who looks at a job's page asks for its heat map and its timeline at once. Both need the same
records on one clock, and to read and align these is most of their work: it is done once for all.
"""

from __future__ import annotations

from api.base.limits import LOOK_RECORDS_MAX
from api.http.context import Context
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.window import JobWork, look


async def look_once(
    parts: Context, job: str, span: tuple[int, int], rule: str, waiting_max: int
) -> JobWork:
    """Read for this answer, or with another that asks about the same time."""
    return await parts.queues.looks.take(
        lambda: look_at(parts, job, span), rule, waiting_max, key=(job, span)
    )


def look_at(parts: Context, job: str, span: tuple[int, int]) -> JobWork:
    job_rank = job_ranks_of(parts.inventory, job)
    window = look(parts.store, job_rank, *span, records_max=LOOK_RECORDS_MAX)
    return JobWork(window, job_rank)
