"""What the telemetry store promises, wherever it is: chDB in this process, ClickHouse by URL."""

import datetime as dt
import struct
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from clickhouse_connect.driver import binding

from api.base.limits import ENGINE_CACHE_BYTES_MAX
from api.data.ingest.columns import SampleColumns
from api.data.ingest.commit import (
    Exemplar,
    Metadata,
    event_rows,
    exemplar_rows,
    metadata_rows,
    series_rows,
)
from api.data.ingest.series import NewSeries
from api.data.store import migrate
from api.data.store.store import READERS_MAX, RETAINED_TABLES, Store, StoreUrl, bindable
from collector.contract.errors import StoreError
from collector.contract.model import Event
from tests.doubles import clickhouse_http, clickhouse_shards
from tests.stands.service import eventually
from tests.worlds.remote_write import STALE, STALE_BITS

ONE_SHARD = ("chdb", "clickhouse")
BACKENDS = (*ONE_SHARD, "shards")
NOW_MS = int(dt.datetime(2026, 11, 15, tzinfo=dt.UTC).timestamp() * 1000)
# Inserted rows must outlive the run, whatever the machine's clock says.
FOR_EVER = dict.fromkeys(RETAINED_TABLES, 3650)

Open = Callable[..., Store]


@contextmanager
def place(backend: str, folder: Path) -> Iterator[Open]:
    """What opens stores on one and the same data, one after the other."""
    with ExitStack() as stack:
        if backend == "chdb":
            url = f"chdb://{folder / 'data'}"
        else:
            double = clickhouse_http if backend == "clickhouse" else clickhouse_shards
            url = stack.enter_context(double.server(folder / "data"))

        def open_store(retention_days: dict[str, int] | None = None) -> Store:
            store = Store(StoreUrl.parse(url), retention_days=retention_days)
            stack.callback(store.close)
            return store

        yield open_store


