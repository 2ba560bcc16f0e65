/**
 * A heat map of ranks and steps: which row is who, what is bright, and the picture. Pure.
 *
 * Columns are steps at their place in time, so they are not equally wide. Where several rows or columns
 * share a pixel the brightest is drawn: one slow rank in a thousand must still be seen.
 */
import type { Heat, HeatStep } from "../api/heat";
import type { Span } from "./timeline";

export function valueAt(heat: Heat, rank: number, step: number): number {
  return heat.values[rank * heat.steps.length + step] ?? Number.NaN;
}

// --- rows ------------------------------------------------------------------------------------------

export type Order = "rank" | "worst";
export type Grouping = "rank" | "host";

/** A row of the map: one rank, or all ranks of a host, of which the largest value is shown. */
export interface Row {
  /** Places in `heat.ranks`. */
  readonly members: readonly number[];
  readonly host: string | null;
  /** Undefined for a host's row. */
  readonly rank: number | undefined;
}

export function rowsOf(heat: Heat, order: Order, grouping: Grouping): Row[] {
  const rows = grouping === "host" ? hostRows(heat) : rankRows(heat);
  if (order === "rank") return rows;
  const weight = new Map(rows.map((row) => [row, weightOf(heat, row)]));
  return rows.sort((a, b) => (weight.get(b) ?? 0) - (weight.get(a) ?? 0));
}

function rankRows(heat: Heat): Row[] {
  return heat.ranks.map(({ rank, host }, place) => ({ members: [place], host, rank }));
}

function hostRows(heat: Heat): Row[] {
  const hosts = new Map<string | null, number[]>();
  heat.ranks.forEach(({ host }, place) => {
    const members = hosts.get(host);
    if (members) members.push(place);
    else hosts.set(host, [place]);
  });
  return [...hosts].map(([host, members]) => ({ members, host, rank: undefined }));
}

/** How bright a row is in all: the sum of what is above zero in its worst member. */
function weightOf(heat: Heat, row: Row): number {
  let most = 0;
  for (const member of row.members) {
    let sum = 0;
    for (let step = 0; step < heat.steps.length; step++) {
      const value = valueAt(heat, member, step);
      if (value > 0) sum += value;
    }
    most = Math.max(most, sum);
  }
  return most;
}

/** The row that holds this rank; -1 if none does. */
export function rowOfRank(heat: Heat, rows: readonly Row[], rank: number | undefined): number {
  if (rank === undefined) return -1;
  return rows.findIndex((row) => row.members.some((member) => heat.ranks[member]?.rank === rank));
}

/** The member of a row whose value is the largest in a step: the one that a host's cell shows. */
export function memberAt(heat: Heat, row: Row, step: number): number {
  let [best, most] = [row.members[0] ?? 0, Number.NEGATIVE_INFINITY];
  for (const member of row.members) {
    const value = valueAt(heat, member, step);
    if (value > most) [best, most] = [member, value];
  }
  return best;
}

// --- what is bright --------------------------------------------------------------------------------

export interface Scale {
  /** Seconds at the dark and at the bright end; beyond them nothing becomes darker or brighter. */
  readonly low: number;
  readonly high: number;
}

/**
 * How bright a value is, 0 to 1. By its root: a rank that is 0.3 s late must be seen beside a stretch in
 * which all are 10 s late.
 */
export function brightness(scale: Scale, value: number): number {
  const share = (value - scale.low) / (scale.high - scale.low);
  return Math.sqrt(Math.min(1, Math.max(0, share)));
}

/** The value that is so bright. */
export const valueAtShade = ({ low, high }: Scale, bright: number): number =>
  low + (high - low) * bright * bright;

/** A tenth of a step is what makes a straggler (FALCON, MegaScale): a healthy job must not glow. */
const BRIGHT_SHARE_OF_STEP = 0.1;
/** Below a hundredth of a step is the noise of any job. */
const DARK_SHARE_OF_STEP = 0.01;
const SAMPLED_MAX = 20_000;

