"""Bursts that averages hide: which ports have them, and how finely they are sampled.

Most of it comes from the fast sampler of our agents, which reads byte counters every few
milliseconds. Where it does not run, the last row has what NICs and switches notice by themselves.
"""

from __future__ import annotations

from dashboards.grafana.cable import leading, leading_to_ports, worst
from dashboards.grafana.expressions import HERE, NIC, PORT, PORT_RATE
from dashboards.grafana.limits import (
    BURSTS_STEPS,
    HARM_STEPS,
    PEAK_STEPS,
    PLAIN,
    QUEUE_STEPS,
    fine_until,
)
from dashboards.grafana.model import Board, Colour, Column, Draw, Panel, Query, Row, Step, Unit
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
from dashboards.grafana.variables import CLUSTER

ROWS = 15
"""Rows of a table of ports: as many as a person reads."""
SIDE = f"{PORT}, direction"
"""One direction of a port, or of an interface, which has no port."""
NAME = "{{host}} {{device}} {{port}} {{direction}}"
HOST = "cluster, host"
COARSE_STEPS = fine_until(warn=0.1)
"""Knobs bursts_resolution (seconds) and bursts_missed_share: both a tenth."""
FROM_LEAST = 0.01
"""Less than this share of the line is no ring that a job waits for."""


def gauge(name: str, matchers: str = HERE) -> str:
    """A number of the sampler about one direction of a port."""
    return f"max by ({SIDE}) (fabric_burst_{name}{{{matchers}}})"


def counted(name: str, over: str = "$__rate_interval") -> str:
    """A counter of the sampler about one direction of a port, a second."""
    return f"sum by ({SIDE}) (rate(fabric_burst_{name}{{{HERE}}}[{over}]))"


def of_host(name: str, over: str) -> str:
    """A counter of a host's sampler."""
    return f"round(sum by ({HOST}) (increase(fabric_burst_sampler_{name}{{{HERE}}}[{over}])))"


def worst_host(expr: str) -> str:
    """The hosts with most of it; a line at 0 where none has any."""
    return worst(expr, "host", "none")


LINE = f"({gauge('line_bytes_per_second')} > 0)"
PEAK = f"{gauge('peak_bytes_per_second')} / {LINE}"
COARSE_PEAK = f"{gauge('coarse_peak_bytes_per_second')} / {LINE}"
MEAN = f"{gauge('mean_bytes_per_second')} / {LINE}"
BURSTS = counted("bursts_total")
MISSED_TICKS = f"max by ({HOST}) (rate(fabric_burst_sampler_ticks_missed_total{{{HERE}}}[5m]))"
MISSED = (
    f"{MISSED_TICKS} / ({MISSED_TICKS}"
    f" + max by ({HOST}) (avg_over_time(fabric_burst_sampler_ticks{{{HERE}}}[5m])) > 0)"
)
LATE = f'max by ({HOST}) (fabric_burst_sampler_lateness_seconds{{{HERE}, quantile="1"}})'
COST = f"sum by ({HOST}) (rate(fabric_burst_sampler_cpu_seconds_total{{{HERE}}}[5m]))"
HIDES = f"{gauge('peak_bytes_per_second')} / ({gauge('mean_bytes_per_second')} > 0)"
"""How many times its mean a port's peak is."""

# --- at a glance ----------------------------------------------------------------------------------

