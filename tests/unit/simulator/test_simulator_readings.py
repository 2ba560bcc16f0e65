"""Fast mode by itself: numbering, clocks, silence, restarts, and what packing does to numbers.

`tests/conformance/test_simulated_agents.py` compares it with production agents.
"""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collector.contract.collective import Operation
from collector.contract.counters import WRAPS_32, Extender
from collector.contract.units import NS_PER_MS
from collector.contract.wire import Batch, decode_batch
from simulator.readings import batches
from simulator.readings.batches import Reporter
from simulator.readings.collectives import ROWS_PER_SECOND_MAX
from simulator.readings.devices import Extenders
from simulator.readings.unread import HISTORY_SECONDS
from simulator.snapshot import Happening, Snapshot
from simulator.topology.model import Topology
from tests.worlds.simulated import START_UNIX_NS, make_topology
from tests.worlds.simulated_jobs import JOB, make_block, make_blocks, make_full_snapshot

OPERATIONS = "fabric_collective_operations_total"


def make_reporter(topology: Topology, **changes: Any) -> Reporter:  # noqa: ANN401 - its own
    return Reporter(topology, "lab", START_UNIX_NS, **({"seed": 7, "poller": None} | changes))


def send(reporter: Reporter, snapshot: Snapshot) -> dict[str, list[Batch]]:
    """The batches of a snapshot, decoded, by agent."""
    found: dict[str, list[Batch]] = {}
    for body in reporter.batches(snapshot):
        batch = decode_batch(body)
        found.setdefault(batch.agent, []).append(batch)
    return found


def later(snapshot: Snapshot, seconds: float = 1.0, **changes: Any) -> Snapshot:  # noqa: ANN401
    """The same a little later, without news but for the changes."""
    quiet: dict[str, Any] = {"collectives": [], "steps": [], "happenings": []}
    return replace(snapshot, **({"time_s": snapshot.time_s + seconds} | quiet | changes))


def series_of(batch: Batch, metric: str) -> dict[tuple[str, ...], list[float]]:
    """Values of a metric by the values of its labels, in the order of the batch."""
    rows = batch.series_rows()
    found: dict[tuple[str, ...], list[float]] = {}
    columns = (np.frombuffer(batch.index, "<u4"), np.frombuffer(batch.value, "<f8"))
    for place, value in zip(*(column.tolist() for column in columns), strict=True):
        name, labels = rows[place]
        if name == metric:
            found.setdefault(tuple(labels.values()), []).append(value)
    return found


# Numbering ---------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_one_another_numbering() -> None:
    topology = make_topology(nics=2)
    snapshot = make_full_snapshot(topology)
    first, second, other = (
        list(make_reporter(topology, seed=seed).batches(copy.deepcopy(snapshot)))
        for seed in (7, 7, 8)
    )
    assert first == second
    assert decode_batch(first[0]).boot != decode_batch(other[0]).boot


def test_every_host_has_a_batch_and_sequences_count_up() -> None:
    topology = make_topology(hosts=3, nics=2)
    reporter, snapshot = make_reporter(topology), make_full_snapshot(topology)
    for sequence in range(3):
        sent = send(reporter, later(snapshot, sequence))
        assert list(sent) == ["node0000", "node0001", "node0002"]
        assert {batch.sequence for each in sent.values() for batch in each} == {sequence}
        common = sent["node0001"][0].common
        assert common == {"host": "node0001", "cluster": "lab"}


def test_a_batch_that_is_lost_leaves_a_gap_and_its_records_never_come() -> None:
    topology = make_topology(nics=2)
    reporter, first = make_reporter(topology), make_full_snapshot(topology)
    send(reporter, first)
    blocks = make_blocks(topology, sequence=9)
    lost = send(reporter, later(first, 1, collectives=blocks, reporting=np.array([True, False])))
    assert list(lost) == ["node0000"]
    (batch,) = send(reporter, later(first, 2))["node0001"]
    assert batch.sequence == 2
    assert batch.collectives is None
    # But the agent has counted them: four operations of both its ranks, twice.
    assert sum(map(sum, series_of(batch, OPERATIONS).values())) == 2 * 2 * 4


