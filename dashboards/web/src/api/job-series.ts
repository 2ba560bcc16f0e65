/**
 * What is measured of a job's collectives, NICs and GPUs over time, in PromQL.
 *
 * Several columns fit into one query: the label `what` distinguishes them. A large job's thousand NICs are
 * not asked for one by one, but as their median and their largest, beside those of the rank that is looked at.
 */
import { anyOf, overRange, type Series, selector, stepOf } from "./promql";

export const WHAT = "what";
const PORT = "host, device, port";
const NIC = "host, device";
/** Agents read every 5 s or 10 s: some readings at least. */
const RATE_SECONDS_MIN = 30;
/** Lines of one plot of trouble: who has most of it. */
export const WORST_SHOWN = 4;
/** The longest that a pause frame stops a port, in bits at its rate (IEEE 802.3, 31B). */
const PAUSE_BITS = 65_535 * 512;

/** Whose GPU and NICs are drawn beside the others'. */
export interface Place {
  readonly host: string;
  readonly gpu: string | null;
  readonly devices: readonly string[];
}

export function union(columns: Readonly<Record<string, string>>): string {
  return Object.entries(columns)
    .map(([name, expression]) => `label_replace(${expression}, "${WHAT}", "${name}", "", "")`)
    .join(" or ");
}

/** The job's hosts: by its collectives, or by what agents see of its processes. */
function hosts(job: string): string {
  const mine = selector({ job });
  return `(max by (host) (fabric_rank_lateness_seconds${mine}) or max by (host) (fabric_job_info${mine}))`;
}

const ofJob = (expression: string, job: string) => `((${expression}) and on (host) ${hosts(job)})`;

/** Of the switch ports that the job's NICs hang on: what a NIC sends damaged is counted there. */
const ofFarEnds = (expression: string, job: string) =>
  `((${expression}) and on (${PORT}) (fabric_link_info and on (peer_name)` +
  ` label_join(${hosts(job)}, "peer_name", "", "host")))`;

/** `{host="a",device=~"b|c"}`: names are text from outside, also inside a pattern. */
export function ofPlace({ host, devices }: Place): string {
  return `{host=${JSON.stringify(host)},device=~${JSON.stringify(anyOf(devices))}}`;
}

/** Bits a second; of interfaces on hosts without RDMA ports. */
function carried(direction: string, over: string, only = ""): string {
  const ports = `sum by (${PORT}) (rate(fabric_port_${direction}_bytes_total${only}${over})) * 8`;
  const nics = `sum by (${NIC}) (rate(fabric_nic_${direction}_bytes_total${only}${over})) * 8`;
  return `(${ports} or ${nics} unless on (host) fabric_port_rate_bits_per_second)`;
}

/** Of all NICs of the job; what one rank's carry is another question, which does not wait for this one. */
export function trafficQuestion(job: string, over: string): string {
  const columns: Record<string, string> = {};
  for (const direction of ["transmit", "receive"]) {
    const all = ofJob(carried(direction, over), job);
    columns[`${direction} median`] = `quantile(0.5, ${all})`;
    columns[`${direction} most`] = `max(${all})`;
  }
  return union(columns);
}

/** Of the NICs of one rank; empty: none is known. */
export function ownTrafficQuestion(place: Place | undefined, over: string): string {
  if (!place?.devices.length) return "";
  const columns: Record<string, string> = {};
  for (const direction of ["transmit", "receive"])
    columns[`${direction} own`] = `sum(${carried(direction, over, ofPlace(place))})`;
  return union(columns);
}

/**
 * Counters of network interfaces, relabelled to the RDMA ports behind them.
 *
 * Both sides of the `or` are grouped alike, so that the service sees that no two rows can clash: then it reads
 * the hosts of the job alone (`api/promql/narrow.py`).
 */
function ofInterfaces(nics: string): string {
  const named = `max by (host, netdev) (label_join(${nics}, "netdev", "", "device"))`;
  const ports = 'fabric_port_info{netdev!=""}';
  return (
    `(max by (${PORT}) (group by (${PORT}, netdev) (${ports})` +
    ` * on (host, netdev) group_left () ${named}) or max by (${PORT}) (${nics}) unless on (host) ${ports})`
  );
}

/** Grouped before they are labelled, for the same reason. */
function summed(kind: "port" | "nic", names: readonly string[], over: string): string {
  const by = kind === "port" ? PORT : NIC;
  const rates = names.map(
    (name) => [name, `sum by (${by}) (rate(fabric_${kind}_${name}_total${over}))`] as const,
  );
  return `sum by (${by}) (${union(Object.fromEntries(rates))})`;
}

/** Share of the time in which a port may not send: stopped by pause frames, or without credit. */
function paused(over: string): string {
  const rate = `max by (${PORT}) (fabric_port_rate_bits_per_second > 0)`;
  const frames = `max by (${PORT}) (rate(fabric_port_receive_pause_frames_total${over}))`;
  const nics = `max by (${NIC}) (rate(fabric_nic_receive_pause_seconds_total${over}))`;
  return (
    `(max by (${PORT}) (rate(fabric_port_receive_pause_seconds_total${over}))` +
    ` or max by (${PORT}) (rate(fabric_port_transmit_wait_seconds_total${over}))` +
    ` or ${ofInterfaces(nics)} or clamp_max(${frames} * ${PAUSE_BITS} / ${rate}, 1))`
  );
}

