"""NCCL Inspector's logs (and RCCL's): a JSON object a line, one file per process.

All output versions from 4.0 to 4.4 are read by the keys that a line has: "v4.0" was printed by
releases with and without P2P and names. From 4.3 on header and metadata stand once, in a
`dump_stats` marker, for a stated number of lines that follow it.

What the numbers mean, as the plugin's source has it: `_ts` are microseconds of the host's clock,
taken by the CPU when it saw the GPU start or end a channel's kernel, good to tens of microseconds;
`exec_time` is the GPU's own clock; `coll_stop_ts` is the end of *enqueueing* and is not used.
`coll_sn` counts per communicator and operation and is the same on all ranks; `p2p_sn` counts what
one rank saw and joins with nothing: the ends of messages are found by order and time
(`alerts.window.messages`). What proxies did (`proxy_trace`) is added up by peer, and gives no
records. A size over SIZE_MAX is a count of a type whose size the
plugin does not know (NVIDIA's table lacks uint8): the record stays, without its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, BinaryIO, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from collector.contract import communicator as words
from collector.contract.collective import (
    Collective,
    Operation,
    Timing,
    communicator_id,
    reduces_in_network,
)
from collector.contract.errors import ParseError
from collector.contract.identity import printable
from collector.contract.model import Event
from collector.formats import Origin, Record
from collector.parsing.lines import read_pieces, too_long
from collector.parsing.nccl_proxy import PHASES, ProxyTotals, ProxyTrace

NAME = "nccl_inspector"

TIME_US_MAX = (1 << 63) // 1000 - 1
"""The last microsecond that a 64-bit number of nanoseconds can hold: in the year 2262."""
DURATION_US_MAX = 10**12
"""Eleven days: no operation takes longer, and a start plus this is still a time."""
SIZE_MAX = 1 << 63
"""Beyond this a size is minus one times a count, written as a size_t."""
COUNT_MAX = (1 << 63) - 1
RANK_MAX = (1 << 31) - 1
TEXT_MAX = 256
"""Characters of a name. Host names have 255 at most, communicator names a few dozen."""
KERNELS_MAX = 1024
"""Kernel events of one operation. NCCL has 64 channels at most (MAXCHANNELS)."""
SPEAKERS_MAX = 4096
"""Communicators and ranks remembered at once; a process has a few dozen. Beyond, they are forgotten
and introduced again."""
PEERS_MAX = 4096
"""Peers of proxies in one block: 64 communicators with 32 neighbours each way."""
USUAL_ALGORITHMS = frozenset({"", "RING", "TREE", "Ring", "Tree"})
"""Between ranks alone: no further look at these, which nearly every line has."""
TEXTS_KEPT = 256
"""Names of algorithms and protocols that are remembered; NCCL has ten."""
EXCERPT_BYTES = 80
"""How much of a line that is not understood is shown."""

OPERATIONS = {
    "AllReduce": Operation.ALL_REDUCE,
    "AllGather": Operation.ALL_GATHER,
    "ReduceScatter": Operation.REDUCE_SCATTER,
    "All2All": Operation.ALL_TO_ALL,
    "AlltoAll": Operation.ALL_TO_ALL,
    "Broadcast": Operation.BROADCAST,
    "Reduce": Operation.REDUCE,
    "Gather": Operation.GATHER,
    "Scatter": Operation.SCATTER,
    "Send": Operation.SEND,
    "Recv": Operation.RECV,
    "SendRecv": Operation.SEND_RECV,
}
"""AllGatherV is not here on purpose: it has sequence numbers of its own, which must not be taken
for an all-gather's."""

UNKNOWN = "unknown"

MEASURED = "kernel_gpu"
"""The usual source of a duration: the GPU's clock."""

NO_HEADER = (
    "a record without a header, and no dump_stats marker covers it; "
    "such lines are passed over up to the next marker"
)
NO_RECORD = "holds none of coll_perf, p2p_perf, dump_stats and proxy_trace"

