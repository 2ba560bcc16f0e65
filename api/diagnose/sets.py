"""Sets of files about the same process groups: which file belongs to which run.

A framework's process groups have the same names in every job (`0`), and their files know a rank and
little else. So a file is put to others by its folder, its time, its process and its group of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collector.contract.collective import Collective, StepSpan
from collector.contract.communicator import (
    COMMUNICATOR,
    CUT,
    DUMP,
    PROCESS_GROUP,
    RANK,
    RANKS,
    parse_ranks,
)
from collector.contract.model import Event

APART_NS = 600_000_000_000
"""Ten minutes: records of ranks of one job that lie in different folders are closer than that."""
RUNS_APART_NS = 6 * 3_600_000_000_000
"""Six hours: files of one folder that are further apart are of two runs. A watchdog waits for half
an hour, and profiles of one run are taken within hours."""

ZONES_APART_NS = 26 * 3_600_000_000_000
"""The furthest time zones are 26 hours apart. A rank that a run lacks may be of a host with such a
clock."""


GROUP_OF_MEMBERS = re.compile(r"pg:[^:]+:[0-9a-f]+")


class Collection(msgspec.Struct, kw_only=True):
    """Files of one format about the same process groups: one job's, one file per rank."""

    source: str
    number: int
    folders: list[str]
    ranks: set[int] = set()
    pids: set[int] = set()
    pid_of: dict[int, int] = {}
    """By the job's rank, where a file has both."""
    whole: set[int] = set()
    cut: set[int] = set()
    """Ranks whose every file is cut off: what it does not show may have been in it."""
    world_size: int = 0
    """How many ranks a file says that the job has; 0: none says it."""
    default_group: str = ""
    """The framework's group of all ranks, whose name has their hash; empty: no file names it."""
    job_ranks: dict[tuple[str, int], int] = {}
    """The job's rank of each rank of a communicator, by the names that the store has."""
    sizes: dict[str, int] = {}
    descriptions: dict[str, str] = {}
    """What the framework calls each group, as soon as one file names it."""
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def suffix(self) -> str:
        """Added to its communicators' names; empty for the first set."""
        return f"@{self.number}" if self.number > 1 else ""

    @property
    def key(self) -> str:
        return f"{self.source}@{self.number}"


class ProcessFile(msgspec.Struct, kw_only=True):
    """The content of one rank's file, until it is known which set the file belongs to."""

    source: str
    folder: str
    rank: int | None = None
    pid: int = 0
    is_cut: bool = False
    world_size: int = 0
    default_group: str = ""
    collectives: list[Collective] = []
    steps: list[StepSpan] = []
    events: list[Event] = []
    collection: Collection | None = None

    def groups(self) -> set[str]:
        """Its process groups whose names have a hash of their members."""
        named = {record.communicator for record in self.collectives}
        named |= {event.labels.get(COMMUNICATOR, "") for event in self.events}
        return {name for name in named if GROUP_OF_MEMBERS.fullmatch(name)}

    def times(self) -> Iterator[int]:
        yield from (record.time_ns for record in self.collectives)
        yield from (span.end_ns for span in self.steps)


class Collections:
    """All sets of such files."""

    def __init__(self) -> None:
        self.all: list[Collection] = []

    def place(self, file: ProcessFile) -> Collection:
        """The set that a file belongs to: by its folder, else by a folder beside it."""
        times = list(file.times())
        first, last = min(times, default=None), max(times, default=None)
        mine = [each for each in self.all if each.source == file.source]
        may_be = [each for each in mine if is_one_run(each, file, first, last)]
        if first is None:
            # Without a time it is rather of the run that lacks this rank.
            may_be.sort(key=lambda each: file.rank in each.ranks)
        found = next((each for each in may_be if file.folder in each.folders), None)
        if found is None and file.rank is not None:
            found = next((each for each in may_be if is_beside(each, file, first, last)), None)
        if found is None:
            found = Collection(source=file.source, number=len(mine) + 1, folders=[file.folder])
            self.all.append(found)
        if file.folder not in found.folders:
            found.folders.append(file.folder)
        found.first_ns = least(found.first_ns, first)
        found.last_ns = most(found.last_ns, last)
        found.world_size = max(found.world_size, file.world_size)
        found.default_group = found.default_group or file.default_group
        if file.rank is not None:
            found.ranks.add(file.rank)
            if file.pid:
                found.pid_of.setdefault(file.rank, file.pid)
            if not file.is_cut:
                found.whole.add(file.rank)
            elif file.rank not in found.whole:
                found.cut.add(file.rank)
            found.cut -= found.whole
        return found


