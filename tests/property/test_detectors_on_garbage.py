"""Detectors and the judge on windows that no cluster would send: they must not break, nor accuse.

A seed makes a window; what a test changes about it is drawn beside the seed, so that one line
reproduces a failure.
"""

import warnings

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.detectors import detect_all, discover
from alerts.judge.verdict import judge
from alerts.window.columns import Floats, Ints, Records
from alerts.window.model import (
    Communicator,
    Gpus,
    Grid,
    Hosts,
    JobWindow,
    Ports,
    Rank,
    Readings,
    Things,
    Window,
)
from alerts.window.split import split
from api.jobs.correlate import things
from api.jobs.correlate.meanings import Target
from collector.contract.model import Event
from collector.contract.records import ABSENT
from collector.contract.units import NS
from tests.tools.cut import CUT

START_NS = 1_800_000_000 * NS
ODD = np.array([0.0, 1.0, 4.0, 0.5, 1e-300, 5.0, 1e3, 4e11, -1.0, 1e30, np.nan, np.inf, -np.inf])
"""Values that readings have, should not have, and cannot have."""
TIMES = np.array([0, -5 * NS, ABSENT, 1 << 61, START_NS, START_NS + 30 * NS])


def names_of(*targets: Target) -> tuple[str, ...]:
    """Readings of these kinds of things that are not split by a label."""
    choices = (choice for target in targets for choice in target.choices)
    return tuple(dict.fromkeys(choice.reading for choice in choices if not choice.split))


PORT_NAMES = names_of(things.PORTS, things.NICS)
GPU_NAMES = names_of(things.GPUS)
HOST_NAMES = (*names_of(things.HOSTS), "cpu_seconds_total:steal",
              "cpu_seconds_total:user", "step_phase_seconds_total:data")  # fmt: skip
SEEDS = st.integers(0, 1 << 32)
EXAMPLES = CUT.examples(40)


class Garbage:
    """A window out of a seed."""

    def __init__(self, seed: int, *, is_odd: bool = True, hosts: int = 4, cells: int = 12) -> None:
        self.random = np.random.default_rng(seed)
        self.is_odd = is_odd
        self.hosts = [f"node{number}" for number in range(hosts)]
        self.grid = Grid(START_NS, 5 * NS, cells)

    def readings(self, names: tuple[str, ...], rows: int, prefix: str) -> dict[str, Readings]:
        """Some of these of some rows; all values are absent unless the window is odd."""
        found = {}
        for name in names:
            if self.random.random() < 0.3:
                continue
            shape = (rows, self.grid.cells)
            values = self.random.choice(ODD, shape) if self.is_odd else np.full(shape, np.nan)
            kept: Ints = np.flatnonzero(self.random.random(rows) < 0.9)
            found[name] = Readings(
                metric=prefix + name.partition(":")[0],
                row=kept,
                values=values[kept],
                label=name.partition(":")[2],
            )
        return found

    def ports(self) -> Ports:
        """A NIC of each host and as many ports of switches; cabled at random, or not at all."""
        names = [*self.hosts, *(f"leaf{place % 2}" for place in range(len(self.hosts)))]
        count = len(names)
        is_switch = np.array([name.startswith("leaf") for name in names], dtype=bool)
        other_end = np.full(count, -1, dtype=np.int64)
        for place in range(0, count - 1, 2):
            one, other = self.random.permutation(count)[:2].tolist()
            if self.is_odd or place:
                other_end[one], other_end[other] = other, one
        known = other_end >= 0
        # A cable has two ends: what was overwritten hangs on nothing.
        other_end[known & (other_end[other_end] != np.arange(count))] = -1
        return Ports(
            grid=self.grid,
            host=names,
            device=["mlx5_0" if name in self.hosts else name for name in names],
            port=[str(place) for place in range(count)],
            readings=self.readings(PORT_NAMES, count, "fabric_port_"),
            seen_ns=self.random.choice(TIMES, count),
            is_switch=is_switch,
            other_end=other_end,
            rate_bits_per_second=self.random.choice(np.array([4e11, np.nan, 0.0]), count),
            rail=self.random.integers(-1, 3, count),
            tier=self.random.integers(-1, 3, count),
            netdev=[f"eth{place}" for place in range(count)],
        )  # fmt: skip

    def records(self) -> Records:
        """What ranks did, in order; times are odd where anything is."""
        ranks, count = len(self.hosts), 8
        sequence, rank = (part.reshape(-1) for part in np.mgrid[:count, :ranks])
        entry = START_NS + sequence.astype(np.int64) * NS
        leave = entry + 10_000_000
        if self.is_odd:
            chosen = self.random.random(len(entry)) < 0.4
            entry = np.where(chosen, self.random.choice(TIMES, len(entry)), entry)
            leave = np.where(~chosen, self.random.choice(TIMES, len(entry)), leave)
        size = len(entry)
        return Records(
            communicators=["0x1"],
            operations=["all_reduce"],
            hosts=self.hosts,
            communicator=np.zeros(size, dtype=np.int32),
            operation=np.zeros(size, dtype=np.int32),
            sequence=sequence.astype(np.int64),
            rank=rank.astype(np.int32),
            host=rank.astype(np.int32),
            pid=np.ones(size, dtype=np.int32),
            entry_ns=entry,
            exit_ns=leave,
            enqueue_ns=np.full(size, ABSENT, dtype=np.int64),
            duration_ns=np.full(size, ABSENT, dtype=np.int64),
            size_bytes=np.full(size, 1 << 20, dtype=np.int64),
            ranks=np.full(size, ranks, dtype=np.int32),
            peer=np.full(size, -1, dtype=np.int32),
        )

    def job(self) -> JobWindow:
        """One rank a host."""
        records = self.records()
        places = range(len(self.hosts))
        return JobWindow(
            job="train",
            size=len(self.hosts),
            ranks={
                place: Rank(rank=place, host=self.hosts[place], gpu=0, devices=("mlx5_0",))
                for place in places
            },
            communicators={
                "0x1": Communicator(
                    name="0x1",
                    ranks=len(self.hosts),
                    job_rank={place: place for place in places},
                    rings=[list(places)],
                )
            },
            source="nccl_inspector",
            records=records,
            operations=split(records),
            clocks=[],
        )

    def events(self) -> list[Event]:
        """Events at odd times, with labels that are no numbers."""
        kinds = ("gpu_xid", "link_down", "link_flap", "burst", "link_rate", "")
        return [
            Event(
                kind=kinds[int(self.random.integers(len(kinds)))],
                time_ns=int(self.random.choice(TIMES)),
                labels={"host": "node0", "gpu": "x", "device": "mlx5_0", "port": "0"},
                message="",
                attributes={"xid": "²", "direction": "receive"},
            )
            for _ in range(6 if self.is_odd else 0)
        ]

    def window(self) -> Window:
        """All of it."""
        count = len(self.hosts)
        return Window(
            from_ns=START_NS,
            to_ns=self.grid.end_ns,
            jobs=[self.job()] if count else [],
            ports=self.ports(),
            gpus=Gpus(
                grid=self.grid,
                host=list(self.hosts),
                gpu=[0] * count,
                readings=self.readings(GPU_NAMES, count, "fabric_gpu_"),
                seen_ns=self.random.choice(TIMES, count),
            ),
            hosts=Hosts(
                grid=self.grid,
                host=list(self.hosts),
                readings=self.readings(HOST_NAMES, count, "fabric_host_"),
                seen_ns=self.random.choice(TIMES, count),
            ),
            events=self.events(),
        )


