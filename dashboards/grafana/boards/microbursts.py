"""Bursts that averages hide: which ports have them, and how finely they are sampled.

Most of it comes from the fast sampler of our agents, which reads byte counters every few
milliseconds. Where it does not run, the last row has what NICs and switches notice by themselves.
"""

from __future__ import annotations

from dashboards.grafana import limits
from dashboards.grafana.cable import leading, worst_host
from dashboards.grafana.expressions import HERE, NIC, PORT, PORT_RATE, highest, rate
from dashboards.grafana.limits import bad_until, fine_until
from dashboards.grafana.model import Colour, Unit
from dashboards.grafana.shapes import board, heat, lines, named, number, spread, table, titled
from dashboards.grafana.variables import CLUSTER

ROWS = 15
"""Rows of a table of ports: as many as a person reads."""
SIDE = f"{PORT}, direction"
"""One direction of a port, or of an interface, which has no port."""
NAME = "{{host}} {{device}} {{port}} {{direction}}"
HOST = "cluster, host"
COARSE = fine_until(Unit.SECONDS, warn=0.1)
"""Knob bursts_resolution."""
TICKS_MISSED = fine_until(Unit.RATIO, warn=0.1)
"""Knob bursts_missed_share."""
FROM_LEAST = 0.01
"""Less than this share of the line is no ring that a job waits for."""


def gauge(name: str, matchers: str = HERE) -> str:
    return f"max by ({SIDE}) (fabric_burst_{name}{{{matchers}}})"


def counted(name: str, over: str = "$__rate_interval") -> str:
    return f"sum by ({SIDE}) (rate(fabric_burst_{name}{{{HERE}}}[{over}]))"


def most(name: str) -> str:
    """The highest of the range, asked once."""
    return f"max by ({SIDE}) (max_over_time(fabric_burst_{name}{{{HERE}}}[$__range] @ end()))"


def seen(name: str) -> str:
    return f"max(fabric_burst_{name}{{{HERE}}} @ end())"


def of_host(name: str, over: str) -> str:
    return f"round(sum by ({HOST}) (increase(fabric_burst_sampler_{name}{{{HERE}}}[{over}])))"


LINE = f"({gauge('line_bytes_per_second')} > 0)"
PEAK = f"{gauge('peak_bytes_per_second')} / {LINE}"
COARSE_PEAK = f"{gauge('coarse_peak_bytes_per_second')} / {LINE}"
MEAN = f"{gauge('mean_bytes_per_second')} / {LINE}"
BURSTS = counted("bursts_total")
LINE_NOW = f"(max by ({SIDE}) (fabric_burst_line_bytes_per_second{{{HERE}}} @ end()) > 0)"
MOST_BURSTS = f"sum by ({SIDE}) (increase(fabric_burst_bursts_total{{{HERE}}}[$__range] @ end()))"
MISSED_TICKS = f"max by ({HOST}) (rate(fabric_burst_sampler_ticks_missed_total{{{HERE}}}[5m]))"
MISSED = (
    f"{MISSED_TICKS} / ({MISSED_TICKS}"
    f" + max by ({HOST}) (avg_over_time(fabric_burst_sampler_ticks{{{HERE}}}[5m])) > 0)"
)
LATE = f'max by ({HOST}) (fabric_burst_sampler_lateness_seconds{{{HERE}, quantile="1"}})'
COST = f"sum by ({HOST}) (rate(fabric_burst_sampler_cpu_seconds_total{{{HERE}}}[5m]))"
HIDES = f"{gauge('peak_bytes_per_second')} / ({gauge('mean_bytes_per_second')} > 0)"
"""How many times its mean a port's peak is."""
HIGHEST = f"topk({ROWS}, {PEAK} > 0)"
NO_SAMPLER = "No fast sampler runs."
NO_RECORD = "No fast sampler runs, or no rules do."

