/** How a job's traffic repeats: one period, periods over time, and those that differ. */
import type { OddPeriod, Rhythm, StepLengths } from "../api/matrix";
import { count, digits, duration, moment, percent, si } from "../format";
import { Plot } from "../ui/plot";
import { Table } from "../ui/table";
import { rhythmWords } from "./matrix-rhythm-words";

export function MatrixRhythm(props: {
  rhythm: Rhythm;
  steps: StepLengths | undefined;
  onSelect: (from: number, to: number) => void;
}) {
  const { rhythm, steps } = props;
  if (rhythm.period_ns === null && rhythm.byte_period_ns === null)
    return (
      <p class="soft">
        No rhythm found: the traffic of this time does not repeat, or there is too little of it.
      </p>
    );
  return (
    <>
      <p>{rhythmWords(rhythm)}</p>
      {rhythm.phases.length > 0 && <Period rhythm={rhythm} />}
      {steps && steps.times.length > 1 && (
        <>
          <h3>
            Length of a step over time{" "}
            <span class="soft">shaded: odd periods; drag to look at a stretch</span>
          </h3>
          <Plot
            label={`Length of a step over time, usually ${duration((rhythm.period_ns ?? 0) / 1e9)}. ${rhythmWords(rhythm)}`}
            times={steps.times}
            lines={[{ label: "step", values: steps.seconds, colour: "s1" }]}
            bands={bandsOf(rhythm.odd)}
            format={duration}
            height={150}
            hasLegend={false}
            onSelect={props.onSelect}
          />
        </>
      )}
      {rhythm.odd.length > 0 && (
        <details>
          <summary>
            {count(rhythm.odd.length, "odd period")}
            {rhythm.odd_left_out ? `, ${rhythm.odd_left_out} more not listed` : ""}
          </summary>
          <OddTable odd={rhythm.odd} onSelect={props.onSelect} />
        </details>
      )}
      {rhythm.hosts.length > 0 && (
        <details>
          <summary>By host</summary>
          <Table
            label="Rhythm by host"
            rows={rhythm.hosts}
            keyOf={(one) => one.host}
            noun="host"
            columns={[
              { name: "Host", show: (one) => one.host, by: (one) => one.host },
              {
                name: "Measured on rank",
                show: (one) => one.rank,
                by: (one) => one.rank,
                isNumber: true,
              },
              {
                name: "Byte rate repeats every",
                show: (one) =>
                  duration(one.byte_period_ns === null ? null : one.byte_period_ns / 1e9),
                by: (one) => one.byte_period_ns ?? Number.NaN,
                isNumber: true,
              },
              {
                name: "How well",
                show: (one) => percent(one.correlation),
                by: (one) => one.correlation,
                isNumber: true,
              },
              {
                name: "Inside collectives",
                show: (one) => percent(one.duty),
                by: (one) => one.duty ?? Number.NaN,
                isNumber: true,
              },
            ]}
          />
        </details>
      )}
    </>
  );
}

/** Neighbouring odd periods are one band. */
function bandsOf(odd: readonly OddPeriod[]): { from: number; to: number }[] {
  const bands: { from: number; to: number }[] = [];
  for (const one of [...odd].sort((a, b) => a.start_ns - b.start_ns)) {
    const last = bands.at(-1);
    const from = one.start_ns / 1e9;
    if (last && from <= last.to + 0.001) last.to = Math.max(last.to, one.end_ns / 1e9);
    else bands.push({ from, to: one.end_ns / 1e9 });
  }
  return bands;
}

/** One period as a strip: its stretches of computing and of sending, as high as the rate. */
function Period({ rhythm }: { rhythm: Rhythm }) {
  const seconds = (rhythm.period_ns ?? rhythm.byte_period_ns ?? 0) / 1e9;
  const most = Math.max(...rhythm.phases.map((phase) => phase.bytes_per_second), 1);
  return (
    <figure class="matrix-period">
      <figcaption>
        One period of {duration(seconds)} <span class="soft">mean rate that one rank sends</span>
      </figcaption>
      <ol>
        {rhythm.phases.map((phase) => {
          const length = (phase.end - phase.start) * seconds;
          return (
            <li
              key={phase.start}
              class={phase.is_sending ? "is-sending" : ""}
              style={{ flexGrow: phase.end - phase.start }}
              title={`${phase.is_sending ? "Inside collectives" : "Computing"} for ${duration(length)}, ${si(phase.bytes_per_second, "B/s")}`}
            >
              <i style={{ height: `${Math.max(3, (phase.bytes_per_second / most) * 100)}%` }} />
              <span>
                {phase.is_sending ? "collectives" : "computes"}
                <br />
                <span class="soft">
                  {duration(length)}, {si(phase.bytes_per_second, "B/s")}
                </span>
              </span>
            </li>
          );
        })}
      </ol>
    </figure>
  );
}

function OddTable(props: {
  odd: readonly OddPeriod[];
  onSelect: (from: number, to: number) => void;
}) {
  return (
    <Table
      label="Odd periods"
      rows={props.odd}
      keyOf={(one) => String(one.start_ns)}
      noun="odd period"
      columns={[
        {
          name: "Began",
          show: (one) => (
            <button
              type="button"
              class="plain matrix-link"
              title="Look at it"
              onClick={() => props.onSelect(one.start_ns / 1e9, one.end_ns / 1e9)}
            >
              {moment(one.start_ns / 1e9)}
            </button>
          ),
          by: (one) => one.start_ns,
        },
        { name: "Was", show: (one) => one.kind, by: (one) => one.kind },
        {
          name: "Took",
          show: (one) => duration((one.end_ns - one.start_ns) / 1e9),
          by: (one) => one.end_ns - one.start_ns,
          isNumber: true,
        },
        {
          name: "Usual periods",
          show: (one) => `${digits(Number(one.periods.toPrecision(3)))} ×`,
          by: (one) => one.periods,
          isNumber: true,
        },
      ]}
    />
  );
}
