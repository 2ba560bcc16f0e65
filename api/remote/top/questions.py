"""The PromQL queries. Where several fit into one, the label ``what`` distinguishes columns.

One query instead of six, because the columns of a row then are of one moment. Links are queried
in two steps: the worst ones, over the whole fabric, and then the rest about those few only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from api.remote.top.model import Order

WHAT = "what"
"""The label that names a column."""
RATE_WINDOW = "1m"
"""Agents report every 5 s and switches are polled every 10 s or 30 s: two values at least."""
PORT = "cluster, host, device, port"
NIC = "cluster, host, device"
HOST = "cluster, host"
LINKS_MAX = 50
"""Ports of the view of links: two screens. For more, query one host's."""
PAUSE_BITS = 65_535 * 512
"""The longest time that a pause frame stops a port, in bits at its rate (IEEE 802.3, 31B)."""
SLOWED_MASKS = (0x8, 0x20, 0x40, 0x80)
"""Bits of NVML's reasons for a clock: hardware slowdown, heat twice, power brake. Not 0x4, the
power cap, which a GPU under full load reaches by design."""
PORT_ERRORS = (
    "symbol_errors",
    "receive_errors",
    "receive_crc_errors",
    "receive_discards",
    "transmit_discards",
)
NIC_ERRORS = (
    "phy_receive_crc_errors",
    "phy_receive_symbol_errors",
    "phy_receive_discards",
    "phy_transmit_discards",
)
HISTORY_SECONDS = 600
HISTORY_STEP_SECONDS = 15
"""Of the steps' bars: the series has a point every ten seconds."""


def union(columns: Mapping[str, str]) -> str:
    """Several vectors as one, each with its name in the label ``what``.

    >>> union({"a": "x", "b": "y"})
    'label_replace(x, "what", "a", "", "") or label_replace(y, "what", "b", "", "")'
    """
    return " or ".join(
        f'label_replace({expression}, "{WHAT}", "{name}", "", "")'
        for name, expression in columns.items()
    )


def fleet() -> str:
    return union(
        {
            "agents": "count(group by (cluster, host) (fabric_agent_start_time_seconds))",
            "gpus": "count(group by (cluster, host, gpu) (fabric_gpu_utilization_ratio))",
            "gpus_busy": "avg(max by (cluster, host, gpu) (fabric_gpu_utilization_ratio))",
            "jobs": "count(group by (job) (fabric_job_step_seconds))",
        }
    )


def jobs() -> str:
    return union(
        {
            "ranks": "max by (job) (fabric_job_ranks)",
            "step_s": "max by (job) (fabric_job_step_seconds)",
            "network": "max by (job) (fabric_job_network_share_ratio)",
            "waits": "max by (job) (fabric_job_wait_share_ratio)",
        }
    )


JOB_STEPS = "max by (job) (fabric_job_step_seconds)"
"""Over the last minutes, for the bars."""


def rates(kind: str, names: tuple[str, ...], labels: str, only: str = "") -> str:
    """Several counters of a port or interface as one rate, of those that exist."""
    counted = {name: f"rate(fabric_{kind}_{name}_total{{{only}}}[{RATE_WINDOW}])" for name in names}
    return f"sum by ({labels}) ({union(counted)})"


def port_rate(only: str) -> str:
    return f"(max by ({PORT}) (fabric_port_rate_bits_per_second{{{only}}}) > 0)"


def nic_rate(only: str) -> str:
    return f"(max by ({NIC}) (fabric_nic_speed_bits_per_second{{{only}}}) > 0)"


def of_hosts(names: Iterable[str]) -> str:
    r"""The part of a selector that leaves only these hosts; whatever their names contain.

    >>> of_hosts(["node1", 'a.b"'])
    'host=~"node1|a\\\\.b\\""'
    """
    pattern = "|".join(re.escape(name) for name in names)
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"')
    return f'host=~"{escaped}"'


def of_interfaces(nics: str, only: str) -> str:
    """Values of interfaces, mapped to the RDMA ports behind them; else to the interfaces."""
    named = f'max by (cluster, host, netdev) (label_join({nics}, "netdev", "", "device"))'
    ports = f'fabric_port_info{{netdev!="", {only}}}'
    return (
        f"(max by ({PORT}) (group by ({PORT}, netdev) ({ports})"
        f" * on (cluster, host, netdev) group_left () {named})"
        f" or {nics} unless on (cluster, host) {ports})"
    )


