"""Expressions about the chosen port: its own, of the interface behind it, and of the other end.

A port is named by host, device and port, as RDMA devices and switches name theirs. A host without
RDMA has interfaces only: with one's name as the device, what the interface counts is found. What
is at the other end of the cable comes from `fabric_link_info`, in the reporter's names.
`label_join` copies labels here, because the `$1` of `label_replace` looks like a variable.
"""

from __future__ import annotations

from functools import partial

from dashboards.grafana.expressions import HERE, NIC, PORT, per_port, rate

THIS = f'{HERE}, host="$host", device="$device", port="$port"'
ON_HOST = f'{HERE}, host="$host"'

BEHIND_PORT = f'label_join(fabric_port_info{{{THIS}, netdev!=""}}, "device", "", "netdev")'
INTERFACE = f'(fabric_nic_up{{{ON_HOST}, device="$device"}} or {BEHIND_PORT})'
"""The network interface: chosen by its own name, or the one behind the chosen port."""


def first_of(*exprs: str) -> str:
    """The first that has an answer.

    A port and its interface have different labels, so that a plain `or` would show both.
    """
    return f"({' or on () '.join(f'({expr})' for expr in exprs)})"


WORST = 10
"""Lines of a panel about the worst: as many as there are distinct colours."""


def leading(expr: str, most: str = "", on: str = "") -> str:
    """The series with the highest peaks in the range, over the whole range.

    The same ones at every time: a choice at each time leaves dashes of fifty lines. Zeros
    are left out, because `topk` would pick among them at random. ``most``: a number for each
    series to choose by, where there are too many to look at all of their samples; ``on``: the
    labels that it has of theirs, if not all.
    """
    chosen = f"on ({on}) topk" if on else "topk"
    most = most or f"max_over_time(({expr})[$__range:$__interval] @ end())"
    return f"(({expr}) and {chosen}({WORST}, ({most}) > 0))"


def worst(expr: str, label: str = "port", nobody: str = "no port") -> str:
    """The series with most of it; where it is measured and none has any, a line at 0.

    Without that line a quiet fabric would look like one that is not read.
    """
    return f"({leading(expr)} or on () {nought(expr, label, nobody)})"


def nought(seen: str, label: str, nobody: str) -> str:
    return f'label_replace(0 * max({seen}), "{label}", "{nobody}", "host", ".*")'


def worst_host(expr: str, most: str, seen: str = "", *, on: str = "") -> str:
    """The same of all hosts and switches, chosen by ``most``; ``seen``: whether it is measured."""
    return f"({leading(expr, most, on)} or on () {nought(seen or most, 'host', 'none')})"


port_rate = partial(rate, by=PORT, where=THIS)
port_most = partial(port_rate, how="max")


def nic_rate(metric: str, over: str = "$__rate_interval", how: str = "sum") -> str:
    return of_interface(rate(metric, over, by=NIC, where=ON_HOST, how=how))


nic_most = partial(nic_rate, how="max")


def rates(*metrics: str) -> str:
    """The first of these counters that is there, a second: of the port or of its interface."""
    return first_of(
        *(
            (nic_rate if metric.startswith("fabric_nic_") else port_rate)(metric)
            for metric in metrics
        )
    )


def of_interface(expr: str) -> str:
    return f"({expr} and on ({NIC}) {INTERFACE})"


BITS = first_of(
    f"max by ({PORT}) (fabric_port_rate_bits_per_second{{{THIS}}}) > 0",
    of_interface(f"max by ({NIC}) (fabric_nic_speed_bits_per_second{{{ON_HOST}}}) > 0"),
)
"""Rate that the link came up with, bits a second."""


def share_of_line(direction: str) -> str:
    """Bytes by the link's rate, 0 to 1: of the port, else on the wire, else through the kernel."""
    port = (
        f"{port_rate(f'fabric_port_{direction}_bytes_total')} * 8"
        f" / (max by ({PORT}) (fabric_port_rate_bits_per_second{{{THIS}}}) > 0)"
    )
    speed = f"(max by ({NIC}) (fabric_nic_speed_bits_per_second{{{ON_HOST}}}) > 0)"
    wire, kernel = (
        f"{nic_rate(f'fabric_nic_{layer}{direction}_bytes_total')} * 8 / {speed}"
        for layer in ("phy_", "")
    )
    return first_of(port, wire, kernel)


# --- the other end --------------------------------------------------------------------------------

TELLS = "on (cluster, peer_name, peer_port)"
AT_END = "@ end()"
"""Who is at the other end is looked up once, and not at every time shown."""


def lately_told(matchers: str) -> str:
    """What was last reported of cables within the range: a neighbour may be silent now."""
    return f"last_over_time(fabric_link_info{{{matchers}}}[$__range] {AT_END})"


TOLD_HERE = lately_told(THIS)
ANY_PORT = f"max by ({PORT}) (fabric_port_state{{{HERE}}} {AT_END})"


def called(thing: str, name: str, port: str) -> str:
    """Ports with the labels under which a neighbour reports them; ``name`` is a list of labels."""
    return f'label_join(label_join({thing}, "peer_name", " ", {name}), "peer_port", "", "{port}")'


def by_interface(matchers: str) -> str:
    """Ports as LLDP calls them: host and network interface."""
    return called(f'fabric_port_info{{{matchers}, netdev!=""}} {AT_END}', '"host"', "netdev")


