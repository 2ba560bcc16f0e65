/** Culprits on the drawing: where an incident's culprit is, and which were at fault at a moment. Pure. */
import type { Culprit, IncidentShort } from "../api/incidents";
import type { FabricGraph, Focus } from "./fabric-graph";

export interface Mark {
  readonly incident: string;
  readonly cause: string;
  readonly focus: Focus;
  readonly summary: string;
}

const NS = 1e9;

/**
 * Whether an incident was open at a moment (unix seconds) or within so many seconds before it; without
 * a moment: whether it is open. A frame shows the mean of a stretch, which a short incident lies within.
 */
export function isAt(incident: IncidentShort, at: number | undefined, before = 0): boolean {
  if (at === undefined) return incident.state === "open";
  const until = incident.until_ns ?? incident.closed_ns;
  return incident.since_ns / NS <= at && (until === null || at - before <= until / NS);
}

/** The link that a culprit names by either of its ends, else its switch, else its host. */
export function placeOf(graph: FabricGraph, culprit: Culprit): Focus | undefined {
  const words = (names: readonly string[]) => names.map(encodeURIComponent).join("/");
  const { host, device, port } = culprit;
  const ends: string[] = [];
  if (culprit.switch && culprit.switch_port)
    ends.push(words([culprit.switch, culprit.switch, culprit.switch_port]));
  if (host && device) ends.push(words([host, device, port ?? "1"]));
  for (const end of ends) {
    const link = graph.linkAt.get(end);
    if (link !== undefined) return { kind: "link", index: link };
  }
  for (const name of [culprit.switch, host]) {
    const node = graph.nodeOf.get(name ?? "");
    if (node !== undefined) return { kind: "node", index: node };
  }
  return undefined;
}

/** `lossy link` of `lossy_link`. */
export function causeWords(cause: string): string {
  return cause.replaceAll("_", " ");
}

/** Those at fault at a moment that have a place in this fabric: the one asked for, then the costliest. */
export function marksOf(
  graph: FabricGraph,
  incidents: readonly IncidentShort[],
  at: number | undefined,
  { before = 0, asked = "" } = {},
): Mark[] {
  return incidents
    .filter((incident) => isAt(incident, at, before))
    .sort(
      (one, other) =>
        Number(other.id === asked) - Number(one.id === asked) || other.gpu_hours - one.gpu_hours,
    )
    .flatMap((incident) => {
      const focus = placeOf(graph, incident.culprit);
      const { id, cause, summary } = incident;
      return focus ? [{ incident: id, cause: causeWords(cause), focus, summary }] : [];
    });
}
