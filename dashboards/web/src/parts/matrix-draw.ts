/** Draws a matrix on a canvas: names at the left and above, who sends at the right, who receives below. */
import { colour, ramp } from "../theme";
import {
  type Colour,
  every,
  type Grid,
  type Paints,
  packed,
  paint,
  type Sight,
} from "./matrix-grid";

/** Where things are, in CSS pixels. */
export interface Geometry {
  readonly left: number;
  readonly top: number;
  readonly side: number;
  readonly width: number;
  readonly height: number;
  readonly areNamesUpright: boolean;
}

export const FONT = "11px system-ui, sans-serif";
const LINE = 13;
const BARS = 62;
const BARS_NARROW = 50;
const NARROW = 480;
const MARK = 10;
const NAMES_MAX = 128;

export function geometryOf(longest: number, width: number, height: number): Geometry {
  const bars = width < NARROW ? BARS_NARROW : BARS;
  const names = Math.ceil(Math.min(longest, NAMES_MAX, width * 0.28)) + MARK + 4;
  const areNamesUpright = longest > 22;
  const top = areNamesUpright ? names : LINE + MARK + 4;
  const side = Math.max(120, Math.floor(Math.min(width - names - bars, height - top - bars)));
  return {
    left: names,
    top,
    side,
    width: names + side + bars,
    height: top + side + bars,
    areNamesUpright,
  };
}

type Stops = readonly [Colour, Colour, Colour];
const LOCAL_LIGHT: Stops = [
  [236, 240, 245],
  [172, 196, 226],
  [66, 106, 168],
];
const LOCAL_DARK: Stops = [
  [30, 38, 49],
  [48, 74, 116],
  [132, 172, 232],
];

/** What stays within a host has another hue, so that it is not taken for traffic of the network. */
export function localRamp(share: number, dark: boolean): Colour {
  const stops = dark ? LOCAL_DARK : LOCAL_LIGHT;
  const place = Math.min(1, Math.max(0, share)) * 2;
  const [a, b] = place < 1 ? [stops[0], stops[1]] : [stops[1], stops[2]];
  const part = place < 1 ? place : place - 1;
  const mix = (one: number, other: number) => Math.round(one + (other - one) * part);
  return [mix(a[0], b[0]), mix(a[1], b[1]), mix(a[2], b[2])];
}

export function paintsOf(dark: boolean): Paints {
  return {
    ground: dark ? [22, 28, 36] : [247, 249, 251],
    network: (share) => ramp(share, dark),
    local: (share) => localRamp(share, dark),
  };
}

export interface Drawing {
  readonly grid: Grid;
  readonly colours: Uint32Array;
  readonly ground: Colour;
  readonly sight: Sight;
  readonly geometry: Geometry;
  /** Names that an incident accuses. */
  readonly marked: ReadonlySet<string>;
}

/** The canvas takes the size of the drawing, in the screen's own pixels. */
export function sized(canvas: HTMLCanvasElement, { width, height }: Geometry): number {
  const ratio = globalThis.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  return ratio;
}

/** Kept between frames: a pan then makes no garbage. */
export interface Buffer {
  image?: ImageData;
}

export function draw(canvas: HTMLCanvasElement, drawing: Drawing, buffer: Buffer): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const ratio = sized(canvas, drawing.geometry);
  const { left, top, side } = drawing.geometry;
  const pixels = Math.round(side * ratio);
  if (buffer.image?.width !== pixels) buffer.image = context.createImageData(pixels, pixels);
  paint(
    new Uint32Array(buffer.image.data.buffer),
    pixels,
    drawing.grid,
    drawing.colours,
    drawing.sight,
    packed(drawing.ground),
  );
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.putImageData(buffer.image, Math.round(left * ratio), Math.round(top * ratio));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  drawBorders(context, drawing);
  drawNames(context, drawing);
  drawBars(context, drawing);
}

/** Where a row or column begins, from the grid's edge. */
function placeOf(drawing: Drawing, index: number, isRow: boolean): number {
  const { sight, geometry } = drawing;
  return ((index - (isRow ? sight.top : sight.left)) * geometry.side) / sight.span;
}

