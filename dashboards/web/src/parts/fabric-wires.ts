/** Links as lines between their nodes. Pure. */
import { HOST_STEP, type Plan, SWITCH_STEP, type Wire } from "./fabric-plan";

export interface Wires {
  /** One for each two nodes that are joined. */
  readonly bundles: readonly Wire[];
  /** One for each link that is drawn as a line. */
  readonly strands: readonly Wire[];
  /** How far apart the lines of a bundle are; 0 where none has two. */
  readonly strandGap: number;
}

export function wiresOf(plan: Plan): Wires {
  const { graph } = plan;
  const inCells = new Set(plan.cells.map((cell) => cell.link));
  const pairs = new Map<number, number[]>();
  for (const link of graph.links) {
    if (inCells.has(link.index)) continue;
    const key = link.low.node * graph.nodes.length + link.high.node;
    pairs.set(key, [...(pairs.get(key) ?? []), link.index]);
  }
  const keys = [...pairs.keys()];
  const ends = attach(plan, keys);
  const bundles: Wire[] = [];
  const strands: Wire[] = [];
  let strandGap = Number.POSITIVE_INFINITY;
  for (const key of keys) {
    const links = pairs.get(key) ?? [];
    const [low, high] = [Math.floor(key / graph.nodes.length), key % graph.nodes.length];
    const [one, other] = [ends.get(`${key} low`), ends.get(`${key} high`)];
    if (!one || !other) continue;
    const bend = bendOf(plan, low, high, one, other);
    const wire = { x1: one.x, y1: one.y, x2: other.x, y2: other.y, bend };
    bundles.push({ links, ...wire });
    links.forEach((link, place) => {
      const off = links.length > 1 ? (place + 0.5) / links.length - 0.5 : 0;
      strands.push({
        links: [link],
        ...wire,
        x1: one.x + off * one.room,
        x2: other.x + off * other.room,
      });
    });
    if (links.length > 1)
      strandGap = Math.min(strandGap, (one.room + other.room) / 2 / links.length);
  }
  return { bundles, strands, strandGap: Number.isFinite(strandGap) ? strandGap : 0 };
}

interface Attached {
  readonly x: number;
  readonly y: number;
  /** How wide the bundle may be there. */
  readonly room: number;
}

/** Where lines leave each node: side by side along its edge, in the order of where they lead. */
function attach(plan: Plan, keys: readonly number[]): Map<string, Attached> {
  const { graph, boxes } = plan;
  const size = graph.nodes.length;
  const centre = (node: number) => {
    const box = boxes[node]?.[0];
    return box ? box.x + box.w / 2 : 0;
  };
  const edges = new Map<string, { name: string; node: number; leadsTo: number; y: number }[]>();
  for (const key of keys) {
    const [low, high] = [Math.floor(key / size), key % size];
    const [below, above] = [boxes[low]?.[0], boxes[high]?.[0]];
    if (!below || !above) continue;
    const isFlat = Math.abs(below.y - above.y) < 1;
    // Hosts that are cabled to each other are joined below, switches above.
    const isBelow = isFlat && !graph.nodes[low]?.isSwitch;
    for (const [name, node, other, isTop] of [
      [`${key} low`, low, high, !isBelow],
      [`${key} high`, high, low, isFlat && !isBelow],
    ] as const) {
      const box = boxes[node]?.[0];
      const edge = `${node} ${isTop}`;
      const list = edges.get(edge) ?? [];
      list.push({
        name,
        node,
        leadsTo: centre(other),
        y: isTop ? (box?.y ?? 0) : (box?.y ?? 0) + (box?.h ?? 0),
      });
      edges.set(edge, list);
    }
  }
  const found = new Map<string, Attached>();
  for (const list of edges.values()) {
    list.sort((one, other) => one.leadsTo - other.leadsTo);
    list.forEach(({ name, node, y }, place) => {
      const box = boxes[node]?.[0] ?? { x: 0, y: 0, w: 0, h: 0 };
      const room = (box.w * 0.9) / list.length;
      found.set(name, { x: box.x + box.w * 0.05 + (place + 0.5) * room, y, room: room * 0.8 });
    });
  }
  return found;
}

function bendOf(plan: Plan, low: number, high: number, one: Attached, other: Attached): number {
  const [below, above] = [plan.boxes[low]?.[0], plan.boxes[high]?.[0]];
  if (!below || !above || Math.abs(below.y - above.y) >= 1) return 0;
  const reach = Math.min(0.4 * Math.abs(one.x - other.x), 0.9 * below.y + SWITCH_STEP / 2);
  return plan.graph.nodes[low]?.isSwitch ? reach : -Math.min(reach, HOST_STEP);
}
