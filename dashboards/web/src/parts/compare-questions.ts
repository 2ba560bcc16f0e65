/** What of jobs, hosts and times can be laid over each other, in PromQL. Pure. */
import { rateWindow } from "../api/job-series";
import { type Series, selector } from "../api/promql";

export type Kind = "jobs" | "hosts" | "times";
export const KINDS: readonly Kind[] = ["jobs", "hosts", "times"];

export interface Compared {
  readonly label: string;
  readonly unit: string;
  /** One line for one job, host or the whole; `over` is a rate's window. */
  readonly query: (name: string, over: string) => string;
}

const ofJob = (name: string) => selector({ job: name });
const ofHost = (name: string) => selector({ host: name });

/** Of jobs and of times, in which one job is compared with itself. */
const JOB: Readonly<Record<string, Compared>> = {
  step: {
    label: "Step",
    unit: "s",
    query: (name) => `max(fabric_job_step_seconds${ofJob(name)})`,
  },
  network: {
    label: "Share of time in the network",
    unit: "%",
    query: (name) => `max(fabric_job_network_share_ratio${ofJob(name)})`,
  },
  wait: {
    label: "Share of time waiting for ranks",
    unit: "%",
    query: (name) => `max(fabric_job_wait_share_ratio${ofJob(name)})`,
  },
  late: {
    label: "Latest rank",
    unit: "s",
    query: (name) => `max(fabric_rank_lateness_seconds${ofJob(name)})`,
  },
  transfer: {
    label: "Longest transfer",
    unit: "s",
    query: (name) => `max(fabric_communicator_transfer_seconds${ofJob(name)})`,
  },
};

const carried = (direction: string, name: string, over: string) => {
  const of = `${direction}_bytes_total${ofHost(name)}${over}`;
  return `(sum(rate(fabric_port_${of})) or sum(rate(fabric_nic_${of}))) * 8`;
};

const HOST: Readonly<Record<string, Compared>> = {
  sent: {
    label: "Sent by its NICs",
    unit: "b/s",
    query: (name, over) => carried("transmit", name, over),
  },
  received: {
    label: "Received by its NICs",
    unit: "b/s",
    query: (name, over) => carried("receive", name, over),
  },
  clock: {
    label: "Slowest GPU's clock",
    unit: "Hz",
    query: (name) => `min(fabric_gpu_sm_clock_hertz${ofHost(name)})`,
  },
  temperature: {
    label: "Hottest GPU",
    unit: "°C",
    query: (name) => `max(fabric_gpu_temperature_celsius${ofHost(name)})`,
  },
  late: {
    label: "Its latest rank",
    unit: "s",
    query: (name) => `max(fabric_rank_lateness_seconds${ofHost(name)})`,
  },
};

export const WHATS: Readonly<Record<Kind, Readonly<Record<string, Compared>>>> = {
  jobs: JOB,
  hosts: HOST,
  times: JOB,
};

/** One line of a comparison: what is asked, and by how much its times are moved onto the first one's. */
export interface Asked {
  readonly label: string;
  readonly query: string;
  readonly from: number;
  readonly to: number;
  readonly shift: number;
}

export interface Chosen {
  readonly kind: Kind;
  readonly a: string;
  readonly b: string;
  readonly what: string;
  /** When the second one begins, for another time of the same; unix seconds. */
  readonly other: number | undefined;
}

/** The two questions; undefined: something is not chosen yet. */
export function questionsOf(
  chosen: Chosen,
  from: number,
  to: number,
  named: (time: number) => string,
): readonly Asked[] | undefined {
  const { kind, a, b, other } = chosen;
  const what = WHATS[kind][chosen.what];
  if (!what || !a || (kind === "times" ? other === undefined : !b)) return undefined;
  const begin = other ?? from;
  const second = kind === "times" ? a : b;
  const isMoved = other !== undefined;
  return [
    {
      label: isMoved ? `${a}, ${named(from)}` : a,
      query: what.query(a, rateWindow(from, to)),
      from,
      to,
      shift: 0,
    },
    {
      label: isMoved ? `${second}, ${named(begin)}` : second,
      query: what.query(second, rateWindow(from, to)),
      from: begin,
      to: begin + (to - from),
      shift: from - begin,
    },
  ];
}

/** Its times on the first one's, to a whole step, so that points of both stand above each other. */
export function moved(series: Series | undefined, shift: number, step: number) {
  const times = (series?.times ?? []).map((time) => Math.round((time + shift) / step) * step);
  return { times, values: series?.values ?? [] };
}

/** What differs, in numbers: the median of each, and of the second by the first. */
export function medianOf(values: readonly (number | null)[]): number {
  const known = values.filter((value): value is number => value !== null).sort((a, b) => a - b);
  return known.length ? (known[Math.floor((known.length - 1) / 2)] as number) : Number.NaN;
}
