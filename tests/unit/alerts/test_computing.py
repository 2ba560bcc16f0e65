"""Pipelines of which traces show what ranks compute: who is slow, and what was given."""

import msgspec
import numpy as np
import pytest

from alerts.detectors.imbalance import detect as detect_imbalance
from alerts.detectors.straggler import detect
from alerts.finding import Finding
from alerts.signals import what_if as what_if_module
from alerts.signals.computing import Busy, shared_factor, shows_waiting, with_waiting
from alerts.signals.ends import with_ends
from alerts.signals.gaps import own_time
from alerts.signals.guessed import apart
from alerts.signals.what_if import Played, cost_by_play, what_if
from alerts.window.columns import Computing
from alerts.window.messages import is_pairwise, partners
from alerts.window.model import JobWindow
from collector.contract.communicator import group_communicator
from collector.contract.verdict import Reason
from tests.worlds.late_jobs import make_window
from tests.worlds.pipeline_cases import Case, Fault, window_of
from tests.worlds.pipeline_play import Play, Shape

SHAPES = [
    Shape(stages=4, copies=2, steps=4),
    Shape(stages=2, copies=4, steps=3),
    Shape(stages=4, copies=2, steps=4, is_early=False),
]


def played(case: Case) -> JobWindow:
    return window_of(Play(case.shape, case.work(), seed=case.seed).run())


def found_in(job: JobWindow) -> list[Finding]:
    window = make_window(job, is_live=False)
    return [*detect(window), *detect_imbalance(window)]


