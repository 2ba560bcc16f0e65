/**
 * What is drawn beside an evidence: the culprit over time against its peers, or all ranks side by side.
 * Series of the catalog are asked for in PromQL, names for evidence from collectives (`rank_gap`, …) are
 * computed from `/v1/explain`, as docs/how-to/read-a-verdict.md has it. Pure.
 */
import type { Explanation, JobExplained, Kind } from "../api/explain";
import type { Culprit, Evidence } from "../api/incidents";
import { type Labels, type Series, selector } from "../api/promql";
import { count } from "../format";
import { type Mark, onMarks } from "./clock-reasons";
import { subjectOf } from "./verdict-words";

export type Role = "culprit" | "peers" | "worst" | "usual";

export interface DrawnLine {
  readonly label: string;
  readonly role: Role;
  readonly values: readonly (number | null)[];
}

export interface OverTime {
  readonly kind: "time";
  /** Unix seconds, growing. */
  readonly times: readonly number[];
  readonly lines: readonly DrawnLine[];
  readonly unit: string;
  readonly note?: string;
  /** What the values stand for, where they are places in this list. */
  readonly marks?: readonly Mark[];
}

export interface Bar {
  readonly label: string;
  /** The same where there is little room. */
  readonly short: string;
  readonly value: number;
  readonly isCulprit: boolean;
}

export interface SideBySide {
  readonly kind: "bars";
  readonly bars: readonly Bar[];
  readonly unit: string;
  /** What would be fair, or is usual: a line across the bars. */
  readonly usual?: number;
  readonly note: string;
}

export type Drawn = OverTime | SideBySide;

// --- in PromQL ------------------------------------------------------------------------------------

/** Labels that identify the culprit; the others (mode, phase, priority) identify what is measured. */
const WHO = new Set(["cluster", "host", "device", "port", "gpu", "rank", "job"]);
/** Two readings at least: agents read every 5 s, switches are polled every 10 s or 30 s. */
const OVER = "1m";
/** Evidence from records of collectives: no series has that name. */
const WORDS = new Set([
  "collective_transfer",
  "rank_gap",
  "rank_last_in",
  "rank_least_inside",
  "exit_ladder",
  "communicator_vote",
  "nic_smoothness",
  "captured_rates",
  "packets_vanished",
  "last_read",
  "bus_bandwidth",
  "slowest_rank_late",
  "shared_cable",
]);
/** Evidence from collectives that a series has as well: its name, its unit where it differs, and a note. */
const SERIES_OF_WORD: Readonly<
  Record<string, { metric: string; unit?: string; note?: string } | undefined>
> = {
  step_transfer_share: { metric: "fabric_job_network_share_ratio" },
  bursts_seen: { metric: "fabric_burst_bursts_total" },
  pending_operations: {
    metric: "fabric_communicator_operations_total",
    unit: "collectives per second",
    note: "Collectives that the job finished. Where the line ends, none did.",
  },
};

export interface Question {
  /** The culprit's own series: what Explore opens. */
  readonly query: string;
  /** All of the kind, the culprit among them. */
  readonly all: string;
  readonly by: readonly string[];
  readonly unit: string;
  readonly note?: string;
}

/** The evidence as PromQL; undefined where only `/v1/explain` has it. */
export function questionOf(evidence: Evidence): Question | undefined {
  if (WORDS.has(evidence.metric)) return undefined;
  const series = SERIES_OF_WORD[evidence.metric];
  const metric = series?.metric ?? evidence.metric;
  const unit = series?.unit ?? evidence.unit;
  if (!/^[a-zA-Z_:][\w:]*$/.test(metric)) return undefined;
  const labels = evidence.labels ?? {};
  const by = Object.keys(labels).filter((name) => /^[a-zA-Z_]\w*$/.test(name));
  const others = Object.fromEntries(Object.entries(labels).filter(([name]) => !WHO.has(name)));
  const isCounted = COUNTED_UNITS.has(unit) && metric.endsWith("_total");
  const shape = (which: Labels) => expression(metric, which, by, unit, isCounted);
  const note = series?.note ?? (isCounted ? `${unit} in a minute` : undefined);
  return { query: shape(labels), all: shape(others), by, unit, ...(note ? { note } : {}) };
}

/** Units counted over the stretch in the text, and drawn as a count per minute. */
const COUNTED_UNITS = new Set(["changes", "errors", "bursts"]);

