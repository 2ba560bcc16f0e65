"""`GET /v1/health` and `…/live`, for schedulers; `/v1/hosts/{host}/health`, for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from fastapi import APIRouter, Header, Query, Response

from alerts.health.lemon import LEMON_FROM
from alerts.health.model import Charge, HealthState, Target, TargetKind, Turn
from api.base.limits import HEALTH_WAIT_SECONDS_MAX, PAGE_MAX
from api.base.packing import PACKED_BYTES_MIN, takes_gzip
from api.data.inventory.health import NumberedTurn, unix_ns
from api.data.inventory.records import DeviceKind
from api.fleet.health.answers import (
    WELL,
    Asked,
    Fleet,
    FleetHosts,
    HostEntry,
    ThingEntry,
    reasons_of,
)
from api.http.context import Context, Parts
from api.http.routes.shared.answers import JSON, answer, copied, documented, inline_schema
from api.http.routes.shared.find import find_host
from api.http.routes.shared.shown import HoldOut
from api.http.routes.shared.streams import (
    AfterEvent,
    LastEventId,
    LiveResponse,
    Opening,
    follow,
    listen_to,
    look_back,
    message,
    read_number,
    streamed,
)
from collector.contract.errors import SettingsError
from collector.contract.verdict import Cause, Reason

router = APIRouter(tags=["health"])

HINT = "GET /v1/health shows how everything stands"
HISTORY_MAX = 100
"""Changes of state, and holds, in the answer about one host: the latest."""

States = Annotated[
    list[HealthState], Query(description="Only those; may be given several times. None: all.")
]
MinRisk = Annotated[float, Query(ge=0, le=1, description="Only those at this risk or above.")]


# --- the fleet ----------------------------------------------------------------------------------


def fleet_schema() -> dict[str, Any]:
    """Hosts, or things of the kind that was asked for: msgspec has no word for such a choice."""
    schema = inline_schema(FleetHosts)
    entries = [inline_schema(HostEntry), inline_schema(ThingEntry)]
    schema["properties"]["items"]["items"] = {"anyOf": entries}
    return schema


@router.get(
    "/v1/health",
    summary="The health of the whole fleet, for schedulers",
    **documented(
        FleetHosts,
        "Every host that was asked for, by name.",
        schema=fleet_schema(),
        others={
            304: {"description": "As `If-None-Match` has it: nothing has changed."},
            503: {
                "description": "The states of hosts are not known now, or too many requests wait."
            },
        },
    ),
)
async def health(
    parts: Parts,
    state: States = [],  # noqa: B006 - FastAPI makes a new one for each request
    min_risk: MinRisk = 0.0,
    kind: Annotated[
        TargetKind,
        Query(description="Instead of hosts: devices, … against which something is known."),
    ] = TargetKind.HOST,
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=HEALTH_WAIT_SECONDS_MAX,
            description="Seconds to wait for something else than `If-None-Match` has.",
        ),
    ] = 0.0,
    if_none_match: Annotated[str, Header(description="`ETag` of an answer that is known.")] = "",
    accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """All in one answer, made once for every change: ask every second, or wait for a change.

    Where `stale` is not empty, or the answer is 503, evidence is missing: do not act.
    """
    asked = Asked(kind=kind, states=frozenset(state), min_risk=min_risk)
    known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    body = await parts.health.body(asked, known, wait)
    # Weak, as it stays the same when the answer is packed.
    headers = {"ETag": f"W/{body.tag}", "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if body.tag in known:
        return Response(status_code=304, headers=headers)
    if len(body.content) < PACKED_BYTES_MIN or not takes_gzip(accept_encoding):
        return Response(body.content, media_type=JSON, headers=headers)
    packed = await asyncio.to_thread(lambda: body.packed)
    return Response(packed, media_type=JSON, headers={**headers, "Content-Encoding": "gzip"})


class TurnOut(msgspec.Struct, frozen=True, kw_only=True):
    """A thing went from one state to another. Unix nanoseconds."""

    kind: TargetKind
    host: str
    name: str
    time_ns: int
    state: HealthState
    was: HealthState
    risk: float
    why: str

    @classmethod
    def of(cls, turn: Turn) -> TurnOut:
        return copied(cls, turn, turn.target)


class ReadyOut(msgspec.Struct, frozen=True, kw_only=True):
    """The data of the first event: the stream is open; turns from now on will follow."""

    number: int
    """Of the latest turn before."""
    counts: dict[str, int]


@router.get(
    "/v1/health/live",
    summary="Changes of health as they happen (server-sent events)",
    **streamed("`ready`, `turned` and `missed`"),
)
async def live(
    parts: Parts,
    kind: Annotated[
        TargetKind | None, Query(description="Only of hosts, devices, … None: all.")
    ] = None,
    after: AfterEvent = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Stays open, and resumes by `Last-Event-ID` as `/v1/live` does.

    Only changes of state are sent; risks move all the time.
    """
    seen = read_number(last_event_id or after)
    fleet = await parts.health.fleet()
    subscription = listen_to(parts.health.turns)

    def look() -> tuple[Opening[NumberedTurn], ReadyOut]:
        kept = parts.inventory.health
        opening = look_back(seen, kept.turns_span(), kept.turns_after, HINT)
        return opening, ReadyOut(number=opening.number, counts=fleet.counts)

    def show(numbered: NumberedTurn) -> bytes | None:
        if kind is not None and numbered.turn.target.kind is not kind:
            return None
        return message("turned", TurnOut.of(numbered.turn), numbered.number)

    return LiveResponse(subscription, follow(subscription, look, show, HINT))


