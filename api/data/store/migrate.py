"""Migrations of the telemetry store: one SQL text, rendered for one machine or for a cluster.

A migration is `migrations/NNNN_<what>.sql`. It has three blanks: ``{{engine}}`` and
``{{on_cluster}}``, which differ between chDB and a replicated ClickHouse, and
``{{retention_days}}``, which `api.data.store.Store` keeps in step with the settings afterwards. A
migration never destroys: one that drops or rewrites data is refused; an operator does that by hand.

On several shards a table is two: `samples_local` has the rows of its shard, and `samples`, which
has none, reads that of every shard (``ENGINE = Distributed``). The same text is rendered to both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from importlib import resources
from typing import Final

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

LOCAL: Final = "_local"
"""What the name of a table with one shard's rows ends with."""
MADE_FOR: Final = "fabricscope: rows are placed on {shards} shards"
"""Comment of each table over all shards: where a row stands depends on how many there are."""

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_DESTROYS = re.compile(
    r"\b(DROP|TRUNCATE|DETACH|CLEAR|RENAME|EXCHANGE|REPLACE\s+PARTITION|OR\s+REPLACE"
    r"|MODIFY\s+COLUMN|DELETE\s+FROM|(DELETE|UPDATE)\s[^;]*\bWHERE)\b",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


_NAMED = re.compile(r"\b(CREATE TABLE IF NOT EXISTS|ALTER TABLE)\s+(\w+)(?=\s+\{\{on_cluster\}\})")
_SETS = re.compile(r"(ALTER TABLE .*?)\s+MODIFY SETTING\s+(.*)", re.DOTALL)
_ADDS_COLUMN = re.compile(r"\bADD\s+COLUMN\b", re.IGNORECASE)


class Placement(msgspec.Struct, frozen=True):
    """Where the tables live: in one engine (``cluster`` is None) or on a named cluster."""

    cluster: str | None = None
    shards: int = 1
    database: str = "default"

    @property
    def is_sharded(self) -> bool:
        return self.shards > 1

    @property
    def on_cluster(self) -> str:
        return f"ON CLUSTER '{self.cluster}'" if self.cluster else ""

    def local(self, table: str) -> str:
        """The table that has rows: of the shard that is asked, where there are several."""
        return f"{table}{LOCAL}" if self.is_sharded else table

    def of_all_shards(self, sql: str) -> str:
        """A question about parts and disks, of every shard: the engine tells those of one node.

        Parts are those of one replica of each shard, under the names of our tables; disks of all.
        """
        if not self.is_sharded:
            return sql
        parts = (
            f"(SELECT * REPLACE (replaceRegexpOne(table, '{LOCAL}$', '') AS table) "  # noqa: S608 - our words
            f"FROM cluster('{self.cluster}', system.parts))"
        )
        disks = f"clusterAllReplicas('{self.cluster}', system.disks)"
        return sql.replace("system.parts", parts).replace("system.disks", disks)

    def statements(self, text: str, retention_days: int) -> list[str]:
        """The statements of a text with blanks, in order."""
        found = [each.strip() for each in text.split(";") if each.strip()]
        if self.is_sharded:
            found = [each for one in found for each in self._on_shards(one)]
        return [self._fill(each, retention_days) for each in found]

    def dropping(self, table: str, partition: str) -> str:
        """The statement that drops a partition. One replica tells the others of its shard."""
        where = self.on_cluster if self.is_sharded else ""
        return f"ALTER TABLE {self.local(table)} {where} DROP PARTITION ID '{partition}'"

    def _on_shards(self, statement: str) -> list[str]:
        """What a statement is on several shards: for the tables with rows, and those over them."""
        named = _NAMED.match(statement)
        if named is None:
            words = " ".join(statement.split()[:6])
            raise StoreError(f"{words!r} has no form for shards: it names no table and cluster")
        doing, table = named.groups()
        local = _NAMED.sub(f"{doing} {table}{LOCAL}", statement, count=1)
        if doing.startswith("CREATE"):
            return [local, self._over(table)]
        return [local, statement] if _ADDS_COLUMN.search(statement) else [local]

    def _over(self, table: str) -> str:
        """No sharding key: the engine then refuses inserts that do not say for which shard.

        The database is named: a statement for a cluster runs in another one on each node.
        """
        made_for = MADE_FOR.format(shards=self.shards)
        return (
            f"CREATE TABLE IF NOT EXISTS {table} {{{{on_cluster}}}} "
            f"AS `{self.database}`.{table}{LOCAL}\n"
            f"ENGINE = Distributed('{self.cluster}', '{self.database}', '{table}{LOCAL}')\n"
            f"COMMENT '{made_for}'"
        )

    def _fill(self, text: str, retention_days: int) -> str:
        filled = {
            "engine": CLUSTER_ENGINE if self.cluster else SINGLE_ENGINE,
            "on_cluster": self.on_cluster,
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
        return placement.statements(_COMMENT.sub("", self.text), retention_days)


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


def statements_again(placement: Placement, retention_days: int) -> list[str]:
    """What makes all tables as they are after the last migration, on nodes that lack some.

    Settings of a table come in one statement, as they are in the end: on nodes that have them,
    those of an older migration may contradict what a later one set.
    """
    made: list[str] = []
    settings: dict[str, dict[str, str]] = {}
    for migration in load_migrations():
        for statement in migration.statements(placement, retention_days):
            if found := _SETS.fullmatch(statement):
                pairs = (each.split("=") for each in found[2].split(","))
                own = settings.setdefault(" ".join(found[1].split()), {})
                own.update((name.strip(), value.strip()) for name, value in pairs)
            else:
                made.append(statement)
    for altering, own in settings.items():
        words = ", ".join(f"{name} = {value}" for name, value in own.items())
        made.append(f"{altering} MODIFY SETTING {words}")
    return made


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
    for statement in placement.statements(LEDGER, retention_days):
        execute(statement)
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
