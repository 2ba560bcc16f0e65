/** The fleet: which hosts can take the next job; and everything about one of them. */
import { useCallback, useMemo, useState } from "preact/hooks";
import {
  askAudit,
  askEvents,
  askFleet,
  askHealth,
  askHosts,
  askIncidentsOf,
  askJobsOf,
  askJobsOn,
  askParts,
  askRail,
  type Fleet,
  type HostDetail,
  type HostHealth,
  type HostHealthWhole,
  hold,
  JOBS_ASKED_MAX,
  release,
} from "../api/hosts";
import { stepOf } from "../api/promql";
import { askCurves, askNumbers } from "../api/service";
import { askTopology } from "../api/topology";
import { count } from "../format";
import { changes } from "../live";
import { groupsOf, railsOf } from "../parts/host-cells";
import { GpuTable, PortTable } from "../parts/host-devices";
import { HostGrid, HostLegend } from "../parts/host-grid";
import { HoldDialog, Holds, HostHead, ReleaseDialog } from "../parts/host-head";
import { agentQuestions, Curves, gpuQuestions, portQuestions } from "../parts/host-questions";
import { AgentPanel, AuditPanel, EventPanel, JobPanel } from "../parts/host-rest";
import { HostStrip } from "../parts/host-strip";
import { HostTable } from "../parts/host-table";
import {
  countLooks,
  fleetLabel,
  fleetWords,
  isWanted,
  LOOK_WORDS,
  lookOf,
  looksOf,
  SORTS,
  sorted,
  sortOf,
  standing,
} from "../parts/host-words";
import { keepName, ownName } from "../parts/service-browser";
import { useResource } from "../resource";
import { href, route, withQuery } from "../route";
import { now, range, rangeWord } from "../time";
import { Panel } from "../ui/panel";
import { RangePicker } from "../ui/range";
import { Below, Empty, type Room, Shown } from "../ui/states";
import "../style/hosts.css";

export default function Hosts() {
  const name = route.value.path[1];
  return name === undefined ? <FleetView /> : <HostView key={name} name={name} />;
}

function every(seconds: number): number {
  return Math.floor(now.value / seconds);
}

// --- the fleet -------------------------------------------------------------------------------------

function FleetView() {
  const fleet = useResource("fleet", askFleet, `${every(10)} ${changes.value}`);
  return (
    <Shown
      resource={fleet}
      what="health of hosts"
      isEmpty={({ items }) => !items.length}
      empty={<NoHosts />}
    >
      {(data) => <FleetPanels fleet={data} />}
    </Shown>
  );
}

function NoHosts() {
  return (
    <Panel title="No host is known yet">
      <Empty title="Nothing has been heard of a host within a week">
        Run an agent: <code>fabricscope agent --service {location.origin}</code>, let a Prometheus
        remote-write here, or see it all with <code>fabricscope demo</code>.
      </Empty>
    </Panel>
  );
}

/** A fabric of more hosts is megabytes: they are grouped by cluster only. */
const PLACED_MAX = 1_000;
/** More cells than this are drawn above the table rather than beside it. */
const BESIDE_MAX = 600;
/** Where the rails are not known: a host has eight at most, usually. */
const RAILS_USUAL = [0, 1, 2, 3, 4, 5, 6, 7];

function FleetPanels({ fleet }: { fleet: Fleet }) {
  const { state, rail, search = "", sort: sortWord } = route.value.query;
  const about = useResource("hosts", askHosts, every(60));
  const isPlaced = fleet.items.length <= PLACED_MAX;
  const places = useResource(
    `topology ${isPlaced}`,
    async (abort) => (isPlaced ? askTopology(undefined, abort) : undefined),
    every(300),
  );
  const onRail = useResource(
    `rail ${rail ?? ""}`,
    async (abort) => (rail ? askRail(Number(rail), abort) : undefined),
    every(60),
  );
  const looks = useMemo(() => looksOf(state), [state]);
  const among = onRail.data;
  const wants = useCallback(
    (host: HostHealth) => isWanted(host, { looks, search, among }),
    [looks, search, among],
  );
  const hosts = useMemo(() => new Map(fleet.items.map((host) => [host.host, host])), [fleet]);
  const names = useMemo(() => fleet.items.map((host) => host.host), [fleet]);
  // Cells keep their places while only states change.
  const who = useKept(names);
  const groups = useMemo(
    () => groupsOf(who, (host) => about.data?.get(host)?.cluster ?? "", places.data),
    [who, about.data, places.data],
  );
  const seen = useCallback(
    (host: string) => {
      const at = about.data?.get(host)?.last_seen;
      return at === undefined ? undefined : Date.parse(at) / 1000;
    },
    [about.data],
  );
  const sort = sortOf(sortWord);
  const shown = useMemo(
    () => sorted(fleet.items.filter(wants), sort, seen),
    [fleet, wants, sort, seen],
  );
  const looksNow = useMemo(() => fleet.items.map(lookOf), [fleet]);
  const label = useMemo(() => fleetLabel(fleet), [fleet]);
  return (
    <>
      <h1 class="unseen">Hosts</h1>
      <Tools rails={railsOf(places.data)} shown={shown.length} all={fleet.items.length} />
      <div class={fleet.items.length > BESIDE_MAX ? "fleet large" : "fleet"}>
        <Panel title={fleetWords(looksNow)}>
          {fleet.stale.map((text) => (
            <p key={text} class="state stale">
              Not to be trusted now: {text}
            </p>
          ))}
          <HostLegend
            counts={countLooks(looksNow)}
            chosen={looks}
            meanings={LOOK_WORDS}
            addressOf={(next) => href(["hosts"], { ...route.value.query, state: next.join(",") })}
          />
          <HostGrid label={label} groups={groups} hosts={hosts} isWanted={wants} now={now.value} />
        </Panel>
        <Panel title="Hosts" hint={SORTS[sort]}>
          <TableWithJobs shown={shown} lastSeen={seen} />
        </Panel>
      </div>
    </>
  );
}

