"""Whether a link is well: one port, the interface behind it, and the other end of its cable.

Everything is a share where there is something to take it of: of the line's rate, of bits, of
packets, of time. The texts name the limits; they are those of the rule pack.
"""

from __future__ import annotations

from dashboards.grafana.cable import (
    ALL_RATES,
    BEST_BITS,
    BITS,
    DOWNS,
    ERROR_RATE,
    INTERFACE,
    IS_STOPPED,
    LOST,
    NIC_BITS,
    ON_HOST,
    RECEIVED,
    SENT,
    STATE,
    STOPS_OTHERS,
    THIS,
    THROWN_AWAY,
    THROWN_AWAY_ON_ARRIVAL,
    at_ends,
    both_ends,
    first_of,
    leading_to_ports,
    nic_most,
    nic_rate,
    port_most,
    port_rate,
    share_of_line,
)
from dashboards.grafana.expressions import HERE, NIC, PORT
from dashboards.grafana.limits import (
    ERROR_STEPS,
    FULL_STEPS,
    LOSS_STEPS,
    MARKED_STEPS,
    MODULE_STEPS,
    PEAK_STEPS,
    PLAIN,
    QUEUE_STEPS,
    RAW_ERROR_STEPS,
    STATE_STEPS,
    STATES,
    STOPPED_STEPS,
    WAIT_STEPS,
)
from dashboards.grafana.model import Board, Colour, Column, Draw, Panel, Query, Row, Step, Unit
from dashboards.grafana.shapes import (
    ANY_IS_BAD,
    asked,
    lines,
    named,
    number,
    over_time,
    table,
    value,
)
from dashboards.grafana.variables import CLUSTER, DEVICE, PORT_OWNER
from dashboards.grafana.variables import PORT as PORT_CHOICE

DARK_WATTS = 1e-7
"""-40 dBm: below what modules measure, and a number that a logarithm takes."""
END = "{{host}} {{port}}"

# --- at a glance ----------------------------------------------------------------------------------

GLANCE = Row(
    title="Is this link well?",
    panels=(
        Panel(
            title="State",
            text="Whether the port carries traffic: only an active one does. One that stays at "
            "init waits for a subnet manager. Usual: active. A port that is down for 4 minutes is "
            "an alert (links_down_for, after gpud).",
            draw=Draw.NUMBER,
            queries=asked(f"min({STATE})"),
            values=STATES,
            steps=STATE_STEPS,
            width=4,
            height=4,
            empty_text="not read",
        ),
        number(
            "Rate",
            "What the link came up with. Usual: what its kind of port has everywhere else. Some "
            "drivers (EFA) report the same number whatever the device does.",
            f"max({BITS})",
            PLAIN,
            Unit.BITS_PER_SECOND,
        ),
        number(
            "Of its best rate",
            "The rate now by the highest of the last day. Usual: 100 %. A link that lost lanes or "
            "speed when it last trained is below 99 % (links_rate_ratio, a policy of ours: links "
            "lose half of their rate or more, never a percent).",
            f"max({BITS}) / max({BEST_BITS})",
            (Step(None, Colour.BAD), Step(0.99, Colour.FINE)),
            Unit.RATIO,
        ),
        number(
            "Error rate",
            "Symbol errors of the last 12 minutes by the bits that the link's speed carries in "
            "that time, at the end that has more. Usual: 0. From 1e-15 on it is worth a look; at "
            "1e-14 NVIDIA UFM's packet drop rate plugin takes a link out (errors_ber_long, "
            "errors_ber_short).",
            f"max({ERROR_RATE})",
            ERROR_STEPS,
            Unit.SCIENTIFIC,
            None,
        ),
        number(
            "Times down",
            "How often the link went down within the range shown. Usual: 0; every one stops a job "
            "for seconds or ends it. Three in 12 hours are a flapping port (links_flaps, after "
            "gpud).",
            f"round(max({DOWNS}))",
        ),
        number(
            "Held back",
            "Share of time in which the port may not send: stopped by pause, or without credit on "
            "InfiniBand. Usual: near 0. From 5 % on the rule pack warns, 30 % is near a storm "
            "(pause_share, pause_share_heavy: folklore, there is no public number).",
            f"max({IS_STOPPED} or on () max by ({PORT})"
            f" (rate(fabric_port_transmit_wait_seconds_total{{{THIS}}}[$__rate_interval])))",
            STOPPED_STEPS,
            Unit.RATIO,
            1,
        ),
    ),
)

