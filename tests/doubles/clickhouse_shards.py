"""A ClickHouse cluster of three shards, for tests: one engine that reads each shard apart.

No server can be had where these tests run. But the engine runs a part of a distributed question in
its own process where a shard's address is its own, and it takes four addresses of loopback for its
own. So here three shards are three databases, `s1` to `s3`, of one chDB behind ClickHouse's HTTP
interface, and everything that is asked of a table over all shards is planned, run on each shard and
put together by the engine itself. What is *not* its own is in `Shards`, all of it:

- `X_local` of the database that is asked is a Merge table over those of the three; a filter lets
  each shard's part of a question see its own rows alone (`shardNum()`);
- ON CLUSTER, which needs a ZooKeeper, is taken away, and a statement for `X_local` is run for each
  of the three; replicated engines, which need one as well, become plain ones;
- an insert with `insert_shard_id` goes to that shard's database;
- the macro `shard` of each node ends with the node's number, as all share one configuration;
- parts are those of the three databases.

So replicas, quorums, replication, the native protocol and a node that is away do not happen here.
"""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from api.data.store import owner
from tests.doubles import clickhouse_http

SHARDS = 3
CLUSTER = "three"
ADDRESSES = ("127.0.0.1", "127.0.1.1", "127.1.0.1")
"""Of loopback, those that the engine takes for its own."""
DATABASE = "default"

ON_CLUSTER = re.compile(r"\bON CLUSTER '\w+'\s*")
REPLICATED = re.compile(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'\)")
LOCAL_TABLE = re.compile(
    r"^\s*(CREATE TABLE IF NOT EXISTS|ALTER TABLE|SHOW CREATE TABLE) (\w+_local)\b"
)
INSERTED = re.compile(r"INSERT\s+INTO\s+(?:`?\w+`?\.)?`?(\w+)`?", re.IGNORECASE)
SHARD_ID = "insert_shard_id"
SAME_MACROS = "--same-macros"


def configuration() -> str:
    """As a server's, with a cluster of shards that are all this process."""
    shards = "".join(
        "<shard><internal_replication>true</internal_replication>"
        f"<replica><host>{address}</host><port>9000</port></replica></shard>"
        for address in ADDRESSES
    )
    return (
        "<clickhouse><tcp_port>9000</tcp_port>"
        "<macros><shard>0</shard><replica>a</replica></macros>"
        f"<remote_servers><{CLUSTER}>{shards}</{CLUSTER}></remote_servers></clickhouse>"
    )


def to_shard(sql: str, asked: Mapping[str, str]) -> str:
    """An insert that says for which shard it is goes to that one's database."""
    shard = asked.get(SHARD_ID, "")
    return INSERTED.sub(rf"INSERT INTO s{shard}.\1_local", sql, count=1) if shard else sql


def without_shard(asked: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in asked.items() if name != SHARD_ID}


class Shards(owner.Engine):
    """The engine with three databases for shards. Notes every statement, as it was asked."""

    are_macros_told_apart = True

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._configured = folder.parent / f"{folder.name}.xml"
        self._configured.write_text(configuration())
        self._locals: set[str] = set()
        self._noted = folder.parent / f"{folder.name}.sql"
        super().__init__(folder)
        for number in range(1, SHARDS + 1):
            super()._execute(f"CREATE DATABASE IF NOT EXISTS s{number}", {})

    def _connect(self, settings: owner.Settings) -> Any:  # noqa: ANN401 - chDB ships no types
        if "config-file" not in self._place:
            self._place += f"&config-file={self._configured}"
        return super()._connect(settings)

    def insert(self, target: str, form: str, file: str, asked: Mapping[str, str]) -> None:
        """To the database of the shard that it is for; without one the engine decides."""
        self._note(f"{target} FORMAT {form}", asked)
        super().insert(to_shard(target, asked), form, file, without_shard(asked))

    def _note(self, sql: str, asked: Mapping[str, str]) -> None:
        with self._noted.open("a") as file:
            file.write(repr({"sql": sql, **asked}) + "\n")

    def _execute(self, sql: str, asked: Mapping[str, str]) -> tuple[str, bytes]:
        if "FROM INFILE" not in sql:
            self._note(sql, asked)
        plain = REPLICATED.sub(r"\1", ON_CLUSTER.sub("", sql))
        if plain.startswith("SYSTEM SYNC REPLICA"):
            return super()._execute("SELECT 1", {})
        if found := LOCAL_TABLE.match(plain):
            return self._for_each(plain, found[1], found[2], asked)
        plain = to_shard(plain, asked)
        if self.are_macros_told_apart:
            plain = plain.replace(
                "substitution AS value", "substitution || toString(_shard_num) AS value"
            )
        plain = plain.replace(
            f"cluster('{CLUSTER}', system.parts)",
            f"(SELECT * REPLACE ('{DATABASE}' AS database) FROM "  # noqa: S608 - our words
            "(SELECT * FROM system.parts WHERE match(database, '^s[1-9]$')))",
        )
        return super()._execute(plain, {**without_shard(asked), **self._filters()})

    def _filters(self) -> dict[str, str]:
        only = "_database = concat(\\'s\\', toString(shardNum()))"
        pairs = ", ".join(f"'{name}': '{only}'" for name in sorted(self._locals))
        return {"additional_table_filters": f"{{{pairs}}}"} if pairs else {}

    def _for_each(
        self, plain: str, doing: str, table: str, asked: Mapping[str, str]
    ) -> tuple[str, bytes]:
        answer = "", b""
        for number in range(1, SHARDS + 1):
            of_one = plain.replace(f"{doing} {table}", f"{doing} s{number}.{table}", 1)
            answer = super()._execute(of_one, asked)
        if doing.startswith("CREATE") and table not in self._locals:
            super()._execute(
                f"CREATE TABLE IF NOT EXISTS {table} AS s1.{table} "
                f"ENGINE = Merge(REGEXP('^s[1-9]$'), '^{table}$')",
                {},
            )
            self._locals.add(table)
        return answer


@contextlib.contextmanager
def server(folder: Path, *, are_macros_told_apart: bool = True) -> Iterator[str]:
    """The `clickhouse://` URL of a cluster over this folder, with its name and shards."""
    command = [sys.executable, "-m", "tests.doubles.clickhouse_shards", str(folder)]
    command += [] if are_macros_told_apart else [SAME_MACROS]
    with subprocess.Popen(command, cwd=clickhouse_http.ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield f"clickhouse://127.0.0.1:{port}/{DATABASE}?cluster={CLUSTER}&shards={SHARDS}"
        finally:
            process.kill()
            process.wait()


def statements(folder: Path) -> list[str]:
    """What a server over this folder was asked, one text for each statement with its settings."""
    return (folder.parent / f"{folder.name}.sql").read_text().splitlines()


if __name__ == "__main__":
    Shards.are_macros_told_apart = SAME_MACROS not in sys.argv
    owner.Engine = Shards  # type: ignore[misc]
    clickhouse_http.main(sys.argv[1])
