"""Layouts of a ClickHouse cluster that would answer in part or twice are refused by name."""

import json
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from api.data.store import cluster as module
from api.data.store.cluster import check_cluster, table_names, tables_missing
from api.data.store.migrate import LOCAL, MADE_FOR, Placement
from collector.contract.errors import StoreError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "clusters" / "three_by_two.json"
SHARDS = Placement("prod", 3)
NODES = range(1, 7)

Rows = list[dict[str, Any]]


class Said:
    """What a cluster answers to the questions about its layout; tests change it."""

    def __init__(self) -> None:
        found: dict[str, Rows] = json.loads(FIXTURE.read_text("utf-8"))
        self.clusters, self.macros = found["clusters"], found["macros"]
        self.answered: Rows = [{"node": node, "version": "26.9.2.1"} for node in NODES]
        own = [row for row in self.clusters if row["cluster"] == "prod"]
        self.seen: Rows = [{**deepcopy(row), "node": node} for node in NODES for row in own]
        self.tables: Rows = []

    def make_tables(self, placement: Placement) -> None:
        """As migrations make them."""
        made_for = MADE_FOR.format(shards=placement.shards)
        for node in NODES:
            for name in table_names(placement):
                is_over = placement.is_sharded and not name.endswith(LOCAL)
                engine = "Distributed" if is_over else "ReplicatedReplacingMergeTree"
                comment = made_for if is_over else ""
                row = {"node": node, "name": name, "engine": engine, "comment": comment}
                self.tables.append(row)

    def silence(self, *nodes: int) -> None:
        """These do not answer."""
        for rows in (self.answered, self.macros, self.seen, self.tables):
            rows[:] = [row for row in rows if row["node"] not in nodes]

    def ask(self, sql: str, parameters: Mapping[str, Any]) -> Rows:
        """By the table that is asked for."""
        if "system.tables" in sql:
            assert parameters == {"database": "default"}
            return self.tables
        if "clusterAllReplicas('prod', system.clusters)" in sql:
            return self.seen
        if "system.macros" in sql:
            return self.macros
        return self.answered if "system.one" in sql else self.clusters

    def macro(self, node: int, name: str) -> dict[str, Any]:
        """The row of a node's macro."""
        return next(row for row in self.macros if (row["node"], row["macro"]) == (node, name))

    def node(self, number: int) -> dict[str, Any]:
        """The row of a node in the configuration of the one that is asked."""
        return [row for row in self.clusters if row["cluster"] == "prod"][number - 1]


@pytest.fixture
def said() -> Said:
    return Said()


