/**
 * Incidents as they happen: `/v1/live`, read with fetch and not with EventSource, because only fetch can
 * send a token. Reconnects by itself and goes on where it was (Last-Event-ID).
 */
import { computed, signal } from "@preact/signals";
import { Failure, send } from "./api/client";
import type { IncidentShort } from "./api/incidents";
import { ticked } from "./time";

export interface Change {
  readonly number: number;
  readonly news: "opened" | "updated" | "changed" | "closed" | "reopened" | "asked" | "answered";
  readonly time_ns: number;
  readonly incident: IncidentShort;
}

export type Connection = "connecting" | "live" | "lost";

/** Heard nothing for so long, not even the stream's own sign of life: the line is dead. */
export const SILENCE_SECONDS = 40;
const RETRY_SECONDS = [1, 2, 5, 10];

export const connection = signal<Connection>("connecting");
/** Unix seconds of the last sign of life. */
export const heardAt = signal(0);
/** Counts every change; resources that depend on incidents ask anew when it moves. */
export const changes = signal(0);
export const isStale = computed(
  () => connection.value !== "live" && ticked.value - heardAt.value > SILENCE_SECONDS,
);

type Listener = (change: Change) => void;
const listeners = new Set<Listener>();

/** Calls `listener` on every change, until the returned function is called. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export interface Message {
  readonly event: string;
  readonly data: string;
  readonly id: string;
}

/** Cuts a stream of text into messages (WHATWG HTML §9.2); what is unfinished waits for the rest. */
export class Cutter {
  private rest = "";

  *feed(text: string): Generator<Message> {
    const blocks = (this.rest + text.replaceAll("\r\n", "\n")).split("\n\n");
    this.rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const message = { event: "message", data: "", id: "" };
      for (const line of block.split("\n")) {
        const cut = line.indexOf(":");
        const [field, value] =
          cut < 0 ? [line, ""] : [line.slice(0, cut), line.slice(cut + 1).replace(/^ /, "")];
        if (field === "data") message.data += message.data ? `\n${value}` : value;
        else if (field === "event" || field === "id") message[field] = value;
      }
      if (message.data) yield message;
    }
  }
}

const NEWS = new Set(["opened", "updated", "changed", "closed", "reopened", "asked", "answered"]);
let lastId = "";

function take(message: Message): void {
  if (message.id) lastId = message.id;
  connection.value = "live";
  if (NEWS.has(message.event))
    for (const listener of listeners) listener(JSON.parse(message.data) as Change);
  // Also after "ready" and "missed": the page must fetch the changes it did not receive.
  changes.value++;
}

async function listen(): Promise<void> {
  const abort = new AbortController();
  const watch = setInterval(() => {
    if (Date.now() / 1000 - heardAt.value > SILENCE_SECONDS) abort.abort();
  }, 5000);
  try {
    heardAt.value = Date.now() / 1000;
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (lastId) headers["Last-Event-ID"] = lastId;
    const response = await send("/v1/live", { headers, signal: abort.signal });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    const cutter = new Cutter();
    for (;;) {
      const part = await reader?.read();
      if (!part || part.done) return;
      heardAt.value = Date.now() / 1000;
      for (const message of cutter.feed(part.value)) take(message);
    }
  } finally {
    clearInterval(watch);
  }
}

/** Listen for as long as the page is open. */
export async function keepListening(): Promise<never> {
  for (let tries = 0; ; tries++) {
    try {
      await listen();
      tries = 0;
    } catch (error) {
      if (error instanceof Failure && error.status === 400) lastId = "";
    }
    connection.value = "lost";
    const wait = RETRY_SECONDS[Math.min(tries, RETRY_SECONDS.length - 1)] ?? 10;
    await new Promise((resolve) => setTimeout(resolve, wait * 1000));
    connection.value = "connecting";
  }
}
