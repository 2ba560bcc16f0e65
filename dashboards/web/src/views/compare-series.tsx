/** Two jobs, two hosts or two times on one axis. Everything that is chosen stands in the address. */
import { useRef, useState } from "preact/hooks";
import { askHosts, HOSTS_MAX } from "../api/hosts";
import { askJobs } from "../api/jobs";
import { overRange, stepOf } from "../api/promql";
import { duration, moment, percent, si } from "../format";
import {
  type Asked,
  type Chosen,
  KINDS,
  type Kind,
  medianOf,
  moved,
  questionsOf,
  WHATS,
} from "../parts/compare-questions";
import { NoSuchName } from "../parts/name-near";
import { useResource } from "../resource";
import { href, route, withQuery } from "../route";
import "../style/steps.css";
import { now, range, rangeWord } from "../time";
import { HINT, typedTime, writtenTime } from "../typed-time";
import { Panel, Tile } from "../ui/panel";
import { aligned, Plot } from "../ui/plot";
import { Empty, Shown, Stale } from "../ui/states";

const PULSE_SECONDS = 15;

export function SeriesCompared() {
  const { query } = route.value;
  const kind: Kind = KINDS.find((one) => one === query.of) ?? "jobs";
  const whats = WHATS[kind];
  const what = query.what && whats[query.what] ? query.what : (Object.keys(whats)[0] ?? "");
  const other = query.other === undefined ? undefined : Number(query.other);
  const chosen: Chosen = {
    kind,
    a: query.a ?? "",
    b: query.b ?? "",
    what,
    other: kind === "times" && other !== undefined && Number.isFinite(other) ? other : undefined,
  };
  const { from, to, last } = range.value;
  const asked = questionsOf(chosen, from, to, (time) => moment(time, now.value));
  return (
    <>
      <header class="job-title">
        <h1>Compare</h1>
        <span class="soft">two jobs, hosts or times on one axis</span>
      </header>
      <CompareForm key={kind} chosen={chosen} />
      {asked ? (
        <Lines
          asked={asked}
          chosen={chosen}
          pulse={last === undefined ? 0 : Math.floor(now.value / PULSE_SECONDS)}
        />
      ) : (
        <Empty title="Choose two of a kind">
          The address holds the choice: send it to others. Slow steps of one job are compared from
          its view and from its incidents.
        </Empty>
      )}
    </>
  );
}

