/** Slow steps against normal ones: a sentence, ranks on one axis, replayed, and the same in numbers. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RankCompared, RankRow, StepsCompared } from "../api/steps";
import { count } from "../format";
import type { Resource } from "../resource";
import "../style/job.css";
import "../style/steps.css";
import { Panel, Tile } from "../ui/panel";
import { Empty, Shown } from "../ui/states";
import { type Column, Table } from "../ui/table";
import { bytesWords } from "./job-words";
import {
  type Arc,
  arcPath,
  arcsOf,
  arcWords,
  axisEnd,
  type DrawnRank,
  drawnRanks,
  orderWords,
  ROLES,
  seconds,
  signed,
} from "./step-compare-words";
import { BlameMap, type StepFabric } from "./step-fabric";

const NS = 1e9;
const ROW_HEIGHT = 30;
const ARC_WIDTH = 64;
/** How long a replay takes on the screen, whatever the step takes. */
const PLAY_MS = 5000;

export function StepComparison({
  data,
  fabric,
}: {
  data: StepsCompared;
  fabric?: Resource<StepFabric | undefined>;
}) {
  const [without, setWithout] = useState<number | undefined>(undefined);
  const chosen = without === undefined ? undefined : data.without[without];
  return (
    <>
      <p class="statement steps-sentence">{data.sentence}</p>
      {data.excess_ns !== null && (
        <div class="tiles">
          <Tile
            label="Slow step"
            value={seconds(data.slow.step_ns)}
            hint={`median of ${count(data.slow.steps, "step")}`}
            tone="bad"
          />
          <Tile
            label="Normal step"
            value={seconds(data.normal.step_ns)}
            hint={`median of ${count(data.normal.steps, "step")}`}
          />
          <Tile label="Excess" value={signed(data.excess_ns)} />
          {chosen && (
            <Tile
              label="Replayed"
              value={seconds(chosen.step_ns)}
              hint={`${chosen.title}, ${seconds(chosen.saved_ns)} less`}
              tone="good"
            />
          )}
        </div>
      )}
      {data.unknown.map((reason) => (
        <p key={reason} class="state stale" role="note">
          Not known: {reason}.
        </p>
      ))}
      {data.rows_slow.length > 0 && (
        <Replays data={data} fabric={fabric} without={without} onWithout={setWithout} />
      )}
      {data.ranks.length > 0 && <RankNumbers data={data} />}
      {data.kinds.length > 0 && <KindNumbers data={data} />}
    </>
  );
}

// --- the drawing ----------------------------------------------------------------------------------

interface Chosen {
  readonly data: StepsCompared;
  readonly without: number | undefined;
  readonly onWithout: (place: number | undefined) => void;
}

/** Over the fabric and rank by rank, on one clock. */
function Replays(props: Chosen & { fabric: Resource<StepFabric | undefined> | undefined }) {
  const { data, without, fabric } = props;
  const drawn = useMemo(() => drawnRanks(data, without), [data, without]);
  const arcs = useMemo(() => arcsOf(data, drawn), [data, drawn]);
  const end = axisEnd(data);
  const play = usePlay();
  const tools = { ...props, play, end };
  return (
    <>
      {fabric && (
        <Panel
          title="Over the fabric"
          hint="What one host held another up by, as the step goes on; who is accused has a ring"
        >
          <Tools {...tools} choose="Replay" upTo="Time in the step" />
          <Shown
            resource={fabric}
            what="cables"
            room={420}
            isEmpty={(found) => !found?.graph.links.length}
            empty={
              <Empty title="No cable was known at that time">
                Rank by rank shows the same without the fabric.
              </Empty>
            }
          >
            {(found) =>
              found && (
                <BlameMap
                  data={data}
                  fabric={found}
                  arcs={arcs}
                  drawn={drawn}
                  at_ns={play.at * end}
                  end_ns={end}
                />
              )
            }
          </Shown>
        </Panel>
      )}
      <RankByRank {...tools} drawn={drawn} arcs={arcs} />
    </>
  );
}

interface Played extends Chosen {
  readonly play: Play;
  readonly end: number;
}

