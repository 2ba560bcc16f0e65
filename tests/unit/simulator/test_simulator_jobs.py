"""Jobs: layout, the step program, lateness, pauses, hangs, driven by a network of fixed speeds."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from collector.contract.collective import Operation, State
from collector.contract.errors import SettingsError
from simulator.jobs.job import HUNG_AFTER_SECONDS, Job
from simulator.jobs.layout import lay_out
from simulator.jobs.model import JobSpec, Phase
from simulator.snapshot import CollectiveBlock, StepBlock
from simulator.topology.build import build
from simulator.topology.model import Floats, Topology
from simulator.topology.spec import ClusterSpec
from simulator.topology.world import World

LINE_BPS = 400e9
SEEN_LATE = 3e-4
"""Callbacks are late by 15 microseconds in the mean; one in a hundred million by this much."""
QUIET = JobSpec(
    name="llama",
    hosts=tuple(range(8)),
    tensor=8,
    gradient_bytes=1 << 30,
    compute_seconds=0.4,
    hiccup_every_steps=0.0,
    startup_seconds=1.0,
)


NOT_ENDED: Floats = np.array([math.inf])
"""When the units of a phase that goes on have ended."""
LONG_AFTER_S = 1e6
"""When whatever was planned is over."""


def cluster(hosts: int = 8, gpus: int = 8) -> Topology:
    return build(ClusterSpec(hosts=hosts, gpus_per_host=gpus, nics_per_host=gpus))


class Bench:
    """A job with the smallest engine there can be: every flow has line rate, or its NIC's."""

    def __init__(self, spec: JobSpec = QUIET, topology: Topology | None = None) -> None:
        topology = topology or cluster(max(spec.hosts) + 1)
        self.world = World(topology, np.random.default_rng(1))
        self.job = Job(spec, topology, np.random.default_rng(2))
        self.nic_bps: Floats = np.full(topology.nics, LINE_BPS)
        self._waiting: Phase | None = None

    def run(self, steps: int) -> tuple[list[CollectiveBlock], list[StepBlock]]:
        """This many steps more, all phases to their end."""
        until = self.job.status(0.0).step + steps
        while (phase := self.next_phase()) is not None:
            # A step is over when the first phase of the next one is asked for.
            if self.job.status(0.0).step >= until:
                self._waiting = phase
                break
            self.end(phase)
        return self.job.drain(math.inf)

    def next_phase(self) -> Phase | None:
        """The one that waits after `run`, or a new one."""
        phase, self._waiting = self._waiting, None
        return phase or self.job.next_phase(self.world)

    def end(self, phase: Phase) -> Floats:
        pattern = phase.pattern
        nic_bps = self.nic_bps
        bps = np.minimum(nic_bps[pattern.flow_source], nic_bps[pattern.flow_target])
        seconds = pattern.floor_seconds.copy()
        np.maximum.at(seconds, pattern.flow_unit, pattern.flow_bytes * 8 / bps)
        end: Floats = phase.start_s + seconds
        self.job.finish(phase, end, bps, self.world)
        return end


def reductions(blocks: list[CollectiveBlock], ranks: int = 8) -> list[CollectiveBlock]:
    """Gradient buckets: all-reduces over data-parallel groups of this size."""
    wanted = (Operation.ALL_REDUCE, (8, ranks))
    return [block for block in blocks if (block.operation, block.members.shape) == wanted]


def buckets(blocks: list[CollectiveBlock], number: int, every: int = 5) -> list[CollectiveBlock]:
    """Of each step the bucket of this number: after them comes a small one for the loss.

    Data groups are on other ranks than tensor's.
    """
    return [
        block
        for block in reductions(blocks)
        if block.members[0, 1] != 1 and block.sequence % every == number
    ]


def transfer(block: CollectiveBlock) -> Floats:
    """As a detector computes it: last exit minus last entry, for each unit."""
    seconds: Floats = block.exit_s.max(axis=1) - block.entry_s.max(axis=1)
    return seconds


