"""The fabric side of simulated hosts, read by the production sources as they read a machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import Source, discover
from simulator.interfaces.columns import (
    MANAGEMENT_PACKET_BYTES,
    STALLED_SECONDS,
    ethtool_columns,
    hca_columns,
    netdev_columns,
    port_columns,
)
from simulator.interfaces.fabric_tree import FabricTree, gpu_pci_path, nic_pci_path
from simulator.snapshot import LinkCounters, Snapshot
from simulator.topology.model import Fabric, Topology
from tests.worlds.simulated import PACKET_BYTES, UPTIME_NS, make_snapshot, make_topology

SOURCES = ("ib_sysfs", "netdev", "ethtool")
NIC = 7
"""The one that tests look at: the last of the second host's four."""
DEVICE, IB, ETH = "mlx5_3", "ib3", "eth3"
ROCE, INFINIBAND = (make_topology(fabric, nics=4) for fabric in (Fabric.ROCE, Fabric.INFINIBAND))

both_fabrics = pytest.mark.parametrize("topology", [ROCE, INFINIBAND], ids=["roce", "infiniband"])


class Reader:
    """A host's agent: sources that stay, and one `Host` that keeps its files open."""

    def __init__(self, host: Host) -> None:
        self.host = host
        kinds = discover()
        self._sources: list[Source] = [
            kinds[name](msgspec.convert({}, kinds[name].Settings)) for name in SOURCES
        ]

    def read(self) -> list[Reading]:
        return [reading for source in self._sources for reading in source.read(self.host)]

    def values(self, device: str = DEVICE) -> dict[str, float]:
        """By metric, and by metric and priority or lane where it has one."""
        found: dict[str, float] = {}
        for reading in self.read():
            if isinstance(reading, Sample) and ("device", device) in reading.series.labels:
                labels = dict(reading.series.labels)
                names = [labels[name] for name in ("priority", "lane", "cast") if name in labels]
                found[":".join([reading.series.metric, *names])] = reading.value
        return found

    def missing(self) -> dict[tuple[str, str], UnreadReason]:
        return {
            (reading.series.metric, dict(reading.series.labels)["device"]): reading.reason
            for reading in self.read()
            if isinstance(reading, Missing)
        }

    def labels(self, metric: str, device: str = DEVICE) -> dict[str, str]:
        return next(
            dict(reading.series.labels)
            for reading in self.read()
            if isinstance(reading, Sample)
            and reading.series.metric == metric
            and ("device", device) in reading.series.labels
        )


@contextmanager
def written(folder: Path, snapshot: Snapshot) -> Iterator[tuple[FabricTree, Reader]]:
    """The tree of a snapshot's second host, and its reader."""
    tree = FabricTree(folder, snapshot.topology)
    tree.start(snapshot)
    host = Host(folder / "node0001")
    try:
        yield tree, Reader(host)
    finally:
        host.close()


def files_below(folder: Path) -> dict[str, Path]:
    found = (Path(top) / name for top, _, names in os.walk(folder) for name in names)
    return {str(path.relative_to(folder)): path for path in found if not path.is_symlink()}


# --- what is read is what was counted ------------------------------------------------------------


@both_fabrics
def test_traffic_is_read_in_bytes_and_packets(topology: Topology, tmp_path: Path) -> None:
    snapshot = make_snapshot(topology)
    links, up, down = snapshot.links, topology.up(NIC), topology.down(NIC)
    with written(tmp_path, snapshot) as (_, reader):
        values = reader.values()
    lost = links.lost_packets[down] + links.dropped_packets[topology.pcie_in(NIC)]
    # On InfiniBand the kernel's own packets are in the same counters.
    kernel = 0 if topology is ROCE else values["fabric_port_transmit_packets_total"]
    kernel -= 0 if topology is ROCE else links.packets[up]
    assert 0 <= kernel < UPTIME_NS / 1e9 * 2
    assert values["fabric_port_receive_packets_total"] == links.packets[down] - lost + kernel
    sent = links.bytes[up] + kernel * MANAGEMENT_PACKET_BYTES
    assert values["fabric_port_transmit_bytes_total"] == pytest.approx(sent, abs=4)
    received = links.bytes[down] - lost * PACKET_BYTES + kernel * MANAGEMENT_PACKET_BYTES
    assert values["fabric_port_receive_bytes_total"] == pytest.approx(received, abs=4)


