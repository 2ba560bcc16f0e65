"""Back-pressure: from the ports that are slowed down to the one where it begins.

Pause and missing credit move upstream, so most of those who are stopped are victims. The root stops
others and is not stopped itself. What is full, marked or uneven shows why.
"""

from __future__ import annotations

from dashboards.grafana import jumps, limits
from dashboards.grafana.cable import worst_host
from dashboards.grafana.expressions import (
    HERE,
    INCIDENT,
    NIC,
    PORT,
    PORT_RATE,
    SOMEBODY_LOOKS,
    gauge,
    highest,
    per_nic,
    per_port,
    rate,
    utilisation,
)
from dashboards.grafana.limits import fine_until
from dashboards.grafana.model import Column, Unit
from dashboards.grafana.shapes import (
    THIS_SWITCH,
    Numbers,
    board,
    lines,
    named,
    number,
    table,
    titled,
)
from dashboards.grafana.variables import CLUSTER

ROWS = 15
"""Rows of a table of suspects: as many as a person reads."""
SHARE = 0.05
"""Knob pause_share: from here on a port that is stopped, or stops others, is shown."""
SHARE_OF_ROOT = 0.01
"""Knob pause_root_received: a port that is stopped for less counts as not stopped."""
FRAMES_SHARE = 0.3
"""Knob pause_frames_share: the same where only frames are counted, an upper bound."""
BUSY = 0.8
"""Knob capacity_average."""
LOADED = 0.2
"""Knob capacity_imbalance_load: below this mean an uneven spread does no harm."""
PACKETS = 1000
"""Knob congestion_packets_least: with fewer packets a second there is no share."""
CAUSES = "congestion|pause_storm|microburst"
NAME = "{{host}} {{device}} {{port}}"


def recorded_times(direction: str) -> tuple[str, str]:
    return (
        f"nic:fabric_nic_{direction}_pause_seconds:rate5m",
        f"port:fabric_port_{direction}_pause_seconds:rate5m",
    )


def measured(direction: str) -> str:
    """Share of 5 minutes that interfaces and ports measure, of the priority that has most."""
    nic, port = recorded_times(direction)
    return f"({gauge(nic, by=NIC)} or {gauge(port, by=PORT)})"


def over_time(direction: str) -> str:
    """The same at every moment, of those that had most in the range."""
    port, nic = (
        rate(f"fabric_{kind}_{direction}_pause_seconds_total", by=labels, how="max")
        for kind, labels in (("port", PORT), ("nic", NIC))
    )
    return worst_host(f"({nic} or {port})", highest(*recorded_times(direction)))


def by_frames(direction: str) -> str:
    """The longest share of 5 minutes that a port's pause frames can have stopped.

    A pause that goes on is repeated before it ends, so that frames add up to more than the time.
    """
    return f"clamp_max({gauge(f'port:fabric_port_{direction}_pause_frames:share5m', by=PORT)}, 1)"


WAITS = (
    f"max by ({PORT}) (rate(fabric_port_transmit_wait_seconds_total{{{HERE}}}[$__rate_interval]))"
)
ROOTS = f"({measured('transmit')} > {SHARE} unless {measured('receive')} > {SHARE_OF_ROOT})"
SWITCH_STOPS = f"max by (cluster, host) ({by_frames('transmit')})"
SWITCH_IS_STOPPED = f"max by (cluster, host) ({by_frames('receive')})"
VICTIMS = f"({measured('receive')} > {SHARE} or {by_frames('receive')} > {FRAMES_SHARE})"
PAUSE_SEEN = f"({measured('receive')} or {by_frames('receive')})"


def suspects(stops: str, is_stopped: str) -> Numbers:
    """The numbers of things that stop others more than they are stopped."""
    who = f"topk({ROWS}, ({stops} > 0) - ({is_stopped} or 0 * {stops}))"
    return {
        ("Stops more than it is stopped", Unit.RATIO): who,
        ("Stops others", limits.STOPPED): f"{stops} and {who}",
        ("Is stopped", limits.STOPPED): f"{is_stopped} and {who}",
    }


def seen_now(metric: str) -> str:
    """Whether it is measured, asked once; for what is recorded only where there is some."""
    return f"max({metric}{{{HERE}}} @ end())"


MARKS_SEEN = "fabric_port_receive_ecn_marked_packets_total"
MARKED = per_port(MARKS_SEEN, "5m")
RECEIVED = f"({per_port('fabric_port_receive_packets_total', '5m')} > {PACKETS})"
SENT = f"({per_port('fabric_port_transmit_packets_total', '5m')} > {PACKETS})"
SENDS, RECEIVES = utilisation("transmit", "5m"), utilisation("receive", "5m")
INCIDENTS = f'max by ({INCIDENT}) (fabric_incident{{cause=~"{CAUSES}"}})'

