"""Whether a link is well: one port, the interface behind it, and the other end of its cable.

Everything is a share where there is something to take it of: of the line's rate, of bits, of
packets, of time. The texts name the limits; they are those of the rule pack.
"""

from __future__ import annotations

from dashboards.grafana import cable, limits
from dashboards.grafana.cable import ON_HOST, THIS, both_ends, first_of, nic_rate, port_rate, rates
from dashboards.grafana.expressions import HERE, NIC, PORT, per_port, rate
from dashboards.grafana.limits import bad_until
from dashboards.grafana.model import Unit
from dashboards.grafana.shapes import board, lines, named, number, states, table, thirds, titled
from dashboards.grafana.variables import CLUSTER, DEVICE, PORT_OWNER
from dashboards.grafana.variables import PORT as PORT_CHOICE

DARK_WATTS = 1e-7
"""-40 dBm: below what modules measure, and a number that a logarithm takes."""
END = "{{host}} {{port}}"

NO_MARKS = "No source counts marks of this port."
NO_PAUSE = "No source counts pause of this port (InfiniBand has credits instead)."
NO_SAMPLER = "No fast sampler runs for this port (switches have none)."

GLANCE = {
    "State": number.of(limits.STATE, decimals=None, values=limits.STATES)(
        "Whether the port carries traffic: only an active one does. One that stays at init waits "
        "for a subnet manager. Usual: active. A port that is down for 4 minutes is an alert "
        "(links_down_for, after gpud).",
        f"min({cable.STATE})",
        empty_text="not read",
    ),
    "Rate": number.of(Unit.BITS_PER_SECOND)(
        "What the link came up with. Usual: what its kind of port has everywhere else. Some "
        "drivers (EFA) report the same number whatever the device does.",
        f"max({cable.BITS})",
    ),
    "Of its best rate": number.of(bad_until(Unit.RATIO, fine=0.99))(
        "The rate now by the highest of the last day. Usual: 100 %. A link that lost lanes or "
        "speed when it last trained is below 99 % (links_rate_ratio, a policy of ours: links lose "
        "half of their rate or more, never a percent).",
        f"max({cable.BITS}) / max({cable.BEST_BITS})",
    ),
    "Error rate": number.of(limits.ERRORS, decimals=None)(
        "Symbol errors of the last 12 minutes by the bits that the link's speed carries in that "
        "time, at the end that has more. Usual: 0. From 1e-15 on it is worth a look; at 1e-14 "
        "NVIDIA UFM's packet drop rate plugin takes a link out (errors_ber_long, "
        "errors_ber_short).",
        f"max({cable.ERROR_RATE})",
    ),
    "Times down": number(
        "How often the link went down within the range shown. Usual: 0; every one stops a job for "
        "seconds or ends it. Three in 12 hours are a flapping port (links_flaps, after gpud).",
        f"round(max({cable.DOWNS}))",
    ),
    "Held back": number.of(limits.STOPPED, decimals=1)(
        "Share of time in which the port may not send: stopped by pause, or without credit on "
        "InfiniBand. Usual: near 0. From 5 % on the rule pack warns, 30 % is near a storm "
        "(pause_share, pause_share_heavy: folklore, there is no public number).",
        f"max({cable.IS_STOPPED} or on () max by ({PORT})"
        f" (rate(fabric_port_transmit_wait_seconds_total{{{THIS}}}[$__rate_interval])))",
    ),
}


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
        f"{what} / {line} and on ({NIC}) {cable.INTERFACE}",
    )


