"""Jobs of a throw-away store: their ranks, and the files that belong to each.

Processes that NCCL names (host and process id) are put together by `api.jobs.infer`. Files that
know a process by its rank only (`load.Collection`) are then given to the job that they fit: same
processes, ranks, time, and place on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from api.data.inventory.job_model import JobFound, JobRank, Member
from api.diagnose.load import APART_NS, Collection, Loaded
from api.diagnose.throw_away import ThrowAwayStore
from api.jobs.facts import facts_of
from api.jobs.infer import infer
from collector.contract import communicator as words
from collector.contract.communicator import parse_ranks
from collector.contract.model import Event

MEMBERS_SQL = """
    SELECT communicator, rank, host, pid, max(ranks) AS ranks, job,
           toUnixTimestamp64Nano(min(least(time, ifNull(entry, time), ifNull(enqueue, time))))
               AS first_ns,
           toUnixTimestamp64Nano(max(time)) AS last_ns
    FROM collectives GROUP BY communicator, rank, host, pid, job
    ORDER BY communicator, rank, host, pid, job
"""
MARKS_SQL = """
    SELECT host, pid, max(rank) AS marked_rank FROM steps
    WHERE rank >= 0 AND pid > 0 GROUP BY host, pid HAVING min(rank) = max(rank)
"""
SAME_SET = "~files that lie together"
"""No group is called so; it sorts behind all others, so that no job is named after it."""


class Job(msgspec.Struct, kw_only=True):
    """A job, and all files that belong to it."""

    name: str
    found: JobFound
    collections: list[Collection] = []
    attributes: dict[tuple[str, int], dict[str, str]] = {}
    """Attributes from NCCL's log lines, for each rank of its communicators."""
    folders: list[str] = []
    first_ns: int = 0
    """The first and the last of its records; events of logs may only know when the file changed."""
    last_ns: int = 0
    is_dated: bool = True
    """Whether it has records of its own. Of NCCL's lines alone only the files' times are known."""

    def add(self, collection: Collection) -> None:
        """Give it a set of files; one that has no times of its own gets those of the files."""
        self.collections.append(collection)
        if self.is_dated or collection.first_ns is None or collection.last_ns is None:
            return
        self.first_ns, self.last_ns = collection.first_ns, collection.last_ns
        self.is_dated = True

    @property
    def job_ranks(self) -> dict[tuple[str, int], int]:
        """The job's rank of each (communicator, rank within it)."""
        known = {
            (communicator.communicator, member.rank): member.job_rank
            for communicator in self.found.communicators
            for member in communicator.members
            if member.job_rank is not None
        }
        for collection in self.collections:
            known.update(collection.job_ranks)
        return known

    @property
    def places(self) -> dict[int, JobRank]:
        return {place.rank: place for place in self.found.places}

    @property
    def processes(self) -> set[tuple[str, int]]:
        return {
            (member.host, member.pid)
            for communicator in self.found.communicators
            for member in communicator.members
            if member.pid
        }

    def values_of(self, attribute: str) -> list[str]:
        values = {seen.get(attribute, "") for seen in self.attributes.values()}
        return sorted(values - {""})


def find_jobs(store: ThrowAwayStore, loaded: Loaded) -> list[Job]:
    events = list(store.events((words.COMMUNICATOR, words.PROCESS_GROUP)))
    rows = store.rows("collectives", MEMBERS_SQL)
    members = [to_member(row) for row in rows]
    direct = [member for member in members if not member.communicator.startswith("pg:")]
    named = [*direct, *members_of_events(events)]
    facts = facts_of(event for event in events if event.kind == words.COMMUNICATOR)
    found = infer(named, facts, marked_ranks=stated_ranks(store, named))
    spans = time_spans(members)
    jobs = [to_job(one, loaded, spans) for one in found]
    groups = [event for event in events if event.kind == words.PROCESS_GROUP]
    # Traces know processes, so they are placed before dumps, which know ranks only.
    for collection in sorted(loaded.collections, key=lambda each: (not each.pids, each.number)):
        job = best_job(jobs, collection)
        if job is not None:
            job.add(collection)
        else:
            own = [member for member in members if member.communicator in collection.sizes]
            jobs += jobs_of(collection, [*own, *members_of_groups(collection)], groups)
    add_attributes(jobs, events)
    return sorted(jobs, key=lambda job: (job.first_ns, job.name))


def to_member(row: dict[str, Any]) -> Member:
    return msgspec.convert(row, Member)


def members_of_events(events: Iterable[Event]) -> list[Member]:
    """Members from NCCL's log lines: also of communicators that were never used."""
    found = []
    for event in events:
        ranks = parse_ranks(event.labels.get(words.RANK, ""))
        pids = parse_ranks(event.attributes.get(words.PID, ""))
        sizes = parse_ranks(event.attributes.get(words.RANKS, ""))
        communicator = event.labels.get(words.COMMUNICATOR, "")
        host = event.attributes.get(words.HOST, "")
        if event.kind == words.COMMUNICATOR and communicator and host and ranks and pids:
            found.append(
                Member(
                    communicator=communicator,
                    rank=ranks[0],
                    host=host,
                    pid=pids[0],
                    ranks=sizes[0] if sizes and len(sizes) == 1 else 0,
                    first_ns=event.time_ns,
                    last_ns=event.time_ns,
                )
            )
    return found


