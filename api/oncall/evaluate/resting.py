"""Jobs that need no look in a round: they keep their pace, and nothing points at them.

A look at a job reads and joins all of its records of the last minutes, which is most of what a
round costs. A job rests while two of its ranks show the usual pace (`alerts.window.pace`), its last
look found nothing that could become a verdict, and neither an open incident nor a finding concerns
it: its hosts, the cables that its bytes cross, or a job beside it on one of them. It is looked at
every REST_SECONDS nevertheless. Where several processes evaluate, another one may do the listening
and these looks (`api.oncall.evaluate.scout`).

Readings of machines are looked at in every round, with the ranks and paths of resting jobs, so what
they say does not depend on who rests.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from alerts.finding import Finding
from alerts.judge.explains import is_solid
from alerts.judge.incident import Incident
from alerts.judge.places import Surroundings, cable_of, port_row
from alerts.window.columns import Records
from alerts.window.model import JobWindow, Ports, Window
from alerts.window.pace import Beat, find_beats, keeps_pace
from api.data.inventory.leases import Look
from collector.contract.units import NS
from collector.contract.verdict import Culprit

SLIGHT = "slight_lateness"
"""Its findings are context, and become a verdict with a second witness."""
REST_SECONDS = 30
"""How long a job is not looked at, at most: six rounds."""
WATCHED_REST_SECONDS = 300
"""The same of a job that another process looks at every REST_SECONDS, and finds quiet."""

Member = tuple[str, int]
"""A communicator, and a rank of it."""
Hear = Callable[[str, Sequence[Member], int, int], Records]
"""Records of some ranks: their source, the ranks, from one time to another (unix nanoseconds)."""


ReadAgain = Callable[[Window, Mapping[str, JobWindow]], Window]
"""A window with no other jobs at rest than these; what else is in it stays as it was read."""
Looks = Callable[[int], Mapping[str, Look]]
"""By job: what other processes saw, for a window that ends then (unix nanoseconds)."""


class Place(msgspec.Struct, frozen=True):
    """Where a job runs."""

    hosts: frozenset[str]
    cables: frozenset[int]
    """Those of its NICs, and those that its bytes cross, by rows of the window's ports."""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was at its last look, which found it quiet."""

    job: JobWindow
    """At rest: without its records."""
    beats: tuple[Beat, ...]
    looked_ns: int
    findings: tuple[Finding, ...]
    """What it found, none of which could become a verdict."""
    shape: str
    """As `shape_of` has it."""

    def is_relied_on(self, look: Look | None, to_ns: int) -> bool:
        """Whether another process' look says that it is as it was, and quiet."""
        return (
            look is not None
            and look.is_quiet
            and look.shape == self.shape
            and not self.is_due(to_ns, WATCHED_REST_SECONDS)
        )

    def is_due(self, to_ns: int, seconds: int = REST_SECONDS) -> bool:
        """Whether it is time to look. Jobs take turns, so that rounds cost about the same."""
        length, turn = seconds * NS, zlib.crc32(self.job.job.encode()) % seconds * NS
        return (to_ns + turn) // length != (self.looked_ns + turn) // length


