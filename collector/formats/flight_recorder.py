"""Dumps of PyTorch's Flight Recorder: the last operations of one rank, and how far each came.

A dump is a pickle of plain containers (versions 2.4 to 2.10 were seen), or the same as JSON, one
file for each rank; the rank stands at the end of the file's name. Versions differ by keys, so keys
are looked for and the version is passed on. The stacks of each operation are not read.

Facts that matter below: `time_discovered_*` are when a watchdog noticed, always late; a time that
is not known is null in a pickle and 0 in JSON; `pg_status` is keyed by a number that only this
process knows, and only its operations show the group of that number; an operation's ranks (`send
0->3`) are ranks within its group. Sends and receives of one batch (`batch_isend_irecv`) stay
"scheduled" for ever: a last entry, `nccl:coalesced`, has the state and the times of all of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import BinaryIO, ClassVar, NamedTuple

import msgspec

from collector.contract import communicator as words
from collector.contract.collective import Collective, Operation, State, Timing
from collector.contract.errors import ParseError
from collector.contract.model import Event
from collector.contract.records import NUMBER_MAX
from collector.formats import Origin, Record
from collector.parsing.plain_pickle import INSTRUCTIONS_MAX, PROTOCOLS, load_beginning
from collector.parsing.torch_calls import find_batches
from collector.parsing.torch_words import OF_OUTPUT, element_bytes, find_operation

DUMP_BYTES_MAX = 64 << 20
"""A dump. The default of 2,000 operations has 300 kB, and 2 MB with their stacks."""
ENTRIES_MAX = 200_000
"""Operations of a dump: a hundred times the recorder's default."""
GROUPS_MAX = 10_000
"""Process groups of one rank. Jobs with five kinds of parallelism have some twenty."""
TENSORS_MAX = 4096
"""Tensors of one operation: a coalesced all-gather has a few hundred."""
DIMENSIONS_MAX = 64
"""PyTorch's own limit."""
ERRORS_MAX = 20
"""Operations that are not understood and named one by one; the others are one sum."""
PEERS_ASKED = 100
"""Operations that are searched for the dump's rank, where neither name nor groups show it."""
RANKS_SHOWN = 1024
"""Ranks of a group that its event lists; the others are in its hash and its size."""
STATUS_TEXT_MAX = 8 << 10
"""Characters of the status of all groups in the dump's event, half of what it may have: some
hundred and fifty groups."""
NAME_CHARS_MAX = 128
MEMBERS_MAX = 10_000_000
"""Members that are read of all groups together: a hundred groups of 100,000 ranks."""


NAME = "flight_recorder"
DUMP_NAME = re.compile(r"(?:rank|dump)_[0-9]")
LAST_NUMBER = re.compile(r"([0-9]{1,7})(?:\.json|\.pickle|\.pkl)?$")

_PEERS = re.compile(r"(?:send|recv) ([0-9]{1,7})(?:->|<-)([0-9]{1,7})")

Dump = Mapping[str, object]


class Group(NamedTuple):
    """A process group of the dumped rank."""

    communicator: str
    name: str
    description: str
    members: list[int]
    """Its ranks in the job, in order: the place of one is its rank in the group."""
    rank: int
    """The dumped rank's place."""


