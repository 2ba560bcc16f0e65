/**
 * The heat map of ranks and steps as a plot of a timeline: columns lie where their steps lie in time. Point
 * at a cell to read it, click it to ask why; with the keyboard, arrows move a cell and Enter asks.
 */
import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Heat } from "../api/heat";
import { duration } from "../format";
import { colour, isDark, ramp } from "../theme";
import {
  memberAt,
  paletteOf,
  type Row,
  rowAt,
  rowOfRank,
  type Scale,
  shadesOf,
  stepAt,
  stepsIn,
  valueAtShade,
} from "./heat";
import { drawMargin, type Marks, outline } from "./heat-margin";
import { Picture } from "./heat-picture";
import { cellWords, heatWords, QUANTITIES } from "./heat-words";
import { type Field, toTime, toX } from "./timeline";
import { useCanvas } from "./timeline-canvas";
import { type Clock, fieldOf, useClock } from "./timeline-clock";
import { type Canvas, drawBandEdges, inside } from "./timeline-draw";
import { TrackHead } from "./timeline-tracks";
import { clockText } from "./timeline-words";

/** A rank and a moment within the step. */
export interface Chosen {
  readonly rank: number | undefined;
  readonly time: number | undefined;
}

interface Pointed {
  readonly row: number;
  readonly step: number;
}

const ROW_PIXELS_MAX = 20;
const HEIGHT_MAX = 480;
const HEIGHT_MIN = 64;
const TIP_PIXELS = 250;

export const heightOf = (rows: number): number =>
  Math.max(HEIGHT_MIN, Math.min(HEIGHT_MAX, rows * ROW_PIXELS_MAX));

export function HeatTrack(props: {
  heat: Heat;
  rows: readonly Row[];
  scale: Scale;
  hint: string;
  /** Ranks that an incident accuses. */
  accused: ReadonlySet<number>;
  chosen: Chosen;
  aside?: ComponentChildren;
  isOld?: boolean;
  /** The time is undefined where only the rank was chosen, at the margin. */
  onCell?: (rank: number, time: number | undefined) => void;
}) {
  const { heat, rows, scale } = props;
  const clock = useClock();
  const height = heightOf(rows.length);
  const picture = usePicture(heat, rows, scale, height);
  const marks = marksOf(heat, rows, props.accused, props.chosen.rank);
  const chosenStep = props.chosen.time === undefined ? -1 : stepAt(heat.steps, props.chosen.time);
  const canvas = useCanvas(clock, height, (context, field) => {
    picture(context, field);
    inside(context, field, height, () => {
      separate(context, field, height, rows);
      drawBandEdges(context, field, height, clock.bands.peek());
      if (chosenStep >= 0 && marks.chosen >= 0)
        frameCell(context, field, height, heat, rows.length, {
          row: marks.chosen,
          step: chosenStep,
        });
    });
    drawMargin(context, field, height, rows, marks);
  });
  const named = QUANTITIES[heat.quantity];
  const words = useMemo(() => heatWords(heat, rows, scale), [heat, rows, scale]);
  return (
    <section class={`track heat ${props.isOld ? "old" : ""}`}>
      <TrackHead
        title={named.title}
        hint={props.hint}
        keys={<Legend scale={scale} />}
        aside={props.aside}
      />
      <Cells
        heat={heat}
        rows={rows}
        height={height}
        start={{ row: Math.max(0, marks.chosen), step: chosenStep }}
        {...(props.onCell ? { onCell: props.onCell } : {})}
      >
        <canvas ref={canvas} role="img" aria-label={words} style={{ height: `${height}px` }} />
      </Cells>
    </section>
  );
}

