/** Which names stand beside the rows of a heat map, and where. Pure. */
import type { Row } from "./heat";

export interface Label {
  readonly text: string;
  /** The first row that it names, and how many. */
  readonly row: number;
  readonly rows: number;
  readonly top: number;
  readonly bottom: number;
  /** The middle, or near it if that would be cut. */
  readonly y: number;
}

/** A line of letters. */
const LINE_PIXELS = 12;

/**
 * Ranks' numbers as close as letters allow, and the host of each run of rows that belong to one, as long as
 * its name does not touch the one before.
 */
export function marginOf(
  rows: readonly Row[],
  height: number,
): { numbers: readonly Label[]; hosts: readonly Label[] } {
  const each = height / Math.max(1, rows.length);
  const every = Math.max(1, niceEvery(Math.ceil(LINE_PIXELS / each)));
  const numbers: Label[] = [];
  rows.forEach(({ rank }, row) => {
    if (rank !== undefined && row % every === 0)
      add(numbers, labelOf(String(rank), row, 1, each, height));
  });
  const hosts: Label[] = [];
  for (let row = 0; row < rows.length; ) {
    let end = row + 1;
    while (end < rows.length && rows[end]?.host === rows[row]?.host) end++;
    const host = rows[row]?.host;
    if (host) add(hosts, labelOf(host, row, end - row, each, height));
    row = end;
  }
  return { numbers, hosts };
}

/** Unless it would touch the one before. */
function add(labels: Label[], label: Label): void {
  if (label.y - (labels.at(-1)?.y ?? -LINE_PIXELS) >= LINE_PIXELS) labels.push(label);
}

/** 1, 2, 4, 8 …: ranks come in powers of two. */
function niceEvery(number: number): number {
  return 2 ** Math.ceil(Math.log2(number));
}

function labelOf(text: string, row: number, rows: number, each: number, height: number): Label {
  const [top, bottom] = [row * each, (row + rows) * each];
  const half = LINE_PIXELS / 2;
  const y = Math.min(Math.max((top + bottom) / 2, half), Math.max(half, height - half));
  return { text, row, rows, top, bottom, y };
}
