"""Slow steps against normal ones: where the excess lands, and what is not known."""

import msgspec
import numpy as np
import pytest

from alerts.compare.model import Role, StepsCompared
from alerts.compare.sides import side_of
from alerts.compare.stand_out import InCells, divide, higher_shares, what_stands_out
from alerts.compare.steps import Asked, Blamed, compare_steps
from alerts.signals.gaps import own_time
from alerts.window.model import JobWindow
from alerts.window.split import split
from collector.contract.verdict import Cause
from tests.worlds.late_jobs import make_job, make_window, shuffled

MS = 1_000_000
STEPS, RANKS = 40, 8
FIRST = 20
"""The first slow step."""


def extra(rank: int, value_ms: float, first: int = FIRST, last: int = STEPS) -> np.ndarray:
    table = np.zeros((STEPS, RANKS))
    table[first:last, rank] = value_ms
    return table


def slow_half(job: JobWindow) -> Asked:
    return Asked(slow=(job.steps[FIRST].start_ns, job.steps[-1].end_ns))


def blamed(seen: JobWindow, rank: int) -> Blamed:
    return Blamed(
        cause=Cause.STRAGGLER,
        culprit=seen.culprit(rank),
        since_ns=seen.steps[FIRST].start_ns,
        until_ns=None,
        summary="it is",
    )


def roles(answer: StepsCompared) -> dict[int, Role]:
    return {one.rank: one.role for one in answer.ranks}


def test_the_excess_lands_at_the_late_rank_and_the_others_only_waited() -> None:
    job = make_job(extra_ms=extra(5, 30.0))
    answer = compare_steps(make_window(job), job, slow_half(job))
    first = answer.ranks[0]
    assert (first.rank, first.role) == (5, Role.LATE)
    assert first.excess.own_ns == pytest.approx(30 * MS, rel=0.1)
    assert first.beyond_peers_ns == pytest.approx(30 * MS, rel=0.1)
    assert answer.excess_ns == pytest.approx(30 * MS, rel=0.1)
    others = [one for one in answer.ranks if one.rank != 5]
    assert {one.role for one in others} <= {Role.WAITED, Role.PASSED_ON}
    assert all(abs(one.excess.own_ns or 0) < 3 * MS for one in others)
    assert all(abs(one.excess.transfer_ns or 0) < 3 * MS for one in answer.ranks)


def test_steps_of_another_incident_are_not_what_is_normal() -> None:
    """The same rank was as late until a moment before: half of the steps before are troubled."""
    table = extra(5, 30.0)
    table[4:16, 2] = 30.0
    job = make_job(extra_ms=table)
    other = (job.steps[4].start_ns, job.steps[15].end_ns)
    assert compare_steps(make_window(job), job, slow_half(job)).excess_ns == pytest.approx(
        0, abs=MS
    )
    asked = msgspec.structs.replace(slow_half(job), troubled=(other,))
    answer = compare_steps(make_window(job), job, asked)
    assert answer.normal.steps == 8
    assert answer.excess_ns == pytest.approx(30 * MS, rel=0.1)
    # Where nothing else is known, what was before has to do.
    everything = msgspec.structs.replace(asked, troubled=((0, job.steps[FIRST].start_ns),))
    assert compare_steps(make_window(job), job, everything).normal.steps == FIRST


def test_lateness_flows_from_the_culprit_through_its_host_to_the_others() -> None:
    """Rank 5 meets rank 4 first; both then meet their like on other hosts, late."""
    job = make_job(extra_ms=extra(5, 30.0))
    answer = compare_steps(make_window(job), job, slow_half(job))
    flow = {(one.source, one.target): one.excess_ns for one in answer.flows}
    assert flow[5, 4] == pytest.approx(30 * MS, rel=0.1)
    assert {target for source, target in flow if source == 4} == {0, 2, 6}
    assert roles(answer)[4] is Role.PASSED_ON


def test_without_the_culprit_a_step_takes_what_it_took_before() -> None:
    job = make_job(extra_ms=extra(5, 30.0))
    accused = blamed(job, 5)
    answer = compare_steps(make_window(job), job, slow_half(job), [accused])
    assert [one.ranks for one in answer.accused] == [[5]]
    assert [one.rank for one in answer.ranks if one.is_accused] == [5]
    without = answer.without[0]
    assert (without.what, without.ranks) == ("rank", [5])
    assert without.step_ns == pytest.approx(answer.normal.step_ns, rel=0.03)
    assert without.saved_ns == pytest.approx(30 * MS, rel=0.1)
    assert "rank 5 (node2) was outside of collectives for" in answer.sentence
    assert "Without that it would take about" in answer.sentence
    assert answer.assumptions


