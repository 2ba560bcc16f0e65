"""Infers jobs and ranks from the communication between processes. Pure.

- An agent's job label wins, and processes of two labelled jobs are never put together.
- Else processes that share a communicator are one job.
- A communicator that all of a job's processes are in gives the job's ranks. Else the framework's
  groups or the marks of the training loop do; else they are numbered in the order of hosts and
  processes, and the origin marks this as a guess.
- A job that a person or scheduler named and whose hosts (processes and GPUs, where it has them)
  contain all of a component's processes at that time takes the component over; of two such jobs
  neither does.
- A job that was started again under the same name is one job with several runs; its ranks are those
  of the last one.
- A job without a name is called after its oldest communicator. When two such jobs turn out to be
  one, the older name stays and the other becomes an alias.

A name like `pg:default` may be in two jobs at once. It is then recognised by one rank in two
places, and joins only processes of one host.

The same function serves `api.jobs.watch` and `fabricscope diagnose`; it needs no database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final

import msgspec

from api.data.inventory.job_model import (
    CommunicatorFound,
    EarlierJob,
    JobFound,
    JobRank,
    KnownJob,
    Member,
    MemberFound,
    Origin,
    merged,
    said,
)
from api.jobs.facts import Facts, RankFacts
from collector.contract.identity import NaturalKey, natural

INFERRED_PREFIX: Final = "inferred-"
NAME_CHARS_KEPT: Final = 150
"""Of a communicator's name, in the name of a job: it becomes part of a path."""
SLACK_NS: Final = 600 * 10**9
"""Clocks of hosts and schedulers differ; a job may be registered after its first collective."""

Process = tuple[str, int, str]
"""Host, process id, and an extra key for processes whose id no record has."""


class Component:
    """Processes that belong together, and the memberships by which they do."""

    def __init__(
        self, processes: Iterable[Process], members: Sequence[tuple[Process, Member]]
    ) -> None:
        self.processes = set(processes)
        self.members = list(members)
        self.job = next((member.job for _, member in self.members if member.job), "")

    @property
    def first_ns(self) -> int:
        return min(member.first_ns for _, member in self.members)

    @property
    def last_ns(self) -> int:
        return max(member.last_ns for _, member in self.members)

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(host for host, _, _ in self.processes if host)

    @property
    def age(self) -> tuple[int, str]:
        return min((member.first_ns, member.communicator) for _, member in self.members)

    def by_communicator(self) -> dict[str, list[tuple[Process, Member]]]:
        found: dict[str, list[tuple[Process, Member]]] = {}
        for process, member in sorted(self.members, key=lambda pair: pair[1].last_ns):
            found.setdefault(member.communicator, []).append((process, member))
        return found

    def join(self, other: Component) -> None:
        self.processes |= other.processes
        self.members += other.members
        self.job = self.job or other.job


def infer(
    members: Iterable[Member],
    facts: Facts | None = None,
    known: Sequence[KnownJob] = (),
    earlier: Sequence[EarlierJob] = (),
    marked_ranks: Mapping[tuple[str, int], int] | None = None,
) -> list[JobFound]:
    """By name. ``marked_ranks``: ranks within the job by host and process, from marks of steps."""
    facts, marked_ranks = facts or Facts(), marked_ranks or {}
    known = [without_inferred(job) for job in known]
    components = attach(connect(chain(members, facts.members), facts), facts, marked_ranks)
    owners = take_over(components, known, facts)
    names = name_components(components, owners, earlier)
    by_name = {job.job: job for job in known}
    jobs: dict[str, tuple[Component, set[str]]] = {}
    for component, (name, aliases) in zip(components, names, strict=True):
        if name in jobs:  # several components of one labelled job
            jobs[name][0].join(component)
            jobs[name][1].update(aliases)
        else:
            jobs[name] = component, set(aliases)
    return [
        build(name, component, sorted(aliases), facts, by_name.get(name), marked_ranks)
        for name, (component, aliases) in sorted(jobs.items())
    ]


def without_inferred(job: KnownJob) -> KnownJob:
    """The job without inferred facts: those of an earlier run would conflict."""
    words = {Origin.REGISTERED, Origin.SCHEDULER}
    places = []
    for place in job.places:
        origins = {fact: word for fact, word in place.origins.items() if word in words}
        if "rank" in origins:
            facts = {fact: getattr(place, fact) for fact in origins}
            places.append(JobRank(**facts, origins=origins))
    return msgspec.structs.replace(job, places=tuple(places))


