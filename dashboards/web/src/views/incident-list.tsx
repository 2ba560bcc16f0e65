/** All incidents, with filters that stand in the address. */
import { useEffect, useState } from "preact/hooks";
import { type IncidentShort, named } from "../api/incidents";
import { askSilences, type Silence } from "../api/service";
import { type Filter, listIncidents } from "../api/trouble";
import { count, duration, moment, percent, stamp } from "../format";
import { changes } from "../live";
import { causeTable } from "../parts/cause-table";
import { barsOf, placed } from "../parts/incident-bars";
import { hoursNumber, money } from "../parts/verdict-cost";
import { causeOf, reasonOf } from "../parts/verdict-words";
import { LookedAfterBadge, SilencedBadge } from "../parts/work-badges";
import { alertLabels, silenceOf } from "../parts/work-words";
import { keptPrice } from "../price";
import { useResource } from "../resource";
import { href, route, withQuery } from "../route";
import { now } from "../time";
import { isoOf } from "../ui/csv";
import { Badge, Panel } from "../ui/panel";
import { Empty, Shown } from "../ui/states";
import { type Column, Table } from "../ui/table";

const NS = 1e9;
const PAGE = 100;
const FILTERS = ["state", "cause", "job", "host", "switch"] as const;

export function IncidentList() {
  const { query } = route.value;
  const filter: Filter = Object.fromEntries(
    FILTERS.map((name) => [name, query[name] || undefined]),
  );
  const isFiltered = FILTERS.some((name) => query[name]);
  const [most, setMost] = useState(PAGE);
  const found = useResource(
    JSON.stringify([filter, most]),
    (abort) => listIncidents(filter, most, abort),
    `${changes.value}:${Math.floor(now.value / 30)}`,
  );
  const silences = useResource("silences", askSilences, Math.floor(now.value / 30));
  return (
    <>
      <h1 class="unseen">Incidents</h1>
      <Panel
        class="incidents"
        title="Incidents"
        hint="Each trouble once, the latest first"
        aside={
          <div class="row">
            <a href={href(["costs"])}>What they cost</a>
            <Filters />
          </div>
        }
      >
        <Shown
          resource={found}
          what="incidents"
          isEmpty={(data) => data.items.length === 0}
          empty={<NoIncident isFiltered={isFiltered} />}
        >
          {(data) => (
            <>
              <IncidentTable items={data.items} silences={silences.data} now={now.value} />
              {data.next !== null && (
                <button type="button" onClick={() => setMost(Math.min(1000, most + 4 * PAGE))}>
                  Show older ones
                </button>
              )}
            </>
          )}
        </Shown>
      </Panel>
    </>
  );
}

function NoIncident({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty title="No incident is like that">
      <a href={href(["incident"])}>Show all of them</a>
    </Empty>
  ) : (
    <Empty title="There was no incident yet">
      <a href="#/">Now</a> shows whether the service evaluates at all.
    </Empty>
  );
}

function Filters() {
  const { query } = route.value;
  return (
    <search class="row incident-filters">
      <select
        aria-label="State"
        value={query.state ?? ""}
        onChange={(event) => withQuery({ state: event.currentTarget.value || undefined })}
      >
        <option value="">open and closed</option>
        <option value="open">open</option>
        <option value="closed">closed</option>
      </select>
      <select
        aria-label="Cause"
        value={query.cause ?? ""}
        onChange={(event) => withQuery({ cause: event.currentTarget.value || undefined })}
      >
        <option value="">every cause</option>
        {causeTable.value.causes.map(({ name, title }) => (
          <option key={name} value={name}>
            {title}
          </option>
        ))}
      </select>
      <NameFilter name="job" />
      <NameFilter name="host" />
      <NameFilter name="switch" />
    </search>
  );
}

/** A whole name: the service compares names, it does not search in them. */
function NameFilter({ name }: { name: "job" | "host" | "switch" }) {
  const set = route.value.query[name] ?? "";
  const [text, setText] = useState(set);
  useEffect(() => setText(set), [set]);
  const apply = () => withQuery({ [name]: text.trim() || undefined });
  return (
    <input
      type="search"
      aria-label={`Name of a ${name}`}
      placeholder={name}
      size={12}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onChange={apply}
      onKeyDown={(event) => {
        if (event.key === "Enter") apply();
      }}
    />
  );
}