GLANCE = Row(
    title="Are there bursts, and are they sampled?",
    panels=(
        number(
            "Bursts a second",
            "Moments above half of a line's rate, over all ports and both directions. Every "
            "collective is one, so a busy cluster has some; what matters is where they do harm.",
            f"sum({BURSTS})",
            PLAIN,
            Unit.EVENTS_PER_SECOND,
            1,
        ),
        number(
            "Ports with harm",
            "Ports that receive more than one burst a second and of whose packets more than 0.1 % "
            "arrive marked or are dropped on arrival (bursts_rate, bursts_harmed_share: policies "
            "of ours). Usual: 0. The second number is recorded by the rules.",
            f"count(sum by ({PORT}) (rate(fabric_burst_bursts_total"
            f'{{{HERE}, direction="receive"}}[5m])) > 1'
            f" and on ({PORT}) port:fabric_burst_harmed_packets:share5m{{{HERE}}} > 0.001)"
            f" or 0 * count({gauge('windows')})",
        ),
        number(
            "Highest peak",
            "The highest rate of the last second of any port, over its finest window, by the "
            "line's rate. 95 % is full (capacity_peak, a policy of ours).",
            f"max({PEAK})",
            PEAK_STEPS,
            Unit.RATIO,
            0,
        ),
        number(
            "Samplers",
            "Hosts whose fast sampler runs. It is switched on host by host; a host without it has "
            "no bursts here, whatever its links do.",
            f"sum(max by ({HOST}) (fabric_burst_sampler_up{{{HERE}}}))",
            (Step(None, Colour.WARN), Step(1, Colour.FINE)),
        ),
        number(
            "Samplers down",
            "Hosts whose sampler should run and does not. The agent starts it again by itself; 5 "
            "minutes are an alert (bursts_sampler_for).",
            f"count(max by ({HOST}) (fabric_burst_sampler_up{{{HERE}}}) == 0)"
            f" or 0 * count(fabric_burst_sampler_up{{{HERE}}})",
            ANY_IS_ODD,
        ),
        number(
            "Coarsest counter",
            "How far apart two readings really are, of the port that is worst. A counter that "
            "changes more slowly than every 0.1 seconds shows no bursts (bursts_resolution: ten "
            "times what Linux refreshes hardware counters with).",
            f"max({gauge('resolution_seconds')})",
            COARSE_STEPS,
            Unit.SECONDS,
            None,
        ),
    ),
)

# --- who ------------------------------------------------------------------------------------------

WHO = Row(
    title="Who has bursts that averages hide?",
    panels=(
        table(
            "Ports with the highest peaks",
            "The last second of each port and direction, by the line's rate: the peak over "
            "the finest window that the counter allows, the peak over 10 milliseconds (comparable "
            "between ports), the mean, and how many times the mean the peak is. Then bursts a "
            "second, the share of time above half of the line, and how fine the counter is. "
            "A high peak at a low mean fills queues that no utilisation shows. 95 % is full "
            "(capacity_peak), one burst a second more than steps make (bursts_rate); both are "
            "policies of ours.",
            asked(
                f"topk({ROWS}, {PEAK} > 0)",
                *(
                    f"{expr} and on ({SIDE}) topk({ROWS}, {PEAK} > 0)"
                    for expr in (
                        COARSE_PEAK,
                        MEAN,
                        HIDES,
                        counted("bursts_total", "5m"),
                        gauge("busy_ratio"),
                        gauge("resolution_seconds"),
                    )
                ),
            ),
            (
                *named("host device"),
                Column(label="port", title="Port"),
                Column(label="direction", title="Direction"),
                value("Peak", Unit.RATIO, PEAK_STEPS),
                value("Over 10 ms", Unit.RATIO, PEAK_STEPS, of="B"),
                value("Mean", Unit.RATIO, of="C"),
                value("Times the mean", Unit.NONE, of="D"),
                value("Bursts", Unit.EVENTS_PER_SECOND, BURSTS_STEPS, of="E"),
                value("Busy", Unit.RATIO, of="F"),
                value("Resolution", Unit.SECONDS, COARSE_STEPS, of="G"),
            ),
            silence="Nothing was sent, or no fast sampler runs.",
            sort_by="Peak",
            width=24,
            height=10,
        ),
        lines(
            "Peaks",
            "The highest rate of each second, by the line's rate: the ports with the highest. "
            "Compare with the means beside: where both are high the link is full, where only the "
            "peak is, it bursts. 95 % is full (capacity_peak).",
            {NAME: worst_host(PEAK)},
            Unit.RATIO,
            PEAK_STEPS,
            silence="No fast sampler runs.",
        ),
        lines(
            "Means of the same seconds",
            "The mean rate of each second, by the line's rate: the ports with the highest. This is "
            "all that other tools show.",
            {NAME: worst_host(MEAN)},
            Unit.RATIO,
            PEAK_STEPS,
            silence="No fast sampler runs.",
        ),
        lines(
            "Bursts a second",
            "Moments above half of the line's rate: the ports with most. Above one a second is "
            "more than steps make (bursts_rate, a policy of ours).",
            {NAME: worst_host(BURSTS)},
            Unit.EVENTS_PER_SECOND,
            BURSTS_STEPS,
            silence="No fast sampler runs.",
        ),
        lines(
            "Busy",
            "Share of each second in which the rate was above half of the line's: the ports with "
            "most. Near 100 % it is load and no burst.",
            {NAME: worst_host(gauge("busy_ratio"))},
            Unit.RATIO,
            silence="No fast sampler runs.",
        ),
        lines(
            "Harm",
            "Packets that arrived marked or were dropped on arrival, by packets received: the "
            "worst ports. Bursts count as harmful from 0.1 % on (bursts_harmed_share, a policy of "
            "ours). Recorded by the rules.",
            {
                "{{host}} {{device}} {{port}}": worst_host(
                    f"clamp_max(port:fabric_burst_harmed_packets:share5m{{{HERE}}}, 1)"
                )
            },
            Unit.RATIO,
            HARM_STEPS,
            silence="No source counts marks and drops, there is no traffic, or no rules run.",
        ),
        over_time(
            Draw.HEAT,
            "Bursts of each port",
            "Bursts a second of the ports with most, a row for each direction: what lights up "
            "together belongs to one collective, one alone is other traffic.",
            {NAME: leading(BURSTS)},
            Unit.EVENTS_PER_SECOND,
            silence="No bursts.",
        ),
    ),
)