/** From what is usual to what is rare, but never so fine that noise becomes bright. */
export function scaleOf(heat: Heat): Scale {
  const known = sampled(heat.values);
  const lengths = heat.steps.map((step) => (step.to - step.from) / heat.stepsInOne).sort(ascending);
  const step = quantile(lengths, 0.5);
  const usual = heat.quantity === "late" ? 0 : quantile(known, 0.05);
  const low = usual + DARK_SHARE_OF_STEP * step;
  return { low, high: Math.max(quantile(known, 0.99), low + BRIGHT_SHARE_OF_STEP * step, 1e-6) };
}

function sampled(values: Float32Array): number[] {
  const every = Math.max(1, Math.floor(values.length / SAMPLED_MAX));
  const known: number[] = [];
  for (let place = 0; place < values.length; place += every) {
    const value = values[place];
    if (value !== undefined && !Number.isNaN(value)) known.push(value);
  }
  return known.sort(ascending);
}

const ascending = (a: number, b: number) => a - b;

/** Of sorted numbers; 0 of none. */
export function quantile(sorted: readonly number[], share: number): number {
  const place = share * (sorted.length - 1);
  const [below, above] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  if (below === undefined || above === undefined) return 0;
  return below + (above - below) * (place - Math.floor(place));
}

// --- the picture -----------------------------------------------------------------------------------

/** A brightness for each cell, row by row: 0 not seen, 1 the dark end, 255 the bright one. */
export interface Shades {
  readonly rows: number;
  readonly columns: number;
  readonly bytes: Uint8Array;
}

export function shadesOf(heat: Heat, rows: readonly Row[], scale: Scale): Shades {
  const columns = heat.steps.length;
  const bytes = new Uint8Array(rows.length * columns);
  rows.forEach((row, place) => {
    const out = place * columns;
    for (const member of row.members) {
      const from = member * columns;
      for (let column = 0; column < columns; column++) {
        const value = heat.values[from + column] as number;
        const shade = Number.isNaN(value) ? 0 : 1 + 254 * brightness(scale, value);
        if (shade > (bytes[out + column] as number)) bytes[out + column] = shade;
      }
    }
  });
  return { rows: rows.length, columns, bytes };
}

/** The same with no more rows than pixels; of rows that share one, the brightest cell. */
export function fitted(shades: Shades, height: number): Shades {
  if (shades.rows <= height) return shades;
  const { columns } = shades;
  const bytes = new Uint8Array(height * columns);
  for (let row = 0; row < shades.rows; row++) {
    const out = Math.floor((row * height) / shades.rows) * columns;
    const from = row * columns;
    for (let column = 0; column < columns; column++) {
      const shade = shades.bytes[from + column] as number;
      if (shade > (bytes[out + column] as number)) bytes[out + column] = shade;
    }
  }
  return { rows: height, columns, bytes };
}

/** For each pixel column the first and the last step that it shows; -1: none. */
export interface Columns {
  readonly first: Int32Array;
  readonly last: Int32Array;
}

/** Steps are in order of time; where one ends before the next begins, nothing is drawn between. */
export function columnsOf(steps: readonly HeatStep[], span: Span, width: number): Columns {
  const first = new Int32Array(width).fill(-1);
  const last = new Int32Array(width).fill(-1);
  const by = width / (span.to - span.from);
  for (let place = 0; place < steps.length; place++) {
    const step = steps[place] as HeatStep;
    const begin = Math.max(0, Math.floor((step.from - span.from) * by));
    // At least one pixel, however short the step is.
    const end = Math.min(width, Math.max(begin + 1, Math.floor((step.to - span.from) * by)));
    if (step.to <= span.from || step.from >= span.to) continue;
    for (let x = begin; x < end; x++) {
      if (first[x] === -1) first[x] = place;
      last[x] = place;
    }
  }
  return { first, last };
}

