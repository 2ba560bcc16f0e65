/** Something that is asked for, kept, and asked for again; with every state that a reader may see. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Failure } from "./api/client";
import { Asker } from "./asker";

export interface Resource<T> {
  /** The last good answer, also while a newer one is asked for or cannot be had. */
  readonly data: T | undefined;
  /** Why the last try failed; gone with the next success. */
  readonly failure: Failure | undefined;
  readonly isLoading: boolean;
  /** What is shown answers the question before this one: another range, another rank. */
  readonly isOld: boolean;
  /** Unix seconds at which the question under way was sent, or the last one was. */
  readonly askedAt: number | undefined;
  /** Unix seconds of the last good answer: with a failure beside it, what is shown is stale. */
  readonly answeredAt: number | undefined;
  readonly reload: () => void;
}

type Held<T> = Omit<Resource<T>, "reload" | "isOld"> & {
  readonly key: string;
  /** What `data` answers. */
  readonly question: string;
};

function nothing<T>(key: string): Held<T> {
  return {
    key,
    question: "",
    data: undefined,
    failure: undefined,
    isLoading: true,
    askedAt: undefined,
    answeredAt: undefined,
  };
}

/**
 * Asks when `key` changes, and the old answer goes. Asks when `question` changes (another range, another
 * rank): the old answer stays on the screen until the new one is there. Asks again when `pulse` moves
 * (`now.value`, `changes.value`), but never before the question under way has ended.
 */
export function useResource<T>(
  key: string,
  load: (abort: AbortSignal) => Promise<T>,
  pulse: number | string = 0,
  question = "",
): Resource<T> {
  const [tries, setTries] = useState(0);
  const [held, setHeld] = useState<Held<T>>(() => nothing(key));
  const newest = useRef({ key, question, load });
  newest.current = { key, question, load };
  const asker = useMemo(() => {
    // An answer belongs to what was asked, not to what has been drawn since.
    let sent = { key: "", question: "" };
    const change = (changed: Partial<Held<T>>) =>
      setHeld((old) => ({ ...(old.key === sent.key ? old : nothing<T>(sent.key)), ...changed }));
    const load = (abort: AbortSignal) => {
      sent = newest.current;
      return newest.current.load(abort);
    };
    return new Asker<T>(load, {
      begun: () => change({ isLoading: true, askedAt: Date.now() / 1000 }),
      answered: (data) => {
        const answeredAt = Date.now() / 1000;
        const { question } = sent;
        change({ data, question, answeredAt, failure: undefined, isLoading: false });
      },
      failed: (failure) => change({ failure, isLoading: false }),
    });
  }, []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: asked anew exactly when one of these moves
  useEffect(() => asker.ask(`${key}\n${question}`), [key, question, pulse, tries]);
  useEffect(() => () => asker.stop(), [asker]);
  const shown = held.key === key ? held : nothing<T>(key);
  const isOld = shown.data !== undefined && shown.question !== question;
  return { ...shown, isOld, reload: () => setTries((count) => count + 1) };
}
