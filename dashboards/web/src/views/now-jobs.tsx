/** Running jobs in a line each: the step now against usual, over the last hour, waiting, network. */

import type { Page } from "../api/client";
import { askMeasured, askStepTimes, askStopped } from "../api/fleet";
import type { Incident, IncidentShort } from "../api/incidents";
import type { Job } from "../api/jobs";
import { count, duration, percent } from "../format";
import { silentWords } from "../parts/job-words";
import { Spark } from "../parts/now-spark";
import {
  againstUsual,
  type Judged,
  judgedStep,
  SLOWER,
  slowdown,
  usualOf,
} from "../parts/now-state";
import { causeOf } from "../parts/verdict-words";
import { type Resource, useResource } from "../resource";
import { href } from "../route";
import { now } from "../time";
import { Badge, Panel } from "../ui/panel";
import { Empty, Shown } from "../ui/states";
import { type Column, Table } from "../ui/table";

const HOUR = 3600;

interface Row {
  readonly job: Job;
  readonly step: number | undefined;
  readonly usual: number | undefined;
  readonly judged: Judged | undefined;
  readonly network: number | undefined;
  readonly wait: number | undefined;
  readonly times: readonly number[];
  readonly values: readonly number[];
  /** Words where nothing is measured now. */
  readonly silent: string | undefined;
  readonly trouble: { readonly id: string; readonly cause: string } | undefined;
}

export function Jobs(props: {
  jobs: Resource<Page<Job>>;
  open: readonly (Incident | IncidentShort)[];
  isFresh: boolean;
}) {
  const measured = useResource(
    "measured",
    (abort) => askMeasured(now.value, abort),
    Math.floor(now.value / 15),
  );
  const lines = useResource(
    "steps",
    async (abort) => ({ to: now.value, series: await askStepTimes(now.value, abort) }),
    Math.floor(now.value / 60),
  );
  const silent = (props.jobs.data?.items ?? [])
    .map((job) => job.id)
    .filter((id) => measured.data && measured.data.get(id)?.step === undefined);
  const stopped = useResource(
    `stopped ${silent.join(" ")}`,
    (abort) => askStopped(silent, now.value, abort),
    Math.floor(now.value / 60),
  );
  const to = lines.data?.to ?? now.value;
  return (
    <Panel
      class="jobs-now"
      title="Running jobs"
      hint="Step time over the last hour; the dashed line is what is usual"
      aside={<a href={href(["job"])}>All jobs</a>}
    >
      <Shown
        resource={props.jobs}
        what="running jobs"
        isEmpty={(data) => data.items.length === 0}
        empty={
          <Empty title="No job runs">
            Jobs are found by what agents see: NCCL's records, or the scheduler's. One that runs is
            here within a minute.
          </Empty>
        }
      >
        {(data) => (
          <>
            <JobTable
              rows={data.items.map((job) =>
                rowOf(job, measured.data, lines.data?.series, props.open, stopped.data),
              )}
              from={to - HOUR}
              to={to}
              isFresh={props.isFresh}
            />
            {data.next !== null && (
              <p class="soft">
                The first {count(data.items.length, "job")}. <a href={href(["job"])}>All jobs</a>
              </p>
            )}
          </>
        )}
      </Shown>
    </Panel>
  );
}

function rowOf(
  job: Job,
  measured: Awaited<ReturnType<typeof askMeasured>> | undefined,
  lines: Awaited<ReturnType<typeof askStepTimes>> | undefined,
  open: readonly (Incident | IncidentShort)[],
  stopped: ReadonlyMap<string, number> | undefined,
): Row {
  const own = measured?.get(job.id);
  const line = lines?.find((one) => one.labels.job === job.id);
  const trouble = open.find((one) => one.jobs.includes(job.id));
  const judged = judgedStep(
    job.id,
    open.flatMap((one) => ("verdict" in one ? one.verdict.costs : one.costs)),
  );
  return {
    job,
    step: own?.step,
    usual: usualOf(judged, own?.usual, line?.values ?? []),
    judged,
    network: own?.network,
    wait: own?.wait,
    times: line?.times ?? [],
    values: line?.values ?? [],
    silent:
      measured && stopped && own?.step === undefined
        ? silentWords(stopped.get(job.id), now.value)
        : undefined,
    trouble: trouble && {
      id: trouble.id,
      cause: "verdict" in trouble ? trouble.verdict.cause : trouble.cause,
    },
  };
}

