"""`GET /v1/topology`, `…/mistakes`, `/v1/links` and `/v1/paths`: what is cabled to what."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
from collections import Counter
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from api.base.errors import Problem
from api.base.limits import (
    NAME_CHARS_MAX,
    PAGE_DEFAULT,
    PATHS_DEFAULT,
    PATHS_MAX,
    TOPOLOGY_LINKS_MAX,
)
from api.fabric.cache import BuiltTopology
from api.fabric.file import Pattern, PatternKind, parse_speed
from api.fabric.graphml import MEDIA_TYPE, write_graphml
from api.fabric.mistake import Mistake, MistakeKind
from api.fabric.model import Link, Topology
from api.fabric.names import Endpoint
from api.fabric.paths import PAIRS_MAX, Hop, Ways, find_ways, pairs_between
from api.fabric.plan import Basis, Plan
from api.fabric.shown import TopologyShown, show_link, write_json
from api.http.context import Context, Parts
from api.http.routes.shared.answers import copied, inline_schema
from api.http.routes.shared.paging import After, Limit
from api.http.routes.shared.parameters import At
from api.http.routes.shared.topologies import choose, find, find_or_refuse, port_of
from collector.contract.errors import SettingsError
from collector.contract.identity import LinkId, PortId

router = APIRouter(tags=["topology"])


Name = Annotated[
    str,
    Query(
        min_length=1,
        max_length=NAME_CHARS_MAX,
        description="host, host/device, host/device/port, switch or switch/port; "
        "a slash inside a name is %2F",
    ),
]


class TopologyFormat(enum.StrEnum):
    """Forms of a topology."""

    JSON = "json"
    GRAPHML = "graphml"


class LinkOut(BaseModel):
    """A cable. `is_up` and the rate are null where no port reports them."""

    id: str
    a: str = Field(description="host/device/port")
    b: str
    since: dt.datetime = Field(description="Since when it is cabled like this, as far as is known.")
    last_seen: dt.datetime
    seen_from: list[str] = Field(description="The ends that name the other one.")
    methods: list[str]
    is_up: bool | None
    rate_bits_per_second: int | None

    @classmethod
    def of(cls, link: Link) -> LinkOut:
        return cls(**msgspec.structs.asdict(show_link(link)))


class CablingOut(BaseModel):
    """A neighbour that a port reported, and from when to when."""

    method: str
    peer_name: str
    peer_port: str
    peer_guid: str
    peer_chassis: str
    peer_port_id: str
    since: dt.datetime
    last_seen: dt.datetime
    until: dt.datetime | None = Field(description="Null while nothing speaks against it.")


class LinksOut(BaseModel):
    """Links by their ends; with `port`, the link there and what was cabled before."""

    items: list[LinkOut]
    history: list[CablingOut] | None = Field(description="With `port`: the latest first.")
    next: str | None = Field(description="Pass it as `after` to get the next page.")


class HopOut(BaseModel):
    """One link of a way, in its direction."""

    link: str
    source: str
    target: str
    rate_bits_per_second: int | None


class WaysOut(BaseModel):
    """All equal-cost ways between two ports."""

    source: str
    target: str
    hops: int | None = Field(description="Links on each way; null if there is none.")
    count: int = Field(description="How many ways there are, listed or not.")
    is_cut: bool = Field(description="Whether there are more than are listed.")
    paths: list[list[HopOut]]
    reason: str = Field(description="Why there is no way.")


class PathsOut(BaseModel):
    """Ways between two places: for hosts, between their NICs of the same rail."""

    at: dt.datetime
    pairs: list[WaysOut]
    pairs_left_out: int = Field(description="Pairs of ports that are not in the answer.")


class MistakeOut(BaseModel):
    """A cable that is not as it should be."""

    kind: MistakeKind
    what: str
    expected: str
    found: str
    fix: str
    basis: Basis = Field(description="plan, pattern, majority, or seen: no expectation is needed.")
    confidence: float
    nodes: list[str]
    ports: list[str]
    links: list[str]
    evidence: list[str]

    @classmethod
    def of(cls, mistake: Mistake) -> MistakeOut:
        fields = msgspec.structs.asdict(mistake)
        return cls(**fields | {name: [str(x) for x in fields[name]] for name in ("ports", "links")})


class MistakesOut(BaseModel):
    """What is wrong with the cables."""

    at: dt.datetime
    basis: Basis = Field(description="What cables were held against.")
    count: int
    kinds: dict[str, int]
    items: list[MistakeOut]
    next: str | None = Field(description="Pass it as `after` to get the next page.")


# --- the whole ----------------------------------------------------------------------------------


@router.get(
    "/v1/topology",
    summary="What is cabled to what",
    response_class=Response,
    responses={
        200: {
            "description": "The topology. `ETag` changes when something is cabled otherwise.",
            "content": {
                "application/json": {"schema": inline_schema(TopologyShown)},
                MEDIA_TYPE: {},
            },
        },
        304: {"description": "Nothing has changed since the answer with this `If-None-Match`."},
    },
)
async def topology(
    request: Request,
    parts: Parts,
    at: At = None,
    format_: Annotated[TopologyFormat, Query(alias="format")] = TopologyFormat.JSON,
    host: Annotated[
        list[str] | None,
        Query(description="Only these hosts or switches, with what they are cabled to."),
    ] = None,
    tier: Annotated[
        int | None, Query(ge=0, le=100, description="Only switches of this tier, likewise.")
    ] = None,
) -> Response:
    """Hosts, switches, ports and links, with tiers, rails and pods."""
    built = await find(parts, at)
    tag = f'W/"{await asyncio.to_thread(lambda: built.tag)}"'
    if is_known(request, tag):
        return Response(status_code=304, headers={"ETag": tag})
    shown = await asyncio.to_thread(choose, built.topology, host or [], tier)
    if len(shown.links) > TOPOLOGY_LINKS_MAX:
        over = f"{len(shown.links)} links, over TOPOLOGY_LINKS_MAX = {TOPOLOGY_LINKS_MAX}"
        why = f"{over}; ask with host= or tier="
        raise Problem(422, "too large", why, rule="topology_links_max")
    if format_ is TopologyFormat.GRAPHML:
        pieces = (piece.encode() for piece in write_graphml(shown))
        return StreamingResponse(pieces, media_type=MEDIA_TYPE, headers={"ETag": tag})
    if shown is built.topology:
        whole = await asyncio.to_thread(built.json)
    else:
        whole = write_json(shown)
    return StreamingResponse(whole, media_type="application/json", headers={"ETag": tag})


def is_known(request: Request, tag: str) -> bool:
    asked = request.headers.get("if-none-match", "")
    return tag in {each.strip() for each in asked.split(",")} or asked.strip() == "*"


# --- links --------------------------------------------------------------------------------------


@router.get("/v1/links", summary="Links, and what was cabled at a port when")
async def links(
    parts: Parts,
    at: At = None,
    host: Annotated[str | None, Query(description="Only this host's or switch's.")] = None,
    port: Annotated[
        str | None, Query(description="Only this port's (host/device/port), with its history.")
    ] = None,
    is_up: Annotated[bool | None, Query(description="Only those that are up, or down.")] = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> LinksOut:
    """Every known cable."""
    built = await find(parts, at)
    wanted = await asyncio.to_thread(select_links, built.topology, host, port, after)
    chosen = [link for link in wanted if is_up is None or link.is_up is is_up][:limit]
    history = None
    if port is not None:
        history = await asyncio.to_thread(history_of, parts, port_of(port))
    return LinksOut(
        items=[LinkOut.of(link) for link in chosen],
        history=history,
        next=str(chosen[-1].id) if len(chosen) == limit else None,
    )


def select_links(
    whole: Topology, host: str | None, port: str | None, after: str | None
) -> list[Link]:
    if port is not None:
        wanted = port_of(port)
        found = [link for link in whole.neighbours.get(wanted.host, ()) if wanted in ends_of(link)]
    elif host is not None:
        if host not in whole.nodes:
            find_or_refuse(whole, host, "host")
        found = whole.neighbours.get(host, [])
    else:
        found = sorted(whole.links.values(), key=lambda link: link.id)
    position = LinkId.parse(after) if after is not None else None
    return [link for link in found if position is None or link.id > position]


def ends_of(link: Link) -> tuple[PortId, PortId]:
    return link.id.a, link.id.b


def history_of(parts: Context, port: PortId) -> list[CablingOut]:
    return [copied(CablingOut, each) for each in parts.inventory.links.cablings(port)]


# --- ways ---------------------------------------------------------------------------------------


@router.get("/v1/paths", summary="All equal-cost ways between two places")
async def paths(
    parts: Parts,
    from_: Annotated[Name, Query(alias="from")],
    to: Name,
    at: At = None,
    limit: Annotated[
        int, Query(ge=0, le=PATHS_MAX, description="Ways to list; all are counted.")
    ] = PATHS_DEFAULT,
) -> PathsOut:
    """Shortest ways over links that are up, never through a host, up the tiers and down again.

    Between hosts: for each pair of NICs of the same rail; where no rail is known, for all pairs.
    """
    built = await find(parts, at)
    return await asyncio.to_thread(find_paths, built, from_, to, limit)


def find_paths(built: BuiltTopology, source: str, target: str, limit: int) -> PathsOut:
    whole = built.topology
    one, other = find_or_refuse(whole, source, "from"), find_or_refuse(whole, target, "to")
    pairs = pairs_between(whole, list(one.ports), list(other.ports))
    if one.name == other.name or not pairs:
        raise Problem(422, "nothing to find", f"from and to are the same: {source[:80]!r}")
    found: list[WaysOut] = []
    for near, far in pairs[:PAIRS_MAX]:
        ways = find_ways(built.graph, near, far, limit)
        limit -= len(ways.paths)
        found.append(show_ways(ways, one, other))
    return PathsOut(at=whole.at, pairs=found, pairs_left_out=max(0, len(pairs) - PAIRS_MAX))


def show_ways(ways: Ways, one: Endpoint, other: Endpoint) -> WaysOut:
    """Ways as they are answered; a switch has its name."""
    return copied(
        WaysOut,
        ways,
        source=one.name if one.is_switch else str(ways.source),
        target=other.name if other.is_switch else str(ways.target),
        is_cut=len(ways.paths) < ways.count,
        paths=[[show_hop(hop) for hop in path] for path in ways.paths],
    )


def show_hop(hop: Hop) -> HopOut:
    return HopOut(
        link=str(hop.link.id),
        source=str(hop.source),
        target=str(hop.target),
        rate_bits_per_second=hop.link.rate_bits_per_second,
    )


# --- mistakes -----------------------------------------------------------------------------------


async def read_pattern(
    pattern: Annotated[
        PatternKind | None,
        Query(description="Hold cables against this shape, not against the plan of the settings."),
    ] = None,
    links_per_spine: Annotated[int | None, Query(ge=1, le=10_000)] = None,
    hosts_per_leaf: Annotated[int | None, Query(ge=1, le=10_000)] = None,
    oversubscription: Annotated[float | None, Query(gt=0, le=1_000)] = None,
    speed: Annotated[str | None, Query(max_length=40, description="As 400G or NDR.")] = None,
) -> Pattern | None:
    details = {
        "links_per_spine": links_per_spine,
        "hosts_per_leaf": hosts_per_leaf,
        "oversubscription": oversubscription,
        "speed": speed,
    }
    given: dict[str, Any] = {name: value for name, value in details.items() if value is not None}
    if pattern is None and given:
        raise Problem(422, "no pattern", f"{', '.join(given)} need pattern= beside them")
    try:
        parse_speed(speed)
    except SettingsError as error:
        raise Problem(422, "wrong parameters", str(error)) from error
    return None if pattern is None else Pattern(kind=pattern, **given)


@router.get("/v1/topology/mistakes", summary="What is cabled otherwise than it should be")
async def mistakes(
    parts: Parts,
    pattern: Annotated[Pattern | None, Depends(read_pattern)],
    at: At = None,
    kind: Annotated[MistakeKind | None, Query(description="Only these.")] = None,
    limit: Limit = PAGE_DEFAULT,
    after: Annotated[int, Query(ge=0, lt=1 << 31, description="`next` of the page before.")] = 0,
) -> MistakesOut:
    """Cables against the plan (`topology_plan`), a pattern, or what most hosts and switches do."""
    built = await find(parts, at)
    plan = await asyncio.to_thread(choose_plan, parts, pattern)
    found = await asyncio.to_thread(built.mistakes, plan)
    chosen = [mistake for mistake in found if kind is None or mistake.kind is kind]
    return MistakesOut(
        at=built.topology.at,
        basis=plan.basis,
        count=len(chosen),
        kinds=dict(Counter(str(mistake.kind) for mistake in found)),
        items=[MistakeOut.of(mistake) for mistake in chosen[after : after + limit]],
        next=str(after + limit) if len(chosen) > after + limit else None,
    )


def choose_plan(parts: Context, pattern: Pattern | None) -> Plan:
    """The reference for cables: the pattern, the settings' plan, or each other."""
    if pattern is not None:
        return Plan(pattern=pattern)
    try:
        return parts.topologies.plan()
    except SettingsError as error:
        raise Problem(503, "the plan cannot be read", str(error)) from error
