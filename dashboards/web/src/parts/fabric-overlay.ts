/** What lies above the drawing and changes often: the pointer's place, what is chosen, culprits. */
import { drawFlows, type Flow, type Point, pointsOf } from "./fabric-flows";
import type { FabricGraph, Focus } from "./fabric-graph";
import { pointOf } from "./fabric-hit";
import { LABELS_MOST, placeForLabel } from "./fabric-labels";
import { type Box, type Layout, placeOfNode, type Wire } from "./fabric-layout";
import type { Mark } from "./fabric-marks";
import { type Palette, trace, wiresAt } from "./fabric-paint";
import { onScreen, type Size, type View } from "./fabric-view";

export interface Above {
  readonly graph: FabricGraph;
  readonly layout: Layout;
  readonly marks: readonly Mark[];
  readonly chosen: Focus | undefined;
  readonly hovered: Focus | undefined;
  readonly flows: readonly Flow[];
}

const HALO_LEAST = 9;
const FONT = "600 11px system-ui, sans-serif";

export function drawAbove(
  context: CanvasRenderingContext2D,
  above: Above,
  view: View,
  size: Size,
  ratio: number,
  palette: Palette,
): void {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  const width = { hovered: 1.5, chosen: 2.5 };
  for (const role of ["hovered", "chosen"] as const) {
    const focus = above[role];
    if (focus) emphasise(context, above, focus, view, palette.accent, width[role]);
  }
  if (above.flows.length) {
    const ways = above.flows.map((flow) => wayOf(above, flow));
    drawFlows(context, above.flows, ways, view, palette, besideSwitches(above, view, size));
  }
  drawMarks(context, above, view, size, palette);
}

/** All but the boxes of switches that flows lead through: they pass behind, and names stay readable. */
function besideSwitches({ graph, layout, flows }: Above, view: View, size: Size): Path2D {
  const links = new Set(flows.flatMap((flow) => flow.links));
  const nodes = new Set(
    [...links].flatMap((index) => {
      const link = graph.links[index];
      return link ? [link.a.node, link.b.node] : [];
    }),
  );
  const open = new Path2D();
  open.rect(0, 0, size.width, size.height);
  for (const node of nodes)
    if (graph.nodes[node]?.isSwitch && layout.boxed.has(node))
      for (const each of layout.boxes[node] ?? []) {
        const box = onScreen(each, view);
        open.rect(box.x, box.y, box.w, box.h);
      }
  return open;
}

/** Where each way leads, kept per layout and way: a replay draws them sixty times a second. */
const waysOf = new WeakMap<Layout, WeakMap<readonly number[], readonly Point[]>>();

function wayOf({ graph, layout }: Above, flow: Flow): readonly Point[] {
  const known = waysOf.get(layout) ?? new WeakMap<readonly number[], readonly Point[]>();
  waysOf.set(layout, known);
  let points = known.get(flow.links);
  if (!points) {
    const wireOf = (link: number) =>
      strandOf(layout, link) ??
      (cellsOf(layout, link).length ? between(layout, graph, link) : undefined);
    points = pointsOf(graph, layout, flow, wireOf, (link) => cellsOf(layout, link)[0]);
    known.set(flow.links, points);
  }
  return points;
}

function emphasise(
  context: CanvasRenderingContext2D,
  { graph, layout }: Above,
  focus: Focus,
  view: View,
  style: string,
  width: number,
): void {
  context.strokeStyle = style;
  context.lineWidth = width;
  context.beginPath();
  if (focus.kind === "link") {
    addLink(context, layout, graph, focus.index, view);
    const link = graph.links[focus.index];
    for (const node of link ? [link.a.node, link.b.node] : [])
      if (layout.boxed.has(node)) addBoxes(context, layout, node, view);
  } else {
    addBoxes(context, layout, focus.index, view);
    for (const link of graph.nodes[focus.index]?.links ?? [])
      addLink(context, layout, graph, link, view);
  }
  context.stroke();
}

function addBoxes(
  context: CanvasRenderingContext2D,
  layout: Layout,
  node: number,
  view: View,
): void {
  for (const each of layout.boxes[node] ?? []) {
    const box = onScreen(each, view);
    context.rect(box.x - 1, box.y - 1, Math.max(4, box.w + 2), Math.max(4, box.h + 2));
  }
}

/** A link's cells, or its line; beside a cell a line, so that both ends are seen. */
function addLink(
  context: CanvasRenderingContext2D,
  layout: Layout,
  graph: FabricGraph,
  link: number,
  view: View,
): void {
  const cells = cellsOf(layout, link);
  for (const cell of cells) {
    const box = onScreen(cell, view);
    context.rect(box.x - 1, box.y - 1, Math.max(4, box.w + 2), Math.max(4, box.h + 2));
  }
  const wire = strandOf(layout, link) ?? (cells.length ? between(layout, graph, link) : undefined);
  if (!wire) return;
  const [x1, y1] = [wire.x1 * view.scale + view.x, wire.y1 * view.scale + view.y];
  const [x2, y2] = [wire.x2 * view.scale + view.x, wire.y2 * view.scale + view.y];
  trace(context, { ...wire, x1, y1, x2, y2, bend: wire.bend * view.scale });
}