def test_a_layout_that_is_right_is_taken_before_and_after_tables_are_made(
    said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    check_cluster(said.ask, SHARDS)
    said.make_tables(SHARDS)
    check_cluster(said.ask, SHARDS)
    assert tables_missing(said.ask, SHARDS) == []
    assert not caplog.records


def test_a_replica_that_is_away_is_named_and_refuses_nothing(
    said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    said.make_tables(SHARDS)
    said.silence(2, 5)
    with caplog.at_level(logging.WARNING, module.__name__):
        check_cluster(said.ask, SHARDS)
    assert caplog.messages == ["store: ch-1b:9000, ch-3a:9000 of cluster 'prod' do not answer"]
    assert tables_missing(said.ask, SHARDS) == []


def weigh(said: Said) -> None:
    said.node(3)["weight"] = said.node(4)["weight"] = 2


def write_to_each(said: Said) -> None:
    said.node(5)["internal_replication"] = said.node(6)["internal_replication"] = 0


def stand_twice(said: Said) -> None:
    said.node(4)["host"] = "ch-1a"


def see_two_shards(said: Said) -> None:
    said.seen = [row for row in said.seen if row["node"] != 4 or row["shard"] != 3]


def know_no_cluster(said: Said) -> None:
    said.seen = [row for row in said.seen if row["node"] != 4]


def have_no_macro(said: Said) -> None:
    said.macros.remove(said.macro(3, "shard"))


def share_a_macro(said: Said) -> None:
    for node in (3, 4):
        said.macro(node, "shard")["value"] = "01"


def differ_in_a_macro(said: Said) -> None:
    said.macro(6, "shard")["value"] = "04"


def share_a_replica(said: Said) -> None:
    said.macro(2, "replica")["value"] = "ch-1a"


def be_made_for_one(said: Said) -> None:
    said.make_tables(Placement("prod"))


def be_made_for_two(said: Said) -> None:
    said.make_tables(Placement("prod", 2))


WRONG: list[tuple[Callable[[Said], object], str]] = [
    (weigh, "its shards differ in weight (shard 1: 1, shard 2: 2, shard 3: 1)"),
    (write_to_each, "shard 3 has internal_replication false"),
    (stand_twice, "ch-1a:9000 stands in shards 1 and 2: its rows would be counted twice"),
    (see_two_shards, "ch-2b:9000 (shard 2) has another list of its nodes, with 2 shards"),
    (know_no_cluster, "ch-2b:9000 (shard 2) has another list of its nodes, with 0 shards"),
    (have_no_macro, "ch-2a:9000 (shard 2) has no macro 'shard'"),
    (share_a_macro, "shards 1 (ch-1a:9000) and 2 (ch-2a:9000) have the same macro shard='01'"),
    (differ_in_a_macro, "replicas of shard 3 differ in the macro shard (ch-3a:9000: '03', ch-3b"),
    (share_a_replica, "ch-1a:9000 and ch-1b:9000 of shard 1 have the same macro replica='ch-1a'"),
    (lambda said: said.silence(3, 4), "shard 2 does not answer (ch-2a:9000, ch-2b:9000)"),
    (be_made_for_one, "ch-1a:9000 (shard 1): table collectives was made for one shard (Replicated"),
    (be_made_for_two, "made for another number of shards (fabricscope: rows are placed on 2 shar"),
]


@pytest.mark.parametrize(("spoil", "says"), WRONG)
def test_a_wrong_layout_is_refused_by_name(
    said: Said, spoil: Callable[[Said], object], says: str
) -> None:
    spoil(said)
    with pytest.raises(StoreError) as caught:
        check_cluster(said.ask, SHARDS)
    assert says in str(caught.value)
    assert "cluster 'prod'" in str(caught.value)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_another_number_of_shards_than_the_address_says_is_refused(said: Said, shards: int) -> None:
    with pytest.raises(StoreError, match=f"it has 3 shards, and the store's URL says .*={shards}"):
        check_cluster(said.ask, Placement("prod", shards))


def test_a_cluster_that_no_server_knows_is_refused_with_those_that_there_are(said: Said) -> None:
    with pytest.raises(StoreError, match=r"'prd' is not known .* \(it knows default, prod\)"):
        check_cluster(said.ask, Placement("prd", 3))


def test_of_one_shard_no_other_node_is_asked(said: Said) -> None:
    said.clusters = [row for row in said.clusters if row["shard"] == 1]
    asked: list[str] = []

    def ask(sql: str, parameters: Mapping[str, Any]) -> Rows:
        asked.append(sql)
        return said.ask(sql, parameters)

    check_cluster(ask, Placement("prod"))
    assert asked == [module.CLUSTERS_SQL]


def test_a_node_that_answers_and_lacks_tables_is_named_with_them(said: Said) -> None:
    said.make_tables(SHARDS)
    said.tables = [row for row in said.tables if (row["node"], row["name"]) != (4, "steps_local")]
    [missing] = tables_missing(said.ask, SHARDS)
    assert missing.startswith("ch-2b:9000 (shard 2) lacks steps_local: ")


def test_of_many_faults_some_are_named_and_the_others_counted(said: Said) -> None:
    said.macros.clear()
    with pytest.raises(StoreError, match=r"; and 7 more$") as caught:
        check_cluster(said.ask, SHARDS)
    assert str(caught.value).count("has no macro") == module.NAMED_MAX
