"""Pipelines: the slow rank or stage is named, and no stage that waits for it."""

import msgspec
import numpy as np
import pytest

from alerts.detectors.imbalance import detect as detect_imbalance
from alerts.detectors.slow_link import detect as detect_slow_link
from alerts.detectors.straggler import detect
from alerts.signals.gaps import common_of, own_time
from alerts.signals.pipelines import in_rings, message_edges, pipelines_of
from alerts.signals.what_if import what_if
from alerts.window.messages import is_pairwise, partners
from alerts.window.model import JobWindow, Window
from collector.contract.collective import Collective, Operation
from collector.contract.records import ABSENT
from collector.contract.verdict import Reason
from tests.worlds.late_jobs import make_window
from tests.worlds.pipeline_jobs import COMPUTE_MS, MESSAGE_MS, Pipelines, Slow, to_job

STEPS = 30


def from_step(first: int, ranks: dict[int, float]) -> Slow:
    return lambda rank, step: ranks.get(rank, 0.0) if step >= first else 0.0


def captured(job: JobWindow) -> Window:
    return make_window(job, is_live=False)


def accused(job: JobWindow) -> list[int]:
    return sorted(finding.culprit.rank or 0 for finding in detect(captured(job)))


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 6])
def test_a_slow_rank_of_any_stage_is_named_and_no_stage_that_waits(rank: int) -> None:
    job = to_job(Pipelines(4, 2).play(STEPS, from_step(12, {rank: 3.0})))
    assert accused(job) == [rank]


@pytest.mark.parametrize("rank", [0, 3, 5])
def test_a_rank_without_a_copy_is_held_against_its_own_past(rank: int) -> None:
    job = to_job(Pipelines(6, 1).play(STEPS, from_step(12, {rank: 6.0})))
    (finding,) = detect(captured(job))
    assert finding.culprit.rank == rank
    assert "usually" in finding.evidence[0].text


@pytest.mark.parametrize("every", [1, 2, 7])
@pytest.mark.parametrize("column", ["entry_ns", "exit_ns"])
def test_messages_without_a_time_do_not_break_the_search_for_their_ends(
    every: int, column: str
) -> None:
    job = to_job(Pipelines(4, 2).play(STEPS))
    whole = partners(job.records)
    times = getattr(job.records, column).copy()
    times[::every] = ABSENT
    assert (partners(msgspec.structs.replace(job.records, **{column: times})) == whole).all()


class ContextParallel(Pipelines):
    """Four ranks pass blocks of keys and values round a ring, twice a step; eight reduce."""

    def __init__(self, *, in_pairs: bool, seed: int = 1) -> None:
        super().__init__(4, 2, seed=seed)
        self.in_pairs = in_pairs

    def play(self, steps: int, slow: Slow = lambda *_: 0.0) -> list[Collective]:
        for step in range(steps):
            for _ in range(2 * 3):
                for rank in range(self.ranks):
                    work = COMPUTE_MS * self.random.normal(1.0, 0.01) + slow(rank, step)
                    self.now[rank] += work
                for first in range(0, self.ranks, self.stages):
                    self._turn(first)
            self.reduce("gradients", list(range(self.ranks)))
        return self.records

    def _turn(self, first: int) -> None:
        """Each of a ring sends to the next and receives from the one before, at once."""
        entries = self.now[first : first + 4].copy()
        for place in range(4):
            source, target = first + place, first + (place + 1) % 4
            leave = max(entries[place], entries[(place + 1) % 4]) + MESSAGE_MS
            name = f"ring{first}"
            places, size = (place, (place + 1) % 4), 4
            if self.in_pairs:
                name = f"pair{min(source, target)}-{max(source, target)}"
                places, size = (int(source > target), int(target > source)), 2
            for rank, kind, own in ((source, Operation.SEND, 0), (target, Operation.RECV, 1)):
                times = (entries[rank - first], leave)
                key = (name, f"{kind} {rank}")
                number = self.numbers[key] = self.numbers.get(key, 0) + 1
                self.record(name, kind, number, rank, (places[own], size), times, places[1 - own])
                self.now[rank] = max(self.now[rank], leave)


