/** The plots of a job on one clock, from its steps down to its GPUs; each asks for its own data. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { address, token } from "../api/client";
import { type AskedHeat, askCell, type HeatRank, type Quantity } from "../api/heat";
import {
  type Asked,
  askCollectives,
  askGpus,
  askOwn,
  askTraffic,
  askTroubles,
  beside,
  type Place,
  type Trouble,
  WORST_SHOWN,
} from "../api/job-series";
import { askTimeline, type TimelineAnswer } from "../api/jobs";
import { duration, finePercent, si } from "../format";
import { type Grouping, type Order, rowsOf, scaleOf, stepAt } from "../parts/heat";
import { HeatTrack, heightOf } from "../parts/heat-track";
import { leftOutWords, QUANTITIES } from "../parts/heat-words";
import { CellPanel } from "../parts/job-cell";
import {
  bucketLines,
  collectiveLines,
  comparedLines,
  hasReasons,
  lastStepEnd,
  reasonSegments,
  stepBars,
  TROUBLE_WORDS,
  troubleLines,
} from "../parts/job-lines";
import type { Span } from "../parts/timeline";
import { BarTrack, LineTrack, StripTrack } from "../parts/timeline-tracks";
import { stoppedWords } from "../parts/timeline-words";
import { type Resource, useResource } from "../resource";
import { href, withQuery } from "../route";
import { rangeWord } from "../time";
import { Empty, type Room, Shown, styleOf } from "../ui/states";

/** What of the heat map is looked at. */
export interface Choice {
  readonly quantity: Quantity;
  readonly rank: number | undefined;
  /** Unix seconds within the step that is asked about. */
  readonly time: number | undefined;
  readonly order: Order;
  readonly grouping: Grouping;
}

const bits = (value: number) => si(value, "b/s");

/** What a heat map takes beside its rows. */
const HEAT_ROOM: Room = { wide: 60, narrow: 112 };
/** What the panel about a step takes, of two ranks that meet in one collective; most have more. */
const WHY_ROOM: Room = { wide: 724, narrow: 1400 };
/** Rows of a job whose size is not known yet. */
const RANKS_USUAL = 16;

export function Tracks(props: {
  job: string;
  /** Undefined: not known yet. */
  ranks: number | undefined;
  span: Span;
  heat: Resource<AskedHeat | undefined>;
  accused: ReadonlySet<number>;
  choice: Choice;
}) {
  const { job, span, heat, choice } = props;
  const { from, to } = span;
  const when = `${from} ${to}`;
  const timeline = useResource(
    `timeline ${job}`,
    (abort) => askTimeline(job, from, to, abort),
    when,
    rangeWord.value,
  );
  const collectives = useResource(
    `collectives ${job}`,
    (abort) => askCollectives(job, from, to, abort),
    when,
    rangeWord.value,
  );
  const rank = heat.data?.ranks.find((one) => one.rank === choice.rank);
  const rows = heightOf(props.ranks ?? RANKS_USUAL);
  return (
    <>
      <Reserved room={{ wide: 156, narrow: 210 }} for={timeline}>
        <Steps timeline={timeline} end={to} />
      </Reserved>
      <Reserved room={{ wide: HEAT_ROOM.wide + rows, narrow: HEAT_ROOM.narrow + rows }} for={heat}>
        <HeatOf heat={heat} accused={props.accused} choice={choice} />
      </Reserved>
      {choice.time !== undefined && (
        <Why job={job} rank={choice.rank} time={choice.time} heat={heat.data} />
      )}
      <Reserved room={{ wide: 136, narrow: 174 }} for={collectives}>
        <Collectives series={collectives} timeline={timeline.data} />
      </Reserved>
      <Machines job={job} span={span} rank={rank} isReady={heat.data !== undefined} />
    </>
  );
}

/** Room for a plot that has not come yet, so that what is below stays where it is. */
function Reserved(props: { room: Room; for: Resource<unknown>; children: ComponentChildren }) {
  const isAwaited = props.for.data === undefined && props.for.failure === undefined;
  return (
    <div class={isAwaited ? "reserved" : ""} style={isAwaited ? styleOf(props.room) : {}}>
      {props.children}
    </div>
  );
}

