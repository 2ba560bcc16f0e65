/** Something that is asked for, kept, and asked for again; with every state that a reader may see. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Failure } from "./api/client";

export interface Resource<T> {
  /** The last good answer, also while a newer one is asked for or cannot be had. */
  readonly data: T | undefined;
  /** Why the last try failed; gone with the next success. */
  readonly failure: Failure | undefined;
  readonly isLoading: boolean;
  /** Unix seconds of the last good answer: with a failure beside it, what is shown is stale. */
  readonly answeredAt: number | undefined;
  readonly reload: () => void;
}

type Held<T> = Omit<Resource<T>, "reload"> & { readonly key: string };

/**
 * Asks when `key` changes, and again when `pulse` moves (`now.value`, `changes.value`): then the old
 * answer stays on the screen meanwhile. Only the newest question's answer counts.
 */
export function useResource<T>(
  key: string,
  load: (abort: AbortSignal) => Promise<T>,
  pulse: number | string = 0,
): Resource<T> {
  const [tries, setTries] = useState(0);
  const nothing: Held<T> = {
    key,
    data: undefined,
    failure: undefined,
    isLoading: true,
    answeredAt: undefined,
  };
  const [held, setHeld] = useState<Held<T>>(nothing);
  const loader = useRef(load);
  loader.current = load;
  // biome-ignore lint/correctness/useExhaustiveDependencies: asked anew exactly when one of these moves
  useEffect(() => {
    const abort = new AbortController();
    setHeld((old) => (old.key === key ? { ...old, isLoading: true } : nothing));
    loader.current(abort.signal).then(
      (data) => {
        if (!abort.signal.aborted)
          setHeld({
            key,
            data,
            failure: undefined,
            isLoading: false,
            answeredAt: Date.now() / 1000,
          });
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failure =
          error instanceof Failure
            ? error
            : new Failure(-1, "The page made a mistake", String(error));
        setHeld((old) => ({ ...(old.key === key ? old : nothing), failure, isLoading: false }));
      },
    );
    return () => abort.abort();
  }, [key, pulse, tries]);
  const shown = held.key === key ? held : nothing;
  return { ...shown, reload: () => setTries((count) => count + 1) };
}
