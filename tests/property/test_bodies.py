"""A real service and invalid bodies: the right status, a reason, nothing stored, no crash.

Bad bodies carry the metric `strange` wherever they can carry one at all; at the end nothing of
that name may be found.
"""

import socket
import struct
import sys
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.base.limits import BODY_BYTES_MAX
from collector.contract import wire
from collector.contract.model import Event, Sample, Series
from tests.stands.service import ServiceProcess, eventually
from tests.tools.cut import CUT
from tests.worlds import remote_write as rw

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOW_MS = int(time.time() * 1000)
LOCAL = {"Host": "localhost"}
NATIVE = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
FEW = settings(max_examples=CUT.examples(60))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service") / "data") as running:
        yield running
        assert running.is_ready()
        assert running.samples("strange", **{"from": 0, "to": NOW_MS / 1000 + 3600}) == []
        metrics = running.client.get("/metrics").text
        assert 'status="500"' not in metrics
        assert "Traceback" not in running.log.read_text()
        assert running.stop() == 0


def batch(**changes: Any) -> wire.Batch:  # noqa: ANN401 - any field of a batch
    made = wire.pack_batch(
        [Sample(Series("strange", {"a": "b"}), 1.0, NOW_MS * 1_000_000)],
        [Event(kind="strange", time_ns=NOW_MS * 1_000_000, labels={})],
        agent="agent",
        boot="boot",
        sequence=1,
        sent_ms=NOW_MS,
        common={"host": "h"},
    )
    return msgspec.structs.replace(made, **changes)


def pack(fields: object) -> bytes:
    return zstd.compress(msgspec.msgpack.encode(fields))


def is_problem(answer: httpx.Response, *statuses: int) -> None:
    """One of these statuses, as a problem with a detail."""
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    assert ("retry-after" in answer.headers) == (answer.status_code == 503)


def ingest(service: ServiceProcess, body: bytes, **headers: str) -> httpx.Response:
    return service.client.post("/v1/ingest", content=body, headers={**NATIVE, **headers})


# --- native ------------------------------------------------------------------------------------

