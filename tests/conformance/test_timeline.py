"""A job's collectives over HTTP: joined, down-sampled, and as series for PromQL."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api import app
from api.correlate import roll
from collector.contract import wire
from collector.contract.collective import Collective, Operation, Timing
from tests.service import InProcess, eventually, in_process

NS = 1_000_000_000
NOW_S = 1_794_700_120
"""Where the service's clock stands in the end: long enough behind the last record."""
START_NS = (NOW_S - 90) * NS
STEPS, RANKS, LATE_RANK = 120, 4, 2
STEP_NS, TRANSFER_NS, LATE_NS = NS // 2, 40_000_000, 150_000_000


def collectives() -> Iterator[Collective]:
    """A minute of a job: an all-reduce every half second; from the middle on one rank is late."""
    for step in range(STEPS):
        begin = START_NS + step * STEP_NS
        late = LATE_NS if step >= STEPS // 2 else 0
        for rank in range(RANKS):
            entry = begin + rank * 1_000_000 + (late if rank == LATE_RANK else 0)
            last = begin + max(3_000_000, late + LATE_RANK * 1_000_000)
            yield Collective(
                communicator="0xfeed",
                operation=Operation.ALL_REDUCE,
                sequence=step,
                rank=rank,
                ranks=RANKS,
                source="nccl_inspector",
                time_ns=last + TRANSFER_NS,
                entry_ns=entry,
                exit_ns=last + TRANSFER_NS,
                duration_ns=last + TRANSFER_NS - entry,
                size_bytes=8 << 20,
                timing=Timing.KERNEL,
                host=f"node{rank}",
                pid=100 + rank,
            )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    now = [NOW_S - 100.0]
    hurried = (patch.object(app, "JOBS_SECONDS", 0.1), patch.object(roll, "LOOK_SECONDS", 0.1))
    with (
        hurried[0],
        hurried[1],
        in_process(tmp_path_factory.mktemp("service"), clock=lambda: now[0]) as running,
    ):
        send(running.client)
        eventually(lambda: bool(jobs(running.client)), "the job is inferred")
        now[0] = float(NOW_S)
        eventually(
            lambda: bool(
                ask(running.client, f"fabric_communicator_operations_total == {STEPS}", NOW_S)
            ),
            "all collectives became series",
        )
        yield running