# --- how full -------------------------------------------------------------------------------------


def burst(metric: str, direction: str) -> str:
    """A number of the fast sampler, of the port or its interface, by the line's rate."""
    what = f'max by ({PORT}) ({metric}{{{HERE}, host="$host", direction="{direction}"}})'
    line = (
        "(max by (cluster, host, device, port) (fabric_burst_line_bytes_per_second"
        f'{{{HERE}, host="$host", direction="{direction}"}}) > 0)'
    )
    port = f"fabric_port_state{{{THIS}}}"
    return first_of(
        f"{what} / {line} and on ({PORT}) {port}",
        f"{what} / {line} and on ({NIC}) {INTERFACE}",
    )


FULLNESS = (
    "60 to 80 % is how full a busy link may be on average, because collectives fill it for "
    "moments: 80 % is where the rule pack warns and a common limit of planning (capacity_average); "
    "at 95 % it is full (capacity_peak, a policy of ours). 60 % is no alert."
)
FULL = Row(
    title="How full is it?",
    panels=(
        lines(
            "Utilisation",
            "Bytes by the link's rate, both ways; a mean over the time between two points, "
            f"which hides what is shorter. {FULLNESS}",
            {"sends": share_of_line("transmit"), "receives": share_of_line("receive")},
            Unit.RATIO,
            FULL_STEPS,
            most=1.0,
        ),
        Panel(
            title="Peaks within a second",
            text="What the fast sampler sees: the highest rate of each second over its finest "
            "window, and the mean of the same second, by the line's rate. Far apart means bursts "
            "that the panel beside this one hides; see the board about microbursts. "
            "95 % is full (capacity_peak, a policy of ours).",
            queries=tuple(
                Query(expr=burst(metric, direction), legend=f"{words}, {what}")
                for direction, words in (("transmit", "sends"), ("receive", "receives"))
                for metric, what in (
                    ("fabric_burst_peak_bytes_per_second", "peak"),
                    ("fabric_burst_mean_bytes_per_second", "mean"),
                )
            ),
            unit=Unit.RATIO,
            steps=PEAK_STEPS,
            is_empty_fine=True,
            empty_text="No fast sampler runs for this port (switches have none).",
        ),
        lines(
            "Packets",
            "Packets a second, both ways. Many packets for few bytes are small messages or "
            "acknowledgements.",
            {"sends": SENT, "receives": RECEIVED},
            Unit.PACKETS_PER_SECOND,
        ),
        lines(
            "Bursts",
            "Bursts a second that the fast sampler found: moments above half of the line's rate. "
            "Every collective is one; more than one a second is more than steps make "
            "(bursts_rate, a policy of ours) and hurts where packets are marked or dropped.",
            {
                "{{direction}}": first_of(
                    f"sum by ({PORT}, direction)"
                    f" (rate(fabric_burst_bursts_total{{{THIS}}}[$__rate_interval]))",
                    f"sum by ({NIC}, direction)"
                    f" (rate(fabric_burst_bursts_total{{{ON_HOST}}}[$__rate_interval]))"
                    f" and on ({NIC}) {INTERFACE}",
                )
            },
            Unit.EVENTS_PER_SECOND,
            silence="No fast sampler runs for this port (switches have none).",
        ),
    ),
)

# --- both ends ------------------------------------------------------------------------------------


