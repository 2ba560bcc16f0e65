/** Jobs in a table: who runs what, how fast, and what is wrong with it. */
import type { IncidentShort } from "../api/incidents";
import { type Job, unixSeconds } from "../api/jobs";
import { duration, moment, stamp } from "../format";
import { isoOf } from "../ui/csv";
import { type Column, Table } from "../ui/table";
import { StateBadge } from "./job-head";
import { silentWords } from "./job-words";

/** What is measured of jobs, by job; nothing for who is not measured now. */
export interface Measures {
  readonly step: ReadonlyMap<string, number>;
  readonly hosts: ReadonlyMap<string, number>;
  /** Unix seconds of the last step of running jobs without one now; undefined: not known yet. */
  readonly stopped: ReadonlyMap<string, number> | undefined;
}

interface Shown {
  readonly measures: Measures;
  readonly isNow: boolean;
  readonly jobHref: (job: Job) => string;
  readonly incidentHref: (incident: string) => string;
  readonly now: number;
}

export function JobTable(
  props: Shown & {
    jobs: readonly Job[];
    /** Those that are open, or those of the time that is looked at. */
    incidents: readonly IncidentShort[];
  },
) {
  const troubles = costliest(props.incidents);
  return (
    <Table
      label="Jobs"
      columns={[...identity(props), ...numbers(props), verdict(props, troubles)]}
      rows={props.jobs}
      keyOf={(job) => job.id}
      isMarked={(job) => troubles.has(job.id)}
      noun="job"
    />
  );
}

/** Of each job the incident that has cost it most. */
function costliest(incidents: readonly IncidentShort[]): ReadonlyMap<string, IncidentShort> {
  const found = new Map<string, IncidentShort>();
  for (const incident of incidents)
    for (const job of incident.jobs) {
      const known = found.get(job);
      if (!known || known.lost_seconds < incident.lost_seconds) found.set(job, incident);
    }
  return found;
}

const identity = ({ jobHref }: Shown): Column<Job>[] => [
  {
    name: "Job",
    show: (job) => (
      <a href={jobHref(job)}>
        <b>{job.name ?? job.id}</b>
      </a>
    ),
    by: (job) => job.name ?? job.id,
  },
  { name: "State", show: (job) => <StateBadge state={job.state} />, by: (job) => job.state },
  { name: "User", show: (job) => job.user ?? "–", by: (job) => job.user ?? "" },
];

function numbers({ measures, now }: Shown): Column<Job>[] {
  const startOf = (job: Job) => unixSeconds(job.started_at) ?? unixSeconds(job.first_seen) ?? 0;
  const lengthOf = (job: Job) => (unixSeconds(job.ended_at) ?? now) - startOf(job);
  return [
    {
      name: "Ranks",
      show: (job) => job.ranks?.toLocaleString("en") ?? "–",
      by: (job) => job.ranks ?? 0,
      isNumber: true,
    },
    {
      name: "Hosts",
      show: (job) => measures.hosts.get(job.id)?.toLocaleString("en") ?? "–",
      by: (job) => measures.hosts.get(job.id) ?? 0,
      isNumber: true,
    },
    {
      name: "Since",
      show: (job) => <span title={stamp(startOf(job))}>{moment(startOf(job), now)}</span>,
      by: startOf,
      isNumber: true,
      csv: (job) => isoOf(startOf(job)),
    },
    { name: "Ran for", show: (job) => duration(lengthOf(job)), by: lengthOf, isNumber: true },
    {
      name: "Step",
      show: (job) =>
        isSilent(job, measures) ? (
          <span class="silent">{silentWords(measures.stopped?.get(job.id), now)}</span>
        ) : (
          duration(measures.step.get(job.id))
        ),
      by: (job) => measures.step.get(job.id) ?? -1,
      isNumber: true,
    },
  ];
}

/** Runs, and no step of it is measured now. */
function isSilent(job: Job, { step, stopped }: Measures): boolean {
  return job.state === "running" && stopped !== undefined && !step.has(job.id);
}

const verdict = (
  { isNow, incidentHref }: Shown,
  troubles: ReadonlyMap<string, IncidentShort>,
): Column<Job> => ({
  name: isNow ? "Verdict" : "Costliest incident in this time",
  isFirstOnPhone: true,
  show: (job) => {
    const trouble = troubles.get(job.id);
    if (trouble)
      return (
        <a class="job-trouble" href={incidentHref(trouble.id)}>
          {trouble.summary}
        </a>
      );
    return <span class="soft">{isNow && job.state === "running" ? "no open incident" : "–"}</span>;
  },
  by: (job) => -(troubles.get(job.id)?.lost_seconds ?? -1),
});

/** Whether a job is called so: part of its name, id, user or cluster. */
export function isCalled(job: Job, words: string): boolean {
  const text = [job.id, job.name, job.user, job.cluster].filter(Boolean).join(" ").toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
