"""NCCL Inspector's files: operations of every rank on this host, as its process writes them.

Reads the logs (`<host>-pid<pid>.log`, one per process; see `formats/nccl_inspector`) as they grow,
and the files of its Prometheus mode. Yields a record for each operation, an event for each
communicator, and counters per job, communicator, rank and operation; with
NCCL_INSPECTOR_ENABLE_PROXY also of what each rank's network proxy waited for, by peer.

When more operations happen than `rows_per_second_max`, only those whose sequence number a power of
two divides are passed on: every rank keeps the same ones, whatever it sees, and the ones kept at a
higher power are among those kept at a lower. Counters count all.

A shared folder (NFS) holds the files of all hosts: name the own ones, ``files = ["{host}-pid*"]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec

from collector.contract.collective import Collective, Operation, communicator_id
from collector.contract.errors import HostError, ParseError
from collector.contract.identity import printable
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.records import THIN_MAX
from collector.contract.units import NS
from collector.doors.host import FileFacts, Host
from collector.formats import Record
from collector.formats.nccl_inspector import OPERATIONS, UNKNOWN, Dropped, Peer, Reader
from collector.parsing.nccl_proxy import ProxyTotals
from collector.reading.follow import YOUNG_SECONDS, Chunk, Follower, find_files
from collector.reading.jobs import ContainerProcesses, read_process
from collector.sources import SourceSettings

SERIES_MAX = 4096
"""Ranks x communicators x operations that are counted at once: 8 ranks with 64 communicators and 8
operations. Operations of others are passed on and counted as left out."""
FORGET_SECONDS = 1800
"""How long after its last operation a rank is still reported. A job that hangs should stay visible
until an operator has looked; one that has ended should not be there tomorrow."""
REORDER_MAX = 64
"""Within so many sequence numbers of the highest, a missing one may still come: operations of one
communicator end in order but for the few that are under way at once. Older ones are lost."""
PROCESSES_MAX = 4096
"""Processes whose job is remembered; beyond, all are looked up again."""
THIN_FALL_SHARE = 0.8
"""How far below the limit the rows must be with the next lower power before it is taken: at the
limit itself the power would change at every read."""
PROM_BYTES_MAX = 1 << 20
"""A file of the Prometheus mode: four lines per communicator, operation and size."""
PROM_SERIES_MAX = 2048
"""Series of one such file; the sizes in their labels have no bound."""
LABEL_CHARACTERS_MAX = 128
US = 1e6

_JOB_FOLDER = re.compile(r"nccl-inspector-([0-9A-Za-z_.-]{1,64})")
"""The plugin's own name for its folder: `nccl-inspector-<SLURM_JOBID>`."""
_PROM_FILE = re.compile(r"nccl_inspector_metrics_([0-9a-fA-F-]{36})\.prom")
_PROM_FILES = ("nccl_inspector_metrics_*.prom",)


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `nccl_inspector`."""

    interval_seconds: float = 1.0
    """A slow operation should be seen within a second."""
    directories: tuple[str, ...] = ()
    """Where NCCL_INSPECTOR_DUMP_DIR points, as shell patterns: `/var/log/nccl/*`. Empty: nothing to
    do."""
    files: tuple[str, ...] = ("*-pid*.log", "*-pid*.jsonl")
    """Names of logs, as shell patterns; `{host}` stands for this host's name."""
    job: str = ""
    """The job of everything found there. Empty: by the process's environment, else by the name of
    the folder (`nccl-inspector-<SLURM_JOBID>`)."""
    rows_per_second_max: int = 1000
    """Operations passed on per second of the job's time: eight ranks with 125 each. One hour of
    this is 3.6 million rows."""
    young_seconds: float = YOUNG_SECONDS
    """A log that has not changed for so long when it is first seen is not read from its beginning,
    only what is added to it."""
    stale_seconds: float = 300.0
    """A file of the Prometheus mode is rewritten every 30 s at least; one that has not changed for
    so long was left by a process that died."""


# Counting ----------------------------------------------------------------------------------------


