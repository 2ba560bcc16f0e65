"""Expressions that several panels share, so that a number is computed the same everywhere.

`PORT` and its like are the labels that name a thing: everything is put together by them first, so
that a driver that counts IPv4 and IPv6 apart, or a scraper's labels, do not make two rows of one.
"""

from __future__ import annotations

from functools import partial

PORT = "cluster, host, device, port"
NIC = "cluster, host, device"
HERE = 'cluster=~"$cluster"'
"""What every selector of a board with the variable has."""
HERE_OR_NOWHERE = 'cluster=~"$cluster|"'
"""The same for what may have no cluster: an incident may span several, and alerts about it have
none. A board of one cluster must still show them."""

SOMEBODY_LOOKS = "0 * max(fabric_service_evaluation_leads == 1)"
"""0 while a service of ours evaluates, and nothing otherwise."""

INCIDENT = "incident, job, cause, reason, host, device, port, gpu, rank, switch, switch_port"
"""All labels of an incident's series: the job that suffers, the cause, the culprit."""
INCIDENTS = f"max by ({INCIDENT}) (fabric_incident)"
CULPRITS = (
    "label_join(max by (incident, cause, host, device, gpu, switch, switch_port) (fabric_incident),"
    ' "culprit", " ", "switch", "switch_port", "host", "device", "gpu")'
)
"""Incidents with all names of the culprit in one label: a legend writes the names of labels that
a series lacks."""
LOST_GPUS = (
    "sum by (cause) (rate(fabric_incident_lost_gpu_seconds_total[$__rate_interval])"
    " * on (incident, job) group_left (cause)"
    " (0 * topk by (incident, job) (1, max by (incident, job, cause) (fabric_incident)) + 1))"
)
"""GPU seconds lost in a second, which is a number of GPUs. `topk` because a name that changes
may stand beside its successor for a moment where no stale markers are written."""
LOST_GPU_HOURS = (
    "sum(max_over_time(fabric_incident_lost_gpu_seconds_total[$__range])"
    " - (fabric_incident_lost_gpu_seconds_total offset $__range"
    " or 0 * max_over_time(fabric_incident_lost_gpu_seconds_total[$__range]))) / 3600"
)
"""What was lost within the range. Not `increase`, which does not see what a series begins with."""


def rate(
    metric: str, over: str = "$__rate_interval", *, by: str, where: str = HERE, how: str = "sum"
) -> str:
    """A counter, a second. ``how``: max where a label's values overlap, as times of priorities."""
    return f"{how} by ({by}) (rate({metric}{{{where}}}[{over}]))"


def gauge(metric: str, *, by: str, where: str = HERE, how: str = "max") -> str:
    return f"{how} by ({by}) ({metric}{{{where}}})"


def highest(*recorded: str) -> str:
    """The most that each of these recorded series had in the range: by this the worst are chosen.

    `@ end()` makes it one number for the whole panel, so that every port can be looked at.
    """
    return " or ".join(f"max_over_time({one}{{{HERE}}}[$__range] @ end())" for one in recorded)


per_port = partial(rate, by=PORT)
per_nic = partial(rate, by=NIC)
PORT_RATE = f"(max by ({PORT}) (max_over_time(fabric_port_rate_bits_per_second{{{HERE}}}[5m])) > 0)"
"""The highest of some minutes: a link that is down reports a low rate, while earlier bytes still
count. A lower rate that stays is seen after five minutes."""
NIC_RATE = f"(max by ({NIC}) (max_over_time(fabric_nic_speed_bits_per_second{{{HERE}}}[5m])) > 0)"


def utilisation(direction: str, over: str = "$__rate_interval") -> str:
    """Bytes by the link's rate, 0 to 1. On hosts without RDMA ports: of their interfaces."""
    ports = f"{per_port(f'fabric_port_{direction}_bytes_total', over)} * 8 / {PORT_RATE}"
    nics = f"{per_nic(f'fabric_nic_{direction}_bytes_total', over)} * 8 / {NIC_RATE}"
    return (
        f"({ports} or {nics} unless on (cluster, host) fabric_port_rate_bits_per_second{{{HERE}}})"
    )


def on_ports(nics: str) -> str:
    """Readings of interfaces, mapped to the RDMA ports behind them: links lead to ports.

    On hosts of which no RDMA port is known, of the interfaces themselves.
    """
    named = f'max by (cluster, host, netdev) (label_join({nics}, "netdev", "", "device"))'
    ports = f'fabric_port_info{{{HERE}, netdev!=""}}'
    return (
        f"(max by ({PORT}) (group by ({PORT}, netdev) ({ports})"
        f" * on (cluster, host, netdev) group_left () {named})"
        f" or {nics} unless on (cluster, host) {ports})"
    )
