"""A small fabric as a window, for tests of detectors on ports: 8 hosts, 2 leaves, 2 spines.

Every host has one NIC (`mlx5_0`), hosts 0 to 3 on `leaf-0` and 4 to 7 on `leaf-1`; each leaf has
two cables to each spine. All is well until a test writes something else into some cells.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.window.columns import Columns, Operations, Records
from alerts.window.model import (
    Communicator,
    Gpus,
    Grid,
    Hosts,
    JobWindow,
    Paths,
    Ports,
    Rank,
    Readings,
    Window,
)
from collector.contract.model import Event
from collector.contract.units import NS

CELLS = 24
STEP_NS = 5 * NS
START_NS = 1_800_000_000 * NS
LINE = 400e9
HOSTS = 8
NIC = "mlx5_0"
SENT = 15e9
"""Bytes a second that every NIC sends and receives."""
PACKET_BYTES = 4096.0

Key = tuple[str, str]
"""A host and the port's name."""


def host(number: int) -> Key:
    """A host's only port."""
    return f"node{number}", "1"


def leaf_port(number: int) -> Key:
    """The port of a leaf that a host hangs on."""
    return f"leaf-{number // 4}", str(number % 4 + 1)


class SmallFabric:
    """Readings that a test can change; ``window`` makes the window of them."""

    def __init__(self, cells: int = CELLS) -> None:
        self.grid = Grid(START_NS, STEP_NS, cells)
        self.keys: list[Key] = [host(number) for number in range(HOSTS)]
        self.cables: list[tuple[Key, Key]] = [
            (host(number), leaf_port(number)) for number in range(HOSTS)
        ]
        for leaf in range(2):
            for spine in range(2):
                for cable in range(2):
                    up = (f"leaf-{leaf}", str(5 + 2 * spine + cable))
                    self.cables.append((up, (f"spine-{spine}", str(1 + 2 * leaf + cable))))
        self.keys += sorted({end for cable in self.cables for end in cable} - set(self.keys))
        self.row = {key: row for row, key in enumerate(self.keys)}
        self.readings: dict[str, np.ndarray] = {}
        self.events: list[Event] = []
        self.seen_ns = np.full(len(self.keys), self.grid.end_ns, dtype=np.int64)
        for key in self.keys:
            busy = 0.0 if key[0].startswith("spine") or int(key[1]) > 4 else SENT
            for way in ("transmit", "receive"):
                self.set(f"{way}_bytes_total", key, busy)
                self.set(f"{way}_packets_total", key, busy / PACKET_BYTES)
            self.set("state", key, 4.0)
            self.set("rate_bits_per_second", key, LINE)

    def set(self, name: str, key: Key, value: float, cells: slice = slice(None)) -> None:
        """Write a value into some cells of a port's reading; other cells of a new one are 0."""
        table = self.readings.setdefault(name, np.full((len(self.keys), self.grid.cells), np.nan))
        line = table[self.row[key]]
        if np.isnan(line).all():
            line[:] = 0.0
        line[cells] = value

    def carry(self, source: Key, target: Key, value: float, cells: slice) -> None:
        """Bytes and packets over one cable, as both ends count them."""
        for name, end in (("transmit", source), ("receive", target)):
            self.set(f"{name}_bytes_total", end, value, cells)
            self.set(f"{name}_packets_total", end, value / PACKET_BYTES, cells)

    def window(self, order: Sequence[int] | None = None, *, jobs: bool = True) -> Window:
        """The window, with ports in another order if one is given."""
        places = list(range(len(self.keys))) if order is None else list(order)
        place_of = {row: place for place, row in enumerate(places)}
        other_end = np.full(len(places), -1, dtype=np.int64)
        for one, other in self.cables:
            rows = place_of[self.row[one]], place_of[self.row[other]]
            other_end[rows[0]], other_end[rows[1]] = rows[1], rows[0]
        names = [self.keys[row][0] for row in places]
        is_switch = np.array([not name.startswith("node") for name in names])
        ports = Ports(
            grid=self.grid,
            host=names,
            device=[
                name if switch else NIC for name, switch in zip(names, is_switch, strict=True)
            ],
            port=[self.keys[row][1] for row in places],
            readings={
                name: Readings(
                    metric=f"fabric_port_{name}",
                    row=np.arange(len(places), dtype=np.int64),
                    values=table[places],
                )
                for name, table in self.readings.items()
            },
            seen_ns=self.seen_ns[places],
            is_switch=is_switch,
            other_end=other_end,
            rate_bits_per_second=np.full(len(places), LINE),
            rail=np.where(is_switch, -1, 0).astype(np.int64),
            tier=np.array(
                [1 if name.startswith("spine") else 0 if switch else -1
                 for name, switch in zip(names, is_switch, strict=True)],
                dtype=np.int64,
            ),
        )  # fmt: skip
        return Window(
            from_ns=self.grid.start_ns,
            to_ns=self.grid.end_ns,
            jobs=[self.job(ports)] if jobs else [],
            ports=ports,
            gpus=no_gpus(self.grid),
            hosts=no_hosts(self.grid),
            events=self.events,
        )

    def job(self, ports: Ports) -> JobWindow:
        """A ring over all hosts but the last two, with the ways of its neighbours."""
        size = HOSTS - 2
        start, port, share = [0], [], []
        for rank in range(size):
            target = (rank + 1) % size
            port.append(ports.row_of[f"node{rank}", NIC, "1"])
            share.append(1.0)
            if rank // 4 != target // 4:
                leaf = f"leaf-{rank // 4}"
                port += [ports.row_of[leaf, leaf, str(number)] for number in (5, 6, 7, 8)]
                share += [0.25] * 4
            far = leaf_port(target)
            port.append(ports.row_of[far[0], far[0], far[1]])
            share.append(1.0)
            start.append(len(port))
        return JobWindow(
            job="ring",
            size=size,
            ranks={
                rank: Rank(rank=rank, host=f"node{rank}", gpu=0, devices=(NIC,), port="1")
                for rank in range(size)
            },
            communicators={
                "c": Communicator(
                    name="c", ranks=size, job_rank={rank: rank for rank in range(size)}
                )
            },
            source="test",
            records=no_rows(Records),
            operations=no_rows(Operations),
            clocks=(),
            paths=Paths(
                communicator=["c"] * size,
                source=np.arange(size, dtype=np.int64),
                target=(np.arange(size, dtype=np.int64) + 1) % size,
                start=np.array(start, dtype=np.int64),
                port=np.array(port, dtype=np.int64),
                share=np.array(share),
            ),
        )


