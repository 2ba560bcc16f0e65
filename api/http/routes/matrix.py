"""`GET /v1/jobs/{job}/matrix`: traffic between ranks: how much, in what rhythm and how evenly."""

from __future__ import annotations

import asyncio
import enum
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from alerts.traffic.balance import Balance, balance_of
from alerts.traffic.flows import Assumption
from alerts.traffic.matrix import Cells, Matrix, sent_and_received
from alerts.traffic.places import By
from alerts.traffic.rhythm import Odd
from alerts.window.columns import Floats
from api.base.matrix_limits import MATRICES_WAITING_MAX
from api.fabric.model import Topology
from api.http.context import Parts
from api.http.routes.shared.answers import BUSY, copied
from api.http.routes.shared.find import FoundJob
from api.http.routes.shared.parameters import From, To, span_of
from api.http.routes.shared.topologies import look
from api.http.turns import refusals_counted
from api.jobs.correlate.pattern import Pattern, read_pattern
from collector.contract.units import NS

router = APIRouter(tags=["jobs"])

MATRIX = "matrix"
CELLS_DEFAULT = 1_000
CELLS_MAX = 20_000
"""Cells of one answer, about 4 MB. 10,240 ranks have a hundred million: those with the most bytes
are shown, and the rest is added up."""
SOLE_SHARE = 0.99
"""Of what a NIC sends, that must go to one other for its counter to check that cell: a ring's
neighbour. Losses and barriers go elsewhere and are a few bytes."""
SHARES_MAX = 64
"""Things of which the balance shows every share: all rails, the NICs of a few hosts."""
STANDING_OUT_MAX = 16
"""Who stands out is named, the farthest first; more of them than this is no list to read."""


class How(enum.StrEnum):
    """How a cell's bytes are known."""

    MEASURED = "measured"
    """Records of sends and receives name both ends."""
    MODELLED = "modelled"
    """From size and ranks of collectives, and from how NCCL runs them."""


class CellOut(BaseModel):
    """Bytes from one to another, payload only."""

    source: str
    target: str
    bytes: int
    bytes_per_second: float = Field(description="Over the whole time.")
    transfer_bytes_per_second: float | None = Field(
        description="While operations that carry them were transferring; null if not timed."
    )
    how: How
    measured_bytes: int = Field(description="Of `bytes`, those that sends and receives name.")
    counted_bytes: int | None = Field(
        description="What the NIC counted, headers too, where it sends to this one for one job."
    )
    is_local: bool = Field(description="Within one host: NVLink, or PCIe where there is none.")


class NicCheckOut(BaseModel):
    """One NIC: modelled against counted."""

    nic: str
    modelled_bytes: int
    counted_bytes: int
    ratio: float


class CheckOut(BaseModel):
    """The model against the NICs' own counters of sent bytes, which have headers in them."""

    nics: int = Field(description="NICs that were compared.")
    nics_shared: int = Field(description="Not compared: another job uses them too.")
    modelled_bytes: int
    counted_bytes: int
    ratio: float = Field(description="Modelled by counted: 0.95 to 1 if the model is right.")
    median_ratio: float
    worst: list[NicCheckOut] = Field(description="Farthest from the median, the farthest first.")


class ShareOut(BaseModel):
    """One part of what bytes are spread over."""

    name: str
    bytes: int
    share: float


class BalanceOut(BaseModel):
    """How evenly sent bytes are spread over rails, NICs, hosts or ranks."""

    over: By
    is_counted: bool = Field(description="By the NICs' counters; else by the model.")
    things: int
    mean_bytes: float
    highest_by_mean: float
    variation: float = Field(description="Standard deviation by mean.")
    gini: float
    shares: list[ShareOut] = Field(description=f"All, if they are at most {SHARES_MAX}.")
    standing_out: list[ShareOut] = Field(description="Far from the others; empty for a few things.")
    standing_out_left_out: int


class PhaseOut(BaseModel):
    """A stretch of a period, from 0 to 1."""

    start: float
    end: float
    is_sending: bool = Field(description="Inside collectives for most of it; else it computes.")
    bytes_per_second: float = Field(description="That one rank sends, in the mean.")


class OddOut(BaseModel):
    """A period that differs from the others, by the clock of its rank's host."""

    kind: Odd
    start_ns: int
    end_ns: int
    periods: float = Field(description="How many usual periods it took.")


