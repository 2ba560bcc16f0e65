"""The agent's sources `ib_sysfs`, `netdev` and `ethtool`, for every NIC.

A label that the agent reads once a minute (the speed's name in `fabric_port_info`) changes here at
once.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence

import numpy as np

from collector.contract.counters import Overflow
from collector.contract.reason import UnreadReason
from simulator.interfaces.columns import (
    DOWN_SPEEDS,
    ethtool_columns,
    hca_columns,
    link_is_up,
    netdev_columns,
    port_columns,
    port_speed,
)
from simulator.interfaces.fabric_tree import (
    DRIVER_NAMES,
    KERNEL_DRIVER,
    KERNEL_VERSION,
    LINK_LAYERS,
    MTU_BYTES,
    guid_text,
    interface_address,
    nic_model,
    nic_pci_path,
)
from simulator.network.model import FINEST_SECONDS
from simulator.readings.devices import DeviceSection, Extenders
from simulator.readings.fabric_names import (
    ETHTOOL_COUNTERS,
    MEGABIT,
    NETDEV_COUNTERS,
    PORT_ATTRIBUTES,
    PORT_COUNTERS,
    WRAPS_32,
    Name,
)
from simulator.readings.series import ABSENT, Row, Rows, make_row, missing_row
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Floats, Topology

PORT = "1"
"""Every NIC has one port."""
GIGABIT = 1e9


def port_facts(topology: Topology, nic: int) -> dict[str, str]:
    model = nic_model(topology)
    return {
        "driver": "mlx5",
        "firmware": model.firmware,
        "node_guid": guid_text(topology.nic_guid(nic)),
        "board_id": model.board,
        "hca_type": model.hca_type,
        "link_layer": LINK_LAYERS[topology.fabric],
        "netdev": topology.interface_name(nic),
        "pci_path": nic_pci_path(nic % topology.nics_per_host),
    }


def driver_facts(topology: Topology, nic: int) -> dict[str, str]:
    """Labels of `fabric_nic_driver_info`: the output of ``ethtool -i``."""
    model = nic_model(topology)
    return {
        "driver": DRIVER_NAMES[topology.fabric],
        "version": KERNEL_VERSION,
        "firmware": f"{model.firmware} ({model.board})",
        "bus": nic_pci_path(nic % topology.nics_per_host).rpartition("/")[2],
    }


class NicSection(DeviceSection):
    """A source with the same rows for every NIC."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology.hosts)
        self._topology = topology

    def make_rows(self, host: int) -> Rows:
        size = self._topology.nics_per_host
        nics = range(host * size, (host + 1) * size)
        return tuple(row for nic in nics for row in self.rows_of_nic(nic))

    @abc.abstractmethod
    def rows_of_nic(self, nic: int) -> list[Row]:
        """The rows of one NIC, in the order of the columns."""


class PortSection(NicSection):
    """`ib_sysfs`: what is below `/sys/class/infiniband`."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._names: dict[str, Name] = {}
        self._files: dict[str, int] = {}
        self._extenders: Extenders | None = None

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: ARG002
        """Extended counters survive an agent's restart, because it saves them, but not a boot."""
        if self._extenders is not None:
            nic_host = np.arange(self._topology.nics) // self._topology.nics_per_host
            self._extenders.forget(np.isin(nic_host, list(booted)))

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        """All counters as the agent converts them."""
        counters = hca_columns(snapshot)
        if not self._names:
            self._meet(list(counters))
        is_up = link_is_up(snapshot.world)
        numbers = self._extend(counters, is_read[snapshot.world.nic_host])
        saturated: list[Floats] = []
        shown: list[Floats] = []
        for path, name in self._names.items():
            is_full = numbers[path] == name.width.saturated_at
            shown.append(np.where(is_full, ABSENT, numbers[path] * name.factor))
            if name.width.overflow is Overflow.CLAMP:
                saturated.append(np.where(is_full, 1.0, ABSENT))
        attributes: dict[str, Floats | Counts] = dict(port_columns(snapshot))
        # The kernel prints tenths of a gigabit.
        attributes["rate"] = np.rint(np.round(attributes["rate"] / GIGABIT, 1) * GIGABIT)
        files = [np.full(self._topology.nics, count) for count in self._files.values()]
        self.show(
            [
                np.where(is_up, 1.0, ABSENT),
                np.where(is_up, ABSENT, 1.0),
                *(attributes[file] for file in PORT_ATTRIBUTES),
                *files,
                *shown,
                *saturated,
            ]
        )

    def _meet(self, paths: list[str]) -> None:
        self._names = {path: PORT_COUNTERS[path] for path in paths}
        for path in paths:
            directory = path.partition("/")[0]
            self._files[directory] = self._files.get(directory, 0) + 1
        wrapping = sum(name.width == WRAPS_32 for name in self._names.values())
        self._extenders = Extenders(WRAPS_32, self._topology.nics, wrapping)

    def _extend(self, counters: dict[str, Counts], is_read: Bools) -> dict[str, Counts]:
        assert self._extenders is not None
        wrapping = [path for path, name in self._names.items() if name.width == WRAPS_32]
        raw = np.column_stack([counters[path] for path in wrapping])
        extended = self._extenders.extend(raw, is_read)
        return counters | dict(zip(wrapping, extended.T, strict=True))

    def rows_of_nic(self, nic: int) -> list[Row]:
        topology = self._topology
        labels = {"device": topology.device_name(nic), "port": PORT}
        facts = labels | port_facts(topology, nic)
        speeds = (port_speed(topology).name, DOWN_SPEEDS[topology.fabric].name)
        counters = [
            make_row(name.metric, labels | dict(name.labels)) for name in self._names.values()
        ]
        clamping = [
            row
            for row, name in zip(counters, self._names.values(), strict=True)
            if name.width.overflow is Overflow.CLAMP
        ]
        return [
            *(make_row("fabric_port_info", facts | {"speed": speed}) for speed in speeds),
            *(make_row(metric, labels) for metric in PORT_ATTRIBUTES.values()),
            *(
                make_row("fabric_port_counter_files", labels | {"directory": directory})
                for directory in self._files
            ),
            *counters,
            *(missing_row(row, UnreadReason.SATURATED, "ib_sysfs") for row in clamping),
        ]