GLANCE = {
    "Bursts a second": number.of(Unit.EVENTS_PER_SECOND, decimals=1)(
        "Moments above half of a line's rate, over all ports and both directions. Every collective "
        "is one, so a busy cluster has some; what matters is where they do harm.",
        f"sum({BURSTS})",
    ),
    "Ports with harm": number(
        "Ports that receive more than one burst a second and of whose packets more than 0.1 % "
        "arrive marked or are dropped on arrival (bursts_rate, bursts_harmed_share: policies of "
        "ours). Usual: 0. The second number is recorded by the rules.",
        f"count(sum by ({PORT}) (rate(fabric_burst_bursts_total"
        f'{{{HERE}, direction="receive"}}[5m])) > 1'
        f" and on ({PORT}) port:fabric_burst_harmed_packets:share5m{{{HERE}}} > 0.001)"
        f" or 0 * count({gauge('windows')})",
    ),
    "Highest peak": number.of(limits.PEAK)(
        "The highest rate of the last second of any port, over its finest window, by the line's "
        "rate. 95 % is full (capacity_peak, a policy of ours).",
        f"max({PEAK})",
    ),
    "Samplers": number.of(bad_until(fine=1, first=Colour.WARN))(
        "Hosts whose fast sampler runs. It is switched on host by host; a host without it has no "
        "bursts here, whatever its links do.",
        f"sum(max by ({HOST}) (fabric_burst_sampler_up{{{HERE}}}))",
    ),
    "Samplers down": number.of(limits.ANY_IS_ODD)(
        "Hosts whose sampler should run and does not. The agent starts it again by itself; 5 "
        "minutes are an alert (bursts_sampler_for).",
        f"count(max by ({HOST}) (fabric_burst_sampler_up{{{HERE}}}) == 0)"
        f" or 0 * count(fabric_burst_sampler_up{{{HERE}}})",
    ),
    "Coarsest counter": number.of(COARSE, decimals=None)(
        "How far apart two readings really are, of the port that is worst. A counter that changes "
        "more slowly than every 0.1 seconds shows no bursts (bursts_resolution: ten times what "
        "Linux refreshes hardware counters with).",
        f"max({gauge('resolution_seconds')})",
    ),
}

WHO = {
    "Ports with the highest peaks": table.of(width=24, height=10)(
        "The last second of each port and direction, by the line's rate: the peak over the finest "
        "window that the counter allows, the peak over 10 milliseconds (comparable between ports), "
        "the mean, and how many times the mean the peak is. Then bursts a second, the share of "
        "time above half of the line, and how fine the counter is. A high peak at a low mean fills "
        "queues that no utilisation shows. 95 % is full (capacity_peak), one burst a second more "
        "than steps make (bursts_rate); both are policies of ours.",
        (*named("host device"), *titled(port="Port", direction="Direction")),
        {
            ("Peak", limits.PEAK): HIGHEST,
            ("Over 10 ms", limits.PEAK): f"{COARSE_PEAK} and on ({SIDE}) {HIGHEST}",
            ("Mean", Unit.RATIO): f"{MEAN} and on ({SIDE}) {HIGHEST}",
            "Times the mean": f"{HIDES} and on ({SIDE}) {HIGHEST}",
            ("Bursts", limits.BURSTS): f"{counted('bursts_total', '5m')} and on ({SIDE}) {HIGHEST}",
            ("Busy", Unit.RATIO): f"{gauge('busy_ratio')} and on ({SIDE}) {HIGHEST}",
            ("Resolution", COARSE): f"{gauge('resolution_seconds')} and on ({SIDE}) {HIGHEST}",
        },
        silence="Nothing was sent, or no fast sampler runs.",
    ),
    "Peaks": lines.of(limits.PEAK, silence=NO_SAMPLER)(
        "The highest rate of each second, by the line's rate: the ports with the highest. Compare "
        "with the means beside: where both are high the link is full, where only the peak is, it "
        "bursts. 95 % is full (capacity_peak).",
        {
            NAME: worst_host(
                PEAK, f"{most('peak_bytes_per_second')} / {LINE_NOW}", seen("line_bytes_per_second")
            )
        },
    ),
    "Means of the same seconds": lines.of(limits.PEAK, silence=NO_SAMPLER)(
        "The mean rate of each second, by the line's rate: the ports with the highest. This is all "
        "that other tools show.",
        {
            NAME: worst_host(
                MEAN, f"{most('mean_bytes_per_second')} / {LINE_NOW}", seen("line_bytes_per_second")
            )
        },
    ),
    "Bursts a second": lines.of(limits.BURSTS, silence=NO_SAMPLER)(
        "Moments above half of the line's rate: the ports with most. Above one a second is more "
        "than steps make (bursts_rate, a policy of ours).",
        {NAME: worst_host(BURSTS, MOST_BURSTS, seen("bursts_total"))},
    ),
    "Busy": lines.of(Unit.RATIO, silence=NO_SAMPLER)(
        "Share of each second in which the rate was above half of the line's: the ports with most. "
        "Near 100 % it is load and no burst.",
        {NAME: worst_host(gauge("busy_ratio"), most("busy_ratio"), seen("busy_ratio"))},
    ),
    "Harm": lines.of(limits.HARM)(
        "Packets that arrived marked or were dropped on arrival, by packets received: the worst "
        "ports. Bursts count as harmful from 0.1 % on (bursts_harmed_share, a policy of ours). "
        "Recorded by the rules.",
        {
            "{{host}} {{device}} {{port}}": worst_host(
                f"clamp_max(port:fabric_burst_harmed_packets:share5m{{{HERE}}}, 1)",
                highest("port:fabric_burst_harmed_packets:share5m"),
            )
        },
        silence="No source counts marks and drops, there is no traffic, or no rules run.",
    ),
    "Bursts of each port": heat.of(Unit.EVENTS_PER_SECOND)(
        "Bursts a second of the ports with most, a row for each direction: what lights up together "
        "belongs to one collective, one alone is other traffic.",
        {NAME: leading(BURSTS, MOST_BURSTS)},
        silence="No bursts.",
    ),
}


