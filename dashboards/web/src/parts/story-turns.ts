/** The history of an incident: its turns in words, and as stretches of time. Pure. */
import { type Culprit, type Incident, named, type Turn } from "../api/incidents";
import { duration, percent } from "../format";
import { causeOf } from "./verdict-words";

export const NS = 1e9;

export interface Entry {
  /** Unix seconds. */
  readonly time: number;
  readonly title: string;
  readonly text: string;
  readonly tone: "bad" | "warn" | "good" | "";
}

/** The incident's history in order of time: its beginning, its verdicts, its end. */
export function historyOf(incident: Incident): Entry[] {
  const { verdict, history } = incident;
  const since = incident.first_since_ns / NS;
  const entries: Entry[] = [
    {
      time: since,
      title: "The trouble began",
      text: "By the first operations and readings that were not as before.",
      tone: "bad",
    },
    ...history.map((turn) => entryOf(turn, since)),
  ];
  if (incident.state === "closed" && verdict.until_ns !== null)
    entries.push({
      time: verdict.until_ns / NS,
      title: "Last sign of it",
      text: `It lasted ${duration(incident.lasted_seconds)}.`,
      tone: "good",
    });
  // Entries of the same moment keep their order.
  return entries
    .map((one, place) => ({ one, place }))
    .sort((a, b) => a.one.time - b.one.time || a.place - b.place)
    .map(({ one }) => one);
}

function entryOf(turn: Turn, since: number): Entry {
  const time = turn.time_ns / NS;
  const text = `${causeOf(turn.cause).title}: ${named(turn.culprit)}, ${percent(turn.confidence)} sure.`;
  if (turn.news === "opened") {
    const after = time - since;
    return {
      time,
      title: after >= 1 ? `First verdict, ${duration(after)} after it began` : "First verdict",
      text: turn.note ? `${text} ${turn.note}` : text,
      tone: "bad",
    };
  }
  const note = turn.note ?? text;
  if (turn.news === "asked") return { time, title: "Asked for more", text: note, tone: "" };
  if (turn.news === "answered") return { time, title: "What came of it", text: note, tone: "" };
  if (turn.news === "changed")
    return { time, title: "Explanation changed", text: `${changeOf(turn)} ${text}`, tone: "warn" };
  if (turn.news === "closed" && turn.note)
    return { time, title: "It was something else", text: turn.note, tone: "warn" };
  if (turn.news === "closed")
    return { time, title: "Closed", text: "No sign of it any more.", tone: "good" };
  if (turn.news === "reopened") return { time, title: "It came back", text, tone: "bad" };
  return { time, title: "More evidence", text, tone: "" };
}

function changeOf(turn: Turn): string {
  const was = turn.was_cause ?? turn.cause;
  const who = turn.was_culprit;
  const isSameThing = who !== undefined && same(who, turn.culprit);
  if (isSameThing) return `It was called ${causeOf(was).title.toLowerCase()} before.`;
  return `Before: ${causeOf(was).title.toLowerCase()}${who ? ` of ${named(who)}` : ""}.`;
}

function same(one: Culprit, other: Culprit): boolean {
  return named(one) === named(other);
}

export interface Stretch {
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
  /** The verdict then; undefined: it had begun, and no verdict named it yet. */
  readonly cause?: string;
}

/** News after which the same verdict stands. */
const SAME_VERDICT = new Set(["updated", "asked", "answered"]);

/** Which verdict stood when: from the trouble's beginning to its end, or to `now` while it lasts. */
export function stretches(incident: Incident, now: number): Stretch[] {
  const { history } = incident;
  const since = incident.first_since_ns / NS;
  const end = Math.max(since, incident.closed_ns === null ? now : incident.closed_ns / NS);
  const found: Stretch[] = [];
  let from = since;
  let cause: string | undefined;
  for (const turn of history) {
    const time = Math.min(end, Math.max(since, turn.time_ns / NS));
    if (SAME_VERDICT.has(turn.news) && cause !== undefined) continue;
    if (time > from) found.push(stretch(from, time, cause));
    from = time;
    cause = turn.news === "closed" ? undefined : turn.cause;
  }
  if (end > from) found.push(stretch(from, end, cause));
  return found;
}

function stretch(from: number, to: number, cause: string | undefined): Stretch {
  return cause === undefined ? { from, to } : { from, to, cause };
}

/** The time that plots of an incident show: it, and a quarter of its length around it. Unix seconds. */
export function around(incident: Incident, now: number): { from: number; to: number } {
  const since = incident.verdict.since_ns / NS;
  const until = incident.verdict.until_ns === null ? now : incident.verdict.until_ns / NS;
  const pad = Math.min(600, Math.max(90, (until - since) / 4));
  return { from: since - pad, to: Math.min(now, Math.max(until, since) + pad) };
}
