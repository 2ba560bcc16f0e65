/** Silence an incident's notices, for planned work; and show the silences that hold. */
import { useState } from "preact/hooks";
import type { Incident } from "../api/incidents";
import { askSilences, endSilence, type Matcher, type Silence, silence } from "../api/service";
import { moment } from "../format";
import { keepName, ownName } from "../parts/service-browser";
import { AskDialog } from "../parts/service-dialog";
import { useResource } from "../resource";
import { now } from "../time";
import "../style/incident.css";

const HOURS = [1, 2, 4, 8, 24] as const;

/** The silences that hold for this incident, and a button for a new one. */
export function Silences({ incident }: { incident: Incident }) {
  const [isAsked, setAsked] = useState(false);
  const [made, setMade] = useState(0);
  const found = useResource(
    "silences",
    (abort) => askSilences(abort),
    `${made}:${Math.floor(now.value / 60)}`,
  );
  const own = (found.data ?? []).filter((one) => one.state === "active" && holds(one, incident));
  return (
    <>
      <button type="button" onClick={() => setAsked(true)}>
        Silence …
      </button>
      {own.map((one) => (
        <span key={one.id} class="incident-silenced">
          Silenced until {moment(Date.parse(one.ends) / 1000, now.value)} by {one.created_by}
          <button
            type="button"
            class="small"
            onClick={() => void endSilence(one.id).finally(() => setMade(made + 1))}
          >
            End
          </button>
        </span>
      ))}
      {isAsked && (
        <SilenceDialog
          incident={incident}
          onClose={() => {
            setAsked(false);
            setMade(made + 1);
          }}
        />
      )}
    </>
  );
}

/** Whether a silence is about this incident by name, or about its culprit's host. */
function holds(one: Silence, incident: Incident): boolean {
  const { host } = incident.verdict.culprit;
  return one.matchers.every(
    ({ name, value, isRegex, isEqual }) =>
      isEqual &&
      !isRegex &&
      ((name === "incident" && value === incident.id) || (name === "host" && value === host)),
  );
}

function SilenceDialog({ incident, onClose }: { incident: Incident; onClose: () => void }) {
  const { host } = incident.verdict.culprit;
  const [isHost, setHost] = useState(false);
  const [hours, setHours] = useState(2);
  const [comment, setComment] = useState("");
  const [name, setName] = useState(ownName());
  const problem = !comment.trim() ? "Enter a reason." : !name.trim() ? "Enter your name." : "";
  const send = async () => {
    keepName(name.trim());
    const matcher: Matcher = {
      ...(isHost && host
        ? { name: "host", value: host }
        : { name: "incident", value: incident.id }),
      isRegex: false,
      isEqual: true,
    };
    await silence({ matchers: [matcher], hours, created_by: name.trim(), comment: comment.trim() });
  };
  return (
    <AskDialog
      title="Silence this"
      confirm="Silence"
      problem={problem}
      onConfirm={send}
      onClose={onClose}
    >
      <p class="soft">
        No notice is sent while it holds. For the built-in notifier: an Alertmanager has silences of
        its own. The incident goes on and stays in this page.
      </p>
      <fieldset class="choice">
        <legend>What</legend>
        <label class="check">
          <input type="radio" name="what" checked={!isHost} onChange={() => setHost(false)} />
          This incident
        </label>
        {host && (
          <label class="check">
            <input type="radio" name="what" checked={isHost} onChange={() => setHost(true)} />
            Every alert about {host}
          </label>
        )}
      </fieldset>
      <label>
        For{" "}
        <select value={hours} onChange={(event) => setHours(Number(event.currentTarget.value))}>
          {HOURS.map((one) => (
            <option key={one} value={one}>
              {one} h
            </option>
          ))}
        </select>
      </label>
      <label>
        Why{" "}
        <input
          value={comment}
          maxLength={500}
          placeholder="planned work on the cables"
          onInput={(event) => setComment(event.currentTarget.value)}
        />
      </label>
      <label>
        Your name{" "}
        <input
          value={name}
          maxLength={200}
          autocomplete="username"
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </label>
    </AskDialog>
  );
}