# Layout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "pipeline", "expert", "data"), [(8, 1, 1, 8), (4, 2, 4, 8), (1, 4, 2, 16)]
)
def test_ranks_are_laid_out_tensor_first_then_data_then_pipeline(
    tensor: int, pipeline: int, expert: int, data: int
) -> None:
    spec = replace(QUIET, tensor=tensor, pipeline=pipeline, expert=expert)
    layout = lay_out(spec, cluster())
    assert layout.data == data
    assert (layout.rank_gpu == np.arange(64)).all()
    assert (layout.rank_host == np.arange(64) // 8).all()
    groups = layout.groups
    assert groups["data"].shape == (tensor * pipeline, data)
    assert groups["data"][0].tolist() == [copy * tensor for copy in range(data)]
    if tensor > 1:
        assert groups["tensor"][1].tolist() == list(range(tensor, 2 * tensor))
    if pipeline > 1:
        assert groups["pipeline"].shape == (64 - 64 // pipeline, 2)
        assert (np.diff(groups["pipeline"]) == 64 // pipeline).all()
    if expert > 1:
        assert groups["expert"][0].tolist() == groups["data"][0][:expert].tolist()
    assert ("expert" in groups) == (expert > 1)
    for kind, members in groups.items():
        if kind != "pipeline":
            assert sorted(members.reshape(-1).tolist()) == list(range(64))


def test_communicator_hashes_are_the_inspectors_and_nobody_shares_one() -> None:
    layout = lay_out(replace(QUIET, tensor=2, pipeline=2, expert=4), cluster())
    hashes = [one for hashes in layout.hashes.values() for one in hashes]
    assert len(set(hashes)) == len(hashes) > 60
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in hashes)
    again = lay_out(replace(QUIET, tensor=2, pipeline=2, expert=4), cluster())
    assert again.hashes == layout.hashes


def test_gpus_use_the_nic_next_to_them() -> None:
    few = build(ClusterSpec(topology="single", hosts=4, gpus_per_host=8, nics_per_host=2))
    layout = lay_out(replace(QUIET, hosts=(1, 3)), few)
    assert layout.rank_nic.tolist() == [2] * 4 + [3] * 4 + [6] * 4 + [7] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"tensor": 3},
        {"expert": 3},
        {"hosts": ()},
        {"hosts": (0, 8)},
        {"hosts": (0, 0)},
        {"pipeline": 0},
        {"compute_seconds": 0.0},
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="job llama"):
        lay_out(replace(QUIET, **wrong), cluster())  # type: ignore[arg-type]


# The step program --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "shape"),
    [
        (200, {}),
        (20, {"tensor": 4, "pipeline": 4}),
        (5, {"tensor": 4, "pipeline": 4, "activation_bytes": 4 << 30}),
        (30, {"tensor": 1, "expert": 16, "is_sharded": True}),
        (30, {"tensor": 16, "gradient_bytes": 8 << 20}),
        (30, {"hosts": (3,)}),
        (30, {"hosts": (3,), "tensor": 2}),
    ],
)
def test_hundreds_of_steps_make_sense(count: int, shape: dict[str, int]) -> None:
    bench = Bench(replace(QUIET, **shape), cluster())  # type: ignore[arg-type]
    blocks, steps = bench.run(count)
    assert [block.step for block in steps] == list(range(count))
    for before, after in itertools.pairwise(steps):
        assert (after.start_s == before.end_s).all()
    for step in steps:
        moments = [moment for phase in step.phases.values() for moment in phase]
        assert (np.diff(np.stack(moments), axis=0) >= 0).all()
        assert (step.phases["data"][0] == step.start_s).all()
        assert (moments[-1] == step.end_s).all()
    seen: dict[tuple[str, Operation], list[tuple[int, Floats, Floats]]] = {}
    for block in blocks:
        assert block.state is State.COMPLETED
        assert (block.exit_s > block.entry_s).all()
        # No rank leaves before all have entered; observed times are late by microseconds.
        assert (block.exit_s.min(axis=1) > block.entry_s.max(axis=1) - SEEN_LATE).all()
        for one, entry, left in zip(block.communicators, block.entry_s, block.exit_s, strict=True):
            seen.setdefault((one, block.operation), []).append((block.sequence, entry, left))
    for records in seen.values():
        records.sort(key=lambda record: record[0])
        assert [number for number, _, _ in records] == list(range(len(records)))
        # A communicator does one thing after the other.
        for (_, _, left), (_, entry, _) in itertools.pairwise(records):
            assert (entry > left - SEEN_LATE).all()
    communicators = bench.job.status(0.0).communicators
    assert {one for one, _ in seen} <= set(communicators)
    per_rank = sum((block.members == 40 % bench.job.layout.ranks).sum() for block in blocks) / count
    assert 4 <= per_rank <= 30


