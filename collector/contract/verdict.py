"""What can be wrong with a job, and whom it can be blamed on: the words of every verdict.

The detectors' verdicts, the simulator's ground truth and the scoreboard that holds one against the
other use these words and no others.
"""

from __future__ import annotations

import enum

import msgspec


class Cause(enum.StrEnum):
    """Why a job is slow or stuck. Closed: dashboards, rules and schedulers compare it."""

    STRAGGLER = "straggler"
    """A rank enters its collectives late; the network only waits for it."""
    SLOW_LINK = "slow_link"
    """Bytes take longer over one link, NIC or port than over its peers."""
    LOSSY_LINK = "lossy_link"
    """Packets are lost or damaged, and sent again."""
    LINK_FLAP = "link_flap"
    """A link goes down and comes back."""
    PAUSE_STORM = "pause_storm"
    """A receiver that cannot keep up stops its senders, and they stop theirs."""
    CONGESTION = "congestion"
    """More is sent over a link than it carries, for longer than a burst."""
    MICROBURST = "microburst"
    """Queues fill and drain within milliseconds; averages look harmless."""
    HANG = "hang"
    """Nothing moves any more, and somebody can be named."""
    STALL = "stall"
    """Nothing moved for a while, and nobody can be named."""


class Reason(enum.StrEnum):
    """What lies behind a cause, where it is known."""

    GPU_THROTTLED = "gpu_throttled"
    GPU_ERROR = "gpu_error"
    HOST_STALL = "host_stall"
    DATA_LOADING = "data_loading"
    PCIE = "pcie"
    IMBALANCE = "imbalance"
    RATE_DOWNGRADE = "rate_downgrade"
    NIC = "nic"
    CABLE = "cable"
    SWITCH = "switch"
    ROUTING = "routing"
    CONFIGURATION = "configuration"
    NOT_LAUNCHED = "not_launched"
    NOT_FINISHED = "not_finished"
    LINK_DOWN = "link_down"
    NEIGHBOUR = "neighbour"
    """Somebody else's traffic."""
    UNKNOWN = "unknown"


class Culprit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom a verdict names, by every name that is known; what does not apply is empty.

    ``device`` and ``port`` are as in the labels of `fabric_port_…` (`mlx5_3`, `1`), ``gpu`` is the
    index on its host, ``rank`` is the rank in ``job``. A link is named by both its ends.
    """

    job: str = ""
    rank: int | None = None
    host: str = ""
    gpu: int | None = None
    device: str = ""
    port: str = ""
    switch: str = ""
    switch_port: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: what is wrong, who it is, since when (unix nanoseconds), and how sure we are.

    ``until_ns`` is None while it lasts.
    """

    cause: Cause
    culprit: Culprit
    since_ns: int
    until_ns: int | None = None
    reason: Reason = Reason.UNKNOWN
    confidence: float = 1.0
    """0 to 1: of a hundred verdicts that say 0.9, ninety are right."""
