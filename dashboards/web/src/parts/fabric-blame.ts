/**
 * The excess of slow steps over the fabric: from the ranks that caused it to those that waited, over the
 * links that join them, as far as it has grown at a moment of the step. Pure.
 *
 * It is waiting that is drawn, not bytes: of several equal ways one stands for all.
 */
import type { Rank } from "../api/jobs";
import type { RankCompared, RankRow, StepsCompared } from "../api/steps";
import { count } from "../format";
import type { Flow } from "./fabric-flows";
import { endName, type FabricGraph, type Focus } from "./fabric-graph";
import { causeWords, type Mark, placeOf } from "./fabric-marks";
import { type Arc, type DrawnRank, seconds } from "./step-compare-words";

/** Where ranks run: host, and the NIC where the service knows it. */
export interface RankPlace {
  readonly host: string;
  readonly device: string;
}

/** Hosts are of the steps themselves; the NIC is that of today, if the rank still runs there. */
export function placesOf(
  compared: readonly RankCompared[],
  ranks: readonly Rank[],
): Map<number, RankPlace> {
  const nics = new Map(ranks.map((one) => [one.rank, one]));
  return new Map(
    compared.map(({ rank, host }) => {
      const now = nics.get(rank);
      return [rank, { host, device: now?.host === host ? (now.device ?? "") : "" }];
    }),
  );
}

/** What one host held another up by: the largest of the ranks' excesses stands for all of them. */
export interface BlameWay {
  readonly part: Arc["part"];
  readonly from: string;
  readonly to: string;
  /** The arc with the largest excess. */
  readonly arc: Arc;
  /** Ranks on `to` that were held up. */
  readonly ranks: number;
  /** In order, from the culprit on; empty: both are on one host, or no cable joins them. */
  readonly links: readonly number[];
  readonly isOneHost: boolean;
  /** Whether it begins at a rank that a verdict accuses. The others passed on what they got. */
  readonly isAccused: boolean;
}

/** From whom a verdict accuses first, then between hosts, then the longest. */
export function waysOf(
  graph: FabricGraph,
  arcs: readonly Arc[],
  places: ReadonlyMap<number, RankPlace>,
  accused: ReadonlySet<number>,
): BlameWay[] {
  const found = new Map<string, { arcs: Arc[]; from: RankPlace; to: RankPlace }>();
  for (const arc of arcs) {
    const [from, to] = [places.get(arc.source), places.get(arc.target)];
    if (!from?.host || !to?.host) continue;
    const key = `${arc.part} ${from.host} ${to.host}`;
    const same = found.get(key);
    if (same) same.arcs.push(arc);
    else found.set(key, { arcs: [arc], from, to });
  }
  return [...found.values()]
    .flatMap(({ arcs: group, from, to }) => {
      const [arc] = [...group].sort((one, other) => other.excess_ns - one.excess_ns);
      if (!arc) return [];
      const isOneHost = from.host === to.host;
      const links = isOneHost ? [] : wayBetween(graph, from, to);
      const ranks = new Set(group.map(({ target }) => target)).size;
      const isAccused = group.some(({ source }) => accused.has(source));
      const { part } = arc;
      return [{ part, from: from.host, to: to.host, arc, ranks, links, isOneHost, isAccused }];
    })
    .sort(
      (one, other) =>
        Number(other.isAccused) - Number(one.isAccused) ||
        Number(one.isOneHost) - Number(other.isOneHost) ||
        other.arc.excess_ns - one.arc.excess_ns,
    );
}

/** Ranks that verdicts accuse. */
export function accusedRanks(data: StepsCompared): Set<number> {
  const named = data.accused.flatMap(({ ranks }) => ranks);
  return new Set([...named, ...data.ranks.filter((one) => one.is_accused).map(({ rank }) => rank)]);
}

/** One of the shortest ways, by the ranks' own NICs where they are known; empty: there is none. */
export function wayBetween(graph: FabricGraph, from: RankPlace, to: RankPlace): number[] {
  const [start, end] = [graph.nodeOf.get(from.host), graph.nodeOf.get(to.host)];
  if (start === undefined || end === undefined) return [];
  const last = new Set(linksOfNic(graph, end, to.device));
  const cameBy = new Map<number, number>();
  let front = [start];
  const seen = new Set(front);
  while (front.length && !seen.has(end)) {
    const next: number[] = [];
    for (const node of front) {
      const links =
        node === start ? linksOfNic(graph, start, from.device) : (graph.nodes[node]?.links ?? []);
      for (const index of links) {
        const link = graph.links[index];
        if (!link) continue;
        const other = link.a.node === node ? link.b.node : link.a.node;
        // A host passes nothing on.
        const isPassage = other === end ? last.has(index) : graph.nodes[other]?.isSwitch;
        if (!isPassage || seen.has(other)) continue;
        seen.add(other);
        cameBy.set(other, index);
        next.push(other);
      }
    }
    front = next;
  }
  return backFrom(graph, cameBy, start, end);
}

function backFrom(
  graph: FabricGraph,
  cameBy: ReadonlyMap<number, number>,
  start: number,
  end: number,
): number[] {
  const way: number[] = [];
  for (let node = end; node !== start; ) {
    const index = cameBy.get(node);
    const link = index === undefined ? undefined : graph.links[index];
    if (!link) return [];
    way.unshift(link.index);
    node = link.a.node === node ? link.b.node : link.a.node;
  }
  return way;
}

