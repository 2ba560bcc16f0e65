"""Network devices: RDMA devices with the interface of each, and interfaces without RDMA."""

from __future__ import annotations

import re

from collector.audit.partitions import ENTRIES_MAX, is_key, to_text
from collector.audit.settings import (
    ACTIVE,
    ACTIVE_MTU,
    DRIVER,
    DRIVER_VERSION,
    ETHERNET,
    FIRMWARE,
    FLOW_STEERING,
    INFINIBAND,
    INTERFACE,
    INTERFACE_MTU,
    KIND,
    KIND_NIC,
    KIND_RDMA,
    LINK_LAYER,
    MAX_MTU,
    MODEL,
    OTHER_TRAFFIC,
    PARTITIONS,
    PORT_LANES,
    PORT_RATE,
    PORT_RATE_MAX,
    PORT_STATE,
    ROCE_V2_GIDS,
)
from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.contract.units import WORD_BYTES
from collector.reading.configuration.gather import Gatherer
from collector.reading.configuration.pci import read_slot
from collector.reading.configuration.qos import read_qos
from collector.reading.sysfs import list_or_nothing, read_driver_name, read_label, read_pci_path

RDMA, NET = "sys/class/infiniband", "sys/class/net"

DEVICES_MAX = 64
"""RDMA devices, and interfaces with hardware, that are read: virtual functions come by the
hundred, and are as the physical one."""
GIDS_MAX = 32
"""Entries of a GID table that are read. Addresses fill it from the front; a NIC has 256."""
KEYS_MAX = 512
"""Entries of a table of partitions that are read, a query of the firmware each; a ConnectX has 128.
Of a longer table nothing is said: a key beyond could be the one that counts."""
TRAFFIC_BYTES_MIN = 10 << 30
"""Of both kinds together, before their shares mean anything: a host that has just booted has only
talked to its neighbours."""
SHARES = ((0.5, "over 50 %"), (0.1, "10 to 50 %"), (0.01, "1 to 10 %"))
"""Shares of other traffic, the largest first: in few steps, so that the fact seldom changes."""
LITTLE = "under 1 %"

_STATE = re.compile(r"[0-9]+: *([A-Z_]+)")
_RATE = re.compile(r"([0-9.]+) Gb/sec \(([0-9]+)X ?([A-Z0-9]*)\)")
_MTU = re.compile(r"([0-9]{1,6})")
_KEY = re.compile(r"0x([0-9a-f]{1,4})")
_MODE = re.compile(r"([0-9]+)base")
_STEERING = re.compile(r"\bvalue (\w+)")
_DEVINFO_DEVICE = re.compile(r"^hca_id:\s*(\S+)", re.MULTILINE)
_DEVINFO_MTU = re.compile(r"^\s*(active_mtu|max_mtu):\s*(\d+)", re.MULTILINE)


def read_nics(gatherer: Gatherer) -> None:
    names = list_or_nothing(gatherer.host, RDMA)
    taken = set()
    for device in names[:DEVICES_MAX]:
        taken.add(read_rdma(gatherer, device))
    if names:
        read_mtus(gatherer)
    if len(names) > DEVICES_MAX:
        left = f"{len(names) - DEVICES_MAX} devices beyond DEVICES_MAX"
        gatherer.miss("", KIND, UnreadReason.NOT_SUPPORTED, left)
    others = [name for name in list_or_nothing(gatherer.host, NET) if name not in taken]
    with_hardware = [name for name in others if gatherer.host.exists(f"{NET}/{name}/device")]
    for name in with_hardware[:DEVICES_MAX]:
        read_interface(gatherer, name)


# --- RDMA devices --------------------------------------------------------------------------------


