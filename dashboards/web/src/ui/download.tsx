/** A file of the service. A plain link cannot send a token, so with one the file is fetched first. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { bearer, Failure, send } from "../api/client";
import { save } from "./save";

export function Download(props: {
  url: string;
  name: string;
  title?: string;
  children: ComponentChildren;
}) {
  const [isLoading, setLoading] = useState(false);
  const [refusal, setRefusal] = useState("");
  if (!bearer.value)
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
