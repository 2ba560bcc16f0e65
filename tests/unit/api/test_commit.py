"""Group commit: no writer gets success before the insert, and no writer waits for ever."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, Self, TypeVar, cast
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from api.base.limits import COMMIT_ROWS_EAGER
from api.data.ingest import commit as module
from api.data.ingest.columns import SampleColumns
from api.data.ingest.commit import (
    COMMIT_QUIET_SECONDS,
    COMMIT_SPACING_SECONDS,
    COMMIT_WAIT_SECONDS,
    COMMIT_WAIT_SECONDS_MAX,
    GroupCommit,
    Metadata,
    Overloaded,
    Unwritable,
    Write,
    event_rows,
)
from api.data.ingest.series import NewSeries
from api.data.store.store import Store
from collector.contract.errors import StoreError
from collector.contract.model import Event

Made = TypeVar("Made")


def samples(count: int) -> SampleColumns:
    return SampleColumns(
        np.zeros(count, dtype=np.uint32),
        np.arange(count, dtype=np.uint64),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.float64),
    )


class MemoryStore:
    """Records inserts in order; ``before_insert`` may raise an error."""

    def __init__(self) -> None:
        self.inserts: list[tuple[str, int]] = []
        self.before_insert: Callable[[str], None] = lambda _: None
        self.is_there = True
        self.is_owned_elsewhere = False

    def ping(self) -> None:
        if not self.is_there:
            raise StoreError("gone")

    def together(self) -> contextlib.AbstractContextManager[Self]:
        return contextlib.nullcontext(self)

    def insert_samples(self, samples: SampleColumns) -> None:
        self.before_insert("samples")
        self.inserts.append(("samples", len(samples)))

    def insert_arrow(self, table: str, rows: pa.Table, _: object = None) -> None:
        self.before_insert(table)
        self.inserts.append((table, rows.num_rows))


class Bench:
    """A group commit over a store in memory, with what it observed."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.observed: list[tuple[bool, int]] = []
        self.commit = GroupCommit(
            cast("Store", self.store), lambda ok, rows, _: self.observed.append((ok, rows))
        )


def test_what_arrives_together_is_one_insert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMIT_WAIT_SECONDS", 0.05)

    async def scene() -> Bench:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        await asyncio.gather(*(bench.commit.write(Write(samples=samples(n))) for n in (1, 2, 3)))
        assert bench.commit.pending_rows == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench

    bench = asyncio.run(scene())
    assert bench.store.inserts == [("samples", 6)]
    assert bench.observed == [(True, 6)]


def test_names_are_written_before_samples() -> None:
    async def scene() -> Bench:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        labels = (("__name__", "m"),)
        await bench.commit.write(
            Write(
                samples=samples(COMMIT_ROWS_EAGER),
                series=[NewSeries(1, 7, labels), NewSeries(1, 7, labels), NewSeries(2, 7, labels)],
                events=[Event(kind="k", time_ns=1, labels={})],
                metadata=[Metadata("m", "gauge", "", "")],
            )
        )
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench

    tables = asyncio.run(scene()).store.inserts
    assert tables[0] == ("series", 2), "one row for each series and day"
    assert tables[-1] == ("samples", COMMIT_ROWS_EAGER)


def test_nobody_is_told_of_success_before_the_insert_has_ended() -> None:
    async def scene() -> None:
        bench = Bench()
        loop = asyncio.get_running_loop()
        begun, go_on = asyncio.Event(), asyncio.Event()

        def hold(_: str) -> None:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)

        bench.store.before_insert = hold
        running = asyncio.create_task(bench.commit.run())
        writing = asyncio.create_task(bench.commit.write(Write(samples=samples(20_000))))
        await begun.wait()
        assert not writing.done()
        assert bench.commit.pending_rows == 20_000
        go_on.set()
        await writing
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())