class BurstSection(NicSection):
    """`bursts`: the peaks of what each port moves, as its fast sampler finds them."""

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:  # noqa: ARG002 - a section's
        """Nothing where no counter is read fast, and nothing of a port that is down."""
        topology, bursts = snapshot.topology, snapshot.burst_bytes
        nics = np.arange(topology.nics, dtype=np.int32)
        is_up = link_is_up(snapshot.world) & bool(len(bursts))
        ways = (topology.up(nics), topology.down(nics))
        peaks = [bursts[links] if len(bursts) else np.zeros(len(nics)) for links in ways]
        self.show(
            [
                *(np.where(is_up, np.rint(peak), ABSENT) for peak in peaks),
                *(np.where(is_up, FINEST_SECONDS, ABSENT) for _ in ways),
            ]
        )

    def rows_of_nic(self, nic: int) -> list[Row]:
        labels = {"device": self._topology.device_name(nic), "port": PORT}
        return [
            make_row(metric, labels | {"direction": way})
            for metric in ("fabric_burst_peak_bytes_per_second", "fabric_burst_resolution_seconds")
            for way in ("transmit", "receive")
        ]


class NetdevSection(NicSection):
    """`netdev`: what is below `/sys/class/net`."""

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:  # noqa: ARG002 - a section's
        """Only what the kernel itself sends."""
        columns = netdev_columns(snapshot)
        is_up = link_is_up(snapshot.world)
        every = np.ones(self._topology.nics)
        speed = port_columns(snapshot)["rate"] // MEGABIT * MEGABIT
        self.show(
            [
                every,
                *(columns[path] for path in NETDEV_COUNTERS),
                every * MTU_BYTES[self._topology.fabric],
                is_up * every,
                np.where(is_up, speed, ABSENT),
                np.where(is_up, ABSENT, 1.0),
            ]
        )

    def rows_of_nic(self, nic: int) -> list[Row]:
        labels = {"device": self._topology.interface_name(nic)}
        address = interface_address(self._topology, nic)
        facts = {"address": address, "driver": KERNEL_DRIVER}
        speed = make_row("fabric_nic_speed_bits_per_second", labels)
        return [
            make_row("fabric_nic_info", labels | facts),
            *(make_row(name.metric, labels) for name in NETDEV_COUNTERS.values()),
            make_row("fabric_nic_mtu_bytes", labels),
            make_row("fabric_nic_up", labels),
            speed,
            missing_row(speed, UnreadReason.NOT_SUPPORTED, "netdev"),
        ]


class EthtoolSection(NicSection):
    """`ethtool`: the driver's own statistics."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._names: dict[str, Name] = {}

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:  # noqa: ARG002 - a section's
        columns = ethtool_columns(snapshot)
        if not self._names:
            self._names = {
                name: ETHTOOL_COUNTERS[name] for name in columns if name in ETHTOOL_COUNTERS
            }
        every = np.ones(self._topology.nics)
        self.show([every, every * len(columns), *self._scaled(columns)])

    def _scaled(self, columns: dict[str, Counts]) -> Iterator[Floats]:
        for native, name in self._names.items():
            scaled: Floats = columns[native] * np.float64(name.factor)
            yield scaled

    def rows_of_nic(self, nic: int) -> list[Row]:
        labels = {"device": self._topology.interface_name(nic)}
        return [
            make_row("fabric_nic_driver_info", labels | driver_facts(self._topology, nic)),
            make_row("fabric_nic_statistics", labels),
            *(make_row(name.metric, labels | dict(name.labels)) for name in self._names.values()),
        ]
