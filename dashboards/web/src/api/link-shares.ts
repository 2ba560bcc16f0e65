/** `/v1/links/shares`: the jobs and flows that share a link. */
import { ask } from "./client";

export interface LinkShares {
  readonly bytes: number;
  readonly from_ns: number;
  readonly to_ns: number;
  readonly jobs: readonly {
    readonly job: string;
    readonly bytes: number;
    readonly bytes_per_second: number;
    readonly share: number;
    readonly flows: readonly {
      readonly source: string;
      readonly target: string;
      readonly bytes: number;
      readonly crossing: number;
    }[];
    readonly flows_left_out: number;
    readonly user: string;
    readonly known_bytes: number;
    readonly unknown_because: string;
  }[];
  readonly users: readonly {
    readonly user: string;
    readonly jobs: readonly string[];
    readonly share: number;
  }[];
  readonly age_seconds: number | null;
  readonly jobs_looked_at: number;
  readonly jobs_left_out: number;
  readonly unknown: readonly string[];
}

/** Longer times are refused (LINK_SECONDS_MAX of the service). */
export const LINK_SECONDS_MAX = 3_600;

export function askLinkShares(
  link: string,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<LinkShares> {
  return ask("/v1/links/shares", { link, from, to }, abort);
}
