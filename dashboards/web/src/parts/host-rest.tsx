/** What else is known of a host: its jobs, its agent, its settings, what happened to it. */
import { useState } from "preact/hooks";
import type { Audit, HostDetail, HostEvent, JobOnHost } from "../api/hosts";
import type { Reading } from "../api/service";
import { ago, count, duration, moment, si } from "../format";
import { href } from "../route";
import { isoOf } from "../ui/csv";
import { Badge, Panel } from "../ui/panel";
import { Empty } from "../ui/states";
import { Table } from "../ui/table";
import { spans } from "./host-history";
import type { agentQuestions } from "./host-questions";
import "../style/hosts.css";

export function JobPanel({ jobs, now }: { jobs: readonly JobOnHost[]; now: number }) {
  return (
    <Panel title="Jobs" hint="Those that run first">
      {jobs.length ? (
        <Table
          label="Jobs on this host"
          noun="job"
          rows={jobs}
          keyOf={({ job }) => job.id}
          columns={[
            {
              name: "Job",
              show: ({ job }) => <a href={href(["job", job.id])}>{job.name ?? job.id}</a>,
            },
            {
              name: "State",
              show: ({ job }) => (
                <Badge tone={job.state === "running" ? "good" : ""}>{job.state}</Badge>
              ),
            },
            {
              name: "Ranks here",
              show: ({ job, ranks }) =>
                ranks.length
                  ? `${spans(ranks.map((rank) => rank.rank))} of ${job.ranks ?? "?"}`
                  : `some of ${job.ranks ?? "?"}`,
            },
            { name: "User", show: ({ job }) => job.user ?? "–" },
            {
              name: "Since",
              show: ({ job }) =>
                job.state === "running" && job.started_at
                  ? ago(Date.parse(job.started_at) / 1000, now)
                  : `seen ${ago(Date.parse(job.last_seen) / 1000, now)}`,
              isNumber: true,
            },
          ]}
        />
      ) : (
        <Empty title="No job was ever seen on this host" />
      )}
    </Panel>
  );
}

// --- agent -----------------------------------------------------------------------------------------

export type AgentNumbers = Readonly<
  Record<keyof ReturnType<typeof agentQuestions>, readonly Reading[]>
>;

const first = (readings: readonly Reading[]) => readings[0]?.value;
const of = (readings: readonly Reading[], source: string) =>
  readings.find(({ labels }) => labels.source === source)?.value;

export function AgentPanel(props: { host: HostDetail; numbers: AgentNumbers; now: number }) {
  const { host, numbers, now } = props;
  const known = numbers.up.map(({ labels }) => labels.source ?? "").sort();
  const sources = known.filter(
    (source) =>
      !of(numbers.up, source) || of(numbers.readings, source) || of(numbers.missing, source),
  );
  const dropped = first(numbers.dropped) ?? 0;
  const behind = first(numbers.behind) ?? 0;
  const started = first(numbers.started);
  return (
    <Panel
      title="Agent"
      hint={
        host.agent
          ? `${host.agent} ${host.agent_version ?? numbers.version[0]?.labels.version ?? ""}`
          : ""
      }
    >
      {!host.agent && (
        <p class="soft">
          No agent of ours runs there: what is known of it came by remote write or OTLP, or from a
          poller elsewhere.
        </p>
      )}
      <dl class="facts">
        <div>
          <dt>Known since</dt>
          <dd>{moment(Date.parse(host.first_seen) / 1000, now)}</dd>
        </div>
        {host.batches_missing !== null && (
          <div>
            <dt>Batches not received</dt>
            <dd class={host.batches_missing ? "bad-text" : ""}>
              {host.batches_missing.toLocaleString("en")} of{" "}
              {((host.last_sequence ?? 0) + 1).toLocaleString("en")}
            </dd>
          </div>
        )}
        {started !== undefined && (
          <div>
            <dt>Runs</dt>
            <dd>since {moment(started, now)}</dd>
          </div>
        )}
        {(behind > 0 || dropped >= 1) && (
          <div>
            <dt>Delivery</dt>
            <dd class="bad-text">
              {behind > 0 && `${duration(behind)} behind, ${si(first(numbers.waiting), "B")} wait`}{" "}
              {dropped >= 1 && `${count(Math.round(dropped), "sample")} lost in 15 min`}
            </dd>
          </div>
        )}
      </dl>
      {sources.length > 0 && (
        <Table
          label="Sources of the agent"
          noun="source"
          rows={sources}
          keyOf={(source) => source}
          isMarked={(source) => of(numbers.up, source) === 0}
          columns={[
            { name: "Source", show: (source) => <code>{source}</code>, by: (source) => source },
            {
              name: "State",
              show: (source) => (
                <Badge tone={of(numbers.up, source) ? "good" : "bad"}>
                  {of(numbers.up, source) ? "reads" : "fails"}
                </Badge>
              ),
            },
            {
              name: "Readings",
              show: (source) => (of(numbers.readings, source) ?? 0).toLocaleString("en"),
              isNumber: true,
            },
            {
              name: "Missing",
              show: (source) => (of(numbers.missing, source) ?? 0).toLocaleString("en"),
              isNumber: true,
            },
            { name: "Took", show: (source) => duration(of(numbers.took, source)), isNumber: true },
          ]}
        />
      )}
      {known.length > sources.length && (
        <p class="soft">
          {count(known.length - sources.length, "other source")} found nothing to read here.
        </p>
      )}
    </Panel>
  );
}

