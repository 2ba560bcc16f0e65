"""Jobs over HTTP: registered, inferred from records, and their records asked for."""

import csv
import io
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.base.limits import JOB_RANKS_MAX
from api.data.inventory.engine import InventoryRefusedError
from api.data.inventory.job_model import JobFound
from api.jobs import records as records_module
from api.jobs import watch as watch_module
from api.jobs.watch import QUIET, JobWatch
from collector.contract import communicator as words
from collector.contract import wire
from collector.contract.collective import Collective, Operation, StepSpan
from collector.contract.errors import StoreError
from collector.contract.model import Event
from tests.stands.service import InProcess, in_process
from tests.stands.strangers import JSON


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as running:
        yield running


def is_problem(answer: httpx.Response, status: int, *said_: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for word in said_:
        assert word in answer.text


def test_post_answers_201_then_200_then_409(service: InProcess) -> None:
    body = {
        "id": "http 1",
        "name": "n",
        "started_at": "2026-01-01T00:00:00+01:00",
        "ranks": [{"rank": 0, "host": "p", "gpu": 3, "device": "mlx5_0", "port": "1"}],
        "groups": {"dp": [[0]]},
        "attributes": {"k": "v"},
    }
    answer = service.client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/v1/jobs/http%201"
    assert answer.json()["started_at"] == "2025-12-31T23:00:00Z"
    assert service.client.post("/v1/jobs", json=body).status_code == 200
    is_problem(service.client.post("/v1/jobs", json={**body, "name": "m"}), 409, "name is 'n'")
    detail = service.client.get(answer.headers["location"]).json()
    assert (detail["hosts"], detail["groups"], detail["ranks_known"]) == (["p"], {"dp": [[0]]}, 1)
    ranks = service.client.get("/v1/jobs/http%201/ranks").json()
    assert ranks["items"][0]["origins"]["gpu"] == "registered"
    changed = service.client.patch("/v1/jobs/http%201", json={"state": "ended", "name": "m"})
    assert (changed.json()["state"], changed.json()["name"]) == ("ended", "m")
    listed = service.client.get("/v1/jobs", params={"state": "ended", "host": "p"}).json()
    assert [job["id"] for job in listed["items"]] == ["http 1"]


def test_unknown_jobs_are_404(service: InProcess) -> None:
    for path in ("", "/ranks", "/collectives", "/steps"):
        is_problem(service.client.get(f"/v1/jobs/nobody{path}"), 404, "no job named 'nobody'")
    is_problem(service.client.patch("/v1/jobs/nobody", json={}), 404)


HOSTILE: list[tuple[bytes | dict[str, Any], int, str]] = [
    (b"", 400, "not JSON"),
    (b"{", 400, "not JSON"),
    (b"\xff\xfe", 400, "not JSON"),
    (b"[" * 1_000_000, 422, "not a job"),
    (b'{"id":' + b"[" * 1_000_000, 422, "$.id"),
    (b'{"groups":{"dp":' + b"[" * 1_000_000, 422, "$.groups"),
    (b"[]", 422, "not a job"),
    (b"null", 422, "not a job"),
    ({}, 422, "id"),
    ({"id": 5}, 422, "id"),
    ({"id": ""}, 422, "id is ''"),
    ({"id": "a/b"}, 422, "without /"),
    ({"id": "a\nb"}, 422, "printable"),
    ({"id": "x" * 256}, 422, "255"),
    ({"id": "j", "colour": "red"}, 422, "colour"),
    ({"id": "j", "name": "n" * 513}, 422, "JOB_TEXT_CHARS_MAX"),
    ({"id": "j", "name": "a\u0000b"}, 422, "printable"),
    ({"id": "j", "hosts": [""]}, 422, "host ''"),
    ({"id": "j", "ranks": [{"rank": -1, "host": "h"}]}, 422, "rank -1"),
    ({"id": "j", "ranks": [{"rank": 1 << 31, "host": "h"}]}, 422, "ranks are 0 to"),
    ({"id": "j", "ranks": [{"rank": 0, "host": "h"}] * 2}, 422, "named twice"),
    ({"id": "j", "ranks": [{"rank": 0}]}, 422, "host"),
    ({"id": "j", "ranks": [{"rank": 0, "host": "h", "pid": 0}]}, 422, "pid 0"),
    ({"id": "j", "ranks": [{"rank": 0, "host": "h", "gpu": "\u0000"}]}, 422, "of rank 0"),
    ({"id": "j", "ranks": [{"rank": 0, "host": "h", "local_rank": 1 << 40}]}, 422, "local_rank"),
    ({"id": "j", "groups": {"dp": [[-1]]}}, 422, "group dp"),
    ({"id": "j", "groups": {"": []}}, 422, "group ''"),
    ({"id": "j", "groups": {str(n): [] for n in range(65)}}, 422, "JOB_ATTRIBUTES_MAX"),
    ({"id": "j", "groups": {"dp": [[]] * 2_000_001}}, 422, "JOB_GROUP_RANKS_MAX"),
    ({"id": "j", "attributes": {str(n): "" for n in range(65)}}, 422, "JOB_ATTRIBUTES_MAX"),
    ({"id": "j", "attributes": {"a": "\u0000"}}, 422, "attribute a"),
    ({"id": "j", "hosts": ["h"] * (JOB_RANKS_MAX + 1)}, 422, "JOB_RANKS_MAX"),
    ({"id": "j", "started_at": "2026-01-01T00:00:00"}, 422, "zone"),
    ({"id": "j", "started_at": "0001-01-01T00:00:00+14:00"}, 422, "1970"),
    ({"id": "j", "started_at": "9999-12-31T23:59:59-14:00"}, 422, "9999"),
    ({"id": "j", "started_at": "yesterday"}, 422, "started_at"),
]


@pytest.mark.parametrize(("body", "status", "words_"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_body_is_a_problem_that_says_why(
    service: InProcess, body: bytes | dict[str, Any], status: int, words_: str
) -> None:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    is_problem(service.client.post("/v1/jobs", content=content, headers=JSON), status, words_)
    assert service.client.get("/v1/jobs/j").status_code == 404


def test_a_body_over_the_bound_is_refused(service: InProcess) -> None:
    is_problem(
        service.client.post("/v1/jobs", content=bytes(17 << 20), headers=JSON),
        413,
        "BODY_BYTES_MAX",
    )


# --- from records to answers -------------------------------------------------------------------


def collective(
    communicator: str,
    rank: int,
    host: str,
    pid: int,
    sequence: int,
    **more: Any,  # noqa: ANN401 - any other field
) -> Collective:
    fields: dict[str, Any] = {
        "operation": Operation.ALL_REDUCE,
        "ranks": 2,
        "source": "nccl_inspector",
        "time_ns": time.time_ns() - 10**9,
    }
    return Collective(
        communicator=communicator,
        rank=rank,
        host=host,
        pid=pid,
        sequence=sequence,
        **{**fields, **more},
    )


SEQUENCES = count()


def send(
    service: InProcess,
    collectives: list[Collective],
    steps: list[StepSpan] | None = None,
    events: list[Event] | None = None,
) -> None:
    batch = wire.pack_batch(
        [],
        events or [],
        collectives,
        steps or [],
        agent="a",
        boot="b",
        sequence=next(SEQUENCES),
        sent_ms=0,
        common={"host": "agent-host"},
    )
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    answer = service.client.post("/v1/ingest", content=wire.encode_batch(batch), headers=headers)
    assert (answer.status_code, answer.json()["refused"]) == (200, {})


def pair(name: str, host: str, pid: int, sequences: int = 3, **more: Any) -> list[Collective]:  # noqa: ANN401
    """Two ranks on one host, each in a few operations of a communicator of its own."""
    return [
        collective(name, rank, host, pid + rank, sequence, **more)
        for rank in range(2)
        for sequence in range(sequences)
    ]


def look(service: InProcess, watch: JobWatch | None = None) -> JobWatch:
    watch = watch or JobWatch(service.store, service.inventory)
    assert watch.look(datetime.now(UTC))
    return watch


def test_two_jobs_on_one_host_are_inferred_and_answered_apart(service: InProcess) -> None:
    now_ns = time.time_ns()
    steps = [
        StepSpan(step=1, start_ns=now_ns - 9, end_ns=now_ns, source="steps", host="n1", pid=pid)
        for pid in (10, 20)
    ]
    lines = words.communicator_event(
        "0xe1",
        1,
        now_ns - 10**9,
        {words.HOST: "n1", words.PID: "11", words.NVML_DEVICE: "5", words.DEVICES: "mlx5_2"},
    )
    send(service, [*pair("0xe1", "n1", 10), *pair("0xe2", "n1", 20)], steps, [lines])
    look(service)
    listed = service.client.get("/v1/jobs", params={"host": "n1"}).json()["items"]
    assert [(job["id"], job["origin"], job["ranks"]) for job in listed] == [
        ("inferred-e1", "inferred", 2),
        ("inferred-e2", "inferred", 2),
    ]
    for name, pid in (("e1", 10), ("e2", 20)):
        rows = service.client.get(f"/v1/jobs/inferred-{name}/collectives").json()["items"]
        assert {row["pid"] for row in rows} == {pid, pid + 1}
        assert [(row["sequence"], row["rank"], row["job_rank"]) for row in rows] == [
            (sequence, rank, rank) for sequence in range(3) for rank in range(2)
        ]
        [step] = service.client.get(f"/v1/jobs/inferred-{name}/steps").json()["items"]
        assert (step["pid"], step["rank"]) == (pid, 0)
    place = service.client.get("/v1/jobs/inferred-e1/ranks").json()["items"][1]
    assert (place["gpu"], place["device"], place["origins"]["gpu"]) == ("5", "mlx5_2", "nccl")


def test_pages_are_walked_to_the_end_and_streams_give_the_same(service: InProcess) -> None:
    send(service, pair("0xf1", "n2", 10, sequences=25))
    send(service, pair("0xf1", "n2", 10, sequences=25))  # again: nothing changes
    look(service)
    path = "/v1/jobs/inferred-f1/collectives"
    walked: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        page = service.client.get(path, params={"limit": 7, **after}).json()
        walked += page["items"]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert len(walked) == 50
    assert len({(row["sequence"], row["rank"]) for row in walked}) == 50
    lines = service.client.get(path, params={"format": "ndjson"}).text.splitlines()
    plain = [{k: v for k, v in row.items() if k != "job_rank"} for row in walked]
    assert [msgspec.json.decode(line) for line in lines] == plain
    arrow = service.client.get(path, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == plain
    parquet = service.client.get(path, params={"format": "parquet"})
    assert parquet.headers["content-type"] == "application/vnd.apache.parquet"
    assert pq.read_table(pa.BufferReader(parquet.content)).to_pylist() == plain
    sheet = service.client.get(path, headers={"Accept": "text/csv"}).text
    assert [row["sequence"] for row in csv.DictReader(io.StringIO(sheet))] == [
        str(row["sequence"]) for row in plain
    ]


def test_streams_come_in_pieces(service: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    send(service, pair("0xf2", "n3", 10, sequences=10))
    look(service)
    monkeypatch.setattr(records_module, "RECORDS_EXPORT_CHUNK", 6)
    path = "/v1/jobs/inferred-f2/collectives"
    for form in ("ndjson", "arrow"):
        content = service.client.get(path, params={"format": form}).content
        rows: Any = content.splitlines()
        if form == "arrow":
            rows = pa.ipc.open_stream(content).read_all().to_pylist()
        assert len(rows) == 20
    monkeypatch.setattr(records_module, "RECORDS_EXPORT_MAX", 5)
    is_problem(service.client.get(path, params={"format": "arrow"}), 422, "RECORDS_EXPORT_MAX")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"rank": "1"}, 3),
        ({"operation": "all_reduce"}, 6),
        ({"operation": "barrier"}, 0),
        ({"communicator": "0xa1"}, 6),
        ({"communicator": "0xe1"}, 0),
        ({"from": "0", "to": "10"}, 0),
        ({"from": "0"}, 6),
        ({"limit": "2"}, 2),
    ],
)
def test_records_are_chosen(service: InProcess, asked: dict[str, str], expected: int) -> None:
    send(service, pair("0xa1", "n4", 10))
    look(service)
    answer = service.client.get("/v1/jobs/inferred-a1/collectives", params=asked)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["items"]) == expected


