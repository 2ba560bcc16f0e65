"""The join inside the store gives what the join in memory gives, with and without clocks moved."""

from collections.abc import Iterator

import numpy as np
import pytest

from alerts.window.clocks import align
from alerts.window.columns import Operations, Records
from alerts.window.common_clock import correct
from alerts.window.model import Communicator, JobWindow, Rank
from alerts.window.slices import whole_steps
from alerts.window.split import split
from api.data.ingest.records import insert_collectives
from api.data.store.store import Store, StoreUrl
from api.jobs.correlate.join import split_in_store
from api.jobs.correlate.read import Question, read_records
from api.jobs.correlate.window import look, look_in_slices, steps_of
from collector.contract.collective import Collective, Operation, Timing
from collector.contract.errors import StoreError
from collector.contract.units import NS
from tests.worlds.collectives import START_NS, make_records, set_clocks, shift_clocks
from tests.worlds.late_jobs import make_window
from tests.worlds.shifted import verdicts_of

SOURCES = ["nccl_inspector"]
END_NS = START_NS + 3_600 * NS
MS = 1_000_000


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = Store(StoreUrl.parse(f"chdb://{tmp_path_factory.mktemp('store')}/telemetry"))
    opened.migrate()
    yield opened
    opened.close()


def fill(store: Store, *, moved: bool) -> None:
    """A minute of a job of eight hosts, some records lost, some sent twice."""
    records = make_records(steps=400, step_seconds=0.6)
    if moved:
        offsets = np.linspace(-200 * MS, 200 * MS, 8)
        records = shift_clocks(records, offsets, np.linspace(-4e-5, 4e-5, 8))
    insert(store, records, lost=0.02)


def insert(store: Store, records: Records, *, lost: float = 0.0) -> None:
    random = np.random.default_rng(2)
    rows = [
        Collective(
            communicator=records.communicators[records.communicator[row]],
            operation=Operation(records.operations[records.operation[row]]),
            sequence=int(records.sequence[row]),
            rank=int(records.rank[row]),
            ranks=int(records.ranks[row]),
            source="nccl_inspector",
            time_ns=int(records.exit_ns[row]),
            entry_ns=int(records.entry_ns[row]),
            exit_ns=int(records.exit_ns[row]),
            size_bytes=int(records.size_bytes[row]),
            timing=Timing.KERNEL,
            host=records.hosts[records.host[row]],
            pid=int(records.pid[row]),
        )
        for row in np.flatnonzero(random.random(len(records)) >= lost)
    ]
    insert_collectives(store, rows)
    insert_collectives(store, rows[::7])


def same(one: Operations, other: Operations) -> None:
    assert len(one) == len(other) > 700
    for name, column in one.arrays().items():
        if name in {"communicator", "operation"}:
            names = f"{name}s"
            first = [getattr(one, names)[code] for code in column]
            assert first == [getattr(other, names)[code] for code in getattr(other, name)]
        else:
            assert (column == getattr(other, name)).all(), name


@pytest.mark.parametrize("moved", [False, True])
def test_both_joins_agree(store: Store, moved: bool) -> None:  # noqa: FBT001 - the two cases
    fill(store, moved=moved)
    raw = read_records(store, Question(None, START_NS - NS, END_NS, SOURCES))
    clocks = align(raw)
    assert len(clocks) == 2
    assert any(clock.is_corrected for clock in clocks[0].clocks) == moved
    question = Question(None, START_NS - NS, END_NS, SOURCES)
    same(split_in_store(store, question, clocks), split(correct(raw, clocks)))


@pytest.mark.parametrize("step", [200 * MS, 3_000 * NS])
def test_both_joins_agree_on_hosts_far_away_and_clocks_that_were_set(
    store: Store, step: int
) -> None:
    records = make_records(steps=400, step_seconds=0.6)
    offsets = np.zeros(8)
    offsets[2] = 1_800 * NS
    insert(store, shift_clocks(set_clocks(records, {5: (0.4, step)}), offsets, np.zeros(8)))
    question = Question(None, START_NS - NS, START_NS + 2 * 3_600 * NS, SOURCES)
    raw = read_records(store, question)
    clocks = align(raw)
    joined = split_in_store(store, question, clocks)
    in_memory = split(correct(raw, clocks))
    # Without the other ranks, the store cannot tell on which side of a small step an entry lies.
    alike = joined.ranks_seen == in_memory.ranks_seen
    assert (~alike).sum() <= 1
    same(joined.select(alike), in_memory.select(alike))
    assert np.median(joined.ranks_seen) == 8
    assert joined.skew_ns.max() < 20 * MS


def test_more_records_than_fit_are_refused_by_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, moved=False)
    monkeypatch.setattr("api.jobs.correlate.read.RECORDS_MAX", 4_000)
    with pytest.raises(StoreError, match="RECORDS_MAX is 4000"):
        read_records(store, Question(None, START_NS, END_NS, SOURCES))
    assert (
        len(read_records(store, Question(None, START_NS, END_NS, SOURCES), keep_one_in=4)) < 4_000
    )


