"""Jobs that stand still: for good, with a culprit; or for a while, without one."""

import msgspec
import numpy as np
import pytest

from alerts.detectors import hang, stall
from alerts.signals.blocked import blame
from alerts.window.columns import Records
from alerts.window.model import JobWindow, Pending, Readings, Window
from alerts.window.split import split
from collector.contract.collective import State
from collector.contract.model import Event
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.late_jobs import START_NS, make_job, make_window, with_pending

SPIN = {
    "utilization_ratio": (1.0, 1.0),
    "power_watts": (600.0, 225.0),
    "tensor_active_ratio": (0.5, 0.0),
}
"""What GPUs show before, and while they wait inside of a collective."""
OPEN, LAUNCHED, DONE = State.SCHEDULED, State.STARTED, State.COMPLETED


def hung(silent_seconds: float = 12.0, **more: object) -> Window:
    """A job of four hosts with two GPUs each in which nothing moves any more."""
    given = {"gpu_levels": SPIN, **more}
    job = make_job(compute_ms=500.0, steps=30)
    return make_window(job, silent_ns=int(silent_seconds * NS), **given)  # type: ignore[arg-type]


def wait(
    group: str, number: int, states: dict[int, State], members: list[int], kind: str = "all_reduce"
) -> Pending:
    """An operation of a group that some members have not left; ``members`` are the job's ranks."""
    return Pending(
        communicator=group,
        operation=kind,
        sequence=number,
        ranks=len(members),
        states=states,
        job_rank=dict(enumerate(members)),
        time_ns=1_800_000_000 * NS,
    )


# Hangs, by machines ------------------------------------------------------------------------------


def test_a_host_whose_gpus_are_idle_while_all_others_wait_has_not_launched() -> None:
    window = hung(
        odd={"utilization_ratio": {2: 0.0, 3: 0.0}, "power_watts": {2: 75.0, 3: 75.0}},
        host_levels={"cpu_seconds_total:user": (24.0, {1: 0.6})},
    )
    (finding,) = hang.detect(window)
    assert (finding.cause, finding.reason) == (Cause.HANG, Reason.NOT_LAUNCHED)
    assert finding.culprit == Culprit(job="training", host="node1")
    assert [one.rank for one in finding.accomplices] == [2, 3]
    assert finding.until_ns is None


def half_launched() -> Window:
    """Half of the job, one host, has launched nothing, and its peers' recorders show it."""
    idle = {4: 0.0, 5: 0.0, 6: 0.0, 7: 0.0}
    window = hung(odd={"utilization_ratio": idle, "power_watts": dict.fromkeys(idle, 75.0)})
    (job,) = window.jobs
    host = {
        rank: msgspec.structs.replace(one, host="node0" if rank < 4 else "node1", gpu=rank % 4)
        for rank, one in job.ranks.items()
    }
    pending = msgspec.structs.replace(
        wait("a", 5, dict.fromkeys(range(4), LAUNCHED), list(range(8))),
        time_ns=int(job.operations.last_exit_ns.max()),
    )
    gpus = msgspec.structs.replace(
        window.gpus, host=["node0"] * 4 + ["node1"] * 4, gpu=[0, 1, 2, 3, 0, 1, 2, 3]
    )
    jobs = [msgspec.structs.replace(job, ranks=host, pending=[pending])]
    return msgspec.structs.replace(window, jobs=jobs, gpus=gpus)


def test_one_of_two_hosts_that_has_not_launched_is_named_by_its_peers_dumps() -> None:
    (finding,) = hang.detect(half_launched())
    assert (finding.cause, finding.reason) == (Cause.HANG, Reason.NOT_LAUNCHED)
    assert finding.culprit.host == "node1"
    assert {one.rank for one in finding.accomplices} >= {5, 6, 7}


def test_dumps_of_a_job_whose_gpus_are_all_idle_accuse_no_rank() -> None:
    window = half_launched()
    idle = msgspec.structs.replace(
        window.gpus.readings["utilization_ratio"],
        values=np.zeros_like(window.gpus.readings["utilization_ratio"].values),
    )
    gpus = msgspec.structs.replace(
        window.gpus, readings={**window.gpus.readings, "utilization_ratio": idle}
    )
    assert hang.detect(msgspec.structs.replace(window, gpus=gpus)) == []


def test_a_rank_that_writes_a_checkpoint_is_no_hang() -> None:
    """Its GPU is idle, its host is not: only after minutes is it named."""
    idle = {"utilization_ratio": {0: 0.0}, "power_watts": {0: 75.0}}
    busy = {"cpu_seconds_total:user": (24.0, {0: 20.0})}
    assert not hang.detect(hung(25.0, odd=idle, host_levels=busy))
    (finding,) = hang.detect(hung(130.0, odd=idle, host_levels=busy))
    assert finding.culprit.rank == 0


