"""`fabricscope migrate-store`: from an embedded store to a ClickHouse server, resumable.

The service must be stopped: an embedded engine allows one process on its folder, and what it took
meanwhile would be missing. It may be killed and started again: partitions that are the same on both
sides are not sent again.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from api.data.backup.manifest import BackupError
from api.data.backup.move import move, note, prepare, retention_of, source_id
from api.data.store.store import Store, StoreUrl
from api.http.operating.doctor.machine import is_locked
from collector.contract.errors import SettingsError
from collector.contract.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="chdb:///PATH", help="the embedded store, DATA/telemetry")
    parser.add_argument(
        "target",
        metavar="clickhouse://…",
        help="clickhouse://user:password@host:8123/database?cluster=name: empty, or filled by this",
    )


def run(arguments: argparse.Namespace) -> int:
    here, there = StoreUrl.parse(arguments.source), StoreUrl.parse(arguments.target)
    if here.scheme != "chdb" or there.scheme != "clickhouse":
        raise SettingsError("it goes from chdb:///PATH to clickhouse://HOST:8123/DATABASE")
    folder = Path(here.dsn.removeprefix("chdb://"))
    if not folder.is_dir():
        raise SettingsError(f"there is no store at {folder}; a service's is DATA/telemetry")
    if is_locked(folder.parent):
        raise SettingsError(f"a service runs on {folder.parent}: stop it first")
    source = Store(here)
    try:
        source.migrate_only()
        target = Store(there, retention_days=retention_of(source))
        try:
            return bring(source, target)
        finally:
            target.close()
    finally:
        source.close()


def bring(source: Store, target: Store) -> int:
    target.migrate()
    if prepare(source, target):
        print("this store was moved there before: nothing is to be done")
        return 0
    progress = Progress()
    rows: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    days: Counter[str] = Counter()
    try:
        for moved in move(source, target, progress.say):
            rows[moved.table] += moved.rows
            days[moved.table] += 1
            sent[moved.table] += moved.is_new
    except BackupError:
        progress.end()
        raise
    note(target, source_id(source), is_over=True)
    progress.end()
    for table, count in rows.items():
        was = f"{sent[table]} sent now, {days[table] - sent[table]} were there"
        print(f"{table:<12} {count} rows in {days[table]} partitions ({was}), the same on both")
    print("done: set `store` to the new address and start the service; keep the old folder a while")
    return 0
