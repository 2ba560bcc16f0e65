"""Jobs as plain values: the input and output of inference, and what is stored."""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Origin(enum.StrEnum):
    """The source of a fact about a rank; an earlier member outranks a later one."""

    REGISTERED = "registered"
    """A person or a program, by `POST /v1/jobs`."""
    NCCL = "nccl"
    """NCCL's debug lines: what it really uses."""
    SCHEDULER = "scheduler"
    """The environment of the rank's process."""
    RECORDS = "records"
    PCI = "pci"
    """The nearest by PCI topology."""
    INFERRED = "inferred"
    """The order of hosts and processes: a guess that only keeps ranks apart."""


STRENGTH: Final = {origin: -place for place, origin in enumerate(Origin)}

FACTS: Final = ("host", "pid", "gpu", "gpu_uuid", "device", "devices", "port", "local_rank")
"""The fields of a rank besides its number."""


class JobRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a job and where it runs. ``origins`` has the Origin of each fact that is known.

    ``device`` is the NIC that it uses first, ``devices`` are all of them, joined by commas.
    ``origins["rank"]`` is the source of the number itself.
    """

    rank: int
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    gpu_uuid: str | None = None
    device: str | None = None
    devices: str | None = None
    port: str | None = None
    local_rank: int | None = None
    origins: dict[str, str] = {}


def said(rank: int, origin: Origin, **facts: str | int | None) -> JobRank:
    """A rank with these facts, all from one origin; None is no fact."""
    known = {name: value for name, value in facts.items() if value is not None}
    origins = {name: str(origin) for name in ("rank", *known)}
    return msgspec.convert({"rank": rank, **known, "origins": origins}, JobRank)


def strength(rank: JobRank, fact: str) -> int:
    """Strength of a fact's origin; a fact without an origin is weakest."""
    try:
        return STRENGTH[Origin(rank.origins[fact])]
    except (KeyError, ValueError):
        return -len(STRENGTH)


def merged(old: JobRank, new: JobRank) -> JobRank:
    """Both ranks' facts; where they differ the stronger origin's stands, or else the newer.

    >>> a, b = said(0, Origin.NCCL, gpu="1"), said(0, Origin.INFERRED, gpu="2", host="h")
    >>> merged(a, b).gpu, merged(b, a).gpu, merged(a, b).host
    ('1', '1', 'h')
    """
    values: dict[str, object] = {}
    origins = dict(old.origins)
    for fact in ("rank", *FACTS):
        if fact in new.origins and strength(new, fact) >= strength(old, fact):
            values[fact] = getattr(new, fact)
            origins[fact] = new.origins[fact]
    return msgspec.structs.replace(old, **values, origins=origins)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A process that took part in a communicator's operations, according to its records.

    ``ranks`` is the communicator's size and ``pid`` the process, 0 where no record has it;
    ``job`` is the agent's label.
    """

    communicator: str
    rank: int
    host: str
    pid: int = 0
    ranks: int = 0
    job: str = ""
    first_ns: int = 0
    last_ns: int = 0


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a person or scheduler named: inference must fit its findings into it."""

    job: str
    hosts: frozenset[str]
    ranks: int | None = None
    places: tuple[JobRank, ...] = ()
    started_ns: int | None = None
    ended_ns: int | None = None


class EarlierJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was inferred before, and by what it is recognised."""

    job: str
    first_ns: int
    communicators: frozenset[str]


class MemberFound(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator. ``job_rank`` is None where a process has several ranks."""

    rank: int
    host: str
    pid: int
    job_rank: int | None


class CommunicatorFound(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator of a job. ``trees``: for each channel each rank's parent, None for roots."""

    communicator: str
    members: tuple[MemberFound, ...]
    ranks: int
    name: str | None = None
    nodes: int | None = None
    rings: list[list[int]] = []
    trees: list[dict[int, int | None]] = []
    is_in_network: bool = False
    """Switches of the network add up for it."""
    first_ns: int = 0
    last_ns: int = 0


class JobFound(msgspec.Struct, frozen=True, kw_only=True):
    """A job as inferred from its records. ``aliases`` are inferred jobs that turned out to be it.

    ``was_said``: a person or scheduler named the job; otherwise inference named it.
    """

    job: str
    was_said: bool
    ranks: int
    places: tuple[JobRank, ...]
    communicators: tuple[CommunicatorFound, ...]
    hosts: frozenset[str]
    first_ns: int
    last_ns: int
    aliases: tuple[str, ...] = ()
