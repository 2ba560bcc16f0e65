/** What flows over the drawing of a fabric: a line that grows along links from one node to another. */
import type { FabricGraph } from "./fabric-graph";
import { pointOf } from "./fabric-hit";
import type { Box, Layout, Wire } from "./fabric-layout";
import type { Palette } from "./fabric-paint";
import { HOST_HEIGHT } from "./fabric-plan";
import type { View } from "./fabric-view";

export interface Flow {
  readonly part: "wait" | "transfer";
  /** The name of the node at which it begins. */
  readonly from: string;
  /** In order, from there on. */
  readonly links: readonly number[];
  /** How strong it is at its end, of the strongest. */
  readonly share: number;
  /** How far it has come, 0 to 1. */
  readonly progress: number;
  /** Beside its head; empty: none. */
  readonly label: string;
}

export type Point = readonly [number, number];

/** Heads with a word; of more, words would lie on each other. */
const WORDS_MOST = 8;
const WIDTH_LEAST = 2;
const WIDTH_MORE = 4;
const FONT = "600 11px system-ui, sans-serif";
const BEND_STEPS = 8;

/** Where a way leads through the drawing, in its units: along a link's own line, or from its cell. */
export function pointsOf(
  graph: FabricGraph,
  layout: Layout,
  flow: Pick<Flow, "from" | "links">,
  wireOf: (link: number) => Wire | undefined,
  cellOf: (link: number) => Box | undefined,
): Point[] {
  const points: Point[] = [];
  let node = graph.nodeOf.get(flow.from) ?? -1;
  for (const index of flow.links) {
    const link = graph.links[index];
    if (!link) return [];
    const isUp = link.low.node === node;
    const wire = wireOf(index);
    const cell = cellOf(index);
    const piece = wire ? alongWire(wire) : cell ? fromCell(cell, layout, link.high.node) : [];
    points.push(...(isUp ? piece : piece.reverse()));
    node = isUp ? link.high.node : link.low.node;
  }
  return points;
}

/** From the lower end to the upper one. */
function alongWire(wire: Wire): Point[] {
  if (wire.bend === 0)
    return [
      [wire.x1, wire.y1],
      [wire.x2, wire.y2],
    ];
  return Array.from({ length: BEND_STEPS + 1 }, (_, step) => pointOf(wire, step / BEND_STEPS));
}

/** A host's cell lies under its leaf. */
function fromCell(cell: Box, layout: Layout, leaf: number): Point[] {
  const x = cell.x + cell.w / 2;
  const above = layout.boxes[leaf]?.[0];
  const start: Point = [x, cell.y + cell.h / 2];
  return above ? [start, [x, above.y + above.h]] : [start];
}

/** The part of a line up to a share of its length, and the point at which that ends. */
export function upTo(points: readonly Point[], share: number): Point[] {
  const lengths = points.slice(1).map((point, place) => apart(points[place] ?? point, point));
  let room = lengths.reduce((sum, one) => sum + one, 0) * Math.min(1, Math.max(0, share));
  const [first] = points;
  const reached: Point[] = first ? [first] : [];
  for (const [place, length] of lengths.entries()) {
    const [from, to] = [points[place], points[place + 1]];
    if (!from || !to) break;
    if (length > room) {
      const along = length ? room / length : 0;
      reached.push([from[0] + (to[0] - from[0]) * along, from[1] + (to[1] - from[1]) * along]);
      break;
    }
    reached.push(to);
    room -= length;
  }
  return reached;
}

const apart = (one: Point, other: Point) => Math.hypot(one[0] - other[0], one[1] - other[1]);

/** `ways`: the points of each flow, in units of the drawing; `open`: where lines may be seen. */
export function drawFlows(
  context: CanvasRenderingContext2D,
  flows: readonly Flow[],
  ways: readonly (readonly Point[])[],
  view: View,
  palette: Palette,
  open: Path2D,
): void {
  const onScreen = ([x, y]: Point): Point => [x * view.scale + view.x, y * view.scale + view.y];
  context.lineCap = context.lineJoin = "round";
  // The weakest first: the strongest lie above.
  const order = [...flows.keys()].sort(
    (one, other) => (flows[one]?.share ?? 0) - (flows[other]?.share ?? 0),
  );
  // One word for each place that is reached: that of the strongest.
  const strongest = new Map(order.map((place) => [flows[place]?.links.at(-1), place]));
  const words = new Set([...strongest.values()].slice(-WORDS_MOST));
  for (const place of order) {
    const flow = flows[place];
    const points = (ways[place] ?? []).map(onScreen);
    if (!flow || points.length < 2) continue;
    const colour = flow.part === "wait" ? palette.wait : palette.transfer;
    const width = WIDTH_LEAST + WIDTH_MORE * flow.share;
    context.save();
    context.clip(open, "evenodd");
    // The way that is still to come is seen, too, so that a drawing that stands still tells all of it.
    stroke(context, points, colour, 1, 0.35);
    const reached = upTo(points, flow.progress);
    stroke(context, reached, palette.card, width + 2, 0.8);
    stroke(context, reached, colour, width, 1);
    context.restore();
    const head = reached.at(-1);
    if (head && flow.progress > 0) drawHead(context, head, width, colour, palette);
    // At its end below the host, whose name would be covered.
    const below = flow.progress < 1 ? 9 : HOST_HEIGHT * view.scale + 6;
    if (head && flow.label && words.has(place)) drawWord(context, flow.label, head, below, palette);
  }
  context.globalAlpha = 1;
}

function stroke(
  context: CanvasRenderingContext2D,
  points: readonly Point[],
  style: string,
  width: number,
  alpha: number,
): void {
  context.globalAlpha = alpha;
  context.strokeStyle = style;
  context.lineWidth = width;
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

function drawHead(
  context: CanvasRenderingContext2D,
  [x, y]: Point,
  width: number,
  colour: string,
  palette: Palette,
): void {
  context.globalAlpha = 1;
  context.fillStyle = colour;
  context.strokeStyle = palette.card;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x, y, width / 2 + 3, 0, 2 * Math.PI);
  context.fill();
  context.stroke();
}

function drawWord(
  context: CanvasRenderingContext2D,
  text: string,
  [x, y]: Point,
  below: number,
  palette: Palette,
): void {
  context.globalAlpha = 1;
  context.font = FONT;
  const width = context.measureText(text).width + 8;
  context.fillStyle = palette.card;
  context.beginPath();
  context.roundRect(x - width / 2, y + below, width, 16, 4);
  context.fill();
  context.fillStyle = palette.ink;
  context.textAlign = "center";
  context.fillText(text, x, y + below + 12);
  context.textAlign = "left";
}