def test_a_failure_is_told_to_everyone_in_the_group_and_the_next_group_goes_on() -> None:
    async def scene() -> Bench:
        bench = Bench()

        def fail(_: str) -> None:
            raise StoreError("disk full")

        bench.store.before_insert = fail
        running = asyncio.create_task(bench.commit.run())
        writes = [bench.commit.write(Write(samples=samples(8000))) for _ in range(2)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [str(result) for result in results] == ["disk full", "disk full"]
        assert all(isinstance(result, StoreError) for result in results)
        bench.store.before_insert = lambda _: None
        await bench.commit.write(Write(samples=samples(1)))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench

    assert asyncio.run(scene()).observed == [(False, 16_000), (True, 1)]


def odd_write() -> Write:
    """A label that is no text: no column of the store can hold it."""
    return Write(samples=samples(3), series=[NewSeries(1, 7, (("__name__", "m\ud800"),))])


def test_a_request_that_cannot_be_written_fails_alone() -> None:
    async def scene() -> Bench:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        writes = [Write(samples=samples(8000)), odd_write(), Write(samples=samples(9000))]
        results = await asyncio.gather(
            *(bench.commit.write(write) for write in writes), return_exceptions=True
        )
        assert [results[0], results[2]] == [None, None]
        assert isinstance(results[1], Unwritable)
        assert "UnicodeEncodeError" in str(results[1])
        await bench.commit.write(Write(samples=samples(1)))
        assert bench.commit.pending_rows == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench

    bench = asyncio.run(scene())
    assert bench.store.inserts == [("samples", 8000), ("samples", 9000), ("samples", 1)]


def test_a_store_that_refuses_one_request_keeps_the_others() -> None:
    async def scene() -> None:
        bench = Bench()

        def refuse_events(table: str) -> None:
            if table == "events":
                raise StoreError("bad row")

        bench.store.before_insert = refuse_events
        running = asyncio.create_task(bench.commit.run())
        odd = Write(samples=samples(8000), events=[Event(kind="k", time_ns=1, labels={})])
        results = await asyncio.gather(
            bench.commit.write(odd),
            bench.commit.write(Write(samples=samples(9000))),
            return_exceptions=True,
        )
        assert isinstance(results[0], StoreError)
        assert results[1] is None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())


def test_a_store_that_is_gone_is_asked_once_for_all() -> None:
    asked = []

    async def scene() -> None:
        bench = Bench()
        bench.store.is_there = False

        def fail(table: str) -> None:
            asked.append(table)
            raise StoreError("gone")

        bench.store.before_insert = fail
        running = asyncio.create_task(bench.commit.run())
        writes = (bench.commit.write(Write(samples=samples(8000))) for _ in range(3))
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [str(result) for result in results] == ["gone"] * 3
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())
    assert asked == ["samples"]


def test_a_bug_ends_the_loop_and_no_request_takes_silence_for_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "insert_each", bug)

    async def scene() -> None:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        with pytest.raises(StoreError, match="the commit loop broke"):
            await bench.commit.write(Write(samples=samples(20_000)))
        with pytest.raises(ZeroDivisionError):
            await running

    asyncio.run(scene())


def test_too_much_is_refused_and_nothing_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_ROWS_MAX", 10)

    async def scene() -> None:
        bench = Bench()
        await bench.commit.write(Write(samples=samples(0)))  # returns without a commit loop
        waiting = asyncio.create_task(bench.commit.write(Write(samples=samples(6))))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="PENDING_ROWS_MAX is 10"):
            await bench.commit.write(Write(samples=samples(5)))
        running = asyncio.create_task(bench.commit.run())
        await waiting
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())


def test_what_waits_at_the_end_is_still_written() -> None:
    async def scene() -> Bench:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        await asyncio.sleep(0)
        writing = asyncio.create_task(bench.commit.write(Write(samples=samples(1))))
        await asyncio.sleep(0)
        running.cancel()
        await writing
        return bench

    assert asyncio.run(scene()).store.inserts == [("samples", 1)]


def test_an_event_is_recognised_by_all_of_it() -> None:
    event = Event(kind="k", time_ns=5, labels={"a": "1", "b": "2"}, message="m")
    reordered = Event(kind="k", time_ns=5, labels={"b": "2", "a": "1"}, message="m")
    other = Event(kind="k", time_ns=5, labels={"a": "1", "b": "2"}, message="n")
    ids = event_rows([event, reordered, other])["id"].to_pylist()
    assert ids[0] == ids[1] != ids[2]


# --- how long small groups wait -------------------------------------------------------------------


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock goes to the next timer at once, and stands still in between."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._selector.select = self.jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now_s

    def jump(self, timeout: float | None) -> list[object]:
        """Nothing but timers wakes it here."""
        assert timeout is not None, "it would wait for ever"
        self.now_s += timeout
        return []


