"""Records of collectives and steps: from a batch, or a list, into the store, and out again."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from api.data.ingest.columns import Acceptance
from api.data.ingest.commit import Write, insert_group
from api.data.ingest.native import NativeRequest, decode_native
from api.data.ingest.records import (
    collective_rows,
    insert_collectives,
    insert_steps,
    joined,
    step_rows,
)
from api.data.ingest.series import NativeTables
from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from collector.contract import records, wire
from collector.contract.collective import Collective, Operation, State, StepSpan, Timing
from collector.contract.errors import WireError
from tests.doubles import clickhouse_http
from tests.stands.service import InProcess, in_process

NOW_MS = 1_800_000_000_000
NOW_NS = NOW_MS * 1_000_000
ACCEPTANCE = Acceptance.at(NOW_MS, 30)
OLD_NS = ACCEPTANCE.earliest_ms * 1_000_000 - 1
FAR_NS = ACCEPTANCE.latest_ms * 1_000_000 + 1


def record(**changes: Any) -> Collective:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {
        "communicator": "0x1",
        "operation": Operation.ALL_REDUCE,
        "sequence": 3,
        "rank": 1,
        "ranks": 8,
        "source": "nccl_inspector",
        "time_ns": NOW_NS,
    }
    return Collective(**{**fields, **changes})


FULL = record(
    entry_ns=NOW_NS - 20,
    exit_ns=NOW_NS - 10,
    enqueue_ns=NOW_NS - 30,
    duration_ns=9,
    size_bytes=(1 << 63) - 1,
    timing=Timing.KERNEL,
    state=State.STARTED,
    algorithm="ring",
    protocol="ll128",
    peer=5,
    host="Zürich-1",
    pid=(1 << 32) - 1,
    job="train é",
    sequence=(1 << 63) - 1,
    rank=(1 << 31) - 2,
    ranks=(1 << 31) - 1,
)


def span(**changes: Any) -> StepSpan:  # noqa: ANN401 - any field
    fields = {"step": 7, "start_ns": NOW_NS - 9, "end_ns": NOW_NS, "source": "steps"}
    return StepSpan(**{**fields, **changes})


def encode(collectives: list[Collective], steps: list[StepSpan], sequence: int = 0) -> bytes:
    batch = wire.pack_batch(
        [],
        [],
        collectives,
        steps,
        agent="a",
        boot="b",
        sequence=sequence,
        sent_ms=0,
        common={"host": "h"},
    )
    return wire.encode_batch(batch)


def decode(*collectives: Collective, steps: tuple[StepSpan, ...] = ()) -> NativeRequest:
    return decode_native(encode(list(collectives), list(steps)), NativeTables(), ACCEPTANCE)


# --- decoding ----------------------------------------------------------------------------------


def shown(each: Collective, host: str = "") -> dict[str, Any]:
    """The record as a row of the table; text as text, times as nanoseconds."""
    fields = msgspec.to_builtins(each)
    times = {name: fields.pop(f"{name}_ns") for name in ("time", "entry", "exit", "enqueue")}
    return {**fields, **times, "host": fields["host"] or host}


def rows_of(table: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - pyarrow has no types
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_time = str(column.type).startswith("timestamp")
        columns[name] = (column.cast("int64") if is_time else column).to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_a_batch_s_collectives_become_rows_with_its_host() -> None:
    given = [record(), FULL, record(sequence=4, exit_ns=NOW_NS)]
    request = decode(*given)
    assert request.write.collectives is not None
    assert rows_of(request.write.collectives) == [shown(each, "h") for each in given]
    assert (request.write.rows, request.refused) == (3, {})


def test_a_list_of_collectives_becomes_the_same_rows() -> None:
    given = [record(), FULL]
    assert rows_of(collective_rows(given)) == [shown(each) for each in given]
    assert collective_rows([]).num_rows == 0
    assert collective_rows([]).schema == collective_rows(given).schema


def test_a_batch_s_steps_become_rows() -> None:
    steps = (span(), span(phase="forward", rank=3, host="other", pid=9, job="j", step=0))
    write = decode(steps=steps).write
    assert write.steps is not None
    assert rows_of(write.steps) == [
        {
            **{name: getattr(each, name) for name in ("step", "phase", "source", "pid", "job")},
            "rank": -1 if each.rank is None else each.rank,
            "start": each.start_ns,
            "end": each.end_ns,
            "host": each.host or "h",
        }
        for each in steps
    ]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"communicator": ""}, "bad_record"),
        ({"communicator": "x" * 256}, "bad_record"),
        ({"communicator": "a\nb"}, "bad_record"),
        ({"source": ""}, "bad_record"),
        ({"algorithm": "\0"}, "bad_record"),
        ({"host": "\u202e"}, "bad_record"),
        ({"job": "j" * 300}, "bad_record"),
        ({"sequence": -1}, "bad_record"),
        ({"rank": -1}, "bad_record"),
        ({"rank": 8}, "bad_record"),
        ({"rank": 1 << 31, "ranks": 0}, "bad_record"),
        ({"ranks": 1 << 40}, "bad_record"),
        ({"pid": 1 << 32}, "bad_record"),
        ({"pid": -1}, "bad_record"),
        ({"peer": -1}, "bad_record"),
        ({"peer": 1 << 63}, "bad_record"),
        ({"time_ns": -1}, "bad_record"),
        ({"entry_ns": NOW_NS, "exit_ns": NOW_NS - 1}, "bad_record"),
        ({"duration_ns": -1}, "bad_record"),
        ({"size_bytes": -(1 << 62)}, "bad_record"),
        ({"time_ns": OLD_NS}, "too_old"),
        ({"time_ns": FAR_NS}, "too_far_in_future"),
        ({"exit_ns": FAR_NS}, "too_far_in_future"),
        ({"enqueue_ns": (1 << 63) - 1}, "too_far_in_future"),
    ],
)
def test_a_record_that_breaks_a_rule_is_refused_by_name(changes: dict[str, Any], rule: str) -> None:
    request = decode(record(sequence=1), record(**changes), record(sequence=2))
    assert request.refused == {rule: 1}
    assert request.write.collectives is not None
    assert request.write.collectives["sequence"].to_pylist() == [1, 2]


def test_an_operation_that_hangs_may_have_begun_long_ago() -> None:
    request = decode(record(enqueue_ns=OLD_NS - 10**15, entry_ns=OLD_NS, state=State.STARTED))
    assert (request.write.rows, request.refused) == (1, {})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"source": ""}, "bad_record"),
        ({"phase": "a\tb"}, "bad_record"),
        ({"step": -1}, "bad_record"),
        ({"step": 1 << 63}, "bad_record"),
        ({"rank": 1 << 31}, "bad_record"),
        ({"rank": -1}, "bad_record"),
        ({"pid": 1 << 32}, "bad_record"),
        ({"end_ns": NOW_NS - 10}, "bad_record"),
        ({"start_ns": -1}, "bad_record"),
        ({"start_ns": OLD_NS}, "too_old"),
        ({"end_ns": (1 << 64) - 1}, "too_far_in_future"),
    ],
)
def test_a_step_that_breaks_a_rule_is_refused_by_name(changes: dict[str, Any], rule: str) -> None:
    request = decode(steps=(span(), span(**changes)))
    assert (request.write.rows, request.refused) == (1, {rule: 1})


def test_nothing_but_bad_records_is_nothing() -> None:
    request = decode(record(sequence=-1), steps=(span(source=""),))
    assert (request.write.rows, request.refused) == (0, {"bad_record": 2})
    assert decode().write.rows == 0


def test_a_record_that_refers_to_no_row_of_its_table_is_not_a_batch() -> None:
    packed = records.pack_collectives([record(), record()])
    index = np.array([0, 1], dtype="<u4").tobytes()
    batch = wire.pack_batch([], agent="a", boot="b", sequence=0, sent_ms=0, common={})
    wrong = msgspec.structs.replace(
        batch, collectives=msgspec.structs.replace(packed, context=index)
    )
    with pytest.raises(WireError, match="row 1 of its table, which has 1"):
        decode_native(wire.encode_batch(wrong), NativeTables(), ACCEPTANCE)


def test_rows_of_several_requests_are_joined() -> None:
    tables = [collective_rows([record(communicator=f"c{n}")]) for n in range(3)]
    together = joined([tables[0], None, *tables[1:]])
    assert together is not None
    assert together["communicator"].to_pylist() == ["c0", "c1", "c2"]
    assert together["communicator"].num_chunks == 1
    assert joined([None]) is None


def test_a_number_that_no_column_holds_is_an_error_that_says_so() -> None:
    with pytest.raises(OverflowError, match="does not fit"):
        collective_rows([record(rank=1 << 40)])
    with pytest.raises(OverflowError, match="does not fit"):
        step_rows([span(start_ns=1 << 70)])


# --- the store ---------------------------------------------------------------------------------


@pytest.fixture(params=["chdb", "clickhouse"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("records")
    days = dict.fromkeys(RETAINED_TABLES, 3650)
    if request.param == "chdb":
        opened = Store(StoreUrl.parse(f"chdb://{folder}/data"), retention_days=days)
        opened.migrate()
        yield opened
        opened.close()
        return
    with clickhouse_http.server(folder / "data") as url:
        opened = Store(StoreUrl.parse(url), retention_days=days)
        opened.migrate()
        yield opened
        opened.close()


def stored(store: Store) -> list[dict[str, Any]]:
    """The collectives as they are in the store, times as nanoseconds."""
    found: list[dict[str, Any]] = store.query(
        "SELECT * EXCEPT (time, entry, exit, enqueue), toUnixTimestamp64Nano(time) AS time, "
        "toUnixTimestamp64Nano(entry) AS entry, toUnixTimestamp64Nano(exit) AS exit, "
        "toUnixTimestamp64Nano(enqueue) AS enqueue "
        "FROM collectives FINAL ORDER BY communicator, sequence"
    ).to_pylist()
    return found


def test_records_come_back_and_a_resend_changes_nothing(store: Store) -> None:
    given = [record(communicator=f"c{n}", sequence=n) for n in range(3)]
    given.append(msgspec.structs.replace(FULL, communicator="c9"))
    for _ in range(2):
        assert insert_collectives(store, given) == 4
        assert insert_steps(store, [span(), span(phase="data")]) == 2
    assert stored(store) == [shown(each) for each in given]
    assert store.query("SELECT count() AS n FROM steps FINAL").to_pylist() == [{"n": 2}]


def test_a_later_state_of_the_same_takes_the_place_of_the_earlier(store: Store) -> None:
    insert_collectives(store, [record(state=State.SCHEDULED)])
    insert_collectives(store, [record(state=State.COMPLETED, exit_ns=NOW_NS)])
    [row] = stored(store)
    assert (row["state"], row["exit"]) == ("completed", NOW_NS)


def test_an_earlier_state_that_comes_late_changes_nothing(store: Store) -> None:
    """After an outage the newest batches come first."""
    ended = record(state=State.COMPLETED, exit_ns=NOW_NS)
    began = record(state=State.STARTED)
    waits = record(state=State.SCHEDULED, sequence=4)
    insert_group(store, [decode(ended).write])
    insert_group(store, [decode(began, waits).write])
    insert_group(store, [decode(record(state=State.SCHEDULED)).write])
    assert [(row["sequence"], row["state"]) for row in stored(store)] == [
        (3, "completed"),
        (4, "scheduled"),
    ]
    insert_group(store, [decode(record(state=State.STARTED, sequence=4)).write])
    assert stored(store)[1]["state"] == "started", "what is news is written"


def test_of_two_states_in_one_group_the_more_advanced_stays(store: Store) -> None:
    states = (State.STARTED, State.COMPLETED, State.SCHEDULED)
    other = decode(record(state=State.SCHEDULED, rank=2)).write
    insert_group(store, [*(decode(record(state=state)).write for state in states), other])
    found = {row["rank"]: row["state"] for row in stored(store)}
    assert found == {1: "completed", 2: "scheduled"}, "another rank's is another record"


def test_a_group_is_written_in_one_insert_for_each_table(store: Store) -> None:
    group = [decode(record(communicator=f"c{n}"), steps=(span(step=n),)).write for n in range(5)]
    empty: Write = decode().write
    insert_group(store, [*group, empty])
    assert len(stored(store)) == 5
    assert store.query("SELECT count() AS n FROM steps").to_pylist() == [{"n": 5}]
    parts = "SELECT count() AS n FROM system.parts WHERE table = 'collectives' AND active"
    assert store.query(parts).to_pylist() == [{"n": 1}]


# --- the service -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with in_process(tmp_path_factory.mktemp("service")) as running:
        yield running


def post(service: InProcess, body: bytes) -> httpx.Response:
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    return service.client.post("/v1/ingest", content=body, headers=headers)


def test_the_receipt_counts_records_and_a_resend_stores_them_once(service: InProcess) -> None:
    now_ns = time.time_ns()
    collectives = [record(time_ns=now_ns + n, sequence=n) for n in range(10)]
    steps = [span(start_ns=now_ns - 5, end_ns=now_ns, step=n) for n in range(3)]
    body = encode([*collectives, record(time_ns=now_ns, rank=99)], steps)
    for _ in range(2):
        answer = post(service, body).json()
        assert answer == {
            "boot": "b",
            "sequence": 0,
            "stored": 13,
            "refused": {"bad_record": 1},
            "any_order": True,
        }
    assert service.rows("SELECT count() AS n FROM collectives FINAL") == [{"n": 10}]
    assert service.rows("SELECT count() AS n FROM steps FINAL") == [{"n": 3}]
    assert service.rows("SELECT DISTINCT host FROM collectives") == [{"host": "h"}]
    metrics = service.client.get("/metrics").text
    assert 'records_total{protocol="native",table="collectives"} 20.0' in metrics
    assert 'records_total{protocol="native",table="steps"} 6.0' in metrics
    assert 'refused_total{protocol="native",rule="bad_record"} 2.0' in metrics


def test_an_index_out_of_the_table_is_a_problem(service: InProcess) -> None:
    batch = wire.pack_batch([], agent="a", boot="b", sequence=0, sent_ms=0, common={})
    packed = msgspec.structs.replace(
        records.pack_collectives([record()]), context=b"\xff\xff\xff\xff"
    )
    body = wire.encode_batch(msgspec.structs.replace(batch, collectives=packed))
    answer = post(service, body)
    assert answer.status_code == 400
    assert "4294967295" in answer.json()["detail"]