// --- settings --------------------------------------------------------------------------------------

const SEVERITY_TONES = { critical: "bad", warning: "warn", info: "" } as const;

export function AuditPanel({ audit }: { audit: Audit }) {
  return (
    <Panel title="Settings that cost bandwidth" hint="By the audit of the fleet">
      {audit.items.length ? (
        <ul class="findings">
          {audit.items.map((one) => (
            <li key={`${one.check} ${one.device} ${one.title}`}>
              <Badge tone={SEVERITY_TONES[one.severity]}>{one.severity}</Badge>
              <details>
                <summary>
                  {one.device && <b>{one.device} </b>}
                  {one.title}
                </summary>
                {one.read.map((read) => (
                  <div key={`${read.device} ${read.setting}`}>
                    <code>{read.setting}</code> is <b>{read.value}</b>, expected {one.expected}{" "}
                    <span class="soft">({read.origin})</span>
                  </div>
                ))}
                <div>{one.why}</div>
                {one.cost && <div class="soft">{one.cost}</div>}
                <div>
                  <b>Do:</b> {one.fix} <span class="soft">{one.source}</span>
                </div>
              </details>
            </li>
          ))}
        </ul>
      ) : (
        <Empty
          title={audit.hosts ? "Nothing found" : "No host has sent its settings within 20 minutes"}
        >
          {audit.hosts
            ? `Of ${count(audit.hosts, "host")} that were looked at, this one is as it should be.`
            : ""}
        </Empty>
      )}
      {audit.next && <p class="soft">There are more: ask /v1/audit.</p>}
    </Panel>
  );
}

// --- events ----------------------------------------------------------------------------------------

const NS = 1e9;
const BAD_KINDS = new Set(["link_down", "link_flap", "gpu_xid"]);
/** Which communicators a rank has: reported when a job starts and again by every dump. Facts, not events. */
const FACTS = new Set(["communicator", "process_group"]);

export function EventPanel(props: { events: readonly HostEvent[]; isCut: boolean; now: number }) {
  const [kind, setKind] = useState("");
  const kinds = [...new Set(props.events.map((event) => event.kind))].sort();
  const shown = props.events.filter((event) =>
    kind ? kind === "all" || event.kind === kind : !FACTS.has(event.kind),
  );
  const facts = props.events.filter((event) => FACTS.has(event.kind)).length;
  return (
    <Panel
      title="Events"
      hint={props.isCut ? `the newest ${props.events.length} of this time` : "in this time"}
      aside={
        kinds.length > 0 && (
          <select
            aria-label="Kind of event"
            value={kind}
            onChange={(event) => setKind(event.currentTarget.value)}
          >
            <option value="">what happened</option>
            <option value="all">all kinds</option>
            {kinds.map((one) => (
              <option key={one} value={one}>
                {one.replaceAll("_", " ")}
              </option>
            ))}
          </select>
        )
      }
    >
      {shown.length ? (
        <Table
          label="Events of this host"
          noun="event"
          rows={shown.slice(0, EVENTS_AT_ONCE)}
          keyOf={(event) => event.id}
          columns={[
            {
              name: "When",
              show: (event) => <span class="when">{moment(event.time_ns / NS, props.now)}</span>,
              by: (event) => event.time_ns,
              csv: (event) => isoOf(event.time_ns / NS),
            },
            {
              name: "What",
              show: (event) => (
                <Badge tone={BAD_KINDS.has(event.kind) ? "bad" : ""}>
                  {event.kind.replaceAll("_", " ")}
                </Badge>
              ),
              by: (event) => event.kind,
            },
            { name: "Part", show: (event) => partOf(event) },
            { name: "What was seen", show: (event) => event.message || details(event) },
          ]}
        />
      ) : (
        <Empty title="Nothing happened in this time">
          {facts > 0 && `${count(facts, "event")} about communicators of jobs; choose "all kinds".`}
        </Empty>
      )}
      {shown.length > EVENTS_AT_ONCE && (
        <p class="soft">
          {shown.length - EVENTS_AT_ONCE} more of this time; choose a kind, or a shorter time.
        </p>
      )}
    </Panel>
  );
}

/** A list of events is read from its top; more of them push everything else off the page. */
const EVENTS_AT_ONCE = 50;

function partOf({ labels }: HostEvent): string {
  const { device, port, gpu, rank, communicator } = labels;
  return [
    device,
    port,
    gpu === undefined ? "" : `GPU ${gpu}`,
    rank === undefined ? "" : `rank ${rank}`,
    communicator,
  ]
    .filter(Boolean)
    .join(" ");
}

function details({ attributes }: HostEvent): string {
  return Object.entries(attributes)
    .slice(0, 4)
    .map(([name, value]) => `${name} ${value.slice(0, 60)}`)
    .join(", ");
}