/** The same list object as long as its content is the same. */
function useKept(names: readonly string[]): readonly string[] {
  const text = names.join("\n");
  // biome-ignore lint/correctness/useExhaustiveDependencies: `text` is the list's content
  return useMemo(() => names, [text]);
}

function TableWithJobs(props: {
  shown: readonly HostHealth[];
  lastSeen: (host: string) => number | undefined;
}) {
  const first = props.shown.slice(0, JOBS_ASKED_MAX).map((host) => host.host);
  const jobs = useResource(
    `jobs ${first.join(" ")}`,
    (abort) => askJobsOn(first, now.value, abort),
    every(30),
  );
  return (
    <HostTable
      hosts={props.shown}
      jobs={jobs.data ?? NO_JOBS}
      lastSeen={props.lastSeen}
      now={now.value}
    />
  );
}

const NO_JOBS: ReadonlyMap<string, ReadonlyMap<string, number>> = new Map();

function Tools(props: { rails: readonly number[]; shown: number; all: number }) {
  const { rail = "", search = "", sort } = route.value.query;
  const rails = props.rails.length ? props.rails : RAILS_USUAL;
  return (
    <div class="fleet-tools row">
      <input
        type="search"
        aria-label="Search hosts"
        placeholder="Search name or reason"
        value={search}
        onInput={(event) =>
          withQuery({ search: event.currentTarget.value || undefined }, { replace: true })
        }
      />
      <select
        aria-label="Rail"
        value={rail}
        onChange={(event) => withQuery({ rail: event.currentTarget.value || undefined })}
      >
        <option value="">all rails</option>
        {rails.map((one) => (
          <option key={one} value={String(one)}>
            rail {one}
          </option>
        ))}
      </select>
      <select
        aria-label="Order"
        value={sortOf(sort)}
        onChange={(event) => withQuery({ sort: event.currentTarget.value })}
      >
        {Object.entries(SORTS).map(([word, text]) => (
          <option key={word} value={word}>
            {text}
          </option>
        ))}
      </select>
      {props.shown < props.all && (
        <span class="soft">
          {props.shown.toLocaleString("en")} of {count(props.all, "host")}{" "}
          <a href={href(["hosts"])}>show all</a>
        </span>
      )}
    </div>
  );
}

// --- one host --------------------------------------------------------------------------------------

function HostView({ name }: { name: string }) {
  const health = useResource(
    `health ${name}`,
    (abort) => askHealth(name, abort),
    `${every(10)} ${changes.value}`,
  );
  const [asked, setAsked] = useState<"hold" | "release">();
  const close = () => setAsked(undefined);
  const done = (by: string) => {
    keepName(by);
    // The health board evaluates again at once; its answer comes a moment later.
    setTimeout(health.reload, 300);
  };
  return (
    <>
      <div class="row">
        <a href={href(["hosts"])}>All hosts</a>
        <span class="aside-end">
          <RangePicker />
        </span>
      </div>
      <Shown resource={health} what="host">
        {(data) => {
          const held = standing(data.holds, now.value);
          return (
            <>
              <HostHead
                health={data}
                now={now.value}
                onHold={() => setAsked("hold")}
                onRelease={() => setAsked("release")}
              />
              <Past name={name} health={data} />
              <Devices name={name} health={data} />
              <Settings name={name} />
              <Happened name={name} />
              <Holds holds={data.holds} now={now.value} />
              {asked === "hold" && (
                <HoldDialog
                  host={name}
                  by={ownName()}
                  onClose={close}
                  onHold={async (wish) => {
                    await hold(name, wish);
                    done(wish.by);
                  }}
                />
              )}
              {asked === "release" && held && (
                <ReleaseDialog
                  host={name}
                  hold={held}
                  risk={data.risk}
                  by={ownName()}
                  onClose={close}
                  onRelease={async (by) => {
                    await release(name, by);
                    done(by);
                  }}
                />
              )}
            </>
          );
        }}
      </Shown>
    </>
  );
}

