/** `#/`: the point in ten seconds. What is wrong, what it costs, what to do; and how the fleet stands. */
import { useEffect, useState } from "preact/hooks";
import type { Page } from "../api/client";
import {
  askAnyJob,
  askFiring,
  askIsAnybodyKnown,
  askNumbersOfFleet,
  askRunning,
  type Fleet,
} from "../api/fleet";
import { type Incident, type IncidentShort, named } from "../api/incidents";
import { askVerdict } from "../api/jobs";
import { askSilences, type Silence } from "../api/service";
import { askIncident, listIncidents, OPEN_MAX } from "../api/trouble";
import { ago, count, percent } from "../format";
import { changes, isStale, onChange } from "../live";
import { wayToFabric } from "../parts/fabric-way";
import { type Headline, headline } from "../parts/now-state";
import { VerdictCard } from "../parts/verdict";
import { gpuHours, hoursNumber, money, total } from "../parts/verdict-cost";
import { causeOf, quietSince } from "../parts/verdict-words";
import { LookedAfterBadge, SilencedBadge } from "../parts/work-badges";
import { alertLabels, silenceOf } from "../parts/work-words";
import { keptPrice } from "../price";
import { type Resource, useResource } from "../resource";
import { href } from "../route";
import { now } from "../time";
import { Badge, Panel, Tile } from "../ui/panel";
import { Empty, Failed, Loading, Shown, Stale } from "../ui/states";
import { Jobs } from "./now-jobs";
import { SilencesNow } from "./now-silences";
import "../style/now.css";

const NS = 1e9;
/** Verdicts on cards, the costliest; others stand in a line each. */
const CARDS = 8;
const CLOSED_SHOWN = 8;
const NEW_SECONDS = 120;
/** What stands on top where nothing is wrong: a headline and a sentence. */
const HEADLINE_PIXELS = 60;

/** Moves every so many seconds, at a tick of the clock. */
function every(seconds: number): number {
  return Math.floor(now.value / seconds);
}

async function openOnes(abort: AbortSignal): Promise<{ cards: Incident[]; rest: IncidentShort[] }> {
  const { items } = await listIncidents({ state: "open" }, OPEN_MAX, abort);
  const sorted = [...items].sort((a, b) => b.gpu_hours - a.gpu_hours || b.since_ns - a.since_ns);
  const cards = await Promise.all(sorted.slice(0, CARDS).map((one) => askIncident(one.id, abort)));
  return { cards, rest: sorted.slice(CARDS) };
}

async function whoLooks(abort: AbortSignal) {
  const job = await askAnyJob(abort);
  const [seen, isKnown] = await Promise.all([
    job === undefined ? undefined : askVerdict(job, abort),
    askIsAnybodyKnown(abort),
  ]);
  return { seen, isKnown };
}

export default function Now() {
  const open = useResource("open", openOnes, `${changes.value}:${every(15)}`);
  const looks = useResource("looks", whoLooks, every(10));
  const numbers = useResource("fleet", (abort) => askNumbersOfFleet(now.value, abort), every(15));
  const jobs = useResource("jobs", askRunning, every(15));
  const silences = useResource("silences", askSilences, every(30));
  const closed = useResource(
    "closed",
    (abort) => listIncidents({ state: "closed" }, CLOSED_SHOWN, abort),
    `${changes.value}:${every(60)}`,
  );
  // One sentence is enough where the service is not reached at all.
  if (open.data === undefined && open.failure) return <Failed resource={open} what="incidents" />;
  return (
    <>
      <News />
      <Top open={open} looks={looks} numbers={numbers} jobs={jobs} closed={closed} />
      {/* What is wrong, and what is silenced, pushes the rest down: the rest comes with it or after. */}
      {open.data && (silences.data || silences.failure) && (
        <>
          <SilencesNow silences={silences.data} />
          <Troubles {...open.data} silences={silences.data} />
          <Tiles numbers={numbers} jobs={jobs} open={open} />
          <Jobs
            jobs={jobs}
            open={[...open.data.cards, ...open.data.rest]}
            isFresh={looks.data?.seen?.is_fresh ?? false}
          />
          <Closed closed={closed} />
        </>
      )}
    </>
  );
}

/** Announces what just happened to screen readers. */
function News() {
  const [latest, setNews] = useState("");
  useEffect(
    () =>
      onChange(({ news, incident: one }) => {
        if (news !== "updated") setNews(`Incident ${news}: ${one.summary}`);
      }),
    [],
  );
  return (
    <div class="unseen" role="status" aria-live="assertive">
      {latest}
    </div>
  );
}

type Looks = Resource<Awaited<ReturnType<typeof whoLooks>>>;
type Open = Resource<Awaited<ReturnType<typeof openOnes>>>;
type JobsFound = Resource<Awaited<ReturnType<typeof askRunning>>>;