@pytest.mark.parametrize("in_pairs", [False, True])
@pytest.mark.parametrize("since", [0, 12])
def test_ranks_that_pass_blocks_round_a_ring_are_peers(*, in_pairs: bool, since: int) -> None:
    """Also where a rank is late from the beginning, which no past shows."""
    job = to_job(ContextParallel(in_pairs=in_pairs).play(STEPS, from_step(since, {5: 0.6})))
    assert message_edges(job).tolist() == []
    assert accused(job) == [5]


@pytest.mark.parametrize("seed", range(4))
def test_healthy_rings_of_blocks_accuse_no_rank(seed: int) -> None:
    assert accused(to_job(ContextParallel(in_pairs=False, seed=seed).play(STEPS))) == []


def test_a_ring_of_unequal_blocks_or_with_a_way_back_is_a_pipeline() -> None:
    """Stages that infer send the last one's tokens back to the first: a ring of unlike work."""
    ring = [(0, 1, 8e6), (1, 2, 8e6), (2, 3, 8e6), (3, 0, 8e6)]
    assert in_rings(ring) == {0, 1, 2, 3}
    assert in_rings([*ring[:3], (3, 0, 4e3)]) == set()
    assert in_rings([*ring, (1, 0, 8e6)]) == set()
    assert in_rings(ring[:3]) == set()
    assert in_rings([(0, 1, 8e6), (1, 0, 8e6)]) == set()
    assert in_rings([*ring, (5, 6, 8e6), (6, 5, 8e6)]) == {0, 1, 2, 3}


def test_two_slow_ranks_in_two_copies_are_both_named() -> None:
    job = to_job(Pipelines(4, 2).play(STEPS, from_step(12, {1: 4.0, 6: 4.0})))
    assert accused(job) == [1, 6]


@pytest.mark.parametrize("seed", range(5))
def test_healthy_pipelines_accuse_no_rank(seed: int) -> None:
    for stages, copies in ((4, 2), (2, 4), (6, 1)):
        job = to_job(Pipelines(stages, copies, seed=seed).play(STEPS))
        assert accused(job) == []
        assert detect_imbalance(captured(job)) == []


def test_a_stage_with_more_work_is_uneven_work_and_no_fault() -> None:
    """Both copies of the last stage take three times as long, always: nothing is broken."""
    heavy = dict.fromkeys((3, 7), 2 * COMPUTE_MS)
    job = to_job(Pipelines(4, 2).play(STEPS, from_step(0, heavy)))
    assert accused(job) == []
    (finding,) = detect_imbalance(captured(job))
    assert finding.reason is Reason.IMBALANCE
    assert not finding.is_context
    assert [finding.culprit.rank, *(one.rank for one in finding.accomplices)] == [3, 7]
    assert finding.cost is not None
    # In each of the two passes of a step all four micro-batches go through the slow stage.
    assert finding.cost.step_seconds is not None
    assert finding.cost.step_seconds_without is not None
    saved = finding.cost.step_seconds - finding.cost.step_seconds_without
    assert saved == pytest.approx(2 * 4 * 2 * COMPUTE_MS / 1000, rel=0.1)


def test_uneven_stages_of_a_running_job_wake_no_person() -> None:
    heavy = dict.fromkeys((3, 7), 2 * COMPUTE_MS)
    job = to_job(Pipelines(4, 2).play(STEPS, from_step(0, heavy)))
    assert [one.is_context for one in detect_imbalance(make_window(job))] == [True]


def test_stages_that_share_a_collective_are_no_peers() -> None:
    """The first stage always has twice the work: held against other stages it would be late."""
    job = to_job(Pipelines(4, 1).play(STEPS, from_step(0, {0: COMPUTE_MS})))
    assert accused(job) == []


def test_what_a_slow_rank_costs_follows_the_messages() -> None:
    job = to_job(Pipelines(4, 2).play(STEPS, from_step(12, {2: 3.0})))
    (finding,) = detect(captured(job))
    assert finding.cost is not None
    assert finding.cost.step_seconds is not None
    assert finding.cost.step_seconds_without is not None
    saved = finding.cost.step_seconds - finding.cost.step_seconds_without
    # Eight passes of 3 ms; the first of each direction fills the pipeline behind it as well.
    assert saved == pytest.approx(8 * 0.003, rel=0.15)