# --- components --------------------------------------------------------------------------------


class Union:
    """Disjoint sets of processes; two sets with different job labels are never joined."""

    def __init__(self) -> None:
        self._above: dict[Process, Process] = {}
        self.job: dict[Process, str] = {}

    def find(self, process: Process) -> Process:
        path = []
        while (above := self._above.setdefault(process, process)) != process:
            path.append(process)
            process = above
        for passed in path:
            self._above[passed] = process
        return process

    def join(self, one: Process, other: Process) -> None:
        a, b = self.find(one), self.find(other)
        jobs = {self.job[root] for root in (a, b) if root in self.job}
        if a == b or len(jobs) > 1:
            return
        self._above[b] = a
        if jobs:
            self.job[a] = jobs.pop()


def process_of(member: Member, facts: Facts) -> Process:
    if member.pid:
        return member.host, member.pid, ""
    ranks = facts.groups.get(member.communicator, ())
    if member.rank < len(ranks) and ranks[member.rank] >= 0:
        return member.host, 0, f"rank {ranks[member.rank]}"
    return member.host, 0, f"{member.communicator} {member.rank}"


def connect(members: Iterable[Member], facts: Facts) -> list[Component]:
    """Members joined by their job labels and by the communicators they share."""
    pairs = sorted(
        ((process_of(member, facts), member) for member in members),
        key=lambda pair: (pair[1].communicator, pair[1].rank, pair[0], pair[1].job),
    )
    union = Union()
    leaders: dict[str, Process] = {}
    for process, member in pairs:
        root = union.find(process)
        if member.job and root not in union.job:
            union.job[root] = member.job
            union.join(leaders.setdefault(member.job, process), process)
    for group in instances(pairs):
        for one, other in pairwise(group):
            union.join(one, other)
    found: dict[Process, list[tuple[Process, Member]]] = {}
    for process, member in pairs:
        found.setdefault(union.find(process), []).append((process, member))
    components = [Component((p for p, _ in own), own) for own in found.values()]
    return sorted(components, key=lambda component: component.age)


def instances(pairs: Sequence[tuple[Process, Member]]) -> list[list[Process]]:
    """Processes that share a communicator; only those of one host where its name is not unique."""
    by_name: dict[str, dict[int, set[Process]]] = {}
    for process, member in pairs:
        by_name.setdefault(member.communicator, {}).setdefault(member.rank, set()).add(process)
    found: list[list[Process]] = []
    for ranks in by_name.values():
        all_of_it = sorted({process for some in ranks.values() for process in some})
        if all(len(some) == 1 for some in ranks.values()):
            found.append(all_of_it)
            continue
        by_host: dict[str, list[Process]] = {}
        for process in all_of_it:
            by_host.setdefault(process[0], []).append(process)
        found += by_host.values()
    return found


def attach(
    components: list[Component], facts: Facts, marked_ranks: Mapping[tuple[str, int], int]
) -> list[Component]:
    """The same with those put together whose ranks are at the same places.

    A dump of the Flight Recorder knows a process by its rank alone. If there is one job, and only
    one, that has all of these ranks on these hosts, it is a dump of that job. A job without a
    communicator of all its ranks has them by the marks of its training loop.
    """
    whole = [one for one in components if any(pid for _, pid, _ in one.processes)]
    numbered = [
        (one, {rank: process[0] for rank, process in ranks.items()})
        for one in whole
        if (ranks := find_world(one, facts).ranks or ranks_by_mark(one, marked_ranks))
    ]
    rest = []
    for component in components:
        if component in whole:
            continue
        places = {
            facts.groups[member.communicator][member.rank]: process[0]
            for process, member in component.members
            if member.rank < len(facts.groups.get(member.communicator, ()))
        }
        fitting = [
            one
            for one, hosts in numbered
            if places
            and (not component.job or component.job == one.job)
            and all(rank in hosts and host in {"", hosts[rank]} for rank, host in places.items())
        ]
        if len(fitting) == 1:
            fitting[0].join(component)
        else:
            rest.append(component)
    return sorted([*whole, *rest], key=lambda component: component.age)


