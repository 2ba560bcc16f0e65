"""From found files to rows of a throw-away store, and to a summary of what was read.

Names of NCCL's communicators are unique in the world, but those of a framework's process groups are
not: every job has a group `0`. Files with such groups come one per rank and are stored together;
each such set is a `Collection`, and in the store its communicators carry the set's number.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec
import numpy as np

from api.data.ingest.columns import MS_PER_DAY, SampleColumns
from api.diagnose.archives import Budget, kind_of, members_of
from api.diagnose.bandwidth import is_result
from api.diagnose.find import (
    EARLIEST_NS,
    STANDARD_INPUT,
    Found,
    Stream,
    WithoutPrefixes,
    hint_of,
    origin_of,
    recognise,
)
from api.diagnose.sets import (
    RANK_EVENTS,
    Collection,
    Collections,
    ProcessFile,
    learn_group,
    learn_process,
)
from collector.contract.collective import Collective, StepSpan
from collector.contract.communicator import COMMUNICATOR, RANK, parse_ranks
from collector.contract.errors import IdentityError, ParseError
from collector.contract.identity import check_labels, metric_id, printable
from collector.contract.model import Event, Sample, Series
from collector.contract.records import NAME_CHARS_MAX
from collector.contract.units import NS_PER_MS
from collector.formats import Format, Origin, Record, job_log
from collector.formats.nccl_tests import NCCL_TEST
from collector.parsing.dcgm_blanks import FIELD_PREFIX, is_blank
from collector.parsing.last_words import LAST_WORDS
from collector.parsing.prefixes import strip_prefixes

if TYPE_CHECKING:
    from api.data.ingest.series import NewSeries
    from api.diagnose.throw_away import ThrowAwayStore

T = TypeVar("T")

LATEST_NS = 2_524_608_000_000_000_000
"""The year 2050: the store's own clock ends in 2106, and rows live for RETENTION_DAYS."""
DAYS_MAX = 366
"""Different days of one table: each is a partition, and a file that claims a new day on every line
would make millions of them."""
ROWS_HELD_MAX = 200_000
"""Rows that wait for an insert: some hundred megabytes."""
UNTIMED_MAX = 200_000
"""Events and samples without a time that are held until all files are read: some hundred MB."""
SERIES_MAX = 1_000_000
"""Distinct series: about 400 MB."""
PROBLEMS_NAMED_MAX = 20
"""Problems of one file that are named; the others are counted."""
ARCHIVES_DEEP_MAX = 1
"""Archives within archives: one tar for each host in one zip for all. A zip that holds itself has
no end."""
WORDS_KEPT = 100_000
"""Sets of names that were checked and are not checked again."""

PATH = "path"
"""The attribute of last words with the folder of their file."""

words_of = attrgetter("communicator", "source", "algorithm", "protocol", "host", "job")


class FileRead(msgspec.Struct, kw_only=True):
    """The result of reading one file."""

    path: str
    format: str = ""
    packing: str = ""
    size_bytes: int = 0
    counts: dict[str, int] = {}
    """Records by kind: collectives, steps, events, samples."""
    first_ns: int | None = None
    last_ns: int | None = None
    problems: list[str] = []
    problem_count: int = 0
    refused: dict[str, int] = {}
    """Records that were read and left out, by the reason."""

    @property
    def records(self) -> int:
        return sum(self.counts.values())

    def note(self, problem: str) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_NAMED_MAX:
            self.problems.append(printable(problem)[:400])

    def span(self, time_ns: int) -> None:
        if self.first_ns is None or time_ns < self.first_ns:
            self.first_ns = time_ns
        if self.last_ns is None or time_ns > self.last_ns:
            self.last_ns = time_ns


class Loaded(msgspec.Struct, kw_only=True):
    """The account of everything that was read."""

    files: list[FileRead] = []
    left_out: list[tuple[str, str]] = []
    collections: list[Collection] = []
    inspector_folders: dict[tuple[str, int], str] = {}
    """Where the log of each process (host, pid) lay."""
    dumps: list[tuple[str, int, Found]] = []
    """Flight Recorder dumps, to be read again: the set (`Collection.key`), the rank, the file."""

    def note_unreadable(self, found: Found, why: str) -> None:
        path = printable(found.path)
        self.files.append(FileRead(path=path, problems=[why], problem_count=1, counts={}))


