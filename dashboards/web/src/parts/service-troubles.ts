/** What is wrong with the service itself, in words, the worst first. Pure. */
import type { Freshness } from "../api/freshness";
import type { About, Alert, Notice, Reading, RuleBook } from "../api/service";
import { count, duration } from "../format";
import { isLate as isOld, whole } from "./fresh-words";
import type { OVERVIEW } from "./service-questions";

export interface Trouble {
  readonly tone: "bad" | "warn";
  readonly text: string;
  /** The page of /runbooks with what to do; empty: there is none. */
  readonly runbook: string;
}

export type Numbers = Readonly<Record<keyof typeof OVERVIEW, readonly Reading[]>>;

/** A process needs so long before its numbers prove that something does not happen. */
const WARM_UP_SECONDS = 300;
/** Evaluations that lag by less are usual when an agent was late once. */
const LATE_SECONDS = 10;
/** Clocks that differ by more make "now" here another time than there. */
const CLOCK_SECONDS_MAX = 10;

/** The single number of a question; undefined without an answer. */
export function number(readings: readonly Reading[] | undefined): number | undefined {
  const value = readings?.[0]?.value;
  return value === undefined || Number.isNaN(value) ? undefined : value;
}

/** What this page sees itself, with more detail than the pack's alert about it. */
const SEEN_HERE = new Set(["FabricRulesFailing", "FabricRuleFileBad", "FabricNoticesWaiting"]);

/** Alerts of the rule pack about Fabricscope itself, without the one that always fires. */
export function aboutItself(alerts: readonly Alert[]): readonly Alert[] {
  return alerts.filter(({ labels }) => labels.theme === "self" && labels.severity !== "none");
}

/** The name of a runbook in an alert's link to it, such as `service-store`. */
export function runbookOf(annotations: Readonly<Record<string, string>>): string {
  const found = /\/runbooks\/([a-z0-9-]+)$/.exec(annotations.runbook_url ?? "");
  return found?.[1] ?? "";
}

/** Whether the rule pack, which knows the thresholds, is evaluated here. */
export function hasPack(book: RuleBook): boolean {
  return book.files.some((file) => file.name.endsWith("/self.yaml") && file.state !== "refused");
}

export function troublesOf(
  about: About,
  numbers: Numbers | undefined,
  book: RuleBook,
  notices: readonly Notice[],
  now: number,
  ages: readonly Trouble[] = [],
): readonly Trouble[] {
  const seen = [...ofRules(book, now), ...ofNotices(notices, now)];
  const alerts = aboutItself(book.alerts).filter(
    ({ labels }) => !seen.length || !SEEN_HERE.has(labels.alertname ?? ""),
  );
  const own = ofProcess(about, numbers, now);
  const found = [...ages, ...own, ...ofAlerts(alerts, now), ...seen];
  return found.sort((a, b) => Number(a.tone === "warn") - Number(b.tone === "warn"));
}

/** What makes the mark at the top right another one than "Live"; `passed` seconds since it was told. */
export function troublesOfAge({ data, evaluation }: Freshness, passed: number): Trouble[] {
  const found: Trouble[] = [];
  if (isOld(data, passed))
    found.push({
      tone: "bad",
      text: `The newest data is ${whole((data.age_seconds ?? 0) + passed)} old: no agent reports, or what they send does not arrive`,
      runbook: "agents-missing",
    });
  if (isOld(evaluation, passed))
    found.push({
      tone: "bad",
      text: `Nothing was evaluated for ${whole((evaluation.age_seconds ?? 0) + passed)}: incidents are as they were then`,
      runbook: "evaluation",
    });
  return found;
}

function ofProcess(about: About, numbers: Numbers | undefined, now: number): Trouble[] {
  const found: Trouble[] = [];
  if (about.notReady)
    found.push({
      tone: "bad",
      text: `The service is not ready: ${about.notReady}`,
      runbook: "service-store",
    });
  const isWarm = now - about.startedAt > WARM_UP_SECONDS;
  if (numbers?.processes.length && isWarm) {
    const leaders = numbers.leads.filter(({ value }) => value > 0);
    if (!number(numbers.evaluations))
      found.push({
        tone: "bad",
        text: "The service does not look for faults: no evaluation completed for 5 minutes",
        runbook: "evaluation",
      });
    if (leaders.length > 1)
      found.push({
        tone: "bad",
        text: `${leaders.map(({ labels }) => labels.instance ?? "?").join(" and ")} both evaluate; one should`,
        runbook: "evaluation",
      });
  }
  found.push(...ofLateData(numbers));
  if (Math.abs(about.clockAhead) > CLOCK_SECONDS_MAX)
    found.push({
      tone: "warn",
      text: `This browser's clock is ${duration(Math.abs(about.clockAhead))} ${about.clockAhead > 0 ? "ahead of" : "behind"} the service's: "now" is another time here than there`,
      runbook: "",
    });
  return found;
}

