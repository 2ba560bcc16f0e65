/** The forms that roll a configuration out, stop it, let it go on and take it back. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { PushAsked, ResumeAsked, Rollout } from "../api/configurations";
import {
  ORDER_COMMANDS,
  readShares,
  readWhole,
  sharesLeft,
  versionWords,
  writeShares,
} from "./rollout-words";
import { AskDialog } from "./service-dialog";

/** What the service takes (api/base/rollout_limits.py). */
const TRIAL_SECONDS_MIN = 10;
const TRIAL_SECONDS_MAX = 86_400;
const FAILURES_MAX = 1_000_000;
/** What `fabricscope config push` begins with. */
const SHARES_USUAL = [5, 25, 100];
const TRIAL_USUAL = 600;

const NO_NAME = "Enter your name: it stands in the record.";

function Field(props: {
  label: string;
  value: string;
  onInput: (text: string) => void;
  placeholder?: string;
  isNumber?: boolean;
  most?: number;
  autocomplete?: "username";
}) {
  return (
    <label>
      {props.label}
      <input
        value={props.value}
        maxLength={props.most ?? 200}
        inputMode={props.isNumber ? "numeric" : "text"}
        placeholder={props.placeholder}
        autocomplete={props.autocomplete ?? "off"}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
    </label>
  );
}

/** Who and why, which every order has. */
function useSaid(by: string) {
  const [why, setWhy] = useState("");
  const [who, setWho] = useState(by);
  const fields = (
    <>
      <Field
        label="Why"
        value={why}
        most={2000}
        placeholder="netdev every 2 s is enough"
        onInput={setWhy}
      />
      <Field label="Who" value={who} autocomplete="username" onInput={setWho} />
    </>
  );
  return { said: { by: who.trim(), why: why.trim() }, fields };
}

export function PushDialog(props: {
  /** What the form begins with. */
  document: string;
  by: string;
  onPush: (asked: PushAsked) => Promise<void>;
  onClose: () => void;
}) {
  const [document, setDocument] = useState(props.document);
  const [shareText, setShares] = useState(writeShares(SHARES_USUAL));
  const [trialText, setTrial] = useState(String(TRIAL_USUAL));
  const [failuresText, setFailures] = useState("1");
  const { said, fields } = useSaid(props.by);
  const shares = readShares(shareText);
  const trial = readWhole(trialText, TRIAL_SECONDS_MIN, TRIAL_SECONDS_MAX);
  const failures = readWhole(failuresText, 1, FAILURES_MAX);
  const problem = !document.trim()
    ? "Enter the configuration."
    : typeof shares === "string"
      ? shares
      : trial === undefined
        ? `A trial lasts ${TRIAL_SECONDS_MIN} to ${TRIAL_SECONDS_MAX} whole seconds.`
        : failures === undefined
          ? "Enter how many agents that go back stop it: 1 or more."
          : said.by
            ? ""
            : NO_NAME;
  return (
    <AskDialog
      title="Roll a configuration out"
      confirm="Roll it out"
      problem={problem}
      command={ORDER_COMMANDS.push}
      onClose={props.onClose}
      onConfirm={async () => {
        if (typeof shares !== "string" && trial !== undefined && failures !== undefined)
          await props.onPush({
            document,
            shares,
            trial_seconds: trial,
            failures_max: failures,
            ...said,
          });
      }}
    >
      <p class="soft">
        It goes to hosts whose own file says <code>from_service = true</code>. It is the whole of
        what they take from here: what it leaves out is as in the host's file again. The service
        checks it with the agent's own reader before it takes it. Signing wants{" "}
        <code>fabricscope config push --key-file</code>.
      </p>
      <label>
        Configuration, TOML
        <textarea
          class="mono"
          rows={7}
          value={document}
          placeholder={"[sources.netdev]\ninterval_seconds = 2.0"}
          spellcheck={false}
          onInput={(event) => setDocument(event.currentTarget.value)}
        />
      </label>
      <Field
        label="Shares, percent of agents one after the other"
        value={shareText}
        onInput={setShares}
      />
      <div class="fields">
        <Field label="Trial, seconds" value={trialText} isNumber onInput={setTrial} />
        <Field
          label="Stopped by so many that go back"
          value={failuresText}
          isNumber
          onInput={setFailures}
        />
      </div>
      {fields}
    </AskDialog>
  );
}

export function ResumeDialog(props: {
  rollout: Rollout;
  /** Agents that went back. */
  failed: number;
  by: string;
  onResume: (asked: ResumeAsked) => Promise<void>;
  onClose: () => void;
}) {
  const { rollout, failed } = props;
  const reached = rollout.shares[rollout.stage] ?? 0;
  const [shareText, setShares] = useState(writeShares(sharesLeft(rollout)));
  const [failuresText, setFailures] = useState(String(Math.max(rollout.failures_max, failed + 1)));
  const { said, fields } = useSaid(props.by);
  const shares = readShares(shareText, reached);
  const failures = readWhole(failuresText, failed + 1, FAILURES_MAX);
  const problem =
    typeof shares === "string"
      ? shares
      : failures === undefined
        ? `${failed} went back already: enter a bound above that.`
        : said.by
          ? ""
          : NO_NAME;
  return (
    <AskDialog
      title={`Let version ${rollout.version} go on?`}
      confirm="Go on"
      problem={problem}
      command={ORDER_COMMANDS.resume}
      onClose={props.onClose}
      onConfirm={async () => {
        if (typeof shares !== "string" && failures !== undefined)
          await props.onResume({ shares, failures_max: failures, ...said });
      }}
    >
      <p class="soft">{reached} % are reached. Agents that went back do not try it again.</p>
      <Field
        label="Shares, percent of agents one after the other"
        value={shareText}
        onInput={setShares}
      />
      <Field
        label="Stopped by so many that go back, those counted that have"
        value={failuresText}
        isNumber
        onInput={setFailures}
      />
      {fields}
    </AskDialog>
  );
}

export function StopDialog(props: {
  rollout: Rollout;
  by: string;
  onStop: (said: { by: string; why: string }) => Promise<void>;
  onClose: () => void;
}) {
  return (
    <OrderDialog
      title={`Stop version ${props.rollout.version}?`}
      confirm="Stop it"
      command={ORDER_COMMANDS.stop}
      by={props.by}
      onOrder={props.onStop}
      onClose={props.onClose}
    >
      No other agent gets it; those that have it keep it. It can go on later, or be taken back.
    </OrderDialog>
  );
}

export function BackDialog(props: {
  rollout: Rollout;
  by: string;
  onBack: (said: { by: string; why: string }) => Promise<void>;
  onClose: () => void;
}) {
  return (
    <OrderDialog
      title={`Take version ${props.rollout.version} back?`}
      confirm="Take it back"
      command={ORDER_COMMANDS.back}
      by={props.by}
      onOrder={props.onBack}
      onClose={props.onClose}
    >
      All agents go back to {versionWords(props.rollout.base)} with their next batches, without a
      trial.
    </OrderDialog>
  );
}

function OrderDialog(props: {
  title: string;
  confirm: string;
  command: string;
  by: string;
  onOrder: (said: { by: string; why: string }) => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const { said, fields } = useSaid(props.by);
  return (
    <AskDialog
      title={props.title}
      confirm={props.confirm}
      problem={said.by ? "" : NO_NAME}
      command={props.command}
      onClose={props.onClose}
      onConfirm={() => props.onOrder(said)}
    >
      <p class="soft">{props.children}</p>
      {fields}
    </AskDialog>
  );
}
