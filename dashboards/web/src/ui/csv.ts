/** Tables as files for spreadsheets: RFC 4180, with a defence against cells that would be run as formulas. Pure. */

export type Cell = string | number;

/** A spreadsheet runs a text that begins so; names of hosts and jobs come from outside. */
const FORMULA = /^[=+\-@\t\r]/;

function written(cell: Cell): string {
  if (typeof cell === "number") return Number.isFinite(cell) ? String(cell) : "";
  const safe = FORMULA.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Lines end as the RFC has it. */
export function csvOf(heading: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [heading, ...rows].map((row) => `${row.map(written).join(",")}\r\n`).join("");
}

/** `2026-11-15T09:05:40Z`: a moment that any program reads. */
export function isoOf(unixSeconds: number): string {
  return Number.isFinite(unixSeconds)
    ? new Date(unixSeconds * 1000).toISOString().replace(/\.000Z$/, "Z")
    : "";
}

/** `running-jobs.csv`. */
export function fileNameOf(label: string, ending = "csv"): string {
  const words = label.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  return `${words.replace(/^-|-$/g, "") || "table"}.${ending}`;
}
