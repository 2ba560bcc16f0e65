"""Migrations of the telemetry store: both renderings, and what is never allowed."""

from itertools import product
from pathlib import Path

import pytest

from api.data.store.migrate import (
    LEDGER,
    Migration,
    Placement,
    apply_migrations,
    check_migrations,
    load_migrations,
    statements_again,
)
from api.data.store.store import StoreUrl
from collector.contract.errors import SettingsError, StoreError
from tests.conftest import Golden

FOLDER = Path(__file__).parents[2] / "fixtures" / "migrations"
PLACEMENTS = {
    "single": Placement(),
    "cluster": Placement("prod"),
    "shards": Placement("prod", 3, "telemetry"),
}


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("migration", load_migrations(), ids=lambda migration: migration.name)
def test_both_renderings_are_what_was_reviewed(
    migration: Migration, placement: str, golden: Golden
) -> None:
    statements = migration.statements(PLACEMENTS[placement], 30)
    golden(FOLDER / placement / migration.name, ";\n\n".join(statements) + ";\n")


def test_every_statement_can_run_twice_and_leaves_no_blank() -> None:
    for migration, placement in product(load_migrations(), PLACEMENTS.values()):
        for statement in migration.statements(placement, 7):
            repeatable = ("IF NOT EXISTS", "IF EXISTS", "MODIFY SETTING")
            assert any(words in statement for words in repeatable)
            assert "{{" not in statement
            assert ("ON CLUSTER 'prod'" in statement) == (placement.cluster is not None)


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE samples",
        "drop\n table samples",
        "ALTER TABLE samples DROP COLUMN value",
        "ALTER TABLE samples DROP PARTITION '2026-01-01'",
        "ALTER TABLE samples DROP PART 'x'",
        "ALTER TABLE samples DETACH PARTITION '2026-01-01'",
        "DETACH TABLE samples",
        "ALTER TABLE samples CLEAR COLUMN value",
        "ALTER TABLE samples REPLACE PARTITION 1 FROM other",
        "ALTER TABLE samples DELETE WHERE 1",
        "ALTER TABLE samples UPDATE whole = 0 WHERE 1",
        "DELETE FROM samples WHERE 1",
        "TRUNCATE TABLE samples",
        "TRUNCATE samples",
        "DROP DATABASE default",
        "DROP VIEW v",
        "DROP DICTIONARY d",
        "ALTER TABLE samples MODIFY COLUMN whole Int8",
        "ALTER TABLE samples RENAME COLUMN whole TO w",
        "RENAME TABLE samples TO old",
        "EXCHANGE TABLES samples AND other",
        "CREATE OR REPLACE TABLE samples (a Int8) ENGINE = Memory",
        "SELECT 1; DROP TABLE samples",
        "DROP /* quietly */ TABLE samples",
    ],
)
def test_a_migration_that_destroys_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match="never destroy"):
        check_migrations([Migration(1, "0001_bad.sql", text)])


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE events ADD COLUMN IF NOT EXISTS updated DateTime",
        "CREATE TABLE IF NOT EXISTS deleted (drops UInt8) ENGINE = Memory",
        "-- never DROP TABLE samples\nCREATE TABLE IF NOT EXISTS x (a Int8) ENGINE = Memory",
    ],
)
def test_a_migration_that_adds_is_allowed(text: str) -> None:
    check_migrations([Migration(1, "0001_good.sql", text)])


@pytest.mark.parametrize(
    "names",
    [["0002_first.sql"], ["0001_a.sql", "0003_c.sql"], ["1_a.sql"], ["0001_A.sql"], ["0001.sql"]],
)
def test_numbers_have_no_gaps_and_names_one_form(names: list[str]) -> None:
    files = [Migration(int("".join(filter(str.isdigit, name))), name, "") for name in names]
    with pytest.raises(StoreError, match="comes next"):
        check_migrations(files)


