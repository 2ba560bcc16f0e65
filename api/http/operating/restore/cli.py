"""`fabricscope restore`: a backup into an empty data folder, compared with its manifest.

It works on the folder itself and takes its lock: no service may run there. What it began and could
not complete it removes; a folder in which it was killed has a mark, and no service starts on it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.engine import make_url

from api.base.version import VERSION
from api.data.backup import rows
from api.data.backup.archive import Unpacked, peek_manifest, unpack
from api.data.backup.manifest import BackupError, Manifest, refuse_engine, refuse_newer
from api.data.inventory.repository import Inventory
from api.data.store.frozen import MOVED_TABLES, attach, rows_held, stop_merges
from api.data.store.migrate import load_migrations
from api.data.store.store import Store, StoreUrl
from api.http.cli import RESTORING, prepare_data
from api.http.settings import ServiceSettings, load_service_settings
from collector.contract.errors import SettingsError
from collector.contract.progress import MIB, Progress, of_bytes

FLAGS = {
    "data": ("DIR", "folder to restore into: it must be empty, or not be there"),
    "inventory": ("URL", "where the inventory goes: sqlite:///path or postgresql+psycopg://…"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="an archive of fabricscope backup")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings of the new service")
    for name, (metavar, text) in FLAGS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text)


def run(arguments: argparse.Namespace) -> int:
    flags = {name: getattr(arguments, name) for name in FLAGS}
    settings = load_service_settings(arguments.config, flags)
    manifest = look_into(arguments.file)
    refuse_newer(manifest, version=VERSION, migration=len(load_migrations()))
    refuse_target(settings, manifest)
    progress = Progress()
    with making(settings) as scratch:
        with arguments.file.open("rb") as archive:
            total = arguments.file.stat().st_size
            unpacked = unpack(
                archive,
                scratch,
                lambda done: progress.say(f"restore: unpacked {of_bytes(done, total)}"),
            )
        restore_store(settings, unpacked, progress)
        restore_inventory(settings, unpacked)
    progress.end()
    print(report(manifest, settings))
    return 0


def look_into(file: Path) -> Manifest:
    try:
        return peek_manifest(file)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error


def refuse_target(settings: ServiceSettings, manifest: Manifest) -> None:
    """Raise BackupError for a place that has anything already, before anything is written."""
    url = StoreUrl.parse(settings.store_url)
    if manifest.store is not None and url.scheme != "chdb":
        raise BackupError(
            "the backup is of an embedded store and goes into a folder: restore without `store`, "
            "then fabricscope migrate-store brings it to a ClickHouse server"
        )
    folders = [settings.data_path]
    if url.scheme == "chdb":
        folders.append(Path(url.dsn.removeprefix("chdb://")))
    for folder in folders:
        if folder.is_dir() and any(folder.iterdir()):
            raise BackupError(f"{folder} is not empty: restore into a folder of its own")
    file = sqlite_file_of(settings)
    if file is None:
        rows.refuse_rows(settings.inventory_url)
    elif file.exists():
        raise BackupError(f"the inventory {file} exists: restore to another file")


def sqlite_file_of(settings: ServiceSettings) -> Path | None:
    parsed = make_url(settings.inventory_url)
    return Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None


@contextlib.contextmanager
def making(settings: ServiceSettings) -> Iterator[Path]:
    """A folder for what is unpacked; whatever was made is removed if this fails."""
    data = settings.data_path
    with prepare_data(data):
        mark = data / RESTORING
        mark.touch()
        scratch = data / "tmp" / "restore"
        is_whole = False
        try:
            scratch.mkdir(parents=True)
            yield scratch
            is_whole = True
        finally:
            if not is_whole:
                remove_made(settings)
        shutil.rmtree(scratch)
        mark.unlink()


def remove_made(settings: ServiceSettings) -> None:
    """All of it: the places were empty. The mark goes last, and the lock's file stays."""
    data, url = settings.data_path, StoreUrl.parse(settings.store_url)
    if url.scheme == "chdb":
        shutil.rmtree(url.dsn.removeprefix("chdb://"), ignore_errors=True)
    file = sqlite_file_of(settings)
    for path in [] if file is None else [file, *file.parent.glob(f"{file.name}-*")]:
        path.unlink(missing_ok=True)
    shutil.rmtree(data / "tmp", ignore_errors=True)
    (data / "lock").unlink(missing_ok=True)
    (data / RESTORING).unlink(missing_ok=True)


def restore_store(settings: ServiceSettings, unpacked: Unpacked, progress: Progress) -> None:
    facts = unpacked.manifest.store
    if facts is None:
        return
    retention = settings.retention_days.by_table()
    store = Store(StoreUrl.parse(settings.store_url), retention_days=retention)
    try:
        refuse_engine(unpacked.manifest, store.engine_version)
        store.migrate()
        stop_merges(store)
        for table in MOVED_TABLES:
            progress.say(f"restore: attaches {len(facts.tables.get(table, []))} parts to {table}")
            attach(store, table, unpacked.parts(table))
        held = rows_held(store)
        for table in facts.tables:
            if held[table] != facts.rows(table):
                raise BackupError(
                    f"{table} has {held[table]} rows after the restore, the backup "
                    f"{facts.rows(table)}"
                )
    finally:
        store.close()


def restore_inventory(settings: ServiceSettings, unpacked: Unpacked) -> None:
    file = sqlite_file_of(settings)
    if file is None:
        rows.fill(unpacked.inventory, settings.inventory_url)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Maybe another disk.
        shutil.move(os.fspath(unpacked.inventory), file)
    compare_inventory(settings.inventory_url, unpacked.manifest)
    inventory = Inventory(settings.inventory_url)
    inventory.migrate()
    inventory.close()


def compare_inventory(url: str, manifest: Manifest) -> None:
    """Raise BackupError for a table that is not as it was."""
    revision, found = rows.facts_of(url)
    for table, facts in manifest.inventory.tables.items():
        here = found.get(table)
        is_same = here is not None and here.rows == facts.rows
        if is_same and here is not None and revision == manifest.inventory.revision:
            is_same = here.digest == facts.digest
        if not is_same:
            raise BackupError(f"the inventory's table {table} is not what was backed up")


def report(manifest: Manifest, settings: ServiceSettings) -> str:
    made_at = f"{manifest.made_at:%Y-%m-%d %H:%M:%S}Z"
    by = f"fabricscope {manifest.version}"
    lines = [f"restored into {settings.data_path}: the backup of {made_at}, made by {by}"]
    if manifest.store is None:
        lines.append("  store        none: it is on a ClickHouse server, which restores its own")
    else:
        for table, parts in manifest.store.tables.items():
            size = sum(part.bytes for part in parts) / MIB
            rows_here = manifest.store.rows(table)
            lines.append(f"  {table:<13}{rows_here} rows in {len(parts)} parts, {size:.1f} MiB")
    count = sum(facts.rows for facts in manifest.inventory.tables.values())
    lines.append(f"  inventory    {count} rows in {len(manifest.inventory.tables)} tables")
    lines.append(
        "It notifies and acts as the old service does: start it when that one is stopped, or "
        "without notify_file, alertmanagers and policy_file."
    )
    return "\n".join(lines)
