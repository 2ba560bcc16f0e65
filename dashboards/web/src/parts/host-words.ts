/** How hosts stand, in words and in order. Pure. */
import type { Fleet, HealthState, Hold, HostHealth, Reason } from "../api/hosts";
import { count, duration } from "../format";
import { causeOf, reasonOf } from "./verdict-words";

/** What a cell shows: the service's states, and hosts that are suspect because they do not report. */
export type Look = HealthState | "silent";

/** From the one that needs a person most to the one that needs none. */
export const LOOKS: readonly Look[] = [
  "degraded",
  "suspect",
  "silent",
  "draining",
  "out",
  "healthy",
];

export const LOOK_WORDS: Readonly<Record<Look, string>> = {
  degraded: "an open incident accuses it: the next job would suffer now",
  suspect: "weak or past evidence is against it",
  silent: "it has not reported for minutes",
  draining: "marked by a person: what runs may end, nothing new should begin",
  out: "taken out by a person",
  healthy: "it reports, and no evidence of weight is against it",
};

const LOOK_TONES: Readonly<Record<Look, string>> = {
  degraded: "bad",
  suspect: "warn",
  silent: "warn",
  draining: "",
  out: "",
  healthy: "good",
};

export const toneOf = (look: Look): string => LOOK_TONES[look];

const SILENT = /^silent since (\S+)$/;

export function lookOf(host: Pick<HostHealth, "state" | "reasons">): Look {
  const isSilent = host.state === "suspect" && host.reasons?.some((one) => SILENT.test(one));
  return isSilent ? "silent" : host.state;
}

/** A reason of a list, for people. */
export interface ReasonWords {
  readonly text: string;
  /** Empty: none speaks of it. */
  readonly incident: string;
  readonly isOpen: boolean;
}

const CHARGE =
  /^(?<cause>\w+)(?: \((?<reason>\w+)\))?(?: of (?<about>(?:link|gpu|device) .+?))?, (?:(?<found>found)|(?<end>open|over), (?<incident>\S+))$/;

/** `link_flap (cable) of link mlx5_0/1, over, ID` → "Link flap (cable or transceiver), link mlx5_0/1, over". */
export function reasonWords(text: string, now: number): ReasonWords {
  const silent = SILENT.exec(text);
  if (silent) {
    const since = Date.parse(silent[1] ?? "") / 1000;
    const words = Number.isNaN(since) ? text : `silent for ${duration(Math.max(0, now - since))}`;
    return { text: words, incident: "", isOpen: true };
  }
  const charge = CHARGE.exec(text)?.groups;
  if (!charge) return { text, incident: "", isOpen: true };
  const cause = chargeWords(charge.cause ?? "", charge.reason ?? "", charge.about ?? "");
  const end = charge.found ? "seen, no incident" : (charge.end ?? "");
  return {
    text: `${cause}, ${end}`,
    incident: charge.incident ?? "",
    isOpen: charge.end !== "over",
  };
}

/** A cause, what lies behind it, and what of the host is accused. */
export function chargeWords(cause: string, reason: string, about: string): string {
  const behind = reason && reasonOf(reason);
  const thing = about.replace(/^gpu /, "GPU ").replace(/^device /, "NIC ");
  return `${causeOf(cause).title}${behind ? ` (${behind})` : ""}${thing ? `, ${thing}` : ""}`;
}

/** How a charge's risk came to be: confidence, weight and age. */
export function riskWords(reason: Reason, now: number): string {
  const whole = `${Math.round(reason.confidence * 100)} % sure × ${reason.weight.toFixed(2)} against it`;
  if (reason.is_open || reason.until_ns === null) return `${whole}; open, does not fade`;
  const age = Math.max(0, now - reason.until_ns / 1e9);
  return `${whole}; over for ${duration(age)}, halves every ${duration(reason.half_life_seconds)}`;
}

