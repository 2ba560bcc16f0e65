/** The traffic matrix of a job (`/v1/jobs/{job}/matrix`) and the queries around it. Times are unix nanoseconds. */
import { ask, askAll } from "./client";
import type { Rank, TimelineAnswer } from "./jobs";

export const BYS = ["host", "nic", "rank", "gpu", "rail"] as const;
/** What rows and columns are. */
export type By = (typeof BYS)[number];

export interface Cell {
  readonly source: string;
  readonly target: string;
  readonly bytes: number;
  /** Over the whole time. */
  readonly bytes_per_second: number;
  /** While operations that carry them were transferring; null: no operation was timed. */
  readonly transfer_bytes_per_second: number | null;
  readonly how: "measured" | "modelled";
  readonly measured_bytes: number;
  /** What the NIC counted, headers too, where it sends only to this one. */
  readonly counted_bytes: number | null;
  /** Within one host. */
  readonly is_local: boolean;
}

export interface NicCheck {
  readonly nic: string;
  readonly modelled_bytes: number;
  readonly counted_bytes: number;
  readonly ratio: number;
}

export interface Check {
  readonly nics: number;
  readonly nics_shared: number;
  readonly modelled_bytes: number;
  readonly counted_bytes: number;
  readonly ratio: number;
  readonly median_ratio: number;
  readonly worst: readonly NicCheck[];
}

export interface Share {
  readonly name: string;
  readonly bytes: number;
  readonly share: number;
}

export interface Balance {
  readonly over: By;
  readonly is_counted: boolean;
  readonly things: number;
  readonly mean_bytes: number;
  readonly highest_by_mean: number;
  readonly variation: number;
  readonly gini: number;
  readonly shares: readonly Share[];
  readonly standing_out: readonly Share[];
  readonly standing_out_left_out: number;
}

export interface Phase {
  /** Of a period, 0 to 1. */
  readonly start: number;
  readonly end: number;
  readonly is_sending: boolean;
  /** That one rank sends, in the mean. */
  readonly bytes_per_second: number;
}

export interface OddPeriod {
  readonly kind: "long" | "short" | "missing";
  readonly start_ns: number;
  readonly end_ns: number;
  /** How many usual periods it took. */
  readonly periods: number;
}

export interface Rhythm {
  readonly from_ns: number | null;
  readonly period_ns: number | null;
  readonly byte_period_ns: number | null;
  readonly correlation: number;
  readonly periods: number;
  readonly duty: number | null;
  readonly phases: readonly Phase[];
  readonly odd: readonly OddPeriod[];
  readonly odd_left_out: number;
  readonly hosts: readonly {
    readonly host: string;
    readonly rank: number;
    readonly byte_period_ns: number | null;
    readonly correlation: number;
    readonly duty: number | null;
  }[];
}

export interface Matrix {
  readonly job: string;
  readonly from_ns: number;
  readonly to_ns: number;
  readonly by: By;
  readonly source: string;
  readonly operations_seen: number;
  readonly operations: number;
  readonly looked_at: number;
  readonly assumptions: readonly string[];
  readonly bytes: number;
  readonly local_bytes: number;
  readonly up_bytes: number;
  readonly unplaced_bytes: number;
  readonly nameless_bytes: number;
  /** Those with the most bytes, the largest first. */
  readonly cells: readonly Cell[];
  readonly cells_left_out: number;
  readonly bytes_left_out: number;
  readonly check: Check | null;
  readonly balance: readonly Balance[];
  readonly rhythm: Rhythm;
}

/** The most that the service gives; a drawing of fewer would hide ranks of a large job. */
const CELLS_MAX = 20_000;

export function askMatrix(
  job: string,
  by: By,
  from: number,
  to: number,
  abort?: AbortSignal,
): Promise<Matrix> {
  return ask(
    `/v1/jobs/${encodeURIComponent(job)}/matrix`,
    { by, from: from.toFixed(3), to: to.toFixed(3), limit: CELLS_MAX },
    abort,
  );
}

/** Where a rank runs. `device` is the NIC that it sends with; the first if there are several. */
export type RankPlace = Pick<Rank, "rank" | "host" | "gpu" | "device">;

/** Ranks whose place the drawing names; of a larger job the first. */
const RANKS_MAX = 16_384;

export async function askRanks(job: string, abort?: AbortSignal): Promise<RankPlace[]> {
  const found = await askAll<RankPlace>(
    `/v1/jobs/${encodeURIComponent(job)}/ranks`,
    {},
    RANKS_MAX,
    abort,
  );
  return found.items;
}

export interface Hop {
  readonly link: string;
  readonly source: string;
  readonly target: string;
  readonly rate_bits_per_second: number | null;
}

/** All equal-cost ways between two ports. */
export interface Ways {
  readonly source: string;
  readonly target: string;
  readonly hops: number | null;
  readonly count: number;
  readonly is_cut: boolean;
  readonly paths: readonly (readonly Hop[])[];
  readonly reason: string;
}

/** `at`: unix seconds; undefined: as cables are now. */
export function askWays(
  from: string,
  to: string,
  at: number | undefined,
  abort?: AbortSignal,
): Promise<{ readonly pairs: readonly Ways[]; readonly pairs_left_out: number }> {
  return ask("/v1/paths", { from, to, at: at?.toFixed(3), limit: 64 }, abort);
}

/** How long the job's steps took, over time. */
export interface StepLengths {
  /** Unix seconds: the middles of the buckets. */
  readonly times: readonly number[];
  /** Seconds of the median step; null: none ended then. */
  readonly seconds: readonly (number | null)[];
}

/** Few enough that a slow job's steps end in most of them. */
const STEP_BUCKETS = 60;

export async function askStepLengths(
  job: string,
  from: number,
  to: number,
  abort?: AbortSignal,
): Promise<StepLengths> {
  const found = await ask<TimelineAnswer>(
    `/v1/jobs/${encodeURIComponent(job)}/timeline`,
    { from: from.toFixed(3), to: to.toFixed(3), buckets: STEP_BUCKETS },
    abort,
  );
  return {
    times: found.buckets.map((one) => (one.start_ns + one.end_ns) / 2e9),
    seconds: found.buckets.map((one) => (one.step_ns === null ? null : one.step_ns / 1e9)),
  };
}
