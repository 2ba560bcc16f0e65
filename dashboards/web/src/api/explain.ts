/** `/v1/explain`: the window that detectors looked at, as data. Only what the page draws is typed. */
import { ask } from "./client";

type Column = readonly (number | null)[];

export interface Kind {
  readonly communicator: string;
  readonly operation: string;
  readonly size_bytes: number | null;
  readonly ranks: number;
  readonly before: { readonly operations: number; readonly transfer_ns: number | null };
  readonly during: { readonly operations: number; readonly transfer_ns: number | null };
  readonly past_transfer_ns: number | null;
  readonly end_ns: readonly number[];
  readonly transfer_ns: readonly number[];
  /** Of each operation, the communicator's rank that entered last, or spent the least time inside. */
  readonly last_in: readonly number[];
  readonly least_inside: readonly number[];
}

export interface RankSeen {
  readonly communicator: string;
  /** Within the communicator. */
  readonly rank: number;
  readonly job_rank: number | null;
  readonly host: string;
}

export interface OwnTimes {
  readonly ranks: readonly number[];
  readonly end_ns: readonly number[];
  readonly outside_ns: readonly Column[];
  readonly peers_ns: readonly Column[];
}

export interface Ladder {
  readonly communicator: string;
  readonly size_bytes: number | null;
  readonly operations_before: number;
  readonly places: readonly {
    readonly rank: number;
    readonly job_rank: number | null;
    readonly host: string;
    readonly during_ns: number | null;
    readonly change_ns: number | null;
  }[];
}

export interface JobExplained {
  readonly job: string;
  readonly kinds: readonly Kind[];
  readonly ranks: readonly RankSeen[];
  readonly own_times: OwnTimes | null;
  readonly ladders: readonly Ladder[];
}

export interface Reading {
  readonly metric: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly query: string;
  readonly is_rate: boolean;
  readonly values: Column;
}

export interface Explanation {
  readonly from_ns: number;
  readonly to_ns: number;
  readonly jobs: readonly JobExplained[];
  readonly grid: { readonly start_ns: number; readonly step_ns: number; readonly cells: number };
  readonly things: readonly {
    readonly kind: string;
    readonly name: string;
    readonly readings: readonly Reading[];
  }[];
  readonly peers: readonly {
    readonly kind: string;
    readonly metric: string;
    readonly median: Column;
  }[];
  readonly left_out: readonly { readonly what: string; readonly count: number }[];
}

/** What an incident rests on, in this stretch (unix seconds); `since` divides before from during. */
export function explain(
  incident: string,
  from: number,
  to: number,
  since: number,
  abort: AbortSignal,
): Promise<Explanation> {
  return ask("/v1/explain", { incident, from, to, since }, abort);
}
