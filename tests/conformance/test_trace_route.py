"""A job's trace over HTTP: a simulated job with a slow NIC, held against the format."""

import asyncio
import contextlib
import gzip
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pytest
from starlette.requests import ClientDisconnect

from api.base.trace_limits import TRACES_MAX
from api.http import works
from api.http.routes import trace as route
from api.http.turns import Slots
from api.jobs.trace import read
from api.oncall.evaluate import lead, task
from collector.contract import wire
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Layer, Verdict
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection
from simulator.readings.batches import Reporter
from simulator.topology.model import Fabric
from tests.oracles.trace_format import Event, Trace, check
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.incidents import Teller
from tests.worlds.simulated_cluster import GPUS_PER_HOST, JOB_HOSTS, small_job, small_scenario

SECONDS, FROM_S, TO_S, FAULT_S = 40.0, 10, 38, 20.0
RANKS = JOB_HOSTS * GPUS_PER_HOST
LATE_RANK = 5


class Cluster:
    """A service with a job, its fault and two incidents."""

    def __init__(self, service: InProcess, start_ns: int, culprit: Culprit) -> None:
        self.service = service
        self.start_ns = start_ns
        self.culprit = culprit

    def get(self, path: str = "train", /, **parameters: str | float) -> httpx.Response:
        """The answer to a question, about the middle of the run unless it says otherwise."""
        start_s = self.start_ns // NS
        stretch: dict[str, str | float] = {"from": start_s + FROM_S, "to": start_s + TO_S}
        return self.service.client.get(f"/v1/jobs/{path}/trace", params=stretch | parameters)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    scenario = small_scenario(Fabric.ROCE, small_job(), seconds=SECONDS, tick_seconds=2.0)
    simulation = Simulation(scenario)
    fault = discover()["slow_nic"]
    place = fault.choose(simulation.cluster, np.random.default_rng(3))
    simulation.inject(Injection(fault, place, FAULT_S, SECONDS, 1.0))
    culprit = fault.culprits(simulation.cluster, place)[0]
    start_ns = simulation.scenario.start_unix_ns
    reporter = Reporter(simulation.topology, "lab", start_ns, seed=5)
    headers = {"content-type": wire.CONTENT_TYPE, "content-encoding": "zstd"}
    with (
        patch.object(works, "JOBS_SECONDS", 0.5),
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(
            tmp_path_factory.mktemp("service"), clock=lambda: start_ns / NS + SECONDS
        ) as running,
    ):
        for snapshot in simulation.run():
            for body in reporter.batches(snapshot):
                answer = running.client.post("/v1/ingest", content=body, headers=headers)
                assert answer.status_code == 200, answer.text
        eventually(lambda: is_known(running), "the job, its members and NICs are known")
        yield Cluster(running, start_ns, tell(running, start_ns, culprit))


def is_known(service: InProcess) -> bool:
    """Whether every rank's NIC has been found."""
    places = service.inventory.jobs.ranks("train")
    return len(places) == RANKS and all(place.device for place in places)


def tell(service: InProcess, start_ns: int, culprit: Culprit) -> Culprit:
    """Give two verdicts, as the evaluator would."""
    slow = Verdict(
        cause=Cause.SLOW_LINK,
        culprit=culprit,
        since_ns=start_ns + round(FAULT_S * NS),
        confidence=0.9,
        layer=Layer.NETWORK,
        summary="a NIC is slow",
        jobs=("train",),
    )
    late = Verdict(
        cause=Cause.STRAGGLER,
        culprit=Culprit(job="train", rank=LATE_RANK),
        since_ns=start_ns + 2 * NS,
        confidence=0.9,
        layer=Layer.COMPUTE,
        jobs=("train",),
    )
    teller = Teller(service.inventory, service.store)
    teller.say(start_ns + 12 * NS, late)
    teller.say(start_ns + 30 * NS, late, slow)
    teller.say(start_ns + 39 * NS, late, slow)
    return culprit


@pytest.fixture(scope="module")
def trace(cluster: Cluster) -> Trace:
    answer = cluster.get()
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"] == 'attachment; filename="train.trace.json"'
    return check(answer.content)


