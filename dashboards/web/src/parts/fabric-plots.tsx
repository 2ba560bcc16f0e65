/** What a link carried and suffered over the range, as lines. */
import type { LinkFlow } from "../api/fabric";
import { percent, si } from "../format";
import { aligned, type Band, type Line, Plot } from "../ui/plot";
import { type Frame, isSome, quietWords, type Values } from "./fabric-frames";
import { type FabricLink, linkName } from "./fabric-graph";
import { QUANTITIES } from "./fabric-scale";

interface PlotsProps {
  readonly link: FabricLink;
  readonly frame: Frame;
  /** From the lower end to the upper, and back; undefined: not asked for yet. */
  readonly flow: LinkFlow | undefined;
}

const NAME_MOST = 32;

/** Names come from outside and may be of any length; a legend has one line. */
function cut(name: string): string {
  return name.length > NAME_MOST ? `${name.slice(0, NAME_MOST - 1)}…` : name;
}

export function LinkPlots({ link, frame, flow }: PlotsProps) {
  const { state, time } = frame;
  const bands = [{ from: time - state.stepSeconds, to: time }];
  const name = linkName(link);
  const errors = frame.series(state.errors, link.index);
  const pause = frame.series(state.pause, link.index);
  const quiet = quietWords({
    errors,
    pause,
    atMost: frame.series(state.pauseAtMost, link.index),
  });
  return (
    <>
      <Flow link={link} frame={frame} flow={flow} bands={bands} />
      <Trouble
        title="Errors a second"
        label={`Errors a second of ${name}`}
        times={state.times}
        line={{ label: "errors", values: errors, colour: "bad" }}
        format={QUANTITIES.errors.show}
        bands={bands}
      />
      <Trouble
        title="Share of time paused"
        label={`Share of time that ${name} is paused`}
        times={state.times}
        line={{ label: "paused", values: pause, colour: "wait" }}
        format={QUANTITIES.pause.show}
        bands={bands}
      />
      {state.awaited?.size ? (
        <p class="soft">The rest of this range is being asked.</p>
      ) : (
        quiet && <p class="soft">{quiet}</p>
      )}
    </>
  );
}

/** Only where there was any: most links have none, ever. */
function Trouble(props: {
  title: string;
  label: string;
  times: readonly number[];
  line: Line;
  format: (value: number) => string;
  bands: readonly Band[];
}) {
  const { title, label, times, line, format, bands } = props;
  if (!isSome(line.values)) return null;
  return (
    <>
      <h3>{title}</h3>
      <Plot
        label={label}
        times={times}
        lines={[line]}
        format={format}
        height={130}
        bands={bands}
        isFromZero
      />
    </>
  );
}

/** In bits as soon as they are known, until then as shares of the link's speed. */
function Flow({ link, frame, flow, bands }: PlotsProps & { bands: readonly Band[] }) {
  const { state } = frame;
  const name = linkName(link);
  const lines = (up: Values, down: Values): Line[] => [
    { label: `to ${cut(link.high.host)}`, values: up },
    { label: `to ${cut(link.low.host)}`, values: down },
  ];
  if (!flow) {
    const [up, down] =
      link.low === link.a ? [state.forward, state.backward] : [state.backward, state.forward];
    return (
      <>
        <h3>Used</h3>
        <Plot
          key="use"
          label={`Use of ${name}`}
          times={state.times}
          lines={lines(frame.series(up, link.index), frame.series(down, link.index))}
          format={percent}
          height={140}
          bands={bands}
          isFromZero
          hasLegend
        />
      </>
    );
  }
  const nothing = { times: [], values: [] };
  const { times, values } = aligned([flow.forth ?? nothing, flow.back ?? nothing]);
  return (
    <>
      <h3>Bits a second</h3>
      <Plot
        key="flow"
        label={`Bits a second of ${name}`}
        times={times}
        lines={lines(values[0] ?? [], values[1] ?? [])}
        format={(value) => si(value, "b/s")}
        height={140}
        bands={bands}
        isFromZero
        hasLegend
      />
    </>
  );
}
