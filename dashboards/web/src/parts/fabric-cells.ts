/** Links as cells under and above their switches. Pure. */
import type { FabricNode } from "./fabric-graph";
import {
  BAR_HEIGHT,
  type Box,
  CELL,
  CELL_TIER_GAP,
  GROUP_GAP,
  leafGap,
  linksOf,
  otherEnd,
  type Plan,
  POD_GAP,
  type Pod,
  TIER_GAP_LEAST,
} from "./fabric-plan";

/** Places of a switch's cells: the link in each, or undefined where a cable is missing. */
export type Slots = readonly (number | undefined)[];

/** Links to hosts under a leaf: those of its pod's n-th host are in the same place under each leaf. */
export function hostSlots(plan: Plan, pod: Pod, leaf: FabricNode): Slots {
  const { graph } = plan;
  const each = plan.perHost;
  const slots: (number | undefined)[] = [];
  const seen = new Set<number>();
  const ours = new Map<number, number[]>();
  for (const link of linksOf(graph, leaf)) {
    const other = otherEnd(link, leaf);
    if (!graph.nodes[other]?.isSwitch) ours.set(other, [...(ours.get(other) ?? []), link.index]);
  }
  for (const [place, host] of pod.hosts.entries()) {
    const links = ours.get(host.index) ?? [];
    seen.add(host.index);
    for (let n = 0; n < each; n++) slots[place * each + n] = links[n];
  }
  // A cable from another pod's host, by mistake or not, is drawn after the pod's own.
  for (const [host, links] of ours) if (!seen.has(host)) slots.push(...links);
  return slots;
}

/** Links between switches above each switch, so that the same upper switch is in the same place. */
export function stripsOf(plan: Plan): Map<number, Slots> {
  const { graph } = plan;
  const strips = new Map<number, (number | undefined)[]>();
  const sets = joined(plan);
  const widths = new Map<number, number>();
  const up = new Map<number, Map<number, number[]>>();
  for (const link of graph.links) {
    const [low, high] = [link.low.node, link.high.node];
    if (!graph.nodes[low]?.isSwitch) continue;
    const isFlat = graph.nodes[low]?.tier === graph.nodes[high]?.tier;
    // Among equals neither is above: each shows the link.
    for (const [one, other] of isFlat
      ? [[low, high] as const, [high, low] as const]
      : [[low, high] as const]) {
      const rows = up.get(one) ?? new Map<number, number[]>();
      const links = rows.get(other) ?? [];
      links.push(link.index);
      up.set(one, rows.set(other, links));
      widths.set(other, Math.max(widths.get(other) ?? 0, links.length));
    }
  }
  for (const [low, rows] of up) {
    const slots: (number | undefined)[] = [];
    const uppers = [...(sets.get(low) ?? rows.keys())].sort((one, other) => one - other);
    for (const upper of uppers) {
      const links = rows.get(upper) ?? [];
      const width = widths.get(upper) ?? links.length;
      for (let n = 0; n < width; n++) slots.push(links[n]);
    }
    strips.set(low, slots);
  }
  return strips;
}

/** For each lower switch, all upper switches of the part of the fabric that they span together. */
function joined(plan: Plan): Map<number, Set<number>> {
  const { graph } = plan;
  const found = new Map<number, Set<number>>();
  const members = new Map<Set<number>, number[]>();
  for (const { low, high } of graph.links) {
    const [one, other] = [graph.nodes[low.node], graph.nodes[high.node]];
    if (!one?.isSwitch || !other || one.tier === other.tier) continue;
    const set = found.get(low.node) ?? new Set<number>();
    set.add(high.node);
    found.set(low.node, set);
  }
  const setOfUpper = new Map<number, Set<number>>();
  for (const [low, own] of found) {
    let set = own;
    members.set(set, [low]);
    for (const upper of own) {
      const known = setOfUpper.get(upper);
      if (known && known !== set) {
        const [large, small] = known.size >= set.size ? [known, set] : [set, known];
        for (const node of small) large.add(node);
        const moved = members.get(small) ?? [];
        members.get(large)?.push(...moved);
        members.delete(small);
        for (const node of moved) found.set(node, large);
        for (const node of small) setOfUpper.set(node, large);
        set = large;
      } else setOfUpper.set(upper, set);
    }
  }
  return found;
}

export function addCells(plan: Plan, slots: Slots, box: Box, columns: number): void {
  const size = box.w / columns;
  slots.forEach((link, place) => {
    if (link === undefined) return;
    const x = box.x + (place % columns) * size;
    const h = plan.cellHeight;
    const y = box.y + Math.floor(place / columns) * h;
    plan.cells.push({ link, x, y, w: size, h });
    const { low } = plan.graph.links[link] ?? {};
    const host = low && plan.graph.nodes[low.node];
    if (host && !host.isSwitch) plan.boxes[host.index]?.push({ x, y, w: size, h });
  });
}

/** How many cells stand side by side under a leaf, so that cells are as large as can be. */
export function columnsFor(plan: Plan, strips: Map<number, Slots> | undefined): number {
  const each = plan.perHost;
  const most = Math.max(1, ...plan.pods.map((pod) => pod.hosts.length)) * each;
  const longest = strips ? Math.max(0, ...[...strips.values()].map((slots) => slots.length)) : 0;
  let best = { columns: 1, scale: 0 };
  for (let columns = 1; columns <= Math.max(most, longest); columns++) {
    // A host's cells stay together: in whole rows, or in a row of whole hosts.
    if (each % columns && columns % each) continue;
    const width = columnsWidth(plan, columns);
    const above = strips
      ? Math.ceil(longest / columns) * CELL + (plan.tiers - 1) * CELL_TIER_GAP
      : (plan.tiers - 1) * (TIER_GAP_LEAST * width + BAR_HEIGHT);
    const height = Math.ceil(most / columns) * CELL + BAR_HEIGHT + above;
    const scale = Math.min(plan.aspect / width, 1 / height);
    if (scale > best.scale) best = { columns, scale };
  }
  return best.columns;
}

function columnsWidth(plan: Plan, columns: number): number {
  const gaps = plan.pods.reduce(
    (sum, pod) => sum + gapAfter(pod) + pod.leaves.length * leafGap(columns),
    0,
  );
  const leaves = plan.pods.reduce((sum, pod) => sum + Math.max(1, pod.leaves.length), 0);
  return gaps + leaves * columns * CELL;
}

export function gapAfter(pod: Pod): number {
  return pod.leaves.length > 1 ? POD_GAP : GROUP_GAP;
}
