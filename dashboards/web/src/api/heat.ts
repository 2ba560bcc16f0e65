/** The heat map of a job's ranks and steps, and why one of its cells is as it is. */
import { ask, floats } from "./client";
import { heatPath } from "./jobs";

export type Quantity = "late" | "compute" | "wait" | "network" | "step";

/** A row: who it is, as far as it is known. */
export interface HeatRank {
  readonly rank: number;
  readonly host: string | null;
  readonly gpu: string | null;
  readonly device: string | null;
}

/** A column, in unix seconds. */
export interface HeatStep {
  readonly from: number;
  readonly to: number;
}

export interface Heat {
  readonly quantity: Quantity;
  readonly ranks: readonly HeatRank[];
  readonly steps: readonly HeatStep[];
  /** Steps that one column stands for; the largest of them is shown. */
  readonly stepsInOne: number;
  /** Seconds, rank by rank, in each all steps; NaN: the rank was not seen. */
  readonly values: Float32Array;
}

interface RawHeat {
  readonly source: string;
  readonly quantity: Quantity;
  readonly ranks: readonly HeatRank[];
  readonly ranks_left_out: number;
  readonly steps: readonly {
    readonly start_ns: number;
    readonly end_ns: number;
  }[];
  readonly steps_in_one: number;
  readonly kept_one_in: number;
  readonly values: { readonly data: string };
}

/** A heat map, and what of the job it does not show. */
export interface AskedHeat extends Heat {
  readonly source: string;
  readonly ranksLeftOut: number;
  readonly keptOneIn: number;
}

const NS = 1e9;

export async function askHeat(
  job: string,
  quantity: Quantity,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<AskedHeat> {
  const raw = await ask<RawHeat>(heatPath(job), { from, to, quantity }, abort);
  return {
    source: raw.source,
    quantity: raw.quantity,
    ranks: raw.ranks,
    ranksLeftOut: raw.ranks_left_out,
    steps: raw.steps.map(({ start_ns, end_ns }) => ({ from: start_ns / NS, to: end_ns / NS })),
    stepsInOne: raw.steps_in_one,
    keptOneIn: raw.kept_one_in,
    values: floats(raw.values.data),
  };
}

export interface Spent {
  readonly compute_ns: number | null;
  readonly wait_ns: number | null;
  readonly network_ns: number | null;
}

export interface CellOperation {
  readonly communicator: string;
  readonly operation: string;
  readonly sequence: number;
  readonly size_bytes: number | null;
  readonly start_ns: number;
  readonly end_ns: number;
  readonly skew_ns: number;
  readonly transfer_ns: number;
  readonly usual_skew_ns: number;
  readonly usual_transfer_ns: number;
  readonly last_in: number | null;
  readonly last_in_host: string | null;
  readonly late_ns: number | null;
  readonly waited_ns: number | null;
}

export interface CellMark {
  /** Empty: the whole step. */
  readonly phase: string;
  readonly step: number;
  readonly start_ns: number;
  readonly end_ns: number;
}

export interface CellReading {
  readonly host: string;
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly usual: number | null;
}

/** One rank in one step: what it did, which rank it waited for, the readings of its host, GPU and NICs. */
export interface Cell {
  readonly job: string;
  readonly rank: number;
  readonly host: string | null;
  readonly gpu: string | null;
  readonly devices: readonly string[];
  readonly start_ns: number;
  readonly end_ns: number;
  readonly steps: number;
  readonly own: Spent;
  readonly median: Spent;
  readonly words: readonly string[];
  readonly operations: readonly CellOperation[];
  readonly operations_left_out: number;
  readonly marks: readonly CellMark[];
  readonly readings: readonly CellReading[];
}

/** The times are good to a microsecond: more does not fit into a number, and clocks agree no better. */
export const askCell = (job: string, rank: number, from: number, to: number, abort: AbortSignal) =>
  ask<Cell>(
    `${heatPath(job)}/cell`,
    { rank, start_ns: asNanoseconds(from), end_ns: asNanoseconds(to) },
    abort,
  );

const asNanoseconds = (seconds: number): string =>
  String(BigInt(Math.round(seconds * 1e6)) * 1000n);
