"""Windows as data: odd ones too, and what single numbers mean."""

import msgspec
import numpy as np
import pytest

from alerts.window.columns import Operations, Records, Step
from alerts.window.model import (
    Communicator,
    Gpus,
    Grid,
    Hosts,
    JobWindow,
    Pending,
    Ports,
    Rank,
    Readings,
)
from alerts.window.model import Window as DetectorWindow
from alerts.window.split import split
from api.oncall.explain.answer import Explanation
from api.oncall.explain.explainer import Question, explain
from api.oncall.explain.job import Chosen, explain_job, gaps_of
from collector.contract.collective import State
from collector.contract.identity import PortId
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Culprit
from tests.worlds.collectives import START_NS, make_records

GRID = Grid(START_NS, 5 * NS, 4)
NAN = float("nan")


def make_job(records: Records, *, ring: list[int] | None = None, hosts: int = 8) -> JobWindow:
    """A job with one communicator over one rank a host."""
    operations: Operations = split(records)
    members = {rank: rank for rank in range(hosts)}
    return JobWindow(
        job="train",
        size=hosts,
        ranks={rank: Rank(rank=rank, host=f"node{rank}", gpu=0) for rank in members},
        communicators={
            "0xabc": Communicator(
                name="0xabc", ranks=hosts, job_rank=members, rings=[ring] if ring else []
            )
        },
        source="nccl_inspector",
        records=records,
        operations=operations,
        clocks=[],
        steps=[
            Step(
                number=0,
                start_ns=START_NS,
                end_ns=START_NS + NS,
                ranks=hosts,
                compute_ns=1,
                wait_ns=2,
                transfer_ns=3,
                last_rank=None,
            )
        ],
        pending=[
            Pending(
                communicator="0xabc",
                operation="all_reduce",
                sequence=7,
                ranks=3,
                states={0: State.STARTED, 2: State.SCHEDULED},
            )
        ],
    )


def make_window(*jobs: JobWindow, values: list[float] | None = None) -> DetectorWindow:
    """Two ends of a cable, a GPU and a host; the NIC's bytes are given."""
    line = np.array([values or [1.0, 2.0, NAN, 4.0]])
    sent = Readings(metric="fabric_port_transmit_bytes_total", row=np.array([1]), values=line)
    errors = Readings(
        metric="fabric_nic_receive_errors_total", row=np.array([1]), values=np.zeros((1, 4))
    )
    steal = Readings(
        metric="fabric_host_cpu_seconds_total", row=np.array([0]), values=line, label="steal"
    )
    return DetectorWindow(
        from_ns=START_NS,
        to_ns=GRID.end_ns,
        jobs=jobs,
        ports=Ports(
            grid=GRID,
            host=["leaf", "node0"],
            device=["leaf", "mlx5_0"],
            port=["swp1", "1"],
            readings={"transmit_bytes_total": sent, "receive_errors_total": errors},
            seen_ns=np.array([ABSENT, START_NS]),
            is_switch=np.array([True, False]),
            other_end=np.array([1, 0]),
            rate_bits_per_second=np.array([NAN, 4e11]),
            rail=np.array([-1, 0]),
            tier=np.array([0, -1]),
        ),
        gpus=Gpus(grid=GRID, host=["node0"], gpu=[3], readings={}, seen_ns=np.array([START_NS])),
        hosts=Hosts(
            grid=GRID,
            host=["node0"],
            readings={"cpu_seconds_total:steal": steal},
            seen_ns=np.array([START_NS]),
        ),
    )


def ask(window: DetectorWindow, **about: object) -> Explanation:
    question = Question(from_ns=window.from_ns, to_ns=window.to_ns, about={}, **about)  # type: ignore[arg-type]
    answer = explain(window, question, ([], [], []))
    msgspec.json.decode(msgspec.json.encode(answer))
    return answer


def test_a_link_shows_both_ends_and_the_query_for_each_reading() -> None:
    found = ask(make_window(), ports=(PortId("node0", "mlx5_0", "1"),))
    assert [(thing.name, thing.other_end) for thing in found.things] == [
        ("node0/mlx5_0/1", "leaf/swp1"),
        ("leaf/swp1", "node0/mlx5_0/1"),
    ]
    nic, leaf = found.things
    assert (nic.seen_ns, leaf.seen_ns) == (START_NS, None)
    assert (nic.rate_bits_per_second, leaf.rate_bits_per_second) == (4e11, None)
    [sent] = nic.readings
    assert sent.values == [1.0, 2.0, None, 4.0]
    assert sent.query == (
        "sum by (host,device,port) (rate(fabric_port_transmit_bytes_total"
        '{host="node0",device="mlx5_0",port="1"}[20s]))'
    )
    assert nic.still == ["fabric_nic_receive_errors_total"]
    assert leaf.readings == []
    assert [(peers.kind, peers.things) for peers in found.peers] == [("port", 1)]


