"""Whether a switch is well: itself, all its ports beside each other, and how well it is read."""

from __future__ import annotations

from functools import partial

from dashboards.grafana import limits
from dashboards.grafana.cable import PAUSE_BITS, worst
from dashboards.grafana.expressions import HERE, PORT, gauge, rate
from dashboards.grafana.limits import bad_until
from dashboards.grafana.model import Colour, Scale, Unit
from dashboards.grafana.shapes import board, heat, lines, named, number, states, table, titled
from dashboards.grafana.variables import CLUSTER, SWITCH

IT = f'{HERE}, host="$switch"'
STATE = f"min by ({PORT}) (fabric_port_state{{{IT}}})"
RATE = f"(max by ({PORT}) (fabric_port_rate_bits_per_second{{{IT}}}) > 0)"
WAS_UP = f"max by ({PORT}) (max_over_time(fabric_port_state{{{IT}}}[$__range])) >= 4"


own = partial(gauge, where=IT)
own_rate = partial(rate, where=IT)
per_port = partial(own_rate, by=PORT)
most = partial(per_port, how="max")
by_queue = partial(own_rate, by=f"{PORT}, queue")


def full(direction: str, over: str = "$__rate_interval") -> str:
    return f"{per_port(f'fabric_port_{direction}_bytes_total', over)} * 8 / {RATE}"


def stopped(direction: str, over: str = "$__rate_interval") -> str:
    """Share of time by pause: measured, or the longest that the frames can have stopped."""
    return (
        f"({most(f'fabric_port_{direction}_pause_seconds_total', over)}"
        f" or {most(f'fabric_port_{direction}_pause_frames_total', over)} * {PAUSE_BITS} / {RATE})"
    )


def held_back(over: str = "$__rate_interval") -> str:
    """Share of time in which a port may not send: pause, or no credit on InfiniBand."""
    return (
        f"({stopped('receive', over)} or {most('fabric_port_transmit_wait_seconds_total', over)})"
    )


def thrown_away(over: str = "$__rate_interval") -> str:
    return (
        f"({per_port('fabric_port_transmit_discards_total', over)}"
        f" or {per_port('fabric_port_queue_discarded_packets_total', over)})"
    )


def packets(direction: str, over: str) -> str:
    return (
        f"(({per_port(f'fabric_port_{direction}_packets_total', over)}"
        f" or {per_port(f'fabric_port_{direction}_unicast_packets_total', over)}) > 0)"
    )


ERROR_RATE = f"{per_port('fabric_port_symbol_errors_total', '12m')} / {RATE}"
BAD_FRAMES = (
    f"({per_port('fabric_port_receive_crc_errors_total', '12m')}"
    f" or {per_port('fabric_port_receive_errors_total', '12m')})"
)

GLANCE = {
    "Answers": number.of(bad_until(fine=1), decimals=None, values={"0": "no", "1": "yes"})(
        "Whether the switch answered when it was last asked, by any way of asking. It may forward "
        "packets all the same: see whether its neighbours' ports are down. Silent for 3 minutes is "
        "an alert (links_switch_for, a policy of ours).",
        f"max(fabric_switch_up{{{IT}}})",
        empty_text="not polled",
    ),
    "Up since": number.of(bad_until(Unit.SECONDS, fine=3600, first=Colour.LOOK))(
        "Time since the switch's agent started. Less than an hour is a restart: its counters began "
        "anew, and so did its neighbours' links.",
        f"max(fabric_switch_uptime_seconds{{{IT}}})",
    ),
    "Ports active": number.of(Unit.NONE)(
        "Ports that carry traffic now, of all that it has.",
        f"count({STATE} >= 4) or 0 * count({STATE})",
    ),
    "Ports lost": number(
        "Ports that were active within the range shown and are not now. Those that their operator "
        "switched off are left out. Usual: 0. Down for 4 minutes is an alert (links_down_for, "
        "after gpud).",
        f"count({STATE} < 4 unless on ({PORT}) fabric_port_enabled{{{IT}}} == 0"
        f" and on ({PORT}) {WAS_UP}) or 0 * count({STATE})",
    ),
    "Thrown away": number.of(Scale(Unit.PACKETS_PER_SECOND, limits.ANY_IS_ODD.steps), decimals=1)(
        "Packets that its ports throw away in a second instead of sending them. Usual: 0. In a "
        "class with flow control none may be lost.",
        f"sum({thrown_away()})",
    ),
    "Temperature": number.of(Unit.CELSIUS)(
        "The highest temperature inside the switch. What is too hot differs by model: compare it "
        "with its neighbours.",
        f"max(fabric_switch_temperature_celsius{{{IT}}})",
    ),
}

