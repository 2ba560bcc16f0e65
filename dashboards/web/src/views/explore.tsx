/** Any PromQL: `#/explore?query=…&query2=…&shown=table`. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Failure } from "../api/client";
import { type Answer, askCardinality, askMoment, askRange } from "../api/explore";
import { askCatalog, askMetricNames, LISTED_MAX, type Metric } from "../api/metadata";
import { EXAMPLES } from "../parts/explore-finder-words";
import { type Answered, chartsOf } from "../parts/explore-lines";
import { renamed, unknownIn } from "../parts/explore-names";
import { ExploreChart, ExploreTable } from "../parts/explore-results";
import { QueryRow, type RowOutcome } from "../parts/explore-row";
import { MetricFinder, QueryHistory } from "../parts/explore-side";
import { type Asked, asked, letterOf, momentsOf, stepFor, written } from "../parts/explore-state";
import { finder, unitOf } from "../parts/explore-unit";
import { type Resource, useResource } from "../resource";
import { route, withQuery } from "../route";
import { fix, now, range, rangeWord } from "../time";
import { Panel } from "../ui/panel";
import { Below, Failed, Loading, type Room, Shown, Stale } from "../ui/states";
import { completion } from "./explore-completion";
import { useDesk } from "./explore-desk";
import "../style/explore.css";

/** While the time follows the clock, queries are not asked more often. */
const PULSE_SECONDS = 15;

/** What one query gave, or why it gave nothing. */
interface Outcome {
  readonly query: string;
  readonly answer?: Answer;
  readonly error?: string;
}

interface Outcomes {
  readonly all: readonly Outcome[];
  readonly from: number;
  readonly to: number;
  readonly step: number;
}

async function outcomeOf(query: string, answer: Promise<Answer>): Promise<Outcome> {
  try {
    return { query, answer: await answer };
  } catch (error) {
    // One wrong query hides no other; a service that is away is the page's matter.
    if (!(error instanceof Failure) || error.isUnreachable || error.status === 401) throw error;
    return { query, error: error.detail || error.title };
  }
}

/** Asks all queries; what was answered before stays until the new answer is there. */
function useOutcomes(state: Asked, width: number) {
  const { from, to, last } = range.value;
  const step = stepFor(to - from, width);
  const resource = useResource<Outcomes>(
    JSON.stringify([state.queries, rangeWord.value, state.shown === "table" ? "table" : step]),
    async (abort) => {
      const moments = momentsOf(range.value.from, range.value.to, step);
      const asking = state.queries.map((query) =>
        outcomeOf(
          query,
          state.shown === "table"
            ? askMoment(query, range.value.to, abort)
            : askRange(query, moments.from, moments.to, step, abort),
        ),
      );
      return { all: await Promise.all(asking), ...moments, step };
    },
    last === undefined ? 0 : Math.floor(now.value / Math.max(PULSE_SECONDS, step)),
  );
  const before = useRef<Outcomes>(undefined);
  if (resource.data) before.current = resource.data;
  return { ...resource, data: resource.data ?? before.current, isOld: !resource.data };
}