function expression(
  metric: string,
  labels: Labels,
  by: readonly string[],
  unit: string,
  isCounted: boolean,
): string {
  const which = Object.keys(labels).length ? selector(labels) : "";
  const grouped = (how: string) => (by.length ? `${how} by (${by.join(", ")})` : how);
  if (!metric.endsWith("_total"))
    return `${grouped(LOWEST.has(metric) ? "min" : "max")} (${metric}${which})`;
  if (isCounted) return `${grouped("sum")} (increase(${metric}${which}[${OVER}]))`;
  const rate = `${grouped("sum")} (rate(${metric}${which}[${OVER}]))`;
  if (unit !== "ratio") return rate;
  if (metric.endsWith("_bytes_total")) {
    const speed = metric.startsWith("fabric_nic_")
      ? "fabric_nic_speed_bits_per_second"
      : "fabric_port_rate_bits_per_second";
    return `${rate} * 8 / ${grouped("max")} (${speed}${which})`;
  }
  if (metric === "fabric_host_cpu_seconds_total") {
    const hosts = labels.host === undefined ? "" : selector({ host: labels.host });
    return `${rate} / on (host) group_left () sum by (host) (rate(${metric}${hosts}[${OVER}]))`;
  }
  // Of all ranks of a host; the share of one is their mean.
  if (metric === "fabric_step_phase_seconds_total")
    return `${grouped("avg")} (rate(${metric}${which}[${OVER}]))`;
  return rate;
}

/** Metrics whose lowest value is the bad one. */
const LOWEST = new Set([
  "fabric_port_state",
  "fabric_nic_up",
  "fabric_gpu_up",
  "fabric_gpu_pcie_lanes",
  "fabric_gpu_pcie_generation",
]);

/** The parts of one question: the culprit, the median of the others, and the worst of the others. */
export function against(question: Question, isLowBad: boolean): Record<Role, string> {
  const { query, all, by, unit } = question;
  // Another job is no peer of a job: it does something else.
  // Of masks there is neither a median nor a highest.
  if (unit === "bits" || !by.some((name) => WHO.has(name) && name !== "job"))
    return { culprit: query } as Record<Role, string>;
  const others = `(${all} unless on (${by.join(", ")}) ${query})`;
  return {
    culprit: query,
    peers: `quantile(0.5, ${others})`,
    worst: `${isLowBad ? "min" : "max"}(${others})`,
  } as Record<Role, string>;
}

/** Whether the culprit is bad by having little: a clock, a link's rate. */
export function isLowBad(evidence: Evidence): boolean {
  return typeof evidence.baseline === "number" && evidence.value < evidence.baseline;
}

/** The lines of one plot; it reaches over all of the `range`, also where nothing is known. */
export function linesOf(
  series: readonly Series[],
  evidence: Evidence,
  question: Question,
  range: { readonly from: number; readonly to: number },
): Drawn {
  const ends = [range.from, range.to];
  const times = [...new Set([...ends, ...series.flatMap((one) => one.times)])].sort(
    (a, b) => a - b,
  );
  const lines: DrawnLine[] = [];
  const labels = {
    culprit: subjectOf(evidence.labels ?? {}) || evidence.labels?.job || "seen",
    peers: "median of others",
    worst: isLowBad(evidence) ? "lowest other" : "highest other",
  };
  for (const role of ["culprit", "peers", "worst"] as const) {
    const found = series.find((one) => one.labels.what === role);
    if (!found) continue;
    const known = new Map(found.times.map((time, place) => [time, found.values[place]]));
    lines.push({ role, label: labels[role], values: times.map((time) => known.get(time) ?? null) });
  }
  const { unit, note } = question;
  const drawn = { kind: "time", times, lines, unit, ...(note ? { note } : {}) } as const;
  return unit === "bits" ? byMarks(drawn) : drawn;
}

function byMarks(drawn: OverTime): OverTime {
  const [line] = drawn.lines;
  if (!line) return drawn;
  const { values, marks } = onMarks(line.values);
  return { ...drawn, lines: [{ ...line, values }], marks };
}

// --- from /v1/explain -----------------------------------------------------------------------------

const NS = 1e9;
const BARS_MAX = 64;

/** Evidence that has no series and is drawn from the window; of the others there is no picture. */
const DRAWN_WORDS = new Set([
  "collective_transfer",
  "rank_gap",
  "rank_last_in",
  "rank_least_inside",
  "exit_ladder",
  "communicator_vote",
  "nic_smoothness",
]);

export function isExplained(evidence: Evidence): boolean {
  return DRAWN_WORDS.has(evidence.metric);
}

