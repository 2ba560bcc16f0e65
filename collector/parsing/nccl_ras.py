"""Answers of NCCL's RAS to `STATUS`: as JSON (NCCL 2.28.7 and later), or as text. Pure.

JSON lists every rank. Text is written for people: it lists only ranks that differ from most, and
of a communicator in which all is well not even the hash. Both become a `RasAnswer`; of a text it
holds the ranks that were listed, and how many others have launched what.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from collector.contract.collective import Operation, communicator_id
from collector.contract.communicator import RANKS_MAX
from collector.contract.errors import ParseError
from collector.contract.ras import COUNT_MAX, Presence

COMMUNICATORS_MAX: Final = 20_000
"""Communicators of an answer: a job of 10,000 ranks with tensor, data and expert groups has some
five thousand."""
MEMBERS_MAX: Final = 200_000
"""Ranks of all communicators together: 120 MB as JSON, more than any reader takes."""
LINES_MAX: Final = 100_000
"""Lines of a text. It has some lines for each communicator in trouble."""
TEXT_CHARS_MAX: Final = 64
"""An address (IPv6 has 45), a version."""

OPERATIONS: Final = {
    "AllGather": Operation.ALL_GATHER,
    "AllReduce": Operation.ALL_REDUCE,
    "AlltoAll": Operation.ALL_TO_ALL,
    "Broadcast": Operation.BROADCAST,
    "Gather": Operation.GATHER,
    "Recv": Operation.RECV,
    "Reduce": Operation.REDUCE,
    "ReduceScatter": Operation.REDUCE_SCATTER,
    "Scatter": Operation.SCATTER,
    "Send": Operation.SEND,
    "SendRecv": Operation.SEND_RECV,
}
"""NCCL's names; others are added up as `other`."""

Launched = dict[Operation, int]


class Member(msgspec.Struct, kw_only=True):
    """A rank of a communicator; None and empty where the answer does not say it."""

    rank: int
    address: str = ""
    pid: int = 0
    cuda_device: int | None = None
    nvml_device: int | None = None
    presence: Presence = Presence.ANSWERS
    launched: Launched | None = None


class RasCommunicator(msgspec.Struct, kw_only=True):
    """A communicator in an answer."""

    name: str
    """Its hash, as all of our sources write it."""
    size: int
    members: list[Member]
    others: Launched = {}
    """What the ranks that are not listed have launched: only a text has such."""
    unlisted_odd: int = 0
    """Ranks that a text counts and does not list, and that differ from ``others``."""


class RasAnswer(msgspec.Struct, kw_only=True):
    """Everything that one process answered for its job."""

    version: str
    communicators: list[RasCommunicator]
    is_whole: bool
    """Whether it lists every rank of every communicator."""
    seconds: float = 0.0
    """How long RAS took to collect it."""
    timeouts: int = 0


def parse_answer(data: bytes) -> RasAnswer:
    """The answer in these bytes; ParseError if they are none, or only a part of one."""
    if data.lstrip()[:1] == b"{":
        return from_json(data)
    return from_text(data)


# JSON --------------------------------------------------------------------------------------------

Number = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Device = Annotated[int, msgspec.Meta(ge=-1, le=4096)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANKS_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]
Pid = Annotated[int, msgspec.Meta(ge=-1, le=1 << 31)]


class _Absence(msgspec.Struct, frozen=True):
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: Rank
    host: Text = ""
    pid: Pid = 0
    cuda_dev: Device = -1
    nvml_dev: Device = -1
    collective_counts: Annotated[dict[str, Number], msgspec.Meta(max_length=64)] = {}


class _MissingRank(msgspec.Struct):
    rank: Rank
    host: Text = ""
    pid: Pid = 0
    cuda_dev: Device = -1
    nvml_dev: Device = -1
    status: _Absence = _Absence()


class _Communicator(msgspec.Struct):
    hash: Annotated[str, msgspec.Meta(pattern=r"^0x[0-9a-f]{1,16}$")]
    size: Annotated[int, msgspec.Meta(ge=1, le=RANKS_MAX)]
    ranks: list[_Rank]
    missing_ranks: list[_MissingRank] = []


class _Footer(msgspec.Struct):
    collection_time_sec: float = 0.0
    timeouts_count: Number = 0


class _Answer(msgspec.Struct):
    communicators: Annotated[list[_Communicator], msgspec.Meta(max_length=COMMUNICATORS_MAX)]
    ras: _Footer
    """It is written last: an answer without it is cut off."""
    nccl_version: Text = ""


_DECODER: Final = msgspec.json.Decoder(_Answer)
_NO_COMMA: Final = re.compile(rb'("nvml_dev": -?[0-9]{1,9})(\s{1,64}"status":)')
"""NCCL 2.28.9 leaves out a comma in every rank that is missing, so that no such answer is JSON."""


