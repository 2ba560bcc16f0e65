/**
 * One verdict for people: what is wrong, who it is, since when, how sure, what it costs, what to do.
 * Everything here is drawn from a bare Verdict: incidents have one, and so have folders of logs.
 */
import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { type Cost, type Culprit, named, type Undecided, type Verdict } from "../api/incidents";
import { ago, count, duration, moment, percent, stamp } from "../format";
import type { Query } from "../route";
import { Badge } from "../ui/panel";
import {
  costLine,
  costSentence,
  gpuHours,
  isMinor,
  money,
  type Price,
  perHour,
} from "./verdict-cost";
import {
  causeOf,
  commandsOf,
  lastedWords,
  namesOf,
  pieces,
  reasonOf,
  ruledOutOf,
  SURE,
  sureness,
} from "./verdict-words";
import "../style/incident.css";

const NS = 1e9;

/** Whether names lead to other views: not in a report, which has none. */
export const Linked = createContext(true);

/** A culprit by every name it has; each leads to the view that shows it. */
export function CulpritNames({ culprit, when }: { culprit: Culprit; when?: Query }) {
  const isLinked = useContext(Linked);
  const names = namesOf(culprit, when);
  if (!names.length) return <span class="soft">No culprit can be named.</span>;
  return (
    <ul class="verdict-names" aria-label="Culprit">
      {names.map((name) => (
        <li key={name.kind}>
          <span class="soft">{name.kind}</span>{" "}
          {isLinked && name.href ? (
            <a class="verdict-name" href={name.href}>
              {name.text}
            </a>
          ) : (
            <b>{name.text}</b>
          )}
        </li>
      ))}
    </ul>
  );
}

/** Cause, reason and layer. */
export function CauseBadges(
  props: Pick<Verdict, "cause" | "reason" | "layer"> & { tone?: string },
) {
  const { cause, reason, layer, tone } = props;
  const words = causeOf(cause);
  const behind = reasonOf(reason);
  return (
    <>
      <span title={words.meaning}>
        <Badge tone={tone ?? "bad"}>{words.title}</Badge>
      </span>
      {behind && <Badge>{behind}</Badge>}
      {layer !== "unknown" && <Badge>{layer}</Badge>}
    </>
  );
}

/** How sure, in words, as a number and as a bar. */
export function Sure({ confidence }: { confidence: number }) {
  return (
    <span class="verdict-sure" title="Of a hundred verdicts with 90 %, ninety should be right.">
      {sureness(confidence)}, {percent(confidence)}
      <span class="verdict-meter" aria-hidden="true">
        <i
          class={confidence >= SURE ? "" : "weak"}
          style={{ width: `${Math.min(1, Math.max(0, confidence)) * 100}%` }}
        />
      </span>
    </span>
  );
}

/**
 * When it began and how long it lasts, or lasted. `now`: unix seconds; none in a report. `lasted`:
 * seconds in which an incident was confirmed, of all its stretches.
 */
export function Since(props: {
  verdict: Verdict;
  now?: number | undefined;
  lasted?: number | undefined;
  /** Unix seconds: an open incident was last seen then, and not since. */
  quiet?: number | undefined;
}) {
  const { verdict, now, lasted, quiet } = props;
  const since = verdict.since_ns / NS;
  const until = verdict.until_ns === null ? undefined : verdict.until_ns / NS;
  const end = until ?? now;
  const passed = end === undefined ? 0 : end - since;
  const long = lasted ?? passed;
  return (
    <span title={stamp(since)}>
      {moment(since, now)}
      {long > 0 && <span class="soft">, {lastedWords(long, passed, until === undefined)}</span>}
      {quiet !== undefined && <span class="soft">; last seen {ago(quiet, now)}</span>}
    </span>
  );
}

/** The cost in one line. */
export function CostLine({ costs, price }: { costs: readonly Cost[]; price?: Price | undefined }) {
  const parts = costLine(costs, price);
  return parts.length ? (
    <span class="verdict-cost">{parts.join(" · ")}</span>
  ) : (
    <span class="soft">not known</span>
  );
}

/** A text in which commands stand between backticks, and a button that copies them. */
export function Action({ text }: { text: string }) {
  const commands = commandsOf(text);
  return (
    <div class="verdict-action">
      <p>
        {pieces(text).map((piece, index) =>
          piece.isCommand ? <code key={index}>{piece.text}</code> : piece.text,
        )}
      </p>
      <CopyButton text={commands || text} what={commands ? "command" : "text"} />
    </div>
  );
}

