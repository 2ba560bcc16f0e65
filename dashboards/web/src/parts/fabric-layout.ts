/**
 * Where everything of a fabric is drawn: spines above, leaves below them, hosts at the bottom. Pure, and
 * the same topology gives the same drawing.
 *
 * A link between switches is a line. A host's link is a line where there are few; in a larger fabric it
 * is a cell under its leaf, in the same place under each leaf of a pod: a host that is bad on all rails
 * is seen as well as a leaf that is bad for all hosts, and 8,192 of them stay distinguishable. With
 * `form: "cells"` links between switches are cells, too, above the lower switch: a row is a spine.
 * Units are those of the drawing; the canvas scales them.
 */
import { addCells, columnsFor, gapAfter, hostSlots, type Slots, stripsOf } from "./fabric-cells";
import type { FabricGraph, FabricLink, FabricNode } from "./fabric-graph";
import {
  addBox,
  BAR_HEIGHT,
  type Box,
  CELL,
  CELL_HEIGHT_MOST,
  CELL_TIER_GAP,
  type Cell,
  type Form,
  type Group,
  HOST_HEIGHT,
  HOST_LINES_MAX,
  HOST_STEP,
  leafGap,
  linksOf,
  otherEnd,
  type Plan,
  type Pod,
  perHostOf,
  podsOf,
  SWITCH_FILL,
  SWITCH_HEIGHT,
  SWITCH_LINES_MAX,
  SWITCH_STEP,
  SWITCH_STEP_SMALL,
  TIER_GAP_LEAST,
  TIER_GAP_MOST,
  type Wire,
} from "./fabric-plan";
import { type Wires, wiresOf } from "./fabric-wires";

export { type Box, CELL, type Cell, type Form, type Group, type Wire } from "./fabric-plan";

export interface Layout extends Wires {
  readonly form: Form;
  readonly width: number;
  readonly height: number;
  /** Where a node is, by its number; a host among cells has a box under each of its leaves. */
  readonly boxes: readonly (readonly Box[])[];
  /** Nodes that have a box of their own; the others are seen by their cells. */
  readonly boxed: ReadonlySet<number>;
  readonly cells: readonly Cell[];
  readonly groups: readonly Group[];
  readonly areHostsCells: boolean;
  /** Nodes without any known cable: they are not drawn. */
  readonly loose: readonly number[];
}

/** What suits a fabric of this size. */
export function formFor(graph: FabricGraph): Form {
  const pairs = new Set<number>();
  for (const { low, high } of graph.links)
    if (graph.nodes[low.node]?.isSwitch) pairs.add(low.node * graph.nodes.length + high.node);
  return pairs.size > SWITCH_LINES_MAX ? "cells" : "lines";
}

/** Whether hosts' links are cells: in that form, or because there are too many for lines. */
export function areHostsCells(graph: FabricGraph, form: Form): boolean {
  const isOfHost = ({ low }: FabricLink) => !graph.nodes[low.node]?.isSwitch;
  return form === "cells" || graph.links.filter(isOfHost).length > HOST_LINES_MAX;
}

/** `aspect`: width by height of the space that there is. */
export function layoutOf(graph: FabricGraph, form: Form, aspect: number): Layout {
  const drawn = graph.nodes.filter((node) => node.links.length);
  const plan: Plan = {
    graph,
    form,
    aspect,
    pods: podsOf(graph, drawn),
    areHostsCells: areHostsCells(graph, form),
    tiers: Math.max(1, ...drawn.map((node) => node.tier + 1)),
    perHost: perHostOf(graph),
    boxes: graph.nodes.map(() => []),
    boxed: new Set(),
    cells: [],
    groups: [],
    cellHeight: CELL,
  };
  const strips = form === "cells" ? stripsOf(plan) : undefined;
  const columns = plan.areHostsCells ? columnsFor(plan, strips) : 1;
  const width = placeColumns(plan, columns);
  const height = placeRows(plan, columns, width, strips);
  const { bundles, strands, strandGap } = wiresOf(plan);
  const [left, right] = bounds(plan.boxes);
  return shifted(
    {
      form,
      width: right - left,
      height,
      boxes: plan.boxes,
      boxed: plan.boxed,
      bundles,
      strands,
      strandGap,
      cells: plan.cells,
      groups: plan.groups,
      areHostsCells: plan.areHostsCells,
      loose: graph.nodes.filter((node) => !node.links.length).map((node) => node.index),
    },
    -left,
  );
}