@pytest.fixture(params=BACKENDS, scope="module")
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A migrated store that the tests of this module share; each writes metrics of its own."""
    with place(request.param, tmp_path_factory.mktemp("store")) as open_store:
        store = open_store(retention_days=FOR_EVER)
        store.migrate()
        yield store


def write(store: Store, metric: int, rows: list[tuple[int, int, float]]) -> None:
    """Samples of (series, time, value), by the same way as ingest."""
    series, times, values = zip(*rows, strict=True)
    columns = SampleColumns(
        np.full(len(rows), metric, dtype=np.uint32),
        np.array(series, dtype=np.uint64),
        np.array(times, dtype=np.int64),
        np.array(values, dtype=np.float64),
        np.array([each % 2**32 for each in series], dtype=np.uint32),
    )
    store.insert_samples(columns)


def read(store: Store, metric: int) -> list[tuple[int, int, int]]:
    """Series, time and the bits of the value, repeats read once."""
    found = store.query(
        "SELECT series, toUnixTimestamp64Milli(time) AS t, reinterpretAsUInt64(value) AS bits "
        "FROM samples FINAL WHERE metric = {metric:UInt32} ORDER BY series, t",
        {"metric": metric},
    )
    return [(row["series"], row["t"], row["bits"]) for row in found.to_pylist()]


def bits(value: float) -> int:
    (number,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(number)


VALUES = [
    0.0,
    1.0,
    -1.0,
    0.1,
    -2.5,
    float(2**53),
    float(-(2**53)),
    float(2**53 + 2),
    float(2**63),
    float(-(2**63)),
    float(2**64),
    1.7976931348623157e308,
    -1.7976931348623157e308,
    5e-324,
    1e-300,
    float("inf"),
    float("-inf"),
    float("nan"),
    STALE,
]


def test_every_value_comes_back_bit_for_bit(store: Store) -> None:
    write(store, 1, [(i, NOW_MS, value) for i, value in enumerate(VALUES)])
    assert read(store, 1) == [(i, NOW_MS, bits(value)) for i, value in enumerate(VALUES)]


def test_the_stale_marker_is_told_from_other_nans(store: Store) -> None:
    write(store, 2, [(1, NOW_MS, STALE), (2, NOW_MS, float("nan"))])
    found = {series: number for series, _, number in read(store, 2)}
    assert found[1] == STALE_BITS != found[2]


def test_negative_zero_is_told_from_zero(store: Store) -> None:
    write(store, 3, [(1, NOW_MS, -0.0), (2, NOW_MS, 0.0)])
    assert read(store, 3) == [(1, NOW_MS, bits(-0.0)), (2, NOW_MS, bits(0.0))]


def test_extreme_ids_and_times_come_back(store: Store) -> None:
    rows = [(2**64 - 1, NOW_MS + 1, 1.0), (2**63, NOW_MS + 999, 2.0), (0, NOW_MS - 86_400_000, 3.0)]
    write(store, 2**32 - 1, rows)
    assert read(store, 2**32 - 1) == sorted((s, t, bits(v)) for s, t, v in rows)


@pytest.mark.parametrize("apart", [False, True])
def test_a_repeat_is_read_once_and_the_later_value_counts(store: Store, *, apart: bool) -> None:
    metric = 10 + apart
    first, second = [(7, NOW_MS, 1.0), (7, NOW_MS + 1, 5.0)], [(7, NOW_MS, 2.5)]
    if apart:
        write(store, metric, first)
        write(store, metric, second)
    else:
        write(store, metric, first + second)
    assert read(store, metric) == [(7, NOW_MS, bits(2.5)), (7, NOW_MS + 1, bits(5.0))]


def test_a_hundred_days_fit_into_one_insert(store: Store) -> None:
    """A backlog: each day is a partition, and ClickHouse by itself allows a hundred."""
    rows = [(1, NOW_MS - day * 86_400_000, float(day)) for day in range(120)]
    write(store, 20, rows)
    assert len(read(store, 20)) == 120


def test_names_events_exemplars_and_metadata_come_back(store: Store) -> None:
    labels = (("__name__", "m"), ("é", "line\nbreak\t\\ ' \" \0 機"))
    day = NOW_MS // 86_400_000
    event = Event(kind="k", time_ns=NOW_MS * 1_000_000 + 7, labels={"a": "b"}, attributes={"": "x"})
    for _ in range(2):  # a resend
        store.insert_arrow("series", series_rows([NewSeries(day, 30, labels)]))
        store.insert_arrow("events", event_rows([event]))
        exemplars = exemplar_rows([Exemplar(30, NOW_MS, 0.5, labels[1:])])
        store.insert_arrow("exemplars", exemplars, np.array([30], np.uint32))
        store.insert_arrow("metadata", metadata_rows([Metadata("m", "gauge", "h", "u")]))
    [name] = store.query("SELECT * FROM series FINAL WHERE series = 30").to_pylist()
    assert (name["metric_name"], dict(name["labels"])) == ("m", dict(labels[1:]))
    sql = "SELECT * EXCEPT time, toUnixTimestamp64Nano(time) AS t FROM events FINAL"
    [found] = store.query(sql).to_pylist()
    assert (found["kind"], found["t"], dict(found["attributes"])) == ("k", event.time_ns, {"": "x"})
    [exemplar] = store.query("SELECT * FROM exemplars FINAL WHERE series = 30").to_pylist()
    assert (exemplar["value"], dict(exemplar["labels"])) == (0.5, dict(labels[1:]))
    [metadata] = store.query("SELECT * FROM metadata FINAL").to_pylist()
    assert metadata == {"metric_name": "m", "type": "gauge", "help": "h", "unit": "u"}


@pytest.mark.parametrize("text", ["", "a'b", "a\\b", "\\N", "\n\t\r\0\b", "{x}", "機", "a" * 3000])
def test_bound_text_arrives_as_it_is(store: Store, text: str) -> None:
    answer = store.query(
        "SELECT {one:String} AS one, {many:Array(String)} AS many", {"one": text, "many": [text]}
    )
    assert answer.to_pylist() == [{"one": text, "many": [text]}]


def test_a_long_list_can_be_bound(store: Store) -> None:
    ids = list(range(2**64 - 50_000, 2**64))
    answer = store.query("SELECT arraySum(x -> x % 2, {ids:Array(UInt64)}) AS odd", {"ids": ids})
    assert answer["odd"][0].as_py() == 25_000


@pytest.mark.parametrize(
    "sql", ["SELECT nothing_of_this_name", "SELEC 1", "SELECT 1 FROM no_such_table"]
)
def test_a_question_that_fails_is_a_store_error_in_one_line(store: Store, sql: str) -> None:
    with pytest.raises(StoreError, match="query: ") as caught:
        store.query(sql)
    assert "\n" not in str(caught.value)
    store.ping()


def test_rows_that_do_not_fit_are_a_store_error_and_nothing_is_stored(store: Store) -> None:
    before = store.query("SELECT count() AS n FROM metadata")["n"][0].as_py()
    with pytest.raises(StoreError, match="insert into metadata"):
        store.insert_arrow("metadata", pa.table({"no_such_column": pa.array([1])}))
    assert store.query("SELECT count() AS n FROM metadata")["n"][0].as_py() == before


def test_a_question_does_not_hold_the_store_for_ever(store: Store) -> None:
    settings = store.query(
        "SELECT name, value FROM system.settings "
        "WHERE name IN ('max_execution_time', 'max_memory_usage')"
    ).to_pylist()
    assert {row["name"]: row["value"] for row in settings} == {
        "max_execution_time": "60",
        "max_memory_usage": str(4 << 30),
    }


def test_several_may_ask_and_write_at_once(store: Store) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(5):
                write(store, 100 + number, [(i, NOW_MS, float(i))])
                assert len(read(store, 100 + number)) == i + 1
        except BaseException as error:  # noqa: BLE001 - carried to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(READERS_MAX * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


ENDLESS = "SELECT sum(sipHash64(number)) AS sum FROM numbers(1000000000000)"


def is_running(store: Store, tag: str) -> bool:
    sql = "SELECT query FROM system.processes WHERE Settings['log_comment'] = {tag:String}"
    return bool(store.query(sql, {"tag": tag}).num_rows)


def test_a_question_can_be_stopped_by_its_tag(store: Store) -> None:
    said: list[str] = []

    def ask() -> None:
        try:
            store.query(ENDLESS, tag="some-tag")
        except StoreError as error:
            said.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: is_running(store, "some-tag"), "the question runs")
    store.stop("another-tag")
    assert is_running(store, "some-tag")
    store.stop("some-tag")
    asking.join(60)
    assert "QUERY_WAS_CANCELLED" in said[0]


def test_settings_hold_for_one_question(store: Store) -> None:
    with pytest.raises(StoreError, match="TIMEOUT_EXCEEDED"):
        store.query(ENDLESS, settings={"max_execution_time": "0.2"})
    named = "SELECT value FROM system.settings WHERE name = 'max_execution_time'"
    assert store.query(named)["value"].to_pylist() == ["60"]


def test_a_failed_question_leaves_nothing_in_later_answers(store: Store) -> None:
    """Failed after its answer had begun; every connection is used again."""
    begun = "SELECT number, throwIf(number = 900000) AS odd FROM numbers(1000000)"
    for _ in range(READERS_MAX + 1):
        with pytest.raises(StoreError, match="FUNCTION_THROW"):
            store.query(f"{begun} SETTINGS max_block_size = 1000")
        for number in range(3):
            assert store.query(f"SELECT {number} AS n")["n"].to_pylist() == [number]


# --- migrations --------------------------------------------------------------------------------


@pytest.fixture(params=ONE_SHARD)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """What opens an empty store, and then the same one again."""
    with place(request.param, tmp_path) as opener:
        yield opener


def test_a_store_lives_through_releases(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    assert store.migrate() == [
        "0001_samples.sql",
        "0002_merge_quiet_days.sql",
        "0003_records.sql",
        "0004_findings.sql",
        "0005_merge_days_by_size.sql",
        "0006_merge_many_small_parts.sql",
        "0007_rollups.sql",
    ]
    assert store.migrate() == []
    write(store, 1, [(1, int(dt.datetime.now(dt.UTC).timestamp() * 1000), 1.0)])

    # Retention follows the settings, up and down, and data that it allows stays.
    assert retention(store, "samples") == retention(store, "series") == 30
    changed = open_store(retention_days={"samples": 7, "series": 400, "steps": 9})
    assert changed.migrate() == []
    wanted = dict.fromkeys(FOR_EVER, 30) | {"samples": 7, "series": 400, "steps": 9}
    assert {table: retention(changed, table) for table in FOR_EVER} == wanted
    assert len(read(changed, 1)) == 1
    assert open_store().migrate() == []
    assert [retention(store, table) for table in FOR_EVER] == [30] * len(FOR_EVER)

    shipped = migrate.load_migrations()
    more = migrate.Migration(
        len(shipped) + 1, f"{len(shipped) + 1:04d}_more.sql", "ALTER TABLE events ADD COLUMN x Int8"
    )
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "load_migrations", lambda: [*shipped, more])
        assert store.migrate() == [more.name]

    # Now the store is of a newer release than this one, and must not be touched by it.
    with pytest.raises(StoreError, match="a newer release wrote it"):
        store.migrate()

    other = migrate.Migration(more.number, more.name, more.text + " -- changed")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "load_migrations", lambda: [*shipped, other])
        with pytest.raises(StoreError, match=f"{more.name} was changed after it had been applied"):
            store.migrate()
    assert len(read(store, 1)) == 1


PARTS_SQL = """
    SELECT count() AS count, max(bytes_on_disk) AS largest FROM system.parts
    WHERE active AND database = currentDatabase() AND table = 'samples'
