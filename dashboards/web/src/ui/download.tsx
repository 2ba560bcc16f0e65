/** A file of the service. A plain link cannot send a token, so with one the file is fetched first. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Failure, send, token } from "../api/client";

/** How long the browser may take to begin reading; an address kept for ever keeps the file in memory. */
const KEPT_MS = 60_000;

export function Download(props: {
  url: string;
  name: string;
  title?: string;
  children: ComponentChildren;
}) {
  const [isLoading, setLoading] = useState(false);
  const [refusal, setRefusal] = useState("");
  if (!token.value)
    return (
      <a class="button" href={props.url} download={props.name} title={props.title}>
        {props.children}
      </a>
    );
  const load = async () => {
    setLoading(true);
    setRefusal("");
    try {
      save(await (await send(props.url)).blob(), props.name);
    } catch (error) {
      setRefusal(error instanceof Failure ? error.detail || error.title : String(error));
    }
    setLoading(false);
  };
  return (
    <>
      <button type="button" title={props.title} disabled={isLoading} onClick={load}>
        {isLoading ? "Loading …" : props.children}
      </button>
      {refusal && <span role="alert">{refusal}</span>}
    </>
  );
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}