/** What is known to be wrong with it; a job that is not evaluated is not called well. */
function Verdict({ row, isFresh }: { row: Row; isFresh: boolean }) {
  if (row.trouble)
    return (
      <a href={href(["incident", row.trouble.id])}>
        <Badge tone="bad">{causeOf(row.trouble.cause).title}</Badge>
      </a>
    );
  if (!isFresh || row.silent) return <Badge>not judged</Badge>;
  return isSlow(row) ? (
    <Badge tone="warn">slower, no cause found</Badge>
  ) : (
    <Badge tone="good">nothing wrong</Badge>
  );
}

function JobTable(props: { rows: readonly Row[]; from: number; to: number; isFresh: boolean }) {
  const { rows, from, to, isFresh } = props;
  const columns: readonly Column<Row>[] = [
    {
      name: "Job",
      by: (row) => row.job.id,
      show: (row) => (
        <>
          <a href={href(["job", row.job.id])}>{row.job.name ?? row.job.id}</a>
          <small class="soft own-line">
            {[row.job.user, row.job.ranks === null ? null : count(row.job.ranks, "rank")]
              .filter(Boolean)
              .join(", ")}
          </small>
        </>
      ),
    },
    {
      name: "Verdict",
      by: (row) => row.trouble?.cause ?? "",
      show: (row) => <Verdict row={row} isFresh={isFresh} />,
    },
    {
      name: "Step now",
      isNumber: true,
      by: (row) => row.step ?? Number.NaN,
      show: (row) => (
        <b class={isSlow(row) || isStuck(row) ? "now-bad" : row.silent ? "silent" : ""}>
          {isStuck(row) ? "stands still" : (row.silent ?? duration(row.step))}
        </b>
      ),
    },
    {
      name: "Usual",
      isNumber: true,
      by: (row) => row.usual ?? Number.NaN,
      show: (row) => (
        <>
          {duration(row.usual)}
          <small class="soft own-line">{slowerWords(row)}</small>
        </>
      ),
    },
    {
      name: "Last hour",
      show: (row) => (
        <Spark
          label={`Step time of ${row.job.id}`}
          times={row.times}
          values={row.values}
          from={from}
          to={to}
          usual={row.usual}
          isBad={isSlow(row) || isStuck(row)}
        />
      ),
    },
    {
      name: "Waits for ranks",
      isNumber: true,
      by: (row) => row.wait ?? Number.NaN,
      show: (row) => <Share value={row.wait} kind="wait" />,
    },
    {
      name: "Network",
      isNumber: true,
      by: (row) => row.network ?? Number.NaN,
      show: (row) => <Share value={row.network} kind="transfer" />,
    },
  ];
  return (
    <Table
      label="Running jobs"
      columns={columns}
      rows={rows}
      keyOf={(row) => row.job.id}
      noun="job"
      hasOwnPhoneLook
    />
  );
}

function isSlow(row: Row): boolean {
  return (slowdown(row.step, row.usual) ?? 1) >= SLOWER;
}

/** The last step's time means nothing for a job that makes no steps. */
function isStuck(row: Row): boolean {
  return row.trouble !== undefined && causeOf(row.trouble.cause).family === "stuck";
}

function slowerWords(row: Row): string {
  if (isStuck(row)) return "";
  return againstUsual(row.step, row.usual, row.trouble !== undefined, row.judged);
}

function Share({ value, kind }: { value: number | undefined; kind: "wait" | "transfer" }) {
  return (
    <span class="now-share">
      {percent(value)}
      <span class="verdict-meter" aria-hidden="true">
        <i class={kind} style={{ width: `${Math.min(1, value ?? 0) * 100}%` }} />
      </span>
    </span>
  );
}
