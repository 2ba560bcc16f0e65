"""Small clusters and patterns for tests of the simulated network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from collector.contract.collective import Operation
from simulator.network.model import LinkRates
from simulator.pattern import Algorithm, Pattern
from simulator.topology.build import build
from simulator.topology.model import Fabric, Floats, Ints, Topology
from simulator.topology.spec import ClusterSpec
from simulator.topology.world import World

GIGA = 1e9


def small_cluster(
    topology: str = "rail", hosts: int = 8, fabric: Fabric = Fabric.ROCE, **order: object
) -> Topology:
    """A cluster; by default of 400 Gb/s with one NIC per host."""
    spec: dict[str, object] = {
        "topology": topology,
        "hosts": hosts,
        "gpus_per_host": 1,
        "nics_per_host": 1,
        "fabric": fabric,
        "speed": "400GbE" if fabric is Fabric.ROCE else "NDR",
        **order,
    }
    return build(ClusterSpec(**spec))  # type: ignore[arg-type]


def two_pods(fabric: Fabric = Fabric.ROCE, uplinks_for: float = 4.0) -> Topology:
    """Two leaves of four hosts each, with one cable to the spine for ``uplinks_for`` NICs."""
    return small_cluster(
        "fat_tree", hosts=8, fabric=fabric, hosts_per_leaf=4, oversubscription=uplinks_for
    )


def world_of(topology: Topology, change: Callable[[World], None] | None = None) -> World:
    """A healthy world without bit errors, then changed."""
    world = World(topology, np.random.default_rng(7))
    world.link_raw_ber[:] = 0.0
    if change:
        change(world)
    return world


def pattern(
    pairs: Sequence[tuple[int, int]],
    *,
    units: Sequence[int] | None = None,
    sizes: Sequence[float] | None = None,
    is_coupled: bool = False,
    size_bytes: int = 1 << 28,
) -> Pattern:
    """Flows between NICs; each its own unit, if ``units`` does not say otherwise."""
    unit: Ints = np.array(range(len(pairs)) if units is None else units, dtype=np.int32)
    source: Ints = np.array([one for one, _ in pairs], dtype=np.int32)
    target: Ints = np.array([two for _, two in pairs], dtype=np.int32)
    count = int(unit.max(initial=-1)) + 1
    flow_bytes: Floats = np.full(len(pairs), float(size_bytes))
    if sizes is not None:
        flow_bytes = np.array(sizes, dtype=np.float64)
    return Pattern(
        name="test",
        operation=Operation.ALL_REDUCE,
        algorithm=Algorithm.RING if is_coupled else Algorithm.DIRECT,
        size_bytes=size_bytes,
        members=np.zeros((count, 2), dtype=np.int32),
        communicators=tuple(f"{number:x}" for number in range(count)),
        flow_unit=unit,
        flow_source=source,
        flow_target=target,
        flow_member=np.zeros(len(pairs), dtype=np.int32),
        flow_peer=np.ones(len(pairs), dtype=np.int32),
        flow_bytes=flow_bytes,
        flow_key=(np.arange(len(pairs)) * 97 + 3).astype(np.int32),
        is_coupled=is_coupled,
        floor_seconds=np.zeros(count),
    )


def rings(topology: Topology, hosts: Sequence[int], size_bytes: int = 1 << 28) -> Pattern:
    """An all-reduce over each rail of these hosts: one ring for each NIC of a host."""
    nics, count = topology.nics_per_host, len(hosts)
    pairs = [
        (hosts[at] * nics + rail, hosts[(at + 1) % count] * nics + rail)
        for rail in range(nics)
        for at in range(count)
    ]
    units = [rail for rail in range(nics) for _ in range(count)]
    moved = 2 * (count - 1) / count * size_bytes
    return pattern(
        pairs, units=units, sizes=[moved] * len(pairs), is_coupled=True, size_bytes=size_bytes
    )


def rate_of(rates: LinkRates, column: str, link: int) -> float:
    """One link's value of a column; 0 for links without traffic."""
    at = np.flatnonzero(rates.links == link)
    values: Floats = getattr(rates, column)
    return float(values[at[0]]) if len(at) else 0.0


def links_with(rates: LinkRates, column: str) -> list[int]:
    """Links where a column is not zero."""
    values: Floats = getattr(rates, column)
    return [int(link) for link in rates.links[values > 0]]
