/** A trace in Perfetto's UI, in a tab of its own; where the service's settings allow it. */
import { useState } from "preact/hooks";
import { bearer, Failure, isPassOnly, send } from "../api/client";
import { askPageSettings } from "../api/page-settings";
import { useResource } from "../resource";
import { listening, openTab, readBounded } from "./hand-over";

/** Viewers become slow far below it, and a tab has little more. */
const TRACE_BYTES_MAX = 500e6;

export function OpenInPerfetto(props: { url: string; name: string; title: string }) {
  const settings = useResource(`page settings ${bearer.value !== ""}`, async (abort) =>
    isPassOnly.value ? undefined : askPageSettings(abort),
  );
  const [state, setState] = useState("");
  const [trouble, setTrouble] = useState("");
  const viewer = settings.data?.perfetto_url;
  if (!viewer) return null;
  const { origin, host } = new URL(viewer);
  const hand = async () => {
    setTrouble("");
    const tab = openTab(viewer);
    if (!tab) {
      setTrouble("This browser refused to open a tab: allow pop-ups of this page.");
      return;
    }
    setState("Loading the trace …");
    try {
      const [buffer] = await Promise.all([
        send(props.url).then((answer) =>
          readBounded(answer, TRACE_BYTES_MAX, (bytes) =>
            setState(`Loading the trace: ${(bytes / 1e6).toFixed(0)} MB …`),
          ),
        ),
        listening(tab, origin),
      ]);
      const perfetto = { buffer, title: props.title, fileName: props.name };
      tab.postMessage({ perfetto }, origin, [buffer]);
    } catch (error) {
      const why = error instanceof Failure ? error.detail || error.title : (error as Error).message;
      setTrouble(`Not handed to ${host}: ${why} The file can be downloaded and opened there.`);
    }
    setState("");
  };
  return (
    <>
      <button
        type="button"
        disabled={state !== ""}
        title={`Opens ${host} in a new tab and gives it the trace there; the trace stays in this browser`}
        onClick={hand}
      >
        {state || "Open in Perfetto"}
      </button>
      {trouble && (
        <span class="state failed" role="alert">
          {trouble}
        </span>
      )}
    </>
  );
}
