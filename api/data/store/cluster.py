"""A ClickHouse cluster as the store needs it: settings, and the layouts that are refused.

Before tables are made, and when a service starts, the cluster says what it is. A layout that would
make answers partial or double is refused, with the name of what is wrong: such an answer looks like
one that is right. A replica that is away is not refused while another one of its shard is there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from api.data.store.migrate import LEDGER, LOCAL, MADE_FOR, Placement, load_migrations
from collector.contract.errors import StoreError

log = logging.getLogger(__name__)

CLUSTER_WRITE_SETTINGS: Final = {
    # Acknowledged means: on most replicas of the shard, so that one that burns takes nothing along.
    # In parallel, as several processes insert: one at a time is what sequential reads would need.
    "insert_quorum": "auto",
    "insert_quorum_parallel": "1",
    "insert_quorum_timeout": "10000",
    # A block that is sent again because its answer was lost is recognised by its digest, which the
    # replicas of a shard share. Inserts that the server gathers have none.
    "async_insert": "0",
    "insert_deduplicate": "1",
    # A node that is away does not fail a statement for all: it runs it when it is back.
    "distributed_ddl_output_mode": "null_status_on_timeout",
    "distributed_ddl_task_timeout": "30",
}
"""Of the connection that writes to a cluster."""
REPLICA_DELAY_SECONDS_MAX: Final = 10
"""A replica that is further behind answers no question: verdicts wait for data about as long."""
SHARD_READ_SETTINGS: Final = {
    # A series stands beside its samples: what `IN` and `JOIN` look for is on the shard that asks.
    "distributed_product_mode": "local",
    # An answer without a shard's rows looks like hosts without faults.
    "skip_unavailable_shards": "0",
    # Always the same replica, while it answers and is not behind: two answers in a row then agree.
    "load_balancing": "in_order",
    "max_replica_delay_for_distributed_queries": str(REPLICA_DELAY_SECONDS_MAX),
    "fallback_to_stale_replicas_for_distributed_queries": "0",
}
"""Of every connection to several shards."""
SHARD_WRITE_SETTINGS: Final = {
    # `INSERT INTO … SELECT` from one table to another runs on each shard, and moves no rows.
    "parallel_distributed_insert_select": "2",
    "distributed_foreground_insert": "1",
}
"""Of the connection that writes to several shards, beside those."""

CLUSTERS_SQL: Final = """
    SELECT cluster, shard_num AS shard, replica_num AS replica, host_name AS host, port,
        shard_weight AS weight, internal_replication
    FROM system.clusters ORDER BY cluster, shard, replica
"""
ANSWERED_SQL: Final = """
    SELECT _shard_num AS node, version() AS version
    FROM clusterAllReplicas('{cluster}', system.one) SETTINGS skip_unavailable_shards = 1
"""
MACROS_SQL: Final = """
    SELECT _shard_num AS node, macro, substitution AS value
    FROM clusterAllReplicas('{cluster}', system.macros) SETTINGS skip_unavailable_shards = 1
"""
SEEN_SQL: Final = """
    SELECT _shard_num AS node, shard_num AS shard, replica_num AS replica, host_name AS host, port
    FROM clusterAllReplicas('{cluster}', system.clusters) WHERE cluster = '{cluster}'
    ORDER BY node, shard, replica SETTINGS skip_unavailable_shards = 1
"""
TABLES_SQL: Final = """
    SELECT _shard_num AS node, name, engine, comment
    FROM clusterAllReplicas('{cluster}', system.tables)
    WHERE database = {{database:String}} SETTINGS skip_unavailable_shards = 1
