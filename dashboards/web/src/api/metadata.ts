/** What metrics there are and what they mean: the catalog, and what the store holds. */
import { ask } from "./client";

/** One metric of the catalog. */
export interface Metric {
  readonly name: string;
  /** The kind of thing that is measured. */
  readonly target: string;
  readonly kind: "counter" | "gauge" | "histogram" | "info";
  /** A base unit in Prometheus' words: `bytes`, `seconds`, `ratio`; empty for plain numbers. */
  readonly unit: string;
  readonly help: string;
  readonly labels: readonly string[];
  readonly aliases: readonly {
    readonly exporter: string;
    readonly name: string;
    /** Their number times this is ours. */
    readonly factor: number;
  }[];
}

export async function askCatalog(abort?: AbortSignal): Promise<readonly Metric[]> {
  return (await ask<{ readonly items: readonly Metric[] }>("/v1/catalog", {}, abort)).items;
}

/** Names or values in one list of completions; a store may hold two hundred thousand. */
export const LISTED_MAX = 10_000;

async function list(path: string, metric: string | undefined): Promise<readonly string[]> {
  const params = metric
    ? { "match[]": `{__name__=${JSON.stringify(metric)}}`, limit: LISTED_MAX }
    : { limit: LISTED_MAX };
  return (await ask<{ readonly data: readonly string[] }>(path, params)).data;
}

export function askMetricNames(): Promise<readonly string[]> {
  return list("/api/v1/label/__name__/values", undefined);
}

export function askLabelNames(metric?: string): Promise<readonly string[]> {
  return list("/api/v1/labels", metric);
}

export function askLabelValues(label: string, metric?: string): Promise<readonly string[]> {
  return list(`/api/v1/label/${encodeURIComponent(label)}/values`, metric);
}

/** Type and help of metrics that the catalog does not know. */
export async function askMetadata(): Promise<
  Readonly<Record<string, readonly { readonly type: string; readonly help: string }[]>>
> {
  const answer = await ask<{
    readonly data: Record<string, readonly { readonly type: string; readonly help: string }[]>;
  }>("/api/v1/metadata", { limit: LISTED_MAX });
  return answer.data;
}

/** Answers that are kept for a while: every letter that is typed asks for the same lists. */
export class Kept {
  private readonly held = new Map<string, { at: number; answer: Promise<unknown> }>();

  constructor(
    private readonly seconds: number,
    private readonly most: number,
    private readonly clock: () => number = () => Date.now() / 1000,
  ) {}

  /** The answer that is kept, or a new one; one that failed is not kept, the oldest makes room. */
  get<T>(key: string, load: () => Promise<T>): Promise<T> {
    const known = this.held.get(key);
    if (known && this.clock() - known.at < this.seconds) return known.answer as Promise<T>;
    const answer = load();
    this.held.delete(key);
    this.held.set(key, { at: this.clock(), answer });
    const [oldest] = this.held.keys();
    if (this.held.size > this.most && oldest !== undefined) this.held.delete(oldest);
    answer.catch(() => this.held.delete(key));
    return answer;
  }
}
