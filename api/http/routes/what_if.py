"""`POST /v1/what-if`: steps of running jobs if cables were others, or ranks elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response

from api.base.compare_limits import (
    WHAT_IF_CHANGES_MAX,
    WHAT_IF_RATE_MAX,
    WHAT_IF_SECONDS_DEFAULT,
    WHAT_IF_SECONDS_MAX,
    WHAT_IFS_WAITING_MAX,
)
from api.base.errors import Problem, decode_json
from api.base.limits import NAME_CHARS_MAX
from api.fabric.cache import BuiltTopology
from api.fabric.model import NodeKind
from api.fabric.names import offer
from api.fleet.placement.floor import make_floor
from api.fleet.placement.ways import Ways
from api.fleet.what_if.change import changed_topology, sentences
from api.fleet.what_if.load import Fabric
from api.fleet.what_if.model import Ask, CannotTry, Guess, Move, Outlook, Speed, WhatIf
from api.fleet.what_if.predict import predict
from api.fleet.what_if.read import read_running
from api.http.context import Context, Parts
from api.http.routes.shared.answers import BUSY, answer, documented
from api.http.routes.shared.bodies import read_body
from api.http.routes.shared.find import find_job_name, no_such
from api.http.routes.shared.topologies import find, link_named
from api.http.turns import refusals_counted
from collector.contract.units import NS

router = APIRouter(tags=["topology"])

PROTOCOL = "what-if"

LinkName = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * NAME_CHARS_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class SpeedAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cable at another rate."""

    link: LinkName
    bits_per_second: Annotated[int, msgspec.Meta(ge=1, le=WHAT_IF_RATE_MAX)]


class MoveAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rank of a running job on another host."""

    job: Name
    rank: Annotated[int, msgspec.Meta(ge=0)]
    host: Name


Links = Annotated[Sequence[LinkName], msgspec.Meta(max_length=WHAT_IF_CHANGES_MAX)]
Speeds = Annotated[Sequence[SpeedAsked], msgspec.Meta(max_length=WHAT_IF_CHANGES_MAX)]
Moves = Annotated[Sequence[MoveAsked], msgspec.Meta(max_length=WHAT_IF_CHANGES_MAX)]


class WhatIfAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes that are tried together. A link is its id, or one of its ports."""

    drop: Links = ()
    double: Links = ()
    """A second cable of the same rate beside each; between switches."""
    speed: Speeds = ()
    move: Moves = ()
    seconds: Annotated[float, msgspec.Meta(gt=0, le=WHAT_IF_SECONDS_MAX)] = WHAT_IF_SECONDS_DEFAULT
    """Of the latest traffic that the answer rests on."""


@router.post(
    "/v1/what-if",
    summary="Steps of running jobs if cables were others, or ranks elsewhere",
    **documented(
        WhatIf,
        "Every running job, those that change most first.",
        body=WhatIfAsked,
        others=BUSY,
    ),
)
async def what_if(request: Request, parts: Parts) -> Response:
    """Expected time of transfers and of a step, by placement's model and the jobs' own traffic.

    A request changes nothing. 404 names the link, job or host that does not exist; 422 names the
    `rule` that a request breaks.
    """
    with refusals_counted(parts.metrics, PROTOCOL), contextlib.ExitStack() as held:
        body = await read_body(request, parts.ingest, held)
        asked = decode_json(body, WhatIfAsked, "not a what-if")
        built = await find(parts, None)
        try:
            made = await parts.queues.what_ifs.take(
                lambda: make(parts, built, asked), "WHAT_IFS_WAITING_MAX", WHAT_IFS_WAITING_MAX
            )
        except CannotTry as error:
            raise Problem(422, "cannot be tried", str(error), rule=error.rule.value) from error
    return answer(made)


def make(parts: Context, built: BuiltTopology, asked: WhatIfAsked) -> WhatIf:
    ask = resolve(parts, built, asked)
    topology = built.topology
    changed = changed_topology(topology, ask)
    to_ns = round(parts.clock() * NS)
    span_ns = to_ns - round(asked.seconds * NS), to_ns
    running = read_running(parts.store, parts.inventory, span_ns, [one.job for one in ask.move])
    floor = make_floor(built.graph)
    before = Fabric(topology, floor, Ways(floor))
    jobs = predict(before, Fabric.of(changed), running.seen, ask)
    unknown = [*running.unknown]
    if floor.is_known and floor.has_rates and floor.guessed:
        rate = f"{floor.rate_guessed / 1e9:.4g} Gb/s"
        unknown.append(f"rates: {floor.guessed} links have no known rate; taken as {rate}")
    return WhatIf(
        from_=span_ns[0] / NS,
        to=span_ns[1] / NS,
        changes=list(sentences(topology, ask)),
        jobs=[priced(one, parts.settings.price_per_gpu_hour) for one in jobs],
        jobs_left_out=running.left_out,
        assumes=[one for one in Guess if one is not Guess.SAME_RINGS or ask.move],
        unknown=unknown,
        currency=parts.settings.currency,
    )


def priced(one: Outlook, price: float) -> Outlook:
    if not price or one.gpu_hours_per_day is None:
        return one
    return msgspec.structs.replace(one, money_per_day=price * one.gpu_hours_per_day)


def resolve(parts: Context, built: BuiltTopology, asked: WhatIfAsked) -> Ask:
    """The links, jobs and hosts of a question; a 404 names the first that does not exist."""
    return Ask(
        drop=tuple(link_named(built, name, "drop") for name in asked.drop),
        double=tuple(link_named(built, name, "double") for name in asked.double),
        speed=tuple(
            Speed(link=link_named(built, one.link, "speed"), bits_per_second=one.bits_per_second)
            for one in asked.speed
        ),
        move=tuple(
            Move(job=find_job_name(parts, one.job), rank=one.rank, host=host_named(built, one.host))
            for one in asked.move
        ),
    )


def host_named(built: BuiltTopology, name: str) -> str:
    """A host with a known port; a 404 suggests similar names."""
    nodes = built.topology.nodes
    if name not in nodes or nodes[name].kind is not NodeKind.HOST:
        hosts = [one for one, node in nodes.items() if node.kind is NodeKind.HOST]
        raise no_such("host", name, offer(name, hosts))
    return name
