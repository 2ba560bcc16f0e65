/** Fabrics that are not there, for tests: fat trees, rails, a dragonfly, one switch. */
import type { Topology, TopologyLink, TopologyNode, TopologyPort } from "../api/topology";

export interface MadeSpec {
  readonly kind: "rail" | "fat_tree" | "dragonfly" | "single";
  readonly hosts: number;
  readonly nics: number;
  readonly hostsPerLeaf: number;
  readonly spines?: number;
  /** Cables from a leaf to each spine. */
  readonly parallel?: number;
  /** Leaves of a block with its own spines, and a plane of cores above; without: two tiers. */
  readonly block?: number;
}

class Made {
  readonly nodes: TopologyNode[] = [];
  readonly ports: TopologyPort[] = [];
  readonly links: TopologyLink[] = [];
  private readonly used = new Map<string, number>();

  node(name: string, kind: "host" | "switch", place: Partial<TopologyNode> = {}): string {
    this.nodes.push({ name, kind, tier: null, rail: null, pod: null, attributes: {}, ...place });
    return name;
  }

  private port(
    host: string,
    device: string,
    port: string,
    link: string,
    rail: number | null,
  ): void {
    const id = `${host}/${device}/${port}`;
    const known = { state: null, rate_bits_per_second: 400e9, netdev: null };
    this.ports.push({ id, host, device, port, rail, link, ...known });
  }

  private next(name: string): string {
    const number = this.used.get(name) ?? 0;
    this.used.set(name, number + 1);
    return `Ethernet${number * 4}`;
  }

  /** A cable between two switches, or (`nic`) from a host's NIC to a switch. */
  cable(low: string, high: string, nic?: number): void {
    const [device, port] = nic === undefined ? [low, this.next(low)] : [`mlx5_${nic}`, "1"];
    const above = this.next(high);
    const ends = [`${low}/${device}/${port}`, `${high}/${high}/${above}`].sort();
    const id = ends.join("|");
    this.port(low, device, port, id, nic ?? null);
    this.port(high, high, above, id, null);
    this.links.push({
      id,
      a: ends[0] ?? "",
      b: ends[1] ?? "",
      since: "2026-11-15T09:00:10Z",
      last_seen: "2026-11-15T09:19:40Z",
      seen_from: [],
      methods: ["lldp"],
      is_up: null,
      rate_bits_per_second: 400e9,
    });
  }
}

const hostName = (number: number) => `node${String(number).padStart(4, "0")}`;

export function madeTopology(spec: MadeSpec): Topology {
  const made = new Made();
  for (let host = 0; host < spec.hosts; host++) made.node(hostName(host), "host");
  const leaves = spec.kind === "dragonfly" ? addRouters(made, spec) : addTree(made, spec);
  for (let host = 0; host < spec.hosts; host++)
    for (let nic = 0; nic < spec.nics; nic++) {
      const pod = Math.floor(host / spec.hostsPerLeaf);
      const leaf = spec.kind === "rail" ? pod * spec.nics + nic : pod;
      made.cable(hostName(host), leaves[leaf] ?? "", nic);
    }
  const { nodes, ports, links } = made;
  return { at: "2026-11-15T09:20:00Z", nodes, ports, links, conflicts: [] };
}

function addTree(made: Made, spec: MadeSpec): string[] {
  const pods = spec.kind === "single" ? 1 : Math.ceil(spec.hosts / spec.hostsPerLeaf);
  const leaves: string[] = [];
  for (let pod = 0; pod < pods; pod++)
    if (spec.kind === "rail")
      for (let rail = 0; rail < spec.nics; rail++)
        leaves.push(made.node(`leaf-pod${pod}-rail${rail}`, "switch", { tier: 0, rail, pod }));
    else leaves.push(made.node(`leaf-${pod}`, "switch", { tier: 0 }));
  const block = spec.block ?? leaves.length;
  const spines = spec.kind === "single" ? 0 : (spec.spines ?? 4);
  const cores: string[] = [];
  if (spec.block)
    for (let plane = 0; plane < spines; plane++)
      cores.push(made.node(`core-plane${plane}-0`, "switch", { tier: 2 }));
  for (let first = 0; first < leaves.length; first += block)
    for (let spine = 0; spine < spines; spine++) {
      const label = spec.block ? `spine-block${first / block}-${spine}` : `spine-${spine}`;
      const name = made.node(label, "switch", { tier: 1 });
      for (const leaf of leaves.slice(first, first + block))
        for (let n = 0; n < (spec.parallel ?? 1); n++) made.cable(leaf, name);
      if (spec.block) made.cable(name, cores[spine] ?? "");
    }
  return leaves;
}

/** Groups of four routers, each cabled to the others; a cable between every two groups. */
function addRouters(made: Made, spec: MadeSpec): string[] {
  const routers: string[] = [];
  const groups = Math.ceil(spec.hosts / spec.hostsPerLeaf / 4);
  for (let number = 0; number < groups * 4; number++)
    routers.push(made.node(`router-group${number >> 2}-${number & 3}`, "switch", { tier: 0 }));
  for (let one = 0; one < routers.length; one++)
    for (let other = one + 1; other < routers.length; other++)
      if (one >> 2 === other >> 2 || ((one ^ other) & 3) === 0)
        made.cable(routers[one] ?? "", routers[other] ?? "");
  return routers;
}
