/** What people do about an incident: who looks after it, what the policy proposes, who did what. */
import { useState } from "preact/hooks";
import { type Action, askActionsOf, type Decision, decide } from "../api/actions";
import { askCaller, mayDo } from "../api/caller";
import { isPassOnly } from "../api/client";
import type { Said } from "../api/feedback";
import type { Incident } from "../api/incidents";
import { askSilences } from "../api/service";
import {
  askWork,
  type Does,
  doWork,
  markdownPath,
  type Work,
  type WorkAsked,
  type WorkDone,
} from "../api/work";
import { ago, moment, stamp } from "../format";
import { keepName, ownName } from "../parts/service-browser";
import { AskDialog, Refusal } from "../parts/service-dialog";
import {
  alertLabels,
  commandOf,
  type Done,
  historyOfWork,
  isAbout,
  silenceOf,
} from "../parts/work-words";
import { useResource } from "../resource";
import { href } from "../route";
import { now } from "../time";
import { Download } from "../ui/download";
import { Panel } from "../ui/panel";
import { Stale } from "../ui/states";
import { SilenceDialog, SilenceInForce } from "./incident-silence";
import "../style/incident.css";

const PULSE_SECONDS = 15;
const SHOWN_FIRST = 10;

/** Who looks after the incident, the buttons to change that, and the record. */
export function WorkPanel(props: { incident: Incident; said: readonly Said[] | undefined }) {
  const { incident } = props;
  const pulse = Math.floor(now.value / PULSE_SECONDS);
  const found = useResource(incident.id, (abort) => askWork(incident.id, abort), pulse);
  // A notice's link opens the incident and its record, and not these.
  const isLink = isPassOnly.value;
  const silences = useResource(
    "silences",
    async (abort) => (isLink ? [] : askSilences(abort)),
    pulse,
  );
  const actions = useResource(
    incident.id,
    async (abort) => (isLink ? [] : askActionsOf(incident.id, abort)),
    pulse,
  );
  const caller = useResource("caller", askCaller);
  const [done, setDone] = useState<WorkDone>();
  const shown = newer(done, found.data);
  const labels = alertLabels(incident.id, incident.verdict);
  const silence = silenceOf(silences.data, labels);
  return (
    <Panel title="Who looks after it" class="work">
      <Stale resource={found} />
      <StateOfWork work={shown?.work ?? incident.work} />
      {isLink || mayDo(caller.data, "operate") ? (
        <WorkButtons
          incident={incident}
          isAcknowledged={!!(shown?.work ?? incident.work).acknowledged_by}
          onDone={setDone}
          onSilenced={silences.reload}
        />
      ) : (
        <ReadOnly incident={incident} name={caller.data?.name ?? ""} />
      )}
      {silence && <SilenceInForce silence={silence} onEnd={silences.reload} />}
      <Proposals actions={actions.data ?? []} onDecided={actions.reload} />
      <History
        items={historyOfWork(
          {
            deeds: shown?.items,
            said: props.said,
            silences: silences.data?.filter((one) => isAbout(one, labels)),
            actions: actions.data,
          },
          now.value,
        )}
      />
    </Panel>
  );
}

/** The record only grows: the longer one is the later. */
function newer(one: WorkDone | undefined, other: WorkDone | undefined): WorkDone | undefined {
  return (one?.items.length ?? 0) > (other?.items.length ?? 0) ? one : other;
}

function StateOfWork({ work }: { work: Work }) {
  return (
    <p class="work-state" role="status">
      {work.acknowledged_by ? (
        <>
          <b>Acknowledged by {work.acknowledged_by}</b>{" "}
          {work.acknowledged_ns !== null && (
            <span class="soft">{ago(work.acknowledged_ns / 1e9, now.value)}</span>
          )}
          {work.acknowledged_note && `: ${work.acknowledged_note}`}
        </>
      ) : (
        <b>Not acknowledged yet</b>
      )}
      {work.assigned_to && (
        <>
          . Assigned to <b>{work.assigned_to}</b>
        </>
      )}
      .
    </p>
  );
}

// --- what can be done ------------------------------------------------------------------------------

