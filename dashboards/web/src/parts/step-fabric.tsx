/** The excess of slow steps over the drawing of the fabric: from the culprit to those that waited. */
import { useMemo, useState } from "preact/hooks";
import type { StepsCompared } from "../api/steps";
import "../style/fabric.css";
import "../style/steps.css";
import {
  accusedMarks,
  accusedRanks,
  type BlameNow,
  type BlameWay,
  blameAt,
  blameWords,
  flowsOf,
  type RankPlace,
  waysOf,
  wholeWords,
} from "./fabric-blame";
import { type FabricGraph, type Focus, linkName } from "./fabric-graph";
import type { Hit } from "./fabric-hit";
import { formFor } from "./fabric-layout";
import { FabricMap } from "./fabric-map";
import { type Arc, type DrawnRank, seconds } from "./step-compare-words";

/** The cables at the time of the slow steps, and where the job's ranks are on them. */
export interface StepFabric {
  readonly graph: FabricGraph;
  readonly places: ReadonlyMap<number, RankPlace>;
}

/** Ways that are told in words: the strongest. */
const TOLD_MAX = 12;

export function BlameMap(props: {
  data: StepsCompared;
  fabric: StepFabric;
  arcs: readonly Arc[];
  drawn: readonly DrawnRank[];
  /** The moment of the step, and the end of the axis, in nanoseconds. */
  at_ns: number;
  end_ns: number;
}) {
  const { data, fabric, arcs, drawn, at_ns, end_ns } = props;
  const { graph, places } = fabric;
  const form = useMemo(() => formFor(graph), [graph]);
  const ways = useMemo(
    () => waysOf(graph, arcs, places, accusedRanks(data)),
    [graph, arcs, places, data],
  );
  const marks = useMemo(() => accusedMarks(graph, data), [graph, data]);
  // All links in one quiet colour: how busy they were is what the Fabric view shows.
  const buckets = useMemo(() => new Uint8Array(graph.links.length), [graph]);
  const lit = useMemo(() => litBy(ways, marks), [ways, marks]);
  const [chosen, setChosen] = useState<Focus>();
  const blame = blameAt(ways, drawn, data, at_ns, end_ns);
  const whole = wholeWords(blame);
  // What a replay takes away is not listed as nothing.
  const told = blame.filter((one) => one.end_ns > 0);
  if (!ways.length)
    return (
      <p class="soft" role="status">
        No rank that is drawn held another up for notably longer, or their hosts are not known.
      </p>
    );
  return (
    <div class="steps-fabric">
      <FabricMap
        graph={graph}
        form={form}
        buckets={buckets}
        lit={lit}
        marks={marks}
        chosen={chosen}
        onChoose={setChosen}
        flows={flowsOf(blame)}
        label={`The fabric, and what flows over it. ${whole}`}
        same="The list below tells the same."
        tip={(hit) => <FlowTip hit={hit} graph={graph} blame={blame} />}
      />
      <div>
        <p>
          <b>{whole}</b>
        </p>
        <ol class="steps-flows" aria-label={`Excess up to ${seconds(at_ns)} of the step`}>
          {told.slice(0, TOLD_MAX).map((one) => (
            <li key={`${one.way.part} ${one.way.from} ${one.way.to}`} class={one.way.part}>
              <b class={one.way.isAccused ? "accused" : ""}>
                {one.way.isAccused && "▲ "}
                {one.way.from} → {one.way.to}
              </b>{" "}
              {blameWords(graph, one)}
            </li>
          ))}
        </ol>
        {told.length > TOLD_MAX && (
          <p class="soft">{told.length - TOLD_MAX} weaker ones are drawn and not listed.</p>
        )}
        <p class="soft">
          Drawn is who waited for whom, not bytes; where several ways are equal, one stands for all.
        </p>
      </div>
    </div>
  );
}

/** The links of all ways, and what is accused: the rest of the fabric is faint. */
function litBy(ways: readonly BlameWay[], marks: readonly { focus: Focus }[]): Set<number> {
  const lit = new Set(ways.flatMap(({ links }) => links));
  for (const { focus } of marks) if (focus.kind === "link") lit.add(focus.index);
  return lit;
}

function FlowTip(props: { hit: Hit; graph: FabricGraph; blame: readonly BlameNow[] }) {
  const { hit, graph, blame } = props;
  const { focus } = hit;
  const node = focus.kind === "node" ? graph.nodes[focus.index] : undefined;
  const link = focus.kind === "link" ? graph.links[focus.index] : undefined;
  const over = blame.filter(({ way }) =>
    node
      ? way.from === node.name || way.to === node.name
      : hit.links.some((one) => way.links.includes(one)),
  );
  return (
    <>
      <b>{node?.name ?? (link ? linkName(link) : "")}</b>
      {over.slice(0, 4).map((one) => (
        <div key={`${one.way.part} ${one.way.from} ${one.way.to}`}>
          {one.way.from} → {one.way.to}: {seconds(one.now_ns)}
        </div>
      ))}
      {over.length === 0 && <div>no excess flows here</div>}
    </>
  );
}
