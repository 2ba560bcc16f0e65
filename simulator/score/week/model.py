"""Types of the week: the fleet, how often what breaks, and which arm does what about it."""

from __future__ import annotations

import enum

import msgspec

from collector.contract.verdict import Cause, Reason

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S


class Arm(enum.StrEnum):
    """Who helps, each with everything that the one before does."""

    ALONE = "without us"
    """The scheduler knows hosts that are dead, and what operators have found."""
    PLACED = "placed by health"
    """New jobs get hosts by `api.fleet.placement`; nothing is drained by itself."""
    DRAINED = "and drained"
    """The shipped policy, enforced: what is accused gets no new job, and is looked at."""
    MOVED = "and jobs moved"
    """A job that runs on a drained host is saved and begun again elsewhere, where that pays."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A sort of fault, and the verdict that names it."""

    name: str
    cause: Cause
    reason: Reason
    part: str
    """What of the host is named: gpu, or nic."""
    weight: float
    """How often, among faults that stop jobs or among those that slow them."""
    stops: bool
    """Whether a job on the host hangs; else it is slow."""
    heals_s: float | None = None
    """Median time after which it is over by itself; None: when an operator repairs it."""


STOPPING = (
    Kind(name="GPU lost or in error", cause=Cause.HANG, reason=Reason.GPU_ERROR, part="gpu",
         weight=0.55, stops=True),
    Kind(name="GPU error that a reset heals", cause=Cause.HANG, reason=Reason.GPU_ERROR,
         part="gpu", weight=0.25, stops=True, heals_s=900.0),
    Kind(name="link down", cause=Cause.HANG, reason=Reason.LINK_DOWN, part="nic", weight=0.2,
         stops=True),
)  # fmt: skip
SLOWING = (
    Kind(name="GPU throttled", cause=Cause.STRAGGLER, reason=Reason.GPU_THROTTLED, part="gpu",
         weight=0.35, stops=False, heals_s=2 * HOUR_S),
    Kind(name="bad cable", cause=Cause.LOSSY_LINK, reason=Reason.CABLE, part="nic", weight=0.25,
         stops=False),
    Kind(name="slow NIC", cause=Cause.SLOW_LINK, reason=Reason.NIC, part="nic", weight=0.15,
         stops=False),
    Kind(name="narrow PCIe slot", cause=Cause.SLOW_LINK, reason=Reason.PCIE, part="nic",
         weight=0.1, stops=False),
    Kind(name="host stalls", cause=Cause.STRAGGLER, reason=Reason.HOST_STALL, part="gpu",
         weight=0.15, stops=False, heals_s=HOUR_S),
)  # fmt: skip


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A week: all that is assumed, in one place. docs/how-to/read-the-week.md has the sources."""

    hosts: int = 512
    days: float = 7.0
    gpus_per_host: int = 8
    hosts_per_leaf: int = 32
    tick_s: float = 60.0

    load: float = 0.85
    """GPU-hours that jobs ask for, of those that the fleet has."""
    job_hours_median: float = 6.0
    job_hours_sigma: float = 1.0
    """Of the logarithm."""
    job_hours_max: float = 72.0
    sizes: tuple[tuple[int, float], ...] = (
        (1, 0.45), (2, 0.15), (4, 0.14), (8, 0.12), (16, 0.08), (32, 0.04), (64, 0.02),
    )  # fmt: skip
    """Hosts of a job, and how many of all jobs are so large."""

    stops_per_host_day: float = 5.0e-3
    slows_per_host_day: float = 8.0e-3
    lemons: float = 0.012
    lemon_share: float = 0.35
    """Of all faults, that these have."""
    slowdown: tuple[float, float] = (1.15, 2.5)
    """Least and most that a step takes longer, evenly drawn on a logarithmic scale."""

    checkpoint_s: float = 1_800.0
    restart_s: float = 600.0
    """From one place to another: queue, containers, weights, first steps."""
    save_s: float = 120.0
    """A checkpoint out of turn, where the job still moves."""
    hang_s: float = 600.0
    """Until a job's own watchdog ends a hang: NCCL's default in PyTorch."""

    seen_at_once: float = 0.5
    """Of stopping faults, that the scheduler's own check sees: the host is then out at once."""
    stop_found_s: float = 6 * HOUR_S
    slow_found_s: float = 8 * HOUR_S
    """Median, from the first job that suffers until an operator has found the host by hand."""
    found_sigma: float = 0.8
    jobs_killed_max: int = 3
    """Jobs that die on a host before an operator inspects it without a drain."""
    response_s: float = 2 * HOUR_S
    """Median, from a drain until an operator inspects the host."""
    repair_s: float = 8 * HOUR_S
    """Median, for what does not heal by itself."""

    recall: float = 0.977
    """Faults that get a verdict, where a job suffers: 42 of 42 unseen ones, and one of two more."""
    wrong: float = 0.023
    """Of verdicts, that name another host of the job: none of 42, shrunk the same way."""
    delay_s: float = 60.0
    """Until a verdict stands: 13 s (p90), rounded up to a tick."""
    confidence: float = 0.95
    false_per_day: float = 1.0
    """Verdicts about nothing in all of the fleet: ten times the bar of 0.1."""
    false_s: float = 1_200.0
    """Median of how long these last."""


class Losses(msgspec.Struct, kw_only=True):
    """GPU-hours, by where they went."""

    useful: float = 0.0
    slow: float = 0.0
    """Jobs took longer for the same."""
    redone: float = 0.0
    """Work that died with a job, or came after its last checkpoint."""
    hung: float = 0.0
    """From a hang until a user or a watchdog ends the job."""
    restarting: float = 0.0
    held: float = 0.0
    """Hosts that are taken out and have a fault: drained, waiting for hands, or repaired."""
    held_well: float = 0.0
    """Hosts that are taken out and have none."""
    idle: float = 0.0

    @property
    def lost(self) -> float:
        """To faults and to what was done about them."""
        return self.slow + self.redone + self.hung + self.restarting + self.held + self.held_well


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a week came to, in one arm."""

    seed: int
    arm: Arm
    losses: Losses
    faults: int
    struck: int
    killed: int
    """Jobs that died of a fault and began again."""
    moved: int
    finished: int
    drains: int
    false_drains: int
    """Of these, of hosts that had no fault."""
    refused: dict[str, int]
    share_max: float
    """Of the fleet, that was ever held at once when the policy added a host."""
    share_limit: float
    waited_hours: float
    """Mean, of jobs that began, for their first place."""