class FlightRecorder:
    """The format."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "PyTorch Flight Recorder dump"

    def recognises(self, head: bytes, origin: Origin) -> bool:
        """A pickle, or JSON, with a recorder's keys; or a pickle with a recorder's file name."""
        if head[:1] == b"\x80":
            is_ours = b"pg_config" in head or b"collective_seq_id" in head
            return len(head) > 1 and head[1] in PROTOCOLS and (is_ours or is_dump_name(origin.name))
        if head.lstrip()[:1] != b"{" or b'"traceEvents"' in head or b'"schemaVersion"' in head:
            return False
        return b'"collective_seq_id"' in head or (b'"pg_config"' in head and b'"pg_status"' in head)

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """The dump as an event, its groups as events, its operations as collectives."""
        dump, cut = load_dump(stream)
        yield from DumpReader(dump, origin, is_cut=cut is not None).read()
        if cut is not None:
            yield cut

    def parse_whole(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """The same of a dump that is not cut off; else a ParseError, and no record."""
        dump, cut = load_dump(stream)
        if cut is not None:
            raise cut
        yield from DumpReader(dump, origin).read()


FORMAT = FlightRecorder()


def is_dump_name(name: str) -> bool:
    """Whether a recorder calls its files like this: `nccl_trace_rank_3`, `_dump_3`."""
    return DUMP_NAME.search(name) is not None


def load_dump(stream: BinaryIO) -> tuple[Dump, ParseError | None]:
    """The dump, and where it is cut off, if it is: then without its last operations."""
    data = stream.read(DUMP_BYTES_MAX + 1)
    if len(data) > DUMP_BYTES_MAX:
        raise ParseError("", f"a dump of over DUMP_BYTES_MAX = {DUMP_BYTES_MAX} bytes")
    dump, cut = load_beginning(data) if data[:1] == b"\x80" else load_json(data)
    if not isinstance(dump, dict):
        raise ParseError("", f"a dump is a dictionary; this is of type {type(dump).__name__}")
    return dump, cut


def load_json(data: bytes) -> tuple[object, ParseError | None]:
    """The value in a JSON text, with as many parts as a pickle may have; its beginning if cut."""
    if sum(map(data.count, (b",", b"[", b"{"))) > INSTRUCTIONS_MAX:
        raise ParseError("", f"JSON of over INSTRUCTIONS_MAX = {INSTRUCTIONS_MAX} values")
    try:
        return msgspec.json.decode(data), None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        beginning = whole_beginning(data)
        broken = ParseError("", f"neither a pickle nor JSON: {error}")
        if not beginning:
            raise broken from error
    try:
        found = msgspec.json.decode(beginning)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise broken from None
    return found, ParseError(f"byte {len(data)}", "the JSON is cut off")


_JSON_PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]')
ITEM_DEPTH = 2
"""Open brackets around an operation or a group: those of the dump and of its list or table."""


def whole_beginning(data: bytes) -> bytes:
    """The text up to its last whole operation or group, with its brackets closed; empty: none."""
    opened: list[bytes] = []
    end, closing = 0, b""
    for part in _JSON_PARTS.finditer(data):
        word = part[0]
        if word in (b"{", b"["):
            opened.append(b"}" if word == b"{" else b"]")
            if len(opened) > DIMENSIONS_MAX:
                return b""
        elif word in (b"}", b"]"):
            if not opened or opened.pop() != word:
                return b""
            if len(opened) == ITEM_DEPTH and word == b"}":
                end, closing = part.end(), b"".join(reversed(opened))
    return data[:end] + closing if opened else b""


class DumpReader:
    """One dump that is being read."""

    def __init__(self, dump: Dump, origin: Origin, *, is_cut: bool = False) -> None:
        self._dump = dump
        self._is_cut = is_cut
        self._origin = origin
        self._configured = table(dump, "pg_config")
        self._members: dict[str, list[int]] = {}
        self._members_seen = 0
        self._rank = -1
        self._groups: dict[str, Group | ParseError] = {}
        self._group_numbers: dict[str, int] = {}
        """By a group's name the process' own number of it, from its operations."""
        self._latest_ns = 0
        self._states: Counter[str] = Counter()
        self._error_count = 0

    def read(self) -> Iterator[Record | ParseError]:
        entries = self._dump.get("entries", [])
        if not isinstance(entries, list | tuple):
            raise ParseError("entries", f"a list was expected, not {type(entries).__name__}")
        self._rank = self._find_rank(entries[:ENTRIES_MAX])
        batch_of, batches = find_batches(entries[:ENTRIES_MAX])
        for number, entry in enumerate(entries[:ENTRIES_MAX]):
            if number in batches:
                continue  # its sends and receives speak for it
            try:
                record = self._read_entry(entry, batch_of.get(number))
            except ParseError as error:
                yield from self._count_error(f"entry {number}", error)
                continue
            self._states[record.state] += 1
            self._latest_ns = max(self._latest_ns, record.time_ns)
            yield record
        if len(entries) > ENTRIES_MAX:
            left = len(entries) - ENTRIES_MAX
            yield ParseError("entries", f"{left} beyond ENTRIES_MAX = {ENTRIES_MAX} left out")
        yield self._describe_dump(len(entries))
        yield from self._describe_groups()
        if self._error_count > ERRORS_MAX:
            yield ParseError("", f"{self._error_count - ERRORS_MAX} more parts not understood")

    def _count_error(self, where: str, error: ParseError) -> Iterator[ParseError]:
        self._error_count += 1
        if self._error_count <= ERRORS_MAX:
            inner = f"{error.where}: " if error.where else ""
            yield ParseError(where, f"{inner}{error.detail}")

    # The rank ------------------------------------------------------------------------------------

    def _find_rank(self, entries: list[object] | tuple[object, ...]) -> int:
        """The rank in the job: from the file's name, else the only one that is in all groups."""
        if match := LAST_NUMBER.search(self._origin.name):
            return int(match[1])
        common: set[int] | None = None
        for name in list(self._configured)[:GROUPS_MAX]:
            try:
                members = self._members_of(name)
            except ParseError:
                continue
            common = set(members) if common is None else common.intersection(members)
        if common is not None and len(common) == 1:
            return common.pop()
        for entry in entries[:PEERS_ASKED]:
            if isinstance(entry, dict) and (rank := self._rank_of_peers(entry)) is not None:
                return rank
        raise ParseError("", f"the name {self._origin.name[:80]!r} does not end in a rank")

    def _rank_of_peers(self, entry: Dump) -> int | None:
        """The rank in the job that sent or received here."""
        try:
            match = _PEERS.search(text(entry, "profiling_name"))
            members = self._members_of(group_name(entry))
        except ParseError:
            return None
        return members[int(match[1])] if match and int(match[1]) < len(members) else None

    def _members_of(self, name: str) -> list[int]:
        config = self._configured.get(name)
        if not isinstance(config, dict):
            raise ParseError("pg_config", f"has no group {name[:80]!r}")
        ranks = config.get("ranks")
        if not isinstance(ranks, str):
            raise ParseError("pg_config", f"group {name[:80]!r} has no list of ranks")
        # The same text may stand for many groups; it is read once.
        if ranks not in self._members:
            inner = ranks.strip().removeprefix("[").removesuffix("]").replace(" ", "")
            members = words.parse_ranks(inner)
            if members is None:
                raise ParseError("pg_config", f"ranks {ranks[:80]!r} of group {name[:80]!r}")
            self._members[ranks] = sorted(set(members))
        self._members_seen += len(self._members[ranks])
        if self._members_seen > MEMBERS_MAX:
            raise ParseError("pg_config", f"over MEMBERS_MAX = {MEMBERS_MAX} members of groups")
        return self._members[ranks]

    def _group_of(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name] = self._find_group(name)
        group = self._groups[name]
        if isinstance(group, ParseError):
            raise ParseError(group.where, group.detail)
        return group

    def _find_group(self, name: str) -> Group | ParseError:
        if len(self._groups) >= GROUPS_MAX:
            return ParseError("process_group", f"over GROUPS_MAX = {GROUPS_MAX} groups")
        try:
            members = self._members_of(name)
        except ParseError as error:
            return error
        if self._rank not in members:
            return ParseError("pg_config", f"rank {self._rank} is not in its group {name[:80]!r}")
        config = table(self._configured, name)
        description = config.get("desc")
        return Group(
            communicator=words.group_communicator(name, members),
            name=name,
            description=description[:NAME_CHARS_MAX] if isinstance(description, str) else "",
            members=members,
            rank=members.index(self._rank),
        )

    # Operations ------------------------------------------------------------------------------

    def _read_entry(self, entry: object, batch: Dump | None) -> Collective:
        if not isinstance(entry, dict):
            raise ParseError("", f"a dictionary was expected, not {type(entry).__name__}")
        lasting = entry if batch is None else batch
        group = self._group_of(group_name(entry))
        if (number := entry.get("pg_id")) is not None:
            self._group_numbers.setdefault(group.name, check_number("pg_id", number))
        profiling_name = text(entry, "profiling_name")
        is_p2p = entry.get("is_p2p") is True
        operation = find_operation(profiling_name)
        if operation is Operation.OTHER and is_p2p:
            operation = Operation.SEND_RECV
        state = find_state(lasting)
        created_ns = find_time(entry, "time_created_ns")
        if created_ns is None:
            raise ParseError("time_created_ns", "is missing")
        entry_ns = find_time(lasting, "time_discovered_started_ns")
        exit_ns = find_time(lasting, "time_discovered_completed_ns")
        if state is not State.COMPLETED:
            exit_ns = None
        if entry_ns is not None and exit_ns is not None and entry_ns > exit_ns:
            entry_ns = None  # two looks of the watchdog, the wrong way round: neither is a start
        return Collective(
            communicator=group.communicator,
            operation=operation,
            sequence=number_of(entry, "p2p_seq_id" if is_p2p else "collective_seq_id"),
            rank=group.rank,
            ranks=len(group.members),
            source=NAME,
            time_ns=exit_ns or created_ns,
            entry_ns=entry_ns,
            exit_ns=exit_ns,
            enqueue_ns=created_ns,
            duration_ns=find_duration(lasting),
            size_bytes=find_size(entry, operation),
            timing=Timing.DISCOVERED,
            state=state,
            peer=find_peer(profiling_name, group, self._rank),
        )

    # Sums ------------------------------------------------------------------------------------

    def _describe_dump(self, entries: int) -> Event:
        version = self._dump.get("comm_lib_version", self._dump.get("nccl_version"))
        pending = sum(self._states.values()) - self._states[State.COMPLETED]
        attributes = {
            "version": short_text(self._dump.get("version")),
            words.NCCL_VERSION: short_text(version),
            "entries": str(entries),
            "completed": str(self._states[State.COMPLETED]),
            "started": str(self._states[State.STARTED]),
            "scheduled": str(self._states[State.SCHEDULED]),
            "pending": str(pending),
            "status": self._status_text(),
            words.CUT: "1" if self._is_cut else "",
        }
        return Event(
            kind=words.DUMP,
            time_ns=self._time_ns(),
            labels={words.RANK: str(self._rank)},
            message=f"Flight Recorder dump of rank {self._rank}: {pending} operations pending.",
            attributes={name: value for name, value in attributes.items() if value},
        )

    def _describe_groups(self) -> Iterator[Event | ParseError]:
        for name in list(self._configured)[:GROUPS_MAX]:
            try:
                group = self._group_of(name)
            except ParseError as error:
                yield from self._count_error(f"group {name[:NAME_CHARS_MAX]}", error)
                continue
            number = self._group_numbers.get(name)
            attributes = {
                words.NAME: name[:NAME_CHARS_MAX],
                "description": group.description,
                words.RANKS: ",".join(map(str, group.members[:RANKS_SHOWN])),
                "size": str(len(group.members)),
            }
            if number is not None:
                attributes |= {"pg_id": str(number), **self._status_of(str(number))}
            yield Event(
                kind=words.PROCESS_GROUP,
                time_ns=self._time_ns(),
                labels={words.COMMUNICATOR: group.communicator, words.RANK: str(group.rank)},
                attributes={key: value for key, value in attributes.items() if value},
            )

    def _time_ns(self) -> int:
        return self._origin.time_ns or self._latest_ns

    def _status_of(self, number: str) -> dict[str, str]:
        """The last sequence numbers of one group; strings in JSON, numbers in a pickle."""
        status = table(self._dump, "pg_status").get(number)
        if not isinstance(status, dict):
            return {}
        numbers = {what: short_text(status.get(f"{what}_collective")) for what in STATUS}
        return {what: value for what, value in numbers.items() if value}

    def _status_text(self) -> str:
        """The status of all groups by number, as JSON; empty where there is none, or too much."""
        numbers = list(table(self._dump, "pg_status"))[:GROUPS_MAX]
        status = {number[:NAME_CHARS_MAX]: self._status_of(number) for number in numbers}
        text_json = msgspec.json.encode(status).decode()
        return text_json if status and len(text_json) <= STATUS_TEXT_MAX else ""


