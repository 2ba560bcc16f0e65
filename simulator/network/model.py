"""The network's answer for the traffic of one moment: speeds, and counter rates."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from simulator.pattern import Pattern
from simulator.topology.model import Floats, Ints

FINEST_SECONDS = 1e-3
"""The finest time over which a fast sampler of byte counters has rates: they take about a tenth of
it to read (`collector.bursts`)."""


def _empty() -> Floats:
    return np.zeros(0)


@dataclass(eq=False)
class LinkRates:
    """Per second, for the links named in ``links`` (ascending, each once)."""

    links: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    bytes: Floats = field(default_factory=_empty)
    """On the wire at the sending end, with headers and retransmissions."""
    packets: Floats = field(default_factory=_empty)
    lost_packets: Floats = field(default_factory=_empty)
    """Damaged or vanished on the link itself: sent and never received."""
    dropped_packets: Floats = field(default_factory=_empty)
    """Dropped in front of the link, because its queue was full: never sent over it."""
    marked_packets: Floats = field(default_factory=_empty)
    """Marked ECN-CE on the way into the link."""
    paused_share: Floats = field(default_factory=_empty)
    """Of time in which the far end forbade sending (pause frames)."""
    pause_frames: Floats = field(default_factory=_empty)
    waiting_share: Floats = field(default_factory=_empty)
    """Of time in which there was something to send and no credit (InfiniBand)."""
    queue_bytes: Floats = field(default_factory=_empty)
    """In front of the link, a mean; not per second."""
    queue_peak_bytes: Floats = field(default_factory=_empty)
    """The most that stood there; not per second."""
    burst_bytes: Floats = field(default_factory=_empty)
    """The highest rate over `FINEST_SECONDS`, with headers: at least ``bytes``."""

    @cached_property
    def table(self) -> Floats:
        """[links, columns in the order of SUMMED]: added up in one go."""
        return np.stack([getattr(self, name) for name in SUMMED], axis=1)

    @cached_property
    def has_queues(self) -> bool:
        return bool(self.queue_peak_bytes.any())


UNSUMMED = frozenset({"links", "queue_peak_bytes", "burst_bytes"})
SUMMED = tuple(one.name for one in fields(LinkRates) if one.name not in UNSUMMED)


@dataclass(eq=False)
class NicRates:
    """Per second, for the NICs named in ``nics`` (ascending, each once)."""

    nics: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    marked_received: Floats = field(default_factory=_empty)
    """Packets with ECN-CE that arrived."""
    cnp_sent: Floats = field(default_factory=_empty)
    cnp_handled: Floats = field(default_factory=_empty)
    """Congestion notifications that this sender received."""
    out_of_sequence: Floats = field(default_factory=_empty)
    """Gaps that this receiver saw."""
    sequence_errors: Floats = field(default_factory=_empty)
    """Negative acknowledgements that this sender received."""
    ack_timeouts: Floats = field(default_factory=_empty)
    """Losses that this sender noticed only by its timer."""
    retransmitted_packets: Floats = field(default_factory=_empty)

    @cached_property
    def table(self) -> Floats:
        """[NICs, columns in the order of NOTICED]: added up in one go."""
        return np.stack([getattr(self, name) for name in NOTICED], axis=1)

    @cached_property
    def is_calm(self) -> bool:
        return not self.table.any()


NOTICED = tuple(one.name for one in fields(NicRates) if one.name != "nics")


@dataclass(frozen=True)
class Meeting:
    """Flows that meet in front of one link between switches: see `simulator.network.meetings`."""

    link: int
    patterns: tuple[Pattern, ...]
    """Whose flows these are."""
    lost_share: float
    """Of what they bring to the link: what it does not carry."""


@dataclass(eq=False)
class Solution:
    """Speeds and counter rates of active units while nothing changes, by pattern as asked."""

    speed: list[Floats]
    """For each unit: collectives a second (1 / duration); 0 for units that are not active or
    cannot move, infinite for active ones without flows."""
    flow_bps: list[Floats]
    """What each flow could move by itself, bits of payload a second: at least its unit's pace, more
    where the rest of the unit limits it. 0 for flows of units that are not active."""
    links: LinkRates
    nics: NicRates
    meetings: tuple[Meeting, ...] = ()
