"""Makes `tests/fixtures/version_0_1/data.tar.xz`: a data folder as the first release leaves it.

`python -m tests.tools.first_version FILE`. Today's engine and today's files, but of the migrations
only the first one of the store and of the inventory, which may never change once they are applied.
Rows are written by SQL, since today's program knows newer columns. They are kept for ten years, so
that retention does not take them before this is read.
"""

# ruff: noqa: S608 - the statements are made of this file's own words

import datetime as dt
import sys
import tarfile
import tempfile
from pathlib import Path
from unittest.mock import patch

from sqlalchemy import text

from api.data.inventory import migrate as inventory_migrate
from api.data.inventory.engine import WRITE, open_engine
from api.data.store import migrate
from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from collector.contract.identity import canonical_labels, metric_id, series_id

SINCE = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
METRIC = "fabric_port_transmit_bytes_total"
HOSTS = ("node1", "node2")
SAMPLES = 40
STEP_S = 15
KEPT_DAYS = 3650
TABLES = ("samples", "series", "events", "exemplars")
"""Of the first migration, those with retention."""


def labels_of(host: str) -> dict[str, str]:
    return {"__name__": METRIC, "host": host, "device": "mlx5_0", "port": "1"}


def make_store(folder: Path) -> None:
    first = migrate.load_migrations()[:1]
    assert set(TABLES) < set(RETAINED_TABLES)
    store = Store(StoreUrl.parse(f"chdb://{folder}"), retention_days={})
    store._retention_days = dict.fromkeys(TABLES, KEPT_DAYS)
    with patch.object(migrate, "load_migrations", lambda: first):
        store.migrate()
    since_ms = int(SINCE.timestamp() * 1000)
    with store.holding_writes("fill") as client:
        for host in HOSTS:
            labels = labels_of(host)
            number, metric = series_id(canonical_labels(labels)), metric_id(METRIC)
            pairs = ", ".join(f"'{name}', '{value}'" for name, value in labels.items())
            row = f"'{SINCE:%Y-%m-%d}', '{METRIC}', {number}, map({pairs})"
            client.command(f"INSERT INTO series VALUES ({row})")
            client.command(
                "INSERT INTO samples (metric, series, time, whole, fraction) "
                f"SELECT {metric}, {number}, fromUnixTimestamp64Milli(toInt64({since_ms} + number "
                f"* {STEP_S * 1000})), number * 1000, 0 FROM numbers({SAMPLES})"
            )
        client.command(
            f"INSERT INTO events VALUES ('link_down', '{SINCE:%Y-%m-%d %H:%M:%S}', 7, "
            "map('host', 'node1'), 'mlx5_0 port 1 went down', map())"
        )
    store.close()


def make_inventory(file: Path) -> None:
    engine = open_engine(f"sqlite:///{file}")
    inventory_migrate.upgrade(engine, "0001")
    seen = {"first": "2026-11-15 12:00:00.000000", "last": "2026-11-15 12:10:00.000000"}
    kept = "first_seen, last_seen, attributes, attribute_times"
    values = ":first, :last, '{}', '{}'"
    with engine.connect().execution_options(**WRITE) as connection, connection.begin():
        for host in HOSTS:
            named = {"host": host, **seen}
            connection.execute(
                text(f"INSERT INTO hosts (host, {kept}) VALUES (:host, {values})"),
                named,
            )
            connection.execute(
                text(
                    f"INSERT INTO ports (host, device, port, {kept}) "
                    f"VALUES (:host, 'mlx5_0', '1', {values})"
                ),
                named,
            )
    engine.dispose()


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_store(folder / "telemetry")
        make_inventory(folder / "inventory.db")
        with tarfile.open(target, "w:xz") as archive:
            for name in ("telemetry", "inventory.db"):
                archive.add(folder / name, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
