/** What people do about an incident, `/v1/incidents/{id}/work`: acknowledge, assign, note. */
import { ask, submit } from "./client";

export type Does = "acknowledge" | "unacknowledge" | "assign" | "note";

/** How far people are with an incident. */
export interface Work {
  /** Empty: it is not acknowledged. */
  readonly acknowledged_by: string;
  /** Unix nanoseconds. */
  readonly acknowledged_ns: number | null;
  readonly acknowledged_note: string;
  readonly assigned_to: string;
}

export interface Deed {
  readonly id: string;
  readonly at: string;
  readonly by: string;
  readonly does: Does;
  /** With `assign`: who has it now; empty: no person. */
  readonly to: string;
  readonly note: string;
}

export interface WorkDone {
  readonly incident: string;
  readonly work: Work;
  /** The latest last; it only grows. */
  readonly items: readonly Deed[];
}

export interface WorkAsked {
  readonly does: Does;
  readonly by: string;
  readonly to?: string;
  readonly note?: string;
}

const pathOf = (incident: string) => `/v1/incidents/${encodeURIComponent(incident)}`;

/** All of an incident as a file, for a ticket. */
export const markdownPath = (incident: string) => `${pathOf(incident)}.md`;

export async function askWork(incident: string, abort: AbortSignal): Promise<WorkDone> {
  return ask<WorkDone>(`${pathOf(incident)}/work`, {}, abort);
}

export async function doWork(incident: string, asked: WorkAsked): Promise<WorkDone> {
  const done = await submit<WorkDone>("POST", `${pathOf(incident)}/work`, asked);
  if (!done) throw new Error("The service answered without the record.");
  return done;
}
