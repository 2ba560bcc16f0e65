/** The service's own health, notices and silences, and what this browser remembers. */
import { useState } from "preact/hooks";
import { stepOf } from "../api/promql";
import {
  type Alert,
  askAbout,
  askCurves,
  askNotices,
  askNumbers,
  askRefused,
  askRuleBook,
  askSeriesCounts,
  askSilences,
  endSilence,
  type Silence,
  silence,
} from "../api/service";
import { freshness } from "../fresh";
import { ServiceTiles, ServiceVerdict } from "../parts/service";
import { AgentTable, AgentVersions, Odd, SeriesPanels } from "../parts/service-agents";
import { keepName, ownName, Preferences, ServiceLinks } from "../parts/service-browser";
import { matchersOf, write } from "../parts/service-matchers";
import {
  AGENT_VERSIONS,
  AGENTS_IN_TROUBLE,
  charts,
  legend,
  OVERVIEW,
  silenceOf,
} from "../parts/service-questions";
import { Alerts, RuleFiles, RuleGroups, Rules } from "../parts/service-rules";
import { EndSilenceDialog, Notices, SilenceDialog, Silences } from "../parts/service-silences";
import { hasPack, number, troublesOf, troublesOfAge } from "../parts/service-troubles";
import { useResource } from "../resource";
import { href, route } from "../route";
import { fix, now, range, rangeWord, ticked } from "../time";
import { Panel } from "../ui/panel";
import { aligned, Plot } from "../ui/plot";
import { RangePicker } from "../ui/range";
import { Below, Empty, type Room, Shown } from "../ui/states";
import { RolloutTab } from "./settings-rollouts";
import "../style/settings.css";

const TABS = [
  { word: "", label: "Health", view: Health },
  { word: "rules", label: "Alerts and rules", view: RuleTab },
  { word: "notices", label: "Notices and silences", view: Notifications },
  { word: "agents", label: "Agents and series", view: AgentTab },
  { word: "rollouts", label: "Roll-outs", view: RolloutTab },
  { word: "browser", label: "This browser", view: Browser },
] as const;

export default function Settings() {
  const word = route.value.path[1] ?? "";
  const tab = TABS.find((one) => one.word === word);
  const View = tab?.view;
  return (
    <>
      <h1 class="unseen">Settings and the service's health</h1>
      <nav class="tabs" aria-label="Settings">
        {TABS.map((one) => (
          <a
            key={one.word}
            href={href(one.word ? ["settings", one.word] : ["settings"])}
            aria-current={one === tab ? "page" : undefined}
          >
            {one.label}
          </a>
        ))}
      </nav>
      {View ? <View /> : <Empty title={`Settings have no part called "${word}"`} />}
    </>
  );
}

/** Every so many seconds, as numbers that move: what is asked for anew. */
function every(seconds: number): number {
  return Math.floor(now.value / seconds);
}

/** What the service's tiles take. */
const TILES_ROOM: Room = { wide: 256, narrow: 644 };
/** With the verdict above them. */
const HEALTH_ROOM: Room = { wide: 385, narrow: 836 };
/** Two short tables of agents. */
const AGENTS_ROOM: Room = { wide: 388, narrow: 600 };
/** Three lists of ten bars, and a short table. */
const SERIES_ROOM: Room = { wide: 770, narrow: 1140 };

// --- health ----------------------------------------------------------------------------------------

function Health() {
  const found = useResource(
    "health",
    async (abort) => {
      const [about, book, notices] = await Promise.all([
        askAbout(abort),
        askRuleBook(abort),
        askNotices(abort),
      ]);
      return { about, book, notices };
    },
    every(10),
  );
  // A second's work for the service, which writes them every 15 seconds.
  const numbers = useResource(
    "numbers",
    (abort) => askNumbers(OVERVIEW, now.value, abort),
    every(30),
  );
  const heard = freshness.value;
  const ages = heard ? troublesOfAge(heard.told, Math.max(0, ticked.value - heard.at)) : [];
  return (
    <>
      <Shown resource={found} what="the service's health" room={HEALTH_ROOM}>
        {({ about, book, notices }) => (
          <>
            <ServiceVerdict
              troubles={troublesOf(about, numbers.data, book, notices, now.value, ages)}
              hasNumbers={!numbers.data || numbers.data.processes.length > 0}
              hasPack={hasPack(book)}
            />
            <Shown resource={numbers} what="the service's own numbers" room={TILES_ROOM}>
              {(known) => <ServiceTiles about={about} numbers={known} now={now.value} />}
            </Shown>
          </>
        )}
      </Shown>
      <Curves />
      <ServiceLinks />
    </>
  );
}