AS_SWITCH = called(ANY_PORT, '"device"', "port")
AS_ADAPTER = called(ANY_PORT, '"host", "device"', "port")
TOLD_OF_HOST = lately_told(f'{HERE}, peer_name="$host"')
FAR_ENDS = (
    lately_told(f'{HERE}, peer_name=~"$device|$host $device", peer_port="$port"'),
    lately_told(f'{HERE}, peer_name="$host", peer_port="$device"'),
    f"{TOLD_OF_HOST} and {TELLS} {by_interface(THIS)}",
    f"{AS_SWITCH} and {TELLS} {TOLD_HERE}",
    f"{AS_ADAPTER} and {TELLS} {TOLD_HERE}",
    f"{by_interface(HERE)} and {TELLS} {TOLD_HERE}",
)
FAR_END = f"max by ({PORT}) ({' or '.join(FAR_ENDS)})"
"""The port at the other end of the cable: one that reports this one, or that this one reports. A
switch is called by its name; a host by its name and an interface (LLDP), or by its name and a
device (InfiniBand)."""
ENDS_MAX = 8
"""Ports that a cable leads to: two, unless names are ambiguous."""
OWN_END = f"max by ({PORT}) (last_over_time(fabric_port_state{{{THIS}}}[$__range] {AT_END}))"
ENDS = f"topk({ENDS_MAX}, {OWN_END} or {FAR_END})"


def both_ends(expr: str) -> str:
    """Only this port and the one at the other end; ``expr`` has one number for each port."""
    return f"(({expr}) and on ({PORT}) {ENDS})"


def at_ends(metric: str, over: str = "$__rate_interval") -> str:
    return both_ends(per_port(metric, over))


# --- numbers of the port --------------------------------------------------------------------------

PAUSE_BITS = 33_553_920
"""The longest pause of one frame, in bits of the link: 65,535 quanta of 512 (IEEE 802.1Qbb)."""


STATE = first_of(
    f"min by ({PORT}) (fabric_port_state{{{THIS}}})",
    f"1 + 3 * {of_interface(f'max by ({NIC}) (fabric_nic_up{{{ON_HOST}}})')}",
)
"""As InfiniBand numbers states; an interface is down or active."""
BEST_BITS = first_of(
    f"max_over_time(fabric_port_rate_bits_per_second{{{THIS}}}[1d])",
    of_interface(f"max_over_time(fabric_nic_speed_bits_per_second{{{ON_HOST}}}[1d])"),
)
NIC_BITS = f"(max by ({NIC}) (fabric_nic_speed_bits_per_second{{{ON_HOST}}}) > 0)"
ALL_RATES = f"max by ({PORT}) (fabric_port_rate_bits_per_second{{{HERE}}})"
ERROR_RATE = first_of(
    f"{at_ends('fabric_port_symbol_errors_total', '12m')} / ({ALL_RATES} > 0)",
    f"{nic_rate('fabric_nic_phy_receive_pcs_symbol_errors_total', '12m')} / {NIC_BITS}",
)
DOWNS = first_of(
    f"sum by ({PORT}) (increase(fabric_port_downs_seen_total{{{THIS}}}[$__range]))",
    f"sum by ({PORT}) (increase(fabric_port_link_downed_total{{{THIS}}}[$__range]))",
    f"sum by ({PORT}) (increase(fabric_port_carrier_changes_total{{{THIS}}}[$__range])) / 2",
    f"sum by ({PORT}) (changes(fabric_port_state{{{THIS}}}[$__range])) / 2",
    of_interface(f"sum by ({NIC}) (increase(fabric_nic_link_down_total{{{ON_HOST}}}[$__range]))"),
    of_interface(
        f"sum by ({NIC}) (increase(fabric_nic_carrier_changes_total{{{ON_HOST}}}[$__range])) / 2"
    ),
)
IS_STOPPED = first_of(
    port_most("fabric_port_receive_pause_seconds_total"),
    nic_most("fabric_nic_receive_pause_seconds_total"),
    f"{port_most('fabric_port_receive_pause_frames_total')} * {PAUSE_BITS} / {BITS}",
)
STOPS_OTHERS = first_of(
    port_most("fabric_port_transmit_pause_seconds_total"),
    nic_most("fabric_nic_transmit_pause_seconds_total"),
    f"{port_most('fabric_port_transmit_pause_frames_total')} * {PAUSE_BITS} / {BITS}",
)
RECEIVED = rates(
    "fabric_port_receive_packets_total",
    "fabric_port_receive_unicast_packets_total",
    "fabric_nic_rdma_receive_packets_total",
    "fabric_nic_receive_packets_total",
)
SENT = rates(
    "fabric_port_transmit_packets_total",
    "fabric_port_transmit_unicast_packets_total",
    "fabric_nic_rdma_transmit_packets_total",
    "fabric_nic_transmit_packets_total",
)
THROWN_AWAY = rates(
    "fabric_port_transmit_discards_total",
    "fabric_port_queue_discarded_packets_total",
    "fabric_nic_phy_transmit_discards_total",
    "fabric_nic_transmit_drops_total",
)
THROWN_AWAY_ON_ARRIVAL = rates(
    "fabric_port_receive_discards_total",
    "fabric_nic_phy_receive_discards_total",
    "fabric_nic_receive_missed_total",
)
LOST = f"sum({THROWN_AWAY}) / (sum({SENT}) > 0)"
