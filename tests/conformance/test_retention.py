"""Retention by bytes drops the oldest days of all tables; a change of days rewrites no data."""

import datetime as dt
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.base.metrics import ServiceMetrics
from api.data.ingest.commit import event_rows
from api.data.store.bounded import BytesBound, Day, too_much
from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from api.http.settings import load_service_settings
from collector.contract.errors import SettingsError
from collector.contract.model import Event
from collector.contract.units import NS
from tests.stands.samples import write_series
from tests.stands.service import eventually
from tests.worlds.remote_write import TimeSeries

TODAY = dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A few days, today the last, with samples and events."""
    store = Store(StoreUrl.parse(f"chdb://{tmp_path / 'data'}"))
    store.migrate()
    for day in range(DAYS):
        at_s = int((TODAY - dt.timedelta(days=day)).timestamp())
        samples = [(float(second), (at_s + second) * 1000) for second in range(50)]
        write_series(store, [TimeSeries([("__name__", "x"), ("host", "a")], samples)])
        event = Event(kind="k", time_ns=at_s * NS, labels={}, message="m")
        store.insert_arrow("events", event_rows([event]))
    yield store
    store.close()


def days_of(store: Store, table: str) -> list[str]:
    sql = (
        "SELECT DISTINCT partition_id AS day FROM system.parts "
        "WHERE active AND rows > 0 AND database = currentDatabase() AND table = {table:String} "
        "ORDER BY day"
    )
    days: list[str] = store.query(sql, {"table": table})["day"].to_pylist()
    return days


def now_s() -> float:
    return TODAY.timestamp() + 60


def name_of(days_ago: int) -> str:
    return f"{TODAY - dt.timedelta(days=days_ago):%Y%m%d}"


def test_the_oldest_days_go_and_today_never(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    metrics = ServiceMetrics()
    leads = [False]
    sizes = {
        row["day"]: row["size"]
        for row in store.query(
            "SELECT partition_id AS day, sum(bytes_on_disk) AS size FROM system.parts "
            "WHERE active AND database = currentDatabase() AND table NOT IN "
            "('migrations', 'metadata') GROUP BY day"
        ).to_pylist()
    }
    bound = BytesBound(
        store, sizes[name_of(0)] + sizes[name_of(1)], metrics, lambda: leads[0], now_s
    )
    bound.look()
    assert len(days_of(store, "samples")) == DAYS, "another process leads"
    leads[0] = True
    with caplog.at_level(logging.WARNING):
        bound.look()
    for table in ("samples", "series", "events"):
        assert days_of(store, table) == [name_of(1), name_of(0)], table
    assert f"samples of {name_of(3)} was dropped" in caplog.text
    counted = metrics.registry.get_sample_value
    dropped = "fabric_service_store_days_dropped_total"
    assert counted(dropped, {"table": "samples"}) == 2
    assert counted(dropped, {"table": "steps"}) == 0
    bytes_held = counted("fabric_service_store_bytes", {"table": "samples"})
    assert bytes_held is not None
    assert 0 < bytes_held < sum(sizes.values())
    BytesBound(store, 1, ServiceMetrics(), lambda: True, now_s).look()
    assert days_of(store, "samples") == [name_of(0)], "today stays whatever it takes"


def test_without_a_bound_nothing_goes(store: Store) -> None:
    BytesBound(store, 0, ServiceMetrics(), lambda: True, now_s).look()
    assert len(days_of(store, "samples")) == DAYS


def test_days_that_are_dated_later_stay() -> None:
    days = [Day("20260102", "a", 5), Day("20260109", "a", 5)]
    kept = {"a": 30}
    assert too_much(days, 0, "20260102", kept) == []
    assert [each.day for each in too_much(days, 0, "20260103", kept)] == ["20260102"]


def test_rollups_and_names_outlive_what_they_are_made_of() -> None:
    """Each table is cut to the same share of its retention."""
    kept = {"samples": 10, "rollup_1h": 40, "series": 40}
    days = [Day(f"202601{day:02}", "samples", 10) for day in range(1, 11)]
    days += [Day(f"202601{day:02}", "series", 1) for day in range(1, 11)]
    days += [Day("20251229", "rollup_1h", 7), Day("20260105", "rollup_1h", 7)]
    gone = too_much(days, 80, "20260111", kept)
    assert {each.table for each in gone} == {"samples"}
    assert [each.day for each in gone] == [f"202601{day:02}" for day in range(1, 6)]
    gone = too_much(days, 0, "20260111", kept)
    assert Day("20260105", "rollup_1h", 7) not in gone, "its week is not over"
    assert gone.index(Day("20260109", "samples", 10)) < gone.index(days[-2])


def test_a_start_with_the_same_days_changes_no_table(store: Store, tmp_path: Path) -> None:
    """Also where retention is not the default: it is compared before it is set."""
    changes = "SELECT count() AS n FROM system.mutations"
    days = dict.fromkeys(RETAINED_TABLES, 77)
    url = StoreUrl.parse(f"chdb://{tmp_path / 'data'}")
    for _ in range(2):
        again = Store(url, retention_days=days)
        again.migrate()
        again.close()
    undone = f"{changes} WHERE NOT is_done"
    eventually(lambda: store.query(undone)["n"][0].as_py() == 0, "the change")
    before = store.query(changes)["n"][0].as_py()
    again = Store(url, retention_days=days)
    again.migrate()
    again.close()
    assert store.query(changes)["n"][0].as_py() == before


def test_a_bound_in_another_unit_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"retention_bytes is 500; 0 .* it is in bytes"):
        load_service_settings(None, {}, {"FABRICSCOPE_RETENTION_BYTES": "500"})
    with pytest.raises(SettingsError, match="retention_bytes is -1"):
        load_service_settings(None, {}, {"FABRICSCOPE_RETENTION_BYTES": "-1"})


def test_another_number_of_days_rewrites_no_column(store: Store, tmp_path: Path) -> None:
    """Of a large part; a small one is one file and is written anew."""

    def files() -> dict[str, int]:
        rows = store.query(
            "SELECT path FROM system.parts WHERE active AND table = 'samples' "
            "AND part_type = 'Wide' ORDER BY name DESC LIMIT 1"
        )
        folder = Path(rows["path"][0].as_py())
        return {file.name: file.stat().st_ino for file in folder.iterdir()}

    with store.holding_writes("make large parts") as client:
        client.command("ALTER TABLE samples MODIFY SETTING min_bytes_for_wide_part = 0")
    at_s = int(TODAY.timestamp())
    write_series(store, [TimeSeries([("__name__", "y")], [(1.0, at_s * 1000)])])
    before = files()
    url = StoreUrl.parse(f"chdb://{tmp_path / 'data'}")
    other = Store(url, retention_days=dict.fromkeys(RETAINED_TABLES, 90))
    other.migrate()
    undone = "SELECT count() AS n FROM system.mutations WHERE NOT is_done"
    eventually(lambda: store.query(undone)["n"][0].as_py() == 0, "the change")
    assert other.retention("samples") == 90
    after = files()
    for name in ("whole.bin", "fraction.bin", "series.bin", "time.bin"):
        assert after[name] == before[name], f"{name} was written again"
    assert after["ttl.txt"] != before["ttl.txt"]
    other.close()
