/** What stands beside a heat map's rows: numbers of ranks, names of hosts, marks of who is accused. */
import { colour } from "../theme";
import type { Row } from "./heat";
import { type Label, marginOf } from "./heat-labels";
import type { Field } from "./timeline";
import { type Canvas, FONT } from "./timeline-draw";

export interface Marks {
  /** Rows of the ranks that an incident accuses. */
  readonly accused: ReadonlySet<number>;
  /** The row of the chosen rank; -1: none. */
  readonly chosen: number;
}

/** Lower ones would be dots. */
const BRACKET_PIXELS = 12;

export function drawMargin(
  context: Canvas,
  field: Field,
  height: number,
  rows: readonly Row[],
  marks: Marks,
): void {
  const { numbers, hosts } = marginOf(rows, height);
  context.textBaseline = "middle";
  const hasHosts = field.left > 80;
  for (const label of numbers)
    write(context, label, field.left - 6, field.left - 12, "right", marks);
  if (hasHosts)
    for (const label of hosts) {
      write(context, label, 12, field.left - (numbers.length ? 42 : 18), "left", marks);
      if (label.rows > 1 && label.bottom - label.top > BRACKET_PIXELS)
        bracket(context, field, label);
    }
  if (marks.chosen >= 0) {
    const each = height / rows.length;
    context.fillStyle = colour("accent");
    context.fillRect(field.left - 4, marks.chosen * each, 3, Math.max(3, each - 1));
  }
  context.fillStyle = colour("bad");
  for (const row of marks.accused) triangle(context, ((row + 0.5) * height) / rows.length);
}

function write(
  context: Canvas,
  label: Label,
  x: number,
  width: number,
  align: CanvasTextAlign,
  marks: Marks,
): void {
  const isAccused = [...marks.accused].some(
    (row) => row >= label.row && row < label.row + label.rows,
  );
  const isChosen = marks.chosen >= label.row && marks.chosen < label.row + label.rows;
  context.font = isChosen || isAccused ? `600 ${FONT}` : FONT;
  context.fillStyle = colour(isAccused ? "bad" : isChosen ? "accent" : "soft");
  context.textAlign = align;
  context.fillText(shortened(context, label.text, width), x, label.y);
}

/** The end of a host's name distinguishes it from its neighbours, so the middle is left out. */
function shortened(context: Canvas, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  for (let kept = text.length - 1; kept > 3; kept--) {
    const cut = `${text.slice(0, Math.floor(kept / 3))}…${text.slice(-Math.ceil((kept * 2) / 3))}`;
    if (context.measureText(cut).width <= width) return cut;
  }
  return text.slice(-3);
}

function bracket(context: Canvas, field: Field, label: Label): void {
  context.strokeStyle = colour("rule");
  context.lineWidth = 1;
  const x = field.left - 28.5;
  context.beginPath();
  context.moveTo(x + 4, label.top + 2.5);
  context.lineTo(x, label.top + 2.5);
  context.lineTo(x, label.bottom - 2.5);
  context.lineTo(x + 4, label.bottom - 2.5);
  context.stroke();
}

function triangle(context: Canvas, y: number): void {
  context.beginPath();
  context.moveTo(1, y - 5);
  context.lineTo(9, y);
  context.lineTo(1, y + 5);
  context.fill();
}

/** A frame around a row or a cell. */
export function outline(
  context: Canvas,
  left: number,
  top: number,
  width: number,
  height: number,
  name: string,
): void {
  context.lineWidth = 3;
  context.strokeStyle = colour("card");
  context.strokeRect(left, top, width, height);
  context.lineWidth = 1.5;
  context.strokeStyle = colour(name);
  context.strokeRect(left, top, width, height);
}
