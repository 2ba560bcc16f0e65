"""The last words of processes in a job's output: lines in, events out. Bounded; hostile input.

One `LastWords` reads one stream, which may hold one rank's output or that of all. A line is the
rank's whose prefix it has (`[rank3]:`, `[default3]:`, NCCL's `host:pid:thread`); one without a
prefix is the only rank's of the stream, and no rank's where there are several. What a line means:
`collector.parsing.dying_words`.

Times are whole seconds. PyTorch's stamps have nanoseconds, but its seconds and their fractions come
from two clocks: lines of one thread go back by up to a second (own recordings, PyTorch 2.11). Lines
without a time have that of the latest before them. Stamps without a zone are read as UTC.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from collector.contract.communicator import HOST, PID, RANK
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Reason
from collector.parsing.dying_words import (
    CUDA_ERRORS,
    GPU_BROKEN,
    IB_STATUS,
    MARKS,
    NO_FAILURE,
    PEER_ERRORS,
    SIGNALS,
    XIDS_OF_GPU,
    Role,
    Words,
    find_words,
    marks_in,
    of_signal,
)

LAST_WORDS = "last_words"
"""The kind of event."""
HOST_ADDRESS = "host_address"
"""The kind of event that gives a host's address, for peers that others name by it."""

WORDS_MAX = 1000
"""Events of one stream. A job of a thousand ranks in one file has one or two for each; repeats of
one rank are one event."""
KEPT_MAX = 10_000
"""Distinct lines that are remembered, to tell repeats; past it all is taken as a repeat."""
SPEAKERS_MAX = 4096
"""Ranks whose tracebacks and multi-line reports are followed at once; the oldest are dropped."""
ADDRESSES_MAX = 256
LINE_CHARS_MAX = 4096
"""Read of a line: an exception's text may have kilobytes."""
TEXT_MAX = 400
"""Characters of an event's message."""
TRACEBACK_LINES_MAX = 500
REPORT_LINES_MAX = 16
"""Lines of torchrun's root cause, which has seven."""
KEPT_GROUPS = ("peer", "status", "bus", "tasks")
"""Parts of a line that become attributes as they are."""
DAY_NS = 86_400 * NS

_RANK = re.compile(r"^\s*(?:\[rank([0-9]{1,7})\]|\[default([0-9]{1,5})\]):[ ]?")
_NCCL = re.compile(r"([\w.\-]{1,128}):([0-9]{1,10}):([0-9]{1,10}) \[-?[0-9]{1,4}\]")
_GLOG = re.compile(r"[EWIF]([0-9]{1,2})([0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2})\.[0-9]")
_ISO = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2})[ T_]([0-9]{2}:[0-9]{2}:[0-9]{2})")
_SYSLOG = re.compile(
    r"^([A-Z][a-z]{2}) +([0-9]{1,2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}) ([\w.\-]{1,128}) kernel:"
)
_KERNEL_ISO = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T\S{1,32} ([\w.\-]{1,128}) kernel:")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_FRAME = re.compile(r'^\s+File "([^"]{1,400})", line ([0-9]{1,7}), in ')
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]{0,200}(?::.*)?$")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ")
_ABSENT = re.compile(
    r"\[([0-9, ]{1,4000})\] finished collective #[0-9]+, but didn't join collective #([0-9]{1,12})"
)
_DESYNC = re.compile(r"\] Rank ([0-9]{1,7})$")
_ROOT_CAUSE = re.compile(r"^\s*Root Cause \(first observed failure\)")
_FIELD = re.compile(r"^\s*(time|host|rank|exitcode|traceback)\s*: (.{0,400})")
_ADDRESS = re.compile(
    r"(?:Bootstrap ?: Using |OOB |NET/Socket : Using (?:\[[0-9]+\])?)[\w.\-@]{1,64}:"
    r"([0-9a-fA-F.:%\w]{2,64})<[0-9]*>"
)
_EFA = re.compile(r"My EFA addr: fi_addr_efa://\[([0-9a-fA-F:]{2,64})\]")
_NUMBERS = re.compile(r"0x[0-9a-f]+|[0-9]+")


class Speaker(NamedTuple):
    """The process that printed a line, as far as the line tells."""

    rank: str = ""
    local_rank: str = ""
    host: str = ""
    pid: str = ""

    def labels(self) -> dict[str, str]:
        found = {RANK: self.rank, "local_rank": self.local_rank, HOST: self.host, PID: self.pid}
        return {name: value for name, value in found.items() if value}


NOBODY = Speaker()


class Meaning(NamedTuple):
    """What a line says: a row of the table, or of what this module makes of several lines."""

    name: str
    role: Role
    reason: Reason
    is_proof: bool


