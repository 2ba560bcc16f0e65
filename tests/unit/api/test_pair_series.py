"""Series of rank and host pairs: traffic, transfer time, waiting, and omitted pairs."""

import msgspec
import numpy as np
import pytest

from alerts.window.columns import Records
from alerts.window.series import Place
from api.jobs.correlate import pairs as pairs_module
from api.jobs.correlate.pairs import PAIRS_SECONDS, STALE, Pairs, Thinning, Wire
from collector.contract.catalog import load_catalog
from collector.contract.model import Sample
from collector.contract.records import ABSENT
from collector.contract.units import NS
from tests.worlds.collectives import START_NS, make_records

END_NS = START_NS + PAIRS_SECONDS * NS
STEPS = 100
REDUCED = 8 << 20
GATHERED = 256 << 10
RING_BYTES = STEPS * (2 * REDUCED * 7 / 8 + GATHERED * 7)
"""What every edge of a ring of eight carries: all-reduces and all-gathers of `make_records`."""

Shown = dict[tuple[str, ...], float]


def places_of(hosts: int, ranks_per_host: int, name: str = "0xabc", job: str = "job-1") -> dict:  # type: ignore[type-arg]
    return {
        (name, rank): Place(job, rank, f"node{rank // ranks_per_host}")
        for rank in range(hosts * ranks_per_host)
    }


def shown(samples: list[Sample]) -> Shown:
    """Values by metric (without its prefix), kind of pair (rank, host), source and target."""
    found = {}
    for sample in samples:
        labels = dict(sample.series.labels)
        name = sample.series.metric.removeprefix("fabric_pair_")
        key = (name, *(labels.get(word, "") for word in ("by", "source", "target")))
        found[key] = sample.value
    return found


def roll(records: Records, places: dict, wiring: dict | None = None, **thin: object) -> Shown:  # type: ignore[type-arg]
    return shown(Pairs().roll(records, places, wiring or {}, END_NS, Thinning(**thin)))  # type: ignore[arg-type]


def together(*parts: Records) -> Records:
    """Records of several communicators, each under a name of its own."""
    columns = {
        name: np.concatenate([part.arrays()[name] for part in parts]) for name in parts[0].arrays()
    }
    columns["communicator"] = np.repeat(
        np.arange(len(parts)), [len(part) for part in parts]
    ).astype(np.int32)
    names = [f"0x{number}" for number in range(len(parts))]
    return msgspec.structs.replace(parts[0], communicators=names, **columns)


def test_a_ring_sends_the_same_to_each_next_rank_and_nothing_elsewhere() -> None:
    found = roll(make_records(), places_of(8, 1))
    sent = {
        key[2:]: value for key, value in found.items() if key[:2] == ("bytes_per_second", "rank")
    }
    assert set(sent) == {(str(rank), str((rank + 1) % 8)) for rank in range(8)}
    for value in sent.values():
        assert value == pytest.approx(RING_BYTES / PAIRS_SECONDS)
    assert found["bytes_per_second", "host", "node0", "node1"] == pytest.approx(sent["0", "1"])
    assert found["unplaced_bytes_per_second", "", "", ""] == 0


def test_a_ring_that_was_told_of_goes_as_it_was_told() -> None:
    wiring = {"0xabc": Wire(8, [[0, 2, 4, 6, 1, 3, 5, 7]])}
    found = roll(make_records(), places_of(8, 1), wiring)
    assert ("bytes_per_second", "rank", "6", "1") in found
    assert ("bytes_per_second", "rank", "0", "1") not in found


def test_a_host_to_itself_is_what_stays_inside_it() -> None:
    found = roll(make_records(hosts=2, ranks_per_host=4), places_of(2, 4))
    inside = found["bytes_per_second", "host", "node0", "node0"]
    outside = found["bytes_per_second", "host", "node0", "node1"]
    assert inside == pytest.approx(3 * outside)


def test_only_what_ended_in_the_minute_counts() -> None:
    late = roll(make_records(), places_of(8, 1))
    records = make_records()
    earlier = Pairs().roll(records, places_of(8, 1), {}, START_NS + 2 * NS, Thinning())
    part = shown(earlier)["bytes_per_second", "rank", "0", "1"]
    assert part == pytest.approx(late["bytes_per_second", "rank", "0", "1"] * 0.4, rel=0.05)


def test_only_waiting_in_the_minute_counts() -> None:
    records = make_records(late={5: 0.02})
    pair = ("wait_ratio", "rank", "0", "5")
    whole = shown(Pairs().roll(records, places_of(8, 1), {}, END_NS, Thinning()))[pair]
    earlier = Pairs().roll(records, places_of(8, 1), {}, START_NS + 3 * NS, Thinning())
    assert shown(earlier)[pair] == pytest.approx(whole * 0.6, rel=0.05)


