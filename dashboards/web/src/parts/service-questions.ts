/**
 * What is asked about the service and its agents, in PromQL. The service writes its own numbers every
 * 15 seconds (setting own_numbers); windows hold at least two of them. As the Grafana board "itself".
 */
import type { Oddity } from "../api/service";
import { count, digits, duration, si } from "../format";

/** Losses and refusals are counted over this (knob self_loss_window of the rule pack). */
export const LOSS_WINDOW = "15m";
/** Agents that reported within this and do not now are missing (knob self_agent_window). */
const AGENT_WINDOW = "1h";
/** The trend of free space is taken over this (knob self_disk_window). */
const DISK_WINDOW = "6h";
/** From a shorter trend no forecast is made: a new store fills with its first minutes (knob self_disk_seen). */
export const DISK_SEEN = "2 h";
/** Rows of one table of agents: more are a trouble of the network or the service, not of agents. */
export const AGENTS_SHOWN = 200;

/** What a counter has counted within the window, one that has just begun to exist included. */
function counted(metric: string): string {
  return `(${metric} - (${metric} offset ${LOSS_WINDOW} or 0 * ${metric}) > 0)`;
}

function slowest(metric: string, share: number, window: string, by = ""): string {
  const labels = by ? `le, ${by}` : "le";
  return `histogram_quantile(${share}, sum by (${labels}) (rate(${metric}_bucket[${window}])))`;
}

/** Of processes that are services of ours: others' exporters may send such numbers, too. */
function ofServices(expr: string): string {
  return `(${expr} and on (instance) fabric_service_info)`;
}

const DISK_FREE = "fabric_service_disk_free_bytes";
/** Of each disk, whether it was known so long ago; any number of an hour, as the rule pack asks. */
const DISK_KNOWN = `present_over_time(${DISK_FREE}[1h] offset ${DISK_SEEN.replace(" ", "")})`;

const AGENTS = `max by (cluster, host) (last_over_time(fabric_agent_start_time_seconds[${AGENT_WINDOW}]))`;
const MISSING = `(${AGENTS} unless on (cluster, host) fabric_agent_start_time_seconds)`;
const SOURCES_DOWN = "(max by (cluster, host, source) (fabric_agent_source_up) == 0)";

/** The numbers of the first page. */
export const OVERVIEW = {
  processes: "max by (instance, version, store) (fabric_service_info)",
  leads: "max by (instance) (fabric_service_evaluation_leads)",
  evaluations: 'sum(increase(fabric_service_evaluations_total{outcome="done"}[5m]))',
  evaluation:
    "sum(rate(fabric_service_evaluation_seconds_sum[5m])) / sum(rate(fabric_service_evaluation_seconds_count[5m]))",
  behind: "max(fabric_service_evaluation_behind_seconds)",
  outstanding: "max by (state) (fabric_service_evaluation_hosts) > 0",
  notJudged: "max by (job, missing) (fabric_job_not_judged_ratio)",
  evaluationSlowest: slowest("fabric_service_evaluation_seconds", 0.99, "5m"),
  samples: "sum(rate(fabric_service_samples_total[1m]))",
  refused: `sum by (protocol, rule) (${counted("fabric_service_refused_total")})`,
  pending: "sum(fabric_service_pending_rows)",
  insert: slowest("fabric_service_commit_seconds", 0.9, "5m"),
  requests: "sum(rate(fabric_service_requests_total[1m]))",
  failing:
    'sum(rate(fabric_service_requests_total{status=~"5.."}[5m])) / sum(rate(fabric_service_requests_total[5m]))',
  memory: `max by (instance) ${ofServices("process_resident_memory_bytes")}`,
  processors: `sum by (instance) ${ofServices("rate(process_cpu_seconds_total[1m])")}`,
  diskFree: `min(${DISK_FREE} / fabric_service_disk_total_bytes)`,
  diskKnown: `min(${DISK_KNOWN})`,
  diskLasts: `min(${DISK_FREE} / (-deriv(${DISK_FREE}[${DISK_WINDOW}]) > 0) and ${DISK_KNOWN})`,
  waiting: "sum(fabric_service_notices_waiting)",
  queued: "max by (alertmanager) (fabric_service_alertmanager_queue)",
  agents: `count(${AGENTS})`,
  missing: `count(${MISSING})`,
  sourcesDown: `count(${SOURCES_DOWN})`,
} as const;

