/** A job's pipeline, where it has one: its stages are asked for only where ranks send each other messages. */
import { askHasMessages, askStages } from "../api/stages";
import { StagePanel } from "../parts/job-stages";
import type { Span } from "../parts/timeline";
import { useResource } from "../resource";
import { withQuery } from "../route";
import { rangeWord } from "../time";
import { Shown } from "../ui/states";

/** Of a longer time the last part: steps of a pipeline are alike, and the service reads all their records. */
const SECONDS_MAX = 300;

export function JobStages({ job, span }: { job: string; span: Span }) {
  const messages = useResource(
    `messages ${job}`,
    (abort) => askHasMessages(job, span.to, abort),
    0,
    rangeWord.value,
  );
  return messages.data ? <StagesOf job={job} span={span} /> : null;
}

function StagesOf({ job, span }: { job: string; span: Span }) {
  const { from, to } = span;
  const found = useResource(
    `stages ${job}`,
    (abort) => askStages(job, Math.max(from, to - SECONDS_MAX), to, abort),
    Math.floor(to / SECONDS_MAX),
    rangeWord.value,
  );
  return (
    <Shown resource={found} what="stages">
      {(stages) => (
        <StagePanel found={stages} onRank={(rank) => withQuery({ rank, step: undefined })} />
      )}
    </Shown>
  );
}
