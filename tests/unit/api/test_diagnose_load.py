"""What becomes of a file's records: kept, refused by name, or given to the set they belong to."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from api.data.ingest.columns import SampleColumns
from api.data.inventory.job_model import JobFound
from api.diagnose import load
from api.diagnose.bandwidth import Results
from api.diagnose.find import Found
from api.diagnose.jobs import Job, best_job
from api.diagnose.load import FileRead, Loader, Sink, by_format
from api.diagnose.sets import Collection, Collections, ProcessFile
from collector.contract.collective import Collective, Operation, StepSpan
from collector.contract.model import Event, Sample, Series

NOW_NS = 1_794_700_000_000_000_000
DAY_NS = 86_400_000_000_000


class Tables:
    """Stands for the store: keeps what is inserted."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.results = Results()

    def add_event(self, event: Event) -> str | None:
        self.rows.setdefault("events", []).append(msgspec.to_builtins(event))
        return None

    def insert_arrow(self, table: str, rows: pa.Table) -> None:
        self.rows.setdefault(table, []).extend(rows.to_pylist())

    def insert_samples(self, samples: SampleColumns) -> None:
        self.rows.setdefault("samples", []).extend({} for _ in range(len(samples)))


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def sink(tables: Tables) -> Sink:
    return Sink(tables)  # type: ignore[arg-type]


def collective(**changes: object) -> Collective:
    usual = {
        "communicator": "0x1",
        "operation": Operation.ALL_REDUCE,
        "sequence": 1,
        "rank": 0,
        "ranks": 2,
        "source": "nccl_inspector",
        "time_ns": NOW_NS,
    }
    return msgspec.convert({**usual, **changes}, Collective)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"time_ns": 5}, "before the year 2000"),
        ({"time_ns": (1 << 63) - 1}, "after 2050"),
        ({"communicator": ""}, "a name that is empty"),
        ({"host": "x" * 300}, "over 255 characters"),
        ({"host": "a\x1bb"}, "not printable"),
    ],
)
def test_a_record_that_cannot_be_is_refused_by_name(
    sink: Sink, changes: dict[str, Any], reason: str
) -> None:
    assert reason in (sink.add_collective(collective(**changes)) or "")
    assert sink.add_collective(collective()) is None


def test_a_file_cannot_make_a_partition_for_every_line(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "DAYS_MAX", 3)
    answers = [sink.add_collective(collective(time_ns=NOW_NS + n * DAY_NS)) for n in range(5)]
    assert [answer is None for answer in answers] == [True, True, True, False, False]
    assert "DAYS_MAX = 3" in (answers[-1] or "")


def test_samples_have_bounds_and_events_are_text(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "SERIES_MAX", 1)
    one, two = (Sample(Series("m", {"x": label}), 1.0, NOW_NS) for label in "ab")
    assert sink.add_sample(one) is None
    assert sink.add_sample(one) is None
    assert "SERIES_MAX" in (sink.add_sample(two) or "")
    odd = Event(kind="x", time_ns=NOW_NS, labels={"a": "\udcff"})
    assert "not Unicode" in (sink.add_event(odd) or "")


def test_steps_must_end_after_they_begin(sink: Sink) -> None:
    step = StepSpan(step=1, start_ns=NOW_NS, end_ns=NOW_NS - 1, source="steps")
    assert "ends before" in (sink.add_step(step) or "")


def test_what_waits_is_written_when_there_is_enough_of_it(
    sink: Sink, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "ROWS_HELD_MAX", 10)
    for number in range(25):
        sink.add_collective(collective(sequence=number))
    assert len(tables.rows["collectives"]) == 20
    sink.flush()
    assert len(tables.rows["collectives"]) == 25


# --- which files belong together ---------------------------------------------------------------


def dump(folder: str, rank: int, time_ns: int = NOW_NS) -> ProcessFile:
    record = collective(communicator="pg:0:aa", source="flight_recorder", time_ns=time_ns)
    return ProcessFile(
        source="flight_recorder",
        folder=folder,
        rank=rank,
        collectives=[record],
        steps=[],
        events=[],
    )


def place_all(*files: ProcessFile) -> list[int]:
    collections = Collections()
    return [collections.place(file).number for file in files]


def test_files_of_one_folder_are_of_one_job() -> None:
    assert place_all(*(dump("run/fr", rank) for rank in range(4))) == [1, 1, 1, 1]


def test_the_same_ranks_in_two_folders_are_two_jobs() -> None:
    files = [dump(folder, rank) for folder in ("runs/a", "runs/b") for rank in (0, 1, 2)]
    assert place_all(*files) == [1, 1, 1, 2, 2, 2]


def test_a_folder_for_each_host_is_one_job() -> None:
    assert place_all(*(dump(f"dumps/node{rank // 2}", rank) for rank in range(6))) == [1] * 6


def test_folders_far_apart_in_time_or_place_are_two_jobs() -> None:
    hour = 3_600_000_000_000
    assert place_all(dump("dumps/a", 0), dump("dumps/b", 1, NOW_NS + hour)) == [1, 2]
    assert place_all(dump("one/fr", 0), dump("two/fr", 1)) == [1, 2]


def test_the_second_set_has_names_of_its_own() -> None:
    assert Collection(source="kineto", number=1, folders=[]).suffix == ""
    assert Collection(source="kineto", number=2, folders=[]).suffix == "@2"


def a_job(name: str, ranks: int, first_ns: int, folder: str) -> Job:
    found = JobFound(
        job=name, was_said=False, ranks=ranks, places=(), communicators=(), hosts=frozenset(),
        first_ns=first_ns, last_ns=first_ns + 10**9,
    )  # fmt: skip
    return Job(
        name=name, found=found, folders=[folder], first_ns=first_ns, last_ns=first_ns + 10**9
    )