/** The time that is looked at: a key that changes with it, and a pulse where it follows the clock. */
function useClock(): { key: string; pulse: number; from: number; to: number } {
  const { from, to, last } = range.value;
  return {
    key: rangeWord.value,
    pulse: last === undefined ? 0 : every(30),
    from,
    to,
  };
}

function Past({ name, health }: { name: string; health: HostHealthWhole }) {
  const clock = useClock();
  const incidents = useResource(
    `incidents ${name} ${clock.key}`,
    (abort) => askIncidentsOf(name, clock.from, abort),
    `${clock.pulse} ${changes.value}`,
  );
  return (
    <Panel
      title="In this time"
      hint="States, and incidents: dashed where this host is not the culprit"
    >
      <Shown resource={incidents} what="incidents" room={STRIP_ROOM}>
        {(items) => <HostStrip health={health} incidents={items} from={clock.from} to={clock.to} />}
      </Shown>
    </Panel>
  );
}

const SPARK_POINTS = 60;
/** What the strip of states and incidents takes. */
const STRIP_ROOM: Room = { wide: 158, narrow: 192 };
/** Tables of two ports and two GPUs: a host has more, and then what is below them is out of sight. */
const DEVICES_ROOM: Room = { wide: 443, narrow: 1252 };

function Devices({ name, health }: { name: string; health: HostHealthWhole }) {
  const clock = useClock();
  const { device = "", gpu = "" } = route.value.query;
  const parts = useResource(`parts ${name}`, (abort) => askParts(name, abort), every(60));
  const jobs = useResource(`jobs ${name}`, (abort) => askJobsOf(name, abort), every(60));
  const curves = useResource(
    `curves ${name} ${clock.key}`,
    async (abort) => {
      const { from, to } = clock;
      const step = stepOf(from, to, SPARK_POINTS);
      const window = `${Math.max(60, 2 * step)}s`;
      const length = `${Math.max(60, Math.ceil(to - from))}s`;
      const [ports, gpus] = await Promise.all([
        askCurves(portQuestions(name, window), from, to, step, abort),
        askCurves(gpuQuestions(name, window, length), from, to, step, abort),
      ]);
      return { ports: new Curves(ports), gpus: new Curves(gpus), clock: { from, to } };
    },
    clock.pulse,
  );
  return (
    <>
      <Shown resource={curves} what="readings of ports and GPUs" room={DEVICES_ROOM}>
        {(found) => (
          <Shown resource={parts} what="ports and GPUs" room={DEVICES_ROOM}>
            {(known) => (
              <>
                <PortTable
                  parts={known}
                  health={health}
                  curves={found.ports}
                  clock={found.clock}
                  marked={device}
                />
                <GpuTable
                  gpus={known.host.devices.filter((one) => one.kind === "gpu")}
                  health={health}
                  jobs={jobs.data ?? []}
                  curves={found.gpus}
                  clock={found.clock}
                  marked={gpu}
                />
              </>
            )}
          </Shown>
        )}
      </Shown>
      <Below above={[curves, parts]}>
        <div class="columns host-columns">
          <Shown resource={jobs} what="jobs">
            {(items) => <JobPanel jobs={items} now={now.value} />}
          </Shown>
          <Shown resource={parts} what="agent">
            {({ host }) => <AgentOf host={host} />}
          </Shown>
        </div>
      </Below>
    </>
  );
}

function AgentOf({ host }: { host: HostDetail }) {
  const clock = useClock();
  const numbers = useResource(
    `agent ${host.host} ${clock.key}`,
    (abort) => askNumbers(agentQuestions(host.host), clock.to, abort),
    clock.pulse,
  );
  return (
    <Shown resource={numbers} what="numbers of the agent">
      {(found) => <AgentPanel host={host} numbers={found} now={now.value} />}
    </Shown>
  );
}

function Settings({ name }: { name: string }) {
  const audit = useResource(`audit ${name}`, (abort) => askAudit(name, abort), every(60));
  return (
    <Shown resource={audit} what="audit">
      {(found) => <AuditPanel audit={found} />}
    </Shown>
  );
}

function Happened({ name }: { name: string }) {
  const clock = useClock();
  const events = useResource(
    `events ${name} ${clock.key}`,
    (abort) => askEvents(name, clock.from, clock.to, abort),
    clock.pulse,
  );
  return (
    <Shown resource={events} what="events">
      {({ items, next }) => <EventPanel events={items} isCut={next !== null} now={now.value} />}
    </Shown>
  );
}