/** Draws the cells; what they are painted with is made anew only when it changes. */
function usePicture(heat: Heat, rows: readonly Row[], scale: Scale, height: number) {
  const dark = isDark.value;
  const shades = useMemo(() => shadesOf(heat, rows, scale), [heat, rows, scale]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the style sheet's colours turn with it
  const palette = useMemo(
    () => paletteOf((share) => ramp(share, dark), rgbOf(colour("card"))),
    [dark],
  );
  const picture = useMemo(() => new Picture(), []);
  return (context: Canvas, field: Field) =>
    picture.draw(context, field, height, heat.steps, shades, palette);
}

/** A canvas reads every notation of a colour, and returns #rrggbb. */
function rgbOf(text: string): readonly [number, number, number] {
  const canvas = document.createElement("canvas").getContext("2d");
  if (canvas) canvas.fillStyle = text;
  const number = Number.parseInt(String(canvas?.fillStyle ?? "").slice(1), 16) || 0;
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

function marksOf(
  heat: Heat,
  rows: readonly Row[],
  accused: ReadonlySet<number>,
  chosen: number | undefined,
): Marks {
  const found = [...accused].map((rank) => rowOfRank(heat, rows, rank)).filter((row) => row >= 0);
  return { accused: new Set(found), chosen: rowOfRank(heat, rows, chosen) };
}

const SEPARATED_PIXELS = 8;

/** Thin lines between rows, where rows are high, and between hosts. */
function separate(context: Canvas, field: Field, height: number, rows: readonly Row[]): void {
  const each = height / rows.length;
  context.fillStyle = colour("card");
  rows.forEach((row, place) => {
    const isHost = place > 0 && rows[place - 1]?.host !== row.host;
    if (place > 0 && (each >= SEPARATED_PIXELS || (isHost && each * 8 >= SEPARATED_PIXELS)))
      context.fillRect(field.left, Math.round(place * each) - 1, field.width, isHost ? 2 : 1);
  });
}

function frameCell(
  context: Canvas,
  field: Field,
  height: number,
  heat: Heat,
  rows: number,
  { row, step }: Pointed,
): void {
  const span = heat.steps[step];
  if (!span) return;
  const each = height / rows;
  const left = toX(field, span.from);
  const width = Math.max(4, toX(field, span.to) - left);
  outline(context, left, row * each, width, Math.max(4, each), "accent");
}

/** The colours and their values. */
function Legend({ scale }: { scale: Scale }) {
  const dark = isDark.value;
  const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => `rgb(${ramp(share, dark).join(",")})`);
  return (
    <span class="ramp">
      ≤ {duration(scale.low)}
      <i style={{ background: `linear-gradient(to right, ${stops.join(",")})` }} aria-hidden="true">
        <small>{duration(valueAtShade(scale, 0.5))}</small>
      </i>
      ≥ {duration(scale.high)}
    </span>
  );
}

/** The map under the hand and the keyboard: what is pointed at, and its words beside it. */
function Cells(props: {
  heat: Heat;
  rows: readonly Row[];
  height: number;
  start: Pointed;
  onCell?: (rank: number, time: number | undefined) => void;
  children: ComponentChildren;
}) {
  const { heat, rows, height } = props;
  const clock = useClock();
  const pointed = useSignal<Pointed | undefined>(undefined);
  /** For screen readers, set only by the keyboard: a pointer's user sees the cell. */
  const announced = useSignal("");
  const at = (event: MouseEvent) => placeOf(event, clock, heat, rows.length, height);
  const choose = (place: Pointed | undefined) => {
    const row = place && rows[place.row];
    if (!place || !row) return;
    const step = heat.steps[place.step];
    const rank = heat.ranks[memberAt(heat, row, Math.max(0, place.step))]?.rank;
    if (rank !== undefined) props.onCell?.(rank, step && (step.from + step.to) / 2);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") choose(pointed.value);
    const seen = stepsIn(heat.steps, clock.shown.peek());
    const next = afterArrow(event.key, pointed.value, props.start, rows.length, seen);
    if (!next && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    const step = next && heat.steps[next.step];
    const row = next && rows[next.row];
    if (!next || !step || !row) return;
    pointed.value = next;
    clock.cursor.value = (step.from + step.to) / 2;
    announced.value = cellWords(heat, memberAt(heat, row, next.step), next.step).join(", ");
  };
  const onMove = (event: PointerEvent) => {
    const place = at(event);
    pointed.value = place && place.step >= 0 ? place : undefined;
  };
  return (
    <div
      class="cells"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move from cell to cell
      tabIndex={0}
      role="application"
      aria-label="Heat map of ranks and steps. Arrow keys move, Enter explains a cell."
      onKeyDown={onKey}
      onPointerMove={onMove}
      onPointerLeave={() => {
        pointed.value = undefined;
      }}
      onClick={(event) => choose(at(event))}
    >
      {props.children}
      <Tip heat={heat} rows={rows} height={height} pointed={pointed} />
      <span class="unseen" aria-live="polite">
        {announced}
      </span>
    </div>
  );
}

/** The cell under a hand; the step is -1 at the margin. Undefined: no cell is there. */
function placeOf(
  event: MouseEvent,
  clock: Clock,
  heat: Heat,
  rows: number,
  height: number,
): Pointed | undefined {
  const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
  const field = fieldOf(clock);
  const x = event.clientX - box.left;
  const row = rowAt(rows, height, event.clientY - box.top);
  if (row < 0 || x > field.left + field.width) return undefined;
  if (x < field.left) return { row, step: -1 };
  const step = stepAt(heat.steps, toTime(field, x));
  return step < 0 ? undefined : { row, step };
}

/** The next cell, among those in sight; the first press goes to the chosen one, or to the newest. */
function afterArrow(
  key: string,
  at: Pointed | undefined,
  start: Pointed,
  rows: number,
  seen: readonly [number, number],
): Pointed | undefined {
  const way = ARROWS[key];
  if (!way) return undefined;
  const [first, last] = seen;
  const isSeen = (step: number) => step >= first && step <= last;
  if (!at || !isSeen(at.step))
    return { row: start.row, step: isSeen(start.step) ? start.step : last };
  return {
    row: Math.min(rows - 1, Math.max(0, at.row + way[0])),
    step: Math.min(last, Math.max(first, at.step + way[1])),
  };
}

/** Rows and steps further. */
const ARROWS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
};

/** What is under the pointer, beside it. */
function Tip(props: {
  heat: Heat;
  rows: readonly Row[];
  height: number;
  pointed: Signal<Pointed | undefined>;
}) {
  const clock = useClock();
  const { heat, rows, height } = props;
  const at = props.pointed.value;
  const row = at && rows[at.row];
  const step = at && heat.steps[at.step];
  if (!at || !row || !step) return null;
  const field = fieldOf(clock);
  const [who, what] = cellWords(heat, memberAt(heat, row, at.step), at.step);
  const x = toX(field, (step.from + step.to) / 2);
  const isRight = x + TIP_PIXELS > field.left + field.width;
  const y = ((at.row + 0.5) * height) / rows.length;
  return (
    <div
      class={`tip ${isRight ? "before" : ""}`}
      style={{ left: `${x}px`, top: `${Math.max(0, y - 20)}px` }}
      aria-hidden="true"
    >
      <b>{what}</b>
      <span>{who}</span>
      <span class="soft">
        {heat.stepsInOne > 1 ? `${heat.stepsInOne} steps` : "step"} at {clockText(step.from, 1)},{" "}
        {duration(step.to - step.from)}
      </span>
    </div>
  );
}