/** Agents that something is wrong with; each answer is one row a host and reason. */
export const AGENTS_IN_TROUBLE = {
  missing: `topk(${AGENTS_SHOWN}, ${MISSING})`,
  source: `topk(${AGENTS_SHOWN}, max by (cluster, host, source) (fabric_agent_source_last_success_age_seconds) and on (cluster, host, source) ${SOURCES_DOWN})`,
  unsent: `topk(${AGENTS_SHOWN}, max by (cluster, host) (fabric_agent_service_up) == 0)`,
  behind: `topk(${AGENTS_SHOWN}, max by (cluster, host) (fabric_agent_spool_oldest_age_seconds) > 60)`,
  dropped: `topk(${AGENTS_SHOWN}, sum by (cluster, host, reason) (${counted("fabric_agent_dropped_samples_total")}))`,
  rejected: `topk(${AGENTS_SHOWN}, sum by (cluster, host, status) (${counted("fabric_agent_rejected_batches_total")}))`,
  refused: `topk(${AGENTS_SHOWN}, sum by (cluster, host, rule) (${counted("fabric_agent_refused_samples_total")}))`,
} as const;

export const AGENT_VERSIONS = {
  versions: "count by (version) (group by (cluster, host, version) (fabric_agent_build_info))",
  all: `count(${AGENTS})`,
} as const;

// --- curves ----------------------------------------------------------------------------------------

export interface Chart {
  readonly title: string;
  readonly hint: string;
  readonly format: (value: number) => string;
  /** By the word that stands in the legend, before the labels that distinguish its series. */
  readonly curves: Readonly<Record<string, string>>;
  /** Above this something is late; drawn as a line. */
  readonly bound?: number;
  /** What it means when there is no series to draw. */
  readonly silence?: string;
  /** What it means when there are series without a number: a time of nothing that happened. */
  readonly idle?: string;
}

/** Why a chart is empty; empty where it is not. */
export function silenceOf(
  chart: Chart,
  series: readonly { readonly values: readonly number[] }[],
): string {
  if (series.some(({ values }) => values.some(Number.isFinite))) return "";
  if (series.length) return chart.idle ?? "Nothing of the kind happened in this time";
  return chart.silence ?? "Nothing is known of that time";
}

const perSecond = (value: number) => si(value, "/s");