class Resting:
    """Knows who may rest. For one thread at a time."""

    def __init__(
        self, hear: Hear, looks: Looks = lambda _: {}, read_again: ReadAgain | None = None
    ) -> None:
        """``read_again``: how jobs are looked at that were disturbed; None: by a whole new look."""
        self.read_again = read_again
        self._hear = hear
        self._looks = looks
        self._known: dict[str, Rest] = {}
        """Jobs that may rest."""
        self._places: dict[str, Place] = {}
        """Of all jobs."""
        self._ports: Ports | None = None
        """Of the last window, without their readings."""
        self.jobs: Mapping[str, JobWindow] = {}
        """Those that rest in this round."""

    def forget(self) -> None:
        self._known, self._places, self.jobs = {}, {}, {}

    def is_quiet(self, job: str) -> bool:
        """Whether the last look at a job found that it may rest."""
        return job in self._known

    def choose(self, standing: Iterable[Incident], to_ns: int) -> Mapping[str, JobWindow]:
        """The jobs that need no look in a window that ends then.

        One that another process looks at, and does not find quiet, is not quiet here.
        """
        looks = self._looks(to_ns)
        relied = {
            name for name, one in self._known.items() if one.is_relied_on(looks.get(name), to_ns)
        }
        rested = {
            name: one
            for name, one in self._known.items()
            if name in relied
            or ((name not in looks or looks[name].is_quiet) and not one.is_due(to_ns))
        }
        opened = [one for one in standing if one.is_open]
        named = {job for one in opened for job in (*one.jobs, one.verdict.culprit.job)}
        accused = {one.verdict.culprit for one in opened}
        disturbed = self._concerned(rested, named, accused)
        quiet = {name: one for name, one in rested.items() if name not in disturbed}
        own = [one for name, one in quiet.items() if name not in relied]
        heard = self._listen(own, to_ns)
        self.jobs = {
            name: one.job
            for name, one in quiet.items()
            if name in relied or keeps_pace(one.beats, heard[one.job.source], to_ns)
        }
        return self.jobs

    def _listen(self, rested: Iterable[Rest], to_ns: int) -> dict[str, Records]:
        """By source: what the ranks that are listened to did lately."""
        beats: dict[str, list[Beat]] = {}
        for one in rested:
            beats.setdefault(one.job.source, []).extend(one.beats)
        return {
            source: self._hear(
                source,
                sorted({(beat.communicator, beat.rank) for beat in own}),
                to_ns - max(beat.back_ns for beat in own),
                to_ns,
            )
            for source, own in beats.items()
        }

    def disturb(self, findings: Iterable[Finding]) -> bool:
        """Whether resting jobs must be looked at because of what was found; they rest no more."""
        solid = [one for one in findings if is_solid(one)]
        accused = {one.culprit for one in solid}
        disturbed = self._concerned(self.jobs, {one.job for one in solid}, accused)
        self.jobs = {name: job for name, job in self.jobs.items() if name not in disturbed}
        return bool(disturbed)

    def _concerned(
        self, rested: Iterable[str], named: Collection[str], accused: Collection[Culprit]
    ) -> set[str]:
        """Of these jobs those that are named, share a cable with one, or use what is accused."""
        own = {*named, *(one.job for one in accused)} - {""}
        beside = [self._places[name] for name in own & self._places.keys()]
        cables = {cable for one in beside for cable in one.cables} | self._cables(accused)
        hosts = {host for one in beside for host in one.hosts} | {one.host for one in accused}
        return {
            name
            for name in rested
            if name in own
            or not hosts.isdisjoint(self._places[name].hosts)
            or not cables.isdisjoint(self._places[name].cables)
        }

    def _cables(self, accused: Iterable[Culprit]) -> set[int]:
        """The cables that culprits are, or that end at them."""
        ports = self._ports
        found: set[int] = set()
        if ports is None:
            return found
        for one in accused:
            row = port_row(ports, one)
            if row is not None:
                found.add(cable_of(ports, row))
            elif one.switch:
                rows = (place for place, name in enumerate(ports.host) if name == one.switch)
                found.update(cable_of(ports, place) for place in rows)
        return found

    def learn(self, window: Window, findings: Sequence[Finding], waiting: Collection[str]) -> None:
        """Which of the jobs that were looked at may rest from now on."""
        for job in window.looked:
            self._places[job.job] = place_of(window, job)
            own = tuple(one for one in findings if job.job in (one.job, one.culprit.job))
            may_rest = is_quiet(own) and job.job not in waiting
            beats = find_beats(job, window.to_ns) if may_rest else ()
            self._known.pop(job.job, None)
            if beats:
                self._known[job.job] = Rest(
                    job=job.at_rest(),
                    beats=beats,
                    looked_ns=window.to_ns,
                    findings=own,
                    shape=shape_of(job),
                )
        self._ports = msgspec.structs.replace(window.ports, readings={})
        running = {job.job for job in window.jobs}
        self._known = {name: one for name, one in self._known.items() if name in running}
        self._places = {name: one for name, one in self._places.items() if name in running}

    def carried(self) -> list[Finding]:
        """What the last looks at the resting jobs found: it stands until the next."""
        return [one for name in self.jobs for one in self._known[name].findings]


def shape_of(job: JobWindow) -> str:
    """A digest of the job's ranks and where they run."""
    ranks = sorted((one.rank, one.host, one.devices, one.port) for one in job.ranks.values())
    return blake2b(msgspec.json.encode(ranks), digest_size=8).hexdigest()


def is_quiet(findings: Iterable[Finding]) -> bool:
    """Whether nothing of a job's findings can become a verdict, or support one."""
    return not any(is_solid(one) or one.detector == SLIGHT for one in findings)


def place_of(window: Window, job: JobWindow) -> Place:
    around = Surroundings(window, job)
    crossed = (cable for ways in around.crossed.values() for cable in ways)
    return Place(around.hosts, frozenset((*around.own_cables, *crossed)))
