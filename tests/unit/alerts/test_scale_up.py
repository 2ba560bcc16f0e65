"""Slow among the GPUs of one host: the host, or its GPU, and never a NIC."""

from typing import Any

import msgspec
import numpy as np
import pytest

from alerts.detectors import detect_all
from alerts.detectors.scale_up import detect
from alerts.detectors.slow_link import detect as detect_slow_link
from alerts.judge.verdict import judge
from alerts.window.model import Gpus, Grid, JobWindow, Rank, Readings, Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Layer, Reason
from tests.worlds.ring_jobs import START_NS, Group, make_job, make_window

SLOW = range(30, 60)
HOSTS, GPUS = 4, 4
EDGE = {1: 0.01}
"""From the host's second GPU to its third."""
CELLS = 10


def on_hosts(ranks: int = HOSTS * GPUS, gpus: int = GPUS) -> dict[int, Rank]:
    return {
        rank: Rank(
            rank=rank, host=f"node{rank // gpus}", gpu=rank % gpus, devices=(f"mlx5_{rank % gpus}",)
        )
        for rank in range(ranks)
    }


def insides(*slow_hosts: int, slow: range = SLOW, edge: dict[int, float] = EDGE) -> JobWindow:
    """Four hosts of four GPUs; on each an all-reduce among its own."""
    groups = [
        Group(
            range(host * GPUS, (host + 1) * GPUS),
            edge if host in slow_hosts else None,
            slow if host in slow_hosts else range(0),
        )
        for host in range(HOSTS)
    ]
    return make_job(groups, ranks=on_hosts())


def with_errors(window: Window, reading: str, *rates: float) -> Window:
    """GPUs of node2 that count so many errors a second while it is slow."""
    table = np.zeros((len(rates), CELLS))
    table[:, 1:3] = np.array(rates)[:, None]
    rows = np.arange(len(rates), dtype=np.int64)
    gpus = Gpus(
        grid=Grid(START_NS, 5 * NS, CELLS),
        host=["node2"] * len(rates),
        gpu=list(range(len(rates))),
        readings={reading: Readings(metric=f"fabric_gpu_{reading}", row=rows, values=table)},
        seen_ns=np.zeros(len(rates), dtype=np.int64),
    )
    return msgspec.structs.replace(window, gpus=gpus)


def test_a_host_that_is_slow_inside_is_named_by_times_alone() -> None:
    window = make_window(insides(2))
    (found,) = detect(window)
    assert (found.cause, found.reason) == (Cause.STRAGGLER, Reason.SCALE_UP)
    assert found.culprit == Culprit(job="train", host="node2")
    assert found.communicators == ("0x02",)
    assert "3 other hosts" in found.evidence[0].text
    assert [out.what for out in found.ruled_out] == ["network"]
    (verdict,) = judge(window)
    assert (verdict.cause, verdict.reason) == (Cause.STRAGGLER, Reason.SCALE_UP)
    assert (verdict.culprit.host, verdict.culprit.device) == ("node2", "")
    assert verdict.layer is Layer.COMPUTE
    assert not detect_slow_link(window)


@pytest.mark.parametrize("reading", ["nvlink_replay_errors_total", "nvlink_recovery_errors_total"])
def test_errors_of_one_gpu_name_it(reading: str) -> None:
    (found,) = detect(with_errors(make_window(insides(2)), reading, 0.5, 4_000.0, 2.0, 0.0))
    assert found.culprit == Culprit(job="train", host="node2", gpu=1)
    assert "GPU 1 of node2" in found.evidence[1].text


def test_errors_that_all_gpus_of_the_host_count_name_none_of_them() -> None:
    window = with_errors(make_window(insides(2)), "nvlink_replay_errors_total", 90, 80, 85, 70)
    (found,) = detect(window)
    assert found.culprit == Culprit(job="train", host="node2")


def test_what_is_slow_on_many_hosts_is_the_programs() -> None:
    assert not detect(make_window(insides(1, 2)))
    assert not detect(make_window(insides(0, 1, 2, 3)))


def test_a_host_alone_is_accused_only_if_its_links_make_errors() -> None:
    job = make_job([Group(range(GPUS), EDGE, SLOW)], ranks={
        rank: msgspec.structs.replace(place, host="node2")
        for rank, place in on_hosts(GPUS).items()
    })  # fmt: skip
    window = make_window(job)
    assert not detect(window)
    (found,) = detect(with_errors(window, "nvlink_replay_errors_total", 0.0, 900.0, 1.0, 0.0))
    assert found.culprit.gpu == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"slow": range(30, 36)},  # for a second
        {"edge": {1: 0.0006}},  # a fifth slower: a clock, or a kernel beside it
        {"slow": range(60)},  # always, with nothing to compare
    ],
)
def test_what_is_not_clear_accuses_no_host(changed: dict[str, Any]) -> None:
    assert not detect(make_window(insides(2, **changed)))


def test_a_job_of_which_only_durations_are_known_accuses_no_host() -> None:
    assert not detect(make_window(msgspec.structs.replace(insides(2), is_estimate=True)))


def test_a_rank_that_was_not_read_accuses_no_host() -> None:
    job = insides(2)
    seen = job.operations.ranks_seen.copy()
    seen[:] = GPUS - 1
    job = msgspec.structs.replace(
        job, operations=msgspec.structs.replace(job.operations, ranks_seen=seen)
    )
    assert not detect(make_window(job))


# --- rings over several hosts --------------------------------------------------------------------


def ring(edge: int) -> JobWindow:
    """One ring over all hosts, GPU after GPU; one of its edges becomes slow."""
    return make_job([Group(range(HOSTS * GPUS), {edge: 0.02}, SLOW)], ranks=on_hosts())


@pytest.mark.parametrize("edge", [4, 5, 6])
def test_a_slow_edge_inside_a_host_is_no_nics(edge: int) -> None:
    window = make_window(ring(edge))
    (found,) = detect(window)
    assert (found.reason, found.culprit.host) == (Reason.SCALE_UP, "node1")
    assert not detect_slow_link(window)
    assert [one.culprit.host for one in judge(window)] == ["node1"]
    assert not any(one.culprit.device for one in judge(window))


@pytest.mark.parametrize("edge", [3, 7, 15])
def test_a_slow_edge_between_hosts_is_the_networks(edge: int) -> None:
    window = make_window(ring(edge))
    assert not detect(window)
    assert [one.cause for one in detect_slow_link(window)] == [Cause.SLOW_LINK]


def test_a_healthy_job_says_nothing() -> None:
    assert not detect_all(make_window(insides()))
    assert not detect(make_window())
