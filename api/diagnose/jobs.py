"""Jobs of a throw-away store: their ranks, and the files that belong to each.

Processes that NCCL names (host and process id) are put together by `api.jobs.infer`. Files that
know a process by its rank only (`load.Collection`) are then given to the job that they fit: same
processes, ranks, time, and place on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from typing import Any

import msgspec

from api.data.inventory.job_model import JobFound, JobRank, Member, Origin
from api.diagnose.load import Loaded
from api.diagnose.sets import APART_NS, Collection
from api.diagnose.throw_away import ThrowAwayStore
from api.jobs.facts import facts_of
from api.jobs.infer import infer
from collector.contract import communicator as words
from collector.contract.communicator import parse_ranks
from collector.contract.model import Event

MEMBERS_SQL = """
    SELECT source, communicator, rank, host, pid, max(ranks) AS ranks, job,
           toUnixTimestamp64Nano(min(least(time, ifNull(entry, time), ifNull(enqueue, time))))
               AS first_ns,
           toUnixTimestamp64Nano(max(time)) AS last_ns
    FROM collectives GROUP BY source, communicator, rank, host, pid, job
    ORDER BY communicator, rank, host, pid, job, source
"""
MARKS_SQL = """
    SELECT host, pid, max(rank) AS marked_rank FROM steps
    WHERE rank >= 0 AND pid > 0 GROUP BY host, pid HAVING min(rank) = max(rank)
"""
SAME_SET = "~files that lie together"
"""No group is called so; it sorts behind all others, so that no job is named after it."""


RANKS_LISTED_MAX = 1 << 20
"""Ranks of a group that are listed: ten times the largest job there is. A file may claim more."""
PLACES_MAX = 1 << 22
"""The same of all groups of a set of files together."""
UNREAD_MAX = 10_000
"""Ranks that were not read and are named one by one."""
RANK_END = 1 << 31
"""Ranks are below it."""
SHARED_TIME_MIN = 0.5
"""Of the shorter one's time that two parts of one job must have in common."""


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
    sources: dict[tuple[str, int], set[str]] = {}
    """Which sources have something of each rank of its communicators."""
    by_source: dict[str, set[int]] = {}
    """The job's ranks that each source has something of."""
    numbers: frozenset[int] = frozenset()
    """Ranks that files name."""
    world: int = 0
    """Ranks below it are known to exist, whether a file names them or not."""
    size: int = 0
    """How many there are at least."""
    apart: dict[tuple[str, int], int] = {}
    """Members of groups that no file names, and that were found by who leaves together."""
    guessed: frozenset[int] = frozenset()
    """Stand for ranks whose numbers nothing says; no rank has such a number."""

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
        return known | self.apart

    @property
    def said_ranks(self) -> dict[tuple[str, int], int]:
        """Those of ``job_ranks`` that a file says: what readers may see."""
        return {one: rank for one, rank in self.job_ranks.items() if rank not in self.guessed}

    def lacks(self, seen: AbstractSet[int]) -> list[int]:
        """The ranks that are known to exist and are not among these; UNREAD_MAX at most."""
        below = (rank for rank in range(self.world) if rank not in seen)
        above = sorted(rank for rank in self.numbers if rank >= self.world and rank not in seen)
        return list(islice(chain(below, above), UNREAD_MAX))

    @property
    def places(self) -> dict[int, JobRank]:
        return {place.rank: place for place in self.found.places}

    def called(self, rank: int) -> str:
        """A rank by its number, or by its host where no file says the number."""
        place = self.places.get(rank)
        host = place.host if place is not None else None
        return host or "a rank" if rank in self.guessed else f"rank {rank}"

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
    sources: dict[tuple[str, int], set[str]] = {}
    for row in rows:
        sources.setdefault((row["communicator"], row["rank"]), set()).add(row["source"])
    members = [to_member(row) for row in rows]
    direct = [member for member in members if not member.communicator.startswith("pg:")]
    logged = members_of_events(events)
    for member in logged:
        sources.setdefault((member.communicator, member.rank), set()).add("nccl_debug")
    facts = facts_of(event for event in events if event.kind == words.COMMUNICATOR)
    named = [*direct, *logged]
    marked = stated_ranks(store, named)
    spans = time_spans(members)
    found = infer(named, facts, marked_ranks=marked)
    if torn := torn_jobs([to_job(one, loaded, spans) for one in found]):
        facts = msgspec.structs.replace(facts, groups={**facts.groups, **dict.fromkeys(torn, ())})
        together = [member for some in torn.values() for member in some]
        again = infer([*named, *together], facts, marked_ranks=marked)
        found = [without(one, *torn) for one in again]
    jobs = [to_job(one, loaded, spans) for one in found]
    groups = [event for event in events if event.kind == words.PROCESS_GROUP]
    # Traces know processes, so they are placed before dumps, which know ranks only.
    for collection in sorted(loaded.collections, key=lambda each: (not each.pids, each.number)):
        job = best_job(jobs, collection)
        if job is not None:
            job.add(collection)
        else:
            own = [member for member in members if member.communicator in collection.sizes]
            jobs += jobs_of(collection, own, groups)
    add_attributes(jobs, events)
    for job in jobs:
        job.sources = sources
        count_ranks(job)
    return sorted(jobs, key=lambda job: (job.first_ns, job.name))


