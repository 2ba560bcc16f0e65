/** A canvas that is drawn anew when its timeline moves, its data changes or colours turn. */
import { effect } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { isDark } from "../theme";
import { zone } from "../zone";
import type { Field } from "./timeline";
import { type Clock, fieldOf } from "./timeline-clock";
import type { Canvas } from "./timeline-draw";

export type Draw = (context: Canvas, field: Field) => void;

export function useCanvas(
  clock: Clock,
  height: number,
  draw: Draw,
): RefObject<HTMLCanvasElement | null> {
  const canvas = useRef<HTMLCanvasElement>(null);
  const latest = useRef(draw);
  latest.current = draw;
  const frame = useRef(0);
  const tall = useRef(height);
  tall.current = height;
  const schedule = useRef(() => {
    if (frame.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      if (canvas.current) drawOn(canvas.current, clock, tall.current, latest.current);
    });
  });
  useEffect(() => {
    const stop = effect(() => {
      // Read here, so that the canvas follows them.
      void [clock.shown.value, clock.width.value, clock.bands.value, isDark.value, zone.value];
      schedule.current();
    });
    return () => {
      stop();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, [clock]);
  useEffect(() => schedule.current());
  return canvas;
}

function drawOn(canvas: HTMLCanvasElement, clock: Clock, height: number, draw: Draw): void {
  const context = canvas.getContext("2d");
  const width = clock.width.peek();
  if (!context || width < 1) return;
  const ratio = devicePixelRatio || 1;
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== tall) {
    canvas.width = wide;
    canvas.height = tall;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  draw(context, fieldOf(clock));
}
