/** `/v1/jobs/{job}/steps/compare` and `/differ`: slow steps against normal ones. Durations are nanoseconds. */
import { ask } from "./client";
import type { Culprit } from "./incidents";

export interface Parts {
  readonly own_ns: number | null;
  readonly wait_ns: number | null;
  readonly transfer_ns: number | null;
}

export type Role = "late" | "passed_on" | "waited" | "transfer" | "idle" | "as_usual" | "unknown";

export interface RankCompared {
  readonly rank: number;
  readonly host: string;
  readonly gpu: number | null;
  readonly slow: Parts;
  readonly normal: Parts;
  readonly excess: Parts;
  readonly beyond_peers_ns: number | null;
  readonly waited_for_ns: number;
  readonly role: Role;
  readonly is_accused: boolean;
}

export interface SideSummary {
  readonly from_ns: number;
  readonly to_ns: number;
  readonly steps: number;
  readonly step_ns: number | null;
}

export interface RankRow {
  readonly rank: number;
  readonly spans: readonly {
    readonly part: string;
    readonly start_ns: number;
    readonly end_ns: number;
  }[];
  readonly is_cut?: boolean;
}

export interface Without {
  readonly what: string;
  readonly ranks: readonly number[];
  readonly title: string;
  readonly step_ns: number;
  readonly saved_ns: number;
  readonly rows: readonly RankRow[];
}

export interface Flow {
  readonly source: number;
  readonly target: number;
  readonly excess_ns: number;
}

export interface StepsCompared {
  readonly job: string;
  readonly sentence: string;
  readonly slow: SideSummary;
  readonly normal: SideSummary;
  readonly excess_ns: number | null;
  readonly unknown: readonly string[];
  readonly accused: readonly {
    readonly cause: string;
    readonly culprit: Culprit;
    readonly summary: string;
    readonly ranks: readonly number[];
  }[];
  readonly ranks: readonly RankCompared[];
  readonly ranks_left_out: number;
  readonly silent: readonly number[];
  readonly flows: readonly Flow[];
  readonly kinds: readonly {
    readonly communicator: string;
    readonly operation: string;
    readonly size_bytes: number | null;
    readonly slow_ns: number;
    readonly normal_ns: number;
    readonly operations: number;
    readonly excess_ns: number;
  }[];
  readonly order: {
    readonly communicator: string;
    readonly ring: readonly number[];
    readonly is_assumed: boolean;
    readonly parent?: Readonly<Record<string, number | null>>;
  } | null;
  readonly rows_slow: readonly RankRow[];
  readonly rows_normal: readonly RankRow[];
  readonly without: readonly Without[];
  readonly assumptions: readonly string[];
}

export interface StepsAsked {
  readonly slow?: string | undefined;
  readonly slow_to?: string | undefined;
  readonly normal?: string | undefined;
  readonly normal_to?: string | undefined;
  readonly normal_job?: string | undefined;
  readonly incident?: string | undefined;
}

export function compareSteps(
  job: string,
  asked: StepsAsked,
  abort: AbortSignal,
): Promise<StepsCompared> {
  return ask(`/v1/jobs/${encodeURIComponent(job)}/steps/compare`, { ...asked }, abort);
}

export interface StandsOut {
  readonly kind: string;
  readonly name: string;
  readonly what: string;
  readonly unit: string;
  readonly slow: number;
  readonly normal: number;
  readonly higher_share: number;
  readonly scatters: number;
  readonly slow_count: number;
  readonly normal_count: number;
  readonly rank?: number | null;
  readonly labels?: Readonly<Record<string, string>>;
}

export interface StepsDiffer {
  readonly job: string;
  readonly from_ns: number;
  readonly to_ns: number;
  readonly differences: {
    readonly found: readonly StandsOut[];
    readonly candidates: number;
    readonly slow_steps: number;
    readonly normal_steps: number;
    readonly left_out: number;
    readonly why_nothing: string;
  };
  readonly slow_at_ns: readonly number[];
  readonly unknown: readonly string[];
}

export function stepsDiffer(
  job: string,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<StepsDiffer> {
  return ask(`/v1/jobs/${encodeURIComponent(job)}/steps/differ`, { from, to }, abort);
}