/** Where nothing answers at all, the first plot shows the failure for all of them. */
export function quietly<T>(resource: Resource<T>): Resource<T> {
  const isShown = resource.data !== undefined && resource.failure?.isUnreachable;
  return isShown ? { ...resource, failure: undefined } : resource;
}

const STEP_PARTS = [
  { label: "computing", colour: "compute" },
  { label: "waiting for others", colour: "wait" },
  { label: "network", colour: "transfer" },
];

/** `end`: unix seconds, where the range ends. */
function Steps({ timeline, end }: { timeline: Resource<TimelineAnswer>; end: number }) {
  return (
    <Shown
      resource={timeline}
      what="steps"
      isEmpty={({ buckets }) => buckets.every((bucket) => bucket.step_ns === null)}
      empty={<NoSteps />}
    >
      {({ buckets, kept_one_in }) => (
        <BarTrack
          title="Steps"
          hint={`the median step, split by where its time goes${kept_one_in > 1 ? `; one in ${kept_one_in} collectives was looked at` : ""}`}
          warning={stoppedWords(lastStepEnd(stepBars(buckets)), end)}
          bars={stepBars(buckets)}
          parts={STEP_PARTS}
          gap={(seconds) => `no step ended for ${duration(seconds)}`}
          format={duration}
          height={120}
        />
      )}
    </Shown>
  );
}

function NoSteps() {
  return (
    <Empty title="No step ended in this time">
      It did not run then ("Whole job" shows when it did), it stood still, or its collectives were
      not recorded: agents read them from NCCL Inspector's files on the hosts.
    </Empty>
  );
}

function HeatOf(props: {
  heat: Resource<AskedHeat | undefined>;
  accused: ReadonlySet<number>;
  choice: Choice;
}) {
  return (
    <Shown
      resource={quietly(props.heat)}
      what="ranks and steps"
      isEmpty={(heat) => !heat?.steps.length}
      empty={
        <Empty title="No heat map for this time">
          At least three whole steps are needed: choose a longer time.
        </Empty>
      }
    >
      {(heat) =>
        heat && (
          <HeatPlot
            heat={heat}
            accused={props.accused}
            choice={props.choice}
            isOld={props.heat.isOld || heat.quantity !== props.choice.quantity}
          />
        )
      }
    </Shown>
  );
}

function HeatPlot(props: {
  heat: AskedHeat;
  accused: ReadonlySet<number>;
  choice: Choice;
  isOld: boolean;
}) {
  const { heat, choice } = props;
  const { order, grouping } = choice;
  const rows = useMemo(() => rowsOf(heat, order, grouping), [heat, order, grouping]);
  const scale = useMemo(() => scaleOf(heat), [heat]);
  const left = leftOutWords(heat, heat.ranksLeftOut, heat.keptOneIn);
  const hint = [QUANTITIES[heat.quantity].hint, left].filter(Boolean).join("; ");
  return (
    <HeatTrack
      heat={heat}
      rows={rows}
      scale={scale}
      hint={hint}
      accused={props.accused}
      chosen={choice}
      isOld={props.isOld}
      aside={<HeatChoices choice={choice} />}
      onCell={(rank, time) => withQuery({ rank, step: time?.toFixed(3) })}
    />
  );
}

function HeatChoices({ choice }: { choice: Choice }) {
  return (
    <>
      <select
        aria-label="What the colours show"
        value={choice.quantity}
        onChange={(event) => withQuery({ quantity: event.currentTarget.value })}
      >
        {Object.entries(QUANTITIES).map(([word, { label }]) => (
          <option key={word} value={word}>
            {label}
          </option>
        ))}
      </select>
      <select
        aria-label="Rows"
        value={choice.grouping}
        onChange={(event) => withQuery({ rows: event.currentTarget.value })}
      >
        <option value="rank">a row for each rank</option>
        <option value="host">a row for each host</option>
      </select>
      <select
        aria-label="Order of rows"
        value={choice.order}
        onChange={(event) => withQuery({ order: event.currentTarget.value })}
      >
        <option value="rank">by rank and host</option>
        <option value="worst">worst first</option>
      </select>
    </>
  );
}

