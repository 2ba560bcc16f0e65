/** When an incident was there: a bar for each stretch in which it was confirmed. Pure. */
import type { IncidentShort } from "../api/incidents";

const NS = 1e9;

export interface Bar {
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
}

/** Its stretches in order of time; the present one ends at `now`, unix seconds, while it is open. */
export function barsOf(
  one: Pick<
    IncidentShort,
    "state" | "since_ns" | "until_ns" | "last_seen_ns" | "earlier_stretches"
  >,
  now: number,
): Bar[] {
  const end = one.state === "open" ? now * NS : (one.until_ns ?? one.last_seen_ns);
  return [
    ...one.earlier_stretches,
    { since_ns: one.since_ns, until_ns: Math.max(one.since_ns, end) },
  ].map(({ since_ns, until_ns }) => ({ from: since_ns / NS, to: until_ns / NS }));
}