def count_ranks(job: Job) -> None:
    """Fill in who is known to exist, and who was read."""
    if not is_complete(job.found):
        set_apart(job)
    known = job.job_ranks
    by_source: dict[str, set[int]] = {}
    for member, rank in known.items():
        for source in job.sources.get(member, ()):
            by_source.setdefault(source, set()).add(rank)
    for collection in job.collections:
        by_source.setdefault(collection.source, set()).update(collection.ranks)
    worlds = [each.world_size for each in job.collections]
    worlds += [
        each.ranks
        for each in job.found.communicators
        if each.ranks == job.found.ranks and all(one.job_rank == one.rank for one in each.members)
    ]
    numbers = {*known.values(), *(rank for some in by_source.values() for rank in some)}
    sizes = [job.found.ranks, *(size for each in job.collections for size in each.sizes.values())]
    # Those that a communicator lacks are none of the processes that were seen.
    lacking = max((each.ranks - len(each.members) for each in job.found.communicators), default=0)
    sizes.append(len(job.processes) + lacking if job.processes else 0)
    most_seen = max((len(ranks) for ranks in by_source.values()), default=0)
    job.by_source = by_source
    job.numbers = frozenset(numbers - job.guessed)
    job.world = max(worlds, default=0)
    named = job.world + sum(rank >= job.world for rank in job.numbers)
    job.size = max([*sizes, named, most_seen])


def set_apart(job: Job) -> None:
    """Give ranks whose numbers were guessed numbers that no rank has.

    Of a job that was seen in part a guess is wrong, and it may be another rank's true number.
    """
    guessed = {
        place.rank for place in job.found.places if place.origins.get("rank") == Origin.INFERRED
    }
    if not guessed:
        return
    said = {rank for each in job.collections for rank in (*each.ranks, *each.job_ranks.values())}
    taken = {*said, *job.places}
    first = 1 + max(taken)
    free = (rank for rank in chain(range(first, RANK_END), range(first)) if rank not in taken)
    apart = dict(zip(sorted(guessed), free, strict=False))
    places = [
        msgspec.structs.replace(place, rank=apart.get(place.rank, place.rank))
        for place in job.found.places
    ]
    communicators = [
        msgspec.structs.replace(
            each,
            members=tuple(
                msgspec.structs.replace(one, job_rank=apart.get(one.job_rank, one.job_rank))
                if one.job_rank is not None
                else one
                for one in each.members
            ),
        )
        for each in job.found.communicators
    ]
    job.found = msgspec.structs.replace(
        job.found, places=tuple(places), communicators=tuple(communicators)
    )
    job.guessed = frozenset(apart.values())


def is_complete(found: JobFound) -> bool:
    """Whether every member of its communicators was seen."""
    return all(len(each.members) >= each.ranks for each in found.communicators)