def test_pause_that_a_host_receives_is_not_pause_that_it_sends(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    links, up, down = snapshot.links, ROCE.up(NIC), ROCE.down(NIC)
    with written(tmp_path, snapshot) as (_, reader):
        values = reader.values(ETH)
    assert values["fabric_nic_receive_pause_frames_total:3"] == links.pause_frames[up]
    assert values["fabric_nic_transmit_pause_frames_total:3"] == links.pause_frames[down]
    received = values["fabric_nic_receive_pause_seconds_total:3"]
    transmitted = values["fabric_nic_transmit_pause_seconds_total:3"]
    assert received == pytest.approx(links.paused_us[up] / 1e6)
    assert transmitted == pytest.approx(links.paused_us[down] / 1e6)


def test_congestion_on_roce_is_read_at_the_device(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    with written(tmp_path, snapshot) as (_, reader):
        values = reader.values()
    nics = snapshot.nics
    assert values["fabric_port_cnp_sent_total"] == nics.cnp_sent[NIC]
    assert values["fabric_port_cnp_handled_total"] == nics.cnp_handled[NIC]
    marked = values["fabric_port_receive_ecn_marked_packets_total"]
    assert marked == nics.marked_received[NIC]
    assert values["fabric_port_receive_out_of_sequence_total"] == nics.out_of_sequence[NIC]
    assert values["fabric_port_sequence_naks_total"] == nics.sequence_errors[NIC]
    assert values["fabric_port_ack_timeouts_total"] == nics.ack_timeouts[NIC]


def test_errors_of_the_wire_are_read_where_the_damage_arrives(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    links, down = snapshot.links, ROCE.down(NIC)
    with written(tmp_path, snapshot) as (_, reader):
        values = reader.values(ETH)
    assert values["fabric_nic_phy_receive_bits_total"] == links.bits[down]
    assert values["fabric_nic_phy_receive_corrected_bits_total"] == links.corrected_bits[down]
    assert values["fabric_nic_phy_receive_pcs_symbol_errors_total"] == links.symbol_errors[down]
    assert values["fabric_nic_phy_receive_crc_errors_total"] == links.corrupted_packets[down]
    assert values["fabric_nic_receive_errors_total"] == links.corrupted_packets[down]
    lanes = sum(values[f"fabric_nic_phy_receive_lane_errors_total:{lane}"] for lane in range(4))
    raw = links.corrected_bits[down] + links.symbol_errors[down]
    assert lanes == pytest.approx(raw, abs=4)


def test_errors_on_infiniband_are_in_the_classic_counters(tmp_path: Path) -> None:
    snapshot = make_snapshot(INFINIBAND)
    links, up, down = snapshot.links, INFINIBAND.up(NIC), INFINIBAND.down(NIC)
    with written(tmp_path, snapshot) as (_, reader):
        values = reader.values()
        statistics = reader.host.ethtool_stats(IB)
    assert values["fabric_port_symbol_errors_total"] == links.symbol_errors[down]
    assert values["fabric_port_receive_errors_total"] == links.corrupted_packets[down]
    assert values["fabric_port_link_downed_total"] == max(links.downs[up], links.downs[down])
    recoveries = max(links.recoveries[up], links.recoveries[down])
    assert values["fabric_port_link_error_recoveries_total"] == recoveries
    # 400 Gb/s over four lanes, one tick for 32 bytes of a lane.
    ticks = links.wait_ns[up] * (400 / 4 / 8) / 32
    assert values["fabric_port_transmit_wait_ticks_total"] == pytest.approx(ticks, abs=1)
    assert statistics["rx_corrected_bits_phy"] == links.corrected_bits[down]


def test_errors_on_ethernet_are_not_in_the_classic_counters(tmp_path: Path) -> None:
    with written(tmp_path, make_snapshot(ROCE)) as (_, reader):
        values = reader.values()
    assert values["fabric_port_symbol_errors_total"] == 0
    assert values["fabric_port_link_downed_total"] == 0


@both_fabrics
def test_rdma_traffic_bypasses_the_interface(topology: Topology, tmp_path: Path) -> None:
    snapshot = make_snapshot(topology)
    with written(tmp_path, snapshot) as (_, reader):
        values = reader.values(ETH if topology is ROCE else IB)
    days = UPTIME_NS / 86_400e9
    assert 0 < values["fabric_nic_receive_bytes_total"] < 50e6 * days
    if topology is ROCE:
        rdma = values["fabric_nic_rdma_transmit_bytes_total:unicast"]
        assert rdma == snapshot.links.bytes[ROCE.up(NIC)]


def test_a_host_that_drains_too_slowly_shows_it_at_its_slot(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    slow, fast = ROCE.pcie_in(NIC), ROCE.pcie_in(NIC - 1)
    snapshot.links.queue_bytes[slow] = STALLED_SECONDS * 400e9 / 8
    snapshot.links.queue_bytes[fast] = 0
    with written(tmp_path, snapshot) as (_, reader):
        assert reader.values(ETH)["fabric_nic_pcie_write_stalled_ratio"] == 1
        assert reader.values("eth2")["fabric_nic_pcie_write_stalled_ratio"] == 0
        discards = reader.values(ETH)["fabric_nic_phy_receive_discards_total"]
    assert discards == snapshot.links.dropped_packets[slow]


# --- nothing is missing, nothing is unknown ------------------------------------------------------


@both_fabrics
def test_a_healthy_host_lacks_nothing(topology: Topology, tmp_path: Path) -> None:
    with written(tmp_path, make_snapshot(topology)) as (_, reader):
        assert reader.missing() == {}
        metrics = {each.series.metric for each in reader.read() if isinstance(each, Sample)}
        assert "fabric_port_driver_value" not in metrics
        assert reader.host.name == "node0001"
        assert len(reader.host.list("sys/class/infiniband")) == ROCE.nics_per_host


@both_fabrics
def test_a_port_says_what_it_is(topology: Topology, tmp_path: Path) -> None:
    is_roce = topology is ROCE
    with written(tmp_path, make_snapshot(ROCE if is_roce else INFINIBAND)) as (_, reader):
        info, values = reader.labels("fabric_port_info"), reader.values()
        driver = reader.labels("fabric_nic_driver_info", ETH if is_roce else IB)
    assert info["netdev"] == (ETH if is_roce else IB)
    assert info["link_layer"] == ("Ethernet" if is_roce else "InfiniBand")
    assert (info["driver"], info["speed"], info["hca_type"]) == ("mlx5", "NDR", "MT4129")
    assert int(info["node_guid"].replace(":", ""), 16) == ROCE.nic_guid(NIC)
    assert driver["driver"] == ("mlx5_core" if is_roce else "mlx5_core[ib_ipoib]")
    assert driver["bus"] == info["pci_path"].rpartition("/")[2]
    assert values["fabric_port_state"] == 4
    assert values["fabric_port_rate_bits_per_second"] == 400e9
    assert bool(values["fabric_port_lid"]) is not is_roce


def test_every_host_shows_its_own_nics(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    tree = FabricTree(tmp_path, ROCE)
    tree.start(snapshot)
    snapshot.links.bytes += 1_000_000
    tree.update(snapshot)
    path = f"sys/class/infiniband/{DEVICE}/ports/1/counters/port_xmit_data"
    for host, nic in (("node0000", 3), ("node0001", 7)):
        words = int((tmp_path / host / path).read_text())
        assert words == snapshot.links.bytes[ROCE.up(nic)] // 4


def test_a_nic_is_nearer_to_its_gpu_than_to_any_other(tmp_path: Path) -> None:
    with written(tmp_path, make_snapshot(ROCE)) as (_, reader):
        own = reader.labels("fabric_port_info")["pci_path"]
        address = gpu_pci_path(3).rpartition("/")[2]
        target = reader.host.link_target(f"sys/bus/pci/devices/{address}")
    assert target.endswith(gpu_pci_path(3))
    shared = [len(os.path.commonpath([own, gpu_pci_path(gpu)])) for gpu in range(4)]
    assert np.argmax(shared) == 3
    assert shared.count(max(shared)) == 1


def test_sixteen_devices_have_addresses_of_their_own() -> None:
    paths = [path(index) for path in (nic_pci_path, gpu_pci_path) for index in range(16)]
    assert len({path.rpartition("/")[2] for path in paths}) == 32
    assert all(len(path.rpartition("/")[2]) == len("0000:18:00.0") for path in paths)


# --- counters have ends --------------------------------------------------------------------------


def test_classic_counters_stop_at_their_ends(tmp_path: Path) -> None:
    snapshot = make_snapshot(INFINIBAND)
    links, up, down = snapshot.links, INFINIBAND.up(NIC), INFINIBAND.down(NIC)
    links.symbol_errors[down] = 70_000
    links.downs[up] = 256
    links.recoveries[down] = 16
    links.wait_ns[up] = 12 * 10**9
    with written(tmp_path, snapshot) as (_, reader):
        missing = reader.missing()
        path = f"sys/class/infiniband/{DEVICE}/ports/1/counters"
        ends = {
            "symbol_error": 65_535,
            "link_downed": 255,
            "local_link_integrity_errors": 15,
            "port_xmit_wait": 4_294_967_295,
        }
        for name, end in ends.items():
            assert int(reader.host.read(f"{path}/{name}")) == end
        assert reader.values()["fabric_port_link_error_recoveries_total"] == 16
    assert missing["fabric_port_symbol_errors_total", DEVICE] is UnreadReason.SATURATED
    assert set(missing.values()) == {UnreadReason.SATURATED}
    assert len(missing) == len(ends)


def test_queue_counters_begin_anew_and_a_reader_goes_on(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    metric = "fabric_port_receive_out_of_sequence_total"
    snapshot.nics.out_of_sequence[NIC] = 2**32 - 7
    with written(tmp_path, snapshot) as (tree, reader):
        assert reader.values()[metric] == 2**32 - 7
        snapshot.nics.out_of_sequence[NIC] += 12
        tree.update(snapshot)
        path = f"sys/class/infiniband/{DEVICE}/ports/1/hw_counters/out_of_sequence"
        assert reader.host.read(path) == b"5\n"
        assert reader.values()[metric] == 2**32 + 5


GAUGES = {"outbound_pci_stalled_wr"}


@both_fabrics
def test_counters_never_fall_while_what_they_count_grows(topology: Topology) -> None:
    snapshot = make_snapshot(topology)
    random = np.random.default_rng(5)
    before = None
    for _ in range(50):
        now = hca_columns(snapshot) | netdev_columns(snapshot) | ethtool_columns(snapshot)
        if before is not None:
            assert now.keys() == before.keys()
            fell = [name for name in now if (now[name] < before[name]).any()]
            assert set(fell) <= GAUGES
        before = now
        packets = random.integers(0, 1000, snapshot.topology.links)
        snapshot.links.packets += packets
        snapshot.links.bytes += packets * 4_154
        for field in fields(LinkCounters):
            if field.name not in ("packets", "bytes", "lost_packets", "dropped_packets"):
                getattr(snapshot.links, field.name)[:] += random.integers(
                    0, 4, snapshot.topology.links
                )
        lost = np.minimum(packets // 2, random.integers(0, 3, snapshot.topology.links))
        snapshot.links.lost_packets += lost
        snapshot.time_s += 1.0


@both_fabrics
def test_columns_do_not_depend_on_what_happened(topology: Topology) -> None:
    busy = make_snapshot(topology)
    idle = make_snapshot(topology, links=make_idle_links(busy.links))
    for of in (hca_columns, netdev_columns, ethtool_columns, port_columns):
        assert list(of(busy)) == list(of(idle))
        assert all(column.shape == (topology.nics,) for column in of(idle).values())
        assert all(column.dtype == np.int64 for column in of(busy).values())


def make_idle_links(links: LinkCounters) -> LinkCounters:
    return LinkCounters(
        **{field.name: np.zeros_like(getattr(links, field.name)) for field in fields(links)}
    )


# --- changes -------------------------------------------------------------------------------------


def test_a_reader_that_holds_its_files_sees_new_numbers(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    up = ROCE.up(NIC)
    with written(tmp_path, snapshot) as (tree, reader):
        before, of_nic = reader.values(), reader.values(ETH)
        snapshot.links.bytes[up] += 4_000_000_000
        snapshot.links.pause_frames[up] += 77
        snapshot.time_s += 60.0
        tree.update(snapshot)
        after, of_nic_after = reader.values(), reader.values(ETH)
    metric = "fabric_port_transmit_bytes_total"
    assert after[metric] - before[metric] == pytest.approx(4e9, abs=4)
    pauses = "fabric_nic_receive_pause_frames_total:3"
    assert of_nic_after[pauses] - of_nic[pauses] == 77
    packets = "fabric_nic_receive_packets_total"
    assert of_nic_after[packets] > of_nic[packets]


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    with written(tmp_path, snapshot) as (tree, _):
        files = files_below(tmp_path)
        for path in files.values():
            os.utime(path, (0, 0))
        tree.update(snapshot)
        assert not [name for name, path in files.items() if path.stat().st_mtime_ns]
        snapshot.nics.cnp_sent[NIC] += 1
        tree.update(snapshot)
        (written_one,) = (name for name, path in files.items() if path.stat().st_mtime_ns)
    assert written_one.startswith("node0001/")
    assert written_one.endswith(f"{DEVICE}/ports/1/hw_counters/np_cnp_sent")


def test_a_reboot_begins_at_zero_under_another_boot_id(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    boots = snapshot.hosts.boot_unix_ns.copy()
    boots[1] = snapshot.start_unix_ns + 80 * 10**9
    fresh = replace(
        snapshot,
        time_s=90.0,
        host_links=make_idle_links(snapshot.links),
        hosts=replace(snapshot.hosts, boot_unix_ns=boots),
    )
    with written(tmp_path, snapshot) as (tree, reader):
        before, boot = reader.values(), reader.host.boot_id()
        snapshot.world.host_is_down[1] = True
        tree.update(fresh)
        assert reader.values() == before, "the files of a host that is down stay"
        assert reader.host.boot_id() == boot
        snapshot.world.host_is_down[1] = False
        tree.update(fresh)
        assert reader.host.boot_id() != boot
        assert reader.values()["fabric_port_transmit_bytes_total"] == 0
        path = f"sys/class/infiniband/{DEVICE}/ports/1/counters/port_xmit_data"
        assert reader.host.read(path) == b"0\n"
        assert 10 <= reader.values(ETH)["fabric_nic_receive_packets_total"] <= 20


def test_a_reader_never_meets_half_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = make_snapshot(ROCE)
    seen: list[tuple[bytes, bytes]] = []
    put, cut = os.pwrite, os.ftruncate

    def look_and_put(handle: int, text: bytes, offset: int) -> int:
        assert Path(f"/proc/self/fd/{handle}").read_bytes(), "emptied before it was written"
        return put(handle, text, offset)

    def look_and_cut(handle: int, length: int) -> None:
        path = Path(f"/proc/self/fd/{handle}")
        before = path.read_bytes()
        cut(handle, length)
        seen.append((before, path.read_bytes()))

    with written(tmp_path, snapshot) as (tree, _):
        monkeypatch.setattr(os, "pwrite", look_and_put)
        monkeypatch.setattr(os, "ftruncate", look_and_cut)
        tree.update(replace(snapshot, host_links=make_idle_links(snapshot.links)))
    assert len(seen) > ROCE.nics_per_host
    assert all(int(before) == int(after) for before, after in seen)
    assert all(len(before) > len(after) for before, after in seen)


def test_no_number_of_a_text_of_statistics_lies_on_two_pages(tmp_path: Path) -> None:
    with written(tmp_path, make_snapshot(ROCE)) as (_, reader):
        text = reader.host.read(f"ethtool/{ETH}/statistics")
    lines = text.splitlines(keepends=True)
    assert {len(line) for line in lines} == {64}
    assert len(reader.host.ethtool_stats(ETH)) == len(lines) - 1


@both_fabrics
def test_a_link_that_goes_down_is_seen(topology: Topology, tmp_path: Path) -> None:
    interface = ETH if topology is ROCE else IB
    snapshot = make_snapshot(topology)
    with written(tmp_path, snapshot) as (tree, reader):
        changes = reader.values(interface)["fabric_nic_carrier_changes_total"]
        # Only one direction is broken, as with a dead transceiver: there is no link all the same.
        snapshot.world.link_up[topology.down(NIC)] = False
        snapshot.links.downs[[topology.up(NIC), topology.down(NIC)]] = 230
        changes += 2 * (230 - make_downs(topology)) - 1
        tree.update(snapshot)
        port, nic = reader.values(), reader.values(interface)
        missing = reader.missing()
        neighbour = reader.values("mlx5_2")
    assert port["fabric_port_state"] == 1
    assert port["fabric_port_physical_state"] == (3 if topology is ROCE else 2)
    assert port["fabric_port_rate_bits_per_second"] == (40e9 if topology is ROCE else 2.5e9)
    assert nic["fabric_nic_up"] == 0
    assert nic["fabric_nic_carrier_changes_total"] == changes
    assert missing == {("fabric_nic_speed_bits_per_second", interface): UnreadReason.NOT_SUPPORTED}
    assert neighbour["fabric_port_state"] == 4


def make_downs(topology: Topology) -> int:
    """How often the link had gone down in the snapshot that tests begin with."""
    downs = make_snapshot(topology).links.downs
    return int(max(downs[topology.up(NIC)], downs[topology.down(NIC)]))


@both_fabrics
def test_a_downgrade_is_seen_and_ends(topology: Topology, tmp_path: Path) -> None:
    snapshot = make_snapshot(topology)
    rate = f"sys/class/infiniband/{DEVICE}/ports/1/rate"
    with written(tmp_path, snapshot) as (tree, reader):
        reader.values()
        snapshot.world.link_speed_share[topology.up(NIC)] = 0.5
        tree.update(snapshot)
        assert reader.host.read(rate) == b"200 Gb/sec (2X NDR)\n"
        assert reader.values()["fabric_port_lanes"] == 2
        speed = reader.values(ETH if topology is ROCE else IB)["fabric_nic_speed_bits_per_second"]
        assert speed == 200e9
        snapshot.world.reset()
        tree.update(snapshot)
        assert reader.values()["fabric_port_rate_bits_per_second"] == 400e9


def test_a_slot_that_lost_lanes_says_so(tmp_path: Path) -> None:
    snapshot = make_snapshot(ROCE)
    with written(tmp_path, snapshot) as (tree, reader):
        device = f"sys/class/infiniband/{DEVICE}/device"
        assert reader.host.read(f"{device}/current_link_width") == b"16\n"
        assert reader.host.read(f"{device}/current_link_speed") == b"32.0 GT/s PCIe\n"
        snapshot.world.nic_pcie_share[NIC] = 0.5
        tree.update(snapshot)
        assert reader.host.read(f"{device}/current_link_width") == b"8\n"
        assert reader.host.read(f"{device}/max_link_width") == b"16\n"


def test_the_same_snapshot_gives_the_same_tree(tmp_path: Path) -> None:
    for name in ("one", "other"):
        FabricTree(tmp_path / name, ROCE).start(make_snapshot(ROCE))
    one, other = files_below(tmp_path / "one"), files_below(tmp_path / "other")
    assert one.keys() == other.keys()
    assert all(one[name].read_bytes() == other[name].read_bytes() for name in one)
    assert {name.partition("/")[0] for name in one} == {"node0000", "node0001"}
