/**
 * The hand on a timeline, the same on each of its plots: drag selects, Shift and drag moves, Ctrl and wheel
 * zooms, double click goes back; arrow keys, + and - do the same without a hand.
 */
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { brushed, DRAG_PIXELS_MIN, moved, type Span, toTime, zoomed } from "./timeline";
import { type Clock, fieldOf } from "./timeline-clock";

/** Wheels and keys come in volleys; the address, and what is asked for, follow when they rest. */
const REST_MS = 250;
const KEY_SHARE = 0.15;
const ZOOM_FACTOR = 1.5;

export interface Hand {
  readonly onSpan?: ((span: Span) => void) | undefined;
  readonly onBack?: (() => void) | undefined;
}

interface Drag {
  readonly pointer: number;
  readonly x: number;
  readonly span: Span;
  readonly isPan: boolean;
  isMoving: boolean;
}

export function useHand(clock: Clock, root: RefObject<HTMLElement | null>, hand: Hand): void {
  const latest = useRef(hand);
  latest.current = hand;
  useEffect(() => {
    const node = root.current;
    if (!node) return;
    const stop = new AbortController();
    const options = { signal: stop.signal };
    const rest = later((span) => latest.current.onSpan?.(span));
    const drags = dragging(clock, node, (span) => latest.current.onSpan?.(span));
    node.addEventListener("pointerdown", drags.down, options);
    node.addEventListener("pointermove", drags.move, options);
    node.addEventListener("pointerup", drags.up, options);
    node.addEventListener("pointercancel", drags.cancel, options);
    node.addEventListener(
      "pointerleave",
      () => {
        clock.cursor.value = undefined;
      },
      options,
    );
    node.addEventListener(
      "dblclick",
      (event) => {
        if (isOnPlot(event)) latest.current.onBack?.();
      },
      options,
    );
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey || !isOnPlot(event)) return;
      event.preventDefault();
      const around = toTime(fieldOf(clock), placeOf(node, event));
      clock.shown.value = zoomed(clock.shown.value, around, Math.exp(event.deltaY / 400));
      rest.wait(clock.shown.value);
    };
    // Not passive: else the browser zooms the page.
    node.addEventListener("wheel", wheel, { ...options, passive: false });
    node.addEventListener(
      "keydown",
      (event) => {
        const span = afterKey(clock.shown.value, event);
        if (!span) return;
        event.preventDefault();
        clock.shown.value = span;
        rest.wait(span);
      },
      options,
    );
    return () => {
      stop.abort();
      rest.stop();
    };
  }, [clock, root]);
}

/** Where the pointer is, from the timeline's left edge. */
function placeOf(node: HTMLElement, event: MouseEvent): number {
  return event.clientX - node.getBoundingClientRect().left;
}

function isOnPlot(event: Event): boolean {
  return event.target instanceof Element && event.target.closest("canvas") !== null;
}

/** The last of a volley, when it is over. */
function later(then: (span: Span) => void) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return {
    wait(span: Span) {
      clearTimeout(timer);
      timer = setTimeout(() => then(span), REST_MS);
    },
    stop: () => clearTimeout(timer),
  };
}

export function afterKey(span: Span, event: KeyboardEvent): Span | undefined {
  if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
  if (event.target instanceof HTMLElement && event.target.closest("input, select, textarea"))
    return undefined;
  const length = span.to - span.from;
  const middle = (span.from + span.to) / 2;
  switch (event.key) {
    case "ArrowLeft":
      return moved(span, -KEY_SHARE * length);
    case "ArrowRight":
      return moved(span, KEY_SHARE * length);
    case "+":
    case "=":
      return zoomed(span, middle, 1 / ZOOM_FACTOR);
    case "-":
      return zoomed(span, middle, ZOOM_FACTOR);
    default:
      return undefined;
  }
}

function dragging(clock: Clock, node: HTMLElement, choose: (span: Span) => void) {
  let drag: Drag | undefined;
  const end = () => {
    drag = undefined;
    clock.brush.value = undefined;
  };
  return {
    down(event: PointerEvent) {
      if (event.button !== 0 || !isOnPlot(event)) return;
      drag = {
        pointer: event.pointerId,
        x: placeOf(node, event),
        span: clock.shown.value,
        isPan: event.shiftKey,
        isMoving: false,
      };
    },
    move(event: PointerEvent) {
      const x = placeOf(node, event);
      const field = fieldOf(clock);
      const isInField = x >= field.left && x <= field.left + field.width;
      clock.cursor.value = isInField ? toTime(field, x) : undefined;
      if (!drag || drag.pointer !== event.pointerId) return;
      if (!drag.isMoving && Math.abs(x - drag.x) < DRAG_PIXELS_MIN) return;
      // Only now, so that a click still reaches what was clicked.
      if (!drag.isMoving) node.setPointerCapture(event.pointerId);
      drag.isMoving = true;
      if (drag.isPan) {
        const seconds = ((drag.x - x) / field.width) * (drag.span.to - drag.span.from);
        clock.shown.value = moved(drag.span, seconds);
      } else {
        clock.brush.value = brushed(field, drag.x, x);
      }
    },
    up() {
      const span = drag?.isPan ? clock.shown.value : clock.brush.value;
      const isChosen = drag?.isMoving;
      end();
      if (isChosen && span) choose(span);
    },
    cancel() {
      if (drag) clock.shown.value = drag.span;
      end();
    },
  };
}