def test_a_gpu_that_draws_far_less_than_all_that_wait_has_not_finished() -> None:
    (finding,) = hang.detect(hung(odd={"power_watts": {5: 135.0}}))
    assert finding.reason is Reason.NOT_FINISHED
    assert finding.culprit == Culprit(job="training", rank=5, host="node2", gpu=1)


def test_a_host_that_fell_silent_with_the_job_is_named() -> None:
    window = hung(30.0)
    seen = window.gpus.seen_ns.copy()
    seen[[4, 5]] -= 29 * NS
    gone = msgspec.structs.replace(window, gpus=msgspec.structs.replace(window.gpus, seen_ns=seen))
    (finding,) = hang.detect(gone)
    assert finding.culprit == Culprit(job="training", host="node2")
    seen[:] -= 29 * NS
    assert not hang.detect(gone)


def test_powers_that_differ_anyway_name_no_gpu() -> None:
    spread = {row: 225.0 * (0.6 + 0.12 * row) for row in range(8)}
    assert not hang.detect(hung(odd={"power_watts": spread}))


def test_a_fatal_xid_names_its_gpu() -> None:
    window = hung()
    event = Event(
        kind="gpu_xid",
        time_ns=window.to_ns - NS,
        labels={"host": "node3", "gpu": "0"},
        message="",
        attributes={"xid": "79"},
    )
    (finding,) = hang.detect(msgspec.structs.replace(window, events=[event]))
    assert (finding.reason, finding.culprit.rank) == (Reason.GPU_ERROR, 6)
    harmless = msgspec.structs.replace(event, attributes={"xid": "43"})
    assert not hang.detect(msgspec.structs.replace(window, events=[harmless]))


def test_a_gpu_that_cannot_be_read_any_more_is_named() -> None:
    (finding,) = hang.detect(hung(gpu_levels={**SPIN, "up": (1.0, 1.0)}, odd={"up": {4: 0.0}}))
    assert (finding.reason, finding.culprit.rank) == (Reason.GPU_ERROR, 4)


def test_a_port_that_is_down_is_named() -> None:
    window = hung()
    job = window.jobs[0]
    ranks = {
        number: msgspec.structs.replace(rank, devices=(f"mlx5_{rank.gpu}",))
        for number, rank in job.ranks.items()
    }
    grid = window.gpus.grid
    state = np.full((2, grid.cells), 4.0)
    state[1, -3:] = 1.0
    ports = msgspec.structs.replace(
        window.ports,
        host=["node1", "node2"],
        device=["mlx5_0", "mlx5_1"],
        port=["1", "1"],
        readings={"state": Readings(metric="fabric_port_state", row=np.arange(2), values=state)},
        seen_ns=np.full(2, window.to_ns, dtype=np.int64),
        is_switch=np.zeros(2, dtype=bool),
        other_end=np.full(2, -1, dtype=np.int64),
        rate_bits_per_second=np.full(2, 4e11),
        rail=np.zeros(2, dtype=np.int64),
        tier=np.full(2, -1, dtype=np.int64),
    )
    placed = msgspec.structs.replace(job, ranks=ranks)
    (finding,) = hang.detect(msgspec.structs.replace(window, jobs=[placed], ports=ports))
    assert finding.reason is Reason.LINK_DOWN
    assert finding.culprit == Culprit(job="training", host="node2", device="mlx5_1", port="1")


def test_no_culprit_is_named_where_all_wait_alike_and_only_after_half_a_minute() -> None:
    assert not hang.detect(hung(20.0))
    (finding,) = hang.detect(hung(40.0))
    assert (finding.cause, finding.culprit) == (Cause.STALL, Culprit(job="training"))


@pytest.mark.parametrize(
    "levels",
    [
        {"utilization_ratio": (1.0, 0.0), "power_watts": (600.0, 75.0)},
        {"utilization_ratio": (1.0, 1.0), "power_watts": (600.0, 590.0)},
        {},
    ],
    ids=["it has ended, or all write a checkpoint", "it computes: records are late", "unknown"],
)
def test_silence_alone_is_no_hang(levels: dict[str, tuple[float, float]]) -> None:
    assert not hang.detect(hung(90.0, gpu_levels=levels))


def test_a_job_that_has_ended_or_whose_agents_are_silent_does_not_hang() -> None:
    odd = {"power_watts": {5: 135.0}}
    window = hung(odd=odd)
    assert hang.detect(window)
    over = msgspec.structs.replace(window.jobs[0], is_running=False)
    assert not hang.detect(msgspec.structs.replace(window, jobs=[over]))
    assert not hang.detect(hung(60.0, odd=odd, seen_ns=1_800_000_000 * NS))
    assert not hang.detect(msgspec.structs.replace(window, is_live=False))