/** Data that come late make verdicts late, not wrong: who looks must know that they are. */
function ofLateData(numbers: Numbers | undefined): Trouble[] {
  const found: Trouble[] = [];
  const behind = number(numbers?.behind) ?? 0;
  const outstanding = numbers?.outstanding.find(({ labels }) => labels.state === "outstanding");
  if (behind >= LATE_SECONDS)
    found.push({
      tone: "warn",
      text: `Data come late: faults are looked for up to ${duration(behind)} ago${outstanding ? `, and ${count(outstanding.value, "host")} outstanding` : ""}`,
      runbook: "evaluation",
    });
  for (const one of numbers?.notJudged.slice(0, 3) ?? [])
    found.push({
      tone: "warn",
      text: `Job ${one.labels.job ?? "?"} is not judged: ${Math.round(one.value * 100)} % of its ${one.labels.missing ?? "data"} are missing`,
      runbook: "evaluation",
    });
  return found;
}

function ofAlerts(alerts: readonly Alert[], now: number): Trouble[] {
  return alerts.map((alert) => ({
    tone: alert.labels.severity === "critical" && alert.state === "firing" ? "bad" : "warn",
    text: `${alert.annotations.summary || alert.labels.alertname || "An alert without a name"} ${
      alert.state === "firing" ? "For" : "No alert yet; for"
    } ${duration(Math.round(Math.max(0, now - Date.parse(alert.activeAt) / 1000)))}.`,
    runbook: runbookOf(alert.annotations),
  }));
}

/** A group that was not evaluated for three of its intervals is late. */
export function isLate(group: { interval: number; lastEvaluation: string }, now: number): boolean {
  const last = Date.parse(group.lastEvaluation) / 1000;
  return last > 0 && now - last > 3 * group.interval + 5;
}

/** Errors may quote whole series. */
const TEXT_MAX = 180;
const cut = (text: string) => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)} …` : text);

function ofRules(book: RuleBook, now: number): Trouble[] {
  const found: Trouble[] = [];
  const failing = book.groups.flatMap((group) =>
    group.rules.filter((rule) => rule.health === "err"),
  );
  if (failing.length)
    found.push({
      tone: "warn",
      text: `${count(failing.length, "rule")} cannot be evaluated, ${failing[0]?.name} first: ${cut(failing[0]?.lastError || "no reason given")}`,
      runbook: "rules-and-notices",
    });
  for (const file of book.files.filter((one) => one.state !== "loaded").slice(0, 3))
    found.push({
      tone: "warn",
      text: `Rule file ${file.name} ${file.state === "kept" ? "is broken; its last good version stays in use" : "is refused"}: ${cut(file.error)}`,
      runbook: "rules-and-notices",
    });
  const late = book.groups.filter((group) => isLate(group, now));
  if (late.length)
    found.push({
      tone: "warn",
      text: `${count(late.length, "rule group")} late, ${late[0]?.name} first`,
      runbook: "rules-and-notices",
    });
  return found;
}

function ofNotices(notices: readonly Notice[], now: number): Trouble[] {
  const stuck = notices.filter((one) => one.state === "waiting" && one.attempts > 0);
  return [...new Set(stuck.map((one) => one.receiver))].map((receiver) => {
    const waiting = stuck.filter((one) => one.receiver === receiver);
    const oldest = Math.min(...waiting.map((one) => Date.parse(one.planned) / 1000));
    return {
      tone: "bad",
      text: `${receiver} takes no notices: ${waiting.length} wait, the oldest for ${duration(now - oldest)}. ${waiting[0]?.detail ?? ""}`,
      runbook: "rules-and-notices",
    };
  });
}
