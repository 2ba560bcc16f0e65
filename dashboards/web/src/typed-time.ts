/** Times as people type them. Pure but for the reader's own zone. */
import { zone } from "./zone";

const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 };
const BEFORE = /^(?:now\s*)?-?\s*(\d{1,6})\s*(s|min|m|h|d)(?:\s+ago)?$/i;
const DAY_AND_CLOCK =
  /^(?:(\d{4})-(\d{1,2})-(\d{1,2}))?[T\s]*(?:(\d{1,2}):(\d{2})(?::(\d{2}))?)?\s*(Z|UTC)?$/i;
export const HINT = "2026-11-15 09:00, 09:00, 2h ago, now, or unix seconds";

/** Unix seconds of `09:00`, `2026-11-15 09:00:30`, `2h ago`, `now`; undefined: it is no time. */
export function typedTime(text: string, now: number): number | undefined {
  const words = text.trim();
  if (/^now$/i.test(words)) return now;
  if (/^\d{9,10}(\.\d+)?$/.test(words)) return Number(words);
  const before = BEFORE.exec(words);
  if (before) return now - Number(before[1]) * (UNITS[(before[2] ?? "").toLowerCase()] ?? 0);
  const match = words ? DAY_AND_CLOCK.exec(words) : null;
  if (!match) return undefined;
  const [year, month, day, hours = 0, minutes = 0, seconds = 0] = match
    .slice(1, 7)
    .map((part) => (part === undefined ? undefined : Number(part)));
  const isUtc = zone.value === "utc" || match[7] !== undefined;
  const today = new Date(now * 1000);
  const date = isUtc
    ? [today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate()]
    : [today.getFullYear(), today.getMonth(), today.getDate()];
  const [y, m, d] = [year ?? date[0] ?? 0, month ? month - 1 : (date[1] ?? 0), day ?? date[2] ?? 1];
  // Not a day or an hour that would roll over into the next one.
  if (m > 11 || d < 1 || d > 31 || hours > 24 || minutes > 59 || seconds > 59) return undefined;
  const ms = isUtc
    ? Date.UTC(y, m, d, hours, minutes, seconds)
    : new Date(y, m, d, hours, minutes, seconds).getTime();
  return Number.isFinite(ms) ? ms / 1000 : undefined;
}

/** As `typedTime` reads it back, in the reader's zone. */
export function writtenTime(unixSeconds: number): string {
  const date = new Date(unixSeconds * 1000);
  const ahead = zone.value === "utc" ? 0 : -date.getTimezoneOffset() * 60;
  const shifted = new Date((unixSeconds + ahead) * 1000).toISOString();
  return `${shifted.slice(0, 10)} ${shifted.slice(11, 19)}`;
}
