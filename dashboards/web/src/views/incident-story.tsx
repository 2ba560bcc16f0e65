/** One incident: the verdict, its evidence with the culprit against its peers, how it went, what to do. */
import { useEffect, useRef } from "preact/hooks";
import { address, isPassOnly } from "../api/client";
import { explain } from "../api/explain";
import { askFeedback, type Feedback } from "../api/feedback";
import { type Culprit, type Evidence, type Incident, named, type Verdict } from "../api/incidents";
import { tracePath } from "../api/jobs";
import { overRange, stepOf } from "../api/promql";
import { together } from "../api/service";
import { askIncident, askTellingEvents } from "../api/trouble";
import { ago, duration } from "../format";
import { changes } from "../live";
import { EvidenceList, type Picture } from "../parts/evidence";
import {
  against,
  type Drawn,
  fromExplanation,
  isExplained,
  isLowBad,
  linesOf,
  questionOf,
} from "../parts/evidence-series";
import { wayToFabric } from "../parts/fabric-way";
import { Story, StoryStrip } from "../parts/story";
import { around, NS } from "../parts/story-turns";
import { RuledOut, VerdictCard, Victims, WhatIf } from "../parts/verdict";
import { causeOf, quietSince, runbookOf } from "../parts/verdict-words";
import { keptPrice } from "../price";
import { type Resource, useResource } from "../resource";
import { href, type Query, route } from "../route";
import { now } from "../time";
import { Download } from "../ui/download";
import { Badge, Panel } from "../ui/panel";
import { OpenInPerfetto } from "../ui/perfetto";
import { Shown } from "../ui/states";
import { FeedbackPanel } from "./incident-feedback";
import { WorkPanel } from "./incident-work";

/** How often an open incident's pictures are asked for again, in seconds. */
const PICTURES_SECONDS = 30;

export function IncidentStory({ id }: { id: string }) {
  const found = useResource(
    id,
    (abort) => askIncident(id, abort),
    `${changes.value}:${Math.floor(now.value / 30)}`,
  );
  return (
    <>
      <div class="incident-trail">
        <a href={href(["incident"])}>Incidents</a> <span class="soft">/</span>{" "}
        <span class="mono">{id}</span>
        {found.data && (
          <Badge tone={found.data.state === "open" ? "bad" : "good"}>{found.data.state}</Badge>
        )}
      </div>
      <Shown resource={found} what="incident">
        {(incident) => <Whole incident={incident} />}
      </Shown>
    </>
  );
}

function Whole({ incident }: { incident: Incident }) {
  const { verdict } = incident;
  const price = keptPrice();
  const { from, to } = around(incident, now.value);
  const when = { from: from.toFixed(0), to: to.toFixed(0) };
  const happened = useEvents(verdict.culprit, from, to);
  // A notice's link opens the incident itself, and no plots, events or answers beside it.
  const isLink = isPassOnly.value;
  const said = useResource<Feedback | undefined>(incident.id, async (abort) =>
    isLink ? undefined : askFeedback(incident.id, abort),
  );
  return (
    <>
      <Links incident={incident} />
      <VerdictCard
        verdict={verdict}
        price={price}
        now={now.value}
        lasted={incident.lasted_seconds}
        quiet={quietSince(incident, now.value)}
        heading="h1"
        when={when}
      >
        <Ways incident={incident} when={when} />
      </VerdictCard>
      <WorkPanel incident={incident} said={said.data?.items} />
      <div class="incident-split">
        <div class="incident-stack">
          <EvidencePanel incident={incident} />
        </div>
        <div class="incident-stack">
          <Panel title="What it costs">
            <WhatIf verdict={verdict} price={price} />
          </Panel>
          <Panel title="What changed when" aside={<Reopened incident={incident} />}>
            <StoryStrip incident={incident} now={now.value} />
            <Story incident={incident} events={happened} now={now.value} />
          </Panel>
          {!isLink && <FeedbackPanel incident={incident} found={said} />}
          <Panel
            title={verdict.victims.length ? `Victims: ${verdict.victims.length}` : "Victims"}
            aside={<VictimsLink verdict={verdict} when={when} />}
          >
            <Victims verdict={verdict} when={when} />
          </Panel>
          <Panel title="Ruled out">
            <RuledOut verdict={verdict} />
          </Panel>
          <Symptoms incident={incident} />
        </div>
      </div>
    </>
  );
}