def test_operations_that_were_left_out_are_made_up_for() -> None:
    records = make_records()
    thin: Records = records.select(records.sequence % 4 == 0)
    whole = roll(records, places_of(8, 1))["bytes_per_second", "rank", "0", "1"]
    for thinning in ({"kept_one_in": 4}, {"is_numbered": True}):
        found = roll(thin, places_of(8, 1), **thinning)
        assert found["bytes_per_second", "rank", "0", "1"] == pytest.approx(whole)
    as_it_is = roll(thin, places_of(8, 1))["bytes_per_second", "rank", "0", "1"]
    assert as_it_is == pytest.approx(whole / 4)


def test_the_ring_that_takes_longer_than_those_like_it_is_slow() -> None:
    parts = [
        make_records(transfer_seconds=seconds, jitter_seconds=1e-6, seed=number)
        for number, seconds in enumerate((0.008, 0.02, 0.008))
    ]
    places = {}
    for number in range(3):
        for rank in range(8):
            places[f"0x{number}", rank] = Place("job-1", number * 8 + rank, f"node{rank}")
    found = roll(together(*parts), places)
    assert found["transfer_ratio", "rank", "8", "9"] == pytest.approx(2.5, rel=0.1)
    assert found["transfer_ratio", "rank", "0", "1"] == pytest.approx(1.0, rel=0.1)
    # The series of two hosts has the slowest rank pair's ratio, not the mean of the three.
    assert found["transfer_ratio", "host", "node0", "node1"] == pytest.approx(2.5, rel=0.1)


def test_groups_within_hosts_are_not_held_against_groups_between_them() -> None:
    inside = make_records(transfer_seconds=0.001, jitter_seconds=1e-6)
    between = make_records(transfer_seconds=0.02, jitter_seconds=1e-6)
    places = {("0x0", rank): Place("job-1", rank, "node0") for rank in range(8)}
    places |= {("0x1", rank): Place("job-1", 8 + rank, f"node{rank}") for rank in range(8)}
    found = roll(together(inside, between), places)
    assert found["transfer_ratio", "rank", "8", "9"] == pytest.approx(1.0)
    assert found["transfer_ratio", "rank", "0", "1"] == pytest.approx(1.0)


def test_operations_too_short_to_tell_of_a_link_are_not_compared() -> None:
    found = roll(make_records(transfer_seconds=1e-4, jitter_seconds=1e-6), places_of(8, 1))
    assert ("bytes_per_second", "rank", "0", "1") in found
    assert not [key for key in found if key[0] == "transfer_ratio"]


def test_everyone_waits_for_the_late_rank_and_for_no_other() -> None:
    found = roll(make_records(late={5: 0.02}), places_of(8, 1))
    waits = {key[2:]: value for key, value in found.items() if key[:2] == ("wait_ratio", "rank")}
    assert {target for _, target in waits} == {"5"}
    assert {source for source, _ in waits} == {str(rank) for rank in range(8) if rank != 5}
    for value in waits.values():
        assert value == pytest.approx(STEPS * 0.02 / PAIRS_SECONDS, rel=0.1)


def test_hosts_wait_in_the_mean_of_their_ranks() -> None:
    found = roll(make_records(hosts=2, ranks_per_host=4, late={5: 0.02}), places_of(2, 4))
    whole = STEPS * 0.02 / PAIRS_SECONDS
    assert found["wait_ratio", "host", "node0", "node1"] == pytest.approx(whole, rel=0.1)
    # The late rank's own host: three of its four ranks wait.
    assert found["wait_ratio", "host", "node1", "node1"] == pytest.approx(whole * 3 / 4, rel=0.1)


def test_waiting_that_is_nobodys_makes_no_series() -> None:
    found = roll(make_records(), places_of(8, 1))
    assert not [key for key in found if key[0] == "wait_ratio"]


def test_a_job_with_too_many_pairs_is_shown_by_hosts_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairs_module, "PAIRS_MAX", 4)
    pairs = Pairs()
    records = make_records(hosts=2, ranks_per_host=4)
    found = shown(pairs.roll(records, places_of(2, 4), {}, END_NS, Thinning()))
    assert {key[1] for key in found if key[0] == "bytes_per_second"} == {"host"}
    # Within hosts four rings in turn: every rank to the three others but one; and between them.
    assert pairs.left_out["rank"] > 0
    assert pairs.left_out["host"] == 0