@pytest.mark.parametrize("knob", ["host_agent_is_dead", "host_is_down"])
def test_an_agent_that_is_away_sends_nothing_and_begins_its_counters_anew(knob: str) -> None:
    topology = make_topology(nics=2)
    reporter, first = make_reporter(topology), make_full_snapshot(topology)
    (before,) = send(reporter, first)["node0001"]
    assert sum(map(sum, series_of(before, OPERATIONS).values())) > 0
    away = later(copy.deepcopy(first))
    getattr(away.world, knob)[1] = True
    assert list(send(reporter, away)) == ["node0000"]
    (after,) = send(reporter, later(first, 2))["node0001"]
    assert (after.boot, after.sequence) == (before.boot, 1)
    assert series_of(after, OPERATIONS) == {}
    assert series_of(after, "fabric_step_steps_total") == {}


def records_in(batch: Batch) -> list[tuple[int, int]]:
    """Sequence number and entry of each record, by the host's clock."""
    if batch.collectives is None:
        return []
    columns = (batch.collectives.sequence, batch.collectives.entry_ns)
    return list(zip(*(np.frombuffer(each, "<i8").tolist() for each in columns), strict=True))


def test_an_agent_that_was_dead_catches_up_from_logs_and_not_with_samples() -> None:
    """As a running agent would have sent it, with the clock of the time when it was written."""
    topology = make_topology(nics=2)
    first = make_full_snapshot(topology)
    blocks = [make_blocks(topology, sequence=9), make_blocks(topology, sequence=13)]
    missed = [later(first, 1 + tick, collectives=each) for tick, each in enumerate(blocks)]
    missed[1].steps.extend(first.steps)
    living, dying = make_reporter(topology), make_reporter(topology)
    for reporter in (living, dying):
        send(reporter, first)
    wanted = [send(living, tick)["node0001"][0] for tick in missed]
    for tick in missed:
        away = replace(tick, world=copy.deepcopy(tick.world))
        away.world.host_agent_is_dead[1] = True
        assert list(send(dying, away)) == ["node0000"]
    back = later(first, 3, clock_offset_s=first.clock_offset_s + 5.0)
    (batch,) = send(dying, back)["node0001"]
    assert records_in(batch) == [each for one in wanted for each in records_in(one)]
    assert len(records_in(batch)) == 2 * 2 * 4
    assert batch.steps == wanted[1].steps != []
    assert len(set(np.frombuffer(batch.time_ms, "<i8").tolist())) == 1
    # Counters began anew, and count what was read.
    assert sum(map(sum, series_of(batch, OPERATIONS).values())) == 2 * 2 * 4
    assert set(map(tuple, series_of(batch, "fabric_step_steps_total").values())) == {(1.0,)}
    (quiet,) = send(dying, later(first, 4))["node0001"]
    assert (records_in(quiet), quiet.steps) == ([], [])


def test_what_nobody_reads_for_an_hour_is_forgotten() -> None:
    topology = make_topology(nics=2)
    reporter, first = make_reporter(topology), make_full_snapshot(topology)
    away = replace(first, world=copy.deepcopy(first.world))
    away.world.host_agent_is_dead[1] = True
    send(reporter, away)
    send(reporter, later(away, HISTORY_SECONDS - 1, collectives=make_blocks(topology, sequence=9)))
    send(reporter, later(away, HISTORY_SECONDS + 1))
    (batch,) = send(reporter, later(first, HISTORY_SECONDS + 2))["node0001"]
    assert {sequence for sequence, _ in records_in(batch)} == {9, 10}
    assert batch.steps == []


def test_records_that_were_in_no_batch_when_an_agent_died_are_read_again() -> None:
    topology = make_topology(nics=2)
    reporter, first = make_reporter(topology, flush_ticks=2), make_full_snapshot(topology)
    send(reporter, first)
    away = later(copy.deepcopy(first))
    away.world.host_agent_is_dead[1] = True
    assert list(send(reporter, away)) == ["node0000"]
    send(reporter, later(first, 2))
    (batch,) = send(reporter, later(first, 3))["node0001"]
    assert len(records_in(batch)) == 2 * 4
    assert len(batch.steps) == 2 * 4
    assert {len(each) for each in series_of(batch, "fabric_gpu_power_watts").values()} == {2}


