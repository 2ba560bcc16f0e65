"""Why a job is slow: computing, waiting for a rank, or the network; and who is to blame.

Read from the top: how slow it is, which of the three parts grew, who is waited for if it is
waiting, which group is slow if it is the network, and the verdicts on it all. Series that
the service makes of a job's collectives have no cluster, so their selectors take those too.
"""

from __future__ import annotations

from functools import partial

from dashboards.grafana import jumps, limits
from dashboards.grafana.expressions import (
    HERE,
    HERE_OR_NOWHERE,
    INCIDENT,
    SOMEBODY_LOOKS,
    gauge,
    per_port,
    rate,
    utilisation,
)
from dashboards.grafana.limits import fine_until
from dashboards.grafana.model import Scale, Unit
from dashboards.grafana.shapes import board, heat, lines, named, number, table, thirds, titled
from dashboards.grafana.variables import CLUSTER, JOB

NETWORK_SHARE = 0.25
"""Knob collectives_network_share: a goal of ours; published shares are 20 % to more than 50 %."""
JOB_WAIT = 0.2
"""Knob stragglers_job_wait: a policy of ours, twice the 10 % from which a job is straggling."""
STEP_SLOWER = 0.1
"""Knob collectives_step_slower: FALCON and MegaScale look from about 10 % on."""
WAITED_FOR = 0.1
"""Knob stragglers_waited_for, after ByteDance's what-if study."""
LATE = 0.1
"""Knob stragglers_lateness: of a step; MegaScale, FALCON."""
REGRESSION = 0.05
"""Knob collectives_regression: SuperBench calls 5 % below the baseline defective."""
LONG = 0.001
"""Knob collectives_transfer_min_seconds, a policy of ours: shorter ones are bound by latency."""
TAIL_FACTOR = 5
"""Knob collectives_tail_factor: a policy of ours."""
RANKS_SHOWN = 64
"""Rows of the heat map, the latest ranks: as many as can be distinguished."""
LINES_SHOWN = 10

MINE = f'job="$job", {HERE_OR_NOWHERE}'
RANK = "rank, host"
GROUP = "communicator, operation, size"
BANDWIDTH = f"fabric_communicator_bus_bandwidth_bytes_per_second{{{MINE}}}"

HOSTS_MAX = 1000
"""Of a job's hosts that panels look at: of more the latest, so that all others of a large fabric
need not be read."""
HOSTS = (
    f"topk({HOSTS_MAX}, max by (host) (fabric_rank_lateness_seconds{{{MINE}}})"
    f" or max by (host) (fabric_job_info{{{MINE}}}))"
)
"""The job's hosts: by its collectives, or by what agents see of its processes."""


def of_job(metric: str) -> str:
    return f"max({metric}{{{MINE}}})"


of_ranks = partial(gauge, by=RANK, where=MINE)


def of_hosts(expr: str) -> str:
    return f"({expr}) and on (host) {HOSTS}"


def worst(count: int, expr: str, range_function: str, of: str) -> str:
    """The expression for those of which something was largest within the range shown.

    Chosen once, at the end of the range: a `topk` of every moment shows others at each.
    """
    chosen = f"max by ({RANK}) ({range_function}({of}{{{MINE}}}[$__range] @ end()))"
    return f"{expr} and on ({RANK}) topk({count}, {chosen})"


STEP_TIME = of_job("fabric_job_step_seconds")
NETWORK = of_job("fabric_job_network_share_ratio")
WAIT = of_job("fabric_job_wait_share_ratio")
waited = partial(rate, "fabric_rank_waited_for_seconds_total", by=RANK, where=MINE, how="max")
LOST = 'fabric_incident_lost_gpu_seconds_total{job="$job"}'