/** The links of a host's NIC; of all of its NICs where that one is not known, or has no cable. */
function linksOfNic(graph: FabricGraph, node: number, device: string): readonly number[] {
  const links = graph.nodes[node]?.links ?? [];
  const own = links.filter((index) => {
    const link = graph.links[index];
    const end = link?.a.node === node ? link.a : link?.b;
    return end?.device === device;
  });
  return own.length ? own : links;
}

// --- in time --------------------------------------------------------------------------------------

/** How long a rank has spent in a part of the step up to a moment of it, in nanoseconds. */
export function spentIn(row: RankRow | undefined, part: string, at_ns: number): number {
  if (!row) return 0;
  return row.spans
    .filter((span) => span.part === part)
    .reduce((sum, span) => sum + Math.max(0, Math.min(at_ns, span.end_ns) - span.start_ns), 0);
}

/**
 * What of an arc's excess stands at the end of the step: all of it as it was; without a culprit, what the
 * replay leaves of it.
 */
export function leftOf(arc: Arc, one: DrawnRank | undefined, asItWas: RankRow | undefined): number {
  if (!one || one.slow === asItWas) return arc.excess_ns;
  const whole = Number.POSITIVE_INFINITY;
  const normal = spentIn(one.normal, arc.part, whole);
  const was = spentIn(asItWas, arc.part, whole) - normal;
  const is = spentIn(one.slow, arc.part, whole) - normal;
  return was <= 0 ? 0 : arc.excess_ns * Math.min(1, Math.max(0, is / was));
}

/** How much of it has passed at a moment: as its rank's waiting, or transfers, go by. 0 to 1. */
export function passed(
  arc: Arc,
  one: DrawnRank | undefined,
  at_ns: number,
  end_ns: number,
): number {
  const whole = spentIn(one?.slow, arc.part, Number.POSITIVE_INFINITY);
  if (whole <= 0) return Math.min(1, at_ns / end_ns);
  return spentIn(one?.slow, arc.part, at_ns) / whole;
}

/** A way as it is at a moment. */
export interface BlameNow {
  readonly way: BlameWay;
  /** Nanoseconds so far, and at the end of the step. */
  readonly now_ns: number;
  readonly end_ns: number;
}

export function blameAt(
  ways: readonly BlameWay[],
  drawn: readonly DrawnRank[],
  data: StepsCompared,
  at_ns: number,
  end_ns: number,
): BlameNow[] {
  const asItWas = new Map(data.rows_slow.map((row) => [row.rank, row]));
  return ways.map((way) => {
    const { arc } = way;
    const one = drawn[arc.to];
    const left = leftOf(arc, one, asItWas.get(arc.target));
    return { way, now_ns: left * passed(arc, one, at_ns, end_ns), end_ns: left };
  });
}

// --- drawn and told -------------------------------------------------------------------------------

/** Flows for the drawing; those that stay on one host have no line. */
export function flowsOf(blame: readonly BlameNow[]): Flow[] {
  const largest = Math.max(1, ...blame.map(({ way }) => way.arc.excess_ns));
  return blame
    .filter(({ way, end_ns }) => way.links.length && end_ns > 0)
    .map(({ way, now_ns, end_ns }) => ({
      part: way.part,
      from: way.from,
      links: way.links,
      share: end_ns / largest,
      progress: now_ns / end_ns,
      label: now_ns > 0 ? `+${seconds(now_ns)}` : "",
    }));
}

/** Those that verdicts accuse, where the fabric has a place for them. */
export function accusedMarks(graph: FabricGraph, data: StepsCompared): Mark[] {
  return data.accused.flatMap(({ cause, culprit, summary }) => {
    const focus: Focus | undefined = placeOf(graph, culprit);
    return focus ? [{ incident: "", cause: causeWords(cause), focus, summary }] : [];
  });
}

/** `node3 → node5: +21 ms waiting of 8 ranks, over leaf-1, spine-0, leaf-2`. */
export function blameWords(graph: FabricGraph, { way, now_ns }: BlameNow): string {
  const what = way.part === "wait" ? "waiting" : "longer transfers";
  const amount = now_ns > 0 ? `+${seconds(now_ns)}` : seconds(0);
  return `${amount} ${what} of ${count(way.ranks, "rank")}${overWords(graph, way)}`;
}

function overWords(graph: FabricGraph, way: BlameWay): string {
  if (way.isOneHost) return ", within the host";
  if (!way.links.length) return "; no known cable joins them";
  const passed: string[] = [];
  let node = graph.nodeOf.get(way.from);
  for (const index of way.links) {
    const link = graph.links[index];
    if (!link) continue;
    const isFromA = link.a.node === node;
    if (!passed.length) passed.push(endName(isFromA ? link.a : link.b));
    node = isFromA ? link.b.node : link.a.node;
    const name = graph.nodes[node]?.name;
    if (name && name !== way.to) passed.push(name);
  }
  return `, over ${passed.join(", ")}`;
}

/**
 * The whole at the end of the step, for readers who do not see the drawing. It names where it comes from
 * only where a verdict does: who held up most may have been held up itself.
 */
export function wholeWords(blame: readonly BlameNow[]): string {
  const left = blame.filter(({ end_ns }) => end_ns > 0);
  if (!left.length) return "No excess is left.";
  const from = left.filter(({ way }) => way.isAccused);
  const told = from.length ? from : left;
  const most = seconds(Math.max(...told.map(({ end_ns }) => end_ns)));
  const hosts = count(new Set(told.map(({ way }) => way.to)).size, "host");
  return from.length
    ? `From ${from[0]?.way.from}, which a verdict accuses, to ranks on ${hosts}: up to ${most} longer in a step.`
    : `No verdict accuses a part of it. Ranks on ${hosts} were held up, by up to ${most} in a step.`;
}
