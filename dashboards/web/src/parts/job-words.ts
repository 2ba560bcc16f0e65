/** The statement about a job, and the ranks that an incident accuses. Pure. */
import type { HeatRank } from "../api/heat";
import type { Culprit, IncidentShort } from "../api/incidents";
import type { Job, VerdictNow } from "../api/jobs";
import { count, moment } from "../format";
import type { Span } from "./timeline";

/** The job's verdict in one sentence. */
export interface Statement {
  readonly tone: "bad" | "warn" | "good";
  readonly text: string;
  /** The incident with the details. */
  readonly incident?: string;
  /** How many others there are. */
  readonly more?: string;
}

/** `within`: the incidents of the time that is looked at, which is `span`. */
export function verdictWords(
  job: Job,
  now: VerdictNow,
  within: readonly IncidentShort[],
  span: Span,
): Statement {
  const [standing] = now.verdicts;
  const incident = now.incidents[0];
  if (standing)
    return {
      tone: "bad",
      text: standing.summary,
      ...(incident ? { incident } : {}),
      ...(now.verdicts.length > 1
        ? { more: `and ${count(now.verdicts.length - 1, "more incident")}` }
        : {}),
    };
  const [worst] = byCost(within);
  if (worst) {
    const others = within.length > 1 ? { more: `and ${count(within.length - 1, "other")}` } : {};
    return { tone: "warn", text: `In this time: ${worst.summary}`, incident: worst.id, ...others };
  }
  const ended = Date.parse(job.ended_at ?? "") / 1000;
  if (ended <= span.from) return { tone: "warn", text: "It had ended before this time." };
  if (Date.parse(job.started_at ?? "") / 1000 >= span.to)
    return { tone: "warn", text: "It had not started in this time." };
  if (job.state === "ended") return { tone: "good", text: "Nothing was wrong in this time." };
  if (!now.is_fresh)
    return { tone: "warn", text: "Not evaluated: the service has not judged this job recently." };
  return { tone: "good", text: "Nothing is wrong." };
}

const byCost = (incidents: readonly IncidentShort[]) =>
  [...incidents].sort((a, b) => b.lost_seconds - a.lost_seconds);

/** Whether a rank is accused: itself, or what it runs on and sends through. */
export function isAccused(rank: HeatRank, culprit: Culprit, job: string): boolean {
  if (culprit.rank !== undefined && (culprit.job === undefined || culprit.job === job))
    return culprit.rank === rank.rank;
  if (culprit.host === undefined || culprit.host !== rank.host) return false;
  if (culprit.gpu !== undefined) return String(culprit.gpu) === rank.gpu;
  return culprit.device === undefined || rank.device === null || culprit.device === rank.device;
}

/** The ranks that incidents accuse, those of the costliest first. */
export function accusedRanks(
  ranks: readonly HeatRank[],
  incidents: readonly IncidentShort[],
  job: string,
): number[] {
  const found = byCost(incidents).flatMap(({ culprit }) =>
    ranks.filter((rank) => isAccused(rank, culprit, job)).map(({ rank }) => rank),
  );
  return [...new Set(found)];
}

/** The culprit in a job's terms: `rank 7 on node1`, `node4 mlx5_0`; a switch port if nothing else. */
export function culpritWords({ rank, host, gpu, device, ...more }: Culprit): string {
  if (rank !== undefined) return host ? `rank ${rank} on ${host}` : `rank ${rank}`;
  if (host) return [host, device ?? (gpu === undefined ? "" : `GPU ${gpu}`)].join(" ").trim();
  return [more.switch, more.switch_port].filter(Boolean).join(" ") || (more.job ?? "unknown");
}

/** Instead of a dash: since when nothing is measured of a job that should be. */
export function silentWords(since: number | undefined, now: number): string {
  return since === undefined ? "no data for over an hour" : `no data since ${moment(since, now)}`;
}

/** `6 GiB`. */
export function bytesWords(bytes: number | null): string {
  if (bytes === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [size, unit] = [bytes, 0];
  while (size >= 1024 && unit < units.length - 1) [size, unit] = [size / 1024, unit + 1];
  return `${Number(size.toPrecision(3))} ${units[unit]}`;
}

const BASES: Readonly<Record<string, readonly [number, string]>> = {
  "Gb/s": [1e9, "b/s"],
  MHz: [1e6, "Hz"],
  bytes: [1, "B"],
};

/** A reading in base units, for `si`; undefined where its unit takes no prefix. */
export function baseOf(value: number, unit: string): readonly [number, string] | undefined {
  const base = BASES[unit];
  return base && [value * base[0], base[1]];
}

/** A reading that is so far from what it was is worth a second look. */
const CHANGED_SHARE = 0.2;

export function isChanged(value: number, usual: number | null): boolean {
  if (usual === null) return false;
  return Math.abs(value - usual) > CHANGED_SHARE * Math.max(Math.abs(value), Math.abs(usual));
}
