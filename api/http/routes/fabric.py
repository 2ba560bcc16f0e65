"""`GET /v1/fabric/state`: the state of every link over time, for a map of the fabric."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from alerts.window.model import Grid
from api.base.errors import Problem
from api.base.limits import (
    FABRIC_CELLS_MAX,
    FABRIC_FRAMES_DEFAULT,
    FABRIC_FRAMES_MAX,
    FABRIC_LINKS_MAX,
    FABRIC_SAMPLES_MAX,
    FABRICS_WAITING_MAX,
)
from api.fabric.model import Topology
from api.http.context import Parts
from api.http.routes.shared.matrices import BYTES, PackedMatrixOut, encoded, pack_floats
from api.http.routes.shared.parameters import At, From, ToNow, range_to_now
from api.http.routes.shared.topologies import choose, find
from api.http.turns import refusals_counted
from api.jobs.correlate.fabric import KINDS, NO_ERROR, FabricState, frames_of
from collector.contract.units import NS, NS_PER_MS

router = APIRouter(tags=["topology"])


FABRIC = "fabric"
NOT_READ = "NaN: not read."


class WorstErrorsOut(BaseModel):
    """Of each cell the kind that most of its errors are of."""

    kinds: list[str]
    none: int = Field(description="Stands where there are no errors.")
    rows: int
    columns: int
    data: str = Field(description=f"{BYTES} Each is a place in `kinds`.")


class FabricOut(BaseModel):
    """All links at all moments. A row is a moment, a column one of `links`."""

    from_ns: int = Field(description="Where the first moment begins.")
    step_ns: int = Field(description="How long each is: numbers are means over that time.")
    frames: int = Field(
        description="Moments; fewer than were asked for if they would be shorter than a second, "
        f"or if links times moments would be over {FABRIC_CELLS_MAX}."
    )
    links: list[str] = Field(description="Ids, as in the topology: `a|b`.")
    a_to_b: PackedMatrixOut = Field(
        description="Share of the link's rate that end `a` sends to end `b`, 0 to 1; counters of "
        f"whole packets may show a little more. The busier direction is the link's use. {NOT_READ}"
    )
    b_to_a: PackedMatrixOut = Field(description="The same, the other way.")
    errors: PackedMatrixOut = Field(
        description="A second, both ends together: damaged symbols and packets, blocks that FEC "
        f"could not mend, packets thrown away. {NOT_READ}"
    )
    worst_errors: WorstErrorsOut
    paused: PackedMatrixOut = Field(
        description="Share of time in which an end may not send: stopped by pause frames, or "
        "without credit; the longer of both ends. NaN: neither end, nor the one that stops it, "
        "counted the time."
    )
    paused_at_most: PackedMatrixOut = Field(
        description="Where pause frames of an end were counted and no time: the longest share of "
        "time that they can stop it for, if that is more than `paused`. NaN: it is no more."
    )
    up: PackedMatrixOut = Field(
        description=f"1: both ends were up at every reading; 0: not so. {NOT_READ}"
    )


@router.get(
    "/v1/fabric/state",
    summary="How every link fared, moment by moment",
    responses={
        422: {"description": "Too many links, or too long a time; the answer names what fits."},
        503: {"description": "Too many are being made; try again."},
    },
)
async def state(
    parts: Parts,
    from_: From = None,
    to: ToNow = None,
    frames: Annotated[
        int, Query(ge=1, le=FABRIC_FRAMES_MAX, description="Moments, of equal length.")
    ] = FABRIC_FRAMES_DEFAULT,
    at: At = None,
    host: Annotated[
        list[str] | None, Query(description="Only links of these hosts or switches.")
    ] = None,
    tier: Annotated[
        int | None, Query(ge=0, le=100, description="Only links of switches of this tier.")
    ] = None,
) -> FabricOut:
    """Use, errors, pause and state of each link of `/v1/topology`, asked with the same `at`."""
    from_ms, to_ms = range_to_now(parts, from_, to, is_shared=True)
    built, reader = await find(parts, at), parts.fabric_reader

    def make() -> FabricOut:
        shown = choose(built.topology, host or [], tier)
        refuse_many_links(shown)
        most = max(1, FABRIC_CELLS_MAX // max(1, len(shown.links)))
        grid = frames_of(from_ms * NS_PER_MS, to_ms * NS_PER_MS, min(frames, most))
        links = list(shown.links.values())
        state = reader.read(
            built.topology,
            links,
            grid,
            cables=(built.cables, tuple(host or ()), tier),
            check=lambda part: refuse_many_samples(reader.estimate(part), part),
        )
        return show(state, [str(link.id) for link in links])

    with refusals_counted(parts.metrics, FABRIC):
        return await parts.queues.fabrics.take(
            make,
            "FABRICS_WAITING_MAX",
            FABRICS_WAITING_MAX,
            key=(from_ms, to_ms, frames, at, tuple(host or ()), tier),
        )


def refuse_many_links(shown: Topology) -> None:
    """A Problem if no map could show them all."""
    if len(shown.links) > FABRIC_LINKS_MAX:
        over = f"{len(shown.links)} links, over FABRIC_LINKS_MAX = {FABRIC_LINKS_MAX}"
        why = f"{over}; ask with host= or tier="
        raise Problem(422, "too many links", why, rule="FABRIC_LINKS_MAX")


def refuse_many_samples(samples: int, grid: Grid) -> None:
    """A Problem if reading them would take too long, with a bound that would not."""
    if samples > FABRIC_SAMPLES_MAX:
        seconds = grid.cells * grid.step_ns / NS
        why = (
            f"about {samples} samples in {seconds:.0f} s, over FABRIC_SAMPLES_MAX = "
            f"{FABRIC_SAMPLES_MAX}; about {seconds * FABRIC_SAMPLES_MAX / samples:.0f} s would fit"
        )
        raise Problem(422, "too long", why, rule="FABRIC_SAMPLES_MAX")


def show(found: FabricState, links: list[str]) -> FabricOut:
    grid = found.grid
    matrices = ("a_to_b", "b_to_a", "errors", "paused", "paused_at_most", "up")
    return FabricOut(
        from_ns=grid.start_ns,
        step_ns=grid.step_ns,
        frames=grid.cells,
        links=links,
        worst_errors=WorstErrorsOut(
            kinds=list(KINDS),
            none=NO_ERROR,
            rows=grid.cells,
            columns=len(links),
            data=encoded(found.worst),
        ),
        **{name: pack_floats(getattr(found, name)) for name in matrices},
    )