NO_PAUSE = "No source measures pause, or no rules run: they record who is worst."

GLANCE = {
    "Incidents": number(
        "Open incidents whose cause is congestion, a pause storm or microbursts. They may span "
        "clusters, so all are counted. Nothing at all means that no service of ours evaluates.",
        f"count(max by (incident) ({INCIDENTS})) or {SOMEBODY_LOOKS}",
    ),
    "Roots of pause": number(
        f"Interfaces and ports that stop others for more than {SHARE:.0%} of time and are stopped "
        f"for less than {SHARE_OF_ROOT:.0%}: here it begins (pause_share, pause_root_received: "
        "policies of ours). Usual: 0.",
        f"count({ROOTS}) or 0 * count({measured('transmit')})",
    ),
    "Stopped by pause": number.of(limits.ANY_IS_ODD)(
        f"Interfaces and ports that may not send for more than {SHARE:.0%} of time, or for up to "
        f"{FRAMES_SHARE:.0%} where only frames are counted (pause_share, pause_frames_share: "
        "policies of ours). Most of them are victims. Usual: 0.",
        f"count({VICTIMS}) or 0 * count({PAUSE_SEEN})",
    ),
    "Longest without credit": number.of(limits.WAIT, decimals=1)(
        "The highest share of time in which a port of InfiniBand had data and no credit. 10 % is "
        "where the rule pack warns, 30 % is heavy (congestion_wait_share, "
        "congestion_wait_share_heavy: folklore).",
        f"max({WAITS})",
    ),
    "Most marked": number.of(limits.MARKED, decimals=1)(
        "The highest share of packets that arrived at a port with a congestion mark. 5 % is where "
        "the rule pack warns (congestion_ecn_share, a policy of ours).",
        f"clamp_max(max({MARKED} / {RECEIVED}), 1) or 0 * max({MARKED})",
    ),
    "Full links": number.of(limits.ANY_IS_ODD)(
        f"Ports that sent more than {BUSY:.0%} of their rate over 5 minutes (capacity_average: a "
        "common limit of planning). Usual: few.",
        f"count({SENDS} > {BUSY}) or 0 * count({SENDS})",
    ),
}

WHERE = {
    "Who stops others: measured time": table(
        "Interfaces of hosts, and ports that measure it: shares of the last 5 minutes in which "
        "they kept their neighbour from sending and in which they were kept from it. The first "
        "stops others and is not stopped itself: a host that cannot take what arrives (PCIe, "
        f"memory, the process that should receive). One with both passes it on. From {SHARE:.0%} "
        "on the rule pack warns, 30 % is near a storm (pause_share, pause_share_heavy: folklore, "
        "there is no public number).",
        (*named("host device"), *titled(port="Port")),
        suspects(measured("transmit"), measured("receive")),
        silence="No port stops another, as far as time is measured and rules record it.",
    ),
    "Who stops others: switches, by frames": table(
        "Switches count pause frames and no time: the share is the longest that the frames of the "
        "worst port can have stopped (65,535 quanta of 512 bits each, IEEE 802.1Qbb). A switch "
        "that stops others while none of its ports is stopped has a queue of its own that is full; "
        "one with both passes on what comes from further along: follow its stopped ports to their "
        "neighbours.",
        (THIS_SWITCH,),
        suspects(SWITCH_STOPS, SWITCH_IS_STOPPED),
        silence="No switch stops a sender, or no rules run.",
    ),
    "Who is stopped by whom": table(
        "Ports of switches that are stopped, and who is at the other end of their cable: that is "
        "who stops them. Read it as a path: from a stopped port to its neighbour, and there to the "
        "next, until a neighbour is not stopped. Neighbours are as LLDP or the subnet names them.",
        (
            Column(label="host", title="Stopped switch", jump=jumps.TO_THIS_SWITCH),
            *named("port"),
            *titled(peer_name="Stopped by"),
            *named("peer_port"),
        ),
        {("Is stopped", limits.STOPPED): f"topk({ROWS}, {by_frames('receive')} > 0)"},
        f"max by ({PORT}, peer_name, peer_port) (fabric_link_info{{{HERE}}})"
        f" and on ({PORT}) topk({ROWS}, {by_frames('receive')} > 0)",
        silence="No port of a switch is stopped, or no rules run.",
    ),
    "Verdicts": table(
        "Open incidents whose cause is congestion, a pause storm or microbursts: the culprit by "
        "host and device, or by switch and port, and how sure it is. They may span clusters, so "
        "all are shown.",
        (*named("cause reason host device"), *titled(switch="Switch"), *named("switch_port job")),
        {("Sure", Unit.RATIO): INCIDENTS},
        silence="No such incident is open.",
    ),
}

