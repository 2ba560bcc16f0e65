/** Incidents and verdicts of `/v1/incidents` and `/v1/live`. Times are unix nanoseconds. */
import type { Work } from "./work";

export interface Culprit {
  readonly job?: string;
  readonly rank?: number;
  readonly host?: string;
  readonly gpu?: number;
  readonly device?: string;
  readonly port?: string;
  readonly switch?: string;
  readonly switch_port?: string;
  readonly storage?: string;
}

export interface Evidence {
  readonly metric: string;
  readonly text: string;
  readonly value: number;
  readonly unit: string;
  readonly baseline?: number | null;
  readonly from_ns?: number;
  readonly to_ns?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly samples?: number;
}

export interface Cost {
  readonly job: string;
  readonly lost_seconds: number;
  readonly step_seconds: number | null;
  readonly step_seconds_without: number | null;
  readonly lost_share: number;
  readonly gpu_hours: number;
  /** It cost this or more: the steps beside it were slow by another trouble. */
  readonly is_at_least?: boolean;
}

/** Who an unsure verdict may accuse as well, and the one measurement that would decide. */
export interface Undecided {
  readonly kind: string;
  readonly text: string;
  readonly suspects?: readonly {
    readonly culprit: Culprit;
    readonly share: number;
    readonly name?: string;
    readonly proof?: string;
  }[];
  readonly otherwise?: string;
  readonly collect?: string;
}

export interface Verdict {
  readonly cause: string;
  readonly culprit: Culprit;
  readonly since_ns: number;
  readonly until_ns: number | null;
  readonly reason: string;
  readonly confidence: number;
  readonly layer: string;
  readonly summary: string;
  readonly action: string;
  readonly jobs: readonly string[];
  readonly accomplices: readonly Culprit[];
  readonly victims: readonly Culprit[];
  readonly evidence: readonly Evidence[];
  readonly ruled_out: readonly { readonly what: string; readonly why: string }[];
  readonly costs: readonly Cost[];
  readonly clock_error_ns: number | null;
  readonly undecided?: Undecided | null;
}

/** Another incident of the same trouble, which has another culprit. */
export interface Linked {
  readonly incident: string;
  readonly cause: string;
  readonly culprit: Culprit;
  readonly reason?: string;
}

/** An incident in short, as in lists and in live news. */
export interface IncidentShort {
  readonly id: string;
  readonly state: "open" | "closed";
  readonly cause: string;
  readonly reason: string;
  readonly layer: string;
  readonly culprit: Culprit;
  readonly confidence: number;
  readonly summary: string;
  readonly action: string;
  readonly jobs: readonly string[];
  readonly since_ns: number;
  readonly until_ns: number | null;
  readonly first_said_ns: number;
  readonly last_seen_ns: number;
  readonly closed_ns: number | null;
  readonly victims: number;
  readonly symptoms_seen: number;
  readonly reopened: number;
  readonly lost_seconds: number;
  readonly gpu_hours: number;
  readonly costs: readonly Cost[];
  /** How long it was confirmed in all: the same while it is open and when it is closed. */
  readonly lasted_seconds: number;
  readonly first_since_ns: number;
  /** Stretches in which it was confirmed, in order, the present one last; of many, the first and the latest. */
  readonly confirmed: readonly { readonly since_ns: number; readonly until_ns: number }[];
  readonly taken_for: Linked | null;
  readonly became: Linked | null;
  /** Null in live news. */
  readonly work: Work | null;
}

export interface Turn {
  readonly time_ns: number;
  readonly news: string;
  readonly cause: string;
  readonly culprit: Culprit;
  readonly confidence: number;
  readonly was_cause?: string;
  readonly was_culprit?: Culprit;
  readonly note?: string;
}

export interface Incident {
  readonly id: string;
  readonly state: "open" | "closed";
  readonly verdict: Verdict;
  readonly first_said_ns: number;
  readonly last_seen_ns: number;
  readonly confirmed_ns: number;
  readonly closed_ns: number | null;
  readonly jobs: readonly string[];
  readonly symptoms: readonly (readonly [string, Culprit] | { cause: string; culprit: Culprit })[];
  readonly symptoms_seen: number;
  readonly reopened: number;
  readonly lasted_seconds: number;
  readonly first_since_ns: number;
  readonly taken_for: Linked | null;
  readonly became: Linked | null;
  readonly work: Work;
  readonly history: readonly Turn[];
}

/** A culprit in a few words, the most specific first: `node3 mlx5_0 port 1`. */
export function named(culprit: Culprit): string {
  const words: string[] = [];
  if (culprit.switch)
    words.push(culprit.switch_port ? `${culprit.switch} ${culprit.switch_port}` : culprit.switch);
  if (culprit.storage) words.push(culprit.storage);
  if (culprit.host) words.push(culprit.host);
  if (culprit.device)
    words.push(culprit.port ? `${culprit.device} port ${culprit.port}` : culprit.device);
  if (culprit.gpu !== undefined) words.push(`GPU ${culprit.gpu}`);
  if (culprit.rank !== undefined) words.push(`rank ${culprit.rank}`);
  if (!words.length && culprit.job) words.push(culprit.job);
  return words.join(" · ") || "unknown";
}
