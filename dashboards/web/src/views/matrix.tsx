/** The traffic matrix of a job: `#/matrix?job=ID&by=host&show=speed&source=…&target=…`. */
import { useMemo } from "preact/hooks";
import { type IncidentShort, named } from "../api/incidents";
import { askIncidents, askJobs, type Job, unixSeconds } from "../api/jobs";
import {
  askMatrix,
  askRanks,
  askStepLengths,
  askWays,
  type Balance,
  BYS,
  type By,
  type Matrix as MatrixData,
  type RankPlace,
} from "../api/matrix";
import { count, duration, moment, percent, si } from "../format";
import { changes } from "../live";
import { MatrixBalance } from "../parts/matrix-balance";
import { MatrixCell, MatrixWays } from "../parts/matrix-cell";
import type { Marker } from "../parts/matrix-draw";
import { type Grid, gridOf, numberOf, type Quantity, telling } from "../parts/matrix-grid";
import { MatrixMap } from "../parts/matrix-map";
import { MatrixPairs } from "../parts/matrix-pairs";
import { MatrixRhythm } from "../parts/matrix-rhythm";
import { MatrixTrust } from "../parts/matrix-trust";
import {
  accused,
  BY_WORDS,
  called,
  checkWords,
  during,
  endpoint,
  everybody,
  headline,
  isOnWay,
} from "../parts/matrix-words";
import { type Resource, useResource } from "../resource";
import { href, type Query, route, withQuery } from "../route";
import { fix, now, range, rangeWord } from "../time";
import { Panel, Tile } from "../ui/panel";
import { Empty, Shown } from "../ui/states";
import { Table } from "../ui/table";

/** How often a matrix that follows the clock is asked for anew: it costs the service seconds. */
const PULSE_SECONDS = 60;
/** How much of a job that has ended is looked at first. */
const LAST_PART_SECONDS = 1800;

/** Asked for anew when the range is another, or, while it follows the clock, with every pulse. */
function useRanged<T>(
  what: string,
  load: (from: number, to: number, abort: AbortSignal) => Promise<T>,
  news = 0,
): Resource<T> {
  const isFollowing = range.value.last !== undefined;
  return useResource(
    `${what} ${rangeWord.value}`,
    (abort) => load(range.value.from, range.value.to, abort),
    `${isFollowing ? Math.floor(now.value / PULSE_SECONDS) : 0} ${news}`,
  );
}

/** The time that is looked at, for links to other views. */
function timeQuery(): Query {
  const { from, to, last } = route.value.query;
  return { from, to, last };
}

export default function Matrix() {
  const { job } = route.value.query;
  const jobs = useResource("jobs", (abort) => askJobs(undefined, abort), changes.value);
  if (!job) return <JobList jobs={jobs} />;
  return <JobMatrix key={job} job={job} jobs={jobs.data?.items ?? []} />;
}

// --- which job ----------------------------------------------------------------------------------

/** A job's matrix; of one that has ended, of its last half hour. */
function matrixOf(job: Job): string {
  const end = unixSeconds(job.ended_at);
  if (end === undefined) return href(["matrix"], { ...timeQuery(), job: job.id });
  const start = Math.max(end - LAST_PART_SECONDS, unixSeconds(job.started_at) ?? 0);
  return href(["matrix"], { job: job.id, from: start.toFixed(0), to: Math.ceil(end).toFixed(0) });
}

function JobList({ jobs }: { jobs: Resource<{ items: Job[]; isCut: boolean }> }) {
  return (
    <Panel title="Traffic matrix" hint="Choose a job">
      <h1 class="unseen">Matrix</h1>
      <Shown
        resource={jobs}
        what="jobs"
        isEmpty={(data) => data.items.length === 0}
        empty={
          <Empty title="No job is known yet">
            A job is known as soon as its ranks write NCCL Inspector files or a scheduler registers
            it. See <a href="/docs">POST /v1/jobs</a>.
          </Empty>
        }
      >
        {(data) => (
          <>
            <Table
              label="Jobs"
              rows={data.items}
              keyOf={(job) => job.id}
              noun="job"
              columns={[
                {
                  name: "Job",
                  show: (job) => <a href={matrixOf(job)}>{job.name ?? job.id}</a>,
                  by: (job) => job.name ?? job.id,
                },
                { name: "State", show: (job) => job.state, by: (job) => job.state },
                { name: "User", show: (job) => job.user ?? "–", by: (job) => job.user ?? "" },
                {
                  name: "Ranks",
                  show: (job) => job.ranks?.toLocaleString("en") ?? "–",
                  by: (job) => job.ranks ?? Number.NaN,
                  isNumber: true,
                },
                {
                  name: "Began",
                  show: (job) => timeOf(job.started_at),
                  by: (job) => job.started_at ?? "",
                },
                {
                  name: "Last seen",
                  show: (job) => timeOf(job.last_seen),
                  by: (job) => job.last_seen,
                },
              ]}
            />
            {data.isCut && <p class="soft">The first {data.items.length} jobs; there are more.</p>}
          </>
        )}
      </Shown>
    </Panel>
  );
}