def every_port(metric: str, over: str = "5m") -> str:
    """A counter's rate of all ports, of which two are picked."""
    return f"sum by ({PORT}) (rate({metric}{{{HERE}}}[{over}]))"


ENDS = Row(
    title="What do both ends of the cable count?",
    panels=(
        table(
            "Both ends",
            "The chosen port and the one at the other end of its cable, as far as one of "
            "them reports the other (LLDP, or the subnet of InfiniBand). What one end sends the "
            "other receives: errors are counted where they arrive, so the end with errors names "
            "the cable and the direction, and not the device at fault. Rates are over 5 minutes, "
            "error rates over 12. Colours as in the panels below.",
            asked(
                both_ends(f"min by ({PORT}) (fabric_port_state{{{HERE}}})"),
                both_ends(ALL_RATES),
                both_ends(
                    f"{every_port('fabric_port_transmit_bytes_total')} * 8 / ({ALL_RATES} > 0)"
                ),
                f"{at_ends('fabric_port_symbol_errors_total', '12m')} / ({ALL_RATES} > 0)",
                both_ends(
                    f"{every_port('fabric_port_receive_crc_errors_total', '12m')}"
                    f" or {every_port('fabric_port_receive_errors_total', '12m')}"
                ),
                both_ends(
                    f"{every_port('fabric_port_transmit_discards_total')}"
                    f" or {every_port('fabric_port_queue_discarded_packets_total')}"
                ),
                both_ends(
                    f"10 * log10(1000 * clamp_min(min by ({PORT})"
                    f" (fabric_port_module_receive_power_watts{{{HERE}}}), {DARK_WATTS}))"
                ),
                both_ends(f"max by ({PORT}) (fabric_port_could_be_faster{{{HERE}}})"),
            ),
            (
                Column(label="host", title="Host"),
                Column(label="device", title="Device"),
                *named("port"),
                value("State", steps=STATE_STEPS),
                value("Rate", Unit.BITS_PER_SECOND, of="B"),
                value("Sends", Unit.RATIO, FULL_STEPS, of="C"),
                value("Error rate", Unit.SCIENTIFIC, ERROR_STEPS, of="D"),
                value("Bad frames", Unit.EVENTS_PER_SECOND, of="E"),
                value("Thrown away", Unit.PACKETS_PER_SECOND, of="F"),
                value("Light in", Unit.DECIBEL_MILLIWATTS, of="G"),
                value("Could be faster", Unit.NONE, ANY_IS_BAD, of="H"),
            ),
            values=STATES,
            width=24,
            height=5,
            empty_text="No such port is read. An interface without an RDMA port has its panels "
            "below.",
        ),
    ),
)

# --- damaged bits ---------------------------------------------------------------------------------


def lanes(metric: str) -> str:
    """A counter of the interface, lane by lane, a second."""
    return (
        f"sum by ({NIC}, lane) (rate({metric}{{{ON_HOST}}}[$__rate_interval]))"
        f" and on ({NIC}) {INTERFACE}"
    )