class Gaps:
    """How many numbers of a sequence never came. Repeats and small disorder are no loss."""

    __slots__ = ("highest", "lost", "missing", "pid", "series")

    def __init__(self, series: Series) -> None:
        self.series = series
        self.lost = 0
        self.pid = -1
        self.highest = -1
        self.missing: dict[int, None] = {}
        """Numbers that may still come, ascending."""

    def see(self, sequence: int, pid: int) -> None:
        if sequence == self.highest + 1 and pid == self.pid:
            self.highest = sequence
            if self.missing:
                self._give_up(sequence - REORDER_MAX)
            return
        if pid != self.pid:
            # Another process starts its own count, and what came before the first number is not
            # known.
            self.pid, self.highest = pid, sequence
            self.missing.clear()
        elif sequence <= self.highest:
            self.missing.pop(sequence, None)
        else:
            first = max(self.highest + 1, sequence - REORDER_MAX)
            self.lost += first - self.highest - 1
            self.missing.update(dict.fromkeys(range(first, sequence)))
            self.highest = sequence
            self._give_up(sequence - REORDER_MAX)

    def _give_up(self, below: int) -> None:
        late = []
        for number in self.missing:
            if number >= below:
                break
            late.append(number)
        for number in late:
            del self.missing[number]
        self.lost += len(late)


class Tally:
    """What one rank did of one operation in one communicator."""

    __slots__ = ("bytes", "gaps", "operations", "seconds", "seen_ns", "series")

    def __init__(self, labels: dict[str, str], gaps: Gaps) -> None:
        self.series = tuple(
            Series(f"fabric_collective_{what}_total", labels)
            for what in ("operations", "bytes", "seconds")
        )
        self.operations = 0
        self.bytes = 0
        self.seconds = 0
        """In nanoseconds, so that nothing is lost by adding."""
        self.gaps = gaps
        self.seen_ns = 0


class Proxied:
    """What a rank's proxy did for one peer since the agent began."""

    __slots__ = ("_bytes", "_labels", "_operations", "_waits", "seen_ns")

    def __init__(self, peer: Peer, job: str) -> None:
        whose = labels_of(peer.speaker.communicator, peer.speaker.rank, "", job)
        self._labels = {**whose, "peer": str(peer.peer), "direction": peer.direction}
        self._operations = Sum(Series(f"{_PROXY}_operations_total", self._labels))
        self._bytes = Sum(Series(f"{_PROXY}_bytes_total", self._labels))
        self._waits: dict[str, Sum] = {}
        """By phase; whole microseconds, so that nothing is lost by adding."""
        self.seen_ns = 0

    def add(self, totals: ProxyTotals) -> None:
        self._operations.value += totals.operations
        self._bytes.value += totals.bytes
        for phase, wait_us in totals.waits_us.items():
            wait = self._waits.get(phase)
            if wait is None:
                series = Series(f"{_PROXY}_wait_seconds_total", {**self._labels, "phase": phase})
                wait = self._waits[phase] = Sum(series)
            wait.value += wait_us

    def samples(self, now_ns: int) -> Iterator[Sample]:
        for each in (self._operations, self._bytes):
            yield Sample(each.series, each.value, now_ns)
        for each in self._waits.values():
            yield Sample(each.series, each.value / US, now_ns)


class Sum(msgspec.Struct):
    """A counter and its series."""

    series: Series
    value: int = 0


_PROXY = "fabric_collective_proxy"


class Losses(NamedTuple):
    """The losses that a rank's Inspector reports itself, as series that exist once."""

    collectives: Series
    p2p: Series


_POINT_TO_POINT = frozenset({Operation.SEND, Operation.RECV})
_SEND_RECV = Operation.SEND_RECV
_TallyKey = tuple[str, int, Operation, str]


