"""The events that a trace draws from records, clocks and counters, with bounded lookahead."""

from collections.abc import Iterator

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from alerts.window.columns import Clock, ClockFit, Records
from alerts.window.model import JobWindow, Rank
from alerts.window.split import split
from api.jobs.correlate.readings import GAP_SECONDS
from api.jobs.trace.collectives import Drawn, Part, by_entry, operation_rows, parts_of
from api.jobs.trace.counters import Line, Shown, drawn
from api.jobs.trace.event import Frame, Place, microseconds, stretch
from api.jobs.trace.stream import Account
from api.jobs.trace.subject import Ahead, Subject
from api.jobs.trace.tracks import LANES_MAX, Track, Tracks
from api.jobs.trace.troubles import DrawnTrouble, late_arrow, ranks_of, slow_arrow, trouble_arrow
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Culprit

TRACK = Track("node0", "rank 0", 1)


def part(entry_ns: int, exit_ns: int, *, rank: int = 0, turn_ns: int | None = None) -> Part:
    turn = entry_ns if turn_ns is None else turn_ns
    return Part(entry_ns, exit_ns, turn, rank, 0, 1, ABSENT, "0xfeed", "all_reduce")


def records(*rows: tuple[int, int, int], host: str = "node0") -> Records:
    """Records of one communicator: sequence, entry and exit; ranks count up from 0."""
    count = len(rows)
    seen: dict[int, int] = {}
    ranks = []
    for sequence, _, _ in rows:
        ranks.append(seen.get(sequence, 0))
        seen[sequence] = ranks[-1] + 1
    zeros = np.zeros(count, dtype=np.int32)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    absent = np.full(count, ABSENT, dtype=np.int64)
    return Records(
        communicators=["0xfeed"],
        operations=["all_reduce"],
        hosts=[host],
        communicator=zeros,
        operation=zeros,
        host=zeros,
        pid=zeros,
        sequence=columns[:, 0],
        rank=np.array(ranks, dtype=np.int32),
        entry_ns=columns[:, 1],
        exit_ns=columns[:, 2],
        enqueue_ns=absent,
        duration_ns=absent,
        size_bytes=absent,
        ranks=np.full(count, 2, dtype=np.int32),
        peer=np.full(count, -1, dtype=np.int32),
    )


def subject_of(joined: Records) -> Subject:
    job = JobWindow(
        job="train",
        size=2,
        ranks={0: Rank(rank=0, host="node0"), 1: Rank(rank=1, host="node1")},
        communicators={},
        source="nccl_inspector",
        records=joined,
        operations=split(joined),
        clocks=[],
    )
    known = {("0xfeed", rank): rank for rank in range(2)}
    return Subject(job=job, job_rank=known, records=lambda: iter(()), spans=lambda: iter(()))


# --- times ---------------------------------------------------------------------------------------


@example(1_001)  # 1.001 times a thousand is a little less than 1,001
@given(st.integers(min_value=0, max_value=3_600 * NS))
def test_nanoseconds_survive_whether_a_reader_cuts_off_or_rounds(length_ns: int) -> None:
    length_us = microseconds(length_ns)
    assert int(length_us * 1e3) == length_ns
    assert round(length_us * 1e3) == length_ns


def test_a_slice_that_began_before_the_trace_begins_with_it_and_ends_when_it_did() -> None:
    event = stretch(Frame(1_000, 9_000), Place(1, 2), "step", (200, 3_000))
    assert (event["ts"], event["dur"]) == (0.0, 2.0)


def test_hosts_clocks_are_corrected_by_the_fit_of_the_time() -> None:
    def fit(from_ns: int, offset_ns: int, drift: float) -> ClockFit:
        clock = Clock(
            host="node0",
            offset_ns=offset_ns,
            drift=drift,
            residual_ns=1,
            bound_ns=None,
            is_corrected=True,
        )
        return ClockFit(
            from_ns=from_ns, to_ns=from_ns + 99, middle_ns=from_ns, clocks=[clock], operations=1
        )

    ahead = Ahead([fit(0, 10, 0.0), fit(1_000, 20, 0.1)])
    times = np.array([5, 999, 1_000, 1_100], dtype=np.int64)
    assert ahead.corrected("node0", times).tolist() == [-5, 981, 982, 1_072]
    assert ahead.corrected_one("node0", 5) == -5
    assert ahead.corrected_one("other", 5) == 5


# --- tracks --------------------------------------------------------------------------------------


def test_what_overlaps_goes_to_another_lane_and_what_follows_does_not() -> None:
    tracks = Tracks(Account())
    first = tracks.place(TRACK, 0, 10)
    assert tracks.place(TRACK, 10, 20) == first
    second = tracks.place(TRACK, 15, 30)
    assert second not in {None, first}
    assert tracks.place(TRACK, 20, 25) == first


def test_names_are_told_once_and_threads_are_numbered_over_all_processes() -> None:
    tracks = Tracks(Account())
    places = [tracks.place(track, 0, 1) for track in (TRACK, Track("node1", "rank 1", 5))]
    told = list(tracks.news())
    assert [event["name"] for event in told].count("thread_name") == 2
    assert len({place.thread for place in places if place}) == 2
    assert tracks.place(TRACK, 5, 6) == places[0]
    assert list(tracks.news()) == []


def test_past_the_lanes_it_is_left_out_and_counted() -> None:
    account = Account()
    tracks = Tracks(account)
    found = [tracks.place(TRACK, 0, 10) for _ in range(LANES_MAX + 3)]
    assert found.count(None) == 3
    assert account.left_out == {"LANES_MAX": 3}


