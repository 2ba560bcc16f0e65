"""The inventory's tables, as SQLAlchemy models.

Times are timezone-aware UTC. Names (host, device, port) are the sender's, compared byte by byte.

What a thing is like (firmware, link layer, …) arrives in any order and from several processes.
So each attribute keeps the time at which it was last seen (`attribute_times`, unix microseconds
by attribute name), and the latest one stands: see `api.data.inventory.merge`. Attributes that
people filter by are columns of their own, the others are in `attributes`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    Text,
    false,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedColumn, mapped_column
from sqlalchemy.types import TypeDecorator, TypeEngine

from api.data.inventory.records import HostRole


class UtcTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite keeps no zone, so it is taken off there and put back on.

    SQLite's text form has a fixed width, so that comparing texts compares times.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The value as the database takes it; a time without a zone is a bug of the caller."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; the inventory keeps UTC")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


NAME: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")
"""Part of a key. Byte order on both databases: pages come in the same order, and no update of the
operating system's collations can make an index of PostgreSQL wrong."""


def owned_by(column: str, *, index: bool | None = None) -> MappedColumn[str]:
    """Part of a key; the row goes with the one that it belongs to."""
    owner = ForeignKey(column, ondelete="CASCADE")
    return mapped_column(NAME, owner, primary_key=True, index=index)


DOCUMENT: TypeEngine[Any] = JSON().with_variant(JSONB(), "postgresql")


class Base(DeclarativeBase):
    """What all tables share; constraints have names, so that a migration can change them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        datetime: UtcTime(),
        dict[str, str]: DOCUMENT,
        dict[str, int]: DOCUMENT,
    }


class SeenMixin:
    """When a thing was seen, and the attributes that are no columns."""

    first_seen: Mapped[datetime]
    last_seen: Mapped[datetime]
    attributes: Mapped[dict[str, str]]
    attribute_times: Mapped[dict[str, int]]


class HostRow(SeenMixin, Base):
    """A machine, by the name its agent or exporter reports; or a switch, by its own name."""

    __tablename__ = "hosts"

    host: Mapped[str] = mapped_column(NAME, primary_key=True)
    cluster: Mapped[str | None]
    agent: Mapped[str | None]
    agent_version: Mapped[str | None]
    role: Mapped[str] = mapped_column(server_default=HostRole.HOST.value)


class DeviceRow(SeenMixin, Base):
    """A network adapter, network interface or GPU of a host."""

    __tablename__ = "devices"

    host: Mapped[str] = owned_by("hosts.host")
    kind: Mapped[str] = mapped_column(NAME, primary_key=True)
    device: Mapped[str] = mapped_column(NAME, primary_key=True)
    driver: Mapped[str | None]
    firmware: Mapped[str | None]


class PortRow(SeenMixin, Base):
    """A port of an RDMA device or of a switch."""

    __tablename__ = "ports"

    host: Mapped[str] = owned_by("hosts.host")
    device: Mapped[str] = mapped_column(NAME, primary_key=True)
    port: Mapped[str] = mapped_column(NAME, primary_key=True)
    link_layer: Mapped[str | None]
    state: Mapped[str | None]
    rate_bits_per_second: Mapped[int | None] = mapped_column(BigInteger)
    netdev: Mapped[str | None]
    guid: Mapped[str | None]


class CablingRow(Base):
    """A neighbour that a port named, by one method, and from when to when.

    `number` counts a port's cablings of one method, from 1. `until` is null while no evidence
    contradicts the cable; else it is the last time that it was seen.
    """

    __tablename__ = "cablings"

    host: Mapped[str] = owned_by("hosts.host")
    device: Mapped[str] = mapped_column(NAME, primary_key=True)
    port: Mapped[str] = mapped_column(NAME, primary_key=True)
    method: Mapped[str] = mapped_column(NAME, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    peer_name: Mapped[str]
    peer_port: Mapped[str]
    peer_guid: Mapped[str]
    peer_chassis: Mapped[str]
    peer_port_id: Mapped[str]
    since: Mapped[datetime]
    last_seen: Mapped[datetime]
    until: Mapped[datetime | None]


class AgentRow(Base):
    """`batches_missing` counts what has not come since `first_sequence`, the first of `boot`.

    `gaps` are the first and the last number of each of the latest gaps (`batches.GAPS_MAX`).
    """

    __tablename__ = "agents"

    agent: Mapped[str] = mapped_column(NAME, primary_key=True)
    boot: Mapped[str]
    last_sequence: Mapped[int] = mapped_column(BigInteger)
    last_received_at: Mapped[datetime]
    batches_missing: Mapped[int] = mapped_column(BigInteger)
    first_sequence: Mapped[int] = mapped_column(BigInteger, server_default="0")
    gaps: Mapped[list[list[int]]] = mapped_column(DOCUMENT, server_default="[]")


class CaptureRow(Base):
    """A request for an agent's raw fast samples."""

    __tablename__ = "captures"

    agent: Mapped[str] = mapped_column(NAME, primary_key=True)
    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    state: Mapped[str] = mapped_column(index=True)
    seconds_before: Mapped[float]
    seconds_after: Mapped[float]
    devices: Mapped[Any] = mapped_column(DOCUMENT)
    detail: Mapped[str]
    samples: Mapped[int | None] = mapped_column(BigInteger)
    requested_at: Mapped[datetime]
    handed_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    by: Mapped[str] = mapped_column(server_default="")
    why: Mapped[str] = mapped_column(server_default="")


