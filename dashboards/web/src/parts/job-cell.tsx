/** Why a rank was late or not in one step: in words, its time against the others', collectives, readings. */
import type { ComponentChildren } from "preact";
import type { Cell, CellMark, CellOperation, CellReading, Spent } from "../api/heat";
import { count, digits, duration, si } from "../format";
import { Panel } from "../ui/panel";
import { type Column, Table } from "../ui/table";
import { reasonWords } from "./clock-reasons";
import { baseOf, bytesWords, isChanged } from "./job-words";
import { clockText } from "./timeline-words";

const NS = 1e9;
const seconds = (ns: number | null) => duration(ns === null ? null : ns / NS);

export function CellPanel(props: {
  cell: Cell;
  /** Where more is to be seen. */
  links?: ComponentChildren;
  onRank?: (rank: number) => void;
  onClose?: () => void;
}) {
  const { cell } = props;
  const [from, to] = [cell.start_ns / NS, cell.end_ns / NS];
  const when = `${cell.steps > 1 ? `the ${cell.steps} steps` : "the step"} at ${clockText(from, 0.1)}`;
  const who = [cell.host, cell.gpu === null ? null : `GPU ${cell.gpu}`, ...cell.devices];
  return (
    <Panel
      class="why"
      title={`Why? Rank ${cell.rank} in ${when}`}
      hint={[...who, duration(to - from)].filter(Boolean).join(" · ")}
      aside={
        <>
          {props.links}
          {props.onClose && (
            <button type="button" onClick={props.onClose}>
              Close
            </button>
          )}
        </>
      }
    >
      <Words words={cell.words} />
      <div class="why-columns">
        <div>
          <SpentBars own={cell.own} median={cell.median} rank={cell.rank} />
          <Marks marks={cell.marks} />
        </div>
        <Operations cell={cell} {...(props.onRank ? { onRank: props.onRank } : {})} />
        <Readings readings={cell.readings} />
      </div>
    </Panel>
  );
}

function Words({ words }: { words: readonly string[] }) {
  if (!words.length)
    return <p class="statement">Nothing stands out: this rank did what the others did.</p>;
  return (
    <ul class="statement">
      {words.map((word) => (
        <li key={word}>{word}</li>
      ))}
    </ul>
  );
}

const PARTS = [
  ["compute_ns", "computing", "compute"],
  ["wait_ns", "waiting for others", "wait"],
  ["network_ns", "network", "transfer"],
] as const;