# Hangs, by dumps ---------------------------------------------------------------------------------


def dumped(*pending: Pending) -> JobWindow:
    return with_pending(make_job(steps=3), pending)


def test_who_has_not_finished_what_its_peers_have_left_is_to_blame() -> None:
    job = dumped(
        wait("a", 7, {1: OPEN}, [0, 1, 2, 3]),
        wait("a", 9, {0: OPEN, 2: OPEN, 3: OPEN}, [0, 1, 2, 3]),
        wait("b", 4, {0: LAUNCHED, 1: DONE}, [1, 5]),
    )
    found = blame(job)
    assert found is not None
    assert (found.ranks, found.reason) == ((1,), Reason.NOT_FINISHED)


def test_who_is_missing_and_waits_nowhere_is_to_blame_not_who_waits_elsewhere() -> None:
    """Rank 2 is missing from group b because it waits for rank 3 in group a."""
    job = dumped(
        wait("a", 5, {0: OPEN, 1: OPEN, 2: OPEN}, [0, 1, 2, 3]),
        wait("b", 8, {0: OPEN, 2: OPEN, 3: OPEN}, [4, 2, 5, 6]),
    )
    found = blame(job)
    assert found is not None
    assert (found.ranks, found.reason) == ((3,), Reason.NOT_LAUNCHED)


def test_the_missing_end_of_a_message_is_to_blame() -> None:
    pair = dumped(wait("p", 6, {0: LAUNCHED}, [1, 7], "send"))
    found = blame(pair)
    assert found is not None
    assert found.ranks == (7,)
    both = dumped(
        wait("p", 6, {0: LAUNCHED}, [1, 7], "send"), wait("p", 6, {1: LAUNCHED}, [1, 7], "recv")
    )
    assert blame(both) is None


def test_dumps_in_which_all_are_alike_or_most_are_missing_accuse_no_rank() -> None:
    everyone = dict.fromkeys(range(4), LAUNCHED)
    assert blame(dumped(wait("a", 5, everyone, [0, 1, 2, 3]))) is None
    assert blame(dumped(wait("a", 5, {0: LAUNCHED}, [0, 1, 2, 3]))) is None
    assert blame(dumped()) is None


def test_a_broadcast_s_root_may_leave_before_the_others() -> None:
    job = dumped(
        wait("a", 7, {1: OPEN}, [0, 1, 2, 3], "broadcast"),
        wait("a", 8, {0: OPEN, 2: OPEN, 3: OPEN}, [0, 1, 2, 3], "broadcast"),
    )
    found = blame(job)
    assert found is None or found.reason is Reason.NOT_LAUNCHED


def test_a_capture_with_dumps_hangs_unless_it_went_on() -> None:
    job = dumped(wait("a", 5, {0: OPEN, 1: OPEN, 2: OPEN}, [0, 1, 2, 3]))
    assert not hang.detect(make_window(job, is_live=False))
    empty: Records = job.records.select(slice(0))
    alone = msgspec.structs.replace(job, records=empty, operations=split(empty))
    (finding,) = hang.detect(make_window(alone, is_live=False))
    assert finding.culprit.rank == 3


def test_where_no_gpu_is_read_the_dumps_of_a_running_job_show_that_it_stands() -> None:
    """Its records ended, which lost telemetry would look like too; its recorders say why."""
    window = half_launched()
    unread = msgspec.structs.replace(
        window.gpus, readings={}, seen_ns=np.full(len(window.gpus), ABSENT, dtype=np.int64)
    )
    (finding,) = hang.detect(msgspec.structs.replace(window, gpus=unread))
    assert finding.culprit.host == "node1"
    assert finding.until_ns is None
    (job,) = window.jobs
    for other in (
        msgspec.structs.replace(job, is_running=False),
        msgspec.structs.replace(job, pending=()),
        # It went on: the dumps are of an earlier stop.
        msgspec.structs.replace(
            job,
            pending=[msgspec.structs.replace(one, time_ns=START_NS) for one in job.pending],
        ),
    ):
        assert not hang.detect(msgspec.structs.replace(window, gpus=unread, jobs=[other]))


# Stalls ------------------------------------------------------------------------------------------