class ConfigurationRow(Base):
    """A configuration for agents, and how far its roll-out has come (JSON text).

    `revision` counts the changes of the roll-out: of two writers at once one sees that it lost.
    """

    __tablename__ = "configurations"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sha256: Mapped[str]
    signature: Mapped[str]
    document: Mapped[bytes] = mapped_column(LargeBinary)
    by: Mapped[str]
    why: Mapped[str]
    at: Mapped[datetime]
    revision: Mapped[int]
    rollout: Mapped[str]


class AgentConfigurationRow(Base):
    """What an agent that takes part in roll-outs reported last. `good` 0: its own file alone."""

    __tablename__ = "agent_configurations"

    agent: Mapped[str] = mapped_column(NAME, primary_key=True)
    good: Mapped[int]
    trying: Mapped[int | None]
    failed: Mapped[int | None]
    detail: Mapped[str]
    at: Mapped[datetime]
    heard_at: Mapped[datetime] = mapped_column(index=True)


# --- incidents ----------------------------------------------------------------------------------


class IncidentRow(Base):
    """An incident as JSON text, which no query reads inside, and what it is looked up by."""

    __tablename__ = "incidents"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    state: Mapped[str] = mapped_column(index=True)
    cause: Mapped[str]
    last_seen: Mapped[datetime] = mapped_column(index=True)
    closed: Mapped[datetime | None]
    document: Mapped[str]


class IncidentNameRow(Base):
    """A job, host or switch that an incident is about or that suffers from it."""

    __tablename__ = "incident_names"

    incident: Mapped[str] = owned_by("incidents.id")
    kind: Mapped[str] = mapped_column(NAME, primary_key=True)
    name: Mapped[str] = mapped_column(NAME, primary_key=True)

    __table_args__ = (Index(None, "kind", "name"),)


class IncidentChangeRow(Base):
    """A change of an incident, numbered over all processes, for clients that reconnect."""

    __tablename__ = "incident_changes"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    incident: Mapped[str] = mapped_column(NAME)
    time: Mapped[datetime]
    document: Mapped[str]


class LeaseRow(Base):
    """The process that does a task which only one may do, and until when its lease lasts.

    ``epoch`` grows with each new holder. ``samples_until``: unix nanoseconds by the holder's clock,
    the last moment for which it may write samples; the next holder begins behind it.
    """

    __tablename__ = "leases"

    task: Mapped[str] = mapped_column(NAME, primary_key=True)
    holder: Mapped[str]
    until: Mapped[datetime]
    done_at: Mapped[datetime | None]
    since: Mapped[datetime | None]
    epoch: Mapped[int] = mapped_column(BigInteger, server_default="0")
    samples_until: Mapped[int] = mapped_column(BigInteger, server_default="0")


