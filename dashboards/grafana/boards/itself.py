"""Whether Fabricscope itself is well: what watches the network must be watched.

Numbers of the service come from its own series (setting own_numbers) or from a scraper of its
/metrics; those of agents come with their readings. A service that is gone cannot report it: then
this board is empty, and only a Prometheus that scrapes it can call (alert FabricServiceGone).
"""

from __future__ import annotations

from dashboards.grafana import jumps, limits
from dashboards.grafana.expressions import HERE, gauge
from dashboards.grafana.limits import bad_until, colours, fine_until
from dashboards.grafana.model import Colour, Unit
from dashboards.grafana.shapes import (
    bars,
    board,
    lines,
    named,
    number,
    states,
    table,
    thirds,
    titled,
)
from dashboards.grafana.variables import CLUSTER, INSTANCE

SERVICE = 'instance=~"$instance"'
LOOK_BACK = "15m"
"""Knob self_loss_window: over which losses and refusals are counted."""
WORST = 15


def per_second(metric: str, by: str = "", matchers: str = SERVICE) -> str:
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[$__rate_interval]))"


def slowest(metric: str, share: float, by: str = "") -> str:
    """What this share of a histogram's observations stays below."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {per_second(f'{metric}_bucket', labels)})"


def since_then(metric: str, matchers: str = SERVICE) -> str:
    """What a counter has counted within LOOK_BACK, one that has just begun to exist included."""
    return (
        f"({metric}{{{matchers}}}"
        f" - ({metric}{{{matchers}}} offset {LOOK_BACK} or 0 * {metric}{{{matchers}}}) > 0)"
    )


AGENTS = f"max by (cluster, host) (last_over_time(fabric_agent_start_time_seconds{{{HERE}}}[1h]))"
AGENTS_MISSING = f"({AGENTS} unless on (cluster, host) fabric_agent_start_time_seconds{{{HERE}}})"
SPOOL = f"fabric_agent_spool_bytes{{{HERE}}} / (fabric_agent_spool_limit_bytes{{{HERE}}} > 0)"
MISSING = f"fabric_agent_source_missing{{{HERE}}}"
SOURCE = "cluster, host, source"
AWAKE = f"0 * max(fabric_service_info{{{SERVICE}}})"
"""0 while a service reports about itself, and nothing otherwise."""

GLANCE = {
    "Looks for faults": number.of(bad_until(warn=1, fine=50))(
        "Evaluations that were completed in the last 5 minutes. One is due every five seconds: "
        "usual are about 60, and with fewer than 50 verdicts are late. 0 means that no incident is "
        "opened or closed, and the rule pack pages after 3 minutes (self_service_for).",
        f'sum(increase(fabric_service_evaluations_total{{{SERVICE}, outcome="done"}}[5m]))',
    ),
    "Samples a second": number.of(colours({None: Colour.BAD, 1: Colour.PLAIN}))(
        "Samples made durable and acknowledged, by all processes and protocols. It is even in a "
        "cluster that does not change; a fall is agents that are gone.",
        per_second("fabric_service_samples_total"),
    ),
    "Refused": number(
        "Samples, events, records and requests that the service refused in the last 15 minutes: "
        "they are lost. Usual: 0 (self_refused, self_loss_window: policies of ours).",
        f"sum({since_then('fabric_service_refused_total')}) or {AWAKE}",
    ),
    "Rules failing": number(
        "Rules that could not be evaluated, times in the last 15 minutes: their alerts stay as "
        "they were. Usual: 0. /api/v1/rules shows which and why.",
        f"sum({since_then('fabric_service_rule_failures_total')}) or {AWAKE}",
    ),
    "Agents missing": number.of(limits.ANY_IS_ODD)(
        "Agents that reported within an hour and do not now (self_agent_window, a policy of ours). "
        "More than a tenth of them at once page (self_agents_share).",
        f"count({AGENTS_MISSING}) or 0 * count({AGENTS})",
    ),
    "Sources down": number.of(limits.ANY_IS_ODD)(
        "Sources of agents whose last read ended with a fault or not in time: what they read is "
        "not seen on that host. The rule pack warns after 10 minutes (self_source_for).",
        f"count(max by (cluster, host, source) (fabric_agent_source_up{{{HERE}}}) == 0)"
        f" or 0 * count(fabric_agent_source_up{{{HERE}}})",
    ),
}

INGEST = {
    "Taken": lines.of(Unit.EVENTS_PER_SECOND)(
        "Samples, events and records a second that were made durable and acknowledged.",
        {
            "samples by {{protocol}}": per_second("fabric_service_samples_total", "protocol"),
            "events by {{protocol}}": per_second("fabric_service_events_total", "protocol"),
            "{{table}}": per_second("fabric_service_records_total", "table"),
        },
    ),
    "Refused": lines.of(Unit.EVENTS_PER_SECOND)(
        "What the service refused, a second, by the rule that refused it: lost for good, find the "
        "sender. Usual: nothing (self_refused).",
        {"{{rule}} by {{protocol}}": per_second("fabric_service_refused_total", "rule, protocol")},
        silence="Nothing was ever refused.",
    ),
    "Waiting for the store": lines.of(fine_until(warn=2_000_000, bad=4_000_000))(
        "Rows that wait or are being inserted. Above 2 million the rule pack warns "
        "(self_pending_rows), at 4 million senders get 503 and keep what they have.",
        {"{{instance}}": f"sum by (instance) (fabric_service_pending_rows{{{SERVICE}}})"},
    ),
    "Time of an insert": lines.of(fine_until(Unit.SECONDS, warn=1))(
        "Half and nine in ten of the inserts into the store take less than this. Above a second "
        "the store is the bottleneck (self_commit_seconds, a policy of ours: one insert a second "
        "is what the store is built for).",
        {
            "median": slowest("fabric_service_commit_seconds", 0.5),
            "90th percentile": slowest("fabric_service_commit_seconds", 0.9),
        },
    ),
    "Inserts": lines.of(Unit.EVENTS_PER_SECOND, width=8)(
        "Groups of requests written to the store, a second, by how it ended. About one a second "
        "and process is what the store is built for; small ones at a high rate make it merge all "
        "day.",
        {"{{outcome}}": per_second("fabric_service_commits_total", "outcome")},
    ),
    "Rows of an insert": lines.of(width=8)(
        "Half of the inserts have fewer rows than this.",
        {"median": slowest("fabric_service_commit_rows", 0.5)},
    ),
    "Bytes of requests held": lines.of(Unit.BYTES, width=8)(
        "Bodies of requests that are in memory now. At the service's own bound senders get 503.",
        {"{{instance}}": f"sum by (instance) (fabric_service_inflight_bytes{{{SERVICE}}})"},
    ),
}

JUDGE = {
    "Time of an evaluation": lines.of(fine_until(Unit.SECONDS, warn=5))(
        "Half and 99 of a hundred evaluations take less than this. One is due every 5 seconds: "
        "above that the next one begins late, and verdicts with it.",
        {
            "median": slowest("fabric_service_evaluation_seconds", 0.5),
            "99th percentile": slowest("fabric_service_evaluation_seconds", 0.99),
        },
    ),
    "Time of detectors": lines.of(Unit.SECONDS)(
        "Nine in ten looks of each detector, and of the judge (verdict), take less than this. One "
        "that grows with the cluster is the one to look at when evaluations are late.",
        {"{{detector}}": slowest("fabric_service_detector_seconds", 0.9, "detector")},
    ),
    "Evaluations": lines.of(Unit.EVENTS_PER_SECOND)(
        "Evaluations a second by how they ended: done, the store or the inventory was away, the "
        "judge broke, another process took over; and those that were left out because the one "
        "before took too long. One in ten may be (self_delays).",
        {
            "{{outcome}}": per_second("fabric_service_evaluations_total", "outcome"),
            "left out": per_second("fabric_service_evaluation_delays_total"),
        },
    ),
    "Time of rules": lines.of(fine_until(Unit.SECONDS, look=5, warn=30))(
        "Nine in ten rules, and nine in ten groups of rules, take less than this. A group that "
        "takes longer than its interval (30 s, incidents 5 s) misses its next one.",
        {
            "rule": slowest("fabric_service_rule_seconds", 0.9),
            "group": slowest("fabric_service_rule_group_seconds", 0.9),
        },
    ),
    "Rules that fail or come late": lines.of(Unit.EVENTS_PER_SECOND)(
        "Rules that could not be evaluated, groups that were left out, detectors that broke and "
        "findings beyond the bounds, a second. Usual: 0.",
        {
            "rules failed": per_second("fabric_service_rule_failures_total"),
            "groups missed": per_second("fabric_service_rule_groups_missed_total"),
            "{{detector}} broke": per_second("fabric_service_detector_errors_total", "detector"),
            "findings left out": per_second("fabric_service_findings_left_out_total"),
        },
    ),
    "Who leads": states.of(
        colours({None: Colour.GREY, 1: Colour.FINE}), values={"0": "stands by", "1": "leads"}
    )(
        "The process that evaluates; of all that share an inventory one does. Two at once, or none "
        "for minutes, is a fault (alert FabricEvaluationStopped).",
        {"{{instance}}": f"max by (instance) (fabric_service_evaluation_leads{{{SERVICE}}})"},
    ),
}

TELLING = {
    "Notices": lines.of(Unit.EVENTS_PER_SECOND)(
        "What the built-in notifier did, in notices a second by outcome. Refused and dropped ones "
        "reached no receiver: usual are none.",
        {"{{outcome}}": per_second("fabric_service_notices_total", "outcome")},
        silence="The built-in notifier has sent nothing.",
    ),
    "Oldest notice that waits": lines.of(fine_until(Unit.SECONDS, bad=300))(
        "How long each receiver has not taken a notice. Above 5 minutes on-call people are not "
        "paged (self_notice_seconds, a policy of ours).",
        {"{{receiver}}": f"max by (receiver) (fabric_service_notices_oldest_seconds{{{SERVICE}}})"},
        silence="No receiver is set up in the service.",
    ),
    "Alertmanagers": lines(
        "Alerts that wait for each Alertmanager; at 10,000 the oldest are dropped. A queue that "
        "grows is an Alertmanager that is away (alert FabricAlertmanagerAway).",
        {
            "{{alertmanager}}": gauge(
                "fabric_service_alertmanager_queue", by="alertmanager", where=SERVICE
            )
        },
        silence="No Alertmanager is set up in the service.",
    ),
    "Requests by status": lines.of(Unit.EVENTS_PER_SECOND)(
        "HTTP requests answered a second. A rise of 5xx means that senders wait and try again; "
        "from one in a hundred on the rule pack warns (self_failing_share).",
        {"{{status}}": per_second("fabric_service_requests_total", "status")},
    ),
    "Time of requests": lines.of(Unit.SECONDS)(
        "Nine in ten requests of each path take less than this; for ingest that includes making it "
        "durable. Queries of large ranges take seconds; ingest should stay below one.",
        {"{{path}}": slowest("fabric_service_request_seconds", 0.9, "path")},
    ),
    "Live clients": lines(
        "Clients that follow incidents as they change (server-sent events), and news a second that "
        "one did not take in time; it got an error and asks again.",
        {
            "clients": f"sum(fabric_service_live_clients{{{SERVICE}}})",
            "news dropped": per_second("fabric_service_live_dropped_total"),
        },
    ),
}

AGENT_ROW = {
    "Agents missing": table.of(width=8)(
        "Agents that reported within an hour and have not for five minutes: the host is down or "
        "drained, the agent has ended, or it cannot reach the service. When it started is all that "
        "is left of it (self_agent_window).",
        "host cluster",
        {("Had started", Unit.MOMENT): f"{AGENTS_MISSING} * 1000"},
        silence="Every agent reports.",
    ),
    "Sources down": table.of(width=8)(
        "Sources whose last read ended with a fault or not in time, and since when it has not "
        "succeeded. What they read is not seen on that host (self_source_for, 10 minutes).",
        "host source",
        {
            ("Without success for", fine_until(Unit.SECONDS, warn=600)): f"max by ({SOURCE})"
            f" (fabric_agent_source_last_success_age_seconds{{{HERE}}}) and on ({SOURCE})"
            f" max by ({SOURCE}) (fabric_agent_source_up{{{HERE}}}) == 0"
        },
        silence="Every source of every agent can be read.",
    ),
    "Clocks that are wrong": table.of(width=8)(
        "Hosts whose samples the service refused in the last 15 minutes as too old or from the "
        "future. Times of hosts are compared to find who is late: a wrong clock makes that host "
        "blind. Usual: none (alert FabricAgentClock).",
        (*named("host"), *titled(rule="Refused as")),
        {
            "Samples": "sum by (cluster, host, rule) ("
            + since_then(
                "fabric_agent_refused_samples_total", f'{HERE}, rule=~"too_old|too_far_in_future"'
            )
            + ")"
        },
        silence="No clock is wrong by more than the service accepts.",
    ),
    "Readings that are missing": lines(
        "Readings that should be there and are not, by reason: absent and not_supported are the "
        "device's or driver's choice; unreadable, timeout, failed and unparseable are faults; "
        "saturated counters count no more until an operator resets them.",
        {"{{reason}}": f"sum by (reason) ({MISSING})"},
    ),
    "Sources by what they miss": table(
        f"The {WORST} sources that miss most readings now, over all hosts, by reason. A source "
        "that misses as much on every host has a driver without those counters; on one host alone "
        "it is that host.",
        "source reason",
        {
            "Readings": f"topk({WORST}, sum by (source, reason) ({MISSING}) > 0)",
            "Hosts": f"count by (source, reason) ({MISSING} > 0)",
        },
        silence="No reading is missing.",
    ),
    "Fullest spools": bars.of(fine_until(Unit.RATIO, warn=0.8), most=1.0, jump=jumps.TO_HOST)(
        "How full the spool of each agent is: batches on disk that wait for the service. Usual: "
        "near 0. From 80 % on the rule pack warns (self_spool_share); at 100 % the oldest batches "
        "are dropped.",
        {"{{host}}": f"topk({WORST}, max by (cluster, host) ({SPOOL}))"},
    ),
    "How far agents are behind": lines.of(fine_until(Unit.SECONDS, warn=300))(
        "Age of the oldest batch that waits, the worst of all agents and the middle one. Verdicts "
        "need readings of the last minutes: above 5 minutes they come too late "
        "(self_spool_age_seconds).",
        {
            "worst": f"max(fabric_agent_spool_oldest_age_seconds{{{HERE}}})",
            "median": f"quantile(0.5, fabric_agent_spool_oldest_age_seconds{{{HERE}}})",
        },
    ),
}

AGENT_DETAIL = {
    "Sending": lines.of(Unit.EVENTS_PER_SECOND, width=8)(
        "Samples a second that agents shipped, and attempts a second that failed, by what came "
        "back. A few failures are a restart of the service.",
        {
            "shipped": per_second("fabric_agent_shipped_samples_total", matchers=HERE),
            "failed: {{error}}": per_second("fabric_agent_send_failures_total", "error", HERE),
        },
    ),
    "Lost": lines.of(Unit.EVENTS_PER_SECOND, width=8)(
        "Samples a second that agents lost (spool full, disk failed), that the service refused, or "
        "that are in batches that it can never accept. Nothing is to be lost.",
        {
            "lost: {{reason}}": per_second("fabric_agent_dropped_samples_total", "reason", HERE),
            "refused: {{rule}}": per_second("fabric_agent_refused_samples_total", "rule", HERE),
            "rejected: {{status}}": per_second(
                "fabric_agent_rejected_samples_total", "status", HERE
            ),
        },
        silence="No agent has ever lost anything.",
    ),
    "Burst sampler": lines.of(Unit.EVENTS_PER_SECOND, width=8)(
        "Ticks a second that samplers of bursts missed, over all hosts. A sampler that misses more "
        "than a tenth of its ticks is not to be trusted (bursts_missed_share): give it a processor "
        "of its own.",
        {
            "ticks missed": "sum(rate(fabric_burst_sampler_ticks_missed_total"
            f"{{{HERE}}}[$__rate_interval]))"
        },
    ),
    "Time of sources": lines.of(Unit.SECONDS)(
        "How long the last read of each source took, the slowest of all hosts. One that takes "
        "longer than its interval misses ticks.",
        {"{{source}}": f"max by (source) (fabric_agent_source_duration_seconds{{{HERE}}})"},
    ),
    "Reads that did not end well": lines.of(Unit.EVENTS_PER_SECOND)(
        "Reads a second that timed out or failed, and ticks that were missed because the one "
        "before had not ended, by source.",
        {
            "{{source}} {{result}}": per_second(
                "fabric_agent_source_reads_total", "source, result", f'{HERE}, result!="ok"'
            ),
            "{{source}} missed": per_second(
                "fabric_agent_source_ticks_missed_total", "source", HERE
            )
            + " > 0",
        },
        silence="Every read ended well.",
    ),
}

BOARD = board(
    title="Fabricscope itself",
    question="Is Fabricscope well: does everything come in, is it judged, and do receivers get it?",
    tags=("operation",),
    variables=(CLUSTER, INSTANCE),
    rows={
        "Is Fabricscope well?": GLANCE,
        "What comes in": INGEST,
        "What is made of it": JUDGE,
        "Notifications": thirds(TELLING),
        "Agents": AGENT_ROW,
        "Agents: sending and reading": AGENT_DETAIL,
    },
    has_incidents=False,
    folded=("Agents: sending and reading",),
)
