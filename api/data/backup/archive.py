"""The archive of a backup: a plain tar, written and read in pieces.

`store/TABLE/PART/FILE`, `inventory.db`, and last `manifest.json` with the digests of all of them:
an archive without it was cut off. Parts are packed by the engine already, so the tar is not.
"""

from __future__ import annotations

import datetime as dt
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import IO

import msgspec

from api.base.operating_limits import BACKUP_PIECE_BYTES
from api.base.version import VERSION
from api.data.backup.manifest import (
    DIGEST_BYTES,
    BackupError,
    InventoryFacts,
    Manifest,
    PartFacts,
    StoreFacts,
    digest_of_files,
)
from api.data.store.frozen import MOVED_TABLES, FrozenPart

MANIFEST, INVENTORY = "manifest.json", "inventory.db"
MANIFEST_BYTES_MAX = 256 << 20
"""Of a manifest: a million parts have 150 MB."""
STORED = re.compile(r"store/([a-z0-9_]+)/([A-Za-z0-9-]+(?:_\d+){3,4})/([A-Za-z0-9_.%-]+)")
BLOCK = 512

Facts = Callable[[str, int], InventoryFacts]
"""What is known of the inventory's file, given its digest and its bytes."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into a backup. ``migration``, ``engine``: of the store."""

    made_at: dt.datetime
    migration: int
    engine: str
    parts: list[FrozenPart] | None
    """None: the store is a server's."""
    inventory: Path
    inventory_facts: Facts

    @property
    def bytes(self) -> int:
        """About; heads of files and the manifest come on top."""
        files = (file for part in self.parts or () for file in part.files())
        return self.inventory.stat().st_size + sum(file.stat().st_size for file in files)


def write_archive(contents: Contents) -> Iterator[bytes]:
    """The archive in pieces."""
    tables: dict[str, list[PartFacts]] = {table: [] for table in MOVED_TABLES}
    for part in contents.parts or ():
        digests: dict[str, str] = {}
        size = 0
        for file in part.files():
            name = f"store/{part.table}/{part.name}/{file.name}"
            size += file.stat().st_size
            digests[file.name] = yield from write_file(name, file)
        facts = PartFacts(
            name=part.name, rows=part.rows, bytes=size, digest=digest_of_files(digests)
        )
        tables[part.table].append(facts)
    size = contents.inventory.stat().st_size
    digest = yield from write_file(INVENTORY, contents.inventory)
    manifest = Manifest(
        version=VERSION,
        made_at=contents.made_at,
        store=None
        if contents.parts is None
        else StoreFacts(migration=contents.migration, engine=contents.engine, tables=tables),
        inventory=contents.inventory_facts(digest, size),
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    yield head_of(MANIFEST, len(text)) + text + bytes(-len(text) % BLOCK)
    yield bytes(2 * BLOCK)


def head_of(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry.tobuf(tarfile.PAX_FORMAT)


def write_file(name: str, path: Path) -> Generator[bytes, None, str]:
    """A file's head, content and padding; returns its digest. It must not change meanwhile."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    with path.open("rb") as file:
        size = path.stat().st_size
        yield head_of(name, size)
        while piece := file.read(BACKUP_PIECE_BYTES):
            digest.update(piece)
            yield piece
    yield bytes(-size % BLOCK)
    return digest.hexdigest()


class Unpacked(msgspec.Struct, frozen=True):
    """A backup in a folder, its digests compared."""

    folder: Path
    manifest: Manifest

    @property
    def inventory(self) -> Path:
        return self.folder / INVENTORY

    def parts(self, table: str) -> list[Path]:
        store = self.manifest.store
        names = [] if store is None else [part.name for part in store.tables[table]]
        return [self.folder / "store" / table / name for name in names]


def peek_manifest(file: Path) -> Manifest:
    """The manifest of an archive, without reading the rest. Raises OSError, BackupError."""
    try:
        with tarfile.open(file, mode="r:") as entries:
            content = entries.extractfile(entries.getmember(MANIFEST))
            if content is None:
                raise BackupError(f"{file}: its manifest is no plain file")
            return read_manifest(content)
    except (tarfile.TarError, EOFError) as error:
        raise BackupError(f"{file} is no backup, or was cut off: {error}") from error
    except KeyError:
        raise BackupError(f"{file} has no manifest: it is no backup, or was cut off") from None


def unpack(archive: IO[bytes], folder: Path, show: Callable[[int], None]) -> Unpacked:
    """Unpack an archive into an empty folder and compare every file with the manifest.

    ``show`` gets the bytes that are done, again and again.
    """
    done = 0
    digests: dict[str, dict[str, str]] = defaultdict(dict)
    manifest: Manifest | None = None
    try:
        with tarfile.open(fileobj=archive, mode="r|") as entries:
            for entry in entries:
                content = entries.extractfile(entry)
                if content is None or not entry.isreg():
                    raise BackupError(f"not a backup: {entry.name[:200]!r} is no plain file")
                if entry.name == MANIFEST:
                    manifest = read_manifest(content)
                else:
                    place, name = place_of(entry.name)
                    digests[place][name] = keep(content, folder / entry.name)
                    done += entry.size
                    show(done)
    except (tarfile.TarError, EOFError) as error:
        raise BackupError(f"the archive cannot be read, it may be cut off: {error}") from error
    if manifest is None:
        raise BackupError("the archive has no manifest: it is no backup, or was cut off")
    compare(manifest, digests)
    return Unpacked(folder, manifest)


def place_of(name: str) -> tuple[str, str]:
    """To which part a file belongs, and its name there. Refuses names that no backup has."""
    if name == INVENTORY:
        return "", INVENTORY
    found = STORED.fullmatch(name)
    if found is None or found[1] not in MOVED_TABLES or found[3] in {".", ".."}:
        raise BackupError(f"not a backup: it has a file {name[:200]!r}")
    return f"{found[1]}/{found[2]}", found[3]


def read_manifest(content: IO[bytes]) -> Manifest:
    text = content.read(MANIFEST_BYTES_MAX)
    try:
        return msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BackupError(f"the backup's manifest cannot be read: {error}") from error


def keep(content: IO[bytes], target: Path) -> str:
    """Write a file; its digest."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        while piece := content.read(BACKUP_PIECE_BYTES):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def compare(manifest: Manifest, digests: dict[str, dict[str, str]]) -> None:
    """Raise BackupError for what is missing, too much, or other than it was."""
    tables = {} if manifest.store is None else manifest.store.tables
    if odd := sorted(set(tables) - set(MOVED_TABLES)):
        raise BackupError(
            f"the backup has a table {odd[0][:80]!r}, which this release does not know"
        )
    wanted = {
        f"{table}/{part.name}": part.digest for table, parts in tables.items() for part in parts
    }
    found = {place: digest_of_files(files) for place, files in digests.items() if place}
    for place in sorted(wanted.keys() | found.keys()):
        if wanted.get(place) != found.get(place):
            raise BackupError(f"part {place} is not what was backed up: the archive is damaged")
    if digests.get("", {}).get(INVENTORY) != manifest.inventory.digest:
        raise BackupError(f"{INVENTORY} is not what was backed up: the archive is damaged")