/** What the trouble was first taken for, and what it turned out to be. */
function Links({ incident }: { incident: Incident }) {
  const { taken_for: before, became } = incident;
  return (
    <>
      {became && (
        <p role="status">
          It turned out to be{" "}
          <a href={href(["incident", became.incident])}>
            {causeOf(became.cause).title.toLowerCase()}: {named(became.culprit)}
          </a>
          .
        </p>
      )}
      {before && (
        <p class="soft">
          It was first taken for{" "}
          <a href={href(["incident", before.incident])}>
            {causeOf(before.cause).title.toLowerCase()}: {named(before.culprit)}
          </a>
          .
        </p>
      )}
    </>
  );
}

function Reopened({ incident }: { incident: Incident }) {
  if (incident.state === "open")
    return <span class="soft">last seen {ago(incident.last_seen_ns / NS, now.value)}</span>;
  return incident.reopened > 0 ? <Badge tone="warn">came back {incident.reopened} ×</Badge> : null;
}

function VictimsLink({ verdict, when }: { verdict: Verdict; when: Query }) {
  const [job] = verdict.jobs;
  if (!job || !verdict.victims.length) return null;
  return <a href={href(["job", job], { ...when, quantity: "wait" })}>See them wait</a>;
}

function Symptoms({ incident }: { incident: Incident }) {
  if (!incident.symptoms_seen) return null;
  return (
    <Panel title="Merged into it" hint="Other explanations of the same trouble">
      <ul class="incident-plain">
        {incident.symptoms.map((symptom) => {
          const [cause, culprit] = "cause" in symptom ? [symptom.cause, symptom.culprit] : symptom;
          return (
            <li key={`${cause}${named(culprit)}`}>
              <Badge>{causeOf(cause).title}</Badge> {named(culprit)}
            </li>
          );
        })}
      </ul>
      {incident.symptoms_seen > incident.symptoms.length && (
        <p class="soft">{incident.symptoms_seen - incident.symptoms.length} more are not kept.</p>
      )}
    </Panel>
  );
}

// --- where to go ----------------------------------------------------------------------------------

/** Of a trace: who looks at single collectives looks at minutes. The service allows an hour. */
const TRACE_SECONDS_MAX = 600;

function Ways({ incident, when }: { incident: Incident; when: Query }) {
  const { verdict } = incident;
  const job = verdict.culprit.job ?? verdict.jobs[0];
  const inFabric = wayToFabric(incident, now.value);
  return (
    <>
      {job && (
        <a class="button" href={href(["job", job], { ...when, rank: verdict.culprit.rank })}>
          Job at this time
        </a>
      )}
      {verdict.jobs[0] && (
        <a
          class="button"
          href={href(["compare", "steps", verdict.jobs[0]], { incident: incident.id })}
        >
          Slow steps against normal
        </a>
      )}
      {inFabric && (
        <a class="button" href={href(["fabric"], inFabric)}>
          In the fabric
        </a>
      )}
      {job && <TraceLink job={job} incident={incident} />}
      <a class="button" href={runbookOf(verdict.cause, verdict.reason)}>
        Runbook
      </a>
      <a class="button" href="/runbooks/incident">
        How to read this
      </a>
    </>
  );
}

/** For Perfetto: the first minutes of the trouble, and a minute before it. */
function TraceLink({ job, incident }: { job: string; incident: Incident }) {
  const since = incident.verdict.since_ns / NS;
  const end = incident.verdict.until_ns === null ? now.value : incident.verdict.until_ns / NS;
  const from = since - 60;
  const url = address(tracePath(job), {
    from: from.toFixed(0),
    to: Math.min(end, from + TRACE_SECONDS_MAX).toFixed(0),
  });
  const name = `${job}-${incident.id}.json`;
  return (
    <>
      <OpenInPerfetto url={url} name={name} title={`${job}: ${incident.id}`} />
      <Download
        url={url}
        name={name}
        title="For Perfetto: ranks, collectives, counters on one clock"
      >
        Trace as a file
      </Download>
    </>
  );
}

// --- evidence -------------------------------------------------------------------------------------