function Curves() {
  const { from, to, last } = range.value;
  const step = stepOf(from, to);
  const window = `${Math.max(60, 2 * step)}s`;
  const all = charts(window);
  const found = useResource(
    rangeWord.value,
    (abort) =>
      Promise.all(
        all.map((chart) =>
          // Words of a legend may be anything; the places distinguish the questions.
          askCurves(
            Object.fromEntries(Object.values(chart.curves).map((expr, place) => [place, expr])),
            from,
            to,
            step,
            abort,
          ),
        ),
      ),
    last === undefined ? 0 : every(30),
  );
  return (
    <Panel title="Its own numbers over time" aside={<RangePicker />}>
      <Shown resource={found} what="curves" room={640}>
        {(answers) => (
          <div class="charts">
            {all.map((chart, index) => {
              const series = answers[index] ?? [];
              const words = Object.keys(chart.curves);
              const why = silenceOf(chart, series);
              const { times, values } = aligned(series);
              return (
                <figure key={chart.title}>
                  <figcaption>
                    <b>{chart.title}</b>
                    <span class="soft">{chart.hint}</span>
                  </figcaption>
                  {why ? (
                    <Empty title={why} />
                  ) : (
                    <Plot
                      label={`${chart.title}: ${chart.hint}`}
                      times={times}
                      lines={[
                        ...series.map((one, place) => ({
                          label: legend(words[Number(one.labels.what)] ?? "", one.labels),
                          values: values[place] ?? [],
                        })),
                        ...(chart.bound === undefined
                          ? []
                          : [
                              {
                                label: "late above",
                                values: times.map(() => chart.bound ?? null),
                                colour: "warn",
                                isDashed: true,
                              },
                            ]),
                      ]}
                      format={chart.format}
                      height={150}
                      group="service"
                      hasLegend
                      onSelect={fix}
                    />
                  )}
                </figure>
              );
            })}
          </div>
        )}
      </Shown>
    </Panel>
  );
}

// --- alerts and rules ------------------------------------------------------------------------------

function RuleTab() {
  const book = useResource("rules", askRuleBook, every(15));
  const [silenced, setSilenced] = useState<Alert>();
  return (
    <>
      <Shown resource={book} what="rules">
        {(data) => (
          <>
            <Alerts alerts={data.alerts} now={now.value} onSilence={setSilenced} />
            <div class="columns">
              <RuleGroups groups={data.groups} now={now.value} />
              <RuleFiles files={data.files} now={now.value} />
            </div>
            <Rules book={data} now={now.value} />
          </>
        )}
      </Shown>
      {silenced && (
        <NewSilence
          matchers={matchersOf(silenced.labels).map(write).join(", ")}
          onClose={() => setSilenced(undefined)}
        />
      )}
    </>
  );
}

// --- notices and silences --------------------------------------------------------------------------

function NewSilence(props: { matchers: string; onClose: () => void; onDone?: () => void }) {
  return (
    <SilenceDialog
      matchers={props.matchers}
      by={ownName()}
      onClose={props.onClose}
      onSilence={async (asked) => {
        await silence(asked);
        keepName(asked.created_by);
        props.onDone?.();
      }}
    />
  );
}

function Notifications() {
  const silences = useResource("silences", askSilences, every(15));
  const notices = useResource("notices", askNotices, every(15));
  const [ended, setEnded] = useState<Silence>();
  const [isNew, setNew] = useState(false);
  return (
    <>
      <Shown resource={silences} what="silences">
        {(items) => (
          <Silences silences={items} now={now.value} onNew={() => setNew(true)} onEnd={setEnded} />
        )}
      </Shown>
      <Shown resource={notices} what="notices">
        {(items) => <Notices notices={items} now={now.value} />}
      </Shown>
      {isNew && <NewSilence matchers="" onClose={() => setNew(false)} onDone={silences.reload} />}
      {ended && (
        <EndSilenceDialog
          silence={ended}
          onClose={() => setEnded(undefined)}
          onEnd={async () => {
            await endSilence(ended.id);
            silences.reload();
          }}
        />
      )}
    </>
  );
}

// --- agents and series -----------------------------------------------------------------------------

function AgentTab() {
  const agents = useResource(
    "agents",
    async (abort) => {
      const time = now.value;
      const [troubles, versions] = await Promise.all([
        askNumbers(AGENTS_IN_TROUBLE, time, abort),
        askNumbers(AGENT_VERSIONS, time, abort),
      ]);
      return { troubles, ...versions };
    },
    every(30),
  );
  const odd = useResource("refused", askRefused, every(15));
  const series = useResource(
    "series",
    async (abort) => {
      const [counts, { refused }] = await Promise.all([
        askSeriesCounts(abort),
        askNumbers({ refused: OVERVIEW.refused }, now.value, abort),
      ]);
      return { counts, refused };
    },
    every(60),
  );
  return (
    <>
      <Shown resource={agents} what="agents" room={AGENTS_ROOM}>
        {({ troubles, versions, all }) => (
          <>
            <AgentTable troubles={troubles} known={number(all) ?? 0} />
            <AgentVersions versions={versions} />
          </>
        )}
      </Shown>
      <Below above={[agents]}>
        <Shown resource={series} what="series" room={SERIES_ROOM}>
          {({ counts, refused }) => <SeriesPanels counts={counts} refused={refused} />}
        </Shown>
      </Below>
      <Below above={[agents, series]}>
        <Shown resource={odd} what="refusals">
          {(found) => <Odd found={found} now={now.value} />}
        </Shown>
      </Below>
    </>
  );
}

// --- this browser ----------------------------------------------------------------------------------

function Browser() {
  return (
    <>
      <Preferences now={now.value} />
      <ServiceLinks />
    </>
  );
}