def torn_jobs(jobs: Sequence[Job]) -> dict[str, list[Member]]:
    """Memberships that put the parts of one job together again whose common ranks were not read.

    Two parts may be one job if both lack ranks, lie in one folder, ran at the same time on other
    GPUs, and have communicators of the same two or more sizes: two jobs that happen to have all of
    this in common are rarer than one of which some ranks were profiled.
    """
    alike: dict[tuple[Any, ...], list[Job]] = {}
    for job in jobs:
        if is_complete(job.found) or job.found.was_said:
            continue
        sizes = tuple(sorted({each.ranks for each in job.found.communicators}))
        if len(sizes) == 1:
            continue  # the communicator of all of its ranks: one not in it is another job's
        alike.setdefault((tuple(job.folders[:1]), sizes), []).append(job)
    found: dict[str, list[Member]] = {}
    for some in alike.values():
        groups: list[list[Job]] = []
        for job in sorted(some, key=lambda each: (each.first_ns, each.name)):
            fitting = next((group for group in groups if fits_in(group, job)), None)
            if fitting is None:
                groups.append([job])
            else:
                fitting.append(job)
        for group in groups:
            if len(group) > 1:
                name = f"{SAME_SET} {len(found)}"
                processes = sorted({one for job in group for one in job.processes})
                found[name] = [
                    Member(
                        communicator=name, rank=place, host=host, pid=pid,
                        first_ns=group[0].first_ns, last_ns=group[0].last_ns,
                    )
                    for place, (host, pid) in enumerate(processes)
                ]  # fmt: skip
    return found


def fits_in(group: Sequence[Job], job: Job) -> bool:
    first, last = max(each.first_ns for each in group), min(each.last_ns for each in group)
    shared_ns = min(last, job.last_ns) - max(first, job.first_ns)
    shortest_ns = min(each.last_ns - each.first_ns for each in (*group, job))
    used = {(place.host, place.gpu) for each in group for place in each.found.places}
    own = {(place.host, place.gpu) for place in job.found.places if place.gpu is not None}
    pids = {process for each in group for process in each.processes}
    is_apart = not used & own and not pids & job.processes
    return is_apart and shared_ns >= SHARED_TIME_MIN * shortest_ns


def to_member(row: dict[str, Any]) -> Member:
    own = {name: value for name, value in row.items() if name != "source"}
    return msgspec.convert(own, Member)


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
    if is_complete(job.found):
        # Else the job may be larger than what was seen of it.
        sizes = [*collection.sizes.values(), collection.world_size]
        if max(collection.ranks, default=0) >= job.found.ranks or max(sizes) > job.found.ranks:
            return None
    if any(each.source == collection.source for each in job.collections):
        return None  # it has its own already
    shared_ns = 0
    if collection.first_ns is not None and collection.last_ns is not None:
        latest_start = max(job.first_ns, collection.first_ns)
        shared_ns = min(job.last_ns, collection.last_ns) - latest_start
        if shared_ns < -APART_NS:
            return None
    if not may_be_its_processes(job, collection):
        return None
    pids = {pid for _, pid in job.processes}
    common = [
        len(os.path.commonpath([os.path.abspath(one), os.path.abspath(other)]))  # noqa: PTH100
        for one in [*job.folders, *(f for each in job.collections for f in each.folders)]
        for other in collection.folders
    ]
    return len(collection.pids & pids), max(common, default=0), shared_ns


def may_be_its_processes(job: Job, collection: Collection) -> bool:
    """Whether no process contradicts: of some ranks one source may have a file, of others another.

    A rank that both know must be the same process. If no process is in both, a job of which all
    were seen is another one.
    """
    pids = {pid for _, pid in job.processes}
    if not collection.pids or not pids or collection.pids & pids:
        return True
    places = job.places
    said = {rank for rank, place in places.items() if place.origins.get("rank") != Origin.INFERRED}
    both = [rank for rank in collection.pid_of if rank in said and places[rank].pid]
    return not both and not is_complete(job.found)


