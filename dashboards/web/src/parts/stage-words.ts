/** A pipeline's stages in sentences, as `fabricscope diagnose` says them. Pure. */
import type { Stages } from "../api/stages";
import { count, percent } from "../format";

export function stageSentences(found: Stages): readonly string[] {
  if (!found.stages.length) return found.unknown.map((reason) => `Not told apart: ${reason}.`);
  return [
    ...(found.bubble_share === null
      ? []
      : [
          `${count(found.pipelines, "pipeline")} of ${found.stages.length} stages: in a typical step ranks wait ${percent(found.bubble_share)} of the time for others (the bubble).`,
        ]),
    paceSentence(found),
    ...(found.basis === "outside"
      ? ["Own work: time outside of messages and collectives; no profile shows more."]
      : []),
    ...found.unknown.map((reason) => `Not known: ${reason}.`),
  ];
}

function paceSentence({ pace, stages }: Stages): string {
  const times = pace === null ? undefined : stages[pace];
  if (!times) return "No stage sets the pace by itself.";
  const saved = times.saved_share === null ? "not known how much" : percent(times.saved_share);
  return `Stage ${times.stage} sets the pace: with a tenth less work of its own a step would be ${saved} shorter. That accuses no part: verdicts tell uneven work from a slow rank.`;
}

/** `0-3, 8 and 12 more`: ranks in a row are one range. */
export function rankWords(ranks: readonly number[], total: number): string {
  const ranges: [number, number][] = [];
  for (const rank of ranks) {
    const last = ranges.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank;
    else ranges.push([rank, rank]);
  }
  const words = ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
  const more = total - ranks.length;
  return words.join(", ") + (more > 0 ? ` and ${more.toLocaleString("en")} more` : "");
}
