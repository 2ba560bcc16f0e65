/** What each stage of a job's pipeline does with a step: `/v1/jobs/{job}/stages`. */
import { ask } from "./client";
import { instant } from "./promql";

export interface StageTimes {
  /** In the order in which micro-batches reach them. */
  readonly stage: number;
  /** The first ones. */
  readonly ranks: readonly number[];
  readonly ranks_total: number;
  readonly own_ns: number;
  readonly wait_ns: number;
  readonly transfer_ns: number;
  /** Waiting, of the three together. */
  readonly bubble_share: number;
  readonly own_most_ns: number;
  readonly own_most_rank: number;
  /** Of a step, that a tenth less own work would save; null: not known. */
  readonly saved_share: number | null;
}

export interface Stages {
  /** 0: no pipeline was seen. */
  readonly pipelines: number;
  readonly steps: number;
  readonly step_ns: number | null;
  readonly basis: "kernels" | "outside" | null;
  readonly bubble_share: number | null;
  readonly stages: readonly StageTimes[];
  /** The stage that sets the pace; null: none by itself. */
  readonly pace: number | null;
  /** Why there are no figures, or which are missing. */
  readonly unknown: readonly string[];
}

/** `from` and `to` are unix seconds. */
export const askStages = (job: string, from: number, to: number, abort: AbortSignal) =>
  ask<Stages>(`/v1/jobs/${encodeURIComponent(job)}/stages`, { from, to }, abort);

/** Whether ranks of the job sent each other messages lately: without them it has no stages. */
export async function askHasMessages(
  job: string,
  at: number,
  abort: AbortSignal,
): Promise<boolean> {
  const mine = `job=${JSON.stringify(job)},operation=~"send|recv|send_recv"`;
  const found = await instant(`count(fabric_collective_operations_total{${mine}})`, at, abort);
  return found.length > 0;
}
