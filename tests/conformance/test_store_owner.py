"""The process that owns an embedded store: reached by a Unix socket, and bounded."""

import contextlib
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from api.base.process_limits import OWNER_QUERIES_MAX
from api.base.unix_sockets import NAME_BYTES_MAX, bind_unix, connect_unix
from api.data.ingest.columns import SampleColumns
from api.data.ingest.commit import series_rows
from api.data.ingest.series import NewSeries
from api.data.store import owner as owners
from api.data.store.errors import StoreBusy
from api.data.store.frames import REPLY, Group, Rows, frame_of, read_whole
from api.data.store.insert_log import InsertLog
from api.data.store.owner import Owner, own_store
from api.data.store.store import Store, StoreUrl
from collector.contract.errors import StoreError


@contextlib.contextmanager
def owned(folder: Path, inserts: InsertLog | None = None) -> Iterator[tuple[Owner, Path]]:
    """A store whose owner is a thread of this process; it listens at a path."""
    path = folder / "store.sock"
    is_ready = threading.Event()
    found: list[Owner] = []

    def note(owner: Owner) -> None:
        found.append(owner)
        is_ready.set()

    bound = bind_unix(path)
    thread = threading.Thread(
        target=own_store, args=(folder / "data", bound, folder, note, inserts)
    )
    thread.start()
    assert is_ready.wait(60)
    try:
        yield found[0], path
    finally:
        found[0].shutdown()
        thread.join()


def url_of(path: Path) -> StoreUrl:
    return StoreUrl.owned_elsewhere(path, StoreUrl.parse(f"chdb://{path.parent / 'data'}"))