GLANCE = {
    "Step": number.of(Unit.SECONDS, decimals=2)(
        "Median duration of the last steps, by the rhythm of the job's collectives. What is usual "
        "depends on the job: see the number beside it.",
        STEP_TIME,
    ),
    "Slower than usual": number.of(
        fine_until(Unit.RATIO, look=REGRESSION, bad=STEP_SLOWER), decimals=1
    )(
        "The last five minutes' steps against the median of the six hours before. Up to 5 % either "
        f"way is usual; from {STEP_SLOWER:.0%} on it is a change (collectives_step_slower; FALCON "
        "and MegaScale look from about there on). Nothing for a job that has just begun, and close "
        "to 0 for one that was slow from its beginning.",
        f"max(avg_over_time(fabric_job_step_seconds{{{MINE}}}[5m])"
        f" / quantile_over_time(0.5, fabric_job_step_seconds{{{MINE}}}[6h])) - 1",
    ),
    "Network": number.of(fine_until(Unit.RATIO, warn=NETWORK_SHARE), decimals=1)(
        "Share of the time in which the median rank was inside a collective that all ranks had "
        f"entered: it waited for bytes. Above {NETWORK_SHARE:.0%} the network is worth a look "
        "(collectives_network_share, a goal of ours; published shares are 20 % to more than 50 %).",
        NETWORK,
    ),
    "Waiting": number.of(fine_until(Unit.RATIO, look=JOB_WAIT / 2, warn=JOB_WAIT), decimals=1)(
        "Share of the time in which the median rank was inside a collective and another had not "
        f"come yet: it waited for a rank, whatever the network does. Above {JOB_WAIT:.0%} there is "
        "an alert (stragglers_job_wait, a policy of ours).",
        WAIT,
    ),
    "Incidents": number(
        "Open incidents that this job suffers from. Usual: 0. Nothing at all means that no service "
        "of ours evaluates.",
        f'count(max by (incident) (fabric_incident{{job="$job"}})) or {SOMEBODY_LOOKS}',
    ),
    "GPU hours lost": number.of(Scale(Unit.HOURS, limits.GPU_HOURS.steps), decimals=1)(
        "What incidents cost this job within the range shown, over all of its GPUs: its steps, "
        "replayed without the culprit. Usual: 0.",
        f"sum(max_over_time({LOST}[$__range]) - ({LOST} offset $__range"
        f" or 0 * max_over_time({LOST}[$__range]))) / 3600 or {SOMEBODY_LOOKS}",
    ),
}

TIME = {
    "A step, split": lines.of(Unit.SECONDS, is_stacked=True)(
        "The median step in three parts: computing (everything outside of collectives), waiting "
        "for ranks that come late, and transfer. The part that grew shows where to look: computing "
        "at the GPUs, waiting below at the ranks, transfer at the collectives. Communication that "
        "runs beside computing counts as transfer, so this is an upper bound where both overlap.",
        {
            "compute": f"clamp_min({STEP_TIME} * (1 - {NETWORK} - {WAIT}), 0)",
            "wait": f"{STEP_TIME} * {WAIT}",
            "transfer": f"{STEP_TIME} * {NETWORK}",
        },
    ),
    "Network and waiting against the 25 % line": lines.of(
        fine_until(Unit.RATIO, warn=NETWORK_SHARE)
    )(
        f"The same shares of time, with the line at {NETWORK_SHARE:.0%} for the network "
        "(collectives_network_share: a goal of ours, no public source; published shares are 20 % "
        f"to more than 50 %). Waiting has its own limit at {JOB_WAIT:.0%} (stragglers_job_wait). A "
        "job whose waiting rises is not slow because of the network.",
        {"network": NETWORK, "waiting for ranks": WAIT},
    ),
    "Step time by rank": lines.of(Unit.SECONDS)(
        "As the training loop marks its steps: the median and the slowest rank. Ranks of one job "
        "end their steps together, so that the two differ only for a moment, or where ranks do not "
        "wait for each other. The third line is the rhythm of the collectives, which needs no "
        "marks.",
        {
            "median rank": f"quantile(0.5, fabric_step_last_duration_seconds{{{MINE}}})",
            "slowest rank": f"max(fabric_step_last_duration_seconds{{{MINE}}})",
            "by collectives": STEP_TIME,
        },
    ),
    "Parts of a step, as the training loop names them": lines.of(Unit.RATIO)(
        "Share of the time that ranks spend in each part that the loop marks (data, forward, "
        "backward …), in the mean of all. A data part that grows is a loader or a file system that "
        "is too slow. Parts may be nested and then add up to more than the step.",
        {"{{phase}}": rate("fabric_step_phase_seconds_total", by="phase", where=MINE, how="avg")},
        silence="The training loop marks no parts.",
    ),
}

