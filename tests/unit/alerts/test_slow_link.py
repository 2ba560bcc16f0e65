"""What a job's own times accuse when its transfers are slow, and when they accuse nothing."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from alerts.detectors.slow_link import detect
from alerts.finding import Finding, Suspect
from alerts.judge.incident import OPEN_CONFIDENCE
from alerts.judge.verdict import judge
from alerts.signals.edges import stands_out
from alerts.window.columns import Operations, Records, Step
from alerts.window.model import Grid, Hosts, JobWindow, Past, Paths, Readings, Window
from alerts.window.split import split
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.ring_jobs import (
    SIZE_BYTES,
    START_NS,
    STEP_SECONDS,
    Group,
    make_job,
    make_ports,
    make_window,
)

SLOW = range(30, 60)
NIC = {2: 0.01, 3: 0.01}
"""Both edges of member 3: into it and out of it."""


def one_finding(window: Window) -> Finding:
    (found,) = detect(window)
    return found


def test_a_slow_nic_is_named_with_when_and_its_victims() -> None:
    found = one_finding(make_window(make_job([Group(range(8), NIC, SLOW)])))
    assert found.cause is Cause.SLOW_LINK
    assert (found.culprit.host, found.culprit.device) == ("node3", "mlx5_0")
    assert found.job == "train"
    assert found.communicators == ("0x00",)
    assert abs(found.since_ns - START_NS - SLOW.start * STEP_SECONDS * NS) < 0.01 * NS
    assert [victim.rank for victim in found.victims] == [0, 1, 2, 4, 5, 6, 7]
    assert {one.metric for one in found.evidence} == {"collective_transfer", "exit_ladder"}
    assert found.cost is not None
    assert found.cost.lost_seconds == pytest.approx(30 * 14 * 0.0095, rel=0.1)
    assert found.strength > 0.6


def steps_of(
    lengths: Sequence[float], *, start: float = 0.0, outside: Sequence[float] = ()
) -> list[Step]:
    """Steps of these lengths in seconds, one after the other; ``outside`` of it by computing."""
    edges = START_NS + (np.cumsum([start, *lengths]) * NS).astype(np.int64)
    return [
        Step(
            number=number, start_ns=begin, end_ns=end, ranks=8,
            compute_ns=round(outside[number] * NS) if outside else 0,
            wait_ns=0, transfer_ns=0, last_rank=None,
        )
        for number, (begin, end) in enumerate(pairwise(edges.tolist()))
    ]  # fmt: skip


def test_the_cost_is_by_steps_and_what_is_usual_by_those_beside_it() -> None:
    """Half a minute before, another fault made steps longer: that is not what is usual."""
    lengths = [0.3] * 80 + [0.2] * 20 + [0.25] * 24
    steps = steps_of(lengths, start=-22.0)  # the last 24 are the slow time: from 6 s to 12 s
    found = one_finding(make_window(make_job([Group(range(8), NIC, SLOW)], steps=steps)))
    assert found.cost is not None
    assert found.cost.step_seconds == pytest.approx(0.25)
    assert found.cost.step_seconds_without == pytest.approx(0.2)
    assert found.cost.lost_seconds == pytest.approx(24 * 0.05, rel=0.1)


def test_of_a_time_that_was_read_in_slices_all_is_counted_and_no_step_that_was_cut_off() -> None:
    """The demo showed "3.6 % of the time" beside steps of 1.12 s instead of 938 ms."""
    slices = [(2.0, 3.7), (6.5, 8.25), (10.1, 11.6)]
    steps = [
        *steps_of([0.1, *[0.2] * 7, 0.2], start=2.0),
        *steps_of([0.01, *[0.25] * 6, 0.01], start=6.5),
        *steps_of([0.0, *[0.25] * 6], start=10.1),
    ]
    job = make_job(
        [Group(range(8), NIC, SLOW)],
        steps=steps,
        slices=[tuple(START_NS + round(one * NS) for one in each) for each in slices],
    )
    found = one_finding(make_window(job))
    assert found.cost is not None
    assert (found.cost.step_seconds, found.cost.step_seconds_without) == pytest.approx((0.25, 0.2))
    lasted = (found.last_ns - found.since_ns) / NS
    assert found.cost.lost_share == pytest.approx(0.2, rel=0.05)
    assert found.cost.lost_seconds == pytest.approx(0.2 * lasted, rel=0.05)


def test_every_nic_of_the_slow_communicator_is_a_suspect_and_shares_are_of_one() -> None:
    found = one_finding(make_window(make_job([Group(range(8), NIC, SLOW)])))
    assert {one.culprit.host for one in found.suspects} == {f"node{rank}" for rank in range(8)}
    assert sum(one.share for one in found.suspects) == pytest.approx(1.0, abs=0.01)


def test_of_one_slow_direction_both_ends_are_suspected_alike() -> None:
    found = one_finding(make_window(make_job([Group(range(8), {2: 0.02}, SLOW)])))
    first, second, third = found.suspects[:3]
    assert {first.culprit.host, second.culprit.host} == {"node2", "node3"}
    assert first.share == pytest.approx(second.share, abs=0.02)
    assert third.share < 0.1


def test_the_rank_that_slow_communicators_share_is_named_and_not_its_partners() -> None:
    """A group and a pair are slow, and have rank 3 in common; its partners' others are not."""
    groups = [
        Group(range(4), {2: 0.01, 3: 0.01}, SLOW),
        Group(range(4, 8)),
        Group([3, 7], {0: 0.1, 1: 0.1}, SLOW),
        *(Group([rank, rank + 4]) for rank in range(3)),
    ]
    found = one_finding(make_window(make_job(groups)))
    assert found.culprit.host == "node3"
    assert found.communicators == ("0x02", "0x00")
    assert found.suspects[0].share > 0.7
    assert "communicator_vote" in {one.metric for one in found.evidence}