DAMAGE = Row(
    title="Does it damage bits?",
    panels=(
        lines(
            "Bit error rate after correction",
            "Symbol errors of 12 minutes by the bits that the link's speed carries in that "
            "time, at both ends where both count. Usual: 0. Limits: 1e-15 and 1e-14, at which "
            "NVIDIA UFM's packet drop rate plugin takes a link out (errors_ber_long and "
            "errors_ber_short; the first is meant over 125 minutes). Fewer than three errors "
            "prove nothing (errors_least).",
            {END: ERROR_RATE},
            Unit.SCIENTIFIC,
            ERROR_STEPS,
            empty_text="No source counts symbols of this port.",
        ),
        lines(
            "Bit error rate before correction",
            "Bits that error correction repaired, by the bits of the link's speed. Long "
            "optical links have 1e-6 to 3e-5 and are fine: correction is made for it. From 1e-4 "
            "on it is close to failing (errors_raw_ber: half and less of the 2.4e-4 for which "
            "IEEE 802.3 designs RS(544,514)); ten times the day before is a trend "
            "(errors_trend_ratio, a policy of ours).",
            {
                "{{device}}": nic_rate("fabric_nic_phy_receive_corrected_bits_total")
                + f" / {NIC_BITS}"
            },
            Unit.SCIENTIFIC,
            RAW_ERROR_STEPS,
            silence="No source counts corrected bits of this port (interfaces of hosts do).",
        ),
        lines(
            "Damaged on arrival",
            "What arrived and was wrong, by who noticed: symbols on the wire, the checksum of "
            "frames, packets with any error, the inner checksum of RoCE packets (damaged inside a "
            "device, not on the cable), and packets that another switch had marked as bad "
            "(the fault is further away). Usual: 0. One in ten million frames is where the rule "
            "pack warns (errors_crc_ratio, derived from a bit error rate of 1e-12).",
            {
                "symbols": first_of(
                    port_rate("fabric_port_symbol_errors_total"),
                    nic_rate("fabric_nic_phy_receive_symbol_errors_total"),
                ),
                "checksum": first_of(
                    port_rate("fabric_port_receive_crc_errors_total"),
                    nic_rate("fabric_nic_phy_receive_crc_errors_total"),
                ),
                "any error": first_of(
                    port_rate("fabric_port_receive_errors_total"),
                    nic_rate("fabric_nic_receive_errors_total"),
                ),
                "inner checksum": port_rate("fabric_port_receive_icrc_errors_total"),
                "marked elsewhere": port_rate("fabric_port_receive_remote_physical_errors_total"),
            },
            Unit.EVENTS_PER_SECOND,
        ),
        lines(
            "Correction",
            "Errors of each lane before correction, and blocks that correction repaired or could "
            "not. One lane that stands out is a fibre or the transceiver. A block that could not "
            "be repaired is lost data. Usual: some errors on all lanes alike, and none lost.",
            {
                "lane {{lane}}": lanes("fabric_nic_phy_receive_lane_errors_total"),
                "blocks repaired": nic_rate("fabric_nic_phy_receive_fec_corrected_blocks_total"),
                "blocks lost": nic_rate("fabric_nic_phy_receive_fec_uncorrectable_blocks_total"),
            },
            Unit.EVENTS_PER_SECOND,
            silence="No source counts lanes or blocks of this port (interfaces of hosts do).",
        ),
    ),
)

# --- held back ------------------------------------------------------------------------------------

QUEUE_BITS = f"(max by ({PORT}) (fabric_port_rate_bits_per_second{{{THIS}}}) > 0)"


def drain(metric: str) -> str:
    """Seconds that what stands in a queue takes to leave at the port's rate."""
    return (
        f"max by ({PORT}, queue) ({metric}{{{THIS}}}) * 8 / on ({PORT}) group_left () {QUEUE_BITS}"
    )


