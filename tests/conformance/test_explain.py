"""`/v1/explain`: every number that a verdict rests on, computed again from what it answers.

Nothing of the detectors is used for that: sorting, medians and sums in plain Python.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api.explain import job as explain_job
from api.explain import things as explain_things
from api.routes import explain as explain_route
from api.score.run import play
from api.score.service import Silent
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.scenario import START_UNIX_NS
from simulator.topology.model import Fabric
from tests.service import InProcess, eventually, in_process
from tests.simulated_cluster import small_job, small_scenario

NS = 1_000_000_000
START_S = START_UNIX_NS // NS
END_S = 85
HOT, SLOW = (25, 45), (65, 85)
"""When a GPU is hot, and when a NIC is slow: seconds of the simulation."""
JOB = "train"

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder = tmp_path_factory.mktemp("simulated")
    faults = discover()
    scenario = small_scenario(
        Fabric.ROCE,
        small_job(compute_seconds=0.6),
        seconds=float(END_S),
        tick_seconds=5.0,
        injections=(
            Injection(faults["thermal_throttle"], Place(host=1, gpu=2), *HOT, 1.0),
            Injection(faults["slow_nic"], Place(host=2, nic=4), *SLOW, 1.0),
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
    return about(service, HOT[1] + 5, SLOW[1], records=True)


# --- by hand ------------------------------------------------------------------------------------


class Rows:
    """A job's records as rows, with what anybody can compute of them."""

    def __init__(self, answer: Answer) -> None:
        [self.job] = answer["jobs"]
        columns = self.job["records"]
        names, words = columns["communicators"], columns["operations"]
        wanted: tuple[str, ...] = ("sequence", "size_bytes", "rank", "job_rank")
        wanted += ("entry_ns", "exit_ns", "gap_ns", "step")
        self.rows: list[Answer] = [
            {
                "communicator": names[communicator],
                "operation": words[operation],
                **dict(zip(wanted, rest, strict=True)),
            }
            for communicator, operation, *rest in zip(
                columns["communicator"],
                columns["operation"],
                *(columns[name] for name in wanted),
                strict=True,
            )
        ]

    def meetings(self) -> list[list[Answer]]:
        """Rows of one collective at a time."""
        found = defaultdict(list)
        for row in self.rows:
            if row["operation"] not in {"send", "recv", "send_recv"}:
                found[row["communicator"], row["operation"], row["sequence"]].append(row)
        return list(found.values())

    def gaps(self) -> dict[tuple[int, str, str, int], int]:
        """Time outside before each record: since the rank's latest exit of anything."""
        found = {}
        by_rank = defaultdict(list)
        for row in self.rows:
            by_rank[row["job_rank"]].append(row)
        for rank, own in by_rank.items():
            latest = None
            for row in sorted(own, key=lambda row: (row["entry_ns"], row["exit_ns"])):
                if latest is not None:
                    key = (rank, row["communicator"], row["operation"], row["sequence"])
                    found[key] = max(0, row["entry_ns"] - latest)
                latest = max(latest or 0, row["exit_ns"])
        return found

    def outside(self, ranks: list[int], from_ns: int, to_ns: int) -> list[int]:
        """Of these ranks, gaps summed over each step that lies in this time."""
        steps = self.job["own_times"]
        gaps = self.gaps()
        sums: dict[tuple[int, int | None], int] = defaultdict(int)
        for row in self.rows:
            key = (row["job_rank"], row["communicator"], row["operation"], row["sequence"])
            sums[row["job_rank"], row["step"]] += gaps.get(key, 0)
        return [
            sums[rank, step]
            for rank in ranks
            for step, (start, end) in enumerate(
                zip(steps["start_ns"], steps["end_ns"], strict=True)
            )
            if start >= from_ns and end <= to_ns
        ]


def ranks_named(rows: Rows, culprit: Answer) -> list[list[int]]:
    """Whom an evidence may be about: the rank, or all of its host."""
    places = {one["job_rank"]: one["host"] for one in rows.job["ranks"]}
    whole = [rank for rank, host in places.items() if host == culprit.get("host")]
    return [[culprit["rank"]], whole] if "rank" in culprit else [whole]


def rank_gap(rows: Rows, verdict: Answer, evidence: Answer) -> list[float]:
    return [
        statistics.median(rows.outside(ranks, evidence["from_ns"], evidence["to_ns"])) / NS
        for ranks in ranks_named(rows, verdict["culprit"])
    ]


