"""One store in one engine and one on three shards, with the same telemetry: the same answers.

The shards are `tests.doubles.clickhouse_shards`: what it does itself, and what the engine does, is
said there.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pyarrow as pa
import pytest

from api.data.backup.move import MOVES_SQL
from api.data.store.migrate import LEDGER, Placement, load_migrations
from api.data.store.shards import place_of_series, standing_on
from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from api.fabric import cache
from api.http import works
from api.oncall.evaluate import lead, task
from collector.contract import wire
from collector.contract.errors import StoreError
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.topology.model import Fabric
from tests.doubles import clickhouse_http, clickhouse_shards
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.simulated_cluster import GPUS_PER_HOST, JOB_HOSTS, small_job, small_scenario

API = Path(__file__).parents[2] / "api"
SECONDS = 9.0
ALIKE_SECONDS = 60.0
RANKS = JOB_HOSTS * GPUS_PER_HOST
TABLES = (*RETAINED_TABLES, "metadata")
ASKS = re.compile(rf"\b(FROM|JOIN|INTO)\s+({'|'.join(TABLES)})\b")
SUBQUERY = re.compile(r"\bIN\s+\(\s*SELECT|\bINNER\s+JOIN\b|\bIN\s+current\b")
"""A question inside another one."""


class Asked:
    """Which modules of the service asked a store, and what."""

    def __init__(self) -> None:
        self.statements: set[str] = set()
        self.modules: set[str] = set()

    def note(self, sql: str) -> None:
        self.statements.add(sql)
        frame = sys._getframe()
        while frame := frame.f_back:  # type: ignore[assignment]
            self.modules.add(str(frame.f_globals.get("__name__")))


class Twins:
    """Two services that were sent the same."""

    def __init__(self, one: InProcess, shards: InProcess, start_s: int, asked: Asked) -> None:
        self.one, self.shards = one, shards
        self.start_s = start_s
        self.asked = asked

    def answers(self, path: str, **parameters: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """What both say: status and document."""
        end_s = self.start_s + round(SECONDS)
        stretch = {
            key: value.replace("{at}", str(self.start_s)).replace("{end}", str(end_s))
            for key, value in parameters.items()
        }
        found = [each.client.get(path, params=stretch) for each in (self.one, self.shards)]
        first, second = ((each.status_code, each.content) for each in found)
        assert first[0] == 200, first
        return first, second


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    scenario = small_scenario(Fabric.ROCE, small_job(), seconds=SECONDS, tick_seconds=3.0)
    simulation = Simulation(scenario)
    start_ns = scenario.start_unix_ns
    reporter = Reporter(simulation.topology, "lab", start_ns, seed=5)
    asked = Asked()
    real = Store.query

    def query(store: Store, sql: str, *rest: Any, **more: Any) -> pa.Table:  # noqa: ANN401
        if store.is_sharded:
            asked.note(sql)
        return real(store, sql, *rest, **more)

    with ExitStack() as stack:
        for place, name, value in (
            (works, "JOBS_SECONDS", 0.5),
            (task, "EVALUATE_SECONDS", 1e6),
            (lead, "RENEW_SECONDS", 1e6),
            # It would be for good: the clock stands, and who asks first may ask before cables.
            (cache, "kept_seconds", lambda _: 0.0),
        ):
            stack.enter_context(patch.object(place, name, value))
        stack.enter_context(patch.object(Store, "query", query))
        folders = [tmp_path_factory.mktemp(name) for name in ("one", "three")]
        url = stack.enter_context(clickhouse_shards.server(folders[1] / "shards"))
        both = [
            stack.enter_context(
                in_process(
                    folder,
                    clock=lambda: start_ns / NS + SECONDS,
                    store_url=store_url,
                    commit_wait_seconds=1.0,
                )
            )
            for folder, store_url in zip(folders, (f"chdb://{folders[0] / 'x'}", url), strict=True)
        ]
        with ThreadPoolExecutor(16) as senders:
            for snapshot in simulation.run():
                bodies = list(reporter.batches(snapshot))
                for service in (*both, both[1]):  # the shards get all of it twice
                    sent = senders.map(partial(send, service), bodies)
                    assert {answer.status_code for answer in sent} == {200}
        for service in both:
            eventually(lambda s=service: is_known(s), "the job is known")  # type: ignore[misc]
        # Both write about the job what they found, once: their clocks stand.
        eventually(lambda: held(both[0]) == held(both[1]), "both have the same rows")
        eventually(lambda: linked(both[0]) == linked(both[1]) > 0, "both know the cables")
        yield Twins(both[0], both[1], start_ns // NS, asked)


def linked(service: InProcess) -> int:
    return len(service.client.get("/v1/topology").json()["links"])


def send(service: InProcess, body: bytes) -> httpx.Response:
    headers = {"content-type": wire.CONTENT_TYPE, "content-encoding": "zstd"}
    return service.client.post("/v1/ingest", content=body, headers=headers)


def is_known(service: InProcess) -> bool:
    places = service.inventory.jobs.ranks("train")
    return len(places) == RANKS and all(place.device for place in places)


def held(service: InProcess) -> list[list[dict[str, Any]]]:
    """How many rows there are, by table."""
    return [service.rows(f"SELECT count() AS n FROM {table} FINAL") for table in TABLES]  # noqa: S608


# --- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["samples", "series", "collectives", "steps", "events"])
def test_each_row_is_on_one_shard_and_all_are_there(twins: Twins, table: str) -> None:
    count = f"SELECT count() AS n FROM {table} FINAL"  # noqa: S608 - ours
    [one], [all_of_them] = twins.one.rows(count), twins.shards.rows(count)
    assert one == all_of_them
    spread = twins.shards.rows(
        f"SELECT _shard_num AS shard, count() AS n FROM {table} FINAL GROUP BY shard"  # noqa: S608
    )
    assert sum(row["n"] for row in spread) == one["n"]
    assert len(spread) > 1 or table == "events", "rows of several hosts"


@pytest.mark.parametrize("table", ["samples", "series", "collectives", "steps", "events"])
def test_the_engine_computes_the_shard_that_we_did(twins: Twins, table: str) -> None:
    """`migrate-store` sends by the engine's arithmetic what later inserts place by ours."""
    for shard in range(1, clickhouse_shards.SHARDS + 1):
        sql = f"SELECT count() AS n FROM {table} FINAL WHERE "  # noqa: S608 - ours
        here = standing_on(table, shard, clickhouse_shards.SHARDS)
        [one] = twins.one.rows(sql + here)
        [there] = twins.shards.rows(f"{sql} _shard_num = {shard}")
        assert one == there


