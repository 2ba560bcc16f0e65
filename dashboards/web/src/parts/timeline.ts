/**
 * The geometry of plots that lie above each other on one clock. Pure.
 *
 * Times are unix seconds, places and lengths CSS pixels.
 */

/** A stretch of time. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** Where a stretch of time lies on the screen: `left` and `width` of what is drawn in. */
export interface Field {
  readonly span: Span;
  readonly left: number;
  readonly width: number;
}

/** Closer than this there is nothing to see: addresses keep milliseconds, and a plot is hundreds of pixels. */
export const SPAN_SECONDS_MIN = 0.2;
/** A drag below this many pixels was a click with a shaking hand. */
export const DRAG_PIXELS_MIN = 4;

export function toX(field: Field, time: number): number {
  const { from, to } = field.span;
  return field.left + ((time - from) / (to - from)) * field.width;
}

export function toTime(field: Field, x: number): number {
  const { from, to } = field.span;
  return from + ((x - field.left) / field.width) * (to - from);
}

/** The span that a drag from one place to another selects, cut to what is seen; undefined: a click. */
export function brushed(field: Field, begin: number, end: number): Span | undefined {
  if (Math.abs(end - begin) < DRAG_PIXELS_MIN) return undefined;
  const [low, high] = begin < end ? [begin, end] : [end, begin];
  const from = Math.max(field.span.from, toTime(field, low));
  const to = Math.min(field.span.to, toTime(field, high));
  return to - from >= SPAN_SECONDS_MIN ? { from, to } : undefined;
}

/** `factor` above 1 shows more time; the moment `around` stays where it is on the screen. */
export function zoomed(span: Span, around: number, factor: number): Span {
  const least = SPAN_SECONDS_MIN / (span.to - span.from);
  const by = Math.max(factor, least);
  return { from: around - (around - span.from) * by, to: around + (span.to - around) * by };
}

export function moved(span: Span, seconds: number): Span {
  return { from: span.from + seconds, to: span.to + seconds };
}

const SECOND_STEPS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
];

export interface TimeTicks {
  /** Seconds between two of them. */
  readonly step: number;
  readonly times: readonly number[];
}

/**
 * Round moments of the reader's own clock, at most about `most` of them. `ahead` is how many seconds that
 * clock is ahead of UTC, so that midnights and even hours fall on ticks.
 */
export function timeTicks(span: Span, most: number, ahead = 0): TimeTicks {
  const wanted = (span.to - span.from) / Math.max(1, most);
  const step = SECOND_STEPS.find((one) => one >= wanted) ?? 604_800 * Math.ceil(wanted / 604_800);
  const times: number[] = [];
  for (let place = Math.ceil((span.from + ahead) / step); place * step - ahead <= span.to; place++)
    times.push(place * step - ahead);
  return { step, times };
}

/** Round numbers from `low` to `high`, about `count` of them, at 1, 2 or 5 times a power of ten. */
export function valueTicks(low: number, high: number, count: number): number[] {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((one) => one * power >= raw * 0.999) ?? 10) * power;
  const ticks: number[] = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high * (1 + 1e-9); place++)
    // `place * step` makes 0.30000000000000004 of 3 * 0.1.
    ticks.push(Number((place * step).toPrecision(12)));
  return ticks;
}

export interface Limits {
  readonly low: number;
  readonly high: number;
}

/**
 * What the vertical axis spans: from 0, or around the values where zero means nothing (degrees). A little
 * room stays above, so that the highest line is not cut.
 */
export function limitsOf(values: Iterable<number | null>, isFromZero: boolean): Limits {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values)
    if (value !== null && Number.isFinite(value)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  if (low > high) return { low: 0, high: 1 };
  if (isFromZero) return { low: Math.min(0, low), high: high > 0 ? high * 1.06 : 1 };
  const room = Math.max((high - low) * 0.1, Math.abs(high) * 0.02, 1e-9);
  return { low: low - room, high: high + room };
}

/** The place of the time that is nearest; undefined where none is within `most` seconds. */
export function nearest(times: readonly number[], time: number, most: number): number | undefined {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  const before = Math.abs((times[low - 1] ?? Number.NEGATIVE_INFINITY) - time);
  const after = Math.abs((times[low] ?? Number.POSITIVE_INFINITY) - time);
  const place = before <= after ? low - 1 : low;
  return Math.min(before, after) <= most ? place : undefined;
}

/** A stretch of time and the parts that are stacked in it. */
export interface Bar extends Span {
  readonly parts: readonly number[];
}

/** What a stretch's steps took, if any ended in it. */
export interface Measured extends Span {
  /** Seconds; null: no step ended here. */
  readonly step: number | null;
  readonly parts: readonly number[];
}

/**
 * One bar for each stretch in which a step ended; it reaches back over stretches in which none did, as far
 * as the step itself was long. What stays empty is time in which no step was under way, or none ended.
 */
export function toBars(stretches: readonly Measured[]): Bar[] {
  const bars: Bar[] = [];
  let end = Number.NEGATIVE_INFINITY;
  for (const { from, to, step, parts } of stretches) {
    if (step === null) continue;
    // Where in its stretch the step ended is not known: it may have begun a stretch earlier.
    bars.push({ from: Math.max(end, from - step), to, parts });
    end = to;
  }
  return bars;
}

/** The bar that covers this moment. */
export function barAt(bars: readonly Bar[], time: number): Bar | undefined {
  return bars.find((bar) => bar.from <= time && time < bar.to);
}

/** Stretches of a span that no bar covers, if they are longer than `least` seconds. */
export function gapsOf(bars: readonly Bar[], span: Span, least: number): Span[] {
  const gaps: Span[] = [];
  let end = span.from;
  for (const bar of [...bars, { from: span.to, to: span.to }]) {
    const gap = { from: Math.max(end, span.from), to: Math.min(bar.from, span.to) };
    if (gap.to - gap.from > least) gaps.push(gap);
    end = Math.max(end, bar.to);
  }
  return gaps;
}
