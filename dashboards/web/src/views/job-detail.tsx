/**
 * One job over time. Everything that is chosen stands in the address:
 *
 *     #/job/ID?from&to&quantity=late|compute|wait|network|step&rank=7&step=1794734001.2&rows=host&order=worst
 *
 * `step` is a moment within the step, because steps have numbers only within a range.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type AskedHeat, askHeat, type Quantity } from "../api/heat";
import type { IncidentShort } from "../api/incidents";
import { askIncidents, askJob, askVerdict, type JobDetail, unixSeconds } from "../api/jobs";
import { count } from "../format";
import { changes } from "../live";
import { latestOf, type RankRecord, recordsOf } from "../parts/heat";
import { isQuantity, latestWords } from "../parts/heat-words";
import { JobHead } from "../parts/job-head";
import { RankTable } from "../parts/job-ranks";
import { accusedRanks, culpritWords, verdictWords } from "../parts/job-words";
import { type Span, zoomed } from "../parts/timeline";
import type { Band } from "../parts/timeline-clock";
import { Timeline } from "../parts/timeline-stack";
import { causeOf } from "../parts/verdict-words";
import { type Resource, useResource } from "../resource";
import { href, type Query, route, withQuery } from "../route";
import "../style/job.css";
import { fix, now, range, rangeWord } from "../time";
import { Panel } from "../ui/panel";
import { Failed, Loading, Shown, Stale } from "../ui/states";
import { JobStages } from "./job-stages";
import { type Choice, quietly, Tracks } from "./job-tracks";
import { JobWays } from "./job-ways";

/** A heat map is megabytes, and its newest step seconds old anyway. */
const PULSE_SECONDS = 30;
const NS = 1e9;
/** One and the same, so that nothing is drawn anew for it. */
const NONE: readonly IncidentShort[] = [];
/** Steps back that are remembered; older ones are in the browser's history. */
const BACK_MAX = 50;
/** Of a job that ended its last half hour is shown, unless the address names another time. */
const LAST_SECONDS = 1800;
/** Longer jobs are not shown whole: nothing could be distinguished. */
const WHOLE_SECONDS_MAX = 86_400;

export function JobDetailView({ id }: { id: string }) {
  const pulse = Math.floor(now.value / PULSE_SECONDS);
  const job = useResource(`job ${id}`, (abort) => askJob(id, abort), pulse);
  const isAwaited = useTimeOfEnded(job.data);
  if (!job.data && job.failure) return <Failed resource={job} what="job" />;
  if (isAwaited) return <HeadAwaited since={job.askedAt} />;
  // What happened in it is asked for beside it: the answers do not need each other.
  return (
    <>
      <Stale resource={job} />
      <JobOverTime id={id} found={job} span={spanAt(pulse)} />
    </>
  );
}

/** What the address asks for; while it follows the clock, in steps of the pulse. */
function spanAt(pulse: number): Span {
  const { from, to, last } = range.value;
  return last === undefined
    ? { from, to }
    : { from: pulse * PULSE_SECONDS - last, to: pulse * PULSE_SECONDS };
}

/**
 * An address without a time means "now", in which a job that has ended shows nothing: then its last half hour
 * goes into the address. True until it is known which of the two is asked about, so that no dear question is
 * asked about a time that is not shown.
 */
function useTimeOfEnded(job: JobDetail | undefined): boolean {
  const { from, to, last } = route.value.query;
  const ended = job?.state === "ended" ? unixSeconds(job.ended_at) : undefined;
  const isOpen = !from && !to && !last;
  useEffect(() => {
    if (ended === undefined || !isOpen) return;
    const started = unixSeconds(job?.started_at ?? null) ?? 0;
    const begin = Math.max(started, ended - LAST_SECONDS);
    withQuery({ from: begin.toFixed(0), to: Math.ceil(ended) }, { replace: true });
  }, [ended, isOpen, job?.started_at]);
  return isOpen && (job === undefined || ended !== undefined);
}

/** It has the head's room, so that the plots stay where they are when the head comes. */
function HeadAwaited({ since }: { since: number | undefined }) {
  return (
    <Panel class="job-head">
      <Loading what="the job" since={since} />
    </Panel>
  );
}