/** Why a cell is as it is; the old answer stays until the new one has come. */
function Why(props: {
  job: string;
  /** Undefined: none was chosen, and who stands out is not known yet. */
  rank: number | undefined;
  time: number;
  heat: AskedHeat | undefined;
}) {
  const { job, rank, time, heat } = props;
  const step = heat?.steps[stepAt(heat.steps, time)];
  const cell = useResource(
    `cell ${job}`,
    async (abort) =>
      step && rank !== undefined ? askCell(job, rank, step.from, step.to, abort) : undefined,
    0,
    `${rank} ${step?.from} ${step?.to}`,
  );
  const close = () => withQuery({ step: undefined });
  if (!heat) return <div class="reserved" style={styleOf(WHY_ROOM)} />;
  if (rank === undefined) return null;
  if (!step)
    return (
      <Empty title="The step that was chosen is not in this time">
        <button type="button" onClick={close}>
          Close
        </button>
      </Empty>
    );
  return (
    <div class={`why-place ${cell.isOld ? "old" : ""}`}>
      <Shown resource={quietly(cell)} what="step" room={WHY_ROOM}>
        {(found) =>
          found ? (
            <CellPanel
              cell={found}
              links={<CellLinks job={job} rank={rank} host={found.host} step={step} />}
              onRank={(other) => withQuery({ rank: other })}
              onClose={close}
            />
          ) : (
            <div class="reserved" style={styleOf(WHY_ROOM)} />
          )
        }
      </Shown>
    </div>
  );
}

function CellLinks(props: { job: string; rank: number; host: string | null; step: Span }) {
  const { job, rank, host, step } = props;
  const slow = ((step.from + step.to) / 2).toFixed(3);
  return (
    <>
      <a class="button" href={href(["compare", "steps", job], { slow })}>
        This step against normal ones
      </a>
      {host && (
        <a class="button" href={href(["hosts", host])}>
          Host {host}
        </a>
      )}
      {!token.value && (
        <a
          class="button"
          href={address("/v1/explain", { job, rank, to: step.to.toFixed(3) })}
          target="_blank"
          rel="noreferrer"
        >
          All evidence (JSON)
        </a>
      )}
    </>
  );
}

function Collectives(props: { series: Resource<Asked>; timeline: TimelineAnswer | undefined }) {
  return (
    <Shown resource={quietly(props.series)} what="collectives">
      {(asked) => {
        const heavy = collectiveLines(asked);
        const data = heavy?.data ?? (props.timeline && bucketLines(props.timeline.buckets));
        const isKnown = data?.lines.some(({ values }) => values.some((value) => value !== null));
        if (!isKnown) return <p class="soft quiet">No collectives were recorded in this time.</p>;
        return (
          data && (
            <LineTrack
              title={heavy ? `Collectives: ${heavy.name}` : "Collectives, of all sizes"}
              hint="skew: waiting for the last rank; transfer: the network after that"
              data={data}
              format={duration}
              height={84}
              isSteady
            />
          )
        );
      }}
    </Shown>
  );
}

/** NICs and GPUs: those of the chosen rank against the others'. */
function Machines(props: {
  job: string;
  span: Span;
  rank: HeatRank | undefined;
  /** False while it is not known which rank to compare. */
  isReady: boolean;
}) {
  const { job, rank, isReady } = props;
  const { from, to } = props.span;
  const place: Place | undefined =
    rank?.host == null
      ? undefined
      : { host: rank.host, gpu: rank.gpu, devices: rank.device ? [rank.device] : [] };
  const when = `${from} ${to}`;
  // All are asked for at once; which rank to show beside them is known when the heat map has come.
  const traffic = useResource(
    `traffic ${job}`,
    (abort) => askTraffic(job, from, to, abort),
    when,
    rangeWord.value,
  );
  const gpus = useResource(
    `gpus ${job}`,
    (abort) => askGpus(job, from, to, abort),
    when,
    rangeWord.value,
  );
  const own = useResource(
    `own ${job}`,
    async (abort) => (isReady ? askOwn(place, from, to, abort) : undefined),
    when,
    `${rangeWord.value} ${isReady} ${rank?.rank}`,
  );
  const troubles = useResource(
    `troubles ${job}`,
    (abort) => askTroubles(job, from, to, abort),
    when,
    rangeWord.value,
  );
  return (
    <>
      <Reserved room={{ wide: 208, narrow: 316 }} for={traffic}>
        <Traffic
          asked={{ ...traffic, data: beside(traffic.data, own.data?.traffic) }}
          rank={rank}
        />
      </Reserved>
      <Troubles troubles={troubles} isCounted={!!traffic.data?.series.length} />
      <Reserved room={{ wide: 360, narrow: 460 }} for={gpus}>
        <Gpus asked={{ ...gpus, data: beside(gpus.data, own.data?.gpus) }} rank={rank} />
      </Reserved>
    </>
  );
}

