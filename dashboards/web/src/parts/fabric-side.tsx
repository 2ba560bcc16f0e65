/** Everything that is known of the link or node that is chosen. */
import type { ComponentChildren } from "preact";
import type { LinkFlow } from "../api/fabric";
import type { LinkShares } from "../api/link-shares";
import type { Cabling } from "../api/topology";
import { ago, count, moment, percent, si } from "../format";
import type { Resource } from "../resource";
import { href, type Query } from "../route";
import { Badge, Panel } from "../ui/panel";
import { type Frame, pauseWord } from "./fabric-frames";
import type { Focus } from "./fabric-graph";
import {
  endName,
  type FabricEnd,
  type FabricLink,
  type FabricNode,
  kindName,
} from "./fabric-graph";
import { LinkPlots } from "./fabric-plots";
import { QUANTITIES } from "./fabric-scale";
import { SharedBy } from "./fabric-shares";
import { FabricTable } from "./fabric-table";

/** What was asked for about a link beside the state. */
export interface LinkDetails {
  /** From the lower end to the upper, and back. */
  readonly flow: LinkFlow | undefined;
  /** What was cabled at its lower end, the latest first. */
  readonly cablings: readonly Cabling[];
  readonly shares: Resource<LinkShares>;
  /** The time that is looked at, for links to other views. */
  readonly when: Query;
}

export interface Accusation {
  readonly id: string;
  readonly cause: string;
  readonly state: "open" | "closed";
  readonly since: number;
}