_RECORDS = re.compile(
    rb'^[ \t]*\{[^\n]*"(?:coll_perf|p2p_perf|dump_stats|proxy_trace)"[ \t]*:[ \t]*\{', re.MULTILINE
)
# Looking a member up in its enum takes 0.2 microseconds in Python 3.11: a twentieth of a line.
_OTHER = Operation.OTHER
_KERNEL, _CPU, _UNKNOWN = Timing.KERNEL, Timing.CPU, Timing.UNKNOWN
_NS = 1000


# What a line holds -------------------------------------------------------------------------------
#
# Only what is used is declared, in the order in which it is written: msgspec passes over other keys
# without making objects of them, and looks for a key first behind the last one.

_Time = Annotated[int, Meta(ge=0, le=TIME_US_MAX)]
_Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
_Rank = Annotated[int, Meta(ge=0, le=RANK_MAX)]
_Text = Annotated[str, Meta(max_length=TEXT_MAX)]
_Size = Annotated[int, Meta(ge=0)] | None
_Number = Annotated[int, Meta(ge=-1, le=DURATION_US_MAX)] | float | str
"""A number that may be written as `1.5`, or as the text "nan"."""


class Header(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The writer of a line: one rank of one communicator."""

    id: Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
    comm_name: _Text = ""
    rank: _Rank
    n_ranks: _Rank = 0
    nnodes: _Rank = 0


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """The place and time of writing."""

    dump_timestamp_us: _Time = 0
    hostname: _Text = ""
    pid: _Rank = 0


class _Kernel(msgspec.Struct, gc=False):
    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0


class _Trace(msgspec.Struct, gc=False):
    coll_start_ts: _Time = 0
    p2p_start_ts: _Time = 0
    kernel_events: Annotated[list[_Kernel], Meta(max_length=KERNELS_MAX)] = []


class _Coll(msgspec.Struct, gc=False):
    coll: _Text
    coll_sn: _Count
    coll_msg_size_bytes: _Size = None
    coll_exec_time_us: _Number = ""
    coll_timing_source: _Text = ""
    coll_algo: _Text = ""
    coll_proto: _Text = ""
    event_trace_ts: _Trace | None = None


class _P2p(msgspec.Struct, gc=False):
    p2p: _Text
    p2p_sn: _Count
    p2p_peer: _Rank | None = None
    p2p_msg_size_bytes: _Size = None
    p2p_exec_time_us: _Number = ""
    p2p_timing_source: _Text = ""
    event_trace_ts: _Trace | None = None


class _Stats(msgspec.Struct, gc=False):
    coll_records: _Count = 0
    p2p_records: _Count = 0
    proxy_records: _Count = 0
    coll_dropped_total: _Count | None = None
    p2p_dropped_total: _Count | None = None


class _Line(msgspec.Struct, gc=False):
    header: Header | None = None
    metadata: Metadata | None = None
    coll_perf: _Coll | None = None
    p2p_perf: _P2p | None = None
    dump_stats: _Stats | None = None
    proxy_trace: ProxyTrace | None = None


_NOWHERE = Metadata()
_Key = tuple[str, int, int, str, int]

_DECODER = msgspec.json.Decoder(_Line)


class Speaker(msgspec.Struct, frozen=True, gc=False):
    """A rank of a communicator, by our names."""

    communicator: str
    rank: int
    ranks: int
    host: str
    pid: int


class Dropped(NamedTuple):
    """The losses that a rank's Inspector reports for one communicator since it began."""

    speaker: Speaker
    collectives: int | None
    p2p: int | None


class Peer(NamedTuple):
    """Whom a rank's network proxy sends to or receives from."""

    speaker: Speaker
    peer: int
    direction: str


class _Shared(msgspec.Struct):
    """The header and metadata of a `dump_stats` marker for the lines behind it."""

    header: Header
    metadata: Metadata
    lines_left: _Count


# Reading -----------------------------------------------------------------------------------------


class Reader:
    """One file, block by block. It keeps the last marker and the known writers, nothing more."""

    def __init__(self, changed_ns: int = 0) -> None:
        self.number = 1
        """That of the next line. Lines are counted by what they hold, not by their ends: counting
        newlines takes a tenth of the time. Blank lines, which the plugin never writes, shift it."""
        self.changed_ns = changed_ns
        """When the file last changed: for lines without a time of writing."""
        self.proxies: dict[Peer, ProxyTotals] = {}
        """What proxies did in the last block."""
        self.proxies_left_out = 0
        """Its records of peers beyond PEERS_MAX."""
        self.dropped: list[Dropped] = []
        """Losses in the markers of the last block."""
        self._shared: _Shared | None = None
        self._is_lost = False
        """Whether the error about lines without a header was yielded."""
        self._speakers: dict[_Key, Speaker] = {}
        self._in_network: set[tuple[str, int]] = set()
        """Communicators and ranks of which an event has reported that switches add up."""
        self._current: dict[Header, Speaker] = {}
        """The writer of the last line with this header: all but the first line of a process find
        their writer here, in a third of the time."""

    def read(self, block: bytes) -> list[Record | ParseError]:
        found: list[Record | ParseError] = []
        self.dropped = []
        self.proxies, self.proxies_left_out = {}, 0
        try:
            lines: list[_Line] = _DECODER.decode_lines(block)
        except (ValueError, RecursionError):
            # Something is odd: parse every line by itself.
            self._read_one_by_one(block, found)
        else:
            self._read_lines(lines, found)
        return found

    def _read_one_by_one(self, block: bytes, found: list[Record | ParseError]) -> None:
        for text in block.removesuffix(b"\n").split(b"\n"):
            if not text or text.isspace():
                self.number += 1
                continue
            try:
                line = _DECODER.decode(text)
            except (ValueError, RecursionError) as error:
                where = f"line {self.number}"
                found.append(ParseError(where, f"{error}; it begins {text[:EXCERPT_BYTES]!r}"))
                self.pass_over()
            else:
                self._read_lines([line], found)

    def pass_over(self) -> None:
        """Note that a line was not read: it may have been one that the marker covers."""
        self.number += 1
        if self._shared is not None and self._shared.lines_left:
            self._shared.lines_left -= 1

    def save(self) -> dict[str, Any]:
        """What another Reader needs to go on here; empty where every line has its header."""
        if self._shared is None or not self._shared.lines_left:
            return {}
        saved: dict[str, Any] = msgspec.to_builtins(self._shared)
        return saved

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from what `save` gave; anything else is as good as no marker."""
        try:
            self._shared = msgspec.convert(saved, _Shared)
        except msgspec.ValidationError:
            self._shared = None

    def _read_lines(self, lines: list[_Line], found: list[Record | ParseError]) -> None:
        """Append what the lines hold; the usual kind of line is dealt with here."""
        append, changed_ns, current = found.append, self.changed_ns, self._current
        for index, line in enumerate(lines):
            header, metadata, perf = line.header, line.metadata, line.coll_perf
            if header is not None and metadata is not None and perf is not None:
                speaker = current.get(header)
                # A rank of a communicator is one process, so that a look at one of both suffices.
                if speaker is None or speaker.pid != metadata.pid:
                    speaker = self._find_speaker(header, metadata, found)
                append(make_collective(speaker, perf, metadata, changed_ns))
                if perf.coll_algo not in USUAL_ALGORITHMS:
                    self._note_algorithm(speaker, header, perf.coll_algo, found)
            else:
                self._read_unusual(line, self.number + index, found)
        self.number += len(lines)

    def _read_unusual(self, line: _Line, number: int, found: list[Record | ParseError]) -> None:
        header, metadata = line.header, line.metadata or _NOWHERE
        if header is None:
            shared = self._shared
            if shared is None or not shared.lines_left:
                if not self._is_lost:
                    self._is_lost = True
                    found.append(ParseError(f"line {number}", NO_HEADER))
                return
            shared.lines_left -= 1
            header, metadata = shared.header, line.metadata or shared.metadata
        if line.proxy_trace is not None:
            self._add_proxy(self._find_speaker(header, metadata, found), line.proxy_trace)
            return
        if line.coll_perf is None and line.p2p_perf is None and line.dump_stats is None:
            found.append(ParseError(f"line {number}", NO_RECORD))
            return
        speaker = self._find_speaker(header, metadata, found)
        if line.coll_perf is not None:
            found.append(make_collective(speaker, line.coll_perf, metadata, self.changed_ns))
            self._note_algorithm(speaker, header, line.coll_perf.coll_algo, found)
        if line.p2p_perf is not None:
            found.append(make_p2p(speaker, line.p2p_perf, metadata, self.changed_ns))
        if line.dump_stats is not None:
            self._read_marker(header, metadata, line.dump_stats, speaker)

    def _add_proxy(self, speaker: Speaker, trace: ProxyTrace) -> None:
        if trace.peer < 0 or trace.direction not in PHASES:
            return
        key = Peer(speaker, trace.peer, trace.direction)
        totals = self.proxies.get(key)
        if totals is None:
            if len(self.proxies) >= PEERS_MAX:
                self.proxies_left_out += 1
                return
            totals = self.proxies[key] = ProxyTotals()
        totals.add(trace)

    def _note_algorithm(
        self, speaker: Speaker, header: Header, name: str, found: list[Record | ParseError]
    ) -> None:
        """An event at a rank's first operation that switches of the network add up for it."""
        key = (speaker.communicator, speaker.rank)
        if key in self._in_network or not reduces_in_network(name, header.nnodes):
            return
        if len(self._in_network) >= SPEAKERS_MAX:
            self._in_network.clear()
        self._in_network.add(key)
        time_ns = found[-1].time_ns if isinstance(found[-1], Collective) else self.changed_ns
        attributes = {words.IN_NETWORK: "1"}
        found.append(words.communicator_event(*key, time_ns, attributes))

    def _read_marker(
        self, header: Header, metadata: Metadata, stats: _Stats, speaker: Speaker
    ) -> None:
        # 4.1 and 4.2 count too, but repeat the header on every line.
        lines = stats.coll_records + stats.p2p_records + stats.proxy_records
        self._shared = _Shared(header, metadata, min(lines, COUNT_MAX))
        self._is_lost = False
        self.dropped.append(Dropped(speaker, stats.coll_dropped_total, stats.p2p_dropped_total))

    def _find_speaker(
        self, header: Header, metadata: Metadata, found: list[Record | ParseError]
    ) -> Speaker:
        key = (header.id, header.rank, header.n_ranks, metadata.hostname, metadata.pid)
        speaker = self._speakers.get(key)
        if speaker is None:
            if len(self._speakers) >= SPEAKERS_MAX:
                self._speakers.clear()
                self._current.clear()
            speaker = self._speakers[key] = Speaker(
                communicator=communicator_id(printable(header.id)),
                rank=header.rank,
                ranks=header.n_ranks,
                host=printable(metadata.hostname),
                pid=metadata.pid,
            )
            time_ns = metadata.dump_timestamp_us * _NS or self.changed_ns
            found.append(introduction(speaker, header, time_ns))
        if len(self._current) < SPEAKERS_MAX or header in self._current:
            self._current[header] = speaker
        return speaker


class NcclInspector:
    """The format."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "NCCL Inspector log"

    def recognises(self, head: bytes, origin: Origin) -> bool:  # noqa: ARG002 - by content alone
        """Whether a line near the beginning holds one of the Inspector's records."""
        return _RECORDS.search(head) is not None

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """Operations, and a `communicator` event for each communicator and rank at its first."""
        # A record's time is never 0, even where neither line nor file has one.
        reader = Reader(max(1, origin.time_ns))
        for block in read_pieces(stream):
            if block is None:
                yield too_long(reader.number)
                reader.pass_over()
            else:
                yield from reader.read(block)


FORMAT = NcclInspector()


# Making records ----------------------------------------------------------------------------------


def make_collective(
    speaker: Speaker, perf: _Coll, metadata: Metadata, changed_ns: int
) -> Collective:
    """The record of one rank's part in a collective operation.

    The kernel's channels start and end one by one: the first start and the last end count. Every
    line comes through here, so it does itself what nearly every line needs: with a function for
    each thing, a line takes half as long again.
    """
    size_bytes = perf.coll_msg_size_bytes
    if size_bytes is not None and size_bytes > SIZE_MAX:
        size_bytes = None
    duration_us = perf.coll_exec_time_us
    duration_ns = (
        duration_us * _NS
        if duration_us.__class__ is int and perf.coll_timing_source == MEASURED
        else to_nanoseconds(duration_us, perf.coll_timing_source)
    )
    start_us = stop_us = 0
    entry_ns = exit_ns = enqueue_ns = None
    timing = _UNKNOWN
    trace = perf.event_trace_ts
    if trace is not None:
        enqueue_ns = trace.coll_start_ts * _NS or None
        for kernel in trace.kernel_events:
            one_us = kernel.kernel_start_ts
            if one_us < start_us or not start_us:
                start_us = one_us
            one_us = kernel.kernel_stop_ts
            if one_us > stop_us:  # noqa: PLR1730 - max() takes thrice the time
                stop_us = one_us
        if 0 < start_us <= stop_us <= TIME_US_MAX:
            entry_ns, exit_ns, timing = start_us * _NS, stop_us * _NS, _KERNEL
        elif not trace.kernel_events and enqueue_ns is not None and duration_ns is not None:
            # NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=0: the plugin measured from the enqueueing to
            # the moment when the CPU saw the end.
            entry_ns, exit_ns, timing = enqueue_ns, enqueue_ns + duration_ns, _CPU
        # Else an end before the start: the clock was stepped in between, and both are useless.
    record = Collective(
        communicator=speaker.communicator,
        operation=OPERATIONS.get(perf.coll, _OTHER),
        sequence=perf.coll_sn,
        rank=speaker.rank,
        ranks=speaker.ranks,
        source=NAME,
        time_ns=exit_ns or metadata.dump_timestamp_us * _NS or changed_ns,
        entry_ns=entry_ns,
        exit_ns=exit_ns,
        enqueue_ns=enqueue_ns,
        duration_ns=duration_ns,
        size_bytes=size_bytes,
        timing=timing,
        host=speaker.host,
        pid=speaker.pid,
    )
    if perf.coll_algo or perf.coll_proto:
        return msgspec.structs.replace(
            record, algorithm=word(perf.coll_algo), protocol=word(perf.coll_proto)
        )
    return record


def make_p2p(speaker: Speaker, perf: _P2p, metadata: Metadata, changed_ns: int) -> Collective:
    """The record of one rank's send or receive."""
    trace = perf.event_trace_ts
    if trace is not None:
        trace.coll_start_ts = trace.p2p_start_ts
    like = _Coll(
        coll=perf.p2p,
        coll_sn=perf.p2p_sn,
        coll_msg_size_bytes=perf.p2p_msg_size_bytes,
        coll_exec_time_us=perf.p2p_exec_time_us,
        coll_timing_source=perf.p2p_timing_source,
        event_trace_ts=trace,
    )
    record = make_collective(speaker, like, metadata, changed_ns)
    return msgspec.structs.replace(record, peer=perf.p2p_peer)


def to_nanoseconds(number: float | str, timing_source: str) -> int | None:
    """Nanoseconds of a number of microseconds; None where the plugin did not measure.

    >>> to_nanoseconds(2832, "kernel_gpu"), to_nanoseconds(1.5, ""), to_nanoseconds("nan", "")
    (2832000, 1500, None)
    """
    if isinstance(number, str) or timing_source == UNKNOWN:
        return None
    return int(number * _NS) if 0 <= number <= DURATION_US_MAX else None


@lru_cache(TEXTS_KEPT)
def word(text: str) -> str:
    return printable(text).lower()


def introduction(speaker: Speaker, header: Header, time_ns: int) -> Event:
    """The event that describes a communicator, as one of its ranks sees it."""
    name = printable(header.comm_name)
    facts = {
        "ranks": str(speaker.ranks) if speaker.ranks else "",
        "nodes": str(header.nnodes) if header.nnodes else "",
        "name": "" if name == UNKNOWN else name,
        "host": speaker.host,
        "pid": str(speaker.pid) if speaker.pid else "",
    }
    return Event(
        kind="communicator",
        time_ns=time_ns,
        labels={"communicator": speaker.communicator, "rank": str(speaker.rank)},
        attributes={key: value for key, value in facts.items() if value},
    )