/** The drawing of an evidence that only the detectors' window holds. */
export function fromExplanation(
  evidence: Evidence,
  explanation: Explanation,
  culprit: Culprit,
): Drawn | undefined {
  const labels = evidence.labels ?? {};
  const job = explanation.jobs.find((one) => one.job === labels.job) ?? explanation.jobs[0];
  if (evidence.metric === "nic_smoothness") return readingOf(labels, explanation);
  if (!job) return undefined;
  switch (evidence.metric) {
    case "collective_transfer":
      return transfers(job, labels);
    case "rank_gap":
      return ownTimes(job, labels);
    case "rank_last_in":
      return shares(job, labels, evidence, "last_in");
    case "rank_least_inside":
      return shares(job, labels, evidence, "least_inside");
    case "exit_ladder":
      return ladder(job, labels, culprit);
    case "communicator_vote":
      return votes(job);
    default:
      return undefined;
  }
}

function transfers(job: JobExplained, labels: Labels): Drawn | undefined {
  const own = job.kinds.find(
    (kind) =>
      kind.communicator === labels.communicator &&
      kind.operation === labels.operation &&
      String(kind.size_bytes) === labels.size_bytes,
  );
  if (!own?.end_ns.length) return undefined;
  const others = job.kinds.filter(
    (kind) =>
      kind !== own &&
      kind.operation === own.operation &&
      kind.size_bytes === own.size_bytes &&
      kind.ranks === own.ranks,
  );
  const times = own.end_ns.map((time) => time / NS);
  const lines: DrawnLine[] = [];
  if (own.past_transfer_ns !== null)
    lines.push({
      role: "usual",
      label: "the hour before",
      values: times.map(() => (own.past_transfer_ns ?? 0) / NS),
    });
  if (others.length)
    lines.push({
      role: "peers",
      label: `median of ${count(others.length, "other communicator")}`,
      values: own.end_ns.map((time) => middle(others.map((kind) => latest(kind, time)))),
    });
  lines.push({
    role: "culprit",
    label: "this communicator",
    values: own.transfer_ns.map((time) => time / NS),
  });
  return { kind: "time", times, lines, unit: "seconds" };
}

/** The transfer of the last operation that had ended then; null before the first. */
function latest(kind: Kind, time: number): number | null {
  let [low, high] = [0, kind.end_ns.length];
  while (low < high) {
    const half = (low + high) >> 1;
    if ((kind.end_ns[half] ?? 0) <= time) low = half + 1;
    else high = half;
  }
  const found = kind.transfer_ns[low - 1];
  return found === undefined ? null : found / NS;
}

export function middle(values: readonly (number | null | undefined)[]): number | null {
  const known = values.filter((value): value is number => typeof value === "number");
  known.sort((a, b) => a - b);
  return known[known.length >> 1] ?? null;
}

function ownTimes(job: JobExplained, labels: Labels): Drawn | undefined {
  const own = job.own_times;
  if (!own) return undefined;
  const wanted =
    labels.rank === undefined
      ? new Set(job.ranks.filter((rank) => rank.host === labels.host).map((rank) => rank.job_rank))
      : new Set([Number(labels.rank)]);
  const rows = own.ranks.flatMap((rank, row) => (wanted.has(rank) ? [row] : []));
  if (!rows.length) return undefined;
  const at = (table: OwnTable, step: number) => {
    const value = middle(rows.map((row) => table[row]?.[step]));
    return value === null ? null : value / NS;
  };
  return {
    kind: "time",
    times: own.end_ns.map((time) => time / NS),
    unit: "seconds",
    note: "a step, outside of collectives",
    lines: [
      {
        role: "peers",
        label: "ranks it works with",
        values: own.end_ns.map((_, step) => at(own.peers_ns, step)),
      },
      {
        role: "culprit",
        label: labels.rank === undefined ? (labels.host ?? "culprit") : `rank ${labels.rank}`,
        values: own.end_ns.map((_, step) => at(own.outside_ns, step)),
      },
    ],
  };
}

type OwnTable = readonly (readonly (number | null)[])[];

/** Of the operations in the evidence's stretch, the share in which each rank was the one. */
function shares(
  job: JobExplained,
  labels: Labels,
  evidence: Evidence,
  what: "last_in" | "least_inside",
): Drawn | undefined {
  const members = new Map<string, Map<number, Seen>>();
  const seen = new Map<number, Seen>();
  for (const { communicator, rank, job_rank, host } of job.ranks) {
    if (job_rank === null) continue;
    const row = seen.get(job_rank) ?? { host, operations: 0, found: 0 };
    seen.set(job_rank, row);
    const group = members.get(communicator) ?? new Map<number, Seen>();
    members.set(communicator, group.set(rank, row));
  }
  const [from, to] = [evidence.from_ns ?? 0, evidence.to_ns || Number.POSITIVE_INFINITY];
  for (const kind of job.kinds) {
    const group = members.get(kind.communicator);
    kind.end_ns.forEach((end, operation) => {
      if (end < from || end > to || !group) return;
      for (const row of group.values()) row.operations++;
      const one = group.get(kind[what][operation] ?? -1);
      if (one) one.found++;
    });
  }
  const bars = [...seen]
    .filter(([, row]) => row.operations > 0)
    .sort(([a], [b]) => a - b)
    .map(([rank, row]) => ({
      label: `rank ${rank}, ${row.host}`,
      short: String(rank),
      value: row.found / row.operations,
      isCulprit:
        labels.rank === undefined ? row.host === labels.host : String(rank) === labels.rank,
    }));
  if (!bars.length) return undefined;
  const { kept, note } = bounded(bars, "rank");
  return {
    kind: "bars",
    bars: kept,
    unit: "ratio",
    note: `Ranks in order${note}. The line: by chance.`,
    ...(typeof evidence.baseline === "number" ? { usual: evidence.baseline } : {}),
  };
}