def facts(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = trace.document["fabricscope"]
    return found


def test_every_rank_has_its_tracks_in_the_process_of_its_host(trace: Trace) -> None:
    processes = {pid: name for (pid, _), name in trace.names("process_name").items()}
    hosts = [name for name in processes.values() if name.startswith("node")]
    assert hosts[:JOB_HOSTS] == [f"node000{host}" for host in range(JOB_HOSTS)]
    by_process: dict[str, set[str]] = {}
    for (pid, _), name in trace.names("thread_name").items():
        by_process.setdefault(processes[pid], set()).add(name)
    for rank in range(RANKS):
        own = by_process[f"node000{rank // GPUS_PER_HOST}"]
        assert {f"rank {rank} steps", f"rank {rank} compute"} <= own
    assert {"incidents", "steps (median over ranks)"} <= by_process["job train"]


def test_collectives_are_the_stores_and_split_into_waiting_and_transfer(
    trace: Trace, cluster: Cluster
) -> None:
    start_s = cluster.start_ns // NS
    timed = "source = 'nccl_inspector' AND entry IS NOT NULL AND exit IS NOT NULL"
    inside = f"time BETWEEN {start_s + FROM_S} AND {start_s + TO_S}"
    sql = f"SELECT count() AS n FROM collectives WHERE {timed} AND {inside}"  # noqa: S608 - ours
    (row,) = cluster.service.rows(sql)
    whole = [event for event in trace.of("X") if "sequence" in event.get("args", {})]
    assert len(whole) == row["n"] > 0
    wanted = {"communicator", "sequence", "size_bytes", "entry_skew_ms", "transfer_ms", "last_in"}
    joined = [event for event in whole if "transfer_ms" in event["args"]]
    assert len(joined) > len(whole) / 2
    assert all(wanted <= event["args"].keys() for event in joined)
    parts = [event for event in trace.of("X") if event["name"] in {"waiting", "transfer"}]
    own = {(event["tid"], event["ts"]): event for event in parts if event["name"] == "waiting"}
    waited = [event for event in joined if not event["args"]["last_in"]]
    for event in waited[:200]:
        # The first rank waits for the whole skew; no rank waits longer.
        part = own.get((event["tid"], event["ts"]))
        assert part is None or part["dur"] <= event["args"]["entry_skew_ms"] * 1e3 + 0.001
    assert own


def test_steps_are_told_for_every_rank(trace: Trace) -> None:
    for rank in range(RANKS):
        steps = trace.slices_on(f"rank {rank} steps")
        assert len(steps) > 10
        assert all(event["name"].startswith("step ") for event in steps)


def test_counters_are_of_the_jobs_nics_and_gpus_and_of_switch_ports(trace: Trace) -> None:
    processes = {pid: name for (pid, _), name in trace.names("process_name").items()}
    found = {(processes[event["pid"]], event["name"]) for event in trace.of("C")}
    for host in range(JOB_HOSTS):
        assert (f"node000{host}", "mlx5_0 port 1 sent") in found
        assert (f"node000{host}", "GPU 1 clock") in found
    assert not any(host in {"node0004", "node0005"} for host, _ in found), "those are not its hosts"
    switches = {host for host, _ in found if not host.startswith("node")}
    assert switches, "the switch ports that its NICs hang on"


def test_incidents_lie_on_a_track_of_their_own_from_when_they_began(
    trace: Trace, cluster: Cluster
) -> None:
    slices = {event["name"].partition(":")[0]: event for event in trace.slices_on("incidents")}
    assert set(slices) == {"slow_link", "straggler"}
    assert slices["slow_link"]["ts"] == pytest.approx((FAULT_S - FROM_S) * 1e6)
    assert slices["straggler"]["ts"] == 0, "it began before the trace"
    said = slices["slow_link"]["args"]["summary"]
    assert said.startswith(f"{cluster.culprit.host}'s NIC {cluster.culprit.device} ")
    assert said.endswith("moves bytes too slowly.")
    assert slices["slow_link"]["args"]["culprit"]["host"] == cluster.culprit.host
    moments = [event["name"] for event in trace.of("i")]
    assert moments.count("begins") == 1
    assert moments.count("incident opened") == 2


def ends(trace: Trace, name: str) -> list[tuple[Event, Event, str, str]]:
    """Arrows of this name: both ends, and their tracks."""
    threads = trace.names("thread_name")
    starts = {event["id"]: event for event in trace.of("s") if event["name"] == name}
    return [
        (
            starts[event["id"]],
            event,
            threads[starts[event["id"]]["pid"], starts[event["id"]]["tid"]],
            threads[event["pid"], event["tid"]],
        )
        for event in trace.of("f")
        if event["id"] in starts
    ]


def test_arrows_lead_from_the_slow_nics_ranks_to_those_that_it_holds_up(
    trace: Trace, cluster: Cluster
) -> None:
    found = ends(trace, "slows down")
    assert found
    places = cluster.service.inventory.jobs.ranks("train")
    guilty = {
        f"rank {place.rank} "
        for place in places
        if place.host == cluster.culprit.host
        and cluster.culprit.device in (place.devices or place.device or "").split(",")
    }
    for _, _, source, target in found:
        assert any(source.startswith(name) for name in guilty)
        assert not any(target.startswith(name) for name in guilty)


def test_arrows_lead_from_what_a_late_rank_computed_to_who_waited(trace: Trace) -> None:
    found = ends(trace, "is waited for")
    assert found
    for start, end, source, target in found:
        assert source == f"rank {LATE_RANK} compute"
        assert not target.startswith(f"rank {LATE_RANK} ")
        around = [
            event
            for event in trace.of("X")
            if event["tid"] == end["tid"]
            and event["name"] == "waiting"
            and event["ts"] <= end["ts"] < event["ts"] + event["dur"]
        ]
        assert around, "it ends in a waiting slice"
        assert start["ts"] <= end["ts"]


def test_the_end_says_whose_trace_it_is_and_that_nothing_is_missing(
    trace: Trace, cluster: Cluster
) -> None:
    said = facts(trace)
    assert said["is_complete"]
    assert said["from_ns"] == cluster.start_ns // NS * NS + FROM_S * NS
    assert [job["job"] for job in said["jobs"]] == ["train"]
    assert said["events"] == len(trace.events)
    assert list(trace.document)[-1] == "fabricscope"


def test_small_stretches_of_reading_change_nothing(trace: Trace, cluster: Cluster) -> None:
    with patch.object(read, "STRETCH_RECORDS", 300):
        again = check(cluster.get().content)

    def collectives(one: Trace) -> list[tuple[Any, ...]]:
        return sorted(
            (event["name"], event["ts"], event["dur"], event["args"]["communicator"])
            for event in one.of("X")
            if "sequence" in event.get("args", {})
        )

    assert collectives(again) == collectives(trace)
    assert len(again.of("s")) == len(trace.of("s"))


def test_a_job_with_too_many_records_for_one_look_is_drawn_whole(
    trace: Trace, cluster: Cluster
) -> None:
    """Clocks and steps then come from some slices of the time."""
    with patch.object(read, "PLAN_RECORDS_MAX", 2_000):
        again = check(cluster.get().content)
    assert len(again.of("X")) > 0.9 * len(trace.of("X"))
    names = [event["name"] for event in trace.of("X")]
    found = [event["name"] for event in again.of("X")]
    assert found.count("all_reduce") == names.count("all_reduce")
    assert abs(found.count("transfer") - names.count("transfer")) < 0.01 * len(names)
    assert again.of("s")


PEER = shutil.which("trace_processor_shell")


@pytest.mark.skipif(PEER is None, reason="Perfetto's trace processor is not on PATH")
def test_perfettos_own_trace_processor_loses_nothing_of_it(
    trace: Trace, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "trace.json").write_bytes(cluster.get().content)
    (tmp_path / "ask.sql").write_text(
        "SELECT (SELECT count(*) FROM slice WHERE dur > 0) AS slices, (SELECT count(*) FROM flow)"
        " AS flows, (SELECT ifnull(sum(value), 0) FROM stats WHERE value > 0"
        " AND severity IN ('error', 'data_loss')) AS faults;"
    )
    done = subprocess.run(
        [PEER or "", "-q", str(tmp_path / "ask.sql"), str(tmp_path / "trace.json")],
        capture_output=True,
        check=True,
        timeout=120,
    )
    counts = [int(word) for word in done.stdout.decode().splitlines()[-1].split(",")]
    assert counts == [sum(event["dur"] > 0 for event in trace.of("X")), len(trace.of("s")), 0]


def test_it_is_packed_for_those_who_can_unpack(cluster: Cluster) -> None:
    client = cluster.service.client
    start_s = cluster.start_ns // NS
    url = f"/v1/jobs/train/trace?from={start_s + 20}&to={start_s + 22}"
    raw: dict[str, bytes] = {}
    for wanted in ("gzip", "identity", "gzip;q=0"):
        with client.stream("GET", url, headers={"accept-encoding": wanted}) as answer:
            raw[wanted] = b"".join(answer.iter_raw())
            is_packed = answer.headers.get("content-encoding") == "gzip"
            assert is_packed == (wanted == "gzip")
            assert answer.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(raw["gzip"]) == raw["identity"] == raw["gzip;q=0"]
    assert len(raw["gzip"]) < len(raw["identity"]) / 5


@pytest.mark.parametrize(
    ("patched", "parameters", "status", "rule"),
    [
        ({}, {"from": 1_000_000_000}, 422, "TRACE_SECONDS_MAX"),
        ({"TRACE_RECORDS_MAX": 10}, {}, 422, "TRACE_RECORDS_MAX"),
        ({"TRACE_SPANS_MAX": -1}, {}, 422, "TRACE_SPANS_MAX"),
        ({"TRACES_MAX": 0}, {}, 503, "TRACES_MAX"),
        ({}, {"from": 5, "to": 4}, 400, None),
        ({}, {"from": "yesterday"}, 400, None),
    ],
)
def test_what_is_too_much_is_refused_by_name_and_counted(
    cluster: Cluster,
    patched: dict[str, int],
    parameters: dict[str, float | str],
    status: int,
    rule: str | None,
) -> None:
    with contextlib.ExitStack() as stack:
        for name, value in patched.items():
            module = route if hasattr(route, name) else read
            stack.enter_context(patch.object(module, name, value))
        answer = cluster.get("train", **parameters)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json().get("rule") == rule
    if rule is not None:
        assert rule in answer.json()["detail"]
        metrics = cluster.service.client.get("/metrics").text
        assert f'protocol="trace",rule="{rule}"' in metrics


def test_a_job_that_nobody_knows_has_no_trace(cluster: Cluster) -> None:
    assert cluster.get("nobody").status_code == 404


def test_a_job_without_records_has_an_empty_trace_that_opens(cluster: Cluster) -> None:
    client = cluster.service.client
    assert client.post("/v1/jobs", json={"id": "idle <b>"}).status_code == 201
    empty = check(cluster.get("idle%20%3Cb%3E").content)
    assert empty.of("X") == []
    assert list(empty.names("process_name").values()) == ["job idle <b>"]


def test_a_place_is_free_again_however_a_trace_ends() -> None:
    """Also if the client goes away, or never takes the answer."""
    running = Slots("traces")

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"

    async def gone(_: Any) -> None:  # noqa: ANN401 - an ASGI message
        raise OSError("the client went away")

    async def silent() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def stuck(_: Any) -> None:  # noqa: ANN401 - an ASGI message
        await asyncio.Event().wait()

    async def answer(send: Any) -> None:  # noqa: ANN401 - an ASGI callable
        held = contextlib.ExitStack()
        held.enter_context(running.hold("TRACES_MAX", TRACES_MAX))
        response = route.HeldResponse(endless(), held, {})
        scope = {"type": "http", "path": "/", "asgi": {"spec_version": "2.4"}}
        await response(scope, silent, send)

    with pytest.raises(ClientDisconnect):
        asyncio.run(answer(gone))
    with patch.object(route, "TRACE_SEND_SECONDS_MAX", 0.01):
        asyncio.run(answer(stuck))
    with contextlib.ExitStack() as all_of_them:
        for _ in range(TRACES_MAX):
            all_of_them.enter_context(running.hold("TRACES_MAX", TRACES_MAX))


def test_what_is_streamed_is_one_json_document(cluster: Cluster) -> None:
    answer = cluster.get()
    assert json.loads(answer.content)["fabricscope"]["events"] > 0