/** Each with rates over `window`, such as `60s`. */
export function charts(window: string): readonly Chart[] {
  const rate = (metric: string, by = "") => `sum by (${by}) (rate(${metric}[${window}]))`;
  return [
    {
      title: "Taken",
      hint: "Made durable and acknowledged, a second",
      format: perSecond,
      curves: {
        samples: rate("fabric_service_samples_total", "protocol"),
        events: rate("fabric_service_events_total", "protocol"),
        records: rate("fabric_service_records_total", "table"),
      },
      silence: "No agent has sent anything to this service.",
    },
    {
      title: "Refused",
      hint: "Lost for good, by the rule that refused it; usual is nothing",
      format: perSecond,
      curves: { "": rate("fabric_service_refused_total", "rule, protocol") },
      silence: "Nothing was refused.",
    },
    {
      title: "Time of an insert",
      hint: "Into the store; above a second the store is the bottleneck",
      format: duration,
      bound: 1,
      curves: {
        median: slowest("fabric_service_commit_seconds", 0.5, window),
        "9 in 10 below": slowest("fabric_service_commit_seconds", 0.9, window),
      },
    },
    {
      title: "Time of a look for faults",
      hint: "One is due every 5 s; longer ones make verdicts late",
      format: duration,
      bound: 5,
      curves: {
        median: slowest("fabric_service_evaluation_seconds", 0.5, window),
        "99 in 100 below": slowest("fabric_service_evaluation_seconds", 0.99, window),
      },
    },
    {
      title: "Looks for faults",
      hint: "By how they ended; usual are 0.2 a second done",
      format: perSecond,
      curves: {
        "": rate("fabric_service_evaluations_total", "outcome"),
        "left out": rate("fabric_service_evaluation_delays_total"),
      },
    },
    {
      title: "Time of rules",
      hint: "9 in 10 take less",
      format: duration,
      curves: {
        rule: slowest("fabric_service_rule_seconds", 0.9, window),
        group: slowest("fabric_service_rule_group_seconds", 0.9, window),
      },
      silence: "No numbers of rules in this time: a rate needs two readings of them.",
      idle: "No rule was evaluated in this time, so none took any: are rules loaded?",
    },
    {
      title: "Requests",
      hint: "Answered, by status",
      format: perSecond,
      curves: { "": rate("fabric_service_requests_total", "status") },
    },
    {
      title: "Rows that wait for the store",
      hint: "At 4 million the service asks senders to wait",
      format: (value) => si(value, ""),
      curves: { "": "sum by (instance) (fabric_service_pending_rows)" },
    },
    {
      title: "Memory",
      hint: "Resident, of each process",
      format: (value) => si(value, "B"),
      curves: { "": `max by (instance) ${ofServices("process_resident_memory_bytes")}` },
    },
    {
      title: "Processors",
      hint: "Busy, of each process",
      format: digits,
      curves: {
        "": `sum by (instance) ${ofServices(`rate(process_cpu_seconds_total[${window}])`)}`,
      },
    },
  ];
}

/** `samples remote_write` of a curve's word and its labels. */
export function legend(word: string, labels: Readonly<Record<string, string>>): string {
  const { what: _, ...others } = labels;
  return [word, ...Object.values(others)].filter(Boolean).join(" ") || "all";
}

// --- the disk in words ------------------------------------------------------------------------------

/** A forecast that is further away is none: who sends, and how much, changes before. */
const DISK_FORETOLD_SECONDS = 30 * 86_400;

/** When the disk is full if it goes on like this; or that nobody can tell yet. */
export function diskWords(isKnown: boolean, lastsSeconds: number | undefined): string {
  if (!isKnown) return `too young to tell when it is full: that takes ${DISK_SEEN}`;
  if (lastsSeconds === undefined || lastsSeconds > DISK_FORETOLD_SECONDS)
    return "is not full within a month";
  return `full in ${duration(Math.round(lastsSeconds))} if it goes on like this`;
}

// --- agents in words -------------------------------------------------------------------------------

export type AgentTrouble = keyof typeof AGENTS_IN_TROUBLE;

/** What is wrong with an agent, in a few words. */
export function agentWords(
  trouble: AgentTrouble,
  value: number,
  labels: Readonly<Record<string, string>>,
): string {
  switch (trouble) {
    case "missing":
      return "has stopped reporting";
    case "source":
      return `cannot read ${labels.source ?? "a source"}, for ${duration(value)}`;
    case "unsent":
      return "cannot deliver to the service";
    case "behind":
      return `is ${duration(value)} behind with sending`;
    case "dropped":
      return `lost ${count(Math.round(value), "sample")} (${labels.reason ?? "no reason given"})`;
    case "rejected":
      return `${count(Math.round(value), "batch", "batches")} rejected (HTTP ${labels.status ?? "?"})`;
    case "refused":
      return `${count(Math.round(value), "sample")} refused by rule ${labels.rule ?? "?"}`;
  }
}

/** One kind of odd things in a line: how many, since when quiet, and the last example. */
export function oddityWords(oddity: Oddity, now: number): string {
  const age = Math.max(0, now - Date.parse(oddity.last_at) / 1000);
  const example = oddity.examples.at(-1);
  const sender = oddity.sender ? ` of ${oddity.sender}` : "";
  return `${count(oddity.count, "time")}${sender}, ${duration(Math.round(age))} ago${example ? `: ${example}` : ""}`;
}
