"""Where rows stand on a cluster: by host, the same for all that is of it, and evenly."""

from collections import Counter
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from api.data.ingest.columns import Acceptance, SampleColumns
from api.data.ingest.commit import event_rows, series_rows
from api.data.ingest.native import decode_native
from api.data.ingest.records import collective_rows, step_rows
from api.data.ingest.series import NativeTables, NewSeries, RemoteSeries
from api.data.store.shards import (
    place_of_series,
    place_of_text,
    places_of_rows,
    split_rows,
    split_samples,
)
from collector.contract import wire
from collector.contract.collective import Collective, Operation, StepSpan
from collector.contract.errors import StoreError
from collector.contract.identity import canonical_labels, series_id
from collector.contract.model import Event, Sample, Series

HOST = "node-7"
NOW_MS = 1_800_000_000_000
ACCEPTANCE = Acceptance.at(NOW_MS, 30)


def batch() -> bytes:
    """Of an agent: series of its host, of a switch, and one that is of no port."""
    series = [Series("a"), Series("b", {"host": "leaf-1"}), Series("c", {"device": "mlx5_0"})]
    samples = [Sample(one, 1.0, NOW_MS * 1_000_000) for one in (*series, *series)]
    common = {"host": HOST}
    packed = wire.pack_batch(samples, agent="a", boot="b", sequence=0, sent_ms=0, common=common)
    return wire.encode_batch(packed)


def test_all_that_is_of_a_host_stands_in_one_place() -> None:
    labels = {"__name__": "m", "host": HOST}
    series = [NewSeries(1, 5, canonical_labels(labels))]
    event = Event(kind="k", time_ns=1, labels={"host": HOST})
    collective = Collective(
        communicator="c",
        operation=Operation.ALL_REDUCE,
        sequence=1,
        rank=0,
        ranks=2,
        source="s",
        time_ns=1,
        host=HOST,
    )
    step = StepSpan(job="j", step=1, rank=0, phase="", start_ns=1, end_ns=2, source="s", host=HOST)
    finding = pa.table({"host": [HOST], "id": pa.array([9], pa.uint64())})
    found = {
        "series": series_rows(series),
        "events": event_rows([event]),
        "collectives": collective_rows([collective]),
        "steps": step_rows([step]),
        "findings": finding,
    }
    places = {table: places_of_rows(table, rows).tolist() for table, rows in found.items()}
    assert places == {table: [place_of_text(HOST)] for table in found}


def test_what_is_of_no_host_stands_by_what_identifies_it() -> None:
    assert place_of_series({"job": "x"}, (9 << 32) + 5) == 5
    finding = pa.table({"host": ["", HOST], "id": pa.array([(1 << 40) + 3, 9], pa.uint64())})
    assert places_of_rows("findings", finding).tolist() == [3, place_of_text(HOST)]
    records = pa.table({"host": ["", ""], "communicator": ["a", "b"]})
    assert places_of_rows("collectives", records).tolist() == [
        place_of_text("a"),
        place_of_text("b"),
    ]
    names = pa.table({"metric_name": ["m", "n", "m"]})
    first, second, third = places_of_rows("metadata", names).tolist()
    assert first == third != second


@pytest.mark.parametrize("shards", [2, 3, 8, 11, 16])
@pytest.mark.parametrize("form", ["node-{:04}", "gpu{}", "h{}.example.com", "10.0.3.{}"])
def test_hosts_are_spread_evenly_whatever_their_names(form: str, shards: int) -> None:
    """Of 5,000 hosts no shard has a quarter more than its share, or a quarter less."""
    counts = Counter(place_of_text(form.format(number)) % shards for number in range(5_000))
    shares = [counts[shard] * shards / 5_000 for shard in range(shards)]
    assert 3 / 4 < min(shares) < max(shares) < 5 / 4


def test_rows_are_split_and_none_is_lost_or_turned_round() -> None:
    names = pa.table({"metric_name": [f"m{number}" for number in range(50)]})
    parts = dict(split_rows("metadata", names, 3))
    assert set(parts) == {1, 2, 3}
    found = [part["metric_name"].to_pylist() for part in parts.values()]
    assert sorted(chain.from_iterable(found)) == sorted(names["metric_name"].to_pylist())
    for shard, part in parts.items():
        assert {place_of_text(name) % 3 + 1 for name in part["metric_name"].to_pylist()} == {shard}
        numbers = [int(name[1:]) for name in part["metric_name"].to_pylist()]
        assert numbers == sorted(numbers)
    assert list(split_rows("metadata", names.slice(0, 0), 3)) == []


def columns(place: list[int] | None) -> SampleColumns:
    return SampleColumns(
        np.arange(3, dtype=np.uint32),
        np.arange(3, dtype=np.uint64),
        np.arange(3, dtype=np.int64),
        np.arange(3, dtype=np.float64),
        None if place is None else np.array(place, np.uint32),
    )


def test_samples_are_split_by_the_places_of_their_series() -> None:
    parts = dict(split_samples(columns([7, 2, 4]), 3))
    assert {shard: part.series.tolist() for shard, part in parts.items()} == {2: [0, 2], 3: [1]}
    joined = SampleColumns.concatenate([columns([1, 2, 3]), columns([4, 5, 6])])
    assert joined.place is not None
    assert joined.place.tolist() == [1, 2, 3, 4, 5, 6]


def test_samples_without_places_are_refused() -> None:
    with pytest.raises(StoreError, match="need the places of their series"):
        list(split_samples(columns(None), 3))
    mixed = SampleColumns.concatenate([columns([1, 2, 3]), columns(None)])
    with pytest.raises(StoreError, match="need the places of their series"):
        list(split_samples(mixed, 3))
    with pytest.raises(StoreError, match="rows of exemplars need the places"):
        list(split_rows("exemplars", pa.table({"series": [1]}), 3))


def test_agents_and_remote_write_say_the_same_place_for_the_same_labels() -> None:
    request = decode_native(batch(), NativeTables(is_placed=True), ACCEPTANCE)
    samples, by_series = request.write.samples, dict[int, int]()
    for new in request.write.series:
        by_series[new.series] = place_of_series(dict(new.labels), new.series)
    assert samples.place is not None
    assert samples.place.tolist() == [by_series[each] for each in samples.series.tolist()]
    assert len(samples)
    known = RemoteSeries(is_placed=True)
    rows = [known.add(None, new.labels, series_id(new.labels)) for new in request.write.series]
    placed = known.places(np.array(rows, np.int64))
    assert placed is not None
    assert placed.tolist() == list(by_series.values())


def test_where_there_are_no_shards_no_place_is_looked_for() -> None:
    assert decode_native(batch(), NativeTables(), ACCEPTANCE).write.samples.place is None
    assert RemoteSeries().places(np.array([0])) is None