def test_the_same_seed_makes_the_same_bytes_and_another_one_others() -> None:
    def trace(seed: int) -> bytes:
        bench = Bench(replace(QUIET, hiccup_every_steps=20.0, imbalance=0.1))
        bench.job = Job(bench.job.spec, bench.world.topology, np.random.default_rng(seed))
        blocks, steps = bench.run(5)
        return b"".join(block.entry_s.tobytes() + block.exit_s.tobytes() for block in blocks) + (
            b"".join(step.end_s.tobytes() for step in steps)
        )

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_gradients_are_reduced_while_backward_runs() -> None:
    blocks, steps = Bench().run(5)
    backward = steps[3].phases["backward"]
    first = next(block for block in buckets(blocks, 0) if block.sequence == 3 * 5)
    assert (first.exit_s.max() < backward[1]).all()
    # Only the last bucket is exposed: 3.8 ms at line rate, and waiting between ranks.
    waited = steps[3].phases["gradients"]
    assert np.median(waited[1] - waited[0]) < 0.015


def test_sharded_jobs_scatter_gradients_and_gather_parameters() -> None:
    blocks, steps = Bench(replace(QUIET, is_sharded=True)).run(3)
    operations = [block.operation for block in blocks]
    assert operations.count(Operation.REDUCE_SCATTER) == 3 * 4
    assert operations.count(Operation.ALL_GATHER) == 3 * 4
    assert "parameters" in steps[0].phases


def test_a_step_takes_what_its_parts_take() -> None:
    _, steps = Bench(replace(QUIET, jitter=0.0)).run(10)
    seconds = np.median(steps[-1].end_s - steps[-1].start_s)
    assert seconds == pytest.approx(0.4 + 0.0022 + 4 * 0.0004 + 0.0094, abs=0.004)


@pytest.mark.parametrize("microbatches", [2, 4, 16])
def test_a_pipeline_takes_as_long_as_its_bubble_says(microbatches: int) -> None:
    spec = replace(
        QUIET, tensor=4, pipeline=4, microbatches=microbatches, jitter=0.0, activation_bytes=1 << 20
    )
    _, steps = Bench(spec).run(4)
    # The first stage begins first and ends last.
    start, end = steps[-1].phases["data"][1][:16], steps[-1].phases["backward"][1][:16]
    bubble = (microbatches + 3) / microbatches
    assert end.max() - start.min() == pytest.approx(0.4 * 0.96 * bubble, rel=0.03)
    # The last stage begins when the first wave has come through, and is done first.
    forward = steps[-1].phases["forward"][1]
    assert forward[:16].max() < forward[16:32].min() < forward[48:].min()
    backward = steps[-1].phases["backward"][1]
    assert backward[:16].min() > backward[48:].max()


def test_a_job_ends_after_its_steps() -> None:
    bench = Bench(replace(QUIET, steps=3, start_s=2.0))
    blocks, steps = bench.run(10)
    assert len(steps) == 3
    assert min(block.entry_s.min() for block in blocks) > 3.0
    end = float(steps[-1].end_s.max())
    assert [bench.job.status(at).is_running for at in (1.9, 2.1, end - 0.01, end)] == [
        False,
        True,
        True,
        False,
    ]
    assert bench.job.next_phase(bench.world) is None


def test_pauses_come_when_they_are_due() -> None:
    spec = replace(
        QUIET,
        checkpoint_every_steps=4,
        checkpoint_seconds=8.0,
        evaluation_every_steps=3,
        evaluation_seconds=5.0,
    )
    blocks, steps = Bench(spec).run(8)
    assert [step.step for step in steps if "checkpoint" in step.phases] == [3, 7]
    assert [step.step for step in steps if "evaluation" in step.phases] == [2, 5]
    start, end = steps[3].phases["checkpoint"]
    assert end - start == pytest.approx(8.0, rel=0.04)
    inside = [
        block
        for block in blocks
        if (block.entry_s.max() > end.min() - 7) and block.entry_s.max() < end.min()
    ]
    assert not inside


