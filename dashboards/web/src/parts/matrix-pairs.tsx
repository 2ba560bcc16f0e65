/** Pairs of a matrix as a table: the same as the map, for those who read. */
import type { By, Cell } from "../api/matrix";
import { count, si } from "../format";
import { Table } from "../ui/table";
import type { Marker } from "./matrix-draw";
import { type Grid, numberOf, type Quantity, telling } from "./matrix-grid";
import { called } from "./matrix-words";

const PAIRS_MAX = 12;

export function MatrixPairs(props: {
  grid: Grid;
  by: By;
  quantity: Quantity;
  chosen: Marker | undefined;
  onChoose: (row: number, column: number) => void;
}) {
  const { grid, by, quantity } = props;
  const cells = telling(grid).sort((a, b) =>
    quantity === "bytes" ? b.bytes - a.bytes : ordered(a) - ordered(b),
  );
  const chosen = props.chosen && grid.at(props.chosen.row, props.chosen.column);
  return (
    <>
      <Table
        label="Pairs"
        rows={cells.slice(0, PAIRS_MAX)}
        keyOf={(cell) => `${cell.source} ${cell.target}`}
        isMarked={(cell) => cell === chosen}
        noun="pair"
        columns={[
          {
            name: "From → to",
            show: (cell) => (
              <button
                type="button"
                class="plain matrix-link"
                onClick={() =>
                  props.onChoose(grid.index.get(cell.source) ?? 0, grid.index.get(cell.target) ?? 0)
                }
              >
                {called(by, cell.source)} → {called(by, cell.target)}
              </button>
            ),
          },
          {
            name: "Bytes",
            show: (cell) => si(cell.bytes, "B"),
            by: (cell) => cell.bytes,
            isNumber: true,
          },
          {
            name: "Speed",
            show: (cell) => si(cell.transfer_bytes_per_second, "B/s"),
            by: (cell) => numberOf(cell, "speed"),
            isNumber: true,
          },
        ]}
      />
      {cells.length > PAIRS_MAX && (
        <p class="soft">{count(cells.length - PAIRS_MAX, "more pair")}: see the map.</p>
      )}
    </>
  );
}

function ordered(cell: Cell): number {
  return cell.transfer_bytes_per_second ?? Number.POSITIVE_INFINITY;
}