def time_above(bound: float, direction: str) -> str:
    """Share of time above a utilisation, of all ports together; it is a cumulative histogram."""
    below, all_of_it = (
        "sum(cluster:fabric_burst_utilisation_seconds:rate5m"
        f'{{{HERE}, direction="{direction}", le="{le}"}})'
        for le in (bound, "+Inf")
    )
    return f"1 - {below} / ({all_of_it} > 0)"


VARIATION = gauge("variation_ratio", f'{HERE}, direction="transmit"')
SMOOTHEST = f"bottomk({ROWS}, {VARIATION} and on ({SIDE}) {MEAN} > {FROM_LEAST})"

TIME = {
    **{
        f"Time above a share of the line, {words}": lines.of(Unit.RATIO, silence=NO_RECORD)(
            "Share of time of all sampled ports in which the rate was above 10, 50, 75 and 90 % of "
            "the line, seen every few milliseconds. Lines close together are traffic that is all "
            "or nothing: bursts. Only ports whose line rate is known. Means of 5 minutes, recorded "
            "by the rules.",
            {
                f"above {bound * 100:.0f} %": time_above(bound, direction)
                for bound in (0.1, 0.5, 0.75, 0.9)
            },
        )
        for direction, words in (("transmit", "sending"), ("receive", "receiving"))
    },
    "How bursty ports are": spread(
        "The coefficient of variation of each sending port's rate over windows of 10 milliseconds, "
        "as a distribution over ports. In a ring all NICs have the same mean, but the one that "
        "holds the others up sends smoothly: it is the one on the left. The others stop and go "
        "with it.",
        {NAME: VARIATION},
        silence="No port sends, or no fast sampler runs.",
    ),
    "Smoothest senders": table.of(sort_by="")(
        "Ports that send at least 1 % of their line and vary least, with their means. Among ports "
        "of one job with the same mean, a port that is much smoother than the rest is the one that "
        "the rest wait for.",
        (*named("host device"), *titled(port="Port")),
        {
            ("Variation", Unit.RATIO): SMOOTHEST,
            ("Mean", Unit.RATIO): f"{MEAN} and on ({SIDE}) {SMOOTHEST}",
        },
        silence="No port sends that much, or no fast sampler runs.",
    ),
}