/** The fleet in a sentence: who can take the next job. */
export function fleetWords(looks: readonly Look[]): string {
  const well = looks.filter((look) => look === "healthy").length;
  if (!looks.length) return "No host is known";
  if (well === looks.length)
    return looks.length === 1
      ? "The only host can take the next job"
      : `All ${count(looks.length, "host")} can take the next job`;
  return `${well.toLocaleString("en")} of ${count(looks.length, "host")} can take the next job`;
}

export function countLooks(looks: readonly Look[]): Readonly<Record<Look, number>> {
  const counts = { degraded: 0, suspect: 0, silent: 0, draining: 0, out: 0, healthy: 0 };
  for (const look of looks) counts[look]++;
  return counts;
}

// --- which of them, in which order -----------------------------------------------------------------

export interface Wanted {
  readonly looks: ReadonlySet<Look>;
  readonly search: string;
  /** Hosts of a rail; undefined: all. */
  readonly among?: ReadonlySet<string> | undefined;
}

export function isWanted(host: HostHealth, wanted: Wanted): boolean {
  if (wanted.looks.size && !wanted.looks.has(lookOf(host))) return false;
  if (wanted.among && !wanted.among.has(host.host)) return false;
  const word = wanted.search.trim().toLowerCase();
  return (
    !word ||
    host.host.toLowerCase().includes(word) ||
    !!host.reasons?.some((reason) => reason.toLowerCase().includes(word))
  );
}

export const SORTS = {
  worst: "the worst first",
  risk: "by risk",
  lemon: "by lemon score",
  seen: "silent the longest first",
  name: "by name",
} as const;
export type Sort = keyof typeof SORTS;

export const sortOf = (word: string | undefined): Sort =>
  word !== undefined && Object.hasOwn(SORTS, word) ? (word as Sort) : "worst";

/** `localeCompare` makes one of these for every pair: minutes for a large fleet. */
export const NAMES = new Intl.Collator("en", { numeric: true });

/** `lastSeen`: unix seconds by host; hosts without one count as seen now. Equals keep their order. */
export function sorted(
  hosts: readonly HostHealth[],
  sort: Sort,
  lastSeen: (host: string) => number | undefined,
): HostHealth[] {
  const rows = hosts.map((host) => ({
    host,
    place: LOOKS.indexOf(lookOf(host)),
    seen: lastSeen(host.host) ?? Number.MAX_VALUE,
  }));
  type Row = (typeof rows)[number];
  const orders: Readonly<Record<Sort, (a: Row, b: Row) => number>> = {
    worst: (a, b) => a.place - b.place || b.host.risk - a.host.risk,
    risk: (a, b) => b.host.risk - a.host.risk,
    lemon: (a, b) => b.host.lemon - a.host.lemon || b.host.risk - a.host.risk,
    seen: (a, b) => a.seen - b.seen,
    name: (a, b) => NAMES.compare(a.host.host, b.host.host),
  };
  return rows.sort(orders[sort]).map(({ host }) => host);
}

/** The states that the address asks for: `degraded,silent`. */
export function looksOf(text: string | undefined): ReadonlySet<Look> {
  const words = new Set((text ?? "").split(","));
  return new Set(LOOKS.filter((look) => words.has(look)));
}

/** The hold that stands, of all that were. */
export function standing(holds: readonly Hold[], now: number): Hold | undefined {
  return holds.find(
    (one) => one.ended_ns === null && (one.until_ns === null || one.until_ns / 1e9 > now),
  );
}

/** What a drawing of the fleet shows, for screen readers. */
export function fleetLabel(fleet: Fleet): string {
  const counts = countLooks(fleet.items.map(lookOf));
  const parts = LOOKS.filter((look) => counts[look]).map((look) => `${counts[look]} ${look}`);
  const [worst] = sorted(fleet.items, "worst", () => undefined);
  const named =
    worst && lookOf(worst) !== "healthy"
      ? `; the worst is ${worst.host}, ${lookOf(worst)}, risk ${worst.risk.toFixed(2)}`
      : "";
  return `${count(fleet.items.length, "host")}: ${parts.join(", ")}${named}. Arrow keys move, Enter opens.`;
}
