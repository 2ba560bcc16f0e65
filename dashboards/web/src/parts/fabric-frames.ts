/** What is known of links at one moment of the range, and of the range in short. Pure. */
import type { FabricState } from "../api/fabric";
import { count, percent } from "../format";
import { type FabricGraph, linkName } from "./fabric-graph";
import { bucketOf, DOWN, QUANTITIES, type Quantity } from "./fabric-scale";

/** What is known of one link; NaN: nothing. */
export interface LinkNow {
  readonly utilisation: number;
  /** From end `a` of the topology to `b`, and back. */
  readonly forward: number;
  readonly backward: number;
  readonly errors: number;
  readonly pause: number;
  /** How much it may have been at most, where that is not known; NaN: it is. */
  readonly pauseAtMost: number;
  readonly isUp: boolean | undefined;
}

/** The column of each link in the state, -1: the state does not know it. */
export function columnsOf(graph: FabricGraph, state: FabricState): Int32Array {
  const known = new Map(state.links.map((id, column) => [id, column]));
  return Int32Array.from(graph.links, (link) => known.get(link.id) ?? -1);
}

/** The state beside a fabric, at one of its frames. */
export class Frame {
  constructor(
    readonly graph: FabricGraph,
    readonly state: FabricState,
    readonly columns: Int32Array,
    readonly index: number,
  ) {}

  private at(matrix: Float32Array, link: number): number {
    const column = this.columns[link] ?? -1;
    if (column < 0) return Number.NaN;
    return matrix[this.index * this.state.links.length + column] ?? Number.NaN;
  }

  /** Unix seconds at which it ends. */
  get time(): number {
    return this.state.times[this.index] ?? 0;
  }

  /** Whether it is still being asked for. */
  get isAwaited(): boolean {
    return this.state.awaited?.has(this.index) ?? false;
  }

  /** Whether no link has a reading. */
  get isEmpty(): boolean {
    return this.graph.links.every(({ index }) => {
      const { utilisation, errors, isUp } = this.link(index);
      return Number.isNaN(utilisation) && Number.isNaN(errors) && isUp === undefined;
    });
  }

  value(quantity: Quantity, link: number): number {
    return this.at(this.state[quantity], link);
  }

  isUp(link: number): boolean | undefined {
    const up = this.at(this.state.up, link);
    return Number.isNaN(up) ? undefined : up >= 0.5;
  }

  link(index: number): LinkNow {
    return {
      utilisation: this.at(this.state.utilisation, index),
      forward: this.at(this.state.forward, index),
      backward: this.at(this.state.backward, index),
      errors: this.at(this.state.errors, index),
      pause: this.at(this.state.pause, index),
      pauseAtMost: this.at(this.state.pauseAtMost, index),
      isUp: this.isUp(index),
    };
  }

  /** The kind that most of a link's errors are of: `symbol errors`. */
  errorsOf(link: number): string {
    const column = this.columns[link] ?? -1;
    if (column < 0) return "";
    const kind = this.state.worstErrors[this.index * this.state.links.length + column] ?? -1;
    return this.state.errorKinds[kind]?.replaceAll("_", " ") ?? "";
  }

  /** One link over all frames. */
  series(matrix: Float32Array, link: number): Values {
    const column = this.columns[link] ?? -1;
    return this.state.times.map((_, frame) => {
      const value = matrix[frame * this.state.links.length + column];
      return column < 0 || value === undefined || Number.isNaN(value) ? null : value;
    });
  }

  /** The step of the ramp of every link. */
  buckets(quantity: Quantity): Uint8Array {
    return Uint8Array.from(this.graph.links, (_, link) =>
      this.isUp(link) === false ? DOWN : bucketOf(quantity, this.value(quantity, link)),
    );
  }

  /** Links that have something of a quantity, the worst first: those that are down, then the largest. */
  worst(quantity: Quantity, among?: ReadonlySet<number>): number[] {
    const weight = (link: number) =>
      this.isUp(link) === false ? Number.POSITIVE_INFINITY : this.value(quantity, link);
    return this.graph.links
      .filter((link) => !among || among.has(link.index))
      .map((link) => ({ link: link.index, weight: weight(link.index) }))
      .filter(({ weight }) => weight > 0)
      .sort((one, other) => other.weight - one.weight || one.link - other.link)
      .map(({ link }) => link);
  }
}