def ranks_of(finding: Finding) -> list[int | None]:
    return [one.rank for one in (finding.culprit, *finding.accomplices)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_worker_that_is_slow_throughout_is_named_with_its_cost(shape: Shape, seed: int) -> None:
    case = Case(fault=Fault.SLOW_WORKER, shape=shape, seed=seed)
    (finding,) = found_in(played(case))
    assert ranks_of(finding) == case.accused()
    assert finding.reason is Reason.UNKNOWN
    healthy = Play(shape, seed=seed).run().bounds[0]
    assert finding.cost is not None
    without = finding.cost.step_seconds_without
    assert without == pytest.approx(np.median(np.diff([end for _, end in healthy])), rel=0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stage_with_more_work_is_uneven_work(shape: Shape) -> None:
    case = Case(fault=Fault.LAST_STAGE, shape=shape)
    (finding,) = found_in(played(case))
    assert ranks_of(finding) == case.accused()
    assert finding.reason is Reason.IMBALANCE
    assert not finding.is_context


def test_longer_sequences_of_some_copies_are_said_and_accuse_no_rank() -> None:
    case = Case(fault=Fault.SEQUENCES, shape=Shape(stages=2, copies=8, steps=4), seed=2)
    (finding,) = found_in(played(case))
    assert ranks_of(finding) == [None]
    assert finding.reason is Reason.IMBALANCE
    assert not finding.is_context
    assert finding.cost is not None
    assert finding.cost.lost_share > 0.05


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [*SHAPES, Shape(stages=4, copies=1)])
def test_healthy_pipelines_accuse_nobody(shape: Shape, seed: int) -> None:
    assert found_in(played(Case(fault=Fault.HEALTHY, shape=shape, seed=seed))) == []


@pytest.mark.parametrize("seed", range(3))
def test_uneven_sequences_accuse_nobody(seed: int) -> None:
    for shape in SHAPES:
        found = found_in(played(Case(fault=Fault.SEQUENCES, shape=shape, seed=seed)))
        assert [ranks_of(one) for one in found] in ([], [[None]])


def test_steps_are_played_as_long_as_they_took() -> None:
    job = played(Case(fault=Fault.SLOW_WORKER, shape=SHAPES[0]))
    own = own_time(job)
    assert own is not None
    again = what_if(own, np.ones(own.outside_ns.shape), slice(1, len(own.start_ns)))
    assert again is not None
    measured = (own.end_ns[-1] - own.start_ns[1]) / 1e9
    assert again.seconds.sum() == pytest.approx(measured, rel=0.01)


def test_both_ends_of_every_message_are_found_though_some_numbers_are_alike() -> None:
    records = played(Case(fault=Fault.HEALTHY, shape=SHAPES[0])).records
    assert (partners(records)[is_pairwise(records)] >= 0).all()


def test_what_a_rank_had_computed_until_a_time() -> None:
    stretches = Computing(
        rank=np.array([3, 3, 3, 7]),
        start_ns=np.array([100, 300, 350, 0]),
        end_ns=np.array([200, 400, 420, 10]),
    )
    busy = Busy(stretches, np.array([3, 5, 7]))
    assert busy.is_known.tolist() == [True, False, True]
    rank = np.zeros(5, dtype=np.int64)
    times = np.array([50, 150, 250, 380, 1000])
    assert busy.until(rank, times).tolist() == [0, 50, 100, 180, 220]
    assert busy.since(rank, times).tolist() == [0, 150, 200, 380, 420]


def test_messages_that_show_transfers_alone_get_their_waiting_back() -> None:
    job = played(Case(fault=Fault.HEALTHY, shape=SHAPES[0]))
    assert shows_waiting(job.records)
    records = job.records
    late = np.where(is_pairwise(records), records.exit_ns - 2_000_000, records.entry_ns)
    short = msgspec.structs.replace(records, entry_ns=np.maximum(late, records.entry_ns))
    assert not shows_waiting(short)
    own = own_time(msgspec.structs.replace(job, records=short))
    assert own is not None
    assert job.computing is not None
    # No rank's time of its own is more than it computed.
    computed = np.bincount(job.computing.rank, job.computing.end_ns - job.computing.start_ns)
    assert (np.nansum(own.outside_ns, axis=1) <= computed * 1.01).all()
    rows = own.rows
    assert rows.busy is not None
    assert with_waiting(records, rows.rank, rows.gap_ns, rows.busy) is records


def test_what_all_stages_of_a_copy_take_longer_is_what_they_were_given() -> None:
    own = np.array([[30.0], [66.0], [10.0], [20.0]])
    peers = np.array([[10.0], [20.0], [10.0], [20.0]])
    assert shared_factor(own, peers, np.array([0, 0, 2, 2]))[:, 0].tolist() == [3, 3, 1, 1]


@pytest.mark.parametrize("fault", [Fault.HEALTHY, Fault.SLOW_WORKER, Fault.SEQUENCES])
def test_ends_that_no_trace_names_are_those_of_messages_that_end_together(fault: Fault) -> None:
    for shape in SHAPES:
        records = played(Case(fault=fault, shape=shape)).records
        nameless = np.full(len(records), -1, dtype=np.int32)
        found = with_ends(msgspec.structs.replace(records, peer=nameless))
        assert found.peer.tolist() == records.peer.tolist()


def test_ends_are_not_guessed_where_all_write_to_all() -> None:
    records = played(Case(fault=Fault.HEALTHY, shape=Shape(stages=3, copies=1))).records
    messages = is_pairwise(records)
    kind = records.operations.index("recv")
    alike = msgspec.structs.replace(
        records,
        peer=np.full(len(records), -1, dtype=np.int32),
        operation=np.where(messages, kind, records.operation).astype(np.int32),
        operations=["send_recv" if name == "recv" else name for name in records.operations],
        exit_ns=np.where(messages, records.sequence * 10**9, records.exit_ns),
    )
    assert (with_ends(alike).peer == -1).all()


def test_groups_that_no_trace_names_are_those_that_leave_together() -> None:
    job = played(Case(fault=Fault.SLOW_WORKER, shape=SHAPES[0]))
    guess = group_communicator("stream8", range(8))
    names = [guess if name.startswith("stage") else name for name in job.records.communicators]
    known = sorted(set(names))
    codes = np.array([known.index(name) for name in names], dtype=np.int32)
    members = {
        (name if not name.startswith("stage") else guess, rank): number
        for name, one in job.communicators.items()
        for rank, number in one.job_rank.items()
    } | {(guess, rank): rank for rank in range(8)}
    rank = np.array(
        [
            job.communicators[job.records.communicators[code]].job_rank[int(own)]
            for code, own in zip(job.records.communicator, job.records.rank, strict=True)
        ],
        dtype=np.int32,
    )
    mixed = msgspec.structs.replace(
        job.records, communicators=known, communicator=codes[job.records.communicator], rank=rank
    )
    order = np.lexsort((mixed.rank, mixed.sequence, mixed.operation, mixed.communicator))
    records, found = apart(mixed.select(order), members)
    parts = [group_communicator("stream8", pair) for pair in ([0, 1], [2, 3], [4, 5], [6, 7])]
    assert sorted({name for name, _ in found}) == sorted(parts)
    assert set(parts) <= set(records.communicators)
    without = {one: number for one, number in members.items() if not one[0].startswith("message")}
    assert apart(mixed.select(order), without)[1] == {}


def test_a_step_and_the_share_of_the_time_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that save time typically, and lose it again in one, have lost nothing."""
    job = played(Case(fault=Fault.SLOW_WORKER, shape=SHAPES[0]))
    own = own_time(job)
    assert own is not None
    steps = slice(0, len(own.length_ns))
    seconds = np.full(11, 1.09)
    changed = np.append(np.full(10, 0.971), 1.09 + 10 * 0.119)
    made = Played(seconds=seconds, seconds_changed=changed)
    monkeypatch.setattr(what_if_module, "what_if", lambda *_: made)
    cost = cost_by_play(job, own, np.ones_like(own.excess_ns), steps)
    assert cost is not None
    assert cost.lost_share == pytest.approx(0.0, abs=1e-9)
    assert cost.step_seconds is not None
    assert cost.step_seconds_without == pytest.approx(cost.step_seconds)
