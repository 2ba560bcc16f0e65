/**
 * Hosts: how each stands (`/v1/health`), what it is (`/v1/hosts`), who holds it (`…/hold`).
 * Times whose name ends in `_ns` are unix nanoseconds, the others RFC 3339.
 */
import { ask, askAll, Failure, type Page, submit } from "./client";
import type { IncidentShort } from "./incidents";
import type { Job, Rank } from "./jobs";
import { instant, type Labels, selector } from "./promql";

export type HealthState = "healthy" | "suspect" | "degraded" | "draining" | "out";

export interface HostHealth {
  readonly host: string;
  readonly state: HealthState;
  /** 0 to 1: what a job that begins there now would risk. */
  readonly risk: number;
  /** 0 to 1: how much more often than usual it was in trouble within four weeks. */
  readonly lemon: number;
  readonly since_ns?: number;
  readonly reasons?: readonly string[];
}

export interface Fleet {
  /** What of it cannot be trusted now, in sentences. */
  readonly stale: readonly string[];
  readonly items: readonly HostHealth[];
}

export const askFleet = (abort: AbortSignal) => ask<Fleet>("/v1/health", {}, abort);

export interface Host {
  readonly host: string;
  readonly cluster: string | null;
  readonly agent: string | null;
  readonly agent_version: string | null;
  readonly first_seen: string;
  readonly last_seen: string;
  readonly attributes: Labels;
}

/** Hosts whose names and places are asked for; more have their health and nothing else. */
export const HOSTS_MAX = 20_000;

export async function askHosts(abort: AbortSignal): Promise<ReadonlyMap<string, Host>> {
  const { items } = await askAll<Host>("/v1/hosts", {}, HOSTS_MAX, abort);
  return new Map(items.map((host) => [host.host, host]));
}

/** Names of the hosts with a NIC on a rail. */
export async function askRail(rail: number, abort: AbortSignal): Promise<ReadonlySet<string>> {
  const { items } = await askAll<Host>("/v1/hosts", { rail }, HOSTS_MAX, abort);
  return new Set(items.map((host) => host.host));
}

/** Hosts whose jobs are asked for at once: their names stand in the question. */
export const JOBS_ASKED_MAX = 100;

/**
 * Ranks of each job on each of these hosts, from their steps or, where there are none, from their
 * collectives: a rank has another number in every communicator, so that only those of one are
 * counted together. Hosts that were not asked for are not in it.
 */
export async function askJobsOn(
  hosts: readonly string[],
  time: number,
  abort: AbortSignal,
): Promise<ReadonlyMap<string, ReadonlyMap<string, number>>> {
  const asked = hosts.slice(0, JOBS_ASKED_MAX);
  const found = new Map(asked.map((host): [string, Map<string, number>] => [host, new Map()]));
  if (!asked.length) return found;
  const names = asked.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const on = `{host=~${JSON.stringify(names.join("|"))}, job!=""}`;
  const counted = (metric: string, by: string) =>
    `count by (${by}) (group by (${by}, rank) (${metric}${on}))`;
  const query =
    `${counted("fabric_step_steps_total", "host, job")} or max by (host, job) ` +
    `(${counted("fabric_collective_operations_total", "host, job, communicator")})`;
  for (const { labels, values } of await instant(query, time, abort)) {
    found.get(labels.host ?? "")?.set(labels.job ?? "", values[0] ?? 0);
  }
  return found;
}

// --- one host --------------------------------------------------------------------------------------

/** One piece of evidence against a host or a part of it. */
export interface Reason {
  /** Empty: a finding without an incident. */
  readonly incident: string;
  readonly cause: string;
  readonly reason: string;
  /** What of the host is accused: `link mlx5_0/1`, `gpu 2`; empty: all of it. */
  readonly about: string;
  readonly text: string;
  readonly confidence: number;
  readonly weight: number;
  readonly risk: number;
  readonly is_open: boolean;
  readonly since_ns: number;
  readonly until_ns: number | null;
  readonly half_life_seconds: number;
}

export interface Hold {
  readonly id: string;
  readonly state: HealthState;
  readonly reason: string;
  readonly by: string;
  readonly since_ns: number;
  readonly until_ns: number | null;
  readonly ended_ns: number | null;
  readonly ended_by: string;
}

export interface Part {
  /** `node3/mlx5_0`, `node3/mlx5_0/1`, `node3/2`. */
  readonly name: string;
  readonly state: HealthState;
  readonly risk: number;
  readonly rail: number | null;
  readonly since_ns: number | null;
  readonly reasons: readonly Reason[];
}

/** A thing went from one state to another. */
export interface HealthTurn {
  readonly kind: "host" | "device" | "link" | "gpu" | "switch";
  readonly name: string;
  readonly time_ns: number;
  readonly state: HealthState;
  readonly was: HealthState;
  readonly risk: number;
  readonly why: string;
}

export interface HostHealthWhole {
  readonly host: string;
  readonly state: HealthState;
  readonly since_ns: number | null;
  readonly risk: number;
  readonly lemon: number;
  readonly is_lemon: boolean;
  readonly short: readonly string[];
  readonly last_seen_ns: number;
  readonly silent_since_ns: number | null;
  readonly stale: readonly string[];
  readonly reasons: readonly Reason[];
  readonly devices: readonly Part[];
  readonly links: readonly Part[];
  readonly gpus: readonly Part[];
  readonly holds: readonly Hold[];
  readonly history: readonly HealthTurn[];
}