def share_of(rows: Rows, verdict: Answer, evidence: Answer, *, is_entry: bool) -> list[float]:
    """Of the collectives that somebody met in: those it entered last, or spent least time in."""
    found = []
    for ranks in ranks_named(rows, verdict["culprit"]):
        met = won = 0
        for own in rows.meetings():
            ends = max(row["exit_ns"] for row in own)
            mine = [row for row in own if row["job_rank"] in ranks]
            is_inside = evidence["from_ns"] <= ends <= evidence["to_ns"]
            # Of a group that lies within the host somebody of the host is always the last.
            if not is_inside or not 0 < len(mine) < len(own):
                continue
            met += 1
            if is_entry:
                chosen = max(own, key=lambda row: (row["entry_ns"], -row["rank"]))
            else:
                chosen = min(own, key=lambda row: (row["exit_ns"] - row["entry_ns"], row["rank"]))
            won += chosen in mine
        found.append(won / max(1, met))
    return found


def transfers(rows: Rows, labels: Answer, from_ns: float, to_ns: float) -> list[int]:
    """Last exit minus last entry of a communicator's operations that ended in this time."""
    found = []
    for own in rows.meetings():
        ends = max(row["exit_ns"] for row in own)
        is_kind = own[0]["communicator"] == labels["communicator"] and (
            "size_bytes" not in labels or str(own[0]["size_bytes"]) == labels["size_bytes"]
        )
        if is_kind and from_ns <= ends <= to_ns:
            found.append(ends - max(row["entry_ns"] for row in own))
    return found


def collective_transfer(rows: Rows, verdict: Answer, evidence: Answer) -> list[float]:
    del verdict
    found = transfers(rows, evidence["labels"], evidence["from_ns"], evidence["to_ns"])
    return [statistics.median(found) / NS]


def exit_ladder(rows: Rows, verdict: Answer, evidence: Answer) -> list[float]:
    """From the first to the last to leave, by medians, against the same before."""
    del verdict
    offsets: dict[bool, dict[int, list[float]]] = {
        True: defaultdict(list),
        False: defaultdict(list),
    }
    sizes = [own[0]["size_bytes"] for own in rows.meetings()]
    for own in rows.meetings():
        is_kind = own[0]["communicator"] == evidence["labels"]["communicator"]
        ends = max(row["exit_ns"] for row in own)
        if not is_kind or own[0]["size_bytes"] != max(sizes) or ends > evidence["to_ns"]:
            continue
        first = min(row["exit_ns"] for row in own)
        mean = statistics.fmean(row["exit_ns"] - first for row in own)
        for row in own:
            since = offsets[ends >= evidence["from_ns"]]
            since[row["rank"]].append(row["exit_ns"] - first - mean)
    change = [
        statistics.median(during) - statistics.median(offsets[False][rank])
        for rank, during in offsets[True].items()
    ]
    return [(max(change) - min(change)) / NS]


def communicator_vote(rows: Rows, verdict: Answer, evidence: Answer) -> list[float]:
    """Communicators over several hosts whose transfer has grown by more than a third."""
    del verdict
    hosts = defaultdict(set)
    for one in rows.job["ranks"]:
        hosts[one["communicator"]].add(one["host"])
    slow = 0
    for name in (name for name, own in hosts.items() if len(own) > 1):
        labels = {"communicator": name, "size_bytes": str(largest(rows, name))}
        during = transfers(rows, labels, evidence["from_ns"], evidence["to_ns"])
        before = transfers(rows, labels, 0, evidence["from_ns"] - 1)
        slow += statistics.median(during) > SLOW_FACTOR * statistics.median(before)
    return [float(slow)]


def largest(rows: Rows, communicator: str) -> int:
    return max(int(row["size_bytes"]) for row in rows.rows if row["communicator"] == communicator)