Table = TypeVar("Table", bound=Columns)


def no_rows(kind: type[Table]) -> Table:
    """A table without rows."""
    lists = {"communicators", "operations", "hosts"}
    return kind(
        **{
            name: [] if name in lists else np.zeros(0, dtype=np.int64)
            for name in kind.__struct_fields__
        }
    )


def no_gpus(grid: Grid) -> Gpus:
    """No GPUs."""
    return Gpus(grid=grid, host=[], gpu=[], readings={}, seen_ns=np.zeros(0, dtype=np.int64))


def no_hosts(grid: Grid) -> Hosts:
    """No hosts."""
    return Hosts(grid=grid, host=[], readings={}, seen_ns=np.zeros(0, dtype=np.int64))


def told(findings: Sequence[Finding]) -> list[bytes]:
    """Findings in an order of their own, to compare."""
    return sorted(msgspec.json.encode(finding) for finding in findings)


def check_order_does_not_matter(
    detect: Callable[[Window], list[Finding]], fabric: SmallFabric
) -> None:
    """The same findings, and some, whatever the order of ports; and twice the same."""
    usual = told(detect(fabric.window()))
    shuffled = np.random.default_rng(5).permutation(len(fabric.keys)).tolist()
    assert usual
    assert told(detect(fabric.window(shuffled))) == usual
    assert told(detect(fabric.window())) == usual


def check_garbage_accuses_nobody(
    detect: Callable[[Window], list[Finding]], names: Sequence[str]
) -> None:
    """Empty tables, one cell, nothing but NaN, infinities and negative numbers: silence."""
    grid = Grid(START_NS, STEP_NS, 0)
    nothing = SmallFabric(1)
    for cells in (1, 2):
        fabric = SmallFabric(cells)
        assert detect(fabric.window()) == []
    for junk in (np.nan, -np.inf, -5.0):
        fabric = SmallFabric()
        for name in {*names, *fabric.readings} - {"state", "lanes", "rate_bits_per_second"}:
            for key in fabric.keys:
                fabric.set(name, key, junk)
        assert detect(fabric.window()) == [], junk
    for huge in (np.inf, 1e300):
        fabric = SmallFabric()
        for name in names:
            for key in fabric.keys:
                fabric.set(name, key, huge)
        detect(fabric.window())  # whatever it says, it does not raise
    empty = msgspec.structs.replace(
        nothing.window(jobs=False).ports, grid=grid, host=[], device=[], port=[], readings={},
        seen_ns=np.zeros(0, dtype=np.int64), is_switch=np.zeros(0, dtype=bool),
        other_end=np.zeros(0, dtype=np.int64), rate_bits_per_second=np.zeros(0),
        rail=np.zeros(0, dtype=np.int64), tier=np.zeros(0, dtype=np.int64),
    )  # fmt: skip
    window = msgspec.structs.replace(nothing.window(jobs=False), ports=empty)
    assert detect(window) == []
