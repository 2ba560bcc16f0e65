/** Drains that the policy shadows, proposes or does, `/v1/actions`, and a person's answer to a proposal. */
import { ask, submit } from "./client";

export interface ActionEvent {
  readonly at: string;
  readonly what: string;
  /** `policy`, an executor, or a person's name. */
  readonly by: string;
  readonly words: string;
}

export interface Action {
  readonly id: string;
  readonly host: string;
  readonly state: "shadowed" | "proposed" | "standing" | "refused" | "ended";
  readonly reason: string;
  readonly by: string;
  readonly rule: string;
  readonly at: string;
  /** When it ends by itself; of a proposal, when that expires. */
  readonly until: string | null;
  readonly history: readonly ActionEvent[];
}

/** Of one incident: the policy takes a host once for it, and a switch's trouble has few hosts that are due. */
const ACTIONS_MAX = 50;

/** The newest first. */
export async function askActionsOf(
  incident: string,
  abort: AbortSignal,
): Promise<readonly Action[]> {
  const asked = { incident, limit: ACTIONS_MAX };
  return (await ask<{ actions: readonly Action[] }>("/v1/actions", asked, abort)).actions;
}

export type Decision = "approve" | "reject";

export async function decide(
  action: string,
  decision: Decision,
  said: { readonly by: string; readonly words: string },
): Promise<void> {
  await submit("POST", `/v1/actions/${encodeURIComponent(action)}/${decision}`, said);
}
