/** A question to the reader before something is changed, and the service's answer. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Failure } from "../api/client";
import "../style/settings.css";

/**
 * A form in front of everything else. `onConfirm` is awaited: what it throws is shown and the form
 * stays, otherwise it closes. `problem`: why it cannot be sent as it is; empty if it can. `command`: what
 * does the same in a terminal, shown where this page may not.
 */
export function AskDialog(props: {
  title: string;
  confirm: string;
  problem?: string;
  command?: string;
  onConfirm: () => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  const [refusal, setRefusal] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const send = async () => {
    setBusy(true);
    setRefusal(undefined);
    try {
      await props.onConfirm();
      props.onClose();
    } catch (error) {
      setRefusal(error);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class="ask" aria-labelledby={title} onClose={props.onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!isBusy && !props.problem) void send();
        }}
      >
        <h2 id={title}>{props.title}</h2>
        {props.children}
        {refusal !== undefined ? (
          <Refusal error={refusal} command={props.command} />
        ) : (
          props.problem && (
            <p class="soft" role="status">
              {props.problem}
            </p>
          )
        )}
        <div class="row end">
          <button type="button" onClick={props.onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={isBusy || !!props.problem}>
            {isBusy ? "Sending …" : props.confirm}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Why the service did not do it, where it was asked for. */
export function Refusal(props: { error: unknown; command?: string | undefined }) {
  return (
    <p class="refusal" role="alert">
      {refusalWords(props.error)}
      {props.command && isDenied(props.error) && (
        <>
          {" "}
          In a terminal, with a token of yours: <code>{props.command}</code>
        </>
      )}
    </p>
  );
}

/** The page's token, or its lack of one, is why. */
function isDenied(error: unknown): boolean {
  return error instanceof Failure && (error.status === 401 || error.status === 403);
}

/** The service's refusal. */
export function refusalWords(error: unknown): string {
  if (!(error instanceof Failure)) return String(error);
  if (error.isUnreachable) return "The service does not answer. Nothing was changed.";
  if (isDenied(error))
    return `Not allowed: ${error.detail || error.title}. For another token, forget this one in Settings, This browser.`;
  return `Refused: ${error.title}${error.detail ? `. ${error.detail}` : ""}`;
}