function CopyButton({ text, what }: { text: string; what: string }) {
  const [result, setResult] = useState("");
  useEffect(() => {
    if (!result) return;
    const timer = setTimeout(() => setResult(""), 2500);
    return () => clearTimeout(timer);
  }, [result]);
  // Browsers hand the clipboard to secure pages only.
  if (!navigator.clipboard) return null;
  return (
    <button
      type="button"
      class="small"
      onClick={() =>
        navigator.clipboard.writeText(text).then(
          () => setResult("Copied"),
          () => setResult("Not allowed"),
        )
      }
    >
      <span role="status">{result || `Copy ${what}`}</span>
    </button>
  );
}

/** The verdict on one card. `children`: where to go from it. */
export function VerdictCard(props: {
  verdict: Verdict;
  price?: Price | undefined;
  now?: number;
  /** Seconds in which the incident was confirmed; none: from its start to its end, or to now. */
  lasted?: number;
  /** Unix seconds: an open incident was last seen then, and not since. */
  quiet?: number | undefined;
  /** What to do is folded up: others come first. */
  isFolded?: boolean;
  isNew?: boolean;
  /** What stands beside the cause: who looks after it, and the like. */
  marks?: ComponentChildren;
  heading?: "h2" | "h1";
  href?: string;
  when?: Query;
  children?: ComponentChildren;
}) {
  const { verdict, price } = props;
  const Heading = props.heading ?? "h2";
  const when = props.when ?? {};
  const tone = verdict.until_ns !== null ? "" : isMinor(verdict.costs) ? "warn" : "bad";
  return (
    <article class={`panel verdict ${tone}`} aria-label={verdict.summary}>
      <div class="row">
        <CauseBadges {...verdict} tone={tone} />
        {props.isNew && <Badge tone="warn">new</Badge>}
        {props.marks}
      </div>
      <Heading class="statement">
        {props.href ? <a href={props.href}>{verdict.summary}</a> : verdict.summary}
      </Heading>
      <CulpritNames culprit={verdict.culprit} when={when} />
      {verdict.accomplices.length > 0 && <Accomplices culprits={verdict.accomplices} when={when} />}
      <dl class="verdict-facts">
        <div>
          <dt>Since</dt>
          <dd>
            <Since verdict={verdict} now={props.now} lasted={props.lasted} quiet={props.quiet} />
          </dd>
        </div>
        <div>
          <dt>How sure</dt>
          <dd>
            <Sure confidence={verdict.confidence} />
          </dd>
        </div>
        <div>
          <dt>Costs so far</dt>
          <dd>
            <CostLine costs={verdict.costs} price={price} />
          </dd>
        </div>
        <div>
          <dt>Suffers</dt>
          <dd>
            <Suffering jobs={verdict.jobs} when={when} />
          </dd>
        </div>
      </dl>
      {verdict.undecided && <NotDecided undecided={verdict.undecided} />}
      {verdict.action && (
        <details open={!props.isFolded}>
          <summary>What to do</summary>
          <Action text={verdict.action} />
        </details>
      )}
      {props.children && <div class="row verdict-ways">{props.children}</div>}
    </article>
  );
}

/** Who it may be, what would decide, and what each answer would mean. */
function NotDecided({ undecided }: { undecided: Undecided }) {
  const suspects = undecided.suspects ?? [];
  return (
    <section class="verdict-undecided" aria-label="Not decided">
      {suspects.length > 1 && (
        <p>
          <b>Not decided between</b>{" "}
          {suspects.map(({ name, culprit, share }, index) => (
            <span key={named(culprit)}>
              {index > 0 && " and "}
              {name || named(culprit)} ({percent(share)})
            </span>
          ))}
          .
        </p>
      )}
      <p>
        <b>What would decide:</b> {undecided.text}
        {undecided.collect && ` By hand: ${undecided.collect}.`}
      </p>
      <ul class="soft">
        {suspects.map(({ culprit, proof }) => proof && <li key={named(culprit)}>{proof}</li>)}
        {undecided.otherwise && <li>{undecided.otherwise}</li>}
      </ul>
    </section>
  );
}

const JOBS_SHOWN = 4;

