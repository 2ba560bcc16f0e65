/** From a job to what else shows it: the trace for Perfetto, its matrix, its fabric. */
import { address } from "../api/client";
import { TRACE_SECONDS_MAX, tracePath } from "../api/jobs";
import { duration, stamp } from "../format";
import type { Span } from "../parts/timeline";
import { href } from "../route";
import { Download } from "../ui/download";
import { OpenInPerfetto } from "../ui/perfetto";

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
  if (span.to - span.from > TRACE_SECONDS_MAX)
    return (
      <span class="soft">
        For a trace choose a time of {duration(TRACE_SECONDS_MAX)} at most; a minute is best.
      </span>
    );
  const name = `${job}.trace.json`;
  return (
    <>
      <OpenInPerfetto url={url} name={name} title={`${job}, ${stamp(span.from)}`} />
      <Download
        url={url}
        name={name}
        title="For Perfetto or chrome://tracing (docs/how-to/open-a-trace.md)"
      >
        Trace as a file
      </Download>
    </>
  );
}
