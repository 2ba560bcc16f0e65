/**
 * Where each host's cell lies: blocks of cells, one a group (leaf, pod or cluster), that flow like
 * words on a line. Pure. Lengths are CSS pixels; hosts are numbered as their groups list them.
 */
import type { Topology } from "../api/topology";
import { NAMES } from "./host-words";

export interface Group {
  readonly name: string;
  readonly hosts: readonly string[];
}

export interface Block {
  readonly name: string;
  readonly x: number;
  /** Of the label's top; cells begin LABEL below it, or here where there is one block only. */
  readonly y: number;
  readonly cells: number;
  readonly columns: number;
  readonly first: number;
  readonly count: number;
}

export interface Plan {
  /** From one cell to the next. */
  readonly pitch: number;
  readonly height: number;
  readonly blocks: readonly Block[];
}

const PITCHES = [46, 34, 26, 22, 18, 15, 12, 10, 8, 7, 6];
/** Cells of this size have room for the end of a host's name. */
export const NAMED_FROM = 46;
const LABEL = 18;
const GAP = 14;
/** Below this a block is too narrow for its name. */
const BLOCK_WIDTH_MIN = 76;

/** The largest cells with which everything is at most so high; the smallest where nothing fits. */
export function planCells(
  groups: readonly { readonly name: string; readonly hosts: { readonly length: number } }[],
  width: number,
  heightMax: number,
): Plan {
  let plan: Plan = { pitch: 0, height: 0, blocks: [] };
  for (const pitch of PITCHES) {
    plan = flow(groups, width, pitch);
    if (plan.height <= heightMax) break;
  }
  return plan;
}

function flow(
  groups: readonly { readonly name: string; readonly hosts: { readonly length: number } }[],
  width: number,
  pitch: number,
): Plan {
  const most = Math.max(1, Math.floor(width / pitch));
  const label = groups.length > 1 ? LABEL : 0;
  const blocks: Block[] = [];
  let [x, y, rowHeight, first] = [0, 0, 0, 0];
  for (const { name, hosts } of groups) {
    const square = Math.ceil(Math.sqrt(hosts.length * 1.6));
    const columns =
      groups.length > 1
        ? Math.min(most, Math.max(square, Math.ceil(BLOCK_WIDTH_MIN / pitch)))
        : most;
    if (x > 0 && x + columns * pitch > width) {
      x = 0;
      y += rowHeight + GAP;
      rowHeight = 0;
    }
    const height = label + Math.ceil(hosts.length / columns) * pitch;
    blocks.push({ name, x, y, cells: y + label, columns, first, count: hosts.length });
    rowHeight = Math.max(rowHeight, height);
    x += columns * pitch + GAP;
    first += hosts.length;
  }
  return { pitch, height: y + rowHeight, blocks };
}

/** The upper left corner of a host's cell. */
export function cellAt(plan: Plan, index: number): { readonly x: number; readonly y: number } {
  const block = plan.blocks.find((one) => index >= one.first && index < one.first + one.count);
  if (!block) return { x: 0, y: 0 };
  const place = index - block.first;
  return {
    x: block.x + (place % block.columns) * plan.pitch,
    y: block.cells + Math.floor(place / block.columns) * plan.pitch,
  };
}

/** The host at a point; undefined: none. */
export function hostAt(plan: Plan, x: number, y: number): number | undefined {
  for (const block of plan.blocks) {
    const column = Math.floor((x - block.x) / plan.pitch);
    const row = Math.floor((y - block.cells) / plan.pitch);
    if (column < 0 || row < 0 || column >= block.columns) continue;
    const place = row * block.columns + column;
    if (place < block.count) return block.first + place;
  }
  return undefined;
}

/** Where an arrow key leads: the next in order, or the nearest above or below. */
export function step(plan: Plan, index: number, key: string): number {
  const total = plan.blocks.reduce((sum, block) => sum + block.count, 0);
  if (key === "ArrowLeft") return Math.max(0, index - 1);
  if (key === "ArrowRight") return Math.min(total - 1, index + 1);
  if (key === "Home") return 0;
  if (key === "End") return total - 1;
  const from = cellAt(plan, index);
  const sign = key === "ArrowUp" ? -1 : 1;
  let best = index;
  let least = Number.POSITIVE_INFINITY;
  for (let other = 0; other < total; other++) {
    const cell = cellAt(plan, other);
    const down = (cell.y - from.y) * sign;
    if (down <= 0) continue;
    // The next row wins over a straight line.
    const far = down * 8 + Math.abs(cell.x - from.x);
    if (far < least) {
      least = far;
      best = other;
    }
  }
  return best;
}

/** What usually distinguishes names: the number at their end, or their last letters. */
export function endsOf(names: readonly string[], most = 5): readonly string[] {
  return names.map((name) => {
    const digits = /\d+$/.exec(name)?.[0];
    return (digits ?? name).slice(-most);
  });
}

// --- groups ----------------------------------------------------------------------------------------

/** Hosts by what they hang on: the pod of their leaves, or the leaf where there is one; else by cluster. */
export function groupsOf(
  hosts: readonly string[],
  clusterOf: (host: string) => string,
  topology: Topology | undefined,
): Group[] {
  const places = topology ? placesOf(topology) : new Map<string, string>();
  const found = new Map<string, string[]>();
  for (const host of hosts) {
    const name = [clusterOf(host), places.get(host)].filter(Boolean).join(" · ");
    const group = found.get(name);
    if (group) group.push(host);
    else found.set(name, [host]);
  }
  const clusters = new Set(hosts.map(clusterOf));
  return [...found]
    .map(([name, members]) => ({
      // One cluster needs no name of its own beside its pods.
      name: shorten(name, clusters),
      hosts: members.sort(NAMES.compare),
    }))
    .sort((a, b) => Number(!a.name) - Number(!b.name) || NAMES.compare(a.name, b.name))
    .map(({ name, hosts: members }) => ({ name: name || "elsewhere", hosts: members }));
}

function shorten(name: string, clusters: ReadonlySet<string>): string {
  const [only] = clusters.size === 1 ? clusters : [];
  return only && name.startsWith(`${only} · `) ? name.slice(only.length + 3) : name;
}

function placesOf(topology: Topology): ReadonlyMap<string, string> {
  const nodes = new Map(topology.nodes.map((node) => [node.name, node]));
  const hostOf = new Map(topology.ports.map((port) => [port.id, port.host]));
  const leaves = new Map<string, Set<string>>();
  for (const { a, b } of topology.links)
    for (const [own, other] of [
      [hostOf.get(a), hostOf.get(b)],
      [hostOf.get(b), hostOf.get(a)],
    ])
      if (own && other && nodes.get(own)?.kind === "host" && nodes.get(other)?.kind === "switch")
        leaves.set(own, (leaves.get(own) ?? new Set()).add(other));
  return new Map([...leaves].map(([host, switches]) => [host, placeOf(switches, nodes)]));
}

function placeOf(
  switches: ReadonlySet<string>,
  nodes: ReadonlyMap<string, { readonly pod: number | null }>,
): string {
  const pods = new Set([...switches].map((name) => nodes.get(name)?.pod ?? null));
  const [pod] = pods;
  if (switches.size > 1 && pods.size === 1 && pod !== null && pod !== undefined)
    return `pod ${pod}`;
  return [...switches].sort()[0] ?? "";
}

/** Every rail that a NIC is on, in order. */
export function railsOf(topology: Topology | undefined): readonly number[] {
  const rails = topology?.ports.flatMap(({ rail }) => (rail === null ? [] : [rail])) ?? [];
  return [...new Set(rails)].sort((a, b) => a - b);
}
