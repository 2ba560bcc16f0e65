"""Comparisons over HTTP on simulated jobs with known faults: steps, and who shares a link."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from alerts.window.model import Things
from api.jobs.correlate import link_shares
from api.oncall.past import PastWindows
from collector.cli import main
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.scenario import START_UNIX_NS
from simulator.score.run import play
from simulator.score.simulated_service import Silent
from simulator.topology.build import build
from simulator.topology.model import Fabric
from tests.stands.service import InProcess, in_process
from tests.worlds.incidents import Teller
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy
from tests.worlds.simulated_cluster import small_cluster, small_job, small_scenario

START_S = START_UNIX_NS // NS
HOT, SLOW = (40, 70), (110, 140)
"""When a GPU is hot, and when a NIC is slow: seconds of the simulation."""
END_S = 150
JOB, OTHER = "train", "other"
"""On the first four hosts, in two pods; and on the last two, in one."""

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder = tmp_path_factory.mktemp("compared")
    faults = discover()
    topology = build(small_cluster(Fabric.ROCE))
    nic = Place(host=2, nic=4, link=topology.up(4))
    scenario = small_scenario(
        Fabric.ROCE,
        small_job(compute_seconds=0.6),
        small_job(name=OTHER, hosts=(4, 5), compute_seconds=0.6),
        seconds=float(END_S),
        tick_seconds=5.0,
        injections=(
            Injection(faults["thermal_throttle"], Place(host=1, gpu=2), *HOT, 1.0),
            Injection(faults["slow_nic"], nic, *SLOW, 1.0),
        ),
    )
    play(Simulation(scenario), folder, lambda _, __: Silent())
    store = f"chdb://{folder / 'store'}"
    with in_process(folder, clock=lambda: float(START_S + END_S), store_url=store) as running:
        yield running


def ask(service: InProcess, path: str, **parameters: str | float) -> Answer:
    answer = service.client.get(f"/v1/jobs/{JOB}/steps/{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    body: Answer = answer.json()
    return body


def compare(service: InProcess, **parameters: str | float) -> Answer:
    return ask(service, "compare", **parameters)


@pytest.fixture(scope="module")
def hot(service: InProcess) -> Answer:
    return compare(service, slow=START_S + HOT[0] + 5, slow_to=START_S + HOT[1] - 5)


def late_rank(answer: Answer) -> Answer:
    first: Answer = answer["ranks"][0]
    return first


def test_the_excess_is_at_the_gpu_that_is_hot(hot: Answer) -> None:
    assert hot["unknown"] == []
    assert len(hot["accused"]) == 1
    first = late_rank(hot)
    assert (first["host"], first["gpu"], first["role"]) == ("node0001", 0, "late")
    assert [one["rank"] for one in hot["ranks"] if one["role"] == "late"] == [first["rank"]]
    assert hot["excess_ns"] > 0.05 * hot["normal"]["step_ns"]
    assert f"rank {first['rank']} (node0001)" in hot["sentence"]


def test_replayed_without_it_a_step_takes_what_it_took_before(hot: Answer) -> None:
    without = hot["without"][0]
    assert without["ranks"] == [late_rank(hot)["rank"]]
    assert without["step_ns"] == pytest.approx(hot["normal"]["step_ns"], rel=0.05)
    assert {row["rank"] for row in without["rows"]} == {row["rank"] for row in hot["rows_slow"]}


def test_a_slow_nic_makes_no_rank_late(service: InProcess) -> None:
    answer = compare(service, slow=START_S + SLOW[0] + 5, slow_to=START_S + SLOW[1] - 5)
    assert not [one for one in answer["ranks"] if one["role"] == "late"]
    assert answer["kinds"][0]["slow_ns"] > 1.2 * answer["kinds"][0]["normal_ns"]
    assert [one["what"] for one in answer["without"]][:1] == ["network"]


def test_two_times_far_apart_are_read_by_themselves(service: InProcess, hot: Answer) -> None:
    answer = compare(
        service,
        slow=START_S + HOT[0] + 5,
        slow_to=START_S + HOT[1] - 5,
        normal=START_S + 15,
        normal_to=START_S + HOT[0] - 5,
    )
    assert late_rank(answer)["rank"] == late_rank(hot)["rank"]
    assert answer["normal"]["to_ns"] <= (START_S + HOT[0]) * NS


def test_a_job_is_compared_with_another_one_by_name(service: InProcess, hot: Answer) -> None:
    """The same job under its own name stands for another run here."""
    asked: dict[str, str | float] = {"slow": START_S + HOT[0] + 10, "normal_job": JOB}
    refused = service.client.get(f"/v1/jobs/{JOB}/steps/compare", params=asked)
    assert refused.status_code == 422
    assert "normal=" in refused.json()["detail"]
    answer = compare(service, **asked, normal=START_S + 25)
    assert late_rank(answer)["rank"] == late_rank(hot)["rank"]
    assert answer["slow"]["steps"] == answer["normal"]["steps"] == 1


def test_what_stands_out_is_the_rank_and_its_gpu(service: InProcess, hot: Answer) -> None:
    answer = ask(service, "differ", **{"from": START_S + 5, "to": START_S + HOT[1]})
    found = answer["differences"]["found"]
    ranks = [one["rank"] for one in found if one["kind"] == "rank"]
    assert ranks == [late_rank(hot)["rank"]]
    assert answer["slow_at_ns"]
    assert answer["unknown"] == []


def test_one_job_is_read_without_other_hosts_machines(service: InProcess) -> None:
    """Its own NICs, GPUs and hosts and the switch ports behind them are as in the whole window."""
    past = PastWindows(service.store, service.inventory, service.context.topologies.at)
    span = (START_S + 60) * NS, (START_S + END_S) * NS
    whole, alone = past.read(*span, {JOB}), past.of_job(*span, JOB)
    job = next(one for one in whole.jobs if one.job == JOB)
    hosts = {rank.host for rank in job.ranks.values()}
    assert {*alone.hosts.host} == {*alone.gpus.host} == hosts < {*whole.hosts.host}
    nics = {row for rank in job.ranks.values() for row in whole.rows_of_rank(rank)}
    wanted = nics | ({int(whole.ports.other_end[row]) for row in nics} - {-1})
    assert len(wanted) > len(nics)
    for things, own, rows in (
        (whole.ports, alone.ports, wanted),
        (whole.gpus, alone.gpus, range(len(whole.gpus.host))),
        (whole.hosts, alone.hosts, range(len(whole.hosts.host))),
    ):
        keys, others = keys_of(things), {key: row for row, key in enumerate(keys_of(own))}
        kept = [row for row in rows if keys[row][0] in hosts or things is whole.ports]
        assert kept
        for name in things.readings:
            values = things.values(name)[kept]
            if np.isnan(values).all():
                continue
            np.testing.assert_array_equal(
                own.values(name)[[others[keys[row]] for row in kept]], values
            )
    (mine,) = alone.jobs
    assert job.paths is not None
    assert (mine.paths, mine.past, mine.baselines, alone.events) == (None, {}, {}, [])
    assert mine.steps == job.steps
    without = past.job_alone(*span, JOB)
    assert without is not None
    assert without.steps == mine.steps
    unread = [row for row, host in enumerate(alone.ports.host) if host not in hosts]
    seen = {alone.ports.host[row] for row in unread if alone.ports.seen_ns[row] > 0}
    assert not seen & {"node0004", "node0005"}


def keys_of(things: Things) -> list[tuple[str, ...]]:
    columns = (getattr(things, name, things.host) for name in ("host", "device", "port", "gpu"))
    return [tuple(map(str, row)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ({}, 422, "slow="),
        ({"slow": "soon"}, 400, "slow="),
        ({"slow": "1700000000", "slow_to": "1600000000"}, 400, "before"),
        ({"slow": "1700000000", "slow_to": "1700009999"}, 422, "COMPARE_SECONDS_MAX"),
        ({"slow": "1700000000", "normal": "1600000000", "normal_job": "no"}, 404, "no"),
        ({"incident": "nothing"}, 404, "nothing"),
    ],
)
def test_odd_questions_are_refused_with_what_to_write(
    service: InProcess, parameters: dict[str, str], status: int, words: str
) -> None:
    answer = service.client.get(f"/v1/jobs/{JOB}/steps/compare", params=parameters)
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_a_time_without_the_job_says_why(service: InProcess) -> None:
    answer = compare(service, slow=START_S - 5000)
    assert answer["excess_ns"] is None
    assert answer["unknown"]
    assert answer["sentence"].startswith("The steps cannot be compared")


# An incident -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def incident(service: InProcess) -> str:
    """One about the hot GPU, as the evaluator would have opened it."""
    said = Verdict(
        cause=Cause.STRAGGLER,
        culprit=Culprit(job=JOB, rank=2, host="node0001", gpu=0),
        since_ns=(START_S + HOT[0]) * NS,
        until_ns=(START_S + HOT[1]) * NS,
        jobs=(JOB,),
        summary="rank 2 comes late",
        confidence=0.9,
    )
    Teller(service.inventory, service.store).say((START_S + HOT[1]) * NS, said)
    items = service.client.get("/v1/incidents").json()["items"]
    found: str = items[0]["id"]
    return found


def test_an_incident_says_which_steps_and_whom(service: InProcess, incident: str) -> None:
    answer = compare(service, incident=incident)
    assert answer["slow"]["from_ns"] >= (START_S + HOT[0] - 2) * NS
    assert answer["normal"]["to_ns"] <= (START_S + HOT[0] + 2) * NS
    assert [one["ranks"] for one in answer["accused"]] == [[2]]


def test_a_terminal_shows_the_same(
    service: InProcess, incident: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(service.client.base_url)
    assert main(["explain", incident, "--steps", "--service", url]) == 0
    shown = capsys.readouterr().out
    assert "rank 2 (node0001) was outside of collectives" in shown
    assert "| **2** accused | node0001 | late |" in shown
    assert "Replayed without the lateness of rank 2 (node0001): a step takes" in shown


# Links -------------------------------------------------------------------------------------------


def shares(service: InProcess, link: str) -> Answer:
    asked: dict[str, str | float] = {"link": link, "from": START_S + 5, "to": START_S + 35}
    answer = service.client.get("/v1/links/shares", params=asked)
    assert answer.status_code == 200, answer.text
    body: Answer = answer.json()
    return body


@pytest.mark.parametrize(("host", "job"), [("node0000", JOB), ("node0005", OTHER)])
def test_a_hosts_cable_carries_its_own_job_alone(service: InProcess, host: str, job: str) -> None:
    answer = shares(service, f"{host}/mlx5_0/1")
    assert [one["job"] for one in answer["jobs"]] == [job]
    assert answer["jobs"][0]["share"] == 1.0
    assert answer["jobs_looked_at"] == 1
    flows = answer["jobs"][0]["flows"]
    assert all(f"{host}/mlx5_0" in (one["source"], one["target"]) for one in flows)
    assert all(one["crossing"] == 1.0 for one in flows)
    assert sum(one["bytes"] for one in flows) == pytest.approx(answer["bytes"], rel=1e-6)


def test_a_hosts_cable_tells_who_had_the_device_alone(service: InProcess) -> None:
    assert shares(service, "node0001/mlx5_0/1")["tenants"] == []
    labels = {"__name__": "fabric_rdma_sole_tenant_info", "host": "node0003", "device": "mlx5_0"}
    times = [((START_S + at) * 1000) for at in range(0, END_S, 60)]
    whose = TimeSeries(sorted({**labels, "job": JOB}.items()), [(1.0, at) for at in times])
    body = snappy(request_v1([whose]))
    written = service.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
    assert written.status_code == 204, written.text
    answer = shares(service, "node0003/mlx5_0/1")
    (one,) = answer["tenants"]
    assert (one["host"], one["device"], one["tenant"]["job"]) == ("node0003", "mlx5_0", JOB)
    # Measured, with headers, beside what the model expects.
    assert one["sent_bytes"] + one["received_bytes"] == pytest.approx(answer["bytes"], rel=0.3)
    assert answer["tenants_unknown_bytes"] == 0


def test_an_uplink_carries_its_half_of_what_leaves_the_pod(service: InProcess) -> None:
    links = service.client.get("/v1/links", params={"host": "leaf-pod0-rail0"}).json()["items"]
    up = [one["id"] for one in links if "spine" in one["id"]]
    assert len(up) == 2
    both = [shares(service, link) for link in up]
    assert [[one["job"] for one in each["jobs"]] for each in both] == [[JOB], [JOB]]
    assert both[0]["bytes"] == pytest.approx(both[1]["bytes"], rel=0.01)
    assert all(one["crossing"] == 0.5 for one in both[0]["jobs"][0]["flows"])
    assert both[0]["jobs_looked_at"] == 2
    (job,) = both[0]["jobs"]
    assert job["known_bytes"] == 0
    assert "other ways of equal length" in job["unknown_because"]
    assert ": 0 bytes at least, " in job["unknown_because"]
    high = float(job["unknown_because"].split(" at least, ")[1].split()[0])
    assert high == pytest.approx(2 * job["bytes"], rel=0.01), "all of the flows, at most"


def test_shares_say_whose_jobs_how_old_the_data_are_and_what_is_known(service: InProcess) -> None:
    answer = shares(service, "node0000/mlx5_0/1")
    (job,) = answer["jobs"]
    assert job["unknown_because"] == ""
    assert job["known_bytes"] == pytest.approx(job["bytes"], abs=1)
    (user,) = answer["users"]
    assert (user["jobs"], user["share"], user["known_bytes"]) == ([JOB], 1.0, job["known_bytes"])
    assert user["user"] == job["user"]
    assert answer["newest_ns"] == job["newest_ns"] <= (START_S + 35) * NS
    assert answer["age_seconds"] == pytest.approx(START_S + 35 - answer["newest_ns"] / NS, abs=0.01)
    assert 0 <= answer["age_seconds"] < 5
    assert 0 < answer["link_seen_ns"] <= (START_S + END_S) * NS


def test_pairs_of_nics_that_are_cut_are_said(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_shares, "LINK_PAIRS_MAX", 1)
    asked: dict[str, str | float] = {"link": "node0001/mlx5_0/1", "from": START_S + 6}
    answer = service.client.get("/v1/links/shares", params={**asked, "to": START_S + 34}).json()
    assert any("pairs of NICs" in one and "LINK_PAIRS_MAX" in one for one in answer["unknown"])


@pytest.mark.parametrize(
    ("link", "status"),
    [("node0000", 422), ("a|b", 422), ("node0000/mlx5_0/1|node0001/mlx5_0/1", 404), ("x/y/1", 404)],
)
def test_a_link_that_is_none_is_refused(service: InProcess, link: str, status: int) -> None:
    assert service.client.get("/v1/links/shares", params={"link": link}).status_code == status
