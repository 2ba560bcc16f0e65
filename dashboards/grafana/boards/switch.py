"""Whether a switch is well: itself, all its ports beside each other, and how well it is read."""

from __future__ import annotations

from dashboards.grafana.cable import PAUSE_BITS, leading_to_ports, worst
from dashboards.grafana.expressions import HERE, PORT
from dashboards.grafana.limits import (
    ERROR_STEPS,
    FULL_STEPS,
    LOSS_STEPS,
    MODULE_STEPS,
    PLAIN,
    QUEUE_STEPS,
    STATE_STEPS,
    STATES,
    STOPPED_STEPS,
)
from dashboards.grafana.model import Board, Colour, Column, Draw, Panel, Row, Step, Unit
from dashboards.grafana.shapes import (
    ANY_IS_ODD,
    asked,
    lines,
    named,
    number,
    over_time,
    table,
    value,
)
from dashboards.grafana.variables import CLUSTER, SWITCH

IT = f'{HERE}, host="$switch"'
STATE = f"min by ({PORT}) (fabric_port_state{{{IT}}})"
RATE = f"(max by ({PORT}) (fabric_port_rate_bits_per_second{{{IT}}}) > 0)"
WAS_UP = f"max by ({PORT}) (max_over_time(fabric_port_state{{{IT}}}[$__range])) >= 4"


def rate(metric: str, over: str = "$__rate_interval") -> str:
    """A counter of each port, a second."""
    return f"sum by ({PORT}) (rate({metric}{{{IT}}}[{over}]))"


def most(metric: str, over: str = "$__rate_interval") -> str:
    """The same of the priority that has most: `all` is a sum of others, and times overlap."""
    return f"max by ({PORT}) (rate({metric}{{{IT}}}[{over}]))"


def full(direction: str, over: str = "$__rate_interval") -> str:
    """Bytes by the link's rate, 0 to 1."""
    return f"{rate(f'fabric_port_{direction}_bytes_total', over)} * 8 / {RATE}"


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
    """Packets a second that a port did not send."""
    return (
        f"({rate('fabric_port_transmit_discards_total', over)}"
        f" or {rate('fabric_port_queue_discarded_packets_total', over)})"
    )


def packets(direction: str, over: str) -> str:
    """Packets a second, if there is any traffic."""
    return (
        f"(({rate(f'fabric_port_{direction}_packets_total', over)}"
        f" or {rate(f'fabric_port_{direction}_unicast_packets_total', over)}) > 0)"
    )


ERROR_RATE = f"{rate('fabric_port_symbol_errors_total', '12m')} / {RATE}"
BAD_FRAMES = (
    f"({rate('fabric_port_receive_crc_errors_total', '12m')}"
    f" or {rate('fabric_port_receive_errors_total', '12m')})"
)

# --- at a glance ----------------------------------------------------------------------------------

GLANCE = Row(
    title="Is this switch well?",
    panels=(
        Panel(
            title="Answers",
            text="Whether the switch answered when it was last asked, by any way of asking. It may "
            "forward packets all the same: see whether its neighbours' ports are down. Silent for "
            "3 minutes is an alert (links_switch_for, a policy of ours).",
            draw=Draw.NUMBER,
            queries=asked(f"max(fabric_switch_up{{{IT}}})"),
            values={"0": "no", "1": "yes"},
            steps=(Step(None, Colour.BAD), Step(1, Colour.FINE)),
            width=4,
            height=4,
            empty_text="not polled",
        ),
        number(
            "Up since",
            "Time since the switch's agent started. Less than an hour is a restart: its counters "
            "began anew, and so did its neighbours' links.",
            f"max(fabric_switch_uptime_seconds{{{IT}}})",
            (Step(None, Colour.LOOK), Step(3600, Colour.FINE)),
            Unit.SECONDS,
        ),
        number(
            "Ports active",
            "Ports that carry traffic now, of all that it has.",
            f"count({STATE} >= 4) or 0 * count({STATE})",
            PLAIN,
        ),
        number(
            "Ports lost",
            "Ports that were active within the range shown and are not now. Those that their "
            "operator switched off are left out. Usual: 0. Down for 4 minutes is an alert "
            "(links_down_for, after gpud).",
            f"count({STATE} < 4 unless on ({PORT}) fabric_port_enabled{{{IT}}} == 0"
            f" and on ({PORT}) {WAS_UP}) or 0 * count({STATE})",
        ),
        number(
            "Thrown away",
            "Packets that its ports throw away in a second instead of sending them. Usual: 0. In "
            "a class with flow control none may be lost.",
            f"sum({thrown_away()})",
            ANY_IS_ODD,
            Unit.PACKETS_PER_SECOND,
            1,
        ),
        number(
            "Temperature",
            "The highest temperature inside the switch. What is too hot differs by model: compare "
            "it with its neighbours.",
            f"max(fabric_switch_temperature_celsius{{{IT}}})",
            PLAIN,
            Unit.CELSIUS,
        ),
    ),
)