const path = (host: string, ...rest: string[]) =>
  ["/v1/hosts", encodeURIComponent(host), ...rest].join("/");

export const askHealth = (host: string, abort: AbortSignal) =>
  ask<HostHealthWhole>(path(host, "health"), {}, abort);

export interface Device {
  readonly kind: "gpu" | "rdma" | "nic" | string;
  readonly device: string;
  readonly driver: string | null;
  readonly firmware: string | null;
  readonly last_seen: string;
  readonly attributes: Labels;
}

export interface HostDetail extends Host {
  readonly devices: readonly Device[];
  readonly batches_missing: number | null;
  readonly last_sequence: number | null;
}

export interface Port {
  readonly id: string;
  readonly device: string;
  readonly port: string;
  readonly link_layer: string | null;
  readonly state: string | null;
  readonly rate_bits_per_second: number | null;
  readonly netdev: string | null;
  readonly last_seen: string;
}

export interface HostParts {
  readonly host: HostDetail;
  readonly ports: readonly Port[];
  /** The far end of the cable at each port, by the port's id. */
  readonly cables: ReadonlyMap<string, string>;
}

export async function askParts(host: string, abort: AbortSignal): Promise<HostParts> {
  const [detail, ports, links] = await Promise.all([
    ask<HostDetail>(path(host), {}, abort),
    ask<Page<Port>>("/v1/ports", { host, limit: 1000 }, abort),
    askCables(host, abort),
  ]);
  const cables = new Map(links.flatMap(({ a, b }) => [[a, b] as const, [b, a] as const]));
  return { host: detail, ports: ports.items, cables };
}

interface Cable {
  readonly a: string;
  readonly b: string;
}

async function askCables(host: string, abort: AbortSignal): Promise<readonly Cable[]> {
  try {
    return (await ask<Page<Cable>>("/v1/links", { host, limit: 1000 }, abort)).items;
  } catch (error) {
    // A host that no cable is known of is no name of the topology.
    if (error instanceof Failure && error.status === 404) return [];
    throw error;
  }
}

/** The newest incidents whose culprit is on this host, seen within the time or later. */
export async function askIncidentsOf(
  host: string,
  since: number,
  abort: AbortSignal,
): Promise<readonly IncidentShort[]> {
  const page = await ask<Page<IncidentShort>>("/v1/incidents", { host, since, limit: 100 }, abort);
  return page.items;
}

export interface JobOnHost {
  readonly job: Job;
  /** Of this host only; empty where the job is too large to ask for all of its ranks. */
  readonly ranks: readonly Rank[];
}

const JOBS_SHOWN = 10;
const RANKS_MAX = 2_000;

/** Jobs that run on a host, or ran there last, with the ranks that it holds. */
export async function askJobsOf(host: string, abort: AbortSignal): Promise<readonly JobOnHost[]> {
  const { items } = await ask<Page<Job>>("/v1/jobs", { host, limit: 1000 }, abort);
  const newest = [...items]
    .sort(
      (a, b) =>
        Number(b.state === "running") - Number(a.state === "running") ||
        Date.parse(b.last_seen) - Date.parse(a.last_seen),
    )
    .slice(0, JOBS_SHOWN);
  return Promise.all(
    newest.map(async (job) => {
      if ((job.ranks ?? 0) > RANKS_MAX) return { job, ranks: [] };
      const all = await askAll<Rank>(
        `/v1/jobs/${encodeURIComponent(job.id)}/ranks`,
        {},
        RANKS_MAX,
        abort,
      );
      return { job, ranks: all.items.filter((rank) => rank.host === host) };
    }),
  );
}

export interface Finding {
  readonly check: string;
  readonly severity: "info" | "warning" | "critical";
  readonly device: string;
  readonly title: string;
  readonly read: readonly {
    readonly device: string;
    readonly setting: string;
    readonly value: string;
    readonly origin: string;
  }[];
  readonly expected: string;
  readonly why: string;
  readonly source: string;
  readonly fix: string;
  readonly cost: string;
}

export interface Audit {
  readonly hosts: number;
  readonly items: readonly Finding[];
  readonly next: string | null;
}

export const askAudit = (host: string, abort: AbortSignal) =>
  ask<Audit>("/v1/audit", { host, limit: 100 }, abort);

export interface HostEvent {
  readonly id: string;
  readonly kind: string;
  readonly time_ns: number;
  readonly labels: Labels;
  readonly message: string;
  readonly attributes: Labels;
}

export const EVENTS_SHOWN = 200;

export const askEvents = (host: string, from: number, to: number, abort: AbortSignal) =>
  ask<Page<HostEvent>>("/v1/events", { host, from, to, limit: EVENTS_SHOWN }, abort);

/** `{host="…"}`, with what else a series must have. */
export const onHost = (host: string, more: Labels = {}) => selector({ host, ...more });

// --- holds -----------------------------------------------------------------------------------------

export interface HoldAsked {
  readonly state: "draining" | "out";
  readonly reason: string;
  readonly by: string;
  /** From now; none: until a person ends it. */
  readonly hours?: number;
}

export async function hold(host: string, asked: HoldAsked): Promise<void> {
  await submit("PUT", path(host, "hold"), asked);
}

export async function release(host: string, by: string): Promise<void> {
  await submit("DELETE", `${path(host, "hold")}?${new URLSearchParams({ by })}`);
}
