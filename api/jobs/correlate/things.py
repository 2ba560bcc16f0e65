"""Reads ports, GPUs and hosts in a stretch of time, from the store and the topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import Gpus, Grid, Hosts, Ports, Readings
from api.fabric.model import Topology
from api.jobs.correlate.meanings import Choice, Known, Target
from api.jobs.correlate.readings import GridReader, Samples, gathered, keys_in
from api.jobs.correlate.wanted import Wanted
from collector.contract.catalog import WHOLE, Kind, load_catalog
from collector.contract.identity import GPU_MAX, PortId, whole_number

KEPT = "cabled_ports"
"""Where a topology keeps what its cables say of the ports of the last window."""
PORT = "fabric_port_"
NIC = "fabric_nic_"


def choices(thing: str, *others: str) -> tuple[Choice, ...]:
    """The catalog's metrics for windows of one kind of thing, named without the thing's prefix.

    ``others`` are kinds whose series are added up for each thing; their names keep the kind. Of
    steps a host has those of all its ranks: 8 seconds a second for eight ranks that always wait.
    """
    return tuple(
        Choice(
            metric.name,
            metric.name.removeprefix("fabric_").removeprefix(f"{thing}_"),
            split="" if metric.window == WHOLE else metric.window,
            is_max=metric.kind is Kind.GAUGE,
            is_peak=metric.peak,
        )
        for kind in (thing, *others)
        for metric in load_catalog().in_windows(kind)
    )


def sampled(needs: str = "", lacks: str = "") -> tuple[Choice, ...]:
    """What fast samplers find: of RDMA ports with their number, of interfaces without one."""
    return tuple(
        msgspec.structs.replace(
            one, reading=one.metric.removeprefix("fabric_"), needs=needs, lacks=lacks
        )
        for one in choices("burst")
    )


PORTS = Target((*choices("port"), *sampled(needs="port")), ("host", "device", "port"))
NICS = Target((*choices("nic"), *sampled(lacks="port")), ("host", "device"))
GPUS = Target(choices("gpu"), ("host", "gpu"), may_lack_host=True)
HOSTS = Target(choices("host", "step", "mount"), ("host",))

Key = tuple[str, ...]


def read_samples(reader: GridReader, grid: Grid, wanted: Wanted | None = None) -> Samples:
    """``wanted``: whose suffice; None: everyone's."""
    kinds = (PORTS, NICS, GPUS, HOSTS)
    return reader.ask(kinds, grid) if wanted is None else reader.ask_of(kinds, grid, wanted)


def read_ports(
    reader: GridReader,
    topology: Topology | None,
    grid: Grid,
    samples: Samples | None = None,
    targets: tuple[Target, Target] = (PORTS, NICS),
) -> Ports:
    """Every port that was read in this time or is cabled; ``targets`` are ports and interfaces."""
    samples = reader.ask(targets, grid) if samples is None else samples
    own_parts, nic_parts = (reader.parts(target, samples) for target in targets)
    own, nic = (reader.known(target) for target in targets)
    own_keys = {code: own.keys[code] for code in keys_in(own, own_parts)}
    netdevs: dict[Key, Key] = {}
    keys: dict[Key, None] = {}
    if topology is not None:
        for port in topology.ports.values():
            keys[port.id.host, port.id.device, port.id.port] = None
            if port.netdev:
                netdevs[port.id.host, port.netdev] = (port.id.host, port.id.device, port.id.port)
    # An interface without an RDMA device is a port of its own, called 1 as in the topology.
    nic_keys = {
        code: netdevs.get(nic.keys[code], (*nic.keys[code], "1"))
        for code in keys_in(nic, nic_parts)
    }
    keys |= dict.fromkeys(own_keys.values()) | dict.fromkeys(nic_keys.values())
    ordered = sorted(keys)
    row_of = {key: row for row, key in enumerate(ordered)}
    readings, seen_ns = gathered(
        own, own_parts, samples, rows_of_codes(own, own_keys, row_of), len(ordered)
    )
    more, seen_by_nic = gathered(
        nic, nic_parts, samples, rows_of_codes(nic, nic_keys, row_of), len(ordered)
    )
    found = (without_doubles(readings, more), np.maximum(seen_ns, seen_by_nic))
    return make_ports(ordered, topology, found, grid)  # type: ignore[arg-type]


def rows_of_codes(known: Known, keys: Mapping[int, Key], row_of: Mapping[Key, int]) -> Ints:
    """The row of each known thing; -1 for those that are not in this window."""
    rows = np.full(len(known.keys), -1, dtype=np.int64)
    for code, key in keys.items():
        rows[code] = row_of[key]
    return rows


def without_doubles(
    own: Mapping[str, Readings], nic: Mapping[str, Readings]
) -> dict[str, Readings]:
    """All readings; where both targets have one of a port, the port's own."""
    found = {**nic, **own}
    for name in own.keys() & nic.keys():
        more = ~np.isin(nic[name].row, own[name].row)
        row = np.concatenate([own[name].row, nic[name].row[more]])
        values = np.concatenate([own[name].values, nic[name].values[more]])
        order = np.argsort(row, kind="stable")
        found[name] = Readings(
            metric=own[name].metric,
            row=row[order],
            values=values[order],
            label=own[name].label,
            others=dict.fromkeys(nic[name].row[more].tolist(), nic[name].metric),
        )
    return found