NEIGHBOUR = f"max by ({PORT}, peer_name, peer_port) (fabric_link_info{{{IT}}})"
PORTS = {
    "All ports": table.of(values=limits.STATES, sort_by="Sends", width=24, height=14)(
        "Every port: its neighbour as LLDP or the subnet names it, and what it did in the last 5 "
        "minutes (errors: 12). Shares of the line's rate, of time, of packets. Limits: 60, 80 and "
        "95 % full (capacity_average, capacity_peak), an error rate of 1e-15 and 1e-14 (NVIDIA "
        "UFM's packet drop rate plugin), 5 and 30 % held back (pause_share, pause_share_heavy), a "
        "loss of 1e-5 and 1e-4 (loss_ratio_go_back_n, loss_ratio). Where pause frames are counted "
        "and not their time, it is the longest that they can have stopped the port.",
        (*named("port"), *titled(peer_name="Neighbour"), *named("peer_port")),
        {
            ("State", limits.STATE): STATE,
            ("Rate", Unit.BITS_PER_SECOND): own("fabric_port_rate_bits_per_second", by=PORT),
            ("Sends", limits.FULL): full("transmit", "5m"),
            ("Receives", limits.FULL): full("receive", "5m"),
            ("Error rate", limits.ERRORS): ERROR_RATE,
            ("Bad frames", Unit.EVENTS_PER_SECOND): BAD_FRAMES,
            ("Held back", limits.STOPPED): held_back("5m"),
            ("Stops others", limits.STOPPED): stopped("transmit", "5m"),
            ("Thrown away", limits.LOSS): f"{thrown_away('5m')} / {packets('transmit', '5m')}",
        },
        NEIGHBOUR,
        empty_text="No port of this switch is read.",
    ),
    "How full each port is, as it sends": heat.of(Unit.RATIO, most=1.0, height=10)(
        "Bytes by the line's rate, a row for each port. One uplink that is dark while others are "
        "bright is an uneven spread of flows; a bright one is where queues build. 80 % is where "
        "the rule pack warns (capacity_average).",
        {"{{port}}": full("transmit")},
    ),
    "State of each port": states.of(limits.STATE, values=limits.STATES, height=10)(
        "Whether each port carried traffic. Many that go down together are the switch or a line "
        "card; one that comes and goes is a cable.",
        {"{{port}}": STATE},
    ),
}

QUEUE = (
    f"(max by ({PORT}, queue) (fabric_port_queue_depth_average_bytes{{{IT}}})"
    f" or max by ({PORT}, queue) (fabric_port_queue_depth_bytes{{{IT}}}))"
)
QUEUE_PEAK = f"max by ({PORT}, queue) (fabric_port_queue_peak_bytes{{{IT}}})"
BY_PORT = f"on ({PORT}) group_left ()"

TROUBLE = {
    "Bit error rate": lines.of(limits.ERRORS)(
        "Symbol errors of 12 minutes by the bits of the link's speed: the worst ports. Usual: "
        "nothing. At 1e-14 NVIDIA UFM's packet drop rate plugin takes a link out "
        "(errors_ber_short; errors_ber_long for 1e-15).",
        {"{{port}}": worst(ERROR_RATE)},
        silence="No source counts symbol errors of this switch.",
    ),
    "Bad frames": lines.of(Unit.EVENTS_PER_SECOND)(
        "Frames a second with a wrong checksum, or packets with any error. A switch that cuts "
        "through passes them on: the link at fault is the first on the path that counts them.",
        {"{{port}}": worst(BAD_FRAMES)},
        silence="No source counts bad frames of this switch.",
    ),
    "Held back": lines.of(limits.STOPPED)(
        "Share of time in which a port may not send, because its neighbour pauses it or gives no "
        "credit: the worst ports. Their neighbours are where to look. From 5 % on the rule pack "
        "warns of pause, 30 % is near a storm (pause_share, pause_share_heavy).",
        {"{{port}}": worst(held_back())},
        silence="No source counts pause or credit of this switch.",
    ),
    "Stops its neighbours": lines.of(limits.STOPPED)(
        "Share of time in which a port forbids its neighbour to send: the switch cannot pass on "
        "what arrives there. If no port of it is held back, the pause begins in this switch (a "
        "queue of it is full). Limits as beside.",
        {"{{port}}": worst(stopped("transmit"))},
        silence="No source counts pause of this switch (InfiniBand has credits instead).",
    ),
    "Thrown away": lines.of(Unit.PACKETS_PER_SECOND)(
        "Packets a second that ports did not send, and that they dropped on arrival. Usual: "
        "nothing.",
        {
            "{{port}} instead of sent": worst(thrown_away()),
            "{{port}} on arrival": worst(per_port("fabric_port_receive_discards_total")),
        },
        silence="No source counts what this switch throws away.",
    ),
    "Dropped inside, by reason": lines.of(Unit.PACKETS_PER_SECOND)(
        "Packets that a chip or a port dropped, in the switch's own words for why. Told: those of "
        "which it sent a notice (sFlow), up to its limit; so many at least.",
        {
            "chip {{chip}} {{drop_reason}}": own_rate(
                "fabric_switch_drops_total", by="cluster, host, chip, drop_reason"
            ),
            "{{drop_reason}}": own_rate("fabric_port_drops_total", by="cluster, host, drop_reason"),
            "told: {{drop_reason}}": own_rate(
                "fabric_switch_drop_notices_total", by="cluster, host, drop_reason"
            ),
        },
        silence="This switch reports no reasons of drops.",
    ),
}