def stated_ranks(store: ThrowAwayStore, members: Iterable[Member]) -> dict[tuple[str, int], int]:
    hosts: dict[int, set[str]] = {}
    for member in members:
        hosts.setdefault(member.pid, set()).add(member.host)
    found = {}
    for row in store.rows("steps", MARKS_SQL):
        host, pid = row["host"], row["pid"]
        only = hosts.get(pid, set())
        if not host and len(only) == 1:
            host = next(iter(only))
        if host:
            found[host, pid] = row["marked_rank"]
    return found


def time_spans(members: Iterable[Member]) -> dict[str, tuple[int, int]]:
    spans: dict[str, tuple[int, int]] = {}
    for member in members:
        first, last = spans.get(member.communicator, (member.first_ns, member.last_ns))
        spans[member.communicator] = min(first, member.first_ns), max(last, member.last_ns)
    return spans


def to_job(found: JobFound, loaded: Loaded, spans: Mapping[str, tuple[int, int]]) -> Job:
    """An inferred job, with the folders of its logs, and the times of its records."""
    own = (each.communicator for each in found.communicators)
    seen = [spans[communicator] for communicator in own if communicator in spans]
    job = Job(
        name=found.job,
        found=found,
        collections=[],
        attributes={},
        first_ns=min((first for first, _ in seen), default=found.first_ns),
        last_ns=max((last for _, last in seen), default=found.last_ns),
        is_dated=bool(seen),
    )
    folders = {loaded.inspector_folders.get(process, "") for process in job.processes}
    job.folders = sorted(folders - {""})
    return job


def best_job(jobs: Sequence[Job], collection: Collection) -> Job | None:
    """The job that a set of files fits best; None if it fits none."""
    fitting = [(how, job) for job in jobs if (how := fit(job, collection)) is not None]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def fit(job: Job, collection: Collection) -> tuple[int, int, int] | None:
    """How well a set of files fits a job: processes, then folders, then time in common."""
    if max(collection.ranks, default=0) >= job.found.ranks:
        return None
    if any(each.source == collection.source for each in job.collections):
        return None  # it has its own already
    if max(collection.sizes.values(), default=0) > job.found.ranks:
        return None
    shared_ns = 0
    if collection.first_ns is not None and collection.last_ns is not None:
        latest_start = max(job.first_ns, collection.first_ns)
        shared_ns = min(job.last_ns, collection.last_ns) - latest_start
        if shared_ns < -APART_NS:
            return None
    pids = {pid for _, pid in job.processes}
    if collection.pids and pids and not collection.pids & pids:
        return None
    common = [
        len(os.path.commonpath([os.path.abspath(one), os.path.abspath(other)]))  # noqa: PTH100
        for one in [*job.folders, *(f for each in job.collections for f in each.folders)]
        for other in collection.folders
    ]
    return len(collection.pids & pids), max(common, default=0), shared_ns


def jobs_of(
    collection: Collection, members: Sequence[Member], events: Sequence[Event]
) -> list[Job]:
    facts = facts_of(e for e in events if e.labels.get(words.COMMUNICATOR, "") in collection.sizes)
    world = {SAME_SET: tuple(sorted(collection.ranks))}
    groups = {**known_groups(collection), **facts.groups, **world}
    facts = msgspec.structs.replace(facts, groups=groups)
    return [
        Job(
            name=one.job,
            found=without(one, SAME_SET),
            collections=[collection],
            attributes={},
            folders=list(collection.folders),
            first_ns=one.first_ns,
            last_ns=one.last_ns,
        )
        for one in infer(members, facts)
    ]


def without(found: JobFound, communicator: str) -> JobFound:
    rest = tuple(each for each in found.communicators if each.communicator != communicator)
    return msgspec.structs.replace(found, communicators=rest)


def members_of_groups(collection: Collection) -> list[Member]:
    """The members of each group, also where no operation of the group was recorded.

    Dumps that lie together are of one job, even if those that hang share no group with the others,
    or have no records: all of them are in the group SAME_SET.
    """
    if collection.pids:
        return []
    pairs = [*collection.job_ranks, *((SAME_SET, place) for place in range(len(collection.ranks)))]
    return [
        Member(
            communicator=communicator,
            rank=rank,
            host="",
            ranks=collection.sizes.get(communicator, 0),
            first_ns=collection.first_ns or 0,
            last_ns=collection.last_ns or 0,
        )
        for communicator, rank in pairs
    ]


def known_groups(collection: Collection) -> dict[str, tuple[int, ...]]:
    """The job's ranks of each group, where every file of the group was read."""
    ranks: dict[str, dict[int, int]] = {}
    for (communicator, rank), job_rank in collection.job_ranks.items():
        ranks.setdefault(communicator, {})[rank] = job_rank
    return {
        communicator: tuple(job_rank for _, job_rank in sorted(known.items()))
        for communicator, known in ranks.items()
        if sorted(known) == list(range(len(known))) and len(known) == collection.sizes[communicator]
    }


def add_attributes(jobs: Iterable[Job], events: Iterable[Event]) -> None:
    """Collect attributes of the jobs' ranks from NCCL's lines; the later value wins."""
    owners = {each.communicator: job for job in jobs for each in job.found.communicators}
    for event in events:
        communicator = event.labels.get(words.COMMUNICATOR, "")
        ranks = parse_ranks(event.labels.get(words.RANK, ""))
        job = owners.get(communicator)
        if event.kind == words.COMMUNICATOR and job is not None and ranks:
            job.attributes.setdefault((communicator, ranks[0]), {}).update(event.attributes)
