/** A configuration on its way to agents: where it stands, who kept it, who went back and why. */
import { type ComponentChildren, Fragment } from "preact";
import type { AgentConfiguration, AgentState, Configuration, Version } from "../api/configurations";
import { ago, count, duration, stamp } from "../format";
import { href } from "../route";
import { isoOf } from "../ui/csv";
import { Badge, Panel } from "../ui/panel";
import { Empty } from "../ui/states";
import { type Column, Table } from "../ui/table";
import { AGENT_ORDER, AGENT_STATES, STATES, shareWords, versionWords } from "./rollout-words";
import "../style/hosts.css";
import "../style/settings.css";

const unix = (text: string) => Date.parse(text) / 1000;

/** `acts`: buttons, or why there are none. */
export function RolloutPanel(props: {
  latest: Configuration;
  now: number;
  acts: ComponentChildren;
}) {
  const { latest, now } = props;
  const { version, hosts } = latest;
  const { rollout } = version;
  const { title, meaning, tone } = STATES[rollout.state];
  return (
    <Panel
      title={`Configuration ${version.version} of agents`}
      {...(tone ? { tone } : {})}
      aside={
        <span class="soft" title={stamp(unix(rollout.since))}>
          {ago(unix(rollout.since), now)}
        </span>
      }
    >
      <p class="rollout-state" role="status">
        <Badge tone={tone}>{title}</Badge> {shareWords(rollout)}.{" "}
        <span class="soft">{meaning}</span>
      </p>
      {rollout.reason && (
        <p class={rollout.state === "stopped" ? "bad-text" : ""}>
          {rollout.by ? `${rollout.by}: ` : ""}
          {rollout.reason}
        </p>
      )}
      {rollout.state === "stopped" && (
        <p>
          <a href="/runbooks/roll-out-stopped">What to do about a roll-out that stopped</a>
        </p>
      )}
      {latest.waits_for && <p>It goes on when this is over: {latest.waits_for}.</p>}
      <AgentBar hosts={hosts} />
      {latest.silent.length > 0 && (
        <p class="state stale">
          {count(latest.silent.length, "agent")} fell silent with it:{" "}
          {latest.silent.map((agent, place) => (
            <Fragment key={agent}>
              {place > 0 && ", "}
              <AgentLink agent={agent} />
            </Fragment>
          ))}
        </p>
      )}
      <dl class="facts">
        <Fact name="Pushed">
          by {version.by}, {ago(unix(version.at), now)}
          {version.why && `: ${version.why}`}
        </Fact>
        <Fact name="Trial of each agent">{duration(rollout.trial_seconds)}</Fact>
        <Fact name="Stopped by">
          {count(rollout.failures_max, "agent that goes back", "agents that go back")}
        </Fact>
        <Fact name="Others run">{versionWords(rollout.base)}</Fact>
        <Fact name="Signed">{version.is_signed ? "yes" : "no"}</Fact>
      </dl>
      {props.acts}
      <details class="rollout-document">
        <summary>The document</summary>
        <pre class="mono">{latest.document}</pre>
        <p class="soft">
          SHA-256 <code>{version.sha256}</code>
        </p>
      </details>
    </Panel>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** How many agents are how far, as parts of a bar and as a list that says it. */
function AgentBar({ hosts }: { hosts: Configuration["hosts"] }) {
  const parts = AGENT_ORDER.map((state) => ({ state, number: hosts[state] ?? 0 }));
  const all = parts.reduce((sum, { number }) => sum + number, 0);
  if (!all)
    return (
      <p class="soft">
        No agent that takes part has reported yet: <code>from_service = true</code> in a host's file
        lets it.
      </p>
    );
  return (
    <>
      <div class="rollout-bar" aria-hidden="true">
        {parts.map(({ state, number }) => (
          <i key={state} class={state} style={{ flexGrow: number }} />
        ))}
      </div>
      <ul class="rollout-counts" aria-label="How far agents are">
        {parts
          .filter(({ state, number }) => number > 0 || ALWAYS_COUNTED.has(state))
          .map(({ state, number }) => (
            <li key={state} title={AGENT_STATES[state].meaning}>
              <i class={state} aria-hidden="true" />
              <b>{number.toLocaleString("en")}</b> {AGENT_STATES[state].title}
            </li>
          ))}
      </ul>
    </>
  );
}

/** A nought says more than a gap. */
const ALWAYS_COUNTED: ReadonlySet<AgentState> = new Set(["good", "trying", "failed"]);

function AgentLink({ agent }: { agent: string }) {
  return <a href={href(["hosts", agent])}>{agent}</a>;
}

export function WentBack({ latest, now }: { latest: Configuration; now: number }) {
  const { failed, hosts } = latest;
  if (!failed.length) return null;
  const all = hosts.failed ?? failed.length;
  return (
    <Panel
      title="Agents that went back"
      hint={
        failed.length < all
          ? `${failed.length} of ${all}; all of them stand in the table of agents`
          : "They run their last good configuration"
      }
      tone="bad"
    >
      <Table
        label="Agents that went back"
        noun="agent"
        rows={failed}
        keyOf={(one) => one.agent}
        columns={[
          {
            name: "Agent",
            show: (one) => <AgentLink agent={one.agent} />,
            by: (one) => one.agent,
          },
          { name: "Why", show: (one) => one.detail || "it did not say" },
          { name: "Runs now", show: (one) => versionWords(one.version) },
          { name: "Said", ...when(now) },
        ]}
      />
    </Panel>
  );
}

/** The moment of an agent's report, by its own clock. */
function when(now: number): Omit<Column<AgentConfiguration>, "name"> {
  return {
    show: (one) => <span title={stamp(unix(one.at))}>{ago(unix(one.at), now)}</span>,
    by: (one) => unix(one.at),
    csv: (one) => isoOf(unix(one.at)),
  };
}

/** All agents that take part. */
export function AgentConfigurations(props: {
  agents: readonly AgentConfiguration[];
  isCut: boolean;
  now: number;
}) {
  const { agents, now } = props;
  if (!agents.length)
    return (
      <Empty title="No agent takes part">
        A host does if its own file says <code>[configuration] from_service = true</code>.
      </Empty>
    );
  return (
    <>
      <Table
        label="What agents run"
        noun="agent"
        rows={agents}
        keyOf={(one) => one.agent}
        columns={[
          {
            name: "Agent",
            show: (one) => <AgentLink agent={one.agent} />,
            by: (one) => one.agent,
          },
          {
            name: "State",
            show: (one) => one.state && <StateBadge state={one.state} />,
            by: (one) => (one.state === null ? -1 : AGENT_ORDER.indexOf(one.state)),
            csv: (one) => one.state ?? "",
          },
          {
            name: "Runs",
            show: (one) => versionWords(one.version),
            by: (one) => one.version,
            csv: (one) => one.version,
          },
          { name: "Why", show: (one) => one.detail || "–", csv: (one) => one.detail },
          {
            name: "Reports",
            show: (one) => (one.reports ? "yes" : <Badge tone="warn">silent</Badge>),
            by: (one) => Number(one.reports),
            csv: (one) => (one.reports ? "yes" : "no"),
          },
          { name: "Said", ...when(now) },
        ]}
      />
      {props.isCut && (
        <p class="soft">
          The first {agents.length.toLocaleString("en")} by name;{" "}
          <code>fabricscope config hosts</code> lists all.
        </p>
      )}
    </>
  );
}

function StateBadge({ state }: { state: AgentState }) {
  const { title, meaning, tone } = AGENT_STATES[state];
  return (
    <span title={meaning}>
      <Badge tone={tone}>{title}</Badge>
    </span>
  );
}

export function Versions({ versions, now }: { versions: readonly Version[]; now: number }) {
  return (
    <Panel
      title="Versions"
      hint="The newest one counts; agents outside its share run the one before"
    >
      <Table
        label="Versions of configurations"
        noun="version"
        rows={versions}
        keyOf={(one) => String(one.version)}
        columns={[
          { name: "Version", show: (one) => one.version, by: (one) => one.version, isNumber: true },
          {
            name: "State",
            show: ({ rollout }) => (
              <Badge tone={STATES[rollout.state].tone}>{STATES[rollout.state].title}</Badge>
            ),
            by: ({ rollout }) => rollout.state,
            csv: ({ rollout }) => rollout.state,
          },
          {
            name: "Reached",
            show: ({ rollout }) => `${rollout.shares[rollout.stage]} %`,
            by: ({ rollout }) => rollout.shares[rollout.stage] ?? 0,
            isNumber: true,
          },
          { name: "By", show: (one) => one.by, by: (one) => one.by },
          { name: "Why", show: (one) => one.why },
          {
            name: "Pushed",
            show: (one) => <span title={stamp(unix(one.at))}>{ago(unix(one.at), now)}</span>,
            by: (one) => unix(one.at),
            csv: (one) => isoOf(unix(one.at)),
          },
        ]}
      />
    </Panel>
  );
}
