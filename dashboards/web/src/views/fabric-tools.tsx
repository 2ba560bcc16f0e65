/** What the reader chooses above the fabric's drawing: colour, form, rail, job, and a name to search for. */
import { useMemo, useState } from "preact/hooks";
import type { JobHosts } from "../api/fabric";
import { askJobs, type Job } from "../api/jobs";
import { count } from "../format";
import { changes } from "../live";
import { type FabricGraph, search } from "../parts/fabric-graph";
import type { Form } from "../parts/fabric-layout";
import { QUANTITIES, type Quantity } from "../parts/fabric-scale";
import { type Resource, useResource } from "../resource";
import { route, withQuery } from "../route";
import { range } from "../time";
import { Failed, Loading } from "../ui/states";

const FOUND_SHOWN = 12;

export function Tools({
  graph,
  quantity,
  form,
}: {
  graph: FabricGraph;
  quantity: Quantity;
  form: Form;
}) {
  const { query } = route.value;
  const jobs = useResource(
    "jobs of the fabric",
    (abort) => askJobs(undefined, abort),
    changes.value,
  );
  return (
    <div class="fabric-tools">
      <fieldset class="fabric-choice" aria-label="Colour of links">
        {(Object.keys(QUANTITIES) as Quantity[]).map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === quantity}
            onClick={() => withQuery({ colour: one })}
          >
            {QUANTITIES[one].label}
          </button>
        ))}
      </fieldset>
      <fieldset class="fabric-choice" aria-label="Links between switches">
        {(["lines", "cells"] as const).map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === form}
            onClick={() => withQuery({ form: one })}
          >
            {one === "lines" ? "Lines" : "Cells"}
          </button>
        ))}
      </fieldset>
      {graph.rails.length > 1 && (
        <select
          aria-label="Rail"
          value={query.rail ?? ""}
          onChange={(event) => withQuery({ rail: event.currentTarget.value })}
        >
          <option value="">All rails</option>
          {graph.rails.map((rail) => (
            <option key={rail} value={rail}>
              Rail {rail}
            </option>
          ))}
        </select>
      )}
      <select
        aria-label="Job"
        value={query.job ?? ""}
        onChange={(event) => withQuery({ job: event.currentTarget.value })}
      >
        <option value="">All jobs</option>
        {jobChoices(jobs.data?.items ?? [], query.job).map((job) => (
          <option key={job} value={job}>
            {job}
          </option>
        ))}
      </select>
      <Search graph={graph} />
    </div>
  );
}

/** What is drawn strongly, in words. */
export function Lit(props: {
  graph: FabricGraph;
  lit: ReadonlySet<number> | undefined;
  hosts: Resource<JobHosts | undefined>;
}) {
  const { graph, lit, hosts } = props;
  const { job, rail } = route.value.query;
  if (job && !hosts.data)
    return hosts.failure ? (
      <Failed resource={hosts} what={`place of ${job}`} />
    ) : (
      <Loading what={`the hosts of ${job}`} />
    );
  if (!lit) return null;
  const whose = [job && `that traffic of ${job} can take`, rail && `of rail ${rail}`];
  const words = `${lit.size.toLocaleString("en")} of ${count(graph.links.length, "link")}`;
  return (
    <p class="soft" role="status">
      Drawn strongly: {words} {whose.filter(Boolean).join(", ")}.{" "}
      <button
        type="button"
        class="plain fabric-name"
        onClick={() => withQuery({ job: undefined, rail: undefined })}
      >
        Show all alike
      </button>
    </p>
  );
}

const JOBS_OFFERED = 100;

/** Jobs that ran in the range, and the one that is chosen. */
function jobChoices(jobs: readonly Job[], chosen: string | undefined): string[] {
  const { from, to } = range.value;
  const seconds = (time: string | null) => (time === null ? Number.NaN : Date.parse(time) / 1000);
  const ran = jobs
    .filter((job) => !(seconds(job.started_at) > to) && !(seconds(job.ended_at) < from))
    .map((job) => job.id)
    .slice(0, JOBS_OFFERED);
  return chosen && !ran.includes(chosen) ? [chosen, ...ran] : ran;
}

function Search({ graph }: { graph: FabricGraph }) {
  const [text, setText] = useState("");
  const found = useMemo(() => search(graph, text, FOUND_SHOWN), [graph, text]);
  const goTo = (word: string) => {
    setText("");
    withQuery({ focus: word });
  };
  return (
    <form
      class="fabric-search"
      onSubmit={(event) => {
        event.preventDefault();
        if (found[0]) goTo(found[0].word);
      }}
    >
      <input
        type="search"
        aria-label="Find a host, switch or port"
        placeholder="Find a host, switch or port"
        value={text}
        list="fabric-found"
        onInput={(event) => {
          const typed = event.currentTarget.value;
          const exact = found.find((one) => one.label === typed);
          if (exact) goTo(exact.word);
          else setText(typed);
        }}
      />
      <datalist id="fabric-found">
        {found.map((one) => (
          <option key={one.word} value={one.label}>
            {one.hint}
          </option>
        ))}
      </datalist>
    </form>
  );
}