// --- places --------------------------------------------------------------------------------------

/** Gives leaves, and hosts with lines, their place from left to right; returns the width of all. */
function placeColumns(plan: Plan, columns: number): number {
  let x = 0;
  for (const pod of plan.pods) {
    const leafStep = plan.areHostsCells ? columns * CELL + leafGap(columns) : SWITCH_STEP;
    const hostsWidth = plan.areHostsCells ? 0 : pod.hosts.length * HOST_STEP;
    const leavesWidth = pod.leaves.length * leafStep;
    const width = Math.max(hostsWidth, leavesWidth, pod.leaves.length ? 0 : HOST_STEP);
    const gap = plan.areHostsCells ? gapAfter(pod) : HOST_STEP / 2;
    const step = plan.areHostsCells ? leafStep : width / Math.max(1, pod.leaves.length);
    pod.leaves.forEach((leaf, place) => {
      const w = plan.areHostsCells ? columns * CELL : SWITCH_STEP * SWITCH_FILL;
      const left = x + place * step + (plan.areHostsCells ? 0 : (step - w) / 2);
      addBox(plan, leaf, { x: left, y: 0, w, h: barHeight(plan) });
    });
    if (!plan.areHostsCells || !pod.leaves.length) placeHosts(plan, pod, x, width);
    plan.groups.push({
      x,
      y: 0,
      w: width - (plan.areHostsCells ? leafGap(columns) : 0),
      h: 0,
      label: pod.label,
    });
    x += width + gap;
  }
  const width = Math.max(1, x);
  for (let tier = 1; tier < plan.tiers; tier++) placeTier(plan, tier, width);
  return width;
}

/** Leaves are as high as the cells below them, so that they are seen beside these. */
function barHeight(plan: Plan): number {
  return plan.areHostsCells ? Math.max(BAR_HEIGHT, plan.cellHeight) : SWITCH_HEIGHT;
}

function placeHosts(plan: Plan, pod: Pod, left: number, width: number): void {
  const step = width / Math.max(1, pod.hosts.length);
  const w = Math.min(HOST_STEP, step) * SWITCH_FILL;
  pod.hosts.forEach((host, place) => {
    const x = left + (place + 0.5) * step - w / 2;
    addBox(plan, host, { x, y: 0, w, h: HOST_HEIGHT });
  });
}

/** Switches that join lower ones stand above the middle of these, side by side. */
function placeTier(plan: Plan, tier: number, width: number): void {
  const spans = plan.graph.nodes
    .filter((node) => node.tier === tier && node.links.length)
    .map((node) => ({ node, ...spanBelow(plan, node, width) }))
    .sort((one, other) => one.from - other.from || one.node.index - other.node.index);
  let free = Number.NEGATIVE_INFINITY;
  for (let first = 0; first < spans.length; ) {
    let last = first;
    let [from, to] = [spans[first]?.from ?? 0, spans[first]?.to ?? 0];
    for (let next = spans[++last]; next && next.from < to; next = spans[++last])
      to = Math.max(to, next.to);
    const together = spans.slice(first, last).map((span) => span.node);
    const least = plan.areHostsCells ? SWITCH_STEP_SMALL : SWITCH_STEP;
    const room = Math.max(to - from, together.length * least);
    // Who needs more room than there is below moves those to the right aside.
    from = Math.max(free, (from + to - room) / 2);
    free = from + room;
    spread(plan, together, from, room);
    first = last;
  }
}

