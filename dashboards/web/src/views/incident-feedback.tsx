/** Whether the verdict was right: what operators said, and a form to say it. */
import { useState } from "preact/hooks";
import { casePath, type Feedback, type Said, type Says, say, type Told } from "../api/feedback";
import type { Incident } from "../api/incidents";
import { ago } from "../format";
import { causeTable } from "../parts/cause-table";
import {
  type Answers,
  aboutWords,
  caseWords,
  NO_ANSWERS,
  requestOf,
  saidWords,
} from "../parts/feedback-words";
import { keepName, ownName } from "../parts/service-browser";
import { AskDialog } from "../parts/service-dialog";
import type { Resource } from "../resource";
import { now } from "../time";
import { Download } from "../ui/download";
import { Badge, Panel } from "../ui/panel";
import { Shown } from "../ui/states";
import "../style/incident.css";

const TONES: Readonly<Record<Says, string>> = { right: "good", wrong: "bad", other: "warn" };
const CHOICES: Readonly<Record<Says, string>> = {
  right: "Right",
  wrong: "Wrong",
  other: "Another cause",
};

/** What was said about the incident, and the buttons to say it. */
export function FeedbackPanel(props: {
  incident: Incident;
  found: Resource<Feedback | undefined>;
}) {
  const { incident, found } = props;
  const [asked, setAsked] = useState<Says>();
  return (
    <Panel title="Was it right?" hint="Your answer improves later versions">
      <div class="row verdict-ways">
        {(Object.keys(CHOICES) as Says[]).map((one) => (
          <button key={one} type="button" onClick={() => setAsked(one)}>
            {CHOICES[one]} …
          </button>
        ))}
      </div>
      <Shown resource={found} what="answers">
        {(feedback) => feedback && <WhatWasSaid incident={incident} feedback={feedback} />}
      </Shown>
      {asked && (
        <FeedbackDialog
          incident={incident}
          says={asked}
          onClose={() => {
            setAsked(undefined);
            found.reload();
          }}
        />
      )}
    </Panel>
  );
}

function WhatWasSaid({ incident, feedback }: { incident: Incident; feedback: Feedback }) {
  if (!feedback.items.length) return <p class="soft">No operator has answered yet.</p>;
  return (
    <>
      <ul class="incident-plain feedback">
        {feedback.items.map((said, place) => (
          <Statement key={said.id} incident={incident} said={said} isFirst={place === 0} />
        ))}
      </ul>
      <p class="soft">{caseWords(feedback.case)}</p>
      {feedback.case?.state === "kept" && (
        <Download
          url={casePath(incident.id)}
          name={`${incident.verdict.cause}.case`}
          title="For fabricscope score --cases: names, times and texts are replaced"
        >
          Window without names
        </Download>
      )}
    </>
  );
}

function Statement(props: { incident: Incident; said: Said; isFirst: boolean }) {
  const { said, incident } = props;
  const about = aboutWords(said, incident.verdict.cause, incident.verdict.culprit);
  return (
    <li class={props.isFirst ? "" : "soft"}>
      <Badge tone={props.isFirst ? TONES[said.says] : ""}>{saidWords(said)}</Badge> {said.by},{" "}
      {ago(Date.parse(said.at) / 1000, now.value)}
      {!props.isFirst && ", replaced"}
      {about && <small class="own-line soft">{about}</small>}
      {said.note && <div>{said.note}</div>}
    </li>
  );
}

function FeedbackDialog(props: { incident: Incident; says: Says; onClose: () => void }) {
  const [answers, setAnswers] = useState<Answers>({
    ...NO_ANSWERS,
    says: props.says,
    by: ownName(),
  });
  // What the reader saw when the form was opened: the verdict may change while it is filled in.
  const [seen] = useState<Told>({
    cause: props.incident.verdict.cause,
    culprit: props.incident.verdict.culprit,
  });
  const request = requestOf(answers);
  const change = (changed: Partial<Answers>) => setAnswers({ ...answers, ...changed });
  const send = async () => {
    if (typeof request === "string") return;
    keepName(request.by);
    await say(props.incident.id, { ...request, about: seen });
  };
  return (
    <AskDialog
      title="Was the verdict right?"
      confirm="Say so"
      problem={typeof request === "string" ? request : ""}
      onConfirm={send}
      onClose={props.onClose}
    >
      <p class="soft">
        It is kept with your name and with the window that the verdict was made from. Reading the
        window takes some seconds.
      </p>
      <fieldset class="choice">
        <legend>The verdict was</legend>
        {(Object.entries(CHOICES) as [Says, string][]).map(([word, text]) => (
          <label key={word} class="check">
            <input
              type="radio"
              name="says"
              checked={answers.says === word}
              onChange={() => change({ says: word })}
            />
            {word === "other" ? "Wrong: it was another cause, or another culprit" : text}
          </label>
        ))}
      </fieldset>
      {answers.says === "other" && <OtherCause answers={answers} onChange={change} />}
      <Field
        label="Note, for your colleagues"
        value={answers.note}
        placeholder="the cable was replaced at 14:20"
        onInput={(note) => change({ note })}
      />
      <Field label="Your name" value={answers.by} onInput={(by) => change({ by })} />
    </AskDialog>
  );
}

function OtherCause(props: { answers: Answers; onChange: (changed: Partial<Answers>) => void }) {
  const { answers, onChange } = props;
  return (
    <>
      <label>
        Cause{" "}
        <select
          value={answers.cause}
          onChange={(event) => onChange({ cause: event.currentTarget.value })}
        >
          <option value="">choose …</option>
          {causeTable.value.causes.map((one) => (
            <option key={one.name} value={one.name} title={one.meaning}>
              {one.title}
            </option>
          ))}
        </select>
      </label>
      <fieldset class="choice feedback-culprit">
        <legend>Culprit, if it is known</legend>
        <Field label="Host" value={answers.host} onInput={(host) => onChange({ host })} />
        <Field label="NIC" value={answers.device} onInput={(device) => onChange({ device })} />
        <Field label="GPU" value={answers.gpu} onInput={(gpu) => onChange({ gpu })} />
        <Field label="Rank" value={answers.rank} onInput={(rank) => onChange({ rank })} />
        <Field
          label="Switch"
          value={answers.switch}
          onInput={(name) => onChange({ switch: name })}
        />
      </fieldset>
    </>
  );
}

function Field(props: {
  label: string;
  value: string;
  placeholder?: string;
  onInput: (text: string) => void;
}) {
  return (
    <label>
      {props.label}{" "}
      <input
        value={props.value}
        maxLength={1000}
        placeholder={props.placeholder}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
    </label>
  );
}