LABELS = [
    {"host": "a", "instance": "b:1"},
    {"instance": "node-7:9100"},
    {"instance": "[fd00::7]:9100"},
    {"instance": "fd00::7"},
    {"instance": "plain"},
    {"Hostname": "gpu-1", "node": "other"},
    {"hostname": "gpu-2"},
    {"node": "n1"},
    {"host": "", "node": "n2"},
    {"job": "x"},
    {"host": "機"},
]


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_engine_and_program_place_labels_alike(twins: Twins, labels: Mapping[str, str]) -> None:
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in labels.items())
    place = place_of_series(labels, 77)
    for shard in range(1, 8):
        [row] = twins.one.rows(
            f"SELECT {standing_on('series', shard, 7)} AS here "  # noqa: S608 - ours
            f"FROM (SELECT map({pairs}) AS labels, toUInt64(77) AS series)"
        )
        assert row["here"] == (place % 7 + 1 == shard)


def test_an_insert_that_says_no_shard_is_refused_by_the_engine(twins: Twins) -> None:
    with (
        twins.shards.store.holding_writes("insert") as client,
        pytest.raises(Exception, match="no sharding key"),
    ):
        client.insert("metadata", [["m", "gauge", "", ""]])


# --- answers ------------------------------------------------------------------------------------

