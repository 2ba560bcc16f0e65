/** The words of verdicts for people: causes, reasons, how sure, units of evidence, whose names. */
import type { CauseWords } from "../api/causes";
import type { Culprit } from "../api/incidents";
import { digits, duration, percent, si } from "../format";
import { href, type Query } from "../route";
import { causesByName, reasonsByName } from "./cause-table";
import { reasonWords } from "./clock-reasons";

/** A cause in words; one that is not in the service's table, as it is written. */
export function causeOf(cause: string): CauseWords {
  return (
    causesByName.value.get(cause) ?? {
      name: cause,
      title: spelled(cause),
      meaning: "",
      family: "",
      runbook: "incident",
      runbooks: {},
      drawn_by: "",
      colour: "bad",
    }
  );
}

/** What lies behind a cause; empty where it is not known. */
export function reasonOf(reason: string): string {
  if (reason === "unknown") return "";
  return reasonsByName.value.get(reason)?.title ?? spelled(reason);
}

/** A cause, a reason or a layer that was ruled out. */
export function ruledOutOf(what: string): string {
  return causesByName.value.get(what)?.title ?? sentence(reasonOf(what) || spelled(what));
}

function spelled(word: string): string {
  return sentence(word.replaceAll("_", " "));
}

export function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** What to read about it: of both together, else of the reason, else of the cause. */
export function runbookOf(cause: string, reason: string): string {
  const words = causeOf(cause);
  const own = words.runbooks[reason] || reasonsByName.value.get(reason)?.runbook;
  return `/runbooks/${own || words.runbook}`;
}

/** The words that the service's own sentences use (alerts/judge/words.py). */
export function sureness(confidence: number): string {
  if (confidence >= 0.9) return "almost certain";
  if (confidence >= 0.7) return "likely";
  if (confidence >= 0.5) return "more likely than not";
  return "a suspicion";
}

/** From here on an incident pages (knob incidents_confidence of the rule pack). */
export const SURE = 0.5;

/** A value of an evidence with its unit, as one says it. */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (unit === "seconds") return duration(value);
  if (unit === "ratio" || unit === "share" || unit === "seconds per second") return percent(value);
  const prefixed = PREFIXED[unit];
  if (prefixed) return si(value, prefixed);
  if (unit === "bits") return reasonWords(value);
  if (unit === "celsius") return `${digits(value)} °C`;
  if (unit === "watts") return si(value, "W");
  const counted = /^(.+) per second$/.exec(unit)?.[1];
  if (counted) return `${si(value, "").trim()} ${counted}/s`;
  const number = Math.abs(value) >= 1000 ? value.toLocaleString("en") : digits(value);
  return unit ? `${number} ${value === 1 ? unit.replace(/s$/, "") : unit}` : number;
}

/** The same where room is short, as on an axis: `10 k/s`; what is counted is said elsewhere. */
export function shortly(value: number, unit: string): string {
  if (/^.+ per second$/.test(unit) && !PREFIXED[unit] && unit !== "seconds per second")
    return `${si(value, "").trim()}/s`;
  return COUNTED.test(unit) ? si(value, "").trim() : quantity(value, unit);
}

const COUNTED = /^(changes|errors|bursts|operations|communicators|lanes|times as long)$/;

const PREFIXED: Readonly<Record<string, string>> = {
  hertz: "Hz",
  "bytes per second": "B/s",
  "bits per second": "b/s",
  bytes: "B",
};

/** One of a culprit's names, and the view that shows it. */
export interface Name {
  readonly kind: string;
  readonly text: string;
  readonly href: string;
}

