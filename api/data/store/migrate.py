"""Migrations of the telemetry store: one SQL text, rendered for one machine or for a cluster.

A migration is `migrations/NNNN_<what>.sql`. It has three blanks: ``{{engine}}`` and
``{{on_cluster}}``, which differ between chDB and a replicated ClickHouse, and
``{{retention_days}}``, which `api.data.store.Store` keeps in step with the settings afterwards. A
migration never destroys: one that drops or rewrites data is refused; an operator does that by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from importlib import resources

import msgspec

from collector.contract.errors import StoreError

SINGLE_ENGINE = "ReplacingMergeTree"
CLUSTER_ENGINE = (
    "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')"
)

LEDGER = """
CREATE TABLE IF NOT EXISTS migrations {{on_cluster}}
(
    number  UInt32,
    name    String,
    digest  String,
    applied DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = {{engine}}
ORDER BY number
"""

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_DESTROYS = re.compile(
    r"\b(DROP|TRUNCATE|DETACH|CLEAR|RENAME|EXCHANGE|REPLACE\s+PARTITION|OR\s+REPLACE"
    r"|MODIFY\s+COLUMN|DELETE\s+FROM|(DELETE|UPDATE)\s[^;]*\bWHERE)\b",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


class Placement(msgspec.Struct, frozen=True):
    """Where the tables live: in one engine (``cluster`` is None) or on a named cluster."""

    cluster: str | None = None

    def render(self, text: str, retention_days: int) -> str:
        filled = {
            "engine": CLUSTER_ENGINE if self.cluster else SINGLE_ENGINE,
            "on_cluster": f"ON CLUSTER '{self.cluster}'" if self.cluster else "",
            "retention_days": str(retention_days),
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda blank: filled[blank[1]], text)


class Migration(msgspec.Struct, frozen=True):
    """One numbered file."""

    number: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        """Recognises a file that was changed after it had been applied."""
        return blake2b(self.text.encode(), digest_size=8).hexdigest()

    def statements(self, placement: Placement, retention_days: int) -> list[str]:
        """The rendered statements, in order, without comments."""
        rendered = placement.render(_COMMENT.sub("", self.text), retention_days)
        return [statement.strip() for statement in rendered.split(";") if statement.strip()]


def load_migrations() -> list[Migration]:
    """The migrations that ship with this program, in order and checked."""
    folder = resources.files("api.data.store") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    migrations = [
        Migration(int(name[:4]), name, (folder / name).read_text("utf-8")) for name in names
    ]
    check_migrations(migrations)
    return migrations


def check_migrations(migrations: list[Migration]) -> None:
    """Raise StoreError unless the files are numbered 1, 2, 3 … and none destroys data."""
    for expected, migration in enumerate(migrations, start=1):
        if not _FILE_NAME.fullmatch(migration.name) or migration.number != expected:
            msg = f"migration {migration.name}: number {expected:04d} comes next (NNNN_<what>.sql)"
            raise StoreError(msg)
        if found := _DESTROYS.search(_COMMENT.sub("", migration.text)):
            msg = f"migration {migration.name} contains {found[0]!r}: migrations never destroy data"
            raise StoreError(msg)


def apply_migrations(
    execute: Callable[[str], None],
    applied: Callable[[], dict[int, str]],
    record: Callable[[Migration], None],
    placement: Placement,
    retention_days: int,
) -> list[str]:
    """Apply what is not applied yet; returns the names of what was applied now.

    ``execute`` runs one statement, ``applied`` gives digests by number from the ledger,
    ``record`` adds a line to it. Each
    statement is idempotent (IF NOT EXISTS), so a crash between two of them is mended by the
    next start. A newer ledger than this program's means that a newer release ran: refuse, since
    its tables may mean something else.
    """
    execute(placement.render(LEDGER, retention_days))
    known = applied()
    migrations = load_migrations()
    if known and max(known) > len(migrations):
        raise StoreError(
            f"the store is at migration {max(known)}, this release knows {len(migrations)}: "
            "a newer release wrote it; start that one"
        )
    done = []
    for migration in migrations:
        if migration.number in known:
            if known[migration.number] != migration.digest:
                raise StoreError(
                    f"migration {migration.name} was changed after it had been applied"
                )
            continue
        for statement in migration.statements(placement, retention_days):
            execute(statement)
        record(migration)
        done.append(migration.name)
    return done
