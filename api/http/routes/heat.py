"""`GET /v1/jobs/{job}/heat`: ranks times steps as one matrix; `…/heat/cell`: a cell's data."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.base.errors import Problem
from api.base.limits import (
    CELL_SECONDS_MAX,
    HEAT_RANKS_MAX,
    HEAT_STEPS_MAX,
    HEATS_WAITING_MAX,
)
from api.data.inventory.job_model import JobRank
from api.http.context import Context, Parts
from api.http.routes.shared.answers import BUSY, answer, copied, documented
from api.http.routes.shared.find import FoundJob
from api.http.routes.shared.looks import look_once
from api.http.routes.shared.matrices import PackedMatrixOut, pack_floats
from api.http.routes.shared.parameters import (
    RANK_MAX,
    From,
    To,
    moment_of,
    refuse_far_future,
    span_of,
)
from api.http.routes.shared.topologies import find
from api.http.turns import refusals_counted
from api.jobs.correlate.heat import HeatMap, Quantity, heat_of
from api.jobs.correlate.pieces import Pieced
from api.jobs.correlate.window import JobWork
from api.oncall.explain.cell import Cell, CellReader
from collector.contract.units import NS, NS_PER_MS

router = APIRouter(tags=["jobs"])

TIME_NS_MAX = (1 << 63) - 1
HEAT = "heat"

TimeNs = Annotated[
    int, Query(ge=0, le=TIME_NS_MAX, description="Unix nanoseconds, as the heat map has them.")
]


class HeatRankOut(BaseModel):
    """A row: a rank and where it runs, as far as it is known."""

    rank: int
    host: str | None
    gpu: str | None
    device: str | None = Field(description="The NIC that it uses first.")


class HeatStepOut(BaseModel):
    """A column: a step, or the first of some; times are medians over ranks."""

    number: int = Field(description="Counted from the first step of the range.")
    start_ns: int
    end_ns: int


class HeatOut(BaseModel):
    """Ranks times steps. Where no steps are detected, there are no columns."""

    job: str
    source: str = Field(description="Whose records were used.")
    quantity: Quantity
    unit: str
    ranks: list[HeatRankOut]
    ranks_left_out: int = Field(
        description="Ranks without a row: those that stand out least, or, where records were "
        "thinned and `quantity` is not `late`, those whose records were not looked at."
    )
    steps: list[HeatStepOut]
    steps_in_one: int = Field(
        description="Steps that a column stands for; its cells show the largest value of them."
    )
    kept_one_in: int = Field(
        description="Of so many operations one was looked at, where `quantity` is `late`."
    )
    values: PackedMatrixOut = Field(
        description="A row for each of `ranks`, a column for each of `steps`."
    )


@router.get("/v1/jobs/{job}/heat", summary="Ranks times steps, as one matrix", responses=BUSY)
async def heat(
    job: FoundJob,
    parts: Parts,
    from_: From = None,
    to: To = None,
    quantity: Annotated[
        Quantity,
        Query(
            description="`late`: how much later than the median rank it entered, the worst of the "
            "step's collectives; `compute`: outside of collectives; `wait`: inside, until the last "
            "rank came; `network`: inside, after that; `step`: all of it. Seconds."
        ),
    ] = Quantity.LATE,
) -> HeatOut:
    """What each rank did in each step; all times are on one clock.

    The first and the last step of the range, which may be cut off, are left out.
    """
    span = span_of(parts, job, from_, to)
    with refusals_counted(parts.metrics, HEAT):
        rule, most = "HEATS_WAITING_MAX", HEATS_WAITING_MAX
        return await parts.queues.heats.take_after(
            lambda: look_once(
                parts, job.job, span, rule, most, spent=quantity is not Quantity.LATE
            ),
            lambda looked: make_heat(parts, job.job, looked, quantity),
            rule,
            most,
            key=(job.job, span, quantity),
        )


def make_heat(parts: Context, job: str, looked: JobWork | Pieced, quantity: Quantity) -> HeatOut:
    if isinstance(looked, Pieced):
        made = looked.heat(quantity, steps_max=HEAT_STEPS_MAX, ranks_max=HEAT_RANKS_MAX)
    else:
        made = heat_of(looked, quantity, steps_max=HEAT_STEPS_MAX, ranks_max=HEAT_RANKS_MAX)
    window = looked if isinstance(looked, Pieced) else looked.window
    drawn = nothing() if made is None else made
    places = {place.rank: place for place in parts.inventory.jobs.ranks(job)}
    rows = [
        copied(HeatRankOut, places.get(rank, JobRank(rank=rank))) for rank in drawn.ranks.tolist()
    ]
    columns = (drawn.number, drawn.start_ns, drawn.end_ns)
    return HeatOut(
        job=job,
        source=window.source,
        quantity=quantity,
        unit="seconds",
        ranks=rows,
        ranks_left_out=max(0, len(set(looked.job_rank.values())) - len(rows)) if rows else 0,
        steps=[
            HeatStepOut(number=number, start_ns=start_ns, end_ns=end_ns)
            for number, start_ns, end_ns in zip(*(each.tolist() for each in columns), strict=True)
        ],
        steps_in_one=drawn.steps_in_one,
        kept_one_in=window.kept_one_in if quantity is Quantity.LATE else 1,
        values=pack_floats(drawn.values),
    )


def nothing() -> HeatMap:
    none = np.zeros(0, dtype=np.int64)
    return HeatMap(ranks=none, number=none, start_ns=none, end_ns=none, values=np.zeros((0, 0)))


@router.get(
    "/v1/jobs/{job}/heat/cell",
    summary="Why a cell of the heat map is as it is",
    **documented(
        Cell, "What the rank did, which ranks it waited for, and its readings.", others=BUSY
    ),
)
async def cell(
    job: FoundJob,
    parts: Parts,
    rank: Annotated[int, Query(ge=0, le=RANK_MAX, description="The job's rank.")],
    start_ns: TimeNs,
    end_ns: TimeNs,
) -> Response:
    """A rank in a column's time: its collectives, its time, its GPU, NICs and switch ports."""
    reader = CellReader(parts.store, parts.inventory)
    with refusals_counted(parts.metrics, HEAT):
        refuse_odd_span(start_ns, end_ns)
        built = await find(parts, moment_of(end_ns))
        made = await parts.queues.heats.take(
            lambda: reader.read(job.job, rank, (start_ns, end_ns), built.topology),
            "HEATS_WAITING_MAX",
            HEATS_WAITING_MAX,
        )
    if made is None:
        raise Problem(404, "no such rank", f"job {job.job!r} has no rank {rank} that is known")
    return answer(made)


def refuse_odd_span(start_ns: int, end_ns: int) -> None:
    """A Problem if the cell's time is empty, too long, or after all times."""
    refuse_far_future(end_ns // NS_PER_MS, "end_ns")
    if end_ns <= start_ns:
        raise Problem(400, "empty range", f"start_ns={start_ns} is not before end_ns={end_ns}")
    if end_ns - start_ns > CELL_SECONDS_MAX * NS:
        why = f"{(end_ns - start_ns) / NS:.0f} s, over CELL_SECONDS_MAX = {CELL_SECONDS_MAX}"
        raise Problem(422, "too long", why, rule="CELL_SECONDS_MAX")
