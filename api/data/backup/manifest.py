"""What a backup says of itself: versions, counts and digests. It stands last in the archive."""

from __future__ import annotations

import datetime as dt
import re
from hashlib import blake2b

import msgspec

from collector.contract.errors import FabricscopeError

FORMAT = 1
"""Of archive and manifest."""
DIGEST_BYTES = 16


class BackupError(FabricscopeError):
    """A backup that cannot be made, read or restored."""


class PartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a table: its rows, and the digest of its files."""

    name: str
    rows: int
    bytes: int
    digest: str


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The store: which migration and engine wrote it, and its parts by table, in order."""

    migration: int
    engine: str
    tables: dict[str, list[PartFacts]]

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self.tables[table])


class RowsFacts(msgspec.Struct, frozen=True):
    """A table of the inventory: rows, and a digest that does not depend on their order."""

    rows: int
    digest: str


class InventoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The inventory: its revision, the digest of its file, and its tables."""

    revision: str
    digest: str
    bytes: int
    tables: dict[str, RowsFacts]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``store`` is None where a ClickHouse server holds it: that has backups of its own."""

    format: int = FORMAT
    version: str
    made_at: dt.datetime
    store: StoreFacts | None
    inventory: InventoryFacts


def numbers_of(version: str) -> tuple[int, ...]:
    """A version as numbers, to be compared.

    >>> numbers_of("0.10.2") > numbers_of("0.9")
    True
    """
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def digest_of_files(digests: dict[str, str]) -> str:
    """One digest of files by name, whatever their order."""
    whole = blake2b(digest_size=DIGEST_BYTES)
    for name in sorted(digests):
        whole.update(f"{name}\0{digests[name]}\n".encode())
    return whole.hexdigest()


def refuse_newer(manifest: Manifest, *, version: str, migration: int) -> None:
    """Raise BackupError for a backup that a newer release made: its data may mean other things."""
    if manifest.format > FORMAT or numbers_of(manifest.version) > numbers_of(version):
        raise BackupError(
            f"fabricscope {manifest.version} made this backup (format {manifest.format}), and this "
            f"is {version} (format {FORMAT}): restore it with that release or a newer one"
        )
    if manifest.store is not None and manifest.store.migration > migration:
        raise BackupError(
            f"the backup's store is at migration {manifest.store.migration}, this release knows "
            f"{migration}: restore it with the release that made it, or a newer one"
        )


def refuse_engine(manifest: Manifest, engine: str) -> None:
    """An older engine may not read the parts of a newer one."""
    made_by = "" if manifest.store is None else manifest.store.engine
    if numbers_of(made_by)[:2] > numbers_of(engine)[:2]:
        raise BackupError(
            f"engine {made_by} wrote the backup's parts, and this one is {engine}: "
            "install the release that made the backup, or a newer one"
        )