HELD = Row(
    title="Is it held back, or does it hold others back?",
    panels=(
        lines(
            "Stopped by pause",
            "Share of time in which the neighbour forbids this port to send, and in which this "
            "port forbids its neighbour; of the priority that is stopped most. Where a switch "
            "counts frames and no time it is the longest that they can have stopped it (65,535 "
            "quanta of 512 bits each, IEEE 802.1Qbb). Who stops others and is not stopped is the "
            "root; the rest are victims. From 5 % on the rule pack warns of measured time, from "
            "30 % on it is near a storm, and frames count (pause_share, pause_share_heavy, "
            "pause_frames_share: policies of ours, there is no public number).",
            {"is stopped": IS_STOPPED, "stops its neighbour": STOPS_OTHERS},
            Unit.RATIO,
            STOPPED_STEPS,
            silence="No source counts pause of this port (InfiniBand has credits instead).",
        ),
        lines(
            "Pause frames",
            "Pause frames a second, of the priority that has most. To keep its neighbour stopped a "
            "port sends one every 84 microseconds at 400 Gb/s.",
            {
                "received": first_of(
                    port_most("fabric_port_receive_pause_frames_total"),
                    nic_most("fabric_nic_receive_pause_frames_total"),
                    nic_rate("fabric_nic_phy_receive_pause_frames_total"),
                ),
                "sent": first_of(
                    port_most("fabric_port_transmit_pause_frames_total"),
                    nic_most("fabric_nic_transmit_pause_frames_total"),
                    nic_rate("fabric_nic_phy_transmit_pause_frames_total"),
                ),
            },
            Unit.PACKETS_PER_SECOND,
            silence="No source counts pause of this port (InfiniBand has credits instead).",
        ),
        lines(
            "No credit (XmitWait)",
            "Share of time in which the port had data to send and its neighbour gave no credit: "
            "InfiniBand's back-pressure, computed with the device's own length of a tick. Not "
            "there where that length is unknown. 10 % is where the rule pack warns, 30 % is "
            "heavy (congestion_wait_share, congestion_wait_share_heavy: folklore).",
            {
                "waits": f"max by ({PORT})"
                f" (rate(fabric_port_transmit_wait_seconds_total{{{THIS}}}[$__rate_interval]))"
            },
            Unit.RATIO,
            WAIT_STEPS,
            silence="No source times this port without credit (Ethernet has pause instead).",
        ),
        lines(
            "Ticks without credit (XmitWait)",
            "The same in ticks, as the port counts them: all that node_exporter and hosts report. "
            "How long a tick is differs by device, so compare a port with itself.",
            {"waits": port_rate("fabric_port_transmit_wait_ticks_total")},
            Unit.EVENTS_PER_SECOND,
            silence="No source counts ticks of this port (Ethernet switches do not).",
        ),
        lines(
            "Marked packets and notifications, as shares",
            "ECN: packets that arrived with a congestion mark by packets received, and "
            "notifications (CNP) that made this sender slow down by packets sent. Usual: next to "
            "nothing. 5 % of marks is where the rule pack warns (congestion_ecn_share, a policy "
            "of ours: no public number exists).",
            {
                "marked on arrival": first_of(
                    port_rate("fabric_port_receive_ecn_marked_packets_total"),
                    nic_rate("fabric_nic_receive_ecn_marked_packets_total"),
                )
                + f" / on () group_left () (sum({RECEIVED}) > 0)",
                "notified": f"{port_rate('fabric_port_cnp_handled_total')}"
                f" / on () group_left () (sum({SENT}) > 0)",
            },
            Unit.RATIO,
            MARKED_STEPS,
            silence="No source counts marks of this port.",
        ),
        lines(
            "Marked packets and notifications, a second",
            "The four halves of congestion control. A receiver that sees marks must send "
            "notifications, and a sender that gets them must obey: marks without notifications, "
            "or notifications that are ignored, are a configuration fault. On a switch: packets "
            "that its queues marked.",
            {
                "marked on arrival": port_rate("fabric_port_receive_ecn_marked_packets_total"),
                "notifications sent": port_rate("fabric_port_cnp_sent_total"),
                "obeyed": port_rate("fabric_port_cnp_handled_total"),
                "ignored": port_rate("fabric_port_cnp_ignored_total"),
                "marked by its queues": port_rate("fabric_port_queue_ecn_marked_packets_total"),
            },
            Unit.PACKETS_PER_SECOND,
            silence="No source counts marks of this port.",
        ),
        lines(
            "Queues",
            "What stands in each queue of a switch's port, as the time that it takes to leave at "
            "the port's rate, and the highest mark since the switch last reset it. A mean of 0.2 "
            "milliseconds is a queue that stands (congestion_queue_seconds: 10 MB at 400 Gb/s); a "
            "high mark on a port that is not busy is a burst, alerted from 0.5 milliseconds on "
            "(bursts_queue_seconds). Both are policies of ours.",
            {
                "queue {{queue}}": first_of(
                    drain("fabric_port_queue_depth_average_bytes"),
                    drain("fabric_port_queue_depth_bytes"),
                ),
                "queue {{queue}}, highest": drain("fabric_port_queue_peak_bytes"),
            },
            Unit.SECONDS,
            QUEUE_STEPS,
            width=24,
            silence="No source reports how full queues of this port are.",
        ),
    ),
)

