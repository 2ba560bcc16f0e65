"""Derives the things that exist from a series' labels: a host, its device or port, a job. Pure.

Only series whose metric the catalog defines, by its own name or by another exporter's, count: an
application's series must not create hosts. Names that cannot be identities, or are longer than an
index takes, are ignored.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime
from typing import Final

import msgspec

from api.base.host_names import without_port
from api.data.inventory.records import DeviceKind, HostRole
from collector.contract.catalog import Alias, Catalog, Kind, Metric, Target
from collector.contract.identity import METRIC_LABEL, Labels, printable, whole_number

NAME_BYTES_MAX: Final = 255
"""A host's, device's or port's name. DNS stops at 253; three of them fit PostgreSQL's largest index
entry (2,704 bytes). A longer name is ignored."""
ATTRIBUTE_CHARS_MAX: Final = 512
"""An attribute's value; the rest is cut off."""

RATE_BITS_PER_SECOND_MAX: Final = 10**15
"""A thousand times the fastest port of today; more is a broken reading, and is left out."""

Attributes = tuple[tuple[str, str], ...]

PEER_LABELS: Final = ("peer_name", "peer_port", "peer_guid", "peer_chassis", "peer_port_id")
"""Labels that describe a port's neighbour, in this order in `Peer`."""
Peer = tuple[str, str, str, str, str]

HOST_LABELS: Final = ("host", "node", "Hostname", "hostname")
"""Labels with a host's name, best first: the catalog's, Kubernetes', dcgm-exporter's old and new.
Failing all, `instance` without its port."""

DEVICE_ATTRIBUTES: Final = frozenset(
    {"board_id", "driver", "firmware", "hca_type", "model", "node_guid", "pci_path", "vendor"}
)
"""Labels of a port's info metric that describe the whole device."""

RENAMED: Final = {
    ("agent", "version"): "agent_version",
    ("nic", "version"): "driver_version",
    ("port", "port_guid"): "guid",
}
"""Labels of a target's info metrics that have another name in the inventory."""

VALUE_ATTRIBUTES: Final = frozenset({"state", "rate_bits_per_second"})
"""These are samples' values (`PortValues`), never labels."""

PORT_STATES: Final[dict[float, str]] = {
    1: "down",
    2: "init",
    3: "armed",
    4: "active",
    5: "active_defer",
}
"""Values of `fabric_port_state`, as the kernel names them (`enum ib_port_state`)."""

GPU_ATTRIBUTES: Final = {
    "uuid": "uuid",
    "UUID": "uuid",
    "gpu_uuid": "uuid",
    "modelName": "model",
    "model_name": "model",
    "pci_bus_id": "pci_bus_id",
    "DCGM_FI_DRIVER_VERSION": "driver",
}
"""Labels that describe a GPU on each of its series: the catalog's, and those of older and newer
dcgm-exporters, which have no info metric."""


LINK_INFO: Final = "fabric_link_info"
SWITCH_TARGET: Final = "switch"
"""The catalog's target whose series are of a switch as a whole."""
POLLER_LABEL: Final = "method"
"""The poller is no attribute of the switch: two pollers would change it back and forth."""
ROLE: Final = "role"
"""Attribute of a host that holds its `HostRole`; no label sets it."""

JOB_INFO: Final = "fabric_job_info"
JOB_ATTRIBUTES: Final = {
    name: name
    for name in (
        *("user", "scheduler", "cluster", "namespace"),
        *("gpu", "gpu_uuid", "device", "pid", "local_rank"),
    )
}
"""Labels of JOB_INFO that describe a job or its rank."""
RANK_MAX: Final = (1 << 31) - 1


class Shape(msgspec.Struct, frozen=True):
    """Which device a target's labels name; a port label that no series has means: no port."""

    kind: DeviceKind
    device_label: str
    port_label: str = ""


SHAPES: Final = {
    "port": Shape(DeviceKind.RDMA, "device", "port"),
    "nic": Shape(DeviceKind.NIC, "device"),
    "gpu": Shape(DeviceKind.GPU, "gpu"),
}
"""By the catalog's target. All other targets that are on a host show the host alone."""


class LinkEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A port and the neighbour that it names, as the neighbour names itself (empty: unknown)."""

    device: str
    port: str
    method: str
    peer_name: str = ""
    peer_port: str = ""
    peer_guid: str = ""
    peer_chassis: str = ""
    peer_port_id: str = ""

    @property
    def peer(self) -> Peer:
        return (
            self.peer_name,
            self.peer_port,
            self.peer_guid,
            self.peer_chassis,
            self.peer_port_id,
        )


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Something that exists: a host, or a device on it, or a port of that device, or a job there.

    `kind` and `device` are there together or not at all, `port` only with them, `rank` only with
    `job`. Attributes belong to the thing in their name. `link` is one end of a cable at the
    host, whose port need not be an RDMA device's.
    """

    host: str
    kind: DeviceKind | None = None
    device: str = ""
    port: str = ""
    host_attributes: Attributes = ()
    device_attributes: Attributes = ()
    port_attributes: Attributes = ()
    job: str = ""
    rank: int | None = None
    job_attributes: Attributes = ()
    link: LinkEnd | None = None


class Observation(msgspec.Struct, frozen=True):
    """A sighting and when it was made, by the service's clock.

    `first_seen` is not after `last_seen`; the attributes were as they are at `last_seen`.
    """

    sighting: Sighting
    first_seen: datetime
    last_seen: datetime

    @classmethod
    def at(cls, sighting: Sighting, moment: datetime) -> Observation:
        return cls(sighting, moment, moment)


class PortValues(msgspec.Struct, frozen=True, kw_only=True):
    """The latest values of one port's gauges, which no label carries. None keeps the stored value.

    `state` is the value of `fabric_port_state`, `rate_bits_per_second` that of the metric of this
    name; both are samples, so floats, and may be any.
    """

    host: str
    device: str
    port: str
    seen_at: datetime
    state: float | None = None
    rate_bits_per_second: float | None = None

    def sighting(self) -> Sighting | None:
        if not (is_name(self.host) and is_name(self.device) and is_name(self.port)):
            return None
        attributes = {}
        if self.state is not None:
            attributes["state"] = PORT_STATES.get(self.state, f"unknown ({self.state:g})")
        rate = self.rate_bits_per_second
        if rate is not None and 0 <= rate <= RATE_BITS_PER_SECOND_MAX:
            attributes["rate_bits_per_second"] = str(int(rate))
        is_switch = self.host == self.device
        return Sighting(
            host=self.host,
            kind=DeviceKind.SWITCH if is_switch else DeviceKind.RDMA,
            device=self.device,
            port=self.port,
            host_attributes=ordered(role_of(is_switch=is_switch)),
            port_attributes=ordered(attributes),
        )


def sight(labels: Labels, catalog: Catalog) -> Sighting | None:
    found = dict(labels)
    name = found.get(METRIC_LABEL, "")
    metric = catalog.metric(name)
    if metric is not None:
        return sight_as(metric, None, found, catalog)
    for alias, ours in catalog.aliases_of(name):
        if alias.fits(found):
            return sight_as(ours, alias, found, catalog)
    return None


