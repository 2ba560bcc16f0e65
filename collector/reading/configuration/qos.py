"""QoS settings of a RoCE interface: trust, PFC, DSCP, ECN and congestion control.

Where each stands depends on the driver: MLNX_OFED has files below `/sys/class/net/*/ecn`, the
kernel's own mlx5 has them in debugfs (root), and `mlnx_qos` or iproute2's `dcb` ask over netlink.
"""

from __future__ import annotations

import re

from collector.audit.settings import (
    CMA_TOS,
    DCQCN_PREFIX,
    DSCP_MAP,
    ECN_NOTIFY,
    ECN_REACT,
    NONE,
    PAUSE,
    PFC,
    TRAFFIC_CLASS,
    TRUST,
)
from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.reading.configuration.gather import Gatherer
from collector.reading.sysfs import list_or_nothing, read_label

PARAMETERS_MAX = 40
"""Parameters of congestion control that are read. mlx5 has 21."""
PRIORITIES = range(8)

_TRUST = re.compile(r"^Priority trust state:\s*(\w+)", re.MULTILINE)
_PFC_ENABLED = re.compile(r"^\s*enabled((?:\s+[01]){8})\s*$", re.MULTILINE)
_DSCP_LINE = re.compile(r"^\s*prio:([0-7]) dscp:([0-9, ]+)$", re.MULTILINE)
_DCB_PFC = re.compile(r"^\s*(?:prio|pg)-pfc((?:\s+[0-7]:(?:on|off))+)", re.MULTILINE)
_DCB_DSCP = re.compile(r"([0-9]{1,2}|[A-Z]+[0-9]*):([0-7])\b")
_PAUSE = re.compile(r"^(RX|TX):\s*(on|off)\s*$", re.MULTILINE)
_VALUE = re.compile(r"[0-9]{1,20}")

DSCP_NAMES = {
    "EF": 46,
    **{f"CS{number}": 8 * number for number in range(8)},
    **{f"AF{group}{drop}": 8 * group + 2 * drop for group in range(1, 5) for drop in range(1, 4)},
}
"""RFC 4594's names, which `dcb` prints by default."""


def read_qos(gatherer: Gatherer, device: str, interface: str, address: str) -> None:
    if not read_mlnx_qos(gatherer, device, interface):
        read_dcb(gatherer, device, interface)
    read_pause(gatherer, device, interface)
    read_ecn(gatherer, device, interface)
    read_parameters(gatherer, device, interface, address)
    path = f"sys/class/infiniband/{device}/tc/1/traffic_class"
    text = read_label(gatherer.host, path)
    # The file holds "Global tclass=106", or nothing until an administrator sets it.
    if found := re.search(r"([0-9]{1,3})\s*$", text):
        gatherer.add(device, TRAFFIC_CLASS, found[1], path)
    gatherer.text(device, CMA_TOS, f"sys/kernel/config/rdma_cm/{device}/ports/1/default_roce_tos")


def read_mlnx_qos(gatherer: Gatherer, device: str, interface: str) -> bool:
    """The facts from `mlnx_qos`; False if it prints nothing."""
    text = gatherer.run(PFC, "mlnx_qos", "-i", interface)
    if not text:
        return False
    origin = f"mlnx_qos -i {interface}"
    if found := _TRUST.search(text):
        gatherer.add(device, TRUST, found[1], origin)
    if enabled := _PFC_ENABLED.search(text):
        flags = enabled[1].split()
        gatherer.add(device, PFC, joined(p for p in PRIORITIES if flags[p] == "1"), origin)
    mapping = {
        int(code): int(priority)
        for priority, codes in _DSCP_LINE.findall(text)
        for code in re.findall(r"[0-9]+", codes)[:64]
    }
    if mapping:
        gatherer.add(device, DSCP_MAP, map_text(mapping), origin)
    return bool(found or enabled)