function EvidencePanel({ incident }: { incident: Incident }) {
  const { verdict } = incident;
  const pulse = incident.state === "open" ? Math.floor(now.value / PICTURES_SECONDS) : 0;
  const { from, to } = around(incident, now.value);
  const series = useResource(
    `${incident.id}:${verdict.evidence.map((one) => one.metric).join()}`,
    async (abort) =>
      isPassOnly.value
        ? []
        : Promise.all(verdict.evidence.map((one) => lines(one, from, to, abort))),
    pulse,
  );
  const isExplainNeeded = !isPassOnly.value && verdict.evidence.some(isExplained);
  // Asked once for each explanation that it gave: it takes seconds of a processor.
  const explained = useResource(
    `${incident.id}:${verdict.cause}:${named(verdict.culprit)}:${isExplainNeeded}`,
    async (abort) => {
      const { from, to } = explainWindow(verdict);
      const since = Math.max(from, verdict.since_ns / NS);
      return isExplainNeeded ? explain(incident.id, from, to, since, abort) : undefined;
    },
  );
  const pictures = verdict.evidence.map((one, place): Picture | undefined => {
    if (isPassOnly.value) return undefined;
    if (isExplained(one))
      return picture(explained, (data) => data && fromExplanation(one, data, verdict.culprit));
    return questionOf(one) ? picture(series, (data) => data[place]) : undefined;
  });
  // While it lasts the shade has no end: one that moved would have every plot made anew.
  const until = verdict.until_ns === null ? Number.MAX_SAFE_INTEGER : verdict.until_ns / NS;
  const place = useRef<HTMLElement>(null);
  const { show } = route.value.query;
  // A notice's link leads here: once, not again when the reader has scrolled on.
  useEffect(() => {
    if (show === "evidence") place.current?.scrollIntoView();
  }, [show]);
  return (
    <Panel
      place={place}
      title="Evidence"
      hint="What was seen against what is usual; the incident is shaded"
      aside={
        verdict.clock_error_ns !== null && (
          <span class="soft" title="Times of different hosts that differ by less mean nothing">
            clocks agree within {duration(verdict.clock_error_ns / NS)}
          </span>
        )
      }
    >
      <EvidenceList
        evidence={verdict.evidence}
        culprit={verdict.culprit}
        pictures={pictures}
        bands={[{ from: verdict.since_ns / NS, to: until }]}
        when={{ from, to }}
      />
    </Panel>
  );
}

function picture<T>(
  resource: Resource<T>,
  drawn: (data: T) => Drawn | undefined,
): Picture | undefined {
  if (resource.data !== undefined)
    return drawn(resource.data) ?? { why: "Of this time nothing is kept any more." };
  if (resource.failure)
    return { why: `No numbers: ${resource.failure.detail || resource.failure.title}` };
  return resource.isLoading ? "asked" : undefined;
}

/** Of time that is explained: it is computed anew for this page, and plots show no more. */
const EXPLAIN_SECONDS_MAX = 600;
const BEFORE_SECONDS = 120;

/** The stretch that the evidence from collectives covers, and what was before, as far as it fits. */
function explainWindow(verdict: Verdict): { from: number; to: number } {
  const explained = verdict.evidence.filter(isExplained);
  const began = verdict.since_ns / NS;
  const to = Math.max(began + 1, ...explained.map((one) => (one.to_ns ?? 0) / NS));
  return { from: Math.max(began - BEFORE_SECONDS, to - EXPLAIN_SECONDS_MAX), to };
}

async function lines(
  evidence: Evidence,
  from: number,
  to: number,
  abort: AbortSignal,
): Promise<Drawn | undefined> {
  const question = questionOf(evidence);
  if (!question) return undefined;
  const asked = together(against(question, isLowBad(evidence)));
  const series = await overRange(asked, from, to, stepOf(from, to), abort);
  return series.length ? linesOf(series, evidence, question, { from, to }) : undefined;
}

const EVENTS_MAX = 50;

function useEvents(culprit: Culprit, from: number, to: number) {
  const host = culprit.host || culprit.switch;
  const found = useResource(`${host}:${from.toFixed(0)}`, async (abort) =>
    host && !isPassOnly.value
      ? (await askTellingEvents(host, from, to, EVENTS_MAX, abort)).items
      : [],
  );
  return found.data ?? [];
}