def stalled(seconds: float, *, ranks: int = 8, times: int = 1) -> JobWindow:
    """All, or some, ranks stay in a collective of the last phase for so much longer."""
    job = make_job()
    records = job.records
    entry, leave = records.entry_ns.copy(), records.exit_ns.copy()
    for number in range(times):
        step = 20 + 3 * number
        between = (records.communicator >= 4) & (records.sequence == step)
        held = between & (records.pid < ranks)
        after = (leave > leave[between].min()) & ~between & (entry > leave[between].min())
        more = int(seconds * NS)
        leave = np.where(held | after, leave + more, leave)
        entry = np.where(after, entry + more, entry)
    moved = msgspec.structs.replace(records, entry_ns=entry, exit_ns=leave)
    return msgspec.structs.replace(job, records=moved, operations=split(moved))


def test_a_collective_that_all_stand_in_for_seconds_is_a_stall_without_a_culprit() -> None:
    (finding,) = stall.detect(make_window(stalled(8.0), is_live=False))
    assert (finding.cause, finding.culprit) == (Cause.STALL, Culprit(job="training"))
    assert finding.last_ns - finding.since_ns == pytest.approx(8 * NS, rel=0.01)
    assert finding.evidence[0].value == pytest.approx(8.0, rel=0.01)


def test_short_ones_habits_and_single_ranks_are_no_stalls() -> None:
    assert not stall.detect(make_window(stalled(1.0)))
    assert not stall.detect(make_window(stalled(8.0, times=5)))
    assert not stall.detect(make_window(stalled(8.0, ranks=1)))


def test_who_has_all_its_bytes_waits_in_the_next_collective_and_the_job_stands_all_the_same() -> (
    None
):
    """One rank of each host is held; the other leaves, and waits for it where the host meets."""
    job = make_job()
    records, more = job.records, 8 * NS
    between = (records.communicator >= 4) & (records.sequence == 20)
    held = between & np.isin(records.pid, [0, 3, 4, 7])
    ends = records.exit_ns[between].min()
    after = (records.exit_ns > ends) & ~between & (records.entry_ns > ends)
    free = ~np.isin(records.pid, [0, 3, 4, 7])
    waits = after & free & (records.communicator < 4) & (records.sequence == 21)
    moved = msgspec.structs.replace(
        records,
        entry_ns=np.where(after & ~waits, records.entry_ns + more, records.entry_ns),
        exit_ns=np.where(held | after, records.exit_ns + more, records.exit_ns),
    )
    stands = msgspec.structs.replace(job, records=moved, operations=split(moved))
    (finding,) = stall.detect(make_window(stands, is_live=False))
    assert (finding.cause, finding.culprit) == (Cause.STALL, Culprit(job="training"))
    labels = finding.evidence[0].labels
    assert (labels["sequence"], labels["communicator"]) == ("20", finding.communicators[0])
    # Where those who left wait nowhere, they were late, or a clock was set.
    assert not stall.detect(make_window(stalled(8.0, ranks=4)))


def in_slices(job: JobWindow, *slices: tuple[int, int]) -> JobWindow:
    """The job as it is read where it has too many records: those of some steps only."""
    times = [(job.steps[first].start_ns, job.steps[last].end_ns) for first, last in slices]
    exits = job.records.exit_ns
    inside = np.any([(exits >= begin) & (exits <= end) for begin, end in times], axis=0)
    return msgspec.structs.replace(job, records=job.records.select(inside), slices=times)


def test_a_stall_between_the_slices_that_were_read_is_seen_in_the_joined_operations() -> None:
    job = stalled(8.0)
    assert len(stall.detect(make_window(in_slices(job, (2, 10), (30, 39)), is_live=False))) == 1


def test_what_was_not_read_between_slices_is_no_pause() -> None:
    """Of a job that hangs: it stood for longer than ever, though records end and begin again."""
    job = make_job(steps=200)
    window = make_window(in_slices(job, (2, 12), (188, 199)), silent_ns=40 * NS, gpu_levels=SPIN)
    (finding,) = hang.detect(window)
    assert finding.evidence[0].baseline == pytest.approx(0.1, abs=0.1)
    assert not stall.detect(window)


def test_waiting_for_a_rank_is_no_stall() -> None:
    pause = np.zeros((40, 8))
    pause[20, 0] = 8000.0
    assert not stall.detect(make_window(make_job(extra_ms=pause)))


def test_odd_data_is_no_stall() -> None:
    job = make_job()
    empty: Records = job.records.select(slice(0))
    for records in (empty, job.records.select(slice(1))):
        odd = msgspec.structs.replace(job, records=records, operations=split(records), steps=())
        window = make_window(odd, silent_ns=60 * NS, gpu_levels=SPIN)
        assert not stall.detect(window)
        assert not hang.detect(window)
    nan = {name: (float("nan"), float("nan")) for name in SPIN}
    assert not hang.detect(hung(60.0, gpu_levels=nan))