def test_an_interrupted_migration_is_finished_by_the_next_start() -> None:
    """A crash before the ledger knows: everything runs again, which each statement allows."""
    ran: list[str] = []
    ledger: dict[int, str] = {}

    def crash(_: Migration) -> None:
        raise StoreError("killed")

    with pytest.raises(StoreError, match="killed"):
        apply_migrations(ran.append, lambda: ledger, crash, Placement(), 30)
    first = list(ran)
    ran.clear()
    names = apply_migrations(
        ran.append,
        lambda: ledger,
        lambda done: ledger.update({done.number: done.digest}),
        Placement(),
        30,
    )
    assert names == [migration.name for migration in load_migrations()]
    assert ran[: len(first)] == first
    assert [ran[0]] == Placement().statements(LEDGER, 30)


def test_on_shards_each_table_has_rows_in_one_and_is_read_over_all_by_another() -> None:
    text = "CREATE TABLE IF NOT EXISTS t {{on_cluster}} (a Int8) ENGINE = {{engine}} ORDER BY a"
    local, over = Placement("prod", 3, "db").statements(text, 30)
    assert local.startswith("CREATE TABLE IF NOT EXISTS t_local ON CLUSTER 'prod' (a Int8)")
    assert "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/" in local
    assert over.startswith("CREATE TABLE IF NOT EXISTS t ON CLUSTER 'prod' AS `db`.t_local")
    assert "ENGINE = Distributed('prod', 'db', 't_local')\nCOMMENT" in over


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_what_makes_all_tables_again_sets_each_setting_once(placement: Placement) -> None:
    statements = statements_again(placement, 30)
    altered = [each for each in statements if each.startswith("ALTER TABLE")]
    assert len(altered) == len({each.split()[2] for each in altered}) == 4
    [samples] = [each for each in altered if each.split()[2] == placement.local("samples")]
    assert "min_age_to_force_merge_seconds = 0" in samples
    assert "min_age_to_force_merge_seconds = 600" not in samples.replace("partition_age", "")
    assert "min_partition_age_to_force_merge_seconds = 600" in samples
    assert sum(each.startswith("CREATE") for each in statements) == 12 * (1 + placement.is_sharded)


def test_on_shards_a_new_column_is_one_of_both_tables_and_a_setting_of_one() -> None:
    shards = Placement("prod", 3)
    adding = "ALTER TABLE t {{on_cluster}} ADD COLUMN IF NOT EXISTS b Int8"
    assert [each.split()[2] for each in shards.statements(adding, 30)] == ["t_local", "t"]
    setting = "ALTER TABLE t {{on_cluster}} MODIFY SETTING a = 1"
    assert [each.split()[2] for each in shards.statements(setting, 30)] == ["t_local"]


def test_a_statement_without_a_form_for_shards_is_refused() -> None:
    view = "CREATE MATERIALIZED VIEW IF NOT EXISTS v {{on_cluster}} TO t AS SELECT 1"
    with pytest.raises(StoreError, match="no form for shards"):
        Placement("prod", 3).statements(view, 30)
    assert Placement("prod").statements(view, 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chdb:///var/lib/x", ("chdb", "chdb:///var/lib/x", "default", None, 1)),
        ("clickhouse://h:8123", ("clickhouse", "http://h:8123/default", "default", None, 1)),
        (
            "clickhouse://u:p%40@h/db?cluster=prod&secure=1",
            ("clickhouse", "https://u:p%40@h/db", "db", "prod", 1),
        ),
        (
            "clickhouse://h/db?cluster=prod&shards=11",
            ("clickhouse", "http://h/db", "db", "prod", 11),
        ),
    ],
)
def test_store_urls(text: str, expected: tuple[str, str, str, str | None, int]) -> None:
    url = StoreUrl.parse(text)
    assert (url.scheme, url.dsn, url.database, url.cluster, url.shards) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "chdb://", "chdb:///", "chdb://relative/path", "http://h:8123", "/var/lib/x"),
        *(
            "clickhouse://h/db?clutser=prod",
            "clickhouse://h/db?cluster=a'b",
            "clickhouse://h/db?cluster=",
            "clickhouse://h/db?shards=3",
            "clickhouse://h/db?cluster=prod&shards=0",
            "clickhouse://h/db?cluster=prod&shards=-1",
            "clickhouse://h/db?cluster=prod&shards=1001",
            "clickhouse://h/db?cluster=prod&shards=",
            "clickhouse://h/d'b?cluster=prod&shards=3",
        ),
    ],
)
def test_other_urls_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="store"):
        StoreUrl.parse(text)