def test_of_too_many_hosts_the_slowest_pairs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "PAIRS_MAX", 8)
    parts = [
        make_records(transfer_seconds=seconds, jitter_seconds=1e-6, seed=number)
        for number, seconds in enumerate((0.008, 0.02, 0.008))
    ]
    places = {
        (f"0x{number}", rank): Place("job-1", number * 8 + rank, f"node{number}-{rank}")
        for number in range(3)
        for rank in range(8)
    }
    pairs = Pairs()
    found = shown(pairs.roll(together(*parts), places, {}, END_NS, Thinning()))
    sources = {key[2] for key in found if key[:2] == ("bytes_per_second", "host")}
    assert sources == {f"node1-{rank}" for rank in range(8)}
    assert pairs.left_out["host"] == 16


def test_all_jobs_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "ROUND_PAIRS_MAX", 20)
    places = {
        (f"0x{number}", rank): Place(f"job-{number}", rank, f"node{rank}")
        for number in range(2)
        for rank in range(8)
    }
    pairs = Pairs()
    samples = pairs.roll(together(make_records(), make_records()), places, {}, END_NS, Thinning())
    sent = [one for one in samples if one.series.metric == "fabric_pair_bytes_per_second"]
    assert len(sent) == 20
    assert sum(pairs.left_out.values()) == 12


def test_what_is_too_much_for_every_minute_is_said_to_be_unplaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairs_module, "JOB_FLOWS_MAX", 4)
    found = roll(make_records(), places_of(8, 1))
    unplaced = found["unplaced_bytes_per_second", "", "", ""]
    assert unplaced == pytest.approx(8 * RING_BYTES / PAIRS_SECONDS)


def test_a_pair_that_is_no_more_ends_at_once_and_only_once() -> None:
    pairs = Pairs()
    first = pairs.roll(make_records(late={5: 0.02}), places_of(8, 1), {}, END_NS, Thinning())
    waited = {one.series for one in first if one.series.metric == "fabric_pair_wait_ratio"}
    assert waited
    second = pairs.roll(make_records(), places_of(8, 1), {}, END_NS, Thinning())
    ended = {one.series for one in second if bits(one.value) == bits(STALE)}
    assert ended == waited
    third = pairs.end(END_NS)
    assert {bits(one.value) for one in third} == {bits(STALE)}
    assert {one.series.metric for one in third} >= {"fabric_pair_bytes_per_second"}
    assert pairs.end(END_NS) == []


def bits(value: float) -> bytes:
    return np.float64(value).tobytes()


def test_sends_between_two_ranks_are_taken_as_they_are_recorded() -> None:
    """A pair of a pipeline: one sends, the other receives."""
    records = make_records(hosts=2)
    names = ["recv", "send"]
    is_send = records.rank == 0
    rows: Records = records.select(records.operation == 1)
    pipeline = msgspec.structs.replace(
        rows, operations=names, operation=is_send[records.operation == 1].astype(np.int32)
    )
    order = np.lexsort((pipeline.rank, pipeline.sequence, pipeline.operation))
    found = roll(pipeline.select(order), places_of(2, 1))
    assert found["bytes_per_second", "rank", "0", "1"] == pytest.approx(
        STEPS * REDUCED / PAIRS_SECONDS
    )
    assert ("bytes_per_second", "rank", "1", "0") not in found


def test_no_records_and_records_without_times_or_sizes_say_nothing() -> None:
    records = make_records()
    assert Pairs().roll(records.select(slice(0)), places_of(8, 1), {}, END_NS, Thinning()) == []
    assert Pairs().roll(records, {}, {}, END_NS, Thinning()) == []
    absent = np.full(len(records), ABSENT, dtype=np.int64)
    untimed = msgspec.structs.replace(records, entry_ns=absent, exit_ns=absent)
    sizeless = msgspec.structs.replace(records, size_bytes=absent)
    for odd in (untimed, sizeless):
        found = roll(odd, places_of(8, 1))
        assert not [key for key in found if key[0] == "bytes_per_second"]


def test_every_series_is_in_the_catalog_and_every_metric_is_made() -> None:
    catalog = load_catalog()
    samples = Pairs().roll(make_records(late={5: 0.02}), places_of(8, 1), {}, END_NS, Thinning())
    for sample in samples:
        labels = {name for name, _ in sample.series.labels}
        assert labels <= catalog.labels_of(sample.series.metric), sample.series
    (pair,) = (file for file in catalog.files if file.target.name == "pair")
    assert {metric.name for metric in pair.metrics} == {one.series.metric for one in samples}
