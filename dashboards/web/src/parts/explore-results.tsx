/** What queries gave: plots with their legends, or tables of one moment. */
import type { Answer } from "../api/explore";
import { RANGE_SERIES_MAX, TABLE_SERIES_MAX } from "../api/explore";
import type { Labels } from "../api/promql";
import { count, moment } from "../format";
import { Panel } from "../ui/panel";
import { Empty } from "../ui/states";
import { type Column, Table } from "../ui/table";
import {
  type Chart,
  commonLabels,
  type DrawnLine,
  keyOf,
  LINES_MAX,
  labelOrder,
  wholeName,
} from "./explore-lines";
import { type Unknown, unknownWords } from "./explore-names";
import { ExplorePlot } from "./explore-plot";
import { letterOf } from "./explore-state";
import { formatOf, type Unit, unitWords } from "./explore-unit";

/** `cluster=roce`: what all series share, shown once. */
function Common({ labels }: { labels: Labels }) {
  const names = labelOrder(Object.keys(labels));
  if (!names.length) return null;
  return (
    <p class="explore-common soft">
      All:{" "}
      {names.map((name) => (
        <span key={name} class="badge">
          {name === "__name__" ? labels[name] : `${name}=${labels[name]}`}
        </span>
      ))}
    </p>
  );
}

export function ExploreChart(props: {
  chart: Chart;
  only: string | undefined;
  isCut: boolean;
  /** Names in the queries that nothing has sent. */
  unknown: readonly Unknown[];
  onOnly: (key: string | undefined) => void;
  onSelect: (from: number, to: number) => void;
}) {
  const { chart, only } = props;
  const format = formatOf(chart.unit);
  const alone = chart.lines.filter((line) => line.key === only);
  const lines = alone.length ? alone : chart.lines;
  if (!chart.lines.length)
    return (
      <Panel title={`Nothing from ${chart.letters.join(", ")}`}>
        <Empty title="No series in this time">
          {unknownWords(props.unknown) ||
            "The query is right, but nothing matches it now. Try a longer time, or fewer labels."}
        </Empty>
      </Panel>
    );
  return (
    <Panel
      title={chart.letters.length ? chart.letters.join(", ") : ""}
      hint={[unitWords(chart.unit), count(chart.lines.length + chart.leftOut, "series", "series")]
        .filter(Boolean)
        .join(" · ")}
      aside={
        alone.length > 0 && (
          <button type="button" onClick={() => props.onOnly(undefined)}>
            Show all {chart.lines.length}
          </button>
        )
      }
    >
      {(chart.leftOut > 0 || props.isCut) && (
        <p class="explore-note">
          {props.isCut
            ? `More than ${RANGE_SERIES_MAX} series: the service held the rest back. `
            : ""}
          {chart.leftOut > 0
            ? `The ${LINES_MAX} with the highest peaks are drawn, ${chart.leftOut.toLocaleString("en")} are not. `
            : ""}
          Narrow it down by a label, or ask for <code>topk(20, …)</code>.
        </p>
      )}
      <ExplorePlot
        label={plotWords(chart, lines, format)}
        {...{ chart, lines, format }}
        onSelect={props.onSelect}
      />
      <Common labels={chart.common} />
      <Legend {...{ chart, only, format }} onOnly={props.onOnly} />
    </Panel>
  );
}

function plotWords(
  chart: Chart,
  lines: readonly DrawnLine[],
  format: (value: number) => string,
): string {
  const highest = lines.reduce<DrawnLine | undefined>(
    (best, line) =>
      (line.most ?? Number.NEGATIVE_INFINITY) > (best?.most ?? Number.NEGATIVE_INFINITY)
        ? line
        : best,
    undefined,
  );
  const [from, to] = [chart.times[0] ?? 0, chart.times.at(-1) ?? 0];
  const peak = highest ? ` The highest is ${highest.name}: ${format(highest.most ?? 0)}.` : "";
  return `${count(lines.length, "line")} from ${moment(from)} to ${moment(to)}.${peak}`;
}

const DASH_WORDS = ["solid", "dashed", "dotted", "double"] as const;