def jobs_of(
    collection: Collection, members: Sequence[Member], events: Sequence[Event]
) -> list[Job]:
    """The files of a set are one job's, whichever of its ranks are there."""
    facts = facts_of(e for e in events if e.labels.get(words.COMMUNICATOR, "") in collection.sizes)
    numbers = sorted({*collection.ranks, *collection.job_ranks.values()})
    own = [*members, *members_of_groups(collection), *members_of_set(collection, members, numbers)]
    # Ranks that no file numbers have a place behind the others.
    world = (*numbers, *[-1] * len(members))
    groups = {**facts.groups, **known_groups(collection), SAME_SET: world}
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
        for one in infer(own, facts)
    ]


def without(found: JobFound, *communicators: str) -> JobFound:
    rest = tuple(each for each in found.communicators if each.communicator not in communicators)
    return msgspec.structs.replace(found, communicators=rest)


def members_of_groups(collection: Collection) -> list[Member]:
    """The members of each group of dumps, also where no operation of the group was recorded."""
    if collection.pids:
        return []
    return [
        Member(
            communicator=communicator,
            rank=rank,
            host="",
            ranks=collection.sizes.get(communicator, 0),
            first_ns=collection.first_ns or 0,
            last_ns=collection.last_ns or 0,
        )
        for communicator, rank in collection.job_ranks
    ]


def members_of_set(
    collection: Collection, members: Sequence[Member], numbers: Sequence[int]
) -> list[Member]:
    """All processes of a set as members of one group, by the place of their numbers in the job's.

    Files that lie together are of one job, even if those that hang share no group with the others,
    have no records, or share groups only with ranks that were not profiled.
    """
    place_of = {number: place for place, number in enumerate(numbers)}
    processes: dict[tuple[str, int, int], None] = {}
    for member in members:
        number = collection.job_ranks.get((member.communicator, member.rank))
        if number is not None and (member.pid or not collection.pids):
            processes.setdefault((member.host, member.pid, place_of[number]))
    numbered = {place for _, _, place in processes}
    for number in collection.ranks:
        if place_of[number] not in numbered:
            processes.setdefault(("", collection.pid_of.get(number, 0), place_of[number]))
    known = {process[:2] for process in processes}
    for member in members:
        if member.pid and (member.host, member.pid) not in known:
            known.add((member.host, member.pid))
            processes.setdefault((member.host, member.pid, len(numbers) + len(known) - 1))
    # No job is older than its records: it would be called after this set.
    first_ns = min((member.first_ns for member in members), default=collection.first_ns or 0)
    last_ns = max((member.last_ns for member in members), default=collection.last_ns or 0)
    return [
        Member(
            communicator=SAME_SET,
            rank=place,
            host=host,
            pid=pid,
            first_ns=first_ns,
            last_ns=last_ns,
        )
        for host, pid, place in processes
    ]


def known_groups(collection: Collection) -> dict[str, tuple[int, ...]]:
    """The job's ranks of each group by their places in it; -1 where no file shows which it is."""
    ranks: dict[str, dict[int, int]] = {}
    for (communicator, rank), job_rank in collection.job_ranks.items():
        if rank < RANKS_LISTED_MAX:
            ranks.setdefault(communicator, {})[rank] = job_rank
    found: dict[str, tuple[int, ...]] = {}
    left = PLACES_MAX
    for communicator, known in ranks.items():
        size = max(known) + 1
        if size <= left:
            left -= size
            found[communicator] = tuple(known.get(place, -1) for place in range(size))
    return found


def add_attributes(jobs: Iterable[Job], events: Iterable[Event]) -> None:
    """Collect attributes of the jobs' ranks from NCCL's lines; the later value wins."""
    owners = {each.communicator: job for job in jobs for each in job.found.communicators}
    for event in events:
        communicator = event.labels.get(words.COMMUNICATOR, "")
        ranks = parse_ranks(event.labels.get(words.RANK, ""))
        job = owners.get(communicator)
        if event.kind == words.COMMUNICATOR and job is not None and ranks:
            job.attributes.setdefault((communicator, ranks[0]), {}).update(event.attributes)
