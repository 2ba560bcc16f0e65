"""The wire format's rules one by one, and the bytes that must decode for ever.

`make golden` writes descriptions and bytes for cases that have none; bytes that exist are never
rewritten, because agents in the field have already written such bytes into their spools.
"""

import json
import sys
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.contract import records, wire
from collector.contract.collective import Collective, Operation, State, StepSpan, Timing
from collector.contract.errors import WireError, WireTooLarge, WireVersionError
from collector.contract.model import Event, Sample, Series

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FOLDER = Path(__file__).parents[2] / "fixtures" / "wire" / "v1"
T = 1_700_000_000_000_000_000
XMIT = Series("fabric_port_transmit_bytes_total", {"device": "mlx5_0", "port": "1"})
TEMPERATURE = Series("fabric_gpu_temperature_celsius", {"gpu": "0"})
CASES: dict[str, dict[str, Any]] = {
    "empty": {"samples": []},
    "one_port": {
        "samples": [
            Sample(XMIT, 4096.0, T),
            Sample(TEMPERATURE, 41.5, T + 1_500_000),
            Sample(XMIT, 8192.0, T + 5_000_000_000),
        ]
    },
    "odd_numbers": {
        "samples": [
            Sample(XMIT, value, T + i * 1_000_000)
            for i, value in enumerate([0.0, -0.0, 2.0**53 + 2, 2.0**64, 5e-324, float("-inf")])
        ]
    },
    "events_and_unicode": {
        "samples": [Sample(Series("m", {"rack": "Zürich 1 機"}), 1.0, T)],
        "events": [
            Event(
                kind="link_down",
                time_ns=T,
                labels={"device": "mlx5_0", "port": "1"},
                message="port 1 of mlx5_0 went down",
                attributes={"phys_state": "Polling"},
            )
        ],
    },
    "records": {
        "samples": [],
        "collectives": [
            Collective(
                communicator="0x4c2e4565980881",
                operation=Operation.ALL_REDUCE,
                sequence=sequence,
                rank=3,
                ranks=8,
                source="nccl_inspector",
                time_ns=T + sequence,
                entry_ns=T - 1_000,
                exit_ns=T + sequence,
                duration_ns=900,
                size_bytes=8 << 20,
                timing=Timing.KERNEL,
                algorithm="ring",
                protocol="simple",
                pid=4711,
            )
            for sequence in (7, 8)
        ]
        + [
            Collective(
                communicator="pg:0:ab",
                operation=Operation.SEND,
                sequence=0,
                rank=0,
                ranks=0,
                source="flight_recorder",
                time_ns=T,
                enqueue_ns=T - 5,
                timing=Timing.DISCOVERED,
                state=State.SCHEDULED,
                peer=1,
                host="Zürich-1",
                job="train-7",
            )
        ],
        "steps": [
            StepSpan(step=12, start_ns=T, end_ns=T + 5, source="steps", phase="forward", rank=3),
            StepSpan(step=12, start_ns=T, end_ns=T + 9, source="steps", pid=4711, job="train-7"),
        ],
    },
}


def make(case: str, **changes: Any) -> wire.Batch:  # noqa: ANN401 - any field of a batch
    batch = wire.pack_batch(
        **CASES[case],
        agent="node-0",
        boot="8f2c1a90b7d34e56",
        sequence=41,
        sent_ms=1_700_000_005_000,
        common={"host": "node-0", "cluster": "blue"},
    )
    return msgspec.structs.replace(batch, **changes)


def describe(batch: wire.Batch) -> dict[str, Any]:
    """The batch for people; numbers as text, so that JSON changes none of them."""
    rows = batch.series_rows()
    index, time_ms, value = array("I"), array("q"), array("d")
    index.frombytes(batch.index)
    time_ms.frombytes(batch.time_ms)
    value.frombytes(batch.value)
    return {
        "version": batch.version,
        "agent": batch.agent,
        "boot": batch.boot,
        "sequence": batch.sequence,
        "sent_ms": batch.sent_ms,
        "common": batch.common,
        "samples": [
            {"metric": rows[row][0], "labels": rows[row][1], "time_ms": at, "value": repr(number)}
            for row, at, number in zip(index, time_ms, value, strict=True)
        ],
        "events": [msgspec.to_builtins(event) for event in batch.events],
        **describe_records(batch),
    }


def describe_records(batch: wire.Batch) -> dict[str, Any]:
    """The records of a batch that has some, by the format's description."""
    described: dict[str, Any] = {}
    if batch.collectives is not None:
        context = array("I")
        context.frombytes(batch.collectives.context)
        numbers = {name: array("q") for name in records.NUMBERS}
        for name, column in numbers.items():
            column.frombytes(getattr(batch.collectives, name))
        described["collectives"] = [
            {
                "context": msgspec.to_builtins(batch.collectives.contexts[row]),
                **{
                    name: None if column[i] == records.ABSENT else column[i]
                    for name, column in numbers.items()
                },
            }
            for i, row in enumerate(context)
        ]
    if batch.steps:
        described["steps"] = [msgspec.to_builtins(span) for span in batch.steps]
    return described