/** The frame nearest to a moment (unix seconds); without one, the last. */
export function frameAt(times: readonly number[], at: number | undefined): number {
  if (at === undefined || !times.length) return Math.max(0, times.length - 1);
  let best = 0;
  times.forEach((time, index) => {
    if (Math.abs(time - at) < Math.abs((times[best] ?? 0) - at)) best = index;
  });
  return best;
}

/** For each frame the largest value, and how many links are down: what the slider shows. */
export function peaks(state: FabricState, quantity: Quantity): { most: number; down: number }[] {
  const width = state.links.length;
  return state.times.map((_, frame) => {
    let [most, down] = [Number.NaN, 0];
    for (let column = frame * width; column < (frame + 1) * width; column++) {
      const value = state[quantity][column] ?? Number.NaN;
      if (!(value <= most) && !Number.isNaN(value)) most = value;
      if ((state.up[column] ?? Number.NaN) < 0.5) down++;
    }
    return { most, down };
  });
}

/** More is worth a word: less is rounding, or a counter that ticks once. */
const PAUSE_WORTH = 0.01;

/** One sentence: what an on-call reader must know of this moment. */
export function summaryOf(frame: Frame): string {
  const { graph } = frame;
  let [down, errors, paused, known] = [0, 0, 0, 0];
  let busiest = { link: -1, value: -1 };
  for (const { index } of graph.links) {
    const now = frame.link(index);
    if (now.isUp === false) down++;
    if (now.errors > 0) errors++;
    if (now.pause >= PAUSE_WORTH) paused++;
    if (!Number.isNaN(now.utilisation) || now.isUp !== undefined) known++;
    if (now.utilisation > busiest.value) busiest = { link: index, value: now.utilisation };
  }
  const total = count(graph.links.length, "link");
  if (!known) return `${total}; none has a reading at this moment.`;
  const parts = [
    down ? `${down} down` : "",
    errors ? `${errors} with errors` : "",
    paused ? `${paused} paused` : "",
  ].filter(Boolean);
  const link = graph.links[busiest.link];
  const busy = link ? ` The busiest carries ${percent(busiest.value)}: ${linkName(link)}.` : "";
  const silent = graph.links.length - known;
  const unknown = silent ? ` ${count(silent, "link")} without readings.` : "";
  return `${total}, ${parts.length ? parts.join(", ") : "none down, none with errors"}.${busy}${unknown}`;
}

/** `9 %`, `at most 40 %`, `9 % to 40 %`: how long it may not send. Empty: nothing is known. */
export function pauseWord({ pause, pauseAtMost }: LinkNow): string {
  const { show } = QUANTITIES.pause;
  const least = Number.isNaN(pause) ? "" : show(pause);
  if (Number.isNaN(pauseAtMost) || least === show(pauseAtMost)) return least;
  return pause > 0 ? `${least} to ${show(pauseAtMost)}` : `at most ${show(pauseAtMost)}`;
}

/** `97 %`, `down`, `no data`: a link's value in a word. */
export function valueWord(frame: Frame, quantity: Quantity, link: number): string {
  if (frame.isUp(link) === false) return "down";
  const value = frame.value(quantity, link);
  if (frame.isAwaited) return "being asked";
  if (quantity === "pause") return pauseWord(frame.link(link)) || "no data";
  return Number.isNaN(value) ? "no data" : QUANTITIES[quantity].show(value);
}

/** One link over all frames; null: nothing is known. */
export type Values = readonly (number | null)[];

export const isSome = (values: Values) => values.some((value) => value !== null && value > 0);

/** What no plot shows of a range: that there was nothing, or that nobody counts it. */
export function quietWords(of: Record<"errors" | "pause" | "atMost", Values>): string {
  const most = Math.max(0, ...of.atMost.map((value) => value ?? 0));
  if (most > 0) {
    const share = QUANTITIES.pause.show(most);
    return `Pause frames were counted, and not how long they stopped it: at most ${share} of the time.`;
  }
  if (isSome(of.errors) || isSome(of.pause)) return "";
  const isKnown = (values: Values) => values.some((value) => value !== null);
  if (isKnown(of.errors) && isKnown(of.pause)) return "No errors and no pause in this range.";
  if (isKnown(of.errors)) return "No errors in this range; no readings of pause.";
  if (isKnown(of.pause)) return "No pause in this range; no readings of errors.";
  return "No readings of errors or pause in this range.";
}