class Counts:
    """All tallies of a host."""

    def __init__(self) -> None:
        self.left_out = 0
        """Operations that were not counted because of SERIES_MAX."""
        self._tallies: dict[_TallyKey, Tally] = {}
        self._gaps: dict[_TallyKey, Gaps] = {}
        self._losses: dict[tuple[str, int, str], tuple[Losses, Dropped]] = {}
        self._proxies: dict[tuple[Peer, str], Proxied] = {}

    def add(self, record: Collective, now_ns: int) -> None:
        """Count one operation; ``now_ns`` is monotonic."""
        key = (record.communicator, record.rank, record.operation, record.job)
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= SERIES_MAX:
                self.left_out += 1
                return
            tally = self._begin(key)
        tally.operations += 1
        tally.bytes += record.size_bytes or 0
        tally.seconds += record.duration_ns or 0
        tally.seen_ns = now_ns
        tally.gaps.see(record.sequence, record.pid)

    def _begin(self, key: _TallyKey) -> Tally:
        communicator, rank, operation, job = key
        # Sends and receives of a rank share one numbering.
        numbering = _SEND_RECV if operation in _POINT_TO_POINT else operation
        counted = (communicator, rank, numbering, job)
        gaps = self._gaps.get(counted)
        if gaps is None:
            series = Series("fabric_collective_lost_total", labels_of(*counted))
            gaps = self._gaps[counted] = Gaps(series)
        tally = self._tallies[key] = Tally(labels_of(*key), gaps)
        return tally

    def drop(self, dropped: Dropped, job: str) -> None:
        """Use the losses that a rank's Inspector reports, in place of the gaps."""
        communicator, rank = dropped.speaker.communicator, dropped.speaker.rank
        key = (communicator, rank, job)
        known = self._losses.get(key)
        if known is None and len(self._losses) >= SERIES_MAX:
            return
        losses = known[0] if known else make_losses(communicator, rank, job)
        self._losses[key] = losses, dropped

    def add_proxy(self, peer: Peer, totals: ProxyTotals, job: str, now_ns: int) -> None:
        """Count what a rank's proxy did for one peer."""
        key = (peer, job)
        kept = self._proxies.get(key)
        if kept is None:
            if len(self._proxies) >= SERIES_MAX:
                self.left_out += totals.operations
                return
            kept = self._proxies[key] = Proxied(peer, job)
        kept.add(totals)
        kept.seen_ns = now_ns

    def forget(self, before_ns: int) -> None:
        """Forget ranks that did nothing since ``before_ns`` (monotonic)."""
        self._proxies = {
            key: kept for key, kept in self._proxies.items() if kept.seen_ns >= before_ns
        }
        old = [key for key, tally in self._tallies.items() if tally.seen_ns < before_ns]
        for key in old:
            del self._tallies[key]
        if old:
            used = {id(tally.gaps) for tally in self._tallies.values()}
            self._gaps = {key: gaps for key, gaps in self._gaps.items() if id(gaps) in used}
            ranks = {(communicator, rank, job) for communicator, rank, _, job in self._tallies}
            self._losses = {key: loss for key, loss in self._losses.items() if key in ranks}

    def samples(self, now_ns: int) -> Iterator[Sample]:
        for tally in self._tallies.values():
            operations, size, seconds = tally.series
            yield Sample(operations, tally.operations, now_ns)
            yield Sample(size, tally.bytes, now_ns)
            yield Sample(seconds, tally.seconds / NS, now_ns)
        for (communicator, rank, _, job), gaps in self._gaps.items():
            if (communicator, rank, job) not in self._losses:
                yield Sample(gaps.series, gaps.lost, now_ns)
        for losses, dropped in self._losses.values():
            if dropped.collectives is not None:
                yield Sample(losses.collectives, dropped.collectives, now_ns)
            if dropped.p2p is not None:
                yield Sample(losses.p2p, dropped.p2p, now_ns)
        for kept in self._proxies.values():
            yield from kept.samples(now_ns)


def labels_of(communicator: str, rank: int, operation: str, job: str) -> dict[str, str]:
    labels = {"job": job, "rank": str(rank), "communicator": communicator, "operation": operation}
    return {name: value for name, value in labels.items() if value}


def make_losses(communicator: str, rank: int, job: str) -> Losses:
    """The series of losses that a rank reports itself: all collectives together, and P2P."""
    name = "fabric_collective_lost_total"
    return Losses(
        Series(name, labels_of(communicator, rank, "", job)),
        Series(name, labels_of(communicator, rank, _SEND_RECV, job)),
    )


# Thinning ----------------------------------------------------------------------------------------


class Thinner:
    """Which operations are passed on: those whose sequence number 2**power divides."""

    def __init__(self, rows_per_second_max: float) -> None:
        self._rows_max = rows_per_second_max
        self.power = 0
        self.thinned = 0
        """Operations that were not passed on."""
        self._rows = 0
        self._first_ns = self._last_ns = 0

    def keeps(self, record: Collective) -> bool:
        time_ns = record.time_ns
        if not self._rows or time_ns < self._first_ns:
            self._first_ns = time_ns
        if not self._rows or time_ns > self._last_ns:
            self._last_ns = time_ns
        self._rows += 1
        if record.sequence & ((1 << self.power) - 1):
            self.thinned += 1
            return False
        return True

    def adapt(self, seconds: float) -> None:
        """After a read, choose the power for the next; ``seconds`` passed since the last one.

        What counts is the job's time: an agent that reads an hour's log in a second has no more
        rows per second than one that was there all along.
        """
        span = max((self._last_ns - self._first_ns) / NS, seconds, 1e-3)
        rate = self._rows / span
        while self.power < THIN_MAX and rate / (1 << self.power) > self._rows_max:
            self.power += 1
        lower = rate / (1 << max(0, self.power - 1))
        if self.power and lower < THIN_FALL_SHARE * self._rows_max:
            self.power -= 1
        self._rows = 0


