/** How an incident went: a strip of its verdicts over time, and its turns in words. */

import type { HostEvent } from "../api/hosts";
import type { Incident } from "../api/incidents";
import { duration, moment } from "../format";
import { type Entry, historyOf, NS, stretches } from "./story-turns";
import { causeOf } from "./verdict-words";
import "../style/incident.css";

/** From the beginning to the end on one line. */
export function StoryStrip({ incident, now }: { incident: Incident; now: number }) {
  const parts = stretches(incident, now);
  const [first, last] = [parts[0], parts.at(-1)];
  if (!first || !last) return null;
  const length = last.to - first.from;
  const summary = parts
    .map(
      ({ cause, from, to }) =>
        `${cause ? causeOf(cause).title : "no verdict yet"} for ${duration(to - from)}`,
    )
    .join(", then ");
  return (
    <figure class="story-strip">
      <div role="img" aria-label={`From ${moment(first.from, now)}: ${summary}.`}>
        {parts.map(({ cause, from, to }) => (
          <span
            key={from}
            class={`stretch ${cause ? "" : "unexplained"}`}
            style={{
              flexGrow: Math.max(0.02, (to - from) / length),
              ...(cause ? { "--cause": `var(--${causeOf(cause).colour})` } : {}),
            }}
            title={`${cause ? causeOf(cause).title : "No verdict yet"}: ${moment(from, now)} to ${moment(to, now)}`}
          >
            {cause ? causeOf(cause).title : ""}
          </span>
        ))}
      </div>
      <figcaption class="soft">
        <span>{moment(first.from, now)}</span>
        <span>{incident.state === "open" ? "now" : moment(last.to, now)}</span>
      </figcaption>
    </figure>
  );
}

const EVENTS_SHOWN = 12;

/** Its turns and the events of its host or switch, in order of time. */
export function Story(props: { incident: Incident; events: readonly HostEvent[]; now: number }) {
  const happened: Entry[] = props.events.slice(0, EVENTS_SHOWN).map((event) => ({
    time: event.time_ns / NS,
    title: event.kind.replaceAll("_", " "),
    text: event.message || Object.values(event.labels).join(" "),
    tone: "",
  }));
  const entries = [...historyOf(props.incident), ...happened].sort((a, b) => a.time - b.time);
  const left = props.events.length - happened.length;
  return (
    <>
      <ol class="story">
        {entries.map((one) => (
          <li key={`${one.time}${one.title}${one.text}`} class={one.tone}>
            <time class="soft" dateTime={new Date(one.time * 1000).toISOString()}>
              {moment(one.time, props.now)}
            </time>
            <div>
              <b>{one.title}</b>
              <div>{one.text}</div>
            </div>
          </li>
        ))}
      </ol>
      {left > 0 && <p class="soft">{left} older events of its host are not shown.</p>}
    </>
  );
}
