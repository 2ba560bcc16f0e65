/** Alerts that stand, rules, the files that they come from. */
import { useState } from "preact/hooks";
import type { Alert, Rule, RuleBook, RuleFile, RuleGroup } from "../api/service";
import { ago, count, duration } from "../format";
import { href } from "../route";
import { Badge, Panel } from "../ui/panel";
import { Empty } from "../ui/states";
import { Table } from "../ui/table";
import { isLate, runbookOf } from "./service-troubles";
import "../style/settings.css";

const SEVERITIES = ["critical", "warning", "info", "none"];

function severity(alert: Alert): string {
  return alert.labels.severity ?? "";
}

/** What an alert is about, as links where the page has a view of it. */
function Subject({ labels }: { labels: Alert["labels"] }) {
  const { incident, host, job, device, port, gpu } = labels;
  const part = [device, port, gpu === undefined ? "" : `GPU ${gpu}`].filter(Boolean).join(" ");
  return (
    <>
      {incident && <a href={href(["incident", incident])}>{incident}</a>}{" "}
      {job && <a href={href(["job", job])}>{job}</a>}{" "}
      {host && <a href={href(["hosts", host])}>{host}</a>} {part}
    </>
  );
}

export function Alerts(props: {
  alerts: readonly Alert[];
  now: number;
  onSilence: (alert: Alert) => void;
}) {
  const [isAll, setAll] = useState(false);
  const standing = [...props.alerts].sort(
    (a, b) =>
      Number(a.state === "pending") - Number(b.state === "pending") ||
      SEVERITIES.indexOf(severity(a)) - SEVERITIES.indexOf(severity(b)) ||
      Date.parse(b.activeAt) - Date.parse(a.activeAt),
  );
  // Severity "none" is for machines: the watchdog, and victims of an incident.
  const shown = isAll ? standing : standing.filter((alert) => severity(alert) !== "none");
  const hidden = standing.length - shown.length;
  return (
    <Panel
      title="Alerts"
      hint={`${props.alerts.filter((one) => one.state === "firing").length} firing, ${props.alerts.filter((one) => one.state === "pending").length} pending`}
      aside={
        (hidden > 0 || isAll) && (
          <label class="check">
            <input
              type="checkbox"
              checked={isAll}
              onChange={(event) => setAll(event.currentTarget.checked)}
            />
            also those for machines only{hidden > 0 ? ` (${hidden})` : ""}
          </label>
        )
      }
    >
      {shown.length ? (
        <Table
          label="Alerts that stand"
          noun="alert"
          rows={shown}
          keyOf={(alert) => JSON.stringify([alert.labels, alert.state])}
          columns={[
            {
              name: "State",
              show: (alert) => (
                <Badge tone={tone(alert)}>
                  {alert.state === "firing" ? severity(alert) || "firing" : "pending"}
                </Badge>
              ),
              by: (alert) => SEVERITIES.indexOf(severity(alert)),
            },
            {
              name: "Alert",
              show: (alert) => (
                <>
                  <b>{alert.labels.alertname}</b>
                  <div class="soft">{alert.annotations.summary}</div>
                </>
              ),
              by: (alert) => alert.labels.alertname ?? "",
            },
            { name: "About", show: (alert) => <Subject labels={alert.labels} /> },
            {
              name: "Since",
              show: (alert) => ago(Date.parse(alert.activeAt) / 1000, props.now),
              by: (alert) => Date.parse(alert.activeAt),
              isNumber: true,
            },
            {
              name: "What now",
              show: (alert) => (
                <span class="row tight">
                  {runbookOf(alert.annotations) && (
                    <a href={`/runbooks/${runbookOf(alert.annotations)}`}>runbook</a>
                  )}
                  <button type="button" class="plain link" onClick={() => props.onSilence(alert)}>
                    silence
                  </button>
                </span>
              ),
            },
          ]}
        />
      ) : (
        <Empty title={standing.length ? "No alert that a person should see" : "No alert stands"} />
      )}
    </Panel>
  );
}

function tone(alert: Alert): string {
  if (alert.state !== "firing") return "";
  return severity(alert) === "critical" ? "bad" : severity(alert) === "warning" ? "warn" : "";
}

// --- rules -----------------------------------------------------------------------------------------

interface RuleRow extends Rule {
  readonly group: string;
}

