/** The fabric: `#/fabric?colour=errors&at=…&focus=…&incident=…&rail=…&job=…&form=cells`. */
import { useMemo } from "preact/hooks";
import { askAll } from "../api/client";
import {
  askFabricState,
  askHostsOf,
  type FabricState,
  type JobHosts,
  nothingKnown,
} from "../api/fabric";
import type { IncidentShort } from "../api/incidents";
import { askTopology, type Topology } from "../api/topology";
import { count } from "../format";
import { changes } from "../live";
import { nearest } from "../parts/explore-names";
import { columnsOf, Frame, frameAt, peaks, summaryOf, valueWord } from "../parts/fabric-frames";
import {
  type FabricGraph,
  type Focus,
  focusOf,
  focusWord,
  graphOf,
  linkName,
} from "../parts/fabric-graph";
import type { Hit } from "../parts/fabric-hit";
import { areHostsCells, type Form, formFor } from "../parts/fabric-layout";
import { FabricLegend } from "../parts/fabric-legend";
import { FabricMap } from "../parts/fabric-map";
import { causeWords, type Mark, marksOf, placeOf } from "../parts/fabric-marks";
import { firstOf, joined, stepOf, wholeOf } from "../parts/fabric-moments";
import { linksBetween, linksOfRail } from "../parts/fabric-paths";
import { bucketOf, isQuantity, QUANTITIES, type Quantity } from "../parts/fabric-scale";
import { FabricTable } from "../parts/fabric-table";
import { FabricTime } from "../parts/fabric-time";
import { DidYouMean } from "../parts/name-near";
import { type Resource, useResource } from "../resource";
import { href, route, withQuery } from "../route";
import { isDark } from "../theme";
import { now, range, rangeWord } from "../time";
import { Panel } from "../ui/panel";
import { Empty, Failed, Loading, Shown, Stale } from "../ui/states";
import { Chosen } from "./fabric-chosen";
import { Lit, Tools } from "./fabric-tools";
import "../style/fabric.css";

const TOPOLOGY_PULSE_SECONDS = 30;
const INCIDENTS_MOST = 500;
const WORST_SHOWN = 50;
const NS = 1e9;

export default function Fabric() {
  const { to, last } = range.value;
  const at = last === undefined ? to : undefined;
  const topology = useResource(
    `topology ${at ?? "now"}`,
    (abort) => askTopology(at, abort),
    at === undefined ? Math.floor(now.value / TOPOLOGY_PULSE_SECONDS) : 0,
  );
  // Asked beside the topology, not after it.
  const state = useLinkState(at);
  const incidents = useIncidents();
  return (
    <Shown
      resource={topology}
      what="topology"
      isEmpty={({ links }) => links.length === 0}
      empty={
        <Empty title="No cable is known">
          Cables are seen by LLDP of switches and hosts, by the subnet manager of InfiniBand, or
          read from a topology file: <a href="/docs">see /v1/topology</a>. Run a poller for the
          switches, and look again.
        </Empty>
      }
    >
      {(data) => <Cabled topology={data} state={state} incidents={incidents} />}
    </Shown>
  );
}

/** Names like one that is none; of a port the name of its host or switch counts. */
function nearNodes(graph: FabricGraph, word: string): string[] {
  const [name = "", ...rest] = word.split("/");
  if (graph.nodeOf.has(name)) return [];
  const near = nearest(name, graph.nodeOf.keys());
  return near.map((other) => [other, ...rest].join("/"));
}

interface LinkState {
  /** The moment that is shown and those next to it. */
  readonly first: Resource<FabricState>;
  /** All of the range, asked for behind it. */
  readonly whole: Resource<FabricState | undefined>;
}

/** How all links fared at moments of the range; what is shown does not wait for the others. */
function useLinkState(at: number | undefined): LinkState {
  const { last } = range.value;
  const pulse = last === undefined ? 0 : Math.floor(now.value / stepOf(wholeOf(range.value)));
  const word = rangeWord.value;
  // Whoever moves on to another moment waits for the whole range, or has it.
  // biome-ignore lint/correctness/useExhaustiveDependencies: of this range, as it was opened
  const shown = useMemo(atOf, [word]);
  const first = useResource(
    `fabric state ${word}`,
    (abort) => askFabricState({ ...firstOf(range.value, shown), at }, abort),
    pulse,
  );
  const isFirst = first.data === undefined && !first.failure;
  const whole = useResource(
    `fabric range ${word}`,
    async (abort) => (isFirst ? undefined : askFabricState({ ...wholeOf(range.value), at }, abort)),
    pulse,
    isFirst ? "" : "asked",
  );
  return { first, whole };
}

