/**
 * A field for PromQL with completion and marks where it is wrong (CodeMirror). A chunk of its own, loaded
 * by Explore only. It lies in a shadow root: CodeMirror then adopts its styles and needs no style element,
 * which the page's policy forbids.
 */
import {
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  closeCompletion,
  completionKeymap,
  completionStatus,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, insertNewline } from "@codemirror/commands";
import {
  bracketMatching,
  forceParsing,
  HighlightStyle,
  syntaxHighlighting,
} from "@codemirror/language";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { type PrometheusClient, PromQLExtension } from "@prometheus-io/codemirror-promql";
import { useEffect, useRef } from "preact/hooks";
import type { Flaw } from "./explore-state";

/** Names that are completed with type and help. */
const METRICS_MAX = 20_000;

/** What a finder or a history does with the field. */
export interface Hand {
  readonly insert: (text: string) => void;
  readonly focus: () => void;
}

export interface EditorProps {
  /** Who knows what can be completed; the same for as long as the field is there. */
  readonly client: PrometheusClient;
  readonly label: string;
  readonly value: string;
  /** Moves when the page, not the reader, changed the value: only then the editor takes it over. */
  readonly revision: number;
  readonly onChange: (text: string) => void;
  readonly onRun: () => void;
  readonly onFocus: () => void;
  /** Syntax errors in the text; empty: none. */
  readonly onFlaws: (flaws: readonly Flaw[]) => void;
  readonly onReady: (hand: Hand | undefined) => void;
}

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--s4)" },
  { tag: tags.operatorKeyword, color: "var(--s4)" },
  { tag: tags.modifier, color: "var(--s4)" },
  { tag: tags.function(tags.variableName), color: "var(--s1)" },
  { tag: tags.labelName, color: "var(--good)" },
  { tag: tags.string, color: "var(--warn)" },
  { tag: tags.number, color: "var(--s5)" },
  { tag: tags.operator, color: "var(--soft)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

const looks = EditorView.theme({
  "&": { backgroundColor: "var(--card)", color: "var(--ink)", borderRadius: "6px" },
  "&.cm-focused": { outline: "none" },
  ".cm-content": {
    caretColor: "var(--ink)",
    fontFamily: 'ui-monospace, "SF Mono", Menlo, monospace',
    fontSize: "13px",
    padding: "6px 0",
  },
  ".cm-line": { padding: "0 8px" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-placeholder": { color: "var(--soft)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection": {
    backgroundColor: "color-mix(in srgb, var(--accent) 28%, transparent)",
  },
  "&.cm-focused .cm-matchingBracket": {
    backgroundColor: "var(--chip)",
    outline: "1px solid var(--rule)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--card)",
    color: "var(--ink)",
    border: "1px solid var(--rule)",
    borderRadius: "6px",
    boxShadow: "0 4px 16px #0003",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {
    fontFamily: 'ui-monospace, "SF Mono", Menlo, monospace',
    fontSize: "12.5px",
    maxHeight: "16em",
    maxWidth: "min(560px, 84vw)",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 8px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": {
    backgroundColor: "var(--accent)",
    color: "var(--card)",
  },
  ".cm-completionDetail": { fontStyle: "normal", opacity: "0.8", marginLeft: "10px" },
  ".cm-completionInfo": { maxWidth: "340px", padding: "6px 10px", fontSize: "12.5px" },
  ".cm-diagnostic": { padding: "4px 10px", fontSize: "12.5px" },
});

/** Looks for flaws in the whole text: on a busy machine CodeMirror gives up on parsing before the end. */
const PARSE_MS_MAX = 500;

function promqlOf(latest: { current: EditorProps }): PromQLExtension {
  const promql = new PromQLExtension().setComplete({
    remote: latest.current.client,
    maxMetricsMetadata: METRICS_MAX,
  });
  const lint = promql.getLinter();
  return promql.setLinter({
    promQL: () => (view) => {
      forceParsing(view, view.state.doc.length, PARSE_MS_MAX);
      const found = view.state.doc.length ? lint.promQL.call(lint)(view) : [];
      if (Array.isArray(found)) latest.current.onFlaws(found);
      return found;
    },
  });
}

function extensions(latest: { current: EditorProps }) {
  const run = () => {
    latest.current.onRun();
    return true;
  };
  return [
    history(),
    bracketMatching(),
    closeBrackets(),
    autocompletion({ icons: false }),
    promqlOf(latest).asExtension(),
    syntaxHighlighting(colours),
    looks,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": latest.current.label }),
    placeholder("PromQL: a metric, or rate(metric[5m])"),
    Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
    // Below completion, which takes Enter while its list is open.
    keymap.of([
      ...completionKeymap,
      { key: "Enter", run, shift: insertNewline },
      ...closeBracketsKeymap,
      ...historyKeymap,
      ...defaultKeymap,
    ]),
    // CodeMirror closes its list when the field is left, but one still on its way would open over the result.
    EditorView.domEventHandlers({
      blur: (_, left) => {
        if (completionStatus(left.state) === "pending") closeCompletion(left);
      },
    }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) latest.current.onChange(update.state.doc.toString());
      if (update.focusChanged && update.view.hasFocus) latest.current.onFocus();
    }),
  ];
}

export default function Editor(props: EditorProps) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const host = place.current;
    if (!host) return;
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open", delegatesFocus: true });
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({ doc: latest.current.value, extensions: extensions(latest) }),
    });
    view.current = made;
    latest.current.onReady({ insert: (text) => insert(made, text), focus: () => made.focus() });
    return () => {
      latest.current.onReady(undefined);
      made.destroy();
      view.current = undefined;
    };
  }, []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is typed comes back as a value, too
  useEffect(() => {
    const made = view.current;
    if (!made || made.state.doc.toString() === props.value) return;
    made.dispatch({ changes: { from: 0, to: made.state.doc.length, insert: props.value } });
  }, [props.revision]);
  // The class keeps the page's keys away while the reader types: events in here seem to come from this element.
  return <div ref={place} class="explore-editor cm-editor" />;
}

/** Where the cursor is, in place of what is selected. */
function insert(view: EditorView, text: string): void {
  view.dispatch(view.state.replaceSelection(text));
  view.focus();
}