def test_who_is_as_fast_as_ever_elsewhere_is_not_the_one() -> None:
    """Of a slow pair one end works in a healthy group, too."""
    groups = [Group([3, 7], {0: 0.05, 1: 0.05}, SLOW), Group(range(4, 8))]
    found = one_finding(make_window(make_job(groups)))
    assert found.culprit.host == "node3"
    assert found.suspects[0].share > 0.8


def test_without_names_of_hosts_the_rank_is_named() -> None:
    job = make_job([Group(range(8), NIC, SLOW)])
    bare = {
        rank: msgspec.structs.replace(one, host="", devices=()) for rank, one in job.ranks.items()
    }
    found = one_finding(make_window(msgspec.structs.replace(job, ranks=bare)))
    assert (found.culprit.job, found.culprit.rank) == ("train", 3)


def test_a_cable_between_switches_is_named_where_slow_edges_share_it_alone() -> None:
    """Four rings of two leaves; all edges from leaf-0 up are slow, and all else is well."""
    hosts = [f"node{number}" for number in range(16)]
    ports = make_ports(
        [*hosts, "leaf-0", "leaf-1"],
        device=["mlx5_0"] * 16 + ["leaf-0", "leaf-1"],
        port=["1"] * 16 + ["33", "33"],
        is_switch=np.array([False] * 16 + [True, True]),
        other_end=np.array([-1] * 16 + [17, 16]),
        tier=np.array([-1] * 16 + [0, 0]),
    )
    # Members 0 and 1 of each ring are on leaf-0, the others on leaf-1.
    groups = [Group(range(4 * ring, 4 * ring + 4), {1: 0.02}, SLOW) for ring in range(4)]
    edges, start, port = [], [0], []
    for ring in range(4):
        for place in range(4):
            edges.append((f"0x{ring:02x}", place, (place + 1) % 4))
            port += [4 * ring + place, *({1: [16], 3: [17]}.get(place, []))]
            start.append(len(port))
    paths = Paths(
        communicator=[edge[0] for edge in edges],
        source=np.array([edge[1] for edge in edges]),
        target=np.array([edge[2] for edge in edges]),
        start=np.array(start),
        port=np.array(port),
        share=np.ones(len(port)),
    )
    found = one_finding(make_window(make_job(groups, paths=paths), ports=ports))
    assert found.culprit == Culprit(switch="leaf-0", switch_port="33")
    assert len(found.communicators) == 4


