/** Words and places of what stands around a timeline's plots. */
import { moment } from "../format";
import { zone } from "../zone";
import type { Span } from "./timeline";

const two = (number: number) => String(number).padStart(2, "0");

/** How many seconds the clock that the reader wants is ahead of UTC at this moment. */
export const clockAhead = (time: number): number =>
  zone.value === "utc" ? 0 : -new Date(time * 1000).getTimezoneOffset() * 60;

/** A moment on the axis, as fine as its ticks are: `09:14`, `09:14:05`, `09:14:05.2`, `Nov 15`. */
export function clockText(time: number, step: number): string {
  const date = new Date((time + clockAhead(time)) * 1000);
  const minutes = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
  if (step >= 86_400 || (step >= 3600 && minutes === "00:00"))
    return date.toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" });
  if (step >= 60) return minutes;
  const seconds = date.getUTCSeconds() + date.getUTCMilliseconds() / 1000;
  const decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : 2;
  const text = (Math.floor(seconds * 10 ** decimals + 1e-6) / 10 ** decimals).toFixed(decimals);
  return `${minutes}:${text.padStart(decimals ? decimals + 3 : 2, "0")}`;
}

/** A plot that ends so much before its time does has stopped; readings come every few seconds to half a minute. */
const STOPPED_SECONDS = 60;

/**
 * Why a plot is empty at its end; undefined: it is not. `newest` and `end`: unix seconds. Of a series
 * PromQL shows the last sample for up to five minutes: then there is none "after", though maybe less.
 */
export function stoppedWords(
  newest: number | undefined,
  end: number,
  word: "since" | "after" = "since",
): string | undefined {
  if (newest === undefined || end - newest < STOPPED_SECONDS) return undefined;
  return `no data ${word} ${moment(newest, end)}`;
}

/** When lines that lie on these moments last had a value. */
export function newestOf(
  times: readonly number[],
  lines: readonly { readonly values: readonly (number | null)[] }[],
): number | undefined {
  for (let place = times.length - 1; place >= 0; place--)
    if (lines.some(({ values }) => (values[place] ?? null) !== null)) return times[place];
  return undefined;
}

/** For each stretch the lowest lane in which nothing lies yet, and how many lanes that takes. */
export function lanesOf(spans: readonly Span[]): { lanes: number[]; count: number } {
  const ends: number[] = [];
  const lanes: number[] = new Array(spans.length).fill(0);
  const order = spans.map((_, place) => place);
  order.sort((a, b) => (spans[a]?.from ?? 0) - (spans[b]?.from ?? 0));
  for (const place of order) {
    const span = spans[place] as Span;
    const free = ends.findIndex((end) => end <= span.from);
    const lane = free < 0 ? ends.length : free;
    ends[lane] = span.to;
    lanes[place] = lane;
  }
  return { lanes, count: ends.length };
}

/** What lines show, for screen readers. */
export function summaryOf(
  title: string,
  lines: readonly { readonly label: string; readonly values: readonly (number | null)[] }[],
  format: (value: number) => string,
): string {
  const parts = lines.map(({ label, values }) => {
    const known = values.filter((value): value is number => value !== null);
    const [first, last] = [known[0], known.at(-1)];
    if (first === undefined || last === undefined) return `${label}: nothing known`;
    const [low, high] = known.reduce(
      ([least, most], value) => [Math.min(least, value), Math.max(most, value)],
      [first, first],
    );
    return low === high
      ? `${label} ${format(low)} throughout`
      : `${label} from ${format(low)} to ${format(high)}, ${format(last)} at the end`;
  });
  return `${title}: ${parts.join("; ")}.`;
}