/** Incidents in rows; where they lie in time is drawn beside them. */
export function IncidentTable(props: {
  items: readonly IncidentShort[];
  silences: readonly Silence[] | undefined;
  now: number;
}) {
  const { items, silences, now } = props;
  const bars = new Map(items.map((one) => [one.id, barsOf(one)]));
  const all = [...bars.values()].flat();
  const first = Math.min(...all.map(({ from }) => from));
  const isOpen = items.some((one) => one.state === "open");
  const last = Math.max(...all.map(({ to }) => to), ...(isOpen ? [now] : []));
  const price = keptPrice();
  const columns: readonly Column<IncidentShort>[] = [
    {
      name: "Since",
      by: (one) => one.since_ns,
      show: (one) => (
        <span class="unbroken" title={stamp(one.since_ns / NS)}>
          {moment(one.since_ns / NS, now)}
        </span>
      ),
      csv: (one) => isoOf(one.since_ns / NS),
    },
    {
      name: "Lasts",
      isNumber: true,
      by: (one) => one.lasted_seconds,
      show: (one) => duration(one.lasted_seconds),
    },
    {
      name: "Cause",
      by: (one) => one.cause,
      show: (one) => (
        <span class="unbroken">
          <Badge tone={one.state === "open" ? "bad" : ""}>{causeOf(one.cause).title}</Badge>
          {one.state === "open" && <span class="unseen"> open</span>}
          <small class="soft own-line">{reasonOf(one.reason)}</small>
        </span>
      ),
    },
    {
      name: "What is wrong",
      show: (one) => (
        <div class="incident-summary">
          <a href={href(["incident", one.id])}>{named(one.culprit)}</a>{" "}
          <LookedAfterBadge work={one.work} />{" "}
          {one.state === "open" && (
            <SilencedBadge silence={silenceOf(silences, alertLabels(one.id, one))} now={now} />
          )}
          <small class="soft own-line">{one.summary}</small>
        </div>
      ),
    },
    { name: "Jobs", show: (one) => jobsOf(one) },
    {
      name: "Sure",
      isNumber: true,
      by: (one) => one.confidence,
      show: (one) => percent(one.confidence),
    },
    {
      name: "GPU-hours",
      isNumber: true,
      by: (one) => one.gpu_hours,
      show: (one) => (
        <>
          {one.costs.length ? hoursNumber(one.gpu_hours) : <span title="not known">–</span>}
          {price && one.costs.length > 0 && (
            <small class="soft own-line">{money(one.gpu_hours, price)}</small>
          )}
        </>
      ),
    },
    {
      name: "When",
      csv: (one) =>
        barsOf(one)
          .map(({ from, to }) => `${isoOf(from)}/${isoOf(to)}`)
          .join(" "),
      show: (one) => (
        <span class="incident-when" aria-hidden="true">
          {bars.get(one.id)?.map((bar) => {
            const [left, width] = placed(bar, first, last);
            return (
              <i
                key={bar.from}
                class={`span ${one.state}`}
                style={{ left: `${left * 100}%`, width: `${width * 100}%` }}
              />
            );
          })}
        </span>
      ),
    },
  ];
  return (
    <Table
      label="Incidents"
      columns={columns}
      rows={items}
      keyOf={(one) => one.id}
      noun="incident"
      hasOwnPhoneLook
    />
  );
}

const JOBS_SHOWN = 2;

function jobsOf(one: IncidentShort) {
  return (
    <>
      {one.jobs.slice(0, JOBS_SHOWN).map((job) => (
        <a key={job} class="own-line" href={href(["job", job])}>
          {job}
        </a>
      ))}
      {one.jobs.length > JOBS_SHOWN && (
        <small class="soft">and {count(one.jobs.length - JOBS_SHOWN, "more", "more")}</small>
      )}
    </>
  );
}