function spread(plan: Plan, nodes: readonly FabricNode[], left: number, width: number): void {
  const step = width / nodes.length;
  const w = Math.min(step, SWITCH_STEP) * SWITCH_FILL;
  const inOrder = [...nodes].sort((one, other) => one.index - other.index);
  for (const [place, node] of inOrder.entries()) {
    const x = left + (place + 0.5) * step - w / 2;
    addBox(plan, node, { x, y: 0, w, h: barHeight(plan) });
  }
}

function spanBelow(plan: Plan, node: FabricNode, width: number): { from: number; to: number } {
  let [from, to] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const link of linksOf(plan.graph, node)) {
    const other = plan.graph.nodes[otherEnd(link, node)];
    const box = plan.boxes[other?.index ?? -1]?.[0];
    if (!other?.isSwitch || other.tier >= node.tier || !box) continue;
    from = Math.min(from, box.x);
    to = Math.max(to, box.x + box.w);
  }
  return from < to ? { from, to } : { from: 0, to: width };
}

/** Gives every row its height, the highest tier on top; returns the height of all. */
function placeRows(
  plan: Plan,
  columns: number,
  width: number,
  strips: Map<number, Slots> | undefined,
): number {
  const below = plan.pods.map((pod) => pod.leaves.map((leaf) => hostSlots(plan, pod, leaf)));
  const rows = Math.max(0, ...below.flat().map((slots) => Math.ceil(slots.length / columns)));
  const tiers = Array.from({ length: plan.tiers }, (_, tier) =>
    stripsIn(plan, strips, tier, columns),
  );
  const gap = stretch(plan, width, rows, tiers);
  const bar = barHeight(plan);
  let y = 0;
  for (let tier = plan.tiers - 1; tier >= 0; tier--) {
    const row = tiers[tier] ?? [];
    const height = rowsOf(row) * plan.cellHeight;
    for (const { slots, box, across } of row)
      addCells(
        plan,
        slots,
        { ...box, y: y + height - rowsFor(slots, across) * plan.cellHeight - 1 },
        across,
      );
    y += height;
    if (!strips && tier === plan.tiers - 1) y += archHeight(plan, row, gap);
    for (const { node } of row) moveTo(plan, node.index, y, bar);
    if (tier > 0) y += bar + gap;
  }
  placeBelow(plan, below, columns, y, y + bar + (plan.areHostsCells ? 1 : gap), rows);
  return (plan.groups[0]?.y ?? y) + (plan.groups[0]?.h ?? bar);
}

/** Hosts, or their cells, below the leaves; `y` is that of the leaves. */
function placeBelow(
  plan: Plan,
  below: readonly (readonly Slots[])[],
  columns: number,
  y: number,
  hostsAt: number,
  rows: number,
): void {
  plan.pods.forEach((pod, number) => {
    pod.leaves.forEach((leaf, place) => {
      const box = plan.boxes[leaf.index]?.[0];
      const slots = below[number]?.[place];
      if (plan.areHostsCells && box && slots)
        addCells(plan, slots, { ...box, y: hostsAt }, columns);
    });
    if (!plan.areHostsCells || !pod.leaves.length)
      for (const host of pod.hosts) moveTo(plan, host.index, hostsAt, HOST_HEIGHT);
    const group = plan.groups[number];
    const height = plan.areHostsCells ? Math.max(rows * plan.cellHeight, HOST_HEIGHT) : HOST_HEIGHT;
    if (group) plan.groups[number] = { ...group, y, h: hostsAt + height - y };
  });
}

interface Strip {
  readonly node: FabricNode;
  readonly box: Box;
  readonly slots: Slots;
  /** Cells side by side. */
  readonly across: number;
}

/** The switches of a tier, each with the cells above it, if there are such. */
function stripsIn(
  plan: Plan,
  strips: Map<number, Slots> | undefined,
  tier: number,
  columns: number,
): Strip[] {
  return plan.graph.nodes.flatMap((node) => {
    const box = plan.boxes[node.index]?.[0];
    if (node.tier !== tier || !box) return [];
    const across = tier === 0 ? columns : Math.max(1, Math.floor(box.w / CELL));
    return [{ node, box, across, slots: strips?.get(node.index) ?? [] }];
  });
}