@pytest.mark.parametrize("seed", range(3))
def test_names_and_the_order_of_rows_change_nothing(seed: int) -> None:
    job = make_job(extra_ms=extra(5, 30.0))
    other = shuffled(job, seed)
    first, second = (
        compare_steps(make_window(one), one, slow_half(job), [blamed(job, 5)])
        for one in (job, other)
    )
    assert second.sentence == first.sentence
    assert second.ranks == first.ranks
    assert second.flows == first.flows
    assert [one.saved_ns for one in second.without] == [one.saved_ns for one in first.without]


def test_a_clock_that_is_ahead_moves_waiting_and_not_own_time() -> None:
    """Own time is by one clock: a host that is a little off is not called late."""
    job = make_job(extra_ms=extra(5, 30.0), offsets_ns=[0, 2 * MS, 0, -2 * MS])
    answer = compare_steps(make_window(job), job, slow_half(job))
    assert [one.rank for one in answer.ranks if one.role is Role.LATE] == [5]
    assert answer.ranks[0].excess.own_ns == pytest.approx(30 * MS, rel=0.1)


def test_without_an_innocent_rank_nothing_is_saved() -> None:
    job = make_job(extra_ms=extra(5, 30.0))
    innocent = blamed(job, 2)
    answer = compare_steps(make_window(job), job, slow_half(job), [innocent])
    assert all(one.ranks != [2] or one.saved_ns < MS for one in answer.without)


def test_what_is_accused_at_another_time_is_not_accused_here() -> None:
    job = make_job(extra_ms=extra(5, 30.0))
    late = blamed(job, 5)
    over = msgspec.structs.replace(late, since_ns=0, until_ns=job.steps[3].start_ns)
    answer = compare_steps(make_window(job), job, slow_half(job), [over])
    assert not answer.accused
    assert "No verdict accuses" in answer.sentence


def test_one_step_names_who_was_late_and_accuses_no_rank() -> None:
    job = make_job(extra_ms=extra(5, 60.0, 30, 31))
    moment = job.steps[30].start_ns + 50 * MS
    answer = compare_steps(make_window(job), job, Asked(slow=(moment, moment)))
    assert answer.slow.steps == 1
    assert roles(answer)[5] is Role.LATE
    assert not answer.accused
    assert answer.sentence.endswith("One step accuses no rank.")
    assert answer.without[0].saved_ns == pytest.approx(60 * MS, rel=0.1)


def test_steps_that_are_no_longer_say_so_and_have_no_roles() -> None:
    job = make_job()
    answer = compare_steps(make_window(job), job, slow_half(job))
    assert {*roles(answer).values()} == {Role.AS_USUAL}
    assert answer.sentence.startswith("These steps took no longer")
    assert not answer.without


def test_slow_transfers_are_no_rank_s_own() -> None:
    fast, slow = make_job(steps=FIRST), make_job(steps=FIRST, transfer_ms=60.0)
    asked = Asked(slow=(slow.steps[2].start_ns, slow.steps[-1].end_ns))
    answer = compare_steps(make_window(slow), slow, asked, normal_job=fast)
    assert {*roles(answer).values()} == {Role.TRANSFER}
    assert all((one.excess.transfer_ns or 0) > 40 * MS for one in answer.ranks)
    assert answer.kinds[0].operation == "all_reduce"
    assert answer.sentence.startswith("A step")
    assert "no rank came late by itself" in answer.sentence
    whole = answer.without[-1]
    assert (whole.what, whole.ranks) == ("network", [])
    assert whole.step_ns == pytest.approx(answer.normal.step_ns, rel=0.1)


def test_where_most_ranks_are_silent_nothing_is_guessed() -> None:
    job = make_job(hosts=8, gpus=1, extra_ms=extra(5, 30.0))
    kept = job.records.select(job.records.host < 3)
    thin = msgspec.structs.replace(job, records=kept, operations=split(kept))
    answer = compare_steps(make_window(thin), thin, slow_half(job))
    assert answer.silent == [3, 4, 5, 6, 7]
    assert "5 of 8 ranks" in answer.unknown[0]
    assert {*roles(answer).values()} <= {Role.UNKNOWN, Role.AS_USUAL}
    assert "is not known" in answer.sentence
    assert not answer.accused


def test_one_silent_rank_takes_the_word_transfer_away() -> None:
    """Time that is waited for a rank without records looks like transfer."""
    job = make_job(hosts=8, gpus=1, extra_ms=extra(5, 30.0))
    kept = job.records.select(job.records.host != 5)
    thin = msgspec.structs.replace(job, records=kept, operations=split(kept))
    answer = compare_steps(make_window(thin), thin, slow_half(job))
    assert answer.silent == [5]
    assert Role.TRANSFER not in roles(answer).values()
    assert "1 of 8 ranks" in answer.sentence