# --- loss -----------------------------------------------------------------------------------------

LOSS = Row(
    title="Does it lose packets?",
    panels=(
        lines(
            "Thrown away, as a share",
            "Packets that were thrown away instead of sent by packets sent, and on arrival by "
            "packets received. Usual: 0. 1e-5 can collapse RoCE that starts over after a "
            "loss (loss_ratio_go_back_n, operators' reports); 1e-4 is where the rule pack warns "
            "(loss_ratio, a policy of ours).",
            {
                "instead of sent": LOST,
                "on arrival": f"sum({THROWN_AWAY_ON_ARRIVAL}) / (sum({RECEIVED}) > 0)",
            },
            Unit.RATIO,
            LOSS_STEPS,
        ),
        lines(
            "Thrown away, a second",
            "Packets by where they were lost: before sending, on arrival, from a full queue, and "
            "because they waited too long (InfiniBand). Usual: 0; in a class with flow control "
            "it must stay there.",
            {
                "instead of sent": THROWN_AWAY,
                "on arrival": THROWN_AWAY_ON_ARRIVAL,
                "queue {{queue}}": f"sum by ({PORT}, queue) (rate"
                f"(fabric_port_queue_discarded_packets_total{{{THIS}}}[$__rate_interval]))",
                "waited too long": port_rate("fabric_port_transmit_lifetime_discards_total"),
            },
            Unit.PACKETS_PER_SECOND,
            silence="No source counts what this port throws away.",
        ),
        lines(
            "Sent again",
            "What RDMA does about loss: answers that a packet is missing, time-outs of "
            "acknowledgements (the costly kind: above one a second the rule pack warns, after "
            "NVIDIA NVSentinel), adaptive retransmissions, and packets that came out of order "
            "(loss, or adaptive routing). The packets may have been lost anywhere on the path.",
            {
                "reported missing": port_rate("fabric_port_sequence_naks_total"),
                "timed out": port_rate("fabric_port_ack_timeouts_total"),
                "sent again": first_of(
                    port_rate("fabric_port_adaptive_retransmits_total"),
                    port_rate("fabric_port_retransmit_packets_total"),
                ),
                "out of order": port_rate("fabric_port_receive_out_of_sequence_total"),
            },
            Unit.EVENTS_PER_SECOND,
            silence="No source counts retransmissions of this port (only RDMA ports of hosts do).",
        ),
        lines(
            "The host's own loss",
            "Packets that came well over the wire and found no room: no buffer posted by the "
            "application, a receiver that was not ready, or a host that did not fetch them. Look "
            "at the host, not at the link. Usual: 0.",
            {
                "no buffer posted": first_of(
                    port_rate("fabric_port_receive_out_of_buffer_total"),
                    nic_rate("fabric_nic_receive_out_of_buffer_total"),
                ),
                "not ready": port_rate("fabric_port_rnr_naks_total"),
                "not fetched": nic_rate("fabric_nic_receive_missed_total"),
            },
            Unit.EVENTS_PER_SECOND,
            silence="No source counts this of the port (only hosts do).",
        ),
    ),
)

# --- light and life -------------------------------------------------------------------------------


def light(metric: str) -> str:
    """Power of each lane at both ends, as decibels."""
    watts = f"min by ({PORT}, lane) ({metric}{{{HERE}}})"
    return both_ends(f"10 * log10(1000 * clamp_min({watts}, {DARK_WATTS}))")