const rowsFor = (slots: Slots, across: number) => Math.ceil(slots.length / across);
const rowsOf = (row: readonly Strip[]) =>
  row.reduce((most, { slots, across }) => Math.max(most, rowsFor(slots, across)), 0);

/**
 * Fills the height that there is: with space between tiers for lines, with higher cells for the rest.
 * Returns the space between tiers.
 */
function stretch(plan: Plan, width: number, rows: number, tiers: readonly Strip[][]): number {
  const total = rows + tiers.reduce((sum, row) => sum + rowsOf(row), 0);
  const bars = plan.tiers * (plan.areHostsCells ? BAR_HEIGHT : SWITCH_HEIGHT);
  const height = width / plan.aspect - bars;
  const least = plan.areHostsCells ? 40 : 110;
  const fill = Math.min((height - rows * CELL) / plan.tiers, TIER_GAP_MOST * width);
  const gap = plan.form === "cells" ? CELL_TIER_GAP : Math.max(least, TIER_GAP_LEAST * width, fill);
  const room = (height - (plan.tiers - 1) * gap) / Math.max(1, total);
  plan.cellHeight = Math.min(CELL_HEIGHT_MOST, Math.max(CELL, room));
  return gap;
}

/** Room for lines that join switches of the highest tier with each other. */
function archHeight(plan: Plan, row: readonly Strip[], gap: number): number {
  const isFlat = row.some(({ node }) =>
    linksOf(plan.graph, node).some(
      (link) => plan.graph.nodes[otherEnd(link, node)]?.tier === node.tier,
    ),
  );
  return isFlat ? gap : 0;
}

function moveTo(plan: Plan, node: number, y: number, h: number): void {
  plan.boxes[node] = (plan.boxes[node] ?? []).map((box) => ({ ...box, y, h }));
}

// --- the whole -----------------------------------------------------------------------------------

function bounds(boxes: readonly (readonly Box[])[]): [number, number] {
  let [left, right] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const box of boxes.flat()) {
    left = Math.min(left, box.x);
    right = Math.max(right, box.x + box.w);
  }
  return left < right ? [left, right] : [0, 1];
}

/** The drawing begins at 0. */
function shifted(layout: Layout, by: number): Layout {
  if (by === 0) return layout;
  const moved = <T extends Box>(box: T): T => ({ ...box, x: box.x + by });
  const wire = (one: Wire): Wire => ({ ...one, x1: one.x1 + by, x2: one.x2 + by });
  return {
    ...layout,
    boxes: layout.boxes.map((list) => list.map(moved)),
    cells: layout.cells.map(moved),
    groups: layout.groups.map(moved),
    bundles: layout.bundles.map(wire),
    strands: layout.strands.map(wire),
  };
}

/** What a link or node takes up, for bringing it into view. */
export function placeOfLink(layout: Layout, link: number): Box | undefined {
  const cell = layout.cells.find((one) => one.link === link);
  if (cell) return cell;
  const wire = layout.strands.find((one) => one.links[0] === link);
  if (!wire) return undefined;
  const [x, y] = [Math.min(wire.x1, wire.x2), Math.min(wire.y1, wire.y2)];
  return { x, y, w: Math.abs(wire.x1 - wire.x2), h: Math.abs(wire.y1 - wire.y2) };
}

export function placeOfNode(layout: Layout, node: number): Box | undefined {
  const boxes = layout.boxes[node] ?? [];
  const first = boxes[0];
  if (!first) return undefined;
  const right = Math.max(...boxes.map((box) => box.x + box.w));
  const bottom = Math.max(...boxes.map((box) => box.y + box.h));
  const [x, y] = [Math.min(...boxes.map((box) => box.x)), Math.min(...boxes.map((box) => box.y))];
  return { x, y, w: right - x, h: bottom - y };
}
