/** All jobs, by state and by name; what is measured of them is of the end of the time looked at. */
import { askStopped } from "../api/fleet";
import {
  askIncidents,
  askJobs,
  askOpenIncidents,
  JOBS_MAX,
  type Job,
  unixSeconds,
} from "../api/jobs";
import { instant } from "../api/promql";
import { count } from "../format";
import { changes } from "../live";
import { isCalled, JobTable } from "../parts/job-list";
import { useResource } from "../resource";
import { href, route, withQuery } from "../route";
import "../style/job.css";
import { now, range } from "../time";
import { Panel } from "../ui/panel";
import { Empty, Loading, Shown } from "../ui/states";

const STATES = ["running", "ended"];
/** Of an ended job its last half hour is shown: what became of it. */
const LAST_SECONDS = 1800;
const PULSE_SECONDS = 30;

export function JobListView() {
  const { state = "", search = "" } = route.value.query;
  const pulse = Math.floor(now.value / PULSE_SECONDS);
  const jobs = useResource(`jobs ${state}`, (abort) => askJobs(state || undefined, abort), pulse);
  const { to } = range.value;
  const measures = useResource(
    "jobs' measures",
    (abort) => askMeasures(to, abort),
    `${pulse} ${route.value.query.to}`,
  );
  const silent = (jobs.data?.items ?? [])
    .filter(({ id, state }) => state === "running" && measures.data && !measures.data.step.has(id))
    .map((job) => job.id);
  const stopped = useResource(
    `stopped ${silent.join(" ")}`,
    (abort) => askStopped(silent, to, abort),
    pulse,
  );
  const { from: begin, to: end, last } = range.value;
  const incidents = useResource(
    "incidents",
    (abort) =>
      last === undefined ? askIncidents(undefined, begin, end, abort) : askOpenIncidents(abort),
    changes.value,
    last === undefined ? `${begin} ${end}` : "open",
  );
  // Verdicts make rows higher, so that the table comes with them; without them if they cannot be had.
  const isComplete = incidents.data !== undefined || incidents.failure !== undefined;
  return (
    <>
      <h1 class="unseen">Jobs</h1>
      <Panel title="Jobs" aside={<Filters state={state} search={search} />}>
        <Shown
          resource={jobs}
          what="jobs"
          isEmpty={({ items }) => items.length === 0}
          empty={<NoJobs state={state} />}
        >
          {({ items, isCut }) => {
            if (!isComplete) return <Loading what="incidents" since={incidents.askedAt} />;
            const found = items.filter((job) => isCalled(job, search));
            return (
              <>
                {isCut && <p class="soft">The first {count(JOBS_MAX, "job")} by name are shown.</p>}
                {found.length ? (
                  <JobTable
                    jobs={newestFirst(found)}
                    measures={{
                      ...(measures.data ?? { step: new Map(), hosts: new Map() }),
                      stopped: measures.data && stopped.data,
                    }}
                    incidents={incidents.data ?? []}
                    isNow={last !== undefined}
                    jobHref={jobHref}
                    incidentHref={(incident) => href(["incident", incident])}
                    now={now.value}
                  />
                ) : (
                  <Empty title={`No job is called "${search}"`}>
                    Names, ids, users and clusters are searched.
                  </Empty>
                )}
              </>
            );
          }}
        </Shown>
      </Panel>
    </>
  );
}

function Filters({ state, search }: { state: string; search: string }) {
  return (
    <>
      <select
        aria-label="State"
        value={state}
        onChange={(event) => withQuery({ state: event.currentTarget.value })}
      >
        <option value="">any state</option>
        {STATES.map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
      <input
        type="search"
        aria-label="Search jobs"
        placeholder="Name, user, cluster"
        value={search}
        onInput={(event) => withQuery({ search: event.currentTarget.value }, { replace: true })}
      />
    </>
  );
}

function NoJobs({ state }: { state: string }) {
  if (state)
    return (
      <Empty title={`No job is ${state}`}>
        <button type="button" onClick={() => withQuery({ state: undefined })}>
          Show all
        </button>
      </Empty>
    );
  return (
    <Empty title="No job was seen yet">
      Jobs appear by themselves when an agent sees one's processes or its NCCL records; a scheduler
      may also announce them with <code>POST /v1/jobs</code>.
    </Empty>
  );
}

/** Running ones first, then by start. */
function newestFirst(jobs: readonly Job[]): Job[] {
  const start = (job: Job) => unixSeconds(job.started_at) ?? unixSeconds(job.first_seen) ?? 0;
  return [...jobs].sort(
    (a, b) => Number(b.state === "running") - Number(a.state === "running") || start(b) - start(a),
  );
}

function jobHref(job: Job): string {
  const { from, to, last } = route.value.query;
  const end = unixSeconds(job.ended_at);
  if (job.state !== "ended" || end === undefined || (from && to))
    return href(["job", job.id], { from, to, last });
  const start = unixSeconds(job.started_at) ?? end - LAST_SECONDS;
  return href(["job", job.id], {
    from: Math.max(start, end - LAST_SECONDS).toFixed(0),
    to: Math.ceil(end),
  });
}

async function askMeasures(time: number, abort: AbortSignal) {
  const [step, hosts] = await Promise.all([
    byJob("max by (job) (fabric_job_step_seconds)", time, abort),
    byJob(
      "count by (job) (group by (job, host) (fabric_rank_lateness_seconds or fabric_job_info))",
      time,
      abort,
    ),
  ]);
  return { step, hosts };
}

async function byJob(query: string, time: number, abort: AbortSignal) {
  const series = await instant(query, time, abort);
  return new Map(series.map(({ labels, values }) => [labels.job ?? "", values[0] ?? Number.NaN]));
}