function WorkButtons(props: {
  incident: Incident;
  isAcknowledged: boolean;
  onDone: (done: WorkDone) => void;
  onSilenced: () => void;
}) {
  const { incident, isAcknowledged } = props;
  const [asked, setAsked] = useState<Does | "silence">();
  const [busy, setBusy] = useState<Does>();
  const [refusal, setRefusal] = useState<{ does: Does; error: unknown }>();
  const send = async (wish: WorkAsked) => {
    keepName(wish.by);
    props.onDone(await doWork(incident.id, wish));
  };
  /** At once where the name is known: at night a click is enough. */
  const acknowledge = async (does: Does) => {
    if (!ownName()) return setAsked(does);
    setBusy(does);
    setRefusal(undefined);
    try {
      await send({ does, by: ownName() });
    } catch (error) {
      setRefusal({ does, error });
    }
    setBusy(undefined);
  };
  const does: Does = isAcknowledged ? "unacknowledge" : "acknowledge";
  // A notice's link acknowledges, and nothing else.
  const isLink = isPassOnly.value;
  return (
    <>
      <div class="row verdict-ways">
        {!(isLink && isAcknowledged) && (
          <button
            type="button"
            class={isAcknowledged ? "" : "primary"}
            disabled={busy !== undefined}
            onClick={() => void acknowledge(does)}
          >
            {busy ? "Sending …" : isAcknowledged ? "Take the acknowledgement back" : "Acknowledge"}
          </button>
        )}
        {!isLink && (
          <>
            <button type="button" onClick={() => setAsked("assign")}>
              Assign …
            </button>
            <button type="button" onClick={() => setAsked("note")}>
              Note …
            </button>
            <button type="button" onClick={() => setAsked("silence")}>
              Silence …
            </button>
          </>
        )}
        <MarkdownLink incident={incident} />
      </div>
      {refusal && <Refusal error={refusal.error} command={commandOf(refusal.does, incident.id)} />}
      {asked === "silence" && (
        <SilenceDialog
          incident={incident}
          onClose={() => {
            setAsked(undefined);
            props.onSilenced();
          }}
        />
      )}
      {asked && asked !== "silence" && (
        <WorkDialog
          does={asked}
          incident={incident.id}
          onSend={send}
          onClose={() => setAsked(undefined)}
        />
      )}
    </>
  );
}

/** Why nothing can be done here, and what can be done elsewhere. */
function ReadOnly({ incident, name }: { incident: Incident; name: string }) {
  return (
    <>
      <p class="soft">
        The token {name} of this page may read, and not operate. In a terminal, with one that may:{" "}
        <code>{commandOf("acknowledge", incident.id)}</code>
      </p>
      <div class="row verdict-ways">
        <MarkdownLink incident={incident} />
      </div>
    </>
  );
}

function MarkdownLink({ incident }: { incident: Incident }) {
  return (
    <Download
      url={markdownPath(incident.id)}
      name={`${incident.id}.md`}
      title="All of it, with who did what: for a ticket or a wiki"
    >
      Markdown
    </Download>
  );
}

const TITLES: Readonly<Record<Does, readonly [title: string, confirm: string]>> = {
  acknowledge: ["Acknowledge it", "Acknowledge"],
  unacknowledge: ["Take the acknowledgement back", "Take it back"],
  assign: ["Assign it", "Assign"],
  note: ["Note something", "Keep the note"],
};

function WorkDialog(props: {
  does: Does;
  incident: string;
  onSend: (asked: WorkAsked) => Promise<void>;
  onClose: () => void;
}) {
  const { does } = props;
  const [to, setTo] = useState("");
  const [note, setNote] = useState("");
  const [by, setBy] = useState(ownName());
  const [title, confirm] = TITLES[does];
  const problem =
    does === "note" && !note.trim()
      ? "Enter the note."
      : by.trim()
        ? ""
        : "Enter your name: it stands in the record.";
  return (
    <AskDialog
      title={title}
      confirm={confirm}
      problem={problem}
      command={commandOf(does, props.incident)}
      onClose={props.onClose}
      onConfirm={() =>
        props.onSend({
          does,
          by: by.trim(),
          ...(does === "assign" && { to: to.trim() }),
          ...(note.trim() && { note: note.trim() }),
        })
      }
    >
      {does === "assign" && (
        <Field label="To; empty for no person" value={to} most={NAME_CHARS_MAX} onInput={setTo} />
      )}
      <Field
        label={does === "note" ? "Note" : "Note, if there is one"}
        value={note}
        most={NOTE_CHARS_MAX}
        placeholder="spare cable is in rack 12"
        onInput={setNote}
      />
      <Field
        label="Your name"
        value={by}
        most={NAME_CHARS_MAX}
        autocomplete="username"
        onInput={setBy}
      />
    </AskDialog>
  );
}

