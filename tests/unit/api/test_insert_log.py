"""What one process inserts, others know before they answer, or say that they know nothing."""

import mmap
import os
import threading

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.data.ingest.columns import SampleColumns
from api.data.store.blocks import decode_block, encode_block
from api.data.store.insert_log import FRAME, Entry, InsertLog, Kind, Note
from api.data.store.known import Known, samples_in
from api.data.store.recent import UNREAD_MS
from api.data.store.rings import NOTHING, Samples
from api.data.store.touched import STRETCH_NS

NOW_MS = 1_794_700_000_000
SIZE = 4_096


def read_on(log: InsertLog, head: tuple[int, int]) -> tuple[list[Entry] | None, tuple[int, int]]:
    life, written = now = log.head
    return (log.read(life, head[1], written) if life == head[0] else None), now


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=600), max_size=60), st.integers(1, 7))
def test_a_reader_that_keeps_up_gets_every_entry_in_order(bodies: list[bytes], every: int) -> None:
    log = InsertLog(SIZE)
    head, found = log.head, []
    for number, body in enumerate(bodies):
        log.add(Kind.SAMPLES, body)
        if number % every == 0:
            entries, head = read_on(log, head)
            assert entries is not None
            found += [entry.body for entry in entries]
    entries, _ = read_on(log, head)
    assert entries is not None
    assert found + [entry.body for entry in entries] == bodies


