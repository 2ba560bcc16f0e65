/** How an incident came to say what it says: its turns in words, and as stretches of time. Pure. */
import { type Culprit, type Incident, named, type Turn } from "../api/incidents";
import { duration, percent } from "../format";
import { causeOf } from "./verdict-words";

export const NS = 1e9;

export interface Told {
  /** Unix seconds. */
  readonly time: number;
  readonly title: string;
  readonly text: string;
  readonly tone: "bad" | "warn" | "good" | "";
}

/** The incident's story in order of time: when it began, what was said, when it ended. */
export function tell(incident: Incident): Told[] {
  const { verdict, history } = incident;
  const since = verdict.since_ns / NS;
  const told: Told[] = [
    {
      time: since,
      title: "The trouble began",
      text: "By the first operations and readings that were not as before.",
      tone: "bad",
    },
    ...history.map((turn) => tellTurn(turn, since)),
  ];
  if (incident.state === "closed" && verdict.until_ns !== null)
    told.push({
      time: verdict.until_ns / NS,
      title: "Last sign of it",
      text: `It lasted ${duration(verdict.until_ns / NS - since)}.`,
      tone: "good",
    });
  // What is told at the same moment keeps its order.
  return told
    .map((one, place) => ({ one, place }))
    .sort((a, b) => a.one.time - b.one.time || a.place - b.place)
    .map(({ one }) => one);
}

function tellTurn(turn: Turn, since: number): Told {
  const time = turn.time_ns / NS;
  const says = `${causeOf(turn.cause).title}: ${named(turn.culprit)}, ${percent(turn.confidence)} sure.`;
  if (turn.news === "opened") {
    const after = time - since;
    return {
      time,
      title: after >= 1 ? `First said, ${duration(after)} after it began` : "First said",
      text: says,
      tone: "bad",
    };
  }
  if (turn.news === "changed")
    return { time, title: "Explanation changed", text: `${changeOf(turn)} ${says}`, tone: "warn" };
  if (turn.news === "closed")
    return { time, title: "Closed", text: "No sign of it any more.", tone: "good" };
  if (turn.news === "reopened") return { time, title: "It came back", text: says, tone: "bad" };
  return { time, title: "More evidence", text: says, tone: "" };
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
  /** What was said then; undefined: it had begun, and nobody knew. */
  readonly cause?: string;
}

/** What stood when: from the trouble's beginning to its end, or to `now` while it lasts. */
export function stretches(incident: Incident, now: number): Stretch[] {
  const { verdict, history } = incident;
  const since = verdict.since_ns / NS;
  const end = Math.max(since, incident.closed_ns === null ? now : incident.closed_ns / NS);
  const found: Stretch[] = [];
  let from = since;
  let cause: string | undefined;
  for (const turn of history) {
    const time = Math.min(end, Math.max(since, turn.time_ns / NS));
    if (turn.news === "updated" && cause !== undefined) continue;
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