/** Draws into `pixels` (width times height), a colour of `palette` for each shade. */
export function paint(
  pixels: Uint32Array,
  width: number,
  height: number,
  shades: Shades,
  columns: Columns,
  palette: Uint32Array,
): void {
  for (let row = 0; row < shades.rows; row++) {
    const top = Math.floor((row * height) / shades.rows);
    const bottom = Math.floor(((row + 1) * height) / shades.rows);
    const from = row * shades.columns;
    const line = top * width;
    for (let x = 0; x < width; x++) {
      const first = columns.first[x] as number;
      let shade = 0;
      if (first >= 0) {
        const last = columns.last[x] as number;
        shade = shades.bytes[from + first] as number;
        for (let column = first + 1; column <= last; column++)
          if ((shades.bytes[from + column] as number) > shade)
            shade = shades.bytes[from + column] as number;
      }
      pixels[line + x] = palette[shade] as number;
    }
    for (let y = top + 1; y < bottom; y++) pixels.copyWithin(y * width, line, line + width);
  }
}

export type Colour = readonly [number, number, number];

/** Colours as a canvas keeps them in memory (little-endian RGBA); the first is "not seen". */
export function paletteOf(ramp: (share: number) => Colour, unseen: Colour): Uint32Array {
  const packed = ([red, green, blue]: Colour) =>
    ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  return Uint32Array.from({ length: 256 }, (_, shade) =>
    packed(shade === 0 ? unseen : ramp((shade - 1) / 254)),
  );
}

// --- finding one's way -----------------------------------------------------------------------------

/** The step that is under way at this moment; -1 if none is. */
export function stepAt(steps: readonly HeatStep[], time: number): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle]?.to ?? 0) <= time) low = middle + 1;
    else high = middle;
  }
  const step = steps[low];
  return step && step.from <= time ? low : -1;
}

/** The first and the last step of which some is in sight; the second is below the first if none is. */
export function stepsIn(steps: readonly HeatStep[], span: Span): readonly [number, number] {
  const first = steps.findIndex((step) => step.to > span.from);
  const last = steps.findLastIndex((step) => step.from < span.to);
  return first < 0 ? [0, -1] : [first, last];
}

export function rowAt(rows: number, height: number, y: number): number {
  return y < 0 || y >= height ? -1 : Math.min(rows - 1, Math.floor((y * rows) / height));
}

/** One rank's record over the steps that are shown. */
export interface RankRecord {
  readonly place: number;
  /** Of its lateness, in seconds; NaN if it was never seen. */
  readonly median: number;
  /** Of the steps in which anybody was seen, those in which it came last. */
  readonly lastShare: number;
}

/** How late each rank was; of a heat map of lateness. */
export function recordsOf(heat: Heat): RankRecord[] {
  const lastIn = new Float64Array(heat.ranks.length);
  let seen = 0;
  for (let step = 0; step < heat.steps.length; step++) {
    let [last, most] = [-1, Number.NEGATIVE_INFINITY];
    for (let rank = 0; rank < heat.ranks.length; rank++) {
      const value = valueAt(heat, rank, step);
      if (value > most) [last, most] = [rank, value];
    }
    if (last < 0) continue;
    seen++;
    lastIn[last] = (lastIn[last] ?? 0) + 1;
  }
  return heat.ranks.map((_, place) => ({
    place,
    median: medianOfRow(heat, place),
    lastShare: seen ? (lastIn[place] ?? 0) / seen : 0,
  }));
}

function medianOfRow(heat: Heat, place: number): number {
  const width = heat.steps.length;
  const known = [...heat.values.subarray(place * width, (place + 1) * width)].filter(
    (value) => !Number.isNaN(value),
  );
  return known.length ? quantile(known.sort(ascending), 0.5) : Number.NaN;
}

/** The rank that came last most often; undefined where no rank was seen. */
export function latestOf(records: readonly RankRecord[]): RankRecord | undefined {
  let best: RankRecord | undefined;
  for (const record of records)
    if (!Number.isNaN(record.median) && (!best || record.lastShare > best.lastShare)) best = record;
  return best;
}
