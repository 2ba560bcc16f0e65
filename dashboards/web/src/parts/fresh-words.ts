/** The word at the top right: news arrive, data is new, and detectors have looked at it; or which does not hold. Pure. */
import type { Age, Freshness } from "../api/freshness";
import { duration } from "../format";

export interface Mark {
  readonly look: "live" | "connecting" | "lost" | "late";
  readonly text: string;
  /** The same in full, always with both ages. */
  readonly title: string;
}

export interface Heard {
  readonly connection: "connecting" | "live" | "lost";
  /** Seconds since the last sign of life; undefined: none yet. */
  readonly quiet: number | undefined;
  readonly freshness: Freshness | undefined;
  /** Seconds since `freshness` was answered. */
  readonly passed: number;
}

export function markOf(heard: Heard): Mark {
  const { freshness, passed } = heard;
  const ages = freshness ? `. ${agesOf(freshness, passed)}` : "";
  if (heard.connection === "lost") {
    const quiet = heard.quiet === undefined ? "" : `, last heard ${agoOf(heard.quiet)}`;
    return { look: "lost", text: "No connection", title: `No connection${quiet}${ages}` };
  }
  if (heard.connection === "connecting" || !freshness)
    return { look: "connecting", text: "Connecting", title: `Connecting${ages}` };
  const late = lateWords(freshness, passed);
  if (late) return { look: "late", text: late, title: `Not live: ${late}${ages}` };
  return { look: "live", text: "Live", title: `Live${ages}` };
}

/** What is older than it may be; empty: nothing is. */
function lateWords({ data, evaluation }: Freshness, passed: number): string {
  if (data.age_seconds === null) return "No data yet";
  const words: string[] = [];
  if (isLate(data, passed)) words.push(`Data ${whole(data.age_seconds + passed)} old`);
  if (evaluation.age_seconds === null) words.push("not evaluated yet");
  else if (isLate(evaluation, passed))
    words.push(`not evaluated for ${whole(evaluation.age_seconds + passed)}`);
  const said = words.join(", ");
  return said.charAt(0).toUpperCase() + said.slice(1);
}

export function isLate({ age_seconds, bound_seconds }: Age, passed: number): boolean {
  return age_seconds !== null && age_seconds + passed > bound_seconds;
}

function agesOf({ data, evaluation }: Freshness, passed: number): string {
  const words = ({ age_seconds }: Age) =>
    age_seconds === null ? "never" : agoOf(age_seconds + passed);
  return `Newest data ${words(data)}, last evaluation ${words(evaluation)}`;
}

export const whole = (seconds: number) => duration(seconds < 100 ? Math.round(seconds) : seconds);
const agoOf = (seconds: number) => (seconds < 1 ? "now" : `${whole(seconds)} ago`);
