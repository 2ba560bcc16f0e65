/**
 * What lies under the pointer. Pure. Everything is looked through, without a grid: of 16,384 links that
 * takes about a millisecond, and it happens once a frame at most.
 */
import type { Focus } from "./fabric-graph";
import type { Box, Layout, Wire } from "./fabric-layout";

export interface Hit {
  readonly focus: Focus;
  /** All links that are meant: those of a bundle, or one. */
  readonly links: readonly number[];
}

/** Steps of a bent line for distances: finer than a pointer can aim. */
const BEND_STEPS = 12;

/** `reach`: how far beside a line still counts; both in units of the layout. */
export function hitAt(
  layout: Layout,
  wires: readonly Wire[],
  x: number,
  y: number,
  reach: number,
): Hit | undefined {
  const cell = layout.cells.find((one) => isInside(one, x, y));
  if (cell) return { focus: { kind: "link", index: cell.link }, links: [cell.link] };
  const node = layout.boxes.findIndex((boxes) => boxes.some((box) => isInside(box, x, y)));
  if (node >= 0) return { focus: { kind: "node", index: node }, links: [] };
  let [best, nearest] = [undefined as Wire | undefined, reach];
  for (const wire of wires) {
    const away = distance(wire, x, y, nearest);
    if (away < nearest) [best, nearest] = [wire, away];
  }
  const link = best?.links[0];
  return best && link !== undefined
    ? { focus: { kind: "link", index: link }, links: best.links }
    : undefined;
}

function isInside(box: Box, x: number, y: number): boolean {
  return x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h;
}

function distance(wire: Wire, x: number, y: number, most: number): number {
  const { x1, y1, x2, y2, bend } = wire;
  if (x < Math.min(x1, x2) - most || x > Math.max(x1, x2) + most) return Number.POSITIVE_INFINITY;
  if (bend === 0) return toSegment(x, y, x1, y1, x2, y2);
  let nearest = Number.POSITIVE_INFINITY;
  let [px, py] = [x1, y1];
  for (let step = 1; step <= BEND_STEPS; step++) {
    const [nx, ny] = pointOf(wire, step / BEND_STEPS);
    nearest = Math.min(nearest, toSegment(x, y, px, py, nx, ny));
    [px, py] = [nx, ny];
  }
  return nearest;
}

function toSegment(x: number, y: number, x1: number, y1: number, x2: number, y2: number): number {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const length = dx * dx + dy * dy;
  const place = length ? Math.min(1, Math.max(0, ((x - x1) * dx + (y - y1) * dy) / length)) : 0;
  return Math.hypot(x - x1 - place * dx, y - y1 - place * dy);
}

/** The control point of a bent line: twice as far out as its middle. */
export function controlOf({ x1, y1, x2, y2, bend }: Wire): [number, number] {
  return [(x1 + x2) / 2, (y1 + y2) / 2 - 2 * bend];
}

/** A point of a line, 0 to 1 along it. */
export function pointOf(wire: Wire, along: number): [number, number] {
  const [cx, cy] = controlOf(wire);
  const [a, b, c] = [(1 - along) ** 2, 2 * along * (1 - along), along ** 2];
  return [a * wire.x1 + b * cx + c * wire.x2, a * wire.y1 + b * cy + c * wire.y2];
}