@pytest.mark.parametrize("rank", [0, 2, 5])
def test_a_slow_nic_that_only_messages_cross_is_named(rank: int) -> None:
    """Without a copy no collective but the world's small one crosses it."""
    world = Pipelines(6, 1)
    world.play(20)
    world.sends_ms = {rank: 1.5}
    job = to_job(world.play(20))
    (finding,) = detect_slow_link(captured(job))
    assert {finding.culprit.host, finding.suspects[0].culprit.host} == {f"node{rank}"}
    assert accused(job) == []


def test_messages_as_fast_as_ever_make_no_slow_link() -> None:
    for seed in range(5):
        assert detect_slow_link(captured(to_job(Pipelines(6, 1, seed=seed).play(STEPS)))) == []


def test_lost_messages_accuse_no_rank() -> None:
    records = Pipelines(4, 2).play(STEPS, from_step(12, {2: 3.0}))
    rare = np.random.default_rng(1).random(len(records)) < 0.3
    kept = [one for one, lost in zip(records, rare, strict=True) if not lost or not is_message(one)]
    assert set(accused(to_job(kept))) <= {2}


def is_message(one: Collective) -> bool:
    return one.operation in (Operation.SEND, Operation.RECV)


def test_what_all_stages_of_a_copy_share_is_not_their_own() -> None:
    beyond = np.array([[70.0], [75.0], [150.0], [72.0], [0.0], [-3.0], [np.nan], [1.0]])
    pipeline = np.array([0, 0, 0, 0, 4, 4, 4, 4])
    common = common_of(beyond, pipeline)
    assert common[:4, 0].tolist() == [72.0] * 4
    assert common[4:, 0].tolist() == [0.0] * 4


def test_ends_of_messages_are_found_although_files_begin_later() -> None:
    records = Pipelines(4, 2).play(8)
    for drop in (0, 1, 3):
        messages = [one for one in records if is_message(one)]
        # Each process numbers what it sees: as profilers do.
        seen: dict[tuple[int, str], int] = {}
        kept = []
        for one in messages:
            if one.pid == 2 and seen.get((0, "dropped"), 0) < drop:
                seen[0, "dropped"] = seen.get((0, "dropped"), 0) + 1
                continue
            number = seen[one.pid, one.operation] = seen.get((one.pid, one.operation), 0) + 1
            kept.append((one, number))
        renumbered = [msgspec.structs.replace(one, sequence=number) for one, number in kept]
        columns = to_job(renumbered).records
        mate = partners(columns)
        found = np.flatnonzero(mate >= 0)
        assert len(found) >= is_pairwise(columns).sum() - 2 * drop
        assert (columns.exit_ns[found] == columns.exit_ns[mate[found]]).all()


def test_steps_played_unchanged_take_as_long_as_they_did() -> None:
    job = to_job(Pipelines(4, 2).play(STEPS))
    own = own_time(job)
    assert own is not None
    played = what_if(own, np.ones(own.outside_ns.shape), slice(5, 25))
    assert played is not None
    measured = (own.end_ns[24] - own.start_ns[5]) / 1e9
    assert played.seconds.sum() == pytest.approx(measured, rel=0.02)
    assert played.saved_share == 0.0


def test_an_all_to_all_by_messages_is_no_pipeline() -> None:
    job = to_job(all_to_all(ranks=4, steps=6))
    assert message_edges(job).tolist() == []
    assert pipelines_of(message_edges(job), np.arange(4)).tolist() == [-1] * 4


def all_to_all(ranks: int, steps: int) -> list[Collective]:
    world = Pipelines(ranks, 1)
    for _ in range(steps):
        for source in range(ranks):
            for target in range(ranks):
                if source != target:
                    for rank, peer, kind in (
                        (source, target, Operation.SEND),
                        (target, source, Operation.RECV),
                    ):
                        times = (float(world.now[rank]), float(world.now[rank]) + 1.0)
                        world.record(
                            "experts", kind, len(world.records), rank, (rank, ranks), times, peer
                        )
                        world.now[rank] += 1.0
        world.reduce("world", list(range(ranks)))
    return world.records
