"""The simulator held against reality: a real ring of eight hosts under two faults, and ours.

Figures of real captures were read once into a small file (`tests/fixtures/simulator/`); the same
ring with the same faults is simulated here. `tests.oracles.reality` shows both.

What is calibrated comes from the healthy capture alone; of a faulty one only the fault's strength
is taken over. Both sides go through `figures_of`, so nothing is measured twice differently.
"""

import gzip
import io
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from collector.contract.collective import Collective, Operation
from collector.contract.verdict import Culprit
from collector.formats import Origin, discover
from simulator.engine import Simulation
from simulator.faults.model import FOREVER, Cluster, Fault, Injection, Place
from simulator.jobs.ladder import ring_sends
from simulator.jobs.layout import lay_out
from simulator.jobs.model import JobSpec
from simulator.jobs.patterns import Collectives
from simulator.network.network import Network
from simulator.scenario import Scenario
from simulator.snapshot import CollectiveBlock
from simulator.topology.model import Fabric
from simulator.topology.spec import ClusterSpec
from simulator.topology.world import World

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "tests/fixtures/simulator/h200_ring.json"
RUNS = ("healthy", "net3", "compute5")
RANKS = 8
BIN_SECONDS = 0.01
"""Rates are looked at in bins of ten milliseconds, as the captures were sampled."""
DRAWN_SECONDS = 1.0

LINE_BPS = 10e9
"""Of the simulated ports. The real ones (virtual, on one machine) have no rate of their own."""
WIRE_SHARE = 0.89
"""Calibrated, healthy run: the share of line rate at which an all-reduce takes as long as there."""
COMPUTE_SECONDS = 2.5e-3
"""Calibrated, healthy run: with the wait for data and the delays below it gives the 6.3 ms between
one step's last collective and the next one's first."""
DELAY_SECONDS = 1.3e-3
"""Calibrated, healthy run: mean of a delay that each rank has in each step, drawn from an
exponential distribution: eight ranks share one GPU and queue for it. Gives the skew of entries."""
SLOW_BPS = 300e6
"""The strength of net3, from its truth: to and from host 3."""
EXTRA_SECONDS = 40.5e-3
"""The strength of compute5, from its capture: from 6.4 ms to 46.9 ms before each all-reduce."""
SECONDS = {"healthy": 5.0, "net3": 60.0, "compute5": 6.0}
"""Simulated in each run: some 100 steps, where the captures have 30."""
SEEDS = (1, 2, 3, 4, 5)
"""A run for each, all taken together: no single one has been picked because it looks good."""
SETTLED_S = 2.0
"""When the simulated stretch begins: after start-up, and a second into the fault."""

Floats = NDArray[np.float64]


class Figures(msgspec.Struct, kw_only=True):
    """What one run shows of itself in the stretch in which its fault acts. Lists go by rank."""

    collectives: int
    """All-reduces in the stretch."""
    transfer_ms: float
    """Last exit minus last entry, median."""
    skew_ms: float
    """Last entry minus first entry, median."""
    last_in: list[int]
    """How often each rank entered last."""
    least_inside: list[int]
    """How often each rank spent the least time inside."""
    exit_ms: list[float]
    """Each rank's exit after the first one's, median."""
    rate_mbps: list[float]
    """Mean of what each NIC sent."""
    peak_mbps: list[float]
    """Its 95th percentile over bins."""
    variation: list[float]
    """Coefficient of variation over bins: the larger one of both directions."""
    drawn_mbps: list[list[float]]
    """What each NIC sent in each bin of a second in the middle."""
    drawn_entry_ms: list[float]
    """Of the collective whose transfer is the median one, after its first entry."""
    drawn_exit_ms: list[float]


class Timeline(NamedTuple):
    """All-reduces as [collectives, ranks] (seconds), and bytes sent/received in bins."""

    entry_s: Floats
    exit_s: Floats
    sent: Floats
    """[ranks, bins]"""
    received: Floats


