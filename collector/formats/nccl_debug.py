"""NCCL's output with NCCL_DEBUG=INFO: communicators, their ranks, hosts, devices, rings and trees.

NCCL writes to the same output as the training script, and often all ranks write to one file, so a
line counts only if it has NCCL's own prefix (`host:pid:thread [device] NCCL INFO …`), and what it
means depends on earlier lines of the same process:

- Between `Init START` and `Init COMPLETE`, a thread's lines are about the communicator it
initialises.
- `Using network …` and `NET/… : Using …` come before that and hold for the whole process.
- Connections (`Channel 00/0 : 3[0] -> 0[0] [receive] via NET/IB/0`) are made when they are first
  used, after `Init COMPLETE`, and name no communicator. They are taken for the process' latest
  communicator in which the ranks are neighbours, else for the latest that has such ranks. With
  several communicators of one process that is a guess; they nearly always use the same devices.
- Only rank 0 prints whole rings, and NCCL cuts that line after 128 characters: a ring that is not
  whole is dropped, and each rank's `Ring 00 : 7 -> 0 -> 1` gives the same.

Lines have no time unless NCCL_DEBUG_TIMESTAMP_FORMAT asks for it; it is the host's local time, and
is read as UTC, which is what hosts of clusters have.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import BinaryIO, ClassVar, NamedTuple

from collector.contract import communicator as words
from collector.contract.collective import communicator_id, reduces_in_network
from collector.contract.errors import ParseError
from collector.contract.model import Event
from collector.formats import Origin, Record
from collector.parsing.last_words import LastWords
from collector.parsing.lines import lines_of, read_blocks
from collector.parsing.nccl_settings import Settings
from collector.parsing.prefixes import strip_prefixes

COMMUNICATORS_MAX = 20_000
"""Ranks of communicators that are held at once: a file with all ranks of a job of 4,000 GPUs. The
oldest are given out early, as far as they are known."""
THREADS_MAX = 20_000
"""Threads and processes that are remembered; the oldest are forgotten."""
WARNINGS_MAX = 1000
"""Warnings of one stream that become events. A broken link makes every rank repeat its warning."""
PREFIX_BYTES = 512
"""Where NCCL's prefix is looked for: before `NCCL INFO`. A plug-in of C++ puts the signature of its
function between both (`int cm_req_handle_error_entry(nccl_net_ofi_context_t*, …):46 NCCL WARN`)."""
MESSAGE_BYTES_MAX = 8192
"""Read of a line. NCCL cuts its own at 1024 to 2048."""
TEXT_MAX = 512
"""Characters of a warning, or of a name."""
DEVICES_MAX = 256

WARNING = "nccl_warning"

_MARK = re.compile(rb"(?:^| )NCCL (INFO|WARN) ")
_PREFIX = re.compile(
    rb"([\w.\-]{1,128}):([0-9]{1,10}):([0-9]{1,10}) \[(-?[0-9]{1,4})\](?: (\S[^\n]{0,255}))?$"
)
_TIME = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)"
)
_HEAD = re.compile(rb":[0-9]{1,10}:[0-9]{1,10} \[-?[0-9]{1,4}\](?: \S{1,128})? NCCL (?:INFO|WARN) ")
_NCCL_TESTS = re.compile(
    rb"^#(?: (?:nccl-tests version|Collective test starting|nThread [0-9])|"
    rb" {2,12}size +count +type )",
    re.MULTILINE,
)

_NCCL_TESTS_WORDS = (b"# nccl-tests", b"# Collective test", b"# nThread", b"algbw")

_VERSION = re.compile(r"[NR]CCL version (?:: )?([\w.+\-:]{1,64})")
"""RCCL (AMD's) writes `RCCL version : 2.27.7-HEAD:0d2c4fd`, alone in a line or behind a prefix."""
_WHOLE_RING = re.compile(r"Channel ([0-9]{1,3})(?:/[0-9]{1,3})? :((?: +[0-9]{1,7})+) *$")
_CONNECTION = re.compile(
    r"Channel ([0-9]{1,3})(?:/[0-9]{1,3})? : ([0-9]{1,7})\[[0-9a-f]+\] -> ([0-9]{1,7})\[[0-9a-f]+\]"
    r" \[(send|receive)\] via NET/([^/]{1,64})/([0-9]{1,4})(?:\([0-9]+\))?(/GDRDMA)?"
)
_RING = re.compile(r"Ring ([0-9]{1,3}) : ([0-9]{1,7}) -> ([0-9]{1,7}) -> ([0-9]{1,7})")
_TREE = re.compile(
    r"\[([0-9]{1,3})\] (-?[0-9]{1,7})/(-?[0-9]{1,7})/(-?[0-9]{1,7})->([0-9]{1,7})->(-?[0-9]{1,7})"
)
_DEVICE = re.compile(r"\[([0-9]{1,3})\](?:=\{([^}]*)\}|([\w.\-]{1,64}):)")
_MERGED = re.compile(r"\[[0-9]{1,3}\] ?([\w.\-]{1,64}):")
_VIRTUAL = re.compile(r"Made virtual device \[([0-9]{1,3})\] name=([\w.+\-]{1,256})")
_HEX = re.compile(r"0x[0-9a-f]{1,16}")
_COLLNET = re.compile(
    r"Coll(?:Net)? [0-9]{1,3}(?:/[0-9]{1,3})? : ([0-9]{1,7}) \[(?:send|receive)\] via COLLNET/"
)
_CHOICE = re.compile(
    r"\w{1,32}: [0-9]{1,20} Bytes -> Algo (\w{1,32}) proto \w{1,32}[^\n]{0,80}?"
    r"(?: comm (0x[0-9a-f]{1,16}))?$"
)
_HASH = re.compile(r"init commName: (.*?) ?commHash: ([0-9]{1,20}) ")

Process = tuple[str, str]
Thread = tuple[str, str, str]


class Line(NamedTuple):
    """A line of NCCL's, taken apart."""

    process: Process
    thread: Thread
    device: str
    place: str
    """File and line of NCCL's source; only warnings have it."""
    is_warning: bool
    message: str
    time_ns: int


class ProcessFacts:
    """What holds for all communicators of a process."""

    def __init__(self) -> None:
        self.version = ""
        self.net = ""
        self.devices: dict[str, dict[str, str]] = {}
        """By network, a device's name by the number that connections call it."""
        self.complete: list[Communicator] = []
        """Initialised communicators, the latest last."""


class Communicator:
    """One rank of one communicator, as far as lines have shown it."""

    def __init__(self, line: Line, facts: ProcessFacts) -> None:
        self.time_ns = line.time_ns
        self.process = line.process
        self.pointer = ""
        self.id = ""
        self.rank = -1
        self.ranks = 0
        self.is_complete = False
        self.is_changed = False
        self.attributes: dict[str, str] = {
            words.HOST: line.process[0],
            words.PID: line.process[1],
            words.CUDA_DEVICE: line.device if line.device != "-1" else "",
            words.NET: facts.net,
        }
        self.after: dict[int, tuple[int, int]] = {}
        self.branches: dict[int, tuple[int | None, list[int]]] = {}
        self.rings: dict[int, list[int]] = {}
        self.devices: dict[str, None] = {}

    def is_neighbour(self, channel: int, peer: int) -> bool:
        """Whether the rank has this neighbour in the channel's ring or tree."""
        parent, children = self.branches.get(channel, (None, []))
        return peer in (*self.after.get(channel, ()), parent, *children)

    def event(self, version: str) -> Event:
        attributes = {
            words.RANKS: str(self.ranks) if self.ranks else "",
            words.NCCL_VERSION: version,
            **self.attributes,
            words.DEVICES: ",".join(self.devices),
        }
        for channel, neighbours in sorted(self.after.items()):
            attributes[words.ring_attribute(channel)] = words.encode_neighbours(*neighbours)
        for channel, branch in sorted(self.branches.items()):
            attributes[words.tree_attribute(channel)] = words.encode_branch(*branch)
        whole = [ring for _, ring in sorted(self.rings.items()) if is_whole(ring, self.ranks)]
        if whole and len(whole) == len(self.rings):
            attributes[words.RINGS] = words.encode_rings(whole)
        return words.communicator_event(self.id, self.rank, self.time_ns, attributes)


def is_whole(ring: list[int], ranks: int) -> bool:
    return len(ring) == ranks and sorted(ring) == list(range(ranks))


class NcclDebug:
    """The format."""

    name: ClassVar[str] = "nccl_debug"
    title: ClassVar[str] = "NCCL debug log"

    def recognises(self, head: bytes, origin: Origin) -> bool:  # noqa: ARG002 - by content alone
        """Text with lines of NCCL; results of nccl-tests may have them too and are not ours."""
        return is_nccl_lines(head) and not is_nccl_tests(head)

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """Communicators when they are destroyed or the stream ends; warnings as they come."""
        log = DebugLog(origin.time_ns)
        words = LastWords(origin.name, origin.time_ns)
        for block in read_blocks(stream):
            if isinstance(block, ParseError):
                yield block
                continue
            is_wanted = words.wants(block[1])
            for number, line in lines_of(*block):
                yield from log.feed(line)
                if is_wanted:
                    yield from words.feed(number, line)
        yield from log.finish()


FORMAT = NcclDebug()


def is_nccl_lines(head: bytes) -> bool:
    """Whether a text has lines that begin as NCCL's do."""
    return _HEAD.search(head) is not None


def is_nccl_tests(head: bytes) -> bool:
    """Whether a text is what an nccl-tests program printed."""
    is_near = any(word in head for word in _NCCL_TESTS_WORDS)
    return is_near and _NCCL_TESTS.search(strip_prefixes(head)) is not None


class DebugLog:
    """One stream of lines. It is fed in order and yields what is known."""

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns
        """For lines without a time of their own."""
        self.warnings = 0
        """Warnings seen, also those beyond WARNINGS_MAX."""
        self._version = ""
        self._settings = Settings()
        # Ordered: the oldest of a plain dictionary is searched for among all that were removed.
        self._processes: OrderedDict[Process, ProcessFacts] = OrderedDict()
        self._open: OrderedDict[Thread, Communicator] = OrderedDict()
        """The communicator that a thread initialises right now."""
        self._held: OrderedDict[tuple[Process, str], Communicator] = OrderedDict()
        """By process and pointer, every communicator that is not destroyed."""

    def feed(self, raw: bytes) -> Iterator[Event | ParseError]:
        """What a line completes: a warning, or a communicator that ends."""
        mark = _MARK.search(raw)
        if mark is None:
            at = raw.find(b"CCL version ", 1, PREFIX_BYTES) - 1
            if at >= 0 and (match := _VERSION.match(ascii_text(raw[at : at + PREFIX_BYTES]))):
                self._version = match[1]
            return
        line = self._take_apart(raw, mark)
        if line is None:
            return
        if line.is_warning:
            yield from self._warn(line)
            return
        self._settings.hear(line.process[0], line.message)
        first = line.message.partition(" ")[0]
        if handler := self._HANDLERS.get(first):
            handler(self, line)
        elif first == "comm" or first.startswith("ncclComm"):
            yield from self._hear_of(line)
        elif first.endswith(":") and " Bytes -> Algo " in line.message:
            self._hear_choice(line)
        if len(self._held) > COMMUNICATORS_MAX:
            yield from self._give(self._held.popitem(last=False)[1])

    def changed(self) -> Iterator[Event | ParseError]:
        """Initialised communicators of which more is known than when they were last given out."""
        for each in list(self._held.values()):
            if each.is_complete and each.is_changed:
                yield from self._give(each)

    def finish(self) -> Iterator[Event | ParseError]:
        """Every communicator that was not given out yet, also those that were never initialised."""
        for each in list(self._held.values()):
            if each.is_changed:
                yield from self._give(each)
        yield from self._settings.events(self.time_ns)
        if self.warnings > WARNINGS_MAX:
            left = self.warnings - WARNINGS_MAX
            yield ParseError("", f"{left} warnings beyond WARNINGS_MAX = {WARNINGS_MAX} left out")

    def _give(self, each: Communicator) -> Iterator[Event | ParseError]:
        each.is_changed = False
        if not each.id:
            what = f"rank {each.rank} of {each.ranks} on {each.process[0]}"
            yield ParseError("", f"a communicator without commId ({what}): NCCL before 2.17?")
        else:
            yield each.event(self._facts(each.process).version or self._version)

    # Lines -----------------------------------------------------------------------------------

    def _take_apart(self, raw: bytes, mark: re.Match[bytes]) -> Line | None:
        before = raw[max(0, mark.start() - PREFIX_BYTES) : mark.start()]
        prefix = _PREFIX.search(before)
        if prefix is None and mark[1] == b"WARN":
            return self._without_prefix(raw, mark)
        if prefix is None:
            return None
        host, pid, tid, device, place = (ascii_text(part or b"") for part in prefix.groups())
        message = raw[mark.end() : mark.end() + MESSAGE_BYTES_MAX]
        return Line(
            process=(host, pid),
            thread=(host, pid, tid),
            device=device,
            place=place,
            is_warning=mark[1] == b"WARN",
            message=message.decode("utf-8", "replace").rstrip(),
            time_ns=self._parse_time(before[: prefix.start()]),
        )

    def _without_prefix(self, raw: bytes, mark: re.Match[bytes]) -> Line:
        """A warning that a program has printed again without saying whose it is."""
        message = raw[mark.end() : mark.end() + MESSAGE_BYTES_MAX].decode("utf-8", "replace")
        time_ns = self._parse_time(raw[: mark.start()][:PREFIX_BYTES])
        return Line(("", ""), ("", "", ""), "", "", True, message.rstrip(), time_ns)

    def _parse_time(self, before: bytes) -> int:
        """The time in front of a line; a time after the file's own is another zone's."""
        match = _TIME.search(before)
        if match is None:
            return self.time_ns
        try:
            moment = datetime.fromisoformat(f"{ascii_text(match[1])}T{ascii_text(match[2])}")
            time_ns = int(moment.replace(tzinfo=UTC).timestamp() * 1e6) * 1000
        except (ValueError, OverflowError):
            return self.time_ns
        return min(time_ns, self.time_ns) if self.time_ns else max(time_ns, 0)

    def _facts(self, process: Process) -> ProcessFacts:
        facts = self._processes.get(process)
        if facts is None:
            facts = self._processes[process] = ProcessFacts()
            if len(self._processes) > THREADS_MAX:
                self._processes.popitem(last=False)
        return facts

    def _draft(self, line: Line) -> Communicator:
        """The communicator that the line's thread initialises; older NCCL does not print START."""
        draft = self._open.get(line.thread)
        if draft is None:
            draft = self._open[line.thread] = Communicator(line, self._facts(line.process))
            if len(self._open) > THREADS_MAX:
                self._open.popitem(last=False)
        return draft

    def _warn(self, line: Line) -> Iterator[Event]:
        self.warnings += 1
        if self.warnings > WARNINGS_MAX:
            return
        attributes = {
            words.HOST: line.process[0],
            words.CUDA_DEVICE: line.device,
            "place": line.place,
        }
        yield Event(
            kind=WARNING,
            time_ns=line.time_ns,
            labels={words.PID: line.process[1]} if line.process[1] else {},
            message=line.message[:TEXT_MAX],
            attributes={name: value for name, value in attributes.items() if value},
        )

    # Communicators ---------------------------------------------------------------------------

    def _hear_of(self, line: Line) -> Iterator[Event | ParseError]:
        """`… comm 0x… rank 0 nranks 8 … - Init START`, and its kin: words in pairs."""
        parts = line.message.split()
        pairs = dict(pairwise(parts))
        pointer, rank = pairs.get("comm", ""), number(pairs.get("rank", ""))
        if not _HEX.fullmatch(pointer) or rank is None:
            return
        end = " ".join(parts[-2:])
        if end == "Init START":
            self._open.pop(line.thread, None)
        if end.endswith(" COMPLETE") and end != "Init COMPLETE":
            # Destroyed, or aborted.
            each = self._held.pop((line.process, pointer), None)
            if each is not None:
                self._forget(each)
                if each.is_changed:
                    yield from self._give(each)
            return
        each = self._held.get((line.process, pointer))
        if each is None or end == "Init START":
            each = self._draft(line)
            self._held[line.process, pointer] = each
        each.pointer, each.rank, each.is_changed = pointer, rank, True
        each.ranks = number(pairs.get("nranks", pairs.get("nRanks", ""))) or each.ranks
        if _HEX.fullmatch(pairs.get("commId", "")):
            each.id = communicator_id(pairs["commId"])
        each.attributes |= {
            name: pairs[key]
            for key, name in _PAIRS.items()
            if number(pairs.get(key, "")) is not None
        }
        if address := pci_address(pairs.get("busId", "")):
            each.attributes[words.BUS_ID] = address
        if end == "Init COMPLETE":
            each.is_complete = True
            self._open.pop(line.thread, None)
            complete = self._facts(line.process).complete
            complete.append(each)
            del complete[:-COMPLETE_MAX]

    def _forget(self, each: Communicator) -> None:
        complete = self._facts(each.process).complete
        if each in complete:
            complete.remove(each)

    def _hear_profiler(self, line: Line) -> None:
        """The line of the profiler plug-in has the communicator's hash, also of a split one."""
        match = _HASH.search(line.message)
        if match and line.thread in self._open:
            draft = self._open[line.thread]
            draft.id = draft.id or communicator_id(f"0x{int(match[2]):x}")
            draft.attributes[words.NAME] = match[1][:TEXT_MAX]

    def _hear_channel(self, line: Line) -> None:
        if match := _CONNECTION.match(line.message):
            self._connect(line, match)
        elif match := _WHOLE_RING.match(line.message):
            ring = [int(rank) for rank in match[2].split()]
            if int(match[1]) < words.CHANNELS_MAX:
                self._draft(line).rings[int(match[1])] = ring

    def _hear_ring(self, line: Line) -> None:
        match = _RING.match(line.message)
        if match and int(match[1]) < words.CHANNELS_MAX:
            self._draft(line).after[int(match[1])] = int(match[2]), int(match[4])

    def _hear_trees(self, line: Line) -> None:
        """`Trees [0] 1/3/-1->2->4 …`: children, the rank itself, its parent; -1 is none."""
        for match in _TREE.finditer(line.message):
            channel, *children, _, parent = (int(part) for part in match.groups())
            if channel < words.CHANNELS_MAX:
                below = [child for child in children if child >= 0]
                above = parent if parent >= 0 else None
                self._draft(line).branches[channel] = above, below

    def _hear_collnet(self, line: Line) -> None:
        """`CollNet 00/0 : 3 [send] via COLLNET/SHARP/0`: this rank hands its part to a switch.

        The count of `collnet channels` in the line about channels is no such sign: NCCL from 2.19
        on prints the number of all channels there.
        """
        match = _COLLNET.match(line.message)
        if match is None:
            return
        rank = int(match[1])
        known = [each for each in reversed(self._facts(line.process).complete) if each.rank == rank]
        if line.thread in self._open:
            known.insert(0, self._open[line.thread])
        for each in known[:1]:
            self._mark_in_network(each)

    def _hear_choice(self, line: Line) -> None:
        """`AllReduce: 4194304 Bytes -> Algo CollNetDirect proto Simple …`, with SUBSYS=TUNING.

        Without a pointer in it the line counts if the process has one communicator only.
        """
        match = _CHOICE.match(line.message)
        complete = self._facts(line.process).complete
        chosen = [each for each in complete if match and match[2] in {None, each.pointer}]
        if match is None or len(chosen) != 1:
            return
        hosts = number(chosen[0].attributes.get(words.NODES, "")) or 0
        if reduces_in_network(match[1], hosts):
            self._mark_in_network(chosen[0])

    def _mark_in_network(self, each: Communicator) -> None:
        if words.IN_NETWORK not in each.attributes:
            each.attributes[words.IN_NETWORK] = "1"
            each.is_changed = True

    # Networks --------------------------------------------------------------------------------

    def _hear_version(self, line: Line) -> None:
        if match := _VERSION.match(line.message):
            self._facts(line.process).version = match[1]

    def _hear_using(self, line: Line) -> None:
        if line.message.startswith("Using network "):
            net = line.message.removeprefix("Using network ")[:TEXT_MAX]
            self._facts(line.process).net = net
            if line.thread in self._open:
                self._open[line.thread].attributes[words.NET] = net

    def _hear_devices(self, line: Line) -> None:
        """`NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`."""
        net, _, text = line.message.removeprefix("NET/").partition(" : ")
        devices = self._facts(line.process).devices.setdefault(net, {})
        if match := _VIRTUAL.match(text):
            found = [(match[1], match[2])]
        elif text.startswith("Using "):
            found = [
                (each[1], each[3] or "+".join(_MERGED.findall(each[2])))
                for each in _DEVICE.finditer(text)
            ]
        else:
            return
        for index, name in found:
            if name and len(devices) < DEVICES_MAX:
                devices[index] = name

    def _connect(self, line: Line, match: re.Match[str]) -> None:
        channel, sender, receiver = int(match[1]), int(match[2]), int(match[3])
        own, peer = (sender, receiver) if match[4] == "send" else (receiver, sender)
        facts = self._facts(line.process)
        known = [
            each for each in reversed(facts.complete) if each.rank == own and peer < each.ranks
        ]
        if line.thread in self._open:
            known.insert(0, self._open[line.thread])  # older NCCL connects while it initialises
        near = [each for each in known if each.is_neighbour(channel, peer)]
        for each in (near or known)[:1]:
            name = facts.devices.get(match[5], {}).get(match[6], f"{match[5]}/{match[6]}")
            if len(each.devices) < DEVICES_MAX and name not in each.devices:
                each.devices[name] = None
                each.is_changed = True
            if match[7]:
                each.attributes[words.GPU_DIRECT] = "1"

    _HANDLERS: ClassVar[dict[str, Callable[[DebugLog, Line], None]]] = {
        "Channel": _hear_channel,
        "Coll": _hear_collnet,
        "CollNet": _hear_collnet,
        "Ring": _hear_ring,
        "Trees": _hear_trees,
        "NCCL": _hear_version,
        "RCCL": _hear_version,
        "Using": _hear_using,
        "NET/IB": _hear_devices,
        "NET/Socket": _hear_devices,
        "PROFILER/Plugin:": _hear_profiler,
    }


COMPLETE_MAX = 64
"""Communicators of a process, the latest, that a connection may belong to."""

_PAIRS = {
    "cudaDev": words.CUDA_DEVICE,
    "nvmlDev": words.NVML_DEVICE,
    "nNodes": words.NODES,
    "localRanks": words.LOCAL_RANKS,
    "localRank": words.LOCAL_RANK,
}


def ascii_text(raw: bytes) -> str:
    """Bytes as text; what is not ASCII is replaced."""
    return raw.decode("ascii", "replace")


def number(text: str) -> int | None:
    """A rank, count or device number; None if it is none."""
    if not text.isascii() or not text.isdigit() or int(text[:8]) > words.RANKS_MAX:
        return None
    return int(text) if len(text) <= len(str(words.RANKS_MAX)) else None


def pci_address(bus_id: str) -> str:
    """The address in NCCL's `busId`: the digits of domain, bus, device and function in a row.

    >>> pci_address("60"), pci_address("1b000"), pci_address("x")
    ('0000:00:06.0', '0000:1b:00.0', '')
    """
    if not re.fullmatch(r"[0-9a-f]{1,16}", bus_id):
        return ""
    number = int(bus_id, 16)
    bus, device = (number >> 12) & 0xFF, (number >> 4) & 0xFF
    return f"{number >> 20:04x}:{bus:02x}:{device:02x}.{number & 0xF:x}"