function timeOf(time: string | null): string {
  const seconds = unixSeconds(time);
  return seconds === undefined ? "–" : moment(seconds, now.value);
}

// --- one job ------------------------------------------------------------------------------------

function JobMatrix({ job, jobs }: { job: string; jobs: readonly Job[] }) {
  const { query } = route.value;
  const by = BYS.find((one) => one === query.by) ?? "host";
  const quantity: Quantity = query.show === "speed" ? "speed" : "bytes";
  const matrix = useRanged(`matrix ${job} ${by}`, (from, to, abort) =>
    askMatrix(job, by, from, to, abort),
  );
  const ranks = useResource(`ranks ${job}`, (abort) => askRanks(job, abort));
  const incidents = useRanged(
    `incidents ${job}`,
    (from, to, abort) => askIncidents(job, from, to, abort),
    changes.value,
  );
  return (
    <>
      <Choices job={job} jobs={jobs} by={by} quantity={quantity} isLoading={matrix.isLoading} />
      <Shown
        resource={matrix}
        what="matrix"
        isEmpty={(data) => data.cells.length === 0}
        empty={<NoTraffic job={jobs.find((one) => one.id === job)} />}
      >
        {(data) => (
          <Drawn
            matrix={data}
            ranks={ranks.data ?? []}
            incidents={during(incidents.data ?? [], data.from_ns, data.to_ns)}
            quantity={quantity}
          />
        )}
      </Shown>
    </>
  );
}

function Choices(props: {
  job: string;
  jobs: readonly Job[];
  by: By;
  quantity: Quantity;
  isLoading: boolean;
}) {
  const isListed = props.jobs.some((one) => one.id === props.job);
  return (
    <div class="matrix-choices">
      <h1>Traffic matrix</h1>
      <label>
        <span class="soft">Job</span>{" "}
        <select
          value={props.job}
          onChange={(event) => {
            const chosen = props.jobs.find((one) => one.id === event.currentTarget.value);
            if (chosen) location.hash = matrixOf(chosen);
          }}
        >
          {!isListed && <option value={props.job}>{props.job}</option>}
          {props.jobs.map((one) => (
            <option key={one.id} value={one.id}>
              {one.name ?? one.id}
            </option>
          ))}
        </select>
      </label>
      <fieldset class="matrix-switch" aria-label="Rows and columns are">
        {BYS.map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === props.by}
            onClick={() => withQuery({ by: one, source: undefined, target: undefined })}
          >
            {BY_WORDS[one].many}
          </button>
        ))}
      </fieldset>
      <fieldset class="matrix-switch" aria-label="Colour shows">
        <button
          type="button"
          aria-pressed={props.quantity === "bytes"}
          onClick={() => withQuery({ show: undefined, source: undefined, target: undefined })}
        >
          Bytes
        </button>
        <button
          type="button"
          aria-pressed={props.quantity === "speed"}
          title="Bytes a second while operations that carry them were transferring"
          onClick={() => withQuery({ show: "speed", source: undefined, target: undefined })}
        >
          Speed
        </button>
      </fieldset>
      <span class="soft" role="status">
        {props.isLoading ? "Asking …" : ""}
      </span>
      <a class="matrix-aside" href={href(["job", props.job], timeQuery())}>
        Job over time
      </a>
    </div>
  );
}

function NoTraffic({ job }: { job: Job | undefined }) {
  const end = job && unixSeconds(job.ended_at ?? job.last_seen);
  return (
    <Empty title="No collectives in this time">
      {job && end !== undefined && end < range.value.from ? (
        <>
          The job was last seen {moment(end, now.value)}.{" "}
          <a href={matrixOf({ ...job, ended_at: job.ended_at ?? job.last_seen })}>
            Look at its last half hour
          </a>
        </>
      ) : (
        <>
          Choose a longer time; or see that NCCL Inspector is on: <code>NCCL_PROFILER_PLUGIN</code>.
        </>
      )}
    </Empty>
  );
}

// --- the drawing and what stands around it --------------------------------------------------------

