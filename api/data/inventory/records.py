"""Plain values that the inventory returns and accepts: hosts, ports, jobs and their like."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Final

import msgspec

UP_STATES: Final = frozenset({"active", "active_defer"})
"""States of a port whose link is up."""


class DeviceKind(enum.StrEnum):
    """What sort of device; part of its key, because udev may name an HCA and its netdev alike."""

    RDMA = "rdma"
    """An InfiniBand or RoCE device, as in /sys/class/infiniband: it has ports."""
    NIC = "nic"
    """A network interface, as in /sys/class/net."""
    GPU = "gpu"
    """By its index."""
    SWITCH = "switch"
    """A switch: the host of the same name has no other device."""


class HostRole(enum.StrEnum):
    """What a row of `hosts` is."""

    HOST = "host"
    SWITCH = "switch"


class CaptureState(enum.StrEnum):
    """How far a request for raw samples has come."""

    WAITING = "waiting"
    """For the receipt of the agent's next batch, which hands it over."""
    HANDED = "handed"
    """The agent has it from a receipt."""
    FINISHED = "finished"
    REFUSED = "refused"
    """By the agent, which has no counter that it samples, or too many requests."""
    LOST = "lost"
    """The sampler ended before it had sent them."""
    EXPIRED = "expired"
    """The agent never reported how it ended."""


class NoticeState(enum.StrEnum):
    """How far a notice has come."""

    WAITING = "waiting"
    """For its receiver to accept it."""
    SENT = "sent"
    SUPERSEDED = "superseded"
    """A newer one about the same alerts replaced it."""
    REFUSED = "refused"
    """By the receiver, for what it is: trying again would not help."""
    DROPPED = "dropped"
    """There were too many, or its receiver is no longer configured."""


class JobOrigin(enum.StrEnum):
    """The source of a job's existence; the first of these that applies."""

    REGISTERED = "registered"
    """A client, by `POST /v1/jobs`."""
    SCHEDULER = "scheduler"
    """A scheduler, through the environment of its processes as an agent reads it."""
    INFERRED = "inferred"
    """Inference: its processes were seen to communicate with each other."""


class JobState(enum.StrEnum):
    """Whether a job still runs, as far as is known."""

    RUNNING = "running"
    ENDED = "ended"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A machine or a switch. Times are UTC, by the service's clock."""

    host: str
    cluster: str | None
    agent: str | None
    agent_version: str | None
    role: HostRole = HostRole.HOST
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
    """A port of an RDMA device or of a switch."""

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


class FabricEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cabling's columns that a topology needs; `last_seen` is the time of the last report."""

    host: str
    device: str
    port: str
    method: str
    peer_name: str
    peer_port: str
    peer_guid: str
    peer_chassis: str
    peer_port_id: str
    since: datetime
    last_seen: datetime


class Cabling(FabricEnd, frozen=True, kw_only=True, gc=False):
    """A neighbour as a port reported it by one method, and from when to when."""

    number: int
    until: datetime | None
    """None while no evidence contradicts it."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """How far an agent's numbered batches have come."""

    agent: str
    boot: str
    last_sequence: int
    last_received_at: datetime
    batches_missing: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A training job. `alias_of` is the job that it turned out to be, if it did."""

    job: str
    name: str | None
    user: str | None
    scheduler: str | None
    cluster: str | None
    origin: JobOrigin
    state: JobState
    alias_of: str | None
    started_at: datetime | None
    ended_at: datetime | None
    ranks: int | None
    attributes: dict[str, str]
    revision: int
    first_seen: datetime
    last_seen: datetime


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator of a job. `trees`: for each channel each rank's parent, None for roots."""

    communicator: str
    job: str
    name: str | None
    ranks: int | None
    nodes: int | None
    rings: list[list[int]]
    trees: list[dict[str, int | None]]
    is_in_network: bool
    first_seen: datetime
    last_seen: datetime


class CommunicatorMember(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator, the process that it is, and its rank in the job if known."""

    communicator: str
    rank: int
    host: str
    pid: int
    job_rank: int | None


class RankSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rank of a job, as a client registers it."""

    rank: int
    host: str
    gpu: str | int | None = None
    gpu_uuid: str | None = None
    device: str | None = None
    port: str | int | None = None
    local_rank: int | None = None
    pid: int | None = None


class JobSaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job, as a client registers it."""

    id: str
    name: str | None = None
    user: str | None = None
    scheduler: str | None = None
    cluster: str | None = None
    started_at: datetime | None = None
    hosts: list[str] = []
    ranks: list[RankSaid] = []
    groups: dict[str, list[list[int]]] = {}
    attributes: dict[str, str] = {}


class JobChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client's change of a job; fields that are not given stay.

    `attributes` are merged, one that is null goes; `hosts` and `ranks` are added or changed;
    `groups` take the place of those that are there.
    """

    name: str | msgspec.UnsetType | None = msgspec.UNSET
    user: str | msgspec.UnsetType | None = msgspec.UNSET
    scheduler: str | msgspec.UnsetType | None = msgspec.UNSET
    cluster: str | msgspec.UnsetType | None = msgspec.UNSET
    state: JobState | msgspec.UnsetType = msgspec.UNSET
    started_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    ended_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    hosts: list[str] = []
    ranks: list[RankSaid] = []
    groups: dict[str, list[list[int]]] | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, str | None] = {}


class FabricDevice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device's columns that a topology needs: there are many rows, and times cost most."""

    host: str
    kind: str
    device: str
    driver: str | None
    attributes: dict[str, str]


class FabricPort(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A port's columns that a topology needs."""

    host: str
    device: str
    port: str
    link_layer: str | None
    state: str | None
    rate_bits_per_second: int | None
    netdev: str | None
    guid: str | None
    last_seen: datetime
    description: str | None


class FabricRows(msgspec.Struct, frozen=True):
    """All of the inventory that a topology is made of, as it was read in one transaction."""

    hosts: list[Host]
    """Switches too."""
    devices: list[FabricDevice]
    """RDMA devices, switches and network interfaces."""
    ports: list[FabricPort]
    ends: list[FabricEnd]
    """Without ends that report no neighbour."""
