/** Agents that something is wrong with, their versions, and where series come from. */
import type { Oddity, Reading, Refused, SeriesCounts } from "../api/service";
import { count, moment, si } from "../format";
import { href } from "../route";
import { Badge, Panel } from "../ui/panel";
import { Empty } from "../ui/states";
import { Table } from "../ui/table";
import { AGENTS_SHOWN, type AgentTrouble, agentWords, oddityWords } from "./service-questions";
import "../style/settings.css";

export type AgentTroubles = Readonly<Record<AgentTrouble, readonly Reading[]>>;

interface Row {
  readonly key: string;
  readonly host: string;
  readonly cluster: string;
  readonly trouble: AgentTrouble;
  readonly words: string;
}

const LOSING: ReadonlySet<AgentTrouble> = new Set(["dropped", "rejected", "refused"]);
const RUNBOOKS: Readonly<Record<AgentTrouble, string>> = {
  missing: "agents-missing",
  source: "agent-source",
  unsent: "agent-delivery",
  behind: "agent-delivery",
  dropped: "agent-delivery",
  rejected: "agent-delivery",
  refused: "agent-delivery",
};

function rowsOf(troubles: AgentTroubles): readonly Row[] {
  return (Object.keys(RUNBOOKS) as AgentTrouble[]).flatMap((trouble) =>
    troubles[trouble].map(({ labels, value }) => ({
      key: `${trouble} ${JSON.stringify(labels)}`,
      host: labels.host ?? "",
      cluster: labels.cluster ?? "",
      trouble,
      words: agentWords(trouble, value, labels),
    })),
  );
}

export function AgentTable({ troubles, known }: { troubles: AgentTroubles; known: number }) {
  const rows = rowsOf(troubles);
  const isCut = Object.values(troubles).some((each) => each.length >= AGENTS_SHOWN);
  const hosts = new Set(rows.map((row) => `${row.cluster} ${row.host}`)).size;
  return (
    <Panel
      title="Agents that need attention"
      hint={known ? `${hosts} of ${count(known, "agent")} of the last hour` : ""}
    >
      {rows.length ? (
        <>
          <Table
            label="Agents that need attention"
            rows={rows}
            keyOf={(row) => row.key}
            columns={[
              {
                name: "Host",
                show: (row) => <a href={href(["hosts", row.host])}>{row.host}</a>,
                by: (row) => row.host,
              },
              { name: "Cluster", show: (row) => row.cluster, by: (row) => row.cluster },
              {
                name: "Sort",
                show: (row) => (
                  <Badge
                    tone={LOSING.has(row.trouble) || row.trouble === "missing" ? "bad" : "warn"}
                  >
                    {row.trouble === "missing"
                      ? "silent"
                      : LOSING.has(row.trouble)
                        ? "loses"
                        : "late"}
                  </Badge>
                ),
                by: (row) => row.trouble,
              },
              { name: "Its agent", show: (row) => row.words, by: (row) => row.words },
              {
                name: "Do",
                show: (row) => <a href={`/runbooks/${RUNBOOKS[row.trouble]}`}>what to do</a>,
              },
            ]}
          />
          {isCut && (
            <p class="soft">
              Of each kind {AGENTS_SHOWN} are shown at most. So many at once: look at the network
              and at the service first.
            </p>
          )}
        </>
      ) : known ? (
        <Empty title={`All ${count(known, "agent")} report, and none loses anything`} />
      ) : (
        <Empty title="No agent has reported within the last hour">
          Start one on a host: <code>fabricscope agent --service http://SERVICE:9700</code>. Hosts
          that come by remote write or OTLP have none.
        </Empty>
      )}
    </Panel>
  );
}

