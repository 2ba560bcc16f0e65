/** Configurations that are rolled out to agents, `/v1/configurations`, and the orders about them. */
import { ask, type Page, submit } from "./client";

export type RolloutState = "rolling" | "waiting" | "stopped" | "done" | "back";

export interface Rollout {
  readonly version: number;
  /** What agents outside the share run, and what all go back to; 0: their own files alone. */
  readonly base: number;
  /** Percent of the agents that take part, in the order in which they are reached. */
  readonly shares: readonly number[];
  /** Which of the shares it has reached. */
  readonly stage: number;
  readonly state: RolloutState;
  readonly failures_max: number;
  readonly trial_seconds: number;
  /** Why it is in its state. */
  readonly reason: string;
  /** Who brought it there; empty: the service itself. */
  readonly by: string;
  /** RFC 3339. */
  readonly since: string;
}

export interface Version {
  readonly version: number;
  readonly sha256: string;
  readonly is_signed: boolean;
  readonly by: string;
  readonly why: string;
  readonly at: string;
  readonly rollout: Rollout;
}

export type AgentState = "good" | "trying" | "failed" | "pending" | "not_yet" | "outside";

export interface AgentConfiguration {
  readonly agent: string;
  /** Null: nothing was pushed yet. */
  readonly state: AgentState | null;
  /** 0: its own file alone. */
  readonly version: number;
  readonly trying: number | null;
  readonly failed: number | null;
  readonly detail: string;
  readonly reports: boolean;
  readonly at: string;
}

export interface Configuration {
  readonly version: Version;
  readonly document: string;
  /** Agents by state. */
  readonly hosts: Readonly<Partial<Record<AgentState, number>>>;
  /** Why it does not go on, while it rolls. */
  readonly waits_for: string;
  readonly failed: readonly AgentConfiguration[];
  /** Have it and do not report any more. */
  readonly silent: readonly string[];
}

export interface Rollouts {
  /** The newest first; the service keeps 50. */
  readonly versions: readonly Version[];
  /** The newest one with how far agents are; undefined where nothing was ever pushed. */
  readonly latest: Configuration | undefined;
}

const VERSIONS_MAX = 50;
const AGENTS_MAX = 1_000;

export async function askRollouts(abort: AbortSignal): Promise<Rollouts> {
  const { items } = await ask<Page<Version>>("/v1/configurations", { limit: VERSIONS_MAX }, abort);
  const newest = items[0]?.version;
  const latest =
    newest === undefined
      ? undefined
      : await ask<Configuration>(`/v1/configurations/${newest}`, {}, abort);
  return { versions: items, latest };
}

/** The first ones by name; `next` where there are more. */
export const askAgentConfigurations = (abort: AbortSignal) =>
  ask<Page<AgentConfiguration>>("/v1/agents/configurations", { limit: AGENTS_MAX }, abort);

// --- orders ----------------------------------------------------------------------------------------

interface Said {
  readonly by: string;
  readonly why: string;
}

export interface PushAsked extends Said {
  readonly document: string;
  readonly shares: readonly number[];
  readonly trial_seconds: number;
  readonly failures_max: number;
}

export interface ResumeAsked extends Said {
  readonly shares?: readonly number[];
  readonly failures_max: number;
}

export async function push(asked: PushAsked): Promise<void> {
  await submit("POST", "/v1/configurations", asked);
}

export async function stop(version: number, said: Said): Promise<void> {
  await submit("POST", `/v1/configurations/${version}/stop`, said);
}

export async function resume(version: number, asked: ResumeAsked): Promise<void> {
  await submit("POST", `/v1/configurations/${version}/resume`, asked);
}

export async function takeBack(version: number, said: Said): Promise<void> {
  await submit("POST", `/v1/configurations/${version}/back`, said);
}
