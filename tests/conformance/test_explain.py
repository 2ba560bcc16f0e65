"""`/v1/explain`: every number that a verdict rests on, computed again from what it answers.

Nothing of the detectors is used for that: sorting, medians and sums in plain Python.
"""

import statistics
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api.http import turns
from api.http.routes import explain as explain_route
from api.oncall.explain import job as explain_job
from api.oncall.explain import things as explain_things
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.scenario import START_UNIX_NS
from simulator.score.run import play
from simulator.score.simulated_service import Silent
from simulator.topology.build import build
from simulator.topology.model import Fabric
from tests.stands.by_hand import Rows, computed, is_again, transfers
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.simulated_cluster import small_cluster, small_job, small_scenario

START_S = START_UNIX_NS // NS
HOT, DIRTY, STOLEN, STOPPED, FLAPPED, SLOW = (
    (start, start + 20) for start in (25, 65, 105, 145, 185, 225)
)
"""When a GPU is hot, a cable damages, CPUs are taken away, a NIC stops its senders, a link goes
down, and a NIC is slow: seconds of the simulation."""
END_S = SLOW[1]
JOB = "train"

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder = tmp_path_factory.mktemp("simulated")
    faults = discover()
    topology = build(small_cluster(Fabric.ROCE))
    places = {nic: Place(host=nic // 2, nic=nic, link=topology.up(nic)) for nic in range(8)}
    scenario = small_scenario(
        Fabric.ROCE,
        small_job(compute_seconds=0.6),
        seconds=float(END_S),
        tick_seconds=5.0,
        injections=(
            Injection(faults["thermal_throttle"], Place(host=1, gpu=2), *HOT, 1.0),
            Injection(faults["bad_cable"], places[1], *DIRTY, 1.0),
            Injection(faults["host_steal"], Place(host=3), *STOLEN, 1.0),
            Injection(faults["slow_receiver"], places[5], *STOPPED, 1.0),
            Injection(faults["link_flap"], places[6], *FLAPPED, 1.0),
            Injection(faults["slow_nic"], places[4], *SLOW, 1.0),
        ),
    )
    play(Simulation(scenario), folder, lambda _, __: Silent())
    store = f"chdb://{folder / 'store'}"
    with in_process(folder, clock=lambda: float(START_S + END_S), store_url=store) as running:
        yield running


def ask(service: InProcess, **parameters: str | float | bool) -> Answer:
    named = {name.rstrip("_"): value for name, value in parameters.items()}
    answer = service.client.get("/v1/explain", params=named)
    assert answer.status_code == 200, answer.text
    body: Answer = answer.json()
    return body


def about(service: InProcess, from_s: int, to_s: int, **more: str | float | bool) -> Answer:
    return ask(service, job=JOB, from_=START_S + from_s, to=START_S + to_s, **more)


@pytest.fixture(scope="module")
def hot(service: InProcess) -> Answer:
    return about(service, 0, HOT[1], records=True)


@pytest.fixture(scope="module")
def slow(service: InProcess) -> Answer:
    return about(service, SLOW[0] - 15, SLOW[1], records=True)


# --- by hand ------------------------------------------------------------------------------------


def check(answer: Answer, cause: str) -> set[str]:
    """Compute all evidence of the verdicts of a cause again; what was computed."""
    found = [verdict for verdict in answer["verdicts"] if verdict["cause"] == cause]
    assert found, f"no {cause} among {[one['summary'] for one in answer['verdicts']]}"
    for verdict in found:
        assert verdict["evidence"]
        for evidence in verdict["evidence"]:
            assert is_again(answer, verdict, evidence), (
                evidence,
                computed(answer, verdict, evidence),
            )
    return {evidence["metric"] for verdict in found for evidence in verdict["evidence"]}


def test_what_a_straggler_is_accused_of_can_be_computed_again(hot: Answer) -> None:
    assert hot["failed_detectors"] == []
    computed = check(hot, "straggler")
    assert {"rank_gap", "fabric_gpu_sm_clock_hertz"} <= computed


@pytest.mark.parametrize(
    ("when", "cause", "metrics"),
    [
        (DIRTY, "lossy_link", {"collective_transfer", "errors_total"}),
        (STOLEN, "straggler", {"rank_gap", "fabric_host_cpu_seconds_total"}),
        (STOPPED, "pause_storm", {"fabric_nic_transmit_pause_seconds_total"}),
        (FLAPPED, "link_flap", {"fabric_port_state"}),
    ],
)
def test_what_other_faults_are_accused_of_can_be_computed_again(
    service: InProcess, when: tuple[int, int], cause: str, metrics: set[str]
) -> None:
    found = about(service, when[0] - 15, when[1], records=True)
    names = check(found, cause)
    assert {one for one in metrics if any(name.endswith(one) for name in names)} == metrics


def test_what_a_slow_link_is_accused_of_can_be_computed_again(slow: Answer) -> None:
    computed = check(slow, "slow_link")
    assert {"collective_transfer", "exit_ladder"} <= computed


def test_tables_agree_with_the_records_that_they_are_made_of(slow: Answer) -> None:
    rows = Rows(slow)
    gaps = rows.gaps()
    for row in rows.rows:
        key = (row["job_rank"], row["communicator"], row["operation"], row["sequence"])
        assert row["gap_ns"] == gaps.get(key)
    since = rows.job["since_ns"]
    assert since is not None
    assert START_S + SLOW[0] - 1 < since / NS < START_S + SLOW[0] + 5
    for kind in rows.job["kinds"]:
        labels = {"communicator": kind["communicator"], "size_bytes": str(kind["size_bytes"])}
        assert sorted(kind["transfer_ns"]) == sorted(transfers(rows, labels, 0, 1 << 62))
        before = transfers(rows, labels, 0, since - 1)
        assert kind["before"]["operations"] == len(before)
        assert kind["before"]["transfer_ns"] == statistics.median_low(before)
        assert len(kind["last_in"]) == len(kind["sequence"]) == len(kind["end_ns"])
    own = rows.job["own_times"]
    for rank, table in zip(own["ranks"], own["outside_ns"], strict=True):
        by_hand = rows.outside([rank], 0, 1 << 62)
        known = [(one, two) for one, two in zip(table, by_hand, strict=True) if one is not None]
        assert len(known) > len(table) // 2
        assert all(one == two for one, two in known)


def test_jumps_of_the_ladder_show_the_slow_edge(slow: Answer) -> None:
    [verdict] = [one for one in slow["verdicts"] if one["cause"] == "slow_link"]
    name = next(
        one["labels"]["communicator"]
        for one in verdict["evidence"]
        if one["metric"] == "exit_ladder"
    )
    own = [one for one in slow["jobs"][0]["ladders"] if one["communicator"] == name]
    ladder = max(own, key=lambda one: one["size_bytes"])
    jumps = {place["host"]: place["jump_ns"] for place in ladder["places"]}
    assert max(jumps, key=lambda host: jumps[host]) == "node0002"
    assert sum(jump > 0 for jump in jumps.values()) == 1
    assert sum(jumps.values()) == 0


def test_promql_gives_the_same_as_a_reading(service: InProcess, slow: Answer) -> None:
    [thing] = [one for one in slow["things"] if one["name"] == "node0002/mlx5_0/1"]
    [line] = [
        one for one in thing["readings"] if one["metric"] == "fabric_port_transmit_bytes_total"
    ]
    assert line["is_rate"]
    grid = slow["grid"]
    answer = service.client.get(
        "/api/v1/query_range",
        params={
            "query": line["query"],
            "start": (grid["start_ns"] + 4 * grid["step_ns"]) / NS,
            "end": (grid["start_ns"] + grid["cells"] * grid["step_ns"]) / NS,
            "step": grid["step_ns"] / NS,
        },
    )
    [series] = answer.json()["data"]["result"]
    theirs = statistics.fmean(float(value) for _, value in series["values"])
    ours = statistics.fmean(value for value in line["values"][2:] if value is not None)
    assert theirs == pytest.approx(ours, rel=0.1)


def test_a_host_is_explained_by_its_readings_and_jobs(service: InProcess) -> None:
    found = ask(service, host="node0001", from_=START_S, to=START_S + HOT[1])
    names = [thing["name"] for thing in found["things"]]
    assert {"node0001", "node0001/gpu/0", "node0001/gpu/1", "node0001/mlx5_0/1"} <= set(names)
    assert [job["job"] for job in found["jobs"]] == [JOB]
    [gpu] = [thing for thing in found["things"] if thing["name"] == "node0001/gpu/0"]
    assert {"host": "node0001", "gpu": "0"} in [one["labels"] for one in gpu["readings"]]
    [usual] = [one for one in found["peers"] if one["metric"] == "fabric_gpu_sm_clock_hertz"]
    [own] = [one for one in gpu["readings"] if one["metric"] == "fabric_gpu_sm_clock_hertz"]
    assert usual["things"] == 12
    assert own["values"][-2] < 0.8 * usual["median"][-2]


def test_a_link_is_explained_by_both_its_ends(service: InProcess) -> None:
    times = {"from_": START_S + SLOW[0], "to": START_S + END_S}
    by_port = ask(service, link="node0002/mlx5_0/1", **times)
    near, far = (thing["name"] for thing in by_port["things"][-2:])
    assert (near, by_port["things"][-2]["other_end"]) == ("node0002/mlx5_0/1", far)
    by_nic = ask(service, link="node0002/mlx5_0", **times)
    assert by_nic["things"] == by_port["things"]
    links = service.client.get("/v1/links", params={"port": "node0002/mlx5_0/1"}).json()["items"]
    by_id = ask(service, link=links[0]["id"], **times)
    assert {near, far} <= {thing["name"] for thing in by_id["things"]}


def test_an_incident_is_explained_by_what_was_seen_then(service: InProcess) -> None:
    def standing() -> list[Answer]:
        items: list[Answer] = service.client.get("/v1/incidents").json()["items"]
        return [item for item in items if item["jobs"]]

    eventually(lambda: bool(standing()), "the evaluator has found something")
    incident = standing()[0]
    found = ask(service, incident=incident["id"])
    assert found["about"] == {"incident": incident["id"]}
    assert incident["cause"] in [verdict["cause"] for verdict in found["verdicts"]]
    assert found["jobs"][0]["since_ns"] == incident["since_ns"]
    names = [thing["name"] for thing in found["things"]]
    assert any(name.startswith(incident["culprit"]["host"]) for name in names)


# --- bounds and mistakes ------------------------------------------------------------------------


def test_a_narrower_question_is_answered_narrowly(service: InProcess, slow: Answer) -> None:
    [verdict] = [one for one in slow["verdicts"] if one["cause"] == "slow_link"]
    name = verdict["evidence"][0]["labels"]["communicator"]
    found = about(service, SLOW[0] - 15, END_S, communicator=name, rank=4, records=True)
    [job] = found["jobs"]
    assert {kind["communicator"] for kind in job["kinds"]} == {name}
    assert set(job["records"]["job_rank"]) == {4}
    assert job["own_times"]["ranks"] == [4]
    assert "records" in slow["jobs"][0]
    assert about(service, HOT[1] + 5, END_S)["jobs"][0]["records"] is None


def test_what_is_left_out_is_said(service: InProcess) -> None:
    with (
        patch.object(explain_job, "EXPLAIN_OPERATIONS_MAX", 100),
        patch.object(explain_job, "EXPLAIN_RECORDS_MAX", 200),
        patch.object(explain_job, "EXPLAIN_RANKS_MAX", 5),
        patch.object(explain_job, "EXPLAIN_STEPS_MAX", 3),
        patch.object(explain_job, "EXPLAIN_LADDER_PLACES_MAX", 4),
        patch.object(explain_job, "EXPLAIN_CELLS_MAX", 50),
        patch.object(explain_things, "EXPLAIN_THINGS_MAX", 1),
    ):
        found = about(service, 0, HOT[1], records=True)
    [job] = found["jobs"]
    assert sum(len(kind["sequence"]) for kind in job["kinds"]) <= 100 + len(job["kinds"])
    assert 0 < len(job["records"]["rank"]) <= 200
    assert len(job["ranks"]) == 5
    assert len(job["steps"]["number"]) == 3
    assert sum(len(ladder["places"]) for ladder in job["ladders"]) <= 4
    assert len(job["own_times"]["ranks"]) == 1
    assert job["own_times"]["ranks"] == [2], "who kept others waiting longest"
    assert len(found["things"]) == 1
    rules = {one["rule"]: one["count"] for one in found["left_out"]}
    assert set(rules) == {
        "EXPLAIN_OPERATIONS_MAX",
        "EXPLAIN_RECORDS_MAX",
        "EXPLAIN_RANKS_MAX",
        "EXPLAIN_STEPS_MAX",
        "EXPLAIN_LADDER_PLACES_MAX",
        "EXPLAIN_CELLS_MAX",
        "EXPLAIN_THINGS_MAX",
    }
    assert all(count > 0 for count in rules.values())


def test_a_time_without_data_is_explained_by_nothing(service: InProcess) -> None:
    found = ask(service, job=JOB, from_=1_700_000_000, to=1_700_000_100)
    [job] = found["jobs"]
    assert (job["kinds"], job["ranks"], job["ladders"], job["steps"]) == ([], [], [], None)
    assert found["verdicts"] == []
    assert found["failed_detectors"] == []


def is_problem(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in answer.text


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({}, 422, ("job, host, link, incident", "none")),
        ({"job": JOB, "host": "node0001"}, 422, ("job, host",)),
        ({"job": "trian"}, 404, ("did you mean train",)),
        ({"host": "node001"}, 404, ("did you mean", "node0001")),
        ({"link": "node0002/mlx5_9/1"}, 404, ("node0002", "did you mean")),
        ({"link": "a|b"}, 422, ("not a link",)),
        ({"incident": "nothing"}, 404, ("nothing",)),
        ({"job": JOB, "from": "0"}, 422, ("EXPLAIN_SECONDS_MAX",)),
        ({"job": JOB, "from": "5", "to": "5"}, 400, ("empty",)),
        ({"job": JOB, "from": "soon"}, 400, ("not a time",)),
        ({"job": JOB, "since": "soon"}, 400, ("not a time",)),
        ({"job": JOB, "to": "9999-12-31T23:59:59Z"}, 400, ("too late",)),
        ({"job": JOB, "since": "9999-12-31T23:59:59Z"}, 400, ("too late",)),
        ({"link": "node0002"}, 422, ("not a link",)),
        ({"job": JOB, "rank": "-1"}, 422, ("rank",)),
        ({"job": "x" * 2_000}, 422, ("job",)),
    ],
)
def test_wrong_questions_are_answered_with_what_is_wrong(
    service: InProcess, asked: dict[str, str], status: int, words: tuple[str, ...]
) -> None:
    is_problem(service.client.get("/v1/explain", params=asked), status, *words)


def test_who_comes_while_too_many_wait_is_told_to_come_back(service: InProcess) -> None:
    with patch.object(explain_route, "EXPLAINS_WAITING_MAX", 0):
        answer = service.client.get("/v1/explain", params={"job": JOB})
    is_problem(answer, 503, "EXPLAINS_WAITING_MAX")
    assert answer.headers["retry-after"]


def test_who_asks_the_same_is_answered_the_same(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 600.0)  # however slow the machine is
    # Only a few are kept: those of other tests must not fill that.
    monkeypatch.setattr(service.context.queues.explanations, "_kept_max", 1_000)
    explainer = service.context.explainer
    asked = {"job": JOB, "from": "100", "to": "160"}
    with patch.object(explainer, "explain", side_effect=explainer.explain) as made:
        one, other = (service.client.get("/v1/explain", params=asked) for _ in range(2))
        assert made.call_count == 1
        assert one.content == other.content
        service.client.get("/v1/explain", params={**asked, "rank": "0"})
        assert made.call_count == 2
