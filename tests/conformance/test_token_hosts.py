"""A sender writes of its own hosts only, and never under the service's own names."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from api.data.inventory.repository import Inventory
from api.data.inventory.token_model import Scope
from api.http.settings import ServiceSettings
from collector.cli import main
from collector.contract.collective import StepSpan
from collector.contract.model import Event
from tests.stands import senders
from tests.stands.service import InProcess, eventually, in_process
from tests.stands.strangers import metric

NODE, RACK, WIDE, ADMIN = (f"a-token-for-{name}-hosts" for name in ("own", "rack", "any", "all"))
TOKENS = f"""
{NODE} ingest hosts=node-a the agent of node-a
{RACK} ingest hosts=head,gpu-1* a rack
{WIDE} ingest any
{ADMIN}
"""
RESERVED = (
    *("ALERTS", "ALERTS_FOR_STATE", "fabric_incident", "fabric_incident_victim"),
    *("fabric_incident_of_tomorrow", "fabric_finding", "fabric_service_samples_total"),
    *("fabric_service_commit_seconds_bucket", "fabric_host_health_state", "fabric_host_risk_ratio"),
    *("fabric_rank_lateness_seconds", "fabric_communicator_operations_total"),
    *("fabric_pair_wait_ratio", "fabric_job_step_seconds"),
)

SERIES_SQL = "SELECT DISTINCT metric_name, series, labels['mark'] AS mark FROM series"
SAMPLES_SQL = "SELECT series, count() AS n FROM samples FINAL GROUP BY series"

Send = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "tokens").write_text(TOKENS)
    settings = ServiceSettings(
        data=str(folder), token_file=str(folder / "tokens"), rules_pack=False, own_numbers=False
    )
    with in_process(folder, settings=settings) as running:
        running.client.headers["Authorization"] = f"Bearer {ADMIN}"
        yield running


def v1(service: InProcess, series: list[dict[str, str]], token: str) -> httpx.Response:
    return senders.remote(service, series, token, version=1)


def v2(service: InProcess, series: list[dict[str, str]], token: str) -> httpx.Response:
    return senders.remote(service, series, token, version=2)


DOORS = {"native": senders.native, "v1": v1, "v2": v2, "otlp": senders.otlp}
EACH_DOOR = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


def refused_by(answer: httpx.Response, door: object) -> str:
    """What an answer says was refused; empty if nothing was."""
    if door is senders.native:
        assert answer.status_code == 200, answer.text
        return json.dumps(answer.json()["refused"]) if answer.json()["refused"] else ""
    if door is senders.otlp:
        assert answer.status_code == 200, answer.content
        said = ExportMetricsServiceResponse.FromString(answer.content).partial_success
        return str(said.error_message)
    assert answer.status_code in {204, 400}, answer.text
    return answer.text


def stored(service: InProcess, name: str) -> set[str]:
    """The marks of the series of this name that are in the store."""
    return {row["mark"] for row in service.rows(SERIES_SQL) if row["metric_name"] == name}


def samples_of(service: InProcess, name: str, mark: str) -> dict[int, int]:
    """Each series of this name and mark that is in the store, and how many samples it has."""
    counts = {row["series"]: row["n"] for row in service.rows(SAMPLES_SQL)}
    found = (row for row in service.rows(SERIES_SQL) if row["metric_name"] == name)
    return {row["series"]: counts.get(row["series"], 0) for row in found if row["mark"] == mark}


# --- names ----------------------------------------------------------------------------------------


@EACH_DOOR
def test_the_service_s_own_names_are_refused_from_every_door(
    service: InProcess, door: Send, request: pytest.FixtureRequest
) -> None:
    mark = request.node.callspec.id
    kept = f"kept_beside_{mark}"
    sent = [{"__name__": name, "host": "node-a", "mark": mark} for name in (*RESERVED, kept)]
    for _ in range(2):  # on first sight, and recognised
        said = refused_by(door(service, sent, ADMIN), door)
        assert "reserved_name" in said
        assert str(len(RESERVED)) in said
    assert stored(service, kept) == {mark}
    for name in RESERVED:
        assert mark not in stored(service, name)
    protocol = {"v1": "remote_write", "v2": "remote_write"}.get(mark, mark)
    counted = f'fabric_service_refused_total{{protocol="{protocol}",rule="reserved_name"}}'
    assert metric(service, counted) >= 2 * len(RESERVED)


# --- hosts ----------------------------------------------------------------------------------------


@EACH_DOOR
def test_a_bound_token_writes_of_no_other_host(
    service: InProcess, door: Send, request: pytest.FixtureRequest
) -> None:
    name = f"bound_{request.node.callspec.id}"
    others = [
        {"host": "node-b"},
        {"instance": "node-b:9100"},
        {"instance": "node-a:9100", "node": "node-b"},
        {"Hostname": "node-b"},
        {"hostname": "node-b"},
        {"node": "node-b"},
    ]
    own = [{"host": "node-a", "node": "node-b"}, {"instance": "node-a:9100"}, {}]
    sent = [
        {"__name__": name, "mark": mark, **labels}
        for mark, each in (("other", others), ("own", own))
        for labels in each
    ]
    # Series that another sender made known are checked as those that are new.
    assert not refused_by(door(service, sent[:3], WIDE), door)
    before = samples_of(service, name, "other")
    for _ in range(2):
        said = refused_by(door(service, sent, NODE), door)
        assert "foreign_host" in said
        assert str(len(others)) in said
    assert samples_of(service, name, "other") == before, "no sample of another host was stored"
    assert len(samples_of(service, name, "own")) == len(own)
    assert not refused_by(door(service, sent, WIDE), door)
    seen = samples_of(service, name, "other")
    assert len(seen) == len(others), "the wide token's series are complete in the store"


def test_a_prefix_binds_as_a_name_does(service: InProcess) -> None:
    hosts = ("head", "gpu-1", "gpu-17", "gpu-2", "head2", "HEAD")
    sent = [{"__name__": "racked", "host": host, "mark": host} for host in hosts]
    assert "3 by foreign_host" in senders.remote(service, sent, RACK).text
    assert stored(service, "racked") == {"head", "gpu-1", "gpu-17"}


def test_events_and_records_of_another_host_are_refused(service: InProcess) -> None:
    now_ns = time.time_ns()
    answer = senders.native(
        service,
        [],
        NODE,
        host="node-a",
        events=[
            Event(kind="xid", time_ns=now_ns, labels={"host": host, "mark": host} if host else {})
            for host in ("", "node-a", "node-b")
        ],
        steps=[
            StepSpan(
                job="j", step=1, start_ns=now_ns - 1, end_ns=now_ns, source="s", host=host, rank=0
            )
            for host in ("", "node-a", "node-b")
        ],
    )
    assert answer.json()["refused"] == {"foreign_host": 2}
    assert answer.json()["stored"] == 4
    assert {row["host"] for row in service.rows("SELECT DISTINCT host FROM steps")} == {"node-a"}


def test_another_host_s_batch_makes_no_host_and_no_agent(service: InProcess) -> None:
    sent = [{"__name__": "fabric_host_load1"}]
    answer = senders.native(service, sent, NODE, host="victim")
    assert answer.json()["refused"] == {"foreign_host": 1}
    senders.native(
        service, [{"__name__": "fabric_host_load1"}], NODE, host="node-a", agent="victim"
    )
    assert senders.native(service, sent, NODE, host="node-a").json()["refused"] == {}

    def hosts() -> set[str]:
        return {each.host for each in service.inventory.hosts.page(None, 1000, None)}

    # Both are noted after the answer, each by its own round.
    eventually(lambda: "node-a" in hosts(), "the host is known")
    eventually(lambda: service.inventory.hosts.agent("node-a") is not None, "its agent is known")
    assert "victim" not in hosts()
    assert service.inventory.hosts.agent("victim") is None


# --- making tokens --------------------------------------------------------------------------------


def make(service: InProcess, **asked: object) -> httpx.Response:
    return service.client.post("/v1/tokens", json={"name": "node-7", "scopes": ["ingest"], **asked})


def test_a_token_that_may_only_send_is_of_the_host_of_its_name(service: InProcess) -> None:
    kept = make(service).json()["kept"]
    assert kept["hosts"] == ["node-7"]
    assert make(service, hosts=["a", "b-*"]).json()["kept"]["hosts"] == ["a", "b-*"]
    assert make(service, scopes=["ingest", "read"]).json()["kept"]["hosts"] == ["*"]
    text = make(service).json()["token"]
    sent = [{"__name__": "made", "host": host, "mark": host} for host in ("node-7", "node-8")]
    assert "1 by foreign_host" in senders.remote(service, sent, text).text
    assert stored(service, "made") == {"node-7"}
    listed = service.client.get("/v1/tokens").json()["items"]
    assert ["a", "b-*"] in [each["hosts"] for each in listed]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"hosts": []}, "length >= 1"),
        ({"hosts": ["a*b"]}, "prefix with * at its end"),
        ({"hosts": ["a,b"]}, "prefix with * at its end"),
        ({"hosts": ["a\x00"]}, "prefix with * at its end"),
        ({"name": "two words"}, "name its hosts"),
    ],
)
def test_hosts_that_cannot_be_are_named(
    service: InProcess, asked: dict[str, object], words: str
) -> None:
    answer = make(service, **asked)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_the_verb_binds_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(tmp_path)]
    assert main(["token", "create", "node-a", "--scope", "ingest", *where]) == 0
    said = capsys.readouterr().err
    assert "telemetry of node-a only" in said
    assert "--hosts '*'" in said
    wide = ["token", "create", "agents", "--scope", "ingest", "--hosts", "*"]
    assert main([*wide, *where]) == 0
    assert "of any host" in capsys.readouterr().err
    assert main(["token", "create", "x", "--scope", "ingest", "--hosts", "a b", *where]) != 0
    capsys.readouterr()
    assert main(["token", "list", *where]) == 0
    table = capsys.readouterr().out
    assert "HOSTS" in table
    assert "node-a" in table
    assert main(["token", "list", "--json", *where]) == 0
    assert [each["hosts"] for each in json.loads(capsys.readouterr().out)] == [["node-a"], ["*"]]


def test_tokens_from_before_are_of_any_host(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'inventory.db'}"
    old = Inventory(url)
    old.migrate()
    old.close()
    with sqlite3.connect(tmp_path / "inventory.db") as connection:
        connection.execute("ALTER TABLE tokens DROP COLUMN hosts")
        for table, column in (
            ("agents", "first_sequence"),
            ("agents", "gaps"),
            ("captures", "by"),
            ("captures", "why"),
            ("leases", "since"),
            ("leases", "epoch"),
            ("leases", "samples_until"),
            ("communicators", "is_in_network"),
        ):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for table in (
            *("feedback", "cases", "incident_work", "service_keys", "job_looks"),
            *("configurations", "agent_configurations"),
        ):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE alembic_version SET version_num = '0010'")
        connection.execute(
            "INSERT INTO tokens (id, name, digest, scopes, created_at) "
            "VALUES ('1', 'old', 'd', 'ingest', '2026-01-01 00:00:00.000000')"
        )
    connection.close()
    inventory = Inventory(url)
    inventory.migrate()
    try:
        (token,) = inventory.tokens.all()
        assert (token.scopes, token.hosts) == ((Scope.INGEST,), ("*",))
    finally:
        inventory.close()