class Sink:
    """Buffers rows for inserts. Rows that the store cannot hold are refused with a reason."""

    def __init__(self, store: ThrowAwayStore) -> None:
        self._store = store
        self._collectives: list[Collective] = []
        self._steps: list[StepSpan] = []
        self._words: set[tuple[str, ...]] = set()
        self._days: dict[str, set[int]] = {}
        self._rows: dict[Series, tuple[int, int] | None] = {}
        self._series_days: set[tuple[int, int]] = set()
        self._new_series: list[NewSeries] = []
        self._metric, self._series = array("I"), array("Q")
        self._time_ms, self._value = array("q"), array("d")

    def add_collective(self, record: Collective) -> str | None:
        """The reason if the record is refused."""
        words = words_of(record)
        if words not in self._words:
            if not all(map(is_word, words)) or not record.communicator:
                return "a name that is empty, over 255 characters or not printable"
            if len(self._words) < WORDS_KEPT:
                self._words.add(words)
        if reason := self._refuse_time("collectives", record.time_ns):
            return reason
        self._collectives.append(record)
        if len(self._collectives) >= ROWS_HELD_MAX:
            self.flush()
        return None

    def add_step(self, span: StepSpan) -> str | None:
        if not all(is_word(word) for word in (span.phase, span.host, span.job)):
            return "a name that is empty, over 255 characters or not printable"
        if reason := self._refuse_time("steps", span.start_ns):
            return reason
        if not span.start_ns <= span.end_ns <= LATEST_NS:
            return "a step that ends before it begins"
        self._steps.append(span)
        if len(self._steps) >= ROWS_HELD_MAX:
            self.flush()
        return None

    def add_event(self, event: Event) -> str | None:
        if reason := self._refuse_time("events", event.time_ns):
            return reason
        if not is_text(event):
            return "a text that is not Unicode"
        return self._store.add_event(event)

    def add_sample(self, sample: Sample) -> str | None:
        if reason := self._refuse_time("samples", sample.time_ns):
            return reason
        if sample.series.metric.startswith(FIELD_PREFIX) and is_blank(sample.value):
            return "a number that DCGM writes where it has none"
        row = self._rows.get(sample.series, ())
        if row == ():
            row = self._name(sample.series)
        if not row:
            return "labels that cannot name a series, or over SERIES_MAX of them"
        metric, identity = row
        time_ms = sample.time_ns // NS_PER_MS
        day = time_ms // MS_PER_DAY
        if (day, identity) not in self._series_days:
            from api.data.ingest.series import NewSeries  # noqa: PLC0415 - see `flush`

            self._series_days.add((day, identity))
            self._new_series.append(NewSeries(day, identity, sample.series.full_labels({})))
        self._metric.append(metric)
        self._series.append(identity)
        self._time_ms.append(time_ms)
        self._value.append(sample.value)
        if len(self._metric) >= ROWS_HELD_MAX:
            self.flush()
        return None

    def _name(self, series: Series) -> tuple[int, int] | None:
        if len(self._rows) >= SERIES_MAX:
            return None
        try:
            check_labels(series.full_labels({}))
            row = metric_id(series.metric), series.identify({})
        except (IdentityError, UnicodeEncodeError):
            row = None
        self._rows[series] = row
        return row

    def _refuse_time(self, table: str, time_ns: int) -> str | None:
        if not EARLIEST_NS <= time_ns <= LATEST_NS:
            return "a time before the year 2000 or after 2050"
        days = self._days.setdefault(table, set())
        day = time_ns // (MS_PER_DAY * NS_PER_MS)
        if day in days:
            return None
        if len(days) >= DAYS_MAX:
            return f"over DAYS_MAX = {DAYS_MAX} different days"
        days.add(day)
        return None

    def flush(self) -> None:
        if not (self._collectives or self._steps or self._metric):
            return
        # What writes rows brings half of the service's modules; a folder without rows has no use
        # for them.
        from api.data.ingest.commit import series_rows  # noqa: PLC0415
        from api.data.ingest.records import insert_collectives, insert_steps  # noqa: PLC0415

        if self._collectives:
            insert_collectives(self._store, taken(self._collectives))
        if self._steps:
            insert_steps(self._store, taken(self._steps))
        if self._new_series:
            self._store.insert_arrow("series", series_rows(taken(self._new_series)))
        if len(self._metric):
            columns = SampleColumns(
                np.array(self._metric, dtype=np.uint32),
                np.array(self._series, dtype=np.uint64),
                np.array(self._time_ms, dtype=np.int64),
                np.array(self._value, dtype=np.float64),
            )
            self._store.insert_samples(columns)
            for column in (self._metric, self._series, self._time_ms, self._value):
                del column[:]