def test_times_without_steps_and_jobs_without_times_say_why() -> None:
    job = make_job()
    window = make_window(job)
    far = job.steps[-1].end_ns + 10**12
    assert (
        "no whole step lies in the slow time"
        in compare_steps(window, job, Asked(slow=(far, far + 1))).sentence
    )
    nothing = job.records.select(slice(0))
    empty = msgspec.structs.replace(job, records=nothing, operations=split(nothing), steps=())
    assert "no record" in compare_steps(window, empty, slow_half(job)).sentence
    thinned = msgspec.structs.replace(job, kept_one_in=4)
    assert "one operation in 4" in compare_steps(window, thinned, slow_half(job)).sentence
    guessed = msgspec.structs.replace(job, is_estimate=True)
    assert "only durations" in compare_steps(window, guessed, slow_half(job)).sentence


def test_the_drawn_step_begins_at_zero_and_is_as_long_as_the_step() -> None:
    job = make_job(extra_ms=extra(5, 30.0))
    answer = compare_steps(make_window(job), job, slow_half(job))
    assert [row.rank for row in answer.rows_slow] == [row.rank for row in answer.rows_normal]
    for rows, side in ((answer.rows_slow, answer.slow), (answer.rows_normal, answer.normal)):
        assert min(row.spans[0].start_ns for row in rows) == 0
        assert max(row.spans[-1].end_ns for row in rows) == pytest.approx(side.step_ns, rel=0.05)
        for row in rows:
            edges = [edge for span in row.spans for edge in (span.start_ns, span.end_ns)]
            assert edges == sorted(edges)


# What stands out ---------------------------------------------------------------------------------


def test_the_late_rank_stands_out_first_and_innocent_ranks_do_not() -> None:
    job = make_job(extra_ms=extra(5, 30.0))
    table = own_time(job)
    assert table is not None
    slow, normal = divide(table)
    assert set(slow.tolist()) >= set(range(FIRST, STEPS))
    found = what_stands_out(make_window(job), side_of(job, slow), side_of(job, normal))
    assert [one.rank for one in found.found if one.kind == "rank"] == [5]
    first = next(one for one in found.found if one.kind == "rank")
    assert first.higher_share == 1.0
    assert first.slow == pytest.approx(30 * MS, rel=0.1)
    assert "waiting for the last rank" in {one.what for one in found.found}
    assert "transfer" not in {one.what for one in found.found}


def test_nothing_stands_out_where_steps_are_divided_by_chance() -> None:
    job = make_job()
    even, odd = np.arange(2, STEPS, 2), np.arange(3, STEPS, 2)
    found = what_stands_out(make_window(job), side_of(job, even), side_of(job, odd))
    assert not found.found
    assert found.why_nothing


def test_too_few_steps_tell_nothing() -> None:
    job = make_job(extra_ms=extra(5, 60.0, 30, 32))
    found = what_stands_out(
        make_window(job), side_of(job, np.array([30, 31])), side_of(job, np.arange(2, 30))
    )
    assert not found.found
    assert "2 slow" in found.why_nothing


def test_pairs_are_counted_as_if_one_by_one() -> None:
    """Also equal and unknown values, rows that stand still, and rows without one side."""
    random = np.random.default_rng(7)
    slow, normal = (random.integers(0, 5, (60, columns)).astype(float) for columns in (7, 12))
    for side in (slow, normal):
        side[random.random(side.shape) < 0.2] = np.nan
        side[:10] = 3.0
    slow[5, 0], slow[20:22], normal[21:23], normal[30, 0] = np.nan, np.nan, np.nan, np.inf
    share, z = higher_shares(slow, normal)
    for row, (one, other) in enumerate(zip(slow, normal, strict=True)):
        pairs = [(a, b) for a in one[~np.isnan(one)] for b in other[~np.isnan(other)]]
        if not pairs:
            assert (share[row], z[row]) == (0.5, 0.0)
            continue
        higher = sum((a > b) + 0.5 * (a == b) for a, b in pairs)
        counts = (~np.isnan(one)).sum(), (~np.isnan(other)).sum()
        chance = np.sqrt(len(pairs) * (sum(counts) + 1) / 12)
        assert share[row] == higher / len(pairs)
        assert z[row] == (higher - len(pairs) / 2) / chance
    nothing = higher_shares(np.zeros((3, 0)), np.zeros((3, 0)))
    assert [one.tolist() for one in nothing] == [[0.5] * 3, [0.0] * 3]


def test_cells_of_one_step_are_one_number() -> None:
    cells = InCells(
        cell=np.array([0, 1, 3, 4]), group=np.array([2, 2, 7, 7]), step_seconds=np.full(4, 10.0)
    )
    values = np.array([[1.0, 2.0, 99.0, 4.0, np.nan], [np.nan, np.nan, 0.0, 5.0, 6.0]])
    np.testing.assert_array_equal(cells.means(values), [[1.5, 4.0], [np.nan, 5.5]])
    np.testing.assert_array_equal(cells.means(values, in_step=True), [[15.0, 40.0], [np.nan, 55.0]])
