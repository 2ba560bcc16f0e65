"""Reads ports, GPUs and hosts in a stretch of time, from the store and the topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from alerts.window.columns import Floats, Ints
from alerts.window.model import Gpus, Grid, Hosts, Ports, Readings
from api.fabric.model import Topology
from api.jobs.correlate.readings import (
    Choice,
    GridReader,
    Known,
    Samples,
    Target,
    gathered,
    keys_in,
)
from collector.contract.catalog import WHOLE, Kind, load_catalog
from collector.contract.identity import GPU_MAX, PortId, whole_number

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
        )
        for kind in (thing, *others)
        for metric in load_catalog().in_windows(kind)
    )


PORTS = Target(choices("port"), ("host", "device", "port"))
NICS = Target(choices("nic"), ("host", "device"))
GPUS = Target(choices("gpu"), ("host", "gpu"), may_lack_host=True)
HOSTS = Target(choices("host", "step"), ("host",))

Key = tuple[str, ...]


def read_samples(reader: GridReader, grid: Grid) -> Samples:
    return reader.ask((PORTS, NICS, GPUS, HOSTS), grid)


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
    row_of = {key: row for row, key in enumerate(keys)}
    other_end = np.full(len(keys), -1, dtype=np.int64)
    rail = np.full(len(keys), -1, dtype=np.int64)
    tier = np.full(len(keys), -1, dtype=np.int64)
    rate = best_rates(len(keys), readings)
    netdev = [""] * len(keys)
    is_switch = np.array([host == device for host, device, _ in keys], dtype=bool)
    if topology is not None:
        for row, key in enumerate(keys):
            place = PortId(*key)
            port = topology.ports.get(place)
            if port is not None:
                rail[row] = -1 if port.rail is None else port.rail
                netdev[row] = port.netdev or ""
                rate[row] = np.fmax(rate[row], port.rate_bits_per_second or np.nan)
            far = topology.other_end(place)
            if far is not None:
                other_end[row] = row_of.get((far.host, far.device, far.port), -1)
            node = topology.nodes.get(key[0])
            if is_switch[row] and node is not None and node.tier is not None:
                tier[row] = node.tier
    return Ports(
        grid=grid,
        host=[host for host, _, _ in keys],
        device=[device for _, device, _ in keys],
        port=[port for _, _, port in keys],
        readings=readings,
        seen_ns=seen_ns,
        is_switch=is_switch,
        other_end=other_end,
        rate_bits_per_second=rate,
        rail=rail,
        tier=tier,
        netdev=netdev,
    )


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