/** What is replayed, and up to when. */
function Tools(props: Played & { choose: string; upTo: string }) {
  const { data, without, play, end } = props;
  return (
    <div class="row steps-tools">
      {data.without.length > 0 && (
        <label>
          {props.choose}{" "}
          <select
            value={without === undefined ? "" : String(without)}
            onChange={(event) => {
              const { value } = event.currentTarget;
              props.onWithout(value === "" ? undefined : Number(value));
            }}
          >
            <option value="">as it was</option>
            {data.without.map((one, place) => (
              <option key={one.title} value={String(place)}>
                {one.title}
              </option>
            ))}
          </select>
        </label>
      )}
      {!isMotionReduced() && (
        <button type="button" onClick={play.isPlaying ? play.pause : play.start}>
          {play.isPlaying ? "Pause" : "Play"}
        </button>
      )}
      <label class="steps-at">
        {props.upTo}{" "}
        <input
          type="range"
          min="0"
          max="1"
          step="0.005"
          value={play.at}
          aria-valuetext={`${seconds(play.at * end)} of the step`}
          onInput={(event) => play.set(Number(event.currentTarget.value))}
        />
        <output>{seconds(play.at * end)}</output>
      </label>
    </div>
  );
}

function RankByRank(props: Played & { drawn: readonly DrawnRank[]; arcs: readonly Arc[] }) {
  const { data, without, drawn, end } = props;
  return (
    <Panel
      title="Rank by rank"
      hint={`Above the normal step, below the slow one${without === undefined ? "" : ", replayed"}`}
    >
      <Tools {...props} choose="Show the slow step" upTo="Up to" />
      <p class="soft steps-legend">
        {LEGEND.map(([part, words]) => (
          <span key={part} class="key">
            <i style={{ "--key": `var(--${part})` }} aria-hidden="true" />
            {words}
          </span>
        ))}
        <span>{orderWords(data)}</span>
      </p>
      <div class="steps-rows" style={{ "--at": String(props.play.at) }}>
        <div>
          {drawn.map((one) => (
            <RankLine key={one.rank} one={one} end={end} />
          ))}
        </div>
        <Arcs arcs={props.arcs} rows={drawn.length} isFaded={without !== undefined} />
      </div>
      {data.assumptions.length > 0 && (
        <details>
          <summary>What a replay assumes</summary>
          <ul>
            {data.assumptions.map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </details>
      )}
    </Panel>
  );
}

const LEGEND = [
  ["compute", "own time"],
  ["wait", "waiting for another rank"],
  ["transfer", "transfer"],
] as const;

const COLOUR: Readonly<Record<string, string>> = {
  own: "compute",
  wait: "wait",
  transfer: "transfer",
};

function RankLine({ one, end }: { one: DrawnRank; end: number }) {
  const name = `rank ${one.rank}${one.host ? ` (${one.host})` : ""}`;
  return (
    <div
      class={`steps-rank ${one.isAccused ? "is-accused" : ""}`}
      style={{ height: `${ROW_HEIGHT}px` }}
    >
      <span title={`${name}: ${ROLES[one.role].means}`}>
        <b>{one.rank}</b> <small class="soft">{one.host}</small>
      </span>
      <div class="steps-bars" role="img" aria-label={`${name}: ${ROLES[one.role].word}`}>
        <Bar row={one.normal} end={end} word="normal" />
        <Bar row={one.slow} end={end} word="slow" />
      </div>
    </div>
  );
}

function Bar({ row, end, word }: { row: RankRow | undefined; end: number; word: string }) {
  return (
    <div class={`steps-bar ${word}`}>
      {row?.spans.map((span) => (
        <i
          key={span.start_ns}
          title={`${word}: ${span.part} ${seconds(span.end_ns - span.start_ns)}`}
          style={{
            left: `${(span.start_ns / end) * 100}%`,
            width: `${((span.end_ns - span.start_ns) / end) * 100}%`,
            background: `var(--${COLOUR[span.part] ?? "soft"})`,
          }}
        />
      ))}
    </div>
  );
}

/** Who held whom up: the thicker, the longer. The table says the same. */
function Arcs(props: { arcs: readonly Arc[]; rows: number; isFaded: boolean }) {
  const { arcs } = props;
  if (!arcs.length) return null;
  const height = props.rows * ROW_HEIGHT;
  return (
    <svg
      class={`steps-arcs ${props.isFaded ? "is-faded" : ""}`}
      width={ARC_WIDTH}
      height={height}
      role="img"
      aria-label={`Who held whom up: ${arcs.slice(0, 3).map(arcWords).join("; ")}`}
    >
      {arcs.map((arc) => (
        <path
          key={`${arc.part} ${arc.source} ${arc.target}`}
          class={arc.part}
          d={arcPath(arc, ROW_HEIGHT, ARC_WIDTH)}
          stroke-width={1 + 3 * arc.share}
        >
          <title>{arcWords(arc)}</title>
        </path>
      ))}
    </svg>
  );
}

const isMotionReduced = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

interface Play {
  /** How far it has come, 0 to 1. */
  readonly at: number;
  readonly isPlaying: boolean;
  readonly start: () => void;
  readonly pause: () => void;
  readonly set: (at: number) => void;
}

/** It stands at the end until it is played; goes on where it paused. */
function usePlay(): Play {
  const [at, setAt] = useState(1);
  const [isPlaying, setPlaying] = useState(false);
  const frame = useRef(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: where it was when it was started
  useEffect(() => {
    if (!isPlaying) return;
    const began = performance.now() - (at < 1 ? at * PLAY_MS : 0);
    const move = (time: number) => {
      const share = Math.min(1, (time - began) / PLAY_MS);
      setAt(share);
      if (share < 1) frame.current = requestAnimationFrame(move);
      else setPlaying(false);
    };
    frame.current = requestAnimationFrame(move);
    return () => cancelAnimationFrame(frame.current);
  }, [isPlaying]);
  return {
    at,
    isPlaying,
    start: () => setPlaying(true),
    pause: () => setPlaying(false),
    set: (share: number) => {
      setPlaying(false);
      setAt(share);
    },
  };
}

// --- the numbers ----------------------------------------------------------------------------------

const RANK_COLUMNS: readonly Column<RankCompared>[] = [
  {
    name: "Rank",
    show: (one) => (one.is_accused ? <b class="accused">{one.rank} ▲ accused</b> : one.rank),
    by: (one) => one.rank,
    isNumber: true,
  },
  { name: "Host", show: (one) => one.host || "–", by: (one) => one.host },
  {
    name: "In these steps",
    show: (one) => <span title={ROLES[one.role].means}>{ROLES[one.role].word}</span>,
    by: (one) => one.role,
  },
  ...(
    [
      ["Own time", "own_ns"],
      ["Waiting", "wait_ns"],
      ["Transfer", "transfer_ns"],
    ] as const
  ).map(
    ([name, field]): Column<RankCompared> => ({
      name,
      show: (one) => (
        <span>
          {seconds(one.normal[field])} → {seconds(one.slow[field])}{" "}
          <b>{signed(one.excess[field])}</b>
        </span>
      ),
      by: (one) => one.excess[field] ?? Number.NaN,
      csv: (one) => (one.excess[field] ?? Number.NaN) / NS,
      isNumber: true,
    }),
  ),
  {
    name: "Waited for",
    show: (one) => (
      <span title="By all other ranks together, in the collectives that it entered last">
        {one.waited_for_ns ? signed(one.waited_for_ns) : "–"}
      </span>
    ),
    by: (one) => one.waited_for_ns,
    csv: (one) => one.waited_for_ns / NS,
    isNumber: true,
  },
];

function RankNumbers({ data }: { data: StepsCompared }) {
  return (
    <Panel
      title="The same in numbers"
      hint="A step's median: normal → slow, excess; in the order of blame. A role is measured, only a verdict accuses"
    >
      <Table
        label="Ranks compared"
        columns={RANK_COLUMNS}
        rows={data.ranks}
        keyOf={(one) => String(one.rank)}
        isMarked={(one) => one.is_accused}
        noun="rank"
      />
      {data.ranks_left_out > 0 && (
        <p class="soft">{count(data.ranks_left_out, "rank")} that stand out least not shown.</p>
      )}
    </Panel>
  );
}

type Kind = StepsCompared["kinds"][number];

const KIND_COLUMNS: readonly Column<Kind>[] = [
  {
    name: "Collective",
    show: (one) => (
      <span title={`communicator ${one.communicator}`}>
        {one.operation} {bytesWords(one.size_bytes)}
      </span>
    ),
    by: (one) => one.operation,
  },
  {
    name: "Normal",
    show: (one) => seconds(one.normal_ns),
    by: (one) => one.normal_ns,
    csv: (one) => one.normal_ns / NS,
    isNumber: true,
  },
  { name: "Slow", show: (one) => seconds(one.slow_ns), by: (one) => one.slow_ns, isNumber: true },
  {
    name: "Excess",
    show: (one) => signed(one.excess_ns),
    by: (one) => one.excess_ns,
    csv: (one) => one.excess_ns / NS,
    isNumber: true,
  },
];

function KindNumbers({ data }: { data: StepsCompared }) {
  return (
    <Panel title="Transfers" hint="From the last rank's entry to the last exit; the network's part">
      <Table
        label="Transfers compared"
        columns={KIND_COLUMNS}
        rows={data.kinds}
        keyOf={(one) => `${one.communicator} ${one.operation} ${one.size_bytes}`}
        noun="kind"
      />
    </Panel>
  );
}