interface DrawnProps {
  readonly matrix: MatrixData;
  readonly ranks: readonly RankPlace[];
  readonly incidents: readonly IncidentShort[];
  readonly quantity: Quantity;
}

function Drawn({ matrix, ranks, incidents, quantity }: DrawnProps) {
  const { by } = matrix;
  const grid = useMemo(() => {
    const hosts = new Map(ranks.map((place) => [String(place.rank), place.host ?? ""]));
    return gridOf(
      matrix.cells,
      everybody(by, ranks, matrix.balance),
      by === "rank" ? (name) => hosts.get(name) ?? "" : undefined,
    );
  }, [matrix, ranks, by]);
  const accusers = useMemo(() => {
    const found = new Map<string, IncidentShort[]>();
    for (const incident of incidents)
      for (const name of accused(incident, by, grid.names, ranks, matrix.job))
        found.set(name, [...(found.get(name) ?? []), incident]);
    return found;
  }, [incidents, by, grid, ranks, matrix.job]);
  const marked = useMemo(() => new Set(accusers.keys()), [accusers]);
  const chosen = chosenOf(grid, quantity);
  const choose = (row: number, column: number) =>
    withQuery({ source: grid.names[row], target: grid.names[column] }, { replace: true });
  return (
    <>
      <Tiles matrix={matrix} />
      <div class="matrix-main">
        <Panel
          title={
            quantity === "bytes"
              ? `Bytes from each ${BY_WORDS[by].one} to each other`
              : `Speed between ${BY_WORDS[by].many} while transferring`
          }
          hint="rows send, columns receive"
        >
          <p class="matrix-headline">{headline(grid, by, quantity)}</p>
          <MatrixMap {...{ matrix, grid, quantity, marked, chosen }} onChoose={choose} />
          <Accused accusers={accusers} by={by} />
        </Panel>
        <div class="matrix-side">
          {chosen && <Chosen {...{ matrix, grid, ranks, incidents, accusers }} at={chosen} />}
          <Panel title="Pairs" hint={quantity === "bytes" ? "most bytes first" : "slowest first"}>
            <MatrixPairs {...{ grid, by, quantity, chosen }} onChoose={choose} />
          </Panel>
        </div>
      </div>
      <Below matrix={matrix} />
    </>
  );
}

/** The pair that the address names; else the one that matters most. */
function chosenOf(grid: Grid, quantity: Quantity): Marker | undefined {
  const { source = "", target = "" } = route.value.query;
  const [row, column] = [grid.index.get(source), grid.index.get(target)];
  if (row !== undefined && column !== undefined) return { row, column };
  const cells = telling(grid);
  const first =
    quantity === "bytes"
      ? cells.at(-1)
      : cells.reduce<(typeof cells)[number] | undefined>(
          (slowest, cell) =>
            numberOf(cell, "speed") <
            (slowest ? numberOf(slowest, "speed") : Number.POSITIVE_INFINITY)
              ? cell
              : slowest,
          undefined,
        );
  if (!first) return undefined;
  return { row: grid.index.get(first.source) ?? 0, column: grid.index.get(first.target) ?? 0 };
}

function Tiles({ matrix }: { matrix: MatrixData }) {
  const { check, rhythm } = matrix;
  const seconds = (matrix.to_ns - matrix.from_ns) / 1e9;
  const network = matrix.bytes - matrix.local_bytes;
  const rails = matrix.balance.find((one) => one.over === "rail");
  const nics = matrix.balance.find((one) => one.over === "nic");
  const spread = nics ?? rails ?? matrix.balance[0];
  return (
    <div class="tiles matrix-tiles">
      <Tile
        label="Between hosts"
        value={si(network, "B")}
        hint={`${si(network / seconds, "B/s")} over ${duration(seconds)}`}
      />
      <Tile
        label="Within hosts"
        value={si(matrix.local_bytes, "B")}
        hint={`${percent(matrix.local_bytes / matrix.bytes)} of all`}
      />
      {spread && <Spread balance={spread} />}
      <Tile
        label="Step"
        value={duration(rhythm.period_ns === null ? null : rhythm.period_ns / 1e9)}
        hint={
          rhythm.odd.length
            ? `${rhythm.odd.length} of ${rhythm.periods} odd`
            : `${rhythm.periods} alike`
        }
        tone={rhythm.odd.length ? "warn" : ""}
      />
      <Tile
        label="Model against counters"
        value={check ? percent(check.ratio) : "–"}
        tone={check && check.ratio < 0.9 ? "warn" : ""}
        hint={
          check ? (checkWords(check.ratio).split(/[:;]/, 1)[0] ?? "") : "no NIC can be compared"
        }
      />
    </div>
  );
}