def with_rates(window: Window, cell_ns: int) -> Window:
    """All NICs send the same on average: node3 without a pause, the others in bursts."""
    cells = 12 * NS // cell_ns
    rates = np.tile(np.where(np.arange(cells) % 3 == 0, 3e9, 1e6), (8, 1))
    rates[3] = 1e9
    ports = msgspec.structs.replace(
        window.ports,
        grid=Grid(START_NS, cell_ns, cells),
        readings={
            name: Readings(metric=f"fabric_port_{name}", row=np.arange(8), values=rates)
            for name in ("transmit_bytes_total", "receive_bytes_total")
        },
    )
    return msgspec.structs.replace(window, ports=ports)


def test_the_nic_that_never_waits_is_suspected_more() -> None:
    """Of two ends of a slow direction; readings over seconds do not decide."""
    window = make_window(make_job([Group(range(8), {2: 0.01}, SLOW)]))
    found = one_finding(with_rates(window, 20_000_000))
    assert found.culprit.host == "node3"
    assert found.suspects[0].share > 1.3 * found.suspects[1].share
    assert "nic_smoothness" in {one.metric for one in found.evidence}
    coarse = one_finding(with_rates(window, NS))
    assert coarse.suspects[0].share < 1.1 * coarse.suspects[1].share
    assert "nic_smoothness" not in {one.metric for one in coarse.evidence}


def test_the_smooth_nic_never_overrules_a_ladder() -> None:
    window = make_window(make_job([Group(range(8), {5: 0.01, 6: 0.01}, SLOW)]))
    assert one_finding(with_rates(window, 20_000_000)).culprit.host == "node6"


def with_pauses(window: Window, pauses: float) -> Window:
    """Every NIC's pauses are counted, and node3 pauses its switch so often once it is slow."""
    values = np.zeros((8, 12))
    values[3, 6:] = pauses
    reading = Readings(metric="fabric_port_pauses", row=np.arange(8), values=values)
    ports = msgspec.structs.replace(
        window.ports,
        grid=Grid(START_NS, NS, 12),
        readings={"transmit_pause_frames_total": reading},
    )
    return msgspec.structs.replace(window, ports=ports)


def test_where_nothing_waits_in_front_of_the_receiver_its_sender_is_named() -> None:
    window = make_window(make_job([Group(range(8), {2: 0.02}, SLOW)]))
    found = one_finding(with_pauses(window, 0.0))
    assert found.culprit.host == "node2"
    assert found.suspects[0].share > 2 * found.suspects[1].share
    assert "Nothing waits in front of rank 3 (node3)'s NIC" in found.evidence[1].text
    held = one_finding(with_pauses(window, 5000.0))
    assert held.suspects[0].share < 1.1 * held.suspects[1].share
    assert held.strength < 0.7 * found.strength


@pytest.mark.parametrize(("marked", "is_free"), [(500.0, True), (20_000.0, False)])
def test_few_marks_among_many_packets_are_no_queue(*, marked: float, is_free: bool) -> None:
    """A NIC that sends evenly meets others on the way: one packet in three thousand was marked."""
    window = with_pauses(make_window(make_job([Group(range(8), {2: 0.02}, SLOW)])), 0.0)
    rows, packets = np.arange(8), np.full((8, 12), 1.5e6)
    marks = np.zeros((8, 12))
    marks[3, 6:] = marked
    more = {
        "receive_packets_total": Readings(metric="packets", row=rows, values=packets),
        "receive_ecn_marked_packets_total": Readings(metric="marks", row=rows, values=marks),
    }
    ports = msgspec.structs.replace(window.ports, readings={**window.ports.readings, **more})
    found = one_finding(msgspec.structs.replace(window, ports=ports))
    assert ("Nothing waits in front of rank 3" in found.evidence[1].text) is is_free


def test_a_nic_that_is_slow_both_ways_is_named_whatever_waits() -> None:
    window = make_window(make_job([Group(range(8), NIC, SLOW)]))
    assert one_finding(with_pauses(window, 0.0)).culprit.host == "node3"