FIELDS = msgspec.msgpack.decode(msgspec.msgpack.encode(batch()))
BAD_BATCHES = {
    "empty": b"",
    "not zstd": b"this is no zstd frame",
    "msgpack without zstd": msgspec.msgpack.encode(batch()),
    "cut off": wire.encode_batch(batch())[:-3],
    "bytes after the end": wire.encode_batch(batch()) + b"x",
    "two frames": wire.encode_batch(batch()) * 2,
    "zstd of nothing": zstd.compress(b""),
    "zstd of text": zstd.compress(b"hello"),
    "json": zstd.compress(msgspec.json.encode({"version": 1})),
    "a list": pack([1, 2, 3]),
    "an empty map": pack({}),
    "version 2": pack({**FIELDS, "version": 2}),
    "no version": pack({name: value for name, value in FIELDS.items() if name != "version"}),
    "a number for a name": pack({**FIELDS, "agent": 7}),
    "no agent": pack({**FIELDS, "agent": ""}),
    "a control character": pack({**FIELDS, "boot": "a\x1b[2J"}),
    "a negative sequence": pack({**FIELDS, "sequence": -1}),
    "text for bytes": pack({**FIELDS, "value": "text"}),
    "columns of different length": pack({**FIELDS, "value": bytes(16)}),
    "half a number": pack({**FIELDS, "index": b"\0\0"}),
    "a row that is not there": pack({**FIELDS, "index": struct.pack("<I", 1)}),
    "the last row of all": pack({**FIELDS, "index": struct.pack("<I", 2**32 - 1)}),
    "a table of numbers": pack({**FIELDS, "series": [1, 2]}),
    "a table of maps": pack({**FIELDS, "series": {"strange": {}}}),
    "labels of numbers": pack({**FIELDS, "series": [["strange", {"a": 1}]]}),
    "labels of bytes": pack({**FIELDS, "series": [["strange", {"a": b"\xff"}]]}),
    "events of text": pack({**FIELDS, "events": ["strange"]}),
    "an event without a time": pack({**FIELDS, "events": [{"kind": "strange", "labels": {}}]}),
    "text that is not UTF-8": zstd.compress(
        msgspec.msgpack.encode(FIELDS).replace(b"strange", b"strang\xff")
    ),
    "a deep nest": zstd.compress(b"\x91" * 100_000),
    "too many common labels": pack({**FIELDS, "common": {str(i): "x" for i in range(17)}}),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_is_400(service: ServiceProcess, case: str) -> None:
    is_problem(ingest(service, BAD_BATCHES[case]), 400)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (zstd.compress(bytes(8 * wire.BATCH_BYTES_MAX)), "BATCH_BYTES_MAX"),
        (bytes(wire.BODY_BYTES_MAX + 1), "BODY_BYTES_MAX"),
        (bytes(BODY_BYTES_MAX + 1), "BODY_BYTES_MAX"),
        (pack({**FIELDS, "events": [FIELDS["events"][0]] * 10_001}), "EVENTS_MAX"),
        (pack({**FIELDS, "series": [["strange", {}]] * 200_001}), "SERIES_MAX"),
    ],
    ids=["bomb", "large", "larger", "events", "series"],
)
def test_a_batch_over_a_limit_is_413_and_names_it(
    service: ServiceProcess, body: bytes, limit: str
) -> None:
    answer = ingest(service, body)
    is_problem(answer, 413)
    assert limit in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "application/msgpack"},
        {"Content-Type": ""},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "identity"},
        {"Content-Encoding": ""},
        {"Content-Encoding": "zstd, gzip"},
    ],
)
def test_another_type_or_encoding_is_415(service: ServiceProcess, headers: dict[str, str]) -> None:
    is_problem(ingest(service, wire.encode_batch(batch()), **headers), 415)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"time_ms": struct.pack("<q", 0)}, "too_old"),
        ({"time_ms": struct.pack("<q", -(2**63))}, "too_old"),
        ({"time_ms": struct.pack("<q", 2**63 - 1)}, "too_far_in_future"),
        ({"time_ms": struct.pack("<q", NOW_MS + 3_600_000)}, "too_far_in_future"),
        ({"series": [["", {"a": "b"}]]}, "bad_labels"),
        ({"series": [["strange", {"": "b"}]]}, "bad_labels"),
        ({"series": [["strange", {"a": "v" * 2049}]]}, "bad_labels"),
        ({"series": [["strange", {str(i): "x" for i in range(64)}]]}, "bad_labels"),
    ],
)
def test_a_sample_that_breaks_a_rule_is_refused_by_its_name(
    service: ServiceProcess, changes: dict[str, Any], rule: str
) -> None:
    answer = ingest(service, pack({**FIELDS, "events": [], **changes}))
    assert answer.status_code == 200, answer.text
    receipt = {"boot": "boot", "sequence": 1, "stored": 0, "refused": {rule: 1}}
    assert answer.json() == {**receipt, "any_order": True}


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        ({"kind": ""}, "bad_event"),
        ({"time_ns": 0}, "too_old"),
        ({"time_ns": 2**64 - 1}, "too_far_in_future"),
        ({"time_ns": -(2**63)}, "too_old"),
        ({"message": "x" * 20_000}, "bad_event"),
        ({"attributes": {str(i): "" for i in range(257)}}, "bad_event"),
    ],
)
def test_an_event_that_breaks_a_rule_is_refused_by_its_name(
    service: ServiceProcess, event: dict[str, Any], rule: str
) -> None:
    fields = {**FIELDS, "index": b"", "time_ms": b"", "value": b""}
    answer = ingest(service, pack({**fields, "events": [{**FIELDS["events"][0], **event}]}))
    assert answer.status_code == 200, answer.text
    assert answer.json()["refused"] == {rule: 1}


def test_strange_but_allowed_names_break_nothing(service: ServiceProcess) -> None:
    """Numbers and texts at their ends reach the inventory, too; it must survive them."""
    names = ("h", "", "a/b", "\0", "é" * 200, "x" * 2048, "line\nbreak", "'; DROP TABLE")
    sequences = (0, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
    for host, sequence in [*product(names, [7]), *product(["h"], sequences)]:
        allowed = batch(
            sequence=sequence,
            agent=f"agent-{sequence}",
            common={"host": host, "device": host, "port": host, "gpu": host, "cluster": host},
            series=msgspec.Raw(msgspec.msgpack.encode([["allowed", {"a": "b"}]])),
        )
        answer = ingest(service, wire.encode_batch(allowed))
        assert answer.status_code == 200, answer.text
    known = "fabric_service_inventory_errors_total"
    # The inventory is written a moment later, in the background: the service must survive that.
    eventually(lambda: b'"host":"h"' in service.client.get("/v1/hosts").content, "the host h")
    assert known in service.client.get("/metrics").text
    assert service.is_ready()


@given(st.binary(max_size=400))
@FEW
def test_any_bytes_are_refused(service: ServiceProcess, body: bytes) -> None:
    is_problem(ingest(service, body), 400)
    is_problem(ingest(service, zstd.compress(body)), 400)


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
anything = st.recursive(
    scalars | st.text(max_size=5) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted(FIELDS)), anything)