"""


@pytest.mark.parametrize(("bytes_max", "parts"), [(1 << 30, [1]), (900_000, range(2, 8))])
def test_a_day_that_is_over_is_merged_by_size(
    open_store: Open, bytes_max: int, parts: Container[int]
) -> None:
    store = open_store()
    store.migrate()
    store._writer.command(
        "ALTER TABLE samples MODIFY SETTING min_partition_age_to_force_merge_seconds = 1, "
        "merge_selecting_sleep_ms = 100, max_merge_selecting_sleep_ms = 100, "
        f"max_bytes_to_merge_at_max_space_in_pool = {bytes_max}"
    )
    random = np.random.default_rng(1)
    time_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000) - 3 * 86_400_000
    for number in range(8):  # 0.3 MB each
        series = random.integers(0, 2**63, 20_000, dtype=np.uint64)
        columns = SampleColumns(
            np.full(len(series), 1, dtype=np.uint32),
            series,
            np.full(len(series), time_ms + number),
            random.random(len(series)),
        )
        store.insert_samples(columns)

    def found() -> dict[str, int]:
        row: dict[str, int] = store.query(PARTS_SQL).to_pylist()[0]
        return row

    eventually(lambda: found()["count"] in parts, "the day's merge")
    assert found()["largest"] <= bytes_max


def retention(store: Store, table: str) -> int:
    [row] = store.query(
        "SELECT extract(create_table_query, 'toIntervalDay\\\\((\\\\d+)\\\\)') AS days "
        "FROM system.tables WHERE name = {table:String} AND database = currentDatabase()",
        {"table": table},
    ).to_pylist()
    return int(row["days"])


def test_a_store_that_went_away_is_a_store_error(tmp_path: Path) -> None:
    with clickhouse_http.server(tmp_path) as url:
        store = Store(StoreUrl.parse(url))
        store.ping()
    with pytest.raises(StoreError, match="query: "):
        store.ping()
    address = url.partition("@")[2] or url.removeprefix("clickhouse://")
    with pytest.raises(StoreError, match="cannot open the store at clickhouse") as refused:
        Store(StoreUrl.parse(f"clickhouse://ann:secret@{address}"))
    assert f"at clickhouse://{address}: nothing listens there" in str(refused.value)
    assert "8123" in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(StoreError, match=r"nowhere\.invalid:8123/db: no host has this name"):
        Store(StoreUrl.parse("clickhouse://nowhere.invalid:8123/db"))
    store.close()


def engine_number(store: Store, metric: str) -> int:
    [row] = store.query(
        "SELECT value FROM system.metrics WHERE metric = {metric:String}", {"metric": metric}
    ).to_pylist()
    return int(row["value"])


def test_questions_about_other_times_leave_nothing_behind(store: Store) -> None:
    """The engine would keep an entry a part for every condition it never sees again."""
    write(store, 9_001, [(series, NOW_MS, 1.0) for series in range(20_000)])
    before = engine_number(store, "QueryConditionCacheEntries")
    for second in range(20):
        store.query(
            "SELECT count() AS n FROM samples WHERE metric = 9001 AND series = 7 "
            "AND time >= fromUnixTimestamp64Milli({from_ms:Int64})",
            {"from_ms": NOW_MS - second * 1000},
        )
    assert engine_number(store, "QueryConditionCacheEntries") == before


def test_the_embedded_engine_is_bounded_as_a_part_of_a_service(store: Store) -> None:
    if store.url.scheme != "chdb":
        pytest.skip("a server has its own configuration")
    rows = store.query("SELECT name, value FROM system.server_settings").to_pylist()
    values = {row["name"]: row["value"] for row in rows}
    for cache in ("mark_cache_size", "index_mark_cache_size", "primary_index_cache_size"):
        assert int(values[cache]) == ENGINE_CACHE_BYTES_MAX, cache


def test_the_embedded_engine_removes_parts_without_a_crowd_of_threads(store: Store) -> None:
    """It would start 128 threads for it, and keep them for ever."""
    if store.url.scheme != "chdb":
        store.prepare_to_stay()
        created = store._writer.command("SHOW CREATE TABLE samples")
        assert "concurrent" not in str(created), "a server has a machine to itself"
        return
    store.prepare_to_stay()
    store.prepare_to_stay()
    for table in RETAINED_TABLES:
        created = store._writer.command(f"SHOW CREATE TABLE {table}")
        assert "concurrent_part_removal_threshold = 1000000" in str(created), table


def test_a_list_of_numbers_is_bound_as_one_text() -> None:
    """The driver takes a quarter of a second for 12,000 of them, one by one."""
    sql = "SELECT {ids:Array(Int64)}, {names:Array(String)}, {flags:Array(Bool)}"
    given = {"ids": list(range(-5, 1_000)), "names": ["a", "'b"], "flags": [True, False]}
    plain = binding.bind_query(sql, given)
    formatted = binding.format_bind_value
    with patch.object(binding, "format_bind_value", side_effect=formatted) as one:
        assert binding.bind_query(sql, bindable(given)) == plain
    assert one.call_count < 10