def read_rdma(gatherer: Gatherer, device: str) -> str:
    """Everything about one RDMA device, by its first port; the name of its interface."""
    host, base = gatherer.host, f"{RDMA}/{device}"
    gatherer.add(device, KIND, KIND_RDMA, base)
    board = " ".join(read_label(host, f"{base}/{file}") for file in ("hca_type", "board_id"))
    gatherer.add(device, MODEL, board, f"{base}/hca_type")
    gatherer.add(device, DRIVER, read_driver_name(host, base), f"{base}/device/driver")
    gatherer.text(device, FIRMWARE, f"{base}/fw_ver")
    ports = list_or_nothing(host, f"{base}/ports")
    if not ports:
        gatherer.miss(
            device, PORT_STATE, UnreadReason.ABSENT, f"{base}/ports is empty or not there"
        )
        return ""
    port = f"{base}/ports/{ports[0]}"
    layer = gatherer.text(device, LINK_LAYER, f"{port}/link_layer")
    read_link(gatherer, device, port)
    path = read_pci_path(host, base)
    address = path.rpartition("/")[2]
    interface = find_interface(gatherer, base, port, layer)
    if interface:
        gatherer.add(device, INTERFACE, interface, f"{base}/device/net")
        gatherer.matched(device, INTERFACE_MTU, f"{NET}/{interface}/mtu", _MTU)
        read_driver_version(gatherer, device, interface)
        read_other_traffic(gatherer, device, port, interface)
    if path:
        read_slot(gatherer, device, address, path)
    if layer == INFINIBAND:
        read_partitions(gatherer, device, port)
    if layer == ETHERNET:
        read_gids(gatherer, device, port)
        if interface:
            read_speed_most(gatherer, device, interface)
            read_qos(gatherer, device, interface, address)
            read_steering(gatherer, device, interface, address)
    return interface


def find_interface(gatherer: Gatherer, base: str, port: str, layer: str) -> str:
    """The network interface of a port: from its GID table, or the first of the same hardware."""
    if layer == ETHERNET:
        for index in range(GIDS_MAX):
            if name := read_label(gatherer.host, f"{port}/gid_attrs/ndevs/{index}"):
                return name
    names = list_or_nothing(gatherer.host, f"{base}/device/net")
    return names[0] if names else ""


def read_link(gatherer: Gatherer, device: str, port: str) -> None:
    try:
        found = _STATE.fullmatch(gatherer.read(f"{port}/state"))
        if found:
            gatherer.add(device, PORT_STATE, found[1].lower(), f"{port}/state")
        if found is None or found[1].lower() != ACTIVE:
            return  # the rate of a link that is down is the slowest there is
        rate = _RATE.fullmatch(gatherer.read(f"{port}/rate"))
    except HostError as error:
        gatherer.refused(device, PORT_RATE, error)
        return
    if rate is None:
        gatherer.miss(device, PORT_RATE, UnreadReason.UNPARSEABLE, f"{port}/rate")
        return
    gatherer.add(device, PORT_RATE, f"{float(rate[1]):g}", f"{port}/rate")
    gatherer.add(device, PORT_LANES, rate[2], f"{port}/rate")


def read_gids(gatherer: Gatherer, device: str, port: str) -> None:
    """The entries of the GID table for RoCE v2, the routable kind that carries a DSCP."""
    indexes = [
        str(index)
        for index in range(GIDS_MAX)
        if read_label(gatherer.host, f"{port}/gid_attrs/types/{index}") == "RoCE v2"
    ]
    if indexes:
        gatherer.add(device, ROCE_V2_GIDS, ",".join(indexes), f"{port}/gid_attrs/types")


def read_partitions(gatherer: Gatherer, device: str, port: str) -> None:
    """The partitions that the subnet manager put a port into: all of them, or an absence."""
    path = f"{port}/pkeys"
    indexes = [name for name in list_or_nothing(gatherer.host, path) if name.isdecimal()]
    if not indexes:
        return
    if len(indexes) > KEYS_MAX:
        detail = f"{path} has {len(indexes)} entries, more than KEYS_MAX = {KEYS_MAX}"
        gatherer.miss(device, PARTITIONS, UnreadReason.NOT_SUPPORTED, detail)
        return
    table: dict[int, int] = {}
    for index in indexes:
        try:
            found = _KEY.fullmatch(gatherer.read(f"{path}/{index}"))
        except HostError as error:
            gatherer.refused(device, PARTITIONS, error)
            return
        if found is None:
            gatherer.miss(device, PARTITIONS, UnreadReason.UNPARSEABLE, f"{path}/{index}")
            return
        if is_key(int(found[1], 16)):
            table[int(index)] = int(found[1], 16)
    if len(table) > ENTRIES_MAX:
        detail = f"{len(table)} partitions, more than ENTRIES_MAX = {ENTRIES_MAX}"
        gatherer.miss(device, PARTITIONS, UnreadReason.NOT_SUPPORTED, detail)
        return
    gatherer.add(device, PARTITIONS, to_text(table), path)


