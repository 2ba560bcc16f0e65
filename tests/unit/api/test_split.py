"""`split` separates waiting from transfer and names the rank that the others wait for."""

import msgspec
import numpy as np

from alerts.window.split import lateness, split
from collector.contract.records import ABSENT
from tests.worlds.collectives import make_records

MS = 1_000_000


def test_skew_and_transfer_are_what_a_loop_finds() -> None:
    records = make_records(hosts=4, steps=20)
    operations = split(records)
    assert len(operations) == 40
    for row in range(len(operations)):
        own = (records.operation == operations.operation[row]) & (
            records.sequence == operations.sequence[row]
        )
        entries, exits = records.entry_ns[own], records.exit_ns[own]
        assert operations.skew_ns[row] == entries.max() - entries.min()
        assert operations.transfer_ns[row] == exits.max() - entries.max()
        assert operations.last_in[row] == records.rank[own][entries.argmax()]
        assert operations.last_out[row] == records.rank[own][exits.argmax()]
        assert operations.least_inside[row] == records.rank[own][(exits - entries).argmin()]


def test_bus_bandwidth_is_nccl_s() -> None:
    operations = split(make_records(hosts=8, steps=5))
    all_reduce = operations.select(operations.operation == 1)
    expected = 2 * (8 << 20) * 7 / 8 / (all_reduce.transfer_ns / 1e9)
    assert np.allclose(all_reduce.bus_bandwidth, expected)
    all_gather = operations.select(operations.operation == 0)
    assert np.allclose(all_gather.bus_bytes, (256 << 10) * 7)


def test_missing_records_are_counted_not_guessed() -> None:
    records = make_records(hosts=4, steps=10)
    kept = records.select(~((records.rank == 2) & (records.sequence < 3)))
    operations = split(kept)
    assert len(operations) == 20
    assert (operations.ranks == 4).all()
    assert ((operations.ranks_seen == 3) == (operations.sequence < 3)).all()


def test_records_without_times_and_pairs_are_left_out() -> None:
    records = make_records(hosts=2, steps=4)
    untimed = msgspec.structs.replace(
        records, entry_ns=np.where(records.operation == 1, ABSENT, records.entry_ns)
    )
    assert set(split(untimed).operation.tolist()) == {0}
    pairs = msgspec.structs.replace(records, operations=["send", "all_reduce"])
    assert set(split(pairs).operation.tolist()) == {1}
    assert len(split(records.select(slice(0)))) == 0
    assert len(lateness(records.select(slice(0)))) == 0


def test_the_late_rank_stands_out() -> None:
    late = lateness(make_records(late={5: 0.020}))
    reduce_rows = late.select(late.operation == 1)
    worst = int(reduce_rows.median_late_ns.argmax())
    assert reduce_rows.rank[worst] == 5
    assert 18 * MS < reduce_rows.median_late_ns[worst] < 22 * MS
    assert reduce_rows.last_in[worst] == reduce_rows.count[worst] == 100
    assert reduce_rows.least_inside[worst] > 90
    assert reduce_rows.median_inside_ns[worst] == reduce_rows.median_inside_ns.min()


def test_nobody_is_late_alone() -> None:
    records = make_records(hosts=2, steps=4)
    assert len(lateness(records.select(records.rank == 0))) == 0