def sight_as(
    metric: Metric, alias: Alias | None, labels: dict[str, str], catalog: Catalog
) -> Sighting | None:
    target = catalog.target_of(metric.name)
    theirs = alias.labels if alias is not None else {}
    host = host_of(labels, theirs)
    if metric.name == JOB_INFO:
        return sight_job(labels, host)
    if target is None or "host" not in target.labels or not is_name(host):
        return None
    on_host = {"cluster": short(labels["cluster"])} if "cluster" in labels else {}
    if metric.name == LINK_INFO:
        return sight_link(labels, host, on_host)
    attributes = info_attributes(metric, target, labels, theirs)
    shape = SHAPES.get(target.name)
    if target.name == SWITCH_TARGET:
        attributes = role_of(is_switch=True) | picked_but(attributes, {POLLER_LABEL})
    if shape is None:
        return Sighting(host=host, host_attributes=ordered(on_host | attributes))
    device = labels.get(theirs.get(shape.device_label, shape.device_label), "")
    port = labels.get(theirs.get(shape.port_label, shape.port_label), "")
    if not is_name(device) or (port and not is_name(port)):
        return None
    if shape.kind is DeviceKind.GPU:
        attributes |= picked(labels, GPU_ATTRIBUTES)
    is_switch = shape.kind is DeviceKind.RDMA and device == host
    on_host |= role_of(is_switch=is_switch)
    # Without a port (node_infiniband_info has none) all attributes describe the device.
    on_port = {} if not port else picked_but(attributes, DEVICE_ATTRIBUTES)
    return Sighting(
        host=host,
        kind=DeviceKind.SWITCH if is_switch else shape.kind,
        device=device,
        port=port,
        host_attributes=ordered(on_host),
        device_attributes=ordered(picked_but(attributes, on_port)),
        port_attributes=ordered(on_port),
    )


def sight_link(labels: Mapping[str, str], host: str, on_host: Mapping[str, str]) -> Sighting | None:
    """The end of a cable that a series of LINK_INFO is about; None if it names no neighbour.

    Of a switch it also shows the port. Of a host it does not: the port may be an interface's, and
    those that are RDMA devices' show themselves.
    """
    device, port, method = (labels.get(name, "") for name in ("device", "port", POLLER_LABEL))
    if not (is_name(device) and is_name(port) and is_name(method)):
        return None
    peer = picked(labels, {name: name for name in PEER_LABELS})
    if not peer:
        return None
    is_switch = device == host
    return Sighting(
        host=host,
        kind=DeviceKind.SWITCH if is_switch else None,
        device=device if is_switch else "",
        port=port if is_switch else "",
        host_attributes=ordered({**on_host, **role_of(is_switch=is_switch)}),
        link=LinkEnd(device=device, port=port, method=method, **peer),
    )


def role_of(*, is_switch: bool) -> dict[str, str]:
    """The attribute that makes a host a switch; nothing makes it none again."""
    return {ROLE: HostRole.SWITCH.value} if is_switch else {}


def sight_job(labels: Mapping[str, str], host: str) -> Sighting | None:
    job, rank = labels.get("job", ""), labels.get("rank", "")
    if not is_name(job) or not is_name(host):
        return None
    return Sighting(
        host=host,
        job=job,
        rank=whole_number(rank, RANK_MAX),
        job_attributes=ordered(picked(labels, JOB_ATTRIBUTES)),
    )


def host_of(labels: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Empty if no label has it; `theirs` maps the catalog's label to the exporter's."""
    for label in (theirs.get("host", "host"), *HOST_LABELS):
        if name := labels.get(label):
            return name
    return without_port(labels.get("instance", ""))


def info_attributes(
    metric: Metric, target: Target, labels: Mapping[str, str], theirs: Mapping[str, str]
) -> dict[str, str]:
    """Only labels that the catalog names count, so that no sender can grow a row without end."""
    if metric.kind is not Kind.INFO:
        return {}
    wanted = {
        theirs.get(ours, ours): RENAMED.get((target.name, ours), ours)
        for ours in metric.labels
        if ours not in VALUE_ATTRIBUTES
    }
    return picked(labels, wanted)


def picked(labels: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The labels that are wanted and there, under the names that `wanted` gives them."""
    return {ours: short(labels[theirs]) for theirs, ours in wanted.items() if labels.get(theirs)}


def picked_but(attributes: Mapping[str, str], left_out: Container[str]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if name not in left_out}


def ordered(attributes: Mapping[str, str]) -> Attributes:
    return tuple(sorted(attributes.items()))


def is_name(text: str) -> bool:
    """The rules of `collector.contract.identity`, and a bound on the length."""
    return bool(text) and text.isprintable() and len(text.encode()) <= NAME_BYTES_MAX


def short(text: str) -> str:
    """PostgreSQL takes no NUL, and one odd label must not hold up the others."""
    return printable(text[:ATTRIBUTE_CHARS_MAX])