FULLNESS = (
    "60 to 80 % is how full a busy link may be on average, because collectives fill it for "
    "moments: 80 % is where the rule pack warns and a common limit of planning (capacity_average); "
    "at 95 % it is full (capacity_peak, a policy of ours). 60 % is no alert."
)
FULL = {
    "Utilisation": lines.of(limits.FULL, most=1.0)(
        "Bytes by the link's rate, both ways; a mean over the time between two points, which hides "
        f"what is shorter. {FULLNESS}",
        {"sends": cable.share_of_line("transmit"), "receives": cable.share_of_line("receive")},
    ),
    "Peaks within a second": lines.of(limits.PEAK, silence=NO_SAMPLER)(
        "What the fast sampler sees: the highest rate of each second over its finest window, and "
        "the mean of the same second, by the line's rate. Far apart means bursts that the panel "
        "beside this one hides; see the board about microbursts. 95 % is full (capacity_peak, a "
        "policy of ours).",
        {
            f"{words}, {what}": burst(metric, direction)
            for direction, words in (("transmit", "sends"), ("receive", "receives"))
            for metric, what in (
                ("fabric_burst_peak_bytes_per_second", "peak"),
                ("fabric_burst_mean_bytes_per_second", "mean"),
            )
        },
    ),
    "Packets": lines.of(Unit.PACKETS_PER_SECOND)(
        "Packets a second, both ways. Many packets for few bytes are small messages or "
        "acknowledgements.",
        {"sends": cable.SENT, "receives": cable.RECEIVED},
    ),
    "Bursts": lines.of(Unit.EVENTS_PER_SECOND, silence=NO_SAMPLER)(
        "Bursts a second that the fast sampler found: moments above half of the line's rate. Every "
        "collective is one; more than one a second is more than steps make (bursts_rate, a policy "
        "of ours) and hurts where packets are marked or dropped.",
        {
            "{{direction}}": first_of(
                rate("fabric_burst_bursts_total", by=f"{PORT}, direction", where=THIS),
                f"sum by ({NIC}, direction)"
                f" (rate(fabric_burst_bursts_total{{{ON_HOST}}}[$__rate_interval]))"
                f" and on ({NIC}) {cable.INTERFACE}",
            )
        },
    ),
}


ANY_LINE = f"({cable.ALL_RATES} > 0)"
ENDS = {
    "Both ends": table.of(values=limits.STATES, width=24, height=5, sort_by="")(
        "The chosen port and the one at the other end of its cable, as far as one of them reports "
        "the other (LLDP, or the subnet of InfiniBand). What one end sends the other receives: "
        "errors are counted where they arrive, so the end with errors names the cable and the "
        "direction, and not the device at fault. Rates are over 5 minutes, error rates over 12. "
        "Colours as in the panels below.",
        (*titled(host="Host", device="Device"), *named("port")),
        {
            ("State", limits.STATE): both_ends(f"min by ({PORT}) (fabric_port_state{{{HERE}}})"),
            ("Rate", Unit.BITS_PER_SECOND): both_ends(cable.ALL_RATES),
            ("Sends", limits.FULL): both_ends(
                f"{per_port('fabric_port_transmit_bytes_total', '5m')} * 8 / {ANY_LINE}"
            ),
            ("Error rate", limits.ERRORS): cable.at_ends("fabric_port_symbol_errors_total", "12m")
            + f" / {ANY_LINE}",
            ("Bad frames", Unit.EVENTS_PER_SECOND): both_ends(
                f"{per_port('fabric_port_receive_crc_errors_total', '12m')}"
                f" or {per_port('fabric_port_receive_errors_total', '12m')}"
            ),
            ("Thrown away", Unit.PACKETS_PER_SECOND): both_ends(
                f"{per_port('fabric_port_transmit_discards_total', '5m')}"
                f" or {per_port('fabric_port_queue_discarded_packets_total', '5m')}"
            ),
            ("Light in", Unit.DECIBEL_MILLIWATTS): both_ends(
                f"10 * log10(1000 * clamp_min(min by ({PORT})"
                f" (fabric_port_module_receive_power_watts{{{HERE}}}), {DARK_WATTS}))"
            ),
            ("Could be faster", limits.ANY_IS_BAD): both_ends(
                f"max by ({PORT}) (fabric_port_could_be_faster{{{HERE}}})"
            ),
        },
        empty_text="No such port is read. An interface without an RDMA port has its panels below.",
    )
}


def lanes(metric: str) -> str:
    return (
        f"sum by ({NIC}, lane) (rate({metric}{{{ON_HOST}}}[$__rate_interval]))"
        f" and on ({NIC}) {cable.INTERFACE}"
    )


