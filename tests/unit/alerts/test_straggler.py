"""Late ranks: which are late themselves, which only look so, and what is no fault."""

import msgspec
import numpy as np
import pytest

from alerts.detectors.straggler import detect
from alerts.finding import Finding
from alerts.signals.gaps import own_time
from alerts.signals.step_times import MEASURED_SHARE, as_measured
from alerts.window.columns import Records
from alerts.window.model import JobWindow, Past
from alerts.window.split import split
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Reason
from tests.worlds.late_jobs import make_job, make_window, shuffled

STEPS, RANKS = 40, 8


def extra(ranks: dict[int, float], first: int = 20, last: int = STEPS) -> np.ndarray:
    """Milliseconds more for some ranks, in some steps."""
    table = np.zeros((STEPS, RANKS))
    for rank, value in ranks.items():
        table[first:last, rank] = value
    return table


def with_records(job: JobWindow, records: Records) -> JobWindow:
    return msgspec.structs.replace(job, records=records, operations=split(records))


def test_one_slow_rank_is_named_and_none_that_it_delays() -> None:
    job = make_job(extra_ms=extra({5: 30.0}))
    (finding,) = detect(make_window(job))
    assert finding.cause is Cause.STRAGGLER
    assert finding.culprit == Culprit(job="training", rank=5, host="node2", gpu=1)
    assert job.steps[19].start_ns <= finding.since_ns <= job.steps[21].start_ns
    assert finding.until_ns is None
    assert [one.metric for one in finding.evidence] == [
        "rank_gap",
        "rank_last_in",
        "rank_least_inside",
    ]
    assert finding.evidence[0].baseline == pytest.approx(0.2, rel=0.05)
    assert finding.evidence[0].value == pytest.approx(0.23, rel=0.05)


def test_what_it_costs_is_what_all_others_waited() -> None:
    (finding,) = detect(make_window(make_job(extra_ms=extra({5: 30.0}))))
    assert finding.cost is not None
    assert finding.cost.lost_seconds == pytest.approx(20 * 0.030, rel=0.1)
    assert finding.cost.lost_share == pytest.approx(30 / 242, rel=0.15)
    assert finding.cost.gpu_hours == pytest.approx(finding.cost.lost_seconds * RANKS / 3600)


def test_ranks_of_one_host_that_are_late_alike_accuse_the_host() -> None:
    (finding,) = detect(make_window(make_job(extra_ms=extra({2: 25.0, 3: 30.0}))))
    assert finding.culprit == Culprit(job="training", host="node1")


def test_two_hosts_are_two_findings() -> None:
    slow = np.zeros((STEPS, 12))
    slow[20:, 0] = 30.0
    slow[20:, 9] = 60.0
    found = detect(make_window(make_job(hosts=6, gpus=2, extra_ms=slow)))
    assert sorted((one.culprit.rank, one.culprit.host) for one in found) == [
        (0, "node0"),
        (9, "node4"),
    ]


def test_an_end_is_seen() -> None:
    job = make_job(steps=STEPS, compute_ms=1000.0, extra_ms=extra({5: 300.0}, 10, 20))
    (finding,) = detect(make_window(job))
    assert finding.until_ns is not None
    assert job.steps[19].end_ns - NS <= finding.until_ns <= job.steps[20].end_ns


@pytest.mark.parametrize("seed", range(5))
def test_equal_work_accuses_no_rank(seed: int) -> None:
    assert not detect(make_window(make_job(seed=seed)))


@pytest.mark.parametrize("seed", range(5))
def test_work_that_is_unequal_at_random_accuses_no_rank(seed: int) -> None:
    random = np.random.default_rng(seed)
    uneven = np.abs(random.normal(0.0, 15.0, (STEPS, RANKS)))
    assert not detect(make_window(make_job(extra_ms=uneven, seed=seed)))


SHARED = [30, 31, 33, 35]
"""Steps in which all ranks of a host have a long sequence: four of six, which accuses no host."""


