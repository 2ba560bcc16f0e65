/** How one host stands and why; and the forms that take it out and let it back. */
import { useState } from "preact/hooks";
import type { Hold, HoldAsked, HostHealthWhole, Reason } from "../api/hosts";
import { ago, duration, moment, percent } from "../format";
import { href } from "../route";
import { Badge, Panel } from "../ui/panel";
import { Meter, riskTone } from "./host-table";
import { chargeWords, LOOK_WORDS, lookOf, riskWords, standing, toneOf } from "./host-words";
import { AskDialog } from "./service-dialog";
import { sentence } from "./verdict-words";
import "../style/hosts.css";

const NS = 1e9;

export function HostHead(props: {
  health: HostHealthWhole;
  now: number;
  onHold: () => void;
  onRelease: () => void;
}) {
  const { health, now } = props;
  const look = lookOf({ state: health.state, reasons: health.short });
  const held = standing(health.holds, now);
  const tone = toneOf(look) as "bad" | "warn" | "good" | "";
  return (
    <Panel {...(tone ? { tone } : {})} class="host-head">
      <div class="row">
        <h1>
          {health.host} is {look}
        </h1>
        {health.since_ns !== null && (
          <span class="soft">
            for {duration(Math.round(Math.max(0, now - health.since_ns / NS)))}
          </span>
        )}
        <span class="row host-acts">
          {held ? (
            <button type="button" onClick={props.onRelease}>
              Release …
            </button>
          ) : null}
          <button type="button" onClick={props.onHold}>
            {held ? "Change the hold …" : "Drain or take out …"}
          </button>
        </span>
      </div>
      <p class="soft">{sentence(LOOK_WORDS[look])}.</p>
      {health.stale.map((text) => (
        <p key={text} class="state stale">
          Not to be trusted now: {text}
        </p>
      ))}
      <dl class="facts">
        <div>
          <dt>Risk for the next job</dt>
          <dd>
            <Meter value={health.risk} tone={riskTone(health.risk)} />
          </dd>
        </div>
        <div>
          <dt>Lemon score, four weeks</dt>
          <dd>
            <Meter value={health.lemon} tone={health.is_lemon ? "warn" : ""} />{" "}
            {health.is_lemon && <Badge tone="warn">a lemon: open it</Badge>}
          </dd>
        </div>
        <div>
          <dt>Last heard</dt>
          <dd>
            {ago(health.last_seen_ns / NS, now)}{" "}
            {health.silent_since_ns !== null && <Badge tone="warn">silent</Badge>}
          </dd>
        </div>
        {held && (
          <div>
            <dt>Held</dt>
            <dd>
              {held.state} by {held.by}: {held.reason}
              {held.until_ns === null
                ? "; until a person releases it"
                : `; until ${moment(held.until_ns / NS, now)}`}
            </dd>
          </div>
        )}
      </dl>
      <Reasons reasons={health.reasons} now={now} />
      <div class="row host-ways">
        <a href={href(["fabric"], { focus: health.host })}>Show it in the fabric</a>
        <a href={href(["incident"], { host: health.host })}>All its incidents</a>
      </div>
    </Panel>
  );
}

function Reasons({ reasons, now }: { reasons: readonly Reason[]; now: number }) {
  if (!reasons.length) return <p class="soft">No verdict and no counter speaks against it.</p>;
  return (
    <ol class="charges" aria-label="What speaks against it">
      {reasons.map((one) => (
        <li key={`${one.incident} ${one.cause} ${one.about}`}>
          <Meter value={one.risk} tone={riskTone(one.risk)} />
          <div>
            <b>{chargeWords(one.cause, one.reason, one.about)}</b>{" "}
            <Badge tone={one.is_open ? "bad" : ""}>
              {one.is_open ? "open" : `over ${ago((one.until_ns ?? 0) / NS, now)}`}
            </Badge>{" "}
            {one.incident ? (
              <a href={href(["incident", one.incident])}>{one.incident}</a>
            ) : (
              <span class="soft">seen in counters; no incident</span>
            )}
            <div>{one.text}</div>
            <small class="soft">{riskWords(one, now)}</small>
          </div>
        </li>
      ))}
    </ol>
  );
}