HELD = {
    "Stopped by pause": lines.of(limits.STOPPED, silence=NO_PAUSE)(
        "Share of time in which interfaces and ports may not send, measured: the worst. Victims of "
        "one root rise together. Limits: 5 and 30 % (pause_share, pause_share_heavy).",
        {NAME: over_time("receive")},
    ),
    "Stops its neighbours": lines.of(limits.STOPPED, silence=NO_PAUSE)(
        "Share of time in which interfaces and ports keep their neighbour from sending: the worst. "
        "Who is here and not in the panel beside this one is the root.",
        {NAME: over_time("transmit")},
    ),
    "Pause frames received": lines.of(Unit.PACKETS_PER_SECOND)(
        "Frames a second that order a port to stop, of the priority that has most: the worst ports "
        "of switches, and interfaces where only the port's sum is counted.",
        {
            NAME: worst_host(
                f"(max by ({PORT}) (rate(fabric_port_receive_pause_frames_total"
                f"{{{HERE}}}[$__rate_interval]))"
                f" or {per_nic('fabric_nic_phy_receive_pause_frames_total')})",
                highest(
                    "port:fabric_port_receive_pause_frames:share5m",
                    "nic:fabric_nic_receive_pause_frames:share5m",
                ),
            )
        },
        silence="No source counts pause frames, or no rules run.",
    ),
    "No credit (XmitWait)": lines.of(limits.WAIT)(
        "Share of time in which a port of InfiniBand had data and no credit: the worst. A path of "
        "such ports leads to the one whose receiver is slow or whose link is full. Limits: 10 and "
        "30 % (congestion_wait_share, congestion_wait_share_heavy: folklore).",
        {NAME: worst_host(WAITS, highest("port:fabric_port_transmit_wait_seconds:rate5m"))},
        silence="No source reports time without credit (Ethernet has pause instead), or no rules "
        "run.",
    ),
}

MARKS = {
    "Marked packets, as a share": lines.of(limits.MARKED)(
        "Packets that arrive with a congestion mark, by packets received: the worst ports. The "
        "mark was set at a queue on the way here, usually the last hop before many senders meet. "
        "Ports with less than 1,000 packets a second have no share. 5 % is where the rule pack "
        "warns (congestion_ecn_share, a policy of ours).",
        {
            NAME: worst_host(
                f"clamp_max({MARKED} / {RECEIVED}, 1)",
                highest("port:fabric_port_receive_ecn_marked_packets:share5m"),
            )
        },
        silence="No source counts marked packets, there is no traffic, or no rules run.",
    ),
    "Senders that are slowed down": lines.of(Unit.RATIO)(
        "Notifications (CNP) that a sender obeyed, by packets sent: the worst ports. Three times "
        "its own mean of the hours before is a rise (congestion_cnp_rise, a policy of ours: no "
        "public number exists).",
        {
            NAME: worst_host(
                f"{per_port('fabric_port_cnp_handled_total', '5m')} / {SENT}",
                highest("port:fabric_port_cnp_handled:share5m"),
            )
        },
        silence="No source counts notifications, there is no traffic, or no rules run.",
    ),
    "Marks and notifications of all": lines.of(Unit.PACKETS_PER_SECOND)(
        "The halves of congestion control, summed: receivers see marks and send notifications, "
        "senders get and obey them. Marks without notifications, or notifications that are "
        "ignored, are a configuration fault. Means of 5 minutes, recorded by the rules.",
        {"{{part}}": f"sum by (part) (cluster:fabric_congestion_control:rate5m{{{HERE}}})"},
        silence="No source counts marks (InfiniBand and plain Ethernet have none), or no rules "
        "run.",
    ),
    "Sent again": lines.of(limits.ONE_A_SECOND)(
        "Adaptive retransmissions a second: packets that congestion, or a bad link, made a sender "
        "repeat without telling the application. The worst ports; above one a second on a "
        "congested path the rule pack warns (congestion_retransmits, a policy of ours).",
        {
            NAME: worst_host(
                f"({per_port('fabric_port_adaptive_retransmits_total')}"
                f" or {per_port('fabric_port_retransmit_packets_total')})",
                highest("port:fabric_port_adaptive_retransmits:rate5m"),
                f"{seen_now('fabric_port_adaptive_retransmits_total')}"
                f" or {seen_now('fabric_port_retransmit_packets_total')}",
            )
        },
        silence="No source counts retransmissions.",
    ),
}

UPLINKS = f"port:fabric_port_uplink_transmit:utilisation5m{{{HERE}}}"


LINKS = "link:fabric_link_transmit:utilisation5m"


