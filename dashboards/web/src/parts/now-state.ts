/** The one sentence that stands on top: is anything wrong, and does the service evaluate? Pure. */
import type { Cost } from "../api/incidents";
import { ago, count, duration, percent } from "../format";

export interface Known {
  /** Open incidents. */
  readonly open: number;
  /** Unix seconds of the last evaluation; undefined: not known. */
  readonly lookedAt: number | undefined;
  /** False: the last evaluation is too old to hold now. Undefined: not known. */
  readonly isFresh: boolean | undefined;
  /** Whether the inventory has a host at all. */
  readonly isHostKnown: boolean;
  readonly hosts: number | undefined;
  readonly silent: number | undefined;
  readonly jobs: number;
  readonly gpus: number | undefined;
  readonly ports: number | undefined;
  /** Unix seconds: the end of the last incident; undefined: there was none. */
  readonly quietSince: number | undefined;
  readonly now: number;
}

export interface Headline {
  readonly tone: "bad" | "warn" | "good" | "";
  readonly title: string;
  readonly text: string;
  /** Nothing ever reported: what to do first is shown. */
  readonly isFirstTime?: boolean;
}

export function headline(known: Known): Headline {
  const looked =
    known.lookedAt === undefined ? "" : `Last evaluation ${ago(known.lookedAt, known.now)}.`;
  if (known.open > 0) return troubles(known, looked);
  const reporting = (known.hosts ?? 0) - (known.silent ?? 0);
  if (!known.isHostKnown && reporting <= 0 && known.jobs === 0)
    return {
      tone: "",
      title: "Nothing reports yet",
      text: "The service runs and waits for the first agent.",
      isFirstTime: true,
    };
  if (reporting <= 0 && known.hosts !== undefined)
    return {
      tone: "warn",
      title: "No host reports any more",
      text: `${count(known.hosts, "host")} did within the hour. Their present state is not known. ${looked}`,
    };
  if (known.isFresh === false)
    return {
      tone: "warn",
      title: "Not evaluated",
      text:
        known.lookedAt === undefined
          ? "No evaluation has completed yet. Until one has, an empty list of incidents means nothing."
          : `The last evaluation was ${ago(known.lookedAt, known.now)}. Until the next one an empty list of incidents means nothing.`,
    };
  if (known.isFresh === undefined)
    return {
      tone: "",
      title: "No job was seen yet",
      text: `${watched(known)} Counters are watched by rules; detectors find what a job waits for once one runs.`,
    };
  const quiet =
    known.quietSince === undefined
      ? ""
      : ` The last incident ended ${ago(known.quietSince, known.now)}.`;
  return {
    tone: "good",
    title: "Nothing is wrong",
    text: `${watched(known)}${quiet} ${looked}`.trim(),
  };
}

function troubles(known: Known, looked: string): Headline {
  const title = known.open === 1 ? "One thing is wrong" : `${known.open} things are wrong`;
  if (known.isFresh === false)
    return {
      tone: "warn",
      title,
      text: `But not evaluated now: ${looked || "no evaluation has completed yet."} It may be over.`,
    };
  return { tone: "bad", title, text: `The costliest first. ${looked}`.trim() };
}

function watched(known: Known): string {
  const parts = [
    count(known.jobs, "running job"),
    ...(known.gpus === undefined ? [] : [count(known.gpus, "GPU")]),
    ...(known.ports === undefined ? [] : [count(known.ports, "port")]),
  ];
  const silent = known.silent ? ` ${count(known.silent, "host is", "hosts are")} silent.` : "";
  return `${parts.join(", ")} watched.${silent}`;
}

/** From here on a step is slower than usual (FALCON, MegaScale: a change of 10 % of the iteration). */
export const SLOWER = 1.1;
/** Beside an incident also less is told, down to what two roundings make. */
const MENTIONED = 1.01;

/** How a step's time stands against what is usual; undefined where one of them is not known. */
export function slowdown(step: number | undefined, usual: number | undefined): number | undefined {
  return step !== undefined && usual !== undefined && usual > 0 ? step / usual : undefined;
}

/** A job's step by the verdicts of open incidents: as it is with them, and as it would be without. */
export interface Judged {
  readonly step: number;
  readonly without: number;
}

/** What verdicts say of this job's step, the one with the most to gain; undefined: nothing. */
export function judgedStep(job: string, costs: readonly Cost[]): Judged | undefined {
  let found: Judged | undefined;
  for (const { job: of, step_seconds: step, step_seconds_without: without } of costs)
    if (of === job && step !== null && without !== null && !(found && found.without <= without))
      found = { step, without };
  return found;
}

/**
 * What is usual: as the verdict of an open incident says, whose times are in the other two before
 * long; else as the rules recorded it over hours, else the median of what is drawn.
 */
export function usualOf(
  judged: Judged | undefined,
  recorded: number | undefined,
  drawn: readonly number[],
): number | undefined {
  if (judged) return judged.without;
  if (recorded !== undefined && Number.isFinite(recorded)) return recorded;
  const sorted = drawn.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

/**
 * How the last steps stand against what is usual. Beside an open incident nothing is "as usual"
 * without a word on when: the incident is about minutes, the number about seconds.
 */
export function againstUsual(
  step: number | undefined,
  usual: number | undefined,
  isInTrouble: boolean,
  judged: Judged | undefined,
): string {
  const ratio = slowdown(step, usual);
  if (ratio === undefined) return "";
  if (ratio >= 2) return `${ratio.toFixed(1)} × as long`;
  if (ratio >= SLOWER || (isInTrouble && ratio >= MENTIONED)) return `+${percent(ratio - 1)}`;
  if (isInTrouble) {
    const was = judged && judged.step >= judged.without * SLOWER;
    return was ? `now as usual, it was ${duration(judged.step)}` : "now as usual";
  }
  return ratio <= 1 / SLOWER ? `−${percent(1 - ratio)}` : "as usual";
}

export interface SparkPoint {
  readonly x: number;
  readonly y: number;
}

/**
 * A line as SVG draws it in a box of 100 x 100. The bottom is nought and the top at least twice what
 * is usual, so that noise looks like noise; a gap of more than `gap` seconds lifts the pen.
 */
export function sparkPath(
  times: readonly number[],
  values: readonly number[],
  range: { readonly from: number; readonly to: number; readonly top: number; readonly gap: number },
): string {
  const parts: string[] = [];
  let last = Number.NEGATIVE_INFINITY;
  times.forEach((time, place) => {
    const value = values[place];
    if (value === undefined || !Number.isFinite(value)) return;
    const x = ((time - range.from) / (range.to - range.from)) * 100;
    const y = 100 - (Math.min(value, range.top) / range.top) * 100;
    parts.push(`${time - last > range.gap ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`);
    last = time;
  });
  return parts.join("");
}
