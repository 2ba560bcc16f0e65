/** Slow steps against normal ones: a sentence, ranks on one axis, replayed, and the same in numbers. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RankCompared, RankRow, StepsCompared } from "../api/steps";
import { count } from "../format";
import "../style/job.css";
import "../style/steps.css";
import { Panel, Tile } from "../ui/panel";
import { type Column, Table } from "../ui/table";
import { bytesWords } from "./job-words";
import {
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

const NS = 1e9;
const ROW_HEIGHT = 30;
const ARC_WIDTH = 64;
/** How long a replay takes on the screen, whatever the step takes. */
const PLAY_MS = 5000;

export function StepComparison({ data }: { data: StepsCompared }) {
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
      {data.rows_slow.length > 0 && <Replay data={data} without={without} onWithout={setWithout} />}
      {data.ranks.length > 0 && <RankNumbers data={data} />}
      {data.kinds.length > 0 && <KindNumbers data={data} />}
    </>
  );
}

// --- the drawing ----------------------------------------------------------------------------------

function Replay(props: {
  data: StepsCompared;
  without: number | undefined;
  onWithout: (place: number | undefined) => void;
}) {
  const { data, without } = props;
  const drawn = drawnRanks(data, without);
  const end = axisEnd(data);
  const { at, isPlaying, play, stop, set } = usePlay();
  return (
    <Panel
      title="Rank by rank"
      hint={`Above the normal step, below the slow one${without === undefined ? "" : ", replayed"}`}
    >
      <div class="row steps-tools">
        {data.without.length > 0 && (
          <label>
            Show the slow step{" "}
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
          <button type="button" onClick={isPlaying ? stop : play}>
            {isPlaying ? "Stop" : "Play"}
          </button>
        )}
        <label class="steps-at">
          Up to{" "}
          <input
            type="range"
            min="0"
            max="1"
            step="0.005"
            value={at}
            aria-valuetext={`${seconds(at * end)} of the step`}
            onInput={(event) => set(Number(event.currentTarget.value))}
          />
          <output>{seconds(at * end)}</output>
        </label>
      </div>
      <p class="soft steps-legend">
        {LEGEND.map(([part, words]) => (
          <span key={part} class="key">
            <i style={{ "--key": `var(--${part})` }} aria-hidden="true" />
            {words}
          </span>
        ))}
        <span>{orderWords(data)}</span>
      </p>
      <div class="steps-rows" style={{ "--at": String(at) }}>
        <div>
          {drawn.map((one) => (
            <RankLine key={one.rank} one={one} end={end} />
          ))}
        </div>
        <Arcs data={data} drawn={drawn} isFaded={without !== undefined} />
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
function Arcs(props: { data: StepsCompared; drawn: readonly DrawnRank[]; isFaded: boolean }) {
  const arcs = arcsOf(props.data, props.drawn);
  if (!arcs.length) return null;
  const height = props.drawn.length * ROW_HEIGHT;
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

/** How far the replay has come, 0 to 1; it stands at the end until it is played. */
function usePlay() {
  const [at, setAt] = useState(1);
  const [isPlaying, setPlaying] = useState(false);
  const frame = useRef(0);
  useEffect(() => {
    if (!isPlaying) return;
    const began = performance.now();
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
    play: () => setPlaying(true),
    stop: () => setPlaying(false),
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