// --- holds -----------------------------------------------------------------------------------------

/** Hours; 0: until a person releases it. */
const HOURS = [2, 8, 24, 72, 168, 0];

export function HoldDialog(props: {
  host: string;
  by: string;
  onHold: (asked: HoldAsked) => Promise<void>;
  onClose: () => void;
}) {
  const [state, setState] = useState<"draining" | "out">("draining");
  const [reason, setReason] = useState("");
  const [by, setBy] = useState(props.by);
  const [hours, setHours] = useState(24);
  const problem = !reason.trim()
    ? "Enter a reason: others will read it."
    : !by.trim()
      ? "Enter your name."
      : "";
  return (
    <AskDialog
      title={`Take ${props.host} out?`}
      confirm={state === "draining" ? "Mark it as draining" : "Mark it as out"}
      problem={problem}
      onClose={props.onClose}
      onConfirm={() =>
        props.onHold({
          state,
          reason: reason.trim(),
          by: by.trim(),
          ...(hours ? { hours } : {}),
        })
      }
    >
      <p class="soft">
        Schedulers and people who query this service see it; it stops nothing that runs. Whatever is
        measured, the host stays in this state until it ends.
      </p>
      <fieldset class="choice">
        <legend>State</legend>
        <label class="check">
          <input
            type="radio"
            name="hold"
            checked={state === "draining"}
            onChange={() => setState("draining")}
          />
          draining: what runs may end, nothing new should begin
        </label>
        <label class="check">
          <input
            type="radio"
            name="hold"
            checked={state === "out"}
            onChange={() => setState("out")}
          />
          out: no job should use it
        </label>
      </fieldset>
      <label>
        Why
        <input
          value={reason}
          maxLength={2000}
          placeholder="cable of mlx5_0 is swapped"
          onInput={(event) => setReason(event.currentTarget.value)}
        />
      </label>
      <label>
        Until
        <select
          value={String(hours)}
          onChange={(event) => setHours(Number(event.currentTarget.value))}
        >
          {HOURS.map((one) => (
            <option key={one} value={String(one)}>
              {one ? `in ${duration(one * 3600)}` : "a person releases it"}
            </option>
          ))}
        </select>
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

export function ReleaseDialog(props: {
  host: string;
  hold: Hold;
  risk: number;
  by: string;
  onRelease: (by: string) => Promise<void>;
  onClose: () => void;
}) {
  const [by, setBy] = useState(props.by);
  return (
    <AskDialog
      title={`Release ${props.host}?`}
      confirm="Release"
      problem={by.trim() ? "" : "Enter your name."}
      onClose={props.onClose}
      onConfirm={() => props.onRelease(by.trim())}
    >
      <p>
        {props.hold.state} by {props.hold.by}: {props.hold.reason}
      </p>
      <p class="soft">
        From then on its state is what is measured. Its risk for the next job is{" "}
        {percent(props.risk)} now.
      </p>
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

/** Who took it out and who released it. */
export function Holds({ holds, now }: { holds: readonly Hold[]; now: number }) {
  if (!holds.length) return null;
  return (
    <Panel title="Holds" hint="Who took it out, and who released it">
      <ul class="holds">
        {holds.map((one) => (
          <li key={one.id}>
            {moment(one.since_ns / NS, now)}: {one.state} by {one.by}: {one.reason}{" "}
            <span class="soft">{endWords(one, now)}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function endWords(hold: Hold, now: number): string {
  if (hold.ended_ns !== null) return `ended by ${hold.ended_by} ${ago(hold.ended_ns / NS, now)}`;
  if (hold.until_ns === null) return "stands until a person releases it";
  return hold.until_ns / NS > now
    ? `stands until ${moment(hold.until_ns / NS, now)}`
    : `ended by itself ${ago(hold.until_ns / NS, now)}`;
}
