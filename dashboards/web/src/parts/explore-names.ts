/** Which metrics a query names, and what was meant by one that does not exist. Pure. */
import { tokens } from "./explore-unit";

const NAME = /^[A-Za-z_:]/;
const WORDS = new Set(
  "by without on ignoring group_left group_right bool offset and or unless atan2 inf nan start end".split(
    " ",
  ),
);
/** After these stands a list of labels. */
const LISTS = new Set("by without on ignoring group_left group_right".split(" "));
const CLOSING: Readonly<Record<string, string>> = { "{": "}", "[": "]", "(": ")" };

/** Names of metrics in their order, each once. Functions, labels, keywords and durations are none. */
export function metricsOf(query: string): string[] {
  const words = tokens(query);
  const found: string[] = [];
  for (let place = 0; place < words.length; place++) {
    const word = words[place] ?? "";
    const next = words[place + 1] ?? "";
    if (word === "{" || word === "[") place = closed(words, place);
    else if (LISTS.has(word.toLowerCase()) && next === "(") place = closed(words, place + 1);
    else if (NAME.test(word) && !isCalled(next) && !WORDS.has(word.toLowerCase())) found.push(word);
  }
  return [...new Set(found)];
}

/** Whether the word before is a function or an aggregation: `rate(`, `sum by (`. */
const isCalled = (next: string) => ["(", "by", "without"].includes(next.toLowerCase());

/** The place of the bracket that closes the one at this place. */
function closed(words: readonly string[], place: number): number {
  const opening = words[place] ?? "";
  let depth = 0;
  for (let at = place; at < words.length; at++) {
    if (words[at] === opening) depth++;
    if (words[at] === CLOSING[opening] && --depth === 0) return at;
  }
  return words.length;
}

const NEAR_MAX = 3;
/** Of the longer name, by how much two may differ to be alike. */
const DIFFERENT_MAX = 0.4;

/** Names that are written nearly like this one, the nearest first. */
export function nearest(name: string, among: Iterable<string>): string[] {
  const lower = name.toLowerCase();
  const found: { name: string; apart: number }[] = [];
  for (const one of among) {
    const most = Math.floor(Math.max(one.length, lower.length) * DIFFERENT_MAX);
    if (Math.abs(one.length - lower.length) > most) continue;
    const apart = distance(lower, one.toLowerCase(), most);
    if (apart <= most) found.push({ name: one, apart });
  }
  return found
    .sort((a, b) => a.apart - b.apart || a.name.localeCompare(b.name))
    .slice(0, NEAR_MAX)
    .map((one) => one.name);
}

/** Letters to change, add or take away to make one of the other; more than `most` is not counted out. */
export function distance(one: string, other: string, most: number): number {
  let before = Array.from({ length: other.length + 1 }, (_, place) => place);
  for (let row = 1; row <= one.length; row++) {
    const line = [row];
    let least = row;
    for (let column = 1; column <= other.length; column++) {
      const same = one[row - 1] === other[column - 1] ? 0 : 1;
      const value = Math.min(
        (before[column] ?? 0) + 1,
        (line[column - 1] ?? 0) + 1,
        (before[column - 1] ?? 0) + same,
      );
      line.push(value);
      least = Math.min(least, value);
    }
    if (least > most) return most + 1;
    before = line;
  }
  return before[other.length] ?? 0;
}

export interface Unknown {
  readonly name: string;
  /** It is a metric of the catalog, and nothing has sent it. */
  readonly isOurs: boolean;
  readonly near: readonly string[];
}

/** Metrics of a query that the store does not hold. */
export function unknownIn(
  query: string,
  stored: ReadonlySet<string>,
  ours: ReadonlySet<string>,
): Unknown[] {
  return metricsOf(query)
    .filter((name) => !stored.has(name))
    .map((name) => ({
      name,
      isOurs: ours.has(name),
      near: ours.has(name) ? [] : nearest(name, new Set([...stored, ...ours])),
    }));
}

/** Why a query gives nothing, where names in it are the reason; else empty. */
export function unknownWords(unknown: readonly Unknown[]): string {
  return unknown
    .map(({ name, isOurs }) =>
      isOurs ? `Nothing has sent ${name}.` : `There is no metric ${name}: see above.`,
    )
    .join(" ");
}

/** The query with another name for one of its metrics. */
export function renamed(query: string, from: string, to: string): string {
  const name = from.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return query.replace(new RegExp(`(?<![\\w:])${name}(?![\\w:])`, "g"), () => to);
}
