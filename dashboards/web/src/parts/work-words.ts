/** What people did about an incident, in words and in order of time; and which silences hold for it. Pure. */
import type { Action, ActionEvent } from "../api/actions";
import type { Said } from "../api/feedback";
import type { Culprit } from "../api/incidents";
import type { Matcher, Silence } from "../api/service";
import type { Deed, Does } from "../api/work";
import { moment } from "../format";
import { saidWords } from "./feedback-words";

/** Something that a person or the policy did. */
export interface Done {
  readonly id: string;
  /** Unix seconds. */
  readonly time: number;
  readonly by: string;
  readonly what: string;
  readonly note: string;
}

const unix = (text: string) => Date.parse(text) / 1000;

/** Everything that was done about an incident, the latest first. */
export function historyOfWork(
  known: {
    readonly deeds?: readonly Deed[] | undefined;
    readonly said?: readonly Said[] | undefined;
    readonly silences?: readonly Silence[] | undefined;
    readonly actions?: readonly Action[] | undefined;
  },
  now: number,
): Done[] {
  const found: Done[] = [
    ...(known.deeds ?? []).map((one) => ({
      id: one.id,
      time: unix(one.at),
      by: one.by,
      what: deedWords(one),
      note: one.note,
    })),
    ...(known.said ?? []).map((one) => ({
      id: one.id,
      time: unix(one.at),
      by: one.by,
      what: `said about the verdict: ${saidWords(one)}`,
      note: one.note,
    })),
    ...(known.silences ?? []).map((one) => ({
      id: one.id,
      time: unix(one.starts),
      by: one.created_by,
      what: `silenced it until ${moment(unix(one.ends), now)}`,
      note: one.comment,
    })),
    ...(known.actions ?? []).flatMap((action) =>
      action.history.flatMap((one, place) => actionDone(action, one, place)),
    ),
  ];
  return found.sort((a, b) => b.time - a.time || b.id.localeCompare(a.id));
}

const DEEDS: Readonly<Record<Does, string>> = {
  acknowledge: "acknowledged it",
  unacknowledge: "took the acknowledgement back",
  assign: "assigned it to",
  note: "noted",
};

function deedWords({ does, to }: Deed): string {
  return does === "assign" ? `${DEEDS.assign} ${to || "no person"}` : DEEDS[does];
}

/** What people and the policy do with an action; reports of executors and checks are left out. */
const EVENTS: Readonly<Record<string, string>> = {
  shadowed: "in shadow, would have drained",
  proposed: "proposed to drain",
  held: "drained",
  approved: "granted the drain of",
  refused: "refused the drain of",
  ended: "ended the drain of",
};

function actionDone(action: Action, event: ActionEvent, place: number): Done[] {
  const words = EVENTS[event.what];
  if (!words) return [];
  return [
    {
      id: `${action.id} ${place}`,
      time: unix(event.at),
      by: event.by,
      what: `${words} ${action.host}`,
      note: event.words,
    },
  ];
}

/** The command for a terminal that does the same, where this page may not. */
export function commandOf(does: Does, incident: string): string {
  if (does === "acknowledge") return `fabricscope incident ack ${incident}`;
  if (does === "unacknowledge") return `fabricscope incident unack ${incident}`;
  if (does === "assign") return `fabricscope incident assign ${incident} NAME`;
  return `fabricscope incident note ${incident} "TEXT"`;
}

// --- silences --------------------------------------------------------------------------------------

/** What an incident's alert is called by; other labels of it are not known to the page. */
export function alertLabels(
  incident: string,
  verdict: { readonly cause: string; readonly reason: string; readonly culprit: Culprit },
): Readonly<Record<string, string>> {
  const { cause, reason, culprit } = verdict;
  const names = ["host", "device", "port", "gpu", "rank", "switch", "switch_port"] as const;
  const labels: Record<string, string> = { incident, cause, reason };
  for (const name of names) labels[name] = String(culprit[name] ?? "");
  return labels;
}

/**
 * Whether a silence is about alerts with these labels. One that asks for a label that is not known here
 * is taken not to be: an incident that pages must not be called silent.
 */
export function isAbout(silence: Silence, labels: Readonly<Record<string, string>>): boolean {
  return silence.matchers.every((matcher) => {
    const value = labels[matcher.name];
    return value !== undefined && meets(matcher, value) === matcher.isEqual;
  });
}

function meets({ value, isRegex, isEqual }: Matcher, text: string): boolean {
  if (!isRegex) return text === value;
  try {
    return new RegExp(`^(?:${value})$`, "s").test(text);
  } catch {
    // A pattern of RE2 that is none of this browser's: not known, so that it is not called silent.
    return !isEqual;
  }
}

/** Of the silences in force for these labels the one that ends last. */
export function silenceOf(
  silences: readonly Silence[] | undefined,
  labels: Readonly<Record<string, string>>,
): Silence | undefined {
  return (silences ?? [])
    .filter((one) => one.state === "active" && isAbout(one, labels))
    .sort((a, b) => unix(b.ends) - unix(a.ends))[0];
}
