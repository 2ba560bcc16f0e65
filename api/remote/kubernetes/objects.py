"""The objects of Kubernetes' API, with the fields that we read.

Lists that we write back whole (taints) keep their entries as they came: a field that we do not know
must not be lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One of a node's conditions. Times are RFC 3339."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of any object."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeSpec(msgspec.Struct, frozen=True):
    """Of a node."""

    taints: list[Json] | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    """Of a node."""

    conditions: list[Condition] | None = None


class Node(msgspec.Struct, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def taints(self) -> list[Json]:
        return self.spec.taints or []

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.status.conditions or () if each.type == kind), None)

    def is_older_than(self, other: Node) -> bool:
        """Whether another is the same node later: versions are growing numbers, or not compared."""
        mine, its = self.metadata.resource_version, other.metadata.resource_version
        return mine.isdecimal() and its.isdecimal() and int(mine) < int(its)


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class NodeList(msgspec.Struct, frozen=True):
    """A page of nodes."""

    metadata: ListMetadata = ListMetadata()
    items: list[Node] = []


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct, frozen=True):
    """The API server's refusal."""

    message: str = ""
    reason: str = ""
    code: int = 0


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """The holder of a lease, since when, and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct):
    """`coordination.k8s.io/v1` Lease."""

    metadata: Metadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
