"""How complete a window is: what is late is waited for, and what is silent is reported."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from alerts.window.columns import Operations, Records
from alerts.window.model import Gpus, Hosts, JobWindow, Rank, Window
from api.oncall.evaluate.arrivals import (
    BEHIND_SECONDS_MAX,
    REMEMBERED_SECONDS,
    SILENT_SECONDS,
    WAIT_SECONDS_MAX,
    Arrivals,
    Arrived,
    records_missing,
)
from api.oncall.evaluate.rounds import EFFORT_RECORDS_MIN, Effort
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from tests.worlds.machines import empty_columns, no_ports

START_NS = 1_794_700_000 * NS
HOSTS = [f"node{number}" for number in range(8)]
RANKS = {number: Rank(rank=number, host=host) for number, host in enumerate(HOSTS)}


def window(now_s: float, lags_s: Mapping[str, float], jobs: Sequence[JobWindow] = ()) -> Window:
    """Hosts whose data are so old at the window's end."""
    to_ns = START_NS + round(now_s * NS)
    seen = np.array([to_ns - round(lag * NS) for lag in lags_s.values()], dtype=np.int64)
    ports = no_ports()
    none = np.zeros(0, dtype=np.int64)
    return Window(
        from_ns=to_ns - 180 * NS,
        to_ns=to_ns,
        jobs=jobs,
        ports=ports,
        gpus=Gpus(grid=ports.grid, host=[], gpu=[], readings={}, seen_ns=none),
        hosts=Hosts(grid=ports.grid, host=list(lags_s), readings={}, seen_ns=seen),
    )


def job_window(
    name: str, ranks: Mapping[int, Rank], operations: Operations | None = None
) -> JobWindow:
    return JobWindow(
        job=name,
        size=len(ranks),
        ranks=ranks,
        communicators={},
        source="nccl_inspector",
        records=empty_columns(Records),
        operations=operations or empty_columns(Operations),
        clocks=[],
    )


def on_time(lag_s: float = 3.0) -> dict[str, float]:
    return dict.fromkeys(HOSTS, lag_s)


def settled(every_s: float = 5.0, rounds: int = 6) -> tuple[Arrivals, float]:
    """Arrivals that know each host's rhythm, and the time of their last round."""
    arrivals = Arrivals()
    for number in range(rounds):
        arrivals.look(window(number * every_s, on_time()), 0)
    return arrivals, (rounds - 1) * every_s


def verdict(cause: Cause = Cause.SLOW_LINK, job: str = "llama") -> Verdict:
    return Verdict(
        cause=cause,
        culprit=Culprit(host="node3", device="mlx5_0"),
        confidence=0.9,
        since_ns=START_NS,
        jobs=(job,) if job else (),
        summary="A link is slow.",
    )


def test_data_on_time_are_judged_up_to_now() -> None:
    arrivals, now_s = settled()
    arrived = arrivals.look(window(now_s + 5, on_time(9)), 0)
    assert arrived == Arrived(behind_ns=0, is_complete=True, outstanding=(), silent=(), waiting={})


def test_where_many_hosts_are_late_the_next_window_ends_where_all_is_complete() -> None:
    arrivals, now_s = settled()
    late = on_time() | {"node1": 31.0, "node2": 40.0}
    first = arrivals.look(window(now_s + 5, late), 0)
    assert not first.is_complete
    assert first.outstanding == ("node1", "node2")
    assert first.behind_ns == 35 * NS, "the latest comes 40 s late and reads every five"
    # The same data, looked at 35 s earlier: all of it is there.
    shifted = {host: max(0.0, lag - 35) for host, lag in late.items()}
    second = arrivals.look(window(now_s + 10 - 35, shifted), first.behind_ns)
    assert second.is_complete
    assert second.behind_ns == 30 * NS, "it tries to catch up"


def test_it_catches_up_to_the_present() -> None:
    arrivals, now_s = settled()
    behind_ns = 40 * NS
    for number in itertools.count(1):
        arrived = arrivals.look(window(now_s + 5 * number, on_time()), behind_ns)
        behind_ns = arrived.behind_ns
        assert arrived.is_complete
        if not behind_ns:
            break
    assert number == 8


def test_it_never_looks_further_back_than_the_bound() -> None:
    arrivals, now_s = settled()
    arrived = arrivals.look(window(now_s + 5, on_time(50)), 70 * NS)
    assert arrived.behind_ns == BEHIND_SECONDS_MAX * NS


def test_one_late_host_holds_back_the_verdicts_of_its_job_alone() -> None:
    arrivals, now_s = settled()
    jobs = [
        job_window("llama", {0: RANKS[0], 1: RANKS[1]}),
        job_window("other", {0: RANKS[5], 1: RANKS[6]}),
    ]
    arrived = arrivals.look(window(now_s + 5, on_time() | {"node1": 30.0}, jobs), 0)
    assert arrived.is_complete
    assert list(arrived.waiting) == ["llama"]
    assert arrived.waiting["llama"].words == "data of 1 of 2 hosts are outstanding: node1"
    assert not arrived.may_say(verdict())
    assert arrived.may_say(verdict(job="other"))
    assert arrived.may_say(verdict(Cause.HANG)), "a host that died is what holds a job up"