export default function Explore() {
  const state = asked(route.value.query);
  const [place, width] = useWidth();
  const catalog = useResource("catalog", askCatalog);
  const outcomes = useOutcomes(state, width);
  const desk = useDesk(state, outcomes.reload);
  const names = useResource("metric names", askMetricNames);
  const held = useMemo(() => heldBy(names.data, catalog.data), [names.data, catalog.data]);
  return (
    <div class="explore">
      <div class="explore-main" ref={place}>
        <Panel class="explore-queries">
          <h1 class="unseen">Explore</h1>
          {desk.drafts.map((draft, at) => (
            <QueryRow
              key={at}
              place={at}
              client={completion}
              isSole={desk.drafts.length === 1}
              value={draft}
              isRun={state.queries[at] === draft}
              outcome={rowOutcome(outcomes.data?.all[at], draft, outcomes.isOld, held)}
              onName={(from, to) =>
                desk.run(
                  desk.drafts.map((one, other) => (other === at ? renamed(one, from, to) : one)),
                )
              }
              cardinality={(metrics) =>
                askCardinality(metrics, range.value.to, AbortSignal.timeout(COST_MS))
              }
              revision={desk.revision}
              onChange={(text) => desk.type(at, text)}
              onRun={() => desk.run(desk.drafts)}
              onFocus={() => desk.activate(at)}
              onReady={(hand) => desk.take(at, hand)}
              onFormat={() => desk.format(at)}
              onRemove={() => desk.remove(at)}
            />
          ))}
          <Actions
            state={state}
            canAdd={desk.canAdd}
            onRun={() => desk.run(desk.drafts)}
            onAdd={desk.add}
            onShow={(shown) => withQuery(written({ ...state, shown }))}
          />
        </Panel>
        {state.queries.length ? (
          <Results
            state={state}
            resource={outcomes}
            catalog={catalog.data ?? []}
            held={held}
            onOnly={(only) => withQuery({ only }, { replace: true })}
          />
        ) : (
          <Examples onPick={(query) => desk.run([query])} />
        )}
      </div>
      <Side
        catalog={catalog}
        names={names}
        stored={held?.stored}
        history={desk.history}
        onMetric={desk.pick}
        onQuery={desk.recall}
        onForget={desk.forget}
      />
    </div>
  );
}

/** What stands beside the plots on a wide screen: a first guess, so that nothing is asked twice. */
const SIDE_PIXELS = 380;