MOST_WAITED_FOR = f"topk({LINES_SHOWN}, {waited('5m')})"
RANKS = {
    "Lateness of ranks": heat.of(Unit.SECONDS, width=16, height=12)(
        "How much later than the median rank each enters its collectives, as the median of ten "
        "seconds; early ones are shown as 0. One bright row is a straggler: its GPU, its host or "
        "its data. Several rows of one host are the host. A bright column is a moment that hit "
        f"all. The {RANKS_SHOWN} ranks that were latest within the range.",
        {
            "{{rank}} on {{host}}": worst(
                RANKS_SHOWN,
                f"clamp_min({of_ranks('fabric_rank_lateness_seconds')}, 0)",
                "max_over_time",
                "fabric_rank_lateness_seconds",
            )
        },
    ),
    "Ranks that others wait for": table.of(height=12)(
        "Share of the time that others waited for each rank, the latest comer of each collective. "
        f"From {WAITED_FOR:.0%} on it is a straggler (stragglers_waited_for, after ByteDance's "
        f"what-if study). Late: by which share of a step, from {LATE:.0%} on (stragglers_lateness; "
        "MegaScale, FALCON). Last in: of how many of its operations it was the last. The host's "
        "board shows why.",
        "rank host",
        {
            ("Waited for", fine_until(Unit.RATIO, bad=WAITED_FOR)): MOST_WAITED_FOR,
            ("Late", fine_until(Unit.RATIO, bad=LATE)): f"clamp_min(max by ({RANK}) "
            f"(avg_over_time(fabric_rank_lateness_seconds{{{MINE}}}[5m])), 0)"
            f" / scalar(max(avg_over_time(fabric_job_step_seconds{{{MINE}}}[5m])))"
            f" and on ({RANK}) {MOST_WAITED_FOR}",
            ("Last in", Unit.RATIO): f"max by ({RANK})"
            f" (rate(fabric_rank_last_in_total{{{MINE}}}[5m]))"
            f" / scalar(sum(rate(fabric_rank_last_in_total{{{MINE}}}[5m])))"
            f" and on ({RANK}) {MOST_WAITED_FOR}",
        },
    ),
    "Waiting for each rank": lines.of(
        fine_until(Unit.RATIO, warn=WAITED_FOR), width=24, jump=jumps.TO_HOST
    )(
        "The same over time, of the ranks that were waited for most within the range. A straggler "
        "begins at some moment: look at its host at that moment.",
        {
            "{{rank}} on {{host}}": worst(
                LINES_SHOWN, waited(), "rate", "fabric_rank_waited_for_seconds_total"
            )
        },
    ),
}