def from_json(data: bytes) -> RasAnswer:
    try:
        found = _DECODER.decode(_NO_COMMA.sub(rb"\1,\2", data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError("", f"no status of RAS in JSON, or a part of one: {error}") from error
    members = sum(len(one.ranks) + len(one.missing_ranks) for one in found.communicators)
    if members > MEMBERS_MAX:
        raise ParseError("communicators", f"{members} ranks; MEMBERS_MAX is {MEMBERS_MAX}")
    return RasAnswer(
        version=printable(found.nccl_version),
        communicators=[communicator_of(one) for one in found.communicators],
        is_whole=True,
        seconds=found.ras.collection_time_sec,
        timeouts=found.ras.timeouts_count,
    )


def communicator_of(found: _Communicator) -> RasCommunicator:
    members = [
        member_of(one, Presence.ANSWERS, launched_of(one.collective_counts)) for one in found.ranks
    ]
    members += [member_of(one, presence_of(one.status), None) for one in found.missing_ranks]
    numbers = {one.rank for one in members}
    if len(numbers) < len(members) or any(rank >= found.size for rank in numbers):
        detail = f"its ranks are not those of a communicator of {found.size}"
        raise ParseError(f"communicator {found.hash}", detail)
    members.sort(key=lambda one: one.rank)
    return RasCommunicator(name=communicator_id(found.hash), size=found.size, members=members)


def member_of(found: _Rank | _MissingRank, presence: Presence, launched: Launched | None) -> Member:
    return Member(
        rank=found.rank,
        # `unknown` and -1 are what RAS writes for a process that it has no entry of.
        address=printable(found.host) if found.pid > 0 else "",
        pid=max(0, found.pid),
        cuda_device=found.cuda_dev if found.cuda_dev >= 0 else None,
        nvml_device=found.nvml_dev if found.nvml_dev >= 0 else None,
        presence=presence,
        launched=launched,
    )


def presence_of(status: _Absence) -> Presence:
    if status.considered_dead:
        return Presence.DEAD
    return Presence.UNRESPONSIVE if status.unresponsive else Presence.LEFT


def launched_of(counts: dict[str, int]) -> Launched:
    """Counts by our names of operations; those of 0 are left out."""
    found: Launched = {}
    for name, count in counts.items():
        if count:
            operation = OPERATIONS.get(name, Operation.OTHER)
            found[operation] = min(COUNT_MAX, found.get(operation, 0) + count)
    return found


def printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())[:TEXT_CHARS_MAX]


# Text --------------------------------------------------------------------------------------------

_VERSION = re.compile(r"NCCL version (\S{1,64}) compiled with CUDA ")
_GROUP = re.compile(
    r" *(\d{1,6}) +(\d{1,7}) +\d{1,7} +[\d-]{1,15} +(\d{1,7}) +\d{1,8} +[A-Z]+ +[A-Z,]+"
)
_TROUBLE = re.compile(r"#(\d{1,6})-\d{1,7} \(([0-9a-f]{16})\) (INCOMPLETE|ERROR|MISMATCH)")
_PLACE = (
    r" -- GPU (\d{1,4})(?: \(NVML (\d{1,4})\))? managed by process (\d{1,10}) on node (\S{1,64})"
)
_RANK = re.compile(
    r"  Rank (\d{1,7})(?: has launched up to operation (\d{1,19})"
    rf"|( has not launched any operations)|( has status [A-Z]+)|( reported [^-]*))?(?:{_PLACE}"
    r"| -- \[process information not found\])"
)
_SEVERAL = re.compile(
    r"  (\d{1,7}) ranks have (?:launched up to operation (\d{1,19})|not launched any operations)"
)
_KIND = re.compile(r"  Communicator ranks have different (\w{1,32}) operation counts")
_PROCESS = re.compile(r"  Process (\d{1,10}) on node (\S{1,64}) managing GPU")
_SECONDS = re.compile(r"Communicators\.\.\. \((\d{1,9}\.\d{3})s\)")
_TIMEOUTS = re.compile(r"  Encountered (\d{1,9}) communication timeout")
_END = "Warnings"


class _Counts(msgspec.Struct):
    """Of one kind of operation: which ranks have launched how many."""

    listed: dict[int, int] = {}
    """By rank."""
    several: dict[int, int] = {}
    """By count: how many ranks, listed or not."""


class _Trouble(msgspec.Struct):
    name: str
    size: int
    places: dict[int, Member] = {}
    absent: set[int] = set()
    counts: dict[Operation, _Counts] = {}


class _TextReader:
    """One text that is being read."""

    def __init__(self) -> None:
        self.version = ""
        self.seconds = 0.0
        self.timeouts = 0
        self.is_ended = False
        self.sizes: dict[int, int] = {}
        self.troubles: dict[str, _Trouble] = {}
        self.dead: set[tuple[str, int]] = set()
        self._section = ""
        self._kind = ""
        self._here: _Trouble | None = None
        self._counts: _Counts | None = None
        self._value: int | None = None

    def read(self, line: str) -> None:
        if match := _TROUBLE.fullmatch(line):
            self._open(int(match[1]), match[2], match[3])
        elif line and not line.startswith(" "):
            self._read_title(line)
        elif match := _GROUP.fullmatch(line):
            self.sizes[int(match[1])] = int(match[3])
        elif self._kind == "DEAD" and (match := _PROCESS.match(line)):
            self.dead.add((match[2], int(match[1])))
        elif match := _TIMEOUTS.match(line):
            self.timeouts = int(match[1])
        elif self._here is not None:
            self._read_detail(self._here, line)

    def _read_title(self, line: str) -> None:
        self._kind, self._here, self._counts = line, None, None
        if match := _VERSION.match(line):
            self.version = printable(match[1])
        elif match := _SECONDS.match(line):
            self.seconds = float(match[1])
        self.is_ended = self.is_ended or line == _END

    def _open(self, group: int, commhash: str, kind: str) -> None:
        size = self.sizes.get(group, 0)
        if not 0 < size <= RANKS_MAX or len(self.troubles) >= COMMUNICATORS_MAX:
            raise ParseError(f"communicator {commhash}", f"no size of its group {group}")
        name = communicator_id(f"0x{commhash.lstrip('0') or '0'}")
        made = _Trouble(name, size, places={}, absent=set(), counts={})
        self._here = self.troubles.setdefault(name, made)
        self._kind, self._counts, self._value = kind, None, None

    def _read_detail(self, here: _Trouble, line: str) -> None:
        if match := _KIND.fullmatch(line):
            operation = OPERATIONS.get(match[1], Operation.OTHER)
            self._counts = here.counts.setdefault(operation, _Counts(listed={}, several={}))
            self._value = None
        elif match := _SEVERAL.fullmatch(line):
            self._value = int(match[2] or 0)
            if self._counts is not None:
                self._counts.several[self._value] = int(match[1])
        elif match := _RANK.fullmatch(line):
            self._read_rank(here, match)

    def _read_rank(self, here: _Trouble, match: re.Match[str]) -> None:
        rank = int(match[1])
        if rank >= here.size:
            raise ParseError(f"rank {rank}", f"of a communicator of {here.size}")
        cuda, nvml, pid, address = match[6], match[7], match[8], match[9]
        here.places[rank] = Member(
            rank=rank,
            address=printable(address or ""),
            pid=int(pid or 0),
            cuda_device=None if cuda is None else int(cuda),
            nvml_device=None if cuda is None else int(nvml or cuda),
        )
        if self._kind == "INCOMPLETE":
            here.absent.add(rank)
        elif self._counts is not None and not match[4] and not match[5]:
            is_one = match[2] is not None or match[3] is not None
            value = int(match[2] or 0) if is_one else self._value
            if value is not None:
                self._counts.listed[rank] = value
                if is_one:
                    self._counts.several[value] = 1


def from_text(data: bytes) -> RasAnswer:
    reader = _TextReader()
    lines = data.decode("utf-8", "replace").split("\n")
    if len(lines) > LINES_MAX:
        raise ParseError("", f"{len(lines)} lines; LINES_MAX is {LINES_MAX}")
    for line in lines:
        reader.read(line.rstrip("\r"))
    if not reader.version or not reader.is_ended:
        raise ParseError("", "no status of RAS, or one that is cut off before its warnings")
    return RasAnswer(
        version=reader.version,
        communicators=[trouble_of(one, reader.dead) for one in reader.troubles.values()],
        is_whole=False,
        seconds=reader.seconds,
        timeouts=reader.timeouts,
    )


def trouble_of(found: _Trouble, dead: set[tuple[str, int]]) -> RasCommunicator:
    """What a text says of a communicator in trouble."""
    others: Launched = {}
    unlisted = 0
    for operation, counts in found.counts.items():
        most = max(counts.several, key=lambda value: (counts.several[value], value), default=0)
        if most:
            others[operation] = most
        listed = sum(value != most for value in counts.listed.values())
        differ = sum(many for value, many in counts.several.items() if value != most)
        unlisted = max(unlisted, differ - listed)
    members = []
    for rank, place in sorted(found.places.items()):
        if rank in found.absent:
            is_dead = (place.address, place.pid) in dead
            place.presence = Presence.DEAD if is_dead else Presence.UNRESPONSIVE
        else:
            own = {
                one: each.listed.get(rank, others.get(one, 0)) for one, each in found.counts.items()
            }
            place.launched = {one: count for one, count in own.items() if count}
        members.append(place)
    return RasCommunicator(
        name=found.name, size=found.size, members=members, others=others, unlisted_odd=unlisted
    )
