/** The fleet as a table: why each host stands as it does, what runs on it, when it was heard of. */
import type { HostHealth } from "../api/hosts";
import { ago, count } from "../format";
import { href } from "../route";
import { isoOf } from "../ui/csv";
import { Badge } from "../ui/panel";
import { Empty } from "../ui/states";
import { Table } from "../ui/table";
import { Mark } from "./host-grid";
import { LOOKS, lookOf, reasonWords, toneOf } from "./host-words";
import "../style/hosts.css";

/** From this score on a host is a lemon (LEMON_FROM of the service). */
const LEMON_FROM = 0.7;

export function StateBadge({ host }: { host: Pick<HostHealth, "state" | "reasons"> }) {
  const look = lookOf(host);
  return (
    <span class="host-state">
      <Mark look={look} />
      <Badge tone={toneOf(look)}>{look}</Badge>
    </span>
  );
}

/** A number from 0 to 1 with a bar, so that a column of them can be read at a glance. */
export function Meter({ value, tone }: { value: number; tone: string }) {
  return (
    <span class={`meter ${tone}`}>
      <i style={{ width: `${Math.ceil(value * 100)}%` }} aria-hidden="true" />
      {value.toFixed(2)}
    </span>
  );
}

export const riskTone = (risk: number) => (risk >= 0.5 ? "bad" : risk >= 0.2 ? "warn" : "");

function Reasons({ reasons, now }: { reasons: readonly string[]; now: number }) {
  if (!reasons.length) return <span class="soft">–</span>;
  return (
    <ul class="host-reasons">
      {reasons.map((reason) => {
        const { text, incident, isOpen } = reasonWords(reason, now);
        return (
          <li key={reason} class={isOpen ? "" : "soft"}>
            {incident ? <a href={href(["incident", incident])}>{text}</a> : text}
          </li>
        );
      })}
    </ul>
  );
}

function Jobs({ jobs }: { jobs: ReadonlyMap<string, number> | undefined }) {
  if (!jobs)
    return (
      <span class="soft" title="Asked for the first hosts of a list only: search for this one">
        …
      </span>
    );
  if (!jobs.size) return <span class="soft">–</span>;
  return (
    <>
      {[...jobs].map(([job, ranks]) => (
        <div key={job}>
          <a href={href(["job", job])}>{job}</a> <span class="soft">{count(ranks, "rank")}</span>
        </div>
      ))}
    </>
  );
}

export function HostTable(props: {
  /** In the order in which they are shown. */
  hosts: readonly HostHealth[];
  jobs: ReadonlyMap<string, ReadonlyMap<string, number>>;
  /** Unix seconds; undefined where it is not known yet. */
  lastSeen: (host: string) => number | undefined;
  now: number;
}) {
  const { lastSeen, now } = props;
  if (!props.hosts.length)
    return (
      <Empty title="No host is like that">
        <a href={href(["hosts"])}>Show all hosts</a>
      </Empty>
    );
  return (
    <div class="host-table">
      <Table
        label="Hosts"
        noun="host"
        rows={props.hosts}
        keyOf={(host) => host.host}
        columns={[
          {
            name: "Host",
            show: (host) => <a href={href(["hosts", host.host])}>{host.host}</a>,
            by: (host) => host.host,
          },
          {
            name: "State",
            show: (host) => <StateBadge host={host} />,
            by: (host) => LOOKS.indexOf(lookOf(host)),
          },
          {
            name: "Risk",
            show: (host) => <Meter value={host.risk} tone={riskTone(host.risk)} />,
            by: (host) => host.risk,
            isNumber: true,
          },
          {
            name: "Lemon",
            show: (host) => (
              <Meter value={host.lemon} tone={host.lemon >= LEMON_FROM ? "warn" : ""} />
            ),
            by: (host) => host.lemon,
            isNumber: true,
          },
          { name: "Why", show: (host) => <Reasons reasons={host.reasons ?? []} now={now} /> },
          { name: "Jobs now", show: (host) => <Jobs jobs={props.jobs.get(host.host)} /> },
          {
            name: "Heard",
            show: (host) => {
              const seen = lastSeen(host.host);
              return seen === undefined ? "–" : ago(seen, now);
            },
            by: (host) => lastSeen(host.host) ?? Number.NaN,
            isNumber: true,
            csv: (host) => isoOf(lastSeen(host.host) ?? Number.NaN),
          },
        ]}
      />
    </div>
  );
}
