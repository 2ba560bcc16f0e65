/** Why a GPU's clock is what it is: NVML's bit mask in words. Pure. */

interface Reason {
  readonly bit: number;
  readonly words: string;
  /** Where room is short, as on an axis. */
  readonly short: string;
  /** Whether it slows a job down. */
  readonly isStrong: boolean;
}

/** The gravest first. */
const REASONS: readonly Reason[] = [
  { bit: 0x40, words: "hardware slows the clock: heat", short: "heat (hw)", isStrong: true },
  { bit: 0x80, words: "hardware slows the clock: power brake", short: "brake", isStrong: true },
  { bit: 0x08, words: "hardware slows the clock", short: "hardware", isStrong: true },
  { bit: 0x20, words: "clock held down: heat", short: "heat", isStrong: true },
  { bit: 0x04, words: "at its power limit", short: "power limit", isStrong: false },
  { bit: 0x02, words: "clock set by hand", short: "by hand", isStrong: false },
  { bit: 0x10, words: "clock held by its group", short: "its group", isStrong: false },
  { bit: 0x01, words: "idle", short: "idle", isStrong: false },
];
const NONE = "nothing holds it";

/** The gravest reason of a mask; undefined: nothing holds the clock. */
export function gravestOf(mask: number | null): Reason | undefined {
  return REASONS.find(({ bit }) => mask !== null && mask & bit);
}

/** All reasons of a mask, the gravest first. */
export function reasonWords(mask: number): string {
  const found = REASONS.filter(({ bit }) => mask & bit).map(({ words }) => words);
  return found.join(", ") || NONE;
}

/** A name of a mark on an axis: short there, in full elsewhere. */
export interface Mark {
  readonly short: string;
  readonly words: string;
}

/** Masks as places on an axis of those that there are, the gravest on top: a mask's size means nothing. */
export function onMarks(masks: readonly (number | null)[]): {
  readonly values: (number | null)[];
  readonly marks: readonly Mark[];
} {
  const weight = (mask: number) => REASONS.length - REASONS.findIndex(({ bit }) => mask & bit);
  const gravity = (mask: number) => (gravestOf(mask) ? weight(mask) : 0);
  const known = masks.filter((mask): mask is number => mask !== null);
  const levels = [...new Set([0, ...known.map(gravity)])].sort((a, b) => a - b);
  return {
    values: masks.map((mask) => (mask === null ? null : levels.indexOf(gravity(mask)))),
    marks: levels.map((level) => {
      const reason = REASONS[REASONS.length - level];
      return reason ?? { short: "full clock", words: NONE };
    }),
  };
}