# --- all ports ------------------------------------------------------------------------------------

NEIGHBOUR = f"max by ({PORT}, peer_name, peer_port) (fabric_link_info{{{IT}}})"
PORTS = Row(
    title="Which of its ports stands out?",
    panels=(
        table(
            "All ports",
            "Every port: its neighbour as LLDP or the subnet names it, and what it did in the "
            "last 5 minutes (errors: 12). Shares of the line's rate, of time, of packets. Limits: "
            "60, 80 and 95 % full (capacity_average, capacity_peak), an error rate of 1e-15 and "
            "1e-14 (NVIDIA UFM's packet drop rate plugin), 5 and 30 % held back (pause_share, "
            "pause_share_heavy), a loss of 1e-5 and 1e-4 (loss_ratio_go_back_n, loss_ratio). Where "
            "pause frames are counted and not their time, it is the longest that they can have "
            "stopped the port.",
            asked(
                STATE,
                f"max by ({PORT}) (fabric_port_rate_bits_per_second{{{IT}}})",
                full("transmit", "5m"),
                full("receive", "5m"),
                ERROR_RATE,
                BAD_FRAMES,
                held_back("5m"),
                stopped("transmit", "5m"),
                f"{thrown_away('5m')} / {packets('transmit', '5m')}",
                NEIGHBOUR,
            ),
            (
                *named("port"),
                Column(label="peer_name", title="Neighbour"),
                *named("peer_port"),
                value("State", steps=STATE_STEPS),
                value("Rate", Unit.BITS_PER_SECOND, of="B"),
                value("Sends", Unit.RATIO, FULL_STEPS, of="C"),
                value("Receives", Unit.RATIO, FULL_STEPS, of="D"),
                value("Error rate", Unit.SCIENTIFIC, ERROR_STEPS, of="E"),
                value("Bad frames", Unit.EVENTS_PER_SECOND, of="F"),
                value("Held back", Unit.RATIO, STOPPED_STEPS, of="G"),
                value("Stops others", Unit.RATIO, STOPPED_STEPS, of="H"),
                value("Thrown away", Unit.RATIO, LOSS_STEPS, of="I"),
            ),
            values=STATES,
            sort_by="Sends",
            width=24,
            height=14,
            empty_text="No port of this switch is read.",
        ),
        over_time(
            Draw.HEAT,
            "How full each port is, as it sends",
            "Bytes by the line's rate, a row for each port. One uplink that is dark while "
            "others are bright is an uneven spread of flows; a bright one is where queues build. "
            "80 % is where the rule pack warns (capacity_average).",
            {"{{port}}": full("transmit")},
            Unit.RATIO,
            most=1.0,
            height=10,
        ),
        over_time(
            Draw.STATES,
            "State of each port",
            "Whether each port carried traffic. Many that go down together are the switch or "
            "a line card; one that comes and goes is a cable.",
            {"{{port}}": STATE},
            values=STATES,
            steps=STATE_STEPS,
            height=10,
        ),
    ),
)

# --- trouble --------------------------------------------------------------------------------------


QUEUE = (
    f"(max by ({PORT}, queue) (fabric_port_queue_depth_average_bytes{{{IT}}})"
    f" or max by ({PORT}, queue) (fabric_port_queue_depth_bytes{{{IT}}}))"
)
QUEUE_PEAK = f"max by ({PORT}, queue) (fabric_port_queue_peak_bytes{{{IT}}})"
BY_PORT = f"on ({PORT}) group_left ()"