# The source --------------------------------------------------------------------------------------


class Writer(NamedTuple):
    """The process that wrote a log. ``host`` is empty for this host, whatever the log calls it."""

    job: str
    host: str
    pid: int


class NcclInspectorFiles:
    """The source; it keeps how far each log was read, and what it counted."""

    name: ClassVar[str] = "nccl_inspector"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._follower: Follower | None = None
        self._restored: dict[str, Any] = {}
        self._readers: dict[tuple[int, int], Reader] = {}
        self._writers: dict[tuple[str, int, str], Writer] = {}
        self._containers = ContainerProcesses()
        self._counts = Counts()
        self._thinner = Thinner(settings.rows_per_second_max)
        self._unparseable = 0
        self._read_ns: int | None = None
        self._prom = PromFiles(settings)
        self._own = {
            what: Series(f"fabric_collective_{what}")
            for what in (
                "kept_one_in",
                "thinned_total",
                "left_out_total",
                "unparseable_lines_total",
                "skipped_bytes_total",
                "files",
                "files_left_out",
            )
        }

    def read(self, host: Host) -> Iterator[Reading]:
        """What was added to the logs since the last read, and all counters."""
        if not self._settings.directories:
            return
        follower = self._follow(host)
        monotonic_ns = host.monotonic_ns()
        missing: dict[Series, Missing] = {}
        for chunk in follower.poll(host):
            if isinstance(chunk, HostError):
                absence = refused(chunk)
                missing.setdefault(absence.series, absence)
            else:
                yield from self._read_chunk(host, chunk, monotonic_ns, missing)
        yield from missing.values()
        elapsed_ns = monotonic_ns - self._read_ns if self._read_ns is not None else 0
        self._thinner.adapt(max(elapsed_ns / NS, self._settings.interval_seconds))
        self._read_ns = monotonic_ns
        identities = {file.identity for file in follower.files}
        self._readers = {key: each for key, each in self._readers.items() if key in identities}
        self._counts.forget(monotonic_ns - FORGET_SECONDS * NS)
        now_ns = host.now_ns()
        yield from self._counts.samples(now_ns)
        yield from self._prom.read(host, now_ns)
        yield from self._about_itself(follower, now_ns)

    def save_state(self) -> dict[str, Any]:
        """How far each log was read, with the header that holds there."""
        return self._follower.save_state() if self._follower is not None else self._restored

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; counters start at 0, which readers take for a reset."""
        self._restored = state

    def _follow(self, host: Host) -> Follower:
        if self._follower is None:
            settings, name = self._settings, host.name
            names = [pattern.replace("{host}", name) for pattern in settings.files]
            self._follower = Follower(
                settings.directories, names, young_seconds=settings.young_seconds
            )
            self._follower.load_state(self._restored)
        return self._follower

    # One chunk of a log ----------------------------------------------------------------------

    def _read_chunk(
        self, host: Host, chunk: Chunk, now_ns: int, missing: dict[Series, Missing]
    ) -> Iterator[Reading]:
        reader = self._reader_of(chunk)
        records = reader.read(chunk.lines)
        chunk.file.note = reader.save()
        for record in records:
            if isinstance(record, ParseError):
                self._unparseable += 1
                absence = not_understood(chunk, record)
                missing.setdefault(absence.series, absence)
            else:
                reading = self._take(host, chunk, record, now_ns)
                if reading is not None:
                    yield reading
        for dropped in reader.dropped:
            speaker = dropped.speaker
            writer = self._writer_of(host, chunk.file.stem, speaker.host, speaker.pid)
            self._counts.drop(dropped, writer.job)
        self._counts.left_out += reader.proxies_left_out
        for peer, totals in reader.proxies.items():
            speaker = peer.speaker
            writer = self._writer_of(host, chunk.file.stem, speaker.host, speaker.pid)
            self._counts.add_proxy(peer, totals, writer.job, now_ns)

    def _take(self, host: Host, chunk: Chunk, record: Record, now_ns: int) -> Reading | None:
        """The record with its job, counted; None if it is thinned out."""
        if isinstance(record, Collective):
            writer = self._writer_of(host, chunk.file.stem, record.host, record.pid)
            record = msgspec.structs.replace(
                record, job=writer.job, host=writer.host, pid=writer.pid
            )
            self._counts.add(record, now_ns)
            return record if self._thinner.keeps(record) else None
        if isinstance(record, Event):
            attributes = record.attributes
            pid = int(attributes.get("pid", "0"))
            writer = self._writer_of(host, chunk.file.stem, attributes.get("host", ""), pid)
            facts = {"job": writer.job, "host": writer.host, "pid": str(writer.pid or "")}
            known = {name: text for name, text in (attributes | facts).items() if text}
            return msgspec.structs.replace(record, attributes=known)
        return record

    def _reader_of(self, chunk: Chunk) -> Reader:
        """The reader of a file; a new one where these lines do not go on from the last."""
        file = chunk.file
        reader = self._readers.get(file.identity)
        if reader is None or not chunk.is_continued:
            reader = self._readers[file.identity] = Reader()
            if chunk.is_continued:
                reader.load(file.note)
        reader.changed_ns = chunk.changed_ns
        return reader

    def _writer_of(self, host: Host, path: str, log_host: str, pid: int) -> Writer:
        """The process that wrote a log; looked up once, because it may be gone next time."""
        key = (log_host, pid, path)
        writer = self._writers.get(key)
        if writer is None:
            if len(self._writers) >= PROCESSES_MAX:
                self._writers.clear()
            writer = self._writers[key] = self._find_writer(host, path, log_host, pid)
        return writer

    def _find_writer(self, host: Host, path: str, log_host: str, pid: int) -> Writer:
        here = self._containers.locate(host, log_host, pid)
        process = read_process(host, here) if here else None
        job = self._settings.job or (process.job if process is not None else "") or job_in(path)
        return Writer(job, "", here) if here else Writer(job, log_host, pid)

    def _about_itself(self, follower: Follower, now_ns: int) -> Iterator[Sample]:
        values = {
            "kept_one_in": 1 << self._thinner.power,
            "thinned_total": self._thinner.thinned,
            "left_out_total": self._counts.left_out,
            "unparseable_lines_total": self._unparseable,
            "skipped_bytes_total": follower.skipped_bytes,
            "files": len(follower.files),
            "files_left_out": follower.left_out,
        }
        for what, value in values.items():
            yield Sample(self._own[what], value, now_ns)


SOURCE = NcclInspectorFiles


def job_in(path: str) -> str:
    """The job that a folder of the path is named after; empty if none is."""
    named = (_JOB_FOLDER.fullmatch(folder) for folder in reversed(path.split("/")[:-1]))
    found = next((match[1] for match in named if match), "")
    return "" if found == "unknown-jobid" else found


def not_understood(chunk: Chunk, error: ParseError) -> Missing:
    """The absence of a log line's reading; only the first of a read is reported."""
    path = chunk.file.path
    detail = f"/{path}, behind byte {chunk.offset}: {error.detail}"
    return Missing(absent_series(path), UnreadReason.UNPARSEABLE, detail)


