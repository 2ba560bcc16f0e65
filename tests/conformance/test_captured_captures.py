"""What bytes of real rings decide between two neighbours: the slow NIC, and never an innocent.

The captures lie beside the checkout; without them the tests are skipped. Their counters were read
every ten milliseconds, so a cell has twenty.
"""

import gzip
import re
from functools import cache

import msgspec
import numpy as np
import pytest

from alerts.signals import peaks
from alerts.signals.captured import even_one
from alerts.signals.edges import fabric_of
from alerts.window.model import Captured, Grid, Readings
from collector.contract.units import NS, NS_PER_MS
from tests.tools.captures import RINGS
from tests.worlds.windows import capture_window

SLOW = {"net3": 3, "half4": 4, "tree_net2": 2, "groups_net3": 3}
"""Runs with a slow NIC, and whose."""
OTHERS = ("noisy", "compute5", "cpu2", "healthy")
RANKS, SECONDS, EDGE_SECONDS = 8, 5.0, 0.5
LINE = re.compile(r'node_network_(\w+)_bytes_total\{instance="node(\d)".*\} (\S+) (\S+)')

pytestmark = pytest.mark.skipif(
    not (RINGS / "net3").is_dir(), reason="no captures beside the repository"
)
each_cell = pytest.mark.parametrize("cell_ms", [20, 50])


@cache
def counters(run: str) -> dict[tuple[str, int], np.ndarray]:
    """Times (s) and bytes of each direction and node."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with gzip.open(RINGS / run / "nic.openmetrics.gz", "rt") as lines:
        for line in lines:
            if match := LINE.match(line):
                way, node, value, time = match.groups()
                found.setdefault((way, int(node)), []).append((float(time), float(value)))
    return {key: np.array(points).T for key, points in found.items()}


def captures(run: str, cell_ms: int) -> list[Captured]:
    """Captures of five seconds of all nodes, while the fault lasts."""
    truth = msgspec.json.decode((RINGS / run / "truth.json").read_bytes())
    known = counters(run)
    first = max(one[0][0] for one in known.values())
    last = min(one[0][-1] for one in known.values())
    first = max(first, truth.get("fault_on_ns", 0) / NS + EDGE_SECONDS)
    last = min(last, truth.get("fault_off_ns", 1 << 62) / NS - EDGE_SECONDS)
    edges = np.arange(first, last, cell_ms / 1000)
    rates = {
        way: np.array(
            [np.diff(np.interp(edges, *known[way, node])) * 1000 / cell_ms for node in range(RANKS)]
        )
        for way in ("transmit", "receive")
    }
    length = round(SECONDS * 1000 / cell_ms)
    return [
        Captured(
            grid=Grid(
                0, cell_ms * NS_PER_MS, rates["transmit"][:, start : start + length].shape[1]
            ),
            row=np.arange(RANKS),
            transmit=rates["transmit"][:, start : start + length],
            receive=rates["receive"][:, start : start + length],
        )
        for start in range(0, max(1, len(edges) - 1 - length), length)
    ]


def answers(run: str, cell_ms: int) -> list[tuple[tuple[int, int], int | None]]:
    """For neighbours in the ring, and each third node as the yardstick: who is accused."""
    found = []
    for captured in captures(run, cell_ms):
        for sender in range(RANKS):
            pair = sender, (sender + 1) % RANKS
            for beside in set(range(RANKS)) - set(pair):
                rows = [*pair, beside]
                part = msgspec.structs.replace(
                    captured,
                    row=np.array(rows),
                    transmit=captured.transmit[rows],
                    receive=captured.receive[rows],
                )
                even = even_one(part, pair, pair, 0, part.grid.end_ns)
                found.append((pair, None if even is None else even.row))
    return found


@each_cell
@pytest.mark.parametrize("run", [*SLOW, *OTHERS])
def test_no_innocent_is_accused_among_any_two_neighbours(run: str, cell_ms: int) -> None:
    accused = {row for _, row in answers(run, cell_ms)} - {None}
    assert accused <= {SLOW[run]} if run in SLOW else not accused


@each_cell
@pytest.mark.parametrize("run", ["net3", "tree_net2", "groups_net3"])
def test_the_slow_nic_is_told_from_its_neighbours(run: str, cell_ms: int) -> None:
    named = [row == SLOW[run] for pair, row in answers(run, cell_ms) if SLOW[run] in pair]
    assert sum(named) >= 0.8 * len(named)


def by_peaks(run: str, from_ns: int, to_ns: int) -> str:
    """The host that the peaks of each second accuse in this time; empty: none."""
    window = capture_window(RINGS / run)
    job = max(window.jobs, key=lambda one: len(one.operations))
    ports = window.ports
    grid = Grid(from_ns - 2 * NS, NS, (to_ns - from_ns) // NS + 3)
    rows = [ports.host.index(f"node{node}") for node in range(RANKS)]
    values = {way: np.full((3, RANKS, grid.cells), np.nan) for way in ("transmit", "receive")}
    for (way, node), (times, counted) in counters(run).items():
        place = (times * NS).astype(np.int64)
        for cell in range(grid.cells):
            start = grid.start_ns + cell * NS
            inside = (place >= start) & (place < start + NS)
            if inside.sum() > 1:
                took = np.diff(times[inside])
                rate = np.diff(counted[inside]) / took
                span = times[inside][-1] - times[inside][0]
                mean = (counted[inside][-1] - counted[inside][0]) / span
                values[way][:, node, cell] = rate.max(), mean, np.median(took)
    names = {
        "transmit": (peaks.PEAK, peaks.SENT, peaks.RESOLUTION),
        "receive": (peaks.PEAK_IN, peaks.TAKEN),
    }
    readings = {
        name: Readings(metric=name, row=np.array(rows), values=one)
        for way in names
        for name, one in zip(names[way], values[way], strict=False)
    }
    read = msgspec.structs.replace(
        ports,
        grid=grid,
        readings=readings,
        # What a veth of this machine carries; it has no rate of its own.
        rate_bits_per_second=np.full(len(ports), 10e9),
    )
    whole = max(job.communicators.values(), key=lambda one: one.ranks)
    fabric = fabric_of(msgspec.structs.replace(window, ports=read), job)
    found = peaks.evenest(fabric, {whole.name}, from_ns, to_ns)
    return "" if found is None else ports.host[found.row]


def test_peaks_of_each_second_name_the_slow_nic_of_a_tree_and_no_one_in_a_ring() -> None:
    """By 10 ms, in any ten seconds of the fault; and nothing before it."""
    truth = msgspec.json.decode((RINGS / "tree_net2" / "truth.json").read_bytes())
    on, off = truth["fault_on_ns"], truth["fault_off_ns"]
    starts = range(on, off - 11 * NS, 2 * NS)
    assert [by_peaks("tree_net2", start, start + 11 * NS) for start in starts] == ["node2"] * 4
    for run in ("net3", "groups_net3"):
        truth = msgspec.json.decode((RINGS / run / "truth.json").read_bytes())
        assert not by_peaks(run, truth["fault_on_ns"], truth["fault_off_ns"])
