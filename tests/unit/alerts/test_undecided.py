"""Unsure verdicts: who else it may be, what would decide, and what a burst capture decides."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.detectors.slow_link import detect
from alerts.finding import Finding
from alerts.judge.verdict import judge
from alerts.judge.words import DECIDED_MIN
from alerts.signals.captured import even_one
from alerts.signals.peaks import PEAK
from alerts.window.model import Captured, Communicator, Grid, Readings, Window
from collector.contract.measurement import KINDS, MeasurementKind, undecided_lines
from collector.contract.ras import RasReport, ras_event
from collector.contract.units import NS, NS_PER_MS
from collector.contract.verdict import Cause, Culprit, Verdict
from tests.unit.alerts.test_verdict import JOB, found, leaf, nic
from tests.worlds.captured_rings import SLOW, capture_of, ring_counters
from tests.worlds.ring_jobs import START_NS, Group, make_job, make_window
from tests.worlds.small_fabric import SmallFabric

SENDER, RECEIVER, BESIDE = 2, 3, 6
ROWS = [SENDER, RECEIVER, BESIDE]
CAPTURE_NS = START_NS + 9 * NS
"""While the ring is slow."""


def tied_window() -> Window:
    """A ring of eight in which one direction became slow: two ends are suspected alike."""
    return make_window(make_job([Group(range(8), {SENDER: 0.02}, range(30, 60))]))


def with_capture(window: Window, captured: Captured) -> Window:
    return msgspec.structs.replace(window, captured=captured)


def one_verdict(window: Window) -> Verdict:
    (verdict,) = judge(window)
    return verdict


def slow_receiver() -> Captured:
    return capture_of(*ring_counters(8, 1.5, receives={RECEIVER: SLOW}), ROWS, CAPTURE_NS)


def slow_sender() -> Captured:
    return capture_of(*ring_counters(8, 1.5, sends={SENDER: SLOW}), ROWS, CAPTURE_NS)


# --- the words ------------------------------------------------------------------------------------


def test_two_ends_alike_are_named_with_the_capture_that_would_decide() -> None:
    verdict = one_verdict(tied_window())
    assert verdict.confidence < DECIDED_MIN
    asked = verdict.undecided
    assert asked is not None
    assert asked.kind is MeasurementKind.BURST_CAPTURE
    assert asked.is_served
    assert {one.culprit.host for one in asked.suspects} == {"node2", "node3"}
    assert [one.share for one in asked.suspects] == pytest.approx([0.5, 0.5], abs=0.05)
    *suspects, beside = asked.at
    assert {one.host for one in suspects} == {"node2", "node3"}
    assert beside.host not in {"node2", "node3"}
    assert "node2's NIC mlx5_0" in asked.text
    assert "node3's NIC mlx5_0" in asked.text
    assert beside.host in asked.text
    assert all("if bytes pass it evenly" in one.proof for one in asked.suspects)
    assert verdict.action.startswith("Change nothing yet: node")
    assert "drain" not in verdict.action.lower()
    assert len(undecided_lines(asked)) == 4


def test_a_sure_verdict_asks_for_nothing() -> None:
    slow = {SENDER: 0.02, RECEIVER: 0.02}
    verdict = one_verdict(make_window(make_job([Group(range(8), slow, range(30, 60))])))
    assert verdict.confidence >= DECIDED_MIN
    assert verdict.undecided is None
    assert not verdict.action.startswith("Change nothing")


def test_after_a_capture_that_decided_nothing_a_probe_would() -> None:
    verdict = one_verdict(with_capture(tied_window(), slow_sender()))
    assert verdict.undecided is not None
    assert verdict.undecided.kind is MeasurementKind.PROBE
    assert not verdict.undecided.is_served
    assert "ib_write_bw" in verdict.undecided.collect
    assert "By hand: `ib_write_bw`" in verdict.action


DUMP_COMMAND = 'echo dump > "${TORCH_NCCL_DEBUG_INFO_PIPE_FILE}RANK.pipe"'


def test_a_hang_without_a_culprit_asks_two_hosts_for_ras() -> None:
    window = SmallFabric().window()
    stuck = found(window, Cause.STALL, Culprit(job=JOB), job=JOB)
    (verdict,) = judge(window, [stuck])
    asked = verdict.undecided
    assert asked is not None
    assert asked.kind is MeasurementKind.RAS_STATUS
    assert asked.is_served
    assert [one.host for one in asked.at] == ["node2", "node3"]  # the first two ask by themselves
    assert DUMP_COMMAND in asked.otherwise
    suspected = found(window, Cause.STALL, Culprit(job=JOB, rank=2, host="node2"), job=JOB)
    (verdict,) = judge(window, [msgspec.structs.replace(suspected, strength=0.5)])
    assert verdict.undecided is not None
    assert "node2" not in {one.host for one in verdict.undecided.at}


def test_a_hang_without_a_culprit_asks_for_dumps_by_their_command_where_ras_was_heard() -> None:
    window = SmallFabric().window()
    (job,) = window.jobs
    alike = RasReport(size=job.size, launched={}, alike=job.size, answers=3)
    heard = [ras_event(name, alike, window.to_ns) for name in job.communicators]
    window = msgspec.structs.replace(window, events=[*window.events, *heard])
    stuck = found(window, Cause.STALL, Culprit(job=JOB), job=JOB)
    (verdict,) = judge(window, [stuck])
    asked = verdict.undecided
    assert asked is not None
    assert asked.kind is MeasurementKind.FLIGHT_RECORDER
    assert DUMP_COMMAND in asked.collect
    over = msgspec.structs.replace(stuck, until_ns=stuck.last_ns)
    (ended,) = judge(window, [over])
    assert ended.undecided is None


def test_a_late_rank_that_is_not_sure_asks_for_a_trace_of_it_and_of_a_peer() -> None:
    window = SmallFabric().window()
    late = found(window, Cause.STRAGGLER, Culprit(job=JOB, rank=1, host="node1"), job=JOB)
    (verdict,) = judge(window, [msgspec.structs.replace(late, strength=0.4)])
    asked = verdict.undecided
    assert asked is not None
    assert asked.kind is MeasurementKind.PROFILE
    assert asked.at[0].rank == 1
    assert len({one.host for one in asked.at}) == 2


def test_where_many_are_alike_none_of_them_is_listed() -> None:
    window = SmallFabric().window()
    alike = tuple((nic(number), 0.2) for number in range(5))
    unnamed = found(window, Cause.SLOW_LINK, Culprit(), job=JOB, strength=0.4, suspects=alike)
    (verdict,) = judge(window, [unnamed])
    assert verdict.undecided is not None
    assert verdict.undecided.suspects == ()
    assert "pairs of the job's hosts" in verdict.undecided.text
    assert "sampler" not in verdict.undecided.text


def test_over_trees_the_fast_sampler_would_decide_unless_it_was_read() -> None:
    tree = Communicator(name="0x00", ranks=2, job_rank={0: 0, 1: 1}, trees=[{0: None, 1: 0}])
    window = SmallFabric().window()
    jobs = [msgspec.structs.replace(window.jobs[0], communicators={"0x00": tree})]
    window = msgspec.structs.replace(window, jobs=jobs)
    unnamed = found(window, Cause.SLOW_LINK, Culprit(), job=JOB, strength=0.3)
    (verdict,) = judge(window, [unnamed])
    assert verdict.undecided is not None
    assert "source `bursts`" in verdict.undecided.text
    peak = Readings(metric=PEAK, row=np.array([0]), values=np.ones((1, window.ports.grid.cells)))
    ports = msgspec.structs.replace(window.ports, readings={**window.ports.readings, PEAK: peak})
    (verdict,) = judge(msgspec.structs.replace(window, ports=ports), [unnamed])
    assert verdict.undecided is not None
    assert "bursts" not in verdict.undecided.text


def test_both_ends_of_one_cable_are_one_suspect() -> None:
    window = SmallFabric().window()
    both = ((nic(1), 0.4), (leaf(1), 0.4), (nic(2), 0.2))
    slow = found(window, Cause.SLOW_LINK, nic(1), job=JOB, strength=0.4, suspects=both)
    (verdict,) = judge(window, [slow])
    assert verdict.undecided is not None
    assert [one.culprit.host for one in verdict.undecided.suspects] == ["node1", "node2"]


def test_every_kind_has_its_row_and_what_nothing_serves_says_how_to_collect_it() -> None:
    assert set(KINDS) == set(MeasurementKind)
    served = [kind for kind in KINDS if kind.facts.is_served]
    assert served == [MeasurementKind.BURST_CAPTURE, MeasurementKind.RAS_STATUS]
    assert not any(kind.facts.costs_job for kind in served)
    assert all(kind.facts.by_hand and kind.facts.decides for kind in KINDS)
    assert MeasurementKind.FLIGHT_RECORDER.facts.costs_job


# --- what a capture decides -----------------------------------------------------------------------


def one_finding(window: Window) -> Finding:
    (finding,) = detect(window)
    return finding


def test_a_receiver_that_takes_in_evenly_what_comes_in_bursts_is_named() -> None:
    before = one_verdict(tied_window())
    after = one_verdict(with_capture(tied_window(), slow_receiver()))
    assert before.confidence <= 0.6
    assert after.confidence >= 0.8
    assert after.culprit.host == "node3"
    assert after.undecided is None
    text = next(one.text for one in after.evidence if one.metric == "captured_rates")
    assert "node2 mlx5_0 port 1 sends in bursts" in text
    assert "node3 mlx5_0 port 1 takes in evenly" in text


def test_a_sender_that_is_as_even_as_its_receiver_is_not_told_from_it() -> None:
    """It may be slow, or held back at once: bytes are the same, and no end is accused more."""
    before = one_finding(tied_window())
    after = one_finding(with_capture(tied_window(), slow_sender()))
    assert after.suspects == before.suspects
    assert after.strength == before.strength


def test_the_nic_that_is_even_both_ways_is_named() -> None:
    out, into = ring_counters(8, 1.5, sends={SENDER: SLOW}, receives={SENDER: SLOW})
    captured = capture_of(out, into, ROWS, CAPTURE_NS)
    assert one_finding(with_capture(tied_window(), captured)).culprit.host == "node2"


def test_a_capture_overrules_no_ladder() -> None:
    slow = {SENDER - 1: 0.01, SENDER: 0.01}
    window = make_window(make_job([Group(range(8), slow, range(30, 60))]))
    assert one_finding(with_capture(window, slow_receiver())).culprit.host == "node2"


def test_without_a_yardstick_that_bursts_nothing_is_decided() -> None:
    """Cells that are longer than a chunk's way round the ring show no bursts at all."""
    out, into = ring_counters(8, 8.0, receives={RECEIVER: SLOW})
    alone = capture_of(out, into, [SENDER, RECEIVER], CAPTURE_NS)
    coarse = capture_of(out, into, ROWS, CAPTURE_NS, cell_ms=200)
    for captured in (alone, coarse):
        found_even = even_one(
            captured, [SENDER, RECEIVER], (SENDER, RECEIVER), CAPTURE_NS, CAPTURE_NS + 8 * NS
        )
        assert found_even is None


def test_a_capture_of_another_time_decides_nothing() -> None:
    early = msgspec.structs.replace(slow_receiver(), grid=Grid(START_NS, 2 * NS_PER_MS, 749))
    before = one_finding(tied_window())
    assert one_finding(with_capture(tied_window(), early)).suspects == before.suspects


@given(seed=st.integers(0, 1 << 30), cells=st.integers(20, 200))
def test_noise_that_is_alike_at_all_accuses_none(seed: int, cells: int) -> None:
    """Bursts at random times, the same law for every NIC."""
    random = np.random.default_rng(seed)
    rates = [np.where(random.random((3, cells)) < 0.2, 1e9, 1e6) for _ in range(2)]
    captured = Captured(
        grid=Grid(CAPTURE_NS, 2 * NS_PER_MS, cells), row=np.array(ROWS),
        transmit=rates[0], receive=rates[1],
    )  # fmt: skip
    even = even_one(
        captured, [SENDER, RECEIVER], (SENDER, RECEIVER), CAPTURE_NS, CAPTURE_NS + 2 * NS
    )
    assert even is None