DAMAGE = {
    "Bit error rate after correction": lines.of(limits.ERRORS)(
        "Symbol errors of 12 minutes by the bits that the link's speed carries in that time, at "
        "both ends where both count. Usual: 0. Limits: 1e-15 and 1e-14, at which NVIDIA UFM's "
        "packet drop rate plugin takes a link out (errors_ber_long and errors_ber_short; the first "
        "is meant over 125 minutes). Fewer than three errors prove nothing (errors_least).",
        {END: cable.ERROR_RATE},
        empty_text="No source counts symbols of this port.",
    ),
    "Bit error rate before correction": lines.of(limits.RAW_ERRORS)(
        "Bits that error correction repaired, by the bits of the link's speed. Long optical links "
        "have 1e-6 to 3e-5 and are fine: correction is made for it. From 1e-4 on it is close to "
        "failing (errors_raw_ber: half and less of the 2.4e-4 for which IEEE 802.3 designs "
        "RS(544,514)); ten times the day before is a trend (errors_trend_ratio, a policy of ours).",
        {
            "{{device}}": nic_rate("fabric_nic_phy_receive_corrected_bits_total")
            + f" / {cable.NIC_BITS}"
        },
        silence="No source counts corrected bits of this port (interfaces of hosts do).",
    ),
    "Damaged on arrival": lines.of(Unit.EVENTS_PER_SECOND)(
        "What arrived and was wrong, by who noticed: symbols on the wire, the checksum of frames, "
        "packets with any error, the inner checksum of RoCE packets (damaged inside a device, not "
        "on the cable), and packets that another switch had marked as bad (the fault is further "
        "away). Usual: 0. One in ten million frames is where the rule pack warns "
        "(errors_crc_ratio, derived from a bit error rate of 1e-12).",
        {
            "symbols": rates(
                "fabric_port_symbol_errors_total", "fabric_nic_phy_receive_symbol_errors_total"
            ),
            "checksum": rates(
                "fabric_port_receive_crc_errors_total", "fabric_nic_phy_receive_crc_errors_total"
            ),
            "any error": rates(
                "fabric_port_receive_errors_total", "fabric_nic_receive_errors_total"
            ),
            "inner checksum": port_rate("fabric_port_receive_icrc_errors_total"),
            "marked elsewhere": port_rate("fabric_port_receive_remote_physical_errors_total"),
        },
    ),
    "Correction": lines.of(Unit.EVENTS_PER_SECOND)(
        "Errors of each lane before correction, and blocks that correction repaired or could not. "
        "One lane that stands out is a fibre or the transceiver. A block that could not be "
        "repaired is lost data. Usual: some errors on all lanes alike, and none lost.",
        {
            "lane {{lane}}": lanes("fabric_nic_phy_receive_lane_errors_total"),
            "blocks repaired": nic_rate("fabric_nic_phy_receive_fec_corrected_blocks_total"),
            "blocks lost": nic_rate("fabric_nic_phy_receive_fec_uncorrectable_blocks_total"),
        },
        silence="No source counts lanes or blocks of this port (interfaces of hosts do).",
    ),
}

QUEUE_BITS = f"(max by ({PORT}) (fabric_port_rate_bits_per_second{{{THIS}}}) > 0)"


def drain(metric: str) -> str:
    """Seconds that what stands in a queue takes to leave at the port's rate."""
    return (
        f"max by ({PORT}, queue) ({metric}{{{THIS}}}) * 8 / on ({PORT}) group_left () {QUEUE_BITS}"
    )


