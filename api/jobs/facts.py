"""Facts about ranks from communicators' events: GPUs, NICs, rings, trees. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from api.data.inventory.job_model import Member
from collector.contract import communicator as words
from collector.contract.communicator import communicator_rings, communicator_trees, parse_ranks
from collector.contract.model import Event
from collector.contract.records import NAME_CHARS_MAX


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one rank of a communicator; empty or None where unknown."""

    host: str = ""
    pid: int = 0
    gpu: str | None = None
    bus_id: str | None = None
    local_rank: int | None = None
    devices: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from events, by communicator and rank."""

    ranks: dict[tuple[str, int], RankFacts] = {}
    groups: dict[str, tuple[int, ...]] = {}
    """For a process group of the framework, the job's ranks that are in it; -1: not known."""
    names: dict[str, str] = {}
    nodes: dict[str, int] = {}
    rings: dict[str, list[list[int]]] = {}
    trees: dict[str, list[dict[int, int | None]]] = {}
    in_network: set[str] = set()
    """Communicators for which switches of the network add up."""
    members: list[Member] = []
    """Members of communicators by NCCL's own lines, also where no record was made."""


def to_event(row: Mapping[str, Any]) -> Event:
    """A row of the store's events, with or without its message."""
    return Event(
        kind=row["kind"],
        time_ns=row["time_ns"],
        labels=dict(row["labels"]),
        message=row.get("message", ""),
        attributes=dict(row["attributes"]),
    )


def facts_of(events: Iterable[Event]) -> Facts:
    """The facts of these events together; of two that differ the later one counts."""
    ordered = sorted(events, key=lambda event: event.time_ns)
    attributes: dict[tuple[str, int], dict[str, str]] = {}
    facts = Facts(
        ranks={},
        groups={},
        names={},
        nodes={},
        rings=communicator_rings(ordered),
        trees=communicator_trees(ordered),
        in_network=set(),
        members=[],
    )
    times: dict[tuple[str, int], list[int]] = {}
    for event in ordered:
        communicator = event.labels.get(words.COMMUNICATOR, "")
        if not is_name(communicator):
            continue
        name = event.attributes.get(words.NAME, "")
        if is_name(name):
            facts.names[communicator] = name
        if event.kind == words.PROCESS_GROUP:
            if ranks := parse_ranks(event.attributes.get(words.RANKS, "")):
                facts.groups[communicator] = tuple(ranks)
            continue
        if nodes := number(event.attributes, words.NODES):
            facts.nodes[communicator] = nodes
        if event.attributes.get(words.IN_NETWORK) == "1":
            facts.in_network.add(communicator)
        rank = number(event.labels, words.RANK)
        if event.kind == words.COMMUNICATOR and rank is not None:
            seen = attributes.setdefault((communicator, rank), {})
            seen.setdefault(words.HOST, event.labels.get("host", ""))
            seen.update(event.attributes)
            times.setdefault((communicator, rank), []).append(event.time_ns)
    facts.ranks.update({key: read_rank(seen) for key, seen in attributes.items()})
    facts.members.extend(
        Member(
            communicator=communicator,
            rank=rank,
            host=found.host,
            pid=found.pid,
            ranks=number(attributes[communicator, rank], words.RANKS) or 0,
            first_ns=min(times[communicator, rank]),
            last_ns=max(times[communicator, rank]),
        )
        for (communicator, rank), found in facts.ranks.items()
        if found.pid and found.host
    )
    return facts


def read_rank(seen: Mapping[str, str]) -> RankFacts:
    gpu = number(seen, words.NVML_DEVICE)
    host, bus_id = seen.get(words.HOST, ""), seen.get(words.BUS_ID, "")
    devices = seen.get(words.DEVICES, "").split(",")
    return RankFacts(
        host=host if is_name(host) else "",
        pid=number(seen, words.PID) or 0,
        gpu=None if gpu is None else str(gpu),
        bus_id=bus_id if is_name(bus_id) else None,
        local_rank=number(seen, words.LOCAL_RANK),
        devices=tuple(device for device in devices if is_name(device)),
    )


def number(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name, "")
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(1 << 31)):
        return None
    return int(text) if int(text) < 1 << 31 else None


def is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and text.isprintable()


def nearest_devices(gpu_path: str, device_paths: Mapping[str, str]) -> list[str]:
    """The devices that share the longest way through the PCI tree with a GPU, by name.

    Paths are sysfs': `/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0`. None is near if nothing
    below `pci…` is shared: a NIC at another socket is as far as any other.

    >>> root = "/sys/devices/pci0000:00"
    >>> nics = {"mlx5_0": f"{root}/0000:00:01.0/0000:01:00.0", "mlx5_1": f"{root}/0000:00:02.0/x"}
    >>> nearest_devices(f"{root}/0000:00:01.0/0000:02:00.0", nics)
    ['mlx5_0']
    """
    shared = {
        name: shared_hops(gpu_path.split("/"), path.split("/"))
        for name, path in device_paths.items()
    }
    most = max(shared.values(), default=0)
    return sorted(name for name, hops in shared.items() if hops == most and most > 0)


def shared_hops(one: Sequence[str], other: Sequence[str]) -> int:
    """How many parts of two paths are the same, counted from the PCI root on."""
    hops = 0
    below_root = False
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        below_root = below_root or mine.startswith("pci")
        hops += below_root
    return hops