TROUBLE = Row(
    title="Is a port in trouble?",
    panels=(
        lines(
            "Bit error rate",
            "Symbol errors of 12 minutes by the bits of the link's speed: the worst ports. Usual: "
            "nothing. At 1e-14 NVIDIA UFM's packet drop rate plugin takes a link out "
            "(errors_ber_short; errors_ber_long for 1e-15).",
            {"{{port}}": worst(ERROR_RATE)},
            Unit.SCIENTIFIC,
            ERROR_STEPS,
            silence="No source counts symbol errors of this switch.",
        ),
        lines(
            "Bad frames",
            "Frames a second with a wrong checksum, or packets with any error. A switch that cuts "
            "through passes them on: the link at fault is the first on the path that counts them.",
            {"{{port}}": worst(BAD_FRAMES)},
            Unit.EVENTS_PER_SECOND,
            silence="No source counts bad frames of this switch.",
        ),
        lines(
            "Held back",
            "Share of time in which a port may not send, because its neighbour pauses it or gives "
            "no credit: the worst ports. Their neighbours are where to look. From 5 % on the rule "
            "pack warns of pause, 30 % is near a storm (pause_share, pause_share_heavy).",
            {"{{port}}": worst(held_back())},
            Unit.RATIO,
            STOPPED_STEPS,
            silence="No source counts pause or credit of this switch.",
        ),
        lines(
            "Stops its neighbours",
            "Share of time in which a port forbids its neighbour to send: the switch cannot pass "
            "on what arrives there. If no port of it is held back, the pause begins in this switch "
            "(a queue of it is full). Limits as beside.",
            {"{{port}}": worst(stopped("transmit"))},
            Unit.RATIO,
            STOPPED_STEPS,
            silence="No source counts pause of this switch (InfiniBand has credits instead).",
        ),
        lines(
            "Thrown away",
            "Packets a second that ports did not send, and that they dropped on arrival. Usual: "
            "nothing.",
            {
                "{{port}} instead of sent": worst(thrown_away()),
                "{{port}} on arrival": worst(rate("fabric_port_receive_discards_total")),
            },
            Unit.PACKETS_PER_SECOND,
            silence="No source counts what this switch throws away.",
        ),
        lines(
            "Dropped inside, by reason",
            "Packets that a chip or a port dropped, in the switch's own words for why.",
            {
                "chip {{chip}} {{drop_reason}}": f"sum by (cluster, host, chip, drop_reason)"
                f" (rate(fabric_switch_drops_total{{{IT}}}[$__rate_interval]))",
                "{{drop_reason}}": f"sum by (cluster, host, drop_reason)"
                f" (rate(fabric_port_drops_total{{{IT}}}[$__rate_interval]))",
            },
            Unit.PACKETS_PER_SECOND,
            silence="This switch reports no reasons of drops.",
        ),
    ),
)


def by_queue(metric: str) -> str:
    """A counter of each queue, a second."""
    return f"sum by ({PORT}, queue) (rate({metric}{{{IT}}}[$__rate_interval]))"


QUEUES = Row(
    title="Do queues build up?",
    panels=(
        lines(
            "Fullest queues",
            "What stands in a queue, as the time that it takes to leave at the port's rate. "
            "0.2 milliseconds is a queue that stands (congestion_queue_seconds, a policy of ours: "
            "10 MB at 400 Gb/s).",
            {"{{port}} queue {{queue}}": worst(f"{QUEUE} * 8 / {BY_PORT} {RATE}")},
            Unit.SECONDS,
            QUEUE_STEPS,
            silence="This switch does not report how full its queues are.",
        ),
        lines(
            "Highest marks",
            "The most that stood in a queue since the switch last reset the mark. High on a port "
            "that is not busy is a burst; alerts from 0.5 milliseconds on (bursts_queue_seconds, a "
            "policy of ours).",
            {"{{port}} queue {{queue}}": worst(f"{QUEUE_PEAK} * 8 / {BY_PORT} {RATE}")},
            Unit.SECONDS,
            QUEUE_STEPS,
            silence="This switch reports no highest marks.",
        ),
        lines(
            "Dropped by full queues",
            "Packets a second that a queue had no room for. In a class with flow control any is "
            "a fault (loss_lossless).",
            {
                "{{port}} queue {{queue}}": worst(
                    by_queue("fabric_port_queue_discarded_packets_total")
                )
            },
            Unit.PACKETS_PER_SECOND,
            silence="No source counts what the queues of this switch drop.",
        ),
        lines(
            "Marked by queues",
            "Packets a second that queues marked because they were filling (ECN): their receivers "
            "ask the senders to slow down. This is how it should be; drops are not.",
            {
                "{{port}} queue {{queue}}": worst(
                    by_queue("fabric_port_queue_ecn_marked_packets_total")
                )
            },
            Unit.PACKETS_PER_SECOND,
            silence="This switch does not report which queues mark packets.",
        ),
    ),
)