BY_SIZE = "operation, size"
REPORTED = f"fabric_collective_reported_bus_bandwidth_bytes_per_second{{{MINE}}}"
SLOWNESS = (
    f"quantile by ({BY_SIZE}) (0.5, {BANDWIDTH})"
    f" / on ({BY_SIZE}) group_right () max by ({GROUP}) ({BANDWIDTH})"
    f" and on ({GROUP}) fabric_communicator_transfer_seconds{{{MINE}}} > {LONG}"
)
SLOWEST = f"topk({LINES_SHOWN}, {SLOWNESS})"
COLLECTIVES = {
    "Bus bandwidth by operation and size": lines.of(Unit.BYTES_PER_SECOND)(
        "What crosses each rank's link while operations of this size transfer, the median of the "
        "job's groups. Waiting for late ranks does not lower it. Small sizes are bound by latency "
        "and always low. A line that falls is a slower network for that kind of group. Where only "
        "NCCL Inspector's own metrics are there, its means are shown.",
        {
            "{{operation}} {{size}}": f"quantile by ({BY_SIZE}) (0.5, {BANDWIDTH})"
            f" or quantile by ({BY_SIZE}) (0.5, {REPORTED})"
        },
    ),
    "Bandwidth against the past and against tests": table(
        "Now: the median of the job's groups. Worst: the slowest group. Past: the median of six "
        f"hours; {REGRESSION:.0%} below it is a regression (collectives_regression, after "
        "SuperBench). Test: what nccl-tests reached on this cluster, the best of any number of "
        "ranks; a job is usually somewhat below, 30 % below alerts (collectives_below_test, a "
        "policy of ours).",
        "operation size",
        {
            ("Now", Unit.BYTES_PER_SECOND): f"quantile by ({BY_SIZE}) (0.5, {BANDWIDTH})",
            ("Worst", Unit.BYTES_PER_SECOND): f"min by ({BY_SIZE}) ({BANDWIDTH})",
            ("Past", Unit.BYTES_PER_SECOND): f"quantile by ({BY_SIZE})"
            f" (0.5, quantile_over_time(0.5, {BANDWIDTH}[6h]))",
            ("Test", Unit.BYTES_PER_SECOND): f"max by ({BY_SIZE}) "
            f"(fabric_baseline_bus_bandwidth_bytes_per_second{{{HERE_OR_NOWHERE}}})"
            f" and on ({BY_SIZE}) {BANDWIDTH}",
        },
    ),
    "Slowest groups": table.of(jump=jumps.TO_RANKS)(
        "How much longer a group's operations take than the median of the job's groups with the "
        "same operation and size: 2 is twice as long. One slow link slows its whole group, so the "
        "group that stands out has it; which pairs it is made of is on the board of ranks. A job "
        "of one group has nothing to compare: always 1. Transfers below 1 ms are bound by latency "
        "and left out (collectives_transfer_min_seconds).",
        (*titled(communicator="Group"), *named("operation size")),
        {
            ("Times as long", fine_until(look=1 + REGRESSION, bad=1.5)): SLOWEST,
            ("Bus bandwidth", Unit.BYTES_PER_SECOND): f"max by ({GROUP})"
            f" ({BANDWIDTH}) and on ({GROUP}) {SLOWEST}",
            ("Transfer", Unit.SECONDS): f"max by ({GROUP})"
            f" (fabric_communicator_transfer_seconds{{{MINE}}}) and on ({GROUP}) {SLOWEST}",
        },
    ),
    "Longest transfer against the median": lines.of(fine_until(warn=TAIL_FACTOR))(
        "Of each ten seconds the longest transfer by the median one, the worst group of each "
        f"operation. Up to 2 is usual; above {TAIL_FACTOR} single operations hang behind: "
        "retransmissions, a link that flaps, a burst (collectives_tail_factor, a policy of ours).",
        {
            "{{operation}}": "max by (operation) "
            f"(fabric_communicator_transfer_max_seconds{{{MINE}}}"
            f" / (fabric_communicator_transfer_seconds{{{MINE}}} > 0))"
        },
    ),
}

CULPRIT = named("cause reason rank host gpu device switch switch_port")
BLAME = {
    "Incidents of this job": table.of(sort_by="GPU hours", width=24, height=7)(
        "The verdicts, with the culprit and what it has cost this job so far: time of its steps "
        "that would not have passed without it, and the same over all of its GPUs. Below "
        f"{limits.SURE:.0%} sure an incident does not page (incidents_confidence, a policy of "
        "ours). The names lead to their boards.",
        CULPRIT,
        {
            ("Sure", limits.SURE_SHARE): f'max by ({INCIDENT}) (fabric_incident{{job="$job"}})',
            ("Time lost", Unit.SECONDS): f'0 * max by ({INCIDENT}) (fabric_incident{{job="$job"}})'
            " + on (incident, job) group_left ()"
            ' sum by (incident, job) (fabric_incident_lost_seconds_total{job="$job"})',
            ("GPU hours", Unit.HOURS): f'0 * max by ({INCIDENT}) (fabric_incident{{job="$job"}})'
            f" + on (incident, job) group_left () sum by (incident, job) ({LOST}) / 3600",
        },
        silence="No incident of this job is open.",
    ),
    "What detectors see": table.of(width=24, height=7)(
        "Findings about this job before they are judged: each by the evidence of one detector "
        "alone, 0 to 1. Several may have one cause, and a symptom of another trouble is a finding "
        "too. Usual: none, or weak ones.",
        (*titled(detector="Detector"), *CULPRIT),
        {
            ("Clear", Unit.RATIO): "max by (detector, cause, reason,"
            ' rank, host, gpu, device, port, switch, switch_port) (fabric_finding{job="$job"})'
        },
        silence="No detector has found anything about this job.",
    ),
}