# --- one host -----------------------------------------------------------------------------------


class ReasonOut(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence against it. Unix nanoseconds."""

    incident: str
    """`GET /v1/incidents/{id}` has the evidence. Empty: a finding without an incident."""
    cause: Cause
    reason: Reason
    about: str
    """What of it is accused: `link mlx5_0/1`, `gpu 2`; empty: all of it."""
    text: str
    confidence: float
    """That the verdict is right."""
    weight: float
    """How much it counts against this very thing."""
    risk: float
    """What it adds now: confidence times weight, halved for every half-life since its end."""
    is_open: bool
    since_ns: int
    until_ns: int | None
    half_life_seconds: float


class PartOut(msgspec.Struct, frozen=True, kw_only=True):
    """A device, link or GPU of a host."""

    name: str
    """`node3/mlx5_0`, `node3/mlx5_0/1`, `node3/2`."""
    state: HealthState
    risk: float
    rail: int | None
    """Of a NIC in the fabric, and of its link."""
    since_ns: int | None
    reasons: Sequence[ReasonOut]


class HostHealthOut(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about the health of one host. Unix nanoseconds."""

    host: str
    state: HealthState
    since_ns: int | None
    """When it got into this state; null: as long as is known."""
    risk: float
    lemon: float
    is_lemon: bool
    """Whether it was in trouble so much more often than others that an operator should inspect
    it."""
    short: Sequence[str]
    last_seen_ns: int
    silent_since_ns: int | None
    """Set if it has sent nothing for minutes."""
    stale: Sequence[str]
    """What cannot be trusted now."""
    reasons: Sequence[ReasonOut]
    devices: Sequence[PartOut]
    links: Sequence[PartOut]
    gpus: Sequence[PartOut]
    holds: Sequence[HoldOut]
    """Holds of it, by whom: the latest first, also those that have ended."""
    history: Sequence[TurnOut]
    """Changes of state, its parts' too: the latest first."""


@router.get(
    "/v1/hosts/{host}/health",
    summary="Why a host is in its state",
    **documented(HostHealthOut, "The host, its parts, and the verdicts behind them."),
)
async def host_health(host: str, parts: Parts) -> Response:
    """State, risk and lemon score of a host and its parts, with their evidence."""
    fleet = await parts.health.fleet()
    return answer(await asyncio.to_thread(explain_host, parts, fleet, host))


def explain_host(parts: Context, fleet: Fleet, name: str) -> HostHealthOut:
    host = find_host(parts, fleet, name)
    target = Target.of_host(name)
    standing = fleet.standings.get(target, WELL)
    entry = fleet.hosts.get(name)
    lemon = entry.lemon if entry is not None else 0.0
    now_ns = round(parts.clock() * 1e9)
    things = Things(fleet, rails_of(parts, name), now_ns)
    found = {target for target in fleet.standings if target.host == name}
    for device in parts.inventory.hosts.devices(name):
        if device.kind is DeviceKind.GPU:
            found.add(Target.of_gpu(name, device.device))
        elif device.kind is DeviceKind.RDMA:
            found.add(Target.of_device(name, device.device))
    for port in parts.inventory.hosts.ports(name, limit=PAGE_MAX):
        found.add(Target.of_link(name, port.device, port.port))
    return copied(
        HostHealthOut,
        standing,
        host=name,
        since_ns=fleet.since_ns.get(target),
        lemon=lemon,
        is_lemon=lemon >= LEMON_FROM,
        short=reasons_of(standing),
        last_seen_ns=unix_ns(host.last_seen),
        stale=fleet.stale,
        reasons=[reason_out(charge, now_ns) for charge in standing.charges],
        devices=things.parts(found, TargetKind.DEVICE),
        links=things.parts(found, TargetKind.LINK),
        gpus=things.parts(found, TargetKind.GPU),
        holds=[HoldOut.of(kept) for kept in parts.inventory.health.holds_of(target, HISTORY_MAX)],
        history=[TurnOut.of(turn) for turn in parts.inventory.health.turns_of(name, HISTORY_MAX)],
    )


class Things(msgspec.Struct, frozen=True):
    """Data to show parts of a host."""

    fleet: Fleet
    rails: dict[str, int]
    """By device."""
    now_ns: int

    def parts(self, among: set[Target], kind: TargetKind) -> list[PartOut]:
        return [self.part(target) for target in sorted(among) if target.kind is kind]

    def part(self, target: Target) -> PartOut:
        standing = self.fleet.standings.get(target, WELL)
        device = unquote(target.name.split("/")[1])
        return copied(
            PartOut,
            standing,
            name=target.name,
            rail=None if target.kind is TargetKind.GPU else self.rails.get(device),
            since_ns=self.fleet.since_ns.get(target),
            reasons=[reason_out(charge, self.now_ns) for charge in standing.charges],
        )


def reason_out(charge: Charge, now_ns: int) -> ReasonOut:
    return copied(
        ReasonOut,
        charge,
        about=charge.about.within_host,
        confidence=round(charge.confidence, 3),
        weight=round(charge.weight, 3),
        risk=round(charge.risk_at(now_ns), 3),
        is_open=charge.until_ns is None,
        half_life_seconds=charge.half_life_s,
    )


def rails_of(parts: Context, host: str) -> dict[str, int]:
    """The rails of a host's NICs; none where the topology cannot be read."""
    try:
        ports = parts.topologies.at(None).topology.ports_of.get(host, ())
    except SettingsError:
        return {}
    return {port.id.device: port.rail for port in ports if port.rail is not None}
