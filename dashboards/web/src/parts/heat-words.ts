/** A heat map in words. Pure. */
import type { Heat, HeatRank, Quantity } from "../api/heat";
import { count, duration, percent } from "../format";
import { latestOf, type RankRecord, type Row, type Scale, valueAt } from "./heat";

interface Named {
  /** In a list of choices. */
  readonly label: string;
  /** Above the map. */
  readonly title: string;
  readonly hint: string;
  /** `320 ms late` of a value. */
  readonly phrase: (value: string) => string;
}

export const QUANTITIES: Readonly<Record<Quantity, Named>> = {
  late: {
    label: "Lateness",
    title: "Who comes late",
    hint: "how much later than the median rank it entered, worst collective of the step",
    phrase: (value) => `${value} late`,
  },
  compute: {
    label: "Computing",
    title: "Who computes longer",
    hint: "time outside of collectives in the step",
    phrase: (value) => `${value} outside of collectives`,
  },
  wait: {
    label: "Waiting",
    title: "Who waits for others",
    hint: "time in collectives before the last rank had come",
    phrase: (value) => `${value} waiting for others`,
  },
  network: {
    label: "Network",
    title: "Who waits for the network",
    hint: "time in collectives after the last rank had come",
    phrase: (value) => `${value} in transfers`,
  },
  step: {
    label: "Step time",
    title: "How long steps take",
    hint: "from one step's begin to the next",
    phrase: (value) => `step of ${value}`,
  },
};

export const isQuantity = (word: string | undefined): word is Quantity =>
  word !== undefined && Object.hasOwn(QUANTITIES, word);

/** `rank 5 · node3 · GPU 1`. */
export function rankWords({ rank, host, gpu }: HeatRank): string {
  return [`rank ${rank}`, host, gpu === null ? null : `GPU ${gpu}`].filter(Boolean).join(" · ");
}

/** A value of this quantity; early ranks have negative lateness. */
export function valueWords(quantity: Quantity, value: number): string {
  if (Number.isNaN(value)) return "not seen";
  if (quantity === "late" && value <= 0) return value < 0 ? `${duration(-value)} early` : "on time";
  return QUANTITIES[quantity].phrase(duration(value));
}

/** Who, and what of him, in a cell; of a host's cell its worst rank. */
export function cellWords(heat: Heat, member: number, step: number): [string, string] {
  const rank = heat.ranks[member];
  if (!rank) return ["", ""];
  return [rankWords(rank), valueWords(heat.quantity, valueAt(heat, member, step))];
}

/** The point of the map in a sentence, for screen readers and for readers in a hurry. */
export function heatWords(heat: Heat, rows: readonly Row[], scale: Scale): string {
  const size = `${count(heat.ranks.length, "rank")} in ${count(heat.steps.length, "column")}`;
  const [row, most] = brightest(heat, rows);
  const rank = row === undefined ? undefined : heat.ranks[row];
  if (!rank || most < scale.low + (scale.high - scale.low) / 2)
    return `${QUANTITIES[heat.quantity].title}: ${size}; no rank stands out.`;
  return (
    `${QUANTITIES[heat.quantity].title}: ${size}; largest at ${rankWords(rank)}, ` +
    `${valueWords(heat.quantity, most)}.`
  );
}

function brightest(heat: Heat, rows: readonly Row[]): [number | undefined, number] {
  let [best, most]: [number | undefined, number] = [undefined, Number.NEGATIVE_INFINITY];
  for (const member of rows.flatMap((row) => row.members))
    for (let step = 0; step < heat.steps.length; step++) {
      const value = valueAt(heat, member, step);
      if (value > most) [best, most] = [member, value];
    }
  return [best, most];
}

/** A rank that is last in more than so many of the steps is no chance. */
const LAST_OFTEN = 0.5;
/** Below this share of a step it does not matter which rank comes last. */
const LATE_SHARE = 0.02;

/** `Rank 5 on node3 (GPU 1) is last in 96 % of the steps, 320 ms late as a rule.` */
export function latestWords(heat: Heat, records: readonly RankRecord[]): string {
  const latest = latestOf(records);
  const rank = latest && heat.ranks[latest.place];
  if (!latest || !rank) return "No rank was seen in any step.";
  const lengths = heat.steps.map((step) => step.to - step.from);
  const step = lengths.reduce((sum, one) => sum + one, 0) / lengths.length / heat.stepsInOne;
  const often = `in ${percent(latest.lastShare)} of the steps`;
  const name = [
    `Rank ${rank.rank}`,
    rank.host && `on ${rank.host}`,
    rank.gpu && `(GPU ${rank.gpu})`,
  ];
  const who = name.filter(Boolean).join(" ");
  if (latest.lastShare < LAST_OFTEN)
    return `No rank is last as a rule in the time shown; most often ${who}, ${often}.`;
  if (latest.median < LATE_SHARE * step)
    return `${who} is last ${often}, but by no more than ${duration(Math.max(0, latest.median))} as a rule.`;
  return `${who} is last ${often}, ${duration(latest.median)} late as a rule.`;
}

/** What the map does not show; empty if it shows all. */
export function leftOutWords(heat: Heat, ranksLeftOut: number, keptOneIn: number): string {
  const notes: string[] = [];
  if (heat.stepsInOne > 1) notes.push(`each column is the worst of ${heat.stepsInOne} steps`);
  if (ranksLeftOut > 0)
    notes.push(
      `${heat.ranks.length.toLocaleString("en")} of ${count(heat.ranks.length + ranksLeftOut, "rank")}: those that stand out, and some of all over the job`,
    );
  if (keptOneIn > 1) notes.push(`one in ${keptOneIn} collectives was looked at`);
  return notes.join("; ");
}