# --- how time is spent ----------------------------------------------------------------------------


def time_above(bound: str, direction: str) -> str:
    """Share of time above a utilisation, of all ports together; it is a cumulative histogram."""
    below, all_of_it = (
        "sum(rate(fabric_burst_utilisation_seconds_total"
        f'{{{HERE}, direction="{direction}", le="{le}"}}[$__rate_interval]))'
        for le in (bound, "+Inf")
    )
    return f"1 - {below} / ({all_of_it} > 0)"


VARIATION = gauge("variation_ratio", f'{HERE}, direction="transmit"')
SMOOTHEST = f"bottomk({ROWS}, {VARIATION} and on ({SIDE}) {MEAN} > {FROM_LEAST})"

TIME = Row(
    title="How is time spent?",
    panels=(
        *(
            lines(
                f"Time above a share of the line, {words}",
                "Share of time of all sampled ports in which the rate was above 10, 50, 75 and "
                "90 % of the line, seen every few milliseconds. Lines close together are traffic "
                "that is all or nothing: bursts. Only ports whose line rate is known.",
                {
                    f"above {percent}": time_above(bound, direction)
                    for bound, percent in (
                        ("0.1", "10 %"),
                        ("0.5", "50 %"),
                        ("0.75", "75 %"),
                        ("0.9", "90 %"),
                    )
                },
                Unit.RATIO,
                silence="No fast sampler runs.",
            )
            for direction, words in (("transmit", "sending"), ("receive", "receiving"))
        ),
        Panel(
            title="How bursty ports are",
            text="The coefficient of variation of each sending port's rate over windows of 10 "
            "milliseconds, as a distribution over ports. In a ring all NICs have the same mean, "
            "but the one that holds the others up sends smoothly: it is the one on the left. The "
            "others stop and go with it.",
            draw=Draw.SPREAD,
            queries=(
                Query(
                    expr=VARIATION,
                    legend=NAME,
                    is_instant=True,
                ),
            ),
            is_empty_fine=True,
            empty_text="No port sends, or no fast sampler runs.",
        ),
        table(
            "Smoothest senders",
            "Ports that send at least 1 % of their line and vary least, with their means. "
            "Among ports of one job with the same mean, a port that is much smoother than the "
            "rest is the one that the rest wait for.",
            asked(SMOOTHEST, f"{MEAN} and on ({SIDE}) {SMOOTHEST}"),
            (
                *named("host device"),
                Column(label="port", title="Port"),
                value("Variation", Unit.RATIO),
                value("Mean", Unit.RATIO, of="B"),
            ),
            silence="No port sends that much, or no fast sampler runs.",
        ),
    ),
)

# --- without a sampler, and the sampler itself ----------------------------------------------------

