"""The three faults of the check: what is done, what a right answer is, and when it came."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from job import HERE, RANKS, Job, end_all
from namespaces import free_link, limit_link, name_of
from watch import Incident, Service

POLL_SECONDS = 0.5
BEFORE_NS = 5_000_000_000
"""A verdict may date the trouble a moment before it: from the last step that was as usual."""


RAS_CHARACTERS_MAX = 4000
"""Of RAS's last answer, in the result; all answers are in a file of their own."""


class Fault(NamedTuple):
    """A kind of fault, and what a right verdict about it says."""

    letter: str
    what: str
    causes: tuple[str, ...]
    patience_seconds: float
    """How long a verdict is waited for."""


FAULTS = {
    "a": Fault("a", "link limited to {rate} both ways", ("slow_link",), 60.0),
    "b": Fault("b", "rank sleeps {slow_ms:g} ms a step", ("straggler",), 75.0),
    "c": Fault("c", "process stopped (SIGSTOP)", ("hang",), 60.0),
}
CULPRITS = {"a": (3, 6, 1), "b": (5, 2, 4), "c": (6, 3, 2)}
"""The rank of each fault, run by run: another one each time, so that no verdict is a memory."""


class Settings(NamedTuple):
    """What a user can choose about the faults."""

    rate: str
    slow_ms: float
    linger_seconds: float
    """How long a fault goes on after its first verdict, to see whether that changes."""
    after_seconds: float
    """How long a verdict is still waited for after a stopped rank went on."""
    is_fake: bool


class Sighting(NamedTuple):
    """An open incident as it was first seen with this cause and culprit."""

    after_seconds: float
    incident: Incident

    @property
    def host(self) -> str:
        found: str = self.incident["culprit"].get("host", "")
        return found


def culprit_of(letter: str, run: int) -> int:
    ranks = CULPRITS[letter]
    return ranks[run % len(ranks)]


def is_new(incident: Incident, known: set[tuple[str, int]], since_ns: int) -> bool:
    """Whether an incident is about what began then: opened or opened again after it."""
    if incident["state"] != "open" or key_of(incident) in known:
        return False
    begins: int = incident["since_ns"]
    return begins >= since_ns - BEFORE_NS or incident["first_said_ns"] >= since_ns


def key_of(incident: Incident) -> tuple[str, int]:
    return incident["id"], incident["reopened"]


def is_right(sighting: Sighting, fault: Fault, rank: int) -> bool:
    culprit = sighting.incident["culprit"]
    names_it = sighting.host == name_of(rank) or (not sighting.host and culprit.get("rank") == rank)
    return sighting.incident["cause"] in fault.causes and names_it


def accuses_others(sighting: Sighting, rank: int) -> bool:
    """Whether it names a host, and not the one where the fault is."""
    return bool(sighting.host) and sighting.host != name_of(rank)


@contextlib.contextmanager
def made(fault: Fault, rank: int, job: Job, settings: Settings, ras: Path | None) -> Iterator[None]:
    """The fault, as long as the block lasts."""
    if fault.letter == "a":
        limit_link(rank, settings.rate)
        try:
            yield
        finally:
            free_link(rank)
    elif fault.letter == "b":
        job.slow_down(rank, settings.slow_ms)
        try:
            yield
        finally:
            job.speed_up(rank)
    else:
        job.signal(rank, signal.SIGSTOP)
        try:
            with asking((rank + 1) % RANKS, ras):
                yield
        finally:
            job.signal(rank, signal.SIGCONT)


@contextlib.contextmanager
def asking(node: int, answers: Path | None) -> Iterator[None]:
    """Ask NCCL's RAS on a host meanwhile, and keep what it says; nothing without a file."""
    if answers is None:
        yield
        return
    words = ["ip", "netns", "exec", name_of(node), sys.executable, str(HERE / "ras.py")]
    process = subprocess.Popen([*words, str(answers)], start_new_session=True)
    try:
        yield
    finally:
        end_all([process], 0.0, None)


