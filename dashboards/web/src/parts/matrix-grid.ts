/** A matrix as it is drawn: its axes, its cells as columns of numbers, and which colour each pixel gets. Pure. */
import type { Cell } from "../api/matrix";

/** `bytes`: much is hot. `speed`: slow is hot, because slow is what one looks for. */
export type Quantity = "bytes" | "speed";

export interface Grid {
  /** Of rows and of columns: everybody who may send or receive. */
  readonly names: readonly string[];
  readonly index: ReadonlyMap<string, number>;
  /** Rows at which another host begins. */
  readonly borders: readonly number[];
  /** In the order in which they are drawn: those with the most bytes last, on top of the others. */
  readonly cells: readonly Cell[];
  readonly rows: Uint32Array;
  readonly columns: Uint32Array;
  /** Bytes between hosts that each sends and receives; within hosts where no bytes leave one. */
  readonly sent: Float64Array;
  readonly received: Float64Array;
  /** Whether any bytes leave a host. */
  readonly isNetwork: boolean;
  /** Which cell is at a row and a column. */
  readonly at: (row: number, column: number) => Cell | undefined;
}

const collator = new Intl.Collator("en", { numeric: true });

/** `node2` before `node10`. */
export function naturally(names: Iterable<string>): string[] {
  return [...new Set(names)].sort(collator.compare);
}

/** `others`: names without cells. A rank that sends nothing is a row, too: an empty one. */
export function gridOf(
  cells: readonly Cell[],
  others: Iterable<string> = [],
  hostOf: (name: string) => string = (name) => name.split("/", 1)[0] ?? name,
): Grid {
  const names = naturally([...others, ...cells.flatMap((cell) => [cell.source, cell.target])]);
  const index = new Map(names.map((name, place) => [name, place]));
  const size = names.length;
  const ordered = [...cells].sort((a, b) => a.bytes - b.bytes);
  const isNetwork = cells.some((cell) => !cell.is_local);
  const rows = new Uint32Array(ordered.length);
  const columns = new Uint32Array(ordered.length);
  const sent = new Float64Array(size);
  const received = new Float64Array(size);
  const places = new Map<number, number>();
  ordered.forEach((cell, place) => {
    const row = index.get(cell.source) ?? 0;
    const column = index.get(cell.target) ?? 0;
    rows[place] = row;
    columns[place] = column;
    places.set(row * size + column, place);
    if (cell.is_local && isNetwork) return;
    sent[row] = (sent[row] ?? 0) + cell.bytes;
    received[column] = (received[column] ?? 0) + cell.bytes;
  });
  const borders: number[] = [];
  for (let place = 1; place < size; place++)
    if (hostOf(names[place] ?? "") !== hostOf(names[place - 1] ?? "")) borders.push(place);
  return {
    names,
    index,
    borders: borders.length === size - 1 ? [] : borders,
    cells: ordered,
    rows,
    columns,
    sent,
    received,
    isNetwork,
    at: (row, column) => {
      const place = places.get(row * size + column);
      return place === undefined ? undefined : ordered[place];
    },
  };
}

/** Of the largest cell: what carries less is a barrier or a loss value, whose speed means nothing. */
export const TELLING_SHARE = 0.001;

/** Of the cells within hosts, or of those between them: all that carry enough to be compared. */
export function enough(grid: Grid, isLocal: boolean): Cell[] {
  const chosen = grid.cells.filter((cell) => cell.is_local === isLocal);
  const least = (chosen.at(-1)?.bytes ?? 0) * TELLING_SHARE;
  return chosen.filter((cell) => cell.bytes >= least);
}

/** What the drawing is about: cells between hosts, or within one if no bytes leave it. */
export function telling(grid: Grid): Cell[] {
  return enough(grid, !grid.isNetwork);
}

export function numberOf(cell: Cell, quantity: Quantity): number {
  return quantity === "bytes" ? cell.bytes : (cell.transfer_bytes_per_second ?? Number.NaN);
}

export interface Scale {
  readonly least: number;
  readonly median: number;
  readonly most: number;
}

/** Of some numbers; NaN where there are none. */
export function scaleOf(values: readonly number[]): Scale {
  const known = values.filter(Number.isFinite).sort((a, b) => a - b);
  const middle = known.length >> 1;
  const median =
    known.length % 2
      ? (known[middle] ?? Number.NaN)
      : ((known[middle - 1] ?? Number.NaN) + (known[middle] ?? Number.NaN)) / 2;
  return { least: known[0] ?? Number.NaN, median, most: known.at(-1) ?? Number.NaN };
}

/** A cell with any traffic differs from an empty one. */
export const FAINT = 0.05;
/** The least that cells which are compared are coloured by. */
export const VISIBLE = 0.16;

export type Colour = readonly [number, number, number];
export interface Paints {
  readonly ground: Colour;
  readonly network: (share: number) => Colour;
  readonly local: (share: number) => Colour;
}

