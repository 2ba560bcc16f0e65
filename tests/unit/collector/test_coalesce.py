"""Several batches as one: the same readings, whatever their tables."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent.coalesce import coalesce
from collector.contract import wire
from collector.contract.collective import Collective, Operation, State, StepSpan
from collector.contract.errors import WireError
from collector.contract.model import Event, Sample, Series
from collector.contract.records import Context

SECOND_NS = 1_000_000_000


def pack(sequence: int, samples: list[Sample], *others: Any) -> wire.Batch:  # noqa: ANN401
    batch = wire.pack_batch(
        samples,
        *others,
        agent="a",
        boot="b",
        sequence=sequence,
        sent_ms=sequence,
        common={"host": "h"},
    )
    return wire.decode_batch(wire.encode_batch(batch))


def readings(batch: wire.Batch) -> Counter[tuple[str, str, float, int]]:
    rows = batch.series_rows()
    index, value = memoryview(batch.index).cast("I"), memoryview(batch.value).cast("d")
    times = memoryview(batch.time_ms).cast("q")
    return Counter(
        (rows[i][0], str(rows[i][1]), v, t) for i, v, t in zip(index, value, times, strict=True)
    )


def record(sequence: int, **changes: Any) -> Collective:  # noqa: ANN401
    fields = {
        "communicator": "c",
        "operation": Operation.ALL_REDUCE,
        "rank": 0,
        "ranks": 8,
        "source": "nccl_inspector",
        "time_ns": sequence,
    }
    return Collective(sequence=sequence, **{**fields, **changes})


def records(batch: wire.Batch) -> list[tuple[Context, int]]:
    packed = batch.collectives
    assert packed is not None
    rows, numbers = (
        memoryview(packed.context).cast("I"),
        memoryview(packed.sequence).cast("q"),
    )
    return [(packed.contexts[row], number) for row, number in zip(rows, numbers, strict=True)]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("mnop"), st.sampled_from("xy"), st.floats(0, 9))),
        min_size=1,
        max_size=5,
    )
)
def test_no_reading_is_lost_or_changed(given_: list[list[tuple[str, str, float]]]) -> None:
    batches = [
        pack(
            number,
            [
                Sample(Series(name, {"port": port}), value, (number * 100 + at) * SECOND_NS)
                for at, (name, port, value) in enumerate(content)
            ],
        )
        for number, content in enumerate(given_)
    ]
    joined = wire.decode_batch(wire.encode_batch(coalesce(batches)))
    assert readings(joined) == sum(map(readings, batches), Counter())
    rows = joined.series_rows()
    assert rows == sorted(rows, key=lambda row: (row[0], tuple(row[1].items())))
    assert (joined.backlog_first, joined.sequence) == (0, len(batches) - 1)
    assert joined.common == {"host": "h"}


def test_equal_tables_stay_as_they_are_so_that_the_service_knows_them() -> None:
    series = [Series("m", {"port": "1"}), Series("m", {"port": "2"})]
    batches = [pack(number, [Sample(each, 1, number) for each in series]) for number in range(3)]
    joined = coalesce(batches)
    assert joined.table_digest() == batches[0].table_digest()
    assert joined.sample_count == 6


def test_the_table_of_a_run_does_not_depend_on_which_source_was_read_first() -> None:
    often, seldom = Series("m"), Series("a")
    first = [Sample(often, 1, 0)], [Sample(often, 1, 1), Sample(seldom, 1, 1)]
    digests = {
        coalesce([pack(0, first[one]), pack(1, first[1 - one])]).table_digest() for one in (0, 1)
    }
    assert len(digests) == 1


def test_events_records_and_steps_come_along_in_order() -> None:
    def event(number: int) -> Event:
        return Event(kind="xid", time_ns=number, labels={})

    def step(number: int) -> StepSpan:
        return StepSpan(step=number, start_ns=1, end_ns=2, source="s")

    other = {"rank": 1, "state": State.STARTED}
    batches = [
        pack(4, [], [event(1)], [record(1), record(2, **other)], [step(1)]),
        pack(5, [Sample(Series("m"), 1, 0)]),
        pack(6, [], [event(2)], [record(3, **other), record(4)], [step(2)]),
    ]
    joined = wire.decode_batch(wire.encode_batch(coalesce(batches)))
    assert [each.time_ns for each in joined.events] == [1, 2]
    assert [each.step for each in joined.steps] == [1, 2]
    assert records(joined) == [*records(batches[0]), *records(batches[2])]
    assert joined.collectives is not None
    assert len(joined.collectives.contexts) == 2
    assert (joined.backlog_first, joined.sequence, joined.sent_ms) == (4, 6, 6)
    assert joined.reading_count == sum(batch.reading_count for batch in batches)


def test_one_batch_alone_is_marked_as_of_a_backlog() -> None:
    batch = pack(4, [Sample(Series("m"), 1, 0)])
    assert coalesce([batch]) == msgspec.structs.replace(batch, first=4)


def test_more_than_a_batch_may_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [pack(number, [Sample(Series("m"), 1, number)]) for number in range(3)]
    monkeypatch.setattr(wire, "SAMPLES_MAX", 2)
    with pytest.raises(WireError, match="SAMPLES_MAX"):
        coalesce(batches)


def test_a_row_that_is_not_in_its_table_is_an_error() -> None:
    good = pack(0, [Sample(Series("m"), 1, 0)])
    other = pack(1, [Sample(Series("n"), 1, 0)])
    bad = msgspec.structs.replace(other, index=b"\x07\0\0\0")
    with pytest.raises(WireError, match="a row is 7; its table has 1"):
        coalesce([good, bad])


@pytest.mark.parametrize("first", [-1, 5])
def test_a_first_that_is_not_before_the_sequence_is_no_batch(first: int) -> None:
    batch = msgspec.structs.replace(pack(4, []), first=first)
    with pytest.raises(WireError, match=f"first is {first}; it must be 0 to 4"):
        wire.decode_batch(wire.encode_batch(batch))
