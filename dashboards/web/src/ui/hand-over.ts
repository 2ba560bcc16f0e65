/**
 * Hand a file to a page of another origin, as Perfetto's UI takes traces (its documentation, "Deep linking"): it
 * is sent "PING" until it answers "PONG", which it does once it listens, and then the file. Nothing is uploaded:
 * both pages are in this browser.
 */

/** Between two tries to reach a page that is still loading, in ms. */
const PING_MS = 100;
/** Past it the page does not listen, or the network does not reach it. */
export const LISTENS_SECONDS_MAX = 60;

/** As `Window`, as far as it is needed. */
export interface Receiver {
  readonly closed: boolean;
  postMessage(message: unknown, origin: string, transfer?: Transferable[]): void;
}

/** Opened in the click itself, or browsers take it for an advertisement; undefined: they did. */
export function openTab(url: string): Window | undefined {
  const opened = open("about:blank", "_blank");
  if (!opened) return undefined;
  // The other page gets no hold of this one.
  opened.opener = null;
  opened.location.href = url;
  return opened;
}

/** Resolves when the page at `origin` listens; what it is refused with is for a reader. */
export function listening(
  receiver: Receiver,
  origin: string,
  secondsMax = LISTENS_SECONDS_MAX,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const until = Date.now() + secondsMax * 1000;
    const end = (settle: () => void) => {
      clearInterval(timer);
      removeEventListener("message", heed);
      settle();
    };
    const heed = ({ data, origin: from }: MessageEvent) => {
      // Any page may send messages here: only this one's word counts.
      if (from === origin && data === "PONG") end(resolve);
    };
    const ping = () => {
      if (receiver.closed) end(() => reject(new Error("Its tab was closed.")));
      else if (Date.now() > until)
        end(() => reject(new Error(`${origin} does not answer within ${secondsMax} s.`)));
      else receiver.postMessage("PING", origin);
    };
    const timer = setInterval(ping, PING_MS);
    addEventListener("message", heed);
  });
}

/** Read an answer of so many bytes at most; `told` gets how many there are so far. */
export async function readBounded(
  answer: Response,
  most: number,
  told: (bytes: number) => void,
): Promise<ArrayBuffer> {
  const reader = answer.body?.getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done || !value) break;
    size += value.length;
    if (size > most) {
      await reader?.cancel();
      throw new Error(`It is larger than ${Math.round(most / 1e6)} MB: choose a shorter time.`);
    }
    parts.push(value);
    told(size);
  }
  const whole = new Uint8Array(size);
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole.buffer;
}
