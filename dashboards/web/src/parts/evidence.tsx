/** The evidence of a verdict: each observation in words, against what is usual, and as a picture. */
import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import type { Culprit, Evidence } from "../api/incidents";
import { count, moment } from "../format";
import { href } from "../route";
import { type Band, Plot } from "../ui/plot";
import { Bars } from "./evidence-bars";
import { type Drawn, type OverTime, questionOf, type Role } from "./evidence-series";
import { Linked } from "./verdict";
import { isAbout, quantity, shortly } from "./verdict-words";
import "../style/incident.css";

const NS = 1e9;

/** What is known of an evidence's picture: it, that it is asked for, why there is none, or one made elsewhere. */
export type Picture =
  | Drawn
  | "asked"
  | { readonly why: string }
  | { readonly made: ComponentChildren };

export function EvidenceList(props: {
  evidence: readonly Evidence[];
  culprit: Culprit;
  /** By place; an evidence without a picture has only its bars. */
  pictures?: readonly (Picture | undefined)[];
  /** Shaded in every plot: the incident. */
  bands?: readonly Band[];
  /** Unix seconds: the time that plots show, for the link to Explore. */
  when?: { readonly from: number; readonly to: number };
}) {
  if (!props.evidence.length) return <p class="soft">It comes without evidence.</p>;
  return (
    <ol class="evidence">
      {props.evidence.map((evidence, place) => (
        <li key={place} class={isAbout(evidence.labels ?? {}, props.culprit) ? "" : "other"}>
          <div class="words">
            <p>{evidence.text}</p>
            <Against evidence={evidence} />
            <Source evidence={evidence} {...(props.when ? { when: props.when } : {})} />
          </div>
          <PictureOf
            evidence={evidence}
            picture={props.pictures?.[place]}
            isCulprit={isAbout(evidence.labels ?? {}, props.culprit)}
            bands={props.bands ?? []}
          />
        </li>
      ))}
    </ol>
  );
}

/** Units whose size means nothing: a mask of reasons, a state. */
const NO_SIZE = new Set(["bits", ""]);
/** Evidence whose two numbers are both counted, and neither is what is usual. */
const NOT_COMPARED = new Set(["communicator_vote"]);

/** What was seen against what is usual, as two bars on one scale. */
function Against({ evidence }: { evidence: Evidence }) {
  const { value, unit } = evidence;
  const baseline = typeof evidence.baseline === "number" ? evidence.baseline : undefined;
  const most = Math.max(Math.abs(value), Math.abs(baseline ?? 0));
  if (NOT_COMPARED.has(evidence.metric)) return null;
  if (NO_SIZE.has(unit) && baseline === undefined) return null;
  const width = (one: number) => (most > 0 ? `${(Math.abs(one) / most) * 100}%` : "0%");
  const ratio = baseline !== undefined && baseline > 0 && value > 0 ? value / baseline : undefined;
  return (
    <dl class="evidence-against">
      <dt>seen</dt>
      <dd>
        <i class="seen" style={{ width: width(value) }} aria-hidden="true" />
        <span>
          {quantity(value, unit)}
          {ratio !== undefined && <em class="soft"> {timesWords(ratio)}</em>}
        </span>
      </dd>
      {baseline !== undefined && (
        <>
          <dt>usual</dt>
          <dd>
            <i style={{ width: width(baseline) }} aria-hidden="true" />
            <span>{quantity(baseline, unit)}</span>
          </dd>
        </>
      )}
    </dl>
  );
}

function timesWords(ratio: number): string {
  // A ratio to nearly zero means nothing.
  if (ratio >= 1000) return "";
  if (ratio >= 1.95) return `${ratio >= 10 ? Math.round(ratio) : ratio.toFixed(1)} ×`;
  const change = Math.round((ratio - 1) * 100);
  return change === 0 ? "as usual" : `${change > 0 ? "+" : "−"}${Math.abs(change)} %`;
}

function Source(props: { evidence: Evidence; when?: { from: number; to: number } }) {
  const { metric, samples, from_ns, to_ns } = props.evidence;
  const isLinked = useContext(Linked);
  const question = questionOf(props.evidence);
  const [from, to] = [(from_ns ?? 0) / NS, (to_ns ?? 0) / NS];
  return (
    <p class="evidence-source soft">
      {isLinked && question ? (
        <a
          href={href(["explore"], {
            query: question.query,
            from: props.when?.from.toFixed(0),
            to: props.when?.to.toFixed(0),
          })}
          title="Open this query in Explore"
        >
          <code>{metric}</code>
        </a>
      ) : (
        <code>{metric}</code>
      )}
      {samples ? ` · ${count(samples, "observation")}` : ""}
      {from > 0 && to > 0 ? ` · ${moment(from, to)} to ${moment(to, to)}` : ""}
    </p>
  );
}

function PictureOf(props: {
  evidence: Evidence;
  picture: Picture | undefined;
  isCulprit: boolean;
  bands: readonly Band[];
}) {
  const { picture, evidence } = props;
  if (picture === undefined) return null;
  if (picture === "asked")
    return (
      <div class="evidence-picture waiting soft" role="status">
        <span class="spinner" aria-hidden="true" /> Asking for its numbers …
      </div>
    );
  if ("why" in picture) return <div class="evidence-picture waiting soft">{picture.why}</div>;
  if ("made" in picture) return <div class="evidence-picture">{picture.made}</div>;
  if (picture.kind === "bars")
    return (
      <div class="evidence-picture">
        <Bars drawn={picture} label={evidence.text} />
      </div>
    );
  return (
    <div class="evidence-picture">
      <TimeLines {...props} drawn={picture} />
    </div>
  );
}

const LOOK: Readonly<Record<Role, { colour: string; width: number; isDashed?: boolean }>> = {
  culprit: { colour: "bad", width: 2.2 },
  peers: { colour: "soft", width: 1.6 },
  worst: { colour: "s1", width: 1 },
  usual: { colour: "soft", width: 1.2, isDashed: true },
};

/** A victim is not drawn in the culprit's colour. */
const SUFFERS = { colour: "s2", width: 2.2 };

function TimeLines(props: {
  drawn: OverTime;
  evidence: Evidence;
  isCulprit: boolean;
  bands: readonly Band[];
}) {
  const { drawn } = props;
  return (
    <>
      <Plot
        label={`${props.evidence.text} Over time: ${spoken(drawn)}`}
        times={drawn.times}
        lines={drawn.lines.map((line) => ({
          label: line.label,
          values: line.values,
          ...(line.role === "culprit" && !props.isCulprit ? SUFFERS : LOOK[line.role]),
        }))}
        format={(value) => drawn.marks?.[value]?.words ?? shortly(value, drawn.unit)}
        {...(drawn.marks ? { marks: drawn.marks.map(({ short }) => short) } : {})}
        height={130}
        bands={props.bands}
        {...(questionOf(props.evidence) ? { group: "evidence" } : {})}
        hasLegend
      />
      {drawn.note && <p class="soft note">{drawn.note}</p>}
    </>
  );
}

/** What a line did, for screen readers: where it stood lowest, highest and last. */
function spoken(drawn: OverTime): string {
  return drawn.lines
    .map((line) => {
      const known = line.values.filter((value): value is number => value !== null);
      if (!known.length) return `${line.label}: nothing known`;
      const show = (value: number | undefined) =>
        drawn.marks?.[value ?? -1]?.words ?? quantity(value, drawn.unit);
      const [low, high] = [Math.min(...known), Math.max(...known)];
      return `${line.label} between ${show(low)} and ${show(high)}, at the end ${show(known.at(-1))}`;
    })
    .join("; ");
}