def runs_of(component: Component, facts: Facts) -> list[Component]:
    """A job's processes apart by time, the earliest first: each time that it was started."""
    unsaid = (msgspec.structs.replace(member, job="") for _, member in component.members)
    runs: list[Component] = []
    for part in sorted(connect(unsaid, facts), key=lambda part: part.first_ns):
        if runs and part.first_ns <= runs[-1].last_ns:
            runs[-1].join(part)
        else:
            runs.append(part)
    return runs


# --- ranks -------------------------------------------------------------------------------------


class World(msgspec.Struct, frozen=True):
    """The communicator that numbers a job's processes, and rank to process in it."""

    communicator: str = ""
    ranks: dict[int, Process] = {}


def find_world(component: Component, facts: Facts) -> World:
    """The largest, then oldest communicator that all processes are in; an empty one if none is."""
    counted = {process for process in component.processes if process[1]} or component.processes
    candidates = []
    for name, pairs in component.by_communicator().items():
        if name in facts.groups or not counted <= {process for process, _ in pairs}:
            continue
        ranks = {member.rank: process for process, member in pairs}
        size = max([len(ranks), *(member.ranks for _, member in pairs)])
        first_ns = min(member.first_ns for _, member in pairs)
        if is_part(component, name, ranks, size):
            continue
        candidates.append(((-size, first_ns, name), World(name, ranks)))
    return min(candidates, key=lambda pair: pair[0])[1] if candidates else World()


def is_part(component: Component, name: str, ranks: Mapping[int, Process], size: int) -> bool:
    """Whether a communicator cannot hold all of a job of which some processes were not seen.

    Ranks of a communicator are in the order of the job's. So a process that is the second of
    another communicator has one before it, which the first of a communicator of all has not.
    """
    groups = component.by_communicator()
    sizes = {each: max(member.ranks for _, member in own) for each, own in groups.items()}
    if is_whole(component):
        return False  # every rank was seen: one that is not in it does not exist
    own_rank = {process: rank for rank, process in ranks.items()}
    if len(own_rank) < len(ranks):
        return False  # a process with several GPUs has several ranks
    for process, member in component.members:
        rank, count = own_rank.get(process), sizes[member.communicator]
        if rank is None or member.communicator == name or not count:
            continue
        if member.rank > rank or count - member.rank > size - rank:
            return True
    return False


def is_whole(component: Component) -> bool:
    """Whether every member of its communicators was seen."""
    return all(
        len({member.rank for _, member in pairs}) >= max(member.ranks for _, member in pairs)
        for pairs in component.by_communicator().values()
    )


def group_ranks(component: Component, facts: Facts) -> dict[int, Process]:
    """Rank to process by the framework's groups, which name the ranks of the job."""
    found: dict[int, Process] = {}
    for process, member in component.members:
        ranks = facts.groups.get(member.communicator, ())
        if member.rank < len(ranks) and ranks[member.rank] >= 0:
            found[ranks[member.rank]] = process
    return found


class Numbering(msgspec.Struct):
    """Rank to process, and where each number comes from."""

    ranks: dict[int, Process] = {}
    origins: dict[int, Origin] = {}
    own: dict[Process, list[int]] = {}
    """Process to its ranks: several, if it has several GPUs."""
    world: str = ""
    """The communicator whose ranks these are, if one gave them."""

    def rank_in(self, process: Process, member: Member) -> int | None:
        """The rank in the job of one membership; None if it is unknown."""
        if member.communicator == self.world:
            return member.rank
        own = self.own.get(process, [])
        return own[0] if len(own) == 1 else None

    def add(self, ranks: Mapping[int, Process], origin: Origin) -> None:
        """Take ranks that are free, for processes that have none."""
        numbered = set(self.own)
        for rank, process in sorted(ranks.items()):
            # A process with several GPUs has several ranks, all from one source.
            if rank not in self.ranks and process not in numbered:
                self.ranks[rank] = process
                self.origins[rank] = origin
                self.own.setdefault(process, []).append(rank)


