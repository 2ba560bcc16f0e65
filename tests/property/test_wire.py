"""The wire format: what goes in comes out, and bytes from strangers do no harm."""

import contextlib
import math
import sys
import tracemalloc
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.contract import records, wire
from collector.contract.collective import Collective, Operation, State, StepSpan, Timing
from collector.contract.errors import WireError, WireTooLarge
from collector.contract.model import Event, Sample, Series
from tests.tools.cut import CUT

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
labels = st.dictionaries(texts, texts.filter(bool), max_size=4)
series = st.builds(Series, texts, labels)
samples = st.builds(Sample, series, st.floats(), st.integers(-(2**62), 2**62))
events = st.builds(
    Event,
    kind=texts,
    time_ns=st.integers(-(2**63), 2**63 - 1),
    labels=labels,
    message=texts,
    attributes=labels,
)
names = st.text("abc-.09", min_size=1, max_size=30)
numbers = st.integers(-(2**63) + 1, 2**63 - 1)
collectives = st.builds(
    Collective,
    communicator=texts,
    operation=st.sampled_from(Operation),
    sequence=numbers,
    rank=numbers,
    ranks=numbers,
    source=texts,
    time_ns=numbers,
    entry_ns=st.none() | numbers,
    exit_ns=st.none() | numbers,
    enqueue_ns=st.none() | numbers,
    duration_ns=st.none() | numbers,
    size_bytes=st.none() | numbers,
    timing=st.sampled_from(Timing),
    state=st.sampled_from(State),
    algorithm=texts,
    protocol=texts,
    peer=st.none() | numbers,
    host=texts,
    pid=numbers,
    job=texts,
)
spans = st.builds(
    StepSpan,
    step=numbers,
    start_ns=numbers,
    end_ns=numbers,
    source=texts,
    phase=texts,
    rank=st.none() | numbers,
    host=texts,
    pid=numbers,
    job=texts,
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Sample], wire.Batch]:
    rows = draw(st.lists(samples, max_size=30))
    batch = wire.pack_batch(
        rows,
        draw(st.lists(events, max_size=5)),
        draw(st.lists(collectives, max_size=5)),
        draw(st.lists(spans, max_size=3)),
        agent=draw(names),
        boot=draw(names),
        sequence=draw(st.integers(0, 2**63 - 1)),
        sent_ms=draw(st.integers(0, 2**53)),
        common=draw(labels),
    )
    return rows, batch


def unpack(batch: wire.Batch) -> list[tuple[str, dict[str, str], int, bytes]]:
    """Every sample, by the format's description and nothing of ours."""
    rows = batch.series_rows()
    return [
        (
            *rows[int.from_bytes(batch.index[4 * i : 4 * i + 4], "little")],
            int.from_bytes(batch.time_ms[8 * i : 8 * i + 8], "little", signed=True),
            batch.value[8 * i : 8 * i + 8],
        )
        for i in range(batch.sample_count)
    ]


@given(batches())
def test_what_goes_in_comes_out(made: tuple[list[Sample], wire.Batch]) -> None:
    rows, batch = made
    decoded = wire.decode_batch(wire.encode_batch(batch))
    assert decoded == batch
    assert decoded.table_digest() == batch.table_digest()
    ordered = sorted(rows, key=lambda sample: (sample.series.metric, sample.series.labels))
    for given_, (metric, labels_, time_ms, value) in zip(ordered, unpack(decoded), strict=True):
        assert (metric, labels_) == (given_.series.metric, dict(given_.series.labels))
        assert time_ms == given_.time_ns // 1_000_000
        [number] = memoryview(value).cast("d")
        assert number == given_.value or (math.isnan(number) and math.isnan(given_.value))


@given(st.lists(samples, max_size=30), st.randoms())
def test_the_table_does_not_depend_on_who_was_read_first(
    rows: list[Sample], random: Random
) -> None:
    def table(given_: list[Sample]) -> bytes:
        batch = wire.pack_batch(given_, agent="a", boot="b", sequence=0, sent_ms=0, common={})
        return batch.table_digest()

    assert table(rows) == table(random.sample(rows, len(rows)))


