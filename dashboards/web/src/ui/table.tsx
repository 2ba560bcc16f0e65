/** A table that sorts by its headings; long ones show a part, with a note. */
import { type ComponentChildren, render } from "preact";
import { useState } from "preact/hooks";
import { count } from "../format";
import { type Cell, csvOf, fileNameOf } from "./csv";
import { parquetOf } from "./parquet";
import { save } from "./save";

export interface Column<Row> {
  readonly name: string;
  readonly show: (row: Row) => ComponentChildren;
  /** What it is sorted by; none: it is not sorted by this. */
  readonly by?: (row: Row) => number | string;
  readonly isNumber?: boolean;
  /** Stands right below the first one where a row is a card: what a reader on a phone came for. */
  readonly isFirstOnPhone?: boolean;
  /** In a file, where `show` says too little, such as a time without its day. */
  readonly csv?: (row: Row) => Cell;
}

const ROWS_FIRST = 100;
/** As cards each is as high as it has columns: what stands below must stay within reach. */
const CARDS_FIRST = 20;
/** As in the style sheet. */
const CARDS_AT = "(max-width: 760px)";
/** With more columns than this a table does not fit a phone: there each row becomes a card. */
const COLUMNS_ON_PHONE_MAX = 4;

export function Table<Row>(props: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  isMarked?: (row: Row) => boolean;
  noun?: string;
  /** It has a look of its own on a phone. */
  hasOwnPhoneLook?: boolean;
}) {
  const [sort, setSort] = useState<{ column: number; isDown: boolean }>();
  const isCarded = !props.hasOwnPhoneLook && props.columns.length > COLUMNS_ON_PHONE_MAX;
  const [shown, setShown] = useState(() =>
    isCarded && matchMedia(CARDS_AT).matches ? CARDS_FIRST : ROWS_FIRST,
  );
  const by = sort && props.columns[sort.column]?.by;
  const rows = by
    ? [...props.rows].sort((a, b) => compare(by(a), by(b)) * (sort?.isDown ? -1 : 1))
    : props.rows;
  // Where a heading can be focused the keyboard scrolls a wide table by it; else by the table itself.
  const focus = props.columns.some((column) => column.by)
    ? {}
    : { tabIndex: 0, role: "region" as const, "aria-label": `${props.label}, scrolled sideways` };
  return (
    <div class={`scrolled ${isCarded ? "carded" : ""}`} {...focus}>
      <table aria-label={props.label}>
        <thead>
          <tr>
            {props.columns.map((column, index) => (
              <th
                key={column.name}
                class={column.isNumber ? "n" : ""}
                aria-sort={
                  sort?.column === index ? (sort.isDown ? "descending" : "ascending") : undefined
                }
              >
                {column.by ? (
                  <button
                    type="button"
                    class="plain"
                    onClick={() =>
                      setSort({
                        column: index,
                        isDown: sort?.column === index ? !sort.isDown : !!column.isNumber,
                      })
                    }
                  >
                    {column.name}
                    <span aria-hidden="true">
                      {sort?.column === index ? (sort.isDown ? " ↓" : " ↑") : ""}
                    </span>
                  </button>
                ) : (
                  column.name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, shown).map((row) => (
            <tr key={props.keyOf(row)} class={props.isMarked?.(row) ? "marked" : ""}>
              {props.columns.map((column) => (
                <td key={column.name} class={classOf(column)} data-label={column.name}>
                  {column.show(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <div class="table-foot">
        {rows.length > shown && (
          <button type="button" onClick={() => setShown(shown + 10 * ROWS_FIRST)}>
            Show more of {count(rows.length, props.noun ?? "row")}
          </button>
        )}
        {rows.length > 0 && (
          <span class="files">
            {FILES.map(({ name, hint, type, ending, write }) => (
              <button
                key={name}
                type="button"
                class="plain csv"
                title={`${count(rows.length, props.noun ?? "row")} as a file ${hint}`}
                aria-label={`${props.label} as ${name}`}
                onClick={() =>
                  save(
                    new Blob([write(headingOf(props.columns), cellsOf(props.columns, rows))], {
                      type,
                    }),
                    fileNameOf(props.label, ending),
                  )
                }
              >
                {name}
              </button>
            ))}
          </span>
        )}
      </div>
    </div>
  );
}

function classOf<Row>(column: Column<Row>): string {
  return `${column.isNumber ? "n" : ""} ${column.isFirstOnPhone ? "leads" : ""}`.trim();
}

/** What a table can be saved as. */
const FILES = [
  { name: "CSV", hint: "for spreadsheets", type: "text/csv", ending: "csv", write: csvOf },
  {
    name: "Parquet",
    hint: "for notebooks",
    type: "application/vnd.apache.parquet",
    ending: "parquet",
    write: parquetOf,
  },
] as const;

function headingOf<Row>(columns: readonly Column<Row>[]): string[] {
  return columns.map((column) => column.name);
}

/** All rows, also those that are not shown yet; numbers in base units, other cells as they are read. */
function cellsOf<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): Cell[][] {
  const place = document.createElement("div");
  const cellOf = (column: Column<Row>, row: Row): Cell => {
    if (column.csv) return column.csv(row);
    if (column.isNumber && column.by) return column.by(row);
    render(<span>{column.show(row)}</span>, place);
    return textOf(place);
  };
  const cells = rows.map((row) => columns.map((column) => cellOf(column, row)));
  render(null, place);
  return cells;
}

/** Words of elements that stand below each other must not run together. */
function textOf(place: Node): string {
  const words: string[] = [];
  const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) words.push(walker.currentNode.textContent ?? "");
  return words.join(" ").replace(/\s+/g, " ").trim();
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") {
    if (Number.isNaN(a) || Number.isNaN(b))
      return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return a - b;
  }
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