def test_of_two_alike_no_more_is_believed_than_their_share() -> None:
    found = one_finding(make_window(make_job([Group(range(8), {2: 0.02}, SLOW)])))
    assert found.strength <= found.suspects[0].share
    assert "its sender or its receiver may be at fault" in found.evidence[1].text


def faster(job: JobWindow, factor: int) -> JobWindow:
    """The same in so many times less time."""
    records = job.records
    times = {
        name: START_NS + (getattr(records, name) - START_NS) // factor
        for name in ("entry_ns", "exit_ns")
    }
    return with_records(job, msgspec.structs.replace(records, **times))


def test_less_than_a_second_is_enough_where_times_and_exits_are_both_clear() -> None:
    job = faster(make_job([Group(range(8), NIC, range(20, 40))], noise=0.0001), 5)
    found = one_finding(make_window(job))
    assert found.culprit.host == "node3"
    assert found.last_ns - found.since_ns < NS


def test_less_than_a_second_is_not_enough_without_a_ladder() -> None:
    """All edges alike: the whole ring is slower for a moment."""
    edges = dict.fromkeys(range(8), 0.01)
    job = faster(make_job([Group(range(8), edges, range(20, 40))], noise=0.0001), 5)
    assert detect(make_window(job)) == []


def test_what_is_usual_is_given_with_each_piece_of_evidence() -> None:
    found = one_finding(make_window(make_job([Group(range(8), NIC, SLOW)])))
    transfer, ladder = found.evidence
    assert transfer.text.startswith("all_reduce of 8 MiB took 14")
    assert transfer.baseline == pytest.approx(0.007, rel=0.1)
    assert ladder.baseline is not None
    assert 0 < ladder.baseline < 0.02 * ladder.value


# Nothing is accused -----------------------------------------------------------------------------


def test_a_healthy_job_is_left_alone() -> None:
    for seed in range(10):
        job = make_job([Group(range(8)), Group([0, 4])], seed=seed, noise=0.002)
        assert detect(make_window(job)) == []


def test_a_rank_that_comes_late_is_no_slow_link() -> None:
    job = make_job([Group(range(8))])
    records = job.records
    late = np.where((records.rank == 5) & (records.sequence >= 30), 80_000_000, 0)
    wait = np.where(records.sequence >= 30, 80_000_000, 0)
    moved = msgspec.structs.replace(
        records, entry_ns=records.entry_ns + late, exit_ns=records.exit_ns + wait
    )
    assert detect(make_window(with_records(job, moved))) == []


def with_records(job: JobWindow, records: Records) -> JobWindow:
    return msgspec.structs.replace(job, records=records, operations=split(records))


@pytest.mark.parametrize("slow", [range(30, 31), range(30, 34), range(30, 40, 3)])
def test_single_operations_and_a_few_that_are_over_are_no_slow_link(slow: range) -> None:
    assert detect(make_window(make_job([Group(range(8), NIC, slow)]))) == []


def test_one_operation_that_stood_still_is_no_slow_link() -> None:
    """Nor are the few after it, when connections begin slowly."""
    job = make_job([Group(range(8), NIC, range(56, 60))])
    exits = job.records.exit_ns.copy()
    exits[job.records.sequence == 55] += 8 * NS
    stalled = with_records(job, msgspec.structs.replace(job.records, exit_ns=exits))
    assert detect(make_window(stalled)) == []


def with_moments(job: JobWindow, moments: list[range]) -> JobWindow:
    """Also slow in these operations, as after warm-ups, checkpoints and under a profiler."""
    exits = job.records.exit_ns.copy()
    inside = np.isin(job.records.sequence, [one for moment in moments for one in moment])
    exits[inside] += NS // 10
    return with_records(job, msgspec.structs.replace(job.records, exit_ns=exits))


BRIEF_MOMENTS = [range(at, at + 5) for at in (5, 20, 35, 50)]


def test_moments_that_are_over_do_not_hide_a_link_that_stays_slow() -> None:
    job = make_job([Group(range(8), NIC, range(70, 100))], operations=100)
    found = one_finding(make_window(with_moments(job, BRIEF_MOMENTS)))
    assert (found.culprit.host, found.culprit.device) == ("node3", "mlx5_0")
    assert abs(found.since_ns - START_NS - 70 * STEP_SECONDS * NS) < 0.01 * NS