@FEW
def test_a_field_of_any_type_is_stored_or_refused(
    service: ServiceProcess, field: str, value: object
) -> None:
    fields = {**FIELDS, "series": [["allowed", {"a": "b"}]], field: value}
    answer = ingest(service, pack(fields))
    if answer.status_code != 200:
        is_problem(answer, 400)


@given(st.data())
@FEW
def test_a_damaged_batch_is_refused(service: ServiceProcess, data: st.DataObject) -> None:
    """The frame has no checksum, so a batch may survive a flipped bit: then it is a batch."""
    body = bytearray(wire.encode_batch(batch(time_ms=struct.pack("<q", 0))))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    answer = ingest(service, bytes(body))
    if answer.status_code != 200:
        is_problem(answer, 400, 413)


# --- remote write ------------------------------------------------------------------------------


def remote(service: ServiceProcess, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return service.client.post("/api/v1/write", content=body, headers=headers)


versions = st.sampled_from([rw.V1_HEADERS, rw.V2_HEADERS])


@given(versions, st.binary(max_size=300))
@FEW
def test_any_bytes_are_no_remote_write(
    service: ServiceProcess, headers: dict[str, str], body: bytes
) -> None:
    for content in (body, rw.snappy(body)):
        answer = remote(service, content, headers)
        # An unknown field, or none, is a valid message without content.
        assert answer.status_code in {204, 400, 413}, answer.text
        assert bool(answer.text) == (answer.status_code != 204)


@given(versions, st.data())
@FEW
def test_a_damaged_request_is_refused_or_stored_whole(
    service: ServiceProcess, headers: dict[str, str], data: st.DataObject
) -> None:
    series = [rw.TimeSeries([("__name__", "allowed"), ("i", str(i))], [(i, 0)]) for i in range(3)]
    encode = rw.request_v1 if headers is rw.V1_HEADERS else rw.request_v2
    body = bytearray(rw.snappy(encode(series)))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, 20))
    answer = remote(service, bytes(body[: len(body) - cut]), headers)
    assert answer.status_code in {204, 400, 413}, answer.text


# --- connections -------------------------------------------------------------------------------


def test_a_sender_that_goes_away_in_the_middle_is_no_error_of_ours(service: ServiceProcess) -> None:
    for path, headers in (("/v1/ingest", NATIVE), ("/api/v1/write", rw.V1_HEADERS)):
        head = "".join(f"{name}: {value}\r\n" for name, value in (LOCAL | headers).items())
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            request = f"POST {path} HTTP/1.1\r\n{head}Content-Length: 1000\r\n\r\n"
            connection.sendall(request.encode() + b"half")
    # What these requests held is given back.
    eventually(
        lambda: "fabric_service_inflight_bytes 0.0" in service.client.get("/metrics").text,
        "no bytes in flight",
    )
    assert service.is_ready()


def test_a_declared_length_over_the_limit_is_refused_before_it_is_sent(
    service: ServiceProcess,
) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in (LOCAL | NATIVE).items())
        request = f"POST /v1/ingest HTTP/1.1\r\n{head}Content-Length: {1 << 40}\r\n\r\n"
        connection.sendall(request.encode())
        connection.settimeout(30)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "match",
    ["(" * 2000, "{" * 2000, "-" * 2000, "a[" * 700, 'a{b=~"' + "(" * 1000 + '"}', "!" * 2000],
)
def test_a_deep_selector_does_not_overflow_the_parser(service: ServiceProcess, match: str) -> None:
    answer = service.client.get("/v1/samples", params={"match": match})
    is_problem(answer, 400)
