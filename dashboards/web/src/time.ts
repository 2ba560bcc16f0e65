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

/** Unix seconds by this browser's clock, ticking as often as live views ask anew. For how long something takes. */
export const ticked = signal(Date.now() / 1000);
export const TICK_SECONDS = 5;
setInterval(() => {
  if (document.visibilityState === "visible") ticked.value = Date.now() / 1000;
}, TICK_SECONDS * 1000);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") ticked.value = Date.now() / 1000;
});

/** By how many seconds this browser's clock is ahead of the service's. */
const ahead = signal(0);
/** A difference that is no wrong clock: the way there and back, and what a tick leaves out. */
const CLOCK_SECONDS = 2;

/**
 * Learn the service's clock from an answer that has its time; all are unix seconds, `sent` and `answered`
 * by this browser's clock. The slower the answer, the less it tells.
 */
export function learnClock(service: number, sent: number, answered: number): void {
  const found = (sent + answered) / 2 - service;
  if (!Number.isFinite(found)) return;
  const isNews = Math.abs(found - ahead.value) > CLOCK_SECONDS + (answered - sent) / 2;
  if (isNews) ahead.value = Math.abs(found) > CLOCK_SECONDS ? found : 0;
}

/**
 * Unix seconds by the service's clock, as all times of its answers are. Views read it to move on: with a
 * browser's clock that is wrong they would show wrong ages, and ask for a time that is not there yet.
 */
export const now = computed(() => ticked.value - ahead.value);

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