def test_a_long_window_is_thinned_and_still_complete(store: Store) -> None:
    """Of too many records some are looked at; operations and steps are all there all the same."""
    fill(store, moved=True)
    job_rank = {("0xabc", rank): rank for rank in range(8)}
    whole = look(store, job_rank, START_NS - NS, END_NS, records_max=1_000_000)
    thin = look(store, job_rank, START_NS - NS, END_NS, records_max=1_500)
    assert (whole.kept_one_in, thin.kept_one_in) == (1, 8)
    assert len(thin.records) < len(whole.records) / 6
    assert len(thin.operations) == len(whole.operations)
    assert np.abs(thin.operations.skew_ns - whole.operations.skew_ns).max() < MS
    steps = [steps_of(window, job_rank) for window in (whole, thin)]
    assert len(steps[0]) == len(steps[1]) == 400
    differences = [abs(a.transfer_ns - b.transfer_ns) for a, b in zip(*steps, strict=True)]
    assert np.median(differences) < MS


@pytest.mark.parametrize("moved", [False, True])
def test_too_many_records_are_read_in_slices_each_of_them_whole(
    store: Store,
    moved: bool,  # noqa: FBT001 - the two cases
) -> None:
    fill(store, moved=moved)
    job_rank = {("0xabc", rank): rank for rank in range(8)}
    whole = look_in_slices(store, job_rank, START_NS - NS, END_NS, records_max=1_000_000)
    sliced = look_in_slices(store, job_rank, START_NS - NS, END_NS, records_max=3_000)
    assert (whole.slices, sliced.kept_one_in) == ((), 1)
    assert 2 <= len(sliced.slices) <= 4
    assert len(sliced.records) <= 1_700
    # Within a slice nothing is missing, by the common clock.
    for begin, end in sliced.slices:
        counts = [
            np.count_nonzero((one.records.exit_ns > begin + MS) & (one.records.exit_ns < end - MS))
            for one in (whole, sliced)
        ]
        assert counts[0] == pytest.approx(counts[1], abs=2)
        assert counts[0] > 100
    assert len(sliced.operations) == len(whole.operations)
    assert np.abs(sliced.operations.skew_ns - whole.operations.skew_ns).max() < MS
    # Steps are those within the slices.
    steps = [step for step in steps_of(sliced, job_rank) if step.end_ns > step.start_ns]
    assert 30 < len(steps) < 200
    lengths = [step.end_ns - step.start_ns for step in steps]
    assert np.median(lengths) == pytest.approx(0.6 * NS, rel=0.02)


def test_slices_of_a_job_with_long_steps_show_whole_steps(store: Store) -> None:
    """Thirty steps of six seconds, and room for a fifth of their records."""
    insert(store, make_records(steps=30, step_seconds=6.0, ranks_per_host=8))
    job_rank = {("0xabc", rank): rank for rank in range(64)}
    sliced = look_in_slices(store, job_rank, START_NS - NS, END_NS, records_max=1_600)
    ((begin, end),) = sliced.slices
    assert (end - begin) / NS == pytest.approx(48, abs=7)
    assert len(sliced.records) == pytest.approx(8 * 2 * 64, rel=0.15)
    steps = steps_of(sliced, job_rank)
    whole = whole_steps(
        sliced.slices,
        np.array([step.start_ns for step in steps]),
        np.array([step.end_ns for step in steps]),
    )
    assert whole.sum() >= 6


def test_nothing_there_gives_nothing(store: Store) -> None:
    window = look(store, {("0xabc", 0): 0}, START_NS, END_NS, records_max=10)
    assert (len(window.operations), len(window.records), window.kept_one_in) == (0, 0, 1)
    question = Question([], START_NS, END_NS, SOURCES)
    assert len(split_in_store(store, question, window.clocks)) == 0


def test_a_host_whose_clock_is_hours_off_is_missing_in_a_live_window_and_accuses_nobody(
    store: Store,
) -> None:
    """The service reads by time: of that host it sees nothing, which is no lateness of anybody."""
    records = make_records(steps=400, step_seconds=0.3, late={3: 0.002})
    offsets = np.zeros(8)
    offsets[5] = 3_600 * NS
    insert(store, shift_clocks(records, offsets, np.zeros(8)))
    job_rank = {("0xabc", rank): rank for rank in range(8)}
    seen = look(store, job_rank, START_NS - NS, START_NS + 180 * NS, records_max=1_000_000)
    assert "node5" not in seen.records.hosts
    assert (seen.operations.ranks_seen == 7).all()
    job = JobWindow(
        job="training",
        size=8,
        ranks={rank: Rank(rank=rank, host=f"node{rank}", gpu=0) for rank in range(8)},
        communicators={
            "0xabc": Communicator(name="0xabc", ranks=8, job_rank={r: r for r in range(8)})
        },
        source=seen.source,
        records=seen.records,
        operations=seen.operations,
        clocks=seen.clocks,
        steps=steps_of(seen, job_rank),
    )
    window = make_window(job, silent_ns=20 * NS)
    assert [verdict for verdict in verdicts_of(window) if verdict.culprit.host] == []