def utilisation(direction: str, only: str = "") -> str:
    """Bytes by the link's rate; on hosts without RDMA ports, of their interfaces."""
    names = (f"{direction}_bytes",)
    ports = f"{rates('port', names, PORT, only)} * 8 / {port_rate(only)}"
    nics = f"{rates('nic', names, NIC, only)} * 8 / {nic_rate(only)}"
    return (
        f"({ports} or {nics} unless on (cluster, host) fabric_port_rate_bits_per_second{{{only}}})"
    )


def errors(only: str = "") -> str:
    """Damaged and dropped packets a second, of a port or of its interface: the larger count."""
    counted = {
        "port": rates("port", PORT_ERRORS, PORT, only),
        "nic": of_interfaces(rates("nic", NIC_ERRORS, NIC, only), only),
    }
    return f"(max by ({PORT}) ({union(counted)}))"


def paused(only: str = "") -> str:
    """Share of time in which a port may not send: stopped by pause frames, or without credit.

    Where frames were counted and not their time, only that there were none is known.
    """
    window = f"{{{only}}}[{RATE_WINDOW}]"
    nics = f"max by ({NIC}) (rate(fabric_nic_receive_pause_seconds_total{window}))"
    return (
        f"(max by ({PORT}) (rate(fabric_port_receive_pause_seconds_total{window}))"
        f" or max by ({PORT}) (rate(fabric_port_transmit_wait_seconds_total{window}))"
        f" or {of_interfaces(nics, only)}"
        f" or {paused_by_frames(only)} == 0)"
    )


def paused_by_frames(only: str = "") -> str:
    """The longest share of time that the pause frames of a port can stop it for."""
    frames = f"rate(fabric_port_receive_pause_frames_total{{{only}}}[{RATE_WINDOW}])"
    return f"clamp_max(max by ({PORT}) ({frames}) * {PAUSE_BITS} / {port_rate(only)}, 1)"


def worst(order: Order) -> str:
    both = {"sends": utilisation("transmit"), "receives": utilisation("receive")}
    by = {
        Order.UTILISATION: f"(max by ({PORT}) ({union(both)}))",
        Order.ERRORS: f"({errors()} > 0)",
        # What is known comes before what may be: two is beyond any share.
        Order.PAUSE: f"(({paused()} + 2) > 2 or ({paused_by_frames()} > 0))",
    }
    return f"topk({LINKS_MAX}, {by[order]})"


def link_columns(hosts_shown: Iterable[str]) -> dict[str, str]:
    """The columns of ports on these hosts, a query for each: as one they would be too long."""
    only = of_hosts(hosts_shown)
    return {
        "sends": utilisation("transmit", only),
        "receives": utilisation("receive", only),
        "errors": errors(only),
        "paused": paused(only),
        "paused_at_most": f"({paused_by_frames(only)})",
        "rate": f"({port_rate(only)} or {nic_rate(only)})",
    }


def peers(hosts_shown: Iterable[str]) -> str:
    only = of_hosts(hosts_shown)
    return f"group by ({PORT}, peer_name, peer_port) (fabric_link_info{{{only}}})"


def moved(direction: str) -> str:
    """Bits a second of all NICs of a host; of its interfaces where it has no RDMA ports.

    Not of switches, whose ports are ports of a host by the same name.
    """
    ports = rates("port", (f"{direction}_bytes",), HOST)
    nics = rates("nic", (f"{direction}_bytes",), HOST)
    return f"(({ports} or {nics}) * 8 unless on ({HOST}) fabric_switch_info)"


def hosts() -> str:
    reasons = "max by (cluster, host, gpu) (fabric_gpu_clock_event_reasons)"
    slowed = " + ".join(f"floor({reasons} / {mask}) % 2" for mask in SLOWED_MASKS)
    return union(
        {
            "gpus": f"count by ({HOST}) (group by ({HOST}, gpu) (fabric_gpu_utilization_ratio))",
            "busy": f"avg by ({HOST}) (max by ({HOST}, gpu) (fabric_gpu_utilization_ratio))",
            "throttled": f"sum by ({HOST}) (({slowed}) > bool 0)",
            "sends": moved("transmit"),
            "receives": moved("receive"),
        }
    )