def test_columns_go_in_and_come_out_through_a_socket_of_its_owner_alone(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 20) / ("name" * 20)  # longer than a socket's name may be
    deep.mkdir(parents=True)
    assert len(str(deep)) > NAME_BYTES_MAX
    with owned(deep) as (_, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        store = Store(url_of(path))
        store.migrate()
        now_ms = time.time_ns() // 1_000_000
        rows = SampleColumns(
            metric=np.array([1, 1], np.uint32),
            series=np.array([7, 8], np.uint64),
            time_ms=np.array([now_ms, now_ms + 1], np.int64),
            value=np.array([1.5, float("inf")]),
        )
        store.insert_samples(rows)
        store.insert_arrow("metadata", metadata("x" * 100_000))
        read = store.query("SELECT series, value FROM samples ORDER BY series")
        assert read.to_pydict() == {"series": [7, 8], "value": [1.5, float("inf")]}
        [help_text] = store.query("SELECT help FROM metadata")["help"].to_pylist()
        assert help_text == "x" * 100_000
        # Another process may have written meanwhile: nothing in memory may stand for the store.
        assert store.known.series_version(None) is None
        assert not store.recent.holds([1], 0)
        store.close()


def some_samples(*rows: tuple[int, int, float]) -> SampleColumns:
    """Of metric 1: series, time and value."""
    return SampleColumns(
        metric=np.ones(len(rows), np.uint32),
        series=np.array([row[0] for row in rows], np.uint64),
        time_ms=np.array([row[1] for row in rows], np.int64),
        value=np.array([row[2] for row in rows]),
    )


def held_by(store: Store, after_ms: int) -> dict[tuple[int, int], float] | None:
    """What a process holds of metric 1; None: it would ask the store."""
    missing: list[int] = []
    parts = list(store.recent.parts([1], after_ms, missing))
    if missing:
        return None
    flat = [part.flat(after_ms, after_ms + 3_600_000) for part in parts]
    return {
        (series, time_ms): value
        for part in flat
        for series, time_ms, value in zip(
            part.series.tolist(), part.time_ms.tolist(), part.value.tolist(), strict=True
        )
    }


def test_what_one_process_inserts_another_has_in_memory_when_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    inserts, now_s = InsertLog(1 << 20), [time.time()]
    with owned(tmp_path, inserts) as (_, path):
        writer, reader = (
            Store(url_of(path), clock=lambda: now_s[0], inserts=inserts, sharers=2)
            for _ in range(2)
        )
        writer.migrate()
        now_ms = writer.now_ms()
        after_ms = now_ms - 60_000
        writer.insert_samples(some_samples((7, now_ms - 2_000, 1.0)))
        for _ in range(3):  # what is read again and again is held
            held_by(reader, after_ms)
            now_s[0] += 2
        assert held_by(reader, after_ms) == {(7, now_ms - 2_000): 1.0}

        writer.insert_samples(some_samples((7, now_ms - 1_000, 2.5), (8, now_ms, -3.0)))
        held = held_by(reader, after_ms)
        assert held == {(7, now_ms - 2_000): 1.0, (7, now_ms - 1_000): 2.5, (8, now_ms): -3.0}
        found = reader.query("SELECT series, toUnixTimestamp64Milli(time) AS t, value FROM samples")
        rows = zip(found["series"].to_pylist(), found["t"].to_pylist(), strict=True)
        assert held == dict(zip(rows, found["value"].to_pylist(), strict=True))

        before = reader.known.series_version(["a"]), reader.known.series_version(["b"])
        writer.insert_arrow("series", series_rows([NewSeries(20_000, 9, (("__name__", "a"),))]))
        assert reader.known.series_version(["a"]) != before[0]
        assert reader.known.series_version(["b"]) == before[1]

        # Samples whose rows are not known make it forget, and ask the store again.
        rows = pa.table(
            {
                "metric": pa.array([1], pa.uint32()),
                "series": pa.array([7], pa.uint64()),
                "time": pa.array([now_ms - 500], pa.timestamp("ms", "UTC")),
                "whole": pa.array([4], pa.int64()),
            }
        )
        writer.insert_arrow("samples", rows)
        held = held_by(reader, after_ms)
        assert held is not None
        assert held[7, now_ms - 500] == 4.0
        for store in (writer, reader):
            store.close()


def metadata(help_text: str) -> pa.Table:
    return pa.table({"metric_name": ["m"], "type": ["gauge"], "help": [help_text], "unit": [""]})


def test_what_is_past_a_bound_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "OWNER_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(owners, "OWNER_BODY_BYTES_MAX", 50_000)
    with owned(tmp_path) as (owner, path):
        store = Store(url_of(path))
        store.migrate()
        with pytest.raises(StoreError, match="OWNER_BODY_BYTES_MAX is 50000"):
            store.insert_arrow("metadata", metadata("x" * 60_000))
        store.stop("no such tag")  # connects
        turns = [owner.engine._queries for _ in range(OWNER_QUERIES_MAX)]
        with contextlib.ExitStack() as taken:
            for turn in turns:
                taken.enter_context(turn)
            with pytest.raises(StoreBusy, match="16 questions are running"):
                store.ping()
            store.insert_arrow("metadata", metadata("small"))  # questions hold up no insert
            store.stop("no such tag")  # nor does one stop another
        store.ping()
        store.close()


@pytest.mark.parametrize("length", [-1, 4, 1 << 40])
def test_a_frame_whose_tables_are_not_as_long_as_it_says_is_refused(
    tmp_path: Path, length: int
) -> None:
    """Before a byte of them is read: a length of its own is no way past the bound."""
    group = Group([Rows("samples", ["value"], "Native", b"", length)], {})
    with owned(tmp_path) as (_, path), connect_unix(path, 10) as connected:
        connected.settimeout(10)
        connected.sendall(frame_of(group, rows_bytes=3) + b"123")
        stream = connected.makefile("rb")
        is_good, answered = REPLY.unpack(read_whole(stream, REPLY.size))
        assert not is_good
        assert b"a frame of 3 bytes has tables of" in read_whole(stream, answered)
        assert stream.read(1) == b"", "nothing after it can be told apart"


def test_connections_past_the_bound_are_closed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "OWNER_CONNECTIONS_MAX", 2)
    with owned(tmp_path) as (owner, path), contextlib.ExitStack() as held:
        for _ in range(2):
            one = held.enter_context(connect_unix(path, 30.0))
            one.sendall(b"GET /ping HTTP/1.1\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 200")
        third = held.enter_context(connect_unix(path, 30.0))
        assert third.recv(1) == b""
        assert owner.refused == 1


def test_a_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store.sock"
    bind_unix(path).close()
    with pytest.raises(OSError, match="refused"):
        connect_unix(path, 1.0)
    with bind_unix(path) as again:
        again.listen()
        connect_unix(path, 1.0).close()
