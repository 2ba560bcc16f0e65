/** What is drawn into the plots of a timeline. Lengths are CSS pixels; a plot fills its canvas. */
import { colour } from "../theme";
import type { Line } from "../ui/plot";
import { type Bar, type Field, gapsOf, type Limits, timeTicks, toX, valueTicks } from "./timeline";
import type { Band } from "./timeline-clock";
import { clockAhead } from "./timeline-words";

export type Canvas = CanvasRenderingContext2D;

/** Above the highest and below the lowest value, so that lines and letters are not cut. */
const ROOM = 7;
const TICK_PIXELS = 110;
export const FONT = "11px system-ui, sans-serif";

export const ticksThatFit = (field: Field): number => field.width / TICK_PIXELS;

export function toY(limits: Limits, height: number, value: number): number {
  const share = (value - limits.low) / (limits.high - limits.low);
  return height - ROOM - share * (height - 2 * ROOM);
}

/** Lines at round moments and round values, and the values' names. */
export function drawGrid(
  context: Canvas,
  field: Field,
  height: number,
  limits: Limits,
  format: (value: number) => string,
  values: readonly number[] = valueTicks(limits.low, limits.high, height < 60 ? 2 : 3),
): void {
  context.strokeStyle = colour("rule");
  context.fillStyle = colour("soft");
  context.font = FONT;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.lineWidth = 1;
  context.beginPath();
  for (const value of values) {
    const y = Math.round(toY(limits, height, value)) + 0.5;
    context.moveTo(field.left, y);
    context.lineTo(field.left + field.width, y);
    context.fillText(format(value), field.left - 6, y, field.left - 8);
  }
  for (const time of timeTicks(field.span, ticksThatFit(field), clockAhead(field.span.from))
    .times) {
    const x = Math.round(toX(field, time)) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, height);
  }
  context.stroke();
}

/** Everything drawn inside stays inside the plot. */
export function inside(context: Canvas, field: Field, height: number, draw: () => void): void {
  context.save();
  context.beginPath();
  context.rect(field.left, 0, field.width, height);
  context.clip();
  draw();
  context.restore();
}

export function drawBands(
  context: Canvas,
  field: Field,
  height: number,
  bands: readonly Band[],
): void {
  context.fillStyle = colour("shade");
  for (const band of bands) {
    const [left, right] = [toX(field, band.from), toX(field, band.to)];
    context.fillRect(left, 0, Math.max(1, right - left), height);
  }
}

/** Only where bands begin and end: over a heat map a shade would change what colours mean. */
export function drawBandEdges(
  context: Canvas,
  field: Field,
  height: number,
  bands: readonly Band[],
): void {
  context.strokeStyle = colour("bad");
  context.setLineDash([3, 3]);
  context.beginPath();
  for (const time of bands.flatMap((band) => [band.from, band.to])) {
    const x = Math.round(toX(field, time)) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, height);
  }
  context.stroke();
  context.setLineDash([]);
}

export function drawBars(
  context: Canvas,
  field: Field,
  height: number,
  limits: Limits,
  bars: readonly Bar[],
  colours: readonly string[],
): void {
  colours.forEach((name, part) => {
    context.fillStyle = colour(name);
    for (const bar of bars) {
      if (bar.to < field.span.from || bar.from > field.span.to) continue;
      const below = bar.parts.slice(0, part).reduce((sum, value) => sum + value, 0);
      const value = bar.parts[part] ?? 0;
      // Whole pixels: bars that touch must not show a seam.
      const left = Math.round(toX(field, bar.from));
      const right = Math.max(left + 1, Math.round(toX(field, bar.to)));
      const top = toY(limits, height, below + value);
      context.fillRect(left, top, right - left, toY(limits, height, below) - top);
    }
  });
}

/** A text where no bar is, if it fits: a gap matters, too. */
export function drawGaps(
  context: Canvas,
  field: Field,
  height: number,
  bars: readonly Bar[],
  textOf: (seconds: number) => string,
): void {
  context.font = FONT;
  context.fillStyle = colour("soft");
  context.textAlign = "center";
  context.textBaseline = "middle";
  const { from, to } = field.span;
  for (const gap of gapsOf(bars, field.span, 0)) {
    const words = textOf(gap.to - gap.from);
    const room = ((gap.to - gap.from) / (to - from)) * field.width;
    if (context.measureText(words).width < room - 12)
      context.fillText(words, toX(field, (gap.from + gap.to) / 2), height / 2);
  }
}

export function drawLine(
  context: Canvas,
  field: Field,
  height: number,
  limits: Limits,
  times: readonly number[],
  line: Line,
): void {
  context.strokeStyle = colour(line.colour ?? "ink");
  context.fillStyle = context.strokeStyle;
  context.lineWidth = line.width ?? 1.4;
  context.lineJoin = "round";
  context.setLineDash(line.isDashed ? [5, 4] : []);
  context.beginPath();
  let isDown = false;
  line.values.forEach((value, place) => {
    const time = times[place];
    if (value === null || time === undefined) {
      isDown = false;
      return;
    }
    const [x, y] = [toX(field, time), toY(limits, height, value)];
    if (isDown) context.lineTo(x, y);
    else context.moveTo(x, y);
    // A value alone, between gaps, would be a line of no length.
    if (!isDown && (line.values[place + 1] ?? null) === null) context.fillRect(x - 1, y - 1, 3, 3);
    isDown = true;
  });
  context.stroke();
  context.setLineDash([]);
}

/** Something that held for a while: `tone` is the name of a colour. */
export interface Segment {
  readonly from: number;
  readonly to: number;
  readonly label: string;
  readonly tone: string;
  readonly isStrong: boolean;
}

export function drawSegments(
  context: Canvas,
  field: Field,
  height: number,
  segments: readonly Segment[],
): void {
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const { from, to, label, tone, isStrong } of segments) {
    const left = Math.max(field.left, toX(field, from));
    const right = Math.min(field.left + field.width, toX(field, to));
    if (right <= left) continue;
    context.fillStyle = colour(tone);
    context.globalAlpha = isStrong ? 1 : 0.35;
    context.fillRect(left, 3, Math.max(1, right - left), height - 6);
    context.globalAlpha = 1;
    if (context.measureText(label).width < right - left - 10) {
      context.fillStyle = colour(isStrong ? "card" : "ink");
      context.fillText(label, left + 5, height / 2);
    }
  }
}
