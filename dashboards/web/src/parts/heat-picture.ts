/**
 * The cells of a heat map on a canvas. They are painted into a bitmap that reaches a span further to either
 * side, and while the reader pans only that bitmap moves: a thousand ranks pan as smoothly as ten.
 */
import type { HeatStep } from "../api/heat";
import { columnsOf, fitted, paint, type Shades } from "./heat";
import type { Field, Span } from "./timeline";
import type { Canvas } from "./timeline-draw";

/** Of the time in sight, before and after it. */
const REACH = 1;

interface Bitmap {
  readonly canvas: HTMLCanvasElement;
  /** The time that it shows. */
  readonly span: Span;
  /** Pixels of it for a second: those of the screen, so that a column is as wide in both. */
  readonly scale: number;
  /** What it was made of; another one is made when any of it is another. */
  readonly of: readonly unknown[];
}

/** Draws cells; keeps one bitmap, whatever is drawn. */
export class Picture {
  private bitmap: Bitmap | undefined;

  draw(
    context: Canvas,
    field: Field,
    height: number,
    steps: readonly HeatStep[],
    shades: Shades,
    palette: Uint32Array,
  ): void {
    const scale = field.width / (field.span.to - field.span.from);
    const of = [steps, shades, palette, height];
    if (!this.bitmap || !isGood(this.bitmap, field.span, scale, of))
      this.bitmap = made(field, height, scale, of, steps, shades, palette);
    const { canvas, span } = this.bitmap;
    const begin = Math.round((field.span.from - span.from) * scale);
    context.imageSmoothingEnabled = false;
    const { left, width } = field;
    context.drawImage(canvas, begin, 0, width, canvas.height, left, 0, width, height);
  }
}

/** A bitmap does as long as the same cells are looked at equally closely, within its reach. */
function isGood(bitmap: Bitmap, span: Span, scale: number, of: readonly unknown[]): boolean {
  return (
    of.every((one, place) => one === bitmap.of[place]) &&
    Math.abs(scale / bitmap.scale - 1) < 1e-9 &&
    span.from >= bitmap.span.from &&
    span.to <= bitmap.span.to
  );
}

function made(
  field: Field,
  height: number,
  scale: number,
  of: readonly unknown[],
  steps: readonly HeatStep[],
  shades: Shades,
  palette: Uint32Array,
): Bitmap {
  const length = field.span.to - field.span.from;
  const span = { from: field.span.from - REACH * length, to: field.span.to + REACH * length };
  // One line of pixels for each row is enough: the canvas draws it as high as rows are.
  const small = fitted(shades, height);
  const wide = Math.round(field.width * (1 + 2 * REACH));
  const image = new ImageData(wide, small.rows);
  const columns = columnsOf(steps, span, wide);
  paint(new Uint32Array(image.data.buffer), wide, small.rows, small, columns, palette);
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = small.rows;
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return { canvas, span, scale, of };
}