RATE = "sum by (host) (rate(fabric_port_transmit_bytes_total[10s]))"
QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("/api/v1/query", {"query": "up", "time": "{end}"}),
    *(
        (
            "/api/v1/query_range",
            {"query": query, "start": "{at}", "end": "{end}", "step": "2"},
        )
        for query in (
            RATE,
            "fabric_port_up",
            'count by (device) (fabric_port_up{host=~".+"})',
            "topk(3, increase(fabric_port_receive_bytes_total[20s]))",
            "quantile_over_time(0.9, fabric_gpu_temperature_celsius[20s])",
            "resets(fabric_port_transmit_bytes_total[30s])",
            "max_over_time(fabric_gpu_power_watts[10s])",
        )
    ),
    ("/api/v1/labels", {}),
    ("/api/v1/label/host/values", {}),
    ("/api/v1/label/__name__/values", {}),
    ("/api/v1/metadata", {}),
    ("/api/v1/series", {"match[]": "fabric_port_up"}),
    ("/api/v1/query_exemplars", {"query": "fabric_port_up", "start": "{at}", "end": "{end}"}),
    ("/federate", {"match[]": "fabric_port_up"}),
    ("/v1/samples", {"match": "fabric_port_up", "from": "{at}"}),
    ("/v1/audit", {}),
    ("/v1/bursts", {}),
    ("/v1/events", {}),
    ("/v1/fabric/state", {}),
    ("/v1/hosts", {}),
    ("/v1/health", {}),
    ("/v1/jobs", {}),
    ("/v1/jobs/train", {}),
    ("/v1/jobs/train/collectives", {}),
    ("/v1/jobs/train/heat", {}),
    ("/v1/jobs/train/matrix", {}),
    ("/v1/jobs/train/operations", {}),
    ("/v1/jobs/train/steps", {}),
    ("/v1/jobs/train/timeline", {}),
    ("/v1/jobs/train/trace", {}),
    ("/v1/jobs/train/verdict", {}),
    ("/v1/explain", {"job": "train"}),
    ("/v1/ports", {}),
    ("/v1/verdicts", {}),
]


@pytest.mark.parametrize(("path", "parameters"), QUESTIONS, ids=str)
def test_both_answer_the_same(twins: Twins, path: str, parameters: dict[str, str]) -> None:
    """Soon: works of each service may still note in its inventory what its store has."""

    def are_alike() -> bool:
        one, three = twins.answers(path, **parameters)
        return bool(three == one)

    with suppress(AssertionError):
        eventually(are_alike, "the same answer", ALIKE_SECONDS)
    one, three = twins.answers(path, **parameters)
    assert three == one


# --- statements ---------------------------------------------------------------------------------

PLACEMENTS = [Placement(), Placement("prod"), Placement("prod", 3, "telemetry")]
LOCAL_ONLY = re.compile(r"api\.diagnose\.|api\.data\.backup\.|api\.data\.store\.frozen")
"""Modules whose questions go to an embedded store alone: `diagnose`, backups."""
NOT_ASKED = {
    "api.data.ingest.overtaken",  # where a dump comes after a record of the same operation
    "api.data.store.rollups",  # on several shards there are none
    "api.data.store.shards",  # `migrate-store` asks the embedded store that it empties
    "api.data.store.store",  # the last minutes in memory, of an embedded store
    "api.fabric.probe_targets",  # series by their own numbers, where the mesh of probes is on
    "api.jobs.correlate.captured",  # where agents sent what they captured
    "api.jobs.correlate.wanted",  # a plain list of series, where steps of one job are compared
    "api.jobs.correlate.join",  # its words, by which another module asks
    "api.jobs.tenants",  # series of one device, where agents tell who has it alone
    "api.promql.ahead",  # of an embedded store
    "api.oncall.evaluate.series",  # where a process judges after another
    "api.promql.aliases",  # its words, by which another module asks
    "api.promql.rollup_rows",  # where a question is about whole buckets
}
"""Modules with words for a store that the questions here need not lead to."""
REVIEWED = {
    "api/data/export.py": 1,
    "api/data/store/shards.py": 2,
    "api/fleet/audit/facts.py": 8,
    "api/jobs/correlate/baseline.py": 1,
    "api/jobs/correlate/captured.py": 2,
    "api/jobs/correlate/traffic.py": 1,
    "api/jobs/correlate/windows.py": 1,
    "api/oncall/evaluate/series.py": 1,
    "api/promql/find.py": 1,
    "api/promql/series_index.py": 1,
}
"""Questions inside questions, by file: each compares series (or hosts) with series (or hosts), and
those stand on one shard. One that compares anything else must say GLOBAL, or be two questions."""


