/** Stretches of time in rows, so that none covers another. Pure. */

export interface Stretch {
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
  readonly label: string;
}

/** Those that touch the range, the earliest first, each in the first row that is free; at most so many rows. */
export function lanesOf<T extends Stretch>(
  stretches: readonly T[],
  from: number,
  to: number,
  most: number,
): { lanes: T[][]; leftOut: number } {
  const lanes: T[][] = [];
  let leftOut = 0;
  const inside = stretches.filter((one) => one.to > from && one.from < to);
  for (const one of inside.sort((a, b) => a.from - b.from || b.to - a.to)) {
    const lane = lanes.find((other) => (other.at(-1)?.to ?? 0) <= one.from);
    if (lane) lane.push(one);
    else if (lanes.length < most) lanes.push([one]);
    else leftOut++;
  }
  return { lanes, leftOut };
}
