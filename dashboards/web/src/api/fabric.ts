/** What links carry and suffer, frame by frame: `/v1/fabric/state`. */
import { ask, askAll, floats } from "./client";
import { instant, overRange, type Series, selector, stepOf } from "./promql";

export interface FabricState {
  /** Unix seconds at which each frame ends: its numbers are means over the stretch before. */
  readonly times: readonly number[];
  readonly stepSeconds: number;
  /** Ids of the links, as the topology names them: the columns of every matrix. */
  readonly links: readonly string[];
  /** Frames by links; NaN: nothing is known. Share of the link's speed, the busier direction. */
  readonly utilisation: Float32Array;
  /** From the link's end `a` to `b`, and back. */
  readonly forward: Float32Array;
  readonly backward: Float32Array;
  /** A second. */
  readonly errors: Float32Array;
  /** Places in `errorKinds`; another number: no errors. */
  readonly worstErrors: Uint8Array;
  readonly errorKinds: readonly string[];
  /** Share of time, as far as time was counted. */
  readonly pause: Float32Array;
  /** Where an end counts pause frames and no time: at most so much; NaN: no more than `pause`. */
  readonly pauseAtMost: Float32Array;
  /** 1 or 0. */
  readonly up: Float32Array;
  /** Frames that are still being asked for: nothing is known of them yet. */
  readonly awaited?: ReadonlySet<number>;
}

interface Packed {
  readonly data: string;
}

interface Raw {
  readonly from_ns: number;
  readonly step_ns: number;
  readonly frames: number;
  readonly links: readonly string[];
  readonly a_to_b: Packed;
  readonly b_to_a: Packed;
  readonly errors: Packed;
  readonly worst_errors: Packed & { readonly kinds: readonly string[] };
  readonly paused: Packed;
  readonly paused_at_most: Packed;
  readonly up: Packed;
}

const NS = 1e9;

function unpacked(raw: Raw): FabricState {
  const [forward, backward] = [floats(raw.a_to_b.data), floats(raw.b_to_a.data)];
  const utilisation = new Float32Array(forward.length);
  for (let cell = 0; cell < utilisation.length; cell++) {
    const [one, other] = [forward[cell] ?? Number.NaN, backward[cell] ?? Number.NaN];
    // One direction alone is better than nothing.
    utilisation[cell] = Number.isNaN(one) || other > one ? other : one;
  }
  const stepSeconds = raw.step_ns / NS;
  return {
    times: Array.from(
      { length: raw.frames },
      (_, frame) => raw.from_ns / NS + (frame + 1) * stepSeconds,
    ),
    stepSeconds,
    links: raw.links,
    utilisation,
    forward,
    backward,
    errors: floats(raw.errors.data),
    worstErrors: Uint8Array.from(atob(raw.worst_errors.data), (letter) => letter.charCodeAt(0)),
    errorKinds: raw.worst_errors.kinds,
    pause: floats(raw.paused.data),
    pauseAtMost: floats(raw.paused_at_most.data),
    up: floats(raw.up.data),
  };
}

/** Unix seconds. `at`: the moment of the topology whose links are meant; undefined: now. */
export async function askFabricState(
  question: { from: number; to: number; frames: number; at: number | undefined },
  abort?: AbortSignal,
): Promise<FabricState> {
  const { from, to, frames, at } = question;
  const params = { from: from.toFixed(3), to: to.toFixed(3), frames, at: at?.toFixed(3) };
  return unpacked(await ask<Raw>("/v1/fabric/state", params, abort));
}

/** A port by the labels that its counters have. */
export interface PortLabels {
  readonly host: string;
  readonly device: string;
  readonly port: string;
}

/**
 * Bits a second that go from one end of a link to the other: what the one sends, else what the other
 * receives; of an interface where there is no RDMA port.
 */
export function flowQuestion(source: PortLabels, target: PortLabels, over: string): string {
  const rates = (direction: string, { host, device, port }: PortLabels) =>
    [
      `fabric_port_${direction}_bytes_total${selector({ host, device, port })}`,
      `fabric_nic_${direction}_bytes_total${selector({ host, device })}`,
    ].map((series) => `8 * sum(rate(${series}[${over}]))`);
  return [...rates("transmit", source), ...rates("receive", target)].join(" or ");
}

const POINTS = 160;
/** Two readings of a switch that is polled every 30 s. */
const RATE_SECONDS_LEAST = 60;

export interface LinkFlow {
  /** Bits a second; undefined: neither end is measured. */
  readonly forth: Series | undefined;
  readonly back: Series | undefined;
  readonly bitsPerSecond: number | undefined;
  readonly query: string;
}

/** What went over a link in both directions, and how fast it is. */
export async function askFlow(
  one: PortLabels,
  other: PortLabels,
  range: { from: number; to: number },
  abort: AbortSignal,
): Promise<LinkFlow> {
  const step = stepOf(range.from, range.to, POINTS);
  const over = `${Math.max(RATE_SECONDS_LEAST, 2 * step)}s`;
  const query = flowQuestion(one, other, over);
  const rates = [one, other].map(
    ({ host, device, port }) =>
      `fabric_port_rate_bits_per_second${selector({ host, device, port })}`,
  );
  const [forth, back, rate] = await Promise.all([
    overRange(query, range.from, range.to, step, abort),
    overRange(flowQuestion(other, one, over), range.from, range.to, step, abort),
    instant(
      `min(max_over_time(${rates[0]}[5m]) or max_over_time(${rates[1]}[5m]))`,
      range.to,
      abort,
    ),
  ]);
  return { forth: forth[0], back: back[0], bitsPerSecond: rate[0]?.values[0], query };
}

/** A range of which nothing is known: what is cabled can still be looked at. */
export function nothingKnown(to: number): FabricState {
  const none = new Float32Array(0);
  return {
    times: [to],
    stepSeconds: 0,
    links: [],
    utilisation: none,
    forward: none,
    backward: none,
    errors: none,
    worstErrors: new Uint8Array(0),
    errorKinds: [],
    pause: none,
    pauseAtMost: none,
    up: none,
  };
}

/** Ranks of a job whose places are asked for; a larger job is shown by its first. */
const RANKS_MOST = 100_000;

/** The hosts that a job runs on, and the NICs that it uses there; none: the service does not know which. */
export type JobHosts = ReadonlyMap<string, ReadonlySet<string>>;

export async function askHostsOf(job: string, abort: AbortSignal): Promise<JobHosts> {
  const path = `/v1/jobs/${encodeURIComponent(job)}/ranks`;
  const ranks = await askAll<{
    host: string | null;
    device: string | null;
    /** Divided by commas. */
    devices: string | null;
  }>(path, {}, RANKS_MOST, abort);
  const hosts = new Map<string, Set<string>>();
  for (const { host, device, devices } of ranks.items) {
    if (!host) continue;
    const used = hosts.get(host) ?? new Set<string>();
    for (const name of (devices ?? device ?? "").split(",")) if (name.trim()) used.add(name.trim());
    hosts.set(host, used);
  }
  return hosts;
}
