"""The data of the screen: the fields of the service's answers that a terminal needs.

Lenient on purpose: a service of a later version sends more fields, and other causes; both must
not break an older `top`. So causes are texts here, and unknown fields are ignored.
"""

from __future__ import annotations

import enum

import msgspec

from collector.contract.verdict import Cost, Culprit, Evidence, RuledOut, Undecided


class View(enum.StrEnum):
    """The views of a screen, in the order of their keys."""

    NOW = "now"
    JOBS = "jobs"
    LINKS = "links"
    HOSTS = "hosts"
    INCIDENT = "incident"


class Order(enum.StrEnum):
    """The criterion for the worst links."""

    UTILISATION = "utilisation"
    ERRORS = "errors"
    PAUSE = "pause"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to request: only what is on the screen, because each query costs the service."""

    views: frozenset[View] = frozenset({View.NOW})
    order: Order = Order.UTILISATION
    incident: str = ""
    """Whose details are wanted; empty for none."""


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """Another incident of the same trouble."""

    incident: str
    cause: str
    culprit: Culprit


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident in short, as `GET /v1/incidents` lists it."""

    id: str
    state: str
    cause: str
    culprit: Culprit
    confidence: float
    since_ns: int
    last_seen_ns: int | None = None
    """None: an older service, which does not say it."""
    summary: str = ""
    action: str = ""
    jobs: tuple[str, ...] = ()
    until_ns: int | None = None
    closed_ns: int | None = None
    lasted_seconds: float = 0.0
    """In which it was confirmed."""
    victims: int = 0
    lost_seconds: float = 0.0
    gpu_hours: float = 0.0
    costs: tuple[Cost, ...] = ()
    became: Linked | None = None

    @property
    def is_open(self) -> bool:
        return self.state == "open"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """An incident's verdict, from `GET /v1/incidents/{id}`."""

    cause: str
    culprit: Culprit
    since_ns: int
    until_ns: int | None = None
    reason: str = "unknown"
    confidence: float = 1.0
    layer: str = "unknown"
    summary: str = ""
    action: str = ""
    accomplices: tuple[Culprit, ...] = ()
    victims: tuple[Culprit, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    costs: tuple[Cost, ...] = ()
    undecided: Undecided | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an incident."""

    time_ns: int
    news: str
    cause: str
    culprit: Culprit
    confidence: float
    note: str = ""


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """All of one incident."""

    id: str
    state: str
    verdict: Judgement
    last_seen_ns: int | None = None
    jobs: tuple[str, ...] = ()
    history: tuple[Turn, ...] = ()
    lasted_seconds: float = 0.0
    taken_for: Linked | None = None
    became: Linked | None = None


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster in numbers; None where not known."""

    agents: float | None = None
    """That report."""
    gpus: float | None = None
    gpus_busy: float | None = None
    """Mean share of time."""
    jobs: float | None = None
    """That are measured."""
    links_down: int | None = None
    """Cables of which an end reports that it is down."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    job: str
    ranks: float | None = None
    step_s: float | None = None
    network: float | None = None
    """Share of the time in transfers."""
    waits: float | None = None
    """Share of the time that ranks wait for another."""
    steps_s: tuple[float, ...] = ()
    """Step times of the last minutes, the latest last."""


class LinkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A port, and what is at the other end."""

    host: str
    device: str = ""
    port: str = ""
    peer: str = ""
    is_down: bool = False
    rate: float | None = None
    """Bits a second that the link carries."""
    sends: float | None = None
    """Share of the rate."""
    receives: float | None = None
    errors: float | None = None
    """Damaged or dropped packets a second."""
    paused: float | None = None
    """Share of the time in which it may not send."""
    paused_at_most: float | None = None
    """By its pause frames alone: the longest that they can have stopped it for."""

    @property
    def name(self) -> str:
        return "/".join(part for part in (self.host, self.device, self.port) if part)


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """A host."""

    host: str
    silent_s: float | None = None
    """Since its last sample; None if the host is known by its series only."""
    gpus: float | None = None
    busy: float | None = None
    throttled: float | None = None
    """GPUs whose clock the hardware or heat holds down."""
    sends: float | None = None
    """Bits a second, all NICs together."""
    receives: float | None = None


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The service's last answers; None: not requested yet."""

    time_s: float
    """When, by the service's clock."""
    incidents: tuple[Incident, ...] = ()
    """That are open, the most costly first."""
    closed: tuple[Incident, ...] = ()
    """Over since less than an hour, the latest first."""
    fleet: Fleet = Fleet()
    jobs: tuple[JobRow, ...] | None = None
    links: tuple[LinkRow, ...] | None = None
    hosts: tuple[HostRow, ...] | None = None
    detail: Detail | None = None
    problems: dict[str, str] = {}
    """Parts that could not be answered this time, and why; their last answers stand."""
