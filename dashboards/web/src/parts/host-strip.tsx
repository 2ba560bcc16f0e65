/** A host's past on one line: in which state it was when, and which incidents had it as culprit. */
import type { HostHealthWhole } from "../api/hosts";
import type { IncidentShort } from "../api/incidents";
import { duration, moment } from "../format";
import { href } from "../route";
import { barsOf, partsOf, type Stretch, stretchesOf } from "./host-history";
import { chargeWords } from "./host-words";
import "../style/hosts.css";

const PARTS_SHOWN = 8;
const TICKS = 5;

interface Span {
  readonly from: number;
  readonly to: number;
}

function place(span: Span, whole: Span) {
  const length = whole.to - whole.from;
  return {
    left: `${(100 * (span.from - whole.from)) / length}%`,
    width: `${(100 * (span.to - span.from)) / length}%`,
  };
}

function States(props: { label: string; stretches: readonly Stretch[]; whole: Span }) {
  const summary = props.stretches
    .map((one) => `${one.look} from ${moment(one.from)} to ${moment(one.to)}`)
    .join(", ");
  return (
    <div class="strip-row">
      <span class="strip-name">{props.label}</span>
      <div
        class="strip-lane"
        role="img"
        aria-label={`${props.label}: ${summary || "nothing known"}`}
      >
        {props.stretches.map((one) => (
          <i
            key={one.from}
            class={`strip-state ${one.look} ${one.isPresumed ? "presumed" : ""}`}
            style={place(one, props.whole)}
            title={stretchWords(one)}
          />
        ))}
      </div>
    </div>
  );
}

function stretchWords(one: Stretch): string {
  if (one.isPresumed) return `${one.look}, as far as is known: no change is kept from before`;
  const why = one.why ? `: ${one.why}` : "";
  return `${one.look} for ${duration(Math.round(one.to - one.from))} from ${moment(one.from)}${why}`;
}

export function HostStrip(props: {
  health: HostHealthWhole;
  incidents: readonly IncidentShort[];
  from: number;
  to: number;
}) {
  const { health, from, to } = props;
  const whole = { from, to };
  const turns = health.history.filter((turn) => turn.kind === "host");
  const parts = [...partsOf(health.history)].slice(0, PARTS_SHOWN);
  const bars = barsOf(props.incidents, from, to);
  const lanes = 1 + bars.reduce((most, bar) => Math.max(most, bar.lane), -1);
  return (
    <div class="strip">
      <States label="Host" stretches={stretchesOf(turns, health.state, from, to)} whole={whole} />
      {parts.map(([name, own]) => (
        <States
          key={name}
          label={name}
          stretches={stretchesOf(own, "healthy", from, to)}
          whole={whole}
        />
      ))}
      <div class="strip-row">
        <span class="strip-name">Incidents</span>
        <div class="strip-lane bars" style={{ height: `${Math.max(1, lanes) * 22}px` }}>
          {bars.map(({ incident, lane, ...span }) => (
            <a
              key={incident.id}
              href={href(["incident", incident.id])}
              class={`${incident.state === "open" ? "open" : ""} ${incident.culprit.host === health.host ? "" : "suffers"}`}
              style={{ ...place(span, whole), top: `${lane * 22}px` }}
              title={
                incident.culprit.host === health.host
                  ? incident.summary
                  : `Its culprit is elsewhere. ${incident.summary}`
              }
            >
              {chargeWords(incident.cause, incident.reason, "")}
            </a>
          ))}
          {!bars.length && <span class="soft">none in this time</span>}
        </div>
      </div>
      <div class="strip-row" aria-hidden="true">
        <span class="strip-name" />
        <div class="strip-ticks">
          {Array.from({ length: TICKS }, (_, index) => {
            const time = from + ((to - from) * index) / (TICKS - 1);
            return <span key={time}>{moment(time)}</span>;
          })}
        </div>
      </div>
    </div>
  );
}