/** The moment in the address; undefined: the end of the range. */
function atOf(): number | undefined {
  const { at } = route.value.query;
  return at && Number.isFinite(Number(at)) ? Number(at) : undefined;
}

/** The cables are drawn at once; how they fare colours them when it is known. */
function Cabled(props: {
  topology: Topology;
  state: LinkState;
  incidents: readonly IncidentShort[] | undefined;
}) {
  const { topology, incidents } = props;
  const { first, whole } = props.state;
  const graph = useMemo(() => graphOf(topology), [topology]);
  const isGone = whole.data === undefined && whole.failure !== undefined;
  const known = useMemo(() => {
    if (!first.data) return whole.data ?? nothingKnown(range.value.to);
    return isGone ? first.data : joined(first.data, whole.data, wholeOf(range.value));
  }, [first.data, whole.data, isGone]);
  const state = first.data || !whole.data ? first : whole;
  const last = range.value.last;
  // Who is at fault takes lines above and below the drawing, which would push it about later.
  if (!incidents) return <Loading what="incidents" />;
  return (
    <>
      {state.data ? (
        <Stale resource={state} />
      ) : (
        <Failed resource={state} what="state of the links" />
      )}
      {first.data && isGone && <Failed resource={whole} what="state of the links before" />}
      <Seen
        graph={graph}
        state={known}
        incidents={incidents}
        isAnswered={state.data !== undefined}
        isAwaited={!state.failure}
        askedAt={state.askedAt}
        isFollowing={last !== undefined}
      />
    </>
  );
}

/** Everything that is drawn of a state; the rest is asked for beside it. */
function Seen(props: {
  graph: FabricGraph;
  state: FabricState;
  incidents: readonly IncidentShort[];
  isAnswered: boolean;
  /** While it is not answered: whether it may come yet. */
  isAwaited: boolean;
  askedAt: number | undefined;
  isFollowing: boolean;
}) {
  const { graph, state, incidents, isFollowing } = props;
  const { query } = route.value;
  const quantity: Quantity = isQuantity(query.colour) ? query.colour : "utilisation";
  const form: Form = query.form === "lines" || query.form === "cells" ? query.form : formFor(graph);
  const { frame, isAtEnd } = useFrame(graph, state, isFollowing);
  const buckets = useMemo(() => frame.buckets(quantity), [frame, quantity]);
  const moment = isAtEnd && isFollowing ? undefined : frame.time;
  const before = state.stepSeconds;
  const asked = query.incident ?? "";
  const marks = useMemo(
    () => marksOf(graph, incidents, moment, { before, asked }),
    [graph, incidents, moment, before, asked],
  );
  const hosts = useJobHosts();
  const lit = useLit(graph, hosts.data);
  const chosen = focusOf(graph, query.focus ?? "") ?? culpritOf(graph, incidents, query);
  const choose = (focus: Focus | undefined) =>
    withQuery({ focus: focus && focusWord(graph, focus) });
  const worst = useMemo(() => frame.worst(quantity, lit), [frame, quantity, lit]);
  const isAnswered = props.isAnswered && !frame.isAwaited;
  const isAwaited = props.isAwaited || frame.isAwaited;
  const summary = isAnswered
    ? summaryOf(frame)
    : `${count(graph.links.length, "link")}; how they fare is ${isAwaited ? "being asked" : "not known"}.`;
  const culprits = culpritWords(graph, marks, asked);
  return (
    <>
      <h1 class="fabric-summary">
        {summary} {culprits && <span class="bad">{culprits}</span>}
      </h1>
      {query.focus && !chosen && (
        <p class="state stale fabric-unknown" role="status">
          Nothing here is called {query.focus}. It may have been cabled otherwise at this time.
          <DidYouMean
            near={nearNodes(graph, query.focus)}
            onName={(name) => withQuery({ focus: name })}
          />
        </p>
      )}
      <div class="fabric-view">
        <Panel class="fabric-main">
          <Tools graph={graph} quantity={quantity} form={form} />
          <Lit graph={graph} lit={lit} hosts={hosts} />
          <FabricMap
            graph={graph}
            form={form}
            buckets={buckets}
            lit={lit}
            marks={marks}
            chosen={chosen}
            onChoose={choose}
            label={`The fabric by ${QUANTITIES[quantity].label.toLowerCase()}. ${summary} ${culprits}`}
            tip={(hit) => <Tip frame={frame} quantity={quantity} hit={hit} />}
          />
          <FabricLegend
            quantity={quantity}
            hasCells={areHostsCells(graph, form)}
            dark={isDark.value}
          />
          <Time {...{ frame, quantity, incidents, isFollowing, isAtEnd }} />
          <Loose graph={graph} />
        </Panel>
        <div class="fabric-beside">
          {chosen && <Chosen frame={frame} focus={chosen} incidents={incidents} choose={choose} />}
          {!isAnswered && isAwaited ? (
            <Panel title="Worst links" class="fabric-worst">
              <Loading
                what={`the state of ${count(graph.links.length, "link")}`}
                since={props.askedAt}
              />
            </Panel>
          ) : (
            <Worst
              frame={frame}
              quantity={quantity}
              links={worst}
              chosen={chosen}
              choose={choose}
            />
          )}
        </div>
      </div>
    </>
  );
}