def uneven(links: str) -> str:
    return f"max by (cluster, host) ({links}) / (avg by (cluster, host) ({links}) > 0)"


QUEUES = (
    f"((max by ({PORT}, queue) (fabric_port_queue_depth_average_bytes{{{HERE}}}) * 8"
    f" or max by ({PORT}, queue) (fabric_port_queue_depth_bytes{{{HERE}}}) * 8)"
    f" / on ({PORT}) group_left () {PORT_RATE} > 0)"
)
WHY = {
    "Hottest links": table(
        "Bytes over 5 minutes by the link's rate: the fullest, as they send and receive. 60 to "
        "80 % is how full a busy link may be on average; at 80 % the rule pack warns "
        "(capacity_average, a common limit of planning), 95 % is full (capacity_peak).",
        (*titled(host="Host or switch", device="Device"), *named("port")),
        {
            ("Sends", limits.FULL): f"topk({ROWS}, {SENDS} > 0)",
            ("Receives", limits.FULL): f"{RECEIVES} and topk({ROWS}, {SENDS} > 0)",
        },
        silence="No link carries anything.",
    ),
    "Uneven uplinks": table(
        "Switches whose uplinks share the load unevenly: how many times the mean the busiest "
        f"carries, its own load, and the mean. From 1.5 times on at a mean above {LOADED:.0%} the "
        "rule pack warns (capacity_imbalance, capacity_imbalance_load: policies of ours). Few "
        "large flows that hash to one uplink do this. Only of leaves whose neighbours are known; "
        "the numbers are recorded by the rules.",
        (THIS_SWITCH,),
        {
            ("Times the mean", Unit.NONE): uneven(UPLINKS),
            ("Busiest", limits.FULL): f"max by (cluster, host) ({UPLINKS})",
            ("Mean", Unit.RATIO): f"avg by (cluster, host) ({UPLINKS})",
        },
        silence="No uplinks are known, or the rules are not evaluated.",
    ),
    "Uneven uplinks over time": lines.of(limits.UNEVEN)(
        "How many times the mean the busiest uplink of a switch, or the busiest NIC of a host, "
        f"carries, where the mean is above {LOADED:.0%}. Limit: 1.5 (capacity_imbalance).",
        {
            "{{host}} uplinks": gauge(
                "switch:fabric_port_uplink_transmit:imbalance5m", by="cluster, host"
            ),
            "{{host}} NICs": gauge(
                "host:fabric_port_rail_transmit:imbalance5m", by="cluster, host"
            ),
        },
        silence="Nothing is loaded enough for an uneven spread to hurt, or no rules run.",
    ),
    "Queues that stand": lines.of(limits.QUEUE)(
        "What stands in queues of switches, as the time that it takes to leave at the port's rate: "
        "the worst. 0.2 milliseconds is a queue that stands (congestion_queue_seconds, a policy of "
        "ours: 10 MB at 400 Gb/s).",
        {
            "{{host}} {{port}} queue {{queue}}": worst_host(
                QUEUES, highest("port:fabric_port_queue_depth:drain5m"), on=PORT
            )
        },
        silence="No switch reports how full its queues are, or no rules run.",
    ),
    "Links over time": lines.of(limits.FULL)(
        "The fullest links as they send, by their rate. Limits: 60, 80 and 95 %.",
        {NAME: worst_host(utilisation("transmit"), f"max by ({PORT}) ({highest(LINKS)})")},
        silence="No link carries anything, or no rules run.",
    ),
    "Hosts that cannot take it: PCIe": lines.of(fine_until(Unit.RATIO, warn=0.15))(
        "Share of time in which PCIe held a NIC up, as it writes to memory or reads from it: the "
        "worst. A host that stops its switch for this reason is a root, and the fabric is not at "
        "fault. 15 % is where the rule pack warns (congestion_pcie_stalled, a policy of ours).",
        {
            NAME: worst_host(
                f"(max by ({NIC}) (rate(fabric_nic_pcie_write_stalled_seconds_total"
                f"{{{HERE}}}[$__rate_interval]))"
                f" or max by ({NIC}) (fabric_nic_pcie_write_stalled_ratio{{{HERE}}}))",
                f"max by ({NIC}) ({highest('nic:fabric_nic_pcie_stalled:share5m')})",
            )
        },
        silence="No NIC reports how PCIe holds it up, or no rules run.",
    ),
}

BOARD = board(
    title="Congestion",
    question="Who holds back whom, with whom does it begin, and why?",
    tags=("network",),
    variables=(CLUSTER,),
    rows={
        "Is any port held back?": GLANCE,
        "Where does it begin?": WHERE,
        "Who is held back, and since when?": HELD,
        "Does congestion control work?": MARKS,
        "Where is too much traffic?": WHY,
    },
    has_port_links=True,
)