class JobLookRow(Base):
    """What an evaluator that does not judge saw when it last looked at a job."""

    __tablename__ = "job_looks"

    job: Mapped[str] = mapped_column(NAME, primary_key=True)
    holder: Mapped[str]
    looked_ns: Mapped[int] = mapped_column(BigInteger)
    is_quiet: Mapped[bool]
    shape: Mapped[str]


# --- alerts -------------------------------------------------------------------------------------


class AlertRow(Base):
    """An alert that stands, of one rule for one label set. Keys are digests: names may be any."""

    __tablename__ = "alerts"

    rule_group: Mapped[str] = mapped_column(NAME, primary_key=True)
    rule: Mapped[str] = mapped_column(NAME, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(NAME, primary_key=True)
    document: Mapped[str]


class RuleGroupRow(Base):
    """A group of rules and how its last evaluation went."""

    __tablename__ = "rule_groups"

    rule_group: Mapped[str] = mapped_column(NAME, primary_key=True)
    evaluated_at: Mapped[datetime]
    document: Mapped[str]


# --- notices ------------------------------------------------------------------------------------


class TalkRow(Base):
    """The last state of a group of alerts sent to a receiver. The key is a digest of its name."""

    __tablename__ = "talks"

    talk: Mapped[str] = mapped_column(NAME, primary_key=True)
    document: Mapped[str]


class NoticeRow(Base):
    """A message to a receiver, sent once: the outbox, and the record of what was sent."""

    __tablename__ = "notices"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    talk: Mapped[str] = mapped_column(NAME, index=True)
    receiver: Mapped[str] = mapped_column(NAME)
    state: Mapped[str]
    status: Mapped[str]
    is_critical: Mapped[bool]
    planned_at: Mapped[datetime] = mapped_column(index=True)
    due_at: Mapped[datetime]
    attempts: Mapped[int] = mapped_column(BigInteger)
    ended_at: Mapped[datetime | None]
    detail: Mapped[str]
    document: Mapped[str]

    __table_args__ = (Index(None, "state", "due_at"),)


class SilenceRow(Base):
    """Matchers of alerts whose notices are withheld for a while."""

    __tablename__ = "silences"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    ends_at: Mapped[datetime] = mapped_column(index=True)
    document: Mapped[str]


# --- health -------------------------------------------------------------------------------------


class HoldRow(Base):
    """A thing is draining or out; a row stays for a while after its end, as a record."""

    __tablename__ = "holds"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    kind: Mapped[str] = mapped_column(NAME)
    host: Mapped[str] = mapped_column(NAME)
    name: Mapped[str] = mapped_column(NAME)
    state: Mapped[str]
    reason: Mapped[str]
    by: Mapped[str]
    since: Mapped[datetime]
    until: Mapped[datetime | None]
    ended_at: Mapped[datetime | None] = mapped_column(index=True)
    ended_by: Mapped[str]

    __table_args__ = (Index(None, "kind", "name"),)


class ActionRow(Base):
    """A drain from its request to its end. While it stands (`standing`), a `HoldRow` holds it."""

    __tablename__ = "actions"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    host: Mapped[str] = mapped_column(NAME, index=True)
    incident: Mapped[str] = mapped_column(NAME)
    state: Mapped[str]
    at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]
    document: Mapped[str]

    __table_args__ = (Index(None, "state", "ended_at"),)


class FeedbackRow(Base):
    """What an operator said about an incident's verdict; the latest one stands."""

    __tablename__ = "feedback"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    incident: Mapped[str] = mapped_column(NAME, index=True)
    at: Mapped[datetime] = mapped_column(index=True)
    document: Mapped[str]


class IncidentWorkRow(Base):
    """Something that a person did about an incident: acknowledged, assigned or noted."""

    __tablename__ = "incident_work"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    incident: Mapped[str] = mapped_column(NAME, index=True)
    at: Mapped[datetime] = mapped_column(index=True)
    document: Mapped[str]


class CaseRow(Base):
    """The window that an incident's verdict was made from, packed, or why there is none."""

    __tablename__ = "cases"

    incident: Mapped[str] = mapped_column(NAME, primary_key=True)
    at: Mapped[datetime] = mapped_column(index=True)
    document: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    packed: Mapped[bytes | None] = mapped_column(LargeBinary)


