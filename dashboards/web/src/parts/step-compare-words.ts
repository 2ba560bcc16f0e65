/** What a comparison of steps shows, computed: rows on one axis, arcs between them, words. Pure. */
import type { Metric } from "../api/metadata";
import type { Flow, RankCompared, RankRow, Role, StepsCompared } from "../api/steps";
import { duration } from "../format";
import { reasonWords } from "./clock-reasons";
import { formatOf, unitOf } from "./explore-unit";

const NS = 1e9;

export const seconds = (ns: number | null) => duration(ns === null ? null : ns / NS);

/** `+30 ms`: an excess is read by its sign. */
export function signed(ns: number | null): string {
  if (ns === null) return "–";
  const words = duration(Math.abs(ns) / NS);
  return ns > 0 ? `+${words}` : ns < 0 ? `−${words}` : words;
}

export const ROLES: Readonly<Record<Role, { word: string; means: string }>> = {
  late: { word: "late itself", means: "outside of collectives for longer than its peers" },
  passed_on: { word: "passed it on", means: "others waited for it, and it was late by another" },
  waited: { word: "waited", means: "inside of collectives until another rank came" },
  transfer: { word: "longer transfer", means: "inside of collectives after all ranks had come" },
  idle: { word: "idle", means: "longer outside of collectives, and no later than its peers" },
  as_usual: { word: "as usual", means: "no part of its step is notably longer" },
  unknown: { word: "not known", means: "records of these steps are missing" },
};

/** The row of each rank in the drawing; ranks of both sides are the same. */
export interface DrawnRank {
  readonly rank: number;
  readonly host: string;
  readonly isAccused: boolean;
  readonly role: Role;
  readonly normal: RankRow | undefined;
  readonly slow: RankRow | undefined;
}

/** `without`: the place of what the slow step is replayed without; undefined: as it was. */
export function drawnRanks(data: StepsCompared, without: number | undefined): DrawnRank[] {
  const replayed = without === undefined ? undefined : data.without[without]?.rows;
  const slow = byRank(replayed?.length ? replayed : data.rows_slow);
  const normal = byRank(data.rows_normal);
  const known = new Map(data.ranks.map((one) => [one.rank, one]));
  return data.rows_slow.map(({ rank }) => {
    const one: RankCompared | undefined = known.get(rank);
    return {
      rank,
      host: one?.host ?? "",
      isAccused: one?.is_accused ?? false,
      role: one?.role ?? "unknown",
      normal: normal.get(rank),
      slow: slow.get(rank),
    };
  });
}

function byRank(rows: readonly RankRow[]): Map<number, RankRow> {
  return new Map(rows.map((row) => [row.rank, row]));
}

/** The end of the one axis that all rows are on: of both sides and of all replays, so that it stays. */
export function axisEnd(data: StepsCompared): number {
  const rows = [...data.rows_slow, ...data.rows_normal, ...data.without.flatMap((one) => one.rows)];
  return Math.max(1, ...rows.map((row) => row.spans.at(-1)?.end_ns ?? 0));
}

export interface Arc {
  /** `wait`: the target waited for the source; `transfer`: its bytes took longer over the source's link. */
  readonly part: "wait" | "transfer";
  readonly source: number;
  readonly target: number;
  /** Rows of the drawing. */
  readonly from: number;
  readonly to: number;
  readonly excess_ns: number;
  /** Of the largest. */
  readonly share: number;
}

const ARCS_MAX = 40;
/** Of the largest excess of a transfer: those of collectives without the culprit have far less. */
const TRANSFER_SHARE_MIN = 0.2;

/** From the culprit to those it held up, and on: who waited for whom, between rows that are drawn. */
export function arcsOf(data: StepsCompared, drawn: readonly DrawnRank[]): Arc[] {
  const place = new Map(drawn.map(({ rank }, row) => [rank, row]));
  const flows = [
    ...overLink(data).map((flow) => ({ ...flow, part: "transfer" as const })),
    ...data.flows.map((flow) => ({ ...flow, part: "wait" as const })),
  ];
  const largest = Math.max(1, ...flows.map((flow) => flow.excess_ns));
  return flows
    .flatMap(({ part, source, target, excess_ns }) => {
      const [from, to] = [place.get(source), place.get(target)];
      return from === undefined || to === undefined
        ? []
        : [{ part, source, target, from, to, excess_ns, share: excess_ns / largest }];
    })
    .slice(0, ARCS_MAX);
}

/** Where a verdict accuses the network: what transfers of each other rank took longer by. */
function overLink(data: StepsCompared): Flow[] {
  const [first] = data.without;
  const source = first?.what === "network" ? first.ranks[0] : undefined;
  if (source === undefined) return [];
  const others = data.ranks.filter(({ rank }) => rank !== source);
  const largest = Math.max(0, ...others.map(({ excess }) => excess.transfer_ns ?? 0));
  return others.flatMap(({ rank, excess }) => {
    const longer = excess.transfer_ns ?? 0;
    return longer > TRANSFER_SHARE_MIN * largest
      ? [{ source, target: rank, excess_ns: longer }]
      : [];
  });
}

export function arcWords({ part, source, target, excess_ns }: Arc): string {
  return part === "wait"
    ? `rank ${target} waited ${seconds(excess_ns)} longer for rank ${source}`
    : `transfers of rank ${target} took ${seconds(excess_ns)} longer over the link of rank ${source}`;
}

/** A path that leaves a row to the right and comes back at another one: longer ways bow further. */
export function arcPath(arc: Arc, rowHeight: number, width: number): string {
  const [from, to] = [(arc.from + 0.5) * rowHeight, (arc.to + 0.5) * rowHeight];
  const far = Math.abs(arc.to - arc.from);
  const bow = Math.min(width - 4, 12 + 7 * Math.sqrt(far) * 2);
  return `M0,${from.toFixed(1)} C${bow.toFixed(1)},${from.toFixed(1)} ${bow.toFixed(1)},${to.toFixed(1)} 2,${to.toFixed(1)}`;
}

/** How the ranks are ordered, in words. */
export function orderWords(data: StepsCompared): string {
  if (!data.order) return "Ranks in their order.";
  const how = data.order.is_assumed
    ? "the ranks in their order, because no log names the ring"
    : "as NCCL logged its ring";
  const hidden = Math.max(0, data.order.ring.length - data.rows_slow.length);
  return `Ranks of ${data.order.communicator}, ${how}${hidden ? `; ${hidden} not drawn` : ""}.`;
}

/** Units that end a metric's name, as Prometheus' conventions want it. */
const UNIT_AT_END =
  /_(celsius|hertz|watts|joules|volts|amperes|seconds|bytes|packets|ratio|bits_per_second)(_total)?$/;

/** A number of a difference between steps as it is read: `what` is a metric, or words with the unit `ns`. */
export function differenceWords(what: string, unit: string, value: number): string {
  if (unit === "ns") return seconds(value);
  const [name = "", ...rest] = what.split(" ");
  if (what === "fabric_gpu_clock_event_reasons") return reasonWords(value);
  const own = UNIT_AT_END.exec(name)?.[1];
  const query = rest.length ? `rate(${name}[1m])` : name;
  return formatOf(unitOf(query, () => ({ unit: own ?? "" }) as Metric))(value);
}