/** The same of sending pause: who makes others stop. */
const pausing = (over: string) =>
  `(max by (${PORT}) (rate(fabric_port_transmit_pause_seconds_total${over})) or ${ofInterfaces(
    `max by (${NIC}) (rate(fabric_nic_transmit_pause_seconds_total${over}))`,
  )})`;

/** What NICs may be in trouble with; each is asked for the few that have most of it. */
export const TROUBLES = {
  pausing,
  paused,
  ecn: (over: string) => summed("port", ["receive_ecn_marked_packets"], over),
  // What arrives out of sequence is no part of it: adaptive routing reorders without loss.
  resent: (over: string) =>
    summed(
      "port",
      ["sequence_naks", "ack_timeouts", "implied_sequence_naks", "retransmit_packets"],
      over,
    ),
  errors: (over: string) =>
    `(max by (${PORT}) (${union({
      port: summed(
        "port",
        [
          "symbol_errors",
          "receive_errors",
          "receive_crc_errors",
          "receive_discards",
          "transmit_discards",
        ],
        over,
      ),
      nic: ofInterfaces(
        summed(
          "nic",
          [
            "phy_receive_crc_errors",
            "phy_receive_symbol_errors",
            "phy_receive_discards",
            "phy_transmit_discards",
          ],
          over,
        ),
      ),
    })}))`,
} as const;

export type Trouble = keyof typeof TROUBLES;

export function troubleQuestion(job: string, trouble: Trouble, over: string): string {
  const all = TROUBLES[trouble](over);
  const far = trouble === "errors" ? ` or ${ofFarEnds(all, job)}` : "";
  return `topk(${WORST_SHOWN}, (${ofJob(all, job)}${far}) > 0)`;
}

/** Of all GPUs of the job. */
export function gpuQuestion(job: string): string {
  const columns: Record<string, string> = {};
  for (const [name, metric] of Object.entries(GPU_METRICS))
    columns[`${name} median`] = `quantile(0.5, ${ofJob(`max by (host, gpu) (${metric})`, job)})`;
  return union(columns);
}

/** Of one rank's GPU; empty: it is not known. */
export function ownGpuQuestion(place: Place | undefined): string {
  if (!place || place.gpu === null) return "";
  const mine = selector({ host: place.host, gpu: place.gpu });
  const columns: Record<string, string> = {};
  for (const [name, metric] of Object.entries(GPU_METRICS))
    columns[`${name} own`] = `max(${metric}${mine})`;
  columns.reasons = `max(fabric_gpu_clock_event_reasons${mine})`;
  return union(columns);
}

const GPU_METRICS = {
  clock: "fabric_gpu_sm_clock_hertz",
  power: "fabric_gpu_power_watts",
  temperature: "fabric_gpu_temperature_celsius",
} as const;

/** By kind of operation and class of size, because a median over all sizes is that of the small ones. */
export function collectivesQuestion(job: string): string {
  const mine = selector({ job });
  const by = "by (operation, size)";
  return union({
    slowest: `max ${by} (fabric_communicator_transfer_seconds${mine})`,
    median: `quantile ${by} (0.5, fabric_communicator_transfer_seconds${mine})`,
    skew: `max ${by} (fabric_communicator_entry_skew_seconds${mine})`,
  });
}

/** Series over a range, with the moments that they were asked for. */
export interface Asked {
  readonly from: number;
  readonly step: number;
  readonly count: number;
  readonly series: readonly Series[];
}

async function asked(
  question: string,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<Asked> {
  const step = stepOf(from, to);
  const begin = Math.floor(from / step) * step;
  const count = Math.floor((to - begin) / step) + 1;
  const end = begin + (count - 1) * step;
  const series = question ? await overRange(question, begin, end, step, abort) : [];
  return { from: begin, step, count, series };
}

/** One rank's beside all; without it while it is of another time, or has not come yet. */
export function beside(all: Asked | undefined, own: Asked | undefined): Asked | undefined {
  const isSame =
    all && own && all.from === own.from && all.step === own.step && all.count === own.count;
  return isSame ? { ...all, series: [...all.series, ...own.series] } : all;
}

export const rateWindow = (from: number, to: number) =>
  `[${Math.max(RATE_SECONDS_MIN, 2 * stepOf(from, to))}s]`;

export const askCollectives = (job: string, from: number, to: number, abort: AbortSignal) =>
  asked(collectivesQuestion(job), from, to, abort);

export const askTraffic = (job: string, from: number, to: number, abort: AbortSignal) =>
  asked(trafficQuestion(job, rateWindow(from, to)), from, to, abort);

export const askGpus = (job: string, from: number, to: number, abort: AbortSignal) =>
  asked(gpuQuestion(job), from, to, abort);

/** What the NICs and the GPU of one rank do. */
export async function askOwn(
  place: Place | undefined,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<{ readonly traffic: Asked; readonly gpus: Asked }> {
  const [traffic, gpus] = await Promise.all([
    asked(ownTrafficQuestion(place, rateWindow(from, to)), from, to, abort),
    asked(ownGpuQuestion(place), from, to, abort),
  ]);
  return { traffic, gpus };
}

/** Each kind of trouble by itself: as one question they would be too long. */
export async function askTroubles(
  job: string,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<ReadonlyMap<Trouble, Asked>> {
  const over = rateWindow(from, to);
  const kinds = Object.keys(TROUBLES) as Trouble[];
  const answers = await Promise.all(
    kinds.map((kind) => asked(troubleQuestion(job, kind, over), from, to, abort)),
  );
  return new Map(kinds.map((kind, place) => [kind, answers[place] as Asked]));
}
