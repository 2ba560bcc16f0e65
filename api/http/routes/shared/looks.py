"""A job's collectives in a stretch of time, for answers that show them in different ways.

Who looks at a job's page asks for its heat map and its timeline at once. Both are put together from
the same pieces of time, which are kept (`api.jobs.correlate.pieces`); of a time that is too long
for that, both need the same records on one clock, which are read and aligned once for all.
"""

from __future__ import annotations

from api.base.limits import LOOK_RECORDS_MAX
from api.http.context import Context
from api.jobs.correlate.pieces import Pieced
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.window import JobWork, look


async def look_once(
    parts: Context,
    job: str,
    span: tuple[int, int],
    rule: str,
    waiting_max: int,
    *,
    spent: bool = False,
    stretch_ns: int | None = None,
    is_pieced: bool = True,
) -> JobWork | Pieced:
    """In pieces or as a whole; read for this answer, or with another that asks for the same.

    ``spent``: where ranks' time went is asked for, too. ``stretch_ns``: the timeline's stretches.
    ``is_pieced``: whether pieces can be used.
    """
    parts.ahead.note_look(job, spent=spent)
    if stretch_ns is not None:
        # Before its turn: who is looking at the same job now makes them along with the rest.
        parts.job_pieces.want(job, stretch_ns)

    def make() -> Pieced | None:
        job_rank = job_ranks_of(parts.inventory, job)
        return parts.job_pieces.look(job, job_rank, span, spent=spent, stretch_ns=stretch_ns)

    key = (job, span, spent, stretch_ns)
    if is_pieced:
        found = await parts.queues.pieces.take(make, rule, waiting_max, key=key)
        if found is not None:
            return found
    return await parts.queues.looks.take(
        lambda: look_at(parts, job, span), rule, waiting_max, key=(job, span)
    )


def look_at(parts: Context, job: str, span: tuple[int, int]) -> JobWork:
    job_rank = job_ranks_of(parts.inventory, job)
    window = look(parts.store, job_rank, *span, records_max=LOOK_RECORDS_MAX)
    return JobWork(window, job_rank)
