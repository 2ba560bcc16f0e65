/** The service about itself: is it ready, how it runs, its rules, alerts, notices, silences and series. */
import { ask, Failure, type Page, send, submit } from "./client";
import { instant, type Labels, overRange, type Series } from "./promql";

export interface About {
  /** Empty while store and inventory answer; else the service's error. */
  readonly notReady: string;
  readonly version: string;
  /** Unix seconds. */
  readonly startedAt: number;
  /** How far this browser's clock is ahead of the service's, in seconds; exact to the way's length. */
  readonly clockAhead: number;
  readonly retention: string;
}

interface Status<T> {
  readonly data: T;
}

export async function askAbout(abort: AbortSignal): Promise<About> {
  const [notReady, build, runtime] = await Promise.all([
    whyNotReady(abort),
    ask<Status<{ fabricscopeVersion?: string }>>("/api/v1/status/buildinfo", {}, abort),
    ask<Status<{ startTime: string; serverTime?: string; storageRetention: string }>>(
      "/api/v1/status/runtimeinfo",
      {},
      abort,
    ),
  ]);
  const { startTime, serverTime, storageRetention } = runtime.data;
  const ahead = serverTime ? (Date.now() - Date.parse(serverTime)) / 1000 : 0;
  return {
    notReady,
    version: build.data.fabricscopeVersion ?? "",
    startedAt: Date.parse(startTime) / 1000,
    clockAhead: ahead,
    retention: storageRetention,
  };
}

async function whyNotReady(abort: AbortSignal): Promise<string> {
  try {
    await send("/readyz", { signal: abort });
    return "";
  } catch (error) {
    if (error instanceof Failure && error.status >= 500) return error.detail || error.title;
    throw error;
  }
}

// --- numbers ---------------------------------------------------------------------------------------

export interface Reading {
  readonly labels: Labels;
  readonly value: number;
}

/** Several questions as one: which of them a series answers stands in its label `what`. */
export function together(questions: Readonly<Record<string, string>>): string {
  return Object.entries(questions)
    .map(([name, expr]) => `label_replace(${expr}, "what", "${name}", "", "")`)
    .join("\nor ");
}

/** The answers to `questions` at a moment, by their names; a question without an answer has none. */
export async function askNumbers<Name extends string>(
  questions: Readonly<Record<Name, string>>,
  time: number,
  abort: AbortSignal,
): Promise<Readonly<Record<Name, readonly Reading[]>>> {
  const found = Object.fromEntries(
    Object.keys(questions).map((name): [string, Reading[]] => [name, []]),
  );
  for (const { labels, values } of await instant(together(questions), time, abort)) {
    const { what, ...others } = labels;
    if (what !== undefined && values[0] !== undefined)
      found[what]?.push({ labels: others, value: values[0] });
  }
  return found as Record<Name, Reading[]>;
}

/** The same over a stretch of time. */
export async function askCurves(
  questions: Readonly<Record<string, string>>,
  from: number,
  to: number,
  step: number,
  abort: AbortSignal,
): Promise<readonly Series[]> {
  return overRange(together(questions), from, to, step, abort);
}

// --- rules and alerts ------------------------------------------------------------------------------

export interface Alert {
  readonly labels: Labels;
  readonly annotations: Labels;
  readonly state: "pending" | "firing";
  readonly activeAt: string;
  readonly value: string;
}

export interface Rule {
  readonly name: string;
  readonly type: "alerting" | "recording";
  readonly query: string;
  readonly health: "ok" | "err" | "unknown";
  readonly lastError?: string;
  readonly evaluationTime: number;
  readonly lastEvaluation: string;
  /** Of an alerting rule. */
  readonly state?: "firing" | "pending" | "inactive";
  readonly annotations?: Labels;
  readonly labels?: Labels;
}

export interface RuleGroup {
  readonly name: string;
  readonly file: string;
  /** Seconds. */
  readonly interval: number;
  readonly evaluationTime: number;
  readonly lastEvaluation: string;
  readonly rules: readonly Rule[];
}