class Part:
    """A report of several lines that a speaker is in the middle of."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.lines = 0
        self.place = ""
        self.fields: dict[str, str] = {}
        self.is_said = False
        """Its last line was the one that matters."""


class LastWords:
    """One stream. It is fed lines in order."""

    def __init__(self, name: str, time_ns: int) -> None:
        self._name = name
        self._file_ns = time_ns
        self._latest_ns = 0
        self._speakers: OrderedDict[Speaker, None] = OrderedDict()
        self._parts: OrderedDict[Speaker, Part] = OrderedDict()
        self._kept: set[tuple[str, ...]] = set()
        self._addresses: set[tuple[str, str]] = set()
        self._said = 0
        self._is_over = False
        """Whether a scheduler has begun to end the job: who is killed now was not the first."""
        self._has_failed = False
        self._marks: tuple[bytes, ...] = MARKS

    def wants(self, block: bytes) -> bool:
        """Whether any line of a block matters: most of a log does not, and is passed over.

        The lines that are fed next are those of the block: only the marks that it has are searched
        for in each of them, which is where a log of a million lines spent its time.
        """
        self._marks = marks_in(block)
        return bool(self._parts or self._marks)

    def feed(self, number: int, raw: bytes) -> Iterator[Event]:
        """What a line says, if it is among the last words of a process."""
        is_known = any(mark in raw for mark in self._marks)
        if not is_known and not self._parts:
            return
        line = raw[:LINE_CHARS_MAX].decode("utf-8", "replace").rstrip()
        speaker, text = self._speaker_of(line)
        own_ns = self._time_of(line)
        self._latest_ns = max(self._latest_ns, own_ns or 0)
        if part := self._parts.get(speaker):
            yield from self._go_on(number, speaker, part, text, own_ns)
            if part.is_said:
                return
        if is_known:
            yield from self._address_of(speaker, text)
            yield from self._hear(number, speaker, text, own_ns)

    # Who and when ----------------------------------------------------------------------------

    def _speaker_of(self, line: str) -> tuple[Speaker, str]:
        """Who printed the line, and the line without the prefix that names a rank."""
        if match := _RANK.match(line):
            speaker = Speaker(rank=match[1] or "", local_rank=match[2] or "")
            text = line[match.end() :]
        elif match := _NCCL.search(line[:512]):
            speaker, text = Speaker(host=match[1], pid=match[2]), line
        elif match := _SYSLOG.match(line):
            return Speaker(host=match[4]), line
        elif match := _KERNEL_ISO.match(line):
            return Speaker(host=match[1]), line
        else:
            only = next(iter(self._speakers)) if len(self._speakers) == 1 else NOBODY
            return only, line
        if speaker not in self._speakers:
            self._speakers[speaker] = None
            if len(self._speakers) > SPEAKERS_MAX:
                # Two are enough to know that a line without a prefix is no known rank's.
                self._speakers.popitem(last=False)
        return speaker, text

    def _time_of(self, line: str) -> int | None:
        """The line's own time in whole seconds; a time after the file's own is another zone's."""
        moment: datetime | None = None
        year = datetime.fromtimestamp(self._file_ns / NS, UTC).year
        try:
            if match := _GLOG.search(line[:200]):
                moment = datetime.fromisoformat(
                    f"{year}-{int(match[1]):02d}-{match[2]}T{match[3]}+00:00"
                )
            elif match := _ISO.search(line[:400]):
                return self._bounded(datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00"))
            elif match := _SYSLOG.match(line):
                month = _MONTHS.find(match[1]) // 3 + 1
                moment = datetime.fromisoformat(
                    f"{year}-{month:02d}-{int(match[2]):02d}T{match[3]}+00:00"
                )
            if moment is None:
                return None
            if self._file_ns and moment.timestamp() * NS > self._file_ns + DAY_NS:
                moment = moment.replace(year=year - 1)  # a stamp without a year, of last December
            return self._bounded(moment)
        except (ValueError, OverflowError, OSError):
            return None

    def _bounded(self, moment: datetime) -> int:
        time_ns = int(moment.timestamp()) * NS
        return min(time_ns, self._file_ns) if self._file_ns else max(time_ns, 0)

    # Single lines ----------------------------------------------------------------------------

    def _hear(
        self, number: int, speaker: Speaker, text: str, own_ns: int | None
    ) -> Iterator[Event]:
        bare = text.strip()
        if bare.startswith("Traceback (most recent call last)"):
            self._begin(speaker, "traceback")
            return
        if _ROOT_CAUSE.match(text):
            self._begin(speaker, "root_cause")
            return
        if match := _DESYNC.search(text):
            self._begin(speaker, "desync").fields["rank"] = match[1]
            return
        if match := _ABSENT.search(text):
            yield from self._absent(number, speaker, match, own_ns)
            return
        if speaker in self._parts:
            return  # the text of a traceback, which ends with the line that matters
        if found := find_words(text):
            yield from self._say(number, speaker, text, found, own_ns)

    def _say(
        self,
        number: int,
        speaker: Speaker,
        text: str,
        found: tuple[Words, re.Match[str]],
        own_ns: int | None,
    ) -> Iterator[Event]:
        words, match = found
        groups = {name: value for name, value in match.groupdict().items() if value}
        role, reason, is_proof = words.role, words.reason, words.is_proof
        shown = text[match.start() :]
        about = speaker
        if words.name in ("elastic_exit", "mpirun_exit"):
            code = int(groups["signal"])
            code = code if words.name == "elastic_exit" else -code
            role, reason = of_signal(code)
            about = Speaker(
                rank=groups.get("rank", ""),
                local_rank=groups.get("local_rank", ""),
                host=groups.get("host", "") or speaker.host,
                pid=groups.get("pid", ""),
            )
        elif words.name == "slurm_task":
            role, reason = task_words(groups["what"])
            about = Speaker(host=groups["host"])
        elif words.name == "slurm_node_failed":
            about = Speaker(host=groups.get("host") or groups.get("host2", ""))
        elif words.name == "oom_killer":
            about = Speaker(host=speaker.host, pid=groups["pid"])
        elif words.name == "xid" and int(groups["status"]) not in XIDS_OF_GPU:
            role, reason = Role.AFTER, Reason.UNKNOWN
        elif words.name == "ib_completion":
            meaning = IB_STATUS.get(int(groups["status"]), "an error of the device or its peer")
            shown = f"{shown} [{meaning}]"
        elif words.name in ("nccl_cuda", "gpu_memory") and "NCCL WARN" in text:
            role, is_proof = Role.AFTER, False
        if (self._is_over and role is Role.OWN) or (self._has_failed and role is Role.END):
            role = Role.AFTER  # a scheduler ends a job after its first failure, too
        self._is_over |= words.role is Role.END
        more = {key: value for key, value in groups.items() if key in KEPT_GROUPS}
        if "signal" in groups:
            more["signal"] = SIGNALS.get(abs(int(groups["signal"])), groups["signal"])
        said = Meaning(words.name, role, reason, is_proof)
        yield from self._event(number, about, said, shown, own_ns, more)

    def _absent(
        self, number: int, speaker: Speaker, match: re.Match[str], own_ns: int | None
    ) -> Iterator[Event]:
        """A desync report's ranks that did not join; the group's numbers, so only of equal ones."""
        part = self._parts.get(speaker)
        said = part.fields.get("rank") if part is not None else None
        if said is None or said != speaker.rank:
            return
        ranks = ",".join(match[1].replace(" ", "").split(",")[:64])
        more = {"absent": ranks, "sequence": match[2]}
        meaning = Meaning("desync", Role.PEER, Reason.TIMED_OUT, is_proof=True)
        yield from self._event(number, speaker, meaning, match[0], own_ns, more)

    # Reports of several lines ----------------------------------------------------------------

    def _begin(self, speaker: Speaker, kind: str) -> Part:
        part = self._parts[speaker] = Part(kind)
        self._parts.move_to_end(speaker)
        if len(self._parts) > SPEAKERS_MAX:
            self._parts.popitem(last=False)
        return part

    def _go_on(
        self, number: int, speaker: Speaker, part: Part, text: str, own_ns: int | None
    ) -> Iterator[Event]:
        part.lines += 1
        if part.kind == "traceback":
            yield from self._trace(number, speaker, part, text, own_ns)
        elif part.kind == "root_cause":
            yield from self._root_cause(number, speaker, part, text)
        elif not text.startswith(("\t", " ")) or part.lines > REPORT_LINES_MAX:
            self._parts.pop(speaker, None)

    def _trace(
        self, number: int, speaker: Speaker, part: Part, text: str, own_ns: int | None
    ) -> Iterator[Event]:
        if match := _FRAME.match(text):
            if not any(part_of in match[1] for part_of in _LIBRARIES) or not part.place:
                part.place = f"{match[1]}:{match[2]}"
            return
        if (text.startswith((" ", "\t")) or not text) and part.lines < TRACEBACK_LINES_MAX:
            return
        self._parts.pop(speaker, None)
        if not _EXCEPTION.match(text) or NO_FAILURE.match(text):
            return
        part.is_said = True
        role, reason, name = exception_words(text)
        if self._is_over and role is Role.OWN:
            role = Role.AFTER
        # PyTorch's hook puts the rank before the trace of what ends it; others may be caught.
        is_proof = bool(speaker.rank)
        more = {"place": part.place[-200:]} if part.place else {}
        meaning = Meaning(name, role, reason, is_proof)
        yield from self._event(number, speaker, meaning, text, own_ns, more)

    def _root_cause(self, number: int, speaker: Speaker, part: Part, text: str) -> Iterator[Event]:
        """`rank      : 5 (local_rank: 1)`, `exitcode  : -9 (pid: 6914)`…: torchrun's table."""
        if match := _FIELD.match(text):
            part.fields[match[1]] = match[2].strip()
        if "traceback" not in part.fields and part.lines < REPORT_LINES_MAX:
            return
        self._parts.pop(speaker, None)
        rank = re.match(r"[0-9]{1,7}", part.fields.get("rank", ""))
        exit_code = re.match(
            r"(-?[0-9]{1,3}) +\(pid: ([0-9]{1,10})\)", part.fields.get("exitcode", "")
        )
        if rank is None or exit_code is None:
            return
        role, reason = of_signal(int(exit_code[1]))
        host = re.match(r"[\w.\-]{1,128}", part.fields.get("host", ""))
        about = Speaker(rank=rank[0], host=host[0] if host else "", pid=exit_code[2])
        code = int(exit_code[1])
        ended = f"by {SIGNALS.get(-code, code)}" if code < 0 else f"with exit code {code}"
        shown = f"torchrun: first failure that it saw: rank {rank[0]} ended {ended}"
        own_ns = self._time_of(part.fields.get("time", ""))
        meaning = Meaning("root_cause", role, reason, is_proof=True)
        yield from self._event(number, about, meaning, shown, own_ns, {"exit": str(code)})

    # Events ----------------------------------------------------------------------------------

    def _event(
        self,
        number: int,
        about: Speaker,
        meaning: Meaning,
        text: str,
        own_ns: int | None,
        more: Mapping[str, str],
    ) -> Iterator[Event]:
        shown = " ".join(text.split())[:TEXT_MAX]
        key = (meaning.name, *about, more.get("peer", ""), _NUMBERS.sub("", shown)[:120])
        if key in self._kept or len(self._kept) >= KEPT_MAX or self._said >= WORDS_MAX:
            return
        self._kept.add(key)
        self._said += 1
        self._has_failed |= meaning.is_proof and meaning.role is not Role.END
        attributes = {
            "words": meaning.name,
            "role": str(meaning.role),
            "reason": str(meaning.reason),
            "proof": "1" if meaning.is_proof else "",
            "timed": "1" if own_ns is not None else "",
            "line": str(number),
            "file": self._name[:200],
            **more,
        }
        yield Event(
            kind=LAST_WORDS,
            time_ns=own_ns or self._latest_ns or self._file_ns,
            labels=about.labels(),
            message=shown,
            attributes={key: value for key, value in attributes.items() if value},
        )

    def _address_of(self, speaker: Speaker, text: str) -> Iterator[Event]:
        """An address of the speaker's own host, where NCCL prints which one it uses."""
        for match in (_ADDRESS.search(text), _EFA.search(text)):
            if match is None or not speaker.host or is_loopback(match[1]):
                continue
            key = speaker.host, match[1].lower()
            if key in self._addresses or len(self._addresses) >= ADDRESSES_MAX:
                continue
            self._addresses.add(key)
            yield Event(
                kind=HOST_ADDRESS,
                time_ns=self._latest_ns or self._file_ns,
                labels={HOST: speaker.host},
                attributes={"address": match[1].lower()},
            )


def exception_words(text: str) -> tuple[Role, Reason, str]:
    """What the last line of a traceback says: `KeyError: 'x'`."""
    if found := find_words(text):
        words, _ = found
        return words.role, words.reason, words.name
    if CUDA_ERRORS.search(text):
        reason = Reason.GPU_ERROR if GPU_BROKEN.search(text) else Reason.UNKNOWN
        return Role.OWN, reason, "cuda_error"
    if PEER_ERRORS.search(text):
        return Role.PEER, Reason.CONNECTION_LOST, "peer_error"
    return Role.OWN, Reason.PROGRAM, "exception"


def task_words(text: str) -> tuple[Role, Reason]:
    """What Slurm says of a task: `Killed`, `Out Of Memory`, `Exited with exit code 1`."""
    if text.startswith("Out Of Memory"):
        return Role.OWN, Reason.HOST_MEMORY
    if text.startswith("Killed"):
        return Role.OWN, Reason.KILLED
    if text.startswith(("Segmentation fault", "Bus error", "Illegal instruction")):
        return Role.OWN, Reason.PROGRAM
    return Role.AFTER, Reason.UNKNOWN


def is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::1", "localhost"))
