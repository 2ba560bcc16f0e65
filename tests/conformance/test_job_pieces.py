"""Heat maps and timelines from kept pieces are those of pieces that are made anew."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from api.data.ingest.records import collective_rows
from api.data.store.store import Store, StoreUrl
from api.jobs.correlate import near
from api.jobs.correlate import pieces as pieces_module
from api.jobs.correlate.heat import Quantity, heat_of
from api.jobs.correlate.near import AFTER_NS, BEFORE_NS, PIECE_NS, Near
from api.jobs.correlate.piece import make_buckets, make_piece
from api.jobs.correlate.pieces import JobPieces, Pieced, even_stretches
from api.jobs.correlate.read import SOURCES_TIMED, query_table
from api.jobs.correlate.window import JobWork, look
from collector.contract.collective import Collective, Operation, Timing
from collector.contract.units import NS
from tests.stands.service import TELEMETRY, copy_migrated

START_NS = 1_794_700_025 * NS
"""Where a piece begins would be a special case."""
SECONDS, RANKS = 150, 4
SPAN = (START_NS, START_NS + SECONDS * NS)
STRETCH_NS = 5 * NS
JOB_RANK = {("0xfeed", rank): rank for rank in range(RANKS)}
SHOWN = {"steps_max": 500, "ranks_max": 100}


def records(step_ns: int = NS // 2, seconds: int = SECONDS) -> list[Collective]:
    """A job that does two all-reduces a step; ranks are late at random."""
    rng = random.Random(5)
    found = []
    for step in range(seconds * NS // step_ns):
        for half in range(2):
            begin = START_NS + step * step_ns + half * step_ns // 5
            entries = [begin + rng.randrange(step_ns // 50) for _ in range(RANKS)]
            leave = max(entries) + step_ns // 12
            found += [
                Collective(
                    communicator="0xfeed",
                    operation=Operation.ALL_REDUCE,
                    sequence=2 * step + half,
                    rank=rank,
                    ranks=RANKS,
                    source="nccl_inspector",
                    time_ns=leave + rank,
                    entry_ns=entries[rank],
                    exit_ns=leave + rank,
                    duration_ns=leave + rank - entries[rank],
                    size_bytes=8 << (20 + half),
                    timing=Timing.KERNEL,
                    host=f"node{rank}",
                    pid=100 + rank,
                )
                for rank in range(RANKS)
            ]
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    copy_migrated(tmp_path, with_store=True)
    opened = Store(StoreUrl.parse(f"chdb://{tmp_path / TELEMETRY}"))
    yield opened
    opened.close()


def write(store: Store, some: Sequence[Collective]) -> None:
    store.insert_arrow("collectives", collective_rows(some))


def looked(pieces: JobPieces, span: tuple[int, int] = SPAN) -> Pieced:
    found = pieces.look("job", JOB_RANK, span, spent=True, stretch_ns=STRETCH_NS)
    assert found is not None
    return found


def shown(found: Pieced, stretch_ns: int) -> list[object]:
    """All that answers are made of."""
    told: list[object] = [found.source, found.kept_one_in, found.steps, list(found.clocks)]
    for quantity in Quantity:
        heat = found.heat(quantity, **SHOWN)
        if heat is not None:
            told += [heat.ranks, heat.start_ns, heat.end_ns, heat.values, heat.steps_in_one]
    buckets = found.buckets(stretch_ns)
    return [*told, *(getattr(buckets, name) for name in buckets.__struct_fields__)]


def assert_same(one: Pieced, other: Pieced, stretch_ns: int = STRETCH_NS) -> None:
    told, expected = shown(one, stretch_ns), shown(other, stretch_ns)
    assert len(told) == len(expected)
    for mine, theirs in zip(told, expected, strict=True):
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        else:
            assert mine == theirs


@pytest.mark.parametrize("seed", range(3))
def test_kept_pieces_are_those_that_are_made_anew(store: Store, seed: int) -> None:
    """Whatever comes in whatever order, with repeats, and who looked at it in between."""
    rng = random.Random(seed)
    waiting = records()
    kept = JobPieces(store)
    edge_s = 30
    while waiting:
        # What is due by now, less what is late: some of it by a minute.
        edge_s += rng.choice((5, 20, 60))
        due = [one for one in waiting if one.time_ns < START_NS + edge_s * NS]
        late = {id(one) for one in due if rng.random() < 0.1 and edge_s < SECONDS + 90}
        late |= {id(one) for one in due if one.rank == seed and edge_s < SECONDS + 60}
        sent = [one for one in due if id(one) not in late]
        waiting = [one for one in waiting if id(one) in late or one not in due]
        if sent:
            write(store, sent)
            write(store, rng.sample(sent, len(sent) // 10))
        if rng.random() < 0.8:
            assert_same(looked(kept), looked(JobPieces(store)))
    assert_same(looked(kept), looked(JobPieces(store)))


def test_what_is_over_is_computed_once(store: Store) -> None:
    whole = records()
    write(store, [one for one in whole if one.time_ns < START_NS + 120 * NS])
    kept = JobPieces(store)
    with patch.object(pieces_module, "make_piece", side_effect=make_piece) as made:
        looked(kept)
        assert made.call_count == 6
        looked(kept)
        assert made.call_count == 6
        write(store, [one for one in whole if one.time_ns >= START_NS + 120 * NS])
        looked(kept)
        # The last two, and the one before, which also reads what follows it.
        assert made.call_count == 9


def test_what_another_job_writes_changes_nothing(store: Store) -> None:
    write(store, records())
    kept = JobPieces(store)
    looked(kept)
    write(store, [msgspec.structs.replace(one, communicator="0xbeef") for one in records()[:80]])
    with patch.object(pieces_module, "make_piece", side_effect=make_piece) as made:
        looked(kept)
        assert made.call_count == 0


def test_pieces_show_what_a_look_at_the_whole_shows(store: Store) -> None:
    write(store, records())
    pieced = looked(JobPieces(store))
    work = JobWork(look(store, JOB_RANK, *SPAN, records_max=1_000_000), JOB_RANK)
    for quantity in Quantity:
        one, other = pieced.heat(quantity, **SHOWN), heat_of(work, quantity, **SHOWN)
        assert one is not None
        assert other is not None
        place = {end: column for column, end in enumerate(one.end_ns.tolist())}
        both = [end for end in other.end_ns.tolist() if end in place]
        assert len(both) >= len(other.end_ns) - 1
        columns = [place[end] for end in both]
        theirs = np.isin(other.end_ns, both)
        np.testing.assert_allclose(one.values[:, columns], other.values[:, theirs], atol=1e-6)
    buckets = pieced.buckets(STRETCH_NS)
    whole = make_buckets(work, np.arange(SPAN[0], SPAN[1] + 1, STRETCH_NS))
    for name in buckets.__struct_fields__:
        np.testing.assert_array_equal(getattr(buckets, name), getattr(whole, name))


@pytest.mark.parametrize(("step_s", "seconds"), [(3, 300), (9, 600), (40, 1_800)])
def test_long_steps_are_whole(store: Store, step_s: int, seconds: int) -> None:
    write(store, records(step_ns=step_s * NS, seconds=seconds))
    span = (START_NS, START_NS + seconds * NS)
    found = looked(JobPieces(store), span)
    lengths = [(one.end_ns - one.start_ns) / NS for one in found.steps]
    assert len(lengths) >= seconds / step_s - 4
    assert lengths == pytest.approx([step_s] * len(lengths), rel=0.1)
    heat = found.heat(Quantity.LATE, **SHOWN)
    work = JobWork(look(store, JOB_RANK, *span, records_max=1_000_000), JOB_RANK)
    whole = heat_of(work, Quantity.LATE, **SHOWN)
    assert heat is not None
    assert whole is not None
    both = np.isin(whole.end_ns, heat.end_ns)
    np.testing.assert_allclose(
        heat.values[:, np.isin(heat.end_ns, whole.end_ns)], whole.values[:, both], atol=1e-6
    )
    assert both.sum() >= len(whole.end_ns) - 2


def test_a_pause_and_the_steps_around_it_are_seen(store: Store) -> None:
    """The step before a pause ends long before the next one begins, which takes the pause."""
    pause_ns = 25 * NS
    moved = [
        one
        if one.sequence < 100
        else msgspec.structs.replace(
            one,
            time_ns=one.time_ns + pause_ns,
            entry_ns=(one.entry_ns or 0) + pause_ns,
            exit_ns=(one.exit_ns or 0) + pause_ns,
        )
        for one in records(seconds=120)
    ]
    write(store, moved)
    found = looked(JobPieces(store)).steps
    lengths = [(one.end_ns - one.start_ns) / NS for one in found]
    assert max(lengths) == pytest.approx(25.5, rel=0.02)
    assert sum(length > 1 for length in lengths) == 1
    ends = np.array([one.end_ns for one in found])
    starts = np.array([one.start_ns for one in found])
    assert np.abs(starts[1:] - ends[:-1]).max() < NS // 50


def test_what_no_piece_shows_is_looked_at_as_a_whole(store: Store) -> None:
    write(store, records(step_ns=600 * NS, seconds=3_000))
    span = (START_NS, START_NS + 3_000 * NS)
    assert JobPieces(store).look("job", JOB_RANK, span) is None
    assert JobPieces(store).look("job", JOB_RANK, (START_NS, START_NS + 7_200 * NS)) is None


def test_pieces_take_no_more_room_than_they_may(store: Store) -> None:
    write(store, records())
    tight = JobPieces(store, bytes_max=30_000)
    assert_same(looked(tight), looked(JobPieces(store)))
    assert 0 < tight.kept.bytes_used <= 30_000


@pytest.mark.parametrize(
    ("seconds", "buckets", "stretch_s"),
    [(1_800, 240, 7.5), (300, 120, 2.5), (60, 7, None), (1_800, 25, None), (300, 100, 3.0)],
)
def test_stretches_that_pieces_have_a_whole_number_of(
    seconds: int, buckets: int, stretch_s: float | None
) -> None:
    begin = START_NS - 5 * NS
    found = even_stretches((begin, begin + seconds * NS), buckets)
    assert (found and found[1]) == (None if stretch_s is None else stretch_s * NS)


def test_records_that_are_read_at_once_are_those_that_are_read_piece_by_piece(
    store: Store,
) -> None:
    """Also of another source, of what was sent twice, and at edges."""
    whole = records()
    middle = len(whole) // 2
    kineto = [msgspec.structs.replace(one, source="kineto") for one in whole[middle:]]
    write(store, [*whole[:middle], *kineto])
    again = [msgspec.structs.replace(one, time_ns=one.time_ns + 9) for one in whole[:middle:7]]
    write(store, again)
    starts = range(START_NS // PIECE_NS * PIECE_NS, START_NS + SECONDS * NS, PIECE_NS)
    single, together = Near(store, JOB_RANK), Near(store, JOB_RANK, starts)
    spans = [(start - BEFORE_NS, start + PIECE_NS + AFTER_NS) for start in starts]
    edge_ns = whole[middle // 2].time_ns
    for span in [*spans, (edge_ns, edge_ns), (edge_ns, edge_ns + 9), (edge_ns + 1, edge_ns + 8)]:
        for source in SOURCES_TIMED:
            with patch.object(near, "query_records") as asked:
                found = together.read(source, *span)
                assert not asked.called
            expected = single.read(source, *span)
            assert found.communicators == expected.communicators
            assert found.hosts == expected.hosts
            for name, column in expected.arrays().items():
                np.testing.assert_array_equal(found.arrays()[name], column)
            assert together.has(source, *span) == single.has(source, *span) == bool(len(expected))


@pytest.mark.parametrize(("most", "blocks"), [(100_000, 1), (2_000, 2), (700, 0)])
def test_no_more_records_are_read_at_once_than_a_piece_may_have(
    store: Store, most: int, blocks: int
) -> None:
    """Half a minute has 480; what is read around it is in its neighbours."""
    write(store, records())
    starts = range(START_NS // PIECE_NS * PIECE_NS, START_NS + SECONDS * NS, PIECE_NS)
    with (
        patch.object(near, "PIECE_RECORDS_MAX", most),
        patch.object(near, "query_table", side_effect=query_table) as asked,
    ):
        reader = Near(store, JOB_RANK, starts)
        for start in starts:
            reader.read("nccl_inspector", start - BEFORE_NS, start + PIECE_NS + AFTER_NS)
        assert asked.call_count == blocks


def test_a_first_look_reads_records_about_once(store: Store) -> None:
    """The first, two in the middle and the last by themselves, and then block by block."""
    seconds = 600
    whole = records(step_ns=NS, seconds=seconds)
    write(store, whole)
    read: list[int] = []
    ask = Store.query

    def asked(self: Store, sql: str, *words: Any, **more: Any) -> Any:  # noqa: ANN401 - passed on
        found = ask(self, sql, *words, **more)
        read.append(found.num_rows)
        return found

    with patch.object(near, "PIECE_RECORDS_MAX", 2_000), patch.object(Store, "query", asked):
        looked(JobPieces(store), (START_NS, START_NS + seconds * NS))
    assert sum(read) < 1.7 * len(whole)
    assert len(read) < 15, "and not each of the twenty pieces by itself"
