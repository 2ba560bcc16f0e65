/** A table that sorts by its headings; long ones show a part, with a note. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { count } from "../format";

export interface Column<Row> {
  readonly name: string;
  readonly show: (row: Row) => ComponentChildren;
  /** What it is sorted by; none: it is not sorted by this. */
  readonly by?: (row: Row) => number | string;
  readonly isNumber?: boolean;
}

const ROWS_FIRST = 100;

export function Table<Row>(props: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  isMarked?: (row: Row) => boolean;
  noun?: string;
}) {
  const [sort, setSort] = useState<{ column: number; isDown: boolean }>();
  const [shown, setShown] = useState(ROWS_FIRST);
  const by = sort && props.columns[sort.column]?.by;
  const rows = by
    ? [...props.rows].sort((a, b) => compare(by(a), by(b)) * (sort?.isDown ? -1 : 1))
    : props.rows;
  // Where a heading can be focused the keyboard scrolls a wide table by it; else by the table itself.
  const focus = props.columns.some((column) => column.by)
    ? {}
    : { tabIndex: 0, role: "region" as const, "aria-label": `${props.label}, scrolled sideways` };
  return (
    <div class="scrolled" {...focus}>
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
                <td key={column.name} class={column.isNumber ? "n" : ""}>
                  {column.show(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > shown && (
        <button type="button" onClick={() => setShown(shown + 10 * ROWS_FIRST)}>
          Show more of {count(rows.length, props.noun ?? "row")}
        </button>
      )}
    </div>
  );
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") {
    if (Number.isNaN(a) || Number.isNaN(b))
      return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return a - b;
  }
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
