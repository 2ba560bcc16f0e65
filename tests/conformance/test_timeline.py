"""A job's collectives over HTTP: joined, down-sampled, and as series for PromQL."""

import base64
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pytest

from api.base.kept import Kept
from api.http import turns, works
from api.http.routes import heat as heat_route
from api.http.routes.shared import looks
from api.http.routes.shared.looks import look_at
from api.jobs.correlate import ahead, pieces, roll
from api.jobs.correlate.piece import make_piece
from collector.contract import wire
from collector.contract.collective import Collective, Operation, Timing
from collector.contract.units import NS
from tests.stands.service import InProcess, eventually, in_process

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


@pytest.fixture(autouse=True)
def asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds change from test to test, so no answer stands for the next."""
    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 0.0)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    now = [NOW_S - 100.0]
    hurried = (patch.object(works, "JOBS_SECONDS", 0.1), patch.object(roll, "LOOK_SECONDS", 0.1))
    with (
        hurried[0],
        hurried[1],
        # Tests count the pieces that answers make.
        patch.object(ahead, "ROUND_SECONDS", 3_600.0),
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


# --- the heat map ---------------------------------------------------------------------------------


def matrix_of(found: dict[str, Any]) -> np.ndarray:
    values = found["values"]
    numbers = np.frombuffer(base64.b64decode(values["data"]), "<f4")
    return numbers.reshape(values["rows"], values["columns"])


def heat(service: InProcess, quantity: str, **parameters: str | int) -> dict[str, Any]:
    stretch = {"from": START_NS // NS, "to": START_NS // NS + 60}
    return get(service, "heat", **(stretch | parameters), quantity=quantity)


def test_the_heat_map_shows_who_is_late_and_since_when(service: InProcess) -> None:
    found = heat(service, "late")
    late = matrix_of(found)
    assert late.shape == (RANKS, STEPS - 2) == (len(found["ranks"]), len(found["steps"]))
    assert [row["rank"] for row in found["ranks"]] == list(range(RANKS))
    assert [row["host"] for row in found["ranks"]] == [f"node{rank}" for rank in range(RANKS)]
    assert (found["unit"], found["steps_in_one"], found["kept_one_in"]) == ("seconds", 1, 1)
    assert found["ranks_left_out"] == 0
    since = STEPS // 2 - 1  # without the first step
    assert late[LATE_RANK, since:].min() > 0.9 * LATE_NS / NS
    assert np.abs(late[LATE_RANK, :since]).max() < 0.005
    begin = found["steps"][since]["start_ns"]
    assert START_NS + (STEPS // 2 - 1) * STEP_NS < begin < START_NS + (STEPS // 2) * STEP_NS


def test_the_heat_map_shows_where_the_time_went(service: InProcess) -> None:
    shown = {
        name: matrix_of(heat(service, name)) for name in ("compute", "wait", "network", "step")
    }
    others = [rank for rank in range(RANKS) if rank != LATE_RANK]
    assert shown["wait"][others][:, STEPS // 2 :].min() > 0.9 * LATE_NS / NS
    assert shown["wait"][LATE_RANK].max() < 0.005
    assert np.median(shown["network"]) == pytest.approx(TRANSFER_NS / NS, abs=0.002)
    total = shown["compute"] + shown["wait"] + shown["network"]
    assert total == pytest.approx(shown["step"], abs=1e-3)


def test_more_steps_than_columns_are_put_together(service: InProcess) -> None:
    with (
        patch.object(heat_route, "HEAT_STEPS_MAX", 20),
        patch.object(heat_route, "HEAT_RANKS_MAX", 2),
    ):
        found = heat(service, "late")
    assert found["steps_in_one"] == 6
    assert matrix_of(found).shape == (2, 20)
    assert found["ranks_left_out"] == RANKS - 2


def test_a_time_without_records_has_no_steps(service: InProcess) -> None:
    found = heat(service, "late", **{"from": START_NS // NS - 60, "to": START_NS // NS - 30})
    assert (found["steps"], found["ranks"], found["values"]["data"]) == ([], [], "")


def test_a_cell_says_why(service: InProcess) -> None:
    step = heat(service, "late")["steps"][STEPS // 2 + 10]
    span = {name: step[name] for name in ("start_ns", "end_ns")}
    guilty = get(service, "heat/cell", rank=LATE_RANK, **span)
    (operation,) = guilty["operations"]
    assert operation["last_in"] == LATE_RANK
    assert operation["last_in_host"] == f"node{LATE_RANK}"
    assert (operation["waited_ns"], operation["transfer_ns"]) == (0, TRANSFER_NS)
    assert operation["skew_ns"] == operation["late_ns"] == LATE_NS + LATE_RANK * 1_000_000
    assert guilty["steps"] == 1
    more_ns = guilty["own"]["compute_ns"] - guilty["median"]["compute_ns"]
    assert more_ns == pytest.approx(LATE_NS, rel=0.05)
    assert "last to enter 1 of 1 collectives" in guilty["words"][0]
    assert "more than the median rank" in guilty["words"][1]
    victim = get(service, "heat/cell", rank=0, **span)
    assert victim["operations"][0]["waited_ns"] == LATE_NS + LATE_RANK * 1_000_000
    assert f"rank {LATE_RANK} on node{LATE_RANK}" in victim["words"][0]


@pytest.mark.parametrize(
    ("parameters", "status", "word"),
    [
        ({"rank": 99}, 404, "rank 99"),
        ({"rank": -1}, 422, "rank"),
        ({"end_ns": START_NS}, 400, "not before"),
        ({"end_ns": START_NS + 3_601 * NS}, 422, "CELL_SECONDS_MAX"),
        ({"end_ns": (1 << 63) - 1}, 400, "where the store ends"),
    ],
)
def test_odd_cells_are_problems(
    service: InProcess, parameters: dict[str, int], status: int, word: str
) -> None:
    (job,) = jobs(service.client)
    usual = {"rank": 0, "start_ns": START_NS, "end_ns": START_NS + NS}
    answer = service.client.get(f"/v1/jobs/{job}/heat/cell", params=usual | parameters)
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert word in answer.text


def test_too_many_who_wait_for_heat_maps_are_told_so(service: InProcess) -> None:
    (job,) = jobs(service.client)
    with patch.object(heat_route, "HEATS_WAITING_MAX", 0):
        answer = service.client.get(f"/v1/jobs/{job}/heat")
    assert (answer.status_code, answer.json()["rule"]) == (503, "HEATS_WAITING_MAX")
    assert answer.headers["retry-after"]


def test_the_views_of_a_job_read_its_records_once(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heat map, another quantity of it and a timeline of the same time, asked at once."""
    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 60.0)
    monkeypatch.setattr(service.context.job_pieces, "kept", Kept(1 << 20))
    stretch = {"from": START_NS // NS, "to": START_NS // NS + 60}
    with patch.object(pieces, "make_piece", side_effect=make_piece) as made:
        heat(service, "wait", **stretch)
        count = made.call_count
        assert count == 3, "half minutes that the minute touches"
        heat(service, "late", **stretch)
        assert get(service, "timeline", buckets=60, **stretch)["buckets"]
        assert made.call_count == 2 * count, "with stretches that nobody had asked for"
        assert get(service, "timeline", buckets=60, **stretch)["buckets"]
        heat(service, "compute", **stretch)
        assert made.call_count == 2 * count


def test_a_time_that_cannot_be_cut_is_read_once(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 60.0)
    stretch = {"from": START_NS // NS, "to": START_NS // NS + 59}
    alone = look_at
    with patch.object(looks, "look_at", side_effect=alone) as read:
        assert get(service, "timeline", **stretch)["buckets"]
        assert get(service, "timeline", buckets=17, **stretch)["buckets"]
        assert read.call_count == 1
        get(service, "timeline", **{**stretch, "to": START_NS // NS + 58})
        assert read.call_count == 2


def test_stretches_begin_at_multiples_of_their_length(service: InProcess) -> None:
    """So that people who ask a moment later are shown the same stretches."""
    begin = START_NS / NS
    answers = [
        get(
            service,
            "timeline",
            buckets=12,
            **{"from": f"{begin + ms / 1000:.3f}", "to": f"{begin + 60 + ms / 1000:.3f}"},
        )
        for ms in (0, 1, 4_999)
    ]
    starts = [answer["buckets"][0]["start_ns"] for answer in answers]
    assert starts == [START_NS, START_NS + 5 * NS, START_NS + 5 * NS]
    assert answers[1] == answers[2]
