/** Notices to receivers, and silences with their form. */
import { useState } from "preact/hooks";
import type { Notice, Silence, SilenceAsked } from "../api/service";
import { ago, count, duration, moment } from "../format";
import { Badge, Panel } from "../ui/panel";
import { Empty } from "../ui/states";
import { Table } from "../ui/table";
import { AskDialog } from "./service-dialog";
import { read, write } from "./service-matchers";
import "../style/settings.css";

const unix = (text: string) => Date.parse(text) / 1000;

// --- notices ---------------------------------------------------------------------------------------

const NOTICE_TONES: Readonly<Record<string, string>> = {
  sent: "good",
  waiting: "warn",
  refused: "bad",
  dropped: "bad",
};

export function Notices({ notices, now }: { notices: readonly Notice[]; now: number }) {
  const waiting = notices.filter((one) => one.state === "waiting").length;
  return (
    <Panel title="Notices" hint={`What receivers were sent; ${waiting || "none"} waiting`}>
      {notices.length ? (
        <Table
          label="Notices"
          noun="notice"
          rows={notices}
          keyOf={(one) => one.id}
          isMarked={(one) => one.state === "waiting" && one.attempts > 0}
          columns={[
            {
              name: "State",
              show: (one) => <Badge tone={NOTICE_TONES[one.state] ?? ""}>{one.state}</Badge>,
              by: (one) => one.state,
            },
            { name: "Receiver", show: (one) => one.receiver, by: (one) => one.receiver },
            {
              name: "What",
              show: (one) => (
                <>
                  {one.title}
                  {one.detail && (
                    <div class={one.state === "superseded" ? "soft" : "bad-text"}>{one.detail}</div>
                  )}
                </>
              ),
            },
            {
              name: "Tried",
              show: (one) => count(one.attempts, "time"),
              by: (one) => one.attempts,
              isNumber: true,
            },
            {
              name: "Planned",
              show: (one) => ago(unix(one.planned), now),
              by: (one) => unix(one.planned),
              isNumber: true,
            },
            {
              name: "Ended",
              show: (one) =>
                one.ended ? ago(unix(one.ended), now) : `next try ${nextTry(one, now)}`,
              isNumber: true,
            },
          ]}
        />
      ) : (
        <Empty title="No notice was sent">
          The built-in notifier sends when <code>notify_file</code> names receivers; an Alertmanager
          has its own list.
        </Empty>
      )}
    </Panel>
  );
}

function nextTry(notice: Notice, now: number): string {
  const rest = unix(notice.due) - now;
  return rest > 0 ? `in ${duration(Math.ceil(rest))}` : "now";
}

// --- silences --------------------------------------------------------------------------------------

const STATE_WORDS = { active: "silent now", pending: "later", expired: "over" } as const;
const STATE_ORDER = ["active", "pending", "expired"];

export function Silences(props: {
  silences: readonly Silence[];
  now: number;
  onNew: () => void;
  onEnd: (silence: Silence) => void;
}) {
  const sorted = [...props.silences].sort(
    (a, b) => STATE_ORDER.indexOf(a.state) - STATE_ORDER.indexOf(b.state),
  );
  return (
    <Panel
      title="Silences"
      hint="An alert that matches one sends no notice until it ends"
      aside={
        <button type="button" onClick={props.onNew}>
          New silence …
        </button>
      }
    >
      {sorted.length ? (
        <Table
          label="Silences"
          noun="silence"
          rows={sorted}
          keyOf={(one) => one.id}
          columns={[
            {
              name: "State",
              show: (one) => (
                <Badge tone={one.state === "active" ? "warn" : ""}>{STATE_WORDS[one.state]}</Badge>
              ),
              by: (one) => STATE_ORDER.indexOf(one.state),
            },
            {
              name: "Alerts with",
              show: (one) => <span class="mono">{one.matchers.map(write).join(", ")}</span>,
            },
            { name: "Why", show: (one) => one.comment },
            { name: "By", show: (one) => one.created_by, by: (one) => one.created_by },
            { name: "Ends", show: (one) => ends(one, props.now), by: (one) => unix(one.ends) },
            {
              name: "Do",
              show: (one) =>
                one.state !== "expired" && (
                  <button type="button" class="plain link" onClick={() => props.onEnd(one)}>
                    end it
                  </button>
                ),
            },
          ]}
        />
      ) : (
        <Empty title="Nothing is silenced" />
      )}
    </Panel>
  );
}

function ends(silence: Silence, now: number): string {
  const end = unix(silence.ends);
  return silence.state === "expired"
    ? `${ago(end, now)}`
    : `in ${duration(end - now)}, ${moment(end, now)}`;
}

/** Until when, in hours; the last is a week. */
const HOURS = [1, 2, 4, 8, 24, 72, 168];

export function SilenceDialog(props: {
  /** What the form begins with. */
  matchers: string;
  by: string;
  onSilence: (asked: SilenceAsked) => Promise<void>;
  onClose: () => void;
}) {
  const [matchers, setMatchers] = useState(props.matchers);
  const [hours, setHours] = useState(2);
  const [by, setBy] = useState(props.by);
  const [comment, setComment] = useState("");
  const asked = read(matchers);
  const problem =
    typeof asked === "string"
      ? asked
      : !by.trim()
        ? "Enter your name."
        : !comment.trim()
          ? "Enter a reason: others will read it."
          : "";
  return (
    <AskDialog
      title="Silence alerts"
      confirm={`Silence for ${duration(hours * 3600)}`}
      problem={problem}
      onClose={props.onClose}
      onConfirm={async () => {
        if (typeof asked !== "string")
          await props.onSilence({
            matchers: asked,
            hours,
            created_by: by.trim(),
            comment: comment.trim(),
          });
      }}
    >
      <p class="soft">
        Alerts that match all of these send no notices meanwhile. It holds for the built-in
        notifier; an Alertmanager has silences of its own.
      </p>
      <label>
        Alerts with
        <textarea
          class="mono"
          rows={3}
          value={matchers}
          placeholder='host="node1", alertname=~"FabricGpu.*"'
          spellcheck={false}
          onInput={(event) => setMatchers(event.currentTarget.value)}
        />
      </label>
      <label>
        For
        <select
          value={String(hours)}
          onChange={(event) => setHours(Number(event.currentTarget.value))}
        >
          {HOURS.map((one) => (
            <option key={one} value={String(one)}>
              {duration(one * 3600)}
            </option>
          ))}
        </select>
      </label>
      <label>
        Why
        <input
          value={comment}
          maxLength={2000}
          placeholder="cables are being changed"
          onInput={(event) => setComment(event.currentTarget.value)}
        />
      </label>
      <label>
        Who
        <input
          value={by}
          maxLength={200}
          autocomplete="username"
          onInput={(event) => setBy(event.currentTarget.value)}
        />
      </label>
    </AskDialog>
  );
}

export function EndSilenceDialog(props: {
  silence: Silence;
  onEnd: () => Promise<void>;
  onClose: () => void;
}) {
  return (
    <AskDialog
      title="End this silence?"
      confirm="End it now"
      onConfirm={props.onEnd}
      onClose={props.onClose}
    >
      <p>
        <span class="mono">{props.silence.matchers.map(write).join(", ")}</span>
      </p>
      <p class="soft">
        Alerts that fire and meet it page again at once. It was made by {props.silence.created_by}:{" "}
        {props.silence.comment}
      </p>
    </AskDialog>
  );
}
