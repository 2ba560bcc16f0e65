"""The detector distinguishes two jobs that share a cable from a NIC that is slow by itself."""

import msgspec
import numpy as np
import pytest

from alerts.finding import Finding, Suspect
from alerts.judge.sharing import shared_cable
from alerts.judge.verdict import judge
from alerts.signals.transfer import TRANSFER
from alerts.window.columns import Operations, Step
from alerts.window.model import JobWindow, Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason
from tests.worlds.small_fabric import LINE, SmallFabric, host, leaf_port

ALONE_S = 0.4
"""What an operation takes on a cable of its own."""
UPLINK = Culprit(switch="leaf-0", switch_port="7")
NIC = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf-0", switch_port="4")
TICK_S = 0.002


def played(
    window: Window, between_s: tuple[float, float], *, slow_nic: float = 1.0
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Operations of two jobs with these pauses; while both send, each gets half of the cable.

    ``slow_nic`` is the rate that the first job's NIC keeps in the second half of the window.
    """
    seconds = (window.to_ns - window.from_ns) / NS
    left, begun = [0.0, 0.0], [0.0, 0.0]
    waits = [0.1, 0.1]
    done: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for tick in range(int(seconds / TICK_S)):
        now = tick * TICK_S
        sends = [left[job] > 0 for job in (0, 1)]
        for job in (0, 1):
            if not sends[job]:
                waits[job] -= TICK_S
                if waits[job] <= 0:
                    left[job], begun[job] = ALONE_S, now
                continue
            share = 0.5 if all(sends) else 1.0
            if job == 0 and now > seconds / 2:
                share = min(share, slow_nic)
            left[job] -= TICK_S * share
            if left[job] <= 0:
                done[job].append((begun[job], now))
                waits[job] = between_s[job]
    return done


def with_times(
    job: JobWindow, name: str, origin_ns: int, times: list[tuple[float, float]]
) -> JobWindow:
    """The job under this name, with operations that begin and end at these seconds."""
    entry, leave = (origin_ns + (np.array(times)[:, end] * NS).astype(np.int64) for end in (0, 1))
    count = len(times)
    zeros, ones = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    operations = Operations(
        communicators=["c"],
        operations=["all_reduce"],
        communicator=zeros.astype(np.int32),
        operation=zeros.astype(np.int32),
        sequence=np.arange(count),
        size_bytes=ones << 30,
        ranks=(ones * job.size).astype(np.int32),
        ranks_seen=(ones * job.size).astype(np.int32),
        first_entry_ns=entry,
        last_entry_ns=entry,
        first_exit_ns=leave,
        last_exit_ns=leave,
        last_in=zeros.astype(np.int32),
        least_inside=zeros.astype(np.int32),
        last_out=zeros.astype(np.int32),
        bus_bytes=np.full(count, 1e9),
    )
    return msgspec.structs.replace(job, job=name, operations=operations)


def two_jobs(
    between_s: tuple[float, float],
    *,
    slow_nic: float = 1.0,
    flows: float = 2.0,
    flows_beside: float = 0.0,
) -> Window:
    """Two rings over the same hosts, whose bytes take leaf-0's port 7.

    ``flows_beside`` is what each of its other ways to the spines carries.
    """
    fabric = SmallFabric()
    for number in range(8):
        fabric.carry(host(number), leaf_port(number), 0.3 * LINE / 8, slice(None))
    for port, end in (("5", ("spine-0", "1")), ("6", ("spine-0", "2")), ("8", ("spine-1", "2"))):
        fabric.carry(("leaf-0", port), end, flows_beside * 0.3 * LINE / 8, slice(None))
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), flows * 0.3 * LINE / 8, slice(None))
    window = fabric.window()
    (job,) = window.jobs
    times = played(window, between_s, slow_nic=slow_nic)
    jobs = [
        with_times(job, name, window.from_ns, own)
        for name, own in zip(("train", "other"), times, strict=True)
    ]
    return msgspec.structs.replace(window, jobs=jobs)


def symptom_of(window: Window, job: JobWindow, share: float = 0.5) -> Finding:
    """The finding from one job's times: node3's NIC is slow for the last share of the window."""
    since_ns = window.to_ns - round((window.to_ns - window.from_ns) * share)
    return Finding(
        detector="slow_link",
        cause=Cause.SLOW_LINK,
        culprit=NIC,
        strength=0.8,
        since_ns=since_ns,
        until_ns=None,
        last_ns=window.to_ns,
        job=job.job,
        communicators=("c",),
        suspects=(Suspect(culprit=NIC, share=0.8),),
    )


MEETING = (0.71, 0.67)
"""Pauses of nearly the same length: the jobs send together for a long time, then apart."""


def test_bytes_of_two_jobs_that_meet_are_congestion_where_they_meet() -> None:
    window = two_jobs(MEETING)
    for job, other in ((window.jobs[0], "other"), (window.jobs[1], "train")):
        found = shared_cable(window, job, symptom_of(window, job, 1.0))
        assert found is not None
        assert (found.cause, found.reason) == (Cause.CONGESTION, Reason.ROUTING)
        assert found.culprit == UPLINK
        assert found.strength > 0.8
        (times,) = [one for one in found.evidence if one.metric == "shared_cable"]
        assert times.labels == {"job": job.job, "other": other}
        assert times.baseline == pytest.approx(ALONE_S, rel=0.1)


def test_both_jobs_that_suffer_are_one_verdict() -> None:
    window = two_jobs(MEETING)
    symptoms = [symptom_of(window, job, 1.0) for job in window.jobs]
    (verdict,) = judge(window, symptoms)
    assert (verdict.cause, verdict.culprit) == (Cause.CONGESTION, UPLINK)
    assert set(verdict.jobs) == {"train", "other"}
    assert NIC.host in [victim.host for victim in verdict.victims]


def test_no_hash_is_blamed_where_all_ways_are_as_full() -> None:
    window = two_jobs(MEETING, flows_beside=2.0)
    found = shared_cable(window, window.jobs[0], symptom_of(window, window.jobs[0], 1.0))
    assert found is not None
    assert (found.cause, found.reason) == (Cause.CONGESTION, Reason.NEIGHBOUR)


@pytest.mark.parametrize(("lost_share", "verdicts"), [(0.0, 0), (0.009, 0), (0.05, 1)])
def test_jobs_that_meet_behind_their_computing_are_no_trouble(
    lost_share: float, verdicts: int
) -> None:
    window = two_jobs(MEETING)
    cost = Cost(
        job="train",
        lost_seconds=60 * lost_share,
        step_seconds=1.0,
        step_seconds_without=1.0 - lost_share,
        lost_share=lost_share,
        gpu_hours=lost_share,
    )
    symptom = msgspec.structs.replace(symptom_of(window, window.jobs[0], 1.0), cost=cost)
    assert len(judge(window, [symptom])) == verdicts


@pytest.mark.parametrize("slow_nic", [0.6, 0.5, 0.25])
@pytest.mark.parametrize("between_s", [(0.71, 1.1), (0.71, 0.67), (0.5, 0.9), (0.9, 0.67)])
def test_a_nic_that_is_slow_whoever_sends_is_not_excused_by_a_shared_cable(
    between_s: tuple[float, float], slow_nic: float
) -> None:
    window = two_jobs(between_s, slow_nic=slow_nic)
    assert shared_cable(window, window.jobs[0], symptom_of(window, window.jobs[0])) is None


def test_a_cable_that_carries_one_flow_is_not_shared() -> None:
    window = two_jobs(MEETING, flows=1.0)
    assert shared_cable(window, window.jobs[0], symptom_of(window, window.jobs[0], 1.0)) is None


def test_a_job_alone_shares_with_nobody() -> None:
    window = two_jobs(MEETING)
    alone = msgspec.structs.replace(window, jobs=window.jobs[:1])
    assert shared_cable(alone, alone.jobs[0], symptom_of(alone, alone.jobs[0], 1.0)) is None


def test_ways_that_are_not_known_accuse_no_cable() -> None:
    window = two_jobs(MEETING)
    job = msgspec.structs.replace(window.jobs[0], paths=None)
    assert shared_cable(window, job, symptom_of(window, job, 1.0)) is None


# Steady bytes of no job --------------------------------------------------------------------------


LEAF = Culprit(switch="leaf-0")


def steps_between(from_ns: int, to_ns: int, seconds: float) -> list[Step]:
    """Steps of this length, of which half a second is computing."""
    starts = np.arange(from_ns, to_ns, round(seconds * NS)).tolist()
    return [
        Step(
            number=number, start_ns=start, end_ns=start + round(seconds * NS), ranks=6,
            compute_ns=NS // 2, wait_ns=0, transfer_ns=0, last_rank=None,
        )
        for number, start in enumerate(starts)
    ]  # fmt: skip


def beside_steady_bytes(
    more: float,
    *,
    ratio: float = 1.25,
    step_seconds: float = 1.2,
    accused: Culprit = LEAF,
    surely: bool = False,
) -> tuple[Window, Finding]:
    """A ring whose transfers through leaf-0 take longer since the middle of the window.

    Since then leaf-0's port 7 carries ``more`` of its line; ``surely``: all of the ring's bytes go
    by it.
    """
    fabric = SmallFabric()
    for port, end in (("5", ("spine-0", "1")), ("6", ("spine-0", "2")), ("8", ("spine-1", "2"))):
        fabric.carry(("leaf-0", port), end, 0.1 * LINE / 8, slice(None))
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), 0.1 * LINE / 8, slice(None))
    middle = fabric.grid.cells // 2
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), (0.1 + more) * LINE / 8, slice(middle, None))
    window = fabric.window()
    (job,) = window.jobs
    half_ns = window.from_ns + (window.to_ns - window.from_ns) // 2
    job = msgspec.structs.replace(
        job,
        steps=[
            *steps_between(window.from_ns, half_ns, 1.0),
            *steps_between(half_ns, window.to_ns + 5 * NS, step_seconds),
        ],
    )
    window = msgspec.structs.replace(window, jobs=[job])
    if surely and job.paths is not None:
        row = window.ports.row_of["leaf-0", "leaf-0", "7"]
        share = np.where(job.paths.port == row, 1.0, job.paths.share)
        paths = msgspec.structs.replace(job.paths, share=share)
        job = msgspec.structs.replace(job, paths=paths)
        window = msgspec.structs.replace(window, jobs=[job])
    symptom = msgspec.structs.replace(
        symptom_of(window, job, 0.5),
        culprit=accused,
        suspects=(Suspect(culprit=accused, share=0.6),),
        evidence=(
            Evidence(metric=TRANSFER, text="", value=0.1 * ratio, baseline=0.1, unit="seconds"),
        ),
        cost=Cost(
            job="ring",
            lost_seconds=60.0 * (1.0 - 1.0 / step_seconds),
            step_seconds=step_seconds,
            step_seconds_without=1.0,
            lost_share=1.0 - 1.0 / step_seconds,
            gpu_hours=1.0,
        ),
    )
    return window, symptom


@pytest.mark.parametrize(
    ("more", "ratio", "accuses"),
    [
        (0.1, 1.16, False),  # as a checkpoint of another job's host did to leaf-0
        (0.2, 1.25, False),
        (0.05, 1.25, True),  # a quarter of what the ring lost
        (0.2, 3.0, True),
        (0.0, 1.25, True),
    ],
)
def test_a_switch_is_not_slow_for_what_bytes_of_others_take(
    more: float, ratio: float, *, accuses: bool
) -> None:
    window, symptom = beside_steady_bytes(more, ratio=ratio)
    (verdict,) = judge(window, [symptom])
    assert (verdict.culprit.switch == "leaf-0") is accuses
    if not accuses:
        assert (verdict.cause, verdict.reason) == (Cause.CONGESTION, Reason.NEIGHBOUR)
        assert verdict.culprit == Culprit()
        assert LEAF in verdict.victims
        assert verdict.undecided is not None
        assert verdict.undecided.suspects == ()
        assert any("leaf-0 port 7 carries" in one.text for one in verdict.evidence)


def test_where_a_job_hardly_loses_by_it_nothing_is_said() -> None:
    """Two rings were 1.16 times as long for what another job's host loaded, and no step was."""
    window, symptom = beside_steady_bytes(0.2, step_seconds=1.02)
    assert judge(window, [symptom]) == []


def test_the_port_is_named_where_all_bytes_go_by_it() -> None:
    window, symptom = beside_steady_bytes(0.2, surely=True)
    (verdict,) = judge(window, [symptom])
    assert (verdict.cause, verdict.culprit) == (Cause.CONGESTION, UPLINK)


def test_a_nic_is_not_excused_by_what_may_pass_beside_its_bytes() -> None:
    window, symptom = beside_steady_bytes(0.2, accused=NIC)
    (verdict,) = judge(window, [symptom])
    assert (verdict.cause, verdict.culprit.host) == (Cause.SLOW_LINK, NIC.host)
