"""An embedded store is moved to a server: resumed, compared by partition, never onto another's."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from api.data.backup import move
from api.data.ingest.commit import event_rows
from api.data.ingest.records import insert_collectives
from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from collector.cli import main
from collector.contract.collective import Collective, Operation
from collector.contract.errors import StoreError
from collector.contract.model import Event
from collector.contract.units import NS
from tests.doubles import clickhouse_http, clickhouse_shards
from tests.stands.samples import write_series
from tests.worlds.remote_write import TimeSeries

NOW_S = int(dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC).timestamp())
DAY_S = 86_400
KEPT = dict.fromkeys(RETAINED_TABLES, 3650)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A store with rows of three days, some of them twice."""
    url = f"chdb://{tmp_path / 'data' / 'telemetry'}"
    (tmp_path / "data").mkdir()
    store = Store(StoreUrl.parse(url), retention_days=KEPT)
    store.migrate()
    for _ in range(2):
        for day in range(3):
            at_ms = [(NOW_S - day * DAY_S + second) * 1000 for second in range(0, 300, 15)]
            samples = [(0.5 + at, at) for at in at_ms]
            write_series(store, [TimeSeries([("__name__", "x"), ("host", "node1")], samples)])
    event = Event(kind="link_down", time_ns=NOW_S * NS, labels={"host": "a"}, message="it's down")
    store.insert_arrow("events", event_rows([event]))
    made = [
        Collective(
            communicator="0x1",
            operation=Operation.ALL_REDUCE,
            sequence=sequence,
            rank=1,
            ranks=8,
            source="nccl_inspector",
            time_ns=NOW_S * NS,
            entry_ns=NOW_S * NS if sequence else None,
        )
        for sequence in range(2)
    ]
    insert_collectives(store, made)
    store.close()
    return url


@pytest.fixture(params=[clickhouse_http, clickhouse_shards], ids=["server", "shards"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with request.param.server(tmp_path / "server") as url:
        yield url


def rows_of(url: str) -> dict[str, list[dict[str, object]]]:
    store = Store(StoreUrl.parse(url), retention_days=KEPT)
    orders = {"samples": "metric, series, time", "collectives": "sequence", "events": "time"}
    found = {
        table: store.query(f"SELECT * FROM {table} FINAL ORDER BY {order}").to_pylist()  # noqa: S608
        for table, order in orders.items()
    }
    found["kept"] = [{table: store.retention(table) for table in RETAINED_TABLES}]
    store.close()
    return found


def test_a_move_that_breaks_is_resumed_and_everything_is_there(
    source: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[tuple[str, str]] = []
    real = move.send

    def breaking(store: Store, there: Store, table: str, partition: str, shard: int) -> None:
        if len({*sent, (table, partition)}) == 3:
            raise StoreError("the network is away")
        sent.append((table, partition))
        real(store, there, table, partition, shard)

    with patch.object(move, "send", breaking):
        assert main(["migrate-store", source, target]) == 2
    assert "the network is away" in capsys.readouterr().err
    assert [*dict.fromkeys(sent)] == [("samples", "20261113"), ("samples", "20261114")]
    assert main(["migrate-store", source, target]) == 0
    said = capsys.readouterr().out
    assert "samples      60 rows in 3 partitions (1 sent now, 2 were there), the same" in said
    assert "collectives  2 rows in 1 partitions (1 sent now, 0 were there)" in said
    there = rows_of(target)
    assert len(there["samples"]) == 60
    assert there["kept"] == [KEPT], "what is kept for long here is kept as long there"
    assert there == rows_of(source)
    assert main(["migrate-store", source, target]) == 0
    assert "nothing is to be done" in capsys.readouterr().out


def test_a_target_with_rows_of_others_is_refused(
    source: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Store(StoreUrl.parse(target))
    other.migrate()
    write_series(other, [TimeSeries([("__name__", "x")], [(1.0, NOW_S * 1000)])])
    other.close()
    assert main(["migrate-store", source, target]) == 2
    assert "the target is not empty: samples has rows" in capsys.readouterr().err
    other = Store(StoreUrl.parse(target))
    move.note(other, "another", is_over=False)
    other.close()
    assert main(["migrate-store", source, target]) == 2
    assert "the rows of another store (another)" in capsys.readouterr().err


def test_a_partition_that_differs_afterwards_is_named(
    source: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with patch.object(move, "send"):
        assert main(["migrate-store", source, target]) == 2
    assert "samples 20261113: 20 rows here, 0 there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["clickhouse://a:8123/d", "chdb:///x"], "it goes from chdb:///PATH to clickhouse://"),
        (["chdb:///nowhere/at/all", "clickhouse://a:8123/d"], "there is no store at"),
        (["chdb://x", "clickhouse://a:8123/d"], "three slashes"),
    ],
)
def test_mistakes_are_found_first(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate-store", *words]) == 2
    assert says in capsys.readouterr().err