def test_steps_are_chosen_by_rank_and_phase(service: InProcess) -> None:
    now_ns = time.time_ns()
    whole = StepSpan(step=0, start_ns=now_ns - 9, end_ns=now_ns, source="steps")
    steps = [
        msgspec.structs.replace(whole, step=step, phase=phase, **who)
        for step in range(2)
        for phase in ("", "forward")
        for who in ({"host": "n5", "pid": 10}, {"rank": 1, "job": "inferred-b1"})
    ]
    send(service, pair("0xb1", "n5", 10), steps)
    look(service)

    def asked(**parameters: str) -> list[tuple[int, int, str]]:
        answer = service.client.get("/v1/jobs/inferred-b1/steps", params=parameters)
        return [(row["step"], row["rank"], row["phase"]) for row in answer.json()["items"]]

    assert len(asked()) == 8
    assert asked(rank="0", phase="") == [(0, 0, ""), (1, 0, "")]
    assert asked(rank="1", phase="forward") == [(0, 1, "forward"), (1, 1, "forward")]
    first = service.client.get("/v1/jobs/inferred-b1/steps", params={"limit": "5"}).json()
    second = {"limit": "5", "after": first["next"]}
    assert len(asked(**second)) == 3


def test_streams_of_steps_are_what_their_pages_are(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.time_ns()
    known = StepSpan(step=0, start_ns=now_ns - 9, end_ns=now_ns, source="steps")
    steps = [
        msgspec.structs.replace(known, step=step, **who)
        for step in range(5)
        # By its process, by its own word, and one whose rank is not known.
        for who in (
            {"host": "n17", "pid": 10},
            {"rank": 1, "job": "inferred-b2"},
            {"host": "n8", "pid": 99, "job": "inferred-b2"},
        )
    ]
    send(service, pair("0xb2", "n17", 10), steps)
    look(service)
    path = "/v1/jobs/inferred-b2/steps"
    plain = service.client.get(path).json()["items"]
    assert {row["rank"] for row in plain} == {0, None, 1}
    monkeypatch.setattr(records_module, "RECORDS_EXPORT_CHUNK", 4)
    lines = service.client.get(path, params={"format": "ndjson"}).text.splitlines()
    assert [msgspec.json.decode(line) for line in lines] == plain
    arrow = service.client.get(path, headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == plain
    parquet = service.client.get(path, params={"format": "parquet", "rank": "1"})
    assert parquet.headers["content-type"] == "application/vnd.apache.parquet"
    read = pq.read_table(pa.BufferReader(parquet.content)).to_pylist()
    assert read == [row for row in plain if row["rank"] == 1]
    sheet = service.client.get(path, params={"format": "csv"})
    assert sheet.headers["content-type"] == "text/csv; charset=utf-8"
    lines_read = list(csv.DictReader(io.StringIO(sheet.text)))
    assert lines_read == [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in plain
    ]


@pytest.mark.parametrize(
    "position", ["", "x", "é", "AAAA", "W10", "WzFd", "W1tbW1tbW10", "eyJhIjoxfQ", "a" * 9999]
)
def test_a_position_that_we_never_gave_is_a_problem(service: InProcess, position: str) -> None:
    send(service, pair("0xa1", "n4", 10))
    look(service)
    for path in ("collectives", "steps"):
        answer = service.client.get(f"/v1/jobs/inferred-a1/{path}", params={"after": position})
        if position:
            is_problem(answer, 400, "not a position")


def test_a_registered_job_takes_over_and_its_old_name_leads_to_it(service: InProcess) -> None:
    send(service, pair("0xc1", "n6", 10))
    watch = look(service)
    answer = service.client.post("/v1/jobs", json={"id": "mine", "hosts": ["n6"]})
    assert answer.status_code == 201
    look(service, watch)
    moved = service.client.get("/v1/jobs/inferred-c1/ranks?limit=5")
    assert (moved.status_code, moved.headers["location"]) == (308, "/v1/jobs/mine/ranks?limit=5")
    followed = service.client.get("/v1/jobs/inferred-c1", follow_redirects=True).json()
    assert (followed["id"], followed["communicator_count"]) == ("mine", 1)
    assert len(service.client.get("/v1/jobs/mine/collectives").json()["items"]) == 6
    look(service)  # another process, which begins with what the inventory knows
    assert len(service.inventory.jobs.ranks("mine")) == 2


def test_a_job_that_an_agent_said_has_its_name(service: InProcess) -> None:
    send(service, pair("0xd1", "n7", 10, job="slurm-9"))
    look(service)
    job = service.client.get("/v1/jobs/slurm-9").json()
    assert (job["origin"], job["communicators"][0]["communicator"]) == ("scheduler", "0xd1")
    assert len(service.client.get("/v1/jobs/slurm-9/collectives").json()["items"]) == 6


def test_silence_ends_an_inferred_job_and_a_record_starts_it_again(service: InProcess) -> None:
    send(service, pair("0xd2", "n8", 10))
    watch = look(service)
    later = datetime.now(UTC) + QUIET + timedelta(minutes=1)
    assert watch.look(later)
    assert service.client.get("/v1/jobs/inferred-d2").json()["state"] == "ended"
    assert len(service.client.get("/v1/jobs/inferred-d2/collectives").json()["items"]) == 6
    send(service, [collective("0xd2", 0, "n8", 10, 99, time_ns=time.time_ns())])
    look(service, watch)
    assert service.client.get("/v1/jobs/inferred-d2").json()["state"] == "running"


def test_memberships_over_the_bound_wait(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(service, [*pair("0xd3", "n9", 10), *pair("0xd4", "n9", 20)])
    monkeypatch.setattr(watch_module, "MEMBERS_MAX", 1)
    watch = look(service)
    caplog.clear()
    look(service, watch)
    # The service's own watch may say it now, too; each says it once.
    assert caplog.text.count("MEMBERS_MAX = 1") <= 1
    look(service)
    assert "MEMBERS_MAX = 1" in caplog.text


class Away:
    """A store that is not there."""

    def query(self, *_: object, **__: object) -> None:
        raise StoreError("gone")


def test_the_watch_lives_through_an_outage_and_says_so_once(
    service: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    watch = JobWatch(Away(), service.inventory)  # type: ignore[arg-type]
    assert [watch.look(datetime.now(UTC)) for _ in range(3)] == [False] * 3
    assert caplog.text.count("jobs cannot be watched: gone") == 1


def test_a_job_that_the_inventory_refuses_holds_up_no_other(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(service, [*pair("0xd5", "k1", 10), *pair("0xd6", "k1", 20)])
    keep = service.inventory.jobs.keep

    def refuse_one(job: JobFound, now: datetime) -> None:
        if job.job == "inferred-d5":
            raise InventoryRefusedError("no such text")
        keep(job, now)

    monkeypatch.setattr(service.inventory.jobs, "keep", refuse_one)
    look(service)
    assert "refuses job 'inferred-d5': no such text" in caplog.text
    listed = service.client.get("/v1/jobs", params={"host": "k1"}).json()["items"]
    assert [job["id"] for job in listed] == ["inferred-d6"]


def test_one_name_in_two_jobs_is_told_apart_by_host(service: InProcess) -> None:
    group = "pg:0:ab"
    records = [
        collective(group, rank, host, 0, 0, source="flight_recorder")
        for host in ("m1", "m2")
        for rank in range(2)
    ]
    event = Event(
        kind=words.PROCESS_GROUP,
        time_ns=time.time_ns(),
        labels={words.COMMUNICATOR: group},
        attributes={words.RANKS: "0,1"},
    )
    send(service, records, events=[event])
    look(service)
    for host in ("m1", "m2"):
        [job] = service.client.get("/v1/jobs", params={"host": host}).json()["items"]
        rows = service.client.get(f"/v1/jobs/{job['id']}/collectives").json()["items"]
        assert [(row["host"], row["job_rank"]) for row in rows] == [(host, 0), (host, 1)]