function CompareForm({ chosen }: { chosen: Chosen }) {
  const { kind } = chosen;
  const known = useResource(`names of ${kind}`, (abort) =>
    kind === "hosts" ? hostNames(abort) : jobNames(abort),
  );
  const names = known.data?.names ?? [];
  const [refusal, setRefusal] = useState("");
  const time = useRef<HTMLInputElement>(null);
  const other = (event: Event) => {
    event.preventDefault();
    const text = time.current?.value.trim() ?? "";
    const begin = typedTime(text, Date.now() / 1000);
    if (begin === undefined) setRefusal(`"Other time" is no time. Write ${HINT}.`);
    else {
      setRefusal("");
      withQuery({ other: begin.toFixed(0) });
    }
  };
  return (
    <form class="row steps-form" aria-label="What to compare" onSubmit={other}>
      <label>
        Two{" "}
        <select
          value={kind}
          onChange={(event) =>
            withQuery({ of: event.currentTarget.value, a: "", b: "", what: "", other: "" })
          }
        >
          {KINDS.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </label>
      <Name
        label={kind === "times" ? "of job" : "first"}
        field="a"
        names={names}
        value={chosen.a}
      />
      {kind === "times" ? (
        <label>
          Other time begins{" "}
          <input
            ref={time}
            autocomplete="off"
            placeholder={HINT}
            defaultValue={chosen.other === undefined ? "" : writtenTime(chosen.other)}
          />{" "}
          <button type="submit">Compare</button>
        </label>
      ) : (
        <Name label="second" field="b" names={names} value={chosen.b} />
      )}
      <label>
        What{" "}
        <select
          value={chosen.what}
          onChange={(event) => withQuery({ what: event.currentTarget.value })}
        >
          {Object.entries(WHATS[kind]).map(([word, { label }]) => (
            <option key={word} value={word}>
              {label}
            </option>
          ))}
        </select>
      </label>
      {refusal && <p role="alert">{refusal}</p>}
      {(["a", "b"] as const)
        .filter((field) => known.data?.isAll && chosen[field] && !names.includes(chosen[field]))
        .map((field) => (
          <NoSuchName
            key={field}
            kind={kind === "hosts" ? "host" : "job"}
            name={chosen[field]}
            among={names}
            onName={(name) => withQuery({ [field]: name })}
          />
        ))}
    </form>
  );
}

/** Names to choose from; `isAll`: there are no others. */
interface Names {
  readonly names: readonly string[];
  readonly isAll: boolean;
}

async function hostNames(abort: AbortSignal): Promise<Names> {
  const names = [...(await askHosts(abort)).keys()];
  return { names, isAll: names.length < HOSTS_MAX };
}

async function jobNames(abort: AbortSignal): Promise<Names> {
  const { items, isCut } = await askJobs(undefined, abort);
  return { names: items.map((job) => job.id), isAll: !isCut };
}

/** A name that is typed, with those that exist offered: there may be thousands. */
function Name(props: { label: string; field: "a" | "b"; names: readonly string[]; value: string }) {
  const list = `compare-${props.field}`;
  return (
    <label>
      {props.label}{" "}
      <input
        list={list}
        autocomplete="off"
        value={props.value}
        onChange={(event) => withQuery({ [props.field]: event.currentTarget.value.trim() })}
      />
      <datalist id={list}>
        {props.names.slice(0, OFFERED_MAX).map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}

const OFFERED_MAX = 1000;

function Lines(props: { asked: readonly Asked[]; chosen: Chosen; pulse: number }) {
  const { asked, chosen } = props;
  const [first] = asked;
  const step = first ? stepOf(first.from, first.to) : 1;
  const what = WHATS[chosen.kind][chosen.what];
  const found = useResource(
    `compared ${JSON.stringify(chosen)}`,
    (abort) =>
      Promise.all(
        asked.map(async (one) => {
          const series = await overRange(one.query, one.from, one.to, step, abort);
          return moved(series[0], one.shift, step);
        }),
      ),
    props.pulse,
    rangeWord.value,
  );
  return (
    <Panel
      title={what?.label ?? ""}
      hint={asked[1]?.shift ? "The second one's times are moved onto the first one's" : ""}
    >
      <Stale resource={found} />
      <Shown
        resource={found}
        what="series"
        isEmpty={(data) => data.every((one) => !one.times.length)}
        empty={<Empty title="Neither has readings in this time" />}
        room={320}
      >
        {(data) => {
          const { times, values } = aligned(data);
          const format = (value: number) => shown(value, what?.unit ?? "");
          const medians = values.map(medianOf);
          return (
            <>
              <div class="tiles">
                {asked.map((one, place) => (
                  <Tile
                    key={one.label}
                    label={one.label}
                    value={format(medians[place] ?? Number.NaN)}
                    hint={data[place]?.times.length ? "median" : "no readings in this time"}
                  />
                ))}
                <Tile
                  label="Second by first"
                  value={percent((medians[1] ?? Number.NaN) / (medians[0] ?? Number.NaN))}
                />
              </div>
              <Plot
                label={`${what?.label}: ${asked.map((one) => one.label).join(" against ")}`}
                times={times}
                lines={asked.map((one, place) => ({
                  label: one.label,
                  values: values[place] ?? [],
                  width: 1.8,
                  ...(place ? { isDashed: true } : {}),
                }))}
                format={format}
                height={300}
                isFromZero={what?.unit !== "Hz"}
              />
              <p class="row">
                {asked.map((one) => (
                  <a
                    key={one.label}
                    href={href(["explore"], { query: one.query, from: one.from, to: one.to })}
                  >
                    Explore {one.label}
                  </a>
                ))}
              </p>
            </>
          );
        }}
      </Shown>
    </Panel>
  );
}

function shown(value: number, unit: string): string {
  if (unit === "s") return duration(value);
  return unit === "%" ? percent(value) : si(value, unit);
}