HELD = {
    "Stopped by pause": lines.of(limits.STOPPED, silence=NO_PAUSE)(
        "Share of time in which the neighbour forbids this port to send, and in which this port "
        "forbids its neighbour; of the priority that is stopped most. Where a switch counts frames "
        "and no time it is the longest that they can have stopped it (65,535 quanta of 512 bits "
        "each, IEEE 802.1Qbb). Who stops others and is not stopped is the root; the rest are "
        "victims. From 5 % on the rule pack warns of measured time, from 30 % on it is near a "
        "storm, and frames count (pause_share, pause_share_heavy, pause_frames_share: policies of "
        "ours, there is no public number).",
        {"is stopped": cable.IS_STOPPED, "stops its neighbour": cable.STOPS_OTHERS},
    ),
    "Pause frames": lines.of(Unit.PACKETS_PER_SECOND, silence=NO_PAUSE)(
        "Pause frames a second, of the priority that has most. To keep its neighbour stopped a "
        "port sends one every 84 microseconds at 400 Gb/s.",
        {
            "received": first_of(
                cable.port_most("fabric_port_receive_pause_frames_total"),
                cable.nic_most("fabric_nic_receive_pause_frames_total"),
                nic_rate("fabric_nic_phy_receive_pause_frames_total"),
            ),
            "sent": first_of(
                cable.port_most("fabric_port_transmit_pause_frames_total"),
                cable.nic_most("fabric_nic_transmit_pause_frames_total"),
                nic_rate("fabric_nic_phy_transmit_pause_frames_total"),
            ),
        },
    ),
    "No credit (XmitWait)": lines.of(limits.WAIT)(
        "Share of time in which the port had data to send and its neighbour gave no credit: "
        "InfiniBand's back-pressure, computed with the device's own length of a tick. Not there "
        "where that length is unknown. 10 % is where the rule pack warns, 30 % is heavy "
        "(congestion_wait_share, congestion_wait_share_heavy: folklore).",
        {"waits": rate("fabric_port_transmit_wait_seconds_total", by=PORT, where=THIS, how="max")},
        silence="No source times this port without credit (Ethernet has pause instead).",
    ),
    "Ticks without credit (XmitWait)": lines.of(Unit.EVENTS_PER_SECOND)(
        "The same in ticks, as the port counts them: all that node_exporter and hosts report. How "
        "long a tick is differs by device, so compare a port with itself.",
        {"waits": port_rate("fabric_port_transmit_wait_ticks_total")},
        silence="No source counts ticks of this port (Ethernet switches do not).",
    ),
    "Marked packets and notifications, as shares": lines.of(limits.MARKED, silence=NO_MARKS)(
        "ECN: packets that arrived with a congestion mark by packets received, and notifications "
        "(CNP) that made this sender slow down by packets sent. Usual: next to nothing. 5 % of "
        "marks is where the rule pack warns (congestion_ecn_share, a policy of ours: no public "
        "number exists).",
        {
            "marked on arrival": rates(
                "fabric_port_receive_ecn_marked_packets_total",
                "fabric_nic_receive_ecn_marked_packets_total",
            )
            + f" / on () group_left () (sum({cable.RECEIVED}) > 0)",
            "notified": f"{port_rate('fabric_port_cnp_handled_total')}"
            f" / on () group_left () (sum({cable.SENT}) > 0)",
        },
    ),
    "Marked packets and notifications, a second": lines.of(
        Unit.PACKETS_PER_SECOND, silence=NO_MARKS
    )(
        "The four halves of congestion control. A receiver that sees marks must send "
        "notifications, and a sender that gets them must obey: marks without notifications, or "
        "notifications that are ignored, are a configuration fault. On a switch: packets that its "
        "queues marked.",
        {
            "marked on arrival": port_rate("fabric_port_receive_ecn_marked_packets_total"),
            "notifications sent": port_rate("fabric_port_cnp_sent_total"),
            "obeyed": port_rate("fabric_port_cnp_handled_total"),
            "ignored": port_rate("fabric_port_cnp_ignored_total"),
            "marked by its queues": port_rate("fabric_port_queue_ecn_marked_packets_total"),
        },
    ),
    "Queues": lines.of(limits.QUEUE, width=24)(
        "What stands in each queue of a switch's port, as the time that it takes to leave at the "
        "port's rate, and the highest mark since the switch last reset it. A mean of 0.2 "
        "milliseconds is a queue that stands (congestion_queue_seconds: 10 MB at 400 Gb/s); a high "
        "mark on a port that is not busy is a burst, alerted from 0.5 milliseconds on "
        "(bursts_queue_seconds). Both are policies of ours.",
        {
            "queue {{queue}}": first_of(
                drain("fabric_port_queue_depth_average_bytes"),
                drain("fabric_port_queue_depth_bytes"),
            ),
            "queue {{queue}}, highest": drain("fabric_port_queue_peak_bytes"),
        },
        silence="No source reports how full queues of this port are.",
    ),
}