function Suffering({ jobs, when }: { jobs: readonly string[]; when: Query }) {
  const isLinked = useContext(Linked);
  if (!jobs.length) return <span class="soft">no job that is known</span>;
  return (
    <>
      {jobs.slice(0, JOBS_SHOWN).map((job, index) => (
        <span key={job}>
          {index > 0 && ", "}
          {isLinked ? <a href={namesOf({ job }, when)[0]?.href ?? ""}>{job}</a> : job}
        </span>
      ))}
      {jobs.length > JOBS_SHOWN && ` and ${count(jobs.length - JOBS_SHOWN, "more job")}`}
    </>
  );
}

const CULPRITS_SHOWN = 8;

/** Those who are at fault as well, each by its own names. */
function Accomplices({ culprits, when }: { culprits: readonly Culprit[]; when: Query }) {
  const rest = culprits.length - CULPRITS_SHOWN;
  return (
    <>
      {culprits.slice(0, CULPRITS_SHOWN).map((one) => (
        <CulpritNames key={named(one)} culprit={{ ...one, job: "" }} when={when} />
      ))}
      {rest > 0 && <p class="soft">and {count(rest, "more", "more")}</p>}
    </>
  );
}

const VICTIMS_SHOWN = 12;

/** Who only looks guilty. */
export function Victims({ verdict, when }: { verdict: Verdict; when?: Query }) {
  const isLinked = useContext(Linked);
  const [isAll, setAll] = useState(false);
  const { victims } = verdict;
  if (!victims.length) return <p class="soft">Nothing else looks guilty.</p>;
  const shown = isAll ? victims : victims.slice(0, VICTIMS_SHOWN);
  return (
    <>
      <p class="soft">
        They look guilty and only wait. Leave them alone: they recover when the culprit does.
      </p>
      <ul class="verdict-chips">
        {shown.map((victim) => {
          const names = namesOf(victim, when);
          const address = names.find((name) => name.kind === "Rank")?.href ?? names[0]?.href;
          return (
            <li key={named(victim)}>
              {isLinked && address ? <a href={address}>{named(victim)}</a> : named(victim)}
            </li>
          );
        })}
      </ul>
      {victims.length > shown.length && (
        <button type="button" class="small" onClick={() => setAll(true)}>
          Show all {victims.length}
        </button>
      )}
    </>
  );
}

/** What was looked for and is not the cause. */
export function RuledOut({ verdict }: { verdict: Verdict }) {
  if (!verdict.ruled_out.length) return <p class="soft">Nothing was ruled out explicitly.</p>;
  return (
    <ul class="verdict-ruled-out">
      {verdict.ruled_out.map(({ what, why }) => (
        <li key={`${what}${why}`}>
          <b>Not: {ruledOutOf(what)}.</b> {why.charAt(0).toUpperCase() + why.slice(1)}
        </li>
      ))}
    </ul>
  );
}

const HOURS = [0, 1, 2, 4, 8, 12, 24, 48, 72, 168] as const;

/** What it costs, and what it will cost if it goes on. */
export function WhatIf({ verdict, price }: { verdict: Verdict; price?: Price | undefined }) {
  const [place, setPlace] = useState(4);
  const { costs } = verdict;
  if (!costs.length) return <p class="soft">No job's loss could be computed.</p>;
  const rate = perHour(costs);
  const hours = HOURS[place] ?? 0;
  return (
    <>
      {costs.map((cost) => (
        <p key={cost.job} class="verdict-what-if">
          {costSentence(cost, verdict.until_ns !== null)}{" "}
          <span class="soft">
            {verdict.until_ns === null ? "So far" : "In all"} {duration(cost.lost_seconds)} of its
            time, {gpuHours(cost.gpu_hours)}
            {price && `, ${money(cost.gpu_hours, price)}`}.
          </span>
        </p>
      ))}
      {verdict.until_ns === null && rate > 0 && (
        <label class="verdict-slider">
          <span>
            If it lasts <b>{hours === 0 ? "no longer" : duration(hours * 3600)}</b>
            {hours > 0 && " more"}: <b>{gpuHours(rate * hours)}</b>
            {price && (
              <>
                {" "}
                or <b>{money(rate * hours, price)}</b>
              </>
            )}
          </span>
          <input
            type="range"
            min={0}
            max={HOURS.length - 1}
            step={1}
            value={place}
            aria-valuetext={`${hours} hours: ${gpuHours(rate * hours)}`}
            onInput={(event) => setPlace(Number(event.currentTarget.value))}
          />
        </label>
      )}
    </>
  );
}