class HostRhythmOut(BaseModel):
    """The rhythm of one host, by one of its ranks."""

    host: str
    rank: int
    byte_period_ns: int | None
    correlation: float
    duty: float | None


class RhythmOut(BaseModel):
    """How the traffic repeats."""

    from_ns: int | None = Field(description="Since when records were looked at for it.")
    period_ns: int | None = Field(description="The median step, by the order of operations.")
    byte_period_ns: int | None = Field(description="By the byte rate alone.")
    correlation: float = Field(description="Of the byte rate with itself after that period.")
    periods: int
    duty: float | None = Field(description="Share of time inside collectives, waiting included.")
    phases: list[PhaseOut]
    odd: list[OddOut]
    odd_left_out: int
    hosts: list[HostRhythmOut] = Field(description="Some hosts, spread over all.")


class TrafficMatrixOut(BaseModel):
    """A job's traffic in a stretch of time."""

    job: str
    from_ns: int
    to_ns: int
    by: By
    source: str = Field(description="Whose records were used.")
    operations_seen: int = Field(description="Operations of which records were added up.")
    operations: int = Field(
        description="All, extrapolated where records were thinned; bytes are of all."
    )
    looked_at: float = Field(description="Share of the time whose records were added up.")
    assumptions: list[Assumption] = Field(description="What the model rests on that is not known.")
    bytes: int = Field(description="Of all that was placed.")
    local_bytes: int = Field(description="Of them: within hosts. NICs and rails do not show them.")
    up_bytes: int = Field(
        description="That ranks hand to switches which add up (CollNet): to no other rank."
    )
    unplaced_bytes: int = Field(description="Of operations whose shape or members are not known.")
    nameless_bytes: int = Field(description="Between ranks whose place of this kind is not known.")
    cells: list[CellOut] = Field(description="Those with the most bytes, the largest first.")
    cells_left_out: int
    bytes_left_out: int = Field(description="Of cells that are not shown.")
    check: CheckOut | None = Field(description="Null where no NIC's counters can be compared.")
    balance: list[BalanceOut]
    rhythm: RhythmOut


@router.get(
    "/v1/jobs/{job}/matrix",
    summary="Traffic between ranks of a job, how much and in what rhythm",
    responses=BUSY,
)
async def matrix(
    job: FoundJob,
    parts: Parts,
    from_: From = None,
    to: To = None,
    by: Annotated[By, Query(description="What rows and columns are.")] = By.HOST,
    limit: Annotated[int, Query(ge=1, le=CELLS_MAX, description="Cells.")] = CELLS_DEFAULT,
) -> TrafficMatrixOut:
    """Bytes from each to each, from collectives and how NCCL runs them; checked against NICs."""
    span_ns = span_of(parts, job, from_, to)

    def topology() -> Topology:
        return look(parts, None).topology

    with refusals_counted(parts.metrics, MATRIX):
        # Whoever turns rows and columns into something else asks about the same traffic.
        pattern = await parts.queues.patterns.take(
            lambda: read_pattern(parts.store, parts.inventory, job.job, span_ns, topology),
            "MATRICES_WAITING_MAX",
            MATRICES_WAITING_MAX,
            key=(job.job, span_ns),
        )
    return await asyncio.to_thread(make_matrix, pattern, job.job, span_ns, by, limit)


def make_matrix(
    pattern: Pattern, job: str, span_ns: tuple[int, int], by: By, limit: int
) -> TrafficMatrixOut:
    drawn = pattern.matrix(by)
    shown: Cells = drawn.cells.select(slice(limit))
    hidden: Cells = drawn.cells.select(slice(limit, None))
    return TrafficMatrixOut(
        job=job,
        from_ns=span_ns[0],
        to_ns=span_ns[1],
        by=by,
        source=pattern.read.source,
        operations_seen=pattern.read.seen,
        operations=round(pattern.read.counted),
        looked_at=pattern.read.share,
        assumptions=pattern.traffic.assumptions,
        bytes=round(drawn.bytes),
        local_bytes=round(drawn.local_bytes),
        up_bytes=round(float(pattern.traffic.up_bytes.sum())),
        unplaced_bytes=round(pattern.traffic.unplaced_bytes),
        nameless_bytes=round(drawn.nameless_bytes),
        cells=show_cells(pattern, drawn, shown, (span_ns[1] - span_ns[0]) / NS),
        cells_left_out=len(hidden),
        bytes_left_out=round(float(hidden.bytes.sum())),
        check=show_check(pattern),
        balance=show_balances(pattern),
        rhythm=show_rhythm(pattern),
    )