def is_word(text: str) -> bool:
    """As `api.data.ingest.records` has it: short and printable, or empty."""
    return len(text) <= NAME_CHARS_MAX and text.isprintable()


def is_text(event: Event) -> bool:
    try:
        for text in (event.kind, event.message):
            text.encode()
        for words in (event.labels, event.attributes):
            "".join((*words, *words.values())).encode()
    except UnicodeEncodeError:
        return False
    return True


def taken(items: list[T]) -> list[T]:
    some = list(items)
    items.clear()
    return some


class Loader:
    """Reads files, one after the other, into the store."""

    def __init__(self, store: ThrowAwayStore) -> None:
        self._results = store.results
        self._sink = Sink(store)
        self._collections = Collections()
        self._untimed: list[tuple[Event | Sample, FileRead]] = []
        self.loaded = Loaded()

    def read(
        self,
        found: Found,
        file: BinaryIO,
        on_read: Callable[[int], None],
        inside: Budget | None = None,
    ) -> FileRead | None:
        """Never raises because of a file's content. None for an archive: its files are read.

        ``inside``: of a file in an archive, what that may still unpack to.
        """
        stream = Stream(file, on_read, inside)
        if kind := kind_of(stream.head):
            self._read_archive(found, file, stream, kind, inside)
            return None
        account = self._account_of(found)
        account.packing = stream.packing
        origin = origin_of(found)
        reader, lines = recognise_lines(stream, origin)
        is_sure = reader is not None
        if reader is None and stream.head and job_log.is_text(stream.head):
            # Of a training log nothing but its end may be of use: it is looked through as a whole.
            reader = job_log.FORMAT
            is_sure = reader.recognises(stream.head, origin)
        elif reader is None:
            if stream.broken is not None:
                account.note(str(stream.broken))
            elif not stream.head:
                account.note("empty")
            elif hint := hint_of(stream.head):
                account.note(hint)
            return account
        process = ProcessFile(source=reader.name, folder=found.folder, collectives=[], steps=[])
        process.events = []
        for record in self._parse(reader, lines, account, found):
            is_sure = True
            self._take(record, process, account)
        # A text without any last words is somebody's, and not understood.
        account.format = reader.name if is_sure else ""
        if not is_sure and (hint := hint_of(stream.head)):
            account.note(hint)
        if stream.broken is not None:
            account.note(str(stream.broken))
        self._place(process, account)
        is_dump = process.source == "flight_recorder" and not found.is_pipe and not found.depth
        if is_dump and process.collection is not None and process.rank is not None:
            self.loaded.dumps.append((process.collection.key, process.rank, found))
        return account

    def _account_of(self, found: Found) -> FileRead:
        account = FileRead(
            path="standard input" if found.path == STANDARD_INPUT else printable(found.path),
            size_bytes=found.size_bytes,
            counts={},
            problems=[],
            refused={},
        )
        self.loaded.files.append(account)
        return account

    def _read_archive(
        self, found: Found, file: BinaryIO, stream: Stream, kind: str, inside: Budget | None
    ) -> None:
        """Read its files, each as a file of its own; archives in an archive in it are not read."""
        budget = inside or Budget(found.size_bytes)
        if inside is not None and found.depth > ARCHIVES_DEEP_MAX:
            self._account_of(found).note(
                "an archive in an archive in an archive: unpack the outermost first"
            )
            return
        is_plain = not stream.packing and not found.is_pipe and inside is None
        read = 0
        for member in members_of(kind, stream, budget, file if is_plain else None):
            if isinstance(member, ParseError):
                where = found.path + (f"/{member.where}" if member.where else "")
                self.loaded.left_out.append((printable(where), member.detail))
                continue
            read += 1
            self.read(
                Found(
                    f"{found.path}/{member.name}",
                    member.size_bytes,
                    member.changed_ns or found.changed_ns,
                    depth=found.depth + 1,
                ),
                member.file,
                lambda _: None,
                budget,
            )
        if stream.broken is not None:
            self.loaded.left_out.append((printable(found.path), str(stream.broken)))
        if not read:
            self._account_of(found).note(f"a {kind} archive without files that could be read")

    def _parse(
        self, reader: Format, stream: BinaryIO, account: FileRead, found: Found
    ) -> Iterator[Record]:
        """The file's records; what is not understood is noted."""
        try:
            for record in reader.parse(stream, origin_of(found)):
                if isinstance(record, ParseError):
                    account.note(str(record))
                else:
                    yield record
        except ParseError as error:
            account.note(str(error))

    def _take(self, record: Record, process: ProcessFile, account: FileRead) -> None:
        if isinstance(record, Sample) and is_result(record):
            refused = self._results.add(account.path, record)
            self._count(account, "samples", record.time_ns, refused)
        elif isinstance(record, Sample) and not record.time_ns:
            self._hold(record, account)
        elif isinstance(record, Sample):
            self._count(account, "samples", record.time_ns, self._sink.add_sample(record))
        elif isinstance(record, Collective):
            if record.communicator.startswith("pg:"):
                process.collectives.append(record)
                self._make_room(process, account)
                return
            if record.pid and record.host:
                folders = self.loaded.inspector_folders
                folders.setdefault((record.host, record.pid), process.folder)
            self._count(account, "collectives", record.time_ns, self._sink.add_collective(record))
        elif isinstance(record, StepSpan):
            process.steps.append(record)
            self._make_room(process, account)
        else:
            ranks = parse_ranks(record.labels.get(RANK, ""))
            if record.kind in RANK_EVENTS and ranks:
                process.rank = ranks[0]
            learn_process(process, record)
            if record.kind == NCCL_TEST:
                self._results.describe(account.path, record)
            process.events.append(record)
            self._make_room(process, account)

    def _hold(self, record: Event | Sample, account: FileRead) -> None:
        """Keep what has no time, nor has its file, until all times are known."""
        if len(self._untimed) < UNTIMED_MAX:
            self._untimed.append((record, account))
        else:
            self._count(account, "events", 0, f"over UNTIMED_MAX = {UNTIMED_MAX} without a time")

    def _make_room(self, process: ProcessFile, account: FileRead) -> None:
        held = len(process.collectives) + len(process.steps) + len(process.events)
        if held >= ROWS_HELD_MAX:
            self._place(process, account)

    def _count(self, account: FileRead, kind: str, time_ns: int, refused: str | None) -> None:
        if refused is not None:
            account.refused[refused] = account.refused.get(refused, 0) + 1
            return
        account.counts[kind] = account.counts.get(kind, 0) + 1
        if kind != "events":  # some know only when their file was changed
            account.span(time_ns)

    def _place(self, process: ProcessFile, account: FileRead) -> None:
        """Store what waited for the file's end, under the names of its set."""
        is_of_groups = process.collectives or process.source in ("flight_recorder", "kineto")
        if is_of_groups and process.collection is None:
            if process.rank is None and process.steps:
                process.rank = process.steps[0].rank
            process.collection = self._collections.place(process)
            self.loaded.collections = self._collections.all
        where = process.collection
        suffix = where.suffix if where is not None else ""
        for record in taken(process.collectives):
            assert where is not None
            named = replace(record, communicator=record.communicator + suffix) if suffix else record
            self._learn(where, named, process.rank)
            self._count(account, "collectives", named.time_ns, self._sink.add_collective(named))
        for span in taken(process.steps):
            job = span.job or (where.key if where is not None and not span.host else "")
            placed = replace(span, job=job) if job != span.job else span
            self._count(account, "steps", span.start_ns, self._sink.add_step(placed))
        for event in taken(process.events):
            renamed = named_event(event, suffix)
            if event.kind == LAST_WORDS:
                where_it_lay = {**event.attributes, PATH: printable(process.folder)[:1000]}
                renamed = replace(event, attributes=where_it_lay)
            if where is not None:
                learn_group(where, renamed, process.rank)
            if not event.time_ns:
                self._hold(renamed, account)
            else:
                self._count(account, "events", event.time_ns, self._sink.add_event(renamed))

    @staticmethod
    def _learn(where: Collection, record: Collective, rank: int | None) -> None:
        if record.pid:
            where.pids.add(record.pid)
        where.sizes[record.communicator] = max(
            record.ranks, where.sizes.get(record.communicator, 0)
        )
        if rank is not None:
            where.job_ranks[record.communicator, record.rank] = rank

    def finish(self) -> Loaded:
        # Neither these lines nor their file have a time: they are of the time of what has one.
        times = [file.first_ns for file in self.loaded.files if file.first_ns is not None]
        start_ns = min(times, default=EARLIEST_NS)
        for record, account in taken(self._untimed):
            timed = replace(record, time_ns=start_ns)
            if isinstance(timed, Sample):
                self._count(account, "samples", start_ns, self._sink.add_sample(timed))
            else:
                self._count(account, "events", start_ns, self._sink.add_event(timed))
        self._sink.flush()
        return self.loaded


