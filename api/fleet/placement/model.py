"""The data model of placement: requests, refusals, sets, answers. Pure data."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from alerts.health.model import HealthState


class Rule(enum.StrEnum):
    """Why a request cannot be answered as it is."""

    UNKNOWN_HOSTS = "placement_unknown_hosts"
    SIZE_OVER_CANDIDATES = "placement_size_over_candidates"
    ALL_AVOIDED = "placement_all_avoided"
    NO_TOPOLOGY = "placement_no_topology"
    NO_RAILS = "placement_no_rails"
    LEAF_TOO_SMALL = "placement_leaf_too_small"


class CannotPlace(Exception):  # noqa: N818 - what it is
    """A request that contradicts itself or the fabric; the rule names how."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(detail)
        self.rule = rule


class Refusal(enum.StrEnum):
    """Why a host is not placed."""

    AVOIDED = "avoided"
    DRAINING = "draining"
    OUT = "out"
    DEGRADED = "degraded"
    SUSPECT = "suspect"
    BUSY = "busy"
    GPUS = "gpus"
    UNPLACED = "unplaced"
    RAILS = "rails"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request for placement."""

    size: int
    candidates: tuple[str, ...] | None = None
    """Hosts that the client has free; None: every host of the fleet that runs no job."""
    gpus_per_host: int | None = None
    """None: all that a host has."""
    same_leaf: bool = False
    """Every NIC of a set hangs on the leaf on which the others' NICs of that slot hang."""
    rail_aligned: bool = False
    """Every NIC of a host is up, and on a leaf of its own rail."""
    avoid: tuple[str, ...] = ()
    """Hosts; or switches, for all hosts that hang on them."""
    allow: frozenset[HealthState] = frozenset()
    """SUSPECT, DEGRADED: placed too, if needed."""
    sets: int = 1


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is in no set, and why."""

    host: str
    kind: Refusal
    reason: str


class SharedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A running job that shares something with a set."""

    job: str
    title: str
    hosts: int
    """Of the set, on which it runs too."""
    leaf_hosts: int
    """Of the job, that hang on a leaf of the set."""
    uplinks: int
    """Links between switches that both send over in the same direction."""
    bits_per_second: float | None
    """The most that it may send over one of these; None: no rate is known."""


class PlacedSet(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that a job could get, best first among the sets of an answer."""

    hosts: list[str]
    """In the order of the ring that was counted with: give ranks in this order."""
    score: float
    """The bandwidth share times the chance that none of the hosts makes trouble."""
    expected_bandwidth_bits_per_second: float | None
    """For each host, at the worst place of the ring; null: not known."""
    bandwidth_share: float | None
    """Of what the best candidate's NICs carry, 0 to 1; null: the topology is not known."""
    oversubscription: float | None
    """At the worst leaf that the set leaves: what the set's NICs there carry, for each bit that
    the leaf's live uplinks carry. Above 1 traffic of all to all suffers; null: nothing leaves a
    leaf, or it is not known."""
    risk: float
    """That at least one of the hosts makes trouble."""
    leaves: Mapping[str, int]
    """How many of the set's NICs hang on each leaf."""
    shared_jobs: list[SharedJob]
    """Those that share most first; cut to PLACEMENT_JOBS_SHOWN_MAX."""
    shared_jobs_total: int
    why: list[str]


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request for placement."""

    as_of: float
    """Unix seconds: of when the cables and running jobs are."""
    sets: list[PlacedSet]
    none_because: str
    """Why there is no set; empty if there is one."""
    unknown: list[str]
    """What the answer does not know, in sentences."""
    usable: int
    """Candidates that could be placed."""
    refused_total: int
    refused_kinds: dict[str, int]
    refused: list[Refused]
    """By name; cut to PLACEMENT_REFUSED_SHOWN_MAX."""