def show_cells(pattern: Pattern, drawn: Matrix, shown: Cells, seconds: float) -> list[CellOut]:
    names = pattern.places.names(drawn.by)
    counted = np.full(len(names), np.nan)
    if drawn.by is By.NIC:
        counted = pattern.compared
    sent, _ = sent_and_received(drawn.cells, len(names))
    is_sole = shown.bytes >= SOLE_SHARE * sent[shown.source]
    rate = shown.bytes / np.maximum(shown.transfer_ns, 1.0) * NS
    return [
        CellOut(
            source=names[shown.source[row]],
            target=names[shown.target[row]],
            bytes=round(shown.bytes[row]),
            bytes_per_second=float(shown.bytes[row]) / max(seconds, 1e-9),
            transfer_bytes_per_second=float(rate[row]) if shown.transfer_ns[row] > 0 else None,
            how=How.MEASURED
            if shown.measured_bytes[row] >= shown.bytes[row] * (1 - 1e-9)
            else How.MODELLED,
            measured_bytes=round(shown.measured_bytes[row]),
            counted_bytes=whole(float(counted[shown.source[row]])) if is_sole[row] else None,
            is_local=bool(shown.is_local[row]),
        )
        for row in range(len(shown))
    ]


def whole(number: float | None) -> int | None:
    return None if number is None or not np.isfinite(number) else round(number)


def show_check(pattern: Pattern) -> CheckOut | None:
    check = pattern.check
    if check is None:
        return None
    names = pattern.places.names(By.NIC)
    return CheckOut(
        nics=check.nics,
        nics_shared=int(pattern.is_shared.sum()),
        modelled_bytes=round(check.modelled_bytes),
        counted_bytes=round(check.counted_bytes),
        ratio=check.modelled_bytes / check.counted_bytes,
        median_ratio=check.median_ratio,
        worst=[
            NicCheckOut(
                nic=names[nic],
                modelled_bytes=round(pattern.modelled[nic]),
                counted_bytes=round(pattern.compared[nic]),
                ratio=float(check.ratio[nic]),
            )
            for nic in check.worst.tolist()
        ],
    )


def show_balances(pattern: Pattern) -> list[BalanceOut]:
    """Over rails and NICs by what was counted, if all of them were, and over hosts and ranks."""
    found: list[BalanceOut] = []
    is_counted = bool(len(pattern.compared)) and bool(np.isfinite(pattern.compared).all())
    for over in (By.RAIL, By.NIC, By.HOST, By.RANK):
        values = pattern.sent(over, is_counted=is_counted)
        balance = balance_of(values)
        if balance is not None:
            by_counters = is_counted and over.is_network
            found.append(show_balance(over, pattern, values, balance, is_counted=by_counters))
    return found


def show_balance(
    over: By, pattern: Pattern, values: Floats, balance: Balance, *, is_counted: bool
) -> BalanceOut:
    names = pattern.places.names(over)
    total = balance.mean * balance.things

    def share(row: int) -> ShareOut:
        return ShareOut(name=names[row], bytes=round(values[row]), share=float(values[row]) / total)

    known = np.flatnonzero(np.isfinite(values)).tolist()
    far = balance.standing_out.tolist()
    return copied(
        BalanceOut,
        balance,
        over=over,
        is_counted=is_counted,
        mean_bytes=balance.mean,
        shares=[share(row) for row in known] if len(known) <= SHARES_MAX else [],
        standing_out=[share(row) for row in far[:STANDING_OUT_MAX]],
        standing_out_left_out=max(0, len(far) - STANDING_OUT_MAX),
    )


def show_rhythm(pattern: Pattern) -> RhythmOut:
    rhythm = pattern.rhythm
    return copied(
        RhythmOut,
        rhythm,
        from_ns=pattern.rhythm_from_ns,
        period_ns=whole(rhythm.period_ns),
        byte_period_ns=whole(rhythm.byte_period_ns),
        phases=[copied(PhaseOut, phase) for phase in rhythm.phases],
        odd=[copied(OddOut, one) for one in rhythm.odd],
        hosts=[
            copied(HostRhythmOut, one, one.rhythm, byte_period_ns=whole(one.rhythm.byte_period_ns))
            for one in pattern.hosts
        ],
    )
