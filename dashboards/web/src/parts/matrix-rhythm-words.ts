/** A rhythm in words. Pure. */
import type { Rhythm } from "../api/matrix";
import { count, duration, percent } from "../format";

/** How near two periods must be to be called the same. */
const SAME = 0.05;
/** Below it the byte rate hardly repeats. */
const WEAK = 0.5;

export function rhythmWords(rhythm: Rhythm): string {
  const words: string[] = [];
  const { period_ns: steps, byte_period_ns: bytes } = rhythm;
  if (steps !== null) words.push(`A step takes ${duration(steps / 1e9)} in the median.`);
  if (bytes !== null) words.push(byteWords(steps, bytes, rhythm.correlation));
  if (rhythm.duty !== null)
    words.push(
      `Ranks are inside collectives, waiting included, for ${percent(rhythm.duty)} of the time.`,
    );
  words.push(oddWords(rhythm));
  return words.join(" ");
}

function byteWords(steps: number | null, bytes: number, correlation: number): string {
  const weakly = correlation < WEAK ? ", weakly" : "";
  if (steps === null) return `The byte rate repeats every ${duration(bytes / 1e9)}${weakly}.`;
  const ratio = bytes / steps;
  if (Math.abs(ratio - 1) < SAME) return `The byte rate repeats with it${weakly}.`;
  const whole = Math.round(1 / ratio);
  if (ratio < 1 && Math.abs(ratio * whole - 1) < SAME)
    return `The byte rate repeats ${whole} times a step${weakly}.`;
  return `The byte rate repeats every ${duration(bytes / 1e9)}${weakly}: steps were not alike.`;
}

function oddWords({ odd, odd_left_out: more, periods }: Rhythm): string {
  if (!odd.length) return `All of ${count(periods, "period")} were alike.`;
  const kinds = (["long", "short", "missing"] as const)
    .map((kind) => [odd.filter((one) => one.kind === kind).length, kind] as const)
    .filter(([number]) => number > 0)
    .map(([number, kind]) => `${number} ${kind}`);
  return `Odd, of ${count(periods, "period")}: ${kinds.join(", ")}${more ? `, ${more} more` : ""}.`;
}