export interface SideProps {
  readonly frame: Frame;
  readonly accusations: readonly Accusation[];
  readonly onClose: () => void;
  readonly onChoose: (focus: Focus) => void;
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Close({ onClose }: { onClose: () => void }) {
  return (
    <button type="button" class="plain" aria-label="Close" onClick={onClose}>
      ✕
    </button>
  );
}

function Accusations({ accusations }: { accusations: readonly Accusation[] }) {
  return (
    <ul class="fabric-accusations">
      {accusations.map((one) => (
        <li key={one.id}>
          <Badge tone={one.state === "open" ? "bad" : "warn"}>{one.cause}</Badge>{" "}
          <a href={href(["incident", one.id])}>incident since {moment(one.since)}</a>
        </li>
      ))}
    </ul>
  );
}

function EndLink({
  end,
  isSwitch,
  onChoose,
}: {
  end: FabricEnd;
  isSwitch: boolean;
  onChoose: SideProps["onChoose"];
}) {
  return (
    <>
      <button
        type="button"
        class="plain fabric-name"
        onClick={() => onChoose({ kind: "node", index: end.node })}
      >
        {end.host}
      </button>{" "}
      <span class="mono">{endName(end).slice(end.host.length + 1)}</span>
      {!isSwitch && (
        <>
          {" "}
          <a href={href(["hosts", end.host])} aria-label={`Health of ${end.host}`}>
            health
          </a>
        </>
      )}
    </>
  );
}

export function LinkSide(props: SideProps & { link: FabricLink; details: LinkDetails }) {
  const { link, frame, details, accusations } = props;
  const isBad = frame.isUp(link.index) === false || accusations.some((one) => one.state === "open");
  return (
    <Panel
      title="Link"
      class="fabric-side"
      aside={<Close onClose={props.onClose} />}
      {...(isBad ? { tone: "bad" as const } : {})}
    >
      <Accusations accusations={accusations} />
      <LinkFacts {...props} />
      <LinkPlots link={link} frame={frame} flow={details.flow} />
      <SharedBy shares={details.shares} when={details.when} />
      <Before cablings={details.cablings} />
      {details.flow && (
        <p>
          <a href={href(["explore"], { ...details.when, query: details.flow.query })}>
            Explore this link
          </a>
        </p>
      )}
    </Panel>
  );
}

function LinkFacts(props: SideProps & { link: FabricLink; details: LinkDetails }) {
  const { link, frame, details, onChoose } = props;
  const now = frame.link(link.index);
  const [up, down] =
    link.low === link.a ? [now.forward, now.backward] : [now.backward, now.forward];
  const isSwitch = (end: FabricEnd) => frame.graph.nodes[end.node]?.isSwitch ?? false;
  const rate = link.raw.rate_bits_per_second ?? details.flow?.bitsPerSecond;
  const share = (value: number) => (Number.isNaN(value) ? "no readings" : percent(value));
  return (
    <dl class="fabric-facts">
      <Fact name="Lower end">
        <EndLink end={link.low} isSwitch={isSwitch(link.low)} onChoose={onChoose} />
      </Fact>
      <Fact name="Upper end">
        <EndLink end={link.high} isSwitch={isSwitch(link.high)} onChoose={onChoose} />
      </Fact>
      <Fact name="State">
        {now.isUp === undefined ? (
          "not known"
        ) : (
          <Badge tone={now.isUp ? "good" : "bad"}>{now.isUp ? "up" : "down"}</Badge>
        )}
        {rate ? ` ${si(rate, "b/s")}` : ""}
        {link.rail === null ? "" : `, rail ${link.rail}`}
      </Fact>
      <Fact name="Used">
        {share(up)} <span class="soft">to {link.high.host}</span>
        <br />
        {share(down)} <span class="soft">to {link.low.host}</span>
      </Fact>
      <Fact name="Errors">{errorWords(frame, link.index)}</Fact>
      <Fact name="Paused">{pauseWord(now) || "no readings"}</Fact>
      <Fact name="Cabled so">
        {since(link.raw.since)}
        {link.raw.methods.length > 0 && <span class="soft"> by {link.raw.methods.join(", ")}</span>}
      </Fact>
    </dl>
  );
}

function errorWords(frame: Frame, link: number): string {
  const errors = frame.value("errors", link);
  if (Number.isNaN(errors)) return "no readings";
  if (errors <= 0) return "none";
  const kind = frame.errorsOf(link);
  return `${QUANTITIES.errors.show(errors)}${kind ? `, most: ${kind}` : ""}`;
}

function since(time: string): string {
  const seconds = Date.parse(time) / 1000;
  return Number.isNaN(seconds)
    ? "unknown since when"
    : `since ${moment(seconds)} (${ago(seconds)})`;
}

/** What the cable's lower end was on before it was on this one. */
function Before({ cablings }: { cablings: readonly Cabling[] }) {
  const earlier = cablings.filter((one) => one.until !== null).slice(0, 3);
  if (!earlier.length) return null;
  return (
    <>
      <h3>Before</h3>
      <ul class="fabric-accusations">
        {earlier.map((one) => (
          <li key={`${one.peer_name} ${one.since}`}>
            {one.peer_name} {one.peer_port}{" "}
            <span class="soft">until {moment(Date.parse(one.until ?? "") / 1000)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

export function NodeSide({
  node,
  frame,
  accusations,
  onClose,
  onChoose,
}: SideProps & { node: FabricNode }) {
  const { vendor, model, version, description } = node.attributes;
  const made = [vendor, model, version].filter(Boolean).join(" ") || description;
  const down = node.links.filter((link) => frame.isUp(link) === false).length;
  return (
    <Panel
      title={node.name}
      hint={kindName(frame.graph, node)}
      class="fabric-side"
      aside={<Close onClose={onClose} />}
      {...(accusations.some((one) => one.state === "open") ? { tone: "bad" as const } : {})}
    >
      <Accusations accusations={accusations} />
      <dl class="fabric-facts">
        <Fact name="Links">
          {count(node.links.length, "link")}
          {down ? `, ${down} down` : ""}
        </Fact>
        {node.pod !== null && <Fact name="Pod">{node.pod}</Fact>}
        {made && <Fact name="Made by">{made}</Fact>}
      </dl>
      <p class="row">
        {!node.isSwitch && <a href={href(["hosts", node.name])}>Health of this host</a>}
        <a href={href(["incident"], node.isSwitch ? { switch: node.name } : { host: node.name })}>
          Its incidents
        </a>
      </p>
      <FabricTable
        label={`Links of ${node.name}`}
        frame={frame}
        links={node.links}
        chosen={undefined}
        onChoose={onChoose}
        node={node.index}
      />
    </Panel>
  );
}