class HealthTurnRow(Base):
    """A thing went from one state to another; numbered over all processes."""

    __tablename__ = "health_turns"

    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    host: Mapped[str] = mapped_column(NAME, index=True)
    time: Mapped[datetime]
    document: Mapped[str]


# --- jobs ---------------------------------------------------------------------------------------


class JobRow(Base):
    """A training job.

    `alias_of` is set when two jobs turned out to be one: the row then only leads to the other.
    `revision` grows with each new fact about the job that inference must read.
    """

    __tablename__ = "jobs"

    job: Mapped[str] = mapped_column(NAME, primary_key=True)
    name: Mapped[str | None]
    user: Mapped[str | None]
    scheduler: Mapped[str | None]
    cluster: Mapped[str | None]
    origin: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    alias_of: Mapped[str | None] = mapped_column(NAME)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    ranks: Mapped[int | None] = mapped_column(BigInteger)
    groups: Mapped[Any] = mapped_column(DOCUMENT)
    attributes: Mapped[dict[str, str]]
    revision: Mapped[int] = mapped_column(BigInteger)
    first_seen: Mapped[datetime]
    last_seen: Mapped[datetime]


class JobHostRow(Base):
    """A host on which a job runs."""

    __tablename__ = "job_hosts"

    job: Mapped[str] = owned_by("jobs.job")
    host: Mapped[str] = mapped_column(NAME, primary_key=True, index=True)
    origin: Mapped[str]


class JobRankRow(Base):
    """A rank of a job and where it runs. `origins` has the source of each fact."""

    __tablename__ = "job_ranks"

    job: Mapped[str] = owned_by("jobs.job")
    rank: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    host: Mapped[str | None]
    pid: Mapped[int | None] = mapped_column(BigInteger)
    gpu: Mapped[str | None]
    gpu_uuid: Mapped[str | None]
    device: Mapped[str | None]
    devices: Mapped[str | None]
    port: Mapped[str | None]
    local_rank: Mapped[int | None] = mapped_column(BigInteger)
    origins: Mapped[dict[str, str]]


class CommunicatorRow(Base):
    """A communicator of a job. Two jobs may have one of the same name (`pg:default`)."""

    __tablename__ = "communicators"

    communicator: Mapped[str] = mapped_column(NAME, primary_key=True)
    job: Mapped[str] = owned_by("jobs.job", index=True)
    name: Mapped[str | None]
    ranks: Mapped[int | None] = mapped_column(BigInteger)
    nodes: Mapped[int | None] = mapped_column(BigInteger)
    rings: Mapped[Any] = mapped_column(DOCUMENT)
    trees: Mapped[Any] = mapped_column(DOCUMENT)
    is_in_network: Mapped[bool] = mapped_column(server_default=false())
    first_seen: Mapped[datetime]
    last_seen: Mapped[datetime]


class MemberRow(Base):
    """A rank of a communicator, the process that it is, and its rank in the job if known."""

    __tablename__ = "members"

    communicator: Mapped[str] = mapped_column(NAME, primary_key=True)
    job: Mapped[str] = mapped_column(NAME, primary_key=True, index=True)
    rank: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    host: Mapped[str]
    pid: Mapped[int] = mapped_column(BigInteger)
    job_rank: Mapped[int | None] = mapped_column(BigInteger)

    __table_args__ = (
        ForeignKeyConstraint(
            ["communicator", "job"],
            ["communicators.communicator", "communicators.job"],
            ondelete="CASCADE",
        ),
    )


class ServiceKeyRow(Base):
    """A key that all processes of the service share, made at the first need."""

    __tablename__ = "service_keys"

    name: Mapped[str] = mapped_column(NAME, primary_key=True)
    secret: Mapped[bytes] = mapped_column(LargeBinary)
    made_at: Mapped[datetime]


class TokenRow(Base):
    """A token's digest and `scopes` (with commas); kept after its end, as a record."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(NAME, primary_key=True)
    name: Mapped[str]
    digest: Mapped[str]
    scopes: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    requests_per_second: Mapped[float | None] = mapped_column(Double)
    hosts: Mapped[str] = mapped_column(server_default="*")