LOSS = {
    "Thrown away, as a share": lines.of(limits.LOSS)(
        "Packets that were thrown away instead of sent by packets sent, and on arrival by packets "
        "received. Usual: 0. 1e-5 can collapse RoCE that starts over after a loss "
        "(loss_ratio_go_back_n, operators' reports); 1e-4 is where the rule pack warns "
        "(loss_ratio, a policy of ours).",
        {
            "instead of sent": cable.LOST,
            "on arrival": f"sum({cable.THROWN_AWAY_ON_ARRIVAL}) / (sum({cable.RECEIVED}) > 0)",
        },
    ),
    "Thrown away, a second": lines.of(Unit.PACKETS_PER_SECOND)(
        "Packets by where they were lost: before sending, on arrival, from a full queue, and "
        "because they waited too long (InfiniBand). Usual: 0; in a class with flow control it must "
        "stay there.",
        {
            "instead of sent": cable.THROWN_AWAY,
            "on arrival": cable.THROWN_AWAY_ON_ARRIVAL,
            "queue {{queue}}": rate(
                "fabric_port_queue_discarded_packets_total", by=f"{PORT}, queue", where=THIS
            ),
            "waited too long": port_rate("fabric_port_transmit_lifetime_discards_total"),
        },
        silence="No source counts what this port throws away.",
    ),
    "Sent again": lines.of(Unit.EVENTS_PER_SECOND)(
        "What RDMA does about loss: answers that a packet is missing, time-outs of "
        "acknowledgements (the costly kind: above one a second the rule pack warns, after NVIDIA "
        "NVSentinel), adaptive retransmissions, and packets that came out of order (loss, or "
        "adaptive routing). The packets may have been lost anywhere on the path.",
        {
            "reported missing": port_rate("fabric_port_sequence_naks_total"),
            "timed out": port_rate("fabric_port_ack_timeouts_total"),
            "sent again": rates(
                "fabric_port_adaptive_retransmits_total", "fabric_port_retransmit_packets_total"
            ),
            "out of order": port_rate("fabric_port_receive_out_of_sequence_total"),
        },
        silence="No source counts retransmissions of this port (only RDMA ports of hosts do).",
    ),
    "The host's own loss": lines.of(Unit.EVENTS_PER_SECOND)(
        "Packets that came well over the wire and found no room: no buffer posted by the "
        "application, a receiver that was not ready, or a host that did not fetch them. Look at "
        "the host, not at the link. Usual: 0.",
        {
            "no buffer posted": rates(
                "fabric_port_receive_out_of_buffer_total", "fabric_nic_receive_out_of_buffer_total"
            ),
            "not ready": port_rate("fabric_port_rnr_naks_total"),
            "not fetched": nic_rate("fabric_nic_receive_missed_total"),
        },
        silence="No source counts this of the port (only hosts do).",
    ),
}


def light(metric: str) -> str:
    """Power of each lane at both ends, as decibels."""
    watts = f"min by ({PORT}, lane) ({metric}{{{HERE}}})"
    return both_ends(f"10 * log10(1000 * clamp_min({watts}, {DARK_WATTS}))")


def module(metric: str) -> str:
    return both_ends(f"max by ({PORT}, lane) ({metric}{{{HERE}}})")


def own_module(metric: str, by: str = "lane") -> str:
    """Of the module of the interface behind the port."""
    return cable.of_interface(f"max by ({NIC}, {by}) ({metric}{{{ON_HOST}}})")


def own_light(metric: str) -> str:
    return f"10 * log10(1000 * clamp_min({own_module(metric)}, {DARK_WATTS}))"


def lately(metric: str) -> str:
    """How often within 5 minutes, of all ports; in whole numbers, which `increase` is not."""
    return f"round(sum by ({PORT}) (increase({metric}{{{HERE}}}[5m])))"