function Legend(props: {
  chart: Chart;
  only: string | undefined;
  format: (value: number) => string;
  onOnly: (key: string | undefined) => void;
}) {
  const number = (name: string, pick: (line: DrawnLine) => number | null): Column<DrawnLine> => ({
    name,
    show: (line) => {
      const value = pick(line);
      return value === null ? "–" : props.format(value);
    },
    by: (line) => pick(line) ?? Number.NaN,
    isNumber: true,
  });
  return (
    <Table
      label="Series"
      rows={props.chart.lines}
      keyOf={(line) => line.key}
      isMarked={(line) => line.key === props.only}
      noun="series"
      columns={[
        {
          name: "Series",
          show: (line) => (
            <button
              type="button"
              class="plain explore-series"
              aria-pressed={line.key === props.only}
              title={`${wholeName(line.labels)}\n${line.key === props.only ? "Show all" : "Show only this one"}`}
              onClick={() => props.onOnly(line.key === props.only ? undefined : line.key)}
            >
              <i
                style={{
                  borderTopColor: `var(--s${(line.place % 8) + 1})`,
                  borderTopStyle: DASH_WORDS[Math.floor(line.place / 8) % DASH_WORDS.length],
                }}
              />
              {line.name}
            </button>
          ),
          by: (line) => line.name,
        },
        number("Last", (line) => line.last),
        number("Lowest", (line) => line.least),
        number("Mean", (line) => line.mean),
        number("Highest", (line) => line.most),
      ]}
    />
  );
}

// --- tables ---------------------------------------------------------------------------------------

/** Labels with a column of their own; the others stand in the last one. */
const COLUMNS_MAX = 7;

interface Row {
  readonly key: string;
  readonly labels: Labels;
  readonly value: number;
  readonly points: number;
}

export function ExploreTable(props: {
  place: number;
  query: string;
  answer: Answer;
  unit: Unit;
  time: number;
  unknown: readonly Unknown[];
}) {
  const { answer } = props;
  const letter = letterOf(props.place);
  const title = `${letter} at ${moment(props.time)}`;
  if (answer.text !== undefined)
    return (
      <Panel title={title} hint="text">
        <code>{answer.text}</code>
      </Panel>
    );
  if (!answer.series.length)
    return (
      <Panel title={title}>
        <Empty title="No series at this moment">
          {unknownWords(props.unknown) ||
            "Nothing was written in the five minutes before, or no label matches."}
        </Empty>
      </Panel>
    );
  const common = commonLabels(answer.series);
  const rows = answer.series.map((series) => ({
    key: keyOf(letter, series.labels),
    labels: series.labels,
    value: series.values.at(-1) ?? Number.NaN,
    points: series.values.length,
  }));
  return (
    <Panel
      title={title}
      hint={[unitWords(props.unit), count(rows.length, "series", "series")]
        .filter(Boolean)
        .join(" · ")}
    >
      {answer.isCut && (
        <p class="explore-note">The first {TABLE_SERIES_MAX} series; there are more.</p>
      )}
      <Common labels={common} />
      <Table
        label={`Values of ${props.query}`}
        rows={rows}
        keyOf={(row) => row.key}
        noun="series"
        columns={columnsOf(rows, common, formatOf(props.unit))}
      />
    </Panel>
  );
}

function columnsOf(
  rows: readonly Row[],
  common: Labels,
  format: (value: number) => string,
): Column<Row>[] {
  const all = new Set<string>();
  for (const row of rows) for (const name of Object.keys(row.labels)) all.add(name);
  const names = labelOrder([...all].filter((name) => !(name in common)));
  const [shown, rest] = [names.slice(0, COLUMNS_MAX), names.slice(COLUMNS_MAX)];
  const columns: Column<Row>[] = shown.map((name) => ({
    name: name === "__name__" ? "metric" : name,
    show: (row) => row.labels[name] ?? "",
    by: (row) => row.labels[name] ?? "",
  }));
  if (rest.length)
    columns.push({
      name: "other labels",
      show: (row) =>
        rest
          .filter((name) => name in row.labels)
          .map((name) => `${name}=${row.labels[name]}`)
          .join(" "),
    });
  columns.push({
    name: "Value",
    show: (row) => (
      <span title={String(row.value)}>
        {format(row.value)}
        {row.points > 1 ? ` (last of ${row.points})` : ""}
      </span>
    ),
    by: (row) => row.value,
    isNumber: true,
  });
  return columns;
}