export function Rules({ book, now }: { book: RuleBook; now: number }) {
  const [search, setSearch] = useState("");
  const [isAll, setAll] = useState(false);
  const rules: RuleRow[] = book.groups.flatMap((group) =>
    group.rules.map((rule) => ({ ...rule, group: group.name })),
  );
  const word = search.trim().toLowerCase();
  const shown = rules
    .filter((rule) => (word ? hasWord(rule, word) : isAll || isLoud(rule)))
    .sort((a, b) => Number(b.health === "err") - Number(a.health === "err"));
  return (
    <Panel
      title="Rules"
      hint={`${rules.length} in ${count(book.groups.length, "group")}; ${
        word || isAll ? "those that fail first" : "those that fail or fire"
      }`}
      aside={
        <>
          <label class="check">
            <input
              type="checkbox"
              checked={isAll}
              onChange={(event) => setAll(event.currentTarget.checked)}
            />
            quiet ones, too
          </label>
          <input
            type="search"
            aria-label="Search rules"
            placeholder="Search name or query"
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </>
      }
    >
      {shown.length ? (
        <Table
          label="Rules"
          noun="rule"
          rows={shown}
          keyOf={(rule) => `${rule.group} ${rule.type} ${rule.name} ${rule.query}`}
          isMarked={(rule) => rule.health === "err"}
          columns={[
            {
              name: "Rule",
              show: (rule) => (
                <>
                  {rule.name}
                  {rule.lastError && <div class="bad-text">{rule.lastError}</div>}
                </>
              ),
              by: (rule) => rule.name,
            },
            {
              name: "State",
              show: (rule) => <RuleState rule={rule} />,
              by: (rule) => `${rule.health} ${rule.state ?? ""}`,
            },
            {
              name: "Query",
              show: (rule) => (
                <a
                  class="mono clipped"
                  href={href(["explore"], { query: rule.query })}
                  title={rule.query}
                >
                  {rule.query.replace(/\s+/g, " ")}
                </a>
              ),
            },
            { name: "Group", show: (rule) => rule.group, by: (rule) => rule.group },
            {
              name: "Took",
              show: (rule) => duration(rule.evaluationTime),
              by: (rule) => rule.evaluationTime,
              isNumber: true,
            },
            {
              name: "Evaluated",
              show: (rule) => evaluated(rule.lastEvaluation, now),
              by: (rule) => Date.parse(rule.lastEvaluation),
              isNumber: true,
            },
          ]}
        />
      ) : (
        <Empty title={nothingWords(rules.length, search)}>
          {!rules.length && "Set rules_pack = true, or rules_dir to a folder of rule files."}
        </Empty>
      )}
    </Panel>
  );
}

const hasWord = (rule: RuleRow, word: string) =>
  `${rule.name} ${rule.group} ${rule.query}`.toLowerCase().includes(word);

/** The watchdog fires always, and victims with their incident: neither is news here. */
const isLoud = (rule: Rule) =>
  rule.health === "err" ||
  (!!rule.state && rule.state !== "inactive" && rule.labels?.severity !== "none");

function nothingWords(rules: number, search: string): string {
  if (!rules) return "No rules are loaded";
  return search ? `No rule has "${search}" in it` : "No rule fails, and none fires";
}

function RuleState({ rule }: { rule: Rule }) {
  if (rule.health === "err") return <Badge tone="bad">fails</Badge>;
  if (rule.health === "unknown") return <Badge>not evaluated yet</Badge>;
  if (rule.state === "firing") return <Badge tone="warn">firing</Badge>;
  if (rule.state === "pending") return <Badge>pending</Badge>;
  return <span class="soft">{rule.type === "recording" ? "records" : "quiet"}</span>;
}

function evaluated(text: string, now: number): string {
  const time = Date.parse(text) / 1000;
  return time > 0 ? ago(time, now) : "never";
}

export function RuleGroups({ groups, now }: { groups: readonly RuleGroup[]; now: number }) {
  return (
    <Panel title="Rule groups" hint="Each is evaluated at its own pace">
      <Table
        label="Rule groups"
        noun="group"
        rows={groups}
        keyOf={(group) => `${group.file} ${group.name}`}
        isMarked={(group) => isLate(group, now)}
        columns={[
          { name: "Group", show: (group) => group.name, by: (group) => group.name },
          {
            name: "Rules",
            show: (group) => group.rules.length,
            by: (group) => group.rules.length,
            isNumber: true,
          },
          {
            name: "Every",
            show: (group) => duration(group.interval),
            by: (group) => group.interval,
            isNumber: true,
          },
          {
            name: "Took",
            show: (group) => duration(group.evaluationTime),
            by: (group) => group.evaluationTime,
            isNumber: true,
          },
          {
            name: "Evaluated",
            show: (group) => (
              <>
                {evaluated(group.lastEvaluation, now)}
                {isLate(group, now) && <Badge tone="warn">late</Badge>}
              </>
            ),
            by: (group) => Date.parse(group.lastEvaluation),
            isNumber: true,
          },
        ]}
      />
    </Panel>
  );
}

const FILE_WORDS = {
  loaded: "in use",
  kept: "broken; its last good version stays in use",
  refused: "refused",
} as const;

export function RuleFiles({ files, now }: { files: readonly RuleFile[]; now: number }) {
  const sorted = [...files].sort(
    (a, b) => Number(a.state === "loaded") - Number(b.state === "loaded"),
  );
  return (
    <Panel title="Rule files" hint="Read again when they change">
      <Table
        label="Rule files"
        noun="file"
        rows={sorted}
        keyOf={(file) => file.name}
        isMarked={(file) => file.state !== "loaded"}
        columns={[
          {
            name: "File",
            show: (file) => (
              <>
                <span class="mono">{file.name}</span>
                {file.error && <div class="bad-text">{file.error}</div>}
              </>
            ),
            by: (file) => file.name,
          },
          {
            name: "State",
            show: (file) => (
              <Badge tone={file.state === "loaded" ? "good" : "bad"}>
                {FILE_WORDS[file.state]}
              </Badge>
            ),
            by: (file) => file.state,
          },
          { name: "Rules", show: (file) => file.rules, by: (file) => file.rules, isNumber: true },
          {
            name: "Read",
            show: (file) =>
              file.loaded_since ? ago(Date.parse(file.loaded_since) / 1000, now) : "never",
            isNumber: true,
          },
        ]}
      />
    </Panel>
  );
}
