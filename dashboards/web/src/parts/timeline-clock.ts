/** What all plots of one timeline share: the time they show, the cursor, and where it is drawn. */
import { type Signal, signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Field, Span } from "./timeline";

/** A stretch of time that something happened in, such as an incident. */
export interface Band extends Span {
  readonly id: string;
  readonly label: string;
  readonly href?: string;
  readonly isOpen?: boolean;
}

export interface Clock {
  /** What is shown at this very moment; moves with the hand while the reader pans. */
  readonly shown: Signal<Span>;
  /** Unix seconds under the pointer. */
  readonly cursor: Signal<number | undefined>;
  /** What the reader is dragging over. */
  readonly brush: Signal<Span | undefined>;
  /** Of all plots, in CSS pixels, with what stands beside them. */
  readonly width: Signal<number>;
  readonly bands: Signal<readonly Band[]>;
}

export function newClock(span: Span, bands: readonly Band[]): Clock {
  return {
    shown: signal(span),
    cursor: signal(undefined),
    brush: signal(undefined),
    width: signal(0),
    bands: signal(bands),
  };
}

/** Left of every plot: its numbers, or the names of its rows. */
const GUTTER = 112;
const GUTTER_NARROW = 62;
/** A phone. */
const NARROW = 560;
const RIGHT = 10;

export function fieldOf(clock: Clock): Field {
  const all = clock.width.value;
  const left = all < NARROW ? GUTTER_NARROW : GUTTER;
  return { span: clock.shown.value, left, width: Math.max(50, all - left - RIGHT) };
}

export const ClockContext = createContext<Clock>(newClock({ from: 0, to: 1 }, []));

export const useClock = (): Clock => useContext(ClockContext);
