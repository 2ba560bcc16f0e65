/**
 * Which moments of the range the fabric is asked for, those that are shown first; and what came of them
 * as one state. Half an hour of a large fabric takes the service seconds, its newest moments do not. Pure.
 */
import type { FabricState } from "../api/fabric";
import type { Range } from "../time";

/** Moments of the slider at most, and how short one may be: switches are polled every 10 s to 30 s. */
const FRAMES_MOST = 60;
const FRAME_SECONDS_LEAST = 15;
/** What is shown and what is next to it: the last moment may have begun only now, and hold no reading. */
const FRAMES_FIRST = 4;
/** Of a moment's length: ends that differ by less are the same. */
const SAME = 0.25;

/** Of equal length; unix seconds. */
export interface Moments {
  readonly from: number;
  readonly to: number;
  readonly frames: number;
}

/**
 * All of the range. While it follows the clock they end at multiples of their length: at the next question
 * all but the newest are the same, and the service need not make them again.
 */
export function wholeOf({ from, to, last }: Range): Moments {
  const length = to - from;
  const frames = Math.max(1, Math.min(FRAMES_MOST, Math.floor(length / FRAME_SECONDS_LEAST)));
  const step = length / frames;
  const end = last === undefined ? to : Math.floor(to / step) * step;
  return { from: end - length, to: end, frames };
}

export function stepOf({ from, to, frames }: Moments): number {
  return (to - from) / frames;
}

/** Those around the one that is shown; `at`: unix seconds, undefined: the end of the range. */
export function firstOf(range: Range, at: number | undefined): Moments {
  const whole = wholeOf(range);
  const step = stepOf(whole);
  const frames = Math.min(FRAMES_FIRST, whole.frames);
  if (at === undefined && range.last !== undefined)
    return { from: range.to - frames * step, to: range.to, frames };
  const shown = Math.round(((at ?? whole.to) - whole.from) / step) - 1;
  const begin = Math.max(0, Math.min(whole.frames - frames, shown - 1));
  const from = whole.from + begin * step;
  return { from, to: from + frames * step, frames };
}

interface Row {
  readonly time: number;
  /** Undefined: it is still being asked for. */
  readonly state?: FabricState;
  readonly frame?: number;
}

/**
 * What was asked for first, among all that is asked for; `whole` undefined: not answered yet. Of what both
 * have, all of the range counts, and what is newer than that stands behind it.
 */
export function joined(
  first: FabricState,
  whole: FabricState | undefined,
  asked: Moments,
): FabricState {
  const close = stepOf(asked) * SAME;
  const rowsOf = (state: FabricState): Row[] =>
    state.times.map((time, frame) => ({ time, state, frame }));
  if (whole) {
    const newer = rowsOf(first).filter(({ time }) => time > (whole.times.at(-1) ?? 0) + close);
    return newer.length ? ofRows([...rowsOf(whole), ...newer], whole) : whole;
  }
  const [begin, end] = [first.times[0] ?? asked.to, first.times.at(-1) ?? asked.to];
  const awaited = Array.from({ length: asked.frames }, (_, frame) => ({
    time: asked.from + (frame + 1) * stepOf(asked),
  }));
  const rows = [
    ...awaited.filter(({ time }) => time < begin - close),
    ...rowsOf(first),
    ...awaited.filter(({ time }) => time > end + close),
  ];
  return rows.length > first.times.length ? ofRows(rows, first) : first;
}

/** These moments as one state, with the links of `like`: of others nothing is known there. */
function ofRows(rows: readonly Row[], like: FabricState): FabricState {
  const width = like.links.length;
  const floats = () => new Float32Array(rows.length * width).fill(Number.NaN);
  const state = {
    ...like,
    times: rows.map(({ time }) => time),
    utilisation: floats(),
    forward: floats(),
    backward: floats(),
    errors: floats(),
    pause: floats(),
    pauseAtMost: floats(),
    up: floats(),
    worstErrors: new Uint8Array(rows.length * width).fill(255),
    awaited: new Set(rows.flatMap((row, frame) => (row.state ? [] : [frame]))),
  };
  const matrices = [
    ...([
      "utilisation",
      "forward",
      "backward",
      "errors",
      "pause",
      "pauseAtMost",
      "up",
      "worstErrors",
    ] as const),
  ];
  const places = new Map<FabricState, Int32Array>();
  rows.forEach((row, place) => {
    if (!row.state || row.frame === undefined) return;
    const columns = places.get(row.state) ?? columnsIn(row.state, like);
    places.set(row.state, columns);
    const begin = row.frame * row.state.links.length;
    for (const name of matrices) {
      const [source, target] = [row.state[name], state[name]];
      columns.forEach((column, link) => {
        if (column >= 0)
          target[place * width + link] =
            source[begin + column] ?? target[place * width + link] ?? 0;
      });
    }
  });
  return state;
}

/** Where the links of `like` are in a state; -1: it does not know them. */
function columnsIn(state: FabricState, like: FabricState): Int32Array {
  const known = new Map(state.links.map((id, column) => [id, column]));
  return Int32Array.from(like.links, (id) => known.get(id) ?? -1);
}
