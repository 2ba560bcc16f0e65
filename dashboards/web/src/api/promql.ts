/** PromQL over `/api/v1`, as Prometheus answers it. */
import { address, Failure, send } from "./client";

export type Labels = Readonly<Record<string, string>>;

export interface Series {
  readonly labels: Labels;
  /** Unix seconds. */
  readonly times: readonly number[];
  readonly values: readonly number[];
}

interface Raw {
  readonly status: string;
  readonly error?: string;
  readonly warnings?: readonly string[];
  readonly data: {
    readonly resultType: string;
    readonly result: readonly {
      readonly metric: Labels;
      readonly value?: readonly [number, string];
      readonly values?: readonly (readonly [number, string])[];
    }[];
  };
}

async function question(
  path: string,
  params: Record<string, string | number>,
  abort?: AbortSignal,
): Promise<Raw> {
  const response = await send(address(path, params), abort ? { signal: abort } : {});
  const raw = (await response.json()) as Raw;
  if (raw.status !== "success") throw new Failure(response.status, "PromQL", raw.error ?? "");
  return raw;
}

/** At one moment; each series has one value. */
export async function instant(query: string, time: number, abort?: AbortSignal): Promise<Series[]> {
  const raw = await question("/api/v1/query", { query, time }, abort);
  return raw.data.result.map(({ metric, value }) => ({
    labels: metric,
    times: value ? [value[0]] : [],
    values: value ? [Number(value[1])] : [],
  }));
}

/** Over a stretch of time, every `step` seconds. */
export async function overRange(
  query: string,
  from: number,
  to: number,
  step: number,
  abort?: AbortSignal,
): Promise<Series[]> {
  const raw = await question("/api/v1/query_range", { query, start: from, end: to, step }, abort);
  return raw.data.result.map(({ metric, values }) => ({
    labels: metric,
    times: (values ?? []).map(([time]) => time),
    values: (values ?? []).map(([, value]) => Number(value)),
  }));
}

/** A step that gives about so many points and is a whole number of seconds. */
export function stepOf(from: number, to: number, points = 240): number {
  return Math.max(1, Math.ceil((to - from) / points));
}

/** A pattern that matches these words and nothing else. */
export function anyOf(words: readonly string[]): string {
  return words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|");
}

/** `{host="a\"b"}`: label values are text from outside. */
export function selector(labels: Labels): string {
  const parts = Object.entries(labels).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return `{${parts.join(",")}}`;
}