def test_who_was_overtaken_is_told_and_never_gets_half_an_entry() -> None:
    log = InsertLog(SIZE)
    head = log.head
    for _ in range(SIZE // (1_000 + FRAME.size) + 1):
        log.add(Kind.SAMPLES, b"x" * 1_000)
    assert read_on(log, head)[0] is None
    with pytest.raises(ValueError, match="bytes in a log of 4096"):
        log.add(Kind.SAMPLES, b"x" * (SIZE // 4 + 1))


def test_a_reader_that_meets_another_life_of_the_writer_begins_anew() -> None:
    log = InsertLog(SIZE)
    head = log.head
    log.add(Kind.SAMPLES, b"told before the kill")
    log.begin()
    entries, head = read_on(log, head)
    assert entries is None
    log.add(Kind.UNKNOWN, b"series")
    assert read_on(log, head)[0] == [Entry(Kind.UNKNOWN, b"series")]


def test_another_process_reads_what_this_one_wrote() -> None:
    log = InsertLog(SIZE)
    head = log.head
    told = mmap.mmap(-1, 1)
    pid = os.fork()
    if not pid:
        log.add(Kind.SAMPLES, b"from the child")
        told[0] = 1
        os._exit(0)
    os.waitpid(pid, 0)
    assert told[0] == 1
    assert read_on(log, head)[0] == [Entry(Kind.SAMPLES, b"from the child")]


def test_entries_that_threads_write_at_once_are_whole() -> None:
    log = InsertLog(1 << 20)
    head = log.head
    bodies = [bytes([number]) * (50 + number) for number in range(8)]

    def write(body: bytes) -> None:
        for _ in range(50):
            log.add(Kind.SAMPLES, body)

    threads = [threading.Thread(target=write, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries, _ = read_on(log, head)
    assert entries is not None
    assert sorted(entry.body for entry in entries) == sorted(bodies * 50)


# --- what is known by it ------------------------------------------------------------------------


def block_of(*rows: tuple[int, int, int, float]) -> bytes:
    columns = SampleColumns(
        np.array([row[0] for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.uint64),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.float64),
    )
    return b"".join(encode_block(columns.to_block()))


class World:
    """A process beside one that owns the store; `rows` is what that store has."""

    def __init__(self) -> None:
        self.log = InsertLog(SIZE)
        self.rows: list[Samples] = []
        self.now_ms = NOW_MS
        self.loads = 0
        self.known = Known(
            self._load,
            lambda metrics, _: dict.fromkeys(metrics, 1),
            is_alone=False,
            inserts=self.log,
            sharers=2,
            now_ms=lambda: self.now_ms,
        )

    def _load(self, *_: object) -> Samples:
        self.loads += 1
        return self.rows[-1] if self.rows else NOTHING

    def hold(self, metric: int) -> None:
        for _ in range(3):
            self.now_ms += 1_000
            self.known.recent.holds([metric], NOW_MS - 60_000)
        assert self.known.recent.holds([metric], NOW_MS - 60_000)

    def values(self, metric: int) -> list[float] | None:
        missing: list[int] = []
        after_ms = NOW_MS - 60_000
        held = list(self.known.recent.parts([metric], after_ms, missing))
        if missing:
            return None
        flat = [part.flat(after_ms, NOW_MS + 3_600_000) for part in held]
        return [value for part in flat for value in part.value.tolist()]


def test_samples_of_others_are_in_memory_as_soon_as_they_are_logged() -> None:
    world = World()
    world.hold(1)
    values = [2.0, -0.0, 0.5, float("inf"), 3e300]
    rows = [(1, 7, NOW_MS + place, value) for place, value in enumerate(values)]
    world.log.add(Kind.SAMPLES, block_of(*rows, (2, 8, NOW_MS, 1.0)))
    found = world.values(1)
    assert found is not None
    assert [repr(value) for value in found] == [repr(value) for value in values]
    assert world.loads == 1


@pytest.mark.parametrize("is_overtaken", [True, False])
def test_who_missed_inserts_asks_the_store_again(is_overtaken: bool) -> None:  # noqa: FBT001
    world = World()
    world.hold(1)
    version, number = world.known.series_version(["a"]), world.known.touched_records.number
    if is_overtaken:
        for _ in range(5):
            world.log.add(Kind.SAMPLES, b"x" * 1_000)
    else:
        world.log.begin()
    assert world.values(1) == []
    assert world.loads == 2
    assert world.known.series_version(["a"]) != version
    assert world.known.touched_records.latest(0, 1) > number


def test_notes_say_which_answers_are_stale() -> None:
    world = World()
    known = world.known
    before = known.series_version(["a"]), known.series_version(["b"])
    number = known.touched_records.number
    world.log.add(Kind.NOTED, msgspec.msgpack.encode(Note("series", names=["a"])))
    world.log.add(Kind.NOTED, msgspec.msgpack.encode(Note("collectives", stretches=[16 * 5 + 3])))
    assert known.series_version(["a"]) != before[0]
    assert known.series_version(["b"]) == before[1]
    assert known.touched_records.latest(5 * STRETCH_NS, 6 * STRETCH_NS - 1, {3}) > number
    assert known.touched_records.latest(5 * STRETCH_NS, 6 * STRETCH_NS - 1, {2}) <= number
    world.log.add(Kind.UNKNOWN, b"collectives")
    assert known.touched_records.latest(0, 1, {2}) > number
    world.log.add(Kind.FAILED, b"series")
    assert known.series_version(["b"]) != before[1]


def test_an_insert_that_failed_makes_answers_stale_and_forgets_no_samples() -> None:
    world = World()
    world.hold(1)
    number = world.known.touched_samples.number
    world.log.add(Kind.FAILED, b"samples")
    assert world.values(1) == []
    assert world.known.touched_samples.latest(0, 1) > number
    assert world.loads == 1
    world.log.add(Kind.UNKNOWN, b"samples")
    assert world.values(1) == []
    assert world.loads == 2


def test_an_entry_that_cannot_be_read_makes_all_begin_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.hold(1)
    world.log.add(Kind.SAMPLES, b"no block")
    world.log.add(Kind.SAMPLES, block_of((1, 7, NOW_MS, 1.0)))
    assert world.values(1) == []
    assert world.loads == 2
    assert "an insert of another process cannot be read" in caplog.text


def test_who_follows_is_not_overtaken_and_lets_go_what_is_not_read() -> None:
    def one(number: int) -> tuple[int, int, int, float]:
        return 1, 7, NOW_MS + number, 1.0

    world = World()
    world.hold(1)
    for number in range(40):  # more than the log has room for
        world.log.add(Kind.SAMPLES, block_of(one(number), *[(2, 8, NOW_MS, 0.0)] * 4))
        world.known.follow()
    assert world.values(1) == [1.0] * 40
    assert world.loads == 1
    world.now_ms += UNREAD_MS + 1
    world.known.follow()
    assert not world.known.recent.holds_any


def test_a_block_that_is_none_is_refused() -> None:
    block = block_of((1, 7, NOW_MS, 1.5))
    assert samples_in(block).value.tolist() == [1.5]
    with pytest.raises(ValueError, match="1 bytes follow a block"):
        decode_block(block + b"x")
    with pytest.raises(ValueError, match="has no type of these"):
        decode_block(block.replace(b"Float64", b"Float32"))
