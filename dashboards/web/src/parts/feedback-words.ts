/** What an operator says about a verdict: the form's answers as a request, and statements in words. */
import type { CaseNote, FeedbackAsked, Said, Says } from "../api/feedback";
import { type Culprit, named } from "../api/incidents";
import { causeOf } from "./verdict-words";

/** What the form has, as it was typed. */
export interface Answers {
  readonly says: Says;
  readonly cause: string;
  readonly host: string;
  readonly device: string;
  readonly gpu: string;
  readonly rank: string;
  readonly switch: string;
  readonly note: string;
  readonly by: string;
}

export const NO_ANSWERS: Answers = {
  says: "right",
  cause: "",
  host: "",
  device: "",
  gpu: "",
  rank: "",
  switch: "",
  note: "",
  by: "",
};

const WHOLE = /^\d{1,7}$/;

/** The request that the answers make; or why they make none. */
export function requestOf(answers: Answers): FeedbackAsked | string {
  const by = answers.by.trim();
  const note = answers.note.trim();
  if (!by) return "Enter your name.";
  const common = { says: answers.says, by, ...(note && { note }) };
  if (answers.says !== "other") return common;
  if (!answers.cause) return "Choose the cause.";
  const culprit = culpritOf(answers);
  if (typeof culprit === "string") return culprit;
  return {
    ...common,
    cause: answers.cause,
    ...(Object.keys(culprit).length > 0 && { culprit }),
  };
}

function culpritOf(answers: Answers): Culprit | string {
  const [host, device, other] = [answers.host, answers.device, answers.switch].map((one) =>
    one.trim(),
  );
  for (const [what, text] of [
    ["GPU", answers.gpu],
    ["rank", answers.rank],
  ] as const)
    if (text.trim() && !WHOLE.test(text.trim())) return `The ${what} is a number.`;
  const gpu = answers.gpu.trim();
  const rank = answers.rank.trim();
  if ((device || gpu) && !host) return "Enter the host of the device.";
  return {
    ...(host && { host }),
    ...(device && { device }),
    ...(gpu && { gpu: Number(gpu) }),
    ...(rank && { rank: Number(rank) }),
    ...(other && { switch: other }),
  };
}

/** A statement in a few words: `right`, `wrong`, `it was Lossy link: node3 · mlx5_0`. */
export function saidWords(said: Said): string {
  if (said.says !== "other") return said.says;
  const cause = causeOf(said.cause ?? said.told.cause).title;
  return Object.keys(said.culprit).length
    ? `it was ${cause}: ${named(said.culprit)}`
    : `it was ${cause}`;
}

/** What a statement is about, where the incident's verdict is another one by now; else empty. */
export function aboutWords(said: Said, cause: string, culprit: Culprit): string {
  const told = said.told.culprit ?? {};
  if (said.told.cause === cause && named(told) === named(culprit)) return "";
  return `about ${causeOf(said.told.cause).title}: ${named(told)}`;
}

/** Whether the verdict's window is kept, for the reader. */
export function caseWords(note: CaseNote | null): string {
  if (!note) return "The window of this verdict is not kept any more.";
  if (note.state !== "kept") return `The window of this verdict is not kept: ${note.words}.`;
  return note.is_repeated
    ? "The window of this verdict is kept: later versions are held against it."
    : "A window is kept; judged again, it does not give this verdict.";
}