# Lateness ----------------------------------------------------------------------------------------


def test_a_late_host_is_last_in_waits_least_and_the_transfer_does_not_change() -> None:
    bench = Bench()
    healthy, _ = bench.run(10)
    bench.world.host_loader_seconds[5] = 0.08
    late, steps = bench.run(10)
    for block in buckets(late, 0)[1:]:
        inside = block.exit_s - block.entry_s
        assert (block.entry_s.argmax(axis=1) == 5).all()
        assert (inside.argmin(axis=1) == 5).all()
        assert (np.delete(inside, 5, axis=1) > 0.05).all()
    before = np.median([transfer(block) for block in buckets(healthy, 0)])
    after = np.median([transfer(block) for block in buckets(late, 0)])
    assert after == pytest.approx(before, rel=0.03)
    data = steps[-1].phases["data"]
    assert (data[1] - data[0])[40:48] == pytest.approx(0.082, abs=0.006)


def test_lateness_travels_from_one_gpu_to_its_whole_host_and_every_group() -> None:
    bench = Bench()
    bench.run(2)
    bench.world.gpu_clock_share[3 * 8 + 2] = 0.7
    blocks, _ = bench.run(10)
    tensor = [block for block in reductions(blocks) if block.members[0, 1] == 1]
    # Only the tensor-parallel group identifies which of the eight it is.
    for block in tensor[8:]:
        entry = block.entry_s[3]
        if np.ptp(entry) > 0.005:
            assert entry.argmax() == 2
    # The data-parallel groups of all eight GPUs find host 3 last in.
    for block in buckets(blocks, 0)[2:]:
        assert (block.entry_s.argmax(axis=1) == 3).all()


def test_a_throttled_gpu_computes_longer_by_its_clock() -> None:
    spec = replace(QUIET, tensor=1, jitter=0.0)
    bench = Bench(spec)
    bench.world.gpu_clock_share[20] = 0.7
    _, steps = bench.run(3)
    forward = np.diff(np.stack(steps[-1].phases["forward"]), axis=0)[0]
    assert forward[20] / np.median(forward) == pytest.approx(0.05 + 0.95 / 0.7, rel=0.01)
    assert forward.argmax() == 20


def test_a_busy_host_is_slow_and_irregular() -> None:
    bench = Bench(replace(QUIET, tensor=1))
    bench.world.host_steal_share[2] = 0.5
    _, steps = bench.run(30)
    forward = np.stack([np.subtract(*reversed(step.phases["forward"])) for step in steps])
    mine, others = forward[:, 16:24], np.delete(forward, range(16, 24), axis=1)
    assert mine.mean() > 1.08 * others.mean()
    assert mine.std() > 3 * others.std()


def test_imbalance_hits_another_copy_at_every_step() -> None:
    blocks, _ = Bench(replace(QUIET, imbalance=0.1)).run(30)
    last = [int(block.entry_s[0].argmax()) for block in buckets(blocks, 0)]
    assert len(set(last)) >= 5
    skew = [np.ptp(block.entry_s, axis=1) for block in buckets(blocks, 0)]
    assert np.median(skew) > 0.05


def test_a_slow_nic_makes_a_ladder_and_its_neighbour_late_for_the_next_bucket() -> None:
    bench = Bench(replace(QUIET, tensor=8, jitter=0.0, buckets=2))
    bench.nic_bps[3 * 8 + 1] = LINE_BPS / 20
    blocks, _ = bench.run(6)
    step = 8 * (1 << 29) / 8 / (LINE_BPS / 20)
    for block in buckets(blocks, 0, every=3)[1:]:
        left = block.exit_s[1] - block.exit_s[1].min()
        assert left.argmin() == 2
        assert set(np.argsort(left)[-2:].tolist()) == {3, 4}
        assert left[[1, 0, 7, 6, 5]] == pytest.approx(np.arange(1, 6) * step, rel=0.1)
        assert (block.exit_s - block.entry_s)[1].argmin() == 2
        assert np.ptp(block.exit_s[0]) < 0.001
    for block in buckets(blocks, 1, every=3)[1:]:
        assert block.entry_s[1].argmax() in {3, 4}