def send(client: httpx.Client) -> None:
    batch = wire.pack_batch(
        [],
        collectives=list(collectives()),
        agent="node0",
        boot="b",
        sequence=0,
        sent_ms=NOW_S * 1000,
        common={"host": "node0"},
    )
    answer = client.post(
        "/v1/ingest",
        content=wire.encode_batch(batch),
        headers={"content-type": wire.CONTENT_TYPE, "content-encoding": "zstd"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["stored"] == STEPS * RANKS


def jobs(client: httpx.Client) -> list[str]:
    return [job["id"] for job in client.get("/v1/jobs").json()["items"]]


def ask(client: httpx.Client, query: str, time_s: float) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/query", params={"query": query, "time": time_s})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def value(client: httpx.Client, query: str, time_s: float) -> float:
    (series,) = ask(client, query, time_s)
    return float(series["value"][1])


def get(service: InProcess, path: str, **parameters: str | int) -> dict[str, Any]:
    (job,) = jobs(service.client)
    answer = service.client.get(f"/v1/jobs/{job}/{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_timeline_shows_when_waiting_began_and_for_whom(service: InProcess) -> None:
    found = get(
        service, "timeline", **{"from": START_NS // NS, "to": START_NS // NS + 60}, buckets=6
    )
    assert (found["source"], found["kept_one_in"]) == ("nccl_inspector", 1)
    assert [bucket["operations"] for bucket in found["buckets"]] == [20] * 6
    waits = [bucket["wait_ns"] for bucket in found["buckets"]]
    assert max(waits[:3]) < 5_000_000
    assert min(waits[3:]) > 100_000_000
    for bucket in found["buckets"]:
        assert bucket["transfer_ns"] == pytest.approx(TRANSFER_NS, abs=2_000_000)
        assert bucket["network_ns"] == pytest.approx(TRANSFER_NS, abs=2_000_000)
        assert bucket["step_ns"] == pytest.approx(STEP_NS, rel=0.1)
    rows = {row["rank"]: row["late_ns"] for row in found["ranks"]}
    assert sorted(rows) == list(range(RANKS))
    assert all(late > 100_000_000 for late in rows[LATE_RANK][3:])
    assert all(abs(late) < 5_000_000 for late in rows[LATE_RANK][:3])
    assert [clock["host"] for clock in found["clocks"]] == [f"node{rank}" for rank in range(RANKS)]


def test_operations_come_in_pages_each_once(service: InProcess) -> None:
    stretch = {"from": START_NS // NS, "to": START_NS // NS + 60}
    seen: list[int] = []
    after: dict[str, str] = {}
    while True:
        page = get(service, "operations", **stretch, limit=50, **after)
        seen += [item["sequence"] for item in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == list(range(STEPS))
    first, last = page["items"][0], page["items"][-1]
    assert (last["last_in"], last["ranks_seen"]) == (LATE_RANK, RANKS)
    assert last["skew_ns"] == LATE_NS + LATE_RANK * 1_000_000
    assert last["transfer_ns"] == TRANSFER_NS
    assert first["bus_bandwidth_bytes_per_second"] == pytest.approx(
        2 * (8 << 20) * 3 / 4 / (TRANSFER_NS / 1e9)
    )


@pytest.mark.parametrize("after", ["x", "", "1" * 30, "-5.1.a.b"])
def test_a_position_that_is_none_is_named(service: InProcess, after: str) -> None:
    (job,) = jobs(service.client)
    answer = service.client.get(f"/v1/jobs/{job}/operations", params={"after": after})
    assert answer.status_code == 400
    assert "pass `next` as it was given" in answer.text


def test_unknown_jobs_and_empty_times(service: InProcess) -> None:
    for path in ("timeline", "operations"):
        assert service.client.get(f"/v1/jobs/nobody/{path}").status_code == 404
    empty = get(service, "timeline", **{"from": 1_700_000_000, "to": 1_700_000_060}, buckets=3)
    assert [bucket["operations"] for bucket in empty["buckets"]] == [0, 0, 0]
    assert empty["buckets"][0]["skew_ns"] is None
    assert get(service, "operations", **{"from": 1_700_000_000, "to": 1_700_000_060})["items"] == []


def test_collectives_are_series_for_promql(service: InProcess) -> None:
    client, (job,) = service.client, jobs(service.client)
    early_s, late_s = START_NS / NS + 30, START_NS / NS + 60
    where = f'{{job="{job}"}}'
    skew = f"fabric_communicator_entry_skew_seconds{where}"
    assert value(client, skew, early_s) == pytest.approx(0.003)
    assert value(client, skew, late_s) == pytest.approx(0.152)
    transfer = f"fabric_communicator_transfer_seconds{where}"
    assert value(client, transfer, late_s) == pytest.approx(0.04)
    labels = ask(client, transfer, late_s)[0]["metric"]
    assert (labels["operation"], labels["size"], labels["communicator"]) == (
        "all_reduce",
        "16MiB",
        "0xfeed",
    )
    bandwidth = f"fabric_communicator_bus_bandwidth_bytes_per_second{where}"
    assert value(client, bandwidth, late_s) == pytest.approx(2 * (8 << 20) * 3 / 4 / 0.04)
    (worst,) = ask(client, f"topk(1, fabric_rank_lateness_seconds{where})", late_s)
    assert (worst["metric"]["rank"], worst["metric"]["host"]) == (str(LATE_RANK), "node2")
    share = f"fabric_job_network_share_ratio{where}"
    assert value(client, share, late_s) == pytest.approx(0.04 / 0.5, rel=0.05)
    rate = f"rate(fabric_communicator_operations_total{where}[30s])"
    assert value(client, rate, late_s) == pytest.approx(2.0, rel=0.05)
    assert value(client, f"fabric_job_step_seconds{where}", late_s) == pytest.approx(0.5, rel=0.05)