def read_dcb(gatherer: Gatherer, device: str, interface: str) -> None:
    text = gatherer.run(PFC, "dcb", "pfc", "show", "dev", interface)
    if found := _DCB_PFC.search(text):
        pairs = [pair.split(":") for pair in found[1].split()]
        enabled = joined(int(priority) for priority, state in pairs if state == "on")
        gatherer.add(device, PFC, enabled, f"dcb pfc show dev {interface}")
    words = ("dcb", "app", "show", "dev", interface, "dscp-prio")
    text = gatherer.run(DSCP_MAP, *words) if found else ""
    mapping = {}
    for name, priority in _DCB_DSCP.findall(text.partition("dscp-prio")[2] or text):
        code = int(name) if name.isdigit() else DSCP_NAMES.get(name)
        if code is not None and code < 64:  # noqa: PLR2004 - six bits
            mapping[code] = int(priority)
    if mapping:
        gatherer.add(device, DSCP_MAP, map_text(mapping), " ".join(words))
        # The driver trusts DSCP as soon as the table has one entry (mlx5e_dcbnl_ieee_setapp).
        gatherer.add(device, TRUST, "dscp", " ".join(words))


def read_pause(gatherer: Gatherer, device: str, interface: str) -> None:
    found = dict(_PAUSE.findall(gatherer.run(PAUSE, "ethtool", "-a", interface)))
    if found:
        on = [way.lower() for way in ("RX", "TX") if found.get(way) == "on"]
        gatherer.add(device, PAUSE, ",".join(on) or NONE, f"ethtool -a {interface}")


def read_ecn(gatherer: Gatherer, device: str, interface: str) -> None:
    """The priorities for which marks are answered, and obeyed."""
    for setting, side in ((ECN_NOTIFY, "roce_np"), (ECN_REACT, "roce_rp")):
        base = f"sys/class/net/{interface}/ecn/{side}/enable"
        enabled, known = [], 0
        for priority in PRIORITIES:
            text = read_label(gatherer.host, f"{base}/{priority}")
            known += text in {"0", "1"}
            if text == "1":
                enabled.append(priority)
        if known:
            gatherer.add(device, setting, joined(enabled), base)


def read_parameters(gatherer: Gatherer, device: str, interface: str, address: str) -> None:
    host, count = gatherer.host, 0
    folders = [f"sys/class/net/{interface}/ecn/{side}" for side in ("roce_np", "roce_rp")]
    folders.append(f"sys/kernel/debug/mlx5/{address}/cc_params")
    for folder in folders:
        try:
            names = host.list(folder)
        except HostError as error:
            gatherer.refused(device, f"{DCQCN_PREFIX}parameters", error)
            continue
        for name in names:
            if name == "enable" or count >= PARAMETERS_MAX:
                continue
            text = read_label(host, f"{folder}/{name}")
            if _VALUE.fullmatch(text):
                count += 1
                gatherer.add(device, f"{DCQCN_PREFIX}{name}", text, f"{folder}/{name}")
    debug = "sys/kernel/debug"
    if not count and host.exists(debug) and not list_or_nothing(host, f"{debug}/mlx5"):
        why = f"{debug}/mlx5: only root may look into debugfs, or the driver has no such folder"
        gatherer.miss(device, f"{DCQCN_PREFIX}parameters", UnreadReason.UNREADABLE, why)


def joined(numbers: object) -> str:
    """Numbers with commas; the word for none if there are none."""
    assert hasattr(numbers, "__iter__")
    return ",".join(str(number) for number in numbers) or NONE


def map_text(mapping: dict[int, int]) -> str:
    """A map from DSCP to priority: the code points of each priority, as ranges.

    >>> map_text({0: 0, 1: 0, 2: 0, 26: 3})
    '0:0-2 3:26'
    """
    parts = []
    for priority in sorted(set(mapping.values())):
        codes = sorted(code for code, of in mapping.items() if of == priority)
        ranges: list[list[int]] = []
        for code in codes:
            if ranges and code == ranges[-1][1] + 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
        shown = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
        parts.append(f"{priority}:{shown}")
    return " ".join(parts)