def module(metric: str) -> str:
    """Readings of a transceiver, at both ends."""
    return both_ends(f"max by ({PORT}, lane) ({metric}{{{HERE}}})")


def lately(metric: str) -> str:
    """How often within 5 minutes, of all ports; in whole numbers, which `increase` is not."""
    return f"round(sum by ({PORT}) (increase({metric}{{{HERE}}}[5m])))"


MODULE_SILENT = "No module reports: copper has no light, and not every agent reads modules."
LIGHT = Row(
    title="Are its optics well?",
    panels=(
        lines(
            "Light",
            "Power of each lane at both ends: light that comes in and that goes out. 3 dB "
            "less than the day before, or than its other lanes, is half of the light and where "
            "the rule pack warns (errors_light_ratio, a policy of ours). Slowly falling is a "
            "dirty or dying fibre. -40 dBm stands for no light at all.",
            {
                f"{END} {{{{lane}}}} in": light("fabric_port_module_receive_power_watts"),
                f"{END} {{{{lane}}}} out": light("fabric_port_module_transmit_power_watts"),
            },
            Unit.DECIBEL_MILLIWATTS,
            least=None,
            width=8,
            silence=MODULE_SILENT,
        ),
        lines(
            "Laser current",
            "Current of each laser at both ends. Rising at the same light is how lasers age; 1.3 "
            "times the day before is where the rule pack warns (errors_laser_ratio, a policy of "
            "ours).",
            {f"{END} {{{{lane}}}}": module("fabric_port_module_bias_amperes")},
            Unit.AMPERES,
            width=8,
            silence=MODULE_SILENT,
        ),
        lines(
            "Module temperature",
            "Temperature of the transceivers at both ends. Above 70 degrees most make errors "
            "(errors_module_celsius, NVIDIA UFM's packet drop rate plugin), and 10 degrees more "
            "than an hour before is a change (errors_module_rise).",
            {END: module("fabric_port_module_temperature_celsius")},
            Unit.CELSIUS,
            MODULE_STEPS,
            width=8,
            silence=MODULE_SILENT,
        ),
    ),
)
LIFE = Row(
    title="Did it go down, or slow down?",
    panels=(
        over_time(
            Draw.STATES,
            "State over time",
            "Whether the port carried traffic, at both ends. One end down and the other "
            "active is a device that restarts or a cable that lost one direction.",
            {END: both_ends(f"min by ({PORT}) (fabric_port_state{{{HERE}}})")},
            values=STATES,
            steps=STATE_STEPS,
            width=8,
            height=6,
            empty_text="No such port is read.",
        ),
        lines(
            "Went down",
            "Times that the link went down or retrained after errors, within 5 minutes. Usual: 0. "
            "Both ends together are the cable; one alone is a restart (NVIDIA UFM). Five "
            "recoveries an hour is where the rule pack warns (errors_recoveries, stricter than "
            "NVSentinel).",
            {
                f"{END} down": both_ends(
                    f"{lately('fabric_port_downs_seen_total')}"
                    f" or {lately('fabric_port_link_downed_total')}"
                    f" or {lately('fabric_port_carrier_changes_total')} / 2"
                ),
                f"{END} retrained": both_ends(lately("fabric_port_link_error_recoveries_total")),
            },
            width=8,
        ),
        lines(
            "Rate",
            "What the link came up with, at both ends. A step down is lost lanes or speed: bytes "
            "take so much longer, and nothing else shows it.",
            {END: first_of(both_ends(ALL_RATES), BITS)},
            Unit.BITS_PER_SECOND,
            width=8,
        ),
    ),
)

BOARD = Board(
    title="Port and link",
    question="Is this link well: does it carry what it should, without errors, pause or loss?",
    tags=("network",),
    variables=(CLUSTER, PORT_OWNER, DEVICE, PORT_CHOICE),
    rows=leading_to_ports((GLANCE, FULL, ENDS, DAMAGE, HELD, LOSS, LIGHT, LIFE)),
)