def test_what_a_rank_shares_with_its_host_is_not_its_own() -> None:
    """With one hiccup of its own it would be late in five of six steps."""
    table = np.zeros((44, 64))

    def found() -> list[Finding]:
        job = make_job(hosts=16, gpus=4, steps=44, compute_ms=1_000.0, extra_ms=table)
        return detect(make_window(job))

    table[np.ix_(SHARED, range(4, 8))] = 300.0
    assert not found()
    table[34, 6] = 300.0
    assert not found()
    table[20:, 6] += 300.0
    assert [one.culprit.rank for one in found()] == [6]


@pytest.mark.parametrize(("others_ms", "accused"), [(20.0, ["node1"]), (58.0, [])])
def test_a_late_host_for_which_nobody_waits_is_not_accused(
    others_ms: float, accused: list[str]
) -> None:
    """At each step another host comes nearly as late: without node1 steps were as long."""
    late = np.zeros((40, 16, 4))
    late[20:, 1] = 60.0
    late[np.arange(20, 40), 2 + np.arange(20) % 14] = others_ms
    job = make_job(hosts=16, gpus=4, steps=40, extra_ms=late.reshape(40, 64))
    assert [one.culprit.host for one in detect(make_window(job))] == accused


def test_a_rank_that_pauses_now_and_then_is_not_late() -> None:
    """Rank 0 writes a checkpoint at three of forty steps."""
    pauses = extra({})
    pauses[[8, 20, 32], 0] = 1500.0
    assert not detect(make_window(make_job(extra_ms=pauses)))


def test_a_rank_that_is_late_at_every_other_step_has_other_work_not_a_fault() -> None:
    every_other = extra({5: 60.0})
    every_other[::2] = 0.0
    assert not detect(make_window(make_job(extra_ms=every_other)))


def test_a_host_that_loses_records_again_and_again_is_not_late() -> None:
    """Of each second step one of two collectives is missing: what was in it is not known."""
    job = make_job()
    records = job.records
    lost = (records.host == 2) & (records.communicator == 2) & (records.sequence % 2 == 0)
    assert not detect(make_window(with_records(job, records.select(~lost))))


def test_a_step_before_which_records_are_missing_is_not_known() -> None:
    job = make_job()
    records = job.records
    lost = (records.pid == 4) & (records.communicator == 2) & (records.sequence == 20)
    table = own_time(with_records(job, records.select(~lost)))
    assert table is not None
    unknown = np.flatnonzero(np.isnan(table.outside_ns[4]))
    assert unknown.tolist() == [0, 20, 21]


def test_warming_up_is_not_being_late() -> None:
    assert not detect(make_window(make_job(compute_ms=1000.0, extra_ms=extra({3: 500.0}, 0, 5))))


def test_a_slow_network_accuses_no_rank() -> None:
    slow = make_job(transfer_ms=200.0)
    assert not detect(make_window(slow))


def test_clocks_far_apart_change_nothing() -> None:
    offsets = [0, 1_900_000_000, -1_500_000_000, 700_000]
    (finding,) = detect(make_window(make_job(extra_ms=extra({5: 30.0}), offsets_ns=[0] * 4)))
    straight = finding.culprit
    table = own_time(make_job(extra_ms=extra({5: 30.0}), offsets_ns=offsets))
    assert table is not None
    assert straight.rank == 5
    # Time outside is measured by one clock: no offset can change it.
    plain = own_time(make_job(extra_ms=extra({5: 30.0})))
    assert plain is not None
    assert np.allclose(
        np.nanmedian(table.outside_ns, axis=1), np.nanmedian(plain.outside_ns, axis=1), rtol=0.01
    )


def test_a_clock_that_is_set_accuses_no_rank() -> None:
    job = make_job(steps=STEPS, compute_ms=1000.0)
    records = job.records
    later = (records.host == 1) & (records.entry_ns > job.steps[25].start_ns)
    ahead = np.where(later, 900_000_000, 0)
    moved = msgspec.structs.replace(
        records, entry_ns=records.entry_ns + ahead, exit_ns=records.exit_ns + ahead
    )
    assert not detect(make_window(with_records(job, moved)))


