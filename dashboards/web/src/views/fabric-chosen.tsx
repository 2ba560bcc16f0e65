/** Fetches the details of the chosen link or node, shown beside the drawing. */
import { askFlow } from "../api/fabric";
import type { IncidentShort } from "../api/incidents";
import { askLinkShares, LINK_SECONDS_MAX } from "../api/link-shares";
import { askCablings } from "../api/topology";
import type { Frame } from "../parts/fabric-frames";
import type { FabricLink, Focus } from "../parts/fabric-graph";
import { causeWords, placeOf } from "../parts/fabric-marks";
import { LinkSide, NodeSide, type SideProps } from "../parts/fabric-side";
import { useResource } from "../resource";
import { route } from "../route";
import { now, range, rangeWord } from "../time";

const NS = 1e9;

export function Chosen(props: {
  frame: Frame;
  focus: Focus;
  incidents: readonly IncidentShort[];
  choose: (focus: Focus | undefined) => void;
}) {
  const { frame, focus, incidents, choose } = props;
  const { graph } = frame;
  const accusations = incidents
    .filter((one) => {
      const place = placeOf(graph, one.culprit);
      return place?.kind === focus.kind && place.index === focus.index;
    })
    .map(({ id, cause, state, since_ns }) => ({
      id,
      state,
      cause: causeWords(cause),
      since: since_ns / NS,
    }));
  const shared = { frame, accusations, onClose: () => choose(undefined), onChoose: choose };
  const [node, link] = [graph.nodes[focus.index], graph.links[focus.index]];
  if (focus.kind === "node") return node ? <NodeSide {...shared} node={node} /> : null;
  return link ? <LinkAsked {...shared} link={link} key={link.id} /> : null;
}

const FLOW_PULSE_SECONDS = 15;
/** Shares of jobs are added up from all their collectives. */
const SHARES_PULSE_SECONDS = 60;

function LinkAsked(props: SideProps & { link: FabricLink }) {
  const { link } = props;
  const { last } = range.value;
  const flow = useResource(
    `flow of ${link.id} ${rangeWord.value}`,
    (abort) => askFlow(link.low, link.high, range.value, abort),
    last === undefined ? 0 : Math.floor(now.value / FLOW_PULSE_SECONDS),
  );
  const cablings = useResource(`cablings of ${link.id}`, (abort) =>
    askCablings(link.low.id, abort),
  );
  const shares = useResource(
    `shares of ${link.id} ${rangeWord.value}`,
    (abort) => {
      const { from, to } = range.value;
      return askLinkShares(link.id, Math.max(from, to - LINK_SECONDS_MAX), to, abort);
    },
    last === undefined ? 0 : Math.floor(now.value / SHARES_PULSE_SECONDS),
  );
  const { query } = route.value;
  const when = { from: query.from, to: query.to, last: query.last };
  return (
    <LinkSide
      {...props}
      details={{ flow: flow.data, cablings: cablings.data ?? [], shares, when }}
    />
  );
}
