/** What the reader writes in Explore, before and after it is run: fields, and what was asked before. */
import { useEffect, useRef, useState } from "preact/hooks";
import { askFormatted } from "../api/explore";
import type { Metric } from "../api/metadata";
import type { Hand } from "../parts/explore-editor";
import { suggested } from "../parts/explore-finder-words";
import { type Asked, historyOf, QUERIES_MAX, remembered, written } from "../parts/explore-state";
import { withQuery } from "../route";
import { range } from "../time";

const HISTORY_KEY = "fabricscope.explore";

/** There is always a field to write into. */
function withField(queries: readonly string[]): readonly string[] {
  return queries.length ? queries : [""];
}

/** The fields. `revision` moves when a text was changed by the page, not by the reader. */
function useDrafts(queries: readonly string[]) {
  const [drafts, setDrafts] = useState<readonly string[]>(withField(queries));
  const [revision, setRevision] = useState(0);
  const replace = (texts: readonly string[]) => {
    setDrafts(withField(texts));
    setRevision((number) => number + 1);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: another address brings other queries
  useEffect(() => replace(queries), [JSON.stringify(queries)]);
  const type = (at: number, text: string) =>
    setDrafts((old) => old.map((draft, place) => (place === at ? text : draft)));
  return { drafts, revision, replace, type };
}

/** Kept in this browser. */
function useHistory() {
  const [history, setHistory] = useState(() => historyOf(localStorage.getItem(HISTORY_KEY)));
  const remember = (queries: readonly string[]) => {
    const kept = queries.reduce(remembered, history);
    localStorage.setItem(HISTORY_KEY, JSON.stringify(kept));
    setHistory([...kept]);
  };
  const forget = () => {
    localStorage.removeItem(HISTORY_KEY);
    setHistory([]);
  };
  return { history, remember, forget };
}

export function useDesk(state: Asked, reload: () => void) {
  const { drafts, revision, replace, type } = useDrafts(state.queries);
  const { history, remember, forget } = useHistory();
  const [active, setActive] = useState(0);
  const hands = useRef<(Hand | undefined)[]>([]);
  const current = Math.min(active, drafts.length - 1);
  const changed = (at: number, text: string) =>
    drafts.map((draft, place) => (place === at ? text : draft));
  const run = (queries: readonly string[]) => {
    const wanted = queries.filter((query) => query.trim());
    remember(wanted);
    if (JSON.stringify(wanted) === JSON.stringify(state.queries)) reload();
    else withQuery(written({ ...state, queries: wanted, only: undefined }));
  };
  return {
    drafts,
    revision,
    history,
    forget,
    type,
    run,
    activate: setActive,
    canAdd: drafts.length < QUERIES_MAX && drafts.every((draft) => draft.trim()),
    add: () => {
      replace([...drafts, ""]);
      setActive(drafts.length);
    },
    remove: (at: number) => {
      const rest = drafts.filter((_, place) => place !== at);
      replace(rest);
      run(rest);
    },
    take: (at: number, hand: Hand | undefined) => {
      hands.current[at] = hand;
    },
    /** A query that cannot be formatted is run: the answer names the error. */
    format: (at: number) => {
      askFormatted(drafts[at] ?? "").then(
        (text) => replace(changed(at, text)),
        () => run(drafts),
      );
    },
    /** Into what is written; into an empty field as a question that fits, and asked at once. */
    pick: (metric: Metric) => {
      const hand = hands.current[current];
      if (drafts[current]?.trim() && hand) {
        hand.insert(metric.name);
        return;
      }
      const texts = changed(current, suggested(metric, range.value.to - range.value.from));
      replace(texts);
      run(texts);
    },
    recall: (query: string) => {
      replace(changed(current, query));
      hands.current[current]?.focus();
    },
  };
}
