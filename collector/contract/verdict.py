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


class Layer(enum.StrEnum):
    """Where in the stack a cause lies: whom to call."""

    COMPUTE = "compute"
    """GPU, host, data loading: a rank comes late."""
    NETWORK = "network"
    """Link, NIC, switch: bytes come late."""
    UNKNOWN = "unknown"


LAYER_OF = {
    Cause.STRAGGLER: Layer.COMPUTE,
    Cause.SLOW_LINK: Layer.NETWORK,
    Cause.LOSSY_LINK: Layer.NETWORK,
    Cause.LINK_FLAP: Layer.NETWORK,
    Cause.PAUSE_STORM: Layer.NETWORK,
    Cause.CONGESTION: Layer.NETWORK,
    Cause.MICROBURST: Layer.NETWORK,
    Cause.HANG: Layer.UNKNOWN,
    Cause.STALL: Layer.UNKNOWN,
}
"""Of a hang the reason decides: see `alerts.verdict`."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observation that speaks for a verdict: whoever doubts it can compute it again.

    ``metric`` is a series of the catalog (with ``labels``: a PromQL selector), or a word for what
    records of collectives tell (`collective_transfer`, `rank_gap`, `exit_ladder`…), which
    `/v1/explain` answers as data. ``value`` is what was seen in the window, ``baseline`` what is
    usual: the same before, or the peers at the same time.
    """

    metric: str
    text: str
    """One plain sentence with both numbers."""
    value: float
    unit: str
    baseline: float | None = None
    from_ns: int = 0
    to_ns: int = 0
    labels: dict[str, str] = {}
    samples: int = 0
    """How many observations it rests on."""


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked for and is not the cause, and why."""

    what: str
    """A cause, a reason, or a layer."""
    why: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs: the steps replayed with the culprit as its peers are."""

    job: str
    lost_seconds: float
    """Of the job's time, since the verdict's start."""
    step_seconds: float | None
    """A step as it is; None where steps are not known."""
    step_seconds_without: float | None
    """A step as it would be."""
    lost_share: float
    """Of the job's time while it lasted, 0 to 1."""
    gpu_hours: float


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
    layer: Layer = Layer.UNKNOWN
    summary: str = ""
    """One sentence for a tired person."""
    action: str = ""
    """What to do about it."""
    jobs: tuple[str, ...] = ()
    """Jobs that suffer from it."""
    accomplices: tuple[Culprit, ...] = ()
    """More culprits of the same kind: of a hang, every rank that is to blame."""
    victims: tuple[Culprit, ...] = ()
    """Who only looks guilty: explained by the culprit."""
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    costs: tuple[Cost, ...] = ()
    clock_error_ns: int | None = None
    """How far hosts' clocks may be apart after alignment; None: no times were compared."""
