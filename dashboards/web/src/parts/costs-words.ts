/** What an account of costs says: the price, a week's part, a cause in words. Pure. */
import type { Account, CostEntry } from "../api/costs";
import { count } from "../format";
import type { Price } from "./verdict-cost";
import { causeOf, reasonOf } from "./verdict-words";

const WEEK_SECONDS = 7 * 86_400;

/** The reader's own, else the service's; undefined where neither is set. */
export function priceIn(account: Account, own: Price | undefined): Price | undefined {
  if (own) return own;
  const { price_per_gpu_hour: amount, currency } = account;
  return amount === null ? undefined : { amount, before: "", after: currency };
}

/** How many weeks an account covers; a part of one counts as that part. */
export function weeksOf({ from, to }: Pick<Account, "from" | "to">): number {
  return Math.max(0, Date.parse(to) - Date.parse(from)) / 1000 / WEEK_SECONDS;
}

/** GPU-hours of a week like those. */
export function weekly(hours: number, weeks: number): number {
  return weeks > 0 ? hours / weeks : 0;
}

/** `Slow link (cable or transceiver)`. */
export function causeWords({ cause, reason }: Pick<CostEntry, "cause" | "reason">): string {
  const behind = reasonOf(reason);
  return behind ? `${causeOf(cause).title} (${behind})` : causeOf(cause).title;
}

/** What the sums leave out, in sentences; a reader must not take them for more than they are. */
export function reservations(account: Account): readonly string[] {
  const { unmeasured, entries_left_out: left, is_partial: isPartial } = account;
  return [
    ...(unmeasured
      ? [`${count(unmeasured, "incident")} could not be measured: not free, and not in the sums.`]
      : []),
    ...(isPartial ? ["There were more incidents than are added up: these are the latest."] : []),
    ...(left ? [`${count(left, "cheaper line")} not shown; the sums have them.`] : []),
    "Two troubles of one job at the same time may each count the same second: sums are an upper end.",
  ];
}
