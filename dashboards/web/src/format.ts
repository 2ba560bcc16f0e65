/** Numbers for people. Takes base units; nothing here depends on places or times of day. */
import { zoneName } from "./zone";

const SI = ["", "k", "M", "G", "T", "P"];

/** `1.25 GB/s` of 1.25e9 and "B/s": three digits and a prefix. Nothing known: a dash. */
export function si(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  let size = Math.abs(value);
  let step = 0;
  while (size >= 999.5 && step < SI.length - 1) {
    size /= 1000;
    step++;
  }
  return `${digits(Math.sign(value) * size)} ${SI[step]}${unit}`.trimEnd();
}

/** Three digits that count: 0.0312, 3.12, 31.2, 312. */
export function digits(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 1000 ? 4 : 3)));
}

/** `43 %` of 0.43. */
export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  const hundred = share * 100;
  return `${Math.abs(hundred) < 10 ? digits(Math.round(hundred * 10) / 10) : wholeOf(hundred)} %`;
}

/** `0.02 %` of 0.0002, as on an axis whose top is no more than that: a little is not nothing. */
export function finePercent(share: number | null | undefined): string {
  const isLittle = !!share && Math.abs(share) < 0.0005;
  return isLittle ? `${digits(share * 100)} %` : percent(share);
}

/** To the nearest, halves to the even one, as the service writes them: 98.5 is 98 in notices, too. */
function wholeOf(value: number): number {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + Math.abs(low % 2) : Math.round(value);
}

/** A length of time in seconds: `1.2 ms`, `43 s`, `1 min 44 s`, `2 h 5 min`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${digits(seconds * 1e9)} ns`;
  if (size < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (size < 1) return `${digits(seconds * 1e3)} ms`;
  if (size < 100) return `${digits(seconds)} s`;
  return long(Math.round(size), seconds < 0 ? "-" : "");
}

/** In less than this, seconds are a part of it that counts. */
const SECONDS_BELOW_MINUTES = 10;

function long(size: number, sign: string): string {
  const [days, hours, minutes] = [
    Math.floor(size / 86_400),
    Math.floor((size % 86_400) / 3600),
    Math.floor((size % 3600) / 60),
  ];
  if (days) return `${sign}${days} d${hours ? ` ${hours} h` : ""}`;
  if (hours) return `${sign}${hours} h${minutes ? ` ${minutes} min` : ""}`;
  const seconds = minutes < SECONDS_BELOW_MINUTES ? size % 60 : 0;
  return `${sign}${minutes} min${seconds ? ` ${seconds} s` : ""}`;
}

/** A moment as the reader wants it (`zone.ts`): only the clock if it was today. */
export function moment(unixSeconds: number, now = Date.now() / 1000): string {
  const date = new Date(unixSeconds * 1000);
  const timeZone = zoneName();
  const clock = date.toLocaleTimeString(undefined, { hourCycle: "h23", timeZone });
  const day = (one: Date) => one.toLocaleDateString("en", { timeZone });
  const isToday = day(new Date(now * 1000)) === day(date);
  const shown = isToday
    ? clock
    : `${date.toLocaleDateString(undefined, { month: "short", day: "numeric", timeZone })} ${clock}`;
  return timeZone ? `${shown} ${timeZone}` : shown;
}

/** A moment with its day and zone: `15 Nov 2026, 09:05:40 UTC`. */
export function stamp(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toLocaleString("en-GB", {
    day: "numeric",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZone: zoneName(),
    timeZoneName: "short",
  });
}

/** `3 min ago`. */
export function ago(unixSeconds: number, now = Date.now() / 1000): string {
  const passed = now - unixSeconds;
  // From when on is known to the minute: it need not count seconds on the screen.
  return passed < 1
    ? "now"
    : `${duration(passed < 100 ? Math.round(passed) : passed - (passed % 60))} ago`;
}

/** `1 host`, `2 hosts`. */
export function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}
