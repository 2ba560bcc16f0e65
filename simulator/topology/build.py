"""Builds a cabled cluster (`Topology`) from a `ClusterSpec`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from simulator.topology import dragonfly, fat_tree, rail, single
from simulator.topology.model import SPEEDS, Fabric, Floats, Ints, LinkKind, Speed, Topology
from simulator.topology.spec import OPPOSITE, ClusterSpec, Wiring

__all__ = ["TOPOLOGIES", "ClusterSpec", "PcieSlot", "build", "pcie_slot"]

TOPOLOGIES: dict[str, Callable[[ClusterSpec], Wiring]] = {
    "rail": rail.wire,
    "fat_tree": fat_tree.wire,
    "dragonfly": dragonfly.wire,
    "single": single.wire,
}

HOSTS_MIN = 2
"""One host uses no network."""
HOSTS_MAX = 4096
"""With 8 NICs each a quarter of a million directed links: memory and time are planned for that."""
PER_HOST_MAX = 16
"""GPUs or NICs of one host: the most in hosts on the market."""
SWITCH_PORTS_MIN = 4
"""Two down and two up: less is no fabric."""
SWITCH_PORTS_MAX = 255
"""Ports count in one byte of their addresses (`Topology.switch_mac`). A 51.2 Tb/s chip has 256 at
200 Gb/s, one of which is then left unused."""
OVERSUBSCRIPTION_MAX = 64.0
"""Beyond this a leaf's uplink is a bottleneck in every simulation."""
ETHERNET_SUFFIX = "GbE"
"""Suffix of Ethernet speeds; InfiniBand's have names of their own (`NDR`)."""


@dataclass(frozen=True)
class PcieSlot:
    """A PCIe slot as drivers report it, and its bandwidth in each direction."""

    generation: int
    width: int
    transfers_per_second: float
    """Of one lane: what `current_link_speed` calls GT/s."""
    bits_per_second: float
    """Of all lanes, after line coding."""


PCIE_SLOTS = tuple(
    PcieSlot(generation, 16, rate, 16 * rate * efficiency)
    for generation, rate, efficiency in (
        (3, 8e9, 128 / 130),
        (4, 16e9, 128 / 130),
        (5, 32e9, 128 / 130),
        (6, 64e9, 242 / 256),
    )
)
"""Up to generation 5 a lane sends 130 bits for 128; from 6 on a flit has 242 of 256 bytes."""


def pcie_slot(speed: Speed) -> PcieSlot:
    """The slot that a NIC of this speed is sold for: the oldest x16 that carries line rate.

    >>> pcie_slot(SPEEDS["NDR"]).generation
    5
    """
    return next(slot for slot in PCIE_SLOTS if slot.bits_per_second >= speed.bits_per_second)


def build(spec: ClusterSpec) -> Topology:
    """The cluster, cabled. Raises SettingsError if the spec is impossible."""
    _check_names(spec)
    _check_numbers(spec)
    return _assemble(spec, TOPOLOGIES[spec.topology](spec))


def _check_names(spec: ClusterSpec) -> None:
    for what, name, known in (
        ("topology", spec.topology, TOPOLOGIES),
        ("fabric", spec.fabric, tuple(Fabric)),
        ("speed", spec.speed, SPEEDS),
    ):
        if name not in known:
            raise SettingsError(unknown(what, name, known))
    is_ethernet = spec.speed.endswith(ETHERNET_SUFFIX)
    if is_ethernet != (spec.fabric == Fabric.ROCE):
        fitting = ", ".join(
            name for name in SPEEDS if name.endswith(ETHERNET_SUFFIX) is not is_ethernet
        )
        raise SettingsError(
            f"speed = {spec.speed!r} does not fit fabric = {str(spec.fabric)!r}; take one of"
            f" {fitting}, or the other fabric"
        )


def _check_numbers(spec: ClusterSpec) -> None:
    limits: tuple[tuple[str, float, float, float], ...] = (
        ("hosts", spec.hosts, HOSTS_MIN, HOSTS_MAX),
        ("gpus_per_host", spec.gpus_per_host, 1, PER_HOST_MAX),
        ("nics_per_host", spec.nics_per_host, 1, PER_HOST_MAX),
        ("oversubscription", spec.oversubscription, 1.0, OVERSUBSCRIPTION_MAX),
        ("switch_ports", spec.switch_ports, SWITCH_PORTS_MIN, SWITCH_PORTS_MAX),
    )
    if spec.hosts_per_leaf is not None:
        limits += (("hosts_per_leaf", spec.hosts_per_leaf, 1, HOSTS_MAX),)
    for name, value, low, high in limits:
        if not (math.isfinite(value) and low <= value <= high):
            raise SettingsError(f"{name} = {value}: must be from {low} to {high}")


def _assemble(spec: ClusterSpec, wiring: Wiring) -> Topology:
    """All links as `Topology` promises: four ranges of NICs', then cables, near ends before far."""
    nics = spec.hosts * spec.nics_per_host
    memory = np.arange(nics, dtype=np.int32)
    nic = memory + np.int32(nics)
    leaf = wiring.nic_switch + np.int32(2 * nics)
    near = wiring.near + np.int32(2 * nics)
    far = wiring.far + np.int32(2 * nics)
    source = np.concatenate([memory, nic, nic, leaf, near, far])
    back = np.array([OPPOSITE.get(LinkKind(kind), kind) for kind in LinkKind], dtype=np.int8)
    ranges = (LinkKind.PCIE_OUT, LinkKind.PCIE_IN, LinkKind.UP, LinkKind.DOWN)
    kind = np.repeat(np.array(ranges, dtype=np.int8), nics)
    return Topology(
        name=spec.topology,
        fabric=Fabric(spec.fabric),
        speed=SPEEDS[spec.speed],
        hosts=spec.hosts,
        gpus_per_host=spec.gpus_per_host,
        nics_per_host=spec.nics_per_host,
        switches=wiring.switches,
        source=source,
        target=np.concatenate([nic, memory, leaf, nic, far, near]),
        reverse=_reverse(nics, len(near)),
        kind=np.concatenate([kind, wiring.kind, back[wiring.kind]]),
        bits_per_second=_bits_per_second(SPEEDS[spec.speed], nics, len(source)),
        port=_ports(source, nics),
    )


def _reverse(nics: int, cables: int) -> Ints:
    """The two directions of a slot, of a NIC's cable and of a cable between switches."""
    number = np.arange(4 * nics + 2 * cables, dtype=np.int32)
    pairs = number[: 4 * nics].reshape(2, 2, nics)[:, ::-1].ravel()
    return np.concatenate([pairs, number[4 * nics + cables :], number[4 * nics :][:cables]])


def _bits_per_second(speed: Speed, nics: int, links: int) -> Floats:
    """Slots carry what their generation carries; all cables run at the NICs' speed."""
    rate = np.full(links, speed.bits_per_second)
    rate[: 2 * nics] = pcie_slot(speed).bits_per_second
    return rate


def _ports(source: Ints, nics: int) -> Ints:
    """Numbers from 1 at each switch, in the order of links: NICs, then up, then down."""
    port = np.zeros(len(source), dtype=np.int32)
    port[2 * nics : 3 * nics] = 1
    ours = np.flatnonzero(source >= 2 * nics)
    order = ours[np.argsort(source[ours], kind="stable")]
    _, first, count = np.unique(source[order], return_index=True, return_counts=True)
    port[order] = np.arange(len(order)) - np.repeat(first, count) + 1
    return port