/** In steps of a hundred pixels: a window that is dragged does not ask at every pixel. */
function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(() => Math.ceil((innerWidth - SIDE_PIXELS) / 100) * 100);
  useEffect(() => {
    const node = place.current;
    if (!node) return;
    const watch = new ResizeObserver(() => {
      if (node.clientWidth > 0) setWidth(Math.ceil(node.clientWidth / 100) * 100);
    });
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  return [place, width];
}

interface Held {
  readonly stored: ReadonlySet<string>;
  /** As the store has them, and those of the catalog that another exporter's series answer. */
  readonly answered: ReadonlySet<string>;
  readonly ours: ReadonlySet<string>;
}

const COST_MS = 30_000;

/** Undefined while it is not known which metrics there are, and where there are too many to list. */
function heldBy(
  names: readonly string[] | undefined,
  catalog: readonly Metric[] | undefined,
): Held | undefined {
  if (!names || !catalog || names.length >= LISTED_MAX) return undefined;
  const stored = new Set(names);
  const others = catalog.filter((metric) => metric.aliases.some(({ name }) => stored.has(name)));
  return {
    stored,
    answered: new Set([...names, ...others.map((metric) => metric.name)]),
    ours: new Set(catalog.map((metric) => metric.name)),
  };
}

function rowOutcome(
  outcome: Outcome | undefined,
  draft: string,
  isOld: boolean,
  held: Held | undefined,
): RowOutcome | undefined {
  if (!outcome || outcome.query !== draft || isOld) return undefined;
  if (outcome.error !== undefined) return { error: outcome.error };
  if (!outcome.answer) return undefined;
  const { series, seconds, notes, samples } = outcome.answer;
  const unknown = held ? unknownIn(outcome.query, held.answered, held.ours) : [];
  return { series: series.length, seconds, notes, samples, unknown };
}

function Actions(props: {
  state: Asked;
  canAdd: boolean;
  onRun: () => void;
  onAdd: () => void;
  onShow: (shown: Asked["shown"]) => void;
}) {
  const { shown } = props.state;
  return (
    <div class="explore-actions">
      <button type="button" class="primary" title="Enter, or Ctrl+Enter" onClick={props.onRun}>
        Run
      </button>
      <button type="button" disabled={!props.canAdd} onClick={props.onAdd}>
        Add query
      </button>
      <span class="soft hint">
        <kbd>Enter</kbd> runs, <kbd>Shift</kbd>+<kbd>Enter</kbd> new line, <kbd>Ctrl</kbd>+
        <kbd>Space</kbd> completes
      </span>
      <fieldset class="explore-switch" aria-label="Shown as">
        <button type="button" aria-pressed={shown === "plot"} onClick={() => props.onShow("plot")}>
          Plot
        </button>
        <button
          type="button"
          aria-pressed={shown === "table"}
          onClick={() => props.onShow("table")}
        >
          Table
        </button>
      </fieldset>
    </div>
  );
}

/** On a phone at least down to its lower edge: what stands beside it on a wide page is below it there. */
const RESULTS_ROOM: Room = { wide: 420, narrow: 640 };

function Results(props: {
  state: Asked;
  resource: Resource<Outcomes> & { isOld: boolean };
  catalog: readonly Metric[];
  held: Held | undefined;
  onOnly: (key: string | undefined) => void;
}) {
  const { resource, state, held } = props;
  if (!resource.data)
    return resource.failure ? (
      <Failed resource={resource} what="answer" />
    ) : (
      <Loading what="an answer" since={resource.askedAt} room={RESULTS_ROOM} />
    );
  const find = finder(props.catalog);
  const { all, from, to, step } = resource.data;
  const good = all.flatMap(({ query, answer }, place) =>
    answer ? [{ query, answer, place, unit: unitOf(query, find) }] : [],
  );
  const unknownOf = (query: string) => (held ? unknownIn(query, held.answered, held.ours) : []);
  const isTable = state.shown === "table";
  const answers: Answered[] = good.map(({ answer, ...rest }) => ({ ...rest, ...answer }));
  return (
    <div class={`explore-results ${resource.isOld ? "is-old" : ""}`}>
      {resource.isOld && resource.failure ? (
        <Failed resource={resource} what="answer" />
      ) : (
        <Stale resource={resource} />
      )}
      {isTable
        ? good.map((one) => (
            <ExploreTable key={one.place} {...one} time={to} unknown={unknownOf(one.query)} />
          ))
        : chartsOf(answers, from, to, step).map((chart) => (
            <ExploreChart
              key={chart.unit ?? "none"}
              chart={chart}
              only={state.only}
              isCut={good.some((one) => one.answer.isCut)}
              unknown={good
                .filter((one) => chart.letters.includes(letterOf(one.place)))
                .flatMap((one) => unknownOf(one.query))}
              onOnly={props.onOnly}
              onSelect={fix}
            />
          ))}
    </div>
  );
}

function Examples({ onPick }: { onPick: (query: string) => void }) {
  return (
    <Panel
      title="Ask anything"
      hint="write a query above, choose a metric, or begin with one of these"
    >
      <ul class="explore-examples">
        {EXAMPLES.map(({ words, query }) => (
          <li key={query}>
            <button type="button" class="plain" onClick={() => onPick(query)}>
              <b>{words}</b>
              <code>{query}</code>
            </button>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Side(props: {
  catalog: Resource<readonly Metric[]>;
  /** Of the stored metrics: those without samples stand last in the list, so it waits for them. */
  names: Resource<unknown>;
  stored: ReadonlySet<string> | undefined;
  history: readonly string[];
  onMetric: (metric: Metric) => void;
  onQuery: (query: string) => void;
  onForget: () => void;
}) {
  const [shown, setShown] = useState<"metrics" | "history">("metrics");
  return (
    <aside class="panel explore-side" aria-label="Metrics and history">
      <fieldset class="explore-switch" aria-label="Beside the queries">
        <button
          type="button"
          aria-pressed={shown === "metrics"}
          onClick={() => setShown("metrics")}
        >
          Metrics
        </button>
        <button
          type="button"
          aria-pressed={shown === "history"}
          onClick={() => setShown("history")}
        >
          History
        </button>
      </fieldset>
      {shown === "history" ? (
        <QueryHistory history={props.history} onPick={props.onQuery} onForget={props.onForget} />
      ) : (
        <Shown resource={props.catalog} what="metrics">
          {(catalog) => (
            <Below above={[props.names]}>
              <MetricFinder catalog={catalog} stored={props.stored} onPick={props.onMetric} />
            </Below>
          )}
        </Shown>
      )}
    </aside>
  );
}
