/**
 * A topology as the fabric view works with it: nodes and links by number, each link with its lower end
 * (host, or the switch nearer to hosts) and its upper end. Pure.
 */
import type { Topology, TopologyLink, TopologyNode, TopologyPort } from "../api/topology";

export interface FabricNode {
  readonly index: number;
  readonly name: string;
  readonly isSwitch: boolean;
  /** -1: a host. A switch of unknown tier is with the leaves. */
  readonly tier: number;
  readonly rail: number | null;
  readonly pod: number | null;
  readonly attributes: Readonly<Record<string, string>>;
  /** Numbers of its links. */
  readonly links: readonly number[];
}

export interface FabricEnd {
  readonly id: string;
  readonly node: number;
  readonly host: string;
  readonly device: string;
  readonly port: string;
}

export interface FabricLink {
  readonly index: number;
  readonly id: string;
  /** As the topology names them: directions count from `a` to `b`. */
  readonly a: FabricEnd;
  readonly b: FabricEnd;
  readonly low: FabricEnd;
  readonly high: FabricEnd;
  /** Of the NIC at its lower end, or of the leaf. */
  readonly rail: number | null;
  readonly raw: TopologyLink;
}

export interface FabricGraph {
  readonly nodes: readonly FabricNode[];
  readonly links: readonly FabricLink[];
  readonly nodeOf: ReadonlyMap<string, number>;
  readonly linkOf: ReadonlyMap<string, number>;
  /** The link at a port, by the port's id. */
  readonly linkAt: ReadonlyMap<string, number>;
  /** All rails, in order. */
  readonly rails: readonly number[];
  /** How many tiers of switches there are. */
  readonly tiers: number;
}

const collator = new Intl.Collator("en", { numeric: true });
/** `mlx5_9` before `mlx5_10`. */
export const natural = (one: string, other: string): number => collator.compare(one, other);

export function graphOf(topology: Topology): FabricGraph {
  const raw = [...topology.nodes].sort((one, other) => natural(one.name, other.name));
  const nodeOf = new Map(raw.map((node, index) => [node.name, index]));
  const ports = new Map(topology.ports.map((port) => [port.id, port]));
  const links: FabricLink[] = [];
  const linksOf: number[][] = raw.map(() => []);
  const linkOf = new Map<string, number>();
  const linkAt = new Map<string, number>();
  for (const link of topology.links) {
    const [a, b] = [endOf(link.a, ports, nodeOf), endOf(link.b, ports, nodeOf)];
    if (!a || !b) continue;
    const index = links.length;
    const isAbove = rank(raw[a.node]) > rank(raw[b.node]);
    const [low, high] = isAbove ? [b, a] : [a, b];
    const rail = ports.get(low.id)?.rail ?? raw[low.node]?.rail ?? null;
    links.push({ index, id: link.id, a, b, low, high, rail, raw: link });
    linkOf.set(link.id, index);
    for (const end of [a, b]) {
      linkAt.set(end.id, index);
      linksOf[end.node]?.push(index);
    }
  }
  const nodes = raw.map((node, index) => ({
    index,
    name: node.name,
    isSwitch: node.kind === "switch",
    tier: rank(node),
    rail: node.rail,
    pod: node.pod,
    attributes: node.attributes,
    links: linksOf[index] ?? [],
  }));
  const rails = [...new Set(links.map((link) => link.rail).filter((rail) => rail !== null))];
  rails.sort((one, other) => one - other);
  const tiers = nodes.reduce((most, node) => Math.max(most, node.tier + 1), 0);
  return { nodes, links, nodeOf, linkOf, linkAt, rails, tiers };
}

function rank(node: TopologyNode | undefined): number {
  return node?.kind === "switch" ? (node.tier ?? 0) : -1;
}

