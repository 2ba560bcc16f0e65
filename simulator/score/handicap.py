"""What the scoreboard takes away, to see what still works: fabric, NCCL, telemetry, time."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable
from typing import TypeVar

import msgspec
import numpy as np

from alerts.detectors.crash import LAST_WORDS
from alerts.window.columns import Ints
from alerts.window.model import JobWindow, Things, Window
from collector.contract.communicator import DUMP
from collector.contract.ras import RAS
from collector.contract.records import ABSENT
from collector.contract.wire import decode_batch

LOST_SHARE = 0.3
"""Of batches, of every host and of the poller alike."""

LATE_SECONDS_MAX = 45.0
"""How late a batch is at most, when it waits for no other."""
LATE_ROUNDS_LEFT_OUT = 5
"""A round takes half a minute instead of five seconds."""

JOB_NEWS = (DUMP, LAST_WORDS, RAS)
"""What jobs say themselves: dumps of the Flight Recorder, last words in their logs, NCCL's RAS."""
PORT_NEWS = ("link", "burst", "capture")
"""How the kinds of events begin that ports make."""


class Handicap(enum.StrEnum):
    """What is taken away."""

    NONE = "none"
    NO_FABRIC = "no_fabric"
    """No counter of any port, and no events of links: only jobs, GPUs and hosts are left."""
    NO_NCCL = "no_nccl"
    """No record of any collective, so no job is known: only machines are left."""
    ONLY_NCCL = "only_nccl"
    """Records of collectives, and no reading of any machine."""
    ONLY_RAS = "only_ras"
    """What NCCL's RAS says of jobs, and nothing else: no record, no dump, no reading."""
    ONLY_PORTS = "only_ports"
    """Ports of NICs and switches, and nothing else."""
    ONLY_HOSTS = "only_hosts"
    """GPUs and hosts, and nothing else."""
    FIFTH_SILENT = "fifth_silent"
    """One host in five has no agent."""
    LOST = "lost"
    """Three of ten batches never arrive."""
    LATE = "late"
    """A machine that is too busy: batches arrive late, of each agent by another time, and verdicts
    are made every half a minute."""

    @property
    def rounds_left_out(self) -> int:
        """How many rounds do not take place after each that does."""
        return LATE_ROUNDS_LEFT_OUT if self is Handicap.LATE else 0


ONLY = frozenset({Handicap.ONLY_NCCL, Handicap.ONLY_RAS, Handicap.ONLY_PORTS, Handicap.ONLY_HOSTS})
SILENT_ONE_IN = 5
Kind = TypeVar("Kind", bound=Things)


class Delivery:
    """Which batches arrive when. An agent's batches stay in order."""

    def __init__(self, handicap: Handicap, random: np.random.Generator) -> None:
        self._handicap = handicap
        self._random = random
        self._waiting: list[tuple[float, bytes]] = []
        self._released_s: dict[str, float] = {}

    def take(self, bodies: Iterable[bytes], now_s: float) -> list[bytes]:
        """The batches that arrive now, of these and of earlier ones."""
        if self._handicap is Handicap.FIFTH_SILENT:
            agents = ((body, decode_batch(body).agent) for body in bodies)
            return [body for body, agent in agents if not is_silent(agent, self._handicap)]
        if self._handicap is Handicap.LOST:
            return [body for body in bodies if self._random.random() >= LOST_SHARE]
        if self._handicap is not Handicap.LATE:
            return list(bodies)
        for body in bodies:
            agent = decode_batch(body).agent
            due_s = now_s + self._random.uniform(0, LATE_SECONDS_MAX)
            due_s = self._released_s[agent] = max(due_s, self._released_s.get(agent, 0.0))
            self._waiting.append((due_s, body))
        arrived = [body for due_s, body in self._waiting if due_s <= now_s]
        self._waiting = [one for one in self._waiting if one[0] > now_s]
        return arrived


def seen(window: Window, handicap: Handicap) -> Window:
    if handicap is Handicap.NO_NCCL:
        return msgspec.structs.replace(window, jobs=())
    if handicap in ONLY:
        return only(window, handicap)
    if handicap is Handicap.NO_FABRIC:
        jobs = [msgspec.structs.replace(job, paths=None) for job in window.jobs]
        events = [event for event in window.events if not event.kind.startswith(PORT_NEWS)]
        ports = unread(window.ports)
        return msgspec.structs.replace(window, jobs=jobs, events=events, ports=ports, captured=None)
    return window


def only(window: Window, handicap: Handicap) -> Window:
    """The window with one kind of telemetry."""
    has_ras = handicap is Handicap.ONLY_RAS
    has_jobs = handicap is Handicap.ONLY_NCCL or has_ras
    has_ports = handicap is Handicap.ONLY_PORTS
    has_hosts = handicap is Handicap.ONLY_HOSTS
    events = [
        event
        for event in window.events
        if (has_jobs and event.kind in (JOB_NEWS if not has_ras else (RAS,)))
        or (has_ports and event.kind.startswith(PORT_NEWS))
    ]
    jobs = [msgspec.structs.replace(job, paths=None) for job in window.jobs] if has_jobs else []
    return msgspec.structs.replace(
        window,
        jobs=[without_work(job) for job in jobs] if has_ras else jobs,
        ports=window.ports if has_ports else unread(window.ports),
        gpus=window.gpus if has_hosts else unread(window.gpus),
        hosts=window.hosts if has_hosts else unread(window.hosts),
        events=events,
        captured=window.captured if has_ports else None,
    )


def without_work(job: JobWindow) -> JobWindow:
    """The job's ranks and communicators, without anything that they did."""
    return msgspec.structs.replace(job.at_rest(), is_resting=False, dumped=None)


def unread(things: Kind) -> Kind:
    """The same ports, GPUs or hosts, without any readings."""
    never: Ints = np.full(len(things), ABSENT, dtype=np.int64)
    return msgspec.structs.replace(things, readings={}, seen_ns=never)


def is_silent(agent: str, handicap: Handicap) -> bool:
    """Whether an agent is away all the time."""
    is_away = zlib.crc32(agent.encode()) % SILENT_ONE_IN == 0
    return handicap is Handicap.FIFTH_SILENT and is_away