/** The headline, as soon as everything that it rests on has been answered once. */
function Top(props: {
  open: Open;
  looks: Looks;
  numbers: Resource<Fleet>;
  jobs: JobsFound;
  closed: Resource<{ items: readonly IncidentShort[] }>;
}) {
  const { open, looks, numbers, jobs, closed } = props;
  const failed = [looks, jobs].find((one) => one.failure && one.data === undefined);
  if (failed) return <Failed resource={failed} what="jobs" />;
  const openCount = open.data && open.data.cards.length + open.data.rest.length;
  const isAllKnown = looks.data && jobs.data && (numbers.data || numbers.failure);
  // Trouble is shown at once; its absence only when every answer has come.
  if (openCount === undefined || (openCount === 0 && !isAllKnown))
    return <Loading what="what is going on" since={open.askedAt} room={HEADLINE_PIXELS} />;
  const looked = looks.data?.seen?.evaluated_at;
  const ends = closed.data?.items.map((one) => (one.until_ns ?? one.last_seen_ns) / NS) ?? [];
  const known = headline({
    open: openCount,
    lookedAt: looked ? Date.parse(looked) / 1000 : undefined,
    isFresh: looks.data?.seen?.is_fresh,
    isHostKnown: looks.data?.isKnown ?? true,
    hosts: numbers.data?.hosts,
    silent: numbers.data?.silent,
    jobs: jobs.data ? running(jobs.data, numbers.data) : 0,
    gpus: numbers.data?.gpus,
    ports: numbers.data?.ports,
    quietSince: ends.length ? Math.max(...ends) : undefined,
    now: now.value,
  });
  return (
    <>
      <Stale resource={open} />
      {isStale.value && (
        <p class="state stale" role="status">
          News do not arrive. What is shown is asked for every 15 seconds.
        </p>
      )}
      <HeadlineShown headline={known} />
    </>
  );
}

/** How many jobs run: as listed, or as measured where the list is cut. */
function running(listed: Page<unknown>, numbers: Fleet | undefined): number {
  const { length } = listed.items;
  return listed.next === null ? length : Math.max(length, numbers?.jobs ?? 0);
}

function HeadlineShown({ headline }: { headline: Headline }) {
  const { tone, title, text, isFirstTime } = headline;
  return (
    <section class={`now-headline ${tone}`} aria-label="How it stands">
      <h1>
        <span class="mark" aria-hidden="true">
          {MARKS[tone]}
        </span>
        {title}
      </h1>
      <p class="soft">{text}</p>
      {isFirstTime && <FirstSteps />}
    </section>
  );
}

const MARKS = { bad: "✕", warn: "!", good: "✓", "": "○" } as const;

function FirstSteps() {
  return (
    <dl class="now-first">
      <dt>On each host</dt>
      <dd>
        <code>fabricscope agent --service {location.origin}</code>
      </dd>
      <dt>Or look at a cluster that is simulated</dt>
      <dd>
        <code>make demo</code>
      </dd>
      <dt>Or let a Prometheus that you have send what it scrapes</dt>
      <dd>
        <code>
          remote_write: [{"{"}url: "{location.origin}/api/v1/write"{"}"}]
        </code>
      </dd>
    </dl>
  );
}

type Silences = readonly Silence[] | undefined;

function Troubles(props: {
  cards: readonly Incident[];
  rest: readonly IncidentShort[];
  silences: Silences;
}) {
  const { cards, rest, silences } = props;
  const price = keptPrice();
  const sorted = [...cards].sort((a, b) => total(b.verdict.costs) - total(a.verdict.costs));
  return (
    <>
      {sorted.map((one, place) => (
        <VerdictCard
          key={one.id}
          isFolded={place > 0}
          verdict={one.verdict}
          price={price}
          now={now.value}
          lasted={one.lasted_seconds}
          quiet={quietSince(one, now.value)}
          isNew={now.value - one.first_said_ns / NS < NEW_SECONDS}
          marks={<Marks {...one} {...one.verdict} silences={silences} />}
          href={href(["incident", one.id])}
        >
          <a class="button primary" href={href(["incident", one.id])}>
            Evidence and story
          </a>
          {one.verdict.jobs[0] && (
            <a
              class="button"
              href={href(["job", one.verdict.jobs[0]], { rank: one.verdict.culprit.rank })}
            >
              Job
            </a>
          )}
          <InFabric incident={one} />
        </VerdictCard>
      ))}
      {rest.length > 0 && (
        <Panel title={`${count(rest.length, "more open incident")}`} tone="bad">
          <ShortList items={rest} silences={silences} />
        </Panel>
      )}
    </>
  );
}

/** Who looks after it, and whether it is silenced. */
function Marks(
  props: Pick<IncidentShort, "id" | "cause" | "reason" | "culprit" | "work"> & {
    silences: Silences;
  },
) {
  return (
    <>
      <LookedAfterBadge work={props.work} />
      <SilencedBadge
        silence={silenceOf(props.silences, alertLabels(props.id, props))}
        now={now.value}
      />
    </>
  );
}

function InFabric({ incident }: { incident: Incident }) {
  const way = wayToFabric(incident, now.value);
  return way ? (
    <a class="button" href={href(["fabric"], way)}>
      In the fabric
    </a>
  ) : null;
}

