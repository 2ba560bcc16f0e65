/** The whole cluster in a few numbers, and its running jobs; each is one question in PromQL. */
import { ask, type Page } from "./client";
import type { Job } from "./jobs";
import { anyOf, instant, overRange, type Series } from "./promql";
import { type Alert, askNumbers } from "./service";

const PORT = "cluster, host, device, port";
const PORT_STATE = `min by (${PORT}) (fabric_port_state)`;
/** Who was seen within this time and is not now is missing; as the rule pack has it. */
const SEEN_WITHIN = "1h";
const HOSTS_SEEN = `max by (cluster, host) (last_over_time(fabric_host_load1[${SEEN_WITHIN}]))`;
const LOST = "fabric_incident_lost_gpu_seconds_total";

/** Numbers of the fleet by name. Expressions are those of the Grafana board "fleet". */
const QUESTIONS = {
  jobs: "count(group by (job) (fabric_job_step_seconds))",
  hosts: `count(${HOSTS_SEEN})`,
  silent: `count(${HOSTS_SEEN} unless on (cluster, host) fabric_host_load1)`,
  gpus: "count(group by (cluster, host, gpu) (fabric_gpu_utilization_ratio))",
  busy: "avg(max by (cluster, host, gpu) (fabric_gpu_utilization_ratio))",
  ports: `count(${PORT_STATE} >= 4)`,
  // Carried traffic within the hour and do not now; not those that were switched off.
  ports_lost:
    `count(${PORT_STATE} < 4 unless on (${PORT}) fabric_port_enabled == 0` +
    ` and on (${PORT}) max_over_time(fabric_port_state[${SEEN_WITHIN}]) >= 4)`,
  network:
    "sum(max by (job) (fabric_job_network_share_ratio) * on (job) max by (job) (fabric_job_ranks))" +
    " / sum(max by (job) (fabric_job_ranks) and on (job) fabric_job_network_share_ratio)",
  bursts: `sum(increase(fabric_burst_bursts_total[${SEEN_WITHIN}]))`,
  // Not `increase`, which does not see what a series begins with.
  lost_gpu_seconds:
    `sum(max_over_time(${LOST}[1d])` + ` - (${LOST} offset 1d or 0 * max_over_time(${LOST}[1d])))`,
};

/** Undefined: not measured, which is not zero. */
export type Fleet = Readonly<Record<keyof typeof QUESTIONS, number | undefined>>;

export async function askNumbersOfFleet(time: number, abort: AbortSignal): Promise<Fleet> {
  const found = await askNumbers(QUESTIONS, time, abort);
  const numbers = Object.entries(found).map(([name, readings]) => [name, readings[0]?.value]);
  return Object.fromEntries(numbers) as Fleet;
}

/** Running jobs of the first view; the page notes when there are more. */
export const JOBS_SHOWN = 50;

export function askRunning(abort: AbortSignal): Promise<Page<Job>> {
  return ask("/v1/jobs", { state: "running", limit: JOBS_SHOWN }, abort);
}

/** Some job, running or not: only a job's verdict holds the time of the last evaluation. */
export async function askAnyJob(abort: AbortSignal): Promise<string | undefined> {
  const found = await ask<Page<Job>>("/v1/jobs", { limit: 1 }, abort);
  return found.items[0]?.id;
}

/** Whether anything ever reported: the inventory knows a host. */
export async function askIsAnybodyKnown(abort: AbortSignal): Promise<boolean> {
  const found = await ask<Page<unknown>>("/v1/hosts", { limit: 1 }, abort);
  return found.items.length > 0;
}

/** Of a job, as it is measured now. */
export interface Measured {
  readonly step?: number;
  readonly usual?: number;
  readonly network?: number;
  readonly wait?: number;
}

/** The recorded median of the six hours before the last half hour, where the rule pack runs. */
const JOB_QUESTIONS = {
  step: "max by (job) (fabric_job_step_seconds)",
  usual: "max by (job) (job:fabric_job_step:median6h)",
  network: "max by (job) (fabric_job_network_share_ratio)",
  wait: "max by (job) (fabric_job_wait_share_ratio)",
};

export async function askMeasured(
  time: number,
  abort: AbortSignal,
): Promise<ReadonlyMap<string, Measured>> {
  const found = new Map<string, Record<string, number>>();
  for (const [name, readings] of Object.entries(await askNumbers(JOB_QUESTIONS, time, abort)))
    for (const { labels, value } of readings) {
      const row = found.get(labels.job ?? "") ?? {};
      row[name] = value;
      found.set(labels.job ?? "", row);
    }
  return found;
}

/** Jobs that fell silent longer ago are not told apart. */
export const STOPPED_WITHIN_SECONDS = 3600;
/** Jobs that are asked about at once; a pattern has a bounded length. */
const STOPPED_MAX = 100;

/** When the last step was measured of jobs that none is measured of now, unix seconds; not within the hour: no entry. */
export async function askStopped(
  jobs: readonly string[],
  time: number,
  abort: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  if (!jobs.length) return new Map();
  const pattern = JSON.stringify(anyOf(jobs.slice(0, STOPPED_MAX)));
  const series = `fabric_job_step_seconds{job=~${pattern}}[${STOPPED_WITHIN_SECONDS}s]`;
  const found = await instant(`max by (job) (ts_of_last_over_time(${series}))`, time, abort);
  return new Map(found.map(({ labels, values }) => [labels.job ?? "", values[0] ?? Number.NaN]));
}

/** The jobs' step times over the last hour, thinned to what a small line can show. */
export function askStepTimes(time: number, abort: AbortSignal): Promise<Series[]> {
  return overRange(JOB_QUESTIONS.step, time - 3600, time, 60, abort);
}

/** Alerts that fire and mean something to a person: critical ones and warnings. */
export async function askFiring(abort: AbortSignal): Promise<readonly Alert[]> {
  const found = await ask<{ data: { alerts: readonly Alert[] } }>("/api/v1/alerts", {}, abort);
  return found.data.alerts.filter(
    ({ state, labels }) =>
      state === "firing" && (labels.severity === "critical" || labels.severity === "warning"),
  );
}
