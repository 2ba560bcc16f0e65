"""Types and shared values of the entries in the tables of causes and reasons.

`collector.contract.causes` has the table of causes, `collector.contract.cause_reasons` that of the
reasons behind them.
"""

from __future__ import annotations

import enum

import msgspec

HOURS, DAYS = 3_600.0, 86_400.0


class Layer(enum.StrEnum):
    """Where in the stack a cause lies, and so which team to call."""

    COMPUTE = "compute"
    """GPU, host, data loading: a rank comes late."""
    NETWORK = "network"
    """Link, NIC, switch: bytes come late."""
    UNKNOWN = "unknown"


class Family(enum.StrEnum):
    """Causes that better evidence turns into each other: a slow link turns out to be lossy."""

    RANK = "rank"
    LINK = "link"
    STUCK = "stuck"


# What data shows it ------------------------------------------------------------------------------


class Sight(msgspec.Struct, frozen=True):
    """Data that a detector needs: readings or events whose names hold one of the words."""

    title: str
    """What an operator would add to the files; the same where either of two would do."""
    of: str
    """`ports`, `gpus`, `hosts`, `times`, `dumps`, `logs` or `events`."""
    words: tuple[str, ...] = ("",)


class Sought(msgspec.Struct, frozen=True):
    """What a detector looks for, in words, and the data of which it needs any one."""

    title: str
    needs: tuple[Sight, ...]


class Absence(msgspec.Struct, frozen=True):
    """When a cause or reason is ruled out: these readings were present and gave no finding.

    ``of`` is the attribute of a window that holds the readings: `ports`, `gpus` or `hosts`.
    """

    of: str
    readings: tuple[str, ...]
    why: str


TIMES = Sight("times of collectives", "times")
DUMPS = Sight("dumps of the Flight Recorder", "dumps")
RAS_EVENTS = Sight(DUMPS.title, "events", ("ras_status",))
"""What NCCL's RAS said would do as well."""
LOGS = Sight("the job's own output", "logs")
ERRORS = Sight(
    "error counters of links",
    "ports",
    ("error", "retransmit", "naks", "out_of_sequence", "discard", "drop", "timeouts", "retries"),
)
STATES = Sight("states of links", "ports", ("state", "downed", "down", "carrier", "up"))
RATES = Sight("rates of links", "ports", ("rate_bits", "speed_bits", "lanes", "could_be_faster"))
PAUSES = Sight("pause counters", "ports", ("pause",))
QUEUES = Sight("queue or ECN counters", "ports", ("queue", "ecn", "cnp", "wait", "discard"))
PEAKS = Sight("queue or ECN counters", "ports", ("queue",))
CLOCKS = Sight("GPU clocks and throttle reasons", "gpus", ("violation", "clock", "slowdown"))
GPU_ERRORS = Sight("GPU errors or XIDs", "gpus", ("ecc", "xid", "remap", "recovery"))
PCIE_NIC = Sight("PCIe readings", "ports", ("pcie",))
PCIE_GPU = Sight("PCIe readings", "gpus", ("pcie",))
HOSTS = Sight("readings of hosts", "hosts")
MOUNTS = Sight("counters of mounts", "hosts", ("mount_",))
LINK_EVENTS = Sight("states of links", "events", ("link",))
XID_EVENTS = Sight("GPU errors or XIDs", "events", ("xid",))
KERNEL_EVENTS = Sight("the kernel's log", "events", ("kernel",))
BURST_EVENTS = Sight("queue or ECN counters", "events", ("burst",))


# What it counts against --------------------------------------------------------------------------


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """What a cause counts against each kind of thing, 0 to 1; ``host``: wherever there is one."""

    host: float = 0.0
    gpu: float = 0.0
    device: float = 0.0
    link: float = 0.0
    switch: float = 0.0
    half_life_s: float


NO_BLAME = Blame(half_life_s=HOURS)
"""Uneven work, and standstills without a culprit."""
PASSING_LOAD = Blame(link=0.3, half_life_s=600.0)
"""Traffic meets there: the place is bad to use now, and nothing is broken."""
GPU_BROKEN = Blame(host=1.0, gpu=1.0, half_life_s=3 * DAYS)
PCIE_SLOW = Blame(host=0.9, gpu=0.9, device=0.9, half_life_s=3 * DAYS)
"""A slot that came up narrow stays so until it is power-cycled."""
NIC_BAD = Blame(host=1.0, device=1.0, link=0.5, half_life_s=1 * DAYS)
CABLE_BAD = Blame(host=0.8, device=0.5, link=1.0, half_life_s=3 * DAYS)
"""Both ends suffer until the cable is swapped, though the NIC may be sound."""
LINK_DOWN = Blame(host=0.8, device=0.5, link=1.0, half_life_s=2 * DAYS)
ONE_END = Blame(host=0.5, device=0.5, link=0.9, half_life_s=6 * HOURS)
"""The cable is known and the end is not: each has half of it."""
SWITCH_BAD = Blame(link=0.5, switch=1.0, half_life_s=1 * DAYS)
"""The hosts behind it are its victims."""
MISCONFIGURED = Blame(host=0.8, device=0.8, link=0.5, half_life_s=1 * DAYS)
