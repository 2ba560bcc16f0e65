/** What a trouble costs, in time, GPU-hours and money; and what it will, if it goes on. Pure. */
import type { Cost } from "../api/incidents";
import { digits, duration, percent } from "../format";

/** What an hour of a GPU costs, in whatever the reader wrote beside the number. */
export interface Price {
  readonly amount: number;
  readonly before: string;
  readonly after: string;
}

/** `2.5`, `$2.50`, `2,10 €`; undefined for what is no price. */
export function parsePrice(text: string | null): Price | undefined {
  const match = /^\s*([^\d\s.,+-]{0,6})\s*(\d{1,9}(?:[.,]\d{1,6})?)\s*([^\d\s.,+-]{0,6})\s*$/.exec(
    text ?? "",
  );
  const amount = Number((match?.[2] ?? "").replace(",", "."));
  if (!match || !(amount > 0)) return undefined;
  return { amount, before: match[1] ?? "", after: match[3] ?? "" };
}

export function money(gpuHours: number, price: Price): string {
  const sum = gpuHours * price.amount;
  const places = sum < 100 ? 2 : 0;
  const number = sum.toLocaleString("en", {
    minimumFractionDigits: places,
    maximumFractionDigits: places,
  });
  if (!price.before && !price.after) return `${number} at your price`;
  return `${price.before}${number}${price.after ? ` ${price.after}` : ""}`;
}

/** Without the unit, for a column whose heading has it. */
export function hoursNumber(hours: number): string {
  if (hours > 0 && hours < 0.01) return "< 0.01";
  return digits(hours < 1 ? Math.round(hours * 100) / 100 : hours);
}

export function gpuHours(hours: number): string {
  return `${hoursNumber(hours)} GPU-hours`;
}

export function total(costs: readonly Cost[]): number {
  return costs.reduce((sum, cost) => sum + cost.gpu_hours, 0);
}

/**
 * GPU-hours that every further hour costs: a job's GPUs, times the share of its time that is lost.
 * How many GPUs a job has follows from what it has lost: GPU-hours by hours.
 */
export function perHour(costs: readonly Cost[]): number {
  return costs.reduce(
    (sum, cost) =>
      cost.lost_seconds > 0
        ? sum + (cost.gpu_hours / (cost.lost_seconds / 3600)) * cost.lost_share
        : sum,
    0,
  );
}

/** What one job loses, in a sentence. */
export function costSentence(cost: Cost, isOver: boolean): string {
  const { step_seconds: step, step_seconds_without: without } = cost;
  if (step !== null && without !== null && step > without) {
    const take = isOver ? "have taken" : "take";
    const less = cost.is_at_least ? " or less" : "";
    return `Without it a step of ${cost.job} would ${take} ${duration(without)}${less} instead of ${duration(step)}.`;
  }
  if (cost.lost_share >= 0.995) return `${cost.job} ${isOver ? "did" : "does"} not move at all.`;
  const least = cost.is_at_least ? "at least " : "";
  // Of a trouble that comes and goes, the share may be that of a moment without it.
  if (isNone(cost.lost_share) && cost.lost_seconds > 0)
    return `${cost.job} ${isOver ? "lost" : "has lost"} ${least}${duration(cost.lost_seconds)}.`;
  return `${cost.job} ${isOver ? "lost" : "loses"} ${least}${percent(cost.lost_share)} of its time.`;
}

/** Whether a share is shown as nothing at all. */
const isNone = (share: number) => percent(share) === percent(0);

/** From here on a trouble is worth a red mark: below, steps vary as much by themselves. */
const SHARE_BAD = 0.05;

/** Whether it costs little and no job is stopped: it may wait until morning. */
export function isMinor(costs: readonly Cost[]): boolean {
  return costs.length > 0 && costs.every((cost) => cost.lost_share < SHARE_BAD);
}

/** The cost in one line: the worst share, hours, money; empty where nothing is known. */
export function costLine(costs: readonly Cost[], price?: Price): string[] {
  if (!costs.length) return [];
  const share = Math.max(...costs.map((cost) => cost.lost_share));
  const hours = total(costs);
  const least = costs.some((cost) => cost.is_at_least) ? "at least " : "";
  return [
    ...(isNone(share) && hours > 0 ? [] : [`${least}${percent(share)} of the time`]),
    gpuHours(hours),
    ...(price ? [money(hours, price)] : []),
  ];
}
