"""Keeps the inventory's jobs in step with the records and events that arrive.

Every few seconds it reads the members of communicators since the last look from the store, adds
them to its memory, and, if any is new, infers the jobs again (`api.jobs.infer`). One process does
so; two that overlap for a moment find the same, and what they write is a join.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from api.data.inventory.engine import InventoryRefusedError
from api.data.inventory.job_model import JobFound, KnownJob, Member
from api.data.inventory.job_rows import moment, nanoseconds
from api.data.inventory.records import Job, JobOrigin
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.jobs.devices import KnownDevices
from api.jobs.facts import Facts, facts_of, to_event
from api.jobs.infer import infer
from collector.contract import communicator as words
from collector.contract.errors import InventoryError, StoreError
from collector.contract.model import Event

log = logging.getLogger(__name__)

JOBS_SECONDS: Final = 10.0
"""How often the records are looked through for jobs."""
LOOK_BACK: Final = dt.timedelta(minutes=10)
"""How late a record may arrive and still be noticed at once: an agent flushes every few seconds,
and a spool that was filled during an outage has its newest records last."""
RECENT: Final = dt.timedelta(minutes=1)
FULL_LOOK_EVERY: Final = 10
"""Most looks go back only a little, every tenth the whole LOOK_BACK: that takes the store half a
second of work for ten thousand ranks, and late records may wait for a minute."""
QUIET: Final = dt.timedelta(minutes=15)
"""A job without records for this long has ended: checkpoints and evaluations take less."""
MEMBERS_MAX: Final = 500_000
"""Memberships that one look may bring, and that are kept in mind, about 200 MB: ten jobs of ten
thousand ranks with a handful of communicators each. Past it the rest waits for the next look, with
a warning in the log."""
EVENTS_MAX: Final = 100_000
SECONDS_MAX: Final = "20"
"""The store's time for one query: the next look comes in ten seconds."""

_MEMBERS: Final = f"""
SELECT communicator, rank, host, pid, job, max(ranks) AS ranks,
       toUnixTimestamp64Nano(min(time)) AS first_ns, toUnixTimestamp64Nano(max(time)) AS last_ns
FROM collectives
WHERE time > fromUnixTimestamp64Nano({{since:Int64}})
GROUP BY communicator, rank, host, pid, job
LIMIT {MEMBERS_MAX}
"""  # noqa: S608 - a number of ours

_EVENTS: Final = f"""
SELECT kind, toUnixTimestamp64Nano(time) AS time_ns, labels, attributes
FROM events FINAL
WHERE kind IN {{kinds:Array(String)}} AND time > fromUnixTimestamp64Nano({{since:Int64}})
ORDER BY time
LIMIT {EVENTS_MAX}
"""  # noqa: S608 - a number of ours

_STEPS: Final = f"""
SELECT host, pid, max(rank) AS most, min(rank) AS least FROM steps
WHERE start > fromUnixTimestamp64Nano({{since:Int64}}) AND rank >= 0 AND pid > 0
GROUP BY host, pid
LIMIT {MEMBERS_MAX}
"""  # noqa: S608 - a number of ours

ROAD: Final = "jobs"
"""Under which the quarantine has records and events of jobs that cannot be used."""

MemberKey = tuple[str, int, str, int, str]


def read_members(store: Store, since_ns: int) -> list[Member]:
    rows = store.query(_MEMBERS, {"since": since_ns}, settings={"max_execution_time": SECONDS_MAX})
    return store.quarantine.sound(
        ROAD, "a membership", rows.to_pylist(), lambda row: msgspec.convert(row, Member)
    )


def read_events(store: Store, since_ns: int) -> list[Event]:
    kinds = [words.COMMUNICATOR, words.PROCESS_GROUP]
    rows = store.query(_EVENTS, {"since": since_ns, "kinds": kinds})
    return store.quarantine.sound(ROAD, "an event", rows.to_pylist(), to_event)


