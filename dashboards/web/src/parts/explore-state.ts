/**
 * What Explore shows, kept in the address: `query`, `query2` … `query8`; `shown=table`; `only`, the one
 * series that is drawn alone. Pure.
 */
import type { Query } from "../route";

export const QUERIES_MAX = 8;

export interface Asked {
  /** Not empty each; none at the beginning. */
  readonly queries: readonly string[];
  readonly shown: "plot" | "table";
  /** `keyOf` a series. */
  readonly only: string | undefined;
}

const NAMES = Array.from({ length: QUERIES_MAX }, (_, place) =>
  place ? `query${place + 1}` : "query",
);

export function asked(query: Readonly<Record<string, string>>): Asked {
  return {
    queries: NAMES.map((name) => query[name] ?? "").filter((text) => text.trim() !== ""),
    shown: query.shown === "table" ? "table" : "plot",
    only: query.only,
  };
}

/** The parameters of the address; what is not asked any more is taken away. */
export function written({ queries, shown, only }: Asked): Query {
  const texts = queries.filter((text) => text.trim() !== "");
  const parameters: Record<string, string | undefined> = {
    shown: shown === "table" ? shown : undefined,
    only,
  };
  NAMES.forEach((name, place) => {
    parameters[name] = texts[place];
  });
  return parameters;
}

/** A, B, C …: what a query is called beside its series. */
export function letterOf(place: number): string {
  return String.fromCharCode(65 + place);
}

// --- history ------------------------------------------------------------------------------------

export const HISTORY_MAX = 50;
/** Longer ones are made by programs, and would fill the browser's store. */
const HISTORY_CHARS_MAX = 4000;

/** The newest first, each once. */
export function remembered(history: readonly string[], query: string): string[] {
  const text = query.trim();
  if (!text || text.length > HISTORY_CHARS_MAX) return [...history];
  return [text, ...history.filter((one) => one !== text)].slice(0, HISTORY_MAX);
}

/** What the browser kept; anything may be in there. */
export function historyOf(text: string | null): string[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(found)) return [];
    return found.filter((one) => typeof one === "string").slice(0, HISTORY_MAX);
  } catch {
    return [];
  }
}

// --- time ---------------------------------------------------------------------------------------

const STEPS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200];

/** A round step that gives a point for about every two pixels. */
export function stepFor(seconds: number, pixels: number): number {
  const least = seconds / Math.max(60, pixels / 2);
  return STEPS.find((step) => step >= least) ?? Math.ceil(least / 86_400) * 86_400;
}

/** The moments that are asked for, on whole steps: a plot that follows the clock then does not tremble. */
export function momentsOf(from: number, to: number, step: number): { from: number; to: number } {
  const start = Math.ceil(from / step) * step;
  return { from: start, to: Math.max(start, Math.floor(to / step) * step) };
}

// --- errors -------------------------------------------------------------------------------------

/** Something wrong in a query's text, from one character to another. */
export interface Flaw {
  readonly from: number;
  readonly to: number;
  readonly message: string;
}

/** Where a flaw is: line and column as editors count them, and the line with a pointer below it. */
export function placed(text: string, flaw: Flaw): { where: string; line: string; pointer: string } {
  const start = Math.min(Math.max(0, flaw.from), text.length);
  const before = text.slice(0, start);
  const row = before.split("\n").length;
  const column = start - (before.lastIndexOf("\n") + 1);
  const line = text.split("\n")[row - 1] ?? "";
  const length = Math.max(1, Math.min(flaw.to - start, line.length - column));
  const isLong = text.includes("\n");
  return {
    where: `${isLong ? `line ${row}, ` : ""}character ${column + 1}`,
    line,
    pointer: `${" ".repeat(column)}${"^".repeat(length)}`,
  };
}

/** The service's error message alone. */
export function plainError(detail: string): string {
  return detail.replace(/^invalid parameter "query": /, "").replace(/^parse error: /, "");
}