# Hangs -------------------------------------------------------------------------------------------


def test_a_stopped_host_never_enters_until_it_runs_again() -> None:
    bench = Bench()
    bench.run(3)
    phase = bench.next_phase()
    assert phase is not None
    now = float(phase.entry_s.min()) - 0.01
    planned = phase.entry_s.copy()
    bench.world.host_process_is_stopped[6] = True
    bench.job.revise(phase, bench.world, now)
    assert np.isinf(phase.entry_s[:, 6]).all()
    assert np.isinf(phase.start_s).all()
    assert not phase.is_stuck.any()
    assert (np.delete(phase.entry_s, 6, axis=1) == np.delete(planned, 6, axis=1)).all()
    last = float(np.delete(planned, 6, axis=1).max())
    assert bench.job.status(last + HUNG_AFTER_SECONDS - 1).hung_since_s is None
    assert bench.job.status(last + HUNG_AFTER_SECONDS + 1).hung_since_s == pytest.approx(last)
    hanging = bench.job.pending(NOT_ENDED)[-1]
    assert hanging.state is State.STARTED
    assert np.isnan(hanging.entry_s[:, 6]).all()
    assert np.isnan(hanging.exit_s).all()
    assert 5 <= len(bench.job.pending(NOT_ENDED)) <= 12

    bench.world.host_process_is_stopped[6] = False
    bench.job.revise(phase, bench.world, now + 30)
    assert phase.entry_s[:, 6] == pytest.approx(planned[:, 6] + 30)
    bench.end(phase)
    blocks, steps = bench.run(3)
    assert bench.job.status(float(steps[-1].end_s.max())).hung_since_s is None
    # The time that host 6 lost is lost: its own backward ended that much later.
    assert steps[0].end_s.min() > now + 30
    backward = steps[0].phases["backward"][1]
    assert (backward[48:56] > now + 30).all()
    assert (np.delete(backward, range(48, 56)) < now + 1).all()
    assert max(step.step for step in steps) >= 4
    assert all(np.isfinite(block.exit_s).all() for block in blocks)


def test_who_has_entered_is_not_taken_back() -> None:
    bench = Bench()
    phase = bench.next_phase()
    assert phase is not None
    bench.world.host_process_is_stopped[:] = True
    now = float(np.median(phase.entry_s))
    had = phase.entry_s <= now
    planned = phase.entry_s.copy()
    bench.job.revise(phase, bench.world, now)
    assert (phase.entry_s[had] == planned[had]).all()
    assert np.isinf(phase.entry_s[~had]).all()


def test_a_host_that_is_down_when_the_phase_is_made_does_not_enter() -> None:
    bench = Bench()
    phase = bench.next_phase()
    assert phase is not None
    bench.end(phase)
    bench.world.host_is_down[1] = True
    phase = bench.next_phase()
    assert phase is not None
    assert (np.isinf(phase.entry_s).any(axis=0) == (np.arange(8) == 1)).all()


def test_a_dead_gpu_enters_and_its_unit_is_stuck() -> None:
    bench = Bench()
    phase = bench.next_phase()
    assert phase is not None
    bench.world.gpu_is_dead[2 * 8 + 5] = True
    bench.job.revise(phase, bench.world, float(phase.start_s.max()))
    assert np.isfinite(phase.entry_s).all()
    assert phase.is_stuck.tolist() == [unit == 5 for unit in range(8)]
    ends = np.where(phase.is_stuck, np.inf, phase.start_s + 0.01)
    *_, done, hanging = bench.job.pending(ends)
    assert (done.state, len(done.communicators)) == (State.COMPLETED, 7)
    assert (hanging.state, len(hanging.communicators)) == (State.STARTED, 1)
    assert np.isfinite(hanging.entry_s).all()

    now = float(phase.start_s.max()) + 30
    bench.world.gpu_is_dead[:] = False
    bench.job.revise(phase, bench.world, now)
    bench.job.revise(phase, bench.world, now + 0.001)
    assert phase.start_s[5] == now
    assert (np.delete(phase.start_s, 5) < now - 29).all()
    bench.end(phase)
    blocks, _ = bench.job.drain(math.inf)
    assert (buckets(blocks, 0)[0].exit_s[5] > now).all()
    assert np.ptp(buckets(blocks, 0)[0].exit_s[5]) < 0.01