def test_a_pace_that_changes_again_and_again_is_left_alone() -> None:
    job = make_job([Group(range(8), NIC, range(70, 80))], operations=80)
    assert detect(make_window(with_moments(job, BRIEF_MOMENTS))) == []


def test_small_operations_prove_nothing_about_a_link() -> None:
    group = Group(range(8), NIC, SLOW, size_bytes=1024)
    assert detect(make_window(make_job([group]))) == []


def test_what_was_fast_for_a_while_is_not_slow_before_and_after() -> None:
    slow = {2: 0.02}
    job = make_job([Group(range(8), slow, range(60))])
    records = job.records
    fast = (records.sequence >= 20) & (records.sequence < 40)
    inside = (records.exit_ns - records.entry_ns) // 2
    exits = np.where(fast, records.entry_ns + inside, records.exit_ns)
    assert (
        detect(make_window(with_records(job, msgspec.structs.replace(records, exit_ns=exits))))
        == []
    )


def test_a_communicator_within_a_host_is_not_the_networks() -> None:
    job = make_job([Group(range(8), NIC, SLOW)])
    one_host = {rank: msgspec.structs.replace(one, host="node0") for rank, one in job.ranks.items()}
    assert detect(make_window(msgspec.structs.replace(job, ranks=one_host))) == []


def test_while_data_still_comes_a_moment_is_not_enough() -> None:
    brief = make_job([Group(range(8), NIC, range(55, 60))])
    assert detect(make_window(brief, is_live=True)) == []
    longer = make_job([Group(range(8), NIC, range(45, 60))])
    assert one_finding(make_window(longer, is_live=True)).until_ns is None


@pytest.mark.parametrize("ranks", [4, 8])
def test_where_all_look_alike_none_is_named(ranks: int) -> None:
    """Every edge is as slow as every other: the job suffers, and its times accuse no one."""
    everyone = dict.fromkeys(range(ranks), 0.01)
    found = one_finding(make_window(make_job([Group(range(ranks), everyone, SLOW)])))
    assert found.culprit == Culprit()
    assert found.victims == ()
    assert found.strength < 0.4
    shares = [one.share for one in found.suspects]
    assert max(shares) < 1.5 * min(shares)


@pytest.mark.parametrize(
    ("slow_s", "longer", "computes", "goes_on", "is_told"),
    [
        (70.0, 1.3, 1.0, True, True),
        (50.0, 1.3, 1.0, True, False),  # a moment
        (70.0, 1.05, 1.0, True, False),  # little
        (70.0, 1.3, 1.0, False, False),  # over
        (70.0, 1.3, 1.5, True, False),  # longer sequences, beside which transfers are slow
    ],
)
def test_people_hear_of_a_job_that_is_slow_for_long_though_none_can_be_named(
    slow_s: float, longer: float, computes: float, *, goes_on: bool, is_told: bool
) -> None:
    everyone = dict.fromkeys(range(8), 0.01)
    total = 700 if goes_on else 800
    slow = range(700 - round(slow_s / STEP_SECONDS), 700)
    before = [STEP_SECONDS] * slow.start
    after = [STEP_SECONDS] * (total - 700)
    during = [STEP_SECONDS * longer] * round(len(slow) / longer)
    job = make_job(
        [Group(range(8), everyone, slow)],
        operations=total,
        steps=steps_of(
            [*before, *during, *after],
            outside=[
                *[0.5 * one for one in before],
                *[0.5 * STEP_SECONDS * computes for _ in during],
                *[0.5 * one for one in after],
            ],
        ),
    )
    (verdict,) = judge(make_window(job))
    assert verdict.culprit == Culprit()
    assert (verdict.confidence >= OPEN_CONFIDENCE) is is_told
    assert verdict.summary.startswith("Bytes move too slowly; over which link is not known: ")
    assert verdict.action.startswith("Change nothing yet: What would decide: ")
    assert {"straggler"} <= {one.what for one in verdict.ruled_out}