interface Seen {
  readonly host: string;
  operations: number;
  found: number;
}

function ladder(job: JobExplained, labels: Labels, culprit: Culprit): Drawn | undefined {
  const found = job.ladders
    .filter((one) => one.communicator === labels.communicator)
    .sort((a, b) => (b.size_bytes ?? 0) - (a.size_bytes ?? 0))[0];
  if (!found) return undefined;
  const isChange = found.operations_before > 0;
  const exits = found.places.map((place) => (isChange ? place.change_ns : place.during_ns));
  const first = Math.min(...exits.filter((exit): exit is number => exit !== null));
  const bars = found.places.flatMap((place, index) => {
    const exit = exits[index];
    if (exit === null || exit === undefined) return [];
    return [
      {
        label: `rank ${place.job_rank ?? place.rank}, ${place.host}`,
        short: `rank ${place.job_rank ?? place.rank}`,
        value: (exit - first) / NS,
        isCulprit: place.host === culprit.host,
      },
    ];
  });
  if (!bars.length) return undefined;
  const { kept, note } = bounded(bars, "rank");
  const since = isChange ? ", beyond what was usual" : "";
  return {
    kind: "bars",
    bars: kept,
    unit: "seconds",
    note: `How much later than the first each rank leaves${since}; in the ring's order${note}.`,
  };
}

function votes(job: JobExplained): Drawn | undefined {
  const bars = job.kinds.flatMap((kind) => {
    // As the verdict's: what was right before may have been another trouble.
    const before = kind.past_transfer_ns ?? kind.before.transfer_ns;
    const during = kind.during.transfer_ns;
    if (!before || during === null || kind.during.operations < 3) return [];
    const value = during / before;
    return [
      {
        label: `${kind.operation} of ${kind.communicator}, ${kind.size_bytes ?? "?"} bytes`,
        short: kind.communicator.slice(-4),
        value,
        isCulprit: value > 4 / 3,
      },
    ];
  });
  if (!bars.length) return undefined;
  const { kept, note } = bounded(bars, "communicator");
  return {
    kind: "bars",
    bars: kept,
    unit: "times as long",
    usual: 1,
    note: `Transfers of each communicator, by what was usual${note}.`,
  };
}

function readingOf(labels: Labels, explanation: Explanation): Drawn | undefined {
  const { start_ns, step_ns, cells } = explanation.grid;
  for (const thing of explanation.things) {
    const reading = thing.readings.find(
      (one) =>
        one.metric.endsWith("transmit_bytes_total") &&
        one.labels.host === labels.host &&
        (labels.device === undefined || one.labels.device === labels.device),
    );
    if (!reading) continue;
    const peers = explanation.peers.find(
      (one) => one.kind === thing.kind && one.metric === reading.metric,
    );
    return {
      kind: "time",
      times: Array.from({ length: cells }, (_, cell) => (start_ns + (cell + 1) * step_ns) / NS),
      unit: "bytes per second",
      lines: [
        ...(peers
          ? [{ role: "peers" as const, label: "median of all", values: peers.median }]
          : []),
        { role: "culprit", label: thing.name, values: reading.values },
      ],
    };
  }
  return undefined;
}

/** As many bars as can be distinguished: the culprit's and the highest, in their order. */
function bounded(bars: readonly Bar[], noun: string): { kept: readonly Bar[]; note: string } {
  if (bars.length <= BARS_MAX) return { kept: bars, note: "" };
  const places = bars.map((_, place) => place);
  places.sort(
    (a, b) =>
      Number(bars[b]?.isCulprit) - Number(bars[a]?.isCulprit) ||
      (bars[b]?.value ?? 0) - (bars[a]?.value ?? 0),
  );
  const kept = new Set(places.slice(0, BARS_MAX));
  return {
    kept: bars.filter((_, place) => kept.has(place)),
    note: `, the ${BARS_MAX} highest of ${count(bars.length, noun)}`,
  };
}