def texts_of(folder: Path) -> dict[str, list[str]]:
    """The SQL of each file: what stands between quotes and asks for one of our tables."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("*.py")):
        name = file.relative_to(folder.parent).as_posix()
        if not LOCAL_ONLY.match(name.replace("/", ".")) and ASKS.search(file.read_text("utf-8")):
            found[name] = [file.read_text("utf-8")]
    return found


def test_what_is_asked_inside_a_question_stands_on_the_same_shard() -> None:
    counted = {
        name: sum(len(SUBQUERY.findall(text)) for text in texts)
        for name, texts in texts_of(API).items()
    }
    assert {name: count for name, count in counted.items() if count} == REVIEWED


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An engine that gets statements as they are."""
    with clickhouse_http.server(tmp_path_factory.mktemp("parser") / "data") as url:
        store = Store(StoreUrl.parse(url))
        yield store
        store.close()


def is_parsed(parser: Store, statement: str) -> bool:
    """Bound values stand for themselves only where a statement is run."""
    bound = re.sub(r"\{\w+:\w+(\(\w+\))?\}", "''", statement)
    with parser.holding_writes("parse") as client:
        return bool(client.command(f"EXPLAIN AST {bound}"))


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["single", "cluster", "shards"])
def test_the_engine_understands_every_statement_that_makes_tables(
    parser: Store, placement: Placement
) -> None:
    texts = [LEDGER, MOVES_SQL]
    statements = [each for text in texts for each in placement.statements(text, 30)]
    for migration in load_migrations():
        statements += migration.statements(placement, 30)
    statements.append(placement.dropping("samples", "20261118"))
    assert len(statements) > len(load_migrations())
    for statement in statements:
        assert is_parsed(parser, statement), statement


def test_the_engine_understands_every_statement_that_a_cluster_was_sent(
    parser: Store, tmp_path: Path
) -> None:
    """As it left the service, ON CLUSTER and replicated: the double changes it only after that."""
    folder = tmp_path / "shards"
    with clickhouse_shards.server(folder) as url:
        store = Store(StoreUrl.parse(url), retention_days={"samples": 7, "steps": 9})
        store.migrate()
        store.stop("a-tag")
        store.sync("samples")
        store.close()
    asked = [each["sql"] for each in map(ast.literal_eval, clickhouse_shards.statements(folder))]
    for words in ("ON CLUSTER 'three'", "KILL QUERY ON CLUSTER", "SYSTEM SYNC REPLICA ON CLUSTER"):
        assert any(words in each for each in asked), words
    plain = [re.sub(r"\s+FORMAT \w+\s*$", "", each) for each in asked]
    for statement in sorted(set(plain)):
        if not statement.startswith("INSERT"):
            assert is_parsed(parser, statement), statement


def test_every_module_that_asks_has_asked_the_shards(twins: Twins) -> None:
    """So that what stands above is about all of them."""
    for path, parameters in QUESTIONS:
        twins.answers(path, **parameters)
    modules = {name.removesuffix(".py").replace("/", ".") for name in texts_of(API)}
    assert modules - twins.asked.modules <= NOT_ASKED


# --- plans --------------------------------------------------------------------------------------


def plan(twins: Twins, sql: str) -> list[str]:
    rows = twins.shards.rows(f"EXPLAIN distributed = 1 {sql}")
    return [row["explain"] for row in rows]


def depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_series_are_looked_up_and_samples_grouped_where_they_stand(twins: Twins) -> None:
    """Of `rate` over some series, aggregated states move, and neither names nor samples."""
    lines = plan(
        twins,
        "SELECT series, count() AS n FROM samples FINAL WHERE metric = 1 AND series IN "
        "(SELECT series FROM series WHERE labels['host'] = 'a') GROUP BY series",
    )
    steps = [line.split("(")[0].strip() for line in lines]
    union = steps.index("Union")
    assert "MergingAggregated" in steps[:union]
    assert "Aggregating" not in steps[:union]
    assert steps[union:].count("Aggregating") == clickhouse_shards.SHARDS
    assert steps[union:].count("CreatingSets") == clickhouse_shards.SHARDS
    for shard in range(1, clickhouse_shards.SHARDS + 1):
        assert any(f"s{shard}.samples_local" in line for line in lines)


def test_operations_are_grouped_on_each_shard_before_they_are_joined(twins: Twins) -> None:
    """Ranks of one operation stand on many shards: partial states of it move."""
    lines = plan(
        twins,
        "SELECT communicator, sequence, max(exit) AS last FROM collectives "
        "GROUP BY communicator, sequence",
    )
    steps = [line.split("(")[0].strip() for line in lines]
    union = steps.index("Union")
    assert steps[:union].count("MergingAggregated") == 1
    assert steps[union:].count("Aggregating") == clickhouse_shards.SHARDS


def test_a_join_of_two_questions_moves_the_rows_of_both(twins: Twins) -> None:
    """Right wherever rows stand, and dear: the join comes after the shards' rows are together."""
    lines = plan(
        twins,
        "SELECT count() FROM (SELECT series FROM samples WHERE metric = 1) AS x "
        "INNER JOIN (SELECT series FROM series) AS y USING series",
    )
    steps = [line.split("(")[0].strip() for line in lines]
    assert steps.index("Join") < steps.index("Union")


# --- layouts ------------------------------------------------------------------------------------


def test_three_shards_with_one_name_are_refused_by_name(tmp_path: Path) -> None:
    with clickhouse_shards.server(tmp_path / "shards", are_macros_told_apart=False) as url:
        store = Store(StoreUrl.parse(url))
        says = (
            r"cluster 'three': shards 1 \(127.0.0.1:9000\) and 2 \(127.0.1.1:9000\) and 3 "
            r"\(127.1.0.1:9000\) have the same macro shard='0'"
        )
        with pytest.raises(StoreError, match=says):
            store.migrate()
        store.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with clickhouse_shards.server(tmp_path_factory.mktemp("cluster") / "shards") as url:
        yield url


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("cluster=three", "cluster 'three': it has 3 shards, and the store's URL says shards=1"),
        ("cluster=three&shards=2", "it has 3 shards, and the store's URL says shards=2"),
        ("cluster=thre&shards=3", r"cluster 'thre' is not known .* \(it knows three\)"),
    ],
)
def test_an_address_that_does_not_fit_the_cluster_is_refused(
    cluster: str, given: str, says: str
) -> None:
    store = Store(StoreUrl.parse(f"{cluster.partition('?')[0]}?{given}"))
    with pytest.raises(StoreError, match=says):
        store.migrate()
    store.close()


def test_a_node_that_lost_a_table_gets_it_at_the_next_start(cluster: str) -> None:
    store = Store(StoreUrl.parse(cluster))
    store.migrate()
    with store.holding_writes("lose a table") as client:
        client.command("DROP TABLE steps")
    with pytest.raises(StoreError, match="steps"):
        store.query("SELECT count() AS n FROM steps")
    assert store.migrate() == [], "the ledger knows all migrations"
    assert store.query("SELECT count() AS n FROM steps")["n"].to_pylist() == [0]
    store.close()


def test_tables_that_were_made_for_other_shards_are_refused(cluster: str) -> None:
    store = Store(StoreUrl.parse(cluster))
    store.migrate()
    with store.holding_writes("as if there had been two") as client:
        client.command(
            "ALTER TABLE steps MODIFY COMMENT 'fabricscope: rows are placed on 2 shards'"
        )
    with pytest.raises(StoreError, match="table steps was made for another number of shards"):
        store.migrate()
    with store.holding_writes("put it right") as client:
        client.command(
            "ALTER TABLE steps MODIFY COMMENT 'fabricscope: rows are placed on 3 shards'"
        )
    store.migrate()
    store.close()
