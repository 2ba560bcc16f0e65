/** When an incident was there: a bar for each stretch in which it was confirmed. Pure. */
import type { IncidentShort } from "../api/incidents";

const NS = 1e9;

export interface Bar {
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
}

/** Its stretches in order of time: what lies between them was neither seen nor charged. */
export function barsOf({ confirmed }: Pick<IncidentShort, "confirmed">): Bar[] {
  return confirmed.map(({ since_ns, until_ns }) => ({
    from: since_ns / NS,
    to: Math.max(since_ns, until_ns) / NS,
  }));
}

/** Where a bar lies between two moments, as shares of the time between them; one that is too short to be seen is wider. */
export function placed({ from, to }: Bar, first: number, last: number): [number, number] {
  const share = (time: number) => (last > first ? (time - first) / (last - first) : 0);
  const width = Math.max(WIDTH_LEAST, share(to) - share(from));
  return [Math.min(share(from), 1 - width), width];
}

const WIDTH_LEAST = 0.01;