"""
SHARD, REPLICA = "shard", "replica"
"""The macros that the path of a replicated table is made of."""
OVER_SHARDS: Final = "Distributed"
NAMED_MAX: Final = 5
"""Faults that an error names; those that are left out are counted."""

_CREATED = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")

Rows = Sequence[Mapping[str, Any]]
Ask = Callable[[str, Mapping[str, Any]], Rows]
"""Runs one question, with its parameters."""


class Node(msgspec.Struct, frozen=True):
    """A replica of a shard, as the cluster's configuration has it."""

    shard: int
    replica: int
    host: str
    port: int
    weight: int = 1
    internal_replication: bool = True

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster said of itself. Nodes are numbered from 1, as `clusterAllReplicas` does."""

    nodes: tuple[Node, ...]
    """By shard and replica."""
    versions: Mapping[int, str]
    """Of the nodes that answered."""
    macros: Mapping[int, Mapping[str, str]]
    seen: Mapping[int, tuple[tuple[int, int, str, int], ...]]
    """Of each node: the cluster as its own configuration has it."""

    def numbered(self) -> Iterator[tuple[int, Node]]:
        return enumerate(self.nodes, start=1)

    def by_shard(self) -> dict[int, list[tuple[int, Node]]]:
        found: dict[int, list[tuple[int, Node]]] = {}
        for number, node in self.numbered():
            found.setdefault(node.shard, []).append((number, node))
        return found

    def macro(self, number: int, name: str) -> str:
        return self.macros.get(number, {}).get(name, "")


def check_cluster(ask: Ask, placement: Placement) -> None:
    """Raise StoreError, with names, unless the cluster's layout gives whole answers.

    One shard is asked for no more than its configuration: no question of ours is for other nodes.
    """
    cluster = str(placement.cluster)
    nodes = nodes_of(ask(CLUSTERS_SQL, {}), cluster)
    refuse(cluster, faults_of_nodes(nodes, placement))
    if not placement.is_sharded:
        return
    layout = read_layout(ask, cluster, nodes)
    refuse(cluster, [*faults_of_layout(layout)])
    refuse(cluster, faults_of_tables(tables_of(ask, placement), layout, placement))
    away = [node.address for number, node in layout.numbered() if number not in layout.versions]
    if away:
        log.warning("store: %s of cluster %r do not answer", ", ".join(away), cluster)


def refuse(cluster: str, faults: Iterable[str]) -> None:
    found = list(faults)
    if found:
        more = f"; and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        raise StoreError(f"cluster {cluster!r}: {'; '.join(found[:NAMED_MAX])}{more}")


def nodes_of(rows: Rows, cluster: str) -> tuple[Node, ...]:
    """The nodes of this cluster; StoreError that names those that there are, if it is not one."""
    found = tuple(
        Node(
            int(row["shard"]),
            int(row["replica"]),
            str(row["host"]),
            int(row["port"]),
            int(row["weight"]),
            bool(row["internal_replication"]),
        )
        for row in rows
        if row["cluster"] == cluster
    )
    if not found:
        known = ", ".join(sorted({str(row["cluster"]) for row in rows})) or "none"
        raise StoreError(
            f"cluster {cluster!r} is not known to the server that is asked (it knows {known}): "
            "correct cluster= in the store's URL, or add it to the server's remote_servers"
        )
    return found


def read_layout(ask: Ask, cluster: str, nodes: tuple[Node, ...]) -> Layout:
    versions = {
        int(row["node"]): str(row["version"])
        for row in ask(ANSWERED_SQL.format(cluster=cluster), {})
    }
    macros: dict[int, dict[str, str]] = {}
    for row in ask(MACROS_SQL.format(cluster=cluster), {}):
        macros.setdefault(int(row["node"]), {})[str(row["macro"])] = str(row["value"])
    seen: dict[int, tuple[tuple[int, int, str, int], ...]] = {}
    for row in ask(SEEN_SQL.format(cluster=cluster), {}):
        one = int(row["shard"]), int(row["replica"]), str(row["host"]), int(row["port"])
        seen[int(row["node"])] = (*seen.get(int(row["node"]), ()), one)
    return Layout(nodes=nodes, versions=versions, macros=macros, seen=seen)


def faults_of_nodes(nodes: Sequence[Node], placement: Placement) -> Iterator[str]:
    """What is wrong with the configuration of the node that is asked."""
    shards = {node.shard for node in nodes}
    if len(shards) != placement.shards:
        yield (
            f"it has {len(shards)} shards, and the store's URL says shards={placement.shards}: "
            "rows would be looked for where they are not; write "
            f"cluster={placement.cluster}&shards={len(shards)} if that is what you mean"
        )
    places: dict[str, list[int]] = {}
    for node in nodes:
        places.setdefault(node.address, []).append(node.shard)
    for address, where in places.items():
        if len(where) > 1:
            numbers = " and ".join(map(str, where))
            yield (
                f"{address} stands in shards {numbers}: its rows would be counted twice; "
                "give each replica of each shard a server of its own"
            )
    if not placement.is_sharded:
        return
    weights = {node.shard: node.weight for node in nodes}
    if len(set(weights.values())) > 1:
        words = ", ".join(f"shard {shard}: {weight}" for shard, weight in weights.items())
        yield f"its shards differ in weight ({words}): hosts are placed evenly; set all to 1"
    for shard in sorted({node.shard for node in nodes if not node.internal_replication}):
        yield (
            f"shard {shard} has internal_replication false: each insert would go to every replica, "
            "beside replication; set it to true"
        )


def faults_of_layout(layout: Layout) -> Iterator[str]:
    """What is wrong with what the nodes say of themselves."""
    for shard, members in layout.by_shard().items():
        if not any(number in layout.versions for number, _ in members):
            addresses = ", ".join(node.address for _, node in members)
            yield (
                f"shard {shard} does not answer ({addresses}): answers would lack its hosts; "
                "start one of its replicas"
            )
    whole = tuple((node.shard, node.replica, node.host, node.port) for node in layout.nodes)
    for number, node in layout.numbered():
        if number not in layout.versions:
            continue
        if layout.seen.get(number, ()) != whole:
            count = len({shard for shard, *_ in layout.seen.get(number, ())})
            yield (
                f"{node.address} (shard {node.shard}) has another list of its nodes, with {count} "
                "shards: what it is asked it would answer from those; give all the same "
                "remote_servers"
            )
        for name in (SHARD, REPLICA):
            if not layout.macro(number, name):
                yield (
                    f"{node.address} (shard {node.shard}) has no macro {name!r}: "
                    "its tables have no place of their own; set it under <macros>"
                )
    yield from faults_of_macros(layout)


def faults_of_macros(layout: Layout) -> Iterator[str]:
    """Tables with the same macro `shard` are replicas of each other, wherever they stand."""
    named: dict[str, dict[int, str]] = {}
    for shard, members in layout.by_shard().items():
        values: dict[str, str] = {}
        replicas: dict[str, str] = {}
        for number, node in members:
            value, replica = layout.macro(number, SHARD), layout.macro(number, REPLICA)
            if value:
                values.setdefault(value, node.address)
                named.setdefault(value, {}).setdefault(shard, node.address)
            if replica and replica in replicas:
                yield (
                    f"{replicas[replica]} and {node.address} of shard {shard} have the same macro "
                    f"replica={replica!r}: the second cannot make its tables; give each its own"
                )
            replicas.setdefault(replica, node.address)
        if len(values) > 1:
            words = ", ".join(f"{address}: {value!r}" for value, address in values.items())
            yield (
                f"replicas of shard {shard} differ in the macro shard ({words}): they would not "
                "have the same rows; give them one value"
            )
    for value, where in named.items():
        if len(where) > 1:
            words = " and ".join(f"{shard} ({address})" for shard, address in where.items())
            yield (
                f"shards {words} have the same macro shard={value!r}: they would be replicas of "
                "each other, and rows counted twice; give each shard its own value"
            )


Tables = Mapping[int, Mapping[str, tuple[str, str]]]
"""By node: engine and comment of each table of our database."""


def tables_of(ask: Ask, placement: Placement) -> Tables:
    sql = TABLES_SQL.format(cluster=placement.cluster)
    found: dict[int, dict[str, tuple[str, str]]] = {}
    for row in ask(sql, {"database": placement.database}):
        kinds = found.setdefault(int(row["node"]), {})
        kinds[str(row["name"])] = str(row["engine"]), str(row["comment"])
    return found


def table_names(placement: Placement) -> list[str]:
    """Of all tables that migrations make, those over all shards among them."""
    texts = [
        *placement.statements(LEDGER, 1),
        *(each for migration in load_migrations() for each in migration.statements(placement, 1)),
    ]
    return [found[1] for text in texts if (found := _CREATED.match(text))]


def faults_of_tables(tables: Tables, layout: Layout, placement: Placement) -> Iterator[str]:
    """Tables that were made for another layout."""
    made_for = MADE_FOR.format(shards=placement.shards)
    over = {name for name in table_names(placement) if not name.endswith(LOCAL)}
    for number, node in layout.numbered():
        for name, (engine, comment) in sorted(tables.get(number, {}).items()):
            if name not in over:
                continue
            where = f"{node.address} (shard {node.shard}): table {name}"
            if engine != OVER_SHARDS:
                yield (
                    f"{where} was made for one shard ({engine}): questions to it would miss the "
                    "others' rows; name another database, rows of this one stay readable with "
                    "shards=1"
                )
            elif comment != made_for:
                yield (
                    f"{where} was made for another number of shards ({comment}), and there are "
                    f"{placement.shards}: rows that are sent again would stand on two; "
                    "see docs/how-to/run-on-a-cluster.md, Add a shard"
                )


def tables_missing(ask: Ask, placement: Placement) -> list[str]:
    """Which nodes that answer lack which tables, in words."""
    nodes = nodes_of(ask(CLUSTERS_SQL, {}), str(placement.cluster))
    layout = read_layout(ask, str(placement.cluster), nodes)
    tables, wanted = tables_of(ask, placement), table_names(placement)
    found = []
    for number, node in layout.numbered():
        lacks = [name for name in wanted if name not in tables.get(number, {})]
        if number in layout.versions and lacks:
            found.append(
                f"{node.address} (shard {node.shard}) lacks {', '.join(lacks)}: it does not run "
                "the cluster's statements; look at system.distributed_ddl_queue there"
            )
    return found
