/** Which part of a drawing is seen, and how large. Pure. Screen = drawing × scale + (x, y), CSS pixels. */
import type { Box } from "./fabric-layout";

export interface View {
  readonly scale: number;
  readonly x: number;
  readonly y: number;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** Room around the whole drawing, for labels below and the buttons above. */
export const MARGIN = { side: 14, top: 58, bottom: 32 } as const;
/** Smaller things can hardly be pointed at. */
const POINTABLE = 12;
/** Nearer than this nothing new is seen. */
const SCALE_MOST = 8;

/** All of it, in the middle. */
export function fitted(drawing: Size, canvas: Size): View {
  const scale = Math.min(
    SCALE_MOST,
    (canvas.width - 2 * MARGIN.side) / Math.max(1, drawing.width),
    (canvas.height - MARGIN.top - MARGIN.bottom) / Math.max(1, drawing.height),
  );
  return {
    scale,
    x: (canvas.width - drawing.width * scale) / 2,
    y: MARGIN.top + (canvas.height - MARGIN.top - MARGIN.bottom - drawing.height * scale) / 2,
  };
}

/** Larger (`factor` above 1) or smaller around a point of the screen, within bounds. */
export function zoomed(view: View, factor: number, px: number, py: number, fit: View): View {
  const scale = Math.min(Math.max(view.scale * factor, fit.scale), Math.max(SCALE_MOST, fit.scale));
  const by = scale / view.scale;
  return { scale, x: px - (px - view.x) * by, y: py - (py - view.y) * by };
}

/** The drawing never leaves the screen: a part of it stays, and a smaller one stays in the middle. */
export function kept(view: View, drawing: Size, canvas: Size): View {
  const along = (offset: number, length: number, room: number) => {
    const size = length * view.scale;
    const slack = size <= room ? 0 : Math.min(room, size) * 0.4;
    const [low, high] =
      size <= room ? [(room - size) / 2, (room - size) / 2] : [room - size - slack, slack];
    return Math.min(high, Math.max(low, offset));
  };
  return {
    scale: view.scale,
    x: along(view.x, drawing.width, canvas.width),
    y: along(view.y, drawing.height, canvas.height),
  };
}

/** Brings a place into the middle, near enough to stand apart from its neighbours, and not nearer than it is. */
export function lookingAt(view: View, place: Box, canvas: Size): View {
  const near = Math.min(
    SCALE_MOST,
    (0.5 * Math.min(canvas.width, canvas.height)) / Math.max(place.w, place.h, 1),
  );
  const scale = Math.max(view.scale, Math.min(near, Math.max(view.scale, 2)));
  return {
    scale,
    x: canvas.width / 2 - (place.x + place.w / 2) * scale,
    y: canvas.height / 2 - (place.y + place.h / 2) * scale,
  };
}

/** Whether a place is seen well: all of it, and large enough to point at. */
export function isSeen(view: View, place: Box, canvas: Size): boolean {
  const [left, top] = [place.x * view.scale + view.x, place.y * view.scale + view.y];
  return (
    left >= 0 &&
    top >= 0 &&
    left + place.w * view.scale <= canvas.width &&
    top + place.h * view.scale <= canvas.height &&
    Math.max(place.w, place.h) * view.scale >= POINTABLE
  );
}

export function onScreen(box: Box, view: View): Box {
  return {
    x: box.x * view.scale + view.x,
    y: box.y * view.scale + view.y,
    w: box.w * view.scale,
    h: box.h * view.scale,
  };
}

/** The whole name, or its last parts: the end distinguishes neighbours. */
export function shortened(text: string, room: number, widthOf: (text: string) => number): string {
  if (room < 6) return "";
  if (widthOf(text) <= room) return text;
  const parts = text.split(/(?<=[-_. ])/);
  const last = /\d+$/.exec(text)?.[0] ?? "";
  const shorter = [...parts.keys()].slice(1).map((from) => parts.slice(from).join(""));
  return [...shorter, last].find((rest) => widthOf(rest) <= room) ?? "";
}

/** A drawing that was made for one view, shown in another: how it is moved and enlarged for that. */
export interface Shift {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
}

/** `pad`: how far the sheet reaches beyond the canvas on each side. */
export function shiftOf(drawn: View, wanted: View, pad: Size): Shift {
  const scale = wanted.scale / drawn.scale;
  return {
    scale,
    x: wanted.x + pad.width - (drawn.x + pad.width) * scale,
    y: wanted.y + pad.height - (drawn.y + pad.height) * scale,
  };
}

/** Whether the shifted sheet still covers the canvas. */
export function isCovered(shift: Shift, pad: Size, canvas: Size): boolean {
  const [left, top] = [shift.x - pad.width, shift.y - pad.height];
  return (
    left <= 0 &&
    top <= 0 &&
    left + (canvas.width + 2 * pad.width) * shift.scale >= canvas.width &&
    top + (canvas.height + 2 * pad.height) * shift.scale >= canvas.height
  );
}