/** Less than the service takes: a name and a note for people. */
const NAME_CHARS_MAX = 200;
const NOTE_CHARS_MAX = 1000;

function Field(props: {
  label: string;
  value: string;
  most: number;
  placeholder?: string;
  autocomplete?: "username";
  onInput: (text: string) => void;
}) {
  return (
    <label>
      {props.label}{" "}
      <input
        value={props.value}
        maxLength={props.most}
        placeholder={props.placeholder}
        autocomplete={props.autocomplete ?? "off"}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
    </label>
  );
}

// --- what the policy would do ----------------------------------------------------------------------

function Proposals({ actions, onDecided }: { actions: readonly Action[]; onDecided: () => void }) {
  const [asked, setAsked] = useState<{ action: Action; decision: Decision }>();
  const standing = actions.filter((one) => one.state === "standing");
  const proposed = actions.filter((one) => one.state === "proposed");
  return (
    <>
      {proposed.map((one) => (
        <div key={one.id} class="row work-proposal">
          <span class="words">
            The policy proposes to drain <HostLink action={one} />: {one.reason}
            {one.until && (
              <span class="soft">. It expires {moment(unix(one.until), now.value)}.</span>
            )}
          </span>
          <button
            type="button"
            class="primary"
            onClick={() => setAsked({ action: one, decision: "approve" })}
          >
            Grant …
          </button>
          <button type="button" onClick={() => setAsked({ action: one, decision: "reject" })}>
            Refuse …
          </button>
        </div>
      ))}
      {standing.map((one) => (
        <p key={one.id}>
          <HostLink action={one} /> is held for this incident, by {one.by}.
        </p>
      ))}
      {asked && (
        <DecisionDialog
          {...asked}
          onClose={() => {
            setAsked(undefined);
            onDecided();
          }}
        />
      )}
    </>
  );
}

const unix = (text: string) => Date.parse(text) / 1000;

function HostLink({ action }: { action: Action }) {
  return <a href={href(["hosts", action.host])}>{action.host}</a>;
}

function DecisionDialog(props: { action: Action; decision: Decision; onClose: () => void }) {
  const { action, decision } = props;
  const [words, setWords] = useState("");
  const [by, setBy] = useState(ownName());
  const isGrant = decision === "approve";
  return (
    <AskDialog
      title={isGrant ? `Drain ${action.host}?` : `Do not drain ${action.host}?`}
      confirm={isGrant ? "Grant" : "Refuse"}
      problem={by.trim() ? "" : "Enter your name: it stands in the record."}
      command={`fabricscope actions ${decision} ${action.id}`}
      onClose={props.onClose}
      onConfirm={async () => {
        keepName(by.trim());
        await decide(action.id, decision, { by: by.trim(), words: words.trim() });
      }}
    >
      <p>{action.reason}</p>
      <p class="soft">
        {isGrant
          ? "It is held from now on: it gets no new job, and executors drain it in their scheduler."
          : "It is not proposed again for this incident."}
      </p>
      <Field label="Why, if you like" value={words} most={NOTE_CHARS_MAX} onInput={setWords} />
      <Field
        label="Your name"
        value={by}
        most={NAME_CHARS_MAX}
        autocomplete="username"
        onInput={setBy}
      />
    </AskDialog>
  );
}

// --- the record ------------------------------------------------------------------------------------

function History({ items }: { items: readonly Done[] }) {
  const [isAll, setAll] = useState(false);
  if (!items.length) return <p class="soft work-none">No person has done anything about it yet.</p>;
  const shown = isAll ? items : items.slice(0, SHOWN_FIRST);
  return (
    <>
      <ul class="incident-plain work-history" aria-label="Who did what">
        {shown.map((one) => (
          <li key={one.id}>
            <time
              class="soft"
              dateTime={new Date(one.time * 1000).toISOString()}
              title={stamp(one.time)}
            >
              {moment(one.time, now.value)}
            </time>{" "}
            <b>{one.by}</b> {one.what}
            {one.note && `: ${one.note}`}
          </li>
        ))}
      </ul>
      {items.length > shown.length && (
        <button type="button" class="small" onClick={() => setAll(true)}>
          Show all {items.length}
        </button>
      )}
    </>
  );
}