PEAKS = f"max by ({PORT}, queue) (fabric_port_queue_peak_bytes{{{HERE}}})"
FILLED = "fabric_nic_receive_buffer_over_threshold_total"
BUFFER = rate(FILLED, by=NIC)
ELSEWHERE = {
    "Receive buffers that fill": lines.of(limits.BURSTS)(
        "How often a second a NIC's receive buffer passed 85 % of its size: the worst. It needs no "
        "sampler and sees bursts of microseconds. More than once a second is where the rule pack "
        "warns, on a link that is not busy (bursts_buffer_rate, a policy of ours; the 85 % are the "
        "NIC's).",
        {
            "{{host}} {{device}}": worst_host(
                BUFFER,
                f"sum by ({NIC}) (increase({FILLED}{{{HERE}}}[$__range] @ end()))",
                f"max({FILLED}{{{HERE}}} @ end())",
            )
        },
        silence="No NIC counts this (mlx5 does).",
    ),
    "Highest marks of queues": lines.of(limits.QUEUE)(
        "The most that stood in a queue of a switch since it last reset the mark, as the time that "
        "it takes to leave at the port's rate: the worst. On a port that is not busy this is a "
        "burst; alerts from 0.5 milliseconds on (bursts_queue_seconds, a policy of ours).",
        {
            "{{host}} {{port}} queue {{queue}}": worst_host(
                f"{PEAKS} * 8 / on ({PORT}) group_left () {PORT_RATE} > 0",
                highest("port:fabric_port_queue_peak:drain"),
                on=PORT,
            )
        },
        silence="No switch reports the highest marks of its queues, or no rules run.",
    ),
}
SAMPLER = {
    "Samplers": table.of(silence=NO_SAMPLER)(
        "Each host's sampler. Resolution: how far apart two readings of its coarsest counter "
        "really are; a burst that is shorter is seen smaller than it was, and 0.1 seconds is too "
        "coarse (bursts_resolution). Missed: share of ticks that passed while it did not run; from "
        "10 % on its bursts are not to be trusted (bursts_missed_share), so give it a processor of "
        "its own. Late: the latest tick of the last second; rates stay right, because the time is "
        "measured. Both limits are policies of ours.",
        "host",
        {
            ("Missed", TICKS_MISSED): MISSED,
            ("Resolution", COARSE): f"max by ({HOST}) (fabric_burst_resolution_seconds{{{HERE}}})",
            ("Late", Unit.SECONDS): LATE,
            ("Processors", Unit.NONE): COST,
            ("Restarts in an hour", Unit.NONE): of_host("restarts_total", "1h"),
        },
    ),
    "Resolution": lines.of(COARSE, silence=NO_RECORD)(
        "How far apart two readings of a counter really are: of the coarsest port, and of the "
        "median one; of several clusters, of the one with more. A jump is a driver that refreshes "
        "its counters more rarely. Recorded by the rules.",
        {
            "coarsest": f'max(cluster:fabric_burst_resolution:quantile{{{HERE}, quantile="1"}})',
            "median": f'max(cluster:fabric_burst_resolution:quantile{{{HERE}, quantile="0.5"}})',
        },
    ),
    "Ticks missed": lines.of(TICKS_MISSED, silence=NO_SAMPLER)(
        "The share of ticks that the worst sampler missed. From 10 % on its bursts are not to be "
        "trusted (bursts_missed_share, a policy of ours).",
        {"worst host": f"max({MISSED})", "median": f"quantile(0.5, {MISSED})"},
    ),
    "Restarts and what was left out": lines.of(silence=NO_SAMPLER)(
        "Within an hour, over all hosts: samplers that died and began anew, bursts beyond a "
        "hundred a second (counted, not reported), summaries that the agent did not fetch in time, "
        "and reads that took too long to be believed. Usual: 0; three restarts of one host are an "
        "alert (bursts_restarts).",
        {
            "restarts": f"sum({of_host('restarts_total', '1h')})",
            "bursts not reported": f"sum({of_host('events_dropped_total', '1h')})",
            "summaries lost": f"sum({of_host('reports_dropped_total', '1h')})",
            "reads dropped": f"sum({of_host('reads_interrupted_total', '1h')})",
        },
    ),
}

BOARD = board(
    title="Microbursts",
    question="Are there bursts that averages hide, who has them, and how finely are they sampled?",
    tags=("network",),
    variables=(CLUSTER,),
    rows={
        "Are there bursts, and are they sampled?": GLANCE,
        "Who has bursts that averages hide?": WHO,
        "How is time spent?": TIME,
        "What do NICs and switches notice by themselves?": ELSEWHERE,
        "How finely, and how reliably, does the sampler look?": SAMPLER,
    },
    since="now-30m",
    has_port_links=True,
)