/** Two bars of one scale: the rank's step, and the median rank's. */
function SpentBars({ own, median, rank }: { own: Spent; median: Spent; rank: number }) {
  if (own.compute_ns === null && median.compute_ns === null)
    return <p class="soft">No whole step of this rank is known here.</p>;
  const sum = (spent: Spent) => PARTS.reduce((all, [name]) => all + (spent[name] ?? 0), 0);
  const most = Math.max(sum(own), sum(median), 1);
  return (
    <div>
      <h3>Where its time went</h3>
      <table class="spent" aria-label="Time of the step: this rank and the median rank">
        <thead>
          <tr>
            <th>Part</th>
            <th class="n">rank {rank}</th>
            <th class="n">median rank</th>
          </tr>
        </thead>
        <tbody>
          {PARTS.map(([name, label, colour]) => (
            <tr key={name} class={isChanged(own[name] ?? 0, median[name]) ? "marked" : ""}>
              <td>
                <i class="swatch" style={{ background: `var(--${colour})` }} aria-hidden="true" />
                {label}
              </td>
              <td class="n">{seconds(own[name])}</td>
              <td class="n">{seconds(median[name])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {[own, median].map((spent, place) => (
        <div key={place ? "median" : "own"} class="spent-bar" aria-hidden="true">
          {PARTS.map(([name, , colour]) => (
            <i
              key={name}
              style={{
                width: `${((spent[name] ?? 0) / most) * 100}%`,
                background: `var(--${colour})`,
              }}
            />
          ))}
        </div>
      ))}
    </div>
  );
}

/** Marks that the training loop wrote. */
function Marks({ marks }: { marks: readonly CellMark[] }) {
  if (!marks.length) return null;
  return (
    <div>
      <h3>As the training loop marks it</h3>
      <table aria-label="Phases as the training loop marks them">
        <tbody>
          {marks.map((mark) => (
            <tr key={`${mark.step} ${mark.phase} ${mark.start_ns}`}>
              <td>
                {mark.phase || "whole step"} <span class="soft">of step {mark.step}</span>
              </td>
              <td class="n">{seconds(mark.end_ns - mark.start_ns)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Operations(props: { cell: Cell; onRank?: (rank: number) => void }) {
  const { cell, onRank } = props;
  const start = cell.start_ns;
  const columns: Column<CellOperation>[] = [
    {
      name: "At",
      show: (one) => `+${seconds(Math.max(0, one.start_ns - start))}`,
      by: (one) => one.start_ns,
      isNumber: true,
    },
    {
      name: "Collective",
      show: (one) => (
        <span title={`communicator ${one.communicator}, number ${one.sequence}`}>
          {one.operation} {bytesWords(one.size_bytes)}
        </span>
      ),
    },
    {
      name: "Came last",
      show: (one) => <LastIn one={one} rank={cell.rank} {...(onRank ? { onRank } : {})} />,
      by: (one) => one.last_in ?? -1,
    },
    {
      name: "This rank",
      show: (one) => (one.waited_ns === null ? "no record" : `waited ${seconds(one.waited_ns)}`),
      by: (one) => one.waited_ns ?? -1,
      isNumber: true,
    },
    {
      name: "Skew / usual",
      show: (one) => <Against value={one.skew_ns} usual={one.usual_skew_ns} />,
      by: (one) => one.skew_ns,
      isNumber: true,
    },
    {
      name: "Transfer / usual",
      show: (one) => <Against value={one.transfer_ns} usual={one.usual_transfer_ns} />,
      by: (one) => one.transfer_ns,
      isNumber: true,
    },
  ];
  return (
    <div>
      <h3>Its collectives in this step</h3>
      {cell.operations.length ? (
        <Table
          label="Collectives of this step"
          columns={columns}
          rows={cell.operations}
          keyOf={(one) => `${one.communicator} ${one.operation} ${one.sequence}`}
          isMarked={(one) => one.last_in === cell.rank && one.skew_ns > 2 * one.usual_skew_ns}
          noun="collective"
        />
      ) : (
        <p class="soft">None was recorded.</p>
      )}
      {cell.operations_left_out > 0 && (
        <p class="soft">{count(cell.operations_left_out, "shorter collective")} not shown.</p>
      )}
    </div>
  );
}

function LastIn(props: { one: CellOperation; rank: number; onRank?: (rank: number) => void }) {
  const { last_in: last, last_in_host: host } = props.one;
  if (last === null) return <span class="soft">not known</span>;
  if (last === props.rank) return <b>this rank</b>;
  if (!props.onRank) return <span title={host ?? ""}>rank {last}</span>;
  return (
    <button
      type="button"
      class="plain link"
      title={`${host ?? ""}: look at this rank instead`}
      onClick={() => props.onRank?.(last)}
    >
      rank {last}
    </button>
  );
}

/** A duration beside what is usual around this time. */
function Against({ value, usual }: { value: number; usual: number }) {
  const isLong = value > 1.5 * usual && value - usual > 1e6;
  return (
    <span title={`usually ${seconds(usual)}`}>
      {isLong ? <b class="long">{seconds(value)}</b> : seconds(value)}
      <small class="soft"> / {seconds(usual)}</small>
    </span>
  );
}

function readingWords(value: number, { what, unit }: CellReading): string {
  if (unit === "bits" && what.endsWith("event reasons")) return reasonWords(value);
  const base = baseOf(value, unit);
  return base ? si(...base) : `${digits(value)} ${unit}`;
}

function Readings({ readings }: { readings: readonly CellReading[] }) {
  if (!readings.length)
    return (
      <div>
        <h3>Its machines</h3>
        <p class="soft">Nothing was read of its GPU and NICs: does an agent run on its host?</p>
      </div>
    );
  return (
    <div>
      <h3>Its GPU, NIC and switch port</h3>
      <table class="readings" aria-label="Readings around this step">
        <thead>
          <tr>
            <th>Reading</th>
            <th class="n">then</th>
            <th class="n">minute before</th>
          </tr>
        </thead>
        <tbody>
          {readings.map((one) => (
            <tr
              key={`${one.host} ${one.what}`}
              class={isChanged(one.value, one.usual) ? "marked" : ""}
            >
              <td title={one.host}>{one.what}</td>
              <td class="n">{readingWords(one.value, one)}</td>
              <td class="n soft">{one.usual === null ? "–" : readingWords(one.usual, one)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