export interface RuleFile {
  readonly name: string;
  readonly state: "loaded" | "kept" | "refused";
  readonly error: string;
  readonly loaded_since: string | null;
  readonly groups: number;
  readonly rules: number;
}

export interface RuleBook {
  readonly groups: readonly RuleGroup[];
  readonly files: readonly RuleFile[];
  readonly alerts: readonly Alert[];
}

export async function askRuleBook(abort: AbortSignal): Promise<RuleBook> {
  const [rules, files, alerts] = await Promise.all([
    ask<Status<{ groups: RuleGroup[] }>>("/api/v1/rules", { exclude_alerts: true }, abort),
    ask<{ items: RuleFile[] }>("/v1/rules/files", {}, abort),
    ask<Status<{ alerts: Alert[] }>>("/api/v1/alerts", {}, abort),
  ]);
  return { groups: rules.data.groups, files: files.items, alerts: alerts.data.alerts };
}

// --- notices and silences --------------------------------------------------------------------------

export interface Notice {
  readonly id: string;
  readonly receiver: string;
  readonly status: "firing" | "resolved";
  readonly title: string;
  readonly alerts: number;
  readonly state: string;
  readonly attempts: number;
  readonly detail: string;
  readonly planned: string;
  readonly due: string;
  readonly ended: string | null;
}

export const NOTICES_SHOWN = 100;

/** The newest notices; those that wait also where they are older. */
export async function askNotices(abort: AbortSignal): Promise<readonly Notice[]> {
  const [waiting, newest] = await Promise.all([
    ask<Page<Notice>>("/v1/notices", { state: "waiting", limit: NOTICES_SHOWN }, abort),
    ask<Page<Notice>>("/v1/notices", { limit: NOTICES_SHOWN }, abort),
  ]);
  const known = new Set(waiting.items.map((one) => one.id));
  return [...waiting.items, ...newest.items.filter((one) => !known.has(one.id))];
}

export interface Matcher {
  readonly name: string;
  readonly value: string;
  readonly isRegex: boolean;
  readonly isEqual: boolean;
}

export interface Silence {
  readonly id: string;
  readonly state: "pending" | "active" | "expired";
  readonly matchers: readonly Matcher[];
  readonly starts: string;
  readonly ends: string;
  readonly created_by: string;
  readonly comment: string;
}

export interface SilenceAsked {
  readonly matchers: readonly Matcher[];
  readonly hours: number;
  readonly created_by: string;
  readonly comment: string;
}

export async function askSilences(abort: AbortSignal): Promise<readonly Silence[]> {
  return (await ask<{ items: Silence[] }>("/v1/silences", {}, abort)).items;
}

export async function silence(asked: SilenceAsked): Promise<void> {
  await submit("POST", "/v1/silences", asked);
}

export async function endSilence(id: string): Promise<void> {
  await submit("DELETE", `/v1/silences/${encodeURIComponent(id)}`);
}

// --- series ----------------------------------------------------------------------------------------

interface Counted {
  readonly name: string;
  readonly value: number;
}

export interface SeriesCounts {
  readonly headStats: {
    readonly numSeries: number;
    readonly numLabelPairs: number;
    /** Unix milliseconds. */
    readonly minTime: number;
    readonly maxTime: number;
  };
  readonly seriesCountByMetricName: readonly Counted[];
  readonly labelValueCountByLabelName: readonly Counted[];
  readonly seriesCountByLabelValuePair: readonly Counted[];
}

export async function askSeriesCounts(abort: AbortSignal): Promise<SeriesCounts> {
  return (await ask<Status<SeriesCounts>>("/api/v1/status/tsdb", { limit: 20 }, abort)).data;
}

// --- what was refused or left out ------------------------------------------------------------------

/** Things of one kind that the service refused, or left out when it read them. */
export interface Oddity {
  readonly road: string;
  readonly reason: string;
  readonly sender: string;
  readonly count: number;
  readonly examples: readonly string[];
  readonly last_at: string;
}

export interface Refused {
  readonly refused: readonly Oddity[];
  readonly quarantined: readonly Oddity[];
}

export async function askRefused(abort: AbortSignal): Promise<Refused> {
  return await ask<Refused>("/v1/refused", {}, abort);
}
