"""The audit on whole hosts: cases, simulated ones, and a fleet that agents reported."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from api.fleet.audit.facts import read_nvlink_domains, read_port_partitions
from collector.agent.audit_cli import lines_of
from collector.agent.exposition import missing_series
from collector.audit.facts import Fact, Facts
from collector.audit.fleet import judge_fleet
from collector.audit.judge import judge_host
from collector.contract import wire
from collector.contract.model import Missing, Sample, Series
from collector.doors.host import Host
from collector.reading.configuration.reader import ConfigurationReader
from collector.sources.configuration import Configuration, Settings, series_of
from simulator.interfaces.host_trees import HostTrees
from simulator.topology.model import Fabric
from tests.conftest import Golden
from tests.fixtures.trees import has_tree, tree_of
from tests.stands.service import InProcess, in_process
from tests.worlds.audit_cases import CASES, Changes, change, facts_of
from tests.worlds.simulated import make_topology
from tests.worlds.simulated_jobs import make_full_snapshot

NOW = 1_794_700_000.0
ALL_CASES = sorted(path.name for path in CASES.iterdir() if has_tree(path))
HEADERS = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}


def read(tree: Path) -> Facts:
    host = Host(tree)
    try:
        found = ConfigurationReader().read(host)
    finally:
        host.close()
    assert found is not None
    return found


@pytest.mark.parametrize("case", ALL_CASES)
def test_the_report_is_exactly_what_is_expected(case: str, golden: Golden) -> None:
    facts = read(tree_of(CASES / case))
    text = "\n".join(lines_of(facts, judge_host(facts))) + "\n"
    assert "never-shown" not in text
    golden(CASES / case / "audit.txt", text)


def test_a_good_host_has_no_finding() -> None:
    assert judge_host(read(tree_of(CASES / "good_h100"))) == []


# --- simulated hosts -----------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", list(Fabric))
def test_simulated_hosts_are_not_accused(fabric: Fabric, tmp_path: Path) -> None:
    topology = make_topology(fabric, hosts=6)
    HostTrees(tmp_path, topology).write(make_full_snapshot(topology))
    names = [topology.host_name(host) for host in range(topology.hosts)]
    found = {name: read(tmp_path / name) for name in names}
    assert {len(facts.fabric_nics) for facts in found.values()} == {8}
    assert {len(facts.gpus) for facts in found.values()} == {8}
    assert any(facts.jobs for facts in found.values())
    for facts in found.values():
        assert judge_host(facts) == []
    fleet = {name: sorted(facts.all()) for name, facts in found.items()}
    assert judge_fleet(fleet).findings == []


def test_a_simulated_slot_that_trained_down_is_named(tmp_path: Path) -> None:
    topology = make_topology(Fabric.ROCE)
    snapshot = make_full_snapshot(topology)
    snapshot.world.nic_pcie_share[2] = 0.25
    HostTrees(tmp_path, topology).write(snapshot)
    (finding,) = judge_host(read(tmp_path / topology.host_name(0)))
    assert (finding.check, finding.device) == ("pcie_link", topology.device_name(2))


# --- the service ---------------------------------------------------------------------------------


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service"), clock=clock) as running:
        yield running


def send(service: InProcess, host: str, samples: Sequence[Sample], sequence: int) -> None:
    batch = wire.pack_batch(
        samples,
        agent=host,
        boot="b",
        sequence=sequence,
        sent_ms=int(NOW * 1000),
        common={"host": host},
    )
    answer = service.client.post("/v1/ingest", content=wire.encode_batch(batch), headers=HEADERS)
    assert answer.status_code == 200, answer.text
    assert answer.json()["refused"] == {}


def samples_of(facts: Sequence[Fact], seconds: float, *, is_whole: bool = True) -> list[Sample]:
    """What `configuration` sends of these facts."""
    time_ns = int((NOW + seconds) * 1e9)
    found = [Sample(series_of(fact), 1, time_ns) for fact in facts]
    if is_whole:
        source = Configuration(Settings())
        found.append(Sample(source._facts, len(facts), time_ns))
    return found


def ask(service: InProcess, clock: Clock, **parameters: str) -> dict[str, Any]:
    clock.now += 60  # past what is remembered of the last audit
    answer = service.client.get("/v1/audit", params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def found_by(page: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(each["host"], each["check"]) for each in page["items"]]


GOOD = facts_of("good_h100")
BETWEEN = {"outlier", "job_environment"}
"""What only other hosts show."""
OUTLIER: Changes = {("", "nvidia_driver"): "535.1"}


def test_the_fleet_s_audit_tells_of_hosts_that_agents_told_of(
    service: InProcess, clock: Clock
) -> None:
    assert ask(service, clock)["hosts"] == 0
    for number in range(10):
        facts = change(GOOD, OUTLIER if number == 3 else {})
        send(service, f"node-{number}", samples_of(facts, 0), 0)
    page = ask(service, clock)
    assert page["hosts"] == 10
    assert found_by(page) == [("node-3", "outlier")]
    assert page["counts"] == {"info": 0, "warning": 1, "critical": 0}
    (item,) = page["items"]
    assert item["read"][0]["value"] == "535.1"
    assert item["expected"] == "580.65.06"
    assert page["not_judged"] == ["asymmetric_paths and path_mtu: no link is known"]

    # What was changed since is judged as it is now, and a read that came in part hides nothing.
    send(service, "node-3", samples_of(GOOD, 30), 1)
    wrong = change(GOOD, {("job 41", "NCCL_IB_DISABLE"): "1"})
    send(service, "node-4", samples_of(wrong, 30), 1)
    part = [fact for fact in GOOD if fact.device == "mlx5_0"]
    send(service, "node-5", samples_of(part, 40, is_whole=False), 1)
    page = ask(service, clock)
    assert found_by(page) == [("node-4", "nccl_transport"), ("node-4", "job_environment")]
    gone = [fact for fact in GOOD if not fact.device.startswith("job ")]
    send(service, "node-4", samples_of(gone, 60), 2)
    assert found_by(ask(service, clock)) == []


def test_findings_are_chosen_and_paged(service: InProcess, clock: Clock) -> None:
    bad = facts_of("bad_roce")
    send(service, "bad", samples_of(bad, 0), 0)
    alone = judge_host(Facts("bad", bad))
    page = ask(service, clock, host="bad", limit="5")
    assert len(page["items"]) == 5
    items, after = page["items"], page["next"]
    while after is not None:
        answer = service.client.get(
            "/v1/audit", params={"host": "bad", "limit": "5", "after": after}
        ).json()
        items += answer["items"]
        after = answer["next"]
    assert sum(page["counts"].values()) == len(items)
    by_itself = [each["title"] for each in items if each["check"] not in BETWEEN]
    assert by_itself == [each.title for each in alone]
    worse = ask(service, clock, host="bad", severity="critical")
    assert {each["severity"] for each in worse["items"]} == {"critical"}
    assert {c for _, c in found_by(ask(service, clock, check="mtu"))} == {"mtu"}


def test_what_agents_could_not_read_is_counted(service: InProcess, clock: Clock) -> None:
    host = Host(tree_of(CASES / "infiniband_unprivileged"))
    missing = [
        Sample(missing_series(each, "configuration"), 1, int(NOW * 1e9))
        for each in Configuration(Settings()).read(host)
        if isinstance(each, Missing)
    ]
    host.close()
    send(service, "unprivileged", missing, 0)
    unread = ask(service, clock)["unread"]
    wanted = {"setting": "acs_redirecting_bridges", "reason": "unreadable", "hosts": 1}
    assert wanted in unread


def test_a_host_that_fell_silent_is_not_judged(service: InProcess, clock: Clock) -> None:
    send(service, "silent", samples_of(facts_of("bad_roce"), -1300), 0)
    assert ask(service, clock, host="silent")["items"] == []


@pytest.mark.parametrize(
    ("parameters", "status", "says"),
    [
        ({"check": "nonsense"}, 400, "there are"),
        ({"after": "-1"}, 400, "next"),
        ({"severity": "bad"}, 422, "severity"),
        ({"limit": "0"}, 422, "limit"),
    ],
)
def test_a_wrong_question_is_a_problem(
    service: InProcess, parameters: dict[str, str], status: int, says: str
) -> None:
    answer = service.client.get("/v1/audit", params=parameters)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert says in answer.text


def test_each_gpus_latest_nvlink_domain_is_read_back(service: InProcess) -> None:
    def told(host: str, domain: str, seconds: float, sequence: int) -> None:
        more = {"nvlink_domain": domain, "clique": "7"} if domain else {}
        samples = [
            Sample(
                Series("fabric_gpu_info", {"gpu": gpu, "uuid": f"{host}-{gpu}", **more}),
                1,
                int((NOW + seconds) * 1e9),
            )
            for gpu in ("0", "1")
        ]
        send(service, host, samples, sequence)

    told("rack-1", "aaaa", 0, 100)
    told("rack-2", "aaaa", 0, 100)
    told("rack-2", "bbbb", 10, 101)
    told("alone", "", 0, 100)
    told("gone", "aaaa", -3_600, 100)
    found = read_nvlink_domains(service.store, dt.datetime.fromtimestamp(NOW + 60, dt.UTC))
    assert found == {
        "rack-1": {"0": "aaaa clique 7", "1": "aaaa clique 7"},
        "rack-2": {"0": "bbbb clique 7", "1": "bbbb clique 7"},
    }


def test_a_host_outside_its_job_s_partition_is_named(service: InProcess, clock: Clock) -> None:
    hosts = [f"ib-{number}" for number in range(6)]
    ranks = [{"rank": number, "host": host} for number, host in enumerate(hosts)]
    document = {"id": "tenant", "started_at": "2026-01-01T00:00:00Z", "ranks": ranks}
    answer = service.client.post("/v1/jobs", json=document)
    assert answer.status_code == 201, answer.text
    for host in hosts:
        table = "0:0x7fff" if host == "ib-2" else "0:0x7fff 1:0x8001"
        facts = [
            Fact("mlx5_0", setting, value)
            for setting, value in {
                "kind": "rdma",
                "link_layer": "InfiniBand",
                "port_state": "active",
                "partitions": table,
            }.items()
        ]
        send(service, host, samples_of(facts, 60 + clock.now - NOW), 200)
    (item,) = ask(service, clock, check="partitions")["items"]
    assert (item["host"], item["device"], item["severity"]) == ("ib-2", "mlx5_0", "warning")


def test_the_latest_partitions_of_ports_are_read_back(service: InProcess) -> None:
    def told(partitions: str, seconds: float, sequence: int) -> None:
        labels = {"host": "far", "device": "mlx5_0", "port": "1", "method": "ib"}
        series = Series("fabric_port_partitions_info", {**labels, "partitions": partitions})
        send(service, "poller", [Sample(series, 1, int((NOW + seconds) * 1e9))], sequence)

    told("0:0x7fff 1:0x8001", 0, 300)
    told("0:0x7fff", 10, 301)
    found = read_port_partitions(service.store, dt.datetime.fromtimestamp(NOW + 60, dt.UTC))
    assert found == {("far", "mlx5_0"): "0:0x7fff"}