def test_records_that_were_lost_accuse_no_rank() -> None:
    """A host's records are missing for five steps, then for one communicator only."""
    job = make_job()
    records = job.records
    silent = (records.host == 1) & (records.sequence >= 20) & (records.sequence < 25)
    some = (records.host == 2) & (records.communicator == 2) & (records.sequence % 3 == 0)
    kept: Records = records.select(~(silent | some))
    assert not detect(make_window(with_records(job, kept)))


def test_a_little_more_work_for_ever_is_no_fault_unless_the_past_was_even() -> None:
    job = make_job(extra_ms=extra({5: 14.0}, first=0))
    assert not detect(make_window(job))
    past = {(name, "all_reduce", 1 << 20): Past(transfer_ns=1e7, skew_ns=5e5, operations=100)
            for name in job.communicators}  # fmt: skip
    (finding,) = detect(make_window(msgspec.structs.replace(job, past=past)))
    assert finding.culprit.rank == 5


def test_much_more_work_for_ever_is_a_fault() -> None:
    (finding,) = detect(make_window(make_job(extra_ms=extra({5: 40.0}, first=0))))
    assert finding.culprit.rank == 5


def test_waiting_for_data_is_shown_by_the_training_loop_s_own_marks() -> None:
    job = make_job(compute_ms=1000.0, extra_ms=extra({2: 300.0, 3: 300.0}))
    window = make_window(job, host_levels={"step_phase_seconds_total:data": (0.02, {})})
    values = window.hosts.readings["step_phase_seconds_total:data"].values
    values[1, window.hosts.grid.edges_ns[:-1] >= job.steps[20].start_ns] = 0.5
    (finding,) = detect(window)
    assert finding.reason is Reason.DATA_LOADING
    values[1] = 0.02
    (finding,) = detect(window)
    assert finding.reason is Reason.UNKNOWN


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    job = make_job(extra_ms=extra({5: 30.0}))
    (straight,) = detect(make_window(job))
    (other,) = detect(make_window(shuffled(job, seed)))
    assert straight == other


def test_odd_data_accuses_no_rank() -> None:
    job = make_job(extra_ms=extra({5: 30.0}))
    nothing: Records = job.records.select(slice(0))
    one: Records = job.records.select(job.records.pid == 5)
    short: Records = job.records.select(job.records.sequence == 30)
    untimed = msgspec.structs.replace(
        job.records, exit_ns=np.full(len(job.records), ABSENT, dtype=np.int64)
    )
    equal = msgspec.structs.replace(
        job.records, entry_ns=job.records.entry_ns * 0 + 1, exit_ns=job.records.exit_ns * 0 + 1
    )
    wild = msgspec.structs.replace(
        job.records, exit_ns=np.where(job.records.pid == 3, 2**62, job.records.exit_ns)
    )
    assert [one.culprit.rank for one in detect(make_window(job))] == [5]
    assert not detect(make_window(with_records(job, wild.select(wild.pid == 3))))
    for records in (nothing, one, short, untimed, equal):
        assert not detect(make_window(with_records(job, records), silent_ns=NS))
    assert not detect(make_window(msgspec.structs.replace(job, kept_one_in=8)))
    assert not detect(make_window(msgspec.structs.replace(job, communicators={})))
    assert detect(make_window(msgspec.structs.replace(job, ranks={})))[0].culprit.rank == 5


def test_without_steps_equal_pieces_of_time_do() -> None:
    job = msgspec.structs.replace(make_job(extra_ms=extra({5: 60.0})), steps=())
    (finding,) = detect(make_window(job))
    assert finding.culprit.rank == 5


def in_slices(job: JobWindow, *slices: tuple[int, int]) -> JobWindow:
    """The job as it is read where it has too many records: some stretches of steps, each whole."""
    times = [(job.steps[first].start_ns, job.steps[last].end_ns) for first, last in slices]
    exits = job.records.exit_ns
    inside = np.any([(exits >= begin) & (exits <= end) for begin, end in times], axis=0)
    steps = [
        step
        for step in job.steps
        if any(step.end_ns > begin and step.start_ns < end for begin, end in times)
    ]
    records = job.records.select(inside)
    return msgspec.structs.replace(job, records=records, slices=times, steps=steps)


