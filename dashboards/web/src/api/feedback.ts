/** What operators say about an incident's verdict, `/v1/incidents/{id}/feedback`. */
import { ask, submit } from "./client";
import type { Culprit } from "./incidents";

export type Says = "right" | "wrong" | "other";

/** What a verdict says, in short. */
export interface Told {
  readonly cause: string;
  readonly culprit?: Culprit;
  readonly confidence?: number;
}

export interface Said {
  readonly id: string;
  readonly at: string;
  readonly by: string;
  readonly says: Says;
  readonly cause: string | null;
  readonly culprit: Culprit;
  readonly note: string;
  readonly told: Told;
}

/** The window that is kept with it, or why there is none. */
export interface CaseNote {
  readonly state: "kept" | "too_large" | "past_retention" | "empty" | "not_read";
  readonly words: string;
  readonly bytes: number;
  readonly is_repeated: boolean;
}

export interface Feedback {
  readonly incident: string;
  /** The latest first, which stands. */
  readonly items: readonly Said[];
  readonly case: CaseNote | null;
}

export interface FeedbackAsked {
  readonly says: Says;
  readonly by: string;
  readonly cause?: string;
  readonly culprit?: Culprit;
  readonly note?: string;
  /** The verdict that the reader has seen: the service refuses if it is another one by now. */
  readonly about?: Told;
}

const pathOf = (incident: string) => `/v1/incidents/${encodeURIComponent(incident)}`;

/** The window without names, as a file. */
export const casePath = (incident: string) => `${pathOf(incident)}/case`;

export async function askFeedback(incident: string, abort?: AbortSignal): Promise<Feedback> {
  return ask<Feedback>(`${pathOf(incident)}/feedback`, {}, abort);
}

export async function say(incident: string, asked: FeedbackAsked): Promise<void> {
  await submit("PUT", `${pathOf(incident)}/feedback`, asked);
}
