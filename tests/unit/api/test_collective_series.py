"""Series out of joined collectives: totals go on, gauges are of the stretch, shares add up."""

import numpy as np
import pytest

from alerts.window.series import Place, Roller
from collector.contract.catalog import load_catalog
from collector.contract.model import Sample
from collector.contract.units import NS
from tests.worlds.collectives import START_NS, make_records, to_columns
from tests.worlds.pipeline_jobs import COMPUTE_MS, Pipelines, to_job

PLACES = {("0xabc", rank): Place("job-1", rank, f"node{rank}") for rank in range(8)}


def roll(roller: Roller, number: int, **job: object) -> dict[str, float]:
    """What the nth second of the job gives; ranks and sizes in the key tell series apart."""
    records = make_records(**job)  # type: ignore[arg-type]
    start = START_NS + number * NS
    return by_name(roller.roll(records, PLACES, start, start + NS))


def by_name(samples: list[Sample]) -> dict[str, float]:
    found = {}
    for sample in samples:
        labels = dict(sample.series.labels)
        key = labels.get("rank", labels.get("operation", ""))
        found[f"{sample.series.metric} {key}".strip()] = sample.value
    return found


def test_every_series_is_in_the_catalog_with_its_labels() -> None:
    catalog = load_catalog()
    samples = Roller().roll(make_records(), PLACES, START_NS, START_NS + NS)
    assert samples
    for sample in samples:
        assert catalog.metric(sample.series.metric), sample.series
        labels = {name for name, _ in sample.series.labels}
        assert labels <= catalog.labels_of(sample.series.metric), sample.series
    shown = {sample.series.metric for sample in samples}
    wanted = {
        metric.name
        for file in load_catalog().files
        if file.target.name in {"communicator", "rank"}
        for metric in file.metrics
    }
    assert wanted <= shown


def test_counters_go_on_and_gauges_are_of_the_stretch() -> None:
    roller = Roller()
    first, second = roll(roller, 0), roll(roller, 1)
    name = "fabric_communicator_operations_total all_reduce"
    assert (first[name], second[name]) == (20, 40)
    assert first["fabric_communicator_incomplete_total all_reduce"] == 0
    for one in (first, second):
        assert one["fabric_communicator_transfer_seconds all_reduce"] == pytest.approx(
            0.008, rel=0.2
        )
        bandwidth = one["fabric_communicator_bus_bandwidth_bytes_per_second all_reduce"]
        assert bandwidth == pytest.approx(2 * (8 << 20) * 7 / 8 / 0.008, rel=0.2)
    total = second["fabric_communicator_duration_seconds_total all_reduce"]
    parts = (
        second["fabric_communicator_entry_skew_seconds_total all_reduce"]
        + second["fabric_communicator_transfer_seconds_total all_reduce"]
    )
    assert total == pytest.approx(parts)


def test_the_late_rank_is_late_and_waited_for() -> None:
    found = roll(Roller(), 1, late={5: 0.02})
    late = [found[f"fabric_rank_lateness_seconds {rank}"] for rank in range(8)]
    assert int(np.argmax(late)) == 5
    # Half of its operations are all-gathers, which it enters with the others.
    waited = [found[f"fabric_rank_waited_for_seconds_total {rank}"] for rank in range(8)]
    assert waited[5] == pytest.approx(20 * 0.02, rel=0.1)
    assert sum(waited) - waited[5] < 0.1
    assert found["fabric_rank_last_in_total 5"] >= 20


def test_shares_of_time_are_the_steps() -> None:
    """Steps of 50 ms, of which 8.8 ms are transfer and 20 ms waiting for one rank."""
    found = roll(Roller(), 1, late={5: 0.02})
    assert found["fabric_job_network_share_ratio"] == pytest.approx(8.8 / 50, rel=0.15)
    assert found["fabric_job_wait_share_ratio"] == pytest.approx(20 / 50, rel=0.15)
    assert found["fabric_job_step_seconds"] == pytest.approx(0.05, rel=0.1)
    assert found["fabric_job_ranks"] == 8


@pytest.mark.parametrize("copies", [2, 12])
def test_sends_and_receives_count_to_the_shares_of_a_pipeline(copies: int) -> None:
    """Of 12 copies with 48 ranks some stand for all: they spend what all do."""
    pipelines = Pipelines(4, copies)
    pipelines.sends_ms = dict.fromkeys(range(pipelines.ranks), 1.0)
    records = pipelines.play(40)
    places = {(one.communicator, one.rank): Place("pipe", one.pid - 1, one.host) for one in records}
    columns = to_columns(records)
    found = by_name(Roller().roll(columns, places, START_NS + NS, START_NS + 2 * NS))
    (step,) = {round(one.end_ns - one.start_ns, -6) for one in to_job(records).steps[20:21]}
    # Gradients in two parts; a stage in the middle takes part in 16 messages, one at an end in 8.
    assert found["fabric_job_network_share_ratio"] * step == pytest.approx(
        (2 * 3 + 12 * 1.0) * 1e6, rel=0.25
    )
    waiting = found["fabric_job_wait_share_ratio"]
    own = 2 * pipelines.batches * COMPUTE_MS * 1e6 / step
    network = found["fabric_job_network_share_ratio"]
    assert waiting + own + network == pytest.approx(1.0, abs=0.05)


def test_communicators_of_no_known_job_are_left_out() -> None:
    assert Roller().roll(make_records(), {}, START_NS, START_NS + NS) == []
    empty = make_records().select(slice(0))
    assert Roller().roll(empty, PLACES, START_NS, START_NS + NS) == []


def test_an_operation_that_ends_later_belongs_to_the_later_stretch() -> None:
    roller = Roller()
    whole = sum(
        roll(roller, number)["fabric_communicator_operations_total all_reduce"] - before
        for number, before in ((0, 0), (1, 20), (2, 40), (3, 60), (4, 80))
    )
    assert whole == 100


def test_records_of_other_times_change_nothing_but_the_rhythm() -> None:
    """So that it is enough to read what is near a stretch."""
    records = make_records(late={5: 0.02}, steps=200)
    start, end = START_NS + 4 * NS, START_NS + 5 * NS
    near = records.select((records.exit_ns > start - NS) & (records.entry_ns < end))
    assert len(near) < len(records) / 4
    whole = by_name(Roller().roll(records, PLACES, start, end))
    assert whole == by_name(Roller().roll(near, PLACES, start, end, records))
    assert whole["fabric_communicator_operations_total all_reduce"] == 20


def test_a_job_that_does_nothing_for_a_while_spends_none_of_it() -> None:
    records = make_records(steps=40)
    found = by_name(Roller().roll(records, PLACES, START_NS + 3 * NS, START_NS + 4 * NS))
    assert found["fabric_job_network_share_ratio"] == found["fabric_job_wait_share_ratio"] == 0
    assert found["fabric_job_ranks"] == 8
