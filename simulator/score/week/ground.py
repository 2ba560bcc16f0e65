"""The fabric under the week's fleet: leaves of hosts below a few spines, one port a host."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from api.fabric.graph import compile_graph
from api.fabric.model import Link, make_topology
from api.fabric.tiers import with_tiers
from api.fleet.placement.floor import make_floor
from api.fleet.placement.jobs import traffic_of
from api.fleet.placement.place import Known
from api.fleet.placement.ways import Ways
from collector.contract.identity import LinkId, PortId
from simulator.score.week.model import Spec

SPINES = 8
BITS_PER_SECOND = 400_000_000_000
LONG_AGO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def name_of(host: int) -> str:
    return f"node{host:04}"


def ground(spec: Spec) -> Known:
    """The floor of the fleet. No job puts traffic on it: here only faults make jobs slow."""
    topology = make_topology(LONG_AGO, (), (), links_of(spec))
    floor = make_floor(compile_graph(with_tiers(topology)), map(name_of, range(spec.hosts)))
    ways = Ways(floor)
    return Known(
        as_of_s=0.0,
        floor=floor,
        ways=ways,
        traffic=traffic_of(floor, ways, []),
        gpus=dict.fromkeys(floor.hosts, spec.gpus_per_host),
        places=0,
    )


def links_of(spec: Spec) -> Iterator[Link]:
    """Every host to its leaf, every leaf to every spine."""
    leaves = -(-spec.hosts // spec.hosts_per_leaf)
    for host in range(spec.hosts):
        name, leaf = name_of(host), f"leaf{host // spec.hosts_per_leaf:02}"
        yield link(PortId(name, "mlx5_0", "1"), PortId(leaf, leaf, f"Ethernet{host}"))
    for number in range(leaves):
        for spine in range(SPINES):
            leaf, top = f"leaf{number:02}", f"spine{spine}"
            yield link(PortId(leaf, leaf, f"Up{spine}"), PortId(top, top, f"Ethernet{number}"))


def link(one: PortId, other: PortId) -> Link:
    return Link(
        id=LinkId.between(one, other),
        since=LONG_AGO,
        last_seen=LONG_AGO,
        seen_from=(one, other),
        is_up=True,
        rate_bits_per_second=BITS_PER_SECOND,
    )