def is_one_run(
    collection: Collection, file: ProcessFile, first_ns: int | None, last_ns: int | None
) -> bool:
    """Whether a file may be of the same run: not far away in time, nor of another process."""
    if (
        file.rank is not None
        and file.pid
        and file.pid != collection.pid_of.get(file.rank, file.pid)
    ):
        return False
    if file.world_size and collection.world_size not in (0, file.world_size):
        return False
    if file.default_group and collection.default_group not in ("", file.default_group):
        return False
    apart = ZONES_APART_NS if is_missing_rank(collection, file) else RUNS_APART_NS
    return is_near(collection, first_ns, last_ns, apart)


def is_missing_rank(collection: Collection, file: ProcessFile) -> bool:
    """Whether a file says that it is of the same ranks and is of one that the set still lacks."""
    if file.rank is None or file.rank in collection.ranks:
        return False
    if file.world_size and file.world_size == collection.world_size:
        return True
    return any(f"{group}{collection.suffix}" in collection.sizes for group in file.groups())


def is_near(
    collection: Collection, first_ns: int | None, last_ns: int | None, apart_ns: int
) -> bool:
    """Whether times are no further apart; they are near where they are not known."""
    if first_ns is None or last_ns is None:
        return True
    if collection.first_ns is None or collection.last_ns is None:
        return True
    return first_ns <= collection.last_ns + apart_ns and last_ns >= collection.first_ns - apart_ns


def least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def is_beside(
    collection: Collection, file: ProcessFile, first_ns: int | None, last_ns: int | None
) -> bool:
    """Whether a file may be of the same job as files in another folder: each rank has its own."""
    if file.rank in collection.ranks:
        return False
    parent = Path(file.folder).parent
    if all(Path(folder).parent != parent for folder in collection.folders):
        return False
    return is_near(collection, first_ns, last_ns, APART_NS)


RANK_EVENTS = (DUMP, "profile")
"""Events that name the file's process: their label `rank` is the rank in the job."""


DEFAULT_GROUP = "pg:0:"
"""What PyTorch's group of all ranks is called; the hash of its members follows."""


def learn_process(process: ProcessFile, event: Event) -> None:
    """What a dump or a profile says of itself and of all ranks."""
    communicator = event.labels.get(COMMUNICATOR, "")
    if event.kind == PROCESS_GROUP and communicator.startswith(DEFAULT_GROUP):
        process.default_group = communicator
    if event.kind not in RANK_EVENTS:
        return
    process.is_cut = process.is_cut or CUT in event.attributes
    for key in ("pid", "world_size"):
        numbers = parse_ranks(event.attributes.get(key, ""))
        if numbers and len(numbers) == 1:
            setattr(process, key, numbers[0])


def learn_group(where: Collection, event: Event, rank: int | None) -> None:
    """Record a process group that a file names, even if none of its operations is in the file."""
    communicator = event.labels.get(COMMUNICATOR, "")
    ranks = parse_ranks(event.labels.get(RANK, ""))
    sizes = parse_ranks(event.attributes.get("size", ""))
    if event.kind != PROCESS_GROUP or not communicator or not ranks or not sizes:
        return
    where.sizes[communicator] = max(sizes[0], where.sizes.get(communicator, 0))
    if rank is not None:
        where.job_ranks[communicator, ranks[0]] = rank
    if communicator in where.descriptions:
        return
    where.descriptions[communicator] = event.attributes.get("description", "")
    members = parse_ranks(event.attributes.get(RANKS, "")) or []
    if len(members) == sizes[0]:
        where.job_ranks.update({(communicator, place): one for place, one in enumerate(members)})