export function AgentVersions({ versions }: { versions: readonly Reading[] }) {
  const sorted = [...versions].sort((a, b) => b.value - a.value);
  return (
    <Panel title="Versions of agents">
      {sorted.length ? (
        <Table
          label="Versions of agents"
          rows={sorted}
          keyOf={(one) => one.labels.version ?? ""}
          columns={[
            {
              name: "Version",
              show: (one) => one.labels.version ?? "not known",
              by: (one) => one.labels.version ?? "",
            },
            { name: "Agents", show: (one) => one.value.toLocaleString("en"), isNumber: true },
          ]}
        />
      ) : (
        <Empty title="No agent reports now" />
      )}
    </Panel>
  );
}

/** Where series come from: the first question when there are too many. */
export function SeriesPanels({
  counts,
  refused,
}: {
  counts: SeriesCounts;
  refused: readonly Reading[];
}) {
  const { headStats: head } = counts;
  return (
    <>
      <Panel
        title="Series"
        hint={`${head.numSeries.toLocaleString("en")} now, ${head.numLabelPairs.toLocaleString("en")} pairs of label and value; samples from ${moment(head.minTime / 1000)} on`}
      >
        <div class="columns">
          <Bars
            title="By metric"
            rows={counts.seriesCountByMetricName}
            whole={head.numSeries}
            asks
          />
          <Bars
            title="By label and value"
            rows={counts.seriesCountByLabelValuePair}
            whole={head.numSeries}
          />
          <Bars title="Values of a label" rows={counts.labelValueCountByLabelName} />
        </div>
      </Panel>
      <Panel
        title="Refused in the last 15 minutes"
        hint="By the rule that refused it: lost for good"
      >
        {refused.length ? (
          <Table
            label="Refused in the last 15 minutes"
            rows={[...refused].sort((a, b) => b.value - a.value)}
            keyOf={({ labels }) => `${labels.protocol} ${labels.rule}`}
            columns={[
              {
                name: "Rule",
                show: ({ labels }) => <code>{labels.rule}</code>,
                by: ({ labels }) => labels.rule ?? "",
              },
              { name: "Came by", show: ({ labels }) => labels.protocol },
              { name: "Refused", show: ({ value }) => si(value, ""), isNumber: true },
            ]}
          />
        ) : (
          <Empty title="No limit was met, nothing was refused">
            <a href="/runbooks/service-refuses">What each rule and limit is for</a>
          </Empty>
        )}
      </Panel>
    </>
  );
}

/** What was refused at the door, and what is stored and cannot be used. */
export function Odd({ found, now }: { found: Refused; now: number }) {
  const rows = [
    ...found.refused.map((one) => ({ ...one, what: "refused" })),
    ...found.quarantined.map((one) => ({ ...one, what: "left out" })),
  ];
  return (
    <Panel
      title="Refused and left out"
      hint="Since this process started: refused is lost, left out is stored and judged by nothing"
    >
      {rows.length ? (
        <Table
          label="Refused and left out"
          rows={rows}
          keyOf={(one: Oddity & { what: string }) =>
            `${one.what} ${one.road} ${one.reason} ${one.sender}`
          }
          columns={[
            { name: "What", show: (one) => one.what },
            { name: "By", show: (one) => one.road, by: (one) => one.road },
            { name: "Why", show: (one) => <code>{one.reason}</code>, by: (one) => one.reason },
            { name: "Last", show: (one) => oddityWords(one, now) },
          ]}
        />
      ) : (
        <Empty title="Everything that came could be used" />
      )}
    </Panel>
  );
}

function Bars(props: {
  title: string;
  rows: readonly { readonly name: string; readonly value: number }[];
  whole?: number;
  /** The names are metrics, which Explore can show. */
  asks?: boolean;
}) {
  const most = Math.max(1, ...props.rows.map(({ value }) => value));
  return (
    <div>
      <h3>{props.title}</h3>
      <ul class="bars">
        {props.rows.slice(0, 10).map(({ name, value }) => (
          <li key={name}>
            <span class="mono clipped" title={name}>
              {props.asks ? <a href={href(["explore"], { query: name })}>{name}</a> : name}
            </span>
            <i style={{ width: `${(100 * value) / most}%` }} aria-hidden="true" />
            <b>{value.toLocaleString("en")}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}