# --- collectives ---------------------------------------------------------------------------------


def test_two_pieces_of_records_are_held_and_no_more() -> None:
    taken = 0

    def endless() -> Iterator[list[Part]]:
        nonlocal taken
        for number in range(50):
            taken += 1
            yield [part(number * 10, number * 10 + 9)]

    for given_back, parts in enumerate(by_entry(endless()), start=1):
        assert len(parts) == 1
        assert taken - given_back <= 1


def test_who_entered_before_an_earlier_piece_ended_is_drawn_with_that_piece() -> None:
    first, second = [part(0, 10), part(20, 100)], [part(5, 200, rank=1), part(150, 300)]
    pieces = list(by_entry(iter([first, second])))
    assert [[each.entry_ns for each in piece] for piece in pieces] == [[0, 5, 20], [150]]


def test_a_record_that_came_after_the_join_is_drawn_but_not_split() -> None:
    joined = records((1, 0, 50), (1, 20, 50))
    later = records((1, 0, 50), (2, 60, 90))
    assert operation_rows(later, split(joined)).tolist() == [0, -1]
    subject = subject_of(joined)
    found = parts_of(later, subject, Account())
    assert [(each.sequence, each.turn_ns, each.operation) for each in found] == [
        (1, 20, 0),
        (2, 60, -1),
    ]


def test_records_of_strangers_and_without_times_are_counted() -> None:
    account = Account()
    some = records((1, 0, 50), (1, ABSENT, 50), (1, 5, 50))
    assert len(parts_of(some, subject_of(records((1, 0, 50))), account)) == 1
    assert account.left_out == {
        "records of ranks that nobody knows": 1,
        "records without both times": 1,
    }


# --- arrows --------------------------------------------------------------------------------------


def put(one: Part, thread: int, outside_from_ns: int | None = None) -> Drawn:
    outside = None if outside_from_ns is None else Place(1, 100 + thread)
    return Drawn(one, Place(1, thread), outside, outside_from_ns or 0)


def test_a_late_ranks_arrow_leads_from_its_computing_into_the_others_waiting() -> None:
    late = put(part(900, 1_000, turn_ns=900), 1, outside_from_ns=100)
    victim = put(part(500, 1_000, rank=1, turn_ns=900), 2)
    assert late_arrow([late], victim) == ((Place(1, 101), 500), (Place(1, 2), 700))
    assert late_arrow([victim], late) is None, "no rank waits for an early rank"


def test_a_slow_ranks_arrow_leads_from_transfer_to_transfer() -> None:
    slow = put(part(0, 1_000, turn_ns=400), 1)
    victim = put(part(400, 800, rank=1, turn_ns=400), 2)
    assert slow_arrow([slow], victim) == ((Place(1, 1), 400), (Place(1, 2), 600))
    assert slow_arrow([], victim) is None


def test_where_no_rank_is_guilty_the_arrow_comes_from_the_incident() -> None:
    told = DrawnTrouble(None, Place(1, 9), 450, 2_000)  # type: ignore[arg-type]
    victim = put(part(0, 1_000, turn_ns=400), 2)
    assert trouble_arrow(told, victim, is_compute=False) == ((Place(1, 9), 725), (Place(1, 2), 725))
    assert trouble_arrow(told, victim, is_compute=True) is None, "it ended before the incident"


def test_a_culprits_ranks_are_those_on_its_nic_or_gpu() -> None:
    job = subject_of(records((1, 0, 1))).job
    ranks = {
        0: Rank(rank=0, host="node0", gpu=0, devices=("mlx5_0",)),
        1: Rank(rank=1, host="node0", gpu=1, devices=("mlx5_1",)),
        2: Rank(rank=2, host="node1", gpu=0),
    }
    job = msgspec.structs.replace(job, ranks=ranks)
    assert ranks_of(job, [Culprit(host="node0", device="mlx5_1")]) == {1}
    assert ranks_of(job, [Culprit(host="node0", gpu=0)]) == {0}
    assert ranks_of(job, [Culprit(host="node0")]) == {0, 1}
    assert ranks_of(job, [Culprit(host="node1", device="mlx5_0")]) == {2}
    assert ranks_of(job, [Culprit(job="train", rank=2)]) == {2}
    assert ranks_of(job, [Culprit(job="other", rank=2)]) == set()
    assert ranks_of(job, [Culprit(switch="leaf0", switch_port="1")]) == set()


# --- counters ------------------------------------------------------------------------------------


def line(*, is_counter: bool) -> Line:
    shown = Shown("fabric_port_transmit_bytes_total", "sent", "Gb/s", 2.0)
    return Line(0, "node0", "mlx5_0", 0, "sent", 1, 2, shown, 1.0, is_counter)


def test_a_counter_is_its_increase_a_second_and_says_nothing_of_resets_and_gaps() -> None:
    gap = (GAP_SECONDS + 1) * NS
    times = np.array([0, NS, 3 * NS, 4 * NS, 4 * NS + gap], dtype=np.int64)
    values = np.array([100.0, 110.0, 150.0, 3.0, 900.0])
    moments, rates = drawn(line(is_counter=True), times, values)
    assert moments.tolist() == [0, NS]
    assert rates.tolist() == [20.0, 40.0]


def test_a_gauge_is_itself_in_the_tracks_unit() -> None:
    times = np.array([0, NS], dtype=np.int64)
    moments, values = drawn(line(is_counter=False), times, np.array([1.0, 2.0]))
    assert (moments.tolist(), values.tolist()) == ([0, NS], [2.0, 4.0])