class AtOnce(Executor):
    """Does the work where it is asked for, in no time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def in_no_time(scene: Coroutine[Any, Any, Made]) -> Made:
    with (
        patch.object(module, "Threads", lambda *_, **__: AtOnce()),
        asyncio.Runner(loop_factory=JumpingLoop) as runner,
    ):
        return runner.run(scene)


def inserted_after(every_s: float, writes: int, took_s: float = 0.0) -> tuple[float, int]:
    """Seconds until the first of these rows is durable, and how many are by then.

    ``took_s``: how long the insert before took.
    """

    async def scene() -> tuple[float, int]:
        bench = Bench()
        bench.commit._took_s = took_s
        running = asyncio.create_task(bench.commit.run())

        async def write_all() -> list[asyncio.Task[None]]:
            sent = []
            for _ in range(writes):
                sent.append(asyncio.create_task(bench.commit.write(Write(samples=samples(1)))))
                await asyncio.sleep(every_s)
            return sent

        begun = asyncio.create_task(bench.commit.write(Write(samples=samples(1))))
        more = asyncio.create_task(write_all())
        await begun
        seconds = asyncio.get_running_loop().time()
        rows = bench.store.inserts[0][1]
        await asyncio.gather(*await more)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return seconds, rows

    return in_no_time(scene())


def test_a_group_is_written_when_no_more_rows_come() -> None:
    seconds, rows = inserted_after(every_s=10 * COMMIT_QUIET_SECONDS, writes=3)
    assert rows == 2, "what came within the quiet time, and no more"
    assert seconds <= 2 * COMMIT_QUIET_SECONDS


def test_a_group_waits_while_rows_keep_coming_and_not_for_ever() -> None:
    seconds, rows = inserted_after(every_s=COMMIT_QUIET_SECONDS / 2, writes=1_000)
    assert COMMIT_WAIT_SECONDS <= seconds < COMMIT_WAIT_SECONDS + COMMIT_QUIET_SECONDS
    assert rows > COMMIT_WAIT_SECONDS / COMMIT_QUIET_SECONDS


@pytest.mark.parametrize(
    ("took_s", "waits_s"),
    [(0.01, COMMIT_WAIT_SECONDS), (0.2, 1.6), (5.0, COMMIT_WAIT_SECONDS_MAX)],
)
def test_where_inserts_are_slow_a_group_waits_for_longer(took_s: float, waits_s: float) -> None:
    seconds, _ = inserted_after(COMMIT_QUIET_SECONDS / 2, 1_000, took_s)
    assert waits_s <= seconds < waits_s + COMMIT_QUIET_SECONDS


def test_senders_who_wait_for_their_answers_do_not_wait_for_others() -> None:
    """Both send again as soon as they may; a group is whole when both have."""

    async def scene() -> tuple[float, list[tuple[str, int]]]:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())

        async def send(name: str) -> None:
            for _ in range(50):
                await bench.commit.write(Write(samples=samples(1)), sender=name)

        await asyncio.gather(send("a"), send("b"))
        seconds = asyncio.get_running_loop().time()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return seconds, bench.store.inserts

    seconds, inserts = in_no_time(scene())
    assert inserts == [("samples", 2)] * 50
    spaced_s = 50 * COMMIT_SPACING_SECONDS
    assert seconds <= 2 * COMMIT_QUIET_SECONDS + spaced_s, "quiet before the first group is known"
    assert seconds >= spaced_s - COMMIT_SPACING_SECONDS, "no more inserts a second than that"


def test_a_collector_sends_for_many_agents_over_few_connections() -> None:
    """None of the last group's agents sends again soon, and its connection waits for the answer."""

    async def scene() -> tuple[float, int]:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(50):
            write = Write(samples=samples(1))
            await bench.commit.write(write, sender=f"agent{number}", line="collector:1")
        took = loop.time() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return took, len(bench.store.inserts)

    seconds, inserts = in_no_time(scene())
    assert inserts == 50
    assert seconds <= 2 * COMMIT_QUIET_SECONDS + 50 * COMMIT_SPACING_SECONDS


def test_those_who_stay_do_not_wait_for_one_who_has_ended() -> None:
    """Eight connections, one of which ends at each turn: none costs the others a second."""

    async def scene() -> float:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def send(number: int) -> None:
            for _ in range(number + 1):
                await bench.commit.write(Write(samples=samples(1)), sender=f"shard{number}")

        await asyncio.gather(*(send(number) for number in range(8)))
        took = loop.time() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return took

    assert in_no_time(scene()) < 2 * 8 * COMMIT_QUIET_SECONDS < 2 * COMMIT_WAIT_SECONDS


def test_a_group_does_not_close_for_those_who_were_not_in_the_last_one() -> None:
    """Agents send each second, in turn: one insert for all of them."""

    async def scene() -> list[tuple[str, int]]:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())

        async def send(number: int) -> None:
            await asyncio.sleep(number * 0.05)
            for _ in range(5):
                sent = asyncio.create_task(
                    bench.commit.write(Write(samples=samples(1)), sender=f"agent{number}")
                )
                await asyncio.sleep(1.0)
                await sent

        await asyncio.gather(*(send(number) for number in range(20)))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench.store.inserts

    assert len(in_no_time(scene())) <= 10


def test_what_is_read_next_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMIT_WAIT_SECONDS", 600.0)
    monkeypatch.setattr(module, "COMMIT_QUIET_SECONDS", 600.0)

    async def write() -> None:
        bench = Bench()
        running = asyncio.create_task(bench.commit.run())
        async with asyncio.timeout(60):
            await bench.commit.write(Write(samples=samples(1)), at_once=True)
        assert bench.store.inserts == [("samples", 1)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(write())