/** Every name of a culprit, from where it stands to what it does; `when` goes into each link. */
export function namesOf(culprit: Culprit, when: Query = {}): Name[] {
  const { job, rank, host, gpu, device, port, switch: fabricSwitch, switch_port } = culprit;
  const names: Name[] = [];
  const add = (kind: string, text: string, address: string) =>
    names.push({ kind, text, href: address });
  if (host) add("Host", host, href(["hosts", host]));
  if (host && gpu !== undefined) add("GPU", String(gpu), href(["hosts", host], { gpu }));
  if (device)
    add("NIC", port ? `${device} port ${port}` : device, href(["fabric"], focus(culprit, when)));
  if (fabricSwitch)
    add(
      switch_port ? "Switch port" : "Switch",
      switch_port ? `${fabricSwitch} ${switch_port}` : fabricSwitch,
      href(["fabric"], {
        ...when,
        focus: switch_port ? `${fabricSwitch}/${switch_port}` : fabricSwitch,
      }),
    );
  if (culprit.storage) add("Storage", culprit.storage, "");
  if (job && rank !== undefined) add("Rank", String(rank), href(["job", job], { ...when, rank }));
  else if (rank !== undefined) add("Rank", String(rank), "");
  if (job) add("Job", job, href(["job", job], when));
  return names;
}

/** The query of the Fabric view that shows a culprit: ports are named as `/v1/explain?link=` has them. */
export function focus(culprit: Culprit, when: Query = {}): Query {
  const { host, device, port, switch: fabricSwitch, switch_port } = culprit;
  const own = [host, device, port].filter(Boolean).join("/");
  return {
    ...when,
    focus: own || [fabricSwitch, switch_port].filter(Boolean).join("/") || undefined,
  };
}

/** Whom an evidence speaks of: `leaf0 Ethernet16`, `node1 GPU 3`; empty where it is about a whole job. */
export function subjectOf(labels: Readonly<Record<string, string>>): string {
  const { host, device, port, gpu, rank } = labels;
  const words = [host, device === host ? undefined : device];
  if (port !== undefined) words.push(device === host ? port : `port ${port}`);
  if (gpu !== undefined) words.push(`GPU ${gpu}`);
  if (rank !== undefined) words.push(`rank ${rank}`);
  return words.filter(Boolean).join(" ");
}

/** Whether an evidence speaks of the culprit, and not of somebody who waits behind it. */
export function isAbout(labels: Readonly<Record<string, string>>, culprit: Culprit): boolean {
  const { host, port } = labels;
  if (host === undefined || host === culprit.host) return true;
  return host === culprit.switch && (!culprit.switch_port || port === culprit.switch_port);
}

/** Pieces of a text in which commands stand between backticks. */
export function pieces(text: string): { readonly text: string; readonly isCommand: boolean }[] {
  const parts = text.split("`");
  // An odd number of backticks: the last one opens nothing.
  if (parts.length % 2 === 0) {
    const rest = parts.pop() ?? "";
    parts[parts.length - 1] += `\`${rest}`;
  }
  return parts
    .map((part, index) => ({ text: part, isCommand: index % 2 === 1 }))
    .filter((piece) => piece.text !== "");
}

/** The commands of a text, one a line. */
export function commandsOf(text: string): string {
  return pieces(text)
    .filter((piece) => piece.isCommand)
    .map((piece) => piece.text)
    .join("\n");
}

/** Evidence this old still counts as of now: a busy service looks, and agents send, every half minute. */
const QUIET_SECONDS = 60;

/** Unix seconds at which an open incident was last seen, where that is a while ago; else undefined. */
export function quietSince(
  incident: { readonly state: string; readonly last_seen_ns: number },
  now: number,
): number | undefined {
  const last = incident.last_seen_ns / 1e9;
  return incident.state === "open" && now - last > QUIET_SECONDS ? last : undefined;
}

/** Within this much a length and the time that has passed are the same: what an evaluation rounds. */
const SAME_SECONDS = 60;

/**
 * How long it was confirmed, in words that agree with when it began: an open incident that was seen
 * for 30 s four minutes ago does not "last 30 s", nor does a new stretch last what all did.
 */
export function lastedWords(long: number, passed: number, isOpen: boolean): string {
  if (Math.abs(long - passed) > Math.max(SAME_SECONDS, 0.1 * passed))
    return `${duration(long)} in all${isOpen ? " so far" : ""}`;
  return `${isOpen ? "lasts" : "lasted"} ${duration(long)}`;
}
