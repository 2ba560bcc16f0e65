/** The way from an incident to its place in the fabric: when it was, what it shows in, where. Pure. */
import type { Incident } from "../api/incidents";
import type { Query } from "../route";
import { around } from "./story-turns";
import { causeOf, focus, quietSince } from "./verdict-words";

const NS = 1e9;

/** The query of the Fabric view; undefined: the culprit has no place there. */
export function wayToFabric(incident: Incident, now: number): Query | undefined {
  const { verdict } = incident;
  const target = focus(verdict.culprit);
  if (!target.focus) return undefined;
  const { from, to } = around(incident, now);
  const since = verdict.since_ns / NS;
  const until = verdict.until_ns === null ? quietSince(incident, now) : verdict.until_ns / NS;
  return {
    from: from.toFixed(0),
    to: to.toFixed(0),
    // In the middle of what is over, or seems so; what goes on is looked at at its end, as it is now.
    at: until === undefined ? undefined : ((since + Math.max(since, until)) / 2).toFixed(0),
    colour: causeOf(verdict.cause).drawn_by || undefined,
    incident: incident.id,
    ...target,
  };
}
