/** Which links are a job's, or a rail's: the others are drawn faint. Pure. */
import type { FabricGraph } from "./fabric-graph";

/**
 * Links that traffic between these hosts can take: up from them to the lowest switches that join them,
 * over every equal way. `devices` are the NICs that the job uses on a host; none known: all of them.
 */
export function linksBetween(
  graph: FabricGraph,
  hosts: ReadonlyMap<string, ReadonlySet<string>>,
): Set<number> {
  const lit = new Set<number>();
  let front = new Map<number, Set<number>>();
  for (const [name, devices] of hosts) {
    const node = graph.nodes[graph.nodeOf.get(name) ?? -1];
    for (const index of node?.links ?? []) {
      const link = graph.links[index];
      if (!link || link.low.node !== node?.index) continue;
      if (devices.size && !devices.has(link.low.device)) continue;
      lit.add(index);
      const below = front.get(link.high.node) ?? new Set<number>();
      front.set(link.high.node, below.add(node.index));
    }
  }
  const all = new Set([...front.values()].flatMap((below) => [...below]));
  // A tier higher each round, until one switch reaches all: tiers are few.
  for (let tier = 0; tier < graph.tiers; tier++) {
    if ([...front.values()].some((below) => below.size === all.size)) break;
    front = above(graph, front, lit);
  }
  return lit;
}

/** The switches above, with the hosts that each reaches; links between are lit where they join some. */
function above(
  graph: FabricGraph,
  front: ReadonlyMap<number, ReadonlySet<number>>,
  lit: Set<number>,
): Map<number, Set<number>> {
  const next = new Map<number, Set<number>>();
  const used = new Map<number, { links: number[]; from: Set<number> }>();
  for (const [lower, below] of front)
    for (const index of graph.nodes[lower]?.links ?? []) {
      const link = graph.links[index];
      if (!link) continue;
      const [low, high] = [link.low.node, link.high.node];
      const isFlat = graph.nodes[low]?.tier === graph.nodes[high]?.tier;
      const upper = low === lower ? high : isFlat ? low : undefined;
      if (upper === undefined) continue;
      const reached = next.get(upper) ?? new Set<number>();
      for (const host of below) reached.add(host);
      next.set(upper, reached);
      const ways = used.get(upper) ?? { links: [], from: new Set<number>() };
      ways.links.push(index);
      ways.from.add(lower);
      used.set(upper, ways);
    }
  for (const [upper, { links, from }] of used)
    if (from.size > 1 || front.has(upper)) for (const index of links) lit.add(index);
  return next;
}

/** Links of one rail: its NICs', and what its leaves have above them. */
export function linksOfRail(graph: FabricGraph, rail: number): Set<number> {
  return new Set(graph.links.filter((link) => link.rail === rail).map((link) => link.index));
}
