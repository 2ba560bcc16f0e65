"""What the scoreboard takes away: and nothing else."""

import numpy as np

from simulator.score.handicap import LOST_SHARE, Handicap, arriving, seen
from tests.worlds.small_fabric import SmallFabric, host

BODIES = [bytes([number]) for number in range(200)]


def test_a_share_of_batches_is_lost_and_the_same_ones_each_time() -> None:
    kept = arriving(BODIES, Handicap.LOST, np.random.default_rng(1))
    assert kept == arriving(BODIES, Handicap.LOST, np.random.default_rng(1))
    assert abs(1 - len(kept) / len(BODIES) - LOST_SHARE) < 0.1
    assert arriving(BODIES, Handicap.NO_NCCL, np.random.default_rng(1)) == BODIES


def test_without_the_fabric_ports_are_there_and_say_nothing() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", host(1), 5.0)
    window = fabric.window()
    blind = seen(window, Handicap.NO_FABRIC)
    assert len(blind.ports) == len(window.ports)
    assert blind.ports.readings == {}
    assert [job.paths for job in blind.jobs] == [None]
    assert [job.job for job in blind.jobs] == [job.job for job in window.jobs]


def test_without_nccl_no_job_is_known() -> None:
    window = SmallFabric().window()
    assert seen(window, Handicap.NO_NCCL).jobs == ()
    assert seen(window, Handicap.NO_NCCL).ports is window.ports


def test_nothing_is_taken_away_without_a_handicap() -> None:
    window = SmallFabric().window()
    assert seen(window, Handicap.NONE) is window