def test_of_a_job_that_is_read_in_slices_the_same_rank_is_named() -> None:
    job = make_job(extra_ms=extra({5: 30.0}))
    whole = detect(make_window(job))[0]
    sliced = in_slices(job, (3, 11), (17, 24), (31, 39))
    (finding,) = detect(make_window(sliced))
    assert finding.culprit == whole.culprit
    assert job.steps[19].start_ns <= finding.since_ns <= job.steps[21].start_ns
    assert finding.evidence[0].value == pytest.approx(whole.evidence[0].value, rel=0.02)
    assert finding.evidence[0].labels == {"job": "training", "host": "node2", "rank": "5"}
    assert finding.cost is not None
    assert whole.cost is not None
    # What lies between was not read, and lost as much.
    assert finding.cost.lost_seconds == pytest.approx(whole.cost.lost_seconds, rel=0.15)


def test_between_slices_no_rank_is_late() -> None:
    job = in_slices(make_job(), (3, 11), (17, 24), (31, 39))
    assert not detect(make_window(job))
    own = own_time(job)
    assert own is not None
    # The time that was not read is no rank's time outside, and its steps are not there.
    assert own.rows.gap_ns.max() < 0.2 * NS
    assert 18 <= len(own.end_ns) <= 24
    # Nor in slices that are too short to show a step as a whole.
    short = in_slices(make_job(extra_ms=extra({5: 30.0})), (10, 10), (25, 25), (38, 39))
    assert not detect(make_window(short))


def test_evidence_of_a_host_names_it_and_its_ranks() -> None:
    (finding,) = detect(make_window(make_job(extra_ms=extra({2: 25.0, 3: 30.0}))))
    for evidence in finding.evidence:
        assert evidence.labels == {"job": "training", "host": "node1", "ranks": "2,3"}


def test_a_late_rank_costs_no_more_than_steps_became_longer_by() -> None:
    """Before, another rank was as late at each step: nobody else is, and steps are as long."""
    table = extra({5: 30.0})
    table[np.arange(20), np.arange(20) % 4] = 30.0
    job = make_job(extra_ms=table)
    (finding,) = detect(make_window(job))
    assert finding.culprit.rank == 5
    assert finding.cost is not None
    assert finding.cost.step_seconds is not None
    assert finding.cost.step_seconds_without == pytest.approx(
        finding.cost.step_seconds, rel=2 * MEASURED_SHARE
    )
    assert 0.0 < finding.cost.lost_share <= 2 * MEASURED_SHARE


@pytest.mark.parametrize(
    ("played", "waited", "before", "said"),
    [
        (0.5, 0.0, 1.0, 0.3),  # waits that overlap the work of others, added up
        (0.2, 0.0, 1.0, 0.2),  # something else makes steps longer, too
        (0.013, 0.0, 1.3, 0.013),  # a hundredth of a step, which steps do not tell from noise
        (0.5, 0.0, 1.4, 0.014),
        (0.5, 0.0, None, 0.5),  # no step of before is known
        (0.1, 0.25, 1.0, 0.25),  # a pipeline, in which a play hides too much
        (0.1, 0.4, 1.0, 0.3),
        (0.1, 0.4, None, 0.1),
    ],
)
def test_what_was_played_is_held_against_the_steps_before(
    played: float, waited: float, before: float | None, said: float
) -> None:
    lengths = [*([] if before is None else [before] * 10), *[1.3] * 10]
    ends = np.cumsum([round(one * NS) for one in lengths]).tolist()
    job = make_job()
    steps = [
        msgspec.structs.replace(job.steps[0], start_ns=end - round(length * NS), end_ns=end)
        for end, length in zip(ends, lengths, strict=True)
    ]
    job = msgspec.structs.replace(job, steps=steps)
    cost = Cost(
        job=job.job, lost_seconds=10 * played, step_seconds=1.3,
        step_seconds_without=1.3 - played, lost_share=played / 1.3, gpu_hours=played,
    )  # fmt: skip
    found = as_measured(cost, job, steps[-10].start_ns, ends[-1], waited)
    assert found.step_seconds_without == pytest.approx(1.3 - said)
    assert (found.lost_seconds, found.lost_share) == pytest.approx((10 * said, said / 1.3))
    assert found.gpu_hours == pytest.approx(said)