QUEUES = {
    "Fullest queues": lines.of(limits.QUEUE)(
        "What stands in a queue, as the time that it takes to leave at the port's rate. 0.2 "
        "milliseconds is a queue that stands (congestion_queue_seconds, a policy of ours: 10 MB at "
        "400 Gb/s).",
        {"{{port}} queue {{queue}}": worst(f"{QUEUE} * 8 / {BY_PORT} {RATE}")},
        silence="This switch does not report how full its queues are.",
    ),
    "Highest marks": lines.of(limits.QUEUE)(
        "The most that stood in a queue since the switch last reset the mark. High on a port that "
        "is not busy is a burst; alerts from 0.5 milliseconds on (bursts_queue_seconds, a policy "
        "of ours).",
        {"{{port}} queue {{queue}}": worst(f"{QUEUE_PEAK} * 8 / {BY_PORT} {RATE}")},
        silence="This switch reports no highest marks.",
    ),
    "Dropped by full queues": lines.of(Unit.PACKETS_PER_SECOND)(
        "Packets a second that a queue had no room for. In a class with flow control any is a "
        "fault (loss_lossless).",
        {"{{port}} queue {{queue}}": worst(by_queue("fabric_port_queue_discarded_packets_total"))},
        silence="No source counts what the queues of this switch drop.",
    ),
    "Marked by queues": lines.of(Unit.PACKETS_PER_SECOND)(
        "Packets a second that queues marked because they were filling (ECN): their receivers ask "
        "the senders to slow down. This is how it should be; drops are not.",
        {"{{port}} queue {{queue}}": worst(by_queue("fabric_port_queue_ecn_marked_packets_total"))},
        silence="This switch does not report which queues mark packets.",
    ),
}

BODY = {
    "Temperatures inside": lines.of(Unit.CELSIUS)(
        "Every sensor. All rising together is the room or a fan; one alone is what it sits on.",
        {"{{sensor}}": own("fabric_switch_temperature_celsius", by="cluster, host, sensor")},
        silence="This switch reports no temperatures.",
    ),
    "Transceivers' temperatures": lines.of(limits.MODULE)(
        "The warmest modules. Above 70 degrees most make errors (errors_module_celsius, NVIDIA "
        "UFM's packet drop rate plugin).",
        {"{{port}}": worst(f"max by ({PORT}) (fabric_port_module_temperature_celsius{{{IT}}})")},
        silence="This switch reports nothing of its modules.",
    ),
    "Time to read it": lines.of(Unit.SECONDS)(
        "What one round of questions takes, and the age of streamed messages when they come. A "
        "round that takes longer and longer is a switch whose processor is busy; a delay that "
        "grows is one that sends more than is taken, a negative one a clock that is ahead.",
        {
            "round by {{method}}": own("fabric_switch_poll_seconds", by="cluster, host, method"),
            "delay by {{method}}": own(
                "fabric_switch_stream_delay_seconds", by="cluster, host, method"
            ),
        },
        silence="No source times how this switch is read.",
    ),
    "What comes from it": lines(
        "Numbers that the last round brought, rows of its tables, and streamed values a second. A "
        "fall means that a table or a subscription went missing, and boards go blind without an "
        "error.",
        {
            "numbers by {{method}}": own("fabric_switch_poll_values", by="cluster, host, method"),
            "rows of {{table}}": own("fabric_switch_table_rows", by="cluster, host, table"),
            "streamed a second": own_rate("fabric_switch_stream_updates_total", by="cluster, host"),
        },
        silence="No source counts what comes from this switch.",
    ),
    "What went wrong with reading": lines(
        "Flaws of the last round (rows out of order, wrong types, tables without an end), streams "
        "that had to begin anew and messages that were not kept, within 10 minutes. Usual: 0.",
        {
            "{{table}} {{flaw}}": own(
                "fabric_switch_poll_flaws", by="cluster, host, table, flaw", how="sum"
            ),
            "streams begun": f"round(sum by (cluster, host)"
            f" (increase(fabric_switch_stream_connects_total{{{IT}}}[10m])))",
            "not kept, {{drop_reason}}": f"round(sum by (cluster, host, drop_reason)"
            f" (increase(fabric_switch_stream_dropped_total{{{IT}}}[10m])))",
        },
        silence="No source counts flaws of reading this switch.",
    ),
    "What it is": table(
        "Vendor, model and version, as each way of asking has it.",
        titled(
            method="Asked by",
            vendor="Vendor",
            model="Model",
            version="Version",
            description="Description",
        ),
        {},
        f"fabric_switch_info{{{IT}}}",
        empty_text="No source describes this switch.",
    ),
}

BOARD = board(
    title="Switch",
    question="Is this switch well, and which of its ports stands out?",
    tags=("network",),
    variables=(CLUSTER, SWITCH),
    rows={
        "Is this switch well?": GLANCE,
        "Which of its ports stands out?": PORTS,
        "Is a port in trouble?": TROUBLE,
        "Do queues build up?": QUEUES,
        "Is the switch itself well, and is it read well?": BODY,
    },
    has_port_links=True,
)
