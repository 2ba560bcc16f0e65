/** A pipeline's stages: what a typical step of each is made of. */
import type { Stages, StageTimes } from "../api/stages";
import { count, duration, percent } from "../format";
import { Badge, Panel } from "../ui/panel";
import { Table } from "../ui/table";
import { rankWords, stageSentences } from "./stage-words";
import "../style/job.css";

const NS = 1e9;

/** `onRank` shows one rank beside the others. */
export function StagePanel(props: { found: Stages; onRank: (rank: number) => void }) {
  const { found } = props;
  const seconds = (name: string, of: (one: StageTimes) => number) => ({
    name,
    isNumber: true,
    show: (one: StageTimes) => duration(of(one) / NS),
    by: (one: StageTimes) => of(one) / NS,
  });
  return (
    <Panel
      title="Stages of the pipeline"
      hint={found.stages.length ? `A typical step of each, of ${count(found.steps, "step")}` : ""}
    >
      {stageSentences(found).map((text) => (
        <p key={text}>{text}</p>
      ))}
      {found.stages.length > 0 && (
        <Table
          label="Stages of the pipeline"
          noun="stage"
          rows={found.stages}
          keyOf={(one) => String(one.stage)}
          columns={[
            {
              name: "Stage",
              show: (one) => (
                <>
                  {one.stage} {one.stage === found.pace && <Badge tone="warn">sets the pace</Badge>}
                </>
              ),
              by: (one) => one.stage,
              csv: (one) => one.stage,
            },
            { name: "Ranks", show: (one) => rankWords(one.ranks, one.ranks_total) },
            { name: "Of a step", show: (one) => <Parts times={one} />, csv: () => "" },
            seconds("Own work", (one) => one.own_ns),
            seconds("Waits", (one) => one.wait_ns),
            seconds("Transfer", (one) => one.transfer_ns),
            {
              name: "Bubble",
              isNumber: true,
              show: (one) => percent(one.bubble_share),
              by: (one) => one.bubble_share,
            },
            {
              name: "Most own work",
              isNumber: true,
              show: (one) => (
                <>
                  {duration(one.own_most_ns / NS)}{" "}
                  <button
                    type="button"
                    class="plain link"
                    onClick={() => props.onRank(one.own_most_rank)}
                  >
                    rank {one.own_most_rank}
                  </button>
                </>
              ),
              by: (one) => one.own_most_ns / NS,
            },
          ]}
        />
      )}
    </Panel>
  );
}

/** In the colours of the plot of steps; the numbers stand beside it. */
function Parts({ times }: { times: StageTimes }) {
  return (
    <span class="spent-bar stage-parts" aria-hidden="true">
      <i style={{ flexGrow: times.own_ns, background: "var(--compute)" }} />
      <i style={{ flexGrow: times.wait_ns, background: "var(--wait)" }} />
      <i style={{ flexGrow: times.transfer_ns, background: "var(--transfer)" }} />
    </span>
  );
}