/** One colour for each cell, as a canvas holds it (little-endian RGBA). */
export function coloursOf(grid: Grid, quantity: Quantity, paints: Paints): Uint32Array {
  const kinds = [false, true].map((isLocal) => {
    const cells = enough(grid, isLocal);
    return {
      least: cells[0]?.bytes ?? 0,
      most: scaleOf(cells.map((cell) => numberOf(cell, quantity))).most,
    };
  });
  const colours = new Uint32Array(grid.cells.length);
  grid.cells.forEach((cell, place) => {
    const kind = kinds[Number(cell.is_local)] ?? { least: 0, most: Number.NaN };
    const part = numberOf(cell, quantity) / kind.most;
    const heat = quantity === "bytes" ? part : 1 - part;
    const isTelling = cell.bytes >= kind.least && Number.isFinite(part);
    const share = isTelling ? VISIBLE + (1 - VISIBLE) * Math.min(1, Math.max(0, heat)) : FAINT;
    colours[place] = packed(cell.is_local ? paints.local(share) : paints.network(share));
  });
  return colours;
}

export function packed([red, green, blue]: Colour): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Which part of the matrix is seen: the cell at the upper left corner, and how many fit across. */
export interface Sight {
  readonly left: number;
  readonly top: number;
  readonly span: number;
}

export function whole(size: number): Sight {
  return { left: 0, top: 0, span: Math.max(1, size) };
}

/** So few cells fill the drawing when one is as near as one can get. */
const SPAN_MIN = 4;

/** Nearer (`factor` below 1) or farther, with the cell under (`x`, `y`; 0..1 of the drawing) where it is. */
export function zoomed(sight: Sight, size: number, factor: number, x = 0.5, y = 0.5): Sight {
  const span = Math.min(Math.max(1, size), Math.max(Math.min(SPAN_MIN, size), sight.span * factor));
  return kept(
    {
      span,
      left: sight.left + x * (sight.span - span),
      top: sight.top + y * (sight.span - span),
    },
    size,
  );
}

/** Within the matrix. */
export function kept(sight: Sight, size: number): Sight {
  const most = Math.max(0, size - sight.span);
  const within = (place: number) => Math.min(most, Math.max(0, place));
  return { span: sight.span, left: within(sight.left), top: within(sight.top) };
}

/** So that a cell is seen; as it is if it is already. */
export function showing(sight: Sight, size: number, row: number, column: number): Sight {
  const near = (start: number, place: number) =>
    place < start ? place : place + 1 > start + sight.span ? place + 1 - sight.span : start;
  return kept({ ...sight, left: near(sight.left, column), top: near(sight.top, row) }, size);
}

/** Cells at least so large are kept apart by a line. */
const GAP_FROM_PIXELS = 7;
/** Of a thousand ranks a cell is less than a pixel: drawn larger, or one would not see it. */
const CELL_PIXELS_MIN = 2;
const FILL_FROM_PIXELS = 8;

/** Fills a square of `side` x `side` pixels. The cost is that of the pixels, however many cells there are. */
export function paint(
  pixels: Uint32Array,
  side: number,
  grid: Pick<Grid, "rows" | "columns">,
  colours: Uint32Array,
  sight: Sight,
  ground: number,
): void {
  pixels.fill(ground);
  const scale = side / sight.span;
  const gap = scale >= GAP_FROM_PIXELS ? 1 : 0;
  const { rows, columns } = grid;
  for (let place = 0; place < rows.length; place++) {
    const x = ((columns[place] ?? 0) - sight.left) * scale;
    const y = ((rows[place] ?? 0) - sight.top) * scale;
    if (x + scale <= 0 || y + scale <= 0 || x >= side || y >= side) continue;
    const colour = colours[place] ?? 0;
    const left = Math.max(0, Math.floor(x));
    const right = Math.min(side, Math.max(left + CELL_PIXELS_MIN, Math.floor(x + scale) - gap));
    const top = Math.max(0, Math.floor(y));
    const bottom = Math.min(side, Math.max(top + CELL_PIXELS_MIN, Math.floor(y + scale) - gap));
    for (let line = top; line < bottom; line++) {
      const start = line * side;
      // A call costs more than writing the few pixels of one of a thousand cells in a row.
      if (right - left > FILL_FROM_PIXELS) pixels.fill(colour, start + left, start + right);
      else for (let pixel = start + left; pixel < start + right; pixel++) pixels[pixel] = colour;
    }
  }
}

/** Every how many names one can be written, if each takes `needed` pixels and a cell has `pixels`. */
export function every(pixels: number, needed: number): number {
  if (pixels >= needed) return 1;
  const least = needed / pixels;
  for (const step of [2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500])
    if (step >= least) return step;
  return Math.ceil(least / 1000) * 1000;
}