def said_by_ras(answers: Path) -> dict[str, Any]:
    """RAS's answers in short: how many, how many failed, the slowest, and the last one as text."""
    if not answers.exists():
        return {}
    found = []
    for line in answers.read_text("utf-8", "replace").splitlines():
        with contextlib.suppress(ValueError):  # its writer was killed in the middle of the last
            found.append(json.loads(line))
    texts = [one["said"] for one in found if one["format"] == "text" and not one["error"]]
    return {
        "answers": len(found),
        "failed": sum(bool(one["error"]) for one in found),
        "slowest_seconds": max((one["took_s"] for one in found), default=None),
        "last_text": "".join(texts[-1])[-RAS_CHARACTERS_MAX:] if texts else "",
    }


class Watched:
    """The verdicts on one fault, as they come."""

    def __init__(self, service: Service, job: Job) -> None:
        self._service, self._job = service, job
        self.known = {key_of(one) for one in service.incidents(0) if one["state"] == "open"}
        self.sightings: list[Sighting] = []
        self._seen: set[tuple[Any, ...]] = set()
        self.start_ns, self._start = time.time_ns(), time.monotonic()

    def begin(self) -> None:
        self.start_ns, self._start = time.time_ns(), time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def look(self) -> None:
        """Ask once, note what is new, and wait until the next look is due."""
        looked = time.monotonic()
        self._job.check()
        for one in reversed(self._service.incidents(self.start_ns - BEFORE_NS)):
            shape = (*key_of(one), one["cause"], *sorted(one["culprit"].items(), key=str))
            if is_new(one, self.known, self.start_ns) and shape not in self._seen:
                self._seen.add(shape)
                self.sightings.append(Sighting(self.seconds, one))
        time.sleep(max(0.0, POLL_SECONDS - (time.monotonic() - looked)))

    def look_until(self, ends: float, linger: float) -> None:
        """Until so many seconds after the fault, or so long after its first verdict."""
        while self.seconds < ends:
            if self.sightings and self.seconds > self.sightings[0].after_seconds + linger:
                return
            self.look()


def try_fault(
    fault: Fault,
    rank: int,
    service: Service,
    job: Job,
    settings: Settings,
    ras: Path | None,
) -> dict[str, Any]:
    """Make the fault, wait for a verdict, take it away; what was said and when."""
    watched = Watched(service, job)
    with made(fault, rank, job, settings, None if settings.is_fake else ras):
        watched.begin()
        watched.look_until(fault.patience_seconds, settings.linger_seconds)
        lasted = watched.seconds
    said = service.job_verdict(job.name)
    if fault.letter == "c" and not watched.sightings:
        # What stood still and went on is a verdict of its own.
        watched.look_until(lasted + settings.after_seconds, settings.linger_seconds)
    found = result_of(fault, rank, settings, watched, lasted)
    return found | {"job_verdict": said, "ras": said_by_ras(ras) if ras else {}}


def result_of(
    fault: Fault, rank: int, settings: Settings, watched: Watched, lasted: float
) -> dict[str, Any]:
    seen = watched.sightings
    right = next((one for one in seen if is_right(one, fault, rank)), None)
    return {
        "fault": fault.letter,
        "what": fault.what.format(rate=settings.rate, slow_ms=settings.slow_ms),
        "rank": rank,
        "host": name_of(rank),
        "start_ns": watched.start_ns,
        "lasted_seconds": round(lasted, 1),
        "first_verdict_seconds": round(seen[0].after_seconds, 1) if seen else None,
        "right_verdict_seconds": round(right.after_seconds, 1) if right else None,
        "accused_others": [shown(one) for one in seen if accuses_others(one, rank)],
        "verdicts": [shown(one) for one in seen],
    }


def shown(sighting: Sighting) -> dict[str, Any]:
    names = ("id", "cause", "reason", "culprit", "confidence", "summary", "since_ns")
    kept = {name: sighting.incident[name] for name in names}
    return {"after_seconds": round(sighting.after_seconds, 1), **kept}


def unexpected(incidents: Sequence[Incident]) -> list[dict[str, Any]]:
    """Incidents of a time in which nothing was broken."""
    return [shown(Sighting(0.0, one)) for one in incidents]