PEAKS = f"max by ({PORT}, queue) (fabric_port_queue_peak_bytes{{{HERE}}})"
BUFFER = (
    f"sum by ({NIC})"
    f" (rate(fabric_nic_receive_buffer_over_threshold_total{{{HERE}}}[$__rate_interval]))"
)
ELSEWHERE = Row(
    title="What do NICs and switches notice by themselves?",
    panels=(
        lines(
            "Receive buffers that fill",
            "How often a second a NIC's receive buffer passed 85 % of its size: the worst. It "
            "needs no sampler and sees bursts of microseconds. More than once a second is where "
            "the rule pack warns, on a link that is not busy (bursts_buffer_rate, a policy of "
            "ours; the 85 % are the NIC's).",
            {"{{host}} {{device}}": worst_host(BUFFER)},
            Unit.EVENTS_PER_SECOND,
            BURSTS_STEPS,
            silence="No NIC counts this (mlx5 does).",
        ),
        lines(
            "Highest marks of queues",
            "The most that stood in a queue of a switch since it last reset the mark, as the time "
            "that it takes to leave at the port's rate: the worst. On a port that is not busy this "
            "is a burst; alerts from 0.5 milliseconds on (bursts_queue_seconds, a policy of ours).",
            {
                "{{host}} {{port}} queue {{queue}}": worst_host(
                    f"{PEAKS} * 8 / on ({PORT}) group_left () {PORT_RATE}"
                )
            },
            Unit.SECONDS,
            QUEUE_STEPS,
            silence="No switch reports the highest marks of its queues.",
        ),
    ),
)
SAMPLER = Row(
    title="How finely, and how reliably, does the sampler look?",
    panels=(
        table(
            "Samplers",
            "Each host's sampler. Resolution: how far apart two readings of its coarsest "
            "counter really are; a burst that is shorter is seen smaller than it was, and 0.1 "
            "seconds is too coarse (bursts_resolution). Missed: share of ticks that passed while "
            "it did not run; from 10 % on its bursts are not to be trusted (bursts_missed_share), "
            "so give it a processor of its own. Late: the latest tick of the last second; rates "
            "stay right, because the time is measured. Both limits are policies of ours.",
            asked(
                MISSED,
                f"max by ({HOST}) (fabric_burst_resolution_seconds{{{HERE}}})",
                LATE,
                COST,
                of_host("restarts_total", "1h"),
            ),
            (
                *named("host"),
                value("Missed", Unit.RATIO, COARSE_STEPS),
                value("Resolution", Unit.SECONDS, COARSE_STEPS, of="B"),
                value("Late", Unit.SECONDS, of="C"),
                value("Processors", Unit.NONE, of="D"),
                value("Restarts in an hour", Unit.NONE, of="E"),
            ),
            silence="No fast sampler runs.",
            sort_by="Missed",
        ),
        lines(
            "Resolution",
            "How far apart two readings of a counter really are: of the coarsest port, and of the "
            "median one. A jump is a driver that refreshes its counters more rarely.",
            {
                "coarsest": f"max({gauge('resolution_seconds')})",
                "median": f"quantile(0.5, {gauge('resolution_seconds')})",
            },
            Unit.SECONDS,
            COARSE_STEPS,
            silence="No fast sampler runs.",
        ),
        lines(
            "Ticks missed",
            "The share of ticks that the worst sampler missed. From 10 % on its bursts are not to "
            "be trusted (bursts_missed_share, a policy of ours).",
            {"worst host": f"max({MISSED})", "median": f"quantile(0.5, {MISSED})"},
            Unit.RATIO,
            COARSE_STEPS,
            silence="No fast sampler runs.",
        ),
        lines(
            "Restarts and what was left out",
            "Within an hour, over all hosts: samplers that died and began anew, bursts beyond a "
            "hundred a second (counted, not reported), summaries that the agent did not fetch in "
            "time, and reads that took too long to be believed. Usual: 0; three restarts of one "
            "host are an alert (bursts_restarts).",
            {
                "restarts": f"sum({of_host('restarts_total', '1h')})",
                "bursts not reported": f"sum({of_host('events_dropped_total', '1h')})",
                "summaries lost": f"sum({of_host('reports_dropped_total', '1h')})",
                "reads dropped": f"sum({of_host('reads_interrupted_total', '1h')})",
            },
            silence="No fast sampler runs.",
        ),
    ),
)

BOARD = Board(
    title="Microbursts",
    question="Are there bursts that averages hide, who has them, and how finely are they sampled?",
    tags=("network",),
    variables=(CLUSTER,),
    rows=leading_to_ports((GLANCE, WHO, TIME, ELSEWHERE, SAMPLER)),
    since="now-30m",
)