function Spread({ balance }: { balance: Balance }) {
  const [first] = balance.standing_out;
  const over = count(balance.things, BY_WORDS[balance.over].one);
  const most = balance.highest_by_mean - 1;
  return (
    <Tile
      label={`Spread over ${over}`}
      value={most < 0.01 ? "even" : `+${percent(most)}`}
      tone={balance.highest_by_mean >= 1.1 ? "warn" : ""}
      hint={
        first ? `${called(balance.over, first.name)} above the mean` : "the highest above the mean"
      }
    />
  );
}

function Accused(props: { accusers: ReadonlyMap<string, readonly IncidentShort[]>; by: By }) {
  const names = new Map<IncidentShort, string[]>();
  for (const [name, incidents] of props.accusers)
    for (const incident of incidents)
      names.set(incident, [...(names.get(incident) ?? []), called(props.by, name)]);
  // Its room is there before it is known whether there are any.
  if (!names.size) return <div class="matrix-accused" />;
  return (
    <ul class="matrix-accused" aria-label="Incidents on the axes">
      {[...names].map(([incident, accused]) => (
        <li key={incident.id}>
          <span class="mark" aria-hidden="true">
            ▸
          </span>{" "}
          {accused.length > 4 ? `${accused.slice(0, 4).join(", ")} …` : accused.join(", ")}:{" "}
          <a href={href(["incident", incident.id])}>{incident.cause.replaceAll("_", " ")}</a>{" "}
          <span class="soft">
            {named(incident.culprit)}, {moment(incident.since_ns / 1e9, now.value)} to{" "}
            {incident.until_ns === null || incident.state === "open"
              ? "now"
              : moment(incident.until_ns / 1e9, now.value)}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Chosen(
  props: Omit<DrawnProps, "quantity"> & {
    grid: Grid;
    at: Marker;
    accusers: ReadonlyMap<string, readonly IncidentShort[]>;
  },
) {
  const { matrix, grid, at, ranks } = props;
  const source = endpoint(matrix.by, grid.names[at.row] ?? "", ranks);
  const target = endpoint(matrix.by, grid.names[at.column] ?? "", ranks);
  return (
    <Panel title="The chosen pair" hint="arrow keys on the map move it">
      <MatrixCell {...{ matrix, grid, at, ranks }} accusers={props.accusers}>
        {matrix.by !== "rail" && (
          <>
            <dt>Way</dt>
            <dd>
              {source === undefined || target === undefined ? (
                <span class="soft">Which NIC it uses is not known.</span>
              ) : source.split("/")[0] === target.split("/")[0] ? (
                <span class="soft">Within the host.</span>
              ) : (
                <Way {...{ source, target }} matrix={matrix} incidents={props.incidents} />
              )}
            </dd>
          </>
        )}
      </MatrixCell>
    </Panel>
  );
}

function Way(props: {
  source: string;
  target: string;
  matrix: MatrixData;
  incidents: readonly IncidentShort[];
}) {
  const { source, target, matrix } = props;
  // At present as the service knows cables already; of any other moment it puts them together anew.
  const isPresent = range.value.last !== undefined;
  const ways = useResource(
    `ways ${source} ${target} ${isPresent ? "" : matrix.to_ns}`,
    (abort) => askWays(source, target, isPresent ? undefined : matrix.to_ns / 1e9, abort),
    isPresent ? matrix.to_ns : 0,
  );
  return (
    <Shown resource={ways} what="way">
      {(data) => (
        <MatrixWays
          pairs={data.pairs}
          left={data.pairs_left_out}
          incidents={props.incidents.filter((one) => isOnWay(one, data.pairs))}
          query={{ ...timeQuery(), job: matrix.job }}
        />
      )}
    </Shown>
  );
}

function Below({ matrix }: { matrix: MatrixData }) {
  const steps = useRanged(`steps ${matrix.job}`, (from, to, abort) =>
    askStepLengths(matrix.job, from, to, abort),
  );
  return (
    <>
      <Panel title="Rhythm">
        <MatrixRhythm rhythm={matrix.rhythm} steps={steps.data} onSelect={fix} />
      </Panel>
      <div class="columns">
        <Panel title="Balance" hint="sent bytes against the mean">
          <MatrixBalance balances={matrix.balance} />
        </Panel>
        <Panel title="How far to believe it">
          <MatrixTrust matrix={matrix} />
        </Panel>
      </div>
    </>
  );
}
