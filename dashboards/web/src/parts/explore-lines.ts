/** Series of several queries as the lines of plots: named by the labels that differ, bounded, on one grid of times. Pure. */
import type { Labels, Series } from "../api/promql";
import { letterOf } from "./explore-state";
import type { Unit } from "./explore-unit";

/** More lines are a carpet. */
export const LINES_MAX = 100;

export interface Named {
  /** In the address, where one line is shown alone. */
  readonly key: string;
  readonly name: string;
  readonly labels: Labels;
}

export interface DrawnLine extends Named {
  /** Of the plot's times; null: nothing then. */
  readonly values: readonly (number | null)[];
  /** Its place among all lines: colour and dashes stay when others are hidden. */
  readonly place: number;
  readonly letter: string;
  readonly last: number | null;
  readonly least: number | null;
  readonly most: number | null;
  readonly mean: number | null;
}

const NAME_LABEL = "__name__";
const LABELS_FIRST = ["cluster", "job", "host", "device", "port", "gpu", "rank"];

/** Labels that all series have with the same value. */
export function commonLabels(series: readonly { readonly labels: Labels }[]): Labels {
  const [first, ...rest] = series;
  if (!first || !rest.length) return {};
  const names = Object.keys(first.labels).filter((name) =>
    rest.every((one) => one.labels[name] === first.labels[name]),
  );
  return Object.fromEntries(names.map((name) => [name, first.labels[name] ?? ""]));
}

/** Names of labels, what a thing is before its details. */
export function labelOrder(names: Iterable<string>): string[] {
  const rank = (name: string) =>
    name === NAME_LABEL
      ? -1
      : LABELS_FIRST.includes(name)
        ? LABELS_FIRST.indexOf(name)
        : LABELS_FIRST.length;
  return [...names].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

/** As few labels as distinguish all series: a GPU's host and number do without its UUID. */
export function tellingLabels(series: readonly { readonly labels: Labels }[]): string[] {
  const common = commonLabels(series);
  const all = new Set(series.flatMap((one) => Object.keys(one.labels)));
  const varying = labelOrder([...all].filter((name) => !(name in common)));
  const chosen: string[] = [];
  const names: string[] = series.map(() => "");
  let different = 1;
  for (const name of varying) {
    if (different === series.length) break;
    const longer = series.map((one, place) => `${names[place]}\0${one.labels[name] ?? ""}`);
    const found = new Set(longer).size;
    if (found === different) continue;
    different = found;
    chosen.push(name);
    longer.forEach((text, place) => {
      names[place] = text;
    });
  }
  return chosen;
}

/** `host=a port=1`; the metric's name where no label differs, else the query. */
export function nameOf(labels: Labels, telling: readonly string[], query: string): string {
  const parts = telling
    .filter((name) => name in labels)
    .map((name) => (name === NAME_LABEL ? (labels[name] ?? "") : `${name}=${labels[name]}`));
  return parts.join(" ") || wholeName(labels) || query;
}

/** `up{host="a"}`, as Prometheus writes it. */
export function wholeName(labels: Labels): string {
  const parts = labelOrder(Object.keys(labels))
    .filter((name) => name !== NAME_LABEL)
    .map((name) => `${name}=${JSON.stringify(labels[name])}`);
  return `${labels[NAME_LABEL] ?? ""}${parts.length ? `{${parts.join(", ")}}` : ""}`;
}

export function keyOf(letter: string, labels: Labels): string {
  const parts = Object.keys(labels)
    .sort()
    .map((name) => `${name}=${labels[name]}`);
  return `${letter} ${parts.join(",")}`;
}

export interface Answered {
  /** Its place among the queries. */
  readonly place: number;
  readonly query: string;
  readonly unit: Unit;
  readonly series: readonly Series[];
}

export interface Chart {
  readonly unit: Unit;
  readonly letters: readonly string[];
  readonly times: readonly number[];
  readonly lines: readonly DrawnLine[];
  /** Series that have no line: there are more than are drawn. */
  readonly leftOut: number;
  readonly common: Labels;
}

/** One chart for each unit, as numbers of different units have no axis in common. */
export function chartsOf(
  answers: readonly Answered[],
  from: number,
  to: number,
  step: number,
): Chart[] {
  const units = [...new Set(answers.map((answer) => answer.unit))];
  const times = Array.from(
    { length: Math.floor((to - from) / step + 1e-6) + 1 },
    (_, place) => from + place * step,
  );
  return units.map((unit) =>
    chartOf(
      answers.filter((answer) => answer.unit === unit),
      unit,
      times,
      step,
    ),
  );
}

function chartOf(
  answers: readonly Answered[],
  unit: Unit,
  times: readonly number[],
  step: number,
): Chart {
  const all = answers.flatMap((answer) => {
    const labels = tellingLabels(answer.series);
    return answer.series.map((series) => ({ answer, series, labels }));
  });
  const chosen = highest(all, (one) => one.series);
  const isLettered = new Set(answers.map((answer) => answer.place)).size > 1;
  const lines = chosen.map(({ answer, series, labels }, place): DrawnLine => {
    const letter = letterOf(answer.place);
    const name = nameOf(series.labels, labels, answer.query);
    return {
      key: keyOf(letter, series.labels),
      name: isLettered ? `${letter} ${name}` : name,
      labels: series.labels,
      letter,
      place,
      values: onGrid(series, times, step),
      ...numbersOf(series),
    };
  });
  return {
    unit,
    letters: answers.map((answer) => letterOf(answer.place)),
    times,
    lines,
    leftOut: all.length - lines.length,
    common: commonLabels(chosen.map((one) => one.series)),
  };
}

/** Those with the highest peaks, in the order in which they came. */
function highest<T>(all: readonly T[], seriesOf: (one: T) => Series): readonly T[] {
  if (all.length <= LINES_MAX) return all;
  const peaks = all.map((one) => numbersOf(seriesOf(one)).most ?? Number.NEGATIVE_INFINITY);
  const order = all.map((_, place) => place);
  order.sort((a, b) => (peaks[b] ?? 0) - (peaks[a] ?? 0));
  const kept = new Set(order.slice(0, LINES_MAX));
  return all.filter((_, place) => kept.has(place));
}

/** Where nothing was answered there is a gap, also where no series has anything. */
function onGrid(series: Series, times: readonly number[], step: number): (number | null)[] {
  const row: (number | null)[] = new Array(times.length).fill(null);
  const start = times[0] ?? 0;
  series.times.forEach((time, index) => {
    const place = Math.round((time - start) / step);
    const value = series.values[index];
    if (place >= 0 && place < row.length && value !== undefined && Number.isFinite(value))
      row[place] = value;
  });
  return row;
}

function numbersOf({ values }: Series): Pick<DrawnLine, "last" | "least" | "most" | "mean"> {
  let [least, most, sum, number] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, 0];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
    sum += value;
    number++;
  }
  if (!number) return { last: values.at(-1) ?? null, least: null, most: null, mean: null };
  return { last: values.at(-1) ?? null, least, most, mean: sum / number };
}
