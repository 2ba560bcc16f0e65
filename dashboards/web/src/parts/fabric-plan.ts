/** What all steps of a fabric's layout share: who belongs together, and the drawing so far. Pure. */
import { type FabricGraph, type FabricLink, type FabricNode, natural } from "./fabric-graph";

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
}

/** A line for one link, or for several between the same two nodes. */
export interface Wire {
  readonly links: readonly number[];
  readonly x1: number;
  readonly y1: number;
  readonly x2: number;
  readonly y2: number;
  /** How far its middle is above the straight line: nodes of one tier stand side by side. */
  readonly bend: number;
}

export interface Cell extends Box {
  readonly link: number;
}

export interface Group extends Box {
  readonly label: string;
}

export type Form = "lines" | "cells";

/** A cell's width, and its least height: in a wide fabric they are higher than wide. */
export const CELL = 10;
export const CELL_HEIGHT_MOST = 40;
export const BAR_HEIGHT = 12;
export const GROUP_GAP = 5;
export const POD_GAP = 16;
export const HOST_STEP = 84;
export const HOST_HEIGHT = 24;
export const SWITCH_STEP = 156;
export const SWITCH_FILL = 0.82;
export const SWITCH_HEIGHT = 24;
export const SWITCH_STEP_SMALL = 4;
/** More lines between hosts and leaves cross each other too often to follow one. */
export const HOST_LINES_MAX = 64;
/** More pairs of switches than this are drawn as cells unless the reader wants lines. */
export const SWITCH_LINES_MAX = 1500;
/** Space between two tiers, of the width: flatter lines cannot be distinguished. */
export const TIER_GAP_LEAST = 0.11;
export const TIER_GAP_MOST = 0.3;
export const CELL_TIER_GAP = 24;

export interface Pod {
  readonly label: string;
  readonly leaves: FabricNode[];
  readonly hosts: FabricNode[];
}

export interface Plan {
  readonly graph: FabricGraph;
  readonly form: Form;
  readonly aspect: number;
  readonly pods: readonly Pod[];
  readonly areHostsCells: boolean;
  readonly tiers: number;
  /** Links that a host has to one leaf: 1 where each rail has its leaf, all its NICs in a fat tree. */
  readonly perHost: number;
  readonly boxes: Box[][];
  /** Nodes that have a box of their own; the others are seen by their cells. */
  readonly boxed: Set<number>;
  readonly cells: Cell[];
  readonly groups: Group[];
  cellHeight: number;
}

/** Leaves that serve the same hosts, and these hosts: a pod of rails, or a rack's leaf alone. */
export function podsOf(graph: FabricGraph, drawn: readonly FabricNode[]): Pod[] {
  const pods = new Map<string, Pod>();
  const podOf = new Map<number, Pod>();
  const leaves = drawn.filter((node) => node.tier === 0);
  leaves.sort(
    (one, other) =>
      (one.pod ?? -1) - (other.pod ?? -1) ||
      (one.rail ?? -1) - (other.rail ?? -1) ||
      natural(one.name, other.name),
  );
  for (const leaf of leaves) {
    const key = leaf.pod === null ? `leaf ${leaf.index}` : `pod ${leaf.pod}`;
    const label = leaf.pod === null ? "" : `Pod ${leaf.pod}`;
    const pod = pods.get(key) ?? { label, leaves: [], hosts: [] };
    pods.set(key, pod);
    pod.leaves.push(leaf);
    podOf.set(leaf.index, pod);
  }
  const elsewhere: Pod = { label: "On no leaf", leaves: [], hosts: [] };
  for (const host of drawn.filter((node) => !node.isSwitch)) {
    const counts = new Map<Pod, number>();
    for (const link of linksOf(graph, host)) {
      const pod = podOf.get(otherEnd(link, host));
      if (pod) counts.set(pod, (counts.get(pod) ?? 0) + 1);
    }
    let [home, most] = [elsewhere, 0];
    for (const [pod, links] of counts) if (links > most) [home, most] = [pod, links];
    home.hosts.push(host);
  }
  return [...pods.values(), ...(elsewhere.hosts.length ? [elsewhere] : [])];
}

/** Links that a host has to one leaf, at most. */
export function perHostOf(graph: FabricGraph): number {
  let most = 1;
  const counts = new Map<number, number>();
  for (const { low, high } of graph.links) {
    if (graph.nodes[low.node]?.isSwitch || !graph.nodes[high.node]?.isSwitch) continue;
    const key = low.node * graph.nodes.length + high.node;
    const links = (counts.get(key) ?? 0) + 1;
    counts.set(key, links);
    most = Math.max(most, links);
  }
  return most;
}

export function linksOf(graph: FabricGraph, node: FabricNode): FabricLink[] {
  return node.links.flatMap((index) => graph.links[index] ?? []);
}

export function otherEnd(link: FabricLink, node: FabricNode): number {
  return link.a.node === node.index ? link.b.node : link.a.node;
}

/** Space between the leaves of a pod; none where each has one column: cells would have uneven seams. */
export function leafGap(columns: number): number {
  return columns === 1 ? 0 : 3;
}

export function addBox(plan: Plan, node: FabricNode, box: Box): void {
  plan.boxes[node.index]?.push(box);
  plan.boxed.add(node.index);
}