def number_processes(
    component: Component,
    facts: Facts,
    known: KnownJob | None,
    marked_ranks: Mapping[tuple[str, int], int],
) -> Numbering:
    numbering = Numbering(ranks={}, origins={}, own={})
    places = known.places if known else ()
    by_pid = {(place.host, place.pid): place for place in places if place.pid}
    by_word: dict[Origin, dict[int, Process]] = {}
    for process in sorted(component.processes):
        if place := by_pid.get(process[:2]):
            word = Origin(place.origins.get("rank", Origin.SCHEDULER))
            by_word.setdefault(word, {})[place.rank] = process
    for word, ranks in by_word.items():
        numbering.add(ranks, word)
    world = find_world(component, facts)
    if fits(world.ranks, places):
        numbering.add(world.ranks, Origin.RECORDS)
        if all(numbering.ranks.get(rank) == process for rank, process in world.ranks.items()):
            numbering.world = world.communicator
    # Before the groups: those of a dump know no process, and would take the ranks of those seen.
    numbering.add(ranks_by_mark(component, marked_ranks), Origin.RECORDS)
    numbering.add(group_ranks(component, facts), Origin.RECORDS)
    numbering.add(ranks_by_gpu(component, facts, places), Origin.REGISTERED)
    left = component.processes - set(numbering.own)
    if any(process[1] for process in component.processes):
        left = {process for process in left if process[1]}
    free = (rank for rank in range(1 << 31) if rank not in numbering.ranks)
    guessed = dict(zip(free, sorted(left, key=natural_process), strict=False))
    numbering.add(guessed, Origin.INFERRED)
    return numbering


def ranks_by_mark(
    component: Component, marked_ranks: Mapping[tuple[str, int], int]
) -> dict[int, Process]:
    """Rank to process by what the training loop says of itself."""
    processes = sorted(component.processes)
    return {marked_ranks[one[:2]]: one for one in processes if one[:2] in marked_ranks}


def fits(world: Mapping[int, Process], places: Sequence[JobRank]) -> bool:
    """Whether ranks of a communicator are where the named job has them."""
    hosts = {place.rank: place.host for place in places if place.host}
    return all(hosts.get(rank, process[0]) == process[0] for rank, process in world.items())


def ranks_by_gpu(
    component: Component, facts: Facts, places: Sequence[JobRank]
) -> dict[int, Process]:
    on_gpu: dict[tuple[str | None, str | None], list[int]] = {}
    for place in places:
        on_gpu.setdefault((place.host, None), []).append(place.rank)
        if place.gpu is not None:
            on_gpu.setdefault((place.host, place.gpu), []).append(place.rank)
    gpus = gpus_of(component, facts)
    found: dict[int, Process] = {}
    for process in sorted(component.processes):
        ranks = on_gpu.get((process[0], gpus.get(process))) or on_gpu.get((process[0], None), [])
        if len(ranks) == 1 and ranks[0] not in found:
            found[ranks[0]] = process
    return found


def gpus_of(component: Component, facts: Facts) -> dict[Process, str]:
    return {
        process: seen.gpu
        for process, member in component.members
        if (seen := seen_of(process, member, facts)) is not None and seen.gpu is not None
    }


def seen_of(process: Process, member: Member, facts: Facts) -> RankFacts | None:
    """NCCL's facts about a membership; None if they are about another process."""
    seen = facts.ranks.get((member.communicator, member.rank))
    if seen is None or (seen.pid and process[1] and seen.pid != process[1]):
        return None
    return seen


def natural_process(process: Process) -> tuple[NaturalKey, Process]:
    """Sorts processes by host in natural order: node-2 before node-10."""
    return natural(process[0]), process


# --- named jobs ---------------------------------------------------------------------------------


def take_over(
    components: Sequence[Component], known: Sequence[KnownJob], facts: Facts
) -> dict[int, KnownJob]:
    """The named job that each component belongs to, by the component's place in the list."""
    by_host: dict[str, list[KnownJob]] = {}
    for job in known:
        for host in job.hosts:
            by_host.setdefault(host, []).append(job)
    wanted: dict[str, list[tuple[int, Component, KnownJob]]] = {}
    for place, component in enumerate(components):
        if component.job or not component.hosts:
            continue
        gpus = gpus_of(component, facts)
        near = by_host.get(min(component.hosts), [])
        fitting = [(how, job) for job in near if (how := holds(job, component, gpus)) is not None]
        best = max((how for how, _ in fitting), default=0)
        found = [job for how, job in fitting if how == best]
        if len(found) == 1:
            wanted.setdefault(found[0].job, []).append((place, component, found[0]))
    return {place: job for claims in wanted.values() for place, job in admit(claims)}