def test_a_host_shows_its_host_gpus_and_ports_and_a_mode_is_a_label() -> None:
    found = ask(make_window(), hosts=("node0",))
    assert [thing.name for thing in found.things] == ["node0", "node0/gpu/3", "node0/mlx5_0/1"]
    [steal] = found.things[0].readings
    assert steal.labels == {"host": "node0", "mode": "steal"}
    assert 'mode="steal"' in steal.query


def test_a_switch_is_shown_with_what_hangs_on_it() -> None:
    found = ask(make_window(), culprits=(Culprit(switch="leaf"),))
    assert {thing.name for thing in found.things} == {"leaf/swp1", "node0/mlx5_0/1"}


def test_a_name_cannot_break_out_of_a_query() -> None:
    window = make_window()
    window.ports.host[1] = 'a"} or vector(1) #\\'
    found = ask(window, hosts=(window.ports.host[1],))
    [sent] = found.things[0].readings
    assert 'host="a\\"} or vector(1) #\\\\",' in sent.query


def test_gaps_are_since_the_latest_exit_of_anything_and_never_negative() -> None:
    records = make_records(hosts=2, steps=3)
    gaps = gaps_of(records, records.rank.astype(np.int64))
    for rank in (0, 1):
        rows = np.flatnonzero(records.rank == rank)
        rows = rows[np.argsort(records.entry_ns[rows])]
        assert gaps[rows[0]] == ABSENT
        expected = records.entry_ns[rows[1:]] - records.exit_ns[rows[:-1]]
        assert gaps[rows[1:]].tolist() == np.maximum(expected, 0).tolist()


def test_an_operation_inside_of_another_does_not_end_the_rank_s_work() -> None:
    records = make_records(hosts=1, steps=2)
    order = np.argsort(records.entry_ns)
    first, second, third, last = order.tolist()
    records.exit_ns[first] = records.entry_ns[third] - 5
    gaps = gaps_of(records, records.rank.astype(np.int64))
    assert gaps[[first, second, third]].tolist() == [ABSENT, 0, 5]
    assert gaps[last] == records.entry_ns[last] - records.exit_ns[third]


def test_times_that_are_years_apart_are_no_gaps() -> None:
    records = make_records(hosts=2, steps=3)
    records.entry_ns[0] = 0
    gaps = gaps_of(records, np.arange(len(records)) * 1_000)
    assert set(gaps.tolist()) == {ABSENT}


def test_before_and_during_are_divided_by_the_end_of_the_whole_operation() -> None:
    records = make_records(steps=20, late={3: 0.02})
    job = make_job(records, ring=list(range(8)))
    since_ns = int(np.sort(job.operations.last_exit_ns)[20])
    found, left = explain_job(job, Chosen(since_ns=since_ns))
    assert left == []
    assert sum(kind.before.operations for kind in found.kinds) == 20
    assert sum(kind.during.operations for kind in found.kinds) == 20
    for rank in found.ranks:
        kind = next(one for one in found.kinds if one.operation == rank.operation)
        assert rank.before.operations == kind.before.operations
    late = [one for one in found.ranks if one.operation == "all_reduce" and one.rank == 3]
    assert late[0].during.last_in == late[0].during.operations
    assert late[0].during.late_ns == pytest.approx(0.02 * NS, rel=0.1)
    for ladder in found.ladders:
        assert [place.host for place in ladder.places] == [f"node{rank}" for rank in range(8)]
        assert sum(place.jump_ns or 0 for place in ladder.places) == 0


def test_a_ring_of_which_a_rank_is_missing_has_no_ladder() -> None:
    records = make_records(steps=5)
    without = records.select(records.rank != 4)
    found, _ = explain_job(make_job(without, ring=list(range(8))), Chosen())
    assert found.ladders == []
    assert len(found.ranks) == 14


def test_who_says_nothing_of_a_pending_operation_is_named() -> None:
    found, _ = explain_job(make_job(make_records(steps=2)), Chosen())
    [pending] = found.pending
    assert pending.states == {"0": "started", "2": "scheduled"}
    assert pending.silent == [1]


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_records_are_explained_too(rows: int) -> None:
    records = make_records(steps=2).select(np.arange(rows))
    job = make_job(records, ring=list(range(8)))
    found = ask(make_window(job), job="train")
    [explained] = found.jobs
    assert explained.ladders == []
    assert sum(len(kind.sequence) for kind in explained.kinds) == min(rows, 1)
    whole, _ = explain_job(job, Chosen(has_records=True))
    assert whole.records is not None
    assert len(whole.records.rank) == rows


def test_records_of_communicators_that_nobody_knows_are_shown_without_a_rank() -> None:
    job = msgspec.structs.replace(make_job(make_records(steps=3)), communicators={}, ranks={})
    found, _ = explain_job(job, Chosen(has_records=True))
    assert found.records is not None
    assert set(found.records.job_rank) == {None}
    assert {rank.job_rank for rank in found.ranks} == {None}
    assert found.ranks[0].host == "node0"


def test_infinite_readings_are_null() -> None:
    found = ask(make_window(values=[float("inf"), 1.0, NAN, 2.0]), hosts=("node0",))
    assert found.things[0].readings[0].values == [None, 1.0, None, 2.0]