function drawBorders(context: CanvasRenderingContext2D, drawing: Drawing): void {
  const { left, top, side } = drawing.geometry;
  const cell = side / drawing.sight.span;
  context.strokeStyle = colour("rule");
  context.lineWidth = 1;
  context.strokeRect(left - 0.5, top - 0.5, side + 1, side + 1);
  const { borders } = drawing.grid;
  // Hosts that are a few pixels high would be hidden behind their own borders.
  if (!borders.length || (cell * drawing.grid.names.length) / (borders.length + 1) < 12) return;
  context.beginPath();
  for (const border of borders) {
    const y = Math.round(placeOf(drawing, border, true));
    if (y > 0 && y < side) {
      context.moveTo(left, top + y - 0.5);
      context.lineTo(left + side, top + y - 0.5);
    }
    const x = Math.round(placeOf(drawing, border, false));
    if (x > 0 && x < side) {
      context.moveTo(left + x - 0.5, top);
      context.lineTo(left + x - 0.5, top + side);
    }
  }
  context.stroke();
}

/** Which names are written: those that are marked, and of the others as many as have room. */
function written(drawing: Drawing, isRow: boolean, needed: number): number[] {
  const { grid, sight, geometry, marked } = drawing;
  const start = Math.floor(isRow ? sight.top : sight.left);
  const end = Math.min(grid.names.length, Math.ceil((isRow ? sight.top : sight.left) + sight.span));
  const cell = geometry.side / sight.span;
  const step = every(cell, needed);
  const taken: number[] = [];
  const isFree = (index: number) =>
    taken.every((other) => Math.abs(other - index) * cell >= needed) &&
    placeOf(drawing, index + 0.5, isRow) > 0 &&
    placeOf(drawing, index + 0.5, isRow) < geometry.side;
  for (let index = start; index < end; index++)
    if (marked.has(grid.names[index] ?? "") && isFree(index)) taken.push(index);
  for (let index = Math.ceil(start / step) * step; index < end; index += step)
    if (isFree(index)) taken.push(index);
  return taken;
}

function drawNames(context: CanvasRenderingContext2D, drawing: Drawing): void {
  const { left, top, areNamesUpright } = drawing.geometry;
  const longest = left - MARK - 4;
  context.textBaseline = "middle";
  for (const index of written(drawing, true, LINE)) {
    const y = top + placeOf(drawing, index + 0.5, true);
    drawName(context, drawing, index, left - MARK, y, longest, "right");
  }
  const across = areNamesUpright ? LINE : widestOf(context, drawing) + 8;
  for (const index of written(drawing, false, across)) {
    const x = left + placeOf(drawing, index + 0.5, false);
    context.save();
    context.translate(x, top - MARK);
    if (areNamesUpright) context.rotate(-Math.PI / 2);
    else context.translate(0, -LINE / 2);
    drawName(context, drawing, index, 0, 0, longest, areNamesUpright ? "left" : "center");
    context.restore();
  }
  drawMarks(context, drawing);
}

function widestOf(context: CanvasRenderingContext2D, { grid }: Drawing): number {
  return context.measureText(grid.names.at(-1) ?? "").width;
}

function drawName(
  context: CanvasRenderingContext2D,
  { grid, marked }: Drawing,
  index: number,
  x: number,
  y: number,
  longest: number,
  align: CanvasTextAlign,
): void {
  const name = grid.names[index] ?? "";
  context.fillStyle = colour(marked.has(name) ? "bad" : "soft");
  context.textAlign = align;
  context.fillText(shortened(context, name, longest), x, y);
}

/** The end of a name is more distinctive than its beginning. */
function shortened(context: CanvasRenderingContext2D, name: string, most: number): string {
  let text = name.length > 60 ? `…${name.slice(-60)}` : name;
  while (text.length > 2 && context.measureText(text).width > most) text = `…${text.slice(2)}`;
  return text;
}

/** A wedge at the edge for everybody who is accused, also where there is no room for the name. */
function drawMarks(context: CanvasRenderingContext2D, drawing: Drawing): void {
  const { left, top, side } = drawing.geometry;
  context.fillStyle = colour("bad");
  for (const name of drawing.marked) {
    const index = drawing.grid.index.get(name);
    if (index === undefined) continue;
    const y = placeOf(drawing, index + 0.5, true);
    if (y > 0 && y < side) wedge(context, left - 1, top + y, -7, 0);
    const x = placeOf(drawing, index + 0.5, false);
    if (x > 0 && x < side) wedge(context, left + x, top - 1, 0, -7);
  }
}

