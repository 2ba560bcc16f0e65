"""What the scoreboard takes away, to see what still works: no fabric, no NCCL, lost telemetry."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec
import numpy as np

from alerts.window.columns import Ints
from alerts.window.model import Ports, Window
from collector.contract.records import ABSENT

LOST_SHARE = 0.3
"""Of batches, of every host and of the poller alike."""

PORT_NEWS = ("link", "burst", "capture")
"""How the kinds of events begin that ports make."""


class Handicap(enum.StrEnum):
    """What is taken away."""

    NONE = "none"
    NO_FABRIC = "no_fabric"
    """No counter of any port, and no events of links: only jobs, GPUs and hosts are left."""
    NO_NCCL = "no_nccl"
    """No record of any collective, so no job is known: only machines are left."""
    LOST = "lost"
    """Three of ten batches never arrive."""


def arriving(
    bodies: Iterable[bytes], handicap: Handicap, random: np.random.Generator
) -> list[bytes]:
    if handicap is not Handicap.LOST:
        return list(bodies)
    return [body for body in bodies if random.random() >= LOST_SHARE]


def seen(window: Window, handicap: Handicap) -> Window:
    if handicap is Handicap.NO_NCCL:
        return msgspec.structs.replace(window, jobs=())
    if handicap is Handicap.NO_FABRIC:
        jobs = [msgspec.structs.replace(job, paths=None) for job in window.jobs]
        events = [event for event in window.events if not event.kind.startswith(PORT_NEWS)]
        ports = no_ports(window.ports)
        return msgspec.structs.replace(window, jobs=jobs, events=events, ports=ports)
    return window


def no_ports(ports: Ports) -> Ports:
    """The same ports and cables, without any readings."""
    never: Ints = np.full(len(ports), ABSENT, dtype=np.int64)
    return msgspec.structs.replace(ports, readings={}, seen_ns=never)
