/** Things that happened, as dots over time: where they stand, and which one is meant. Pure. */
import { type Field, type Limits, toX, valueTicks } from "./timeline";

export interface DotSeries {
  readonly label: string;
  /** The name of a colour in the style sheet. */
  readonly colour: string;
  /** One for each moment of the set. */
  readonly seconds: readonly number[];
}

/** Things of one kind: when each was, what it is called, and its numbers. */
export interface DotSet {
  /** Unix seconds. */
  readonly at: readonly number[];
  readonly said: readonly string[];
  readonly series: readonly DotSeries[];
}

/** How durations become heights: by themselves, or by their powers of ten. */
export interface Rise {
  readonly limits: Limits;
  readonly of: (seconds: number) => number;
  readonly ticks: readonly number[];
  /** The duration at a tick. */
  readonly back: (height: number) => number;
}

export function riseOf(low: number, high: number, isLog: boolean): Rise {
  const within = (seconds: number) => Math.min(high, Math.max(low, seconds));
  if (!isLog || !(low > 0))
    return {
      limits: { low, high: Math.max(high, low + 1e-9) },
      of: within,
      ticks: valueTicks(low, high, 3),
      back: (height) => height,
    };
  const limits = { low: Math.log10(low), high: Math.log10(Math.max(high, low * 1.01)) };
  return {
    limits,
    of: (seconds) => Math.log10(within(seconds)),
    ticks: logTicks(low, high).map(Math.log10),
    // Not 10 ** height: 0.1 must stay 0.1.
    back: (height) => Number((10 ** height).toPrecision(6)),
  };
}

/** Powers of ten; with less than two of them in sight, also their doubles and fives. */
export function logTicks(low: number, high: number): number[] {
  const powers: number[] = [];
  const all: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const factor of [1, 2, 5]) {
      const tick = Number(`${factor}e${power}`);
      if (tick < low || tick > high) continue;
      all.push(tick);
      if (factor === 1) powers.push(tick);
    }
  return powers.length > 1 ? powers : all;
}

export interface Meant {
  readonly set: number;
  readonly place: number;
  readonly x: number;
  readonly y: number;
}

/** Further away than this, no dot is meant. */
const REACH_PIXELS = 14;

/** The dot nearest to a place on the screen; undefined where none is near. */
export function meantAt(
  sets: readonly DotSet[],
  field: Field,
  heightOf: (seconds: number) => number,
  x: number,
  y: number,
): Meant | undefined {
  let [best, least]: [Meant | undefined, number] = [undefined, REACH_PIXELS ** 2];
  sets.forEach(({ at, series }, set) => {
    at.forEach((time, place) => {
      const left = toX(field, time);
      if (Math.abs(left - x) > REACH_PIXELS) return;
      for (const { seconds } of series) {
        const top = heightOf(seconds[place] ?? 0);
        const away = (left - x) ** 2 + (top - y) ** 2;
        if (away <= least) [best, least] = [{ set, place, x: left, y: top }, away];
      }
    });
  });
  return best;
}
