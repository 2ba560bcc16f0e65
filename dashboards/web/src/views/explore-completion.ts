/** What the query field completes: only from this service, through the page's one client. */
import type { PrometheusClient } from "@prometheus-io/codemirror-promql";
import {
  askCatalog,
  askLabelNames,
  askLabelValues,
  askMetadata,
  askMetricNames,
  Kept,
} from "../api/metadata";
import { describedNames } from "../parts/explore-finder-words";

const KEPT_SECONDS = 60;
const KEPT_MAX = 200;
const kept = new Kept(KEPT_SECONDS, KEPT_MAX);

export const completion: PrometheusClient = {
  metricNames: () => kept.get("names", names).catch(none),
  labelNames: (metric) =>
    kept.get(`labels ${metric ?? ""}`, async () => [...(await askLabelNames(metric))]).catch(none),
  labelValues: (label, metric) =>
    kept
      .get(`values ${label} ${metric ?? ""}`, async () => [
        ...(await askLabelValues(label, metric)),
      ])
      .catch(none),
  metricMetadata: () =>
    kept
      .get("metadata", async () => {
        const [catalog, metadata] = await Promise.all([askCatalog(), askMetadata()]);
        return describedNames(catalog, metadata);
      })
      .catch(() => ({})),
  // Neither is asked for by the completion that the field uses.
  series: async () => [],
  flags: async () => ({}),
};

/** Our names too, where another exporter's series answer them. */
async function names(): Promise<string[]> {
  const [stored, catalog] = await Promise.all([askMetricNames(), askCatalog()]);
  const known = new Set(stored);
  const ours = catalog.filter((metric) => metric.aliases.some((alias) => known.has(alias.name)));
  return [...new Set([...stored, ...ours.map((metric) => metric.name)])];
}

/** Without completions one can still write. */
function none(): string[] {
  return [];
}
