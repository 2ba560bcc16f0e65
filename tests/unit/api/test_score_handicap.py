"""What the scoreboard takes away: and nothing else."""

import numpy as np

from collector.contract.wire import decode_batch, encode_batch, pack_batch
from simulator.score.handicap import LATE_SECONDS_MAX, LOST_SHARE, Delivery, Handicap, seen
from tests.worlds.small_fabric import SmallFabric, host


def batch(agent: str, sequence: int) -> bytes:
    return encode_batch(
        pack_batch([], agent=agent, boot="b", sequence=sequence, sent_ms=0, common={})
    )


BODIES = [bytes([number]) for number in range(200)]


def test_a_share_of_batches_is_lost_and_the_same_ones_each_time() -> None:
    kept = Delivery(Handicap.LOST, np.random.default_rng(1)).take(BODIES, 0.0)
    assert kept == Delivery(Handicap.LOST, np.random.default_rng(1)).take(BODIES, 0.0)
    assert abs(1 - len(kept) / len(BODIES) - LOST_SHARE) < 0.1
    assert Delivery(Handicap.NO_NCCL, np.random.default_rng(1)).take(BODIES, 0.0) == BODIES


def test_late_batches_all_arrive_and_stay_in_order() -> None:
    delivery = Delivery(Handicap.LATE, np.random.default_rng(1))
    arrived: dict[str, list[int]] = {"a": [], "b": []}
    delays = []
    for now_s in range(0, 300, 5):
        sent = [] if now_s > 200 else [batch(agent, now_s) for agent in arrived]
        for body in delivery.take(sent, float(now_s)):
            got = decode_batch(body)
            arrived[got.agent].append(got.sequence)
            delays.append(now_s - got.sequence)
    assert arrived["a"] == arrived["b"] == list(range(0, 205, 5))
    assert 30 < max(delays) <= LATE_SECONDS_MAX + 5


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