def make_ports(
    keys: Sequence[tuple[str, str, str]],
    topology: Topology | None,
    found: tuple[dict[str, Readings], np.ndarray],
    grid: Grid,
) -> Ports:
    readings, seen_ns = found
    cabled = cabled_ports(keys, topology)
    rate = np.fmax(best_rates(len(keys), readings), cabled.rate_bits_per_second)
    # Both ends of a cable run at one rate: of a host without an agent its switch tells it.
    known = np.where(cabled.other_end >= 0, rate[cabled.other_end], np.nan)
    rate = np.where(np.isnan(rate), known, rate)
    return Ports(
        grid=grid,
        host=[host for host, _, _ in keys],
        device=[device for _, device, _ in keys],
        port=[port for _, _, port in keys],
        readings=readings,
        seen_ns=seen_ns,
        is_switch=cabled.is_switch,
        other_end=cabled.other_end,
        rate_bits_per_second=rate,
        rail=cabled.rail,
        tier=cabled.tier,
        netdev=cabled.netdev,
    )


class Cabled(NamedTuple):
    """What the cabling says of each port; -1, NaN and "" for what it does not."""

    is_switch: Flags
    other_end: Ints
    rate_bits_per_second: Floats
    rail: Ints
    tier: Ints
    netdev: list[str]


def cabled_ports(keys: Sequence[tuple[str, str, str]], topology: Topology | None) -> Cabled:
    """Kept with the topology, like a cached property: windows ask for the same ports each time."""
    if topology is None:
        return make_cabled(keys, None)
    kept: dict[str, tuple[Sequence[tuple[str, str, str]], Cabled]] = topology.__dict__
    if KEPT not in kept or kept[KEPT][0] != keys:
        kept[KEPT] = keys, make_cabled(keys, topology)
    return kept[KEPT][1]


def make_cabled(keys: Sequence[tuple[str, str, str]], topology: Topology | None) -> Cabled:
    count = len(keys)
    row_of = {key: row for row, key in enumerate(keys)}
    other_end, rail, tier = np.full((3, count), -1, dtype=np.int64)
    rate = np.full(count, np.nan)
    netdev = [""] * count
    is_switch = np.array([host == device for host, device, _ in keys], dtype=bool)
    if topology is None:
        return Cabled(is_switch, other_end, rate, rail, tier, netdev)
    for row, key in enumerate(keys):
        place = PortId(*key)
        port = topology.ports.get(place)
        if port is not None:
            rail[row] = -1 if port.rail is None else port.rail
            netdev[row] = port.netdev or ""
            rate[row] = port.rate_bits_per_second or np.nan
        far = topology.other_end(place)
        if far is not None:
            other_end[row] = row_of.get((far.host, far.device, far.port), -1)
        node = topology.nodes.get(key[0])
        if is_switch[row] and node is not None and node.tier is not None:
            tier[row] = node.tier
    return Cabled(is_switch, other_end, rate, rail, tier, netdev)


def best_rates(count: int, readings: dict[str, Readings]) -> Floats:
    """The highest rate that was read of each port in this time; NaN where none was."""
    rate = np.full(count, np.nan)
    for name in ("rate_bits_per_second", "speed_bits_per_second"):
        found = readings.get(name)
        if found is not None and found.values.size:
            best = np.fmax.reduce(found.values, axis=1)
            rate[found.row] = np.fmax(rate[found.row], np.where(best > 0, best, np.nan))
    return rate


def read_gpus(reader: GridReader, grid: Grid, samples: Samples | None = None) -> Gpus:
    samples = reader.ask((GPUS,), grid) if samples is None else samples
    parts, known = reader.parts(GPUS, samples), reader.known(GPUS)
    # An exporter that names GPUs by something else than their index matches no GPU.
    found = {code: known.keys[code] for code in keys_in(known, parts)}
    found = {code: key for code, key in found.items() if whole_number(key[1], GPU_MAX) is not None}
    keys = sorted(found.values(), key=lambda key: (key[0], int(key[1])))
    row_of = {key: row for row, key in enumerate(keys)}
    rows = rows_of_codes(known, found, row_of)
    readings, seen_ns = gathered(known, parts, samples, rows, len(keys))
    return Gpus(
        grid=grid,
        host=[key[0] for key in keys],
        gpu=[int(key[1]) for key in keys],
        readings=readings,
        seen_ns=seen_ns,
    )


def read_hosts(reader: GridReader, grid: Grid, samples: Samples | None = None) -> Hosts:
    samples = reader.ask((HOSTS,), grid) if samples is None else samples
    parts, known = reader.parts(HOSTS, samples), reader.known(HOSTS)
    found = {code: known.keys[code] for code in keys_in(known, parts)}
    keys = sorted(found.values())
    rows = rows_of_codes(known, found, {key: row for row, key in enumerate(keys)})
    readings, seen_ns = gathered(known, parts, samples, rows, len(keys))
    return Hosts(grid=grid, host=[key[0] for key in keys], readings=readings, seen_ns=seen_ns)
