/** The time that a view looks at, kept in the address: `last=1h`, or `from` and `to` in unix seconds. */
import { computed, signal } from "@preact/signals";
import { route, withQuery } from "./route";

export interface Range {
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
  /** Seconds, where the range ends now and moves with time; undefined where it stands still. */
  readonly last?: number;
}

export const LAST_DEFAULT = "30m";
export const LASTS = ["5m", "15m", "30m", "1h", "3h", "6h", "12h", "1d", "7d"] as const;
const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Seconds of `15m`; undefined for what is none. */
export function seconds(word: string): number | undefined {
  const match = /^(\d{1,6})([smhd])$/.exec(word);
  return match ? Number(match[1]) * (UNITS[match[2] ?? ""] ?? Number.NaN) : undefined;
}

/** Unix seconds, ticking as often as live views ask anew. Views read it to move on. */
export const now = signal(Date.now() / 1000);
export const TICK_SECONDS = 5;
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now() / 1000;
}, TICK_SECONDS * 1000);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") now.value = Date.now() / 1000;
});

export const range = computed<Range>(() => {
  const { from, to, last } = route.value.query;
  if (from && to && Number(from) < Number(to)) return { from: Number(from), to: Number(to) };
  const length = seconds(last ?? LAST_DEFAULT) ?? 1800;
  // All who look at the same view ask for the same time, and the service answers once.
  const end = Math.floor(now.value / TICK_SECONDS) * TICK_SECONDS;
  return { from: end - length, to: end, last: length };
});

/** The range as the reader chose it: it does not move with the clock, so that a change is a choice. */
export const rangeWord = computed(() => {
  const { from, to, last } = range.value;
  return last === undefined ? `${from} ${to}` : `last ${last}`;
});

/** Look at this stretch, and stop following the clock. */
export function fix(from: number, to: number): void {
  withQuery({ from: from.toFixed(3), to: to.toFixed(3), last: undefined });
}

/** Follow the clock again. */
export function follow(last: string): void {
  withQuery({ from: undefined, to: undefined, last });
}