def reading(answer: Answer, evidence: Answer) -> list[float]:
    """What a series of the grid says of this time: its mean, median, largest, least and last.

    As it is, as a share of a port's line or a host's CPUs, and for each rank of a host.
    """
    if "xid" in evidence["labels"]:
        return [happened(answer, evidence)]
    start, step = answer["grid"]["start_ns"], answer["grid"]["step_ns"]
    lines = [
        (thing, series["values"])
        for thing in answer["things"]
        for series in thing["readings"]
        if series["metric"] == evidence["metric"]
        and series["labels"].items() <= evidence["labels"].items()
    ]
    assert lines, f"{evidence['metric']} {evidence['labels']} is not among what is explained"
    [(thing, values)] = lines
    inside = [
        value
        for cell, value in enumerate(values)
        if value is not None
        and start + cell * step >= evidence["from_ns"]
        and start + (cell + 1) * step <= evidence["to_ns"]
    ]
    whole = [
        statistics.fmean(inside),
        statistics.median(inside),
        max(inside),
        min(inside),
        inside[-1],
        sum(inside) * step / NS,
    ]
    wholes = [thing["rate_bits_per_second"] or 0, *cpus_of(thing), *ranks_of(answer, thing)]
    factors = [1.0, 8.0 / wholes[0] if wholes[0] else 1.0, *(1 / one for one in wholes[1:] if one)]
    return [factor * value for factor in factors for value in whole]


def happened(answer: Answer, evidence: Answer) -> float:
    """How many events of this kind there were."""
    return float(
        sum(
            event["kind"] == "gpu_xid"
            and event["attributes"].get("xid") == evidence["labels"]["xid"]
            and event["labels"].get("gpu") == evidence["labels"]["gpu"]
            and evidence["from_ns"] <= event["time_ns"] <= evidence["to_ns"]
            for event in answer["events"]
        )
    )


def cpus_of(thing: Answer) -> list[float]:
    """How many CPUs a host has, if it says so."""
    found = [one for one in thing["readings"] if one["metric"] == "fabric_host_cpus"]
    return [value for one in found for value in one["values"][-1:] if value]


def ranks_of(answer: Answer, thing: Answer) -> list[int]:
    """How many ranks of each job run on a host."""
    return [
        len({one["job_rank"] for one in job["ranks"] if one["host"] == thing["name"]})
        for job in answer["jobs"]
    ]


def pending_operations(rows: Rows, verdict: Answer, evidence: Answer) -> list[float]:
    """Operations that somebody has not left."""
    del verdict, evidence
    return [float(len(rows.job["pending"]))]


SLOW_FACTOR = 1.33

BY_HAND = {
    "rank_gap": rank_gap,
    "rank_last_in": lambda *asked: share_of(*asked, is_entry=True),
    "rank_least_inside": lambda *asked: share_of(*asked, is_entry=False),
    "collective_transfer": collective_transfer,
    "exit_ladder": exit_ladder,
    "communicator_vote": communicator_vote,
    "pending_operations": pending_operations,
}
"""What records tell, each by the words of its evidence."""

TOLERANCE = 0.05
"""Steps and operations at the edges of a stretch may fall on either side."""


def check(answer: Answer, cause: str) -> set[str]:
    """Compute all evidence of the verdicts of a cause again; what was computed."""
    rows = Rows(answer)
    found = [verdict for verdict in answer["verdicts"] if verdict["cause"] == cause]
    assert found, f"no {cause} among {answer['verdicts']}"
    computed = set()
    for verdict in found:
        for evidence in verdict["evidence"]:
            if evidence["metric"] in BY_HAND:
                again = BY_HAND[evidence["metric"]](rows, verdict, evidence)
            else:
                again = reading(answer, evidence)
            near = pytest.approx(evidence["value"], rel=TOLERANCE)
            assert any(value == near for value in again), (evidence, again)
            computed.add(evidence["metric"])
    return computed


def test_what_a_straggler_is_accused_of_can_be_computed_again(hot: Answer) -> None:
    assert hot["failed_detectors"] == []
    computed = check(hot, "straggler")
    assert {"rank_gap", "fabric_gpu_sm_clock_hertz"} <= computed


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
        return [item for item in items if item["cause"] == "slow_link"]

    eventually(lambda: bool(standing()), "the evaluator has found the slow link")
    found = ask(service, incident=standing()[0]["id"])
    assert found["about"] == {"incident": standing()[0]["id"]}
    assert "slow_link" in [verdict["cause"] for verdict in found["verdicts"]]
    assert found["jobs"][0]["since_ns"] == standing()[0]["since_ns"]
    assert "node0002/mlx5_0/1" in [thing["name"] for thing in found["things"]]


# --- bounds and mistakes ------------------------------------------------------------------------


def test_a_narrower_question_is_answered_narrowly(service: InProcess, slow: Answer) -> None:
    [verdict] = [one for one in slow["verdicts"] if one["cause"] == "slow_link"]
    name = verdict["evidence"][0]["labels"]["communicator"]
    found = about(service, HOT[1] + 5, END_S, communicator=name, rank=4, records=True)
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