NOT_DYING = "Nothing foretells that this link will fail."
MODULE_SILENT = "No module reports: copper has no light, and not every agent reads modules."
LIGHT = {
    "Light": lines.of(Unit.DECIBEL_MILLIWATTS, least=None, silence=MODULE_SILENT)(
        "Power of each lane at both ends: light that comes in and that goes out. 3 dB less than "
        "the day before, or than its other lanes, is half of the light and where the rule pack "
        "warns (errors_light_ratio, a policy of ours). Slowly falling is a dirty or dying fibre. "
        "-40 dBm stands for no light at all.",
        {
            f"{END} {{{{lane}}}} in": light("fabric_port_module_receive_power_watts"),
            f"{END} {{{{lane}}}} out": light("fabric_port_module_transmit_power_watts"),
            "{{device}} {{lane}} in": own_light("fabric_nic_module_receive_power_watts"),
            "{{device}} {{lane}} out": own_light("fabric_nic_module_transmit_power_watts"),
        },
    ),
    "Laser current": lines.of(Unit.AMPERES, silence=MODULE_SILENT)(
        "Current of each laser at both ends. Rising at the same light is how lasers age; 1.3 times "
        "the day before is where the rule pack warns (errors_laser_ratio, a policy of ours).",
        {
            f"{END} {{{{lane}}}}": module("fabric_port_module_bias_amperes"),
            "{{device}} {{lane}}": own_module("fabric_nic_module_bias_amperes"),
        },
    ),
    "Module temperature": lines.of(limits.MODULE, silence=MODULE_SILENT)(
        "Temperature of the transceivers at both ends. Above 70 degrees most make errors "
        "(errors_module_celsius, NVIDIA UFM's packet drop rate plugin), and 10 degrees more than "
        "an hour before is a change (errors_module_rise).",
        {
            END: module("fabric_port_module_temperature_celsius"),
            "{{device}}": own_module("fabric_nic_module_temperature_celsius"),
        },
    ),
    "Expected to fail in": lines.of(Unit.SECONDS, silence=NOT_DYING)(
        "Seconds until error correction is expected to fail, if the error rate goes on rising as "
        "it did in the last hours (or light falling), compared with the ports beside it. A "
        "forecast: rather early than late. Usual: nothing here (errors_optic_dying, "
        "FabricOpticDying).",
        {"{{sign}}": f"min by (sign) (fabric_optic_errors_expected_seconds{{{THIS}}})"},
    ),
    "Errors by the module": lines.of(limits.RAW_ERRORS, silence=MODULE_SILENT)(
        "Share of bits that were wrong before correction, by the processor of this host's module: "
        "media is the fibre, host the way from the module to the NIC. Steady is healthy up to "
        "1e-5 and more; rising by the hour is a dying optic. 2.4e-4 is what RS(544,514) is made "
        "for (IEEE 802.3bs).",
        {
            "{{side}} {{lane}}": own_module(
                "fabric_nic_module_pre_fec_bit_error_ratio", "side, lane"
            )
        },
    ),
    "Signal over noise": lines.of(Unit.NONE, silence=MODULE_SILENT)(
        "Power of the signal over that of the noise at this host's module, lane by lane; 100 is "
        "20 dB. One lane below the others is its fibre, connector or laser.",
        {"{{side}} {{lane}}": own_module("fabric_nic_module_signal_to_noise_ratio", "side, lane")},
    ),
}
LIFE = {
    "State over time": states.of(limits.STATE, values=limits.STATES, height=6)(
        "Whether the port carried traffic, at both ends. One end down and the other active is a "
        "device that restarts or a cable that lost one direction.",
        {END: both_ends(f"min by ({PORT}) (fabric_port_state{{{HERE}}})")},
        empty_text="No such port is read.",
    ),
    "Went down": lines(
        "Times that the link went down or retrained after errors, within 5 minutes. Usual: 0. Both "
        "ends together are the cable; one alone is a restart (NVIDIA UFM). Five recoveries an hour "
        "is where the rule pack warns (errors_recoveries, stricter than NVSentinel).",
        {
            f"{END} down": both_ends(
                f"{lately('fabric_port_downs_seen_total')}"
                f" or {lately('fabric_port_link_downed_total')}"
                f" or {lately('fabric_port_carrier_changes_total')} / 2"
            ),
            f"{END} retrained": both_ends(lately("fabric_port_link_error_recoveries_total")),
        },
    ),
    "Rate": lines.of(Unit.BITS_PER_SECOND)(
        "What the link came up with, at both ends. A step down is lost lanes or speed: bytes take "
        "so much longer, and nothing else shows it.",
        {END: first_of(both_ends(cable.ALL_RATES), cable.BITS)},
    ),
}

BOARD = board(
    title="Port and link",
    question="Is this link well: does it carry what it should, without errors, pause or loss?",
    tags=("network",),
    variables=(CLUSTER, PORT_OWNER, DEVICE, PORT_CHOICE),
    rows={
        "Is this link well?": GLANCE,
        "How full is it?": FULL,
        "What do both ends of the cable count?": ENDS,
        "Does it damage bits?": DAMAGE,
        "Is it held back, or does it hold others back?": HELD,
        "Does it lose packets?": LOSS,
        "Are its optics well?": thirds(LIGHT),
        "Did it go down, or slow down?": thirds(LIFE),
    },
    has_port_links=True,
)