def test_a_gpu_that_dies_between_turns_holds_everyone_up_and_lets_go_of_them() -> None:
    bench = Bench()
    dead = 4 * 8 + 1
    bench.run(2)
    for _ in range(4):
        phase = bench.next_phase()
        assert phase is not None
        bench.end(phase)
    bench.job.drain(math.inf)
    # All buckets are through: next comes the loss, which the ranks of this GPU's rail never get.
    bench.world.gpu_is_dead[dead] = True
    phase = bench.next_phase()
    assert phase is not None
    assert np.isinf(phase.start_s).all()
    first, *others = [
        block for block in bench.job.pending(NOT_ENDED) if block.state is State.STARTED
    ][:-1]
    assert first.members[0].tolist() == list(range(1, 64, 8))
    assert np.isfinite(first.entry_s).all()
    assert np.isnan(first.exit_s).all()
    # Their tensor-parallel neighbours wait for them in vain.
    assert [block.members.shape for block in others] == [(8, 8)]
    assert (np.isnan(others[0].entry_s) == (others[0].members % 8 == 1)).all()
    since = bench.job.status(1000.0).hung_since_s
    assert since is not None
    # A rank that waits in vain is inside a collective, and its GPU spins.
    bench.job.work_seconds(since + 1)
    _, communicating, _ = bench.job.work_seconds(since + 11)
    assert communicating == pytest.approx(np.full(64, 10.0))

    now = since + 20
    bench.world.gpu_is_dead[:] = False
    bench.job.revise(phase, bench.world, now)
    assert (phase.entry_s >= now).all()
    assert np.isfinite(phase.start_s).all()
    bench.end(phase)
    blocks, _ = bench.job.drain(math.inf)
    ended = [block for block in blocks if (block.exit_s >= now).all()]
    assert [block.communicators for block in ended[:2]] == [
        block.communicators for block in (first, *others)
    ]


# What others ask ---------------------------------------------------------------------------------


def test_records_are_handed_out_once_and_not_before_their_time() -> None:
    bench = Bench()
    phase = bench.next_phase()
    assert phase is not None
    now = float(phase.entry_s.min()) - 0.1
    early, _ = bench.job.drain(now)
    late, _ = bench.job.drain(math.inf)
    assert early
    assert late
    assert all(block.exit_s.max() <= now for block in early)
    assert all(block.exit_s.max() > now for block in late)
    assert bench.job.drain(math.inf) == ([], [])


def test_work_adds_up_to_the_time_that_passed() -> None:
    bench = Bench(replace(QUIET, tensor=1))
    _, steps = bench.run(20)
    begin, end = float(steps[2].start_s.max()), float(steps[-2].end_s.min())
    bench.job.work_seconds(begin)
    computed = bench.job.work_seconds((begin + end) / 2)[0] + bench.job.work_seconds(end)[0]
    assert computed / (end - begin) == pytest.approx(
        0.4 / np.median(steps[5].end_s - steps[5].start_s), rel=0.03
    )


def test_ranks_that_hang_in_a_collective_are_busy_there() -> None:
    bench = Bench()
    phase = bench.next_phase()
    assert phase is not None
    entered = float(phase.entry_s.max())
    bench.world.host_process_is_stopped[7] = True
    bench.job.revise(phase, bench.world, 0.0)
    bench.job.work_seconds(entered + 1)
    computed, communicated, moved = bench.job.work_seconds(entered + 3)
    assert communicated[:56] == pytest.approx(2.0)
    assert (communicated[56:] == 0).all()
    assert (computed[56:] == 0).all()
    assert (moved == 0).all()


def test_tensor_parallel_traffic_is_nvlinks() -> None:
    bench = Bench()
    bench.run(10)
    moved = bench.job.work_seconds(LONG_AFTER_S)[2]
    assert moved / 10 == pytest.approx(4 * 2 * 7 / 8 * (64 << 20), rel=0.2)