function ShortList(props: { items: readonly IncidentShort[]; silences?: Silences }) {
  return (
    <ul class="now-short">
      {props.items.map((one) => (
        <li key={one.id}>
          <span class="soft">{ago((one.until_ns ?? one.since_ns) / NS, now.value)}</span>
          <Badge tone={one.state === "open" ? "bad" : ""}>{causeOf(one.cause).title}</Badge>
          <span>
            <a href={href(["incident", one.id])} title={one.summary}>
              {named(one.culprit)}
            </a>{" "}
            {one.state === "open" && <Marks {...one} silences={props.silences} />}
          </span>
          <span class="soft">{one.jobs.join(", ")}</span>
          <span class="soft">{one.costs.length ? gpuHours(one.gpu_hours) : "costs not known"}</span>
        </li>
      ))}
    </ul>
  );
}

function Closed({ closed }: { closed: Resource<{ items: readonly IncidentShort[] }> }) {
  return (
    <Panel
      title="Recently over"
      aside={<a href={href(["incident"], { state: "closed" })}>All of them</a>}
    >
      <Shown
        resource={closed}
        what="closed incidents"
        isEmpty={(data) => data.items.length === 0}
        empty={<Empty title="No incident has ended yet" />}
      >
        {(data) => <ShortList items={data.items} />}
      </Shown>
    </Panel>
  );
}

// --- tiles ----------------------------------------------------------------------------------------

/** A number of the fleet; a dash where it is not measured. */
function numberOf(value: number | undefined): string {
  return value === undefined ? "–" : Math.round(value).toLocaleString("en");
}

function Tiles(props: { numbers: Resource<Fleet>; jobs: JobsFound; open: Open }) {
  const alerts = useResource("alerts", askFiring, `${changes.value}:${every(15)}`);
  const { data, failure } = props.numbers;
  // The text below a number; or that it is not measured, or not answered yet.
  const hintOf = (value: number | undefined, words: string) => {
    if (value !== undefined) return words;
    return data ? "not measured" : failure ? "no answer" : "asked for …";
  };
  const price = keptPrice();
  const slow = new Set(
    [...(props.open.data?.cards ?? []), ...(props.open.data?.rest ?? [])].flatMap(
      (one) => one.jobs,
    ),
  );
  const jobCount = props.jobs.data && running(props.jobs.data, data);
  const slowCount = props.jobs.data?.items.filter((job) => slow.has(job.id)).length ?? 0;
  const lost = data?.lost_gpu_seconds === undefined ? undefined : data.lost_gpu_seconds / 3600;
  const unexplained = alerts.data?.filter(
    (one) => !one.annotations.inhibited_by && !one.labels.incident,
  ).length;
  return (
    <section class="tiles" aria-label="The fleet">
      <Tile
        label="Jobs running"
        value={numberOf(jobCount)}
        hint={slowCount ? `${slowCount} in trouble` : "none in trouble"}
        tone={slowCount ? "bad" : ""}
        href={href(["job"])}
      />
      <Tile
        label="Hosts reporting"
        value={data?.hosts === undefined ? "–" : numberOf(data.hosts - (data.silent ?? 0))}
        hint={hintOf(data?.hosts, data?.silent ? `${data.silent} silent` : "none silent")}
        tone={data?.silent ? "warn" : ""}
        href={href(["hosts"])}
      />
      <Tile
        label="GPUs"
        value={numberOf(data?.gpus)}
        hint={hintOf(data?.busy, `${percent(data?.busy)} busy`)}
        href={href(["hosts"])}
      />
      <Tile
        label="Ports with a link"
        value={numberOf(data?.ports)}
        hint={hintOf(
          data?.ports,
          data?.ports_lost ? `${data.ports_lost} lost in an hour` : "none lost",
        )}
        tone={data?.ports_lost ? "bad" : ""}
        href={href(["fabric"])}
      />
      <Tile
        label="Network in steps"
        value={percent(data?.network)}
        hint={hintOf(data?.network, "the goal: below 25 %")}
        tone={(data?.network ?? 0) > 0.25 ? "warn" : ""}
        href={href(["explore"], { query: "fabric_job_network_share_ratio" })}
      />
      <Tile
        label="Alerts firing"
        value={numberOf(alerts.data?.length)}
        hint={unexplained === undefined ? "" : `${unexplained} unexplained`}
        tone={unexplained ? "warn" : ""}
        href={href(["settings"])}
      />
      <Tile
        label="Bursts, last hour"
        value={numberOf(data?.bursts)}
        hint={hintOf(data?.bursts, "a collective is one")}
        href={href(["explore"], {
          query: "topk(10, rate(fabric_burst_bursts_total[5m]))",
        })}
      />
      <Tile
        label="GPU-hours lost"
        value={lost === undefined ? "–" : hoursNumber(lost)}
        hint={hintOf(lost, `in the last day${lost && price ? `: ${money(lost, price)}` : ""}`)}
        tone={(lost ?? 0) >= 8 ? "bad" : (lost ?? 0) >= 1 ? "warn" : ""}
        href={href(["costs"])}
      />
    </section>
  );
}
