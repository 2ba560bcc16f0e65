/** Beside the queries: which metrics there are, and what was asked before. */
import { useState } from "preact/hooks";
import type { Metric } from "../api/metadata";
import { count } from "../format";
import { Badge } from "../ui/panel";
import { Empty } from "../ui/states";
import { foundMetrics, targetsOf } from "./explore-finder-words";
import { unitWords } from "./explore-unit";

/** Metrics of one list: who wants others searches. */
const LISTED_MAX = 60;

export function MetricFinder(props: {
  catalog: readonly Metric[];
  /** Undefined: not known yet, or too many to list. */
  stored: ReadonlySet<string> | undefined;
  onPick: (metric: Metric) => void;
}) {
  const [search, setSearch] = useState("");
  const [target, setTarget] = useState("");
  const found = foundMetrics(props.catalog, props.stored, search, target);
  const others = target || !props.stored ? [] : foreign(props.catalog, props.stored, search);
  const shown = found.slice(0, LISTED_MAX);
  return (
    <>
      <label>
        <span class="unseen">Search metrics by name or meaning</span>
        <input
          type="search"
          class="explore-search"
          placeholder="Search by name or meaning"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </label>
      <div class="explore-found">
        <span class="soft" role="status">
          {count(found.length, "metric")}
          {found.length > shown.length ? `, ${shown.length} shown` : ""}
        </span>
        <select
          aria-label="Metrics of"
          value={target}
          onChange={(event) => setTarget(event.currentTarget.value)}
        >
          <option value="">of everything</option>
          {targetsOf(props.catalog).map(({ name, metrics }) => (
            <option key={name} value={name}>
              of {name} ({metrics})
            </option>
          ))}
        </select>
      </div>
      <ul class="explore-metrics">
        {shown.map(({ metric, hasData }) => (
          <li key={metric.name}>
            <button
              type="button"
              class={`plain ${hasData ? "" : "is-empty"}`}
              onClick={() => props.onPick(metric)}
            >
              <code>{metric.name}</code>
              <span class="about">
                <Badge>{metric.kind}</Badge>
                {metric.unit && <Badge>{unitWords(metric.unit)}</Badge>}
                {!hasData && <Badge tone="warn">no data</Badge>} {metric.help}
              </span>
            </button>
          </li>
        ))}
        {!shown.length && <Empty title="No metric has all these words" />}
      </ul>
      {others.length > 0 && (
        <details>
          <summary>{count(others.length, "other name")} in the store</summary>
          <ul class="explore-metrics">
            {others.slice(0, LISTED_MAX).map((name) => (
              <li key={name}>
                <button type="button" class="plain" onClick={() => props.onPick(nameless(name))}>
                  <code>{name}</code>
                </button>
              </li>
            ))}
          </ul>
          {others.length > LISTED_MAX && (
            <p class="soft">The first {LISTED_MAX}; search for others.</p>
          )}
        </details>
      )}
    </>
  );
}

/** Names in the store that the catalog does not define: recorded rules, other exporters' metrics. */
function foreign(
  catalog: readonly Metric[],
  stored: ReadonlySet<string>,
  search: string,
): string[] {
  const ours = new Set(
    catalog.flatMap(({ name }) => [name, `${name}_bucket`, `${name}_sum`, `${name}_count`]),
  );
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return [...stored].filter(
    (name) => !ours.has(name) && words.every((word) => name.toLowerCase().includes(word)),
  );
}

/** A name of which nothing but the name is known. */
function nameless(name: string): Metric {
  return { name, target: "", kind: "gauge", unit: "", help: "", labels: [], aliases: [] };
}

export function QueryHistory(props: {
  history: readonly string[];
  onPick: (query: string) => void;
  onForget: () => void;
}) {
  if (!props.history.length)
    return (
      <Empty title="Nothing asked yet">
        Queries that you run are kept in this browser, the last fifty.
      </Empty>
    );
  return (
    <>
      <ul class="explore-history">
        {props.history.map((query) => (
          <li key={query}>
            <button type="button" class="plain" onClick={() => props.onPick(query)}>
              <code>{query}</code>
            </button>
          </li>
        ))}
      </ul>
      <button type="button" onClick={props.onForget}>
        Forget them
      </button>
    </>
  );
}
