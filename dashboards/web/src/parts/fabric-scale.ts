/** What links are coloured by: from a number to a share of the ramp, and the legend's numbers. Pure. */
import { digits, finePercent, percent, si } from "../format";

export type Quantity = "utilisation" | "errors" | "pause";

export interface QuantityWords {
  readonly label: string;
  /** What the number is, for the legend. */
  readonly hint: string;
  readonly show: (value: number) => string;
  /** 0 to 1 of the ramp. */
  readonly share: (value: number) => number;
  readonly ticks: readonly number[];
}

/** Errors grow by powers of ten: one in ten seconds is a hint, a million a second is a broken link. */
const ERRORS_LEAST = 0.1;
const ERRORS_MOST = 1_000_000;
/** The first error must be seen, so that it does not look like none. */
const FIRST_SHARE = 0.2;

export const QUANTITIES: Readonly<Record<Quantity, QuantityWords>> = {
  utilisation: {
    label: "Utilisation",
    hint: "Share of the link's speed, busier direction",
    show: percent,
    // Half full is how a busy fabric looks: only beyond it looks hot.
    share: (value) => Math.max(0, value) ** 1.5,
    ticks: [0, 0.3, 0.5, 0.75, 1],
  },
  errors: {
    label: "Errors",
    hint: "Damaged or dropped a second, both ends",
    show: (value) => (value >= 1000 ? si(value, "/s") : `${digits(value)} /s`),
    share: (value) =>
      value <= 0
        ? 0
        : FIRST_SHARE +
          ((1 - FIRST_SHARE) * Math.log10(Math.max(1, value / ERRORS_LEAST))) /
            Math.log10(ERRORS_MOST / ERRORS_LEAST),
    ticks: [0, 0.1, 10, 1000, 1_000_000],
  },
  pause: {
    label: "Paused",
    hint: "Share of time in which it may not send",
    show: finePercent,
    // A link that is stopped for a hundredth of the time is worth a look already.
    share: (value) => Math.sqrt(Math.max(0, value)),
    ticks: [0, 0.05, 0.2, 0.5, 1],
  },
};

export function isQuantity(word: string | undefined): word is Quantity {
  return word !== undefined && word in QUANTITIES;
}

/** Steps of the ramp: links of one step are drawn together. */
export const BUCKETS = 24;
/** Instead of a step: nothing is known, or the link is down. */
export const NO_DATA = 250;
export const DOWN = 251;

/** The step for a value; 0 only for nothing at all. */
export function bucketOf(quantity: Quantity, value: number): number {
  if (Number.isNaN(value)) return NO_DATA;
  const share = Math.min(1, Math.max(0, QUANTITIES[quantity].share(value)));
  return share === 0 ? 0 : Math.max(1, Math.round(share * (BUCKETS - 1)));
}

/** The step that stands for several links: a link that is down, else the worst; unknown only if all are. */
export function worstBucket(buckets: Uint8Array, links: readonly number[]): number {
  let worst = -1;
  for (const link of links) {
    const bucket = buckets[link] ?? NO_DATA;
    if (bucket === DOWN) return DOWN;
    if (bucket !== NO_DATA) worst = Math.max(worst, bucket);
  }
  return worst < 0 ? NO_DATA : worst;
}