def test_a_silent_host_is_not_waited_for() -> None:
    arrivals, now_s = settled()
    jobs = [job_window("llama", RANKS)]
    arrived = arrivals.look(window(now_s + 5, on_time() | {"node1": SILENT_SECONDS + 5.0}, jobs), 0)
    assert (arrived.silent, arrived.outstanding) == (("node1",), ())
    assert arrived.may_say(verdict())


def test_a_job_of_silent_hosts_is_not_judged() -> None:
    arrivals, now_s = settled()
    jobs = [job_window("llama", RANKS)]
    gone = dict.fromkeys(HOSTS[:5], SILENT_SECONDS + 5.0)
    arrived = arrivals.look(window(now_s + 5, on_time() | gone, jobs), 0)
    assert arrived.waiting["llama"].words.startswith("5 of 8 hosts are silent: node0, node1")
    assert arrived.waiting["llama"].share == 5 / 8
    assert not arrived.may_say(verdict())


def test_hosts_that_left_the_window_are_still_missing() -> None:
    """Else a job of which most hosts went dark would be judged again three minutes later."""
    arrivals, now_s = settled()
    jobs = [job_window("llama", RANKS)]
    heard = dict.fromkeys(HOSTS[5:], 3.0)
    arrived = arrivals.look(window(now_s + 300, heard, jobs), 0)
    assert arrived.waiting["llama"].words.startswith("5 of 8 hosts are silent")
    arrived = arrivals.look(window(now_s + REMEMBERED_SECONDS + 60, heard, jobs), 0)
    assert (arrived.waiting, arrived.silent) == ({}, ())


@pytest.mark.parametrize("every_s", [15.0, 30.0])
def test_hosts_that_are_scraped_slowly_are_not_late(every_s: float) -> None:
    arrivals, now_s = settled(every_s)
    arrived = arrivals.look(window(now_s + every_s, on_time(every_s + 3)), 0)
    assert (arrived.is_complete, arrived.outstanding) == (True, ())


def test_a_service_that_is_behind_does_not_take_its_own_delay_for_their_rhythm() -> None:
    arrivals, now_s = settled()
    for number in range(1, 8):
        arrived = arrivals.look(window(now_s + 25 * number, on_time(25)), 0)
        assert not arrived.is_complete


def test_a_host_that_was_seen_once_is_not_waited_for() -> None:
    arrivals = Arrivals()
    assert arrivals.look(window(0, on_time(40)), 0).is_complete


def operations(missing_from_s: float, to_ns: int, missing: int = 3) -> Operations:
    """One operation a second of 8 ranks; of the later ones some ranks' records are missing."""
    age_s = np.arange(179, -1, -1)
    zeros = np.zeros(len(age_s), dtype=np.int64)
    names = ("communicators", "operations")
    columns: dict[str, Any] = {
        name: zeros for name in Operations.__struct_fields__ if name not in names
    }
    columns["last_exit_ns"] = to_ns - age_s * NS
    columns["ranks"] = zeros + 8
    columns["ranks_seen"] = np.where(age_s < missing_from_s, 8 - missing, 8)
    return Operations(communicators=["c"], operations=["all_reduce"], **columns)


def test_records_that_are_outstanding_hold_back_their_job_for_a_while() -> None:
    arrivals, now_s = settled()
    waited = []
    for number in range(1, 20):
        now = now_s + 5 * number
        made = operations(40 + 5 * number, START_NS + round(now * NS))
        job = job_window("llama", RANKS, operations=made)
        arrived = arrivals.look(window(now, on_time(), [job]), 0)
        waited.append("llama" in arrived.waiting)
    assert waited[0]
    assert waited.count(True) == WAIT_SECONDS_MAX // 5
    assert not waited[-1], "the records do not come: it is judged without them"


def test_records_on_their_way_hold_back_nothing() -> None:
    to_ns = START_NS + 200 * NS
    job = job_window("llama", RANKS, operations=operations(12, to_ns, missing=7))
    assert records_missing(job, to_ns) == 0.0


def test_ranks_that_are_never_logged_hold_back_nothing() -> None:
    to_ns = START_NS + 200 * NS
    job = job_window("llama", RANKS, operations=operations(1_000, to_ns, missing=5))
    assert records_missing(job, to_ns) == 0.0


def test_a_job_that_stands_still_waits_for_no_records() -> None:
    arrivals, now_s = settled()
    job = job_window("llama", RANKS)
    assert job.is_still
    assert arrivals.look(window(now_s + 5, on_time(), [job]), 0).waiting == {}


def test_rounds_that_take_too_long_read_less_and_then_more_again() -> None:
    effort = Effort()
    whole = effort.records_max
    for _ in range(20):
        effort.note(9.0, 5.0)
    assert effort.records_max == EFFORT_RECORDS_MIN
    effort.note(4.0, 5.0)
    assert effort.records_max == EFFORT_RECORDS_MIN, "it is just quick enough"
    for _ in range(40):
        effort.note(1.0, 5.0)
    assert effort.records_max == whole


def test_shares_are_numbers() -> None:
    assert np.isfinite(records_missing(job_window("llama", RANKS), START_NS))