def refused(error: HostError) -> Missing:
    """The absence of all operations of a file or folder that cannot be read."""
    return Missing(absent_series(error.path), error.reason, str(error))


def absent_series(path: str) -> Series:
    """The series that an absence of a file's readings names."""
    file = printable(path.rpartition("/")[2])
    return Series("fabric_collective_operations_total", {"file": file})


# The Prometheus mode -----------------------------------------------------------------------------


class Meaning(NamedTuple):
    """Our metric for one of the Inspector's: its number is multiplied, divided, and ours."""

    metric: str
    multiply: float = 1.0
    divide: float = 1.0
    operation: str = ""


_BANDWIDTH = "fabric_collective_reported_bus_bandwidth_bytes_per_second"
_DURATION = "fabric_collective_reported_duration_seconds"

MEANINGS = {
    "nccl_bus_bandwidth_gbs": Meaning(_BANDWIDTH, 1e9),
    "nccl_p2p_bus_bandwidth_gbs": Meaning(_BANDWIDTH, 1e9),
    "nccl_algorithm_bandwidth_gbs": Meaning(
        "fabric_collective_reported_algorithm_bandwidth_bytes_per_second", 1e9
    ),
    "nccl_collective_exec_time_microseconds": Meaning(_DURATION, divide=1e6),
    "nccl_p2p_exec_time_microseconds": Meaning(_DURATION, divide=1e6),
    "nccl_collectives_total": Meaning("fabric_collective_reported_operations_total"),
    "nccl_p2p_total": Meaning(
        "fabric_collective_reported_operations_total", operation=Operation.SEND_RECV
    ),
    "nccl_collectives_dropped_total": Meaning("fabric_collective_reported_lost_total"),
    "nccl_p2p_dropped_total": Meaning(
        "fabric_collective_reported_lost_total", operation=Operation.SEND_RECV
    ),
}