function endOf(
  id: string,
  ports: ReadonlyMap<string, TopologyPort>,
  nodeOf: ReadonlyMap<string, number>,
): FabricEnd | undefined {
  const known = ports.get(id);
  const [host, device, port] = known
    ? [known.host, known.device, known.port]
    : id.split("/").map(unescaped);
  const node = nodeOf.get(host ?? "");
  if (host === undefined || device === undefined || port === undefined || node === undefined)
    return undefined;
  return { id, node, host, device, port };
}

function unescaped(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

/** `node3 mlx5_0`, `leaf-1 Ethernet4`: a port is named only where the device has another. */
export function endName(end: FabricEnd): string {
  if (end.host === end.device) return `${end.host} ${end.port}`;
  return `${end.host} ${end.device}${end.port === "1" ? "" : ` port ${end.port}`}`;
}

export function linkName(link: FabricLink): string {
  return `${endName(link.low)} – ${endName(link.high)}`;
}

/** What is looked at: a node or a link. */
export type Focus =
  | { readonly kind: "node"; readonly index: number }
  | { readonly kind: "link"; readonly index: number };

/**
 * What a word of an address means: a link's id, a port (`host/device/port`, `switch/port`), a NIC
 * (`host/device`) or a node's name.
 */
export function focusOf(graph: FabricGraph, word: string): Focus | undefined {
  if (!word) return undefined;
  const node = graph.nodeOf.get(word);
  if (node !== undefined) return { kind: "node", index: node };
  const link = graph.linkOf.get(word) ?? graph.linkAt.get(word) ?? linkOfPort(graph, word);
  return link === undefined ? undefined : { kind: "link", index: link };
}

function linkOfPort(graph: FabricGraph, word: string): number | undefined {
  const [host = "", ...rest] = word.split(/[/ ]/);
  const node = graph.nodes[graph.nodeOf.get(host) ?? -1];
  const wanted = rest.map(unescaped).join("/");
  if (!node || !wanted) return undefined;
  return node.links.find((index) => {
    const link = graph.links[index];
    return [link?.a, link?.b].some(
      (end) =>
        end?.node === node.index &&
        [end.port, end.device, `${end.device}/${end.port}`].includes(wanted),
    );
  });
}

/** The word that `focusOf` reads back. */
export function focusWord(graph: FabricGraph, focus: Focus): string {
  if (focus.kind === "node") return graph.nodes[focus.index]?.name ?? "";
  return graph.links[focus.index]?.id ?? "";
}

export interface Found {
  readonly word: string;
  readonly label: string;
  readonly hint: string;
}

/** Nodes and ports whose name has all words of what was typed, nodes first; at most `most`. */
export function search(graph: FabricGraph, text: string, most: number): Found[] {
  const words = text
    .toLowerCase()
    .split(/[\s/]+/)
    .filter(Boolean);
  if (!words.length) return [];
  const isFound = (name: string) => words.every((word) => name.includes(word));
  const found: Found[] = [];
  for (const node of graph.nodes) {
    if (found.length >= most) return found;
    if (node.links.length && isFound(node.name.toLowerCase()))
      found.push({ word: node.name, label: node.name, hint: kindName(graph, node) });
  }
  for (const link of graph.links)
    for (const [end, other] of [
      [link.low, link.high],
      [link.high, link.low],
    ] as const) {
      if (found.length >= most) return found;
      const name = endName(end);
      // Words that the node's own name has found already would repeat all of its ports.
      if (isFound(name.toLowerCase()) && !isFound(end.host.toLowerCase()))
        found.push({ word: end.id, label: name, hint: `to ${endName(other)}` });
    }
  return found;
}

const TIER_NAMES = ["Leaf", "Spine", "Core"];

/** `Host`, `Leaf of rail 2`, `Spine`; in a fabric of one tier only `Switch`. */
export function kindName(graph: FabricGraph, node: FabricNode): string {
  if (!node.isSwitch) return "Host";
  if (graph.tiers < 2) return "Switch";
  const name = TIER_NAMES[node.tier] ?? `Switch of tier ${node.tier}`;
  return node.rail === null ? name : `${name} of rail ${node.rail}`;
}