def read_mtus(gatherer: Gatherer) -> None:
    text = gatherer.run(ACTIVE_MTU, "ibv_devinfo")
    parts = _DEVINFO_DEVICE.split(text)
    for device, rest in zip(parts[1::2], parts[2::2], strict=False):
        for setting, value in _DEVINFO_MTU.findall(rest):
            known = {"active_mtu": ACTIVE_MTU, "max_mtu": MAX_MTU}
            gatherer.add(device, known[setting], value, "ibv_devinfo")


def read_speed_most(gatherer: Gatherer, device: str, interface: str) -> None:
    """The fastest speed that a port offers, with whatever cable."""
    text = gatherer.run(PORT_RATE_MAX, "ethtool", interface)
    supported = text.partition("Supported link modes:")[2].partition("Supported pause")[0]
    speeds = [int(megabits) for megabits in _MODE.findall(supported) if len(megabits) <= 8]  # noqa: PLR2004 - 10 Tb/s
    if speeds:
        gatherer.add(device, PORT_RATE_MAX, f"{max(speeds) / 1000:g}", f"ethtool {interface}")


def read_steering(gatherer: Gatherer, device: str, interface: str, address: str) -> None:
    """The owner of the table that steers packets to queue pairs: driver, firmware or hardware."""
    path = f"{NET}/{interface}/compat/devlink/steering_mode"
    if gatherer.host.exists(path):
        gatherer.text(device, FLOW_STEERING, path)
    elif address:
        name = f"pci/{address}"
        words = ("devlink", "dev", "param", "show", name, "name", "flow_steering_mode")
        if found := _STEERING.search(gatherer.run(FLOW_STEERING, *words)):
            gatherer.add(device, FLOW_STEERING, found[1], " ".join(words))


def read_driver_version(gatherer: Gatherer, device: str, interface: str) -> None:
    try:
        driver = gatherer.host.ethtool_driver(interface)
    except HostError as error:
        if error.reason is not UnreadReason.NOT_SUPPORTED:
            gatherer.refused(device, DRIVER_VERSION, error)
        return
    gatherer.add(device, DRIVER_VERSION, driver.version, f"ethtool -i {interface}")


def read_other_traffic(gatherer: Gatherer, device: str, port: str, interface: str) -> None:
    """The share of the kernel's traffic on a NIC, beside RDMA's, since the driver was loaded."""
    places = [(f"{port}/counters/port_{way}_data", WORD_BYTES) for way in ("xmit", "rcv")]
    places += [(f"{NET}/{interface}/statistics/{way}_bytes", 1) for way in ("tx", "rx")]
    totals = []
    for path, factor in places:
        try:
            text = gatherer.read(path)
        except HostError:
            return
        if not (text.isascii() and text.isdigit()):
            return
        totals.append(int(text) * factor)
    rdma, kernel = sum(totals[:2]), sum(totals[2:])
    if rdma + kernel < TRAFFIC_BYTES_MIN:
        return
    share = kernel / (rdma + kernel)
    words = next((text for least, text in SHARES if share >= least), LITTLE)
    gatherer.add(device, OTHER_TRAFFIC, words, f"{NET}/{interface}/statistics")


# --- other interfaces ----------------------------------------------------------------------------


def read_interface(gatherer: Gatherer, name: str) -> None:
    """An interface without RDMA: what NCCL could choose by mistake."""
    base = f"{NET}/{name}"
    gatherer.add(name, KIND, KIND_NIC, base)
    gatherer.add(name, INTERFACE, name, base)
    gatherer.add(name, DRIVER, read_driver_name(gatherer.host, base), f"{base}/device/driver")
    gatherer.matched(name, INTERFACE_MTU, f"{base}/mtu", _MTU)
    state = read_label(gatherer.host, f"{base}/operstate")
    gatherer.add(name, PORT_STATE, ACTIVE if state == "up" else state, f"{base}/operstate")
    speed = read_label(gatherer.host, f"{base}/speed")
    if speed.isascii() and speed.isdigit():
        gatherer.add(name, PORT_RATE, f"{int(speed) / 1000:g}", f"{base}/speed")