STATUS = ("last_enqueued", "last_started", "last_completed")


# Parts of an operation ---------------------------------------------------------------------------


def table(values: Mapping[str, object], key: str) -> dict[str, object]:
    """The dictionary under a key; empty if there is none."""
    value = values.get(key)
    return value if isinstance(value, dict) else {}


def text(entry: Dump, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise ParseError(key, f"text was expected, not {type(value).__name__}")
    return value


def short_text(value: object) -> str:
    """A text or whole number for an attribute; empty for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= NUMBER_MAX:
        return str(value)
    return value[:NAME_CHARS_MAX] if isinstance(value, str) else ""


def check_number(key: str, value: object) -> int:
    """The value, if it is a whole number that a record can hold."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ParseError(key, f"a whole number was expected, not {type(value).__name__}")
    if not 0 <= value <= NUMBER_MAX:
        raise ParseError(key, "is negative, or over 63 bits")
    return value


def number_of(entry: Dump, key: str) -> int:
    return check_number(key, entry.get(key))


def group_name(entry: Dump) -> str:
    pair = entry.get("process_group")
    if not isinstance(pair, list | tuple) or not pair or not isinstance(pair[0], str):
        raise ParseError("process_group", "a pair of name and description was expected")
    return pair[0]


def find_state(entry: Dump) -> State:
    state = text(entry, "state")
    try:
        return State(state)
    except ValueError as error:
        raise ParseError("state", f"{state[:40]!r} is none of {', '.join(State)}") from error


def find_time(entry: Dump, key: str) -> int | None:
    """A time; None where it is null, 0 or missing."""
    value = entry.get(key)
    return check_number(key, value) or None if value is not None else None


def find_duration(entry: Dump) -> int | None:
    """The duration in nanoseconds, if the recorder was set to measure it."""
    value = entry.get("duration_ms")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ParseError("duration_ms", f"a number was expected, not {type(value).__name__}")
    if not 0 <= value < NUMBER_MAX / 1e6 or not math.isfinite(value):
        return None
    return round(value * 1e6)


def find_size(entry: Dump, operation: Operation) -> int | None:
    """The message's bytes as NCCL counts them; None if shapes or types are not there."""
    side = "output" if operation in OF_OUTPUT else "input"
    shapes, types = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    if not isinstance(shapes, list | tuple) or not isinstance(types, list | tuple):
        return None
    if not shapes or len(shapes) > TENSORS_MAX or len(types) != len(shapes):
        return None
    total = 0
    for shape, kind in zip(shapes, types, strict=True):
        elements = count_elements(shape)
        width = element_bytes(kind) if isinstance(kind, str) else None
        if elements is None or width is None:
            return None
        total += elements * width
    return total if total <= NUMBER_MAX else None


def count_elements(shape: object) -> int | None:
    if not isinstance(shape, list | tuple) or len(shape) > DIMENSIONS_MAX:
        return None
    if not all(type(size) is int and 0 <= size <= NUMBER_MAX for size in shape):
        return None
    return math.prod(shape)


def find_peer(profiling_name: str, group: Group, rank: int) -> int | None:
    """The other side of a send or receive, as a rank within the group.

    The name holds ranks of the group. If it held ranks of the job, the dump's own rank shows it.
    """
    match = _PEERS.search(profiling_name)
    if not match:
        return None
    own, peer = int(match[1]), int(match[2])
    if own == group.rank and peer < len(group.members):
        return peer
    return group.members.index(peer) if own == rank and peer in group.members else None
