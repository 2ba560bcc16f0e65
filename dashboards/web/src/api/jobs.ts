/** Jobs: `/v1/jobs` and what hangs below. Times in answers are unix nanoseconds, or RFC 3339 where so named. */
import { ask, askAll, type Page } from "./client";
import type { IncidentShort, Verdict } from "./incidents";

export interface Job {
  readonly id: string;
  readonly name: string | null;
  readonly user: string | null;
  readonly scheduler: string | null;
  readonly cluster: string | null;
  readonly state: "running" | "ended" | string;
  /** RFC 3339, as all times ending in `_at` and `_seen`. */
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly ranks: number | null;
  readonly first_seen: string;
  readonly last_seen: string;
}

export interface JobDetail extends Job {
  readonly hosts: readonly string[];
  readonly ranks_known: number;
  readonly communicator_count: number;
}

/** A rank as `/v1/jobs/{job}/ranks` lists it. */
export interface Rank {
  readonly rank: number;
  readonly host: string | null;
  readonly gpu: string | null;
  readonly device: string | null;
  /** All of its NICs, divided by commas. */
  readonly devices: string | null;
}

export interface Bucket {
  readonly start_ns: number;
  readonly end_ns: number;
  readonly operations: number;
  readonly skew_ns: number | null;
  readonly transfer_ns: number | null;
  readonly steps: number;
  readonly step_ns: number | null;
  readonly compute_ns: number | null;
  readonly wait_ns: number | null;
  readonly network_ns: number | null;
}

export interface TimelineAnswer {
  readonly source: string;
  readonly kept_one_in: number;
  readonly buckets: readonly Bucket[];
}

export interface VerdictNow {
  /** The most certain first. */
  readonly verdicts: readonly Verdict[];
  /** Of each verdict its incident. */
  readonly incidents: readonly string[];
  /** RFC 3339; null: not evaluated yet. */
  readonly evaluated_at: string | null;
  readonly is_fresh: boolean;
  readonly well_since: string | null;
}

/** More jobs than a person reads; the list notes when there are more. */
export const JOBS_MAX = 5_000;
/** Incidents of one time that are looked at, the newest: a page of the service. */
const INCIDENTS_MAX = 1_000;
/** About one bar for five pixels: finer ones cannot be distinguished. */
const BUCKETS = 240;
const NS = 1e9;

export const unixSeconds = (moment: string | null): number | undefined =>
  moment === null ? undefined : Date.parse(moment) / 1000;

export const askJobs = (state: string | undefined, abort: AbortSignal) =>
  askAll<Job>("/v1/jobs", { state }, JOBS_MAX, abort);

const path = (job: string, ...rest: string[]) =>
  ["/v1/jobs", encodeURIComponent(job), ...rest].join("/");

export const askJob = (job: string, abort: AbortSignal) => ask<JobDetail>(path(job), {}, abort);

/** Of a larger job the first ones: a drawing of who held whom up names some dozens. */
const RANKS_MAX = 4_000;

export const askRanks = async (job: string, abort: AbortSignal) =>
  (await askAll<Rank>(path(job, "ranks"), {}, RANKS_MAX, abort)).items;

export const askVerdict = (job: string, abort: AbortSignal) =>
  ask<VerdictNow>(path(job, "verdict"), {}, abort);

export const askTimeline = (job: string, from: number, to: number, abort: AbortSignal) =>
  ask<TimelineAnswer>(path(job, "timeline"), { from, to, buckets: BUCKETS }, abort);

/** Incidents that the job, or any, suffered from within this time, the newest first. */
export async function askIncidents(
  job: string | undefined,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<readonly IncidentShort[]> {
  const limit = INCIDENTS_MAX;
  const params = { job, since: from, limit };
  const page = await ask<Page<IncidentShort>>("/v1/incidents", params, abort);
  return page.items.filter(({ since_ns }) => since_ns < to * NS);
}

/** Those that are open now, of all jobs. */
export async function askOpenIncidents(abort: AbortSignal): Promise<readonly IncidentShort[]> {
  const params = { state: "open", limit: INCIDENTS_MAX };
  return (await ask<Page<IncidentShort>>("/v1/incidents", params, abort)).items;
}

/** Longer traces are refused (TRACE_SECONDS_MAX of the service), and no viewer would open them. */
export const TRACE_SECONDS_MAX = 3_600;
export const tracePath = (job: string) => path(job, "trace");
export const heatPath = (job: string) => path(job, "heat");
