"""`POST /v1/placement`: which hosts the next job should get, and why."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from alerts.health.model import HealthState
from api.base.errors import Problem, decode_json
from api.base.limits import (
    NAME_CHARS_MAX,
    PLACEMENT_GPUS_MAX,
    PLACEMENT_HOSTS_MAX,
    PLACEMENT_SETS_DEFAULT,
    PLACEMENT_SETS_MAX,
    PLACEMENTS_WAITING_MAX,
)
from api.fleet.placement.floors import answer
from api.fleet.placement.model import Ask, CannotPlace, Placed
from api.http.context import Parts
from api.http.routes.shared.answers import answer as respond
from api.http.routes.shared.answers import copied, documented
from api.http.routes.shared.bodies import read_body
from api.http.turns import refusals_counted
from collector.contract.errors import SettingsError

router = APIRouter(tags=["placement"])

PROTOCOL = "placement"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class PlacementAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request."""

    size: Annotated[int, msgspec.Meta(ge=1, le=PLACEMENT_HOSTS_MAX)]
    candidates: (
        Annotated[Sequence[Name], msgspec.Meta(min_length=1, max_length=PLACEMENT_HOSTS_MAX)] | None
    ) = None
    """Hosts that are free, by your own books. Left out: every host on which no job is seen."""
    gpus_per_host: Annotated[int, msgspec.Meta(ge=1, le=PLACEMENT_GPUS_MAX)] | None = None
    """Left out: all of a host's."""
    same_leaf: bool = False
    """All hosts of a set under one leaf; with rails, under the same leaf for each rail."""
    rail_aligned: bool = False
    """Only hosts whose NICs are all up and on a leaf of their own rail."""
    avoid: Annotated[Sequence[Name], msgspec.Meta(max_length=PLACEMENT_HOSTS_MAX)] = ()
    """Hosts; or switches, for all hosts under them."""
    allow: Annotated[Sequence[Literal["suspect", "degraded"]], msgspec.Meta(max_length=2)] = ()
    """States that may be placed beside healthy. Draining and out never are."""
    sets: Annotated[int, msgspec.Meta(ge=1, le=PLACEMENT_SETS_MAX)] = PLACEMENT_SETS_DEFAULT


def read_ask(body: bytes) -> Ask:
    asked = decode_json(body, PlacementAsked, "not a placement")
    return copied(
        Ask,
        asked,
        candidates=None if asked.candidates is None else tuple(asked.candidates),
        avoid=tuple(asked.avoid),
        allow=frozenset(HealthState(state) for state in asked.allow),
    )


@router.post(
    "/v1/placement",
    summary="Which hosts the next job should get",
    **documented(
        Placed, "Sets of hosts, the best first, and who was refused, and why.", body=PlacementAsked
    ),
)
async def placement(request: Request, parts: Parts) -> Response:
    """Ranked sets with expected bandwidth, oversubscription, running jobs beside them, and risk.

    A request changes nothing and reserves nothing. 422 names the `rule` that a request breaks.
    """
    with refusals_counted(parts.metrics, PROTOCOL), contextlib.ExitStack() as held:
        body = await read_body(request, parts.ingest, held)
        ask = read_ask(body)
        health = await parts.health.fleet()
        try:
            known = await parts.floors.latest()
        except SettingsError as error:
            raise Problem(503, "the topology file cannot be read", str(error)) from error
        try:
            placed = await parts.queues.placements.take(
                lambda: answer(known, health, ask), "PLACEMENTS_WAITING_MAX", PLACEMENTS_WAITING_MAX
            )
        except CannotPlace as error:
            raise Problem(422, "cannot be placed", str(error), rule=error.rule.value) from error
    return respond(placed)