@pytest.mark.parametrize("case", CASES)
def test_golden_bytes_decode_for_ever(case: str, request: pytest.FixtureRequest) -> None:
    body, description = FOLDER / f"{case}.bin", FOLDER / f"{case}.json"
    if request.config.getoption("--update-golden") and not body.exists():
        body.write_bytes(wire.encode_batch(make(case)))
        text = json.dumps(describe(make(case)), indent=2, ensure_ascii=False)
        description.write_text(text + "\n", encoding="utf-8")
    decoded = wire.decode_batch(body.read_bytes())
    assert describe(decoded) == json.loads(description.read_text("utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_today_s_encoder_still_writes_what_the_description_states(case: str) -> None:
    """Whatever order it writes the series in: the order is not part of the format."""
    today = describe(wire.decode_batch(wire.encode_batch(make(case))))
    golden = json.loads((FOLDER / f"{case}.json").read_text("utf-8"))
    for described in (today, golden):
        described["samples"].sort(key=lambda sample: sorted(sample["labels"].items()))
        described["samples"].sort(key=lambda sample: str(sample["metric"]))
    assert today == golden


def test_every_golden_file_has_a_case() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)


def test_unknown_fields_of_a_newer_agent_are_ignored() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(make("one_port")))
    body = zstd.compress(msgspec.msgpack.encode({**fields, "flavour": "new"}))
    assert wire.decode_batch(body) == make("one_port")


CONTEXT = records.context_of(CASES["records"]["collectives"][0])


def packed(**changes: Any) -> records.Collectives:  # noqa: ANN401 - any field
    return msgspec.structs.replace(records.pack_collectives([]), **changes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"version": 2}, WireVersionError, "version 2; this program reads version 1"),
        ({"index": b"123"}, WireError, "columns disagree"),
        ({"time_ms": b""}, WireError, "columns disagree"),
        ({"value": bytes(16)}, WireError, "columns disagree"),
        ({"agent": ""}, WireError, "agent is ''"),
        ({"boot": "a\nb"}, WireError, "boot is 'a\\\\nb'"),
        ({"agent": "x" * 256}, WireError, "1 to 255 printable"),
        ({"sequence": -1}, WireError, "sequence is -1"),
        ({"common": {str(i): "x" for i in range(17)}}, WireError, "17 common labels"),
        (
            {"events": [Event(kind="k", time_ns=0, labels={})] * (wire.EVENTS_MAX + 1)},
            WireTooLarge,
            "EVENTS_MAX",
        ),
        (
            {
                "index": bytes(4 * (wire.SAMPLES_MAX + 1)),
                "time_ms": bytes(8 * (wire.SAMPLES_MAX + 1)),
                "value": bytes(8 * (wire.SAMPLES_MAX + 1)),
            },
            WireTooLarge,
            "SAMPLES_MAX",
        ),
        (
            {"steps": [StepSpan(step=0, start_ns=0, end_ns=0, source="s")] * (wire.STEPS_MAX + 1)},
            WireTooLarge,
            "STEPS_MAX",
        ),
        ({"collectives": packed(context=b"123")}, WireError, "context do not hold 0 rows"),
        ({"collectives": packed(context=bytes(4))}, WireError, "sequence, time_ns, entry_ns"),
        ({"collectives": packed(size_bytes=bytes(8))}, WireError, "size_bytes do not hold 0"),
        (
            {"collectives": packed(context=bytes(4 * (records.COLLECTIVES_MAX + 1)))},
            WireTooLarge,
            "COLLECTIVES_MAX",
        ),
        (
            {"collectives": packed(contexts=[CONTEXT] * (records.CONTEXTS_MAX + 1))},
            WireTooLarge,
            "CONTEXTS_MAX",
        ),
    ],
)
def test_rules(changes: dict[str, Any], error: type[WireError], message: str) -> None:
    with pytest.raises(error, match=message):
        wire.decode_batch(wire.encode_batch(make("one_port", **changes)))


def test_a_body_over_its_limit_is_refused_unopened() -> None:
    with pytest.raises(WireTooLarge, match="BODY_BYTES_MAX"):
        wire.decode_batch(bytes(wire.BODY_BYTES_MAX + 1))


def test_bytes_after_the_frame_are_refused() -> None:
    with pytest.raises(WireError, match="5 bytes after the zstd frame"):
        wire.decode_batch(wire.encode_batch(make("empty")) + b"extra")


def test_the_digest_knows_the_table_and_the_common_labels_and_nothing_else() -> None:
    batch = make("one_port")
    assert make("one_port", sequence=42, value=bytes(24)).table_digest() == batch.table_digest()
    assert make("one_port", common={"host": "b"}).table_digest() != batch.table_digest()
    assert make("odd_numbers").table_digest() != batch.table_digest()


def test_receipts_are_json() -> None:
    receipt = wire.Receipt(boot="b", sequence=3, stored=10, refused={"too_old": 2})
    body = msgspec.json.encode(receipt)
    assert json.loads(body) == {
        "boot": "b",
        "sequence": 3,
        "stored": 10,
        "refused": {"too_old": 2},
    }
    assert msgspec.json.decode(b'{"boot":"b","sequence":3,"stored":1}', type=wire.Receipt) == (
        wire.Receipt(boot="b", sequence=3, stored=1)
    )
