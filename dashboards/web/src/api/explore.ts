/** Free PromQL: any type of answer, with what the service warns of and how long it took. */
import { address, send } from "./client";
import { anyOf, instant, type Labels, type Series } from "./promql";

export interface Answer {
  readonly series: readonly Series[];
  /** Text, where a query is nothing but a string. */
  readonly text?: string;
  /** Warnings and hints of the service. */
  readonly notes: readonly string[];
  /** Whether the service held series back. */
  readonly isCut: boolean;
  readonly seconds: number;
  /** Samples that the service read for it; undefined: it does not say. */
  readonly samples: number | undefined;
}

/** Series of one plot that are asked for; those with the highest peaks of them are drawn. */
export const RANGE_SERIES_MAX = 1000;
/** Series of one table. */
export const TABLE_SERIES_MAX = 5000;
/** The service's warning that it held series back. */
const CUT = "results truncated due to limit";

type Point = readonly [number, string];
interface Listed {
  readonly metric: Labels;
  readonly value?: Point;
  readonly values?: readonly Point[];
}
type Data =
  | { readonly resultType: "scalar"; readonly result: Point }
  | { readonly resultType: "string"; readonly result: Point }
  | { readonly resultType: "vector" | "matrix"; readonly result: readonly Listed[] };
interface Raw {
  readonly warnings?: readonly string[];
  readonly infos?: readonly string[];
  readonly data: Data & {
    readonly stats?: { readonly samples?: { readonly totalQueryableSamples?: number } };
  };
}

async function question(
  path: string,
  params: Record<string, string | number>,
  abort: AbortSignal,
): Promise<Answer> {
  const start = performance.now();
  const response = await send(address(path, params), { signal: abort });
  const raw = (await response.json()) as Raw;
  return answerOf(raw, (performance.now() - start) / 1000);
}

export function answerOf(raw: Raw, seconds: number): Answer {
  const notes = [...(raw.warnings ?? []), ...(raw.infos ?? [])];
  const { data } = raw;
  const rest = {
    notes: notes.filter((note) => note !== CUT),
    isCut: notes.includes(CUT),
    seconds,
    samples: data.stats?.samples?.totalQueryableSamples,
  };
  if (data.resultType === "string") return { series: [], text: data.result[1], ...rest };
  if (data.resultType === "scalar") return { series: [seriesOf({}, [data.result])], ...rest };
  const series = data.result.map(({ metric, value, values }) =>
    seriesOf(metric, values ?? (value ? [value] : [])),
  );
  return { series, ...rest };
}

function seriesOf(labels: Labels, points: readonly Point[]): Series {
  return {
    labels,
    times: points.map(([time]) => time),
    values: points.map(([, value]) => numberOf(value)),
  };
}

/** Prometheus writes `+Inf` and `-Inf`; JavaScript reads neither. */
function numberOf(text: string): number {
  if (text === "+Inf" || text === "Inf") return Number.POSITIVE_INFINITY;
  return text === "-Inf" ? Number.NEGATIVE_INFINITY : Number(text);
}

export function askRange(
  query: string,
  from: number,
  to: number,
  step: number,
  abort: AbortSignal,
): Promise<Answer> {
  const params = { query, start: from, end: to, step, limit: RANGE_SERIES_MAX, stats: "all" };
  return question("/api/v1/query_range", params, abort);
}

export function askMoment(query: string, time: number, abort: AbortSignal): Promise<Answer> {
  return question("/api/v1/query", { query, time, limit: TABLE_SERIES_MAX, stats: "all" }, abort);
}

/** How many series of each of these metrics there are at a moment: what a query over them reads. */
export async function askCardinality(
  names: readonly string[],
  time: number,
  abort: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  const query = `count by (__name__) ({__name__=~${JSON.stringify(anyOf(names))}})`;
  const found = await instant(query, time, abort);
  return new Map(found.map((one) => [one.labels.__name__ ?? "", one.values[0] ?? 0]));
}

/** The query as everybody writes it. */
export async function askFormatted(query: string): Promise<string> {
  const response = await send(address("/api/v1/format_query", { query }));
  return ((await response.json()) as { readonly data: string }).data;
}