def holds(job: KnownJob, component: Component, gpus: Mapping[Process, str]) -> int | None:
    """2: by its processes, 1: by its GPUs, 0: by its hosts; None: it does not hold them all."""
    if not component.hosts <= job.hosts or not at_the_same_time(job, component):
        return None
    pids: dict[str | None, set[int | None]] = {}
    on_gpus: dict[str | None, set[str | None]] = {}
    for place in job.places:
        pids.setdefault(place.host, set()).add(place.pid)
        on_gpus.setdefault(place.host, set()).add(place.gpu)
    surest = 2
    for process in component.processes:
        host, pid, _ = process
        if pid and host in pids and None not in pids[host]:
            if pid not in pids[host]:
                return None
        elif process in gpus and host in on_gpus and None not in on_gpus[host]:
            if gpus[process] not in on_gpus[host]:
                return None
            surest = min(surest, 1)
        else:
            surest = 0
    return surest


def at_the_same_time(job: KnownJob, component: Component) -> bool:
    """Whether a component was seen while a job ran, give or take SLACK_NS."""
    started = job.started_ns is None or component.last_ns >= job.started_ns - SLACK_NS
    ended = job.ended_ns is not None and component.first_ns > job.ended_ns + SLACK_NS
    return started and not ended


def admit(claims: list[tuple[int, Component, KnownJob]]) -> list[tuple[int, KnownJob]]:
    """Which of the components that fit a named job are in it: the largest, then the oldest first.

    More are in it as long as it has that many ranks; if its size is unknown, as long as they are on
    other hosts. So two jobs on one host stay two. A component that ran before or after the others
    is another run of the job.
    """
    ordered = sorted(claims, key=lambda claim: (-len(claim[1].processes), claim[1].age))
    taken: list[tuple[int, Component]] = []
    for place, component, job in ordered:
        beside = [
            other
            for _, other in taken
            if other.first_ns <= component.last_ns and component.first_ns <= other.last_ns
        ]
        hosts = {host for other in beside for host in other.hosts}
        processes = sum(len(other.processes) for other in (component, *beside))
        room = not hosts & component.hosts if job.ranks is None else processes <= job.ranks
        if room or not beside:
            taken.append((place, component))
    return [(place, claims[0][2]) for place, _ in taken]


# --- names -------------------------------------------------------------------------------------


def name_components(
    components: Sequence[Component], owners: Mapping[int, KnownJob], earlier: Sequence[EarlierJob]
) -> list[tuple[str, tuple[str, ...]]]:
    by_communicator: dict[str, list[EarlierJob]] = {}
    for job in earlier:
        for communicator in job.communicators:
            by_communicator.setdefault(communicator, []).append(job)
    shared = shared_names(components)
    used: set[str] = set()
    names = []
    for place, component in enumerate(components):
        own = {member.communicator for _, member in component.members} - shared
        before = {job.job: job for name in own for job in by_communicator.get(name, ())}
        free = sorted(
            (job for job in before.values() if job.job not in used),
            key=lambda job: (job.first_ns, job.job),
        )
        ids = [job.job for job in free]
        named = component.job or (owners[place].job if place in owners else "")
        name = named or (ids[0] if ids else invented(component, shared))
        used.update([name, *ids])
        names.append((name, tuple(each for each in ids if each != name)))
    return names


def shared_names(components: Sequence[Component]) -> set[str]:
    """Communicators' names that are in several components: no job is called after them alone."""
    seen: set[str] = set()
    shared: set[str] = set()
    for component in components:
        own = {member.communicator for _, member in component.members}
        shared |= seen & own
        seen |= own
    return shared