function wedge(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  away: number,
  up: number,
): void {
  context.beginPath();
  context.moveTo(x, y);
  if (away) {
    context.lineTo(x + away, y - 4);
    context.lineTo(x + away, y + 4);
  } else {
    context.lineTo(x - 4, y + up);
    context.lineTo(x + 4, y + up);
  }
  context.fill();
}

/** Sums at the right and below: even bars are even traffic. The thin line is the mean. */
function drawBars(context: CanvasRenderingContext2D, drawing: Drawing): void {
  const { left, top, side, width } = drawing.geometry;
  const room = width - left - side - 12;
  const { sent, received } = drawing.grid;
  let most = 0;
  for (const value of sent) most = Math.max(most, value);
  for (const value of received) most = Math.max(most, value);
  if (!most) return;
  const cell = side / drawing.sight.span;
  const thick = Math.max(1, cell >= 7 ? cell - 1 : cell);
  for (const isRow of [true, false]) {
    const values = isRow ? sent : received;
    let sum = 0;
    context.fillStyle = colour("compute");
    for (let index = 0; index < values.length; index++) {
      const value = values[index] ?? 0;
      sum += value;
      const place = placeOf(drawing, index, isRow);
      if (place + cell < 0 || place > side) continue;
      const [from, to] = [Math.max(0, place), Math.min(side, place + thick)];
      const length = (value / most) * room;
      if (isRow) context.fillRect(left + side + 4, top + from, length, to - from);
      else context.fillRect(left + from, top + side + 4, to - from, length);
    }
    const mean = 4 + (sum / values.length / most) * room;
    context.fillStyle = colour("ink");
    if (isRow) context.fillRect(left + side + mean, top, 1, side);
    else context.fillRect(left, top + side + mean, side, 1);
  }
  context.fillStyle = colour("soft");
  context.textAlign = "left";
  context.textBaseline = "bottom";
  context.fillText("sends", left + side + 4, top - 2);
  context.textBaseline = "top";
  context.fillText("receives", left + side + 4, top + side + 4);
}

/** The row and column of a place on the canvas; undefined outside the matrix. */
export function cellAt(
  { sight, geometry, grid }: Pick<Drawing, "sight" | "geometry" | "grid">,
  x: number,
  y: number,
): { row: number; column: number } | undefined {
  const across = (x - geometry.left) / geometry.side;
  const down = (y - geometry.top) / geometry.side;
  if (across < 0 || across >= 1 || down < 0 || down >= 1) return undefined;
  const column = Math.floor(sight.left + across * sight.span);
  const row = Math.floor(sight.top + down * sight.span);
  const { length } = grid.names;
  return row < length && column < length ? { row, column } : undefined;
}

export interface Marker {
  readonly row: number;
  readonly column: number;
}

/** Above the drawing: the cross of the pointer, and the cell that is chosen. */
export function drawOver(
  canvas: HTMLCanvasElement,
  drawing: Drawing,
  hovered: Marker | undefined,
  chosen: Marker | undefined,
): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const ratio = sized(canvas, drawing.geometry);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, drawing.geometry.width, drawing.geometry.height);
  const { left, top, side } = drawing.geometry;
  const cell = Math.max(2, side / drawing.sight.span);
  context.save();
  context.beginPath();
  context.rect(left - 2, top - 2, side + 4, side + 4);
  context.clip();
  if (hovered) {
    context.fillStyle = `${colour("ink")}1f`;
    context.fillRect(left, top + placeOf(drawing, hovered.row, true), side, cell);
    context.fillRect(left + placeOf(drawing, hovered.column, false), top, cell, side);
  }
  if (chosen) {
    const x = left + placeOf(drawing, chosen.column, false);
    const y = top + placeOf(drawing, chosen.row, true);
    context.strokeStyle = colour("card");
    context.lineWidth = 4;
    context.strokeRect(x - 1, y - 1, cell + 1, cell + 1);
    context.strokeStyle = colour("ink");
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, cell + 1, cell + 1);
    if (cell < 6) {
      // Too small to be found by itself.
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(left, y + cell / 2);
      context.lineTo(x - 3, y + cell / 2);
      context.moveTo(x + cell / 2, top);
      context.lineTo(x + cell / 2, y - 3);
      context.stroke();
    }
  }
  context.restore();
}