def test_after_a_reboot_there_is_another_numbering_and_extended_counters_begin_at_zero() -> None:
    topology = make_topology(nics=2)
    reporter, first = make_reporter(topology), make_full_snapshot(topology)
    first.nics.out_of_sequence[:] = (1 << 32) - 1
    (before,) = send(reporter, first)["node0001"]
    booted = later(copy.deepcopy(first))
    booted.hosts.boot_unix_ns[1] += 10**12
    booted.nics.out_of_sequence[:] = 5
    sent = send(reporter, booted)
    (same,), (after,) = sent["node0000"], sent["node0001"]
    assert (after.boot != before.boot, after.sequence) == (True, 0)
    metric = "fabric_port_receive_out_of_sequence_total"
    assert set(map(tuple, series_of(after, metric).values())) == {(5.0,)}
    # Where no host booted, the counter has wrapped.
    assert set(map(tuple, series_of(same, metric).values())) == {(float((1 << 32) + 5),)}


# Clocks ------------------------------------------------------------------------------------------


def test_times_are_by_the_clock_of_each_host() -> None:
    topology = make_topology(nics=2)
    snapshot = make_full_snapshot(topology, clock_offset_s=np.array([0.25, -3.5]))
    snapshot.happenings.append(Happening("xid", 59.9, host=1, gpu=2, value=79))
    sent = send(make_reporter(topology), snapshot)
    true_ms = START_UNIX_NS // NS_PER_MS + 60_000
    for name, offset_ms in (("node0000", 250), ("node0001", -3500)):
        (batch,) = sent[name]
        assert set(np.frombuffer(batch.time_ms, "<i8").tolist()) == {true_ms + offset_ms}
        assert batch.sent_ms == true_ms + offset_ms
        assert batch.collectives is not None
        entries = np.frombuffer(batch.collectives.entry_ns, "<i8") // NS_PER_MS
        assert (entries - (true_ms - 1000 + offset_ms)).min() >= 0
        assert (entries - (true_ms - 1000 + offset_ms)).max() <= 10
    (xid,) = [event for event in sent["node0001"][0].events if event.kind == "gpu_xid"]
    assert xid.time_ns == (true_ms - 3500) * NS_PER_MS


# Gathering ---------------------------------------------------------------------------------------


def test_ticks_can_be_gathered_into_one_batch() -> None:
    topology = make_topology(nics=2)
    single, gathering = make_reporter(topology), make_reporter(topology, flush_ticks=3)
    snapshot = make_full_snapshot(topology)
    ticks = [snapshot, later(snapshot, 1), later(snapshot, 2, steps=snapshot.steps)]
    one_by_one = [send(single, tick)["node0000"][0] for tick in ticks]
    gathered = [send(gathering, tick) for tick in ticks]
    assert gathered[:2] == [{}, {}]
    (batch,) = gathered[2]["node0000"]
    assert batch.sample_count == sum(each.sample_count for each in one_by_one)
    assert batch.steps == [span for each in one_by_one for span in each.steps]
    joined = [series_of(each, "fabric_gpu_power_watts") for each in one_by_one]
    assert series_of(batch, "fabric_gpu_power_watts") == {
        labels: [value for each in joined for value in each[labels]] for labels in joined[0]
    }
    times = np.frombuffer(batch.time_ms, "<i8")[:3]
    assert np.diff(times).tolist() == [1000, 1000]


def test_rows_that_come_in_between_make_a_batch_of_their_own() -> None:
    """A table holds for a whole batch: what was gathered before goes out first."""
    topology = make_topology(nics=2)
    reporter = make_reporter(topology, flush_ticks=2)
    quiet = make_full_snapshot(topology, jobs=[], collectives=[], steps=[])
    assert send(reporter, quiet) == {}
    before, after = send(reporter, replace(make_full_snapshot(topology), time_s=61.0))["node0001"]
    assert (before.sequence, after.sequence) == (0, 1)
    assert series_of(before, "fabric_job_info") == {}
    assert len(series_of(after, "fabric_job_info")) == 2


def test_the_table_is_the_same_in_every_batch_of_a_host() -> None:
    """The service recognises it by its digest and looks at it once."""
    topology = make_topology(nics=2)
    reporter, snapshot = make_reporter(topology), make_full_snapshot(topology)
    digests = {
        send(reporter, later(snapshot, seconds))["node0000"][0].table_digest()
        for seconds in (0, 1, 2)
    }
    assert len(digests) == 1