CLOCK = (
    f"min by (host) (fabric_gpu_sm_clock_hertz{{{HERE}}}"
    f" / (fabric_gpu_sm_clock_max_hertz{{{HERE}}} > 0))"
)
RESENT = " + on (host) ".join(
    f"sum by (host) ({per_port(f'fabric_port_{name}_total', '5m')})"
    for name in ("sequence_naks", "ack_timeouts")
)
TENSOR = f"fabric_gpu_tensor_active_ratio{{{HERE}}}"
BUSY = f"fabric_gpu_utilization_ratio{{{HERE}}}"
SPREAD = {"busiest": "max(", "median": "quantile(0.5, ", "least": "min("}
MACHINES = {
    "Hosts at a glance": table.of(sort_by="Warmest GPU", width=24)(
        "Each host of the job: how busy its GPUs are in the mean, the lowest clock of a GPU by its "
        "highest one, the warmest GPU, its busiest port by the line, retransmission events a "
        "second, and the share of time in which tasks waited for a processor. One host that "
        "differs from the others is the one to open. In a job that waits, the culprit is the host "
        "that does not: it is as busy as ever.",
        "host",
        {
            ("GPUs busy", Unit.RATIO): of_hosts(
                f"avg by (host) (fabric_gpu_utilization_ratio{{{HERE}}})"
            ),
            ("Lowest clock", Unit.RATIO): of_hosts(CLOCK),
            ("Warmest GPU", Unit.CELSIUS): of_hosts(
                f"max by (host) (fabric_gpu_temperature_celsius{{{HERE}}})"
            ),
            ("Busiest port", Unit.RATIO): of_hosts(
                f"max by (host) ({utilisation('transmit', '5m')})"
            ),
            ("Retransmissions", Unit.EVENTS_PER_SECOND): of_hosts(RESENT),
            ("CPU pressure", Unit.RATIO): of_hosts(
                rate("fabric_host_pressure_cpu_waiting_seconds_total", "5m", by="host", how="max")
            ),
        },
    ),
    "Ports of its hosts": lines.of(Unit.RATIO)(
        "What the job's hosts send by the line: the least busy port, the median and the busiest. "
        "In a healthy ring all three go together. A median far below 80 % beside a network share "
        "above the line means that something else than bandwidth holds it up.",
        {legend: f"{how}{of_hosts(utilisation('transmit'))})" for legend, how in SPREAD.items()},
    ),
    "GPUs of its hosts": lines.of(Unit.RATIO)(
        "Share of time in which the tensor cores, or where those are not measured any kernel, had "
        "work: the least busy GPU, the median and the busiest. A GPU that waits in a collective "
        "runs a kernel too, so utilisation alone stays high while a job is stuck.",
        {
            legend: f"{how}{of_hosts(TENSOR)}) or {how}{of_hosts(BUSY)})"
            for legend, how in SPREAD.items()
        },
    ),
}

BOARD = board(
    title="Job",
    question="Why is this job slow: computing, waiting for a rank, or the network? And who is it?",
    tags=("job",),
    variables=(CLUSTER, JOB),
    rows={
        "How slow is it, and what is it slow at?": GLANCE,
        "Where does the time go?": TIME,
        "If it waits: for which rank?": thirds(RANKS),
        "If it is the network: which collectives?": COLLECTIVES,
        "What is to blame?": BLAME,
        "Its hosts": MACHINES,
    },
)