function JobOverTime(props: { id: string; found: Resource<JobDetail>; span: Span }) {
  const { id, span } = props;
  const job = props.found.data;
  const { query } = route.value;
  const when = `${span.from} ${span.to}`;
  const quantity: Quantity = isQuantity(query.quantity) ? query.quantity : "late";
  const verdict = useResource(
    `verdict ${id}`,
    (abort) => askVerdict(id, abort),
    `${changes.value} ${Math.floor(now.value / PULSE_SECONDS)}`,
  );
  const incidents = useResource(
    `incidents ${id}`,
    (abort) => askIncidents(id, span.from, span.to, abort),
    `${when} ${changes.value}`,
    rangeWord.value,
  );
  const late = useHeat(id, "late", span);
  const other = useHeat(id, quantity === "late" ? undefined : quantity, span);
  const within = incidents.data ?? NONE;
  const records = useMemo(() => (late.data ? recordsOf(late.data) : []), [late.data]);
  const accused = useMemo(
    () => accusedRanks(late.data?.ranks ?? [], within, id),
    [late.data, within, id],
  );
  const latest = latestOf(records);
  const choice: Choice = {
    quantity,
    rank: wholeOf(query.rank) ?? accused[0] ?? (latest && late.data?.ranks[latest.place]?.rank),
    time: query.step === undefined ? undefined : Number(query.step),
    order: query.order === "worst" ? "worst" : "rank",
    grouping: query.rows === "host" ? "host" : "rank",
  };
  const bands = useMemo(() => within.map((one) => bandOf(one, span.to)), [within, span.to]);
  return (
    <>
      {job ? (
        <JobHead
          job={job}
          statement={
            verdict.data
              ? verdictWords(job, verdict.data, within, span)
              : verdict.failure && {
                  tone: "warn",
                  text: `Its verdict could not be asked for: ${verdict.failure.message}`,
                }
          }
          now={now.value}
          incidentHref={(incident) => href(["incident", incident])}
        >
          <JobWays job={id} span={span} />
        </JobHead>
      ) : (
        <HeadAwaited since={props.found.askedAt} />
      )}
      <OnOneClock job={job} span={span} bands={bands}>
        <Tracks
          job={id}
          ranks={job?.ranks ?? job?.ranks_known}
          span={span}
          heat={other.data ? other : late}
          accused={new Set(accused)}
          choice={choice}
        />
      </OnOneClock>
      <Ranks late={late} records={records} accused={accused} chosen={choice.rank} />
      <JobStages job={id} span={span} />
    </>
  );
}

/**
 * The map of lateness is always asked for, since ranks are judged by it; another one beside it. The old one
 * stays in sight until the new one has come.
 */
function useHeat(id: string, quantity: Quantity | undefined, span: Span) {
  return useResource<AskedHeat | undefined>(
    `heat ${id} ${quantity}`,
    async (abort) => quantity && askHeat(id, quantity, span.from, span.to, abort),
    `${span.from} ${span.to}`,
    rangeWord.value,
  );
}

function wholeOf(word: string | undefined): number | undefined {
  return word !== undefined && /^\d{1,9}$/.test(word) ? Number(word) : undefined;
}

function bandOf(incident: IncidentShort, to: number): Band {
  const until = incident.until_ns === null ? Number.POSITIVE_INFINITY : incident.until_ns / NS;
  return {
    id: incident.id,
    from: incident.since_ns / NS,
    to: Math.min(until, to),
    label: `${causeOf(incident.cause).title}: ${culpritWords(incident.culprit)}`,
    href: href(["incident", incident.id]),
  };
}

/** The plots, and the ways through time: select, closer, wider, back. */
function OnOneClock(props: {
  /** Undefined: not known yet. */
  job: JobDetail | undefined;
  span: Span;
  bands: readonly Band[];
  children: ComponentChildren;
}) {
  const { span } = props;
  const back = useRef<Query[]>([]);
  const look = ({ from, to }: Span) => {
    const { from: was, to: until, last } = route.value.query;
    back.current = [...back.current.slice(1 - BACK_MAX), { from: was, to: until, last }];
    fix(from, to);
  };
  const showWhole = () => {
    if (props.job) look(wholeOfJob(props.job));
  };
  const goBack = () => {
    const before = back.current.pop();
    if (before) withQuery({ from: undefined, to: undefined, last: undefined, ...before });
    else showWhole();
  };
  const middle = (span.from + span.to) / 2;
  return (
    <Panel
      title="On one clock"
      hint="Drag selects a time · Shift and drag moves · Ctrl and wheel zooms · double click goes back"
      aside={
        <div class="row">
          <button
            type="button"
            title="Half of this time"
            onClick={() => look(zoomed(span, middle, 0.5))}
          >
            Closer
          </button>
          <button
            type="button"
            title="Twice this time"
            onClick={() => look(zoomed(span, middle, 2))}
          >
            Wider
          </button>
          <button type="button" disabled={!back.current.length} onClick={goBack}>
            Back
          </button>
          <button type="button" disabled={!props.job} onClick={showWhole}>
            Whole job
          </button>
        </div>
      }
    >
      <Timeline
        label="Plots on one clock. Arrow keys move through time, plus and minus zoom."
        span={span}
        bands={props.bands}
        onSpan={look}
        onBack={goBack}
      >
        {props.children}
      </Timeline>
    </Panel>
  );
}

/** From its start to its end or now; of a long one the last day. */
function wholeOfJob(job: JobDetail): Span {
  const to = unixSeconds(job.ended_at) ?? now.value;
  const from = unixSeconds(job.started_at) ?? unixSeconds(job.first_seen) ?? to - LAST_SECONDS;
  return { from: Math.floor(Math.max(from, to - WHOLE_SECONDS_MAX)), to: Math.ceil(to) };
}

function Ranks(props: {
  late: Resource<AskedHeat | undefined>;
  records: readonly RankRecord[];
  accused: readonly number[];
  chosen: number | undefined;
}) {
  return (
    <Shown resource={quietly(props.late)} what="ranks">
      {(heat) =>
        heat &&
        heat.ranks.length > 0 && (
          <Panel title="Ranks" hint={latestWords(heat, props.records)}>
            <RankTable
              heat={heat}
              records={props.records}
              accused={new Set(props.accused)}
              chosen={props.chosen}
              hostHref={(host) => href(["hosts", host])}
              onRank={(rank) => withQuery({ rank, step: undefined })}
            />
            {heat.ranksLeftOut > 0 && (
              <p class="soft">{count(heat.ranksLeftOut, "rank")} that stand out least not shown.</p>
            )}
          </Panel>
        )
      }
    </Shown>
  );
}