function Traffic(props: { asked: Resource<Asked | undefined>; rank: HeatRank | undefined }) {
  const { rank } = props;
  const own = rank ? `rank ${rank.rank}: ${rank.host} ${rank.device}` : "";
  return (
    <Shown
      resource={quietly(props.asked)}
      what="NICs"
      isEmpty={(asked) => asked?.series.length === 0}
      empty={<p class="soft quiet">Nothing was read of this job's NICs in this time.</p>}
    >
      {(asked) =>
        asked &&
        (["transmit", "receive"] as const).map((direction) => (
          <LineTrack
            key={direction}
            title={direction === "transmit" ? "NICs send" : "NICs receive"}
            data={comparedLines(asked, direction, own, "all NICs")}
            format={bits}
            height={68}
            isSteady
          />
        ))
      }
    </Shown>
  );
}

function Troubles(props: {
  troubles: Resource<ReadonlyMap<Trouble, Asked>>;
  /** False: no agent reads these NICs, so that missing errors prove nothing. */
  isCounted: boolean;
}) {
  const { troubles, isCounted } = props;
  return (
    <Shown resource={quietly(troubles)} what="pause, congestion and errors of NICs">
      {(found) => {
        const plots = [...found].map(([kind, asked]) => ({
          kind,
          words: TROUBLE_WORDS[kind],
          data: troubleLines(asked, WORST_SHOWN),
        }));
        const quiet = plots.filter((one) => !one.data.lines.length);
        return (
          <>
            {plots
              .filter((one) => one.data.lines.length)
              .map(({ kind, words, data }) => (
                <LineTrack
                  key={kind}
                  title={words.title}
                  hint={words.hint}
                  data={data}
                  format={words.unit === "share" ? finePercent : (value) => si(value, "/s")}
                  height={62}
                />
              ))}
            {isCounted && quiet.length > 0 && (
              <p class="soft quiet">
                In this time, as far as it is counted:{" "}
                {quiet.map((one) => one.words.quiet).join(", ")}.
              </p>
            )}
          </>
        );
      }}
    </Shown>
  );
}

function Gpus(props: { asked: Resource<Asked | undefined>; rank: HeatRank | undefined }) {
  const { rank } = props;
  const own = rank ? `rank ${rank.rank}: ${rank.host} GPU ${rank.gpu}` : "";
  const plots = [
    { name: "clock", title: "GPU clock", format: (value: number) => si(value, "Hz") },
    { name: "power", title: "GPU power", format: (value: number) => si(value, "W") },
    {
      name: "temperature",
      title: "GPU temperature",
      format: (value: number) => `${Math.round(value)} °C`,
      isFromZero: false,
    },
  ];
  return (
    <Shown
      resource={quietly(props.asked)}
      what="GPUs"
      isEmpty={(asked) => asked?.series.length === 0}
      empty={<p class="soft quiet">Nothing was read of this job's GPUs in this time.</p>}
    >
      {(asked) =>
        asked && (
          <>
            {hasReasons(asked) && (
              <StripTrack
                title={`What holds the clock of ${rank?.host} GPU ${rank?.gpu}`}
                segments={reasonSegments(asked)}
                usual="nothing: full clock"
              />
            )}
            {plots.map(({ name, ...look }) => (
              <LineTrack
                key={name}
                data={comparedLines(asked, name, own, "all GPUs")}
                height={62}
                isSteady
                {...look}
              />
            ))}
          </>
        )
      }
    </Shown>
  );
}
