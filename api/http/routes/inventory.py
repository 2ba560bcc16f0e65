"""`GET /v1/hosts`, `/v1/switches` and `/v1/ports`: what exists, from its samples."""

from __future__ import annotations

import asyncio
import datetime as dt
from bisect import bisect_right
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from alerts.health.model import SEVERITY, HealthState, Target
from api.base.errors import Problem
from api.base.limits import PAGE_DEFAULT
from api.data.inventory.records import Host, HostRole
from api.fleet.health.answers import Asked, Fleet, ThingEntry
from api.http.context import Context, Parts
from api.http.routes.shared.answers import copied
from api.http.routes.shared.find import find_host
from api.http.routes.shared.paging import After, Limit, Page
from api.http.routes.shared.parameters import OfDevice, OfHost
from collector.contract.errors import SettingsError
from collector.contract.identity import PortId

router = APIRouter(tags=["inventory"])


class Thing(BaseModel):
    """What everything in the inventory has; times are the service's."""

    first_seen: dt.datetime
    last_seen: dt.datetime
    attributes: dict[str, str] = Field(description="Further labels of its info metrics.")


class HostOut(Thing):
    """A machine that sent samples, or about which another machine sent some."""

    host: str
    cluster: str | None
    agent: str | None
    agent_version: str | None
    role: HostRole = Field(description="`host`, or `switch`: a switch that a collector polls.")
    state: HealthState | None = Field(
        description="Of its health; null for a switch, for what was not seen for a week, and "
        "while health cannot be judged."
    )
    risk: float | None = Field(description="What a job that begins there now would risk, 0 to 1.")
    lemon: float | None = Field(
        description="How much more often than usual it was in trouble in four weeks, 0 to 1."
    )
    reasons: list[str] = Field(
        description="Why, in a few words; `GET /v1/hosts/{host}/health` has all."
    )

    @staticmethod
    def health_in(fleet: Fleet | None, host: str) -> dict[str, Any]:
        entry = fleet.hosts.get(host) if fleet is not None else None
        if entry is None:
            return {"state": None, "risk": None, "lemon": None, "reasons": []}
        names = ("state", "risk", "lemon", "reasons")
        return {name: getattr(entry, name) for name in names}


class SwitchOut(Thing):
    """A switch, as its collectors see it."""

    switch: str = Field(description="Its name; its ports have it as host and as device.")
    cluster: str | None
    vendor: str | None
    model: str | None
    version: str | None = Field(description="Of its operating system or firmware.")
    guid: str | None = Field(description="Node GUID, on InfiniBand.")
    address: str | None
    description: str | None

    @classmethod
    def of(cls, host: Host) -> SwitchOut:
        about = dict(host.attributes)
        names = ("vendor", "model", "version", "guid", "address", "description")
        known = {name: about.pop(name, None) for name in names}
        return copied(cls, host, switch=host.host, attributes=about, **known)


class DeviceOut(Thing):
    """An RDMA device, network interface or GPU of a host."""

    host: str
    kind: str
    device: str
    driver: str | None
    firmware: str | None


class PortOut(Thing):
    """A port of an RDMA device or of a switch."""

    id: str = Field(description="host/device/port")
    host: str
    device: str
    port: str
    link_layer: str | None
    state: str | None
    rate_bits_per_second: int | None
    netdev: str | None
    guid: str | None


class HostDetail(HostOut):
    """A host with its devices, and how its agent's numbered batches arrive."""

    devices: list[DeviceOut]
    batches_missing: int | None = Field(
        description="Batches that have not come: in its agent's spool, or lost."
    )
    last_sequence: int | None


