"""What the inventory answers: hosts, devices, ports and agents as plain values."""

from __future__ import annotations

from datetime import datetime

import msgspec

from api.inventory.tables import DeviceKind


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. Times are UTC, by the service's clock."""

    host: str
    cluster: str | None
    agent: str | None
    agent_version: str | None
    first_seen: datetime
    last_seen: datetime
    attributes: dict[str, str]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A network adapter, network interface or GPU of a host."""

    host: str
    kind: DeviceKind
    device: str
    driver: str | None
    firmware: str | None
    first_seen: datetime
    last_seen: datetime
    attributes: dict[str, str]


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port of an RDMA device."""

    host: str
    device: str
    port: str
    link_layer: str | None
    state: str | None
    rate_bits_per_second: int | None
    netdev: str | None
    guid: str | None
    first_seen: datetime
    last_seen: datetime
    attributes: dict[str, str]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """How far an agent's numbered batches have come."""

    agent: str
    boot: str
    last_sequence: int
    last_received_at: datetime
    batches_missing: int