def test_where_ranks_leave_together_it_is_said_that_times_accuse_none() -> None:
    """Over trees, and where switches add up, no exit leads to the slow part."""
    job = make_job([Group(range(8))])
    operations = job.operations
    slow = np.zeros(len(operations), dtype=np.int64)
    slow[SLOW.start : SLOW.stop] = round(0.05 * NS)
    late = msgspec.structs.replace(
        operations,
        first_exit_ns=operations.first_exit_ns + slow,
        last_exit_ns=operations.last_exit_ns + slow,
    )
    records = job.records
    delay = slow[records.sequence]
    exits = msgspec.structs.replace(
        records, exit_ns=records.exit_ns + delay, duration_ns=records.duration_ns + delay
    )
    found = one_finding(make_window(msgspec.structs.replace(job, operations=late, records=exits)))
    assert found.culprit == Culprit()
    assert "exit_spread" in {one.metric for one in found.evidence}
    ring = one_finding(make_window(make_job([Group(range(8), NIC, SLOW)])))
    assert "exit_spread" not in {one.metric for one in ring.evidence}


# What is known of the past ----------------------------------------------------------------------


def test_a_window_that_is_slow_from_end_to_end_is_held_against_the_long_past() -> None:
    job = make_job([Group(range(8), NIC, range(60))])
    assert detect(make_window(job)) == []
    past = {("0x00", "all_reduce", SIZE_BYTES): Past(transfer_ns=7e6, skew_ns=0.0, operations=40)}
    found = one_finding(make_window(msgspec.structs.replace(job, past=past)))
    assert found.culprit.host == "node3"


def test_a_past_that_two_sizes_share_is_not_believed() -> None:
    job = make_job([Group(range(8), NIC, range(60))])
    mixed = Past(transfer_ns=7e6, skew_ns=0.0, operations=40)
    past = {("0x00", "all_reduce", size): mixed for size in (SIZE_BYTES, 2 * SIZE_BYTES)}
    assert detect(make_window(msgspec.structs.replace(job, past=past))) == []


# Odd data ---------------------------------------------------------------------------------------


def test_the_order_of_operations_does_not_matter() -> None:
    job = make_job([Group(range(8), NIC, SLOW), Group([0, 4])])
    shuffled = np.random.default_rng(5).permutation(len(job.operations))
    operations: Operations = job.operations.select(shuffled)
    other = msgspec.structs.replace(job, operations=operations)
    assert detect(make_window(other)) == detect(make_window(job))


@pytest.mark.parametrize(
    ("ranks", "operations"), [(1, 60), (8, 1), (2, 1), (8, 4), (2, 5)], ids=str
)
def test_too_little_data_accuses_nothing(ranks: int, operations: int) -> None:
    job = make_job([Group(range(ranks))], operations=operations)
    assert detect(make_window(job)) == []


def test_nothing_at_all_accuses_nothing() -> None:
    job = make_job([Group(range(8))])
    empty = with_records(job, job.records.select(slice(0, 0)))
    assert detect(make_window(empty)) == []
    assert detect(make_window()) == []


def test_times_that_are_all_equal_absent_or_backwards_accuse_nothing() -> None:
    job = make_job([Group(range(8))])
    records = job.records
    equal = msgspec.structs.replace(
        records, entry_ns=records.entry_ns * 0, exit_ns=records.exit_ns * 0
    )
    absent = msgspec.structs.replace(records, exit_ns=np.full(len(records), ABSENT, dtype=np.int64))
    swapped = msgspec.structs.replace(records, entry_ns=records.exit_ns, exit_ns=records.entry_ns)
    for odd in (equal, absent, swapped):
        assert detect(make_window(with_records(job, odd))) == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_without_any_sense_accuses_nothing(seed: int) -> None:
    job = make_job([Group(range(8)), Group([1, 2, 3])])
    random = np.random.default_rng(seed)
    count = len(job.records)
    noise = msgspec.structs.replace(
        job.records,
        entry_ns=START_NS + random.integers(0, 20 * NS, count),
        exit_ns=START_NS + random.integers(0, 20 * NS, count),
        rank=random.integers(-3, 12, count).astype(np.int32),
    )
    assert detect(make_window(with_records(job, noise))) == []


