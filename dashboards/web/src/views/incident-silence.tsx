/** Silence an incident's notices, for planned work; and show the silence that holds. */
import { useState } from "preact/hooks";
import type { Incident } from "../api/incidents";
import { endSilence, type Matcher, type Silence, silence } from "../api/service";
import { keepName, ownName } from "../parts/service-browser";
import { AskDialog, Refusal } from "../parts/service-dialog";
import { SilencedBadge } from "../parts/work-badges";
import { now } from "../time";
import "../style/incident.css";

const HOURS = [1, 2, 4, 8, 24] as const;

/** The silence that holds, and a button that ends it. */
export function SilenceInForce({ silence, onEnd }: { silence: Silence; onEnd: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState<unknown>();
  const end = async () => {
    setBusy(true);
    setRefusal(undefined);
    try {
      await endSilence(silence.id);
      onEnd();
    } catch (error) {
      setRefusal(error);
    }
    setBusy(false);
  };
  return (
    <>
      <p class="row incident-silenced">
        <SilencedBadge silence={silence} now={now.value} />
        <span>
          by {silence.created_by}: {silence.comment}
        </span>
        <button type="button" class="small" disabled={isBusy} onClick={end}>
          {isBusy ? "Ending …" : "End the silence"}
        </button>
      </p>
      {refusal !== undefined && <Refusal error={refusal} />}
    </>
  );
}

export function SilenceDialog({ incident, onClose }: { incident: Incident; onClose: () => void }) {
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