def figures_of(run: Timeline) -> Figures:
    """The figures of a stretch."""
    inside = run.exit_s - run.entry_s
    scale = 8 / BIN_SECONDS / 1e6
    rates = run.sent * scale
    drawn = int(DRAWN_SECONDS / BIN_SECONDS)
    start = max(0, (rates.shape[1] - drawn) // 2)
    transfer = run.exit_s.max(1) - run.entry_s.max(1)
    typical = int(np.argsort(transfer, kind="stable")[len(transfer) // 2])
    began = run.entry_s[typical].min()
    return Figures(
        collectives=len(run.entry_s),
        transfer_ms=median_ms(transfer),
        skew_ms=median_ms(run.entry_s.max(1) - run.entry_s.min(1)),
        last_in=np.bincount(run.entry_s.argmax(1), minlength=RANKS).tolist(),
        least_inside=np.bincount(inside.argmin(1), minlength=RANKS).tolist(),
        exit_ms=np.round(
            np.median(run.exit_s - run.exit_s.min(1, keepdims=True), axis=0) * 1e3, 1
        ).tolist(),
        rate_mbps=np.round(rates.mean(1), 1).tolist(),
        peak_mbps=np.round(np.quantile(rates, 0.95, axis=1), 1).tolist(),
        variation=np.round(
            np.maximum(variation_of(run.sent), variation_of(run.received)), 2
        ).tolist(),
        drawn_mbps=np.round(rates[:, start : start + drawn], 0).tolist(),
        drawn_entry_ms=np.round((run.entry_s[typical] - began) * 1e3, 1).tolist(),
        drawn_exit_ms=np.round((run.exit_s[typical] - began) * 1e3, 1).tolist(),
    )


def median_ms(seconds: Floats) -> float:
    """A median in milliseconds."""
    return round(float(np.median(seconds)) * 1e3, 2)


def variation_of(rates: Floats) -> Floats:
    """Standard deviation over mean, for each row."""
    result: Floats = rates.std(1) / np.maximum(rates.mean(1), 1e-9)
    return result


# --- real ----------------------------------------------------------------------------------------


def read_capture(folder: Path) -> Timeline:
    """One captured run, cut to the stretch of its fault; a healthy one to its last third.

    In the middle third of every run a profiler starts, which stops all ranks for six seconds.
    """
    entry, exits = read_all_reduces(folder / "inspector")
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    from_s, to_s = truth.get("fault_on_ns", 0) / 1e9, truth.get("fault_off_ns", 0) / 1e9
    if not from_s:
        from_s, to_s = entry[-(len(entry) // 3)].min(), exits[-1].max()
    inside = (entry.min(1) >= from_s) & (exits.max(1) <= to_s)
    sent = read_rates(folder / "nic.openmetrics.gz", "transmit", from_s, to_s)
    received = read_rates(folder / "nic.openmetrics.gz", "receive", from_s, to_s)
    return Timeline(entry[inside], exits[inside], sent, received)


def read_all_reduces(folder: Path) -> tuple[Floats, Floats]:
    """Entries and exits of the all-reduces that all ranks have, in order."""
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for path in sorted(folder.glob("*.log")):
        parsed = discover()["nccl_inspector"].parse(
            io.BytesIO(path.read_bytes()), Origin(path.name)
        )
        for record in parsed:
            if not isinstance(record, Collective) or record.operation != Operation.ALL_REDUCE:
                continue
            if record.ranks == RANKS and record.entry_ns and record.exit_ns:
                times = (record.entry_ns, record.exit_ns)
                found.setdefault(record.sequence, {})[record.rank] = times
    rows = [found[number] for number in sorted(found) if len(found[number]) == RANKS]
    table = np.array([[row[rank] for rank in range(RANKS)] for row in rows]) / 1e9
    return table[:, :, 0], table[:, :, 1]


def read_rates(path: Path, direction: str, from_s: float, to_s: float) -> Floats:
    """Bytes in bins: [ranks, bins]."""
    wanted = f"node_network_{direction}_bytes_total{{"
    edges = np.arange(from_s, to_s, BIN_SECONDS)
    series: dict[int, list[tuple[float, float]]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(wanted):
                labels, value, time = line.rsplit(" ", 2)
                host = int(labels.split('instance="node', 1)[1].split('"', 1)[0])
                series.setdefault(host, []).append((float(time), float(value)))
    counts = [np.interp(edges, *np.array(series[host]).T) for host in range(RANKS)]
    return np.diff(np.array(counts), axis=1)


# --- simulated -----------------------------------------------------------------------------------


class AsCaptured(Fault):
    """What was done to the real ring, as knobs; and always the calibrated speed of its wires."""

    name = "as_captured"
    title = "What was done to a real ring."
    causes = ()

    def __init__(self, run: str) -> None:
        self._run = run

    def choose(self, cluster: Cluster, random: np.random.Generator) -> Place:
        """Fixed by the capture."""
        del cluster, random
        return Place()

    def culprits(self, cluster: Cluster, place: Place) -> tuple[Culprit, ...]:
        """None: the truth comes from the capture."""
        del cluster, place
        return ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Wires first; then both directions of a NIC, or more work for a rank before each step."""
        del place, strength, elapsed_s
        world.link_speed_share[:] = WIRE_SHARE
        if self._run == "net3":
            nic = np.array([3], dtype=np.int32)
            for links in (world.topology.up(nic), world.topology.down(nic)):
                world.link_speed_share[links] = SLOW_BPS / LINE_BPS
        if self._run == "compute5":
            world.host_loader_seconds[5] = EXTRA_SECONDS
        return FOREVER


def scenario_of(run: str, seed: int) -> Scenario:
    """The same hosts, the same step, the same fault."""
    job = JobSpec(
        name="ring",
        hosts=tuple(range(RANKS)),
        tensor=1,
        gradient_bytes=8 << 20,
        buckets=1,
        gather_bytes=256 << 10,
        shares_loss=False,
        microbatches=1,
        compute_seconds=COMPUTE_SECONDS,
        jitter=0.0,
        hiccup_every_steps=1,
        hiccup_seconds=DELAY_SECONDS,
        startup_seconds=0.5,
    )
    return Scenario(
        cluster=ClusterSpec(
            topology="single",
            hosts=RANKS,
            gpus_per_host=1,
            nics_per_host=1,
            speed="10GbE",
            fabric=Fabric.ROCE,
        ),
        jobs=(job,),
        injections=(Injection(AsCaptured(run), Place(), 1.0, FOREVER, 1.0),),
        seconds=SECONDS[run],
        seed=seed,
    )


@cache
def simulate(run: str) -> Timeline:
    """Simulated runs, one for each seed, put one after the other."""
    entry, exits, sent, received = zip(*(simulate_once(run, seed) for seed in SEEDS), strict=True)
    return Timeline(
        np.concatenate(entry),
        np.concatenate(exits),
        np.concatenate(sent, axis=1),
        np.concatenate(received, axis=1),
    )


def simulate_once(run: str, seed: int) -> Timeline:
    """One simulated run, from when its fault has settled."""
    simulation = Simulation(scenario_of(run, seed))
    blocks = [block for snapshot in simulation.run() for block in snapshot.collectives]
    reduces = [block for block in blocks if block.operation is Operation.ALL_REDUCE]
    edges = np.arange(SETTLED_S, float(reduces[-1].entry_s.min()), BIN_SECONDS)
    inside = [block for block in reduces[:-1] if block.entry_s.min() >= SETTLED_S]
    sent = sent_bytes(simulation, blocks, edges)
    return Timeline(
        np.concatenate([block.entry_s for block in inside]),
        np.concatenate([block.exit_s for block in inside]),
        sent,
        np.roll(sent, 1, axis=0),
    )


def sent_bytes(simulation: Simulation, blocks: list[CollectiveBlock], edges: Floats) -> Floats:
    """[ranks, bins]: the sends of every ring, each spread evenly over its time.

    In a ring what a rank sends is what the next one receives.
    """
    (spec,), topology = simulation.scenario.jobs, simulation.topology
    total = np.zeros((RANKS, len(edges)))
    for collective in Collectives(spec, lay_out(spec, topology), topology).all():
        pattern = collective.pattern
        everyone = np.ones(pattern.units, dtype=np.bool_)
        (bps,) = Network(topology).solve(simulation.world, [(pattern, everyone)]).flow_bps
        times = [
            ring_sends(collective, block.entry_s, block.exit_s.max(axis=1), bps)
            for block in blocks
            if block.operation is pattern.operation
        ]
        starts, ends = (np.concatenate(each)[:, 0] for each in zip(*times, strict=True))
        for rank in range(RANKS):
            total[rank] += moved_by(edges, starts[:, rank], ends[:, rank], collective.chunk_bytes)
    return np.diff(total, axis=1)


def moved_by(moments: Floats, starts: Floats, ends: Floats, each: float) -> Floats:
    """How much has been sent by each moment, in sends of this size one after the other."""
    times = np.stack([starts, ends], axis=1).reshape(-1)
    count = np.arange(len(starts), dtype=np.float64)
    amounts = np.stack([count, count + 1], axis=1).reshape(-1) * each
    moved: Floats = np.interp(moments, times, amounts)
    return moved


# --- the file of figures -------------------------------------------------------------------------


def record(captures: Path) -> None:
    """Write the figures of real runs."""
    figures = {name: figures_of(read_capture(captures / name)) for name in RUNS}
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_bytes(msgspec.json.encode(figures) + b"\n")


def recorded() -> dict[str, Figures]:
    """The figures of real runs."""
    return msgspec.json.decode(FIGURES.read_bytes(), type=dict[str, Figures])