/** The state at the moment of the address; without one, at the end of the range. */
function useFrame(graph: FabricGraph, state: FabricState, isFollowing: boolean) {
  const at = atOf();
  const isAtEnd = at === undefined;
  const index = isAtEnd && isFollowing ? lastKnown(state) : frameAt(state.times, at);
  const columns = useMemo(() => columnsOf(graph, state), [graph, state]);
  const frame = useMemo(
    () => new Frame(graph, state, columns, index),
    [graph, state, columns, index],
  );
  return { frame, isAtEnd };
}

const CULPRITS_NAMED = 4;

/** `At fault: node3 mlx5_0 – leaf-0 Ethernet4 (lossy link), node5 (straggler).` */
function culpritWords(graph: FabricGraph, marks: readonly Mark[], asked: string): string {
  const words = marks.map((mark) => `${focusName(graph, mark.focus)} (${mark.cause})`);
  const more = words.length - CULPRITS_NAMED;
  const listed = (some: readonly string[]) =>
    some.join(", ") + (more > 0 ? ` and ${more} more` : "");
  if (!words.length) return "";
  // A reader who came from an incident looks for its culprit; the others are other incidents'.
  if (marks[0]?.incident === asked && words.length > 1)
    return `At fault: ${words[0]}. Other incidents then: ${listed(words.slice(1, CULPRITS_NAMED))}.`;
  return `At fault: ${listed(words.slice(0, CULPRITS_NAMED))}.`;
}

/** Where the culprit is of the incident that the reader came from; by its other end if need be. */
function culpritOf(
  graph: FabricGraph,
  incidents: readonly IncidentShort[],
  { focus, incident }: Readonly<Record<string, string>>,
): Focus | undefined {
  const found = focus && incident ? incidents.find((one) => one.id === incident) : undefined;
  return found && placeOf(graph, found.culprit);
}

/** The last moment may have begun only now, and hold no reading yet: then the one before. */
function lastKnown(state: FabricState): number {
  const width = state.links.length;
  for (let frame = state.times.length - 1; frame > Math.max(0, state.times.length - 4); frame--)
    if (state.utilisation.subarray(frame * width, (frame + 1) * width).some((value) => value >= 0))
      return frame;
  return Math.max(0, state.times.length - 1);
}

function focusName(graph: FabricGraph, focus: Focus): string {
  if (focus.kind === "node") return graph.nodes[focus.index]?.name ?? "";
  const link = graph.links[focus.index];
  return link ? linkName(link) : "";
}

// --- asked for beside the state --------------------------------------------------------------------

/** Incidents that touch the range, whether they are over or not; undefined: not answered yet. */
function useIncidents(): readonly IncidentShort[] | undefined {
  const { from, to, last } = range.value;
  const found = useResource(
    "incidents",
    (abort) =>
      askAll<IncidentShort>("/v1/incidents", { since: range.value.from }, INCIDENTS_MOST, abort),
    changes.value,
    `since ${last ?? from}`,
  );
  const items = found.data?.items ?? (found.failure ? NONE : undefined);
  // While the range follows the clock nothing lies behind its end.
  const end = last === undefined ? to : Number.POSITIVE_INFINITY;
  return useMemo(() => items?.filter((one) => one.since_ns / NS <= end), [items, end]);
}

const NONE: readonly IncidentShort[] = [];

/** Where the job runs that the reader asked for. */
function useJobHosts(): Resource<JobHosts | undefined> {
  const { job } = route.value.query;
  return useResource(`hosts of ${job ?? ""}`, async (abort) =>
    job ? askHostsOf(job, abort) : undefined,
  );
}

/** Links of the job or rail that the reader asked for; undefined: all matter. */
function useLit(graph: FabricGraph, hosts: JobHosts | undefined): ReadonlySet<number> | undefined {
  const { rail } = route.value.query;
  return useMemo(() => {
    const number = rail ? Number(rail) : Number.NaN;
    const ofRail = graph.rails.includes(number) ? linksOfRail(graph, number) : undefined;
    if (!hosts) return ofRail;
    const ofJob = linksBetween(graph, hosts);
    return ofRail ? new Set([...ofJob].filter((link) => ofRail.has(link))) : ofJob;
  }, [graph, rail, hosts]);
}