def test_members_and_rings_that_are_unknown_do_no_harm() -> None:
    job = make_job([Group(range(8), NIC, SLOW)])
    unknown = msgspec.structs.replace(job, communicators={}, ranks={})
    found = one_finding(make_window(unknown))
    assert found.culprit == Culprit()
    assert found.strength < 0.4


LINE_BYTES = 50e9


def with_storage(
    window: Window, does: str, storage: float, moved: float, seconds: float = 1e3
) -> Window:
    """node3 reads or has written so much (shares of its line) since its ring is slow.

    Its port then moves ``moved`` of the line that way, and a tenth the other way and otherwise.
    """
    hosts = [f"node{number}" for number in range(8)]
    grid = window.ports.grid
    busy = np.zeros(grid.cells)
    first = grid.cell_of(window.jobs[0].operations.last_exit_ns[SLOW[0]])
    busy[first : first + round(seconds * NS / grid.step_ns)] = 1.0
    ring = np.full((8, grid.cells), 0.1 * LINE_BYTES)
    full = ring.copy()
    full[3] += busy * (moved - 0.1) * LINE_BYTES
    ways = (full, ring) if does == "written" else (ring, full)
    ports = make_ports(
        hosts,
        grid=grid,
        rate_bits_per_second=np.full(8, 8 * LINE_BYTES),
        readings={
            f"{way}_bytes_total": Readings(
                metric=f"fabric_port_{way}_bytes_total", row=np.arange(8), values=values
            )
            for way, values in zip(("transmit", "receive"), ways, strict=True)
        },
    )
    values = np.zeros((8, grid.cells))
    values[3] = busy * storage * LINE_BYTES
    name = f"mount_{does}_bytes_total"
    mounts = {
        f"{name}:filer:/save": Readings(metric=f"fabric_{name}", row=np.arange(8), values=values)
    }
    told = Hosts(grid=grid, host=hosts, readings=mounts, seen_ns=np.zeros(8, np.int64))
    return msgspec.structs.replace(window, hosts=told, ports=ports)


@pytest.mark.parametrize(
    ("written", "sent", "chunk_s", "said"),
    [
        (0.7, 0.9, 0.01, (Cause.CONGESTION, Reason.STORAGE_TRAFFIC)),
        (0.7, 0.5, 0.01, (Cause.SLOW_LINK, Reason.UNKNOWN)),  # not all of it goes by this NIC
        (0.2, 0.9, 0.01, (Cause.CONGESTION, Reason.UNKNOWN)),  # the checkpoint does not fill it
        (0.0, 0.9, 0.01, (Cause.CONGESTION, Reason.UNKNOWN)),
        # The ring lost a third of the line, and the checkpoint took as much.
        (0.3, 0.4, 0.0008, (Cause.CONGESTION, Reason.STORAGE_TRAFFIC)),
        (0.1, 0.2, 0.0008, (Cause.SLOW_LINK, Reason.UNKNOWN)),  # it took a tenth
        (0.3, 0.4, 0.01, (Cause.SLOW_LINK, Reason.UNKNOWN)),  # the ring lost nine tenths
    ],
)
def test_a_nic_that_is_full_of_its_host_s_checkpoint_is_not_slow(
    written: float, sent: float, chunk_s: float, said: tuple[Cause, Reason]
) -> None:
    window = make_window(make_job([Group(range(8), dict.fromkeys(NIC, chunk_s), SLOW)]))
    found = one_finding(with_storage(window, "written", written, sent))
    assert found.culprit.host == "node3"
    assert (found.cause, found.reason) == said
    if written:
        assert any("writes" in one.text and "(server filer)" in one.text for one in found.evidence)