/** From switch to switch for a link that is a cell; a host's cell touches its leaf already. */
function between(layout: Layout, graph: FabricGraph, link: number): Wire | undefined {
  const { low, high } = graph.links[link] ?? {};
  const [one, other] = [layout.boxes[low?.node ?? -1]?.[0], layout.boxes[high?.node ?? -1]?.[0]];
  if (!low || !one || !other || !graph.nodes[low.node]?.isSwitch) return undefined;
  const middle = (box: Box) => box.x + box.w / 2;
  const bend = Math.abs(one.y - other.y) < 1 ? Math.abs(middle(one) - middle(other)) / 4 : 0;
  const y2 = bend ? other.y : other.y + other.h;
  return { links: [link], x1: middle(one), y1: one.y, x2: middle(other), y2, bend };
}

/** Where a link is, kept per layout: the hand moves often, layouts seldom change. */
const placesOf = new WeakMap<Layout, { cells: Map<number, Box[]>; strands: Map<number, Wire> }>();

function places(layout: Layout) {
  let found = placesOf.get(layout);
  if (!found) {
    found = { cells: new Map(), strands: new Map() };
    for (const cell of layout.cells)
      found.cells.set(cell.link, [...(found.cells.get(cell.link) ?? []), cell]);
    for (const wire of layout.strands) for (const link of wire.links) found.strands.set(link, wire);
    placesOf.set(layout, found);
  }
  return found;
}

function cellsOf(layout: Layout, link: number): readonly Box[] {
  return places(layout).cells.get(link) ?? [];
}

function strandOf(layout: Layout, link: number): Wire | undefined {
  return places(layout).strands.get(link);
}

// --- culprits ------------------------------------------------------------------------------------

/** A host's cells that lie together get one ring; rings around cells of others would accuse these. */
const SPREAD_MOST = 1.6;

/** Where halos are drawn: around a node or cell, or on the middle of a line. */
function halosOf({ layout }: Above, focus: Focus, view: View): readonly Box[] {
  if (focus.kind === "node") {
    const boxes = layout.boxes[focus.index] ?? [];
    const whole = placeOfNode(layout, focus.index);
    const area = boxes.reduce((sum, box) => sum + box.w * box.h, 0);
    const isTogether = whole && whole.w * whole.h < SPREAD_MOST * area;
    return (isTogether ? [whole] : boxes).map((box) => onScreen(box, view));
  }
  const cells = cellsOf(layout, focus.index);
  if (cells.length) return cells.map((cell) => onScreen(cell, view));
  const wires = wiresAt(layout, view.scale);
  const wire =
    wires === layout.strands
      ? strandOf(layout, focus.index)
      : wires.find((one) => one.links.includes(focus.index));
  if (!wire) return [];
  const [x, y] = pointOf(wire, 0.5);
  return [onScreen({ x, y, w: 0, h: 0 }, view)];
}

function drawMarks(
  context: CanvasRenderingContext2D,
  above: Above,
  view: View,
  size: Size,
  palette: Palette,
): void {
  // Names of groups stand below them; every ring must stay visible.
  const taken: Box[] = [
    ...above.layout.groups.flatMap((group) => (group.label ? [nameOf(group, view)] : [])),
    ...above.marks.flatMap(({ focus }) => halosOf(above, focus, view).map(around)),
  ];
  const places = new Map<string, { focus: Focus; causes: string[] }>();
  for (const { focus, cause } of above.marks) {
    const key = `${focus.kind} ${focus.index}`;
    const place = places.get(key) ?? { focus, causes: [] };
    if (!place.causes.includes(cause)) place.causes.push(cause);
    places.set(key, place);
  }
  for (const [number, { focus, causes }] of [...places.values()].entries()) {
    const rings = halosOf(above, focus, view).map(around);
    context.beginPath();
    for (const ring of rings) context.roundRect(ring.x, ring.y, ring.w, ring.h, 9);
    context.lineWidth = 5;
    context.strokeStyle = palette.card;
    context.stroke();
    context.lineWidth = 2.5;
    context.strokeStyle = palette.bad;
    context.stroke();
    const [first] = rings;
    if (first && number < LABELS_MOST)
      label(context, causes.join(", "), first, focus.kind === "node", size, palette, taken);
  }
}

/** Where a group's name stands, about: below its middle (`fabric-paint`). */
function nameOf(group: Box, view: View): Box {
  const box = onScreen(group, view);
  return { x: box.x + box.w / 2 - 22, y: box.y + box.h + 4, w: 44, h: 16 };
}

function around({ x, y, w, h }: Box): Box {
  const [rx, ry] = [Math.max(HALO_LEAST, w / 2 + 4), Math.max(HALO_LEAST, h / 2 + 4)];
  return { x: x + w / 2 - rx, y: y + h / 2 - ry, w: 2 * rx, h: 2 * ry };
}

/** A word beside a link's halo or below a node's, inside the canvas, and not on another word. */
function label(
  context: CanvasRenderingContext2D,
  text: string,
  ring: Box,
  isNode: boolean,
  size: Size,
  palette: Palette,
  taken: Box[],
): void {
  context.font = FONT;
  const w = context.measureText(text).width + 12;
  if (ring.x > size.width || ring.x + ring.w < 0 || ring.y > size.height || ring.y + ring.h < 0)
    return;
  const box = placeForLabel(ring, w, isNode, size, taken);
  taken.push(box);
  context.fillStyle = palette.bad;
  context.beginPath();
  context.roundRect(box.x, box.y, box.w, box.h, 9);
  context.fill();
  context.fillStyle = palette.card;
  context.textAlign = "left";
  context.fillText(text, box.x + 6, box.y + 13);
}