// --- the parts with what they need -----------------------------------------------------------------

const WORST_NONE: Readonly<Record<Quantity, string>> = {
  utilisation: "No link carries anything at this moment.",
  errors: "No link counts errors at this moment.",
  pause: "No link is paused at this moment.",
};

function Worst(props: {
  frame: Frame;
  quantity: Quantity;
  links: readonly number[];
  chosen: Focus | undefined;
  choose: (focus: Focus) => void;
}) {
  const { frame, quantity, links } = props;
  const word = QUANTITIES[quantity].label.toLowerCase();
  const more = links.length - WORST_SHOWN;
  return (
    <Panel title="Worst links" hint={`by ${word}`} class="fabric-worst">
      {links.length ? (
        <FabricTable
          label={`Links by ${word}, the worst first`}
          frame={frame}
          links={links.slice(0, WORST_SHOWN)}
          chosen={props.chosen}
          onChoose={props.choose}
        />
      ) : (
        <p class="soft">
          {frame.isEmpty ? "Nothing is known of this moment." : WORST_NONE[quantity]}
        </p>
      )}
      {more > 0 && <p class="soft">And {count(more, "link")} more.</p>}
    </Panel>
  );
}

function Tip({ frame, quantity, hit }: { frame: Frame; quantity: Quantity; hit: Hit }) {
  const { graph } = frame;
  const ordered = [...hit.links].sort(
    (one, other) => (frame.value(quantity, other) || 0) - (frame.value(quantity, one) || 0),
  );
  const first = graph.links[ordered[0] ?? -1];
  if (!first) {
    const node = graph.nodes[hit.focus.index];
    return (
      <>
        <b>{node?.name}</b>
        <span>{count(node?.links.length ?? 0, "link")}</span>
      </>
    );
  }
  return (
    <>
      <b>
        {hit.links.length > 1
          ? `${first.low.host} – ${first.high.host}: ${hit.links.length} cables`
          : linkName(first)}
      </b>
      {(Object.keys(QUANTITIES) as Quantity[]).map((one) => (
        <span key={one}>
          {QUANTITIES[one].label} {valueWord(frame, one, first.index)}
        </span>
      ))}
    </>
  );
}

function Time(props: {
  frame: Frame;
  quantity: Quantity;
  incidents: readonly IncidentShort[];
  isFollowing: boolean;
  isAtEnd: boolean;
}) {
  const { quantity, incidents } = props;
  const { graph, state, index } = props.frame;
  const steps = useMemo(
    () =>
      peaks(state, quantity).map(({ most, down }, frame) => ({
        isAwaited: state.awaited?.has(frame) ?? false,
        bucket: Number.isNaN(most) ? -1 : bucketOf(quantity, most),
        words: Number.isNaN(most) ? "unknown" : QUANTITIES[quantity].show(most),
        down,
      })),
    [state, quantity],
  );
  const stretches = useMemo(
    () =>
      incidents
        .filter((one) => placeOf(graph, one.culprit))
        .map((one) => ({
          from: one.since_ns / NS,
          to: (one.until_ns ?? one.closed_ns ?? Number.POSITIVE_INFINITY) / NS,
          label: causeWords(one.cause),
          summary: one.summary,
          href: href(["incident", one.id]),
        })),
    [graph, incidents],
  );
  if (state.times.length < 2) return null;
  return (
    <FabricTime
      times={state.times}
      stepSeconds={state.stepSeconds}
      index={index}
      isFollowing={props.isFollowing}
      isAtEnd={props.isAtEnd}
      peaks={steps}
      incidents={stretches}
      dark={isDark.value}
      onIndex={(index) =>
        withQuery(
          { at: index === undefined ? undefined : state.times[index]?.toFixed(3) },
          { replace: true },
        )
      }
    />
  );
}

const LOOSE_NAMED = 5;

/** Nodes without a place in the drawing, because no cable of theirs is known. */
function Loose({ graph }: { graph: FabricGraph }) {
  const names = graph.nodes.filter((node) => !node.links.length).map((node) => node.name);
  if (!names.length) return null;
  const more = names.length - LOOSE_NAMED;
  return (
    <p class="soft">
      Not drawn, no cable known: {names.slice(0, LOOSE_NAMED).join(", ")}
      {more > 0 ? ` and ${more} more` : ""}.
    </p>
  );
}