@pytest.mark.parametrize(
    ("seconds", "cause"),
    [(100.0, Cause.CONGESTION), (75.0, Cause.CONGESTION), (40.0, Cause.SLOW_LINK)],
)
def test_a_checkpoint_that_was_over_half_a_minute_ago_excuses_no_nic(
    seconds: float, cause: Cause
) -> None:
    """A NIC became slow while its host wrote one, and stayed slow for 94 s."""
    job = make_job([Group(range(8), NIC, range(30, 500))], operations=500)
    hosts = [f"node{number}" for number in range(8)]
    ports = make_ports(hosts, grid=Grid(START_NS, 5 * NS, 21))
    hosts_grid = msgspec.structs.replace(make_window(job).hosts, grid=ports.grid)
    window = msgspec.structs.replace(make_window(job, ports=ports), hosts=hosts_grid)
    assert one_finding(with_storage(window, "written", 0.7, 0.9, seconds)).cause is cause


@pytest.mark.parametrize(
    ("read", "received", "chunk_s", "said"),
    [
        (0.7, 0.9, 0.01, (Cause.CONGESTION, Reason.STORAGE_TRAFFIC)),
        (0.3, 0.4, 0.0008, (Cause.CONGESTION, Reason.STORAGE_TRAFFIC)),
        (0.0, 0.9, 0.01, (Cause.CONGESTION, Reason.UNKNOWN)),  # others send it
        (0.3, 0.4, 0.01, (Cause.SLOW_LINK, Reason.UNKNOWN)),  # the ring lost nine tenths
        (0.7, 0.1, 0.01, (Cause.SLOW_LINK, Reason.UNKNOWN)),  # it goes another way
    ],
)
def test_who_sends_to_a_nic_that_is_full_of_what_others_send_is_not_slow(
    read: float, received: float, chunk_s: float, said: tuple[Cause, Reason]
) -> None:
    """A host loaded a checkpoint, and the NIC before it in the ring was accused with 65 %."""
    window = make_window(make_job([Group(range(8), {2: chunk_s}, SLOW)]))
    found = one_finding(with_storage(window, "read", read, received))
    assert (found.cause, found.reason) == said
    if found.cause is Cause.CONGESTION:
        assert found.culprit.host == "node3"
        assert [one.culprit.host for one in found.suspects] == ["node3"]
    else:
        assert {one.culprit.host for one in found.suspects[:2]} == {"node2", "node3"}


@pytest.mark.parametrize(("written", "evidence"), [(20e9, 1), (1e9, 0)])
def test_storage_that_a_slow_nic_s_host_writes_is_told_and_not_blamed(
    written: float, evidence: int
) -> None:
    """A checkpoint over the NIC of collectives looks like a slow NIC: whether it is, is open."""
    hosts = [f"node{number}" for number in range(8)]
    ports = make_ports(hosts, rate_bits_per_second=np.full(8, 400e9))
    window = make_window(make_job([Group(range(8), NIC, SLOW)]), ports=ports)
    values = np.zeros((8, window.hosts.grid.cells))
    values[3] = written
    name = "mount_written_bytes_total"
    mounts = {
        f"{name}:filer:/save": Readings(metric=f"fabric_{name}", row=np.arange(8), values=values)
    }
    told = Hosts(grid=window.hosts.grid, host=hosts, readings=mounts, seen_ns=np.zeros(8, np.int64))
    found = one_finding(msgspec.structs.replace(window, hosts=told))
    assert (found.cause, found.culprit.host) == (Cause.SLOW_LINK, "node3")
    of_storage = [one for one in found.evidence if "filer:/save (server filer)" in one.text]
    assert len(of_storage) == evidence


@pytest.mark.parametrize(
    ("shares", "ratio", "is_named"),
    [
        ((0.61, 0.12, 0.02), 1.3, True),  # both ends on one leaf
        ((0.45, 0.45, 0.02), 1.3, True),  # one of two, said with less than a half
        ((0.31, 0.06, 0.04), 1.56, False),  # between leaves, over many ways
        ((0.31, 0.06, 0.04), 5.5, True),  # what is so slow on its way shows at switches
        ((0.17, 0.15, 0.14), 5.5, False),  # many alike
    ],
)
def test_a_nic_is_named_where_it_has_much_of_all_suspicion(
    shares: tuple[float, ...], ratio: float, *, is_named: bool
) -> None:
    suspects = [
        Suspect(culprit=Culprit(host=f"node{number}"), share=share)
        for number, share in enumerate(shares)
    ]
    assert stands_out(suspects, ratio) is is_named