def invented(component: Component, shared: set[str]) -> str:
    """The same in every process, as long as the oldest communicator is among those seen."""
    communicator = component.age[1]
    text = re.sub(r"[^A-Za-z0-9_.:-]", "_", communicator.removeprefix("0x"))[:NAME_CHARS_KEPT]
    if communicator in shared:
        place = min(component.hosts, default="")
        text += "-" + re.sub(r"[^A-Za-z0-9_.:-]", "_", place)[: NAME_CHARS_KEPT // 2]
    return INFERRED_PREFIX + text


# --- the answer --------------------------------------------------------------------------------


def build(
    name: str,
    component: Component,
    aliases: Sequence[str],
    facts: Facts,
    known: KnownJob | None,
    marked_ranks: Mapping[tuple[str, int], int],
) -> JobFound:
    runs = runs_of(component, facts) if component.job or known else [component]
    communicators: dict[str, CommunicatorFound] = {}
    for run in runs:
        numbering = number_processes(run, facts, known, marked_ranks)
        for communicator, pairs in run.by_communicator().items():
            communicators[communicator] = describe(communicator, pairs, numbering, facts)
    last = runs[-1]
    whole = max(communicators[member.communicator].ranks for _, member in last.members)
    return JobFound(
        job=name,
        was_said=bool(component.job) or known is not None,
        ranks=max(len(numbering.ranks), whole, (known.ranks or 0) if known else 0),
        places=tuple(places_of(last, numbering, facts)),
        communicators=tuple(found for _, found in sorted(communicators.items())),
        hosts=component.hosts,
        first_ns=component.first_ns,
        last_ns=component.last_ns,
        aliases=tuple(aliases),
    )


def describe(
    communicator: str, pairs: Sequence[tuple[Process, Member]], numbering: Numbering, facts: Facts
) -> CommunicatorFound:
    ranks = facts.groups.get(communicator)
    members = {
        member.rank: MemberFound(
            rank=member.rank,
            host=process[0],
            pid=process[1],
            job_rank=(
                ranks[member.rank]
                if ranks and member.rank < len(ranks) and ranks[member.rank] >= 0
                else numbering.rank_in(process, member)
            ),
        )
        for process, member in pairs
    }
    return CommunicatorFound(
        communicator=communicator,
        members=tuple(member for _, member in sorted(members.items())),
        ranks=max([len(members), *(member.ranks for _, member in pairs)]),
        name=facts.names.get(communicator),
        nodes=facts.nodes.get(communicator),
        rings=facts.rings.get(communicator, []),
        trees=facts.trees.get(communicator, []),
        is_in_network=communicator in facts.in_network,
        first_ns=min(member.first_ns for _, member in pairs),
        last_ns=max(member.last_ns for _, member in pairs),
    )


def places_of(component: Component, numbering: Numbering, facts: Facts) -> list[JobRank]:
    seen_by_rank: dict[int, RankFacts] = {}
    for process, member in component.members:
        seen = seen_of(process, member, facts)
        rank = numbering.rank_in(process, member) if seen is not None else None
        if rank is not None and seen is not None:
            seen_by_rank[rank] = better(seen_by_rank.get(rank), seen)
    places = []
    for rank, (host, pid, _) in sorted(numbering.ranks.items()):
        origin = numbering.origins[rank]
        place = said(rank, Origin.RECORDS, host=host or None, pid=pid or None)
        place = msgspec.structs.replace(place, origins={**place.origins, "rank": str(origin)})
        if seen := seen_by_rank.get(rank):
            place = merged(place, as_place(rank, seen))
        places.append(place)
    return places


def better(one: RankFacts | None, other: RankFacts) -> RankFacts:
    """The facts of two events; the first one's stand where both have one."""
    if one is None:
        return other
    return RankFacts(
        host=one.host or other.host,
        pid=one.pid or other.pid,
        gpu=one.gpu if one.gpu is not None else other.gpu,
        bus_id=one.bus_id or other.bus_id,
        local_rank=one.local_rank if one.local_rank is not None else other.local_rank,
        devices=one.devices or other.devices,
    )


def as_place(rank: int, seen: RankFacts) -> JobRank:
    """NCCL's lines as facts about a rank; the number of the rank has another origin."""
    device, _, port = seen.devices[0].partition(":") if seen.devices else ("", "", "")
    names = [each.partition(":")[0] for each in seen.devices]
    place = said(
        rank,
        Origin.NCCL,
        gpu=seen.gpu,
        local_rank=seen.local_rank,
        device=device or None,
        devices=",".join(dict.fromkeys(names)) or None,
        port=port or None,
    )
    return msgspec.structs.replace(
        place, origins={fact: word for fact, word in place.origins.items() if fact != "rank"}
    )
