/** What is cabled to what: `/v1/topology` and `/v1/links`. Times are RFC 3339, rates bits a second. */
import { address, ask, Failure, send } from "./client";

export interface TopologyNode {
  readonly name: string;
  readonly kind: "host" | "switch" | "unknown";
  /** From 0, where hosts hang. Null: a host, or a switch from which no leaf can be reached. */
  readonly tier: number | null;
  readonly rail: number | null;
  readonly pod: number | null;
  readonly attributes: Readonly<Record<string, string>>;
}

export interface TopologyPort {
  /** `host/device/port`; of a switch `switch/switch/port`. A slash inside a name is %2F. */
  readonly id: string;
  readonly host: string;
  readonly device: string;
  readonly port: string;
  readonly state: string | null;
  readonly rate_bits_per_second: number | null;
  readonly rail: number | null;
  readonly netdev: string | null;
  readonly link: string | null;
}

export interface TopologyLink {
  /** `a|b`. */
  readonly id: string;
  readonly a: string;
  readonly b: string;
  readonly since: string;
  readonly last_seen: string;
  readonly seen_from: readonly string[];
  readonly methods: readonly string[];
  readonly is_up: boolean | null;
  readonly rate_bits_per_second: number | null;
}

export interface TopologyConflict {
  readonly port: string;
  readonly names: string;
  readonly named_back: string;
}

export interface Topology {
  readonly at: string;
  readonly nodes: readonly TopologyNode[];
  readonly ports: readonly TopologyPort[];
  readonly links: readonly TopologyLink[];
  readonly conflicts: readonly TopologyConflict[];
}

/** What a port named as its neighbour, and from when to when. */
export interface Cabling {
  readonly method: string;
  readonly peer_name: string;
  readonly peer_port: string;
  readonly since: string;
  readonly last_seen: string;
  readonly until: string | null;
}

let kept: { readonly url: string; readonly tag: string; readonly topology: Topology } | undefined;

/**
 * As it was cabled at a moment (unix seconds), or now. While nothing changes the same object comes back:
 * a large fabric is neither sent nor read twice.
 */
export async function askTopology(at?: number, abort?: AbortSignal): Promise<Topology> {
  const url = address("/v1/topology", { at: at?.toFixed(3) });
  const known = kept?.url === url ? kept : undefined;
  const init: RequestInit = known ? { headers: { "If-None-Match": known.tag } } : {};
  if (abort) init.signal = abort;
  try {
    const response = await send(url, init);
    const topology = (await response.json()) as Topology;
    kept = { url, tag: response.headers.get("ETag") ?? "", topology };
    return topology;
  } catch (error) {
    if (known && error instanceof Failure && error.status === 304) return known.topology;
    throw error;
  }
}

/** What was cabled at a port before, the latest first. */
export async function askCablings(port: string, abort?: AbortSignal): Promise<readonly Cabling[]> {
  const answer = await ask<{ history: readonly Cabling[] | null }>("/v1/links", { port }, abort);
  return answer.history ?? [];
}
