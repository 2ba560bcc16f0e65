/** A job of the report: its numbers, its steps, ranks, collectives and readings on one clock, its tables. */
import { useMemo } from "preact/hooks";
import { digits, duration } from "../format";
import { rowsOf, scaleOf } from "../parts/heat";
import { HeatTrack } from "../parts/heat-track";
import { leftOutWords } from "../parts/heat-words";
import { useClock } from "../parts/timeline-clock";
import { DotTrack } from "../parts/timeline-dot-track";
import { BarTrack, LineTrack } from "../parts/timeline-tracks";
import { causeOf } from "../parts/verdict-words";
import { Panel, Tile } from "../ui/panel";
import type { VerdictData } from "./data";
import { type HeatData, heatOf, type JobData, type ReadingPanel, type StepBars } from "./data";
import { TablePanel } from "./table";
import { Times } from "./times";

const STEP_PARTS = [
  { label: "compute", colour: "compute" },
  { label: "transfer", colour: "transfer" },
  { label: "wait", colour: "wait" },
] as const;

export function Job({ data, verdicts }: { data: JobData; verdicts: readonly VerdictData[] }) {
  const bands = useMemo(
    () =>
      verdicts
        .filter(({ verdict }) => verdict.jobs.includes(data.job))
        .map(({ verdict, blamed }, place) => ({
          id: String(place),
          from: blamed.start,
          to: blamed.end,
          label: `${causeOf(verdict.cause).title}: ${verdict.summary}`,
        })),
    [data.job, verdicts],
  );
  const { steps, heat, collectives, readings } = data;
  const hasPlots = steps || heat || collectives.length > 0 || readings.length > 0;
  return (
    <>
      <header class="report-head">
        <h2>Job {data.job}</h2>
        <p class="soft">{data.explanation}</p>
      </header>
      <div class="tiles">
        {data.facts.map(([name, value]) => {
          const [label = "", ...rest] = name.split(", ");
          return <Tile key={name} label={label} value={value} hint={rest.join(", ")} />;
        })}
      </div>
      {data.pending && <TablePanel data={data.pending} tone="bad" />}
      {hasPlots && (
        <Panel title="Over time" hint="drag over a stretch to look closer, double click to go back">
          <Times label={`Job ${data.job} over time`} span={data.span} bands={bands}>
            {steps && <Steps data={steps} />}
            {heat && <LateRanks data={heat} accused={data.accused} />}
            {collectives.map(({ title, explanation, dots }) => (
              <DotTrack
                key={title}
                title={title}
                hint={explanation}
                sets={dots.sets}
                low={dots.low}
                high={dots.high}
                isLog={dots.is_log}
                height={170}
              />
            ))}
            {data.collectives_note && <p class="soft">{data.collectives_note}</p>}
            {readings.map((panel) => (
              <ReadingTrack key={panel.title} data={panel} />
            ))}
          </Times>
          {readings.length > 0 && <ReadingNumbers panels={readings} />}
        </Panel>
      )}
      {data.tables.map((table) => (
        <TablePanel key={table.title} data={table} />
      ))}
    </>
  );
}

function Steps({ data }: { data: StepBars }) {
  const bars = useMemo(
    () =>
      data.spans.map(({ start, end }, place) => ({
        from: start,
        to: end,
        parts: data.parts[place] ?? [],
      })),
    [data],
  );
  return (
    <>
      <BarTrack
        title="Steps"
        hint={data.note}
        bars={bars}
        parts={STEP_PARTS}
        format={duration}
        height={170}
        most={data.top}
        gap={() => "no step"}
      />
      <StepAtCursor data={data} />
    </>
  );
}

/** Which step is under the cursor, and which rank it waited for. Its room stays, so that nothing moves. */
function StepAtCursor({ data }: { data: StepBars }) {
  const time = useClock().cursor.value;
  const place =
    time === undefined ? -1 : data.spans.findIndex(({ start, end }) => start <= time && time < end);
  return <p class="soft report-cursor">{data.said[place] ?? "Point at a step to read it."}</p>;
}

function LateRanks({ data, accused }: { data: HeatData; accused: readonly number[] }) {
  const heat = useMemo(() => heatOf(data), [data]);
  const rows = useMemo(() => rowsOf(heat, "rank", "rank"), [heat]);
  const scale = useMemo(() => scaleOf(heat), [heat]);
  const marked = useMemo(() => new Set(accused), [accused]);
  const left = leftOutWords(heat, data.ranks_left_out, 1);
  const how = data.is_by_step ? "step by step" : "over time";
  return (
    <HeatTrack
      heat={heat}
      rows={rows}
      scale={scale}
      hint={`the most that each rank entered a collective behind the median rank, ${how}${left && `; ${left}`}`}
      accused={marked}
      chosen={NONE_CHOSEN}
    />
  );
}

const NONE_CHOSEN = { rank: undefined, time: undefined };
const COLOURS = 8;

function ReadingTrack({ data }: { data: ReadingPanel }) {
  const lines = useMemo(() => {
    const isFew = data.lines.length <= COLOURS;
    return data.lines.map(({ label, values }, place) => ({
      label,
      values,
      ...(isFew ? { colour: `s${place + 1}` } : { colour: "s1", width: 0.8 }),
    }));
  }, [data]);
  return (
    <LineTrack
      title={data.title}
      hint={data.explanation}
      data={{ times: data.times, lines }}
      format={(value) => `${digits(value)} ${data.unit}`}
      height={130}
    />
  );
}

/** Every series in numbers. */
function ReadingNumbers({ panels }: { panels: readonly ReadingPanel[] }) {
  const rows = panels.flatMap(({ title, unit, lines, middles, mosts }) =>
    lines.map(({ label }, place) => ({
      is_marked: false,
      cells: [title, label, `${middles[place]} ${unit}`, `${mosts[place]} ${unit}`],
    })),
  );
  return (
    <details>
      <summary>Readings in numbers</summary>
      <TablePanel
        data={{
          title: "Readings",
          explanation: "each series over the whole job",
          columns: [
            { name: "reading", is_number: false },
            { name: "of", is_number: false },
            { name: "median", is_number: true },
            { name: "most", is_number: true },
          ],
          rows,
        }}
      />
    </details>
  );
}