@router.get("/v1/hosts", summary="Hosts, by name")
async def hosts(
    parts: Parts,
    role: Annotated[HostRole, Query(description="Machines, or switches.")] = HostRole.HOST,
    state: Annotated[
        list[HealthState], Query(description="Only in this state; may be given several times.")
    ] = [],  # noqa: B006 - FastAPI makes a new one for each request
    min_risk: Annotated[
        float, Query(ge=0, le=1, description="Only those at this risk or above.")
    ] = 0.0,
    all: Annotated[  # noqa: A002, FBT002 - a parameter of the address
        bool,
        Query(description="Also those that were seen for a moment only, and not lately."),
    ] = False,
    rail: Annotated[
        int | None,
        Query(ge=0, description="Only with a NIC on this rail, and by its state and risk."),
    ] = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Page[HostOut]:
    """Every known host, without switches unless they are asked for.

    A host that was seen for less than ten minutes and is silent for half an hour is left out.
    """
    asked = Asked(states=frozenset(state), min_risk=min_risk)
    if rail is None and asked == Asked():
        fleet = await parts.health.latest()
        now = None if all else parts.now()
        found = await asyncio.to_thread(parts.inventory.hosts.page, after, limit, role, now)
    elif role is HostRole.SWITCH:
        why = "switches have no state, risk or rail; see GET /v1/health?kind=switch"
        raise Problem(422, "wrong parameters", why)
    else:
        fleet = await parts.health.fleet()
        names = await asyncio.to_thread(choose_hosts, parts, fleet, asked, rail)
        page = names[bisect_right(names, after) if after is not None else 0 :][:limit]
        found = await asyncio.to_thread(parts.inventory.hosts.named, page)
    items = [
        HostOut(**msgspec.structs.asdict(host), **HostOut.health_in(fleet, host.host))
        for host in found
    ]
    return Page(items=items, next=items[-1].host if len(items) == limit else None)


def choose_hosts(parts: Context, fleet: Fleet, asked: Asked, rail: int | None) -> list[str]:
    """Names, in order. With a rail its NIC or that one's cable counts, whichever is worse."""
    if rail is None:
        return [entry.host for entry in fleet.hosts.values() if asked.wants(entry)]
    try:
        ports = parts.topologies.at(None).topology.ports.values()
    except SettingsError as error:
        raise Problem(503, "the topology file cannot be read", str(error)) from error
    there = (port.id for port in ports if port.rail == rail and port.id.host in fleet.hosts)
    return sorted({port.host for port in there if asked.wants(worse_of(fleet, port))})


def worse_of(fleet: Fleet, port: PortId) -> ThingEntry:
    nic = Target.of_device(port.host, port.device)
    cable = Target.of_link(port.host, port.device, port.port)
    both = [fleet.thing(target) for target in (nic, cable)]
    return max(both, key=lambda each: (SEVERITY[each.state], each.risk))


@router.get("/v1/switches", summary="Switches, by name")
async def switches(
    parts: Parts, limit: Limit = PAGE_DEFAULT, after: After = None
) -> Page[SwitchOut]:
    """Every known switch, but for those that only a moment's samples named.

    Their ports are among `GET /v1/ports`.
    """
    found = await asyncio.to_thread(
        parts.inventory.hosts.page, after, limit, HostRole.SWITCH, parts.now()
    )
    items = [SwitchOut.of(host) for host in found]
    return Page(items=items, next=items[-1].switch if len(items) == limit else None)


@router.get("/v1/hosts/{host}", summary="One host with its devices")
async def host(host: str, parts: Parts) -> HostDetail:
    """One host; 404 if no sample about it has arrived."""
    fleet = await parts.health.latest()
    found = await asyncio.to_thread(find_host, parts, fleet, host)
    devices = await asyncio.to_thread(parts.inventory.hosts.devices, host)
    agent = (
        await asyncio.to_thread(parts.inventory.hosts.agent, found.agent) if found.agent else None
    )
    return HostDetail(
        **msgspec.structs.asdict(found),
        **HostOut.health_in(fleet, host),
        devices=[DeviceOut(**msgspec.structs.asdict(device)) for device in devices],
        batches_missing=agent.batches_missing if agent else None,
        last_sequence=agent.last_sequence if agent else None,
    )


@router.get("/v1/ports", summary="Ports, by host, device and number")
async def ports(
    parts: Parts,
    host: OfHost = None,
    device: OfDevice = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Page[PortOut]:
    """Every known port."""
    position = PortId.parse(after) if after is not None else None
    found = await asyncio.to_thread(parts.inventory.hosts.ports, host, device, position, limit)
    items = [
        PortOut(**msgspec.structs.asdict(port), id=str(PortId(port.host, port.device, port.port)))
        for port in found
    ]
    return Page(items=items, next=items[-1].id if len(items) == limit else None)
