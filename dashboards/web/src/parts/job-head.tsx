/** Who a job is and how it stands, and the ways from it to everything else. */
import type { ComponentChildren } from "preact";
import { type JobDetail, unixSeconds } from "../api/jobs";
import { count, duration, moment } from "../format";
import { Badge, Panel } from "../ui/panel";
import type { Statement } from "./job-words";

export function JobHead(props: {
  job: JobDetail;
  /** Undefined while it is not known yet. */
  statement: Statement | undefined;
  /** Unix seconds. */
  now: number;
  incidentHref?: (incident: string) => string;
  /** Links and buttons. */
  children?: ComponentChildren;
}) {
  const { job, statement } = props;
  return (
    <Panel class="job-head" {...(statement ? { tone: statement.tone } : {})}>
      <div class="job-title">
        <h1>{job.name ?? job.id}</h1>
        <StateBadge state={job.state} />
        {job.name && <span class="soft mono">{job.id}</span>}
      </div>
      <p class="soft facts">{factsOf(job, props.now).join(" · ")}</p>
      <p class={`job-statement ${statement?.tone ?? ""}`} role="status">
        {statement ? (
          <Sentence statement={statement} {...hrefOf(props.incidentHref)} />
        ) : (
          "Asking for its verdict …"
        )}
      </p>
      <div class="row job-ways">{props.children}</div>
    </Panel>
  );
}

const hrefOf = (incidentHref: ((incident: string) => string) | undefined) =>
  incidentHref ? { incidentHref } : {};

function Sentence(props: { statement: Statement; incidentHref?: (incident: string) => string }) {
  const { text, incident, more } = props.statement;
  return (
    <>
      {text}{" "}
      {incident && props.incidentHref && <a href={props.incidentHref(incident)}>The incident</a>}
      {more && <span class="soft"> {more}</span>}
    </>
  );
}

export function StateBadge({ state }: { state: string }) {
  return <Badge tone={state === "running" ? "good" : ""}>{state}</Badge>;
}

function factsOf(job: JobDetail, now: number): string[] {
  const started = unixSeconds(job.started_at) ?? unixSeconds(job.first_seen);
  const ended = unixSeconds(job.ended_at);
  const facts = [
    `${job.ranks === null ? count(job.ranks_known, "known rank") : count(job.ranks, "rank")} on ${count(job.hosts.length, "host")}`,
    count(job.communicator_count, "communicator"),
  ];
  if (started !== undefined && ended !== undefined)
    facts.push(`${moment(started, now)} to ${moment(ended, now)}, ${duration(ended - started)}`);
  else if (started !== undefined)
    facts.push(`since ${moment(started, now)}, ${duration(now - started)}`);
  for (const [label, value] of [
    ["", job.user],
    ["", job.scheduler],
    ["cluster ", job.cluster],
  ] as const)
    if (value) facts.push(label + value);
  return facts;
}