def rows_moved(table: Things, order: Ints) -> dict[str, object]:
    """The columns of a table with its rows in another order."""
    place_of = np.argsort(order)
    columns: dict[str, object] = {}
    for name in table.__struct_fields__:
        column = getattr(table, name)
        if isinstance(column, list):
            columns[name] = [column[row] for row in order.tolist()]
        elif isinstance(column, np.ndarray):
            columns[name] = column[order]
    columns["readings"] = {
        name: msgspec.structs.replace(one, row=place_of[one.row])
        for name, one in table.readings.items()
    }
    if isinstance(table, Ports):
        far = table.other_end[order]
        columns["other_end"] = np.where(far >= 0, place_of[far], -1)
    return columns


def shuffled(window: Window, seed: int) -> Window:
    """The same window with the rows of every table in another order."""
    random = np.random.default_rng(seed)
    moved = {
        name: msgspec.structs.replace(table, **rows_moved(table, random.permutation(len(table))))
        for name in ("ports", "gpus", "hosts")
        if (table := getattr(window, name)) is not None
    }
    return msgspec.structs.replace(window, **moved)


@pytest.mark.parametrize("name", sorted(discover()))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=SEEDS, hosts=st.integers(0, 5), cells=st.sampled_from([0, 1, 2, 12]))
def test_no_detector_breaks(name: str, seed: int, hosts: int, cells: int) -> None:
    window = Garbage(seed, hosts=hosts, cells=cells).window()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for finding in discover()[name](window):
            assert 0.0 <= finding.strength <= 1.0
            assert finding.since_ns <= finding.last_ns
            assert all(np.isfinite(one.value) for one in finding.evidence), finding


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=SEEDS, hosts=st.integers(0, 5), cells=st.sampled_from([0, 1, 2, 12]))
def test_the_judge_does_not_break(seed: int, hosts: int, cells: int) -> None:
    window = Garbage(seed, hosts=hosts, cells=cells).window()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert judge(window) == judge(window)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=SEEDS, order=SEEDS)
def test_the_order_of_rows_does_not_matter(seed: int, order: int) -> None:
    window = Garbage(seed).window()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        there, here = detect_all(shuffled(window, order)), detect_all(window)
    said = sorted((one.detector, one.cause, repr(one.culprit), one.since_ns) for one in here)
    assert said == sorted(
        (one.detector, one.cause, repr(one.culprit), one.since_ns) for one in there
    )


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=SEEDS, hosts=st.integers(0, 5), cells=st.sampled_from([0, 1, 2, 12]))
def test_nobody_is_accused_where_nothing_was_read_and_all_ranks_are_alike(
    seed: int, hosts: int, cells: int
) -> None:
    window = Garbage(seed, is_odd=False, hosts=hosts, cells=cells).window()
    seen_ns: Floats = np.full(hosts, window.to_ns, dtype=np.int64)
    gpus = msgspec.structs.replace(window.gpus, seen_ns=seen_ns)
    assert judge(msgspec.structs.replace(window, gpus=gpus, is_live=False)) == []
