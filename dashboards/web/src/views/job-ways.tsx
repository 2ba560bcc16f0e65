/** From a job to what else shows it: the trace for Perfetto, its matrix, its fabric. */
import { address } from "../api/client";
import { TRACE_SECONDS_MAX, tracePath } from "../api/jobs";
import { duration } from "../format";
import type { Span } from "../parts/timeline";
import { href } from "../route";
import { Download } from "../ui/download";

export function JobWays({ job, span }: { job: string; span: Span }) {
  const when = { from: span.from.toFixed(0), to: span.to.toFixed(0) };
  return (
    <>
      <a class="button" href={href(["matrix"], { job, ...when })}>
        Traffic matrix
      </a>
      <a class="button" href={href(["fabric"], { job, ...when })}>
        Its way through the fabric
      </a>
      <a class="button" href={href(["compare", "steps", job])}>
        Slow steps
      </a>
      <Trace job={job} span={span} />
    </>
  );
}

function Trace({ job, span }: { job: string; span: Span }) {
  const url = address(tracePath(job), { from: span.from.toFixed(3), to: span.to.toFixed(3) });
  const how = (
    <span class="soft">
      then open the file at{" "}
      <a href="https://ui.perfetto.dev" target="_blank" rel="noreferrer">
        ui.perfetto.dev
      </a>{" "}
      or <code>chrome://tracing</code>; it stays in your browser (docs/how-to/open-a-trace.md)
    </span>
  );
  if (span.to - span.from > TRACE_SECONDS_MAX)
    return (
      <span class="soft">
        For a trace choose a time of {duration(TRACE_SECONDS_MAX)} at most; a minute is best.
      </span>
    );
  return (
    <>
      <Download url={url} name={`${job}.trace.json`}>
        Trace of this time
      </Download>
      {how}
    </>
  );
}