def unpack_collectives(packed: records.Collectives) -> list[Collective]:
    """Every record, by the format's description and nothing of ours."""

    def number(column: bytes, row: int) -> int | None:
        found = int.from_bytes(column[8 * row : 8 * row + 8], "little", signed=True)
        return None if found == -(2**63) else found

    found = []
    for row in range(len(packed)):
        context = packed.contexts[int.from_bytes(packed.context[4 * row : 4 * row + 4], "little")]
        own = {name: number(getattr(packed, name), row) for name in records.NUMBERS}
        found.append(msgspec.convert({**msgspec.structs.asdict(context), **own}, Collective))
    return found


@given(st.lists(collectives, max_size=20), st.lists(spans, max_size=5))
def test_records_go_in_and_come_out(rows: list[Collective], stretches: list[StepSpan]) -> None:
    batch = wire.pack_batch(
        [], [], rows, stretches, agent="a", boot="b", sequence=0, sent_ms=0, common={}
    )
    decoded = wire.decode_batch(wire.encode_batch(batch))
    assert decoded.steps == stretches
    assert decoded.reading_count == len(rows) + len(stretches)
    if rows:
        assert decoded.collectives is not None
        assert unpack_collectives(decoded.collectives) == rows
    else:
        assert decoded.collectives is None


def decode_all(body: bytes) -> None:
    """Look at everything: a batch, or a WireError, or this test fails."""
    with contextlib.suppress(WireError):
        wire.decode_batch(body).series_rows()


@given(st.binary(max_size=300))
def test_any_bytes_are_a_batch_or_a_wire_error(body: bytes) -> None:
    decode_all(body)
    decode_all(zstd.compress(body))


simple = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts
anything = st.recursive(
    simple | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(batches(), st.sampled_from(wire.Batch.__struct_fields__), anything)
def test_a_field_of_the_wrong_type_is_a_batch_or_a_wire_error(
    made: tuple[list[Sample], wire.Batch], field: str, value: object
) -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(made[1]))
    decode_all(zstd.compress(msgspec.msgpack.encode({**fields, field: value})))
    fields.pop(field, None)  # `first` is not in a batch that is of no backlog
    decode_all(zstd.compress(msgspec.msgpack.encode(fields)))


@given(
    st.lists(collectives, max_size=5),
    st.sampled_from(records.Collectives.__struct_fields__),
    anything,
)
def test_a_column_of_the_wrong_type_is_a_batch_or_a_wire_error(
    rows: list[Collective], field: str, value: object
) -> None:
    batch = wire.pack_batch([], agent="a", boot="b", sequence=0, sent_ms=0, common={})
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(records.pack_collectives(rows)))
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(batch))
    changed = {**fields, "collectives": {**packed, field: value}}
    decode_all(zstd.compress(msgspec.msgpack.encode(changed)))


@given(batches(), st.data())
@settings(max_examples=CUT.examples(50))
def test_a_batch_cut_short_is_a_wire_error(
    made: tuple[list[Sample], wire.Batch], data: st.DataObject
) -> None:
    body = wire.encode_batch(made[1])
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(WireError):
        wire.decode_batch(body[:cut])


@given(batches(), st.data())
def test_flipped_bits_are_a_batch_or_a_wire_error(
    made: tuple[list[Sample], wire.Batch], data: st.DataObject
) -> None:
    body = bytearray(wire.encode_batch(made[1]))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    decode_all(bytes(body))


def test_a_bomb_is_refused_before_it_fills_the_memory() -> None:
    bomb = zstd.compress(bytes(8 * wire.BATCH_BYTES_MAX))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(WireTooLarge, match="BATCH_BYTES_MAX"):
            wire.decode_batch(bomb)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * wire.BATCH_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_a_deep_nest_is_a_wire_error() -> None:
    decode_all(zstd.compress(b"\x91" * 1_000_000))
    nest = msgspec.msgpack.encode({"version": 1})[:-1] + b"\x91" * 1_000_000
    decode_all(zstd.compress(nest))