def test_a_set_goes_to_the_job_that_it_fits() -> None:
    early, late = a_job("a", 8, NOW_NS, "x/run1/logs"), a_job("b", 8, NOW_NS, "x/run2/logs")
    small, old = a_job("c", 2, NOW_NS, "x/run2/fr"), a_job("d", 8, NOW_NS - 10**15, "x/run2/fr")
    dumps = Collection(
        source="flight_recorder", number=1, folders=["x/run2/fr"], ranks={0, 7}, first_ns=NOW_NS,
        last_ns=NOW_NS,
    )  # fmt: skip
    assert best_job([early, late, small, old], dumps) is late
    assert best_job([small, old], dumps) is None


# --- whole files -------------------------------------------------------------------------------


def read(tables: Tables, content: bytes) -> FileRead:
    loader = Loader(tables)  # type: ignore[arg-type]
    seen: list[int] = []
    account = loader.read(
        Found("x/some.log", len(content), NOW_NS), io.BytesIO(content), seen.append
    )
    loader.finish()
    assert sum(seen) == len(content)
    assert account is not None
    return account


def test_a_file_that_nobody_knows_has_no_format(tables: Tables) -> None:
    assert read(tables, b"hello").format == ""
    assert read(tables, b"").problems == ["empty"]
    assert tables.rows == {}


def test_problems_are_counted_and_a_few_are_named(tables: Tables) -> None:
    path = next(Path(__file__).parents[2].glob("fixtures/formats/nccl_inspector/verbose*/input*"))
    line = path.read_bytes().splitlines()[0] + b"\n"
    account = read(tables, line + b"{broken\n" * 50 + line)
    assert account.format == "nccl_inspector"
    assert (account.problem_count, len(account.problems)) == (50, load.PROBLEMS_NAMED_MAX)
    assert account.counts["collectives"] == 2
    (total,) = by_format([account], {})
    assert (total.files, total.problem_count) == (1, 50)


def test_two_runs_in_one_folder_are_two_jobs() -> None:
    """A month lies between them; a rank without any time is of the run that lacks it."""
    month = 27 * DAY_NS
    files = [dump("fr", rank, NOW_NS + later) for later in (0, month) for rank in (0, 1)]
    timeless = [ProcessFile(source="flight_recorder", folder="fr", rank=2) for _ in range(2)]
    assert place_all(*files, *timeless) == [1, 1, 2, 2, 1, 2]


def test_dumps_whose_jobs_have_other_ranks_are_two_jobs() -> None:
    files = [
        ProcessFile(source="flight_recorder", folder="fr", rank=rank, default_group=group)
        for rank, group in enumerate(("pg:0:aa", "pg:0:bb", "pg:0:aa", ""))
    ]
    assert place_all(*files) == [1, 2, 1, 1]


def test_a_rank_of_another_process_is_of_another_run() -> None:
    """A profiler may write several files of one process; a restart has new ones."""
    files = [
        ProcessFile(source="kineto", folder="traces", rank=0, pid=pid, world_size=size)
        for pid, size in ((7, 8), (7, 8), (9, 8), (7, 4))
    ]
    for number, file in enumerate(files):
        file.collectives = [collective(time_ns=NOW_NS + number)]
    assert place_all(*files) == [1, 1, 2, 3]


def test_a_second_copy_of_a_dump_that_is_cut_off_takes_nothing_from_the_whole_one() -> None:
    """PyTorch writes a dump as a pickle and as JSON."""
    parts = [dump("fr", 0), ProcessFile(source="flight_recorder", folder="fr", rank=0, is_cut=True)]
    for files in (parts, parts[::-1]):
        collections = Collections()
        assert [collections.place(file).cut for file in files][-1] == set()
        assert len(collections.all) == 1


LINE = (
    b"node0:17:17 [0] NCCL INFO ncclCommInitRank comm 0xaa rank 0 nranks 8 cudaDev 0 nvmlDev 0 "
    b"busId 1000 commId 0x11 - Init COMPLETE\n"
)


@pytest.mark.parametrize("changed_ns", [0, 1, NOW_NS])
def test_lines_of_a_file_of_1970_are_of_the_time_of_the_others(
    tables: Tables, changed_ns: int
) -> None:
    loader = Loader(tables)  # type: ignore[arg-type]
    found = Found("nccl.log", len(LINE), changed_ns)
    account = loader.read(found, io.BytesIO(LINE), lambda _: None)
    loader.loaded.files.append(FileRead(path="other", first_ns=NOW_NS))
    loader.finish()
    (event,) = tables.rows["events"]
    assert account is not None
    assert account.refused == {}
    assert account.counts == {"events": 1}
    assert event["labels"]
    assert event["time_ns"] == NOW_NS


def test_a_rank_that_the_run_lacks_may_be_of_a_host_in_another_time_zone() -> None:
    """Of a rank that is there already, or of other groups, it is another run."""
    hours = DAY_NS // 2
    collections = Collections()

    def placed(rank: int, later_ns: int, group: str = "pg:0:aa") -> int:
        file = dump("fr", rank, NOW_NS + later_ns)
        file.collectives = [
            msgspec.structs.replace(one, communicator=group) for one in file.collectives
        ]
        found = collections.place(file)
        found.sizes.setdefault(group + found.suffix, 8)
        return found.number

    assert [placed(0, 0), placed(1, 0), placed(2, hours), placed(3, 0)] == [1, 1, 1, 1]
    assert placed(1, -hours) == 2
    assert placed(4, 4 * hours) == 3
    assert placed(5, -2 * hours, "pg:0:bb") == 4
