/** What troubles have cost, added up: `/v1/costs`. */
import { ask } from "./client";

export type By = "culprit" | "cause" | "week";

export interface CostEntry {
  /** Of weeks the Monday (UTC) that it begins with. */
  readonly key: string;
  readonly cause: string;
  readonly reason: string;
  /** Empty: none was found. */
  readonly culprit: string;
  readonly incidents: number;
  /** Of those, the ones whose cost is not known: they add nothing. */
  readonly unmeasured: number;
  readonly lost_seconds: number;
  readonly gpu_hours: number;
  /** Of all GPU-hours of the account. */
  readonly share: number;
  /** The incident that cost most; empty: none was measured. */
  readonly dearest: string;
}

export interface Account {
  readonly by: By;
  /** RFC 3339. */
  readonly from: string;
  readonly to: string;
  /** The service's setting; null: not set. */
  readonly price_per_gpu_hour: number | null;
  readonly currency: string;
  readonly incidents: number;
  readonly unmeasured: number;
  readonly gpu_hours: number;
  /** The dearest first; weeks in order of time. */
  readonly entries: readonly CostEntry[];
  readonly entries_left_out: number;
  /** There were more incidents than are read for one answer. */
  readonly is_partial: boolean;
}

/** `from` and `to` are unix seconds. */
export const askCosts = (by: By, from: number, to: number, abort: AbortSignal) =>
  ask<Account>("/v1/costs", { by, from: from.toFixed(0), to: to.toFixed(0) }, abort);