def read_marked_ranks(store: Store, since_ns: int) -> dict[tuple[str, int], int]:
    """Ranks within their job by host and process, from marks of steps."""
    rows = store.query(_STEPS, {"since": since_ns}).to_pylist()
    return {(row["host"], row["pid"]): row["most"] for row in rows if row["most"] == row["least"]}


class JobWatch:
    """One service process' memory of running jobs. For one thread."""

    def __init__(self, store: Store, inventory: Inventory) -> None:
        self._store = store
        self._inventory = inventory
        self._members: dict[MemberKey, Member] = {}
        self._events: dict[tuple[str, str, str], Event] = {}
        self._heard: dict[str, int] = {}
        """By communicator: when an event last told of it. Bounded by what one look reads."""
        self._ranks: dict[tuple[str, int], int] = {}
        self._revisions: dict[str, int] = {}
        self._jobs: dict[str, JobFound] = {}
        self._devices = KnownDevices(inventory)
        self._loaded: set[str] = set()
        self._looks = 0
        self._failing = False
        self._full = False

    def look(self, now: dt.datetime) -> bool:
        """Look once; False if store or inventory failed, which is logged once an outage."""
        try:
            self._look(now)
        except (StoreError, InventoryError) as error:
            if not self._failing:
                log.warning("jobs cannot be watched: %s", error)
            self._failing = True
            self._looks = 0
            return False
        if self._failing:
            log.info("jobs are watched again")
        self._failing = False
        return True

    def _look(self, now: dt.datetime) -> None:
        is_full = self._looks % FULL_LOOK_EVERY == 0
        if is_full:
            self._devices.forget()
        since_ns = nanoseconds(now - (LOOK_BACK if is_full else RECENT))
        self._looks += 1
        seen = read_members(self._store, since_ns)
        # Agents may have reported more of a job's hosts since the last look.
        news = self._add_members(seen) or is_full
        told = read_events(self._store, since_ns)
        news = self._add_events(told) or news
        ranks = read_marked_ranks(self._store, since_ns)
        news = news or bool(ranks.keys() - self._ranks.keys())
        self._ranks.update(ranks)
        running = self._inventory.jobs.running()
        revisions = {job.job: job.revision for job in running if not is_inferred(job)}
        if (news or revisions != self._revisions) and (self._members or self._events):
            self._infer([job for job in running if not is_inferred(job)], now)
        self._revisions = revisions
        self._touch(seen, told, now)
        self._inventory.jobs.end_quiet(now - QUIET)
        self._forget(now)

    def _load(self, job: str, *, is_named: bool) -> None:
        """Load a job from the inventory, once."""
        if job in self._loaded:
            return
        sizes = {each.communicator: each for each in self._inventory.jobs.communicators(job)}
        members = self._inventory.jobs.members(job)
        self._add_members(
            Member(
                communicator=member.communicator,
                rank=member.rank,
                host=member.host,
                pid=member.pid,
                ranks=sizes[member.communicator].ranks or 0,
                job=job if is_named else "",
                first_ns=nanoseconds(sizes[member.communicator].first_seen),
                last_ns=nanoseconds(sizes[member.communicator].last_seen),
            )
            for member in members
            if member.communicator in sizes
        )
        self._loaded.add(job)

    def _add_members(self, seen: Iterable[Member]) -> bool:
        news = False
        for one in seen:
            member, key = one, key_of(one)
            old = self._members.get(key)
            if old is None and len(self._members) >= MEMBERS_MAX:
                if not self._full:
                    log.warning("over MEMBERS_MAX = %d memberships; some jobs wait", MEMBERS_MAX)
                self._full = True
                continue
            news = news or old is None
            if old is not None:
                first_ns = min(old.first_ns, member.first_ns)
                last_ns = max(old.last_ns, member.last_ns)
                member = msgspec.structs.replace(member, first_ns=first_ns, last_ns=last_ns)
            self._members[key] = member
        return news

    def _add_events(self, events: Iterable[Event]) -> bool:
        news = False
        for event in events:
            communicator = event.labels.get(words.COMMUNICATOR, "")
            rank = event.labels.get(words.RANK, "")
            key = event.kind, communicator, rank
            old = self._events.get(key)
            if old is None and len(self._events) >= MEMBERS_MAX:
                continue  # as with memberships, which log the warning
            attributes = {**(old.attributes if old else {}), **event.attributes}
            if old is None or attributes != old.attributes:
                self._events[key] = msgspec.structs.replace(event, attributes=attributes)
                news = True
        return news

    def _infer(self, named: list[Job], now: dt.datetime) -> None:
        """Infer the jobs again and write the changed ones; ``named`` were not inferred."""
        facts = facts_of(self._events.values()) if self._events else Facts()
        facts = self._devices.resolve(facts)
        for job in named:
            self._load(job.job, is_named=True)
        names = {member.communicator for member in (*self._members.values(), *facts.members)}
        earlier = self._inventory.jobs.inferred(names)
        for inferred in earlier:
            self._load(inferred.job, is_named=False)
        known = [self._known(job) for job in named]
        found = infer(self._members.values(), facts, known, earlier, self._ranks)
        filled = {each.job: self._devices.fill(each) for each in found}
        for name, each in filled.items():
            if self._jobs.get(name) != each:
                self._keep(each, now)
        self._jobs = filled

    def _keep(self, job: JobFound, now: dt.datetime) -> None:
        """Write a job; one that the database refuses does not block the others."""
        try:
            self._inventory.jobs.keep(job, now)
        except InventoryRefusedError as error:
            log.error("the inventory refuses job %r: %s", job.job, error)  # noqa: TRY400 - no bug

    def _known(self, job: Job) -> KnownJob:
        places = self._inventory.jobs.ranks(job.job)
        return KnownJob(
            job=job.job,
            hosts=frozenset(self._inventory.jobs.hosts(job.job)),
            ranks=job.ranks,
            places=tuple(places),
            started_ns=nanoseconds(job.started_at) if job.started_at else None,
            ended_ns=nanoseconds(job.ended_at) if job.ended_at else None,
        )

    def _touch(self, seen: Iterable[Member], told: Iterable[Event], now: dt.datetime) -> None:
        """Note when each job was last heard of: by a record, or by an event about its ranks."""
        latest = last_times(seen)
        for event in told:
            communicator = event.labels.get(words.COMMUNICATOR, "")
            latest[communicator] = max(latest.get(communicator, 0), event.time_ns)
            self._heard[communicator] = max(self._heard.get(communicator, 0), event.time_ns)
        times: dict[str, dt.datetime] = {}
        for name, job in self._jobs.items():
            last_ns = max(latest.get(each.communicator, 0) for each in job.communicators)
            if last_ns:
                times[name] = min(moment(last_ns), now)
        self._inventory.jobs.touch(times)

    def _forget(self, now: dt.datetime) -> None:
        limit, latest = nanoseconds(now - QUIET), last_times(self._members.values())
        self._heard = {name: last_ns for name, last_ns in self._heard.items() if last_ns >= limit}
        quiet = [
            name
            for name, job in self._jobs.items()
            if max(latest.get(each.communicator, each.last_ns) for each in job.communicators)
            < limit
            and not any(each.communicator in self._heard for each in job.communicators)
        ]
        if not quiet:
            return
        self._loaded -= set(quiet)
        gone = {each.communicator for name in quiet for each in self._jobs.pop(name).communicators}
        gone -= {each.communicator for job in self._jobs.values() for each in job.communicators}
        self._members = {key: one for key, one in self._members.items() if key[0] not in gone}
        self._events = {key: one for key, one in self._events.items() if key[1] not in gone}
        self._ranks = {}
        self._full = False


def key_of(member: Member) -> MemberKey:
    return member.communicator, member.rank, member.host, member.pid, member.job


def last_times(members: Iterable[Member]) -> dict[str, int]:
    found: dict[str, int] = {}
    for member in members:
        found[member.communicator] = max(found.get(member.communicator, 0), member.last_ns)
    return found


def is_inferred(job: Job) -> bool:
    return job.origin is JobOrigin.INFERRED