def test_more_records_than_a_batch_holds_make_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_COLLECTIVES_MAX", 5)
    topology = make_topology(nics=2)
    reporter, snapshot = make_reporter(topology), make_full_snapshot(topology)
    bodies = send(reporter, snapshot)["node0000"]
    sizes = [len(each.collectives) for each in bodies if each.collectives is not None]
    assert sizes == [5, 3]
    assert [each.sequence for each in bodies] == [0, 1]
    assert [each.sample_count > 0 for each in bodies] == [True, False]


# Thinning and counting ---------------------------------------------------------------------------


def test_a_host_with_too_many_operations_passes_on_the_same_ones_on_every_rank() -> None:
    topology = make_topology(nics=2)
    reporter, snapshot = make_reporter(topology), make_full_snapshot(topology)
    ranks = np.arange(topology.gpus, dtype=np.int32).reshape(2, 2)
    many = int(ROWS_PER_SECOND_MAX)
    kept: list[set[int]] = []
    for tick in range(3):
        blocks = [
            make_block(ranks, Operation.ALL_GATHER, sequence=tick * many + number)
            for number in range(many)
        ]
        (batch,) = send(reporter, later(snapshot, tick, collectives=blocks))["node0001"]
        assert batch.collectives is not None
        kept.append(set(np.frombuffer(batch.collectives.sequence, "<i8").tolist()))
    assert kept[0] == set(range(many))
    assert kept[1] == set(range(many, 2 * many, 2))
    assert kept[2] == set(range(2 * many, 3 * many, 2))
    assert series_of(batch, "fabric_collective_kept_one_in") == {(): [2.0]}
    assert series_of(batch, "fabric_collective_thinned_total") == {(): [2.0 * many]}
    assert set(map(tuple, series_of(batch, OPERATIONS).values())) == {(3.0 * many,)}


def test_what_hangs_is_in_no_record() -> None:
    topology = make_topology(nics=2)
    snapshot = make_full_snapshot(topology)
    (block, *_) = snapshot.collectives
    block.exit_s[0, 1] = np.nan
    snapshot.collectives[:] = [block]
    (batch,) = send(make_reporter(topology), snapshot)["node0000"]
    assert batch.collectives is not None
    (context,) = batch.collectives.contexts
    assert (context.rank, context.job, len(batch.collectives)) == (0, JOB, 1)


def test_counters_of_all_nics_are_extended_as_the_agent_extends_one() -> None:
    random = np.random.default_rng(3)
    jumps = random.choice([0, 3, 1 << 20, 1 << 31, (1 << 32) - 7], size=(60, 5, 2))
    raw = np.cumsum(jumps, axis=0) % (1 << 32)
    raw[30, 2] = 1  # a reset
    many = Extenders(WRAPS_32, 5, 2)
    one = [[Extender(WRAPS_32) for _ in range(2)] for _ in range(5)]
    for numbers in raw:
        extended = many.extend(numbers, np.ones(5, dtype=np.bool_))
        alone = [
            [each.extend(int(number)) for each, number in zip(row, line, strict=True)]
            for row, line in zip(one, numbers, strict=True)
        ]
        assert extended.tolist() == alone


def test_a_counter_that_nobody_reads_stays_as_it_was() -> None:
    many = Extenders(WRAPS_32, 2, 1)
    both, first = np.array([True, True]), np.array([True, False])
    many.extend(np.array([[10], [10]]), both)
    assert many.extend(np.array([[20], [20]]), first).tolist() == [[20], [10]]


def test_a_process_that_hangs_in_the_kernel_is_told_of_once() -> None:
    topology = make_topology(nics=2)
    reporter, snapshot = make_reporter(topology), make_full_snapshot(topology)
    snapshot.world.host_io_stall_share[1] = 1.0
    kinds: list[list[str]] = []
    for tick in range(15):
        (batch,) = send(reporter, later(snapshot, tick))["node0001"]
        kinds.append([event.kind for event in batch.events if event.kind.startswith("gpu_pro")])
    assert kinds[10] == ["gpu_process_uninterruptible"] * 2
    assert [each for each in kinds if each] == [kinds[10]]