_PROM_LINE = re.compile(
    r"([a-z0-9_]{1,64})\{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}"
    r"[ \t]+([-+0-9.eE]{1,32})(?:[ \t].*)?"
)
_PROM_LABEL = re.compile(r"([a-z0-9_]+)=\"((?:[^\"\\]|\\.)*)\"")


class PromFiles:
    """The files of the Prometheus mode: read again when they change, forgotten when they go."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._parsed: dict[str, tuple[FileFacts, list[tuple[Series, float]]]] = {}

    def read(self, host: Host, now_ns: int) -> Iterator[Sample | Missing]:
        """All numbers of the files that are not stale."""
        found = find_files(host, self._settings.directories, _PROM_FILES)
        fresh_ns = now_ns - int(self._settings.stale_seconds * NS)
        before, self._parsed = self._parsed, {}
        taken: set[Series] = set()
        for path, facts in found.files.items():
            gpu = _PROM_FILE.fullmatch(path.rpartition("/")[2])
            if gpu is None or facts.changed_ns < fresh_ns:
                continue
            known = before.get(path)
            if known is None or known[0] != facts:
                try:
                    text = host.read_at(path, 0, PROM_BYTES_MAX, facts.identity)
                except HostError as error:
                    yield refused(error)
                    continue
                old = {series: series for series, _ in known[1]} if known else {}
                numbers = parse_prom(text, f"GPU-{gpu[1].lower()}")
                known = facts, [(old.get(series, series), value) for series, value in numbers]
            self._parsed[path] = known
            for series, value in known[1]:
                if series not in taken:
                    taken.add(series)
                    yield Sample(series, value, now_ns)


def parse_prom(content: bytes, gpu: str) -> list[tuple[Series, float]]:
    """The numbers of one file as our series; the last line only if it is whole.

    The plugin rewrites the file in place: a reader may see only its beginning. Of lines that
    differ only in what is no label of ours (2.29 has the operation's number) the last counts.
    """
    whole = content[: content.rfind(b"\n") + 1].decode("utf-8", "replace")
    numbers: dict[Series, float] = {}
    for line in whole.splitlines():
        match = _PROM_LINE.fullmatch(line.strip())
        meaning = MEANINGS.get(match[1]) if match else None
        if match is None or meaning is None:
            continue
        try:
            value = float(match[3]) * meaning.multiply / meaning.divide
        except ValueError:
            continue  # "nan", or half a number
        theirs = dict(_PROM_LABEL.findall(match[2]))
        series = Series(meaning.metric, prom_labels(theirs, gpu, meaning))
        if series in numbers or len(numbers) < PROM_SERIES_MAX:
            numbers[series] = value
    return list(numbers.items())


def prom_labels(theirs: dict[str, str], gpu: str, meaning: Meaning) -> dict[str, str]:
    """Our labels for theirs, of both generations (2.29 and from 2.30 on)."""

    def first(*names: str) -> str:
        texts = (theirs.get(name, "") for name in names)
        return next((text for text in texts if text and text.lower() != UNKNOWN), "")

    operation = first("collective", "p2p_operation")
    algorithm, _, protocol = first("algo_proto").lower().rpartition("_")
    commhash = first("comm_id")
    labels = {
        "job": first("slurm_job_id", "slurm_job"),
        "communicator": communicator_id(commhash) if commhash else first("comm_name"),
        "rank": first("rank"),
        "operation": OPERATIONS.get(operation, Operation.OTHER) if operation else meaning.operation,
        "size": first("message_size"),
        "ranks": first("nranks"),
        "nodes": first("n_nodes"),
        "algorithm": algorithm,
        "protocol": protocol,
        "gpu": gpu,
    }
    return {name: printable(text)[:LABEL_CHARACTERS_MAX] for name, text in labels.items() if text}