def recognise_lines(stream: Stream, origin: Origin) -> tuple[Format | None, BinaryIO]:
    """The format of a file, and its content: without prefixes where it is read only without."""
    plain: BinaryIO = stream  # type: ignore[assignment]
    reader = recognise(stream.head, origin) if stream.head else None
    # Launchers' prefixes alone make a job's log of any text.
    if not stream.head or (reader is not None and reader is not job_log.FORMAT):
        return reader, plain
    stripped = strip_prefixes(stream.head)
    behind = recognise(stripped, origin) if stripped != stream.head else None
    if reader is not None and behind in (None, job_log.FORMAT):
        return reader, plain
    return behind, WithoutPrefixes(plain)  # type: ignore[return-value]


def replace(record: T, **changes: object) -> T:
    return msgspec.structs.replace(record, **changes)  # type: ignore[type-var]


def named_event(event: Event, suffix: str) -> Event:
    """The event under the name that its communicator has in the store."""
    communicator = event.labels.get(COMMUNICATOR, "")
    if not suffix or not communicator.startswith("pg:"):
        return event
    return replace(event, labels={**event.labels, COMMUNICATOR: communicator + suffix})


class FormatRead(msgspec.Struct, kw_only=True):
    """The result of reading all files of one format."""

    format: str
    title: str
    files: int
    size_bytes: int
    counts: dict[str, int]
    first_ns: int | None
    last_ns: int | None
    problem_count: int
    refused: dict[str, int]


def by_format(files: Iterable[FileRead], titles: dict[str, str]) -> list[FormatRead]:
    """The sums of each format, in order of their names."""
    groups: dict[str, list[FileRead]] = {}
    for file in files:
        if file.format:
            groups.setdefault(file.format, []).append(file)
    found = []
    for name, some in sorted(groups.items()):
        counts: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for file in some:
            counts.update(file.counts)
            refused.update(file.refused)
        found.append(
            FormatRead(
                format=name,
                title=titles.get(name, name),
                files=len(some),
                size_bytes=sum(file.size_bytes for file in some),
                counts=dict(sorted(counts.items())),
                first_ns=min((f.first_ns for f in some if f.first_ns is not None), default=None),
                last_ns=max((f.last_ns for f in some if f.last_ns is not None), default=None),
                problem_count=sum(file.problem_count for file in some),
                refused=dict(sorted(refused.items())),
            )
        )
    return found