# --- the switch itself, and how it is read --------------------------------------------------------

BODY = Row(
    title="Is the switch itself well, and is it read well?",
    panels=(
        lines(
            "Temperatures inside",
            "Every sensor. All rising together is the room or a fan; one alone is what it sits on.",
            {
                "{{sensor}}": f"max by (cluster, host, sensor)"
                f" (fabric_switch_temperature_celsius{{{IT}}})"
            },
            Unit.CELSIUS,
            silence="This switch reports no temperatures.",
        ),
        lines(
            "Transceivers' temperatures",
            "The warmest modules. Above 70 degrees most make errors (errors_module_celsius, NVIDIA "
            "UFM's packet drop rate plugin).",
            {
                "{{port}}": worst(
                    f"max by ({PORT}) (fabric_port_module_temperature_celsius{{{IT}}})"
                )
            },
            Unit.CELSIUS,
            MODULE_STEPS,
            silence="This switch reports nothing of its modules.",
        ),
        lines(
            "Time to read it",
            "What one round of questions takes, and the age of streamed messages when they come. A "
            "round that takes longer and longer is a switch whose processor is busy; a delay that "
            "grows is one that sends more than is taken, a negative one a clock that is ahead.",
            {
                "round by {{method}}": f"max by (cluster, host, method)"
                f" (fabric_switch_poll_seconds{{{IT}}})",
                "delay by {{method}}": f"max by (cluster, host, method)"
                f" (fabric_switch_stream_delay_seconds{{{IT}}})",
            },
            Unit.SECONDS,
            silence="No source times how this switch is read.",
        ),
        lines(
            "What comes from it",
            "Numbers that the last round brought, rows of its tables, and streamed values a "
            "second. A fall means that a table or a subscription went missing, and boards go "
            "blind without an error.",
            {
                "numbers by {{method}}": f"max by (cluster, host, method)"
                f" (fabric_switch_poll_values{{{IT}}})",
                "rows of {{table}}": f"max by (cluster, host, table)"
                f" (fabric_switch_table_rows{{{IT}}})",
                "streamed a second": f"sum by (cluster, host)"
                f" (rate(fabric_switch_stream_updates_total{{{IT}}}[$__rate_interval]))",
            },
            silence="No source counts what comes from this switch.",
        ),
        lines(
            "What went wrong with reading",
            "Flaws of the last round (rows out of order, wrong types, tables without an end), "
            "streams that had to begin anew and messages that were not kept, within 10 minutes. "
            "Usual: 0.",
            {
                "{{table}} {{flaw}}": f"sum by (cluster, host, table, flaw)"
                f" (fabric_switch_poll_flaws{{{IT}}})",
                "streams begun": f"round(sum by (cluster, host)"
                f" (increase(fabric_switch_stream_connects_total{{{IT}}}[10m])))",
                "not kept, {{drop_reason}}": f"round(sum by (cluster, host, drop_reason)"
                f" (increase(fabric_switch_stream_dropped_total{{{IT}}}[10m])))",
            },
            silence="No source counts flaws of reading this switch.",
        ),
        table(
            "What it is",
            "Vendor, model and version, as each way of asking has it.",
            asked(f"fabric_switch_info{{{IT}}}"),
            tuple(
                Column(label=label, title=title)
                for label, title in (
                    ("method", "Asked by"),
                    ("vendor", "Vendor"),
                    ("model", "Model"),
                    ("version", "Version"),
                    ("description", "Description"),
                )
            ),
            empty_text="No source describes this switch.",
        ),
    ),
)

BOARD = Board(
    title="Switch",
    question="Is this switch well, and which of its ports stands out?",
    tags=("network",),
    variables=(CLUSTER, SWITCH),
    rows=leading_to_ports((GLANCE, PORTS, TROUBLE, QUEUES, BODY)),
)
