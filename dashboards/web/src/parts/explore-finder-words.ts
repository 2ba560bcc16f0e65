/** Finds metrics by what they mean, and describes them for completion. Pure. */
import type { Metric } from "../api/metadata";
import { unitWords } from "./explore-unit";

interface Described {
  readonly type: string;
  readonly help: string;
}

/** Type, unit and help of every name, ours and other exporters', as completion shows them. */
export function describedNames(
  catalog: readonly Metric[],
  stored: Readonly<Record<string, readonly Described[]>>,
): Record<string, Described[]> {
  const found: Record<string, Described[]> = {};
  for (const [name, all] of Object.entries(stored)) found[name] = all.slice(0, 1);
  for (const metric of catalog) {
    for (const alias of metric.aliases)
      found[alias.name] = [
        { type: metric.kind, help: `${alias.exporter}'s name of ${metric.name}. ${metric.help}` },
      ];
  }
  for (const metric of catalog) {
    const unit = unitWords(metric.unit);
    found[metric.name] = [
      { type: unit ? `${metric.kind}, ${unit}` : metric.kind, help: metric.help },
    ];
  }
  return found;
}

/**
 * Metrics that have all the words in name, help, target, unit or alias; those with data, and nearer ones, first.
 * `stored`: the names that have data; undefined: not known, and then none is said to have no data.
 */
export function foundMetrics(
  catalog: readonly Metric[],
  stored: ReadonlySet<string> | undefined,
  search: string,
  target = "",
): { readonly metric: Metric; readonly hasData: boolean }[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return catalog
    .filter((metric) => !target || metric.target === target)
    .map((metric) => ({
      metric,
      hasData: stored === undefined || hasData(metric, stored),
      nearness: nearness(metric, words),
    }))
    .filter((one) => one.nearness > 0)
    .sort(
      (a, b) =>
        Number(b.hasData) - Number(a.hasData) ||
        b.nearness - a.nearness ||
        interest(a.metric.target) - interest(b.metric.target),
    );
}

/** What a person on call looks at first; agents and the service itself come last. */
const TARGETS_FIRST = [
  "job",
  "step",
  "rank",
  "communicator",
  "port",
  "nic",
  "gpu",
  "burst",
  "host",
];

function interest(target: string): number {
  const place = TARGETS_FIRST.indexOf(target);
  return place < 0 ? TARGETS_FIRST.length : place;
}

/** Kinds of things that are measured, with how many metrics each has; the most useful first. */
export function targetsOf(catalog: readonly Metric[]): { name: string; metrics: number }[] {
  const found = new Map<string, number>();
  for (const { target } of catalog) found.set(target, (found.get(target) ?? 0) + 1);
  return [...found]
    .map(([name, metrics]) => ({ name, metrics }))
    .sort((a, b) => interest(a.name) - interest(b.name) || (a.name < b.name ? -1 : 1));
}

/** Under its own name, under that of another exporter, or as a histogram's parts. */
function hasData(metric: Metric, stored: ReadonlySet<string>): boolean {
  return (
    stored.has(metric.name) ||
    stored.has(`${metric.name}_bucket`) ||
    metric.aliases.some((alias) => stored.has(alias.name))
  );
}

/** 0: not meant; a word in the name counts more than one in the help. */
function nearness(metric: Metric, words: readonly string[]): number {
  const name = metric.name.toLowerCase();
  const names = metric.aliases.map((alias) => alias.name.toLowerCase()).join(" ");
  const rest = `${metric.target} ${metric.unit} ${metric.help}`.toLowerCase();
  let sum = 1;
  for (const word of words) {
    const part = name.includes(word) ? 4 : names.includes(word) ? 2 : rest.includes(word) ? 1 : 0;
    if (!part) return 0;
    sum += part;
  }
  return sum;
}

/** What to ask of a metric: counters by their rate, histograms by a quantile. */
export function suggested(metric: Metric, seconds: number): string {
  const window = seconds <= 3600 ? "1m" : "5m";
  if (metric.kind === "counter") return `rate(${metric.name}[${window}])`;
  if (metric.kind === "histogram")
    return `histogram_quantile(0.99, sum by (le) (rate(${metric.name}_bucket[${window}])))`;
  return metric.name;
}

/** Questions to begin with. */
export const EXAMPLES: readonly { readonly words: string; readonly query: string }[] = [
  {
    words: "How much does each host send?",
    query: "sum by (host) (rate(fabric_port_transmit_bytes_total[1m]))",
  },
  { words: "Which rank comes late?", query: "topk(5, fabric_rank_lateness_seconds)" },
  {
    words: "How long does a step take?",
    query: "max by (job) (fabric_step_last_duration_seconds)",
  },
  {
    words: "What share of a step is network?",
    query: "max by (job) (fabric_job_network_share_ratio)",
  },
  {
    words: "Which ports see symbol errors?",
    query: "topk(10, rate(fabric_port_symbol_errors_total[5m]) > 0)",
  },
  { words: "Do GPUs slow down?", query: "min by (host) (fabric_gpu_sm_clock_hertz)" },
];
