/** Slow steps of a job against normal ones. Everything that is chosen stands in the address. */
import { useRef, useState } from "preact/hooks";
import { askRanks } from "../api/jobs";
import { compareSteps, type StepsCompared, stepsDiffer } from "../api/steps";
import { askTopology } from "../api/topology";
import { count, moment } from "../format";
import { placesOf } from "../parts/fabric-blame";
import { graphOf } from "../parts/fabric-graph";
import { StepComparison } from "../parts/step-compare";
import { StandingOut } from "../parts/step-differ";
import type { StepFabric } from "../parts/step-fabric";
import { useResource } from "../resource";
import { href, route, withQuery } from "../route";
import { now, range, rangeWord } from "../time";
import { HINT, typedTime, writtenTime } from "../typed-time";
import { Panel } from "../ui/panel";
import { Shown, Stale } from "../ui/states";

const NS = 1e9;
/** Around the slow steps, of the time in which steps are told apart. */
const BEFORE_SECONDS = 150;
const AFTER_SECONDS = 30;
const DIFFER_SECONDS_MAX = 600;
/** How often it is asked what is different now: an answer takes the service seconds. */
const PULSE_SECONDS = 30;
/** Before and after them, where the fabric is shown. */
const AROUND_SECONDS = 60;
/** Slow steps that are offered. */
const OFFERED_MAX = 12;

export function StepsView({ job }: { job: string }) {
  const { slow, slow_to, normal, normal_to, normal_job, incident } = route.value.query;
  const asked = { slow, slow_to, normal, normal_to, normal_job, incident };
  const isAsked = Boolean(slow || incident);
  const found = useResource(`steps ${job} ${JSON.stringify(asked)}`, async (abort) =>
    isAsked ? compareSteps(job, asked, abort) : undefined,
  );
  const begin = found.data ? found.data.slow.from_ns / NS : slow ? Number(slow) : 0;
  const end = found.data ? found.data.slow.to_ns / NS : begin;
  const fabric = useStepFabric(job, found.data);
  return (
    <>
      <header class="job-title">
        <h1>
          Steps of <a href={href(["job", job])}>{job}</a>
        </h1>
        <span class="soft">
          {found.data ? `slow at ${moment(begin, now.value)}` : "slow against normal"}
        </span>
        {incident && <a href={href(["incident", incident])}>its incident</a>}
        {found.data && (
          <a
            href={href(["fabric"], {
              job,
              focus: found.data.accused[0]?.culprit.host,
              from: (begin - AROUND_SECONDS).toFixed(0),
              to: (end + AROUND_SECONDS).toFixed(0),
            })}
          >
            in the fabric
          </a>
        )}
      </header>
      <StepsForm key={JSON.stringify(asked)} />
      <Stale resource={found} />
      {isAsked && (
        <Shown resource={found} what="comparison" room={400}>
          {(data) => data && <StepComparison data={data} fabric={fabric} />}
        </Shown>
      )}
      {(!isAsked || found.data) && <Differ job={job} around={isAsked ? [begin, end] : undefined} />}
    </>
  );
}

/** The cables as they were then, and the job's places on them. */
function useStepFabric(job: string, data: StepsCompared | undefined) {
  const at = data && data.slow.from_ns / NS;
  return useResource<StepFabric | undefined>(`cables ${job} ${at}`, async (abort) => {
    if (!data) return undefined;
    const [topology, ranks] = await Promise.all([askTopology(at, abort), askRanks(job, abort)]);
    return { graph: graphOf(topology), places: placesOf(data.ranks, ranks) };
  });
}

const FIELDS = [
  ["slow", "Slow at"],
  ["slow_to", "until"],
  ["normal", "Normal at"],
  ["normal_to", "until"],
] as const;

/** Which steps, written by hand; what is left empty the service chooses. */
function StepsForm() {
  const { query } = route.value;
  const [refusal, setRefusal] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const apply = (event: Event) => {
    event.preventDefault();
    const given = new FormData(form.current ?? undefined);
    const change: Record<string, string | undefined> = {
      normal_job: String(given.get("normal_job") ?? "").trim() || undefined,
    };
    for (const [name, label] of FIELDS) {
      const text = String(given.get(name) ?? "").trim();
      const time = text ? typedTime(text, Date.now() / 1000) : undefined;
      if (text && time === undefined) {
        setRefusal(`"${label}" is no time. Write ${HINT}.`);
        return;
      }
      change[name] = written(time, query[name]);
    }
    setRefusal("");
    withQuery(change);
  };
  return (
    <form class="row steps-form" ref={form} aria-label="Which steps" onSubmit={apply}>
      {FIELDS.map(([name, label]) => (
        <label key={name}>
          {label}{" "}
          <input
            name={name}
            autocomplete="off"
            placeholder={name === "slow_to" || name === "normal_to" ? "one step" : "by itself"}
            defaultValue={query[name] ? writtenTime(Number(query[name])) : ""}
          />
        </label>
      ))}
      <label>
        of job <input name="normal_job" autocomplete="off" defaultValue={query.normal_job ?? ""} />
      </label>
      <button type="submit">Compare</button>
      {refusal && <p role="alert">{refusal}</p>}
    </form>
  );
}

/** A field shows whole seconds: what was not changed keeps its parts of a second. */
function written(time: number | undefined, before: string | undefined): string | undefined {
  if (time === undefined) return undefined;
  return before && Math.floor(Number(before)) === Math.floor(time) ? before : time.toFixed(3);
}

/** `around`: when the slow steps began and ended; undefined: the end of the range, which may go on. */
function Differ({ job, around }: { job: string; around: readonly [number, number] | undefined }) {
  const found = useResource(
    `differ ${job} ${around ? around.map((at) => at.toFixed(0)).join(" ") : rangeWord.value}`,
    (abort) => {
      const [begin, end] = around ?? [range.value.to, range.value.to];
      const to = Math.min(end + AFTER_SECONDS, begin + DIFFER_SECONDS_MAX - BEFORE_SECONDS);
      return stepsDiffer(job, begin - BEFORE_SECONDS, to, abort);
    },
    around || range.value.last === undefined ? 0 : Math.floor(now.value / PULSE_SECONDS),
  );
  return (
    <Panel
      title="How slow steps differ"
      hint="Steps that are longer than usual around this time, against the others; a difference is no cause"
    >
      <Shown resource={found} what="differences">
        {(data) => (
          <>
            <StandingOut data={data} />
            {data.slow_at_ns.length > 0 && (
              <p>
                {count(data.slow_at_ns.length, "slow step")}:{" "}
                {data.slow_at_ns.slice(-OFFERED_MAX).map((at) => (
                  <span key={at}>
                    <a
                      href={href(["compare", "steps", job], { slow: (at / NS + 0.001).toFixed(3) })}
                    >
                      {moment(at / NS, now.value)}
                    </a>{" "}
                  </span>
                ))}
              </p>
            )}
          </>
        )}
      </Shown>
    </Panel>
  );
}
